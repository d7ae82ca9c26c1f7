"""A Hub on this machine in place of the real one, and an empty cache. Nothing leaves the machine."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants

from tests.hub.local_hub import LocalHub, running_hub


@pytest.fixture
def local_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalHub]:
    with running_hub() as server:
        for name, value in (
            ("HUGGINGFACE_CO_URL_TEMPLATE", server.url + "/{repo_id}/resolve/{revision}/{filename}"),
            *(("ENDPOINT", server.url), ("HF_HUB_CACHE", str(tmp_path / "cache")), ("HF_HUB_OFFLINE", False)),
            *(("HF_TOKEN_PATH", str(tmp_path / "token")), ("HF_HUB_DISABLE_XET", True)),
        ):
            monkeypatch.setattr(constants, name, value)
        monkeypatch.setenv("HF_TOKEN", "secret")
        monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
        yield server
