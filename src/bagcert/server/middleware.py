"""What every request passes: who may come in, how many, how much they may bring and how long they may take."""

import asyncio
import hmac
import time

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bagcert.server.limits import Limits
from bagcert.server.metrics import Metrics
from bagcert.server.schemas import RequestError

HEADERS = {
    # The page brings all it needs: nothing is loaded from, or sent to, anywhere else.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
RAW_HEADERS = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
CLOSE = {"Connection": "close"}  # so that no more of a body is sent than was read
GUARDED = ("/v1/", "/metrics")  # what a token is needed for
ROUTES = ("/v1/certify", "/v1/attack", "/v1/model", "/v1/samples", "/health", "/metrics", "/openapi.json", "/")


class Middleware:
    """Wraps the application: it counts, guards, and adds what every answer carries."""

    def __init__(self, app: ASGIApp, limits: Limits, metrics: Metrics, token: str | None) -> None:
        self.app, self.limits, self.metrics = app, limits, metrics
        self.expected = None if token is None else f"Bearer {token}".encode()
        self.in_flight = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begun, route, started = time.monotonic(), route_of(scope["path"]), False

        async def answer(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                message["headers"] = [*message.get("headers", []), *RAW_HEADERS]
                self.metrics.requests.labels(route, str(message["status"])).inc()
                self.metrics.seconds.labels(route).observe(time.monotonic() - begun)
            await send(message)

        try:
            self.check(scope)
        except RequestError as refused:
            headers = {**(refused.headers or {}), **CLOSE}
            await JSONResponse({"detail": refused.detail}, refused.status_code, headers)(scope, receive, answer)
            return
        self.in_flight += 1
        try:
            await self.app(scope, BoundedBody(receive, self.limits), answer)
        except Exception:
            if not started:  # so that it is counted, and carries the headers of every answer
                words = "expected no mistake of the server, got one; its log says which"
                await JSONResponse({"detail": words}, 500, CLOSE)(scope, receive, answer)
            raise  # into the log
        finally:
            self.in_flight -= 1

    def check(self, scope: Scope) -> None:
        """Refuse by what the request's head says."""
        headers = dict(scope["headers"])
        if self.expected is not None and scope["path"].startswith(GUARDED):
            given = headers.get(b"authorization", b"")
            if not hmac.compare_digest(given, self.expected):
                words = "expected 'Authorization: Bearer TOKEN', got none or another; ask the operator"
                raise RequestError(401, words, {"WWW-Authenticate": "Bearer"})
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length) > self.limits.body_bytes:
            raise too_large(self.limits)
        if scope["path"].startswith("/v1/") and self.in_flight >= self.limits.requests:
            raise busy(self.limits)


class BoundedBody:
    """A body that ends in time and within its size, whatever its head promised."""

    def __init__(self, receive: Receive, limits: Limits) -> None:
        self.receive, self.limits = receive, limits
        self.bytes_left, self.ends = limits.body_bytes, time.monotonic() + limits.body_seconds
        self.whole = False

    async def __call__(self) -> Message:
        if self.whole:  # what comes now is the news that the client left, and that may take its time
            return await self.receive()
        try:
            message = await asyncio.wait_for(self.receive(), max(0.0, self.ends - time.monotonic()))
        except TimeoutError:
            raise RequestError(
                408,
                f"expected the whole request within {self.limits.body_seconds:g} s, got a part; send less, or faster",
                CLOSE,
            ) from None
        self.bytes_left -= len(message.get("body", b""))
        if self.bytes_left < 0:
            raise too_large(self.limits)
        self.whole = message["type"] != "http.request" or not message.get("more_body", False)
        return message


def too_large(limits: Limits) -> RequestError:
    words = f"expected a request of up to {limits.body_bytes} bytes, got more; send fewer or smaller files"
    return RequestError(413, words, CLOSE)


def busy(limits: Limits) -> RequestError:
    words = "expected a free place, got a full queue; try again later"
    return RequestError(503, words, {"Retry-After": str(limits.retry_seconds)})


def route_of(path: str) -> str:
    """A name for the counts; whatever strangers ask for is one name."""
    return next((route for route in ROUTES if path == route or path.startswith(route + "/")), "other")
