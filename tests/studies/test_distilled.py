"""Small networks learn the score maps of a teacher, beside the labels."""

import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image

from bagcert.data import load_dataset
from bagcert.scorers.ensemble import EnsembleConfig
from bagcert.scorers.weights import load_scorer, rounded, save_scorer
from bagcert.tensors import Images
from bagcert.training.losses import TwoMaskLoss
from studies.distilled.blended import UNTIL, blend
from studies.distilled.command import SIZES, Clock, Plan, distilled, name_of, network, said_by
from studies.distilled.students import Student, map_loss, wanted_maps
from tests.data.tiny_cifar10 import TinyCifar10
from tests.studies.calling import call

CPU = torch.device("cpu")


def test_the_loss_of_maps_is_the_share_of_the_teacher_left_unexplained() -> None:
    torch.manual_seed(0)
    said = torch.randn(4, 3, 6, 5)
    anything = torch.randn(4, 1, 6, 5)  # added to all classes of a position, it decides nothing
    assert map_loss(said + anything, said) < 1e-12
    assert map_loss(anything.expand_as(said), said) == pytest.approx(1)
    half = map_loss(said / 2, said)
    assert half == pytest.approx(0.25) and map_loss(10 * said / 2, 10 * said) == pytest.approx(float(half))


def test_the_teacher_has_its_share_of_a_step(tiny_cifar10: TinyCifar10, tmp_path: Path) -> None:
    tiny_cifar10.write(tmp_path)
    dataset, loss = load_dataset("cifar10", tmp_path), TwoMaskLoss(smoothing=0.1, weight=0.75)
    images, labels, said = torch.rand(4, 3, 32, 32), torch.tensor([0, 1, 2, 3]), torch.randn(4, 10, 32, 32)

    def step(said: Images | None, share: float) -> float:
        student = Student.new("one", network("tiny", 5), dataset, 0, loss, CPU)  # type: ignore[arg-type]
        assert student.loss.window == (9, 9)
        before = student.scorer.head.weight.detach().clone()
        found = float(student.learn(student.scores(images), labels, said, share, 1.0))
        assert not torch.equal(before, student.scorer.head.weight)
        return found

    labels_alone, maps_alone = step(None, 0.5), step(said, 1.0)
    assert step(said, 0.0) == pytest.approx(labels_alone)
    assert step(said, 0.25) == pytest.approx(0.25 * maps_alone + 0.75 * labels_alone)


def test_a_teacher_of_mirror_images_is_asked_without_them(tmp_path: Path) -> None:
    torch.manual_seed(0)
    shape = {"width": 4, "kernels": (3, 1), "paths": 1, "shake": False, "step": "logits"}
    config = EnsembleConfig(members=2, mirrored=True, **shape)  # type: ignore[arg-type]
    scorer = config.build((32, 32), (0.5,), (0.25,)).eval()
    save_scorer(tmp_path / "teacher", scorer, rounded(scorer.state_dict()), {"classes": list("abcdefghij")})
    stored, _ = load_scorer(tmp_path / "teacher")
    once = replace(config, mirrored=False).build((32, 32), (0.5,), (0.25,)).eval()
    once.load_state_dict(stored.state_dict())
    images = torch.rand(2, 3, 32, 32)
    with torch.no_grad():
        said, wanted, mirrored = (
            said_by(str(tmp_path / "teacher"), CPU)(images),
            once.logits(images),
            stored.logits(images),
        )
    spread = float((wanted - mirrored).abs().mean())
    assert float((said.float() - wanted).abs().mean()) < spread / 4  # it is asked in bfloat16


def test_peers_want_what_they_say_on_average() -> None:
    torch.manual_seed(0)
    said, *scores = torch.randn(4, 2, 3, 4, 4).requires_grad_()
    agreed = (scores[0] + scores[1] + scores[2]) / 3
    assert [wanted_maps(given, scores, 0.0) is given for given in (said, None)] == [True, True]
    quarter = 0.75 * said + 0.25 * agreed
    for taught, peers, expected in ((True, 0.25, quarter), (True, 1.0, agreed), (False, 1.0, agreed)):
        wanted = wanted_maps(said if taught else None, scores, peers)
        assert wanted is not None and torch.allclose(wanted, expected, atol=1e-6)
    assert wanted is not None and not wanted.requires_grad  # peers are not moved by who learns from them


def test_a_plan_says_what_is_learned_when() -> None:
    plan = Plan(share=0.5, peers=0.8, blended=0.4)
    assert [plan.of_peers(progress, taught=True) for progress in (0, 0.5, 1)] == [0, 0.4, 0.8]
    assert [plan.to_blend(progress, 10) for progress in (0, UNTIL - 0.01, UNTIL)] == [4, 4, 0]
    assert plan.of_peers(0, taught=False) == 1 and replace(plan, share=0).of_peers(1, taught=False) == 0


def test_the_first_images_of_a_batch_are_blended() -> None:
    images = torch.rand(6, 3, 4, 4)
    assert blend(images, 0) is images
    blended, before = blend(images, 4), torch.stack([images[3], *images[:3]])
    assert torch.equal(blended[4:], images[4:])
    shares = (blended[:4] - images[:4]) / (before - images[:4])
    assert (shares.flatten(1).std(dim=1) < 1e-3).all()  # one share for a whole picture
    assert len(set(shares.mean(dim=(1, 2, 3)).tolist())) == 4 and 0 < shares.min() < shares.max() < 1


def test_blended_images_have_no_label(tiny_cifar10: TinyCifar10, tmp_path: Path) -> None:
    tiny_cifar10.write(tmp_path)
    dataset, loss = load_dataset("cifar10", tmp_path), TwoMaskLoss(smoothing=0.1)
    images, labels = torch.rand(5, 3, 32, 32), torch.tensor([0, 1, 2, 3])
    student = Student.new("one", network("tiny", 5), dataset, 0, loss, CPU)  # type: ignore[arg-type]
    scores = student.scores(images)
    expected = student.loss(scores[1:], labels).item()
    assert student.learn(scores, labels, None, 0.5, 1.0).item() == pytest.approx(expected)


def test_the_name_of_a_run_says_what_tells_it_apart() -> None:
    assert name_of(["small"], "small", 7, 1) == "field-7-seed-1"
    assert name_of(["large", "small"], "large", 9, 0) == "large-field-9-seed-0"


def test_steps_or_minutes_end_a_training() -> None:
    begun = time.monotonic() - 60
    assert [Clock(10, None, begun).progress(step, begun) for step in (1, 5, 10)] == [0.1, 0.5, 1.0]
    assert Clock(10, 1, begun).progress(1, begun) >= 1
    warm = begun + 30  # half of two minutes are left for what follows the first steps, and a third of that is over
    assert Clock(1000, 2, begun).progress(1, warm) == pytest.approx(30 / 90, abs=0.05)
    assert Clock(10, 1000, begun).progress(5, begun) == 0.5


def test_a_small_pair_has_at_most_three_million_parameters() -> None:
    sizes = [sum(weight.numel() for weight in build("small", field).parameters()) for field in (7, 5)]
    assert sum(sizes) <= 3_000_000 < sum(weight.numel() for weight in build("large", 7).parameters())


@pytest.mark.parametrize(("size", "field"), [(size, field) for size, fields in SIZES.items() for field in fields])
def test_a_network_has_its_receptive_field(size: str, field: int) -> None:
    assert int(build(size, field).footprint.branches[0].rows[16].sum()) == field


def build(size: str, field: int):  # type: ignore[no-untyped-def]
    return network(size, field).build((32, 32), (0.0,), (1.0,))


def test_runs_are_trained_and_loaded(
    tiny_cifar10: TinyCifar10, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny_cifar10.write(tmp_path / "data")
    names = load_dataset("cifar10", tmp_path / "data").classes
    for name in names:
        (tmp_path / "generated" / name).mkdir(parents=True)
        Image.new("RGB", (32, 32)).save(tmp_path / "generated" / name / "one.png")
    options = ["--size", "tiny", "--data-dir", str(tmp_path / "data")]
    first, second = tmp_path / "first", tmp_path / "second"
    untaught = ["--teacher", "none"]
    assert call(monkeypatch, distilled, str(first), *options, *untaught, "--steps", "2", "--field", "5") == 0
    taught = ["--teacher", str(first / "field-5-seed-0"), "--generated", str(tmp_path / "generated")]
    taught += ["--blended", "0.4"]
    assert call(monkeypatch, distilled, str(second), *options, "--steps", "2", "--seed", "3", *taught) == 0
    assert [line.split()[1] for line in capsys.readouterr().err.splitlines()] == ["1", "2"] * 2
    for field in (7, 5):
        scorer, card = load_scorer(second / f"field-{field}-seed-3")
        assert (card["steps"], card["generated_images"], card["teacher"]) == (2, 10, "field-5-seed-0")
        assert card["blended"] == 0.4 and "seconds" in card
        assert scorer.scores(torch.rand(1, 3, 32, 32)).shape[1] == 10
    assert call(monkeypatch, distilled, str(second), *untaught, "--size", "smal") == 2
    assert "Did you mean 'small'?" in capsys.readouterr().err
    assert call(monkeypatch, distilled, str(second), *untaught, "--field", "11") == 2
    assert "--field must be 9, 7 or 5, but is [11]" in capsys.readouterr().err
    sizes = ["--size", "small", "--size", "large", "--masked", "0.5"]
    assert call(monkeypatch, distilled, str(second), *untaught, *sizes) == 2
    assert "Repeat --masked for each --size" in capsys.readouterr().err


def test_peers_learn_from_each_other_without_a_teacher(
    tiny_cifar10: TinyCifar10, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny_cifar10.write(tmp_path / "data")
    options = ["--size", "tiny", "--data-dir", str(tmp_path / "data"), "--steps", "3", "--field", "9", "--field", "5"]
    for name, share in (("alone", "0"), ("peers", "0.5")):
        assert call(monkeypatch, distilled, str(tmp_path / name), *options, "--teacher", "none", "--share", share) == 0
    for run in ("field-9-seed-0", "field-5-seed-0"):
        alone, taught = (load_scorer(tmp_path / name / run)[0].state_dict() for name in ("alone", "peers"))
        assert not torch.equal(alone["head.weight"], taught["head.weight"])
