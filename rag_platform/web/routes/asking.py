"""`/api`: questions and their answers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Literal

import orjson
from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, Field
from starlette.responses import StreamingResponse

from rag_platform.api.asking import Question, QuestionAddress, ask, compare
from rag_platform.api.envelopes import failure
from rag_platform.api.orders import explain_order
from rag_platform.api.places import lease_chunk
from rag_platform.contract.source_shapes import (
    AskedData,
    ComparedData,
    OrderData,
    PinnedData,
    ReplayData,
)
from rag_platform.web.dependencies import MayWrite, SiteOf
from rag_platform.web.routes.sources import read_spans
from rag_platform.web.site import Site
from rag_platform.web.waiting import event_stream, follow, sse, work_for

router = APIRouter(tags=["asking"])
Address = Annotated[QuestionAddress, Query()]


@router.get("/ask")
async def get_answer(request: Request, site: SiteOf, asked: Address) -> AskedData:
    """The answer to a question, with its citations and everything that was found."""
    return await _answer(request, site, asked.question())


@router.post("/ask")
async def post_question(request: Request, site: SiteOf, asked: Question) -> AskedData:
    """The same for a question in the body."""
    return await _answer(request, site, asked)


async def _answer(request: Request, site: Site, question: Question) -> AskedData:
    return await work_for(request, lambda gone: ask(site.library, question, cancelled=gone))


_EVENT = {
    "type": "object",
    "properties": {
        "event": {"enum": ["stage", "text", "answer", "error", "end"]},
        "data": {"type": "string", "description": "JSON."},
    },
}
Way = Annotated[str, Query(max_length=100, description="strategy:NAME or release:ID.")]
Asked = Annotated[Literal["recorded", "published"], Query(description="Of which release.")]
TraceId = Annotated[str, Path(max_length=40, description="trc_ and 32 hex digits.")]


@router.get("/ask/compare")
async def get_comparison(
    request: Request, site: SiteOf, asked: Address, left: Way = "", right: Way = ""
) -> ComparedData:
    """A question asked in two ways: both answers, and both rankings side by side."""
    question = asked.question()
    return await work_for(
        request, lambda gone: compare(site.library, question, left, right, cancelled=gone)
    )


@router.get("/ask/{trace_id}/order")
def get_order(site: SiteOf, trace_id: TraceId) -> OrderData:
    """The ranking of a traced question's hits, by stage."""
    return explain_order(site.library, trace_id)


@router.get("/ask/{trace_id}/replay")
def get_replay(site: SiteOf, trace_id: TraceId, release: Asked = "recorded") -> ReplayData:
    """Repeat a traced question with the same options on the recorded or the published release."""
    from rag_platform.evaluation.monitoring.replay import replay_question

    return replay_question(site.library, trace_id, published=release == "published")


class Expected(BaseModel):
    """What to expect of a question: that a chunk is found, or without one a refusal."""

    q: str = Field(min_length=1, max_length=4000)
    namespace: str = Field(max_length=63)
    chunk_id: str = Field(default="", max_length=100)
    span: str = Field(default="", max_length=30, description="START-END in the chunk's text.")


@router.post("/expectations", dependencies=[MayWrite])
def post_expectation(site: SiteOf, expected: Expected) -> PinnedData:
    """Pin what a question found, or that it finds nothing, as an expectation."""
    return pin(site, expected)


def pin(site: Site, expected: Expected) -> PinnedData:
    """Add an expectation. Raises NotFoundError, InputError."""
    from rag_platform.evaluation.expectations import add_expectation, expectation

    site.library.require_visible(expected.namespace)
    if not expected.chunk_id:
        site.library.current(expected.namespace)
        case = expectation(expected.q, refuse=True)
    else:
        with lease_chunk(site.library, expected.chunk_id, expected.namespace) as leased:
            chunk = leased.row.chunk
            spans = read_spans([expected.span] if expected.span else [])
            text = chunk.chunk_text[slice(*spans[0])] if spans else ""
            case = expectation(expected.q, file=leased.row.source_uri, text=text.strip())
    new = add_expectation(site.store, expected.namespace, case)
    return {"case_id": case.case_id, "query": case.query, "new": new}


@router.get(
    "/ask/stream",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {"schema": _EVENT}}}},
)
async def stream_answer(site: SiteOf, asked: Address) -> StreamingResponse:
    """The answer as server-sent events: `stage` with the `name` of each stage as it begins, as in
    the trace; `text` for each part that a model writes; then `answer` with the data of GET
    /api/ask, or `error`; at last `end`.

    An extractive answer comes in one part.
    """
    question = asked.question()
    return event_stream(_events(site, question))


async def _events(site: Site, question: Question) -> AsyncIterator[str]:
    async for kind, value in follow(
        lambda on_text, gone: ask(site.library, question, on_text=on_text, cancelled=gone)
    ):
        if kind == "stage":
            yield sse("stage", _json({"name": value}))
        elif kind == "text":
            yield sse("text", _json({"text": value}))
        elif kind == "done":
            yield sse("answer", _json(value))
        elif kind == "failed":
            yield sse("error", _json(failure(value)["error"]))
        else:
            yield ": still at work\n\n"
    yield sse("end", "{}")


def _json(value: object) -> str:
    return orjson.dumps(value).decode()
