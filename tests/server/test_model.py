"""The served answers are those of the defense, whatever else is in the batch."""

import numpy as np
import pytest
import torch

from bagcert.answers import Answer
from bagcert.certify import certified_size
from bagcert.errors import UsageError
from bagcert.server.model import facing, to_images
from bagcert.threats import parse_threat
from tests.onnx.conftest import NAMES, small_defense
from tests.server.conftest import answers_of, photos, small_model

KINDS = [
    ("logits", "two-mask"),
    ("heaviside", "every-region"),
    ("heaviside", "largest-region"),
    ("heaviside", "masked"),
    ("heaviside", "two-mask"),
]


def same(one: Answer, other: Answer) -> bool:
    fields = ("predicted", "certified", "square", "lead", "weakest", "second", "rival")
    return all(getattr(one, name) == getattr(other, name) for name in fields) and np.array_equal(
        one.scores, other.scores
    )


@pytest.mark.parametrize(("step", "rule"), KINDS)
def test_answers_are_those_of_the_defense(step: str, rule: str) -> None:
    defense = small_defense(step, rule)
    served = answers_of(small_model(defense), photos())
    wanted = defense.certify(to_images(photos()))
    scores = defense.scores(to_images(photos())).values
    assert wanted.lead is not None and wanted.weakest_region is not None and wanted.weakest_class is not None
    assert rule == "largest-region" or 0 < int(wanted.certified.sum()) < len(served)
    for index, found in enumerate(served):
        assert found.predicted == int(wanted.predicted[index])
        assert found.certified is bool(wanted.certified[index])
        assert found.lead == int(wanted.lead[index]) and found.rival == NAMES[int(wanted.weakest_class[index])]
        assert list(found.weakest) == wanted.weakest_region[index].tolist()
        if wanted.second_region is None:
            assert found.second is None
        else:
            assert found.second is not None and list(found.second) == wanted.second_region[index].tolist()
        assert np.array_equal(found.scores, scores[index])


@pytest.mark.parametrize("patch", ["2x2", "4x4", "2x5", "1x3,3x2"])
@pytest.mark.parametrize(("step", "rule"), KINDS)
def test_squares_are_the_largest_under_the_same_masks(step: str, rule: str, patch: str) -> None:
    """`certified_size` tries every side; the result must be the largest inside the threat."""
    defense = small_defense(step, rule).against(patch)
    model = small_model(defense)
    scores = defense.scores(to_images(photos())).values
    wanted = certified_size(
        scores, rule=defense.rule, bounds=defense.scorer.step.bounds, footprint=defense.scorer.footprint
    ).clamp(max=defense.square)
    found = answers_of(model, photos())
    proven = torch.tensor([each.certified for each in found])
    # A masking rule's bound may hold for a rectangle and fail for a square inside it, which is still proven.
    wanted = torch.where(proven, torch.full_like(wanted, defense.square), wanted)
    assert [each.square for each in found] == wanted.tolist()


def test_an_uncertified_answer_may_be_proven_against_smaller_squares() -> None:
    """The region of a single pixel lies inside several 3x3 masks, and one that never fails is enough."""
    found = answers_of(small_model(small_defense("logits", "two-mask").against("3x3")), photos())
    assert {each.square for each in found} == {0, 1, 3}
    assert all(each.certified == (each.square == 3) for each in found)


def test_batch_mates_change_nothing() -> None:
    model, pictures = small_model(), photos()
    together = answers_of(model, pictures)
    for index in (0, 11, 23):
        assert same(answers_of(model, [pictures[index]])[0], together[index])
        assert same(answers_of(model, [pictures[5], pictures[index]])[1], together[index])


@pytest.mark.slow
def test_onnxruntime_scores_are_served_with_the_same_rule() -> None:
    model = small_model(backend="onnx")
    for each, found in zip(photos(), answers_of(model, photos()), strict=True):
        certificate = model.defense.certify_integers(model.scores(to_images([each])))
        assert certificate.lead is not None
        assert (found.predicted, found.lead) == (int(certificate.predicted), int(certificate.lead))
    assert str(model.program) == "onnx, cpu, float32, batches of 16"


def test_a_program_is_served_as_it_certifies() -> None:
    model = small_model(small_defense("logits", "two-mask").by("fast"))
    assert str(model.program) == "torch, cpu, bfloat16, eager, channels_last, folded batch norm, batches of 1"
    for each, found in zip(photos(), answers_of(model, photos()), strict=True):
        assert found.lead == int(model.defense.certify(to_images([each])).lead)  # type: ignore[arg-type]
    smaller = facing(model.defense, parse_threat("2x2", model.image_size))
    assert torch.equal(smaller.scores(to_images(photos())).values, model.scores(to_images(photos())).values)
    with pytest.raises(UsageError, match=r"Program fast runs by torch alone\. Leave out --program or --backend\."):
        small_model(model.defense, backend="onnx")


def test_networks_of_any_number_of_channels_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    defense = small_defense("logits", "two-mask")
    monkeypatch.setattr(type(defense.scorer), "channels", None)
    with pytest.raises(UsageError, match="Only a trained model can be served"):
        small_model(defense)
