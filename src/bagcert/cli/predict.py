"""`bagcert predict`: what pictures show, and what no patch on them can change."""

import csv
import glob
import io
import json
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from shutil import get_terminal_size
from typing import Annotated, Any

import numpy as np
import torch
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bagcert.answers import Answer
from bagcert.cli.model_options import ModelArgument, OwnNetwork, ProgramOption, own_network
from bagcert.cli.output import counted
from bagcert.cli.threat_options import FalseAlertsOption, MasksOption, PatchOption, against
from bagcert.defense import Defense, load
from bagcert.errors import UsageError
from bagcert.files import write_atomically
from bagcert.pictures.reading import ENDINGS, read_file
from bagcert.pictures.sources import frame_one
from bagcert.program import EXACT, find_device, usual_device
from bagcert.showing import draw_answer

STDIN = "-"
NO_SCORES = np.zeros((0, 0, 0), np.int32)
ONE_PICTURE = "Give - the bytes of one picture, not names of files."
JOINED = re.compile(rb"(IEND\xaeB`\x82|\xff\xd9)(\x89PNG\r\n\x1a\n|\xff\xd8\xff)")  # a PNG or JPEG ends, another begins
SEVERAL_FRAMES = b"MPF\x00"  # of a camera's JPEG with further frames, such as a depth map
COLUMNS = (
    *("picture", "class", "name", "proven", "patch", "weakest", "threat", "threat_original", "lead", "rival"),
    *("alert", "detectable", "error"),
)


def predict(
    model: ModelArgument,
    pictures: Annotated[
        list[str],
        typer.Argument(metavar="PICTURE...", help="files, folders or patterns like '*.jpg'; -: standard input"),
    ],
    patch: PatchOption = None,
    masks: MasksOption = None,
    rule: Annotated[str | None, typer.Option(help="rule, built for the patch; default: the model's")] = None,
    false_alerts: FalseAlertsOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object instead of a table")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="print comma-separated values instead of a table")] = False,
    picture: Annotated[
        Path | None,
        typer.Option(
            metavar="OUT",
            help="draw each picture with its evidence and weakest place: a .png file, or a folder for several",
        ),
    ] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda or cuda:N; default: the GPU if there is one")] = None,
    program: ProgramOption = EXACT,
    network: OwnNetwork = None,
) -> None:
    if as_json and as_csv:
        raise UsageError("Choose --json or --csv, not both.")
    found = expand(pictures)
    loaded = load(model, find_device(device, usual_device()), own_network(network), program)
    defense = against(loaded, patch, masks, rule, false_alerts)
    drawings = None if picture is None else drawing_paths(picture, found)
    lines = []
    with counted("predicting", len(found)) as after_picture:
        for line in predictions(defense, found, drawings):
            lines.append(line)
            after_picture(1)
    if as_json:
        typer.echo(json.dumps(to_object(model, defense, lines)))
    elif as_csv:
        typer.echo(to_csv(lines), nl=False)
    else:
        show(defense, lines)
    undrawn = [line.undrawn for line in lines if line.undrawn is not None]
    for reason in undrawn:
        typer.echo(reason, err=True)
    wrong = [line for line in lines if line.answer is None]
    if wrong:
        raise UsageError(f"Pictures without an answer: {len(wrong)} of {len(lines)}. Leave them out, or repair them.")
    if undrawn:
        raise UsageError(f"Pictures without a drawing: {len(undrawn)} of {len(lines)}. Give --picture another name.")


@dataclass(frozen=True, eq=False)
class Prediction:
    """One picture with its answer, or with the reason why there is none."""

    picture: str
    answer: Answer | None
    error: str | None = None
    undrawn: str | None = None  # why its drawing could not be written


def expand(arguments: Sequence[str]) -> list[str]:
    """Files as they are; of a folder and of a pattern, every picture in it."""
    if arguments.count(STDIN) > 1:
        raise UsageError(f"Standard input is read once, but - is given {arguments.count(STDIN)} times. Give it once.")
    found: list[str] = []
    for argument in arguments:
        path = Path(argument)
        if argument != STDIN and path.is_dir():
            inside = sorted(str(each) for each in path.rglob("*") if each.suffix.lower() in ENDINGS)
            if not inside:
                raise UsageError(f"{path} holds no pictures ({' '.join(ENDINGS)}). Name another folder.")
            found += inside
        elif argument != STDIN and not path.exists() and glob.has_magic(argument):
            inside = sorted(each for each in glob.glob(argument, recursive=True) if Path(each).is_file())
            if not inside:
                raise UsageError(f"No file matches '{argument}'. Check the pattern.")
            found += inside
        else:
            found.append(argument)
    return list(dict.fromkeys(found))


def drawing_paths(out: Path, found: Sequence[str]) -> list[Path]:
    """Where each drawing goes: `out` itself for one picture, else files in that folder."""
    if len(found) == 1 and out.suffix.lower() == ".png":
        return [out]
    if out.suffix:
        raise UsageError(f"The name of --picture must end in .png for one picture, or be a folder, but is {out}.")
    names = ["stdin" if name == STDIN else Path(name).stem for name in found]
    return [out / f"{number:03}-{name}.png" for number, name in enumerate(names)]


def predictions(defense: Defense, found: Sequence[str], drawings: Sequence[Path] | None) -> Iterator[Prediction]:
    """The predictions in order, one batch of the network at a time. A file that cannot be read costs only itself.

    Score maps are dropped once they are drawn: those of a large folder would not fit into memory.
    """
    numbered = enumerate(found)
    while batch := list(islice(numbered, defense.batch_size)):
        framed, errors, files = {}, {}, {}
        for number, name in batch:
            files[number] = io.BytesIO(sys.stdin.buffer.read()) if name == STDIN else Path(name)
            try:
                need_one(files[number])
                framed[number] = frame_one(files[number], defense.framing)
            except UsageError as error:
                errors[number] = f"{error} {ONE_PICTURE}" if name == STDIN else str(error)
        answers: dict[int, Answer] = {}
        if framed:
            scores = defense.scores(torch.stack([image for image, _ in framed.values()]))
            answers = dict(zip(framed, defense.answers(scores, [size for _, size in framed.values()]), strict=True))
        for number, name in batch:
            answer, undrawn = answers.get(number), None
            if drawings is not None and answer is not None:
                try:
                    draw(defense, files[number], answer, drawings[number])
                except UsageError as error:  # the answer is worth more than its drawing
                    undrawn = str(error)
            if answer is not None:
                answer = replace(answer, scores=NO_SCORES)
            yield Prediction(name, answer, errors.get(number), undrawn)


def need_one(file: Path | io.BytesIO) -> None:
    """Refuse pictures one after another on standard input: the first would be read, and the others ignored."""
    if isinstance(file, io.BytesIO) and JOINED.search(file.getvalue()) and SEVERAL_FRAMES not in file.getvalue():
        raise UsageError("Standard input holds more than one picture.")


def draw(defense: Defense, file: Path | io.BytesIO, answer: Answer, out: Path) -> None:
    """The picture in its own pixels, and the evidence for the predicted class and its rival."""
    if isinstance(file, io.BytesIO):
        file.seek(0)
    pixels = np.asarray(read_file(file, 3))
    figure = draw_answer(answer, pixels, defense.scorer.footprint, defense.classes)
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png", dpi=160, facecolor="white")
    write_atomically(out, drawn.getvalue())


def to_object(model: str, defense: Defense, lines: Sequence[Prediction]) -> dict[str, Any]:
    """What `--json` prints: the answers of the server, each with the name of its picture."""
    return {
        "model": model,
        "rule": defense.rule.written,
        "threat": str(defense.threat),
        "arithmetic": str(defense.program),
        "answers": [
            {"picture": line.picture, **({"error": line.error} if line.answer is None else line.answer.to_dict())}
            for line in lines
        ],
    }


def to_csv(lines: Sequence[Prediction]) -> str:
    """What `--csv` prints. Patch and weakest place are in the picture's own pixels."""
    written = io.StringIO()
    table = csv.DictWriter(written, COLUMNS)
    table.writeheader()
    for line in lines:
        record: dict[str, Any] = {"picture": line.picture, "error": line.error}
        if line.answer is not None:
            told = line.answer.to_dict()
            record |= {key: told[key] for key in COLUMNS if key in told} | cells(line.answer)
        table.writerow(record)
    return written.getvalue()


def cells(answer: Answer) -> dict[str, str]:
    """The largest proven patch, and the weakest place as row, column and size, in the picture's own pixels."""
    patch, place = answer.patch_original, answer.weakest_original
    return {
        "patch": "" if patch is None else f"{patch[0]}x{patch[1]}",
        "weakest": f"{place.height}x{place.width} at {place.row},{place.column}",
    }


def in_a_word(answer: Answer) -> str:
    """Is it proven? A rule that raises alerts may say: detectable, an attack would raise one; or that one is raised."""
    if answer.proven:
        return "[green]yes[/green]"
    if answer.alert:
        return "[red]alert[/red]"
    return "detectable" if answer.detectable_original else "no"


def largest(answer: Answer) -> str:
    """The largest proven patch, up to the threat; the threat itself if it is more than one rectangle anywhere."""
    if answer.proven and not answer.threat.shapes:
        return str(answer.threat_original)
    if answer.detectable_original and not answer.proven:
        return f"{answer.threat_original} or an alert"
    return cells(answer)["patch"] or "none"


def show(defense: Defense, lines: Sequence[Prediction]) -> None:
    """Print a table; a picture without an answer is a line on stderr."""
    answers = [line.answer for line in lines if line.answer is not None]
    if answers:
        show_answers(defense, lines)
    for reason in dict.fromkeys(answer.silence for answer in answers if answer.silence is not None):
        typer.echo(reason)
    for line in lines:
        if line.error is not None:
            typer.echo(line.error, err=True)


def show_answers(defense: Defense, lines: Sequence[Prediction]) -> None:
    table = Table("picture", "class", "proven", "largest proven patch", "weakest place", "rival")
    for line in lines:
        if line.answer is not None:
            answer, place = line.answer, cells(line.answer)["weakest"]
            names = escape(line.picture), escape(answer.name)
            table.add_row(*names, in_a_word(answer), escape(largest(answer)), place, escape(answer.rival))
    console = Console(soft_wrap=True, highlight=False, width=max(100, get_terminal_size().columns))
    console.print(table)
    console.print(
        f"Threat: {defense.threat.describe()}, rule {defense.rule.written}. "
        "Patches and places: height x width at row,column in each picture's own pixels."
    )
