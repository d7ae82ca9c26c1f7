"""The kernel: a product of matrices whose rows are moved for each tap, with everything that follows it in one pass.

Tiles come through Hopper's tensor memory access, which fills rows beyond the matrix with zeros. The sum of an element
runs over taps and features in one order, whatever tile it lies in. Imported where Triton is at hand; with
TRITON_INTERPRET=1 it runs, slowly, on a CPU.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from benchmarks.kernels.layout import Layout
from benchmarks.kernels.network import FP8, After, Features, Product


@triton.jit
def product_kernel(
    features,
    weights,
    wide,
    narrow,
    residual,
    positions,
    scale,
    bias,
    rows,
    line,
    each,
    height,
    width,
    unit,
    BEFORE: tl.constexpr,
    AFTER: tl.constexpr,
    TAPS: tl.constexpr,
    RELU: tl.constexpr,
    WIDE: tl.constexpr,
    NARROW: tl.constexpr,
    RESIDUAL: tl.constexpr,
    POSITIONS: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
    GROUP: tl.constexpr,
):
    # Tiles that share features or weights run at about the same time, so that they meet in the cache.
    tile = tl.program_id(0)
    down, across = tl.cdiv(rows, ROWS), tl.cdiv(AFTER, COLUMNS)
    group = tile // (GROUP * across)
    size = min(down - group * GROUP, GROUP)
    row = (group * GROUP + (tile % (GROUP * across)) % size) * ROWS
    column = ((tile % (GROUP * across)) // size) * COLUMNS

    steps: tl.constexpr = (BEFORE + DEPTH - 1) // DEPTH
    total = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for step in range(TAPS * steps):
        tap, start = step // steps, (step % steps) * DEPTH
        move = (tap // 3 - 1) * line + tap % 3 - 1 if TAPS == 9 else 0
        left = features.load([row + move, start])
        right = weights.load([column, tap * BEFORE + start])  # beyond this tap's features, those on the left are zero
        total = tl.dot(left, right.T, total)

    at, out = row + tl.arange(0, ROWS), column + tl.arange(0, COLUMNS)
    kept, inside = out < AFTER, at % each
    i, j = inside // line, inside % line
    real = (i < height) & (j < width)
    total = total * tl.load(scale + out, kept, 0.0)[None, :] + tl.load(bias + out, kept, 0.0)[None, :]
    stored = (at < rows)[:, None] & kept[None, :]
    where = at.to(tl.int64)[:, None] * AFTER + out[None, :]
    if RESIDUAL:
        total += tl.load(residual + where, stored, 0.0).to(tl.float32)
    if RELU:
        total = tl.maximum(total, 0.0)
    if POSITIONS:
        total += tl.load(positions + inside[:, None] * AFTER + out[None, :], kept[None, :], 0.0)
    total = tl.where(real[:, None], total, 0.0)
    if WIDE:
        tl.store(wide + where, total.to(tl.bfloat16), stored)
    if NARROW:
        tl.store(narrow + where, tl.clamp(total / unit, -448.0, 448.0).to(tl.float8e4nv), stored)


@dataclass(frozen=True)
class Tiles:
    """How the kernel cuts its work."""

    rows: int
    columns: int
    stages: int
    warps: int


CANDIDATES = (Tiles(128, 256, 3, 8), Tiles(256, 128, 3, 8), Tiles(128, 128, 4, 8))  # each takes seconds to compile
FIRST = Tiles(64, 64, 1, 4)  # where nothing is timed
DEPTH = 128  # bytes of a row that are fetched at once


class Kernel:
    """A `Multiply`; the first call of each shape tries all tiles and keeps the fastest."""

    def __init__(self) -> None:
        self.chosen: dict[tuple[Any, ...], tuple[Tiles, float]] = {}

    def __call__(self, features: Tensor, product: Product, layout: Layout, after: After) -> Features:
        before, out = features.shape[1], len(product.weight)
        own = after.unit is not None and after.dtype == FP8  # else what is wide is also narrow
        wide, narrow = after.wide or not own, own
        key = (features.dtype, layout.rows, before, out, product.taps, wide, narrow, after.residual is not None)
        results = [
            torch.empty(layout.rows, out, dtype=kind, device=features.device) if asked else features
            for kind, asked in ((torch.bfloat16, wide), (FP8, narrow))
        ]

        depth = DEPTH // features.itemsize

        def launch(tiles: Tiles) -> None:
            grid = (triton.cdiv(layout.rows, tiles.rows) * triton.cdiv(out, tiles.columns),)
            none = features  # a pointer that is never read
            product_kernel[grid](
                TensorDescriptor.from_tensor(features, [tiles.rows, depth]),
                TensorDescriptor.from_tensor(product.weight, [tiles.columns, depth]),
                *results,
                none if after.residual is None else after.residual,
                none if after.positions is None else after.positions,
                product.scale,
                product.bias,
                layout.rows,
                layout.line,
                layout.each,
                layout.height,
                layout.width,
                after.unit or 1.0,
                BEFORE=before,
                AFTER=out,
                TAPS=product.taps,
                RELU=product.relu,
                WIDE=wide,
                NARROW=narrow,
                RESIDUAL=after.residual is not None,
                POSITIONS=after.positions is not None,
                ROWS=tiles.rows,
                COLUMNS=tiles.columns,
                DEPTH=depth,
                GROUP=8,
                num_stages=tiles.stages,
                num_warps=tiles.warps,
            )

        if key not in self.chosen:
            self.chosen[key] = fastest(launch) if features.is_cuda else (FIRST, 0.0)
        launch(self.chosen[key][0])
        written = results[0] if wide else None
        return Features(written, results[1] if narrow else written if after.unit is not None else None)

    def table(self) -> dict[str, list[dict[str, Any]]]:
        """What each shape took, and at which rate."""
        return {
            "shapes": [
                {
                    "type": str(dtype).removeprefix("torch."),
                    "rows": rows,
                    "before": before,
                    "after": after,
                    "taps": taps,
                    "tiles": asdict(tiles),
                    "ms": round(spent, 4),
                    "tflops": round(2e-9 * rows * before * after * taps / spent, 1),
                }
                for (dtype, rows, before, after, taps, *_), (tiles, spent) in self.chosen.items()
            ]
        }


def fastest(launch: Callable[[Tiles], None]) -> tuple[Tiles, float]:
    """The tiles that take the fewest milliseconds; some do not fit into the memory of a multiprocessor."""
    found = []
    for tiles in CANDIDATES:
        try:
            found.append((float(triton.testing.do_bench(lambda tiles=tiles: launch(tiles), 5, 20)), tiles))
        except triton.runtime.errors.OutOfResources:
            continue
    spent, tiles = min(found, key=lambda each: each[0])
    return tiles, spent
