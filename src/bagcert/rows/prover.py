"""What a record says about an image under one evaluation."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from itertools import takewhile
from typing import Any

import torch
from torch import Tensor

from bagcert.defense import Defense
from bagcert.rows.format import Evaluation, Record
from bagcert.rules import Certificate, IntegerScores
from bagcert.rules.largest_square import largest_square, squares
from bagcert.rules.masking_rule import covered
from bagcert.threats import Regions, Threat


@contextmanager
def one_thread() -> Iterator[None]:
    """For many small sums: a certificate took 3 ms per image on one thread, 335 ms on two threads of two busy cores."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


class Prover:
    """A defense under one evaluation and, once asked for, the squares it is tried against."""

    def __init__(self, defense: Defense, evaluation: Evaluation, threat: Threat | None = None) -> None:
        """The threat is what the evaluation's text says, unless that is one which comes from a file."""
        self.evaluation = evaluation
        self.defense = defense.against(threat or evaluation.patch, evaluation.rule)

    def records(self, numbers: list[int], labels: list[int], scores: IntegerScores, digests: list[str]) -> list[Record]:
        """The records of these images; with details if `digests` of their scores are given, else the answers alone."""
        with one_thread():
            certificate = self.defense.certify_integers(scores, exact=bool(digests))
            columns = {"image": numbers, "label": labels}
            columns |= {name: getattr(certificate, name).tolist() for name in ("predicted", "certified")}
            columns |= self._details(scores, certificate, digests) if digests else {}
        if certificate.alert is not None and certificate.detectable is not None:
            columns |= {"alert": certificate.alert.tolist(), "detectable": certificate.detectable.tolist()}
        patch, rule = self.evaluation.patch, self.evaluation.rule
        rows = zip(*columns.values(), strict=True)
        return [Record(patch, rule, **dict(zip(columns, values, strict=True))) for values in rows]

    def _details(self, scores: IntegerScores, certificate: Certificate, digests: list[str]) -> dict[str, list[Any]]:
        """The fields of a record that come with scores."""
        assert certificate.lead is not None and certificate.weakest_class is not None
        assert certificate.weakest_region is not None
        second = certificate.second_region
        proven = self.defense.rule.proven(certificate)
        return {
            "lead": certificate.lead.tolist(),
            "weakest_class": certificate.weakest_class.tolist(),
            "weakest_placement": certificate.weakest_region.tolist(),
            "second_placement": [None] * len(digests) if second is None else second.tolist(),
            "certified_square": self.sides(scores, proven).tolist(),
            "scores_sha256": digests,
        }

    def sides(self, scores: IntegerScores, proven: Tensor) -> Tensor:
        """The side of the largest certified square, int64 [b]; 0 if there is none. Masks stay those of the rule."""
        return largest_square(self.defense.rule, scores, self._squares, torch.where(proven, self._inside, 0))

    @cached_property
    def _squares(self) -> list[tuple[int, Regions]]:
        return list(squares(self.defense.rule, self.defense.scorer.footprint, self.defense.device))

    @cached_property
    def _inside(self) -> int:
        """The largest square inside the threat, which a nested rule certifies together with the threat; else 0."""
        if not self.defense.rule.nested:
            return 0
        inside = takewhile(lambda square: covered(square[1], self.defense.regions), self._squares)
        return len(list(inside))
