"""The comparison says what rows, cards and papers say, and what is missing."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from bagcert.cli.main import COMMANDS, command
from bagcert.defense import Defense
from bagcert.errors import UsageError
from bagcert.rows.format import AttackRecord, Evaluation, meta_path, read_meta
from bagcert.rules import read_scores
from bagcert.scorers.ablation import AblationConfig
from bagcert.stored_models import card
from studies.common.commands import listed
from studies.common.results import RESULTS
from studies.common.tables import put_table
from studies.rivals import tables
from studies.rivals.catalog import DEFENSES
from studies.rivals.costs import read_cost
from studies.rivals.figure import draw_comparison, papers
from studies.rivals.pages import LEADERBOARD, UNCHECKED, write_page
from studies.rivals.papers import PAPERS
from studies.rivals.plan import MAIN_PATCH, OURS, PATCHES, RIVALS, attack_path, cost_path, rows_path
from studies.rivals.results import Standing, standings, trained
from studies.rivals.tables import TABLES, filled
from studies.rivals.tie_rules import TIE_RULES, added_by_ties
from tests.rows.forging import edit_meta
from tests.studies.comparison_rows import attacked, fill, fill_cost, fill_rival
from tests.studies.figure_rows import stored

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "comparison.md"


@pytest.fixture
def results(tmp_path: Path) -> Path:
    fill(tmp_path)
    return tmp_path


def line_of(name: str, rule: str, found: list[Standing]) -> tuple[str, ...]:
    return next(line for line in tables.accuracy_table(found) if line[:2] == (f"`{name}`", rule))


def test_the_page_is_that_of_the_rows() -> None:
    text = PAGE.read_text(encoding="utf-8")
    found = standings(ROOT / RESULTS)
    assert filled(text, found) == text, "run python -m studies rivals compare --out docs"
    changed = text.replace("47.8 / 30.3", "47.8 / 31.3")
    assert changed != text and filled(changed, found) == text
    for name in TABLES:
        assert text.count(f"<!-- {name} -->") == text.count(f"<!-- /{name} -->") == 1


def test_the_leaderboard_lists_rows_without_scores() -> None:
    text = (ROOT / "docs" / LEADERBOARD).read_text(encoding="utf-8")
    listed = tables.unchecked_table(standings(ROOT / RESULTS))
    assert put_table(text, UNCHECKED, listed) == text, "run python -m studies rivals compare --out docs"
    assert [line[0].strip("`") for line in listed[1:]][-1] == "ibp"  # of fewer images
    assert {rival.name for rival in RIVALS} < {line[0].strip("`") for line in listed[1:]}


def test_the_page_names_what_exists() -> None:
    text = PAGE.read_text(encoding="utf-8")
    commands = {name: command(name) for name in COMMANDS}
    assert all(name in commands for name in re.findall(r"`bagcert ([a-z]+)", text))
    for package, name in re.findall(r"python -m (benchmarks|studies)[. ]([a-z0-9_]+)", text):
        assert name in listed(ROOT / package)
    assert all((PAGE.parent / picture).exists() for picture in re.findall(r"\]\((figures/[^)]*)\)", text))


def test_recipes_and_changelog_name_the_numbers_of_the_rows() -> None:
    changes = " ".join((ROOT / "CHANGELOG.md").read_text().split())
    recipes = {rival.name: ROOT / "src" / "bagcert" / "recipes" / f"{rival.entry.recipe}.toml" for rival in RIVALS}
    run = [standing for standing in standings(RESULTS) if not standing.ours and standing.results]
    assert run
    for standing in run:
        shares = standing.results[Evaluation(MAIN_PATCH, standing.rules[0])]
        numbers = f"{100 * shares.clean:.2f} / {100 * shares.certified:.2f}"
        recipe = recipes[standing.name].read_text()
        assert numbers in recipe and numbers in changes, standing.name
        assert standing.cost is not None and f"{standing.cost.training.seconds:.0f} s" in recipe, standing.name


def test_ours_are_those_of_the_cards() -> None:
    for standing in standings(ROOT / RESULTS):
        for row in card(standing.name)["test"] if standing.ours else []:
            shares = standing.at(row["rule"], row["patch"])
            if row["patch"] in PATCHES and row["rule"] in OURS[standing.name]:
                assert shares is not None
                assert (round(shares.clean, 6), round(shares.certified, 6)) == (row["clean"], row["certified"])


def test_rivals_are_those_of_the_catalog() -> None:
    for rival in RIVALS:
        assert set(rival.rules) <= set(DEFENSES[rival.name].rules) and rival.rules[0] == DEFENSES[rival.name].rules[0]
        evaluations = [entry for part in rival.parts.values() for entry in part]
        assert len(evaluations) == len(set(evaluations)) == len(PATCHES) * len(rival.rules)
    assert {rival.name for rival in RIVALS} == DEFENSES.keys() - {"two-mask"} == PAPERS.keys()


def test_what_is_not_run_says_so(tmp_path: Path) -> None:
    found = standings(tmp_path)
    for name in ("ds-block", "ibp"):
        line = next(line for line in tables.accuracy_table(found) if line[0] == f"`{name}`")
        assert line[2] == "not run yet" and not any(line[3:])
    assert next(line for line in tables.cost_table(found) if line[0] == "`ds-column`")[1] == "not run yet"
    assert next(line for line in tables.paper_table(found) if line[0] == "`ibp`")[2:5:2] == ("not run yet",) * 2


def test_numbers_are_those_of_the_rows(results: Path) -> None:
    found = standings(results)
    assert line_of("ds-column", "largest-region", found)[2:] == (
        *["50.00 / 25.00 (200 images)"] * 5,
        "40.00 ≤ 50.00 (100)",
    )
    assert line_of("ds-column", "two-mask", found)[2:] == (*["50.00 / 35.00 (200 images)"] * 5, "–")
    assert line_of("ibp", "unanimous", found)[2] == "78.00 / 39.00 (200 images)"
    costs = {line[0].strip("`"): line[1:] for line in tables.cost_table(found)}
    assert costs["ds-block"] == (
        *("32", "35.6", "11.2 M", "4.5 (NVIDIA H200), from 500", "788 (V100, by Metzen & Yatsura)"),
        *("32 epochs, 90 s (NVIDIA H200)", "7 of 500 (lower index wins)"),
    )
    assert costs["mask-ds"][5].endswith(" beside 2 others, that of `ds-column`") and costs["ibp"][6] == "–"


def test_broken_proofs_are_shown(results: Path) -> None:
    path = results / "rivals" / "ibp-attack.jsonl.gz"
    records = [
        AttackRecord(MAIN_PATCH, "unanimous", image, 3, 3, True, after, None) for image, after in ((0, 4), (1, 3))
    ]
    stored(path, read_meta(path).header | {"images": 2}, records)
    assert line_of("ibp", "unanimous", standings(results))[-1] == "100.00 ≤ 50.00 (2, 1 broken proofs)"


def test_rows_and_costs_of_other_weights_are_left_out(results: Path) -> None:
    fill_cost(results, "mask-bn", "other", 1.0)
    fill_cost(results, "cifar10-small", "other", 1.0)
    names = {standing.name: standing for standing in standings(results)}
    assert names["mask-bn"].cost is None and names["mask-bn"].results
    assert names["cifar10-small"].cost is None
    fill_cost(results, "cifar10-small", card("cifar10-small")["weights_sha256"], 1.0)
    first, _, ours = standings(results)[:3]
    assert (first.name, ours.name) == ("cifar10", "cifar10-small")
    assert first.cost is None and ours.cost is not None and ours.cost.seconds == 1.0
    edit_meta(rows_path(results, "ibp-2x2"), lambda meta: meta.update(weights_sha256="other"))
    assert line_of("ibp", "unanimous", standings(results))[3] == "not run yet"


def test_seconds_of_a_cpu_are_not_shown(tmp_path: Path) -> None:
    rival = RIVALS[0]
    fill_rival(tmp_path, rival, device="CPU (x86_64)")
    line = next(line for line in tables.cost_table(standings(tmp_path)) if line[0] == f"`{rival.name}`")
    assert line[4] == "not measured on a GPU"


def test_every_line_of_a_table_has_all_its_cells(results: Path) -> None:
    (results / "nothing").mkdir()
    for found in (standings(results), standings(results / "nothing")):
        for table in TABLES.values():
            heads, *lines = table(found)
            assert lines and all(len(line) == len(heads) for line in lines)


def test_hearsay_is_no_figure(results: Path) -> None:
    """Only three papers' figures for 5x5 patches have been read; all others say so, in the table and in the figure."""
    found = standings(results)
    said = {line[0].strip("`"): line[3] for line in tables.paper_table(found)[1:]}
    assert {name: words for name, words in said.items() if words != "not confirmed"} == {
        "ds-column": "83.8 / 57.6",
        "ibp": "47.8 / 30.3",
        "bagcert": "86 / 60",
    }
    assert papers(found) == [("ds-column", (83.8, 57.6)), ("ibp", (47.8, 30.3)), ("bagcert", (86.0, 60.0))]


def test_the_figure_shows_all_that_is_there(results: Path) -> None:
    drawn = draw_comparison(standings(results))
    assert drawn is not None and drawn.png.startswith(b"\x89PNG")
    for name in (*OURS, *(rival.name for rival in RIVALS)):
        assert f">{name}" in drawn.svg
    (results / "nothing").mkdir()
    ours = draw_comparison(standings(results / "nothing"))
    assert ours is not None and ">ibp" not in ours.svg and ">cifar10-small" in ours.svg
    assert draw_comparison([Standing("ibp", False, ("unanimous",))]) is None


def test_wrong_costs_are_refused(tmp_path: Path) -> None:
    fill_cost(tmp_path, "ibp", "0", 1.0)
    path = cost_path(tmp_path, "ibp")
    table = json.loads(path.read_text())
    assert read_cost(path).ties is None and read_cost(path).training.seconds == 90.0
    whole = "Measure all costs of the defense in .* again: .*'{}'"
    above = "again: Seconds, images, passes, flops and parameters must be finite and above 0, .*, but they are"
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"seconds": "1"}, "Measure all costs of the defense in .* again: The value of costs.seconds must be a number"),
        ({"speed": 1}, "Unknown costs key 'speed'"),
        ({"training": {}}, whole.format("recipe")),
        ({"ties": {"added": 1}}, whole.format("rule")),
        ({"passes": None}, whole.format("passes")),
        ({"seconds": float("nan")}, "again: The value of costs.seconds must be a finite number"),
        *(({"seconds": seconds}, above) for seconds in (0, -1.0)),
        *(({key: 0}, above) for key in ("images", "passes", "flops", "parameters")),
        (
            {"training": table["training"] | {"beside": -1}},
            "Measure all costs .* again: .* and other costs at least 0, but they are .* and .*-1",
        ),
    ]
    for change, words in wrong:
        path.write_text(json.dumps(table | change))
        with pytest.raises(UsageError, match=words):
            read_cost(path)


def both(path: Path) -> list[Path]:
    """A file with what stands beside it, if it has something there."""
    return [path, meta_path(path)] if ".jsonl" in path.name else [path]


def test_files_of_something_else_are_refused(results: Path) -> None:
    """Two rivals share their weights, so that these do not tell whose rows a file has."""
    rivals = {rival.name: rival for rival in RIVALS}
    column, row, masked, ibp = (rivals[name] for name in ("ds-column", "ds-row", "mask-ds", "ibp"))
    for path_of in (attack_path, cost_path, rows_path):
        mine, theirs = (both(path_of(results, rival.name)) for rival in (masked, column))
        kept = [path.read_bytes() for path in mine]
        for path, other in zip(mine, theirs, strict=True):
            path.write_bytes(other.read_bytes())
        with pytest.raises(
            UsageError, match=r"The (model|defense) in .* must be 'mask-ds', but is 'ds-column'\. Files"
        ):
            trained(results, masked)
        for path, content in zip(mine, kept, strict=True):
            path.write_bytes(content)
    header = read_meta(attack_path(results, "ibp")).header
    others: list[tuple[dict[str, Any], str]] = [
        ({"split": "train"}, "split"),
        ({"patch": "2x2"}, "patch"),
        ({"rule": "masked"}, "rule"),
        ({"data": {"name": "digits"}}, "name"),
        ({"data": None}, "name"),
    ]
    for change, key in others:
        forged = header | change
        stored(attack_path(results, "ibp"), forged, attacked(forged["rule"], forged["patch"]))
        with pytest.raises(UsageError, match=rf"The {key} in .*ibp-attack.jsonl.gz must be '.*', but is"):
            trained(results, ibp)
    stored(attack_path(results, "ibp"), header | {"weights_sha256": None}, attacked(header["rule"]))
    with pytest.raises(UsageError, match=r"does not name the digest of its weights\. Make it with python -m"):
        trained(results, ibp)
    large = AttackRecord(MAIN_PATCH, header["rule"], 0, 3, 3, True, 2**70, None)
    for images, records in ((0, []), (1, [large])):
        stored(attack_path(results, "ibp"), header | {"images": images}, records)
        with pytest.raises(UsageError, match=r"ibp-attack.* (does not hold rows of an attack|do not fit into 64 bits)"):
            trained(results, ibp)
    damaged: list[dict[str, Any]] = [
        {"images": None},
        {"images": 0},
        {"evaluations": ["5x5"]},
        {"evaluations": [{"patch": "5x5"}]},
    ]
    for change in damaged:
        stored(rows_path(results, "ds-row"), header | {"evaluations": [], "kind": "certificates"} | change, [])
        with pytest.raises(UsageError, match=r"ds-row.jsonl.xz does not hold rows of an evaluation \("):
            trained(results, row)


def test_folders_that_are_none_are_refused(results: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"There is no folder .*nowhere of stored rows\. Give it by --results\."):
        standings(tmp_path / "nowhere")
    page = tmp_path / "docs" / "comparison.md"
    page.parent.mkdir()
    page.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(
        UsageError, match=r"comparison.md cannot be read as text \(.*\)\. Move it away for a new page\."
    ):
        write_page(page.parent, standings(results))
    page.write_text("# My page\n")
    with pytest.raises(UsageError, match=r"comparison.md has no <!-- accuracies -->\. Put it where"):
        write_page(page.parent, standings(results))
    assert page.read_text() == "# My page\n"


def tied(predicted: int, rivals: tuple[int, ...], gap: int) -> torch.Tensor:
    """Votes of 32 columns: 24 for the class, 24 - gap for each rival."""
    scores = torch.zeros(10, 1, 32, dtype=torch.int32)
    scores[predicted, 0, :24] = 1
    for rival in rivals:
        scores[rival, 0, : 24 - gap] = 1
    return scores


def test_ties_are_those_of_derandomized_smoothing() -> None:
    """A 5x5 patch meets 8 columns of 4: a gap of 16 is a tie, which the lower index wins."""
    defense = Defense.build(
        AblationConfig(width=2, blocks=(1,)).build((32, 32), (0.0,), (1.0,)).eval(),
        "largest-region",
        "5x5",
        tuple("0123456789"),
    )
    scores = torch.stack([tied(3, (7,), 16), tied(7, (3,), 16), tied(3, (2, 7), 16), tied(3, (7,), 17)])
    found = read_scores(scores, (0, 1))
    assert defense.certify_integers(found).certified.tolist() == [False, False, False, True]
    _, lower = TIE_RULES["ds-column"]
    assert added_by_ties(defense, found, lower).tolist() == [True, False, False, False]
    _, every = TIE_RULES["clipped-bagnet"]
    assert added_by_ties(defense, found, every).tolist() == [True, True, True, False]


@pytest.mark.parametrize("rule", ["every-region", "masked"])
def test_ties_are_where_the_lead_is_zero(rule: str) -> None:
    """By every tie rule; random votes have many ties."""
    scorer = AblationConfig(width=2, blocks=(1,)).build((32, 32), (0.0,), (1.0,)).eval()
    defense = Defense.build(scorer, rule, "5x5", tuple("0123456789"))
    generator = torch.Generator().manual_seed(0)
    likely = torch.full((400, 10, 1, 1), 0.2)
    likely[torch.arange(400), torch.randint(10, (400,), generator=generator)] = 0.8
    votes = (torch.rand(400, 10, 1, 32, generator=generator) < likely).to(torch.int32)
    found = read_scores(votes, (0, 1))
    lead = defense.certify_integers(found).lead
    assert lead is not None
    added = {words: added_by_ties(defense, found, harmless) for words, harmless in TIE_RULES.values()}
    assert torch.equal(added["a tie counts as robust"], lead == 0) and int((lead == 0).sum()) > 10
    either = added["lower index wins"].int() + added["higher index wins"].int()
    assert int(either.max()) == 1 and 0 < int(either.sum()) <= int((lead == 0).sum())
    assert bool((either <= (lead == 0).int()).all())
