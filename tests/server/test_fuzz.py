"""A short version of `make fuzz`: broken files and generated requests never get a 500."""

import random
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from fastapi.testclient import TestClient
from hypothesis import settings
from schemathesis.specs.openapi.checks import positive_data_acceptance
from schemathesis.specs.openapi.schemas import OpenApiSchema

from tests.server.conftest import file_of, photos
from tests.server.mutations import mutate, seeds

# The server ignores Pillow's warnings about odd metadata; in tests they would be errors.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:PIL", "ignore:Truncated File Read", "ignore:Corrupt EXIF")


@pytest.mark.slow
def test_mutated_files_get_an_answer_or_an_error(client: TestClient) -> None:
    draw, stock = random.Random(7), seeds()
    wanted = client.post("/v1/certify", files={"files": file_of(photos()[-1])}).json()
    statuses = set()
    for _ in range(400):
        content = mutate(stock, draw)
        response = client.post("/v1/certify", files={"files": content})
        assert response.status_code in (200, 413, 415, 422), (response.text, content)
        statuses.add(response.status_code)
    assert statuses == {200, 413, 415, 422}
    assert client.post("/v1/certify", files={"files": file_of(photos()[-1])}).json() == wanted


@pytest.fixture(scope="module")
def described() -> Iterator[OpenApiSchema]:
    """The OpenAPI schema of a running server."""
    command = [sys.executable, "-m", "tests.server.small_server"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield schemathesis.openapi.from_url(server.stdout.readline().strip() + "/openapi.json")
            assert server.poll() is None, "the server has died"
        finally:
            server.terminate()


generated = schemathesis.pytest.from_fixture("described")


@pytest.mark.slow
@generated.parametrize()
@settings(max_examples=10, deadline=None, derandomize=True, database=None)
def test_generated_requests_get_documented_answers(case: schemathesis.Case[Any]) -> None:
    """Requests that the schema allows are accepted, except files: random bytes are rarely a picture."""
    case.call_and_validate(excluded_checks=[positive_data_acceptance])
