"""A covered network: saved, loaded with the network handed over again, and in every command."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import bagcert
from bagcert.errors import UsageError
from bagcert.files import read_tensors, sha256
from bagcert.pictures import Framing
from tests.cli.calling import call


def pooled(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    layers = nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10)
    return nn.Sequential(*layers).eval()


@pytest.fixture(scope="module")
def images() -> Tensor:
    return torch.rand(5, 1, 8, 8, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def defense() -> bagcert.Defense:
    framing = Framing((8, 8), 9, 1)
    return bagcert.cover(
        pooled(), 8, 10, "2x2", masks=2, mean=(0.3,), std=(0.2,), channels=1, framing=framing, at_once=9
    )


@pytest.mark.parametrize("rule", ["unanimous", "detect:3"])
def test_it_comes_back_with_the_network_handed_over_again(
    rule: str, defense: bagcert.Defense, images: Tensor, tmp_path: Path
) -> None:
    mine = defense.against(rule=rule)
    mine.save(tmp_path / "mine")
    again = bagcert.load(tmp_path / "mine", network=pooled(seed=5))  # other weights: the stored ones are loaded
    found, expected = again.certify(images), mine.certify(images)
    for name in ("predicted", "certified", "lead", "weakest_region"):
        assert torch.equal(getattr(found, name), getattr(expected, name))
    assert (again.rule.written, str(again.threat), again.framing) == (rule, "2x2", mine.framing)
    assert again.program == mine.program and "batches of 9" in str(again.program)
    with pytest.raises(UsageError, match=r"a network of your own, which no file holds\. Hand it over: load\(fol"):
        bagcert.load(tmp_path / "mine")


def corners() -> np.ndarray:
    """Masks of 6x6 pixels in the corners, each without the pixel in the corner; one more of the four corners alone."""
    masks = np.zeros((5, 8, 8), dtype=bool)
    for number, (row, column) in enumerate(((0, 0), (0, 2), (2, 0), (2, 2))):
        masks[number, row : row + 6, column : column + 6] = True
        masks[number, row and 7, column and 7] = False
    masks[4] = True
    masks[4, 2:6], masks[4, :, 2:6] = False, False
    return masks


@pytest.mark.parametrize("rule", ["unanimous", "detect"])
def test_given_masks_come_back_from_the_weights(rule: str, images: Tensor, tmp_path: Path) -> None:
    masks = corners()
    mine = bagcert.cover(pooled(), 8, 10, "2x2", rule, masks=masks, channels=1, at_once=9)
    mine.save(tmp_path / "mine")
    masks[:] = False  # the caller's array is no part of it
    again = bagcert.load(tmp_path / "mine", network=pooled(seed=5))
    for name in ("predicted", "certified", "lead", "weakest_region"):
        assert torch.equal(getattr(again.certify(images), name), getattr(mine.certify(images), name))
    tensors, _ = read_tensors(tmp_path / "mine" / "weights.safetensors")
    assert torch.equal(tensors["given"], torch.from_numpy(corners()))
    assert again.scorer.passes == mine.scorer.passes == (15 if rule == "unanimous" else 6)


def test_weights_of_another_network_are_refused(defense: bagcert.Defense, tmp_path: Path) -> None:
    defense.save(tmp_path)
    with pytest.raises(UsageError, match=r"not those of the network you hand over: they differ in '0\.bias'\. Use"):
        bagcert.load(tmp_path, network=nn.Sequential(nn.Flatten(), nn.Linear(64, 10)))


def test_a_smaller_patch_under_the_same_masks(defense: bagcert.Defense, images: Tensor) -> None:
    large, small = defense.certify(images), defense.certify(images, patch="1x1")
    assert torch.equal(large.predicted, small.predicted) and not bool((large.certified & ~small.certified).any())


def test_a_picture_of_any_size(defense: bagcert.Defense) -> None:
    (answer,) = defense([torch.rand(1, 20, 30)])
    assert answer.name in defense.classes and answer.scores.shape == (10, 3, 2)


CODE = """
import torch
from torch import nn

def pooled():
    torch.manual_seed(0)
    layers = nn.Conv2d(1, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10)
    return nn.Sequential(*layers)
"""
COVER = "cover my_classifiers:pooled --size 8 --classes 10 --patch 2x2 --masks 2 --channels 1 --at-once 8 --device cpu"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("my_classifiers.py").write_text(CODE, encoding="utf-8")
    return tmp_path


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("masks", ["2", "corners.npy"])
@pytest.mark.parametrize("rule", ["unanimous", "detect"])
def test_every_command_takes_it(
    rule: str, masks: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save("corners.npy", corners())
    assert call(monkeypatch, *COVER.split(), "--out", "mine", "--rule", rule, "--masks", masks) == 0
    Path("corners.npy").unlink()  # no longer needed
    capsys.readouterr()
    for words in (
        "certify mine --data digits --limit 12 --scores --out rows.jsonl",
        "attack mine --data digits --limit 2 --steps 2",
        "audit mine --data digits --images 2",
    ):
        assert call(monkeypatch, *words.split(), "--network", "my_classifiers:pooled") == 0, words
    assert call(monkeypatch, "verify", "rows.jsonl") == 0
    assert call(monkeypatch, "report", "rows.jsonl", "--out", "page") == 0
    records = Path("rows.jsonl").read_text()
    assert '"certified":true' in records or rule == "detect"
    Path("rows.jsonl").write_text(records.replace('"lead":', '"lead":1', 1))  # a forged one
    meta = json.loads(Path("rows.meta.json").read_text())
    meta["rows_sha256"] = sha256(Path("rows.jsonl").read_bytes())
    Path("rows.meta.json").write_text(json.dumps(meta))
    assert call(monkeypatch, "verify", "rows.jsonl") == 1


@pytest.mark.slow
@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("masks", ["2", "corners.npy"])
def test_detection_is_exported_and_recovery_is_not(
    masks: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    np.save("corners.npy", corners())
    assert call(monkeypatch, *COVER.split(), "--out", "mine", "--masks", masks) == 0
    words = "export mine --network my_classifiers:pooled --out mine.onnx"
    assert call(monkeypatch, *words.split()) == 2
    assert "Rule 'unanimous' cannot be exported" in capsys.readouterr().err and not Path("mine.onnx").exists()
    assert call(monkeypatch, *words.split(), "--rule", "detect") == 0
    import my_classifiers  # type: ignore[import-not-found]

    defense = bagcert.load("mine", network=my_classifiers.pooled().eval()).against(rule="detect")
    images = torch.rand(3, 1, 8, 8, generator=torch.Generator().manual_seed(3))
    outputs = onnxruntime.InferenceSession("mine.onnx")
    found = dict(
        zip((each.name for each in outputs.get_outputs()), outputs.run(None, {"images": images.numpy()}), strict=True)
    )
    certificate = defense.certify(images)
    assert certificate.alert is not None and certificate.detectable is not None and certificate.lead is not None
    assert found["class"].tolist() == certificate.predicted.tolist()
    assert found["alert"].tolist() == certificate.alert.tolist()
    assert found["detectable"].tolist() == certificate.detectable.tolist()
    assert found["lead"].tolist() == certificate.lead.tolist()


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("name", ["weights.pth", "weights.safetensors", "nested.pth"])
def test_foreign_weights_are_converted_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from safetensors.torch import save_file

    torch.manual_seed(7)
    layers = nn.Conv2d(1, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10)
    weights = nn.Sequential(*layers).state_dict()
    if name.endswith(".pth"):
        torch.save({"state_dict": weights} if name == "nested.pth" else weights, name)
    else:
        save_file(weights, name)
    assert call(monkeypatch, *COVER.split(), "--out", "mine", "--weights", name) == 0
    card = json.loads(Path("mine/config.json").read_text())
    assert card["weights_from"] == {"name": name, "sha256": sha256(Path(name).read_bytes())}
    Path(name).unlink()  # no longer needed
    again = bagcert.load("mine", network=nn.Sequential(*layers).eval())
    assert torch.equal(dict(again.scorer.state_dict())["module.0.weight"], weights["0.weight"])


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--weights code.pth", "holds no weights that are tensors alone"),
        ("--weights other.pth", "they differ in '0.bias'"),
        ("--classes none.txt", "none.txt is no number, file or folder of classes"),
        ("--mean red", "The option --mean takes numbers"),
        ("--size large", "Cannot read the size 'large'"),
        ("--patch 9x9", "does not fit into"),
        ("--masks corners.npy --patch 7x7", "No mask holds all of the patch of 7x7 pixels at row 0, column 0"),
        ("--masks none.npy", "none.npy cannot be read as masks"),
        ("--masks 0", "number of masks must lie in 1..32, but is 0"),
    ],
)
def test_mistakes_are_one_line_and_leave_nothing(
    words: str, told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save("corners.npy", corners())
    torch.save(pooled, "code.pth")  # a function, by its name: pickle would import it
    torch.save(nn.Linear(2, 2).state_dict(), "other.pth")
    assert call(monkeypatch, *COVER.split(), "--out", "mine", *words.split()) == 2
    err = capsys.readouterr().err
    assert told in err and err.count("\n") == 1 and not Path("mine").exists()


def test_a_network_of_timm_or_its_absence(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "timm.py").write_text(
        CODE
        + """
def create_model(name, pretrained):
    assert name == "pooled" and not pretrained
    network = pooled()
    network.pretrained_cfg = {"input_size": (1, 8, 8), "mean": (0.4,), "std": (0.2,), "crop_pct": 0.8}
    return network
"""
    )
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(__import__("sys").modules, "timm", raising=False)
    torch.save(pooled_state(), "weights.pth")
    words = (
        "cover timm:{} --out mine --classes 10 --channels 1 --at-once 8 --masks 2 --weights weights.pth --device cpu"
    )
    assert call(monkeypatch, *words.format("pooled").split()) == 0
    card = json.loads((folder / "mine" / "config.json").read_text())
    assert card["framing"]["resize"] == 10 and card["scorer"]["network"]["fill"] == [0.4]
    assert call(monkeypatch, *words.format("other").split()) == 2
    assert "timm cannot make 'other'" in capsys.readouterr().err
    monkeypatch.delitem(__import__("sys").modules, "timm", raising=False)


def pooled_state() -> dict[str, Tensor]:
    layers = nn.Conv2d(1, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10)
    return nn.Sequential(*layers).state_dict()
