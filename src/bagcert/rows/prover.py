"""What a row says of an image under one evaluation."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from itertools import takewhile
from typing import Any

import torch
from torch import Tensor

from bagcert.defense import Defense
from bagcert.rules import IntegerScores
from bagcert.rules.largest_square import largest_square, squares
from bagcert.rules.masking import covered
from bagcert.threats import Regions


@contextmanager
def one_thread() -> Iterator[None]:
    """For many small sums: a certificate took 3 ms an image on one thread, 335 ms on two threads of two busy cores."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


class Prover:
    """A defense and, once asked for, the squares it is tried against."""

    def __init__(self, defense: Defense) -> None:
        self.defense = defense
        self._device = defense.device

    def results(self, scores: IntegerScores, detailed: bool) -> list[list[Any]]:
        """One entry for each image, as `rows.py` describes them."""
        with one_thread():
            return self._results(scores, detailed)

    def _results(self, scores: IntegerScores, detailed: bool) -> list[list[Any]]:
        certificate = self.defense.certify_integers(scores, exact=detailed)
        flags = [certificate.predicted, certificate.certified.long()]
        if not detailed:
            pairs: list[list[Any]] = torch.stack(flags, dim=1).tolist()
            return pairs
        assert certificate.lead is not None and certificate.weakest_class is not None
        assert certificate.weakest_region is not None
        columns = [*flags, certificate.lead, certificate.weakest_class, certificate.weakest_region]
        second = certificate.second_region
        seconds = [None] * len(flags[0]) if second is None else second.tolist()
        entries = zip(
            *(column.tolist() for column in columns),
            seconds,
            self.sides(scores, certificate.certified).tolist(),
            strict=True,
        )
        return [list(entry) for entry in entries]

    def sides(self, scores: IntegerScores, certified: Tensor) -> Tensor:
        """The side of the largest certified square, int64 [b]; 0 where there is none. Masks stay those of the rule."""
        return largest_square(self.defense.rule, scores, self._squares, torch.where(certified, self._inside, 0))

    @cached_property
    def _squares(self) -> list[tuple[int, Regions]]:
        return list(squares(self.defense.rule, self.defense.scorer.footprint, self._device))

    @cached_property
    def _inside(self) -> int:
        """The largest square inside the threat, which a nested rule certifies together with the threat; else 0."""
        if not self.defense.rule.nested:
            return 0
        inside = takewhile(lambda square: covered(square[1], self.defense.regions), self._squares)
        return len(list(inside))
