"""Scores as callers hold them: no images at all, arrays of every type, numbers of NumPy; none is ever written to."""

from typing import Any

import numpy as np
import pytest
import torch

import bagcert
from bagcert.rules import Masked, Monotone, TwoMask
from bagcert.threats import RectangleThreat
from tests.rules.test_bad_input import SMALL_MASKS, VOTES, total


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize(
    "rule",
    ["largest-region", "every-region", "masked", Masked("1/2"), "two-mask", TwoMask(SMALL_MASKS), Monotone(total)],
)
def test_no_images_give_an_empty_certificate(rule: Any, exact: bool) -> None:
    certificate = bagcert.certify_scores(VOTES[:0], "1x1", 1, rule=rule, bounds=(1, 4), exact=exact)
    assert certificate.predicted.dtype == torch.int64 and certificate.certified.dtype == torch.bool
    assert certificate.predicted.shape == certificate.certified.shape == certificate.answers().shape == (0,)
    if certificate.lead is not None:
        assert certificate.lead.shape == (0,) and certificate.lead.dtype == torch.int64
        assert certificate.weakest_region is not None and certificate.weakest_region.shape == (0, 4)
        assert certificate.weakest_class is not None and certificate.weakest_class.shape == (0,)


def test_no_images_give_no_sizes() -> None:
    for rule, patch in (("every-region", None), ("two-mask", "2x2"), ("masked", "2x2")):
        sizes = bagcert.certified_size(VOTES[:0], 1, rule=rule, patch=patch)
        assert sizes.shape == (0,) and sizes.dtype == torch.int64


NUMPY = [np.bool_, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]
NUMPY += [np.float16, np.float32, np.float64]


@pytest.mark.parametrize("dtype", NUMPY)
def test_arrays_of_every_type_give_the_same(dtype: type) -> None:
    generator = torch.Generator().manual_seed(0)
    votes = torch.randint(0, 2, (8, 3, 6, 6), generator=generator)
    votes[:4, 1] = 1
    array: np.ndarray = votes.numpy().astype(dtype)
    doubt = torch.rand(votes.shape, generator=generator).numpy() < 0.02
    before, uncertain = array.copy(), doubt.copy()
    mirrored = np.ascontiguousarray(array[..., ::-1])[..., ::-1]  # the same votes, stored backwards
    for rule in ("largest-region", "every-region", "masked", "two-mask"):
        expected = bagcert.certify_scores(votes, "1x1", 3, rule=rule, uncertain=torch.from_numpy(doubt))
        for given in (array, mirrored, torch.from_numpy(array)):
            found = bagcert.certify_scores(given, "1x1", 3, rule=rule, uncertain=doubt)
            for name in ("predicted", "certified", "lead", "weakest_region", "weakest_class"):
                assert torch.equal(getattr(found, name), getattr(expected, name)), name
    assert np.array_equal(array, before) and array.dtype == before.dtype, "the caller's scores were written to"
    assert np.array_equal(doubt, uncertain), "the caller's doubts were written to"


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_tensors_are_never_written_to(dtype: torch.dtype) -> None:
    """Not even those that already have the type the rules add in."""
    votes = (VOTES * 3).to(dtype)
    votes[0, 2, :3] = 3
    before = votes.clone()
    threat = RectangleThreat((6, 6), ((2, 2),))
    for rule in ("largest-region", "every-region", "masked", Masked("1/2"), "two-mask", Monotone(total)):
        for slack in (0, 1):
            for exact in (True, False):
                bagcert.certify_scores(votes, threat, 3, rule=rule, bounds=(0, 3), slack=slack, exact=exact)
    bagcert.certified_size(votes, 3, bounds=(0, 3))
    assert torch.equal(votes, before)


def test_a_rule_may_be_given_whole_numbers_of_numpy() -> None:
    plain = bagcert.certify_scores(VOTES * 9, "1x1", 3, rule="every-region", bounds=(0, 9), slack=1)
    settings: dict[str, Any] = {"bounds": (np.int8(0), np.int8(9)), "slack": np.int8(1), "receptive_field": np.int64(3)}
    numpy = bagcert.certify_scores(VOTES * 9, "1x1", rule="every-region", **settings)
    assert plain.lead is not None and numpy.lead is not None
    assert torch.equal(plain.lead, numpy.lead)
