"""The two illustrations of the paper, training and certification, drawn from a computed 1-D example."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from bagcert.report.drawing import PALETTE, picture
from studies.figures.example_1d import CLASSES, KERNELS, MARGIN, OTHER, TRUE, Example, make_example
from studies.figures.stored_results import Drawn, Stock

FOR, AGAINST, GRAY = PALETTE[0], PALETTE[1], PALETTE[7]
HATCH = "#a3a8b0"  # opaque: SVG would apply an opacity twice
INCHES = 0.36  # side of a cell; the next are in cells
LABEL_UNITS, WORD_UNITS, MARGIN_UNITS = 5.4, 5.4, 0.3


class Strips:
    """Rows of cells, each with a label on the left and words on the right."""

    def __init__(self, places: int) -> None:
        self.figure = Figure()
        self.ax: Axes = self.figure.add_axes((0, 0, 1, 1))
        self.places, self.y = places, MARGIN_UNITS

    def cells(self, label: str, values: Tensor, form: str, hatched: Tensor | None = None) -> None:
        """One row of cells: the fuller a cell, the larger its value; blue above 0, orange below."""
        self.ax.text(-0.3, self.y + 0.5, label, ha="right", va="center")
        for place, value in enumerate(values.tolist()):
            corner, hue = (place, self.y), FOR if value > 0 else AGAINST
            self.ax.add_patch(Rectangle(corner, 1, 1, facecolor=hue, alpha=0.55 * min(1, abs(value)), linewidth=0))
            if hatched is not None and bool(hatched[place]):
                self.ax.add_patch(Rectangle(corner, 1, 1, fill=False, edgecolor=HATCH, hatch="///", linewidth=0))
            self.ax.add_patch(Rectangle(corner, 1, 1, fill=False, edgecolor=GRAY, linewidth=0.8))
            self.ax.text(place + 0.5, self.y + 0.5, signed(value, form), ha="center", va="center", fontsize=9)
        self.y += 1

    def words(self, text: str) -> None:
        """Words beside the last row."""
        self.ax.text(self.places + 0.5, self.y - 0.5, text, ha="left", va="center", weight="bold")

    def step(self, text: str) -> None:
        """A gap that says what happens between two rows."""
        self.ax.text(self.places / 2, self.y + 0.5, f"↓ {text}", ha="center", va="center", fontsize=9, color=GRAY)
        self.y += 1

    def result(self, text: str) -> None:
        """A last line below the cells."""
        self.ax.text(self.places / 2, self.y + 0.5, text, ha="center", va="center", weight="bold")
        self.y += 1

    def finish(self) -> Figure:
        """The figure, cropped to the height of what was drawn."""
        left, right, bottom = -LABEL_UNITS, self.places + WORD_UNITS, self.y + MARGIN_UNITS
        self.figure.set_size_inches(INCHES * (right - left), INCHES * bottom)
        self.ax.set_xlim(left, right)
        self.ax.set_ylim(bottom, 0)
        self.ax.set_axis_off()
        return self.figure


def signed(value: float, form: str) -> str:
    """A number for print: a real minus sign, and no sign for 0."""
    return format(value, form).replace("-", "−") if value else format(value, form.replace("+", ""))


def training_1d(stock: Stock) -> Drawn:
    """From the input to the loss (the paper's first figure)."""
    example = make_example()

    def draw() -> Figure:
        strips = Strips(len(example.signal))
        strips.cells("input X", example.signal, ".1f")
        strips.step(f"region scorer: convolutions of kernel {', '.join(map(str, KERNELS))}")
        for label, values in zip(CLASSES, example.logits, strict=True):
            strips.cells(f"logits, {label}", values, ".1f")
        strips.step("Heaviside step (backward: sigmoid)")
        draw_votes(strips, "s", example.votes)
        strips.step("true class minus the other")
        strips.cells("Δ", example.delta, "+d")
        strips.words(f"Σ Δ = {int(example.delta.sum()):+d}")
        strips.step("margin loss")
        mean = f"{int(example.delta.sum())}/{len(example.delta)}"
        strips.result(f"L = −min({mean}, M = {MARGIN}) = {signed(example.loss, '.2f')}")
        return strips.finish()

    note = "A 1-D signal of two classes, true class rising; network, votes and loss are computed."
    return Drawn(picture("training-1d", "Training, in one dimension", note, draw))


def certification_1d(stock: Stock) -> Drawn:
    """The same example under both conditions (App. A.1)."""
    example = make_example()
    reached, worst = example.reached, example.worst_votes
    patch = example.signal.new_zeros(len(reached)).bool()
    patch[0] = True

    def draw() -> Figure:
        strips = Strips(len(example.signal))
        strips.cells("input X, patch at l", example.signal, ".1f", patch)
        strips.step(f"R(l): {int(reached.sum())} scores see the patch")
        draw_votes(strips, "s", example.votes, reached)
        strips.cells("Δ", example.delta, "+d", reached)
        strips.words(first_condition(example))
        strips.step("the worst that a patch could do")
        draw_votes(strips, "worst s", worst, reached)
        strips.cells("worst Δ", worst[TRUE] - worst[OTHER], "+d", reached)
        strips.words(second_condition(example))
        return strips.finish()

    note = "The attacker owns the hatched pixel only; hatched scores can see it. Both verdicts are those of our rules."
    return Drawn(picture("certification-1d", "Certification, in one dimension", note, draw))


def draw_votes(strips: Strips, sign: str, votes: Tensor, hatched: Tensor | None = None) -> None:
    for label, values in zip(CLASSES, votes, strict=True):
        strips.cells(f"{sign}, {label}", values, "d", hatched)


def first_condition(example: Example) -> str:
    certified = bool(example.by_largest_region.certified)
    total, reached = int(example.delta.sum()), int(example.reached.sum())
    return f"Condition 3.3:\nΣ Δ = {total:+d} {sign(certified)} 2·{reached}\n{verdict(certified)}"


def second_condition(example: Example) -> str:
    certified, lead = bool(example.by_every_region.certified), example.by_every_region.lead
    assert lead is not None
    return f"Condition 3.2:\nworst Σ Δ = {int(lead):+d} {sign(certified)} 0\n{verdict(certified)}"


def sign(certified: bool) -> str:
    return ">" if certified else "≤"


def verdict(certified: bool) -> str:
    return "certified" if certified else "not certified"
