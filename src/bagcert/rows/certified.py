"""Rows of certificates: for each evaluation a certificate over the same images, and the accuracies that follow."""

from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from torch import Tensor

from bagcert.errors import UsageError, need_packages
from bagcert.rows.accuracy import Accuracies, accuracies, wilson
from bagcert.rows.format import CERTIFICATES, Evaluation
from bagcert.rows.shards import numbers_of
from bagcert.rows.table import Table, read_table
from bagcert.rules import Certificate, detects, raises_alerts


@dataclass(frozen=True, eq=False)
class Rows:
    """What a file of certificates holds; `header` is what the file beside it says."""

    path: Path
    header: dict[str, Any]
    labels: Tensor  # int64 [n]
    results: dict[Evaluation, Certificate]
    squares: dict[Evaluation, Tensor] = field(default_factory=dict)  # int64 [n]: sides of the largest certified ones

    @property
    def model(self) -> str:
        return str(self.header["model"])

    def __len__(self) -> int:
        """How many images there are."""
        return len(self.labels)

    def __repr__(self) -> str:
        tried = ", ".join(f"{entry.patch} {entry.rule}" for entry in self.results)
        return f"Rows({self.model}, {len(self)} images, {tried})"

    def to_pandas(self) -> Any:
        """A data frame with one row per image and evaluation; its columns are the fields of docs/rows.md."""
        need_packages("Rows.to_pandas", {"pandas": "pandas"})
        frame, frames = import_module("pandas"), []
        for entry, certificate in self.results.items():
            told = {name.replace("_region", "_placement"): values for name, values in certificate.to_dict().items()}
            told |= {"certified_square": self.squares[entry].tolist()} if self.squares else {}
            about = {
                "patch": entry.patch,
                "rule": entry.rule,
                "image": numbers_of(self.header),
                "label": self.labels.tolist(),
            }
            frames.append(frame.DataFrame({**about, **told}))
        return frame.concat(frames, ignore_index=True)

    def accuracies(self, evaluation: Evaluation) -> Accuracies:
        return accuracies(self.results[evaluation], self.labels, detects(evaluation.rule))


def read_rows(path: Path, finished: bool = True, shard: bool = False) -> Rows:
    """Certificates from a file; one that lacks images, is not finished or, unless asked for, is a shard is refused."""
    meta, table = read_table(path, CERTIFICATES, finished, shard)
    results, squares = {}, {}
    for place, entry in enumerate(meta.evaluations):
        mine = {name: values[:, place] for name, values in table.items()}
        found = to_certificate(path, mine)
        if raises_alerts(entry.rule):
            found = replace(found, alert=mine["alert"], detectable=mine["detectable"])
        results[entry] = found
        if meta.scores_stored:
            squares[entry] = mine["certified_square"]
    return Rows(path, meta.header, table["label"][:, 0], results, squares)


def to_certificate(path: Path, table: Table) -> Certificate:
    """One evaluation's certificates of all images."""
    if "lead" not in table:
        return Certificate(table["predicted"], table["certified"])
    weakest, second = table["weakest_placement"], table["second_placement"]
    without = second[:, 0] < 0
    if bool((weakest[:, 0] < 0).any()) or bool(without.any() != without.all()):
        raise UsageError(f"Some images in {path} have no placements. Certify again.")
    return Certificate(
        table["predicted"],
        table["certified"],
        table["lead"],
        weakest,
        None if bool(without.all()) else second,
        table["weakest_class"],
    )


def summary(rows: Rows) -> list[dict[str, Any]]:
    """The accuracies of every evaluation, with 95 % intervals, as the file beside the rows and `--json` give them."""
    table = []
    for entry in rows.results:
        shares = rows.accuracies(entry)
        table.append(
            {
                "patch": entry.patch,
                "rule": entry.rule,
                "clean_accuracy": shares.clean,
                "certified_accuracy": shares.certified,
                "interval": list(wilson(round(shares.certified * shares.images), shares.images)),
                **({} if shares.alerted is None else {"alerted": shares.alerted}),
            }
        )
    return table
