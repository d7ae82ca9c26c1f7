"""Of many classes few can matter to a certificate: the others are left out before regions are looked at."""

from collections.abc import Iterator

from torch import Tensor

FEW = 16  # with no more classes than that, to find out which matter costs more than it saves


def alike(needed: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Images [g] that need about as many classes, and the classes of each, int64 [g m], ascending.

    Of `needed`, bool [b k]. Images that need 5 to 8 classes are one group, so that one hard image does not cost all the
    others. Where an image needs fewer than its group, others fill up: a class too many changes no answer.
    """
    counts = needed.sum(dim=1)
    sizes = counts.log2().ceil()
    for size in sizes.unique():  # type: ignore[no-untyped-call]
        images = (sizes == size).nonzero().flatten()
        first = needed[images].int().argsort(descending=True)
        yield images, first[:, : int(counts[images].max())].sort().values
