"""A leaderboard that checks itself: an entry is rows with scores, and nothing that it claims of itself counts here.

*Arithmetic checked*: separate code finds every certificate in the stored scores. The scores, their bounds and what each
of them sees are the entrant's word.

*Reproduced*: our code built the network from the weights, so bounds and footprint are the network's own; it computed
all scores again from our copy of the data; and every answer and every proof came out the same.

The two are never ranked together. Labels are those of our copy of the data, which must be the data that the rows name
by digest. No level says what a network was trained on.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter

import torch
from torch import nn

from bagcert.config import read_config
from bagcert.data import Dataset, FolderSettings, load_dataset
from bagcert.data.catalog import LOADERS
from bagcert.defense import Defense, load
from bagcert.errors import UsageError
from bagcert.pictures import Framing
from bagcert.program import PROGRAMS, device_name
from bagcert.rows.format import CERTIFICATES, Evaluation, Meta, Record, read_meta, read_records, rows_name
from bagcert.rows.header import describe_scores
from bagcert.rows.prover import one_thread
from bagcert.rows.shards import need_whole
from bagcert.rows.standings import CHECKED, REFUSED, REPRODUCED, Cost, Entry, Result
from bagcert.rows.verify.check import verify_rows
from bagcert.rows.write import batch_size, certified, provers_of
from bagcert.rules import detects
from bagcert.stored_models import card, shipped_models
from bagcert.tensors import Images
from bagcert.threats import parse_threat

Progress = Callable[[int], None]
NAME = re.compile(r"[A-Za-z0-9._+-]{1,99}")  # a | would be read as the end of a cell, and what follows as numbers


def entry_files(folder: Path) -> list[Path]:
    """The rows of a folder, one file per entry."""
    found = sorted(path for path in folder.glob("*.jsonl*") if path.name.endswith((".jsonl", ".jsonl.gz", ".jsonl.xz")))
    if not found:
        raise UsageError(f"{folder} holds no rows. Put NAME.jsonl, NAME.meta.json and NAME.scores/ there.")
    if odd := [name for name in map(rows_name, found) if not NAME.fullmatch(name)]:
        raise UsageError(f"An entry's name has letters, digits and . _ + - alone, unlike {odd[0]!r:.60}. Rename it.")
    return found


@dataclass(frozen=True)
class Ours:
    """What whoever checks has chosen: sets by name, folders of pictures, networks by entry, and the device.

    An entry cannot make this machine read a folder or run code of its choice.
    """

    data_dir: Path | None = None
    folders: tuple[Path, ...] = ()
    networks: Mapping[str, nn.Module] = field(default_factory=dict)
    device: str | None = None  # the kind that the rows name, if none is chosen

    def find(self, meta: Meta) -> Dataset:
        """Our copy of the data that the rows name."""
        named = meta.header.get("data")
        if not isinstance(named, dict):
            raise UsageError("The rows name no data. Write its name and its digest into them.")
        if named.get("name") in LOADERS:
            dataset = load_dataset(named["name"], self.data_dir)
            if named.get("digest") != dataset.digest:
                raise UsageError(
                    f"The rows are not of our copy of {dataset.name}. "
                    f"Certify the one whose SHA-256 is {dataset.digest}."
                )
        else:
            dataset = self.find_folder(named)
        claimed, size = meta.header.get("footprint", {}).get("image_size"), dataset.image_size
        if claimed != list(size):  # else the same patch would be a smaller part of the image
            have = f"{size[0]}x{size[1]}"
            raise UsageError(
                f"The rows are of images of {claimed}, but those of {dataset.name} have {have}. Certify those."
            )
        if meta.header.get("split") != "test" or meta.header.get("classes") != list(dataset.classes):
            raise UsageError(
                f"The rows are not of the test images of {dataset.name}, with its classes in their order. "
                "Certify those."
            )
        return dataset

    def find_folder(self, named: dict[str, object]) -> Dataset:
        """The folder that gives the same digest, read as the rows say that their pictures were framed."""
        if not self.folders:
            raise UsageError(
                f"The rows name no data that everybody has. Certify one of {', '.join(LOADERS)}, or let --data name a "
                "copy of the folder."
            )
        settings = FolderSettings(read_config(Framing, named.get("framing"), "data.framing"))
        copies = [load_dataset(str(folder), None, settings) for folder in self.folders]
        for dataset in copies:
            if named.get("digest") == dataset.digest:
                return dataset
        known = ", ".join(f"{each.name} ({each.digest[:12]})" for each in copies)
        raise UsageError(f"The rows are of none of the folders of --data, framed as they say: {known}.")


def check_entry(
    path: Path,
    reproduce: bool = False,
    ours: Ours = Ours(),
    done: Progress = lambda images: None,
) -> Entry:
    """What can be said of one entry; `done(n)` is called after n images, verified or computed again."""
    try:
        meta = read_meta(path, CERTIFICATES)
        need_whole(path, meta.header)  # nobody chooses which images count
        dataset = ours.find(meta)
        verdict = verify_rows(path, done)
        if verdict.problems:
            raise UsageError(
                f"Not all of it holds, first: {verdict.problems[0].words}. List all {len(verdict.problems)} by "
                f"bagcert verify {path}"
            )
        records = list(read_records(path, meta))
        labels = own_labels(meta, dataset, records)
        patches = [str(parse_threat(entry.patch, dataset.image_size)) for entry in meta.evaluations]
    except UsageError as error:
        return Entry(rows_name(path), REFUSED, one_line(str(error)))
    counted = (count(entry, records, labels, meta.images) for entry in meta.evaluations)
    results = tuple(replace(result, patch=one_line(patch)) for result, patch in zip(counted, patches, strict=True))
    about = (data_in_words(dataset), meta.images, results, str(meta.rows_sha256))
    if not reproduce:
        return Entry(rows_name(path), CHECKED, "nobody asked for a reproduction", *about)
    try:
        costs = computed_again(model_of(path, meta, ours), meta, records, dataset, done)
    except UsageError as error:
        return Entry(rows_name(path), CHECKED, one_line(str(error)), *about)
    timed = tuple(replace(result, cost=cost) for result, cost in zip(results, costs, strict=True))
    return replace(Entry(rows_name(path), REPRODUCED, "", *about), results=timed)


def one_line(text: str) -> str:
    """Nothing in it ends a line or commands a terminal."""
    return " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())


def data_in_words(dataset: Dataset) -> str:
    """The name, and how pictures of any size became images: of a larger image a patch of 5x5 is a smaller part."""
    framing, name = dataset.framing, Path(dataset.name).name
    if framing is None:
        return name
    scaled = f"{framing.fit} {framing.resize}" if framing.fit == "crop" else framing.fit
    return f"{name} as {framing.size[0]}x{framing.size[1]} ({scaled}, {framing.interpolation})"


def own_labels(meta: Meta, dataset: Dataset, records: list[Record]) -> list[int]:
    """The labels of our copy; an entry that has others was made of something else."""
    labels: list[int] = dataset.split("test").labels.tolist()
    if meta.images > len(labels):
        raise UsageError(
            f"The rows are of {meta.images} images, but {dataset.name} has {len(labels)} for tests. Certify those."
        )
    wrong = [each.image for each in records if each.label != labels[each.image]]
    if wrong:
        raise UsageError(
            f"The label of image {wrong[0]} is not that of our copy of {dataset.name}. Take the labels of the data."
        )
    return labels


def count(entry: Evaluation, records: list[Record], labels: list[int], images: int) -> Result:
    """Accuracies with our labels; if the rule promises an alert, an alert is an error, and proven is detectable."""
    mine = [each for each in records if (each.patch, each.rule) == (entry.patch, entry.rule)]
    detection = detects(entry.rule)
    right = [each for each in mine if each.predicted == labels[each.image] and not (detection and each.alert)]
    proven = sum(bool(each.detectable if detection else each.certified) for each in right)
    return Result(entry.patch, entry.rule, len(right) / images, proven / images)


def model_of(path: Path, meta: Meta, ours: Ours) -> Defense:
    """The network of an entry: NAME.model/ beside the rows, or the shipped model with these weights.

    By the program that the rows name, if this machine has it; else by the exact one.
    """
    wanted = meta.header["weights_sha256"]
    beside = path.with_name(f"{rows_name(path)}.model")
    shipped = [folder for folder in shipped_models().values() if card(folder)["weights_sha256"] == wanted]
    if not beside.is_dir() and not shipped:
        raise UsageError(
            f"There are no weights {wanted[:12]}: put the model's folder beside the rows, as {beside.name}."
        )
    device, network = ours.device or device_of(meta), ours.networks.get(rows_name(path))
    defense = load(beside if beside.is_dir() else shipped[0], device, network=network)
    if defense.card["weights_sha256"] != wanted:
        raise UsageError(
            f"The weights in {beside.name} are not those that the rows name, {wanted[:12]}. Put those there."
        )
    programs = (defense.by(name) for name in PROGRAMS)
    return next((each for each in programs if str(each.program) == meta.header.get("arithmetic")), defense)


def device_of(meta: Meta) -> str:
    """The kind of device that the rows name, if this machine has it; else the CPU."""
    named = str(meta.header.get("arithmetic")).split(", ")
    return "cuda" if "cuda" in named and torch.cuda.is_available() else "cpu"


def computed_again(
    defense: Defense, meta: Meta, records: list[Record], dataset: Dataset, done: Progress
) -> tuple[Cost, ...]:
    """What each evaluation takes; refused unless every answer and every proof is what the rows say."""
    if list(defense.classes) != list(dataset.classes):
        raise UsageError(f"The model's classes are not those of {dataset.name}. Enter a model of these data.")
    provers = provers_of(defense, meta.evaluations)
    own = [describe_scores(prover.defense.scorer) for prover in provers]
    if any(each[key] != meta.header.get(key) for each in own for key in ("scores", "footprint")):
        raise UsageError("Bounds or footprint in the rows are not those of the network. Certify with this network.")
    said = {(each.image, each.patch, each.rule): promise(each) for each in records}
    other, costs = set[int](), tuple[Cost, ...]()
    for batch in dataset.split("test").between(0, meta.images).batches(batch_size(provers), defense.device):
        found, _ = certified(batch, 0, provers, kept=False)
        costs = costs or tuple(cost_of(prover.defense, batch.images) for prover in provers)
        other |= {each.image for each in found if said[each.image, each.patch, each.rule] != promise(each)}
        done(len(batch.labels))
    if other:
        raise UsageError(
            f"{len(other)} of {meta.images} images come out otherwise on this machine, first {min(other)}. "
            "Reproduce them on the device and by the versions that the rows name."
        )
    return costs


def cost_of(defense: Defense, images: Images) -> Cost:
    """Of one evaluation by itself, measured on these images, which it has certified before."""
    start = perf_counter()
    with one_thread():
        defense.certify(images, exact=False).certified.tolist()  # a GPU has then done all of it
    seconds = (perf_counter() - start) / len(images)
    return Cost(defense.scorer.passes, seconds, device_name(defense.device))


def promise(record: Record) -> tuple[object, ...]:
    """What must come out again: the answer, and what is said to hold for it."""
    return record.predicted, record.certified, record.alert, record.detectable
