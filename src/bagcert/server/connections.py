"""Connections that do not hold the server up: the headers of a request must arrive in time, as its body must."""

import asyncio
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol


def with_header_timeout(seconds: float) -> type[asyncio.Protocol]:
    """uvicorn's protocol, which waits for headers without end; this one closes the connection after so many seconds.

    The time counts from the opening of a connection, and again from the end of each answer. uvicorn itself closes
    connections that are idle between two requests.
    """

    class Protocol(AutoHTTPProtocol):  # type: ignore[valid-type, misc]
        headers_due: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self.expect_headers()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            self.expect_headers()

        def connection_lost(self, exc: Exception | None) -> None:
            self.stop_waiting()
            super().connection_lost(exc)

        def expect_headers(self) -> None:
            self.stop_waiting()
            self.headers_due = self.loop.call_later(seconds, self.close_if_late)

        def stop_waiting(self) -> None:
            if self.headers_due is not None:
                self.headers_due.cancel()

        def close_if_late(self) -> None:
            """A request whose headers are there has a cycle of its own, until it is answered."""
            if self.cycle is None or self.cycle.response_complete:
                self.transport.close()

    return Protocol
