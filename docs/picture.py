"""The pictures of README and guides: `python docs/picture.py` draws them from the shipped model and images."""

from pathlib import Path

import matplotlib

matplotlib.use("svg")

import torch
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

import bagcert
from bagcert.data import load_dataset

OUT = Path(__file__).parent
matplotlib.rcParams["svg.hashsalt"] = "bagcert"  # the same picture, the same file
BLUE, RED = "#1f6feb", "#d1242f"


def main() -> None:
    defense = bagcert.load("cifar10-small")
    batch = next(load_dataset("cifar10").split("test").batches(64, "cpu"))
    certificate = defense.certify(batch.images)
    assert certificate.lead is not None
    right = certificate.predicted == batch.labels
    proven = int(torch.where(right & certificate.certified, certificate.lead, 0).argmax())
    broken = int(torch.where(right & ~certificate.certified, certificate.lead, -(10**9)).argmax())
    figure, axes = plt.subplots(2, 3, figsize=(8.4, 5.2), width_ratios=(1, 1, 1.5))
    for row, number in zip(axes, (proven, broken), strict=True):
        draw(row, defense, batch.images[number], number, certificate)
    figure.tight_layout()
    figure.savefig(OUT / "picture.svg", metadata={"Date": None})
    defense.show(batch.images[0]).savefig(OUT / "certificate.svg", metadata={"Date": None})


def draw(
    row: list[Axes], defense: bagcert.Defense, image: torch.Tensor, number: int, found: bagcert.Certificate
) -> None:
    assert found.weakest_region is not None and found.second_region is not None
    assert found.lead is not None and found.weakest_class is not None
    own, rival = int(found.predicted[number]), int(found.weakest_class[number])
    scores = defense.scores(image[None]).values[0]
    delta = (scores[own] - scores[rival]) / 256
    row[0].imshow(image.permute(1, 2, 0))
    row[0].set_title(f"image {number}: {defense.classes[own]}")
    limit = float(delta.abs().max())
    row[1].imshow(delta, cmap="RdBu", vmin=-limit, vmax=limit)
    row[1].set_title(f"scores against {defense.classes[rival]}")
    reach = defense.scorer.footprint.receptive_field[0] // 2
    for region, style in ((found.weakest_region[number], "-"), (found.second_region[number], "--")):
        top, left, height, width = region.tolist()
        row[0].add_patch(Rectangle((left - 0.5, top - 0.5), width, height, fill=False, edgecolor=RED, linestyle=style))
        box = (max(0, left - reach) - 0.5, max(0, top - reach) - 0.5)
        row[1].add_patch(
            Rectangle(box, width + 2 * reach, height + 2 * reach, fill=False, edgecolor=RED, linestyle=style)
        )
    left_over = int(found.lead[number]) / 256
    mine, other = defense.classes[own], defense.classes[rival]
    if bool(found.certified[number]):
        verdict, color = "PROVEN", BLUE
        words = (
            f"Take away any two windows:\n{mine} still leads by {left_over:.0f} at least.\n"
            f"So no {defense.threat} sticker, anywhere,\nwith any pattern, changes this answer."
        )
    else:
        verdict, color = "NOT PROVEN", RED
        words = (
            f"Without these two windows\n{other} leads by {-left_over:.0f}.\n"
            "A sticker might change this answer;\nthe fail-safe mode abstains."
        )
    row[2].text(0.02, 0.72, verdict, fontsize=17, weight="bold", color=color)
    row[2].text(0.02, 0.2, words, fontsize=11, linespacing=1.5)
    for axes in row:
        axes.axis("off")


if __name__ == "__main__":
    main()
