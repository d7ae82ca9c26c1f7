"""The footprints of ImageNet networks against NaN: some placements here, all of them by the benchmark."""

import json
from pathlib import Path

import pytest
import typer

from bagcert.scorers.residual import IMAGENET_KERNELS
from benchmarks import footprints
from benchmarks.footprints import RESULTS, main


def test_some_placements(tmp_path: Path) -> None:
    main(every=9_000, out=tmp_path / "found.json")
    found = json.loads((tmp_path / "found.json").read_text(encoding="utf-8"))["receptive_fields"]
    assert {facts["placements"] for facts in found.values()} == {5}
    assert {facts["wrong"] for facts in found.values()} == {0}


def test_a_footprint_that_is_too_small_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(footprints, "reached_outputs", lambda network, pixels, channels: ~pixels[:, ::4, ::4])
    with pytest.raises(typer.Exit) as ended:
        main(every=20_000, out=tmp_path / "found.json")
    assert ended.value.exit_code == 1


def test_what_is_stored_tried_every_placement_and_the_page_says_so() -> None:
    page = (Path(__file__).parents[2] / "docs" / "imagenet.md").read_text(encoding="utf-8")
    found = json.loads(RESULTS.read_text(encoding="utf-8"))["receptive_fields"]
    assert list(found) == [str(field) for field in IMAGENET_KERNELS]
    for field, facts in found.items():
        assert (facts["placements"], facts["wrong"]) == ((224 - 32 + 1) ** 2, 0)
        assert f"| {field} | {facts['placements']:,} | 0 | {facts['smallest']} to {facts['largest']} |" in page
