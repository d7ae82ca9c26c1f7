"""One attack and what it does to the score maps (App. A.2)."""

from typing import NamedTuple

import torch
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from torch import Tensor

from bagcert.attacks import Attacked
from bagcert.defense import Defense, load
from bagcert.errors import UsageError
from bagcert.pictures.panels import outline, reach
from bagcert.report.drawing import PALETTE, Picture, picture
from bagcert.rows.header import fitting_dataset
from bagcert.stored_models import card
from studies.figures.plan import MAIN_PATCH
from studies.figures.stored_results import Drawn, Stock

MODEL, RULE = "cifar10-votes", "every-region"  # the paper's objective and condition
SEARCHED, TRIED = 32, 6  # images searched, and attacked
BLUE, RED = PALETTE[0], PALETTE[5]


class Example(NamedTuple):
    """An image of the batch whose class an attack changed."""

    number: int
    clean: Tensor  # float [c h w]
    attacked: Tensor
    label: int
    target: int
    placement: list[int]  # row, column, height, width of the patch


def attack_example(stock: Stock) -> Drawn:
    """Clean and attacked image, with the maps of the true class and of the class that the attack reached."""
    defense = load(MODEL).against(MAIN_PATCH, RULE)
    try:
        dataset = fitting_dataset(card(MODEL)["data"]["name"], defense, stock.data_dir)
    except UsageError as error:
        return Drawn(None, (f"without images ({error}); to fetch them: bagcert data cifar10",))
    batch = next(iter(dataset.split("test").batches(SEARCHED, "cpu")))
    example = first_flip(defense, batch.images, batch.labels)
    if example is None:
        return Drawn(None, (f"without an example: no attack changed one of {TRIED} images",))
    return Drawn(draw_example(defense, example))


def first_flip(defense: Defense, images: Tensor, labels: Tensor) -> Example | None:
    """The safest of the images that are right but not proven and that an attack changes."""
    certificate = defense.certify(images)
    assert certificate.lead is not None
    open_ = (certificate.predicted == labels) & ~certificate.certified
    order = certificate.lead.masked_fill(~open_, torch.iinfo(torch.int64).min).argsort(descending=True)
    for number in order[: min(TRIED, int(open_.sum()))].tolist():
        found: Attacked = defense.attack(images[[number]], labels[[number]])
        if int(found.attacked) != int(labels[number]):
            label, target, placement = int(labels[number]), int(found.attacked), found.placement[0].tolist()
            return Example(number, images[number], found.images[0], label, target, placement)
    return None


def draw_example(defense: Defense, example: Example) -> Picture:
    scores = defense.scores(torch.stack([example.clean, example.attacked])).values
    reached = reach(defense.scorer.footprint, example.placement)
    kinds = (example.label, example.target)

    def draw() -> Figure:
        figure = Figure(figsize=(6.8, 4.4), layout="constrained")
        lines = figure.subplots(2, 3)
        for place, (line, pixels) in enumerate(zip(lines, (example.clean, example.attacked), strict=True)):
            line[0].imshow(pixels.permute(1, 2, 0).numpy(), cmap="gray", interpolation="nearest")
            votes = [int(scores[place, label].sum()) for label in kinds]
            winner = defense.classes[kinds[int(votes[1] > votes[0])]]
            line[0].set_title(f"{'with' if place else 'without'} sticker: {winner}", fontsize=10, fontweight="bold")
            for ax, label, count, color in zip(line[1:], kinds, votes, (BLUE, RED), strict=True):
                ax.imshow(scores[place, label].numpy(), cmap=one_color(color), vmin=0, vmax=1, interpolation="nearest")
                outline(ax, reached, "black")
                ax.set_title(f"{count} votes for {defense.classes[label]}", fontsize=10, color=color)
            if place:
                outline(line[0], example.placement, RED)
        for ax in lines.flat:
            hide_ticks(ax)
        return figure

    note = (
        f"{MODEL}, {RULE}, test image {example.number}; colored cells vote for the class. Outlined: the {MAIN_PATCH} "
        "sticker in the image, and in the maps all votes that it can reach."
    )
    return picture("attack-example", "An attack and the scores it reaches", note, draw)


def one_color(color: str) -> LinearSegmentedColormap:
    return LinearSegmentedColormap.from_list("votes", ["#f2f4f6", color])


def hide_ticks(ax: Axes) -> None:
    ax.set_xticks([])
    ax.set_yticks([])
    ax.grid(False)
    ax.spines[:].set_visible(False)
