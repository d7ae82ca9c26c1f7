"""An ensemble answers as the mean of its members, and trains them one by one."""

from dataclasses import replace

import pytest
import torch

from bagcert.errors import UsageError
from bagcert.scorers.base import Logits
from bagcert.scorers.ensemble import EnsembleConfig, EnsembleScorer
from bagcert.scorers.residual import ResidualConfig, ResidualScorer
from bagcert.threats.tracing import trace_footprint
from bagcert.training.losses import Loss, MarginLoss, TwoMaskLoss
from bagcert.training.optimizers import MuonConfig
from bagcert.training.trainer import Objective

ALONE = ResidualConfig(3, 3, 4, (3, 1), paths=1, shake=False, positions=True, step="logits")
CONFIG = EnsembleConfig(**vars(ALONE), members=3)
SIZE = (9, 11)


def ensemble(config: EnsembleConfig = CONFIG) -> EnsembleScorer:
    torch.manual_seed(0)
    return config.build(SIZE, (0.4, 0.5, 0.6), (0.2, 0.3, 0.2))


def members_of(scorer: EnsembleScorer) -> list[ResidualScorer]:
    """The members as networks of their own, by the names of their weights."""
    weights = scorer.state_dict()
    members = []
    for prefix in ("", "others.0.", "others.1."):
        own = {name.removeprefix(prefix): value for name, value in weights.items() if name.startswith(prefix)}
        member = ResidualScorer(replace(ALONE, step=scorer.config.step), SIZE)
        member.load_state_dict({name: value.clone() for name, value in own.items() if not name.startswith("others.")})
        members.append(member)
    return members


@pytest.mark.parametrize("step", ["logits", "heaviside"])
def test_scores_are_those_of_the_mean_logits(step: str) -> None:
    scorer, images = ensemble(replace(CONFIG, step=step)).eval(), torch.rand(5, 3, *SIZE)
    first, second, third = (member.eval().logits(images) for member in members_of(scorer))
    assert not torch.allclose(first, second) and not torch.allclose(second, third), "members differ"
    assert torch.equal(scorer.logits(images), (first + second + third) / 3)
    assert torch.equal(scorer.scores(images), scorer.step.fixed((first + second + third) / 3))
    assert scorer(images).shape == scorer.scores(images).shape


def test_mirrored_members_score_the_mirror_image_too() -> None:
    plain, images = ensemble().eval(), torch.rand(5, 3, *SIZE)
    both = ensemble(replace(CONFIG, mirrored=True)).eval()
    turned = torch.flip(plain.logits(torch.flip(images, [3])), [3])
    torch.testing.assert_close(both.logits(images), (plain.logits(images) + turned) / 2)
    assert not torch.allclose(plain.logits(images), turned)
    torch.testing.assert_close(both.logits(torch.flip(images, [3])), torch.flip(both.logits(images), [3]))
    # In training each member sees each image once: a batch has flipped images anyway.
    for scorer in (plain, both):
        scorer.train()
    assert torch.equal(plain(images), both(images))


@pytest.mark.parametrize("kernels", [(3, 1), (1, 5)])
def test_tracing_finds_the_same_footprint_with_and_without_mirrors(kernels: tuple[int, ...]) -> None:
    scorer = ensemble(replace(CONFIG, kernels=kernels, members=2, mirrored=True)).eval()
    (traced,) = trace_footprint(Logits(scorer), SIZE, 3).branches
    (declared,) = scorer.footprint.branches
    assert torch.equal(traced.rows, declared.rows) and torch.equal(traced.columns, declared.columns)


def test_one_mirrored_network_is_an_ensemble_of_two_views() -> None:
    alone = replace(CONFIG, members=1, mirrored=True)
    scorer, images = ensemble(alone).eval(), torch.rand(2, 3, *SIZE)
    member = ResidualScorer(ALONE, SIZE)
    member.load_state_dict(scorer.state_dict())
    member.eval()
    expected = (member.logits(images) + member.logits(images.flip(-1)).flip(-1)) / 2
    assert torch.equal(scorer.logits(images), expected)
    with pytest.raises(UsageError, match=r"With network.mirrored every stride must be 1, but they are \[1, 2\]\.$"):
        replace(alone, strides=(1, 2))


def test_half_precision_is_added_up_in_float32() -> None:
    scorer, images = ensemble().eval(), torch.rand(2, 3, *SIZE)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        each = [member.eval().logits(images) for member in members_of(scorer)]
        assert each[0].dtype == torch.bfloat16
        assert torch.equal(scorer.logits(images), (each[0].float() + each[1].float() + each[2].float()) / 3)


@pytest.mark.parametrize("loss", [TwoMaskLoss(window=(3, 3)), MarginLoss()])
def test_each_member_learns_as_if_it_were_alone(loss: Loss) -> None:
    scorer, images, labels = ensemble().train(), torch.rand(4, 3, *SIZE), torch.tensor([0, 1, 2, 1])
    members = [member.train() for member in members_of(scorer)]
    together = Objective(scorer, loss)(images, labels)
    together.backward()
    alone = [Objective(member, loss)(images, labels) for member in members]
    torch.testing.assert_close(together, torch.stack(alone).mean())
    for found in alone:
        found.backward()
    for member, own in zip(members, (scorer, *scorer.others), strict=True):
        for (name, weight), (_, same) in zip(member.named_parameters(), own.named_parameters(), strict=False):
            assert weight.grad is not None and same.grad is not None
            torch.testing.assert_close(same.grad, weight.grad / 3, msg=f"{name} learns from others too")


def test_no_head_is_moved_by_muon() -> None:
    scorer = ensemble()
    muon, adam = MuonConfig().build(scorer)
    heads = {id(member.head.weight) for member in (scorer, *scorer.others)}
    assert len(heads) == 3 and heads <= {id(weight) for weight in adam.param_groups[0]["params"]}
    assert not heads & {id(weight) for weight in muon.param_groups[0]["params"]}


def test_a_single_member_is_refused() -> None:
    expected = "The value of network.members must be at least 2, or 1 with network.mirrored"
    with pytest.raises(UsageError, match=rf"^{expected}, but is 1\. Leave out network.name for one\.$"):
        replace(CONFIG, members=1)
    with pytest.raises(UsageError, match=rf"^{expected}, but is 0\. Leave out network.name for one\.$"):
        replace(CONFIG, members=0, mirrored=True)
