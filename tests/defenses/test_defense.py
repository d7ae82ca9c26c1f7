"""A network, a rule and a threat together."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import bagcert
from bagcert.defense import Defense
from bagcert.errors import UsageError
from bagcert.rules import Masked, TwoMask
from bagcert.scorers.base import Scorer
from bagcert.scorers.residual import ResidualConfig, ResidualScorer
from bagcert.scorers.steps import score_step
from bagcert.threats import Footprint, parse_threat
from bagcert.training.run import RunFolder, save_run

CONFIG = ResidualConfig(classes=3, width=8, kernels=(3, 1), paths=1, shake=False, step="heaviside")
NAMES = ("cat", "dog", "ship")


@pytest.fixture(scope="module")
def scorer(images: Tensor) -> ResidualScorer:
    """Random features; the first class votes where they are high, the second where they are low, the third never."""
    torch.manual_seed(0)
    scorer = ResidualScorer(CONFIG, (16, 16)).eval()
    assert scorer.head.bias is not None
    with torch.no_grad():
        middle = scorer.logits(images)[:, 0].median() + 1e-3  # no vote hangs on a last bit
        scorer.head.weight[1] = -scorer.head.weight[0]
        scorer.head.bias.copy_(scorer.head.bias[0] * torch.tensor([1, -1, 0]) + middle * torch.tensor([-1, 1, 0]))
        scorer.head.weight[2], scorer.head.bias[2] = 0, -1
    return scorer


@pytest.fixture(scope="module")
def images() -> Tensor:
    """Bright on the left and dark on the right, the border moving: one class fades into another."""
    noise = torch.rand(40, 3, 16, 16, generator=torch.Generator().manual_seed(1))
    dark = torch.arange(16) >= torch.linspace(0, 16, 40)[:, None]
    return torch.where(dark[:, None, None], noise * 0.1, 1 - noise * 0.1)


@pytest.mark.parametrize("rule", ["largest-region", "every-region", "masked", "two-mask"])
def test_a_defense_is_its_scores_under_its_rule(rule: str, scorer: ResidualScorer, images: Tensor) -> None:
    defense = Defense.build(scorer, rule, "3x3", NAMES)
    certificate = defense.certify(images)
    plain = bagcert.certify_scores(defense.scores(images).values, "3x3", receptive_field=5, rule=rule)
    for field in ("predicted", "certified", "lead", "weakest_region", "weakest_class"):
        assert torch.equal(getattr(certificate, field), getattr(plain, field))
    assert torch.equal(defense.predict(images), plain.predicted)
    assert 0 < plain.certified.sum() < len(images)


def test_a_smaller_threat_is_certified_under_the_same_masks(scorer: ResidualScorer, images: Tensor) -> None:
    defense = Defense.build(scorer, "two-mask", "4x4", NAMES)
    whole, smaller = defense.certify(images), defense.certify(images, patch="2x2")
    assert torch.equal(whole.predicted, smaller.predicted)
    assert bool((whole.certified <= smaller.certified).all())
    rebuilt = defense.against("2x2").certify(images)
    fixed = TwoMask(scorer.footprint.regions(parse_threat("4x4", (16, 16))).maximal())
    same = bagcert.certify_scores(scorer.scores(images), "2x2", rule=fixed, footprint=scorer.footprint)
    assert torch.equal(same.certified, smaller.certified)
    assert not torch.equal(rebuilt.certified, smaller.certified), "another mask set is another rule"
    with pytest.raises(
        UsageError, match="The threat is larger than the rule's masks: one of its regions lies inside no mask"
    ):
        defense.certify(images, patch="5x5")


def test_another_threat_or_rule_is_another_defense(scorer: ResidualScorer, images: Tensor) -> None:
    defense = Defense.build(scorer, "two-mask", "2x2", NAMES)
    other = defense.against("5x5", rule="every-region")
    assert str(other.threat) == "5x5" and other.rule.name == "every-region"
    assert str(defense.against("1x4").threat) == "1x4" and defense.against("1x4").rule.name == "two-mask"
    expected = bagcert.certify_scores(scorer.scores(images), "5x5", receptive_field=5, rule="every-region")
    assert torch.equal(other.certify(images).certified, expected.certified)


def test_its_own_masks_are_not_looked_up_again(
    scorer: ResidualScorer, images: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    defense = Defense.build(scorer, "two-mask", "3x3", NAMES)
    larger = Defense.build(scorer, TwoMask(defense.against("4x4").regions), "3x3", NAMES)
    assert torch.equal(larger.to("cpu").certify(images).certified, larger.certify(images).certified)

    def refuse(*_: object) -> Tensor:
        raise AssertionError("the cover of the masks by themselves was computed")

    monkeypatch.setattr("bagcert.rules.masking_rule.covering", refuse)
    defense.certify(images)
    defense.to("cpu").certify(images)


class Counting(Scorer):
    """Scores that tell how many images came in one pass: the worst a batch can do to a score."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))
        self.step = score_step("logits")
        self.footprint = Footprint.identity((16, 16))

    def logits(self, images: Tensor) -> Tensor:
        return images + len(images)


def test_every_pass_has_the_same_number_of_images(images: Tensor) -> None:
    """So that no score depends on how many images the caller happens to send."""
    defense = Defense.build(Counting().eval(), "two-mask", "3x3", NAMES, batch_size=7)
    whole = defense.scores(images).values
    for size in (1, 3, 7, 16):
        parts = [defense.scores(part).values for part in images.split(size)]  # type: ignore[no-untyped-call]
        assert torch.equal(whole, torch.cat(parts))
    assert torch.equal(whole, Counting().eval().step.fixed(images + 7))


def test_masks_of_a_smaller_threat_are_refused(scorer: ResidualScorer, images: Tensor) -> None:
    """Masks that a rule brings along must cover the threat, or they would certify another one."""
    small, large = (scorer.footprint.regions(parse_threat(patch, (16, 16))).maximal() for patch in ("1x1", "6x6"))
    for rule in (TwoMask, Masked):
        with pytest.raises(UsageError, match="The threat is larger than the rule's masks: one of its regions lies"):
            Defense.build(scorer, rule(masks=small), "5x5", NAMES)
        kept = Defense.build(scorer, rule(masks=large), "5x5", NAMES)
        expected = bagcert.certify_scores(
            kept.scores(images).values, "5x5", rule=rule(masks=large), footprint=scorer.footprint
        )
        assert torch.equal(kept.certify(images).certified, expected.certified)
    with pytest.raises(UsageError, match=r"Rule 'two-mask' has no masks yet\. Use Defense.build\."):
        Defense(scorer, TwoMask(), kept.threat, kept.regions, NAMES)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (
            torch.rand(2, 3, 16, 15),
            r"Images must have the shape \[images, 3, 16, 16\], but these have \[2, 3, 16, 15\]\.",
        ),
        (torch.zeros(0, 3, 16, 16), r"The batch has no images: its shape is \[0, 3, 16, 16\]"),
        (
            torch.zeros(1, 3, 16, 16, dtype=torch.uint8),
            r"Images must be floats in 0\.\.1, but these are torch.uint8\. Divide",
        ),
        (
            torch.full((1, 3, 16, 16), 1.5),
            r"Pixels must lie in 0\.\.1, but these are in 1\.5\.\.1\.5\. .*; do not normalize",
        ),
        (torch.full((1, 3, 16, 16), torch.nan), r"Pixels must lie in 0\.\.1, but some are NaN\. Check"),
        (
            torch.zeros(1, 3, 16, 16).to_sparse(),
            r"Images must be a dense tensor, but these are sparse\. Call images\.to",
        ),
        (torch.zeros(1, 3, 16, 16, device="meta"), r"Images must be a dense tensor, but these are without values"),
    ],
)
def test_wrong_images_are_refused(scorer: ResidualScorer, wrong: Tensor, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Defense.build(scorer, "two-mask", "3x3", NAMES).certify(wrong)


def test_a_network_in_training_mode_is_refused(images: Tensor) -> None:
    with pytest.raises(UsageError, match=r"The scorer is in training mode\. Call scorer\.eval\(\) first\."):
        Defense.build(ResidualScorer(CONFIG, (16, 16)), "two-mask", "3x3", NAMES).certify(images)


def test_a_run_folder_loads_with_its_rule_and_threat(tmp_path: Path, scorer: ResidualScorer, images: Tensor) -> None:
    facts = {"rule": "masked", "patch": "2x3", "classes": list(NAMES)}
    save_run(RunFolder(tmp_path), scorer, scorer.state_dict(), facts)
    defense = bagcert.load(tmp_path)
    assert (defense.rule.name, str(defense.threat), defense.classes) == ("masked", "2x3", NAMES)
    assert torch.equal(
        defense.certify(images).certified, Defense.build(scorer, "masked", "2x3", NAMES).certify(images).certified
    )


def test_a_config_without_a_rule_is_refused(tmp_path: Path, scorer: ResidualScorer) -> None:
    save_run(RunFolder(tmp_path), scorer, scorer.state_dict(), {"patch": "2x3", "classes": list(NAMES)})
    with pytest.raises(
        UsageError, match=r"Rule, patch or classes in config.json are missing or wrong \('rule'\)\. Copy"
    ):
        bagcert.load(tmp_path)


def test_an_unknown_model_names_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"Unknown model or run folder 'cifar11'\. .*Known: "):
        bagcert.load("cifar11")


def test_a_defense_certifies_a_wrapped_network(images: Tensor) -> None:
    torch.manual_seed(0)
    scorer = bagcert.wrap(nn.Conv2d(3, 3, 3, padding=1).eval(), 16, step="softmax")
    certificate = Defense.build(scorer, "every-region", "1x1", NAMES).certify(images)
    assert certificate.predicted.shape == (40,)


def test_the_program_says_what_the_caller_s_autocast_makes_of_it(scorer: ResidualScorer, images: Tensor) -> None:
    defense = Defense.build(scorer, "every-region", "3x3", NAMES)
    plain = defense.program
    with torch.autocast("cpu", torch.bfloat16):
        assert defense.program == replace(plain, dtype="bfloat16")
        assert scorer.logits(images[:2]).dtype == torch.bfloat16
    with torch.autocast("cpu", torch.float16), pytest.raises(UsageError, match=r"not in torch\.float16\. Leave torch"):
        assert defense.program
    assert defense.program == plain and plain.dtype == "float32"


def test_scores_are_computed_in_full_precision_whatever_training_has_set(
    scorer: ResidualScorer, images: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def settings() -> tuple[str, bool, bool, bool, bool]:
        cudnn, precision = torch.backends.cudnn, torch.get_float32_matmul_precision()
        return precision, cudnn.enabled, cudnn.allow_tf32, cudnn.benchmark, cudnn.deterministic

    def watched(batch: Tensor) -> Tensor:
        seen.append(settings())
        return type(scorer).integers(scorer, batch)

    torch.set_float32_matmul_precision("high")
    before = settings()
    try:
        monkeypatch.setattr(scorer, "integers", watched)
        Defense.build(scorer, "every-region", "3x3", NAMES).scores(images[:2])
        scorer.scores(images[:2])
        assert seen == 2 * [("highest", False, False, False, True)]
        assert settings() == before
    finally:
        torch.set_float32_matmul_precision("highest")
