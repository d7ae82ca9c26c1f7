"""Which generated images are meant, by name and content."""

from pathlib import Path

import pytest

from bagcert.data.cifar10 import CLASSES
from bagcert.files import read_json, write_json
from studies.taught import cifake
from studies.taught.cifake import FACTS, digest, number_of
from tests.studies.calling import call


def test_every_image_of_the_source_is_meant_or_left_out() -> None:
    facts = read_json(FACTS)
    assert tuple(facts["classes"]) == CLASSES
    for each in facts["classes"].values():
        left_out = each["left_out"]
        assert each["images"] + len(set(left_out)) == 5000 == each["images"] + len(left_out)
        assert all(1000 <= number < 6000 for number in left_out)
    assert sum(each["images"] for each in facts["classes"].values()) == 49_236


def test_a_folder_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = [tmp_path / "cat" / name for name in ("5001 (4).jpg", "1002 (4).jpg")]
    paths[0].parent.mkdir()
    for path in paths:
        path.write_bytes(path.name.encode())
    assert [number_of(path) for path in paths] == [5001, 1002] and digest(paths) == digest(reversed(paths))
    facts = {"source": "there", "classes": {"cat": {"images": 2, "sha256": digest(paths), "left_out": [1003]}}}
    write_json(tmp_path / "facts.json", facts)
    monkeypatch.setattr(cifake, "FACTS", tmp_path / "facts.json")
    assert call(monkeypatch, cifake.cifake, str(tmp_path)) == 0
    assert capsys.readouterr().out == "2 images, as in facts.json\n"
    (tmp_path / "cat" / "1003 (4).jpg").write_bytes(b"")
    assert call(monkeypatch, cifake.cifake, str(tmp_path)) == 2
    assert "1 images of cat resemble test images" in capsys.readouterr().err
    (tmp_path / "cat" / "1003 (4).jpg").unlink()
    paths[0].write_bytes(b"other")
    assert call(monkeypatch, cifake.cifake, str(tmp_path)) == 2
    assert "are not the 2 that facts.json means. Take them from there." in capsys.readouterr().err
