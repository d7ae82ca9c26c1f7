"""What is known of a picture, in the words of the contract."""

from bagcert.server.model import Found, Model
from bagcert.server.resizing import back, seen_from, square_seen_from
from bagcert.server.schemas import Answer, Original, Place
from bagcert.threats.threat import Placement, Size


def to_answer(model: Model, found: Found, original: Size, scores: bool, fail_safe: bool) -> Answer:
    """The answer to one picture that was sent at size `original`.

    In fail-safe mode the class is given only where it is proven, and in the picture's own pixels, too: where resizing
    spreads every single pixel beyond the patch, nothing is proven of the picture that was sent.
    """
    seen = seen_in_original(model, found, original)
    given = not fail_safe or (found.certified and seen.square > 0)
    return Answer(
        class_index=found.predicted if given else None,
        name=model.defense.classes[found.predicted] if given else None,
        certified=found.certified,
        square=found.square,
        lead=found.lead,
        rival=model.defense.classes[found.rival],
        weakest=to_place(found.weakest),
        second=None if found.second is None else to_place(found.second),
        original=seen,
        scores=found.scores.tolist() if scores else None,
    )


def seen_in_original(model: Model, found: Found, original: Size) -> Original:
    """The certificate, through the resize."""
    threat = [seen_from(original, model.image_size, shape) for shape in model.shapes]
    fitting = [f"{height}x{width}" for height, width in threat if height]
    proven = (*(model.shapes if found.certified else ()), (found.square, found.square))
    (row, height), (column, width) = (
        back(found.weakest[axis], found.weakest[axis + 2], original[axis], model.image_size[axis]) for axis in (0, 1)
    )
    return Original(
        height=original[0],
        width=original[1],
        resized=original != model.image_size,
        threat="+".join(dict.fromkeys(fitting)) or "none",
        square=square_seen_from(original, model.image_size, proven),
        weakest=Place(row=row, column=column, height=height, width=width),
    )


def to_place(placement: Placement) -> Place:
    return Place(**placement._asdict())
