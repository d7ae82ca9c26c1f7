"""Every kind of network can be served and attacked, and its answers are those of its own defense."""

import pytest
import torch
from torch import nn

from bagcert.defense import Defense
from bagcert.errors import UsageError
from bagcert.scorers.ablation import AblationConfig
from bagcert.scorers.base import NetworkConfig
from bagcert.scorers.cleanser import CleanserConfig
from bagcert.scorers.interval import IntervalConfig
from bagcert.scorers.mixed import MixedConfig
from bagcert.scorers.residual import ResidualConfig
from bagcert.scorers.wrapped import OwnConfig
from bagcert.server.attacking import AttackJob, attack_picture, parse_patch
from bagcert.server.limits import Limits
from bagcert.server.model import Model, to_images
from tests.onnx.conftest import NAMES
from tests.server.conftest import INFO, answers_of, photos, small_model

KINDS: dict[str, tuple[NetworkConfig, str]] = {
    "strided": (ResidualConfig(classes=3, width=4, kernels=(3, 1), strides=(2, 1), paths=1, shake=False), "two-mask"),
    "masked": (ResidualConfig(classes=3, width=4, kernels=(3,), paths=1, shake=False, step="relu"), "masked"),
    "mixed": (MixedConfig(classes=3, width=((4, 4), (4, 4)), kernels=((3,), (1,)), mirrored=True), "two-mask"),
    "own": (OwnConfig(classes=3).handed(nn.Conv2d(3, 3, 3, padding=1)), "two-mask"),
    "columns": (AblationConfig(classes=3, kept=(12, 3), width=4, blocks=(1,)), "largest-region"),
    "cleanser": (CleanserConfig(classes=3, patch=(2, 2), masks=3, width=4, blocks=(1,)), "unanimous"),
    "interval": (IntervalConfig(classes=3, widths=(4,), strides=(2,), features=8, patch=(2, 2)), "unanimous"),
}


def built(name: str) -> Defense:
    torch.manual_seed(2)
    config, rule = KINDS[name]
    scorer = config.build((12, 12), mean=(0.0,), std=(1.0,)).eval()
    return Defense.build(scorer, rule, "2x2", NAMES, batch_size=4)


@pytest.mark.parametrize("name", KINDS)
def test_answers_and_attacks(name: str) -> None:
    defense = built(name)
    model, pictures = small_model(defense), photos()[::4]
    wanted = defense.certify(to_images(pictures))
    found = answers_of(model, pictures)
    assert [each.predicted for each in found] == wanted.predicted.tolist()
    assert [each.certified for each in found] == wanted.certified.tolist()
    for side in (1, 2):
        smaller = defense.certify(to_images(pictures), f"{side}x{side}").certified
        assert all(proven or each.square < side for proven, each in zip(smaller.tolist(), found, strict=True))
        job = AttackJob(pictures[0], parse_patch(f"{side}x{side}", defense, Limits()), steps=3)
        result = attack_picture(model, job)
        assert result.placement[2:] == (side, side) and result.proven is bool(smaller[0])
        if result.proven:
            assert answers_of(model, [result.pixels])[0].predicted == found[0].predicted


def test_views_are_served_by_torch_only() -> None:
    with pytest.raises(
        UsageError, match="Backend onnx needs a network that scores in one pass, but this one scores views"
    ):
        Model("views", built("cleanser"), "onnx", INFO)
