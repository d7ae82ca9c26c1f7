"""What stands twice around the code says the same: the version, the supported versions, how a container runs."""

import re
from pathlib import Path

from bagcert.version import __version__

ROOT = Path(__file__).parents[1]
WORKFLOWS = ROOT / ".github" / "workflows"


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_the_citation_names_this_version() -> None:
    assert f"\nversion: {__version__}\n" in text("CITATION.cff")


def test_the_versions_that_are_tested_are_those_that_are_supported() -> None:
    tested = re.findall(r'python: "([\d.]+)", torch: "([\d.]+)"', text(".github/workflows/tests.yml"))
    project = text("pyproject.toml")
    assert [python for python, _ in tested] == re.findall(r"Python :: (3\.\d+)\"", project)
    oldest, usual, newest = (torch for _, torch in tested)
    assert f'"torch>={oldest.removesuffix(".0")}"' in project
    assert f"torch=={usual}\n" in text("constraints.txt")
    assert f"compat-{tested[0][0]}-{oldest} compat-{tested[-1][0]}-{newest}" in text("Makefile")


def test_a_container_runs_without_root_and_says_whether_it_is_well() -> None:
    last = text("Dockerfile").split("\nFROM ")[-1]
    assert last.index("\nUSER bagcert") < last.index("\nENTRYPOINT")
    assert "\nHEALTHCHECK" in last and "/health" in last


def test_what_takes_longer_is_run_as_well() -> None:
    """The tour among it: tests marked `full`, which a plain `pytest` leaves out."""
    assert all("make full\n" in text(name) for name in (".github/workflows/tests.yml", ".ci/run"))


def test_workflows_run_actions_of_known_bytes_alone() -> None:
    """A tag can be moved to other code, the hash of a commit cannot."""
    used = [line for path in WORKFLOWS.glob("*.yml") for line in re.findall(r"uses: (.*)", path.read_text("utf-8"))]
    assert used
    assert [line for line in used if not re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line)] == []
