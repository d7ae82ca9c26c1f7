"""Put the report together and write it: the page, its tables and its figures."""

import shlex
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined

from bagcert.errors import UsageError, first_line
from bagcert.files import write_atomically
from bagcert.program import EXACT, PROGRAMS, find_program
from bagcert.report.comparisons import attack_figure, first_with_rivals, rival_figure, scatter_figure
from bagcert.report.detection import alert_figure, alert_headline, alert_table
from bagcert.report.drawing import Picture
from bagcert.report.gallery import Gallery, make_gallery
from bagcert.report.inputs import Inputs, read_inputs
from bagcert.report.patch_shapes import aspect_figure, size_figure
from bagcert.report.tables import Table, abstain_table, accuracy_table, attack_table, class_table
from bagcert.rows.format import rows_name
from bagcert.threats import parse_threat

PAGE = "report.html"


@dataclass(frozen=True, eq=False)
class Report:
    """The parts of a page: tables and figures in order."""

    parts: list[Table | Picture]
    gallery: Gallery
    threats: list[str]
    commands: list[str]
    facts: list[tuple[str, str]]


def make_report(paths: list[Path], data_dir: Path | None, out: Path) -> Path:
    """Read rows and write their page; rows that lack a part, by another program or hand, are refused in one line."""
    inputs = read_inputs(paths)
    try:
        return write_report(build(inputs, data_dir), inputs, out)
    except UsageError:
        raise
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise UsageError(
            f"The rows are not as bagcert writes them ({type(error).__name__}: {first_line(error)}). "
            "Copy all files again."
        ) from error


def build(inputs: Inputs, data_dir: Path | None) -> Report:
    """Tables and figures from the rows; a figure with nothing to show is left out."""
    parts: list[Table | Picture | None] = []
    if inputs.certified:
        parts += [accuracy_table(inputs), size_figure(inputs), aspect_figure(inputs), scatter_figure(inputs)]
    if inputs.alerting:
        parts += [alert_table(inputs), alert_figure(inputs)]
    if inputs.attacks:
        parts += [attack_table(inputs.attacks), attack_figure(inputs.attacks)]
    if inputs.certified:
        parts.append(abstain_table(inputs))
    for model, rows in inputs.certified.items():
        parts.append(class_table(model, rows, inputs.main(rows), inputs.classes))
    detailed = first_with_rivals(inputs)
    gallery = Gallery([], "no rows here have scores beside them; certify with --scores")
    if detailed is not None:
        parts.append(rival_figure(*detailed, inputs.classes))
        gallery = make_gallery(detailed[1], detailed[2], data_dir)
    return Report(
        [part for part in parts if part is not None],
        gallery,
        threats(inputs),
        [command(header, path) for header, path in sources(inputs)],
        facts(inputs),
    )


def write_report(report: Report, inputs: Inputs, out: Path) -> Path:
    """Write all files, the page last: if it is there, so is everything it refers to."""
    for part in [*report.parts, *(each for each, _ in report.gallery.pictures)]:
        if isinstance(part, Table):
            write_atomically(out / f"{part.name}.md", part.markdown().encode())
            write_atomically(out / f"{part.name}.tex", part.latex().encode())
        else:
            write_atomically(out / f"{part.name}.svg", part.svg.encode())
            write_atomically(out / f"{part.name}.png", part.png)
    template = resources.files("bagcert.report").joinpath("page.html").read_text(encoding="utf-8")
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    first = inputs.headers[0]
    page = environment.from_string(template).render(
        report=report,
        headline=headline(inputs),
        alarm=alarm(inputs),
        title=f"{', '.join(inputs.rows)} on {first['data']['name']}, {first['split']}",
    )
    write_atomically(out / PAGE, page.encode())
    return out / PAGE


def headline(inputs: Inputs) -> str:
    """The first result in one sentence."""
    if not inputs.certified:
        return alert_headline(inputs)
    model, rows = next(iter(inputs.certified.items()))
    entry = inputs.main(rows)
    shares = rows.accuracies(entry)
    return (
        f"{model} is right on {100 * shares.clean:.2f} % of {shares.images:,} images, and on "
        f"{100 * shares.certified:.2f} % it is proven that no {entry.patch} patch, anywhere, can change that "
        f"(rule {entry.rule})."
    )


def threats(inputs: Inputs) -> list[str]:
    """Each patch in words, once."""
    size = inputs.headers[0]["footprint"]["image_size"]
    patches = dict.fromkeys(entry.patch for rows in inputs.rows.values() for entry in rows.results)
    return [in_words(patch, (size[0], size[1])) for patch in patches]


def in_words(patch: str, size: tuple[int, int]) -> str:
    """A stored patch as `Threat.describe` says it."""
    if patch.startswith("masks:"):
        return f"{patch}: sets of pixels from a file"
    return parse_threat(patch, size).describe()


def sources(inputs: Inputs) -> list[tuple[dict[str, Any], str]]:
    """The header and file name of each input."""
    found = [(rows.header, rows.path.name) for rows in inputs.rows.values()]
    found += [(rows.header, f"attack-{rows.header['patch']}.jsonl") for _, rows in inputs.attacks]
    return list(zip((header for header, _ in found), apart([name for _, name in found]), strict=True))


def apart(names: list[str]) -> list[str]:
    """The names, repeated ones with a number, so that no command overwrites the file of another."""
    before = [names[:place].count(name) for place, name in enumerate(names)]
    return [
        name.replace(".", f"-{count + 1}.", 1) if count else name for name, count in zip(names, before, strict=True)
    ]


def alarm(inputs: Inputs) -> str | None:
    """What must not be overlooked: a proof that an attack broke."""
    broken = sum(len(rows.flips_of_certified) for _, rows in inputs.attacks)
    if not broken:
        return None
    return f"An attack has changed {broken} certified answers: their proofs are wrong. Trust none of them."


def command(header: dict[str, Any], name: str) -> str:
    """The command line that makes such rows."""
    verb = "attack" if header.get("kind") == "attack" else "certify"
    words = ["bagcert", verb, header["model"], "--data", header["data"]["name"], "--split", header["split"]]
    entries = [header] if verb == "attack" else header["evaluations"]
    for option in ("patch", "rule"):
        for value in dict.fromkeys(entry[option] for entry in entries):
            words += ["--masks", "FILE.npy"] if value.startswith("masks:") else [f"--{option}", value]
    for key, value in header.get("attack", {}).items():
        option = "--" + key.replace("_", "-")
        words += [option] if value is True else [] if value is False else [option, str(value)]
    program = program_of(header)
    words += [] if program == EXACT else ["--program", program]
    words += ["--limit", str(header["images"])] + (
        ["--scores"] if verb == "certify" and header.get("scores_stored") else []
    )
    return shlex.join([*words, "--out", f"{rows_name(Path(name))}.jsonl"])


def program_of(header: dict[str, Any]) -> str:
    """The name of the program that computed the scores, in batches of whatever size; exact if none has these words."""

    def words(arithmetic: str) -> str:
        return arithmetic.partition(", batches")[0]

    known = ((name, words(str(find_program(name, kind)))) for name, kinds in PROGRAMS.items() for kind in kinds)
    return next((name for name, found in known if found == words(header.get("arithmetic", ""))), EXACT)


def facts(inputs: Inputs) -> list[tuple[str, str]]:
    """What was measured, with what."""
    lines = [("data", "{name}, SHA-256 {digest}".format(**inputs.headers[0]["data"]))]
    for model, rows in inputs.rows.items():
        header = rows.header
        parts = [f"weights SHA-256 {header['weights_sha256']}"]
        if header.get("seed") is not None:
            parts.append(f"seed {header['seed']}")
        if "footprint" in header:
            parts.append("receptive field {}×{}".format(*header["footprint"]["receptive_field"]))
            parts.append("scores: {step}, unit {unit}".format(**header["scores"]))
        parts += [header[key] for key in ("arithmetic", "device") if key in header]
        parts += [f"{name} {version}" for name, version in header.get("versions", {}).items()]
        lines.append((model, ", ".join(parts)))
    return lines
