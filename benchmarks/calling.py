"""Benchmarks as commands: a caller's mistake is one line and exit code 2, as with `bagcert`."""

import sys
from collections.abc import Callable
from typing import Any

import typer

from bagcert.errors import UsageError


def call(*commands: Callable[..., Any]) -> None:
    """Run the command that the arguments name, or the only one."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, no_args_is_help=len(commands) > 1)
    for command in commands:
        app.command()(command)
    try:
        app()
    except UsageError as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        sys.exit(2)
