"""The page of a question, its answer and its citations."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from markupsafe import escape
from starlette.responses import RedirectResponse, Response

from rag_platform import access
from rag_platform.api.asking import ask
from rag_platform.api.envelopes import failure
from rag_platform.contract.schema import CitationPart
from rag_platform.contract.source_shapes import AskedData
from rag_platform.errors import RagError
from rag_platform.messages import translate
from rag_platform.retrieval.namespaces import choose_namespaces
from rag_platform.web.dependencies import PageNamespace, SiteOf
from rag_platform.web.failures import describe
from rag_platform.web.first_page import Form, show_form
from rag_platform.web.rendering import is_fragment, language_of, link, render, render_text
from rag_platform.web.site import Site
from rag_platform.web.waiting import event_stream, follow, sse, work_for

router = APIRouter()
_THUMBNAILS = 3  # images shown with a passage
# stage of a question to the message while it runs
STAGE_MESSAGES = {
    "model.load": "Loading the models …",
    "stage.query_norm": "Searching the documents …",
    "stage.rerank": "Weighing what was found …",
    "stage.context_build": "Reading the passages …",
    "stage.generate": "Answering …",
}


Asked = Annotated[Form, Query()]


@router.get("/")
async def show(request: Request, site: SiteOf, namespace: PageNamespace, asked: Asked) -> Response:
    """The form with the answer to a question, or with the error."""
    values: dict[str, Any] = {"namespace": namespace}
    status = 200
    if asked.q:
        try:
            question = asked.question()
            data = await work_for(request, lambda gone: ask(site.library, question, cancelled=gone))
            values = answer_values(site, asked, data) | values
        except RagError as error:
            status, values["error"] = describe(request, error)
    return show_form(request, asked, values, status)


@router.get("/ask")
def begin(request: Request, asked: Asked) -> Response:
    """The fragment into which the answer is streamed; sets the page's URL to the question's."""
    address = link("/", **asked.address())
    if not is_fragment(request) or not asked.q:
        return RedirectResponse(address, 303)
    answer = render(request, "asking/live.html", stream=link("/ask/stream", **asked.address()))
    answer.headers["HX-Push-Url"] = address
    return answer


@router.get("/ask/stream")
async def stream(request: Request, site: SiteOf, asked: Asked) -> Response:
    """The answer as server-sent fragments: `text` while it is written, `answer` once checked."""

    async def events() -> AsyncIterator[str]:
        waited = 0.0
        language = language_of(request)
        message = ""
        async for kind, value in follow(
            # parsed inside, so that errors are streamed: browsers retry a refused stream forever
            lambda on_text, gone: ask(
                site.library, asked.question(), on_text=on_text, cancelled=gone
            )
        ):
            if kind == "stage":
                if (new := STAGE_MESSAGES.get(value, message)) != message:
                    message = new
                    yield sse("note", str(escape(translate(message, language))))
            elif kind == "text":
                yield sse("text", str(escape(value)))
            elif kind == "done":
                values = answer_values(site, asked, value)
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


def answer_values(site: Site, asked: Form, data: AskedData) -> dict[str, Any]:
    """The variables of the template of an answer."""
    namespace = choose_namespaces(site.library, asked.namespace)[0]
    release_id = data["release_id"] if asked.release else None
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
        "asked": asked,
        "data": data,
        "marks": marks,
        "places": places,
        "others": [row for row in data["results"] if row["chunk_id"] not in cited],
        "images": {row["chunk_id"]: row["asset_ids"][:_THUMBNAILS] for row in data["results"]},
        "may_write": access.current().may("write"),
        "namespace": namespace,
    }


def source_link(citation: CitationPart, namespace: str, release_id: str | None = None) -> str:
    """The URL of the page that shows a cited passage in its document."""
    spans = [f"{start}-{end}" for start, end in citation.get("spans", [])]
    space = citation.get("namespace", namespace)
    return link(f"/source/{space}/{citation['chunk_id']}", release=release_id, span=spans)
