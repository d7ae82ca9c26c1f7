"""Any classifier under masks: against the papers' own words and by brute force, on every image of a tiny world."""

from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bagcert
from bagcert.defense import Defense
from bagcert.errors import UsageError
from bagcert.rows import write
from bagcert.rows.format import Evaluation
from bagcert.rows.prover import Prover
from bagcert.scorers import covered as covered_module
from bagcert.scorers.base import Need
from bagcert.scorers.covered import CoverConfig, CoverScorer
from bagcert.threats import parse_threat

SIZE = (2, 3)
LEVELS = (0.0, 0.4, 1.0)
WORLD = torch.tensor(list(product(LEVELS, repeat=6))).view(-1, 1, *SIZE)  # all 729 images
PATCHES = ("1x1", "1x2", "1x2,2x1", "1x1@lower")


class Wild(nn.Module):
    """A classifier of any shape: smooth noise, so that masks often change its mind."""

    def __init__(self, seed: int, roughness: float = 1.3, pixels: int = 6, classes: int = 3) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(seed)
        self.first = nn.Parameter(torch.randn(pixels, 20, generator=draw) * roughness)
        self.second = nn.Parameter(torch.randn(20, classes, generator=draw))

    def forward(self, images: Tensor) -> Tensor:
        return (images.flatten(1) @ self.first).sin() @ self.second


def covered(seed: int, patch: str = "1x1", rule: str = "unanimous", **more: Any) -> Defense:
    given: dict[str, Any] = {"masks": 2, "at_once": 64, "channels": 1, "fill": (0.4,)} | more
    return bagcert.cover(Wild(seed).eval(), SIZE, 3, patch, rule, **given)


def attacked(patch: str) -> list[Tensor]:
    """For each placement, image by image, the numbers of all images of the world that differ there alone: [729 n]."""
    found = []
    place = 3 ** torch.arange(5, -1, -1)
    number = torch.arange(len(WORLD))
    for pixels in parse_threat(patch, SIZE).pixels():
        chosen = pixels.flatten().nonzero().flatten()
        outside = number - sum((number // place[each] % 3) * place[each] for each in chosen)
        inside = [sum(level * int(place[each]) for level, each in zip(levels, chosen, strict=True))
                  for levels in product(range(3), repeat=len(chosen))]  # fmt: skip
        found.append(outside[:, None] + torch.tensor(inside))
    return found


def test_the_attacks_of_the_world_are_attacks() -> None:
    for patch in PATCHES:
        for pixels, others in zip(parse_threat(patch, SIZE).pixels(), attacked(patch), strict=True):
            assert torch.equal(
                WORLD[others][..., ~pixels], WORLD[:, None][..., ~pixels].expand(-1, others.shape[1], -1, -1)
            )
            assert len(set(others[0].tolist())) == 3 ** int(pixels.sum())


@pytest.mark.parametrize("patch", PATCHES)
@pytest.mark.parametrize("seed", range(3))
def test_no_attack_of_the_whole_world_changes_what_is_certified(seed: int, patch: str) -> None:
    certificate = covered(seed, patch).certify(WORLD)
    for others in attacked(patch):
        changed = (certificate.predicted[others] != certificate.predicted[:, None]).any(dim=1)
        assert not bool((changed & certificate.certified).any())
    assert 0 < int(certificate.certified.sum()) < len(WORLD)


@pytest.mark.parametrize("above", [0, 100])
@pytest.mark.parametrize("patch", PATCHES)
@pytest.mark.parametrize("seed", range(3))
def test_an_attack_on_what_is_detectable_keeps_the_class_or_raises_an_alert(seed: int, patch: str, above: int) -> None:
    certificate = covered(seed, patch, f"detect:{above}").certify(WORLD)
    assert certificate.alert is not None and certificate.detectable is not None
    for others in attacked(patch):
        changed = (certificate.predicted[others] != certificate.predicted[:, None]) & ~certificate.alert[others]
        assert not bool((changed.any(dim=1) & certificate.detectable).any())
    assert 0 < int(certificate.detectable.sum()) < len(WORLD) and bool(certificate.alert.any())
    assert not bool(certificate.certified.any())


def shown(defense: Defense, image: Tensor, *masks: int) -> Tensor:
    """The logits of one image under these masks, straight from the definition."""
    scorer = defense.scorer
    assert isinstance(scorer, CoverScorer)
    image = image.clone()
    for mask in scorer.hidden.masks(torch.tensor(masks, dtype=torch.int64)):
        image[:, mask] = 0.4
    with torch.no_grad():
        return scorer.module(image[None])[0]  # type: ignore[operator,no-any-return]


def papers_answer(defense: Defense, image: Tensor) -> tuple[int, bool]:
    """Algorithm 1 of PatchCleanser, mask by mask, and whether all pairs of masks agree with its answer."""
    masks = range(len(defense.scorer.hidden))  # type: ignore[arg-type]
    singles = [int(shown(defense, image, mask).argmax()) for mask in masks]
    majority = max(range(3), key=lambda label: (singles.count(label), -label))
    answer = majority
    for mask, label in zip(masks, singles, strict=True):
        if label != majority and all(int(shown(defense, image, mask, other).argmax()) == label for other in masks):
            answer = label
            break
    pairs = {int(shown(defense, image, one, two).argmax()) for one in masks for two in masks}
    return answer, pairs == {answer}


def drawn(*pictures: str) -> Tensor:
    """Masks, each drawn with an x for every hidden pixel."""
    return torch.tensor([[[pixel == "x" for pixel in row] for row in picture.split()] for picture in pictures])


# Corners, a stroke that goes nowhere, one mask inside another: each placement of every patch lies inside some mask.
IRREGULAR = drawn("xx. x..", ".xx ..x", "... xx.", "... .xx", ".x. .x.", "x.x ..x", ".x. ...")


def scattered(seed: int, patch: str) -> Tensor:
    """A mask around each placement, with pixels all over the image, in any order; some of them twice."""
    draw = torch.Generator().manual_seed(seed)
    around = parse_threat(patch, SIZE).pixels()
    masks = around | (torch.rand(around.shape, generator=draw) < 0.3)
    return masks[torch.cat([torch.randperm(len(masks), generator=draw), torch.tensor([0])])]


def given_sets(patch: str) -> list[Tensor]:
    return [IRREGULAR, *(scattered(seed, patch) for seed in range(2))]


@pytest.mark.parametrize("patch", PATCHES)
@pytest.mark.parametrize("number", range(3))
def test_no_attack_changes_what_given_masks_certify(number: int, patch: str) -> None:
    certificate = covered(number, patch, masks=given_sets(patch)[number]).certify(WORLD)
    for others in attacked(patch):
        changed = (certificate.predicted[others] != certificate.predicted[:, None]).any(dim=1)
        assert not bool((changed & certificate.certified).any())
    assert 0 < int(certificate.certified.sum()) < len(WORLD)


@pytest.mark.parametrize("patch", PATCHES)
@pytest.mark.parametrize("number", range(3))
def test_no_attack_goes_unnoticed_behind_given_masks(number: int, patch: str) -> None:
    certificate = covered(number, patch, "detect", masks=given_sets(patch)[number].numpy()).certify(WORLD)
    assert certificate.alert is not None and certificate.detectable is not None
    for others in attacked(patch):
        changed = (certificate.predicted[others] != certificate.predicted[:, None]) & ~certificate.alert[others]
        assert not bool((changed.any(dim=1) & certificate.detectable).any())
    assert 0 < int(certificate.detectable.sum()) < len(WORLD)


def test_weights_that_come_with_other_masks_break_no_proof() -> None:
    """Masks are stored as weights are; but the footprint is that of the masks which faced the threat."""
    other = parse_threat("2x1", SIZE).pixels()
    masks = parse_threat("1x2", SIZE).pixels()[[0, 1, 2, 3, 0, 1]]
    defense = covered(1, "1x2", masks=masks)
    defense.scorer.load_state_dict(covered(1, "2x1", masks=other[[0, 1, 2, 0, 1, 2]]).scorer.state_dict())
    certificate = defense.certify(WORLD)
    for others in attacked("1x2"):
        changed = (certificate.predicted[others] != certificate.predicted[:, None]).any(dim=1)
        assert not bool((changed & certificate.certified).any())
    assert 0 < int(certificate.certified.sum()) < len(WORLD)


def test_given_masks_by_the_definition() -> None:
    """Certified if around each placement some mask keeps the class with every second one; else not."""
    defense = covered(1, "1x2", masks=IRREGULAR)
    certificate, masks = defense.certify(WORLD[::7]), range(len(IRREGULAR))
    found = set()
    for number, image in enumerate(WORLD[::7]):
        answer = int(certificate.predicted[number])
        keeps = [all(int(shown(defense, image, one, two).argmax()) == answer for two in masks) for one in masks]
        around = [(pixels <= IRREGULAR).flatten(1).all(dim=1) for pixels in parse_threat("1x2", SIZE).pixels()]
        expected = all(any(bool(held[one]) and keeps[one] for one in masks) for held in around)
        assert bool(certificate.certified[number]) == expected
        found.add(expected)
    assert found == {True, False}


def test_what_given_masks_leave_out_changes_no_answer() -> None:
    defense = covered(2, "1x2,2x1", masks=IRREGULAR, at_once=5)
    whole, quick = defense.certify(WORLD), defense.certify(WORLD, exact=False)
    assert torch.equal(defense.predict(WORLD), whole.predicted)
    assert torch.equal(quick.predicted, whole.predicted) and torch.equal(quick.certified, whole.certified)


def test_rectangles_prove_the_same_if_they_are_given() -> None:
    usual = covered(0, "1x2", masks=2)
    assert isinstance(usual.scorer, CoverScorer)
    rectangles = usual.scorer.hidden.masks(torch.arange(len(usual.scorer.hidden)))
    for rule in ("unanimous", "detect"):
        mine = covered(0, "1x2", rule, masks=rectangles).certify(WORLD)
        theirs = usual.against(rule=rule).certify(WORLD)
        for name in ("predicted", "certified", "lead"):
            assert torch.equal(getattr(mine, name), getattr(theirs, name))


@pytest.mark.parametrize(
    ("masks", "patch", "words"),
    [
        (IRREGULAR[:4], "2x1", "patch of 2x1 pixels at row 0, column 1, one of 1 placements of 2x1 that lie inside no"),
        (IRREGULAR, "2x2", "patch of 2x2 pixels at row 0, column 0, one of 2 placements of 2x2 that lie inside none"),
        (drawn("xx. xx."), drawn(".x. ..."), None),
        (drawn("xx. xx."), drawn("..x ..."), "patch of 1x1 pixels at row 0, column 2, one of 1 placements of 1 set"),
        (IRREGULAR.int(), "1x1", r"booleans of shape \[masks, 2, 3\], true where a mask hides, but are torch.int32"),
        (IRREGULAR[0], "1x1", r"but are torch.bool \[2, 3\]\. Stack one per mask"),
        (IRREGULAR[:0], "1x1", r"but are torch.bool \[0, 2, 3\]"),
        (drawn("xx xx"), "1x1", r"but are torch.bool \[1, 2, 2\]"),
    ],
)
def test_masks_that_do_not_hold_every_placement_are_refused(masks: Tensor, patch: str, words: str | None) -> None:
    if words is None:
        covered(0, patch, masks=masks)
        return
    with pytest.raises(UsageError, match=words):
        covered(0, patch, masks=masks)


def test_other_patches_under_given_masks() -> None:
    """One that they hold as well is taken, another one is refused."""
    defense = covered(0, "1x2", masks=IRREGULAR)
    assert torch.equal(defense.against("2x1").predict(WORLD), defense.predict(WORLD)), "the same masks"
    with pytest.raises(UsageError, match="No mask holds all of the patch of 2x3 pixels at row 0, column 0"):
        defense.against("2x3")


@pytest.mark.parametrize("masks", [2, IRREGULAR])
def test_threats_that_are_written_alike_are_told_apart(masks: int | Tensor) -> None:
    """Both are written '1 set', but only one of them lies where the other does."""
    here, there = drawn("x.. ..."), drawn("... .xx")
    defense = covered(0, here, masks=masks)  # type: ignore[arg-type]
    moved = defense.against(there)
    assert str(defense.threat) == str(moved.threat) and defense.against(here).scorer is defense.scorer
    fresh = covered(0, there, masks=masks)  # type: ignore[arg-type]
    assert torch.equal(moved.certify(WORLD, exact=False).certified, fresh.certify(WORLD).certified)
    if isinstance(masks, Tensor):
        with pytest.raises(UsageError, match="No mask holds all of the patch of 2x3"):
            defense.against(drawn("xxx xxx"))


@pytest.mark.parametrize("seed", range(3))
def test_the_answers_and_proofs_of_patchcleanser(seed: int) -> None:
    defense = covered(seed)
    certificate = defense.certify(WORLD[::7])
    theirs = [papers_answer(defense, image) for image in WORLD[::7]]
    assert list(zip(certificate.predicted.tolist(), certificate.certified.tolist(), strict=True)) == theirs
    assert len({answer for answer, _ in theirs}) > 1 and len({proven for _, proven in theirs}) == 2


def test_the_answers_and_alerts_of_single_masks() -> None:
    """With t = 0: the network's own class; an alert if it differs under any mask; proven if it does under none."""
    defense = covered(1, rule="detect")
    certificate = defense.certify(WORLD)
    assert certificate.alert is not None and certificate.detectable is not None
    masks = range(len(defense.scorer.hidden))  # type: ignore[arg-type]
    for number in range(0, len(WORLD), 7):
        own = int(shown(defense, WORLD[number]).argmax())
        differs = any(int(shown(defense, WORLD[number], mask).argmax()) != own for mask in masks)
        found = certificate[number]
        assert int(found.predicted) == own and found.alert is not None and found.detectable is not None
        assert bool(found.alert) == differs and bool(found.detectable) == (not differs)


@pytest.mark.parametrize("patch", PATCHES)
@pytest.mark.parametrize("at_once", [5, 64])
def test_what_is_left_out_changes_no_answer(patch: str, at_once: int) -> None:
    defense = covered(2, patch, at_once=at_once)
    whole = defense.certify(WORLD)
    assert torch.equal(defense.predict(WORLD), whole.predicted)
    quick = defense.certify(WORLD, exact=False)
    assert torch.equal(quick.predicted, whole.predicted) and torch.equal(quick.certified, whole.certified)
    full, fewer = (defense.scores(WORLD, need).values for need in (Need.ALL, Need.CLASS))
    assert bool((fewer <= full).all()) and int(fewer.sum()) < int(full.sum())


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of all passes that are run."""
    sizes: list[int] = []
    plain = CoverScorer.classify

    def classify(self: CoverScorer, images: Tensor, masks: Tensor) -> Tensor:
        sizes.append(len(images))
        return plain(self, images, masks)

    monkeypatch.setattr(CoverScorer, "classify", classify)
    return sizes


def test_most_images_need_single_masks_only(passes: list[int]) -> None:
    defense, images = covered(0, at_once=2), WORLD[::7]
    singles = defense.scorer.logits(images).argmax(dim=1)[:, :-1].flatten(1)
    alike = images[(singles == singles[:, :1]).all(dim=1)]
    assert len(images) > len(alike) > 10 and len(defense.scorer.hidden) == 4  # type: ignore[arg-type]
    passes.clear()
    defense.predict(alike)
    assert len(passes) == len(alike) * 4 / 2
    passes.clear()
    defense.certify(alike)
    assert len(passes) == len(alike) * 10 / 2, "all pairs of four masks"


def test_every_pass_has_one_size(passes: list[int]) -> None:
    defense = covered(0, at_once=7)
    for count in (1, 4, 40):
        defense.predict(WORLD[:count])
        defense.certify(WORLD[:count], exact=False)
        defense.against(rule="detect").certify(WORLD[:count])
    assert set(passes) == {7}


def test_hidden_pixels_vanish() -> None:
    """Bit for bit, and NaN as well: nothing of the attacker's pixels is left to compute with."""
    for rule in ("unanimous", "detect"):
        defense = covered(0, rule=rule)
        regions = defense.scorer.footprint.regions(defense.threat)
        for index, reached in enumerate(regions.masks()):
            row, column, _, _ = regions.placement(index)
            painted = WORLD[:50].clone()
            painted[:, :, row, column] = torch.nan
            scores = (defense.scorer.scores(images)[:, :, ~reached] for images in (painted, WORLD[:50]))
            assert torch.equal(*scores)


def test_all_of_it_lies_where_the_network_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(covered_module, "check_classifier", lambda network, config, image_size: None)
    config = CoverConfig(3, 1, fill=(0.4,)).handed(Wild(0).to("meta"))
    scorer = config.build(SIZE, (0.5,), (0.2,))
    assert {each.device.type for each in (*scorer.parameters(), *scorer.buffers())} == {"meta"}


class TinyViT(nn.Module):
    """Attention over all tokens: no position sees less than the whole image."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.tokens = nn.Conv2d(1, 16, 2, stride=2)
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.blocks = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(16, 4)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.blocks(self.tokens(images).flatten(2).transpose(1, 2)).mean(dim=1))  # type: ignore[no-any-return]


def test_a_vit_is_covered_and_no_patch_changes_what_it_proves() -> None:
    network = TinyViT().eval()
    with pytest.raises(UsageError, match="attention"):
        bagcert.defend(network, 8, channels=1)
    images = torch.rand(6, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    defense = bagcert.cover(network, 8, 4, "2x2", masks=3, channels=1, at_once=16)
    certificate = defense.certify(images)
    assert bool(certificate.certified.any())
    draw = torch.Generator().manual_seed(1)
    for pixels in parse_threat("2x2", (8, 8)).pixels()[::6]:
        painted = torch.where(pixels, torch.rand(images.shape, generator=draw).round(), images)
        changed = defense.predict(painted) != certificate.predicted
        assert not bool((changed & certificate.certified).any())


class Spoiled(Wild):
    """A classifier that is no function of its image."""

    def __init__(self, how: str) -> None:
        super().__init__(0)
        self.how, self.calls = how, 0

    def forward(self, images: Tensor) -> Tensor:
        logits = super().forward(images)
        if self.how == "counts its calls":
            self.calls += 1
        if self.how == "draws noise":
            return logits + torch.rand(1)
        if self.how == "mixes images":
            return logits - logits.mean(dim=0)
        return logits[:, :, None] if self.how == "maps" else logits


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("counts its calls", "must leave the network as it was, but this one changes 'calls'"),
        ("draws noise", "draws random numbers"),
        ("mixes images", "other logits beside other images"),
        ("maps", r"must map 2 images to logits \[2, classes\], but gives \[2, 3, 1\]"),
    ],
)
def test_a_network_that_is_no_function_of_its_image_is_refused(how: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        bagcert.cover(Spoiled(how).eval(), SIZE, 3, "1x1", channels=1)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"masks": 0}, r"number of masks must lie in 1\.\.32, but is 0"),
        ({"at_once": 0}, "number of images per pass must lie in"),
        ({"fill": (2.0,)}, r"fill must be 1 or 1 numbers in 0\.\.1"),
        ({"dtype": "int8"}, "Unknown dtype 'int8'"),
    ],
)
def test_impossible_settings_are_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        covered(0, **given)


def test_training_mode_and_other_classes_are_refused() -> None:
    with pytest.raises(UsageError, match=r"training mode\. Call network\.eval"):
        bagcert.cover(Wild(0).train(), SIZE, 3, "1x1", channels=1)
    with pytest.raises(UsageError, match="must score 4 classes, but scores 3"):
        bagcert.cover(Wild(0).eval(), SIZE, 4, "1x1", channels=1)
    with pytest.raises(UsageError, match=r"must be a torch\.nn\.Module"):
        bagcert.cover(len, SIZE, 3, "1x1")  # type: ignore[arg-type]


def test_rows_of_large_images_are_written_more_often() -> None:
    """An image of ImageNet's size takes minutes on a CPU, one of CIFAR-10's does not."""
    large = bagcert.cover(Wild(0, pixels=3 * 224 * 224).eval(), 224, 3, "32x32", at_once=2)
    small = bagcert.cover(Wild(0, pixels=3 * 32 * 32).eval(), 32, 3, "5x5", at_once=2)
    sizes = [
        write.batch_size([Prover(each, Evaluation(patch, "unanimous"))])
        for each, patch in ((large, "32x32"), (small, "5x5"))
    ]
    assert sizes == [write.SMALL_BATCH, write.BATCH]
