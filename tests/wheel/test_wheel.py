"""The wheel is the product: built, installed into a fresh environment, every command run in an empty folder."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tarfile
import urllib.request
import venv
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import pytest
from PIL import Image

from bagcert.files import sha256
from tests.hub.local_hub import running_hub

pytestmark = pytest.mark.full

ROOT = Path(__file__).parents[2]
SHIPPED = ("cifar10", "cifar10-distilled", "cifar10-small", "cifar10-votes")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the source archive and the wheel that is built from it."""
    folder = tmp_path_factory.mktemp("built")
    subprocess.run([sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT], check=True)
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    (found,) = built.glob("*.whl")
    return found


@dataclass(frozen=True)
class Installed:
    """An environment with the wheel, and an empty folder to be in."""

    bin: Path
    here: Path

    @property
    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL"))}
        return kept | {"OMP_NUM_THREADS": "1", "COLUMNS": "160", "NO_COLOR": "1", "TERM": "dumb"}

    def run(self, *command: str) -> str:
        """What a command prints; it must succeed."""
        program = [str(self.bin / command[0]), *command[1:]]
        done = subprocess.run(program, cwd=self.here, env=self.environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """A fresh environment: this package comes from the wheel alone, and what it needs from the present environment."""
    folder = tmp_path_factory.mktemp("fresh")
    venv.create(folder / "venv", with_pip=True)
    fresh = Installed(folder / "venv" / "bin", folder / "here")
    fresh.here.mkdir()
    fresh.run("python", "-m", "pip", "install", "--quiet", "--no-deps", f"bagcert[all] @ {wheel.as_uri()}")
    # An editable install of this package is found by a .pth file in there, which is not followed from here.
    (own,) = (folder / "venv" / "lib").glob("python*/site-packages")
    (own / "needed.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    return fresh


def test_the_package_comes_from_the_wheel(installed: Installed) -> None:
    path = installed.run("python", "-c", "import bagcert; print(bagcert.__file__)").strip()
    assert Path(path).is_relative_to(installed.bin.parent)
    needed = installed.run("python", "-c", "from importlib.metadata import requires; print(requires('bagcert'))")
    for name in ("torch", "onnxruntime", "fastapi", "scikit-learn"):
        assert name in needed


def test_the_wheel_holds_the_product_and_nothing_else(built: Path, wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    kept = {
        path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src" / "bagcert").rglob("*") if path.is_file()
    }
    assert {name for name in names if ".dist-info/" not in name} == {name for name in kept if "__pycache__" not in name}
    assert {"bagcert/py.typed", "bagcert/server/page/index.html", "bagcert/recipes/digits.toml"} <= names
    assert {f"bagcert/models/{model}/weights.safetensors" for model in SHIPPED} <= names
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as file:
        folders = {name.split("/")[1] for name in file.getnames() if name.count("/") > 1}
    assert folders == {"src"}


def test_two_builds_give_the_same_bytes(built: Path, tmp_path: Path) -> None:
    """From another folder, files of another time and mode, in another order: anyone can build what was released."""
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in ("README.md", "pyproject.toml", "LICENSE", ".gitignore"):
        shutil.copyfile(ROOT / name, copy / name)
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "src", copy / "src", ignore=ignored, copy_function=shutil.copyfile)
    for path in copy.rglob("*"):
        os.utime(path, (1e9, 1e9))
        path.chmod(path.stat().st_mode ^ 0o020)
    again = tmp_path / "again"
    subprocess.run([sys.executable, "-m", "build", "--no-isolation", "--outdir", again, copy], check=True)
    digests = [{path.name: sha256(path.read_bytes()) for path in folder.iterdir()} for folder in (built, again)]
    assert digests[0] == digests[1] and len(digests[0]) == 2


def run_data(fresh: Installed) -> None:
    assert "10 classes" in fresh.run("bagcert", "data", "digits")


def run_train(fresh: Installed) -> None:
    short = ("--set", "schedule.epochs=20", "--set", "schedule.warmup_epochs=2")
    fresh.run("bagcert", "train", "digits", *short, "--out", "run")
    assert (fresh.here / "run" / "config.json").exists()


def run_recipes(fresh: Installed) -> None:
    assert "folder-32" in fresh.run("bagcert", "recipes")
    assert "schedule.epochs" in fresh.run("bagcert", "recipes", "folder-32")


def run_models(fresh: Installed) -> None:
    shown = fresh.run("bagcert", "models")
    assert all(model in shown for model in SHIPPED)
    assert "two-mask" in fresh.run("bagcert", "models", "cifar10")


def run_ship(fresh: Installed) -> None:
    fresh.run("bagcert", "ship", "run", "--out", "shipped", "--command", "bagcert train digits")
    assert (fresh.here / "shipped" / "config.json").exists()


def run_predict(fresh: Installed) -> None:
    Image.new("RGB", (90, 60), "gray").save(fresh.here / "picture.png")
    told = fresh.run("bagcert", "predict", "cifar10-small", "picture.png", "--picture", "drawn", "--json")
    (answer,) = json.loads(told)["answers"]
    assert answer["proven"] in (True, False)
    assert any((fresh.here / "drawn").iterdir())


def run_certify(fresh: Installed) -> None:
    told = fresh.run("bagcert", "certify", "shipped", "--limit", "50", "--scores", "--out", "rows.jsonl", "--json")
    (found,) = json.loads(told)["results"]
    assert found["clean_accuracy"] > 0.5


def run_rows(fresh: Installed) -> None:
    for shard in ("1/2", "2/2"):
        fresh.run("bagcert", "certify", "shipped", "--limit", "50", "--scores", "--shard", shard)
    parts = [str(path) for path in (fresh.here / "rows").glob("*-of-2.jsonl")]
    fresh.run("bagcert", "rows", "join", *parts, "--out", "joined.jsonl")
    assert (fresh.here / "joined.jsonl").read_bytes() == (fresh.here / "rows.jsonl").read_bytes()


def run_attack(fresh: Installed) -> None:
    fresh.run("bagcert", "attack", "shipped", "--limit", "4", "--steps", "5", "--out", "attack.jsonl")


def run_verify(fresh: Installed) -> None:
    assert "50" in fresh.run("bagcert", "verify", "rows.jsonl")


def run_report(fresh: Installed) -> None:
    fresh.run("bagcert", "report", "rows.jsonl", "attack.jsonl")
    assert "<svg" in (fresh.here / "report" / "report.html").read_text(encoding="utf-8")


def run_export(fresh: Installed) -> None:
    fresh.run("bagcert", "export", "shipped", "--out", "model.onnx")
    names = "import onnxruntime; print([o.name for o in onnxruntime.InferenceSession('model.onnx').get_outputs()])"
    assert "certified" in fresh.run("python", "-c", names)


def run_audit(fresh: Installed) -> None:
    told = json.loads(fresh.run("bagcert", "audit", "shipped", "--images", "2", "--json"))
    assert told["passed"] and (fresh.here / "audit.html").exists()


def ask(url: str, picture: bytes | None = None) -> bytes:
    """The answer to a plain request, or to a form with one picture."""
    form = b'--x\r\nContent-Disposition: form-data; name="files"; filename="p"\r\n\r\n%b\r\n--x--\r\n'
    headers = {"Content-Type": "multipart/form-data; boundary=x"}
    request = urllib.request.Request(url) if picture is None else urllib.request.Request(url, form % picture, headers)
    with urllib.request.urlopen(request, timeout=120) as response:
        return bytes(response.read())


def run_serve(fresh: Installed) -> None:
    command = [str(fresh.bin / "bagcert"), "serve", "cifar10-small", "--port", "0", "--threads", "1"]
    with subprocess.Popen(command, cwd=fresh.here, env=fresh.environment, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            server.stdout.readline()
            url = server.stdout.readline().strip()
            assert b"<html" in ask(url)
            picture = ask(f"{url}v1/samples/0")
            (answer,) = json.loads(ask(f"{url}v1/certify", picture))["answers"]
            assert answer["certified"] in (True, False)
            server.send_signal(signal.SIGTERM)
            assert server.wait(120) == -signal.SIGTERM, "it ends when told to, and only then"
        finally:
            server.kill()


def run_push(fresh: Installed) -> None:
    with running_hub() as hub:
        known = {"HF_ENDPOINT": hub.url, "HF_HOME": str(fresh.here / "hub"), "HF_TOKEN": "secret"}
        with patch.dict(os.environ, {**known, "HF_HUB_DISABLE_XET": "1"}):
            name = fresh.run("bagcert", "push", "run", "someone/run").strip()
            assert name.startswith("hf-hub:someone/run@")
            assert "validation" in fresh.run("bagcert", "models", name)


CLASSIFIER = """
from torch import nn

def whole():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10)).eval()
"""


def run_cover(fresh: Installed) -> None:
    (fresh.here / "mine.py").write_text(CLASSIFIER, encoding="utf-8")
    shape = ("--size", "8", "--classes", "10", "--patch", "2x2", "--masks", "2", "--channels", "1", "--at-once", "8")
    fresh.run("bagcert", "cover", "mine:whole", *shape, "--device", "cpu", "--out", "covered")
    assert (fresh.here / "covered" / "config.json").exists()


def run_leaderboard(fresh: Installed) -> None:
    fresh.run("bagcert", "leaderboard", "check", ".", "--out", "ranks.md")
    assert "rows" in (fresh.here / "ranks.md").read_text(encoding="utf-8")


def run_demo(fresh: Installed) -> None:
    fresh.run("bagcert", "demo")
    assert (fresh.here / "demo" / "report" / "report.html").exists()


# In the order in which one needs the other.
RUNS: dict[str, Callable[[Installed], None]] = {
    run.__name__.removeprefix("run_"): run
    for run in (
        *(run_data, run_train, run_recipes, run_models, run_ship, run_push, run_predict, run_certify),
        *(
            run_leaderboard,
            run_rows,
            run_attack,
            run_verify,
            run_report,
            run_export,
            run_audit,
            run_cover,
            run_serve,
            run_demo,
        ),
    )
}


def test_every_command_works_in_an_empty_folder(installed: Installed) -> None:
    listed = re.findall(r"^│ ([a-z]+)  ", installed.run("bagcert", "--help").partition("Commands")[2], re.MULTILINE)
    assert listed and set(listed) == RUNS.keys(), "a command is run here exactly if it is listed"
    for run in RUNS.values():
        run(installed)
