"""What every request passes through: the token, the limits on requests, bytes and time, headers and metrics."""

import asyncio
import hmac
import ipaddress
import re
import time
from collections.abc import Collection

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bagcert.server.limits import Limits
from bagcert.server.metrics import Metrics
from bagcert.server.schemas import RequestError

HEADERS = {
    # The page is self-contained: nothing is loaded from, or sent to, another server.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
RAW_HEADERS = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
WRONG_HOST = (
    "This server does not answer to that name. Use its address; or start it with --allow-host NAME, or with --token."
)
CLOSE = {"Connection": "close"}  # so that the client sends no more of the body
GUARDED = ("/v1/", "/metrics")  # paths that need the token
ROUTES = (
    "/v1/certify",
    "/v1/frame",
    "/v1/attack",
    "/v1/model",
    "/v1/samples",
    "/health",
    "/metrics",
    "/openapi.json",
    "/",
)


class Middleware:
    """Wraps the application: it checks and counts requests, and adds the headers of every answer."""

    def __init__(
        self, app: ASGIApp, limits: Limits, metrics: Metrics, token: str | None, hosts: Collection[str] = ()
    ) -> None:
        self.app, self.limits, self.metrics = app, limits, metrics
        self.hosts = {host.lower() for host in hosts} | {"localhost"}
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
        except RequestError as error:
            headers = {**(error.headers or {}), **CLOSE}
            await JSONResponse({"detail": error.detail}, error.status_code, headers)(scope, receive, answer)
            return
        self.in_flight += 1
        try:
            await self.app(scope, BoundedBody(receive, self.limits), answer)
        except Exception:
            if not started:  # answered here, so that it is counted and has the usual headers
                words = "The server failed to answer this request. Its log says why."
                await JSONResponse({"detail": words}, 500, CLOSE)(scope, receive, answer)
            raise  # for the log
        finally:
            self.in_flight -= 1

    def check(self, scope: Scope) -> None:
        """Reject a request by its headers."""
        headers = dict(scope["headers"])
        if b"content-length" in headers and b"transfer-encoding" in headers:
            words = "The request has both Content-Length and Transfer-Encoding: its end is unclear. Send one of them."
            raise RequestError(400, words)
        if self.expected is None and not self.is_own(headers.get(b"host", b"").decode("latin-1")):
            raise RequestError(421, WRONG_HOST)
        if self.expected is not None and scope["path"].startswith(GUARDED):
            given = headers.get(b"authorization", b"")
            if not hmac.compare_digest(given, self.expected):
                words = (
                    "The token is missing or wrong. Send 'Authorization: Bearer TOKEN'; ask the operator for the token."
                )
                raise RequestError(401, words, {"WWW-Authenticate": "Bearer"})
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length) > self.limits.body_bytes:
            raise too_large(self.limits)
        if scope["path"].startswith("/v1/") and self.in_flight >= self.limits.requests:
            raise busy(self.limits)

    def is_own(self, host: str) -> bool:
        """Whether a request without a token may name this server so.

        A page of another site can have its own name point here (DNS rebinding) and would then be taken for this
        server's page by a browser. It cannot do that with an address or with localhost.
        """
        found = re.fullmatch(r"(\[[^\[\]]+\]|[^:\[\]]+)(:\d+)?", host)
        name = found[1].strip("[]").lower() if found else ""
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return name in self.hosts
        return True


class BoundedBody:
    """Receives a body that must end in time and within the size limit, whatever its headers say."""

    def __init__(self, receive: Receive, limits: Limits) -> None:
        self.receive, self.limits = receive, limits
        self.bytes_left, self.ends = limits.body_bytes, time.monotonic() + limits.body_seconds
        self.whole = False

    async def __call__(self) -> Message:
        if self.whole:  # all that can follow is that the client disconnects, at any time
            return await self.receive()
        try:
            message = await asyncio.wait_for(self.receive(), max(0.0, self.ends - time.monotonic()))
        except TimeoutError:
            raise RequestError(
                408,
                f"The request did not arrive in full within {self.limits.body_seconds:g} s. Send less, or faster.",
                CLOSE,
            ) from None
        self.bytes_left -= len(message.get("body", b""))
        if self.bytes_left < 0:
            raise too_large(self.limits)
        self.whole = message["type"] != "http.request" or not message.get("more_body", False)
        return message


def too_large(limits: Limits) -> RequestError:
    words = f"The request is larger than {limits.body_bytes} bytes. Send fewer or smaller files."
    return RequestError(413, words, CLOSE)


def busy(limits: Limits) -> RequestError:
    words = "The server is busy. Try again later."
    return RequestError(503, words, {"Retry-After": str(limits.retry_seconds)})


def route_of(path: str) -> str:
    """The route's name in the metrics; all unknown paths share one."""
    return next((route for route in ROUTES if path == route or path.startswith(route + "/")), "other")
