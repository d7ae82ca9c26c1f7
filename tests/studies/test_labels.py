"""The study of several answers: tiles, thresholds and attacks by hand, and a tiny run of each task."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from bagcert.data import ArrayDataset, load_dataset
from bagcert.defense import load
from bagcert.files import append
from bagcert.rules import read_scores
from bagcert.scorers.weights import load_scorer
from bagcert.stored_models import card
from studies.common.results import ROOT
from studies.labels import command, top_sets, training
from studies.labels.attacked import descend
from studies.labels.tasks import TASKS, Labels, bits
from studies.labels.tiles import Pictures, fixed_pictures, tiled, training_pictures
from studies.labels.top_sets import kth_lead, summary
from tests.rows.digit_runs import save_digit_run

TABLES = {"labels": command.label_lines, "segmentation": command.pixel_lines}
TINY = {"steps": 3, "batch": 4, "narrow": 16, "wide": 16, "pictures": 3, "attacked": 2, "attack_steps": 4}


def read_rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in gzip.decompress(path.read_bytes()).decode().splitlines()]


def test_a_picture_has_its_images_two_by_two() -> None:
    images = torch.arange(9.0)[:, None, None, None].expand(9, 1, 3, 2)
    found = tiled(images, torch.arange(9) % 5)
    assert found.images.shape == (2, 1, 6, 4) and found.tiles.tolist() == [[[0, 1], [2, 3]], [[4, 0], [1, 2]]]
    assert found.images[0, 0].tolist() == [[0, 0, 1, 1]] * 3 + [[2, 2, 3, 3]] * 3
    assert found.present(6)[1].tolist() == [True, True, True, False, True, False]
    assert found.pixels((2, 4))[0].tolist() == [[0, 0, 1, 1], [2, 2, 3, 3]]


def test_splits_do_not_mix() -> None:
    """Training pictures hold training images alone, and are others in every epoch."""
    digits = load_dataset("digits")
    assert isinstance(digits, ArrayDataset)
    test = fixed_pictures(digits.split("test"), 10**6, torch.device("cpu"))
    assert len(test) == len(digits.split("test")) // 4
    source = digits.split("train")
    stream = training_pictures(source, len(source) // 4, 0, torch.device("cpu"))
    first, second = next(stream), next(stream)
    assert not torch.equal(first.tiles, second.tiles)
    assert len(first) == len(source) // 4


def test_thresholds_are_those_with_the_fewest_errors() -> None:
    """Of means 10 to 40, with the label in the last two: anything from 20 to 29; of a constant label, below all."""
    values = torch.tensor([10, 20, 30, 40])[:, None, None, None].expand(4, 2, 3, 3).clone()
    tiles = torch.tensor([1, 1, 0, 0])[:, None, None].expand(4, 2, 2).clone()
    tiles[:, 0, 0] = 1
    task = Labels()
    chosen = task.settle(read_scores(values, None), Pictures(torch.zeros(4, 1, 6, 6), tiles))["thresholds"]
    assert 20 <= chosen[0] < 30 and chosen[1] < 10
    regions_free = values[:, :, 0, 0] > torch.tensor(chosen)
    assert regions_free.tolist() == [[False, True], [False, True], [True, True], [True, True]]


def test_flags_and_leads_by_hand() -> None:
    assert bits(torch.tensor([[True, False, True], [False, True, False]])).tolist() == [5, 2]
    assert kth_lead(torch.tensor([[5, 1, 4, 2]]), torch.tensor([2]), 1).tolist() == [-1]
    assert kth_lead(torch.tensor([[5, 1, 4, 2]]), torch.tensor([2]), 2).tolist() == [2]
    assert summary([(0, 0b011, 0b001), (2, 0b111, 0b000)]) == {
        "in_set": 1.0,
        "proven": 0.5,
        "mean_size": 2.5,
        "largest_size": 3,
    }


@pytest.mark.parametrize("stride", [1, 2])
def test_a_descent_paints_its_patch_alone_and_lowers_its_goal(stride: int, tmp_path: Path) -> None:
    """With stride 1 it runs on a part of each image, with stride 2 on all of it."""
    defense = load(save_digit_run(tmp_path / "run", "logits", "two-mask", stride)).against("1x2")
    images = next(load_dataset("digits").split("test").batches(3, "cpu")).images
    places = torch.tensor([0, len(defense.regions) // 2, len(defense.regions) - 1])

    def goal(scores: torch.Tensor) -> torch.Tensor:
        return scores[:, 0].sum(dim=(1, 2))

    *_, last = descend(defense, images, places, goal, 20, 0)
    for image, (top, left, height, width) in enumerate(defense.regions.placements[places].tolist()):
        outside = torch.ones(8, 8, dtype=torch.bool)
        outside[top : top + height, left : left + width] = False
        assert torch.equal(last[image, :, outside], images[image, :, outside])
    with torch.no_grad():
        assert bool((goal(defense.scorer(last)) < goal(defense.scorer(images))).all())


@pytest.mark.parametrize("task", ["labels", "segmentation"])
def test_a_tiny_trial(task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("studies.labels.measure.PATCHES", ("2x2", "5x5"))
    command.trial(task, run=tmp_path / "run", data="digits", out=tmp_path, **TINY)  # type: ignore[arg-type]
    found = json.loads((tmp_path / f"{task}.json").read_text())
    rows = read_rows(tmp_path / f"{task}.jsonl.gz")
    assert len(rows) == 2 * found["pictures"] == 6 and found["majority_wrong"] > 0
    for patch, result in found["patches"].items():
        mine = [row for row in rows if row["patch"] == patch]
        for key in ("wrong", "most_wrong"):
            assert result[key] == sum(row[key] for row in mine) / len(mine)
        assert all(row["wrong"] <= row["most_wrong"] <= found["of"] for row in mine)
        attacked = [row for row in mine if row["attacked"] >= 0]
        assert len(attacked) == result["pictures_attacked"] == 2 and result["broken"] == 0
        assert all(row["wrong"] <= row["attacked"] <= row["most_wrong"] for row in attacked)
    lines = TABLES[task](tmp_path)
    assert [line[0] for line in lines] == ["patch", "2x2", "5x5", "majority"]


@pytest.mark.parametrize("task", ["labels", "segmentation"])
def test_an_interrupted_training_continues_bit_for_bit(
    task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digits = load_dataset("digits")
    assert isinstance(digits, ArrayDataset)

    def run(folder: str, steps: int = 5) -> bytes:
        settings = training.Settings((16, 16), batch=100, steps=steps)
        training.train(TASKS[task](), digits, settings, torch.device("cpu"), tmp_path / folder)
        return (tmp_path / folder / "weights.safetensors").read_bytes()

    whole = run("whole")
    monkeypatch.setattr(training, "CHECKPOINT_SECONDS", -1.0)  # after every step
    save = training.save

    def stop_after_three(path: Path, scorer: Any, optimizers: Any, step: int, spent: float) -> None:
        save(path, scorer, optimizers, step, spent)
        if step == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(training, "save", stop_after_three)
    with pytest.raises(KeyboardInterrupt):
        run("stopped")
    monkeypatch.setattr(training, "save", save)
    assert run("stopped") == whole and not list((tmp_path / "stopped").glob("checkpoint*"))


def test_a_start_from_single_tiles_sees_each_tile_as_its_model_does(tmp_path: Path) -> None:
    """Away from the borders of tiles, where neighbours come into view."""
    torch.manual_seed(0)
    digits = load_dataset("digits")
    assert isinstance(digits, ArrayDataset)
    run = save_digit_run(tmp_path / "run", "logits", "two-mask", positions=True)
    single, _ = load_scorer(run)
    scorer = training.new_scorer(Labels(), digits, training.Settings(start_from=str(run))).eval()
    pictures = fixed_pictures(digits.split("test"), 2, torch.device("cpu"))
    assert scorer.image_size == (16, 16) and "positions" in scorer.state_dict()
    with torch.no_grad():
        whole, tile = scorer(pictures.images), single(pictures.images[:, :, 8:, :8])
    torch.testing.assert_close(whole[:, :, 11:14, 2:6], tile[:, :, 3:6, 2:6])


def test_a_tiny_top(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = save_digit_run(tmp_path / "run", "logits", "two-mask", bias=0.0)
    """Stopped after its first batch, it goes on with the second."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(top_sets, "BATCH", 2)

    def stop(path: Path, lines: list[str]) -> None:
        append(path, lines)
        raise KeyboardInterrupt

    with monkeypatch.context() as stopping, pytest.raises(KeyboardInterrupt):
        stopping.setattr(top_sets, "append", stop)
        command.top(str(run), patches=["2x2"], images=3, attacked=2, attack_steps=4, out=tmp_path)
    (kept,) = (tmp_path / "runs").iterdir()
    kept.write_text(kept.read_text() + '{"image": 2, "cut')
    numbers: list[int] = []

    def counted(path: Path, lines: list[str]) -> None:
        numbers.append(len(lines))
        append(path, lines)

    with monkeypatch.context() as counting:
        counting.setattr(top_sets, "append", counted)
        command.top(str(run), patches=["2x2"], images=3, attacked=2, attack_steps=4, out=tmp_path)
    assert numbers == [1] and not list((tmp_path / "runs").iterdir())
    found = json.loads((tmp_path / "top-run.json").read_text())
    rows = read_rows(tmp_path / "top-run.jsonl.gz")
    assert len(rows) == found["images"] == 3 and found["patches"]["2x2"]["attack"]["broken"] == 0
    for best in ("2", "3", "5"):
        result = found["patches"]["2x2"][best]
        inside = [row["sets"][best][0] >> row["label"] & 1 for row in rows]
        proven = [row["sets"][best][1] >> row["label"] & 1 for row in rows]
        assert (result["in_set"], result["proven"]) == (sum(inside) / 3, sum(proven) / 3)
        assert result["largest_size"] == max(row["sets"][best][0].bit_count() for row in rows) >= int(best)
    assert len(command.top_lines(tmp_path)) == 2


def test_the_page_says_what_the_results_say() -> None:
    text, folder = command.PAGE.read_text(encoding="utf-8"), ROOT / command.FOLDER
    assert command.filled(text, folder) == text
    assert len(command.top_lines(folder)) > 1


def test_the_results_are_those_of_the_rows() -> None:
    """And the rows are of the shipped weights."""
    folder = ROOT / command.FOLDER
    for path in folder.glob("top-*.json"):
        result, rows = json.loads(path.read_text()), read_rows(path.with_suffix(".jsonl.gz"))
        assert result["weights_sha256"] == card(path.stem.removeprefix("top-"))["weights_sha256"]
        assert len(rows) == len(result["patches"]) * result["images"]
        attacks = [found.pop("attack") for found in result["patches"].values()]
        assert result["patches"] == top_sets.summaries(rows)
        assert all(tally["broken"] == 0 < tally["attacked"] for tally in attacks)
        for row in rows:
            assert all(proven & ~members == 0 for members, proven in row["sets"].values())
            assert all(members.bit_count() >= int(best) for best, (members, _) in row["sets"].items())


@pytest.mark.parametrize("task", TASKS)
def test_the_results_of_a_trial_are_those_of_its_rows(task: str) -> None:
    """No attack did more than was proven possible, and the page shows the same numbers."""
    result = json.loads((ROOT / command.FOLDER / f"{task}.json").read_text(encoding="utf-8"))
    rows = read_rows(ROOT / command.FOLDER / f"{task}.jsonl.gz")
    assert len(rows) == len(result["patches"]) * result["pictures"]
    for patch, found in result["patches"].items():
        own = [row for row in rows if row["patch"] == patch]
        for key in ("wrong", "most_wrong"):
            assert found[key] == pytest.approx(sum(row[key] for row in own) / len(own))
        attacked = [row for row in own if row["attacked"] >= 0]
        assert len(attacked) == found["pictures_attacked"] > 0 == found["broken"]
        assert all(row["wrong"] <= row["attacked"] <= row["most_wrong"] <= result["of"] for row in attacked)
        assert sum(row["attacked"] > row["wrong"] for row in attacked) > 0
