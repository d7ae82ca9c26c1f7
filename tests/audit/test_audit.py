"""An audit passes an honest network, catches every planted leak, and names the cure."""

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor

from bagcert.attacks import attack
from bagcert.attacks.placements import Placements
from bagcert.audit import Audit, audit
from bagcert.audit.audit import band
from bagcert.audit.backends import prepare
from bagcert.audit.checks import REPEATS, Difference, behavior
from bagcert.audit.patches import QUICK, adversarial
from bagcert.audit.report import to_object
from bagcert.defense import Defense
from bagcert.errors import UsageError
from bagcert.program import Program
from bagcert.scorers import Scorer
from bagcert.scorers.ablation import AblationConfig
from bagcert.scorers.other_program import arithmetic
from bagcert.scorers.steps import score_step
from tests.audit.leaks import leaking
from tests.cli.calling import call
from tests.gpu_autocast import gpu_autocast
from tests.onnx.conftest import pictures, small_defense
from tests.rows.digit_runs import save_digit_run

pytestmark = pytest.mark.slow

IMAGES = pictures(6)


def violated(found: Audit) -> set[str]:
    return {check.name for check in found.checks if not check.passed}


@pytest.mark.parametrize("program", [Program(), Program(dtype="bfloat16"), Program(backend="onnx")])
def test_an_honest_network_passes(program: Program) -> None:
    found = audit(small_defense("logits", "two-mask").against("5x5"), IMAGES, program)
    assert found.passed and found.cure is None and not found.inside
    tried = [check.name for check in found.checks if check.found.compared]
    assert tried == ["locality", "attacked", "batch size", "batch mates", "order", "repeat"]
    if program.dtype == "bfloat16":
        assert found.to_torch.slack > 1, "bfloat16 is off by more than a unit"


@pytest.mark.parametrize(
    ("leak", "checks", "cure"),
    [
        (
            "a 5x5 kernel declared as 3x3",
            {"structure", "locality"},
            "declared for receptive field 3x3, but the layers have 5x5",
        ),
        ("batch norm in training mode", {"structure", "locality", "batch mates"}, "training mode. Call scorer.eval()."),
        ("an FFT convolution", {"structure", "locality"}, "fft_rfft2 in layer 'scorer.layer' mixes them"),
        ("reflect padding", {"structure"}, "but pad in layer 'scorer.layer' mixes them"),
    ],
)
def test_planted_leaks_are_caught(leak: str, checks: set[str], cure: str) -> None:
    found = audit(leaking(leak), IMAGES, Program())
    assert not found.passed and checks <= violated(found)
    assert found.cure is not None and cure in found.cure


def test_a_program_that_changes_after_many_calls_is_caught() -> None:
    """It changes thirty calls after the end of the previous check."""
    calls: list[int] = []

    def honest(images: Tensor) -> Tensor:
        calls.append(len(images))
        return images

    checks = list(behavior(honest, IMAGES, [], []))
    before = len(calls) - REPEATS
    calls.clear()
    checks = list(behavior(lambda images: honest(images) + (len(calls) > before + 30), IMAGES, [], []))
    assert [check.name for check in checks if not check.passed] == ["repeat"]


def test_a_certain_network_is_attacked_as_well() -> None:
    """No attack changes the class of these images, but adversarial pixels are still painted on them."""
    certain = IMAGES.round()
    found = audit(small_defense("logits", "two-mask"), certain, Program())
    (attacked,) = (check for check in found.checks if check.name == "attacked")
    assert attacked.passed and attacked.found.compared > 0


def test_patches_are_compared_with_their_own_regions() -> None:
    """A column ablation sees all rows alike: an attack may paint at a placement that has no maximal region."""
    torch.manual_seed(0)
    scorer = AblationConfig(classes=4, kept=(8, 2), theta=0.0, width=4, blocks=(1,)).build((8, 8), (0.0,), (1.0,))
    images, head = torch.rand(6, 3, 8, 8), scorer.eval().classifier.head
    with torch.no_grad():  # no class is far ahead
        head.weight *= 20
        head.bias.sub_(scorer.logits(images).mean(dim=(0, 2, 3)))
    defense = Defense.build(scorer, "every-region", "3x3", ("a", "b", "c", "d"))
    broken = attack(defense, images, None, QUICK)
    maximal = Placements.of(defense.threat, scorer.footprint, every=False).regions.placements
    painted = broken.placement[broken.placement[:, 0] >= 0]
    assert not bool((painted[:, None] == maximal).all(dim=2).any(dim=1).all()), "this test has no such attack"
    *_, last = adversarial(defense, images)
    before, after = (defense.scores(pixels).values for pixels in (images, last.images))
    assert not torch.equal(before, after) and not bool(((before != after) & last.untouched).any())


@pytest.mark.parametrize("leak", ["batch norm in training mode", "an FFT convolution"])
def test_a_leaking_network_that_cannot_be_exported_is_a_violation_too(leak: str) -> None:
    found = audit(leaking(leak), IMAGES, Program(backend="onnx"))
    assert violated(found) == {"structure"} and found.cure == found.checks[0].problems[0]


def test_a_leak_below_the_units_of_the_scores_is_seen_in_the_bits() -> None:
    """Integer scores would hide it: an FFT moves logits by less than one unit."""
    found = audit(leaking("an FFT convolution"), IMAGES, Program())
    (locality,) = (check for check in found.checks if check.name == "locality")
    assert 0 < locality.found.largest < 1e-4 and found.inside.slack == 1


def test_the_setting_that_cures_is_named() -> None:
    """Scores that depend on the number of images: batches of any size violate, a fixed size cures."""
    found = audit(leaking("the number of images"), IMAGES, Program(batch=0))
    assert violated(found) == {"batch size"}
    assert found.cure == "use torch, cpu, float32, eager, channels_last, batches of 16"
    assert found.inside.slack == round(63 / 1024 * 256 + 0.5), "a batch of 1 against one of 64"
    assert audit(leaking("the number of images"), IMAGES, Program()).passed


def test_guard_bands_cover_what_was_seen() -> None:
    assert band(score_step("logits"), 0.0).slack == 0 and band(score_step("logits"), 1e-9).slack == 1
    assert band(score_step("logits"), 2.5 / 256).slack == 3
    assert band(score_step("heaviside"), 1.7401e-4).uncertain == 1.8e-4 and not band(score_step("heaviside"), 0.0)
    for seen in torch.logspace(-9, 2, 200).tolist():
        assert seen <= band(score_step("heaviside"), seen).uncertain <= 1.2 * seen
    with pytest.raises(UsageError, match="The scores contain NaN or infinity"):
        band(score_step("logits"), torch.inf)


def test_differences_are_counted_bit_for_bit() -> None:
    before = torch.zeros(1, 2, 2, 2)
    after = before.clone()
    after[0, 0, 0, 0], after[0, 1, 1, 1], after[0, 1, 0, 0] = -0.0, 0.5, torch.nan
    assert Difference.between(before, after) == Difference(8, 3, torch.inf)
    outside = torch.tensor([[False, True], [True, True]])
    assert Difference.between(before, after, outside) == Difference(6, 1, 0.5)
    assert Difference(2, 1, 0.5) + Difference(3, 0, 0.0) == Difference(5, 1, 0.5)


def test_programs_that_do_not_exist_are_rejected() -> None:
    for arguments, words in (
        ({"backend": "tensorflow"}, "Unknown backend 'tensorflow'. .*Known: onnx, torch."),
        ({"dtype": "float16"}, "Unknown dtype 'float16'. .*Known: bfloat16, float32, float64."),
        (
            {"backend": "onnx", "dtype": "bfloat16"},
            "Backend onnx runs in float32 and is not compiled. Leave out --dtype",
        ),
        ({"tf32": True}, "TF32 needs a GPU, but the device is cpu. Leave out --tf32."),
        (
            {"cudnn": True},
            "The option --cudnn is for torch in float32 on a GPU, not for torch, cpu, float32, .*. Leave it out.",
        ),
        ({"device": "cuda", "dtype": "bfloat16", "cudnn": True}, "in float32 on a GPU, not for torch, cuda, bfloat16"),
        ({"device": "cuda", "tf32": True, "cudnn": True}, "in float32 on a GPU, not for .*TF32"),
    ):
        with pytest.raises(UsageError, match=words):
            Program(**arguments)


def test_a_gpu_goes_without_cudnn_in_float32_and_says_so() -> None:
    """cuDNN may use an FFT, by which every pixel reaches every score: it is used only on request."""
    words = {
        "torch, cuda, float32, eager, channels_last, without cuDNN, batches of 16": Program(device="cuda"),
        "torch, cuda, float32, eager, channels_last, batches of 16": Program(device="cuda", cudnn=True),
        "torch, cuda, float32, eager, channels_last, TF32, batches of 16": Program(device="cuda", tf32=True),
        "torch, cuda, bfloat16, eager, channels_last, batches of 16": Program(device="cuda", dtype="bfloat16"),
        "torch, cpu, float32, eager, channels_last, batches of 16": Program(),
    }
    assert {str(program): program for program in words.values()} == words
    assert Program(device="cuda") in Program(device="cuda", cudnn=True).candidates()
    assert Program(device="cuda") in Program(device="cuda", tf32=True).candidates()


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (Program(device="cuda"), (False, False)),
        (Program(device="cuda", compiled=True), (False, False)),
        (Program(device="cuda", cudnn=True), (True, False)),
        (Program(device="cuda", tf32=True), (True, True)),
    ],
)
def test_the_arithmetic_of_a_program_is_as_described(program: Program, expected: tuple[bool, bool]) -> None:
    with arithmetic(program):
        assert (torch.backends.cudnn.enabled, torch.backends.cudnn.allow_tf32) == expected


@pytest.mark.parametrize(("dtype", "cudnn"), [("float32", False), ("bfloat16", True)])
def test_a_program_runs_with_its_own_arithmetic(dtype: str, cudnn: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if the caller has switched autocast on."""
    seen: list[bool] = []
    defense = small_defense("logits", "two-mask")

    def watched(scorer: Scorer, images: Tensor) -> Tensor:
        seen.append(torch.backends.cudnn.enabled)
        return torch.zeros(len(images), 2, *scorer.footprint.grid)

    monkeypatch.setattr(type(defense.scorer), "logits", watched)
    monkeypatch.setattr(torch, "autocast", gpu_autocast)
    with gpu_autocast():
        prepare(Program(dtype=dtype), defense.scorer, 3)(IMAGES[:2])
    assert seen == [cudnn]


def test_a_machine_that_cannot_compile_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> Tensor:
        raise RuntimeError("no compiler\nand a long story")

    monkeypatch.setattr(torch, "compile", lambda _: refuse)
    with pytest.raises(UsageError, match=r"torch\.compile fails here \(no compiler\)\. Leave out --compile"):
        audit(small_defense("logits", "two-mask"), IMAGES, Program(compiled=True))


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    save_digit_run(tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_command_writes_a_page(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "audit", "run", "--images", "4", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["passed"] and found["cure"] is None and found["program"].startswith("torch, cpu, float32, eager")
    page = (run / "audit.html").read_text()
    assert "Passed." in page and "batch mates" in page and "http" not in page


def test_the_command_takes_the_arithmetic_it_is_asked_for(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for option, words in (("--cudnn", "--cudnn is for torch in float32 on a GPU"), ("--tf32", "TF32 needs a GPU")):
        assert call(monkeypatch, "audit", "run", option) == 2
        assert words in capsys.readouterr().err and not (run / "audit.html").exists()


def test_a_violation_is_exit_code_1(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = audit(leaking("reflect padding"), IMAGES, Program())
    monkeypatch.setattr("bagcert.cli.audit.audit_program", lambda *_: broken)
    assert call(monkeypatch, "audit", "run", "--images", "2") == 1
    out = capsys.readouterr().out
    assert "violated" in out and "what cures it: Layers must keep positions apart, but pad" in out
    assert "Violated." in (run / "audit.html").read_text()
    assert to_object(broken, {})["checks"][0]["problems"]
