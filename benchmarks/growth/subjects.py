"""What is measured, as one call for each size."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from bagcert.defense import Defense
from bagcert.rules import find_rule, read_scores
from bagcert.scorers.residual import ResidualConfig
from bagcert.scorers.views import HiddenRectangles
from bagcert.threats import Footprint, Regions, parse_threat
from benchmarks.growth.maps import trained_looking_maps
from benchmarks.growth.stated import Counts
from studies.common.timing import BATCH

FIELD, VIEWS = 7, 6  # the receptive field of our networks; PatchCleanser's masks along each axis
DISTINCT = 64  # images; more are copies, so that a curve by images has one kind of them
Work = Callable[[], object]


@dataclass(frozen=True)
class Size:
    """How much there is of everything. Every position of the grid is the center of a pixel's window."""

    images: int
    classes: int
    grid: int
    patch: int

    def at(self, axis: str, value: int) -> "Size":
        """The same but for one number; on a larger grid the patch keeps its share of the image."""
        patch = max(1, round(self.patch * value / self.grid)) if axis == "grid" else self.patch
        return replace(self, **{"patch": patch, axis: value})


def counts(size: Size) -> Counts:
    """What the formulas of `stated` name, at this size."""
    regions, side = regions_of(size), size.grid - size.patch + 1
    area = int(regions.sizes.max())
    return Counts(size.images, size.classes, size.grid**2, len(regions), area, side**2, VIEWS * (VIEWS + 1))


def regions_of(size: Size, footprint: Footprint | None = None) -> Regions:
    image = (size.grid, size.grid)
    footprint = footprint or Footprint.centered(FIELD, 1, image, image)
    return footprint.regions(parse_threat(f"{size.patch}x{size.patch}", image)).maximal()


class Subjects:
    """The calls, by the names of `stated.STATED`. Maps are drawn once for each grid, and sliced."""

    def __init__(self, device: torch.device, width: int) -> None:
        self.device, self.width = device, width
        self.maps = torch.empty(0, 0, 0, 0)

    def work(self, name: str, size: Size) -> Work:
        if name == "network":
            return self.network(size)
        if name == "regions":
            return lambda: regions_of(size)
        rule, _, exact = name.partition(", ")
        found = find_rule(rule)
        if found.needs_views:
            return self.unanimous(size)
        regions = regions_of(size).to(self.device)
        scores = read_scores(self.votes(size))
        return lambda: found.certify(scores, regions, bool(exact))

    def votes(self, size: Size) -> Tensor:
        images, classes, side = self.maps.shape[:3]
        if size.grid != side or min(size.images, DISTINCT) > images or size.classes > classes:
            self.maps = trained_looking_maps(DISTINCT, size.classes, size.grid, self.device)
        copies = -(-size.images // len(self.maps))
        return self.maps[: size.images, : size.classes].repeat(copies, 1, 1, 1)[: size.images]

    def network(self, size: Size) -> Work:
        """With random weights and pixels, which change no time."""
        config = ResidualConfig(classes=size.classes, width=self.width, paths=1, shake=False)
        scorer = config.build((size.grid, size.grid), mean=(0.0,), std=(1.0,)).to(self.device).eval()
        names = tuple(str(number) for number in range(size.classes))
        batch = min(BATCH[self.device.type], size.images)
        defense = Defense.build(scorer, "every-region", f"{size.patch}x{size.patch}", names, batch)
        pixels = torch.rand(size.images, 3, size.grid, size.grid, device=self.device)
        return lambda: defense.scores(pixels)

    def unanimous(self, size: Size) -> Work:
        """Nine of ten views are unanimous about the first class, and the others lean to the second."""
        footprint = HiddenRectangles.covering((size.patch, size.patch), (size.grid, size.grid), VIEWS).footprint
        regions, (rows, columns) = regions_of(size, footprint).to(self.device), footprint.grid
        most = (rows - 1) * columns
        draw = torch.Generator(self.device).manual_seed(0)
        agree = torch.rand(size.images, rows, columns, generator=draw, device=self.device) < 0.9
        counts = torch.zeros(size.images, size.classes, rows, columns, dtype=torch.int32, device=self.device)
        counts[:, 0] = torch.where(agree, most, most // 3)
        counts[:, 1] = most - counts[:, 0]
        rule, scores = find_rule("unanimous"), read_scores(counts, (0, most))
        return lambda: rule.certify(scores, regions, exact=False)
