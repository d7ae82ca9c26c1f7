"""What the server answers, as data: classes with their proofs, and refusals with their reasons."""

from typing import Any

from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException


class Rectangle(BaseModel):
    """A rectangle of pixels."""

    row: int
    column: int
    height: int
    width: int


class Original(BaseModel):
    """The picture as it was sent, upright, and what is proven in its own pixels.

    A picture of another size than the network's is resized; a patch in it then touches every new pixel that any of its
    own pixels enters. Only patches whose touch always fits into a proven patch are proven.
    """

    height: int
    width: int
    resized: bool
    threat: str = Field(description="the served threat in these pixels, as 12x12; 'none' where not one pixel fits")
    square: int = Field(description="side of the largest square, in these pixels, that the answer is proven against")
    weakest: Rectangle = Field(description="the pixels that the weakest place is made of")


class Answer(BaseModel):
    """The class of one picture and its proof, all under the one set of masks that produced the class."""

    class_index: int | None = Field(serialization_alias="class", description="null: abstained, in fail-safe mode only")
    name: str | None = Field(description="of the class")
    certified: bool = Field(description="no patch of the served threat, anywhere, changes the class")
    square: int = Field(
        description="side of the largest square patch proven, in the network's pixels, up to the served threat; 0: none"
    )
    lead: int = Field(description="what the worst attack leaves of the lead, in score units; certified when above 0")
    rival: str = Field(description="the class that comes closest")
    weakest: Rectangle = Field(description="where the proof is weakest, in the network's pixels")
    second: Rectangle | None = Field(description="for rules with pairs of masks: the second place")
    original: Original
    scores: list[list[list[int]]] | None = Field(
        default=None, description="on request: the score map, [class][row][column], in score units"
    )


class Certified(BaseModel):
    """Answers in the order of the files."""

    model: str
    rule: str
    threat: str
    arithmetic: str = Field(description="the program that computed the scores; the proofs hold for it")
    answers: list[Answer]


class AttackAnswer(BaseModel):
    """What came of one attack. `proven` and `changed` together would be a broken proof."""

    patch: str
    placement: Rectangle = Field(description="where the patch was painted, in the network's pixels")
    steps: int = Field(description="taken; fewer than asked where the class changed before")
    proven: bool = Field(description="no patch of this size, anywhere, changes the class of the clean picture")
    changed: bool = Field(description="the attacked picture has another class")
    picture: str = Field(description="the attacked picture at the network's size: a PNG file in base64")
    clean: Answer
    attacked: Answer


class ModelAnswer(BaseModel):
    """What is served."""

    name: str
    classes: list[str]
    height: int = Field(description="of the network's images; other pictures are resized")
    width: int
    channels: int
    grid: list[int] = Field(description="rows and columns of the score map")
    rule: str
    threat: str
    threat_in_words: str
    square: int = Field(description="side of the largest square inside the threat")
    score_unit: int = Field(description="this many score units stand for a score of 1.0")
    arithmetic: str
    threads: int
    resize_filter: str
    weights_sha256: str
    version: str
    limits: dict[str, int] = Field(description="bytes of a request, files in it, pixels and side of a picture, ...")


class SampleAnswer(BaseModel):
    """A picture to try."""

    index: int
    name: str
    url: str


class ErrorAnswer(BaseModel):
    """Why there is no answer: "expected …, got …; do …"."""

    detail: str


class Health(BaseModel):
    """Up."""

    status: str


ERRORS: dict[int | str, dict[str, Any]] = {
    400: {"model": ErrorAnswer, "description": "the body is no form"},
    401: {"model": ErrorAnswer, "description": "a token is needed"},
    408: {"model": ErrorAnswer, "description": "the request took too long to arrive"},
    413: {"model": ErrorAnswer, "description": "too many bytes, files or pixels"},
    415: {"model": ErrorAnswer, "description": "no picture of a known kind"},
    422: {"model": ErrorAnswer, "description": "a broken picture or a wrong value"},
    503: {"model": ErrorAnswer, "description": "too much is waiting; Retry-After says when to come again"},
}


class RequestError(HTTPException):
    """A request that is turned down; `detail` is for the one who sent it."""
