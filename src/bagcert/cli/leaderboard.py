"""`bagcert leaderboard check`: which entries hold, on which level, and their tables."""

from pathlib import Path
from typing import Annotated

import typer
from torch import nn

from bagcert.cli.model_options import own_network
from bagcert.cli.output import counted
from bagcert.errors import UsageError
from bagcert.files import write_atomically
from bagcert.program import find_device
from bagcert.rows.format import CERTIFICATES, read_meta, rows_name
from bagcert.rows.leaderboard import Ours, check_entry, entry_files
from bagcert.rows.standings import REFUSED, Entry, tables


def leaderboard(
    action: Annotated[str, typer.Argument(help="check")],
    folder: Annotated[Path, typer.Argument(help="folder with the rows of each entry and their scores")],
    reproduce: Annotated[
        bool, typer.Option("--reproduce", help="compute all scores again from weights and data")
    ] = False,
    data: Annotated[
        list[Path] | None,
        typer.Option(metavar="FOLDER", help="your own copy of a folder that entries are of; repeat for several"),
    ] = None,
    data_dir: Annotated[Path | None, typer.Option(help="folder of the data sets")] = None,
    device: Annotated[
        str | None, typer.Option(help="of --reproduce: cpu, cuda or cuda:N; default: the kind that the rows name")
    ] = None,
    network: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=MODULE:FUNCTION", help="of --reproduce: the network of an entry that is not ours; repeat"
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Markdown file to write the tables to")] = None,
) -> None:
    if action != "check":
        raise UsageError(f"There is no 'leaderboard {action}'. Write bagcert leaderboard check FOLDER.")
    if device is not None:
        find_device(device)  # refused before anything is verified
    files = entry_files(folder)
    networks = dict(named_network(text, {rows_name(path) for path in files}) for text in network or ())
    ours = Ours(data_dir, tuple(data or ()), networks, device)
    entries = [checked(path, reproduce, ours) for path in files]
    text = tables(entries)
    typer.echo("\n" + text)
    if out is not None:
        write_atomically(out, text.encode())
    if any(entry.level == REFUSED for entry in entries):
        raise typer.Exit(1)


def named_network(text: str, entries: set[str]) -> tuple[str, nn.Module]:
    """The name of an entry, and the network that the caller says it has."""
    name, _, place = text.partition("=")
    network = own_network(place or None)
    if network is None or name not in entries:
        raise UsageError(
            f"Name an entry and its network, as in {min(entries)}=my_networks:small, not '{text}'. "
            f"Entries: {', '.join(sorted(entries))}."
        )
    return name, network


def checked(path: Path, reproduce: bool, ours: Ours) -> Entry:
    """Check an entry, and print its level."""
    with counted(path.name, stated_images(path) * (2 if reproduce else 1)) as after_image:
        entry = check_entry(path, reproduce, ours, after_image)
    typer.echo(f"{entry.name}: {entry.level}" + (f"; {entry.why}" if entry.why else ""))
    return entry


def stated_images(path: Path) -> int:
    """For the progress bar; what cannot be read is refused later, with its reason."""
    try:
        return read_meta(path, CERTIFICATES).images
    except UsageError:
        return 0
