"""Requests that get no answer, and why: one line "expected …, got …; do …"."""

from typing import Any

from starlette.exceptions import HTTPException

from bagcert.deploy.serving.answers import Problem

REFUSALS: dict[int | str, dict[str, Any]] = {
    400: {"model": Problem, "description": "the body is no form"},
    401: {"model": Problem, "description": "a token is needed"},
    408: {"model": Problem, "description": "the request took too long to arrive"},
    413: {"model": Problem, "description": "too many bytes, files or pixels"},
    415: {"model": Problem, "description": "no picture of a known kind"},
    422: {"model": Problem, "description": "a broken picture or a wrong value"},
    503: {"model": Problem, "description": "too much is waiting; Retry-After says when to come again"},
}


class Refused(HTTPException):
    """A request that is turned down; `detail` is for the one who sent it."""
