"""The rows that a report is made of: all of one data set and split."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from bagcert.errors import UsageError
from bagcert.rows.attacked import AttackRows, read_attack_rows
from bagcert.rows.certified import Rows, read_rows
from bagcert.rows.format import ATTACK, Evaluation, read_meta
from bagcert.rules import detects, raises_alerts


@dataclass(frozen=True, eq=False)
class Inputs:
    """Rows of certificates and of attacks, each with a short name for tables and legends.

    One model may be attacked with several patches. `rows` are all rows of certificates. Of those, `certified` are about
    the answer, `alerting` about alerts; rules that detect are in the latter alone, so that no table mixes the two.
    """

    rows: dict[str, Rows]
    attacks: list[tuple[str, AttackRows]]

    @cached_property
    def certified(self) -> dict[str, Rows]:
        return self._only(lambda rule: not detects(rule))

    @cached_property
    def alerting(self) -> dict[str, Rows]:
        return self._only(raises_alerts)

    def _only(self, wanted: Callable[[str], bool]) -> dict[str, Rows]:
        """The evaluations by such rules, of the models that have any."""
        parts = {
            model: replace(rows, results={entry: found for entry, found in rows.results.items() if wanted(entry.rule)})
            for model, rows in self.rows.items()
        }
        return {model: rows for model, rows in parts.items() if rows.results}

    @property
    def headers(self) -> list[dict[str, Any]]:
        attacks = [rows.header for _, rows in self.attacks]
        return [*(rows.header for rows in self.rows.values()), *attacks]

    def main(self, rows: Rows) -> Evaluation:
        """The main evaluation of a model: that of its card, else that of another card here, else the first."""
        for header in (rows.header, *self.headers):
            own = Evaluation(**header.get("card", {"patch": "", "rule": ""}))
            if own in rows.results:
                return own
        return next(iter(rows.results))

    def label(self, model: str, rule: str) -> str:
        """The name of a line in a legend: model and rule, as far as they differ."""
        if len(self.certified) == 1:
            return rule
        rules = {entry.rule for rows in self.certified.values() for entry in rows.results}
        return model if len(rules) == 1 else f"{model}, {rule}"

    @property
    def classes(self) -> list[str]:
        return [str(name) for name in self.headers[0]["classes"]]


def read_inputs(paths: list[Path]) -> Inputs:
    """Read all files, and refuse rows of different data: they must not meet in one table."""
    kinds = {path: read_meta(path).kind for path in paths}
    certified = [read_rows(path) for path in paths if kinds[path] != ATTACK]
    attacks = [(path, read_attack_rows(path)) for path in paths if kinds[path] == ATTACK]
    if not certified:
        raise UsageError("A report needs at least one file of `bagcert certify`. Add one.")
    headers = [(rows.path, rows.header) for rows in certified] + [(path, rows.header) for path, rows in attacks]
    for path, header in headers:
        need_facts(path, header)
    first_path, first = headers[0]
    for path, header in headers[1:]:
        if data_of(header) != data_of(first):
            raise UsageError(
                f"A report is about one data set, but {first_path} is about {words(first)} and {path} about "
                f"{words(header)}. Make a report of each."
            )
    models = unique([rows.model for rows in certified], [rows.header["weights_sha256"] for rows in certified])
    attacked = list(dict.fromkeys(identity(rows) for _, rows in attacks))
    short = unique([model for model, _ in attacked], [weights for _, weights in attacked])
    names = dict(zip(attacked, short, strict=True))
    return Inputs(
        dict(zip(models, certified, strict=True)),
        [(names[identity(rows)], rows) for _, rows in attacks],
    )


def need_facts(path: Path, header: dict[str, Any]) -> None:
    """Refuse rows that do not say what they are of."""
    try:
        named = [header["model"], header["weights_sha256"], header["split"], *data_of(header), header["data"]["name"]]
        size, classes = header["footprint"]["image_size"], header["classes"]
        fits = all(isinstance(text, str) for text in named) and len(size) == 2 and isinstance(classes, list)
    except (KeyError, TypeError) as error:
        raise UsageError(f"{path} is not as bagcert writes rows ({error}). Copy both files again.") from error
    if not fits:
        raise UsageError(f"{path} does not name its model, weights, data and classes. Copy both files again.")


def identity(rows: AttackRows) -> tuple[str, str]:
    """Name and weights of the model that was attacked."""
    return rows.header["model"], rows.header["weights_sha256"]


def data_of(header: dict[str, Any]) -> tuple[str, str]:
    return header["data"]["digest"], header["split"]


def words(header: dict[str, Any]) -> str:
    return f"{header['data']['name']} {header['split']} ({header['data']['digest'][:8]})"


def unique(models: list[str], tails: list[str]) -> list[str]:
    """The last part of each model's name, made unique if two are equal."""
    names = ["/".join(Path(model).parts[-2:]) if Path(model).name.isdigit() else Path(model).name for model in models]
    counts = Counter(names)
    named = [name if counts[name] == 1 else f"{name} {tail[:6]}" for name, tail in zip(names, tails, strict=True)]
    again = Counter(named)
    return [name if again[name] == 1 else f"{name} #{place}" for place, name in enumerate(named, start=1)]
