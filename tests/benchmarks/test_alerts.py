from pathlib import Path

import bagcert
from bagcert.attacks import AttackSettings
from bagcert.data import load_dataset
from benchmarks.alerts import PATCHES, TWO, cases, detectable, unprotected
from studies.common.descents import attack_until
from tests.rows.digit_runs import save_digit_run


def test_cases_of_a_shipped_model() -> None:
    found = cases(bagcert.load("cifar10-votes"), list(PATCHES), list(TWO), load_dataset("digits").split("validation"))
    assert len(found) == len(set(found)) == 10
    assert ("5x5", "detect") in found and ("5x5", "detect:81") in found and found[-1] == ("2*2x2", "detect:48")
    assert sum(rule.startswith("two-mask:") for _, rule in found) == 3


def test_detectable_images_withstand_and_others_fall(tmp_path: Path) -> None:
    plain = bagcert.load(save_digit_run(tmp_path / "run", "logits", "two-mask", bias=0.0))
    settings = AttackSettings(steps=8, step_size=0.3, places=4, restarts=3)
    source, defense = load_dataset("digits").split("test"), plain.against("2x2", "detect:20")
    safe = attack_until(defense, source, detectable, settings, 120)
    assert safe.runs >= 120 and safe.to_dict("fooled")["fooled"] == []
    others = attack_until(plain.against("2x2", "detect:160"), source, unprotected, settings, 1000, 10)
    assert others.images == 10 and len(others.changed) >= 1
