"""Requests that never end, sent to the middleware itself: a real client would have to wait as long as the test."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from bagcert.server.limits import Limits
from bagcert.server.middleware import BoundedBody, route_of
from bagcert.server.schemas import RequestError


def receiving(messages: Iterator[dict[str, Any]]) -> BoundedBody:
    async def receive() -> dict[str, Any]:
        try:
            return next(messages)
        except StopIteration:
            return await asyncio.Future()  # nothing more ever comes

    return BoundedBody(receive, Limits(body_bytes=10, body_seconds=0.0))


def part(body: bytes, more: bool = True) -> dict[str, Any]:
    return {"type": "http.request", "body": body, "more_body": more}


def test_a_body_that_stops_coming_is_refused() -> None:
    with pytest.raises(RequestError) as refused:
        asyncio.run(receiving(iter([]))())
    assert refused.value.status_code == 408
    assert refused.value.detail.startswith("The request did not arrive in full within 0 s.")


def test_a_whole_body_may_wait_for_its_answer() -> None:
    """After the last part only a disconnect can follow, which is not an error."""

    async def test() -> None:
        limits = Limits(body_bytes=10, body_seconds=30.0)
        messages = iter([part(b"12345"), part(b"6789", more=False), {"type": "http.disconnect"}])

        async def receive() -> dict[str, Any]:
            return next(messages)

        bounded = BoundedBody(receive, limits)
        assert [(await bounded())["type"] for _ in range(3)] == ["http.request", "http.request", "http.disconnect"]
        assert bounded.bytes_left == 1

    asyncio.run(test())


def test_unknown_paths_share_one_name() -> None:
    assert [route_of(path) for path in ("/v1/certify", "/v1/samples/3", "/", "/x", "/v1/certifyx")] == [
        "/v1/certify",
        "/v1/samples",
        "/",
        "other",
        "other",
    ]
