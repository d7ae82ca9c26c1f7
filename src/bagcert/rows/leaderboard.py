"""A leaderboard that checks itself: an entry is rows with scores, and nothing that it claims of itself counts here.

*Arithmetic checked*: separate code finds every certificate in the stored scores. The scores, their bounds and what each
of them sees are the entrant's word.

*Reproduced*: our code built the network from the weights, so bounds and footprint are the network's own; it computed
all scores again from our copy of the data; and every answer and every proof came out the same.

The two are never ranked together. Labels are those of our copy of the data, which must be the data that the rows name
by digest. No level says what a network was trained on.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from bagcert.data import Dataset, load_dataset
from bagcert.data.catalog import LOADERS
from bagcert.defense import Defense, load
from bagcert.errors import UsageError
from bagcert.rows.format import CERTIFICATES, Evaluation, Meta, Record, read_meta, read_records, rows_name
from bagcert.rows.header import describe_scores
from bagcert.rows.shards import need_whole
from bagcert.rows.verify.check import verify_rows
from bagcert.rules import detects
from bagcert.stored_models import card, shipped_models

REFUSED, CHECKED, REPRODUCED = "refused", "arithmetic checked", "reproduced"
Progress = Callable[[int], None]


@dataclass(frozen=True)
class Result:
    """One evaluation of an entry, counted with our labels."""

    patch: str
    rule: str
    clean: float
    certified: float


@dataclass(frozen=True)
class Cost:
    """What the reproduction took: forward passes and seconds per image, of network and rule."""

    passes: int
    seconds: float


@dataclass(frozen=True)
class Entry:
    """Rows that were checked; `why` says why they are on no higher level."""

    name: str
    level: str
    why: str = ""
    data: str = ""
    images: int = 0
    results: tuple[Result, ...] = ()
    rows_sha256: str = ""  # of the records, each of which names its scores by digest
    cost: Cost | None = None


def entry_files(folder: Path) -> list[Path]:
    """The rows of a folder, one file per entry."""
    found = sorted(path for path in folder.glob("*.jsonl*") if path.name.endswith((".jsonl", ".jsonl.gz", ".jsonl.xz")))
    if not found:
        raise UsageError(f"There are no rows in {folder}. Put NAME.jsonl, NAME.meta.json and NAME.scores/ there.")
    return found


def check_entry(
    path: Path, reproduce: bool = False, data_dir: Path | None = None, done: Progress = lambda images: None
) -> Entry:
    """What can be said of one entry; `done(1)` is called after each image."""
    try:
        meta = read_meta(path, CERTIFICATES)
        need_whole(path, meta.header)  # nobody chooses which images count
        dataset = named_data(meta, data_dir)
        verdict = verify_rows(path, done)
        if verdict.problems:
            raise UsageError(f"{len(verdict.problems)} do not hold, first: {verdict.problems[0].words}")
        records = list(read_records(path, meta))
        labels = own_labels(meta, dataset, records)
    except UsageError as error:
        return Entry(rows_name(path), REFUSED, str(error))
    results = tuple(count(entry, records, labels, meta.images) for entry in meta.evaluations)
    about = (dataset.name, meta.images, results, str(meta.rows_sha256))
    if not reproduce:
        return Entry(rows_name(path), CHECKED, "nobody asked for a reproduction", *about)
    try:
        cost = computed_again(model_of(path, meta), meta, records, dataset)
    except UsageError as error:
        return Entry(rows_name(path), CHECKED, str(error), *about)
    return Entry(rows_name(path), REPRODUCED, "", *about, cost)


def named_data(meta: Meta, data_dir: Path | None) -> Dataset:
    """Our copy of the data that the rows name. An entry cannot make this machine read a folder of its choice."""
    named = meta.header.get("data")
    if not isinstance(named, dict) or named.get("name") not in LOADERS:
        raise UsageError(f"The rows name no data that everybody has. Certify one of {', '.join(LOADERS)}.")
    dataset = load_dataset(named["name"], data_dir)
    if named.get("digest") != dataset.digest:
        raise UsageError(f"The rows are not of our copy of {dataset.name}, whose SHA-256 is {dataset.digest}.")
    if meta.header.get("split") != "test" or meta.header.get("classes") != list(dataset.classes):
        raise UsageError(f"The rows are not of the test images of {dataset.name}, with its classes in their order.")
    return dataset


def own_labels(meta: Meta, dataset: Dataset, records: list[Record]) -> list[int]:
    """The labels of our copy; an entry that has others was made of something else."""
    labels: list[int] = dataset.split("test").labels.tolist()
    if meta.images > len(labels):
        raise UsageError(f"{meta.images} images, but {dataset.name} has {len(labels)} for tests")
    wrong = [each.image for each in records if each.label != labels[each.image]]
    if wrong:
        raise UsageError(f"The label of image {wrong[0]} is not that of our copy of {dataset.name}.")
    return labels


def count(entry: Evaluation, records: list[Record], labels: list[int], images: int) -> Result:
    """Accuracies with our labels; if the rule promises an alert, an alert is an error, and proven is detectable."""
    mine = [each for each in records if (each.patch, each.rule) == (entry.patch, entry.rule)]
    alarm = detects(entry.rule)
    right = [each for each in mine if each.predicted == labels[each.image] and not (alarm and each.alert)]
    proven = sum(bool(each.detectable if alarm else each.certified) for each in right)
    return Result(entry.patch, entry.rule, len(right) / images, proven / images)


def model_of(path: Path, meta: Meta) -> Defense:
    """The network of an entry: NAME.model/ beside the rows, or the shipped model with these weights."""
    wanted = meta.header["weights_sha256"]
    beside = path.with_name(f"{rows_name(path)}.model")
    shipped = [folder for folder in shipped_models().values() if card(folder)["weights_sha256"] == wanted]
    if not beside.is_dir() and not shipped:
        raise UsageError(
            f"There are no weights {wanted[:12]}: put the model's folder beside the rows, as {beside.name}."
        )
    defense = load(beside if beside.is_dir() else shipped[0])
    if defense.card["weights_sha256"] != wanted:
        raise UsageError(f"The weights in {beside.name} are not those that the rows name, {wanted[:12]}.")
    return defense


def computed_again(defense: Defense, meta: Meta, records: list[Record], dataset: Dataset) -> Cost:
    """What it took; refused unless every answer and every proof is what the rows say."""
    if list(defense.classes) != list(dataset.classes):
        raise UsageError(f"The model's classes are not those of {dataset.name}.")
    said = {(each.image, each.patch, each.rule): promise(each) for each in records}
    other, seconds = set[int](), 0.0
    for entry in meta.evaluations:
        defended = defense.against(entry.patch, entry.rule)
        own = describe_scores(defended.scorer)
        if any(own[key] != meta.header.get(key) for key in ("scores", "footprint")):
            raise UsageError("Bounds or footprint in the rows are not those of the network.")
        start = perf_counter()
        for number, found in answers(defended, dataset, meta.images):
            if said[number, entry.patch, entry.rule] != found:
                other.add(number)
        seconds = max(seconds, perf_counter() - start)
    if other:
        raise UsageError(
            f"{len(other)} of {meta.images} images come out otherwise on this machine, first {min(other)}."
        )
    return Cost(defense.scorer.passes, seconds / meta.images)


def answers(defense: Defense, dataset: Dataset, images: int) -> Iterator[tuple[int, tuple[object, ...]]]:
    """What the defense says of each of the first images, as `promise` writes it."""
    number = 0
    for batch in dataset.split("test").batches(defense.batch_size, defense.device):
        found = defense.certify_integers(defense.scores(batch.images[: images - number]), exact=False)
        flags = [[None] * len(found) if each is None else each.tolist() for each in (found.alert, found.detectable)]
        for told in zip(found.predicted.tolist(), found.certified.tolist(), *flags, strict=True):
            yield number, told
            number += 1
        if number == images:
            return


def promise(record: Record) -> tuple[object, ...]:
    return record.predicted, record.certified, record.alert, record.detectable


def tables(entries: list[Entry]) -> str:
    """The page's tables, the most proven first. Other levels, data, images, patches or promises are not compared."""
    parts = []
    for level in (REPRODUCED, CHECKED):
        lines = [(result, entry) for entry in entries if entry.level == level for result in entry.results]
        for kind in sorted({kind_of(line) for line in lines}):
            data, images, patch, alarm = kind
            mine = sorted((line for line in lines if kind_of(line) == kind), key=lambda line: -line[0].certified)
            promised = "this answer or an alert" if alarm else "this answer"
            title = f"### {level.capitalize()}: {data}, {patch}, {promised}, first {images:,} test images"
            parts.append(f"{title}\n\n{HEAD}" + "\n".join(map(row, mine)))
    return "\n\n".join(parts) + "\n"


HEAD = "| defense | rule | clean % | certified % | passes | seconds per image | rows |\n|---|---|---|---|---|---|---|\n"
Line = tuple[Result, Entry]


def kind_of(line: Line) -> tuple[str, int, str, bool]:
    result, entry = line
    return entry.data, entry.images, result.patch, detects(result.rule)


def row(line: Line) -> str:
    result, entry = line
    cost = ("–", "–") if entry.cost is None else (f"{entry.cost.passes:,}", f"{entry.cost.seconds:.2g}")
    cells = (f"`{entry.name}`", result.rule, f"{100 * result.clean:.2f}", f"{100 * result.certified:.2f}", *cost)
    return f"| {' | '.join((*cells, f'`{entry.rows_sha256[:12]}`'))} |"
