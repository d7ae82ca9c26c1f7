"""Images with their score maps: the worst placement, the scores it reaches, and the closest rival."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from numpy.typing import NDArray

from bagcert.config import read_config
from bagcert.data import Dataset, FolderSettings, Source, load_dataset
from bagcert.errors import UsageError
from bagcert.pictures import Framing
from bagcert.pictures.panels import draw_panels, reach
from bagcert.report.drawing import Picture, picture
from bagcert.rows.certified import Rows
from bagcert.rows.format import Evaluation
from bagcert.rows.stored_scores import ScoreFiles, scores_folder
from bagcert.rules import Certificate
from bagcert.scorers.footprint_table import read_footprint

EACH = 2  # images of each kind


@dataclass(frozen=True, eq=False)
class Gallery:
    """Pictures with captions, or the reason why there are none."""

    pictures: list[tuple[Picture, str]]
    missing: str = ""


def make_gallery(rows: Rows, entry: Evaluation, data_dir: Path | None) -> Gallery:
    """The safest images, those just above and below certification, and wrong ones."""
    if not rows.squares or not scores_folder(rows.path).is_dir():
        return Gallery([], "these rows have no scores beside them; certify with --scores")
    header = rows.header
    try:
        dataset = stored_dataset(header, data_dir)
    except UsageError as error:
        return Gallery([], f"the images are not here: {error}")
    if dataset.digest != header["data"]["digest"]:
        return Gallery([], "the images here are not those of the rows (another digest)")
    files, source = ScoreFiles(rows.path, header), dataset.split(header["split"])
    found = []
    for kind, number in picks(rows, entry):
        scores = files.image(number)
        if scores is not None:
            found.append((draw_image(number, rows, entry, scores, source), caption(kind, number, rows, entry)))
    return Gallery(found)


def stored_dataset(header: Mapping[str, Any], data_dir: Path | None) -> Dataset:
    """The data set behind rows; the pictures of a folder are framed as they were."""
    height, width = header["footprint"]["image_size"]
    table = header["data"].get("framing")
    framing = Framing.usual((height, width)) if table is None else read_config(Framing, table, "framing")
    return load_dataset(header["data"]["name"], data_dir, FolderSettings(framing))


def picks(rows: Rows, entry: Evaluation) -> list[tuple[str, int]]:
    """Pairs of kind and image number, the safest first and wrong ones last."""
    certificate = rows.results[entry]
    assert certificate.lead is not None
    order = certificate.lead.argsort(descending=True).tolist()
    right = (certificate.predicted == rows.labels).tolist()
    proven = certificate.certified.tolist()
    safe = [number for number in order if right[number] and proven[number]]
    open_ = [number for number in order if right[number] and not proven[number]]
    wrong = [number for number in order if not right[number]]
    kinds = {
        "safest": safe[:EACH],
        "barely certified": safe[EACH:][-EACH:],
        "just not certified": open_[:EACH],
        "wrong": wrong[:EACH],
    }
    return [(kind, number) for kind, numbers in kinds.items() for number in numbers]


def caption(kind: str, number: int, rows: Rows, entry: Evaluation) -> str:
    certificate, classes = rows.results[entry], rows.header["classes"]
    assert certificate.lead is not None and certificate.weakest_class is not None
    label, predicted = int(rows.labels[number]), int(certificate.predicted[number])
    truth = "" if label == predicted else f", in truth {classes[label]}"
    side = int(rows.squares[entry][number])
    safe = f"no {side}×{side} square can change that" if side else "nothing is proven"
    lead = int(certificate.lead[number]) / rows.header["scores"]["unit"]
    rival = classes[int(certificate.weakest_class[number])]
    told = f"{lead:,.0f}" if abs(lead) >= 10 else f"{lead:.3g}"  # a certified lead must not read 0
    return f"{kind}: image {number}, {classes[predicted]}{truth}; {safe}; lead over {rival} at worst {told}"


def draw_image(number: int, rows: Rows, entry: Evaluation, scores: NDArray[Any], source: Source) -> Picture:
    certificate, classes = rows.results[entry], rows.header["classes"]
    assert certificate.weakest_class is not None
    pixels = next(iter(source.batches(1, "cpu", start=number))).images[0].permute(1, 2, 0).numpy()
    predicted, rival = int(certificate.predicted[number]), int(certificate.weakest_class[number])
    found = placements(certificate, number)
    maps = [(f"predicted: {classes[predicted]}", scores[predicted]), (f"rival: {classes[rival]}", scores[rival])]
    seen = [reach(read_footprint(rows.header["footprint"]), placement) for placement in found]

    def draw() -> Figure:
        return draw_panels(pixels, classes[int(rows.labels[number])], maps, found, seen)

    return picture(f"image-{number}", f"Image {number}", "", draw)


def placements(certificate: Certificate, number: int) -> list[list[int]]:
    """The worst placement, and the second one if the rule has pairs."""
    found = (certificate.weakest_region, certificate.second_region)
    return [region[number].tolist() for region in found if region is not None]
