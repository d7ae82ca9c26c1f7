"""Resizing by a box filter in integers, and what a patch on the original picture can touch after it.

Along one axis, n pixels become m. Measured in units of 1/(n m) of the axis, input i is the interval [i m, (i + 1) m)
and output o is [o n, (o + 1) n). The weight of i in o is the length of their overlap, so the weights of an output add
up to n. Rows and columns are resized one after the other by such weights W, and an output pixel is

    (Σ_i Σ_j W_rows[o, i] W_columns[p, j] pixel[i, j]) / (n_rows n_columns),   rounded half up to 8 bits.

All numbers are integers below 2**53, so float64 holds them exactly, in any order of summation. If n = m, the picture
stays as it is.

What a patch touches. Pixel (i, j) enters output (o, p) with the weight W_rows[o, i] W_columns[p, j]; if that is 0, no
value of the pixel changes the output. A patch of p consecutive rows from i on therefore changes only outputs whose rows
lie in {o : W_rows[o, i'] > 0 for some i' in i..i+p-1}. The intervals of consecutive inputs adjoin, so these outputs are
consecutive, too: a run of some length, and the longest over all i is `reach(p)`. The same holds for columns. A
rectangle of the picture with reach_rows <= h and reach_columns <= w lies, after resizing, inside some h x w patch of
the network's image, since a run of at most h rows inside the image is part of a run of exactly h rows. Hence a
certificate against h x w patches in the network's pixels is one against every such rectangle in the picture's own
pixels (`patch_in_original`).
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from bagcert.threats.threat import Size

Pixels = NDArray[np.uint8]  # h w c
FILTER = "box: the exact average over each new pixel's area, rounded half up to 8 bits; each side is scaled separately"


def weights(inputs: int, outputs: int) -> NDArray[np.float64]:
    """Integers [outputs, inputs]; each row adds up to `inputs`."""
    begins = np.arange(outputs)[:, None] * inputs
    starts = np.arange(inputs)[None, :] * outputs
    shared: NDArray[np.int64] = np.minimum(begins + inputs, starts + outputs) - np.maximum(begins, starts)
    return shared.clip(min=0).astype(np.float64)


def resize(pixels: Pixels, size: Size) -> Pixels:
    """The picture at another size, uint8 [h w c]."""
    if pixels.shape[:2] == size:
        return pixels
    height, width, channels = pixels.shape
    across = weights(width, size[1])
    summed = np.empty((*size, channels))
    for row, seen in enumerate(weights(height, size[0])):  # row by row: a whole picture of floats would be large
        used = np.flatnonzero(seen)
        part = pixels[used[0] : used[-1] + 1].reshape(len(used), -1)
        summed[row] = across @ (seen[used] @ part).reshape(width, channels)
    total = height * width
    rounded: NDArray[np.int64] = (2 * summed.astype(np.int64) + total) // (2 * total)
    return rounded.astype(np.uint8)


def reach(inputs: int, outputs: int, length: int) -> int:
    """The most outputs that `length` consecutive inputs touch.

    Inputs i..i+length-1 are the interval [i m, (i + length) m), which meets output o if and only if
    o n < (i + length) m and (o + 1) n > i m: outputs floor(i m / n) to ceil((i + length) m / n) - 1.
    """
    first = np.arange(inputs - length + 1, dtype=np.int64)
    last = -((-(first + length) * outputs) // inputs) - 1
    return int((last - first * outputs // inputs).max()) + 1


@lru_cache(maxsize=4096)
def longest(inputs: int, outputs: int, allowed: int) -> int:
    """How many consecutive inputs touch at most `allowed` outputs wherever they lie; 0 if even one touches more."""
    low, high = 0, inputs  # more inputs never touch fewer outputs
    while low < high:
        middle = (low + high + 1) // 2
        if reach(inputs, outputs, middle) <= allowed:
            low = middle
        else:
            high = middle - 1
    return low


def patch_in_original(original: Size, network: Size, patch: Size) -> Size:
    """The largest rectangle of the original that, wherever it sits, lies inside a placement of the patch once resized.

    (0, 0) if not even a single pixel does.
    """
    height, width = (longest(*lengths) for lengths in zip(original, network, patch, strict=True))
    return (height, width) if height and width else (0, 0)


def square_in_original(original: Size, network: Size, patches: tuple[Size, ...]) -> int:
    """The side of the largest such square for any of the patches, all of which are certified; 0 if there is none."""
    return max((min(patch_in_original(original, network, patch)) for patch in patches), default=0)


def source_range(row: int, length: int, inputs: int, outputs: int) -> tuple[int, int]:
    """Start and length of the inputs that a run of outputs is made from."""
    start = row * inputs // outputs
    return start, -(-(row + length) * inputs // outputs) - start
