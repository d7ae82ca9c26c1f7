"""Everything that is installed for the tests has hashes, and the bill of materials has every part."""

import re

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from bagcert.shipped import WEIGHTS_SHA256
from supply.hashes import FILE, hashes_on
from supply.installed import OURS, asked_by
from supply.sbom import bill

LOCKED = FILE.read_text(encoding="utf-8").replace("\\\n", " ")


def named_by_us(extras: set[str]) -> set[str]:
    """What pyproject.toml names, with these extras and those that they name."""
    texts = [text for extra in ("", *extras) for text in asked_by(OURS, extra, None)]
    asked = [Requirement(text) for text in texts]
    inner = {extra for each in asked if each.name == OURS for extra in each.extras}
    names: set[str] = {canonicalize_name(each.name) for each in asked if each.name != OURS}
    return names | (named_by_us(inner) if inner else set())


def test_everything_that_the_tests_need_is_pinned_with_hashes() -> None:
    lines = [line.split() for line in LOCKED.splitlines() if not line.startswith("#")]
    names = [words[0].partition("==")[0] for words in lines]
    assert len(set(names)) == len(names)
    assert named_by_us({"all", "dev"}) <= set(names), "run python -m supply.hashes"
    for pinned, *hashes in lines:
        assert re.fullmatch(r"[a-z0-9-]+==[0-9a-z.]+(\+cpu)?", pinned)
        assert hashes and all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", each) for each in hashes)


def test_only_files_of_the_version_count() -> None:
    files = ("a_b-1.0-py3-none-any.whl", "a_b-1.0.tar.gz", "a_b-1.0.1-py3-none-any.whl", "a-b-1.0.exe")
    page = "".join(f'<a href="../{name}#sha256={place}{"0" * 63}">{name}</a>\n' for place, name in enumerate(files))
    assert hashes_on(page, Version("1.0")) == ["0" * 64, "1" + "0" * 63]


def test_the_bill_of_materials_names_packages_and_weights() -> None:
    made = bill()
    refs = [part["bom-ref"] for part in made["components"]]
    assert len(set(refs)) == len(refs)
    names = {part["name"] for part in made["components"]}
    assert {"torch", "numpy", "fastapi", "onnxruntime", *WEIGHTS_SHA256} <= names
    assert not names & {"pytest", "ruff", "mypy"}, "what develops it is not part of it"
    assert {link["ref"] for link in made["dependencies"]} <= set(refs)
    assert {ref for link in made["dependencies"] for ref in link["dependsOn"]} <= set(refs)
    assert bill() == made
