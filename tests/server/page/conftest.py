"""A browser on the page of a small model's server. Any message on the console fails the test."""

import os
import shutil
import socket
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import uvicorn

from bagcert.answers import Answer
from bagcert.pictures import Pixels
from bagcert.server.app import build_app
from bagcert.server.attacking import AttackJob, attack_picture
from bagcert.server.model import Model
from bagcert.server.samples import Sample
from bagcert.threats import RectangleThreat
from bagcert.threats.threat import Placement
from tests.server.conftest import answers_of, photos, small_model

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

HERE = Path(__file__).parent
PATIENCE = 120_000  # milliseconds before a test counts as hanging


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.full)


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    """Debian's Chromium, for one module at a time: while playwright runs, this thread cannot start an event loop."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("there is no chromium on this machine")
    api.expect.set_options(timeout=PATIENCE)
    with api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=chromium, args=sandbox())
        yield opened
        opened.close()


def sandbox() -> list[str]:
    return [] if os.geteuid() else ["--no-sandbox"]  # Chromium has none for root


@dataclass(frozen=True, eq=False)
class Served:
    """A server, and what its model says if called directly."""

    url: str
    model: Model
    samples: list[Sample]

    @cached_property
    def found(self) -> list[Answer]:
        return answers_of(self.model, [sample.pixels for sample in self.samples])

    @cached_property
    def names(self) -> list[str]:
        return [self.name(found) for found in self.found]

    def name(self, found: Answer) -> str:
        return self.model.defense.classes[found.predicted]

    def first(self, certified: bool) -> int:
        """The first sample that is certified, or is not."""
        return next(index for index, found in enumerate(self.found) if found.certified == certified)

    def breakable(self) -> int:
        """The first sample that the page's attack changes."""
        threat = self.model.defense.threat
        assert isinstance(threat, RectangleThreat)
        for index, sample in enumerate(self.samples):
            if self.found[index].certified:
                continue
            attacked = attack_picture(self.model, AttackJob(sample.pixels, threat, 40)).pixels
            if answers_of(self.model, [attacked])[0].predicted != self.found[index].predicted:
                return index
        raise AssertionError("No attack changes any of the samples.")

    def patched(self, index: int, place: Placement, color: tuple[int, int, int]) -> Answer:
        """What the model says about a sample with a solid patch."""
        pixels: Pixels = self.samples[index].pixels.copy()
        pixels[place.row : place.row + place.height, place.column : place.column + place.width] = color
        return answers_of(self.model, [pixels])[0]


@contextmanager
def serving(model: Model, samples: list[Sample], token: str | None = None) -> Iterator[Served]:
    """The application at its own address, in a thread of this process."""
    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(build_app(model, samples, token=token), log_level="warning", access_log=False, ws="none")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    url = f"http://127.0.0.1:{listening.getsockname()[1]}/"
    try:
        urllib.request.urlopen(url + "health", timeout=120).close()  # waits until it is up
        yield Served(url, model, samples)
    finally:
        server.should_exit = True
        thread.join()


def small_samples(model: Model) -> list[Sample]:
    """Pictures from dark to bright, labeled with the model's own answers, except the last: its label is wrong."""
    pictures = photos(12)
    found = answers_of(model, pictures)
    names = [model.defense.classes[each.predicted] for each in found]
    names[-1] = next(name for name in model.defense.classes if name != names[-1])
    return [Sample(pixels, name) for pixels, name in zip(pictures, names, strict=True)]


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    model = small_model()
    with serving(model, small_samples(model)) as each:
        yield each


Opener = Callable[..., "Page"]


@pytest.fixture
def open_page(browser: "Browser", served: Served) -> Iterator[Opener]:
    """Opens the page; at the end the console must be empty and no other server asked."""
    with opening(browser, served.url) as opener:
        yield opener


@pytest.fixture
def plain_page(browser: "Browser", served: Served) -> "Iterator[Page]":
    """A page whose console may report errors: the browser logs every failed request."""
    context = browser.new_context()
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    page.goto(served.url)
    page.locator("#clean[aria-busy=false]").wait_for()
    yield page
    context.close()


@contextmanager
def opening(browser: "Browser", url: str) -> Iterator[Opener]:
    complaints: list[str] = []
    contexts = []

    def opener(wait: bool = True, **options: Any) -> "Page":
        context = browser.new_context(**{"reduced_motion": "reduce", **options})
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        page.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda asked: None if allowed(asked.url, url) else complaints.append(asked.url))
        page.goto(url)
        if wait:
            page.locator("#clean[aria-busy=false]").wait_for()
        return page

    yield opener
    for context in contexts:
        context.close()
    assert complaints == []


def allowed(asked: str, url: str) -> bool:
    return asked.startswith((url, "blob:" + url, "data:"))
