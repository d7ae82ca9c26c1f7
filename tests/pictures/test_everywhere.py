"""The same file gets the same answer from every part of the package."""

import io
import json
import re
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from PIL import Image

from bagcert.config import write_config
from bagcert.data import FolderDataset, FolderSettings
from bagcert.defense import load
from bagcert.onnx.export import export_defense
from bagcert.onnx.guard import GuardBand
from bagcert.pictures import Framing
from bagcert.rows.certified import read_rows
from bagcert.scorers.residual import ResidualScorer
from bagcert.training.run import RunFolder, save_run
from tests.cli.calling import call
from tests.onnx.conftest import NAMES, small_defense
from tests.onnx.running import outputs_of
from tests.pictures.odd_pictures import COUNT, write_odd_pictures
from tests.server.conftest import LIMITS, small_client, small_model

DEPLOY = Path(__file__).parents[2] / "docs" / "deploy.md"
FRAMINGS = [
    Framing((12, 12), 12),
    Framing((12, 12), 14, fit="crop", interpolation="bilinear"),
    Framing((12, 12), 12, fit="squash"),
]


def save_small_run(folder: Path, framing: Framing) -> Path:
    scorer = small_defense("heaviside", "two-mask").scorer
    assert isinstance(scorer, ResidualScorer)
    facts = {"classes": list(NAMES), "patch": "2x2", "rule": "two-mask", "framing": write_config(framing)}
    save_run(RunFolder(folder), scorer, scorer.state_dict(), {**facts, "data": {"name": "?", "digest": "?"}})
    return folder


def frame_of_the_docs() -> Any:
    """The function of the snippet, as a reader copies it."""
    block = re.search(r"^import json.*?^def frame.*?^    return .*?\n", DEPLOY.read_text(encoding="utf-8"), re.M | re.S)
    assert block is not None
    names: dict[str, Any] = {}
    exec(block[0], names)
    return names["frame"]


@pytest.mark.parametrize("framing", FRAMINGS, ids=lambda framing: f"{framing.fit}, {framing.interpolation}")
def test_fifty_odd_pictures_get_one_answer_each(
    framing: Framing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = save_small_run(tmp_path / "run", framing)
    files = write_odd_pictures(tmp_path / "pictures" / "cat")
    for number, path in enumerate(files):  # folders need a picture of every class
        files[number] = tmp_path / "pictures" / NAMES[number % 3] / path.name
        files[number].parent.mkdir(exist_ok=True)
        path.rename(files[number])
    defense = load(run)
    assert defense.framing == framing
    answers = defense(files)
    wanted = [answer.to_dict() for answer in answers]
    assert len(wanted) == COUNT and 5 < sum(answer["certified"] for answer in wanted) < COUNT - 5
    assert len({answer["class"] for answer in wanted}) > 1

    def printed(*words: str) -> dict[str, Any]:
        capsys.readouterr()
        assert call(monkeypatch, *words, "--json") == 0
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return found

    predicted = printed("predict", str(run), *map(str, files))["answers"]
    assert predicted == [{"picture": str(path), **answer} for path, answer in zip(files, wanted, strict=True)]

    with small_client(small_model(defense)) as client:
        served: list[dict[str, Any]] = []
        for start in range(0, COUNT, LIMITS.files):
            sent = [("files", ("picture", path.read_bytes())) for path in files[start : start + LIMITS.files]]
            response = client.post("/v1/certify", files=sent)
            assert response.status_code == 200, response.text
            served += response.json()["answers"]
    assert [{**answer, "scores": None} for answer in wanted] == served

    rows_file = tmp_path / "rows.jsonl"
    printed("certify", str(run), "--data", str(tmp_path / "pictures"), "--scores", "--out", str(rows_file))
    (certified,) = read_rows(rows_file).results.values()
    listed = FolderDataset(tmp_path / "pictures", FolderSettings(framing, workers=0)).listings["val"].paths
    order = [files.index(path) for path in listed]
    assert certified.lead is not None and certified.weakest_region is not None
    assert certified.predicted.tolist() == [wanted[number]["class"] for number in order]
    assert certified.certified.tolist() == [wanted[number]["network"]["certified"] for number in order]
    assert certified.lead.tolist() == [wanted[number]["lead"] for number in order]

    graph = export_defense(defense, GuardBand(), {})
    stored = {entry.key: entry.value for entry in onnx.load_from_string(graph.SerializeToString()).metadata_props}
    frame = frame_of_the_docs()
    images = [
        torch.from_numpy(frame(Image.open(io.BytesIO(path.read_bytes())), **json.loads(stored["framing"])).copy())
        for path in files
    ]
    assert torch.equal(torch.stack(images), defense.images(files))
    found = outputs_of(graph, images=torch.stack(images))
    assert found["class"].tolist() == [answer["class"] for answer in wanted]
    assert found["certified"].tolist() == [answer["network"]["certified"] for answer in wanted]
    assert found["lead"].tolist() == [answer["lead"] for answer in wanted]
    assert found["weakest"].tolist() == [list(answer["weakest"].values()) for answer in wanted]


def test_shipped_models_answer_to_their_own_images_as_ever() -> None:
    """A picture of the network's size is its input: the certificate of the pixels, bit for bit."""
    defense = load("cifar10-small")
    levels = torch.randint(256, (4, 3, 32, 32), generator=torch.Generator().manual_seed(3)).byte()
    wanted = defense.certify(levels.float() / 255)
    assert wanted.lead is not None
    answers = defense([Image.fromarray(each.permute(1, 2, 0).numpy()) for each in levels])
    assert [answer.lead for answer in answers] == wanted.lead.tolist()
    assert [answer.predicted for answer in answers] == wanted.predicted.tolist()
    assert all(answer.threat_original == "5x5" and not answer.own.changed for answer in answers)
