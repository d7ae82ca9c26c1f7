"""`bagcert verify`: does every stored certificate follow from its stored scores?"""

from pathlib import Path
from typing import Annotated, Any

import typer

from bagcert.cli.output import counted
from bagcert.rows.format import CERTIFICATES, read_meta
from bagcert.rows.verify.check import Verdict, verify_rows
from bagcert.rows.verify.painted import read_mask_files
from bagcert.rows.verify.reach import field_of

SHOWN = 20


def verify(
    rows: Annotated[Path, typer.Argument(help="file written by `bagcert certify --scores`")],
    masks: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE.npy", help="masks that the rows were certified with; repeat for several"),
    ] = None,
) -> None:
    with counted("verifying", read_meta(rows, CERTIFICATES).images) as after_image:
        verdict = verify_rows(rows, after_image, read_mask_files(masks or []))
    for line in words(verdict):
        typer.echo(line)
    if verdict.problems:
        raise typer.Exit(1)


def words(verdict: Verdict) -> list[str]:
    """What was checked, what was taken as given, and what does not hold."""
    header, footprint = verdict.header, verdict.header["footprint"]
    low, high = header["scores"]["bounds"]
    lines = [
        f"checked {verdict.certificates} certificates of {verdict.images} images from their stored scores",
        f"taken as given: weights {header['weights_sha256'][:12]} gave these scores, in {low}..{high} for any image, "
        f"{sight(footprint)}; labels and names of classes are those of the data",
        "not checked: rivals and weakest placements, which no proof needs",
    ]
    if not verdict.problems:
        return [*lines, "all hold, and so do the accuracies"]
    for problem in verdict.problems[:SHOWN]:
        where = "file" if problem.image is None else f"image {problem.image}"
        lines.append(f"{where}: {problem.words}")
    if len(verdict.problems) > SHOWN:
        lines.append(f"and {len(verdict.problems) - SHOWN} more")
    images = sorted({problem.image for problem in verdict.problems if problem.image is not None})
    return [*lines, f"{len(verdict.problems)} do not hold; images: {', '.join(map(str, images)) or 'none'}"]


def sight(footprint: dict[str, Any]) -> str:
    """What each score sees according to the rows, in words."""
    if "hidden" in footprint:
        return "each from a view that hides what the rows name; views at the upper end agree for any image"
    field = "x".join(map(str, footprint["kept"] if "kept" in footprint else field_of(footprint)))
    if "maps" in footprint:
        return f"each seeing at most {field} pixels by the layers of its own map, one of {len(footprint['maps'])}"
    if "layers" in footprint:
        by = f"by {len(footprint['layers'])} layers"
    else:
        by = "of its own ablated image" if "kept" in footprint else "by the table in the rows"
    return f"each seeing {field} pixels {by}"
