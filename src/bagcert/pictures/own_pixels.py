"""What a patch on the picture itself can touch after framing, and so what a proof says in the picture's own pixels.

Along one axis, framing keeps n consecutive pixels of the picture and Pillow resizes them to m. The center of input i
lies at i + 1/2, the center of output o at (o + 1/2) n/m, both measured in inputs. Pillow computes an output from inputs
whose centers lie within the filter's support, max(n/m, 1) times

    bilinear  1,    with a weight that falls to 0 at its ends: input i enters o only if the distance is below it
    box       1/2,  with equal weights: input i enters o only if the distance is at most it

In units of 1/(2m) all of these are integers: i enters o only if |(2i + 1) m - (2o + 1) n| < `support`, where `support`
is 2 max(n, m) for bilinear and max(n, m) + 1 for box. Pillow finds centers and weights in float64 and rounds weights to
22 bits. Its errors, of about 1e-12, decide only about inputs whose distance is that of the end of the support: for
bilinear their weight is rounded to 0, for box we count them as entering. Rows and columns are resized one after the
other, so a pixel enters an output only if its row enters the output's row and its column the output's column, whatever
Pillow rounds in between. If n = m, only i = o is left, and nothing is resized.

What a patch touches. Input i enters the outputs between first(i) and last(i), where (2o + 1) n lies within `support` of
(2i + 1) m. Both ends grow with i. So the inputs i..i+p-1 change only outputs in first(i)..last(i + p - 1), and the
longest such run over all i is `reach(p)`. A pixel outside the kept part enters no output; a patch that lies partly
outside acts like the shorter run inside, which is part of a run of p inside, or is the whole kept part if p > n.

Hence a rectangle of the picture with reach_rows(p) <= h and reach_columns(q) <= w lies, after framing, inside some
h x w patch of the network's input, since a run of at most h rows inside the input is part of a run of exactly h rows.
So a certificate against h x w patches in the network's pixels is one against every p x q patch in the picture's own
(`OwnPixels.patch`), wherever it sits; and one against several patches at once is one against as many of these. The
proof uses only where the kept part lies and how long it is, so it holds for fit "crop" and for fit "squash", which
keeps everything.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from bagcert.pictures.framing import Framing
from bagcert.threats.threat import Placement, Size


@dataclass(frozen=True)
class Axis:
    """One axis of a framing: `kept` inputs become `outputs` by a filter of this support, in units of 1/(2 outputs)."""

    kept: int
    outputs: int
    support: int

    def reach(self, length: int) -> int:
        """The most outputs, from the first to the last, that `length` consecutive inputs enter."""
        centers = (2 * np.arange(self.kept, dtype=np.int64) + 1) * self.outputs
        # The least o with (2o + 1) n > center - support, and the largest with (2o + 1) n < center + support.
        first = (centers - self.support - self.kept) // (2 * self.kept) + 1
        last = -((self.kept - centers - self.support) // (2 * self.kept)) - 1
        first, last = first.clip(min=0), last.clip(max=self.outputs - 1)
        runs = last[length - 1 :] - first[: self.kept - length + 1] + 1
        return int(runs.max())

    def source(self, output: int, length: int) -> tuple[int, int]:
        """Start and length of the inputs that enter a run of outputs."""
        centers = (2 * np.arange(self.kept, dtype=np.int64) + 1) * self.outputs
        low, high = (2 * output + 1) * self.kept, (2 * (output + length) - 1) * self.kept
        used = np.flatnonzero((centers > low - self.support) & (centers < high + self.support))
        return int(used[0]), len(used)


@lru_cache(maxsize=4096)
def longest(axis: Axis, allowed: int) -> int | None:
    """How many consecutive inputs enter at most `allowed` outputs wherever they lie; None: all of them do."""
    if allowed >= axis.outputs:
        return None
    low, high = 0, axis.kept  # more inputs never enter fewer outputs
    while low < high:
        middle = (low + high + 1) // 2
        if axis.reach(middle) <= allowed:
            low = middle
        else:
            high = middle - 1
    return low


@dataclass(frozen=True)
class OwnPixels:
    """A picture of this height and width under a framing: from the network's pixels to the picture's own."""

    framing: Framing
    original: Size

    @property
    def part(self) -> Placement:
        """What the network sees of the picture."""
        return self.framing.part(self.original)

    @property
    def changed(self) -> bool:
        """Whether the network's input is not the picture itself."""
        return self.original != self.framing.size

    def patch(self, proven: Size) -> Size | None:
        """The largest rectangle of the picture that is proven by this one of the network; None if not even one pixel.

        Wherever it sits, it lies inside a placement of the proven patch after framing.
        """
        found = [
            side if length is None else length
            for axis, allowed, side in zip(self._axes(), proven, self.original, strict=True)
            for length in [longest(axis, allowed)]
        ]
        return (found[0], found[1]) if min(found) else None

    def square(self, proven: Iterable[Size]) -> int:
        """The side of the largest square of the picture that any of these proven patches proves; 0 if there is none."""
        return max((min(self.patch(patch) or (0,)) for patch in proven), default=0)

    def source(self, placement: Placement) -> Placement:
        """The pixels of the picture that enter a rectangle of the network's input."""
        rows, columns = self._axes()
        (row, height), (column, width) = rows.source(placement[0], placement[2]), columns.source(*placement[1::2])
        return Placement(self.part.row + row, self.part.column + column, height, width)

    def _axes(self) -> tuple[Axis, Axis]:
        bilinear = self.framing.interpolation == "bilinear"
        rows, columns = (
            Axis(kept, outputs, 2 * max(kept, outputs) if bilinear else max(kept, outputs) + 1)
            for kept, outputs in zip(self.part[2:], self.framing.size, strict=True)
        )
        return rows, columns
