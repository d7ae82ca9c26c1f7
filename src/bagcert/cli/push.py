"""`bagcert push`: a model to the Hugging Face Hub."""

from typing import Annotated

import typer

from bagcert.hub import PREFIX
from bagcert.publishing import push as push_model


def push(
    model: Annotated[str, typer.Argument(help="shipped model, or folder written by `bagcert train` or `ship`")],
    repository: Annotated[str, typer.Argument(metavar="OWNER/NAME", help="where to; made if it does not exist")],
    license: Annotated[
        str | None, typer.Option(help="licence as the Hub names it, such as apache-2.0; default: the card's")
    ] = None,
    private: Annotated[bool, typer.Option("--private", help="if it is made: for you alone")] = False,
) -> None:
    commit = push_model(model, repository, license, private)
    typer.echo(f"{PREFIX}{repository}@{commit}")
