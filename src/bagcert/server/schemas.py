"""The server's answers as data: classes with their proofs, and errors with their reasons."""

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
    """The picture as it was sent, upright, and what is proven in its own pixels. All numbers are in these pixels.

    A picture that does not have the network's size is framed: a part of it is resized. A patch on it then touches every
    new pixel that any of its own pixels contributes to. It is proven only if, wherever it sits, all of these fit into a
    proven patch.
    """

    height: int
    width: int
    framed: bool = Field(description="The picture did not have the network's size")
    seen: Rectangle = Field(description="The part of the picture that the network sees, resized")
    patch: str | None = Field(description="The largest patch that the class is proven against; null if there is none")
    square: int = Field(description="Side of the largest square that the class is proven against; 0 if there is none")
    weakest: Rectangle = Field(description="The pixels that the weakest placement is made from")


class NetworkCertificate(BaseModel):
    """What holds in the network's pixels. Of a framed picture's own pixels it may prove nothing."""

    certified: bool = Field(description="No patch of `threat`, anywhere in the network's pixels, can change the class")
    detectable: bool | None = Field(
        description="Whatever a patch of `threat` shows, the class is this one or an alert is raised"
    )


class Answer(BaseModel):
    """The class of one picture and its proof, under the same set of masks that produced the class."""

    class_index: int | None = Field(alias="class", description="Null if the server abstains, in fail-safe mode only")
    name: str | None = Field(description="Name of the class")
    proven: bool = Field(
        description="No patch of `threat_original`, anywhere in the picture's own pixels, can change the class"
    )
    certified: bool = Field(
        description="The same as `proven`. What holds in the network's pixels alone is told by `network`"
    )
    alert: bool | None = Field(
        description="This picture raises an alert: do not use its class. Null if the served rule raises none. "
        "An attacker can always provoke an alert"
    )
    detectable: bool | None = Field(
        description="Whatever a patch of `threat_original` shows, anywhere in the picture's own pixels, the class is "
        "this one or an alert is raised; null without alerts"
    )
    network: NetworkCertificate
    threat: str = Field(description="The served threat, in the network's pixels")
    threat_original: str | None = Field(
        description="What `threat` means in the picture's own pixels; null if nothing can be proven about them: not "
        "even one fits into it, or it is no rectangle anywhere and the picture does not have the network's size"
    )
    square: int = Field(
        description="Side of the largest proven square, in the network's pixels, up to the served threat; 0 if none"
    )
    lead: int = Field(description="What the worst attack leaves of the lead, in score units: above 0 if it cannot win")
    rival: str = Field(description="The class that comes closest")
    weakest: Rectangle = Field(description="Where the proof is weakest, in the network's pixels")
    second: Rectangle | None = Field(description="For rules with pairs of masks: the second placement")
    original: Original
    scores: list[list[list[int]]] | None = Field(
        default=None, description="On request: the score map, [class][row][column], in score units"
    )


class Certified(BaseModel):
    """Answers in the order of the files."""

    model: str
    rule: str
    threat: str = Field(description="In the network's pixels; each answer says what that means in its picture's own")
    arithmetic: str = Field(description="The program that computed the scores; the proofs hold for it")
    weights_sha256: str = Field(description="Of the network that computed them")
    answers: list[Answer]


class AttackAnswer(BaseModel):
    """The outcome of one attack. `proven` and `changed` are never both true, unless a proof is wrong."""

    patch: str = Field(description="Size of the patch, in the network's pixels")
    placement: Rectangle = Field(description="Where the patch was painted, in the network's pixels")
    steps: int = Field(description="Steps taken; fewer than requested if the class changed earlier")
    proven: bool = Field(
        description="No patch of this size, anywhere in the network's pixels, can change the class of the clean picture"
    )
    changed: bool = Field(description="The attacked picture has another class")
    picture: str = Field(description="The attacked picture at the network's size: a PNG file in base64")
    clean: Answer
    attacked: Answer


class ModelAnswer(BaseModel):
    """The served model, its rule, its threat and the limits of a request."""

    name: str
    classes: list[str]
    height: int = Field(description="Height of the network's images; other pictures are framed")
    width: int
    channels: int
    grid: list[int] = Field(description="Rows and columns of the score map")
    rule: str
    threat: str = Field(description="In the network's pixels")
    threat_in_words: str
    square: int = Field(description="Side of the largest square inside the threat, in the network's pixels")
    score_unit: int = Field(description="How many score units make a score of 1.0")
    arithmetic: str
    threads: int
    framing: dict[str, str | int | list[int]] = Field(
        description="How a picture of any size becomes the network's input"
    )
    weights_sha256: str
    version: str
    limits: dict[str, int] = Field(
        description="Bytes and files per request, pixels and side per picture, steps per attack"
    )


class SampleAnswer(BaseModel):
    """A sample picture."""

    index: int
    name: str
    url: str


class ErrorAnswer(BaseModel):
    """Why there is no answer: what is wrong, and what to do."""

    detail: str


class Health(BaseModel):
    """The server is up."""

    status: str


ERRORS: dict[int | str, dict[str, Any]] = {
    400: {"model": ErrorAnswer, "description": "The body is not a form"},
    401: {"model": ErrorAnswer, "description": "The token is missing or wrong"},
    408: {"model": ErrorAnswer, "description": "The request took too long to arrive"},
    421: {"model": ErrorAnswer, "description": "The Host header names another server"},
    413: {"model": ErrorAnswer, "description": "Too many bytes, files or pixels"},
    415: {"model": ErrorAnswer, "description": "Not a picture in a known format"},
    422: {"model": ErrorAnswer, "description": "A broken picture or an invalid value"},
    503: {"model": ErrorAnswer, "description": "The server is busy; Retry-After says when to try again"},
}


class RequestError(HTTPException):
    """A request that gets no answer; `detail` tells the client why."""
