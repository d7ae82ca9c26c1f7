"""The `bagcert` command: one row per subcommand, imported only when it is used; errors as one line."""

import sys
from importlib import import_module
from typing import Annotated, Any

import typer
from rich.console import Console
from typer.core import TyperGroup

from bagcert.errors import UsageError
from bagcert.version import __version__

# What `bagcert --help` says. The command NAME is the function NAME in `bagcert/cli/NAME.py`.
COMMANDS = {
    "data": "Fetch a data set if needed, read all of it, and print what it holds",
    "train": "Train a network whose decisions can be certified",
    "recipes": "List the recipes, or show every key of one of them with its meaning",
    "models": "List the shipped models, or show the card of one of them",
    "ship": "Store a run with 8-bit weights, and certify the whole test set in float32 for its card",
    "push": "Upload a model to the Hugging Face Hub, with a model card; prints the name and commit to load it by",
    "cover": "Make a defense of any classifier, a ResNet or a ViT, by masks over its images",
    "predict": "Say what pictures show, and how large a patch, in their own pixels, cannot change that",
    "certify": "Certify a data set: prove for each image that no patch changes its class; "
    "repeat the command to continue it",
    "attack": "Attack images with patches; exit with code 1 if a certified image changes its class, "
    "which breaks the proof",
    "verify": "Check every certificate with separate, plain and slow code; exit with code 1 if any does not hold",
    "rows": "Join the rows of all shards into one file, if model, data, evaluations and program are the same",
    "leaderboard": "Check entries of rows with scores, by arithmetic or by computing them again, and rank what holds",
    "report": "Write rows as a self-contained page, with tables (Markdown, LaTeX) and figures (SVG, PNG) beside it",
    "export": "Write one ONNX graph from pixels to class, certificate and weakest placement; it needs only onnxruntime",
    "audit": "Compare scores bit for bit under patches, other batches and repetition; "
    "exit with code 1 if a check fails",
    "serve": "Serve a model over HTTP: each picture gets its class and the proof; "
    "Ctrl-C stops after the accepted requests",
    "demo": "Certify 1,000 images with a shipped model, attack 40 of them, and write a report",
}
SETTINGS: dict[str, Any] = {"add_completion": False, "pretty_exceptions_enable": False}


def command(name: str) -> Any:
    """One subcommand with all its options."""
    alone = typer.Typer(**SETTINGS)
    alone.command(name, help=COMMANDS[name])(getattr(import_module(f"bagcert.cli.{name}"), name))
    return typer.main.get_command(alone)


class CommandsByName(TyperGroup):
    """Lists every command by its row; imports the one that is called. Importing torch takes longer than any help."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] in COMMANDS:
            self.commands[args[0]] = command(args[0])
        return super().resolve_command(ctx, args)


app = typer.Typer(
    name="bagcert",
    help="Image classifiers whose decisions are proven safe from adversarial patches",
    cls=CommandsByName,
    no_args_is_help=True,
    **SETTINGS,
)
for name, help_line in COMMANDS.items():
    app.command(name, help=help_line)(lambda: None)


def show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"bagcert {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="print the version and exit", callback=show_version, is_eager=True)
    ] = False,
) -> None:
    """What can be asked without a command."""


def main() -> None:
    """Run the command line. A caller's mistake becomes one line on stderr and exit code 2."""
    try:
        app()
    except UsageError as error:
        Console(stderr=True, highlight=False, soft_wrap=True).print(f"bagcert: {error}", markup=False)
        sys.exit(2)
