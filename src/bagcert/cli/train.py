"""`bagcert train`: a recipe in, a run folder out."""

import json
import os
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from bagcert.training.loop import RunOptions
from bagcert.training.loop import train as train_recipe
from bagcert.training.recipe import load_recipe
from bagcert.training.run import RunFolder
from bagcert.training.sync import Stopped


def train(
    recipe: Annotated[str, typer.Argument(help="a shipped recipe such as fast-cifar10, or a TOML file")],
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="SECTION.KEY=VALUE", help="change one value of the recipe")
    ] = None,
    minutes: Annotated[float | None, typer.Option(help="measure the speed, then train as long as fits", min=0)] = None,
    out: Annotated[Path | None, typer.Option(help="the run folder; runs/RECIPE if not given")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="go on from the checkpoint in the run folder")] = False,
    data: Annotated[
        str | None, typer.Option(help="instead of the recipe's data set: a folder with train/CLASS/* and val/CLASS/*")
    ] = None,
    data_dir: Annotated[Path | None, typer.Option(help="where data sets are kept")] = None,
    skip_broken: Annotated[bool, typer.Option("--skip-broken", help="leave out images that cannot be read")] = False,
    seed: Annotated[int, typer.Option(help="all randomness follows from it")] = 0,
    final: Annotated[bool, typer.Option("--final", help="train on the validation images too")] = False,
) -> None:
    """Train a network whose decisions can be certified."""
    folder = out or Path("runs") / Path(recipe).stem
    order = RunOptions(out=folder, data_dir=data_dir, seed=seed, minutes=minutes, final=final, resume=resume)
    try:
        changes = [*(settings or ()), *([f"data.name={json.dumps(data)}"] if data is not None else [])]
        train_recipe(load_recipe(recipe, [*changes, *(["data.skip_broken=true"] if skip_broken else [])]), order)
    except Stopped:
        if os.environ.get("RANK", "0") == "0":
            again = [word for word in sys.argv[1:] if word != "--resume"]
            typer.echo(f"stopped; to go on: bagcert {shlex.join([*again, '--resume'])}")
        raise typer.Exit(130) from None
    if os.environ.get("RANK", "0") == "0":
        typer.echo(f"wrote {RunFolder(folder).weights}")
