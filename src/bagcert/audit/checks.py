"""What a certificate assumes about the program that computes the scores: each assumption is checked by running it."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from bagcert.audit.backends import Run
from bagcert.audit.patches import Painted
from bagcert.tensors import Images


@dataclass(frozen=True)
class Difference:
    """How many logits were compared, how many differed in any bit, and by how much at most."""

    compared: int = 0
    moved: int = 0
    largest: float = 0.0

    @staticmethod
    def between(before: Tensor, after: Tensor, where: Tensor | None = None) -> "Difference":
        """Compare logits [b k i j]: all of them, or those at `where` (bool, broadcast)."""
        moved = before.view(torch.int32) != after.view(torch.int32)
        checked = torch.ones_like(moved) if where is None else where.expand_as(moved)
        moved = moved & checked
        apart = (before - after).abs().nan_to_num(nan=torch.inf)[moved]
        return Difference(int(checked.sum()), int(moved.sum()), float(apart.max()) if len(apart) else 0.0)

    def __add__(self, other: "Difference") -> "Difference":
        return Difference(self.compared + other.compared, self.moved + other.moved, max(self.largest, other.largest))


SIZES = (1, 2, 3, 5, 8, 16, 31, 64)
POOL = max(SIZES)
REPEATS = 64  # a network that counts its calls may change late


@dataclass(frozen=True)
class Check:
    """One assumption, and the differences and problems that speak against it."""

    name: str
    asks: str
    found: Difference = field(default_factory=Difference)
    problems: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        return not self.found.moved and not self.problems


def behavior(run: Run, images: Images, patches: list[Painted], attacks: list[Painted]) -> Iterator[Check]:
    """The checks that run the program; `attacked` is left out if there are no attacks."""
    clean = run(images)

    def moved(tried: list[Painted]) -> Difference:
        return sum((Difference.between(clean, run(each.images), each.untouched) for each in tried), Difference())

    yield Check("locality", "patches of random, black and white pixels change no score outside R(l)", moved(patches))
    if attacks:
        yield Check("attacked", "adversarial patches change no score outside R(l)", moved(attacks))

    pool = images.repeat(-(-POOL // len(images)), 1, 1, 1)[:POOL]
    whole = run(pool)
    sizes = sum((Difference.between(whole[:size], run(pool[:size])) for size in SIZES), Difference())
    yield Check("batch size", f"scores are the same in batches of {', '.join(map(str, SIZES))}", sizes)
    yield Check("batch mates", "scores do not depend on the other images", mates(run, images))
    order = torch.randperm(POOL, generator=torch.Generator().manual_seed(0))
    yield Check(
        "order", "scores do not depend on the order of images", Difference.between(whole[order], run(pool[order]))
    )
    again = sum((Difference.between(clean, run(images)) for _ in range(REPEATS)), Difference())
    yield Check("repeat", f"the same images give the same scores, {REPEATS} times", again)


def mates(run: Run, images: Images) -> Difference:
    """Compare every second image while the others are replaced by noise, black and white."""
    clean = run(images)
    kept = torch.arange(len(images)) % 2 == 0
    noise = torch.rand(images.shape, generator=torch.Generator().manual_seed(1))
    found = Difference()
    for others in (noise, torch.zeros_like(images), torch.ones_like(images)):
        mixed = torch.where(kept[:, None, None, None], images, others)
        found += Difference.between(clean[kept], run(mixed)[kept])
    return found
