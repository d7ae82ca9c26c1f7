"""Networks with different receptive fields keep their own maps and footprints."""

from dataclasses import replace

import pytest
import torch

from bagcert.audit.structure import structural_problems
from bagcert.errors import UsageError
from bagcert.scorers.base import Logits
from bagcert.scorers.ensemble import EnsembleScorer
from bagcert.scorers.mixed import MixedConfig, MixedScorer
from bagcert.threats import Footprint, parse_threat
from bagcert.threats.probe import reached_outputs
from bagcert.training.losses import LOSSES
from bagcert.training.trainer import fitted_loss

CONFIG = MixedConfig(3, 3, width=((4, 4, 4), (3, 4)), kernels=((3, 3), (1,)))
SIZE = (7, 9)


def mixed(config: MixedConfig = CONFIG) -> MixedScorer:
    torch.manual_seed(0)
    return config.build(SIZE, (0.4, 0.5, 0.6), (0.2, 0.3, 0.2))


@pytest.mark.parametrize("mirrored", [False, True])
def test_rows_of_all_maps_take_turns(mirrored: bool) -> None:
    scorer, images = mixed(replace(CONFIG, mirrored=mirrored)).eval(), torch.rand(5, 3, *SIZE)
    wide, narrow = (each.logits(images) for each in scorer.parts)
    both = scorer.logits(images)
    assert both.shape == (5, 3, 14, 9) and scorer.footprint.grid == (14, 9)
    assert torch.equal(both[:, :, 0::2], wide) and torch.equal(both[:, :, 1::2], narrow)
    assert torch.equal(scorer.scores(images), scorer.step.fixed(both)) and scorer(images).shape == both.shape
    assert scorer.passes == (2 if mirrored else 1)


@pytest.mark.parametrize("rank", [0, 2])
@pytest.mark.parametrize("mirrored", [False, True])
def test_nan_reaches_just_the_footprint(mirrored: bool, rank: int) -> None:
    scorer = mixed(replace(CONFIG, mirrored=mirrored, positions=True, position_rank=rank)).eval()
    wide, narrow = (Footprint.centered(field, 1, SIZE, SIZE) for field in (7, 3))
    assert scorer.footprint.same(Footprint.interleaved([wide, narrow]))
    pixels = torch.eye(63, dtype=torch.bool).view(63, *SIZE)
    regions = scorer.footprint.regions(parse_threat("1x1", SIZE))
    assert torch.equal(reached_outputs(Logits(scorer), pixels, 3), regions.masks())


def test_mirrored_networks_answer_for_the_mirror_image() -> None:
    scorer, images = mixed(replace(CONFIG, mirrored=True, positions=False)).eval(), torch.rand(2, 3, *SIZE)
    torch.testing.assert_close(scorer.logits(images.flip(-1)), scorer.logits(images).flip(-1))
    alone = mixed(replace(CONFIG, positions=False)).eval()
    expected = (alone.logits(images) + alone.logits(images.flip(-1)).flip(-1)) / 2
    torch.testing.assert_close(scorer.logits(images), expected)
    assert {type(each) for each in scorer.parts} == {EnsembleScorer}
    assert scorer.state_dict().keys() == alone.state_dict().keys()


@pytest.mark.parametrize("rank", [0, 2])
def test_the_audit_traces_each_network(rank: int) -> None:
    scorer = mixed(replace(CONFIG, positions=True, position_rank=rank)).eval()
    assert list(structural_problems(scorer, 3)) == []
    scorer.parts[1].footprint = Footprint.identity(SIZE)
    assert list(structural_problems(scorer, 3)) == [
        "The footprint is declared for receptive field 1x1, but the layers have 3x3. "
        "Declare the footprint of these layers."
    ]


@pytest.mark.parametrize("loss", LOSSES)
def test_it_is_not_trained_as_a_whole(loss: str) -> None:
    expected = r"^No loss reads maps of several footprints, which this network returns\. Train each of its networks by"
    with pytest.raises(UsageError, match=expected):
        fitted_loss(mixed(), LOSSES[loss](), "2x2")


def test_configs_that_name_no_networks_are_refused() -> None:
    expected = r"^The values of network.width and network.kernels must be as many lists as there are networks, at least"
    with pytest.raises(UsageError, match=expected + r" 2, but are 1 and 1\. Leave out network.name for one network\.$"):
        replace(CONFIG, width=((4, 4),), kernels=((3,),))
    with pytest.raises(UsageError, match=expected + r" 2, but are 2 and 3\."):
        replace(CONFIG, kernels=((3, 3), (1,), (1,)))
    with pytest.raises(UsageError, match=r"network.width must be 2 numbers, or one, but is \[4, 4, 4\]\.$"):
        replace(CONFIG, kernels=((3,), (1,)))
