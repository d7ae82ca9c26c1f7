from pathlib import Path

import bagcert
from bagcert.attacks import AttackSettings
from bagcert.data import load_dataset
from bagcert.scorers.ensemble import EnsembleConfig
from bagcert.scorers.residual import ResidualScorer
from benchmarks.soundness import cases
from studies.common.descents import attack_until
from tests.rows.digit_runs import save_digit_run


def test_every_case_is_tried_once(tmp_path: Path) -> None:
    rules = ["largest-region", "every-region", "masked", "two-mask"]
    votes = cases(bagcert.load(save_digit_run(tmp_path / "votes")), ["1x1"])
    assert [(kind, rule) for _, kind, _, rule in votes] == [("votes", rule) for rule in rules]
    logits = bagcert.load(save_digit_run(tmp_path / "logits", "logits", "two-mask"))
    assert [case[1:2] + case[3:] for case in cases(logits, ["1x1"], own=True)] == [("scores", "two-mask")]
    assert isinstance(logits.scorer, ResidualScorer)
    several = EnsembleConfig(**vars(logits.scorer.config), members=2).build((8, 8), (0.0,), (1.0,)).eval()
    assert len(cases(bagcert.Defense.build(several, "two-mask", "1x1", logits.classes), ["1x1"])) == 1 + len(rules)
    scores = cases(logits, ["1x1", "2x2"])
    assert [case[:2] + case[3:] for case in scores[:2]] == [
        ("1x1", "scores", "two-mask"),
        ("2x2", "scores", "two-mask"),
    ]
    assert len(scores) == 2 + 2 * len(rules)


def test_detectable_images_withstand_some_hundred_attacks(tmp_path: Path) -> None:
    plain = bagcert.load(save_digit_run(tmp_path / "run", "logits", "two-mask", bias=0.0))
    ((patch, _, defense, rule),) = cases(plain, ["2x2"], rule="detect")
    settings = AttackSettings(steps=8, step_size=0.3, places=4, restarts=3)
    facing = defense.against(patch, rule)
    found = attack_until(facing, load_dataset("digits").split("test"), facing.rule.proven, settings, 300)
    assert found.runs >= 300 and found.changed == []
