"""`bagcert rows join`: the shards of a split as one file of rows."""

from pathlib import Path
from typing import Annotated

import typer

from bagcert.cli.output import counted, rows_path
from bagcert.errors import UsageError
from bagcert.rows.certified import read_rows, summary
from bagcert.rows.format import CERTIFICATES, read_meta
from bagcert.rows.joining import join_rows


def rows(
    action: Annotated[str, typer.Argument(help="join")],
    parts: Annotated[list[Path], typer.Argument(help="the files of all shards, in any order")],
    out: Annotated[Path, typer.Option(help="file for all rows, ending in .jsonl")],
) -> None:
    if action != "join":
        raise UsageError(f"There is no 'rows {action}'. Write bagcert rows join PART... --out WHOLE.jsonl")
    with counted("joining", sum(read_meta(path, CERTIFICATES).images for path in parts)) as after_image:
        join_rows(parts, rows_path(out), after_image)
    whole = read_rows(out)
    for entry in summary(whole):
        shares = f"clean {100 * entry['clean_accuracy']:.2f} %, certified {100 * entry['certified_accuracy']:.2f} %"
        typer.echo(f"{entry['patch']} {entry['rule']}: {shares}")
    typer.echo(f"{len(whole)} images in {len(parts)} shards, all digests hold; rows: {out}")
    if "scores_stored" in whole.header:
        typer.echo(f"to check every certificate: bagcert verify {out}")
