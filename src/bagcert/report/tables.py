"""One table as HTML, Markdown and LaTeX."""

from dataclasses import dataclass
from html import escape

from torch import Tensor

from bagcert.report.inputs import Inputs
from bagcert.rows.accuracy import wilson
from bagcert.rows.attacked import AttackRows
from bagcert.rows.certified import Rows
from bagcert.rows.format import Evaluation


@dataclass(frozen=True)
class Table:
    """Cells of plain text; columns from `numbers_from` on are numbers."""

    name: str
    title: str
    note: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numbers_from: int

    def html(self) -> str:
        def cells(row: tuple[str, ...], tag: str) -> str:
            parts = []
            for place, text in enumerate(row):
                kind = ' class="number"' if place >= self.numbers_from else ""
                parts.append(f"<{tag}{kind}>{escape(text)}</{tag}>")
            return f"<tr>{''.join(parts)}</tr>"

        body = "\n".join(cells(row, "td") for row in self.rows)
        table = f"<table>\n<thead>{cells(self.heads, 'th')}</thead>\n<tbody>\n{body}\n</tbody>\n</table>"
        return f'<p class="note">{escape(self.note)}</p>\n<div class="scroll">{table}</div>'

    def markdown(self) -> str:
        rule = ["---" if place < self.numbers_from else "--:" for place in range(len(self.heads))]
        lines = [self.heads, tuple(rule), *self.rows]
        return f"{self.title}\n\n" + "".join(f"| {' | '.join(line)} |\n" for line in lines)

    def latex(self) -> str:
        columns = "l" * self.numbers_from + "r" * (len(self.heads) - self.numbers_from)
        lines = [" & ".join(map(tex, row)) + r" \\" for row in (self.heads, *self.rows)]
        body = "\n".join([lines[0], r"\hline", *lines[1:]])
        return f"% {self.title}\n\\begin{{tabular}}{{{columns}}}\n{body}\n\\end{{tabular}}\n"


def tex(text: str) -> str:
    for sign in "%_&#":
        text = text.replace(sign, "\\" + sign)
    return text.replace("–", "--").replace("×", r"$\times$")


def percent(share: float) -> str:
    return f"{100 * share:.2f}"


def interval(share: float, images: int) -> str:
    low, high = wilson(round(share * images), images)
    return f"{100 * low:.1f}–{100 * high:.1f}"


def accuracy_table(inputs: Inputs) -> Table:
    lines = []
    for model, rows in inputs.certified.items():
        for entry in rows.results:
            shares = rows.accuracies(entry)
            images = shares.images
            clean, certified = shares.clean, shares.certified
            numbers = (percent(clean), interval(clean, images), percent(certified), interval(certified, images))
            lines.append((model, entry.patch, entry.rule, f"{images:,}", *numbers))
    heads = ("model", "patch", "rule", "images", "clean %", "95 %", "certified %", "95 %")
    note = "Clean: right by the rule's own inference. Certified: right, and proven to stay so under every patch."
    return Table("accuracies", "Clean and certified accuracy", note, heads, tuple(lines), 3)


def abstain_table(inputs: Inputs) -> Table:
    lines = []
    for model, rows in inputs.certified.items():
        for entry in rows.results:
            shares = rows.accuracies(entry)
            numbers = (shares.answered, shares.answered_correctly, shares.answered - shares.certified)
            right = percent(shares.right_when_answered)
            lines.append((model, entry.patch, entry.rule, *map(percent, numbers), right))
    heads = ("model", "patch", "rule", "answered %", "answered right %", "answered wrong %", "right if answered %")
    note = (
        "A classifier that says nothing unless its answer is proven. An answer given is the one that the unpatched "
        "picture would have been given, even when the picture at hand is patched already."
    )
    return Table("abstain", "Abstain unless certified", note, heads, tuple(lines), 3)


def class_table(model: str, rows: Rows, entry: Evaluation, classes: list[str]) -> Table:
    """How each class fares under one evaluation, and which class comes closest."""
    certificate = rows.results[entry]
    right = certificate.predicted == rows.labels
    lines = []
    for label, name in enumerate(classes):
        mine = rows.labels == label
        images = int(mine.sum())
        if not images:
            continue
        proven = int((mine & right & certificate.certified).sum())
        rivals = (
            [] if certificate.weakest_class is None else [usual_rival(certificate.weakest_class[mine & right], classes)]
        )
        cells = [name, *rivals, f"{images:,}", percent(int((mine & right).sum()) / images), percent(proven / images)]
        lines.append((*cells, interval(proven / images, images)))
    named = ("class",) if certificate.weakest_class is None else ("class", "usual rival")
    heads = (*named, "images", "clean %", "certified %", "95 %")
    note = f"{model} against {entry.patch} by {entry.rule}."
    title = f"Each class: {model}"
    return Table(f"classes-{slug(model)}", title, note, heads, tuple(lines), len(named))


def usual_rival(rivals: Tensor, classes: list[str]) -> str:
    return classes[int(rivals.mode().values)] if len(rivals) else "–"


def attack_table(attacks: list[tuple[str, AttackRows]]) -> Table:
    """The lower and the upper bound of the accuracy under attack, and the gap between them."""
    lines = []
    for model, rows in attacks:
        low, high = rows.certified_accuracy, rows.attacked_accuracy
        shares = (low, high, rows.clean_accuracy, high - low)
        broken = str(len(rows.flips_of_certified))
        header = rows.header
        images = f"{len(rows.labels):,}"
        lines.append((model, header["patch"], header["rule"], images, *map(percent, shares), broken))
    heads = ("model", "patch", "rule", "images", "certified %", "attacked %", "clean %", "gap", "broken proofs")
    note = (
        "The true accuracy under attack lies in the gap between certified (no attack gets below it) and attacked (this "
        "attack got there)."
    )
    return Table("attacked", "Certified against attacked accuracy", note, heads, tuple(lines), 3)


def slug(text: str) -> str:
    return "".join(sign if sign.isalnum() else "-" for sign in text).strip("-").lower()
