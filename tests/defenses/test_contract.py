"""What every defense promises, through one table: the catalog."""

import inspect
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

import bagcert
from bagcert.attacks import AttackSettings
from bagcert.data import Batch
from bagcert.defense import Defense
from bagcert.errors import UsageError
from bagcert.scorers.ablation import AblationConfig
from bagcert.scorers.base import BuiltScorer
from bagcert.training import load_recipe
from bagcert.training.run import RunFolder, save_run
from studies.rivals.catalog import DEFENSES
from tests.defenses.conftest import SMALL

pytestmark = pytest.mark.slow

EVERY_DEFENSE = pytest.mark.parametrize("name", DEFENSES)
EVERY_RULE = pytest.mark.parametrize(
    ("name", "rule"),
    [
        pytest.param(name, rule, marks=[] if rule == DEFENSES[name].rules[0] else pytest.mark.slow)
        for name in DEFENSES
        for rule in DEFENSES[name].rules
    ],
)
SHORT = AttackSettings(steps=6, step_size=0.3)
Trained = Callable[[str], Path]


def test_the_catalog_is_what_the_recipes_train() -> None:
    assert DEFENSES.keys() == SMALL.keys()
    for name, entry in DEFENSES.items():
        recipe = load_recipe(entry.recipe)
        assert recipe.network == entry.network, name
        assert recipe.evaluation.rule == entry.rules[0], name


def test_the_catalog_builds_defenses() -> None:
    entry = replace(DEFENSES["ds-column"], network=AblationConfig(width=2, blocks=(1,)))
    defense = entry.build((32, 32), "5x5", tuple("0123456789"))
    assert defense.rule.name == "largest-region" and str(defense.threat) == "5x5"
    assert defense.predict(torch.rand(1, 3, 32, 32)).shape == (1,)


@EVERY_RULE
def test_certificates_know_no_label_and_attacks_do_not_break_them(
    name: str, rule: str, trained: Trained, digits: Batch
) -> None:
    assert "labels" not in inspect.signature(Defense.certify).parameters
    defense = bagcert.load(trained(name)).against("1x1", rule)
    certificate = defense.certify(digits.images)
    assert torch.equal(certificate.predicted, defense.predict(digits.images))
    found = defense.attack(digits.images, certificate.predicted, SHORT)
    assert torch.equal(found.certificate.certified, certificate.certified)
    assert not bool(found.unsound.any())
    assert torch.equal(defense.predict(found.images), found.attacked)
    assert bool(certificate.certified.any()), "or the test would be empty"


@EVERY_DEFENSE
def test_the_same_attack_with_a_larger_patch_succeeds(name: str, trained: Trained, digits: Batch) -> None:
    """So that its failures mean something."""
    defense = bagcert.load(trained(name)).against("4x4")
    images = digits.images[:12]
    found = defense.attack(images, defense.predict(images), SHORT)
    flipped = found.attacked != found.certificate.predicted
    assert int(flipped.sum()) >= 2 and not bool((flipped & found.certificate.certified).any())
    changed = (found.images != images).any(dim=1)
    for place in flipped.nonzero().flatten().tolist():
        row, column, height, width = found.placement[place].tolist()
        changed[place, row : row + height, column : column + width] = False
    assert not bool(changed.any())


@pytest.mark.parametrize("name", ["ds-column", "ds-row", "patchcleanser"])
def test_of_placements_that_look_alike_the_attack_takes_the_promising_one(
    name: str, trained: Trained, digits: Batch
) -> None:
    """All rows are alike to columns; one placement at the border would stand for all of them."""
    defense = bagcert.load(trained(name)).against("2x2")
    found = defense.attack(digits.images, defense.predict(digits.images), SHORT)
    rows, columns = found.placement[found.placement[:, 0] >= 0][:, :2].unbind(dim=1)
    assert len(set(rows.tolist())) > 2 and len(set(columns.tolist())) > 2


@EVERY_DEFENSE
def test_the_recipe_learns(name: str, trained: Trained, digits: Batch) -> None:
    defense = bagcert.load(trained(name))
    assert defense.rule.name == DEFENSES[name].rules[0]
    assert float((defense.predict(digits.images) == digits.labels).float().mean()) > 0.5


@EVERY_DEFENSE
def test_saved_defenses_come_back(name: str, trained: Trained, tmp_path: Path, digits: Batch) -> None:
    defense = bagcert.load(trained(name))
    card = json.loads((trained(name) / "config.json").read_text())
    facts = {key: card[key] for key in ("rule", "patch", "classes")}
    assert isinstance(defense.scorer, BuiltScorer)
    save_run(RunFolder(tmp_path), defense.scorer, defense.scorer.state_dict(), facts)
    again = bagcert.load(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"config.json", "weights.safetensors"}
    assert torch.equal(again.scores(digits.images).values, defense.scores(digits.images).values)
    assert torch.equal(again.certify(digits.images).certified, defense.certify(digits.images).certified)
    assert (again.rule.name, str(again.threat), again.classes) == (
        defense.rule.name,
        str(defense.threat),
        defense.classes,
    )


@EVERY_DEFENSE
def test_one_image_is_scored_as_many_are(name: str, trained: Trained, digits: Batch) -> None:
    defense = bagcert.load(trained(name))
    images = digits.images[:5]
    alone = torch.cat([defense.scores(image[None]).values for image in images])
    assert torch.equal(alone, defense.scores(images).values)


@EVERY_DEFENSE
def test_images_of_any_float_type_are_scored_alike(name: str, trained: Trained, digits: Batch) -> None:
    defense, images = bagcert.load(trained(name)), digits.images[:4].half()
    expected = defense.scores(images.float()).values
    for kind in (torch.float16, torch.float64):
        assert torch.equal(defense.scores(images.to(kind)).values, expected)


@EVERY_DEFENSE
def test_wrong_input_is_refused_in_one_line(name: str, trained: Trained, digits: Batch) -> None:
    defense = bagcert.load(trained(name))
    images = digits.images[:2]
    for wrong, words in (
        (images[0], r"Images must have the shape \[images, 1, 8, 8\], but these have \[1, 8, 8\]"),
        (images[:, :, :7], r"Images must have the shape \[images, 1, 8, 8\], but these have \[2, 1, 7, 8\]"),
        (
            images.expand(-1, 3, -1, -1),
            r"Images must have the shape \[images, 1, 8, 8\], but these have \[2, 3, 8, 8\]",
        ),
        (images * 255, r"Pixels must lie in 0\.\.1, but these are in .*; do not normalize"),
        ((images * 255).byte(), r"Images must be floats in 0\.\.1, but these are torch.uint8\. Divide"),
    ):
        asked: list[Callable[[Tensor], object]] = [lambda images: defense.attack(images, digits.labels[:2])]
        if wrong.dim() == 4:  # to the others an image alone is a picture
            asked += [defense.predict, defense.certify]
        for ask in asked:
            with pytest.raises(UsageError, match=words) as error:
                ask(wrong)
            assert "\n" not in str(error.value)
    with pytest.raises(UsageError, match="The patch 9x1 does not fit into an image of 8x8"):
        defense.against("9x1")
    defense.scorer.train()
    with pytest.raises(UsageError, match=r"The scorer is in training mode\. Call scorer\.eval\(\) first\."):
        defense.predict(images)


@EVERY_DEFENSE
def test_a_rule_for_views_takes_no_other_scores(name: str, trained: Trained) -> None:
    defense = bagcert.load(trained(name))
    if "unanimous" in DEFENSES[name].rules:
        assert defense.against("2x2", "unanimous").rule.name == "unanimous"
    else:
        with pytest.raises(UsageError, match="Rule 'unanimous' needs a network of views, but these scores"):
            defense.against("2x2", "unanimous")


@EVERY_DEFENSE
def test_a_proof_for_a_patch_is_one_for_every_smaller_one(name: str, trained: Trained, digits: Batch) -> None:
    """Sum rules always; two masks and views as long as they stay the same. (The bound of `masked` need not shrink.)"""
    defense = bagcert.load(trained(name))
    for rule in DEFENSES[name].rules:
        large = defense.against("2x3", rule)
        proven = large.certify(digits.images).certified
        for smaller in ("2x2", "1x3", "1x1"):
            if rule in ("largest-region", "every-region"):
                assert bool((proven <= defense.against(smaller, rule).certify(digits.images).certified).all())
            if rule != "masked":
                assert bool((proven <= large.certify(digits.images, patch=smaller).certified).all())


@pytest.mark.parametrize("name", ["bagcert", "ds-column", "ds-row", "ds-block"])
def test_on_the_same_votes_each_rule_proves_what_the_one_before_does(
    name: str, trained: Trained, digits: Batch
) -> None:
    defense = bagcert.load(trained(name))
    chain = [
        defense.against("1x1", rule).certify(digits.images) for rule in ("largest-region", "every-region", "two-mask")
    ]
    masked = defense.against("1x1", "masked").certify(digits.images)
    for weaker, stronger in ((chain[0], chain[1]), (chain[1], chain[2]), (masked, chain[2])):
        assert bool((weaker.certified <= stronger.certified).all())
        assert torch.equal(weaker.predicted[weaker.certified], stronger.predicted[weaker.certified])


def test_columns_pay_for_wide_patches_and_rows_for_high_ones(trained: Trained, digits: Batch) -> None:
    """A patch of 1x6 meets 7 of 8 columns of 2 pixels; the same pixels one below the other meet 2."""
    counts = {}
    for name in ("ds-column", "ds-row"):
        defense = bagcert.load(trained(name))
        for patch in ("1x6", "6x1"):
            counts[name, patch] = int(defense.against(patch, "every-region").certify(digits.images).certified.sum())
    assert counts["ds-column", "1x6"] == counts["ds-row", "6x1"] == 0
    assert counts["ds-column", "6x1"] > 0 and counts["ds-row", "1x6"] > 0
