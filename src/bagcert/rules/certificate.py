"""What a rule proves about images: the class of each, whether it is certified, and where the proof is weakest."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from html import escape
from typing import Any

import torch
from torch import Tensor

from bagcert.errors import UsageError

ABSTAIN = -1
Drawer = Callable[["Certificate", Any], Any]  # from a certificate and its picture to a figure


def own(values: Tensor, classes: Tensor) -> Tensor:
    """From [b k ...], the entry of each image's class: [b ...]."""
    return values[torch.arange(len(values), device=values.device), classes]


@dataclass(frozen=True, eq=False)
class Certificate:
    """For each image: the class, whether it is proven, and where the proof is weakest.

    `certified` says that no attack of the threat changes `predicted`. `lead` is how much of the predicted class's lead
    is proven to survive the worst attack, in score units; an image is certified exactly if it is above 0.
    `weakest_region` is the placement where that bound is lowest (row, column, height, width in pixels),
    `second_region` the second mask of a rule with pairs or the second of two patches, `weakest_class` the rival that
    comes closest. These four are None unless asked for.

    A rule that raises alerts fills the last two (`bagcert.rules.alerts`). `alert`: this image raises one. `detectable`:
    whatever the patch, the class is `predicted` or an alert is raised. An alerted image is not detectable and, against
    the threat that the masks were built for, not certified. So there are four outcomes: proven, detectable, alerted,
    neither. Of `detect` nothing is `certified`, since the class may change: there `lead` belongs to `detectable`.

    It is a sequence with one certificate per image.

    >>> import torch, bagcert
    >>> scores = torch.zeros(2, 3, 8, 8, dtype=torch.int)
    >>> scores[0, 1] = 1  # every position of the first image votes for class 1
    >>> certificate = bagcert.certify_scores(scores, "2x2", receptive_field=3)
    >>> certificate
    Certificate(2 images, 1 certified)
    >>> certificate[0]
    Certificate(class 1, certified, lead 32 over class 0 at 2x2 at row 1, column 1)
    >>> [int(each.predicted) for each in certificate if each.certified]
    [1]
    """

    predicted: Tensor  # int64 [b], as all numbers here
    certified: Tensor  # bool [b]
    lead: Tensor | None = None  # [b]
    weakest_region: Tensor | None = None  # [b 4]
    second_region: Tensor | None = None  # [b 4]
    weakest_class: Tensor | None = None  # [b]
    alert: Tensor | None = None  # bool [b]
    detectable: Tensor | None = None  # bool [b]
    names: tuple[str, ...] = ()  # of the classes, if a defense made it
    drawn_by: Drawer | None = None  # draws the proof on a picture, if a defense made it
    fingerprints: Tensor | None = None  # [b], of the images, if a defense made it: no other picture is drawn

    def answers(self) -> Tensor:
        """Abstain unless certified: the predicted class if it is proven, else ABSTAIN.

        Such an answer is the prediction for the clean image even if the given image has already been attacked. Let x be
        the clean image and x' the one attacked at placement l. If x' is certified, no change at l changes its class.
        Putting the clean pixels back is such a change. So both have the same class.
        """
        return torch.where(self.certified, self.predicted, ABSTAIN)

    def named(self, classes: Tensor) -> "Certificate":
        """Certificates of scores that held only `classes` of each image, int64 [b m], with the true class numbers."""
        weakest = self.weakest_class
        return replace(
            self,
            predicted=own(classes, self.predicted),
            weakest_class=own(classes, weakest) if weakest is not None else None,
        )

    def picked(self, images: Tensor) -> "Certificate":
        """The certificates of some images, in that order."""
        return Certificate.each(lambda values: values[0][images], [self])

    @staticmethod
    def concatenate(parts: "list[Certificate]") -> "Certificate":
        return Certificate.each(torch.cat, parts)

    @staticmethod
    def each(make: "Callable[[list[Tensor]], Tensor]", parts: "list[Certificate]") -> "Certificate":
        """A certificate that applies `make` to each field of the parts; a field that is None in them stays None."""

        def made(name: str) -> Tensor | None:
            values = [getattr(part, name) for part in parts]
            return None if values[0] is None else make(values)

        tensors: dict[str, Any] = {name: made(name) for name in (*TENSORS, "fingerprints")}
        return Certificate(**tensors, names=parts[0].names, drawn_by=parts[0].drawn_by)

    def __len__(self) -> int:
        """How many images there are."""
        return len(self.predicted)

    def __getitem__(self, image: "int | slice | Tensor") -> "Certificate":
        """The certificate of one image, or of several."""
        if isinstance(image, int):
            if not -len(self) <= image < len(self):
                raise IndexError(f"image {image} of {len(self)}")
            image = slice(image % len(self), image % len(self) + 1)
        return Certificate.each(lambda values: values[0][image], [self])

    def __iter__(self) -> "Iterator[Certificate]":
        return (self[image] for image in range(len(self)))

    def to_dict(self) -> dict[str, list[Any]]:
        """Every field that is there as a list with one entry per image, and the names of the classes if known."""
        found = {name: getattr(self, name).tolist() for name in TENSORS if getattr(self, name) is not None}
        return {"name": [self.names[number] for number in found["predicted"]], **found} if self.names else found

    def show(self, picture: Any) -> Any:
        """Draw the picture of this one certificate with the weakest place, and the scores of class and closest rival.

        A matplotlib figure: a notebook shows it, `.savefig("proof.png")` writes it.
        """
        if self.drawn_by is None:
            raise UsageError("Only a certificate of Defense.certify can be drawn: others know no network.")
        if len(self) != 1:
            raise UsageError(f"One certificate is drawn at a time, but these are {len(self)}. Use certificate[0].show.")
        return self.drawn_by(self, picture)

    def __repr__(self) -> str:
        if len(self) == 1:
            return f"Certificate({', '.join(self._words())})"
        counts = [(word, getattr(self, word)) for word in ("certified", "detectable", "alert")]
        told = (f"{int(flags.sum())} {word}" for word, flags in counts if flags is not None)
        return f"Certificate({len(self)} images, {', '.join(told)})"

    def _words(self) -> list[str]:
        """What is known of a single image."""
        words = [self._class(self.predicted), "certified" if bool(self.certified) else "not certified"]
        words += ["detectable"] if self.detectable is not None and bool(self.detectable) else []
        words += ["alert"] if self.alert is not None and bool(self.alert) else []
        if self.lead is not None and self.weakest_class is not None and self.weakest_region is not None:
            row, column, height, width = self.weakest_region[0].tolist()
            where = f"{height}x{width} at row {row}, column {column}"
            words.append(f"lead {int(self.lead)} over {self._class(self.weakest_class)} at {where}")
        return words

    def _class(self, number: Tensor) -> str:
        return self.names[int(number)] if self.names else f"class {int(number)}"

    def _repr_html_(self) -> str:
        """A table for notebooks, one row per image."""
        return certificate_table(self)


# What is proven, beside what a defense adds.
TENSORS = [entry.name for entry in fields(Certificate) if entry.name not in ("names", "drawn_by", "fingerprints")]
SHOWN = 20  # rows of a table


def certificate_table(certificate: Certificate) -> str:
    """The first images of a certificate as HTML."""
    given = certificate.weakest_region is not None and certificate.weakest_class is not None
    heads = ["image", "class", "proven"] + (["lead", "closest rival", "weakest place"] if given else [])
    rows = [heads]
    for number, each in enumerate(certificate[:SHOWN]):
        caught = "or an alert" if each.detectable is not None and bool(each.detectable) else "no"
        row = [str(number), each._class(each.predicted), "yes" if bool(each.certified) else caught]
        if each.weakest_region is not None and each.weakest_class is not None and each.lead is not None:
            top, left, height, width = each.weakest_region[0].tolist()
            row += [str(int(each.lead)), each._class(each.weakest_class), f"{height}x{width} at {top}, {left}"]
        rows.append(row)
    lines = ["".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rows]
    more = f"<caption>the first {SHOWN} of {len(certificate)} images</caption>" if len(certificate) > SHOWN else ""
    head = lines[0].replace("td>", "th>")
    return f"<table>{more}<tr>{head}</tr>{''.join(f'<tr>{line}</tr>' for line in lines[1:])}</table>"
