"""The `bagcert` command: one small file per subcommand, errors as one line."""

import sys

import typer
from rich.console import Console

from bagcert.cli.attack import attack
from bagcert.cli.audit import audit
from bagcert.cli.certify import certify
from bagcert.cli.data import data
from bagcert.cli.demo import demo
from bagcert.cli.export import export
from bagcert.cli.models import models
from bagcert.cli.report import report
from bagcert.cli.serve import serve
from bagcert.cli.ship import ship
from bagcert.cli.train import train
from bagcert.cli.verify import verify
from bagcert.errors import UsageError

app = typer.Typer(
    name="bagcert",
    help="Image classifiers whose decisions are proven safe from adversarial patches",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(data)
app.command()(train)
app.command()(models)
app.command()(ship)
app.command()(certify)
app.command()(attack)
app.command()(verify)
app.command()(report)
app.command()(export)
app.command()(audit)
app.command()(serve)
app.command()(demo)


def main() -> None:
    """Run the command line. A caller's mistake becomes one line on stderr and exit code 2."""
    try:
        app()
    except UsageError as error:
        Console(stderr=True, highlight=False, soft_wrap=True).print(f"bagcert: {error}", markup=False)
        sys.exit(2)
