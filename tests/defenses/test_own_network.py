"""A network of the caller's own: defended, saved, loaded with the network handed over again, and in every command."""

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import bagcert
from bagcert.errors import UsageError
from bagcert.files import sha256
from bagcert.rows.verify.reach import listed_pixels
from bagcert.rules import TwoMask
from bagcert.scorers.footprint_table import read_footprint
from bagcert.scorers.residual import ResidualConfig
from bagcert.scorers.wrapped import OwnConfig
from bagcert.threats import parse_threat
from tests.cli.calling import call

NAMES = ("cat", "dog", "ship")


def small(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    layers = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 3, 1)
    return nn.Sequential(*layers).eval()


@pytest.fixture(scope="module")
def images() -> Tensor:
    return torch.rand(6, 3, 12, 12, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def defense() -> bagcert.Defense:
    return bagcert.defend(small(), 12, NAMES, "2x2")


def test_a_defended_network_is_its_wrapped_scorer_under_its_rule(defense: bagcert.Defense, images: Tensor) -> None:
    scores = bagcert.wrap(small(), 12).scores(images)
    plain = bagcert.certify_scores(scores, "2x2", receptive_field=3, bounds=None)
    found = defense.certify(images)
    assert torch.equal(found.predicted, plain.predicted) and torch.equal(found.certified, plain.certified)
    assert (defense.classes, defense.rule.name, str(defense.threat)) == (NAMES, "two-mask", "2x2")
    votes = bagcert.defend(small(), 12, patch="1x1", rule="every-region", step="heaviside")
    assert votes.classes == ("0", "1", "2") and votes.scorer.step.name == "heaviside"


def test_it_comes_back_with_the_network_handed_over_again(
    defense: bagcert.Defense, images: Tensor, tmp_path: Path
) -> None:
    defense.save(tmp_path / "mine")
    again = bagcert.load(tmp_path / "mine", network=small(seed=5))  # other weights: the stored ones are loaded
    for name in ("predicted", "certified", "lead", "weakest_region"):
        assert torch.equal(getattr(again.certify(images), name), getattr(defense.certify(images), name))
    assert (again.classes, again.rule.name, str(again.threat)) == (NAMES, "two-mask", "2x2")
    assert again.against("3x3").name == again.name == "mine"


def test_a_card_holds_no_code(defense: bagcert.Defense, tmp_path: Path) -> None:
    defense.save(tmp_path)
    card = json.loads((tmp_path / "config.json").read_text())
    network = {"name": "own", "classes": 3, "channels": 3, "step": "logits"}
    assert card["scorer"] == {"kind": "own", "image_size": [12, 12], "network": network}
    with pytest.raises(UsageError, match=r"a network of your own, which no file holds\. Hand it over: load\(fol"):
        bagcert.load(tmp_path)


def test_another_network_is_refused(defense: bagcert.Defense, tmp_path: Path) -> None:
    defense.save(tmp_path)
    wider = nn.Sequential(nn.Conv2d(3, 8, 5, padding=2), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 3, 1))
    before = {name: value.clone() for name, value in wider.state_dict().items()}
    with pytest.raises(UsageError, match=r"not those of the network you hand over: they differ in '0\.weight'\. Use"):
        bagcert.load(tmp_path, network=wider)
    assert all(torch.equal(value, before[name]) for name, value in wider.state_dict().items())
    with pytest.raises(UsageError, match=r"This model has a network of ours, .*Leave out your own network\."):
        bagcert.load("cifar10-small", network=small())


def test_weights_of_one_shape_may_see_more_in_another_network(defense: bagcert.Defense, tmp_path: Path) -> None:
    """The footprint is that of the network handed over, whatever was saved: it is traced again."""
    defense.save(tmp_path)
    dilated = small()
    dilated[0] = nn.Conv2d(3, 8, 3, padding=3, dilation=3)  # type: ignore[operator]
    assert bagcert.load(tmp_path, network=dilated.eval()).scorer.footprint.receptive_field == (7, 7)


def test_a_saved_defense_is_not_overwritten(defense: bagcert.Defense, tmp_path: Path) -> None:
    defense.save(tmp_path)
    with pytest.raises(UsageError, match=r"holds a model already\. Choose another folder\."):
        defense.save(tmp_path)


def test_what_a_card_cannot_say_is_not_saved(defense: bagcert.Defense, tmp_path: Path) -> None:
    masks = torch.zeros(1, 12, 12, dtype=torch.bool)
    masks[0, 2:4, 5] = True
    with pytest.raises(UsageError, match=r"A card cannot name this rule or threat \(.*\) Save it against others\."):
        defense.against(masks).save(tmp_path)
    large = defense.scorer.footprint.regions(parse_threat("4x4", (12, 12))).maximal()
    with pytest.raises(UsageError, match=r"are those of another threat\. Save \.against\('2x2'\)"):
        defense.against(rule=TwoMask(masks=large)).save(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_loaded_model_can_be_saved_again(tmp_path: Path) -> None:
    shipped = bagcert.load("cifar10-small").against("3x3", "every-region")
    shipped.save(tmp_path)
    again = bagcert.load(tmp_path)
    assert (again.rule.name, str(again.threat), again.classes) == ("every-region", "3x3", shipped.classes)
    assert again.card["data"] == shipped.card["data"] and "test" not in again.card
    for one, two in zip(shipped.scorer.parameters(), again.scorer.parameters(), strict=True):
        assert torch.equal(one, two)


CODE = """
import torch
from torch import nn

def small():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 10, 1)).eval()

def normed():
    return nn.Sequential(nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 10, 1))

def failing():
    raise RuntimeError("no weights here")

number = 7
"""


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my_networks.py").write_text(CODE, encoding="utf-8")
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 10, 1)).eval()
    bagcert.defend(network, 8, list("0123456789"), "2x2", channels=1).save("mine")


@pytest.mark.usefixtures("saved")
@pytest.mark.parametrize(
    "words",
    [
        "certify mine --data digits --limit 4",
        "attack mine --data digits --limit 2 --steps 2",
        "audit mine --data digits --images 2",
        "export mine --out mine.onnx",
    ],
    ids=lambda words: words.split()[0],
)
def test_every_command_takes_the_network(words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if words.startswith("export"):
        pytest.importorskip("onnx")
    assert call(monkeypatch, *words.split(), "--network", "my_networks:small") == 0


@pytest.mark.usefixtures("saved")
def test_its_certificates_are_verified_by_separate_code(monkeypatch: pytest.MonkeyPatch) -> None:
    words = "certify mine --network my_networks:small --data digits --limit 4 --scores --out rows.jsonl"
    assert call(monkeypatch, *words.split()) == 0
    assert call(monkeypatch, "verify", "rows.jsonl") == 0
    records = Path("rows.jsonl").read_text()
    assert '"certified":true' in records
    Path("rows.jsonl").write_text(records.replace('"lead":', '"lead":1', 1))  # a forged one
    meta = json.loads(Path("rows.meta.json").read_text())
    meta["rows_sha256"] = sha256(Path("rows.jsonl").read_bytes())
    Path("rows.meta.json").write_text(json.dumps(meta))
    assert call(monkeypatch, "verify", "rows.jsonl") == 1
    footprint = json.loads(Path("rows.meta.json").read_text())["footprint"]
    assert footprint["pixels"]["rows"][:2] == [[[0, 2]], [[0, 3]]]


@pytest.mark.parametrize(
    "layers",
    [
        [nn.Conv2d(3, 2, 3, padding=1)],
        [nn.Conv2d(3, 4, 3, padding=2, dilation=2), nn.Conv2d(4, 2, 2, stride=2)],
        [nn.MaxPool2d((2, 3)), nn.Conv2d(3, 2, (3, 1))],
    ],
)
def test_a_traced_footprint_survives_the_rows(layers: list[nn.Module]) -> None:
    """Written as runs of pixels, and read by both readers."""
    scorer = bagcert.wrap(nn.Sequential(*layers).eval(), (12, 13))
    table = json.loads(json.dumps({"image_size": [12, 13], **scorer.reach()}))
    assert read_footprint(table).same(scorer.footprint)
    for axis, seen in enumerate((scorer.footprint.branches[0].rows, scorer.footprint.branches[0].columns)):
        expected = [set(row.nonzero().flatten().tolist()) for row in seen]
        assert listed_pixels(table["pixels"], axis, 12 + axis) == expected


def test_a_network_in_training_moves_to_another_type() -> None:
    """It is traced again as it will score, in evaluation mode, and stays in training mode."""
    config = OwnConfig(classes=3).handed(small())
    scorer = config.build((12, 12), (0.0,), (1.0,))
    assert scorer.training and scorer.module[1].training  # type: ignore[index]
    scorer.double()
    assert scorer.training and scorer.module[1].training  # type: ignore[index]
    scorer.eval()
    assert scorer.scores(torch.rand(1, 3, 12, 12).double()).shape == (1, 3, 12, 12)


@pytest.mark.usefixtures("saved")
@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "a network of your own, which no file holds. Hand it over"),
        (
            "my_networks",
            "A network is named by MODULE:FUNCTION, as in my_networks:small, or timm:NAME, not 'my_networks'.",
        ),
        ("nowhere:small", "Cannot import 'small' from nowhere (No module named 'nowhere'). Run the command in"),
        ("my_networks:large", "Cannot import 'large' from my_networks"),
        ("my_networks:failing", "must return a network without arguments, but fails (no weights here)"),
        ("my_networks:number", "must return a network without arguments, but fails ('int' object is not callable)"),
    ],
)
def test_wrong_networks_are_told(
    text: str | None, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    more = [] if text is None else ["--network", text]
    assert call(monkeypatch, "certify", "mine", "--data", "digits", "--limit", "1", *more) == 2
    assert words in capsys.readouterr().err


@pytest.mark.usefixtures("saved")
def test_a_model_without_data_asks_for_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "certify", "mine", "--network", "my_networks:small") == 2
    assert "The card of this model names no data. Add --data" in capsys.readouterr().err


def test_only_networks_of_the_caller_are_handed_over() -> None:
    with pytest.raises(UsageError, match="This model has a network of ours"):
        ResidualConfig().handed(small())


@pytest.mark.slow
@pytest.mark.usefixtures("saved")
def test_a_network_is_trained(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Its own code trains, in training mode; what is certified afterwards is the trace with the trained weights."""
    settings = ["network.channels=1", "schedule.epochs=12", "evaluation.times=1"]
    options = [word for setting in settings for word in ("--set", setting)]
    own = ["--network", "my_networks:normed"]
    assert call(monkeypatch, "train", "digits", *own, "--out", "run", *options) == 0
    card = json.loads(Path("run/config.json").read_text())
    assert card["recipe"]["network"] == {"name": "own", "classes": 10, "channels": 1, "step": "logits"}
    assert card["validation"]["clean"] > 0.3
    capsys.readouterr()
    assert call(monkeypatch, "certify", "run", *own, "--split", "validation", "--json") == 0
    assert json.loads(capsys.readouterr().out)["clean_accuracy"] == card["validation"]["clean"]
    assert call(monkeypatch, "train", "digits", "--network", "my_networks:number", "--out", "other", *options) == 2


def test_a_saved_rule_keeps_its_threshold(tmp_path: Path) -> None:
    defense = bagcert.load("cifar10-small").against(rule="two-mask:40")
    defense.save(tmp_path / "saved")
    assert bagcert.load(tmp_path / "saved").rule.written == "two-mask:40"
