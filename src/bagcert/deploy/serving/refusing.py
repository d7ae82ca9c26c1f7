"""Requests that get no answer, and why: one line "expected …, got …; do …"."""

from starlette.exceptions import HTTPException


class Refused(HTTPException):
    """A request that is turned down; `detail` is for the one who sent it."""

    def __init__(self, status: int, detail: str, retry_after: int | None = None) -> None:
        headers = None if retry_after is None else {"Retry-After": str(retry_after)}
        super().__init__(status, detail, headers)
