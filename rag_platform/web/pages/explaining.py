"""Pages that explain an answer: the ranking of its hits, a replay, a comparison of two ways to ask,
and pinning it as an expectation.
"""

from __future__ import annotations

from difflib import SequenceMatcher
from typing import Annotated, Any

from fastapi import APIRouter, Form, Request
from starlette.responses import Response

from rag_platform.api.asking import compare
from rag_platform.api.orders import explain_order
from rag_platform.config.settings import strategy_names
from rag_platform.errors import RagError
from rag_platform.releases.release_store import list_heads
from rag_platform.web.dependencies import MayWrite, PageNamespace, SiteOf
from rag_platform.web.failures import describe
from rag_platform.web.pages import ask
from rag_platform.web.rendering import is_fragment, render
from rag_platform.web.routes.asking import Asked, Expected, TraceId, Way, get_replay, pin
from rag_platform.web.site import Site
from rag_platform.web.waiting import work_for

router = APIRouter()


@router.get("/why/{trace_id}")
def show_order(request: Request, site: SiteOf, trace_id: TraceId) -> Response:
    """The rank of each hit by stage."""
    order = explain_order(site.library, trace_id)
    template = "asking/order.html" if is_fragment(request) else "asking/order_page.html"
    return render(request, template, namespace=order["namespace"], order=order)


@router.get("/replay/{trace_id}")
def show_replay(
    request: Request, site: SiteOf, trace_id: TraceId, release: Asked = "recorded"
) -> Response:
    """The replay of a question."""
    found = get_replay(site, trace_id, release)
    template = "asking/replay.html" if is_fragment(request) else "asking/replay_page.html"
    return render(request, template, namespace=found["namespace"], replay=found)


@router.post("/expect", dependencies=[MayWrite])
def expect(
    request: Request,
    site: SiteOf,
    q: Annotated[str, Form(min_length=1, max_length=4000)],
    namespace: Annotated[str, Form(max_length=63)],
    chunk_id: Annotated[str, Form(max_length=100)] = "",
    span: Annotated[str, Form(max_length=30)] = "",
) -> Response:
    """Pin what was found as an expectation."""
    pinned = pin(site, Expected(q=q, namespace=namespace, chunk_id=chunk_id, span=span))
    template = "asking/expected.html" if is_fragment(request) else "asking/expected_page.html"
    return render(request, template, namespace=namespace, pinned=pinned)


@router.get("/compare-answers")
async def show_comparison(
    request: Request,
    site: SiteOf,
    namespace: PageNamespace,
    asked: ask.Asked,
    left: Way = "",
    right: Way = "",
) -> Response:
    """Two answers to a question side by side, or the error."""
    values: dict[str, Any] = {}
    status = 200
    if asked.q and (left or right):
        try:
            question = asked.question()
            found = await work_for(
                request, lambda gone: compare(site.library, question, left, right, cancelled=gone)
            )
            sides = [found["left"], found["right"]]
            values = {
                "compared": found,
                "sides": [ask.answer_values(site, asked, data) for data in sides],
                "lines": _mark_lines(*(data["answer_markdown"] for data in sides)),
            }
        except RagError as error:
            status, values["error"] = describe(request, error)
    return render(
        request,
        "asking/compare.html",
        status,
        namespace=namespace,
        asked=asked,
        left=left,
        right=right,
        ways=_ways(site, namespace),
        **values,
    )


def _ways(site: Site, namespace: str) -> dict[str, list[str]]:
    """The strategies and kept releases to choose from."""
    kept = [m.release_id for m in list_heads(site.store, namespace) if not m.failures]
    return {"strategy": strategy_names(site.settings), "release": kept}


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
