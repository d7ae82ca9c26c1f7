"""What a row says of an image under one evaluation."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from bagcert.defense import Defense
from bagcert.rules import IntegerScores, Masked, TwoMask, read_scores
from bagcert.rules.masking import covering
from bagcert.threats import Regions, parse_threat


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
        self._masks = defense.rule.masks if isinstance(defense.rule, Masked | TwoMask) else None
        self._squares: list[Regions] | None = None

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
        if self._squares is None:
            self._squares = self._fitting_squares()
        sides = torch.zeros(len(scores.values), dtype=torch.int64, device=scores.values.device)
        if isinstance(self.defense.rule, TwoMask):  # certified: all masks withstand, and so does what lies inside them
            sides[certified] = len(self._squares)
            rest = (~certified).nonzero().flatten()
            scores = read_scores(scores.values[rest], scores.bounds)
        else:
            rest = torch.arange(len(sides), device=sides.device)
        for side, regions in enumerate(self._squares, start=1):
            proven = self.defense.rule.certify(scores, regions, exact=False).certified
            if self._masks is None and not bool(proven.any()):
                break  # no larger one either; a masking rule's bound may fail for a side and hold for a larger one
            sides[rest[proven]] = side
        return sides

    def _fitting_squares(self) -> list[Regions]:
        """The footprints of every square from 1x1 on, up to what the rule's masks cover."""
        size, found = self.defense.threat.image_size, []
        for side in range(1, min(size) + 1):
            threat = parse_threat(f"{side}x{side}", size)
            regions = self.defense.scorer.footprint.regions(threat).maximal().to(self._device)
            if self._masks is not None and not bool(covering(regions, self._masks.to(self._device)).any(dim=1).all()):
                break
            found.append(regions)
        return found
