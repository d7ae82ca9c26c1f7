"""`bagcert train`: from a recipe to a run folder."""

import json
import os
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import torch
import typer

from bagcert.cli.own_network import OwnNetwork, own_network
from bagcert.data.base import derive_seed
from bagcert.training.loop import RunOptions
from bagcert.training.loop import train as train_recipe
from bagcert.training.recipe import Recipe, load_recipe
from bagcert.training.run import RunFolder
from bagcert.training.sync import Stopped


def train(
    recipe: Annotated[str, typer.Argument(help="shipped recipe such as fast-cifar10, or TOML file")],
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="SECTION.KEY=VALUE", help="change of one value of the recipe; repeat for several"
        ),
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(help="time limit: measure the speed, then train as many steps as fit", min=0)
    ] = None,
    out: Annotated[Path | None, typer.Option(help="run folder; default: runs/RECIPE")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="continue from the checkpoint in the run folder")] = False,
    data: Annotated[
        str | None, typer.Option(help="folder with train/CLASS/* and val/CLASS/* instead of the recipe's data set")
    ] = None,
    data_dir: Annotated[Path | None, typer.Option(help="folder of the data sets")] = None,
    skip_broken: Annotated[bool, typer.Option("--skip-broken", help="leave out images that cannot be read")] = False,
    seed: Annotated[int, typer.Option(help="seed of all randomness")] = 0,
    final: Annotated[bool, typer.Option("--final", help="train on the validation images too")] = False,
    network: OwnNetwork = None,
) -> None:
    folder = out or Path("runs") / Path(recipe).stem
    order = RunOptions(out=folder, data_dir=data_dir, seed=seed, minutes=minutes, final=final, resume=resume)
    try:
        changes = [*(settings or ()), *([f"data.name={json.dumps(data)}"] if data is not None else [])]
        changes += ["data.skip_broken=true"] if skip_broken else []
        train_recipe(chosen_recipe(recipe, changes, network, seed), order)
    except Stopped:
        if os.environ.get("RANK", "0") == "0":
            again = [word for word in sys.argv[1:] if word != "--resume"]
            typer.echo(f"stopped; to continue: bagcert {shlex.join([*again, '--resume'])}")
        raise typer.Exit(130) from None
    if os.environ.get("RANK", "0") == "0":
        typer.echo(f"wrote {RunFolder(folder).weights}")


def chosen_recipe(name: str, changes: list[str], network: str | None, seed: int) -> Recipe:
    """The recipe with its changes; a network of the caller's own takes the place of the recipe's."""
    if network is None:
        return load_recipe(name, changes)
    recipe = load_recipe(name, ["network.name=own", *changes])
    torch.manual_seed(derive_seed(seed, "weights"))
    own = own_network(network)
    assert own is not None
    return replace(recipe, network=recipe.network.handed(own))
