"""Models from the Hub and to it: one commit, two files, checked by digest; the cache alone if offline."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml  # type: ignore[import-untyped]
from huggingface_hub import constants
from PIL import Image
from torch import nn

import bagcert
from bagcert.errors import UsageError
from bagcert.files import read_json, write_json
from bagcert.hub import read_reference
from bagcert.publishing import contents, push
from bagcert.rows.certified import read_rows
from bagcert.rows.header import own_data
from tests.cli.calling import call
from tests.hub.local_hub import LocalHub
from tests.rows.digit_runs import save_digit_run

REPOSITORY = "someone/digits"
# A remark of huggingface_hub's own HTTP library on how it is called.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = save_digit_run(tmp_path / "run")
    card = read_json(folder / "config.json")
    validation = {"clean": 0.9, "certified": 0.5, "images": 100}
    data = {"name": "/home/someone/secret/letters", "digest": "d" * 64}
    facts = {"data": data, "validation": validation, "command": "bagcert train --data /home/someone/secret/letters"}
    write_json(folder / "config.json", {**card, **facts})
    return folder


def test_a_reference_is_an_owner_a_name_and_a_revision() -> None:
    assert read_reference("hf-hub:a/b") == ("a/b", "main")
    assert read_reference("hf-hub:a-1/b.c_2@v1.0") == ("a-1/b.c_2", "v1.0")
    names = ("", "b", "a/b@", "a/b/c", "../b", "a/b@x y", "a/..", "a/b@../x")
    for wrong in (f"hf-hub:{name}" for name in names):
        with pytest.raises(UsageError, match="Write hf-hub:owner/name or hf-hub:owner/name@revision"):
            bagcert.load(wrong)


def test_what_is_pushed_is_loaded_at_its_commit(
    run: Path, local_hub: LocalHub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "push", str(run), REPOSITORY, "--license", "mit") == 0
    told = capsys.readouterr().out.strip()
    commit, files = local_hub.files(REPOSITORY) or ("", {})
    assert told == f"hf-hub:{REPOSITORY}@{commit}" and len(commit) == 40
    assert sorted(files) == ["README.md", "config.json", "weights.safetensors"]
    loaded, own = bagcert.load(told), bagcert.load(run)
    assert capsys.readouterr().err == "", "a commit needs no words"
    assert repr(loaded).startswith(f"Defense({told}, every-region, 1x1 of 8x8")
    for name, value in own.scorer.state_dict().items():
        assert torch.equal(value, loaded.scorer.state_dict()[name])
    local_hub.commit(REPOSITORY, {"README.md": b"moved on"})
    assert bagcert.load(f"hf-hub:{REPOSITORY}").name != told
    moved, _ = local_hub.files(REPOSITORY) or ("", {})
    said = capsys.readouterr().err.splitlines()[-1]
    assert said == f"hf-hub:{REPOSITORY}@main is hf-hub:{REPOSITORY}@{moved}"
    assert bagcert.load(told).name == told, "the commit stays what it was"
    fetched = {each.rpartition("/")[2] for each in local_hub.asked if "/resolve/" in each}
    assert fetched == {"config.json", "weights.safetensors"}, "nothing else is asked for"


def test_commands_take_models_of_the_hub(
    run: Path,
    local_hub: LocalHub,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    name = f"hf-hub:{REPOSITORY}@{push(run, REPOSITORY)}"
    Image.new("L", (8, 8)).save(tmp_path / "zero.png")
    assert call(monkeypatch, "predict", name, str(tmp_path / "zero.png"), "--json") == 0
    (answer,) = json.loads(capsys.readouterr().out)["answers"]
    assert answer["name"] == bagcert.load(run)(tmp_path / "zero.png").name
    words = ("certify", f"hf-hub:{REPOSITORY}", "--data", "digits", "--limit", "5")
    assert call(monkeypatch, *words, "--out", str(tmp_path / "rows.jsonl")) == 0
    assert read_rows(tmp_path / "rows.jsonl").model == name, "rows name the commit"
    capsys.readouterr()
    assert call(monkeypatch, *words, "--rule", "two-mask", "--false-alerts", "1%") == 2
    assert "what is cached of the Hub is not changed. Give one, as in --rule two-mask:400" in capsys.readouterr().err


def test_offline_the_cache_answers(
    run: Path, local_hub: LocalHub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    commit = push(run, REPOSITORY)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(UsageError, match=r"someone/digits@main is not in the local cache, and the Hub cannot be asked"):
        bagcert.load(f"hf-hub:{REPOSITORY}")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    bagcert.load(f"hf-hub:{REPOSITORY}")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    asked = len(local_hub.asked)
    for name in (f"hf-hub:{REPOSITORY}", f"hf-hub:{REPOSITORY}@{commit}"):
        assert bagcert.load(name).name == f"hf-hub:{REPOSITORY}@{commit}"
    assert len(local_hub.asked) == asked


@pytest.mark.slow
def test_a_process_takes_endpoint_cache_and_offline_from_the_environment(
    run: Path, local_hub: LocalHub, tmp_path: Path
) -> None:
    push(run, REPOSITORY)
    Image.new("L", (8, 8)).save(tmp_path / "zero.png")
    command = [sys.executable, "-m", "bagcert", "predict", f"hf-hub:{REPOSITORY}", str(tmp_path / "zero.png"), "--csv"]
    known = {**os.environ, "HF_ENDPOINT": local_hub.url, "HF_HOME": str(tmp_path / "home")}
    asked = len(local_hub.asked)
    told = subprocess.run(command, env=known, capture_output=True, text=True, check=True)
    assert len(local_hub.asked) > asked and f"hf-hub:{REPOSITORY}@main is hf-hub:" in told.stderr
    asked = len(local_hub.asked)
    offline = subprocess.run(command, env={**known, "HF_HUB_OFFLINE": "1"}, capture_output=True, text=True, check=True)
    assert offline.stdout == told.stdout and len(local_hub.asked) == asked


def test_forged_weights_are_refused(run: Path, local_hub: LocalHub) -> None:
    push(run, REPOSITORY)
    local_hub.commit(REPOSITORY, {"weights.safetensors": b"x" * 1000})
    with pytest.raises(UsageError, match=r"do not have the SHA-256 in config\.json"):
        bagcert.load(f"hf-hub:{REPOSITORY}")


def test_a_card_of_the_hub_chooses_no_folder_of_this_machine(run: Path, local_hub: LocalHub, tmp_path: Path) -> None:
    files = contents(run, REPOSITORY, None)
    card = json.loads(files["config.json"])
    local_hub.commit(
        REPOSITORY, {**files, "config.json": json.dumps({**card, "data": {"name": str(tmp_path)}}).encode()}
    )
    assert own_data(bagcert.load(f"hf-hub:{REPOSITORY}")) is None
    known = json.dumps({**card, "data": {"name": "digits"}}).encode()
    local_hub.commit(REPOSITORY, {"config.json": known})
    assert own_data(bagcert.load(f"hf-hub:{REPOSITORY}")) == "digits"


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("nobody/nothing", "The Hub has no model 'nobody/nothing', or it is private. Check the name, or log in"),
        (f"{REPOSITORY}@v9", "someone/digits has no revision 'v9'. Name a branch, a tag or a whole commit."),
        ("other/text", r"other/text@main is no model of bagcert: it lacks config.json or weights.safetensors."),
    ],
)
def test_what_the_hub_lacks_is_one_line(run: Path, local_hub: LocalHub, name: str, told: str) -> None:
    push(run, REPOSITORY)
    local_hub.commit("other/text", {"model.bin": b"a pickle"})
    with pytest.raises(UsageError) as error:
        bagcert.load(f"hf-hub:{name}")
    assert str(error.value).startswith(told) and "\n" not in str(error.value)


def test_what_cannot_be_pushed_is_one_line(
    run: Path, local_hub: LocalHub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="is written owner/name, but this is 'digits'"):
        push(run, "digits")
    own = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 2, 1)).eval()
    bagcert.defend(own, 12, ("cat", "dog"), "2x2").save(tmp_path / "own")
    with pytest.raises(UsageError, match="a network of your own, whose code no card holds: nobody could load it"):
        push(tmp_path / "own", REPOSITORY)
    files = {path.name: path.read_bytes() for path in (tmp_path / "own").iterdir()}
    local_hub.commit("other/own", files)  # by other means: its card names no code, and none is imported
    with pytest.raises(UsageError, match=r"Hand it over: load\(folder, network=...\)"):
        bagcert.load("hf-hub:other/own")
    assert len(bagcert.load("hf-hub:other/own", network=own).classes) == 2
    local_hub.asked.clear()
    (tmp_path / "half").mkdir()
    with pytest.raises(UsageError, match=r"holds no finished run"):
        push(tmp_path / "half", REPOSITORY)
    assert local_hub.asked == [], "refused before anything is sent"
    monkeypatch.setenv("HF_TOKEN", "wrong")
    with pytest.raises(UsageError, match=r"The Hub refuses someone/digits@main \(.*\)\. Log in by `hf auth login`"):
        push(run, REPOSITORY)
    assert list(local_hub.repositories) == ["other/own"]


def test_without_the_package_its_name_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bagcert.errors.find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"needs huggingface_hub\. Run: pip install huggingface_hub"):
        bagcert.load("hf-hub:a/b")


def test_the_model_card_is_metadata_and_a_page(run: Path) -> None:
    files = contents(run, REPOSITORY, "mit")
    _, head, page = files["README.md"].decode().split("---\n", 2)
    told = yaml.safe_load(head)
    assert (told["license"], told["library_name"], told["pipeline_tag"]) == ("mit", "bagcert", "image-classification")
    (entry,) = told["model-index"]
    values = [metric["value"] for result in entry["results"] for metric in result["metrics"]]
    assert entry["name"] == "digits" and sorted(values) == [0.5, 0.9] and "datasets" not in told
    assert "| 1x1 | every-region | validation | 90.00 | 50.00 |" in page
    assert f'bagcert.load("hf-hub:{REPOSITORY}")' in page
    assert not any(b"secret" in content for content in files.values()), "no paths of this machine"
    assert "bagcert train --data letters" in page


def test_the_model_card_of_a_shipped_model_has_all_its_rows() -> None:
    folder = Path(bagcert.__file__).parent / "models" / "cifar10-votes"
    files = contents(folder, "someone/votes", None)
    assert sorted(files) == ["README.md", "config.json", "rows.jsonl.gz", "rows.meta.json", "weights.safetensors"]
    told = yaml.safe_load(files["README.md"].decode().split("---\n", 2)[1])
    assert told["datasets"] == ["uoft-cs/cifar10"]
    (entry,) = told["model-index"]
    metrics = [metric for result in entry["results"] for metric in result["metrics"]]
    rows = read_json(folder / "config.json")["test"]
    assert len(metrics) == 2 * len(rows)
    own = {metric["name"]: metric["value"] for metric in metrics}
    row = rows[0]
    assert own[f"certified accuracy, {row['patch']} patch, {row['rule']}"] == row["certified"]
