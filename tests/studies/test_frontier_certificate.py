"""Networks of different receptive fields, certified together: against an oracle, against the rule, under attack."""

import json
from itertools import product
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

import bagcert
from bagcert import certify_scores
from bagcert.errors import UsageError
from bagcert.files import sha256
from bagcert.scorers.residual import ResidualConfig
from bagcert.scorers.weights import CONFIG, FORMAT, WEIGHTS, load_scorer, rounded, save_scorer, scorer_table
from bagcert.threats import Footprint, Layer
from studies.frontier.certificate import certify, reached
from studies.frontier.command import decide, frontier
from studies.frontier.joined import join_runs
from tests.data.tiny_cifar10 import TinyCifar10
from tests.studies.calling import call

SIDE, PATCH = 8, 2


def footprints(*fields: int) -> list[Footprint]:
    return [Footprint.centered(field, 1, (SIDE, SIDE), (SIDE, SIDE)) for field in fields]


def random_maps(count: int, fields: int) -> list[Tensor]:
    """Small integers, so that ties occur; in image n class n % 3 leads, the further the larger n % 5 is."""
    torch.manual_seed(count + fields)
    maps = [torch.randint(-3, 4, (count, 3, SIDE, SIDE)) for _ in range(fields)]
    for each in maps:
        for n in range(count):
            each[n, n % 3] += torch.randint(0, n % 5 + 1, (SIDE, SIDE))
    return maps


def taken(field: int, top: int, left: int) -> Tensor:
    """True at the scores that a patch reaches."""
    reach = (field - 1) // 2
    mask = torch.zeros(SIDE, SIDE, dtype=torch.bool)
    mask[max(0, top - reach) : top + PATCH + reach, max(0, left - reach) : left + PATCH + reach] = True
    return mask


def oracle(maps: list[Tensor], fields: tuple[int, ...], n: int) -> tuple[int, bool, int]:
    """Prediction, certificate and least lead outside one mask, by the definition.

    Masks start where no map's mask is cut off more.
    """
    edge = min((field - 1) // 2 for field in fields)
    tops = range(edge, SIDE - PATCH - edge + 1)
    masks = [[taken(field, *place) for field in fields] for place in product(tops, tops)]

    def sums(first: list[Tensor], second: list[Tensor]) -> list[int]:
        parts = zip(maps, first, second, strict=True)
        return sum(each[n].masked_fill(a | b, 0).sum(dim=(1, 2)) for each, a, b in parts).tolist()  # type: ignore[union-attr]

    def lead(row: list[int], own: int) -> int:
        return row[own] - max(value for k, value in enumerate(row) if k != own)

    plain = torch.stack([each[n].sum(dim=(1, 2)) for each in maps]).sum(dim=0).tolist()
    predicted = plain.index(max(plain))
    least = min(lead(sums(mask, mask), predicted) for mask in masks)
    tables = [[sums(first, second) for second in masks] for first in masks]
    for table in tables:
        winners = {row.index(max(row)) for row in table}
        if len(winners) == 1:
            predicted = winners.pop()
    return predicted, all(lead(row, predicted) > 0 for table in tables for row in table), least


@pytest.mark.parametrize("fields", [(3,), (5, 3), (3, 1), (5, 3, 1)])
def test_decisions_are_those_of_the_definition(fields: tuple[int, ...]) -> None:
    maps = random_maps(8, len(fields))
    found = certify(maps, footprints(*fields), PATCH)
    expected = [oracle(maps, fields, n) for n in range(8)]
    assert (
        list(zip(*(each.tolist() for each in (found.predicted, found.certified, found.lead)), strict=True)) == expected
    )
    assert {certified for _, certified, _ in expected} == {True, False}
    assert min(found.lead) < 0 < max(found.lead)


def test_one_map_is_the_rule_itself() -> None:
    (scores,) = random_maps(60, 1)
    found = certify([scores], footprints(3), PATCH)
    rule = certify_scores(scores, f"{PATCH}x{PATCH}", receptive_field=3, bounds=None)
    assert torch.equal(found.predicted, rule.predicted) and torch.equal(found.certified, rule.certified)
    assert 0 < found.certified.sum() < 60
    alerts = certify_scores(scores, f"{PATCH}x{PATCH}", receptive_field=3, bounds=None, rule="detect")
    assert torch.equal(found.plain, alerts.predicted) and alerts.lead is not None
    assert torch.equal(found.lead, alerts.lead)


@pytest.mark.parametrize("fields", [(5, 3), (1, 3, 3)])
def test_maps_with_their_rows_in_turn_are_the_rule_itself(fields: tuple[int, ...]) -> None:
    maps, networks = random_maps(60, len(fields)), footprints(*fields)
    found = certify(maps, networks, PATCH)
    rows = torch.stack(maps, dim=3).flatten(2, 3)
    rule = certify_scores(rows, f"{PATCH}x{PATCH}", footprint=Footprint.interleaved(networks), bounds=None)
    assert torch.equal(found.predicted, rule.predicted) and torch.equal(found.certified, rule.certified)
    assert 0 < found.certified.sum() < 60


def test_no_patch_changes_a_certified_prediction() -> None:
    """Whatever the patch makes of the scores that it reaches, at every placement, border included."""
    fields = (5, 3)
    clean = random_maps(12, 2)
    before = certify(clean, footprints(*fields), PATCH)
    changed = 0
    for top, left in product(range(SIDE - PATCH + 1), repeat=2):
        attacked = [each.clone() for each in clean]
        for each, field in zip(attacked, fields, strict=True):
            for n in range(12):
                each[n][:, taken(field, top, left)] = 0
                each[n, (n + 1) % 3][taken(field, top, left)] = 50
        after = certify(attacked, footprints(*fields), PATCH)
        assert torch.equal(after.predicted[before.certified], before.predicted[before.certified])
        changed += int((after.predicted != before.predicted).sum())
    assert changed, "an attack that changes nothing shows nothing"


def test_masks_are_the_placements_that_none_covers() -> None:
    rows, columns = reached(footprints(5, 3), PATCH)
    assert [each.shape for each in rows] == [(5, SIDE), (5, SIDE)]
    assert [each.sum(dim=1).tolist() for each in columns] == [[5, 6, 6, 6, 5], [4] * 5]


def write_run(folder: Path, kernels: tuple[int, ...], step: str = "logits") -> Path:
    config = ResidualConfig(width=4, kernels=kernels, paths=1, shake=False, positions=True, step=step)
    scorer = config.build((32, 32), mean=(0.5,), std=(0.25,))
    folder.mkdir()
    save_file(scorer.state_dict(), folder / WEIGHTS)
    card = {
        "classes": [f"class {number}" for number in range(10)],
        "patch": "5x5",
        "rule": "two-mask",
        "format": FORMAT,
        "weights_sha256": sha256((folder / WEIGHTS).read_bytes()),
        "scorer": scorer_table(scorer),
        "data": {"name": "cifar10"},
        "teacher": "cifar10",
        "seed": len(kernels),
    }
    (folder / CONFIG).write_text(json.dumps(card))
    return folder


def test_runs_are_certified_together(
    tiny_cifar10: TinyCifar10, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny_cifar10.write(tmp_path / "data")
    seven, five = write_run(tmp_path / "seven", (3, 1, 3)), write_run(tmp_path / "five", (3, 1))
    out = tmp_path / "decisions.jsonl"
    options = ["--split", "test", "--images", "2", "--mirrored", "--data-dir", str(tmp_path / "data")]
    assert call(monkeypatch, frontier, str(seven), str(five), *options, "--decisions", str(out)) == 0
    row = json.loads(capsys.readouterr().out)
    header, *lines = map(json.loads, out.read_text().splitlines())
    assert (row["images"], row["patch"], len(lines)) == (2, "5x5", 2)
    assert header == ["label", "plain", "predicted", "certified", "lead"]
    for name, right in {
        "plain": [label == plain for label, plain, *_ in lines],
        "clean": [label == predicted for label, _, predicted, *_ in lines],
        "certified": [label == predicted and certified for label, _, predicted, certified, _ in lines],
        "detectable": [label == plain and lead > 0 for label, plain, _, _, lead in lines],
    }.items():
        assert row[name] == sum(right) / 2


def test_runs_of_other_score_steps_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [write_run(tmp_path / "a", (3,)), write_run(tmp_path / "b", (3,), step="heaviside")]
    assert call(monkeypatch, frontier, *map(str, runs)) == 2
    assert "one score step" in capsys.readouterr().err


def test_a_mirrored_map_is_mirrored_back() -> None:
    """Mirrored twice is the image itself: an image and its mirror image get the same decisions."""
    torch.manual_seed(0)
    config = ResidualConfig(width=4, kernels=(3,), paths=1, shake=False, step="logits")
    scorer = config.build((32, 32), mean=(0.5,), std=(0.25,)).eval()
    image = torch.rand(1, 3, 32, 32)
    one, other = decide([scorer], image, True), decide([scorer], image.flip(-1), True)
    assert torch.equal(one.predicted, other.predicted) and torch.equal(one.certified, other.certified)


def test_a_network_that_is_counted_more_has_so_many_times_its_scores(
    tiny_cifar10: TinyCifar10, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny_cifar10.write(tmp_path / "data")
    runs = [write_run(tmp_path / "seven", (3, 1, 3)), write_run(tmp_path / "five", (3, 1))]
    eight_bits = tmp_path / "eight"
    scorer, facts = load_scorer(runs[1])
    save_scorer(
        eight_bits,
        scorer,
        rounded(scorer.state_dict()),
        {key: facts[key] for key in ("classes", "patch", "rule", "data")},
    )
    options = ["--split", "test", "--images", "2", "--data-dir", str(tmp_path / "data")]
    given = [str(runs[0]), str(eight_bits), "--counted", "3", "--counted", "0.5", *options]
    assert call(monkeypatch, frontier, *given, "--join", str(tmp_path / "pair")) == 0
    assert json.loads(capsys.readouterr().out)["counted"] == [3, 0.5]
    pair, images = bagcert.load(tmp_path / "pair"), torch.rand(2, 3, 32, 32)
    assert pair.card["counted"] == [3, 0.5]
    found = pair.scores(images).values
    for number, (run, times) in enumerate(((runs[0], 3), (eight_bits, 0.5))):
        alone = load_scorer(run)[0].scores(images)
        assert (found[:, :, number::2] - alone * times).abs().max() <= times + 1
    scorers = [load_scorer(run)[0] for run in runs]
    one, other = (decide(scorers, images, False, times) for times in ((2.0, 2.0), (1.0, 1.0)))
    assert torch.equal(one.lead, 2 * other.lead) and torch.equal(one.predicted, other.predicted)
    assert call(monkeypatch, frontier, *map(str, runs), "--counted", "2") == 2
    assert "Repeat --counted for each run, above 0, but it is [2.0] for 2 runs." in capsys.readouterr().err
    votes = [str(write_run(tmp_path / "votes", (3,), step="heaviside"))] * 2
    assert call(monkeypatch, frontier, *votes, "--counted", "2", "--counted", "1", "--join", str(tmp_path / "no")) == 2
    assert "--counted multiplies logits" in capsys.readouterr().err and not (tmp_path / "no").exists()


def test_footprints_of_several_branches_are_refused() -> None:
    upright, lying = (
        Footprint.of_layers([layer], (SIDE, SIDE))
        for layer in (Layer((3, 1), padding=(1, 0)), Layer((1, 3), padding=(0, 1)))
    )
    with pytest.raises(UsageError, match="one branch"):
        reached([upright.join(lying)], PATCH)


def test_joined_runs_are_one_model(tiny_cifar10: TinyCifar10, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It scores as the networks do, to half a unit, and certifies as the study does."""
    tiny_cifar10.write(tmp_path / "data")
    runs = [write_run(tmp_path / "seven", (3, 1, 3)), write_run(tmp_path / "five", (3, 1))]
    options = ["--split", "test", "--images", "2", "--mirrored", "--data-dir", str(tmp_path / "data")]
    assert call(monkeypatch, frontier, *map(str, runs), *options, "--join", str(tmp_path / "pair")) == 0
    pair, images = bagcert.load(tmp_path / "pair"), torch.rand(2, 3, 32, 32)
    assert pair.card["teacher"] == "cifar10" and not {"seed", "counted"} & pair.card.keys(), (
        "what both cards say, and nothing else"
    )
    assert str(pair.threat) == "5x5" and pair.rule.name == "two-mask" and len(pair.regions) == 24**2
    scores, found = pair.scores(images), pair.certify(images)
    for number, run in enumerate(runs):
        alone, _ = load_scorer(run)
        both = (alone.scores(images) + alone.scores(images.flip(-1)).flip(-1)) / 2
        assert (scores.values[:, :, number::2] - both).abs().max() <= 1
    maps = [scores.values[:, :, number::2] for number in range(2)]
    decided = certify(maps, [part.footprint for part in pair.scorer.parts])
    assert torch.equal(decided.predicted, found.predicted) and torch.equal(decided.certified, found.certified)


def test_runs_that_do_not_fit_together_are_not_joined(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / "logits", (3, 1)), write_run(tmp_path / "votes", (3, 1), "heaviside")]
    with pytest.raises(UsageError, match=r"^Runs to be joined must be residual networks that share classes, channels,"):
        join_runs(runs, False, tmp_path / "pair", [1.0] * len(runs))
    assert not (tmp_path / "pair").exists()
