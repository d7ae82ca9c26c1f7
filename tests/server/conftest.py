"""A small model behind the application, called without a network connection."""

import io
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from fastapi.testclient import TestClient
from PIL import Image

from bagcert.answers import Answer
from bagcert.defense import Defense
from bagcert.pictures import Pixels
from bagcert.server.app import build_app
from bagcert.server.limits import Limits
from bagcert.server.model import Model, to_images
from bagcert.server.samples import drawn_samples
from tests.onnx.conftest import pictures, small_defense

HERE = "http://127.0.0.1"  # without a token the server answers to no other name
INFO = {"weights_sha256": "0" * 64, "version": "0"}
LIMITS = Limits(body_bytes=2**20, files=24, pixels=2**18, side=2**10)


def small_model(defense: Defense | None = None, backend: str = "torch") -> Model:
    served = defense or small_defense("logits", "two-mask")
    return Model("small", served, backend, INFO)


def answers_of(model: Model, pictures: Sequence[Pixels]) -> list[Answer]:
    """What the model says, asked directly, about pictures of the network's size."""
    return model.defense.answers(model.scores(to_images(pictures)), [model.image_size] * len(pictures))


def small_client(model: Model, limits: Limits = LIMITS, token: str | None = None) -> TestClient:
    """A client in which failures of the application are raised as they are."""
    return TestClient(build_app(model, drawn_samples((12, 12), 3), limits, token), HERE)


def photos(count: int = 24) -> list[Pixels]:
    """Pictures from dark to bright, as bytes."""
    levels = (pictures(count) * 255).round().permute(0, 2, 3, 1).numpy()
    return [np.ascontiguousarray(each).astype(np.uint8) for each in levels]


def file_of(pixels: Pixels, kind: str = "PNG", **options: object) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, kind, **options)
    return buffer.getvalue()


@pytest.fixture(scope="module")
def model() -> Model:
    return small_model()


@pytest.fixture(scope="module")
def client(model: Model) -> Iterator[TestClient]:
    with small_client(model) as opened:
        yield opened
