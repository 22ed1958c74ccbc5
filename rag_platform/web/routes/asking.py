"""Questions and their answers, their explanations, and pinning them as expectations."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from difflib import SequenceMatcher
from functools import partial
from typing import Annotated, Any, Literal

import orjson
from fastapi import APIRouter, Form, Path, Query, Request
from markupsafe import escape
from pydantic import BaseModel, Field
from starlette.responses import RedirectResponse, Response, StreamingResponse

from rag_platform import access
from rag_platform.api.asking import Question, QuestionAddress, ask, compare
from rag_platform.api.envelopes import failure
from rag_platform.api.places import lease_chunk
from rag_platform.api.trace_details import explain_order
from rag_platform.config.strategies import strategy_names
from rag_platform.contract.schema import CitationPart
from rag_platform.contract.traces import (
    AskedData,
    ComparedData,
    ExpectationPart,
    OrderData,
    PinnedData,
    ReplayData,
)
from rag_platform.errors import RagError
from rag_platform.evaluation.cases import EvalCase
from rag_platform.messages import translate
from rag_platform.releases.release_store import list_heads
from rag_platform.retrieval.library import Library
from rag_platform.retrieval.namespaces import choose_namespaces
from rag_platform.web.dependencies import (
    ApiView,
    FormView,
    LibraryOf,
    MayWrite,
    PageView,
    View,
)
from rag_platform.web.failures import describe
from rag_platform.web.first_page import QuestionForm, show_form
from rag_platform.web.rendering import (
    is_fragment,
    language_of,
    link,
    render,
    render_part,
    render_text,
)
from rag_platform.web.routes.sources import read_spans
from rag_platform.web.waiting import event_stream, follow, sse, work_for

api = APIRouter(tags=["asking"])
pages = APIRouter()
AddressQuery = Annotated[QuestionAddress, Query()]


@api.get("/ask")
async def get_answer(request: Request, library: LibraryOf, query: AddressQuery) -> AskedData:
    """The answer to a question, with its citations and everything that was found."""
    return await post_question(request, library, query.question())


@api.post("/ask")
async def post_question(request: Request, library: LibraryOf, question: Question) -> AskedData:
    """The same for a question in the body."""
    language = language_of(request)
    return await work_for(
        request, lambda gone: ask(library, question, language=language, cancelled=gone)
    )


_EVENT = {
    "type": "object",
    "properties": {
        "event": {"enum": ["stage", "text", "answer", "error", "end"]},
        "data": {"type": "string", "description": "JSON."},
    },
}
Way = Annotated[str, Query(max_length=100, description="strategy:NAME or release:ID.")]
ReplayedRelease = Annotated[
    Literal["recorded", "published"], Query(description="Of which release.")
]
TraceId = Annotated[str, Path(max_length=40, description="trc_ and 32 hex digits.")]


@api.get("/ask/compare")
async def get_comparison(
    request: Request, library: LibraryOf, query: AddressQuery, left: Way = "", right: Way = ""
) -> ComparedData:
    """A question asked in two ways: both answers, and both rankings side by side."""
    question = query.question()
    asked = partial(compare, library, question, left, right, language=language_of(request))
    return await work_for(request, lambda gone: asked(cancelled=gone))


@api.get("/ask/{trace_id}/order")
def get_order(library: LibraryOf, trace_id: TraceId) -> OrderData:
    """The ranking of a traced question's hits, by stage."""
    return explain_order(library, trace_id)


@api.get("/ask/{trace_id}/replay")
def get_replay(
    library: LibraryOf, trace_id: TraceId, release: ReplayedRelease = "recorded"
) -> ReplayData:
    """Repeat a traced question with the same options on the recorded or the published release."""
    from rag_platform.evaluation.monitoring.replaying import replay_question

    return replay_question(library, trace_id, published=release == "published")


class Expected(BaseModel, extra="forbid"):
    """What to expect of a question: that a chunk is found, or without one a refusal."""

    q: str = Field(min_length=1, max_length=4000)
    namespace: str = Field(max_length=63)
    chunk_id: str = Field(default="", max_length=100)
    span: str = Field(default="", max_length=30, description="START-END in the chunk's text.")


@api.post("/expectations", dependencies=[MayWrite])
def post_expectation(library: LibraryOf, expected: Expected) -> PinnedData:
    """Pin what a question found, or that it finds nothing, as an expectation."""
    from rag_platform.evaluation.expectations import expectation, pin_expectation

    library.require_visible(expected.namespace)
    if not expected.chunk_id:
        library.current(expected.namespace)
        case = expectation(expected.q, refuse=True)
    else:
        with lease_chunk(library, expected.chunk_id, expected.namespace) as leased:
            chunk = leased.row.chunk
            spans = read_spans([expected.span] if expected.span else [])
            text = chunk.chunk_text[slice(*spans[0])] if spans else ""
            case = expectation(expected.q, file=leased.row.source_uri, text=text.strip())
    new, warning = pin_expectation(library, expected.namespace, case)
    return {"case_id": case.case_id, "query": case.query, "new": new, "warning": warning}


@api.get("/expectations")
def list_expectations(view: ApiView) -> list[ExpectationPart]:
    """What questions of a library must find before a release is published."""
    from rag_platform.evaluation.expectations import read_expectations

    return [_shown(case) for case in read_expectations(view.library.store, view.namespace).cases]


@api.delete("/expectations/{case_id}", dependencies=[MayWrite])
def remove_expectation(view: ApiView, case_id: str) -> ExpectationPart:
    """Expect something no longer."""
    from rag_platform.evaluation import expectations

    return _shown(expectations.remove_expectation(view.library.store, view.namespace, case_id))


def _shown(case: EvalCase) -> ExpectationPart:
    return {
        "case_id": case.case_id,
        "query": case.query,
        "files": [*case.expected_files, *(it.file for it in case.expected_text if it.file)],
        "texts": [it.text for it in case.expected_text],
        "refuse": bool(case.should_refuse),
    }


@api.get(
    "/ask/stream",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {"schema": _EVENT}}}},
)
async def stream_answer(
    request: Request, library: LibraryOf, query: AddressQuery
) -> StreamingResponse:
    """The answer as server-sent events: `stage` with the `name` of each stage as it begins, as in
    the trace; `text` for each part that a model writes; then `answer` with the data of GET
    /api/ask, or `error`; at last `end`.

    An extractive answer comes in one part.
    """
    asked = partial(ask, library, query.question(), language=language_of(request))
    return event_stream(_events(asked))


async def _events(asked: Callable[..., AskedData]) -> AsyncIterator[str]:
    async for kind, value in follow(lambda on_text, gone: asked(on_text=on_text, cancelled=gone)):
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


# --- pages --------------------------------------------------------------------------------------


_THUMBNAILS = 3  # images shown with a passage
# stage of a question to the message while it runs
STAGE_MESSAGES = {
    "model.load": "Loading the models …",
    "stage.query_norm": "Searching the documents …",
    "stage.rerank": "Weighing what was found …",
    "stage.context_build": "Reading the passages …",
    "stage.generate": "Answering …",
}


FormQuery = Annotated[QuestionForm, Query()]
_CaseId = Annotated[str, Form(max_length=200)]


@pages.get("/")
async def show(view: PageView, form: FormQuery) -> Response:
    """The form with the answer to a question, or with the error."""
    values: dict[str, Any] = {"namespace": view.namespace}
    status = 200
    if form.q:
        try:
            data = await get_answer(view.request, view.library, form)
            values = answer_values(view.library, form, data) | values
        except RagError as error:
            status, values["error"] = describe(view.request, error)
    return show_form(view.request, form, values, status)


@pages.get("/ask")
def begin(request: Request, form: FormQuery) -> Response:
    """The fragment into which the answer is streamed; sets the page's URL to the question's."""
    address = link("/", **form.address())
    if not is_fragment(request) or not form.q:
        return RedirectResponse(address, 303)
    answer = render(request, "asking/live.html", stream=link("/ask/stream", **form.address()))
    answer.headers["HX-Push-Url"] = address
    return answer


@pages.get("/ask/stream")
async def stream(request: Request, library: LibraryOf, form: FormQuery) -> Response:
    """The answer as server-sent fragments: `text` while it is written, `answer` once checked."""

    async def events() -> AsyncIterator[str]:
        waited = 0.0
        language = language_of(request)
        message = ""
        async for kind, value in follow(
            # parsed inside, so that errors are streamed: browsers retry a refused stream forever
            lambda on_text, gone: ask(
                library, form.question(), language=language, on_text=on_text, cancelled=gone
            )
        ):
            if kind == "stage":
                if (new := STAGE_MESSAGES.get(value, message)) != message:
                    message = new
                    yield sse("note", str(escape(translate(message, language))))
            elif kind == "text":
                yield sse("text", str(escape(value)))
            elif kind == "done":
                values = answer_values(library, form, value)
                yield sse("answer", render_text(request, "asking/answer.html", **values))
            elif kind == "failed":
                error = failure(value)["error"]
                yield sse("answer", render_text(request, "error_part.html", error=error))
            else:
                waited += value
                still = translate("Still at work after {n} s.", language, n=round(waited))
                yield sse("note", str(escape(f"{translate(message, language)} {still}".strip())))
        yield sse("end", "")

    return event_stream(events())


def answer_values(library: Library, form: QuestionForm, data: AskedData) -> dict[str, Any]:
    """The variables of the template of an answer."""
    namespace = choose_namespaces(library, form.namespace)[0]
    release_id = data["release_id"] if form.release else None
    shown = [*(row["citation"] for row in data["results"]), *data["citations"]]
    places = {
        citation["chunk_id"]: source_link(citation, namespace, release_id) for citation in shown
    }
    cited = {citation["chunk_id"] for citation in data["citations"]}
    marks = {
        citation["id"]: {
            "href": places[citation["chunk_id"]],
            "class": "mark",
            "hx-get": places[citation["chunk_id"]],
            "hx-target": "#panel",
            "hx-swap": "innerHTML show:#panel:top",
        }
        for citation in data["citations"]
    }
    return {
        "form": form,
        "data": data,
        "marks": marks,
        "places": places,
        "others": [row for row in data["results"] if row["chunk_id"] not in cited],
        "images": {row["chunk_id"]: row["asset_ids"][:_THUMBNAILS] for row in data["results"]},
        "read": {row["chunk_id"]: row.get("picture_text") for row in data["results"]},
        "may_write": access.current().may("write"),
        "namespace": namespace,
    }


def source_link(citation: CitationPart, namespace: str, release_id: str | None = None) -> str:
    """The URL of the page that shows a cited passage in its document."""
    begin = citation.get("text_start", 0)
    spans = [f"{begin + start}-{begin + end}" for start, end in citation.get("spans", [])]
    space = citation.get("namespace", namespace)
    return link(f"/source/{space}/{citation['chunk_id']}", release=release_id, span=spans)


@pages.get("/why/{trace_id}")
def show_order(request: Request, library: LibraryOf, trace_id: TraceId) -> Response:
    """The rank of each hit by stage."""
    order = get_order(library, trace_id)
    parts = ("asking/order.html", "asking/order_page.html")
    return render_part(request, *parts, namespace=order["namespace"], order=order)


@pages.get("/replay/{trace_id}")
def show_replay(
    request: Request, library: LibraryOf, trace_id: TraceId, release: ReplayedRelease = "recorded"
) -> Response:
    """The replay of a question."""
    found = get_replay(library, trace_id, release)
    parts = ("asking/replay.html", "asking/replay_page.html")
    return render_part(request, *parts, namespace=found["namespace"], replay=found)


@pages.post("/expect", dependencies=[MayWrite])
def expect(request: Request, library: LibraryOf, expected: Annotated[Expected, Form()]) -> Response:
    """Pin what was found as an expectation."""
    parts = ("asking/expected.html", "asking/expected_page.html")
    pinned = post_expectation(library, expected)
    return render_part(request, *parts, namespace=expected.namespace, pinned=pinned)


@pages.get("/evaluation/expectations")
def show_expectations(view: PageView) -> Response:
    """What is expected of a library, each with a button that removes it."""
    return view.render("evaluation/expectations.html", expected=list_expectations(view))


@pages.post("/evaluation/expectations/remove", dependencies=[MayWrite])
def remove_shown_expectation(view: FormView, case_id: _CaseId) -> Response:
    remove_expectation(view, case_id)
    return RedirectResponse(link("/evaluation/expectations", namespace=view.namespace), 303)


@pages.get("/compare-answers")
async def show_comparison(
    view: PageView, form: FormQuery, left: Way = "", right: Way = ""
) -> Response:
    """Two answers to a question side by side, or the error."""
    values: dict[str, Any] = {}
    status = 200
    if form.q and (left or right):
        try:
            found = await get_comparison(view.request, view.library, form, left, right)
            sides = [found["left"], found["right"]]
            values = {
                "compared": found,
                "sides": [answer_values(view.library, form, data) for data in sides],
                "lines": _mark_lines(*(data["answer_markdown"] for data in sides)),
            }
        except RagError as error:
            status, values["error"] = describe(view.request, error)
    return view.render(
        "asking/compare.html",
        status,
        form=form,
        left=left,
        right=right,
        ways=_list_ways(view),
        **values,
    )


def _list_ways(view: View) -> dict[str, list[str]]:
    """The strategies and kept releases to choose from."""
    heads = list_heads(view.library.store, view.namespace)
    kept = [manifest.release_id for manifest in heads if not manifest.failures]
    return {"strategy": strategy_names(view.settings), "release": kept}


def _mark_lines(left: str, right: str) -> list[list[tuple[str, bool]]]:
    """(line, whether the other text has it too) for the lines of both texts."""
    texts = [[line for line in text.split("\n") if line.strip()] for text in (left, right)]
    shared: list[set[int]] = [set(), set()]
    for match in SequenceMatcher(None, texts[0], texts[1], autojunk=False).get_matching_blocks():
        shared[0] |= set(range(match.a, match.a + match.size))
        shared[1] |= set(range(match.b, match.b + match.size))
    return [
        [(line, at in both) for at, line in enumerate(lines)]
        for lines, both in zip(texts, shared, strict=True)
    ]
