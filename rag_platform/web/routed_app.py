"""The FastAPI application with all pages and `/api`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from rag_platform.contract.schema import ErrorPart
from rag_platform.errors import InputError, RagError
from rag_platform.observability.build import build_info
from rag_platform.retrieval.library import Library
from rag_platform.web.failures import error_response
from rag_platform.web.routes import (
    asking,
    documents,
    drafts,
    evaluation,
    jobs,
    overview,
    preferences,
    releases,
    sources,
    traces,
)

# order matters: a request builds the routers up to the matching one, and those of /api are slow
_SUBJECTS = (
    asking,
    sources,
    documents,
    drafts,
    jobs,
    releases,
    traces,
    evaluation,
    overview,
)


def build_app(library: Library) -> FastAPI:
    """The application of a library, without guards."""
    app = FastAPI(
        title="rag_platform",
        version=build_info()["app_version"],
        description="What the library holds, answers, and how it came about.",
        openapi_url="/api/openapi.json",
        docs_url=None,  # they load scripts from a CDN
        redoc_url=None,
        responses={"4XX": {"model": ErrorPart}, "5XX": {"model": ErrorPart}},
    )
    app.state.library = library
    for module in (preferences, *_SUBJECTS):
        app.include_router(module.pages, include_in_schema=False)
    for module in _SUBJECTS:
        app.include_router(module.api, prefix="/api", dependencies=[Depends(_refuse_typos)])
    for kind in (RagError, HTTPException, Exception):
        app.add_exception_handler(kind, error_response)
    app.add_exception_handler(RequestValidationError, _validation_error_response)
    return app


def _refuse_typos(request: Request) -> None:
    """Refuse query parameters that a route does not take, which would change nothing."""
    known = {*_names(_query_fields(request.scope["route"].dependant))}
    if unknown := [name for name in request.query_params if name not in known]:
        raise InputError(
            f"the address takes no {unknown[0][:80]!r}; known: {_list(known)}",
            code="invalid_arguments",
        )


def _query_fields(dependant: Any) -> Iterator[Any]:
    yield from dependant.query_params
    for part in dependant.dependencies:
        yield from _query_fields(part)


def _names(fields: Iterable[Any]) -> Iterator[str]:
    """The names of fields, and instead of a model those of its fields."""
    for field in fields:
        yield from getattr(field.field_info.annotation, "model_fields", [field.alias])


def _list(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"


def _describe(item: Any, request: Request) -> str:
    """What is wrong with one part of a request: its place, the rule and what was given."""
    where = ".".join(map(str, item["loc"][1:])) or item["loc"][0]
    if item["type"] == "json_invalid":
        return f"the body is not JSON, from character {where} on: {item['ctx']['error']}"
    if item["type"] == "extra_forbidden":
        dependant = request.scope["route"].dependant
        known = _list(_names(dependant.body_params))
        in_address = where == "namespace" and where in _names(_query_fields(dependant))
        hint = "; a library is named in the address, ?namespace=NAME" * in_address
        return f"the body takes no {where[:80]!r}; known: {known}{hint}"
    return f"{where}: {item['msg']} (given: {str(item['input'])[:80]!r})"


def _validation_error_response(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    problems = "; ".join(_describe(item, request) for item in error.errors())
    return error_response(request, InputError(problems, code="invalid_arguments"))
