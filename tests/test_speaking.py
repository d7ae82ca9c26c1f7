"""Public objects say in one line what they are, and certificates behave like a list of images."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image
from torch import nn

import bagcert
from bagcert.errors import UsageError
from bagcert.pictures.panels import Panels
from bagcert.rows.certified import read_rows
from bagcert.rules import Certificate
from bagcert.stored_models import shipped_models
from bagcert.threats import parse_threat

NAMES = ("cat", "dog", "<b>ship</b>")


@pytest.fixture(scope="module")
def defense() -> bagcert.Defense:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 3, 1)).eval()
    return bagcert.defend(network, 12, NAMES, "2x2")


@pytest.fixture(scope="module")
def images() -> torch.Tensor:
    return torch.rand(30, 3, 12, 12, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def certificate(defense: bagcert.Defense, images: torch.Tensor) -> Certificate:
    return defense.certify(images)


def test_every_repr_is_one_short_line(defense: bagcert.Defense, images: torch.Tensor, certificate: Certificate) -> None:
    masks = torch.zeros(2, 12, 12, dtype=torch.bool)
    masks[0, 2:4, 5], masks[1, 3] = True, True
    told = {
        repr(each): each
        for each in (
            *(defense, defense.rule, defense.threat, defense.regions, defense.scorer.footprint),
            *(
                defense.scores(images),
                certificate,
                certificate[0],
                defense.against(masks).regions,
                parse_threat(masks, (12, 12)),
            ),
            *(defense.attack(images[:2], [0, 1], bagcert.AttackSettings(steps=1)), bagcert.AttackSettings()),
            *(bagcert.Layer(3), bagcert.EveryRegion(), bagcert.Masked(), defense(images[0])),
            read_rows(shipped_models()["cifar10-small"] / "rows.jsonl.gz"),
        )
    }
    assert len(told) == 17
    for words in told:
        assert len(words) <= 160 and "\n" not in words and "tensor(" not in words, words
    assert repr(defense) == "Defense(Sequential, two-mask, 2x2 of 12x12, 3 classes)"
    assert repr(defense.scorer.footprint) == "Footprint(receptive field 3x3, grid 12x12, image 12x12)"


def test_a_certificate_is_a_sequence_of_images(certificate: Certificate) -> None:
    assert len(certificate) == len(list(certificate)) == 30
    for number, each in enumerate(certificate):
        assert len(each) == 1 and int(each.predicted) == int(certificate.predicted[number])
        assert each.names == NAMES
    assert torch.equal(certificate[-1].predicted, certificate.predicted[-1:])
    assert torch.equal(certificate[2:9:3].predicted, certificate.predicted[2:9:3])
    with pytest.raises(IndexError):
        certificate[30]


def test_a_certificate_as_plain_values(certificate: Certificate) -> None:
    told = certificate.to_dict()
    assert told["name"] == [NAMES[number] for number in certificate.predicted]
    assert told["certified"] == certificate.certified.tolist() and {len(values) for values in told.values()} == {30}
    assert "alert" not in told
    bare = bagcert.certify_scores(torch.zeros(2, 3, 8, 8), "2x2", exact=False).to_dict()
    assert "name" not in bare and bare["predicted"] == [0, 0]


def test_the_table_of_a_notebook_has_names_and_no_markup_of_its_own(certificate: Certificate) -> None:
    html = certificate._repr_html_()
    assert html.count("<tr>") == 21 and "the first 20 of 30 images" in html
    assert "<b>" not in html
    assert NAMES[int(certificate.predicted[0])].replace("<", "&lt;").replace(">", "&gt;") in html


def test_a_proof_is_drawn_in_three_panels(defense: bagcert.Defense, images: torch.Tensor, tmp_path: Path) -> None:
    image = images[0]
    smaller = defense.certify(image, patch="1x1")
    file = tmp_path / "picture.png"
    Image.new("RGB", (40, 30), "navy").save(file)
    with file.open("rb") as opened:
        figures = [defense.show(image), smaller.show(image), defense.show(file), defense.show(opened)]
    for figure in figures:
        assert isinstance(figure, Panels) and len(figure.axes) == 3
        assert figure._repr_png_().startswith(b"\x89PNG")
    sides = [next(iter(figure.axes[0].patches)).get_height() for figure in figures[:2]]
    assert sides == [2, 1], "each with its own weakest place"


def test_what_cannot_be_drawn_is_told(defense: bagcert.Defense, certificate: Certificate, images: torch.Tensor) -> None:
    with pytest.raises(UsageError, match=r"One certificate is drawn at a time, but these are 30\. Use"):
        certificate.show(images[0])
    with pytest.raises(UsageError, match=r"Only a certificate of Defense\.certify can be drawn"):
        bagcert.certify_scores(torch.zeros(1, 3, 8, 8), "2x2").show(images[0])
    with pytest.raises(UsageError, match=r"One picture is drawn at a time, but these are 30\. Give pictures\[0\]"):
        defense.show(images)
    with pytest.raises(UsageError, match=r"lacks its weakest place\. Certify with exact=True"):
        bagcert.Certificate(certificate.predicted[:1], certificate.certified[:1], drawn_by=certificate.drawn_by).show(
            images[0]
        )
    other = replace(certificate[0], predicted=(certificate.predicted[:1] + 1) % 3)
    with pytest.raises(UsageError, match="of another class, so of another picture"):
        other.show(images[0])


def test_a_proof_is_drawn_on_its_own_picture_only(
    defense: bagcert.Defense, certificate: Certificate, images: torch.Tensor
) -> None:
    alike = [number for number in range(30) if certificate.predicted[number] == certificate.predicted[0]]
    assert len(alike) > 1, "a picture of the same class, too, is another one"
    certificate[torch.tensor(alike)][0].show(images[0])
    assert "fingerprints" not in certificate.to_dict()
    for wrong in (images[alike[1]], images[0].flip(2), images[0] * 0.999, Image.new("RGB", (40, 30), "navy")):
        with pytest.raises(
            UsageError, match=r"This certificate is of another picture\. Give the one that was certified"
        ):
            certificate[0].show(wrong)


def test_rows_become_a_data_frame() -> None:
    pytest.importorskip("pandas")
    rows = read_rows(shipped_models()["cifar10-small"] / "rows.jsonl.gz")
    frame = rows.to_pandas()
    assert len(rows) == 10_000 and len(frame) == len(rows) * len(rows.results)
    right = frame[frame.predicted == frame.label]
    for entry in rows.results:
        mine = right[(right.patch == entry.patch) & (right.rule == entry.rule)]
        assert mine.certified.sum() / len(rows) == pytest.approx(rows.accuracies(entry).certified)


def test_without_pandas_rows_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = read_rows(shipped_models()["cifar10-small"] / "rows.jsonl.gz")
    monkeypatch.setitem(sys.modules, "pandas", None)
    monkeypatch.setattr("bagcert.errors.find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"Rows\.to_pandas needs pandas\. Run: pip install pandas"):
        rows.to_pandas()
