"""Turns errors into responses: HTTP status, and JSON or a page."""

from __future__ import annotations

from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response

from rag_platform.api.envelopes import failure
from rag_platform.contract.schema import ErrorPart
from rag_platform.errors import (
    BusyError,
    DocumentError,
    InputError,
    NotFoundError,
    RagError,
    ReleaseError,
)
from rag_platform.observability import faults
from rag_platform.web.rendering import render_part

_KINDS = {  # the more specific first
    NotFoundError: 404,
    InputError: 400,
    BusyError: 409,
    ReleaseError: 409,
    DocumentError: 422,  # a file that cannot be read
}
_CODES = {  # of other errors
    "insufficient_scope": 403,
    "limited_token": 403,
    "overloaded": 503,
    "ledger_unreachable": 503,
    "deadline": 504,
    "filter_failed": 400,
    "cancelled": 499,  # the client is gone
}


def error_response(request: Request, error: Exception) -> Response:
    """The response to an error: JSON under /api, else a page or the way to one."""
    status, part = describe(request, error)
    if request.url.path.startswith("/api/"):
        return JSONResponse(part, status)
    if status == 405 and request.method == "GET":
        # the address that a form was sent to, such as after an error: its page is above it
        return RedirectResponse(request.url.path.rpartition("/")[0] or "/", 303)
    namespace = {**request.query_params, **request.path_params}.get("namespace", "")
    parts = ("error_part.html", "error.html")
    return render_part(request, *parts, status, error=part, namespace=namespace)


def describe(request: Request, error: Exception) -> tuple[int, ErrorPart]:
    """(HTTP status, description) of an error; unexpected errors are reported."""
    if isinstance(error, HTTPException):
        code, message, path = "http_error", str(error.detail), request.url.path[:200]
        if error.status_code == 404:
            code, message = "not_found", f"there is nothing at {path}"
        elif error.status_code == 405:
            code, message = "method_not_allowed", f"{path} does not take {request.method}"
        if path.startswith("/api/") and code != "http_error":
            message += "; /api/openapi.json lists the addresses and what they take"
        return error.status_code, {"code": code, "message": message, "details": {"kind": "usage"}}
    part: Any = failure(error)["error"]
    if (status := _status(error)) == 500:
        faults.report(error, f"web {request.url.path}")
    return status, part


def _status(error: Exception) -> int:
    code = error.code if isinstance(error, RagError) else ""
    found = (status for kind, status in _KINDS.items() if isinstance(error, kind))
    return next(found, _CODES.get(code, 500))
