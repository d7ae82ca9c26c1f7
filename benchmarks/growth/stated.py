"""What time and memory of each part grow by at most: the formulas that measured curves are held against."""

from collections.abc import Callable
from dataclasses import dataclass

AXES = ("images", "classes", "grid", "patch")


@dataclass(frozen=True)
class Counts:
    """What a formula may name. Masks and regions are the same sets; there are never more of them than positions."""

    b: int  # images
    k: int  # classes
    p: int  # positions of the score map
    n: int  # regions
    a: int  # positions in the largest region
    q: int  # placements of the patch
    v: int  # views of the rule unanimous, whatever the size of the image


Formula = Callable[[Counts], float]


@dataclass(frozen=True)
class Stated:
    """Bounds on time and memory, each as a formula and in writing, and which axes they are measured along."""

    time: tuple[str, Formula]
    memory: tuple[str, Formula]
    why: str
    axes: tuple[str, ...] = AXES

    def of(self, what: str) -> tuple[str, Formula]:
        return self.time if what == "time" else self.memory


SUMS = ("b k (p + n)", lambda at: at.b * at.k * (at.p + at.n))
MAPS = ("b k p", lambda at: at.b * at.k * at.p)
DOUBT = ("b k p (1 + a)", lambda at: at.b * at.k * at.p * (1 + at.a))
STATED: dict[str, Stated] = {
    "network": Stated(MAPS, MAPS, "the same layers at each position", AXES[:3]),
    "regions": Stated(
        ("q + n + p√p", lambda at: at.q + at.n + at.p**1.5),
        ("q + n", lambda at: at.q + at.n),
        "once for each threat: rows are compared with rows, columns with columns",
        AXES[2:],
    ),
    "largest-region": Stated(MAPS, MAPS, "one sum for each class"),
    "every-region": Stated(SUMS, SUMS, "a sum for each class and region, by running totals"),
    "detect": Stated(SUMS, SUMS, "a sum for each class and mask, by running totals"),
    "masked": Stated(
        ("b (k (p + n) + n p)", lambda at: at.b * (at.k * (at.p + at.n) + at.n * at.p)),
        SUMS,
        "a masked map for each region",
    ),
    "two-mask": Stated(
        DOUBT,
        SUMS,
        "no bound: a masked map for each first mask in doubt. If leads are spread evenly, that is a share a/p of at "
        "most p masks for each rival; at worst it is all of them, b k n p",
    ),
    "two-mask, exact lead": Stated(DOUBT, SUMS, "the same, with more first masks in doubt"),
    "unanimous": Stated(
        ("b v (k + v)", lambda at: at.b * at.v * (at.k + at.v)),
        ("b v (k + v)", lambda at: at.b * at.v * (at.k + at.v)),
        "a count for each view and class, and for each region, of which there are at most as many as views",
    ),
}
