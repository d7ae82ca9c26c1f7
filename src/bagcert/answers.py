"""What is known about one picture: the record that `defense(picture)`, `bagcert predict` and the server give."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagcert.errors import UsageError
from bagcert.pictures import OwnPixels
from bagcert.rules import Certificate
from bagcert.threats import RectangleThreat, Threat
from bagcert.threats.threat import Placement, SeveralThreat, Size


@dataclass(frozen=True, eq=False, repr=False)
class Answer:
    """The class of one picture and what is proven about it.

    There are two kinds of pixels: the network's, and the picture's own. They differ if the picture was framed
    (`bagcert.pictures`). Fields are in the network's pixels unless their name ends in `_original`.

    >>> import bagcert
    >>> from PIL import Image
    >>> answer = bagcert.load("cifar10-small")(Image.new("RGB", (100, 80), "navy"))
    >>> answer.name, answer.certified, answer.own.original
    ('airplane', True, (80, 100))
    """

    name: str
    predicted: int
    certified: bool  # no patch of the threat, anywhere in the network's pixels, changes the class
    threat: Threat
    square: int  # side of the largest proven square, up to the threat; 0: none
    lead: int  # what the worst attack leaves of the lead, in score units; certified if above 0
    rival: str
    weakest: Placement
    second: Placement | None  # of rules with pairs of masks
    own: OwnPixels
    scores: NDArray[np.int32]  # k i j
    alert: bool | None = None  # outside some mask another class leads; None if the rule raises no alerts
    detectable: bool | None = None  # whatever the patch of the threat, the class is this one or an alert is raised

    @property
    def proven_patches(self) -> tuple[Size, ...]:
        """Rectangles that no attacker can change the class with, wherever they sit; of several at once, each alone."""
        return (*(self.threat.one.shapes if self.certified else ()), (self.square, self.square))

    @property
    def threat_original(self) -> str | None:
        """The threat in the picture's own pixels, as far as it has rectangles; None if not even one pixel is left."""
        if not self.own.changed:
            return str(self.threat)
        found = [self.own.patch(shape) for shape in self.threat.one.shapes]
        shapes = tuple(dict.fromkeys(shape for shape in found if shape is not None))
        if not shapes:
            return None
        one = RectangleThreat(self.own.original, shapes)
        return str(one if self.threat.count == 1 else SeveralThreat(one, self.threat.count))

    @property
    def patch_original(self) -> Size | None:
        """The largest patch, in the picture's own pixels, that is proven not to change the class; None: none is."""
        found = [self.own.patch(patch) for patch in self.proven_patches]
        return max((size for size in found if size is not None), key=lambda size: size[0] * size[1], default=None)

    @property
    def square_original(self) -> int:
        """The side of the largest proven square in the picture's own pixels; 0: none."""
        return self.own.square(self.proven_patches)

    @property
    def weakest_original(self) -> Placement:
        """The picture's own pixels that the weakest placement is made from."""
        return self.own.source(self.weakest)

    @property
    def proven(self) -> bool:
        """Whether the class is certified and that says something about the picture's own pixels, too."""
        return self.certified and self.threat_original is not None

    @property
    def detectable_original(self) -> bool | None:
        """Like `detectable`, of patches in the picture's own pixels; None if the rule raises no alerts."""
        return None if self.detectable is None else self.detectable and self.threat_original is not None

    @property
    def silence(self) -> str | None:
        """Why nothing can be proven in the picture's own pixels against this threat; None if something can."""
        if self.threat_original is not None:
            return None
        size = "x".join(map(str, self.own.framing.size))
        if not self.threat.one.shapes:
            return f"The threat {self.threat} is proven only for pictures of the network's own size, {size}."
        pixels = "x".join(map(str, self.own.original))
        return f"A picture of {pixels} becomes {size}: even one of its pixels outgrows the threat {self.threat}."

    @property
    def outcome(self) -> str:
        """Proven, detectable, alerted or neither, in the network's pixels."""
        named = {"proven": self.certified, "alerted": self.alert, "detectable": self.detectable}
        return next((name for name, holds in named.items() if holds), "neither")

    def proven_against(self, patch: Size) -> bool:
        """Whether no patch of this height and width, in the picture's own pixels, can change the class."""
        found = [self.own.patch(proven) for proven in self.proven_patches]
        return any(size is not None and patch[0] <= size[0] and patch[1] <= size[1] for size in found)

    def to_dict(self) -> dict[str, Any]:
        """The answer as JSON has it. Rectangles are rows before columns.

        What is promised is promised in the picture's own pixels; `network` has the certificate of the network's.
        """
        height, width = self.own.original
        patch = self.patch_original
        return {
            "class": self.predicted,
            "name": self.name,
            "proven": self.proven,
            "certified": self.proven,
            "alert": self.alert,
            "detectable": self.detectable_original,
            "network": {"certified": self.certified, "detectable": self.detectable},
            "threat": str(self.threat),
            "threat_original": self.threat_original,
            "square": self.square,
            "lead": self.lead,
            "rival": self.rival,
            "weakest": self.weakest._asdict(),
            "second": None if self.second is None else self.second._asdict(),
            "original": {
                "height": height,
                "width": width,
                "framed": self.own.changed,
                "seen": self.own.part._asdict(),
                "patch": None if patch is None else f"{patch[0]}x{patch[1]}",
                "square": self.square_original,
                "weakest": self.weakest_original._asdict(),
            },
        }

    def certified_by(self, certificate: Certificate, threat: Threat) -> "Answer":
        """The same answer with the certificate of its picture, which may be against another threat."""
        if int(certificate.predicted) != self.predicted:
            raise UsageError("This certificate is of another class, so of another picture. Give its own.")
        return replace(self, threat=threat, **proof_of(certificate, certificate.names))

    def __str__(self) -> str:
        patch = self.patch_original
        if self.proven:
            return f"{self.name}: no {self.threat_original} patch can change this"
        if self.alert:
            return f"{self.name}, with an alert: a patch may have made this"
        if self.detectable_original:
            return f"{self.name}: no {self.threat_original} patch can change this without an alert"
        if self.own.changed and not self.threat.one.shapes:
            size = "x".join(map(str, self.own.framing.size))
            return f"{self.name}: not proven; {self.threat} is proven only for pictures of {size}"
        smaller = "" if patch is None else f", but no {patch[0]}x{patch[1]} patch can change this"
        return f"{self.name}: not proven{smaller}"

    def __repr__(self) -> str:
        return f"<{self}>"


def proof_of(certificate: Certificate, classes: Sequence[str]) -> dict[str, Any]:
    """The fields of an answer that the certificate of its one picture decides."""
    weakest, second, rival = certificate.weakest_region, certificate.second_region, certificate.weakest_class
    if certificate.lead is None or weakest is None or rival is None:
        raise UsageError("This certificate lacks its weakest place. Certify with exact=True.")
    return {
        "certified": bool(certificate.certified),
        "lead": int(certificate.lead),
        "rival": classes[int(rival)],
        "weakest": Placement(*weakest[0].tolist()),
        "second": None if second is None else Placement(*second[0].tolist()),
        "alert": None if certificate.alert is None else bool(certificate.alert),
        "detectable": None if certificate.detectable is None else bool(certificate.detectable),
    }
