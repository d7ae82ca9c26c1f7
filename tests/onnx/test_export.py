"""One graph from pixels to certificates: equal to ours but for last bits, and usable without us."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import bagcert
from bagcert.data import load_dataset
from bagcert.defense import Defense
from bagcert.errors import UsageError
from bagcert.onnx.export import OUTPUTS, export_defense
from bagcert.onnx.guard import GuardBand
from bagcert.onnx.network import Scored, network_model
from bagcert.rules import IntegerScores, read_scores
from bagcert.scorers.ablation import AblationConfig
from bagcert.stored_models import card
from tests.cli.calling import call
from tests.contracts.test_mixed import save_mixed_run
from tests.onnx.conftest import pictures, small_defense
from tests.onnx.running import outputs_of
from tests.onnx.test_rule_graphs import assert_refused, assert_same

pytestmark = pytest.mark.slow

DOCS = Path(__file__).parents[2] / "docs" / "deploy.md"
# Other arithmetic moved logits of the shipped models by up to 2e-4: at most 1 unit of 1/256.
BANDS = {"logits": GuardBand(slack=1), "heaviside": GuardBand(uncertain=1e-3)}


@pytest.mark.parametrize(("step", "rule"), [("heaviside", "every-region"), ("logits", "two-mask")])
def test_the_graph_says_what_the_defense_says(step: str, rule: str, images: Tensor) -> None:
    defense = small_defense(step, rule)
    graph = export_defense(defense, GuardBand(), {})
    plain = outputs_of(graph, images=images)
    assert {len(value) for value in plain.values()} == {len(images)}
    assert {len(value) for value in outputs_of(graph, images=images[:1]).values()} == {1}
    assert_same(plain, defense.certify_integers(read_scores(plain["scores"], defense.scorer.step.bounds)))
    scores = defense.scores(images)
    assert_explained(defense, images, scores, plain)
    guarded = outputs_of(export_defense(defense, BANDS[step], {}), images=images)
    assert_never_contradicted(defense, scores, guarded)
    assert 0 < guarded["certified"].sum() < len(images)


BAD_PIXELS = {
    "NaN": (float("nan"), 1),
    "infinite": (float("inf"), 1),
    "minus infinite": (float("-inf"), 1),
    "negative": (-5.0, 2),
    "barely negative": (-1e-45, 2),
    "a byte": (255.0, 2),
    "barely above one": (float(np.nextafter(np.float32(1), np.float32(2))), 2),
}


@pytest.mark.parametrize("guarded", [False, True])
@pytest.mark.parametrize(("step", "rule"), [("heaviside", "every-region"), ("logits", "two-mask")])
def test_the_graph_refuses_the_images_that_the_defense_refuses(
    step: str, rule: str, guarded: bool, images: Tensor
) -> None:
    """One pixel is enough; the other images keep their answers to the last bit. Pixels at the very bounds are fine."""
    defense = small_defense(step, rule)
    images[0, 0, 0, :3] = torch.tensor([0.0, -0.0, 1.0])
    model = export_defense(defense, BANDS[step] if guarded else GuardBand(), {})
    before = outputs_of(model, images=images)
    assert before["certified"][21] and not before["problem"].any()
    for start in (2, 3):  # image 21 beside the bad ones, and as one of them
        batch, bad = images.clone(), np.arange(start, start + 3 * len(BAD_PIXELS), 3)
        for index, (pixel, _) in zip(bad, BAD_PIXELS.values(), strict=True):
            batch[index, index % 3, index % 12, 5] = pixel
            with pytest.raises(UsageError, match=r"Pixels must lie in 0\.\.1"):
                defense.scores(batch[index : index + 1])
        after = outputs_of(model, images=batch)
        assert_refused({name: value[bad] for name, value in after.items()})
        assert after["problem"][bad].tolist() == [problem for _, problem in BAD_PIXELS.values()]
        for name in before:
            np.testing.assert_array_equal(np.delete(before[name], bad, 0), np.delete(after[name], bad, 0), err_msg=name)


def test_no_bad_image_reaches_the_network(images: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that nothing of it can spill into its neighbors, whatever the network does."""
    scorer = small_defense("logits", "two-mask").scorer
    monkeypatch.setattr(scorer, "integers", lambda given: given)
    images[1, 0, 0, 0] = float("nan")
    problems, seen = Scored(scorer, GuardBand())(images)
    assert problems.nonzero().tolist() == [[1]]
    assert torch.equal(seen, images.index_fill(0, torch.tensor(1), 0.0))


def test_pixels_left_as_bytes_are_refused_whole(images: Tensor) -> None:
    """And where NaN and bytes meet, not finite is said first."""
    images = images * 255
    images[0, 0, 3, 3] = float("nan")
    found = outputs_of(export_defense(small_defense("logits", "two-mask"), GuardBand(), {}), images=images)
    assert_refused(found)
    assert found["problem"].tolist() == [1] + [2] * (len(images) - 1)


def test_ablations_are_exported_too(images: Tensor) -> None:
    torch.manual_seed(0)
    network = AblationConfig(channels=1, classes=3, kept=(8, 3), theta=0.3, width=4, blocks=(1,))
    scorer = network.build((8, 8), (0.0,), (1.0,)).eval()
    images = images[:, :1, :8, :8].clone()
    defense = Defense.build(scorer, "largest-region", "1x1", ("a", "b", "c"))
    graph = export_defense(defense, GuardBand(), {})
    for part in (images, images[:1]):
        plain = outputs_of(graph, images=part)
        assert plain["scores"].shape == (len(part), 3, 1, 8)
        assert_same(plain, defense.certify_integers(read_scores(plain["scores"], scorer.step.bounds)))
        assert torch.equal(torch.from_numpy(plain["scores"]), defense.scores(part).values), "or a softmax is at theta"


def test_a_table_of_regions_is_in_the_file_once(tmp_path: Path) -> None:
    """Maps of several footprints have regions that are no rectangles, and every sum over them takes the table."""
    defense = bagcert.load(save_mixed_run(tmp_path / "run"))
    graph = export_defense(defense, GuardBand(), {}).graph
    large = [each.raw_data for each in graph.initializer if len(each.raw_data) > 4096]
    assert len(large) == len(set(large)) >= 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "count"),
    [
        pytest.param("cifar10", 4, marks=pytest.mark.full),
        ("cifar10-distilled", 16),
        ("cifar10-small", 16),
        ("cifar10-votes", 16),
    ],
)
def test_shipped_models_on_real_images(model: str, count: int, cifar10_dir: Path) -> None:
    defense = bagcert.load(model)
    images = next(load_dataset("cifar10", cifar10_dir).split("test").batches(count, "cpu")).images
    guarded = outputs_of(export_defense(defense, BANDS[defense.scorer.step.name], {}), images=images)
    scores = defense.scores(images)
    assert_explained(defense, images, scores, guarded)
    assert_never_contradicted(defense, scores, guarded)
    assert guarded["certified"].mean() > 0.5, "the band swallows what it should protect"


def assert_explained(defense: Defense, images: Tensor, scores: IntegerScores, found: dict[str, Any]) -> None:
    """Scores differ from torch's only inside the guard band, and answers only where scores do."""
    band = BANDS[defense.scorer.step.name]
    apart = torch.from_numpy(found["scores"]) - scores.values
    odd = apart.ne(0).flatten(1).any(dim=1)
    if band.slack:
        assert int(apart.abs().max()) <= band.slack
    elif bool(odd.any()):
        with torch.no_grad():
            near = defense.scorer.logits(images[odd]).abs() <= band.uncertain
        assert not bool((apart[odd].ne(0) & ~near).any())
    assert np.array_equal(found["class"][~odd], defense.rule.predict(scores, defense.regions)[~odd])


def assert_never_contradicted(defense: Defense, scores: IntegerScores, guarded: dict[str, Any]) -> None:
    """What the graph certifies with its guard band, torch certifies without one, with the same class."""
    ours = defense.certify_integers(scores)
    sure = torch.from_numpy(guarded["certified"])
    assert torch.equal(torch.from_numpy(guarded["class"])[sure], ours.predicted[sure])
    assert bool(ours.certified[sure].all())


def test_guard_bands_of_the_other_kind_are_refused() -> None:
    for step, band, words in (
        ("heaviside", GuardBand(slack=1), "A model that votes takes --uncertain, not --slack"),
        ("logits", GuardBand(uncertain=0.1), "Scores by 'logits' take --slack, not --uncertain"),
    ):
        with pytest.raises(UsageError, match=words):
            export_defense(small_defense(step, "two-mask"), band, {})
    for slack in (-1, 2**30 + 1, 2**32):  # more would not fit into the 32 bits of a score, and wrap around
        with pytest.raises(
            UsageError, match=f"A guard band must be at least 0 and at most {2**30} units, but is slack {slack}"
        ):
            GuardBand(slack=slack)


def test_the_widest_band_certifies_nothing() -> None:
    for step, band in (("logits", GuardBand(slack=2**30)), ("heaviside", GuardBand(uncertain=1e9))):
        model = export_defense(small_defense(step, "two-mask"), band, {})
        assert not outputs_of(model, images=pictures(8))["certified"].any()


def test_a_network_in_training_mode_is_refused_and_stays_so() -> None:
    defense = small_defense("logits", "two-mask")
    defense.scorer.train()
    with pytest.raises(UsageError, match=r"The scorer is in training mode\. Call scorer\.eval\(\) first\."):
        export_defense(defense, GuardBand(), {})
    assert defense.scorer.training


def test_a_network_that_counts_its_images_is_refused() -> None:
    """A graph for two images only would follow."""

    class Counting(nn.Module):
        def forward(self, images: Tensor) -> Tensor:
            return images.sum(dim=(2, 3)).reshape(len(images), -1)

    with pytest.raises(UsageError, match="A network must treat any number of images alike"):
        network_model(Counting().eval(), 3, (8, 8), ["sums"])


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("graph") / "model.onnx"
    with pytest.MonkeyPatch.context() as patch:
        assert call(patch, "export", "cifar10-small", "--out", str(path)) == 0
    return path


def test_onnxruntime_needs_nothing_of_ours(exported: Path) -> None:
    """The example of the docs, where neither bagcert nor torch can be imported."""
    example = re.findall(r"```python\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)[0]
    asking = example[example.index("session = ") :]  # after the framing of any picture
    assert len(asking.splitlines()) <= 15
    blank = np.full((32, 32, 3), 130, dtype=np.uint8)
    Image.fromarray(blank).save(exported.parent / "picture.png")
    alone = "import sys; sys.modules['bagcert'] = sys.modules['torch'] = None\n" + example
    result = subprocess.run(
        [sys.executable, "-I", "-c", alone], cwd=exported.parent, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert re.search("no proven answer; weakest placement: |: no 5x5 patch anywhere can change this", result.stdout)


def test_the_metadata_says_what_a_certificate_means(exported: Path) -> None:
    entries = {entry.key: entry.value for entry in onnx.load(exported).metadata_props}
    stored = card("cifar10-small")
    assert (entries["threat"], entries["rule"], entries["guard_band"]) == ("5x5", "two-mask", "none")
    assert json.loads(entries["classes"]) == stored["classes"]
    assert entries["weights_sha256"] == stored["weights_sha256"] and entries["bagcert"]
    assert set(json.loads(entries["problems"])) == {"0", "1", "2"}


def test_each_output_says_what_it_is(exported: Path) -> None:
    """In the file, in the table of the docs, by the same names."""
    outputs = {output.name: output.doc_string for output in onnx.load(exported).graph.output}
    assert outputs == OUTPUTS
    listed = re.findall(r"^\| `(\w+)` \| (?:int|bool)", DOCS.read_text(encoding="utf-8"), re.MULTILINE)
    assert listed == list(outputs)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("cifar10-small", "--out", "model.pt"), "The name of --out must end in .onnx, but is model.pt."),
        (("cifar10-small", "--out", "model.onnx", "--rule", "masked"), "Rule 'masked' cannot be exported."),
        (
            ("cifar10-votes", "--out", "model.onnx", "--slack", "1"),
            "A model that votes takes --uncertain, not --slack.",
        ),
        (("cifar11", "--out", "model.onnx"), "Unknown model or run folder 'cifar11'. "),
    ],
)
def test_wrong_orders_leave_nothing_behind(
    arguments: tuple[str, ...],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call(monkeypatch, "export", *arguments) == 2
    assert words in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("bagcert.errors.find_spec", lambda name: None if name == "onnxscript" else object())
    assert call(monkeypatch, "export", "cifar10-small", "--out", "model.onnx") == 2
    assert "ONNX needs onnxscript. Run: pip install onnxscript\n" in capsys.readouterr().err


def test_importing_the_command_line_needs_no_graph_packages() -> None:
    code = "import sys, bagcert.cli.export; assert not {'onnx', 'onnxscript', 'onnxruntime'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
