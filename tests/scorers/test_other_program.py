"""Another program computes the same function with other rounding, follows the weights, and passes the audit."""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from torch import nn

import bagcert
from bagcert.audit import audit
from bagcert.defense import load
from bagcert.errors import UsageError
from bagcert.program import PROGRAMS, bfloat16_instructions, find_program
from bagcert.scorers.base import BuiltScorer
from bagcert.scorers.ensemble import EnsembleConfig
from bagcert.scorers.folding import fold
from bagcert.scorers.mixed import MixedConfig
from bagcert.scorers.other_program import Running
from bagcert.scorers.residual import ResidualConfig
from tests.onnx.conftest import pictures, small_defense
from tests.rows.digit_runs import save_digit_run

SHAPE: dict[str, Any] = {"classes": 3, "kernels": (3, 1, 3), "width": (6, 6, 8, 8), "step": "logits"}
NETWORKS: dict[str, Callable[[], object]] = {
    "two paths": lambda: ResidualConfig(**SHAPE),
    "strides": lambda: ResidualConfig(**{**SHAPE, "strides": (2, 1, 1)}, paths=1, shake=False),
    "positions": lambda: ResidualConfig(**SHAPE, positions=True),
    "mirrored pair": lambda: EnsembleConfig(**SHAPE, members=2, mirrored=True),
    "several fields": lambda: MixedConfig(
        classes=3, width=((6, 8, 8), (6, 8)), kernels=((3, 1), (1,)), mirrored=True, step="logits"
    ),
}


def trained(name: str) -> BuiltScorer:
    """With statistics of batch norm that are far from those of a new network."""
    torch.manual_seed(5)
    scorer: BuiltScorer = NETWORKS[name]().build((12, 12), (0.4,), (0.3,))  # type: ignore[attr-defined]
    for module in scorer.modules():
        if isinstance(module, nn.BatchNorm2d):
            for value in (module.weight, module.running_var):
                nn.init.uniform_(value, 0.3, 3)  # type: ignore[arg-type]
            for value in (module.bias, module.running_mean):
                nn.init.normal_(value)  # type: ignore[arg-type]
    return scorer.eval()


@pytest.mark.parametrize("name", NETWORKS)
def test_a_folded_network_computes_the_same_logits(name: str) -> None:
    scorer, images = trained(name).double(), pictures(4).double()
    folded = scorer.folded()
    assert not any(isinstance(module, nn.BatchNorm2d) for module in folded.modules())
    assert any(isinstance(module, nn.BatchNorm2d) for module in scorer.modules())  # the scorer stays as it is
    torch.testing.assert_close(folded.logits(images), scorer.logits(images), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", NETWORKS)
def test_no_score_of_a_folded_network_sees_more(name: str) -> None:
    """Poison one pixel: NaN spreads to whatever sees it."""
    folded, scorer = trained(name).folded(), trained(name)
    for row, column in ((0, 0), (5, 7), (11, 11)):
        images = pictures(1)
        images[..., row, column] = torch.nan
        one, other = (each.logits(images).isnan().any(dim=1) for each in (folded, scorer))
        assert torch.equal(one, other) and bool(one.any()) and not bool(one.all())


def test_what_cannot_be_folded_is_refused() -> None:
    with pytest.raises(UsageError, match=r"The batch norm '1' follows no convolution"):
        fold(nn.Sequential(nn.ReLU(), nn.BatchNorm2d(3)).eval())
    with pytest.raises(UsageError, match=r"without running statistics mixes positions"):
        fold(nn.Sequential(nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3, track_running_stats=False)).eval())
    with pytest.raises(UsageError, match=r"training mode\. Call scorer\.eval\(\) first"):
        fold(nn.Sequential(nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3)))
    network = nn.Sequential(nn.Conv2d(3, 3, 3, padding=1)).eval()
    own = bagcert.defend(network, image_size=12, patch="2x2")
    with pytest.raises(UsageError, match=r"This network cannot be folded, so it has no faster program\. Use the"):
        own.by("fast")


def test_programs_are_found_by_name() -> None:
    defense = small_defense("logits", "two-mask")
    assert str(find_program("exact", "cpu")) == str(defense.program) == str(defense.by("exact").program)
    with pytest.raises(UsageError, match=r"Unknown program 'fats'\. Did you mean 'fast'\?"):
        defense.by("fats")
    for name, devices in PROGRAMS.items():
        for device in devices:
            program = find_program(name, device)
            assert program.device == device and (program.folded, program.reduced) == (name == "fast",) * 2


def test_another_program_has_its_own_scores_and_keeps_them() -> None:
    exact = small_defense("logits", "two-mask")
    fast = exact.by("fast")
    one, other = (each.scores(pictures()).values for each in (exact, fast))
    assert not torch.equal(one, other)
    assert int((one - other).abs().max()) < 0.1 * int(one.abs().max())
    again = fast.against("3x3", "detect").against("2x2", "two-mask").to("cpu").noted({"data": {"name": "digits"}})
    assert again.program == fast.program and torch.equal(again.scores(pictures()).values, other)
    assert torch.equal(fast.by("exact").scores(pictures()).values, one)
    assert again.program.describe()["instructions"] == bfloat16_instructions()
    assert "instructions" not in exact.program.describe()


def test_scores_are_those_of_the_weights_at_hand() -> None:
    defense = small_defense("logits", "two-mask").by("fast")
    before, scorer = defense.scores(pictures()).values, defense.scorer
    scorer.head.weight.data.mul_(2)  # type: ignore[union-attr, operator]
    scorer.head.bias.data.mul_(2)  # type: ignore[union-attr, operator]
    after = defense.scores(pictures()).values
    assert torch.equal(after, Running(scorer, "fast")(pictures().contiguous(memory_format=torch.channels_last)))
    assert not torch.equal(before, after)
    scorer.train()
    with pytest.raises(UsageError, match=r"The scorer is in training mode\. Call scorer\.eval\(\) first\."):
        defense.scores(pictures())


def test_a_single_image_waits_for_no_others() -> None:
    fast, passes = small_defense("logits", "two-mask").by("fast"), []
    assert fast.running is not None
    logits = fast.running.logits
    fast.running.logits = lambda images: passes.append(len(images)) or logits(images)  # type: ignore[func-returns-value]
    fast.predict(pictures()[:3])
    assert passes == [1, 1, 1]


def test_weights_that_could_not_be_followed_are_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """After an interrupted compilation the network of the old weights must not score for the new ones."""
    defense = small_defense("logits", "two-mask").by("fast")
    before = defense.scores(pictures()).values
    defense.scorer.head.weight.data.mul_(2)  # type: ignore[union-attr, operator]
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr("bagcert.scorers.other_program.logits_by", Mock(side_effect=KeyboardInterrupt))
        defense.scores(pictures())
    after = defense.scores(pictures()).values
    assert not torch.equal(before, after)
    assert torch.equal(after, defense.by("exact").by("fast").scores(pictures()).values)


def test_instructions_are_read_from_the_processor(tmp_path: Path) -> None:
    about = tmp_path / "cpuinfo"
    for flags, wanted in (("fpu avx512_bf16 amx_bf16", "amx_bf16"), ("fp asimd bf16 x", "bf16"), ("fpu", "none that")):
        about.write_text(f"flags\t\t: {flags}\n")
        assert bfloat16_instructions(about).startswith(wanted)
    assert bfloat16_instructions(tmp_path / "none") == "none that is known"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")  # of torch's own compiler
@pytest.mark.parametrize("compiled", [False, True])
def test_the_audit_passes_what_a_defense_runs(compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PROGRAMS["fast"]["cpu"], "compiled", compiled)
    defense = small_defense("logits", "two-mask").by("fast")
    found = audit(defense, pictures(6), defense.program)
    assert found.passed and found.to_torch.slack > 0
    clean = defense.scores(pictures(6)).values
    for count in (1, 4):
        assert torch.equal(defense.scores(pictures(6)[:count]).values, clean[:count])


@pytest.mark.slow
def test_no_proof_of_the_fast_program_breaks() -> None:
    """Attacked with its own scores as judge."""
    defense = small_defense("logits", "two-mask").by("fast")
    found = defense.attack(pictures(), defense.predict(pictures()))
    kept = found.certificate.certified
    assert bool(kept.any()) and not bool(kept.all())
    assert torch.equal(defense.predict(found.images)[kept], found.certificate.predicted[kept])


def test_a_saved_model_is_the_same_by_whatever_program_it_ran(tmp_path: Path) -> None:
    save_digit_run(tmp_path / "run")
    load(tmp_path / "run", program="fast").save(tmp_path / "again")
    one, again = (load(tmp_path / name).scorer.state_dict() for name in ("run", "again"))
    assert one.keys() == again.keys() and all(torch.equal(value, again[name]) for name, value in one.items())
