"""`bagcert train`: from a recipe, a folder of pictures, or both to a run folder."""

import json
import os
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import torch
import typer

from bagcert.cli.model_options import OwnNetwork, own_network
from bagcert.data.base import derive_seed
from bagcert.data.catalog import LOADERS, find_folder
from bagcert.errors import UsageError
from bagcert.training.loop import RunOptions
from bagcert.training.loop import train as train_recipe
from bagcert.training.plan import Origin, Planned, plan_folder
from bagcert.training.recipe import Recipe, load_recipe
from bagcert.training.run import RunFolder
from bagcert.training.sync import Stopped


def train(
    recipe: Annotated[
        str | None,
        typer.Argument(help="shipped recipe such as fast-cifar10, or TOML file; default: by the size of the pictures"),
    ] = None,
    data: Annotated[
        str | None, typer.Option(help="folder with train/CLASS/* and val/CLASS/* instead of the recipe's data set")
    ] = None,
    patch: Annotated[str | None, typer.Option(help="patch to train for and to certify against")] = None,
    start_from: Annotated[
        str | None, typer.Option(metavar="MODEL", help="begin with the weights of this model or run; needs --data")
    ] = None,
    freeze: Annotated[bool, typer.Option("--freeze", help="with --start-from: train only the new head")] = False,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="SECTION.KEY=VALUE", help="change of one value of the recipe; repeat for several"
        ),
    ] = None,
    weights: Annotated[
        Path | None, typer.Option(help="with --network: file of trained weights, .safetensors or .pth, to begin with")
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(help="time limit: measure the speed, then train as many steps as fit", min=0)
    ] = None,
    out: Annotated[Path | None, typer.Option(help="run folder; default: runs/RECIPE, or runs/FOLDER")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="continue from the checkpoint in the run folder")] = False,
    data_dir: Annotated[Path | None, typer.Option(help="folder of the data sets")] = None,
    skip_broken: Annotated[bool, typer.Option("--skip-broken", help="leave out images that cannot be read")] = False,
    seed: Annotated[int, typer.Option(help="seed of all randomness")] = 0,
    final: Annotated[bool, typer.Option("--final", help="train on the validation images too")] = False,
    network: OwnNetwork = None,
) -> None:
    wanted = {
        "evaluation.patch": patch,
        "data.skip_broken": skip_broken or None,
        "data.name": data,
        "training.weights": None if weights is None else str(weights),
    }
    changes = [f"{key}={json.dumps(value)}" for key, value in wanted.items() if value is not None]
    origin = Origin(start_from, freeze, own=network is not None)
    planned = plan(recipe, data, data_dir, origin, [*changes, *(settings or ())])
    folder = out or Path("runs") / Path(recipe or data or "").stem
    order = RunOptions(folder, data_dir, seed, minutes, final, resume, told=planned.told)
    try:
        train_recipe(handed_over(planned.recipe, network, seed), order)
    except Stopped:
        if os.environ.get("RANK", "0") == "0":
            again = [word for word in sys.argv[1:] if word != "--resume"]
            typer.echo(f"stopped; to continue: bagcert {shlex.join([*again, '--resume'])}")
        raise typer.Exit(130) from None
    if os.environ.get("RANK", "0") == "0":
        typer.echo(f"wrote {RunFolder(folder).weights}")


def plan(recipe: str | None, data: str | None, data_dir: Path | None, origin: Origin, changes: list[str]) -> Planned:
    """The recipe as it is, or fitted to a folder."""
    if origin.freeze and origin.start is None:
        raise UsageError("Layers can be frozen only if they come from a model. Add --start-from MODEL.")
    if origin.own and origin.start is not None:
        raise UsageError("A network starts from the weights of a model or is your own. Drop --network or --start-from.")
    if data is not None and data not in LOADERS:
        return plan_folder(find_folder(data, data_dir), recipe, changes, origin)
    if origin.start is not None:
        raise UsageError("To start from a model, name the folder to train on. Add --data FOLDER.")
    if recipe is None:
        raise UsageError("Name a recipe, or a folder of pictures: bagcert train --data FOLDER. See bagcert recipes.")
    own = origin.own and not load_recipe(recipe).network.brings_weights
    return Planned(load_recipe(recipe, ["network.name=own", *changes] if own else changes), told="")


def handed_over(recipe: Recipe, network: str | None, seed: int) -> Recipe:
    """The recipe with a network of the caller's own, if one is named."""
    torch.manual_seed(derive_seed(seed, "weights"))
    own = own_network(network, pretrained=not recipe.training.weights)
    return recipe if own is None else replace(recipe, network=recipe.network.handed(own))
