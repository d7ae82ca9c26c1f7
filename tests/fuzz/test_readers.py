"""No file makes a reader fail in another way than by one line; those that once found something are read every time."""

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.changes import changed
from tests.fuzz.readers import READERS, answer, good

CORPUS = Path(__file__).parent / "corpus"
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:PIL", "ignore:Truncated File Read", "ignore:Corrupt EXIF")


def kept_inputs(name: str) -> list[tuple[str, bytes]]:
    """The file that is changed, and its content."""
    paths = sorted((CORPUS / name).glob("*"))
    return [(path.name.partition("--")[0].replace("+", "/"), path.read_bytes()) for path in paths]


@pytest.mark.parametrize("name", READERS)
def test_a_good_input_is_read(name: str) -> None:
    assert answer(name, {}, sealed=False) == answer(name, {}, sealed=True) == ""


@pytest.mark.parametrize("name", READERS)
def test_what_is_kept_is_read_or_refused_in_one_line(name: str) -> None:
    said = [answer(name, {file: content}, sealed=True) for file, content in kept_inputs(name)]
    assert any(said), "some are broken"


@pytest.mark.parametrize("name", READERS)
@settings(max_examples=15, deadline=None)
@given(draw=st.randoms(use_true_random=False), sealed=st.booleans())
def test_a_changed_input_is_read_or_refused_in_one_line(name: str, draw: random.Random, sealed: bool) -> None:
    file = draw.choice(READERS[name].files)
    answer(name, {file: changed(file, (good(name) / file).read_bytes(), draw)}, sealed)
