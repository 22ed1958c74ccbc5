"""The first page: a question and its answer."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from rag_platform.answering.engine import answer
from rag_platform.api.query_data import fit_query
from rag_platform.ir import QueryRequest
from rag_platform.web.rendering import render
from rag_platform.web.site import PageNamespace, SiteOf

router = APIRouter()


@router.get("/")
def show(
    request: Request,
    site: SiteOf,
    namespace: PageNamespace,
    q: Annotated[str, Query(max_length=4000)] = "",
) -> Response:
    """The form, and the answer to a question."""
    result = None
    if q.strip():
        result = fit_query(answer(site.library, QueryRequest(q, namespace)))
    return render(request, "ask.html", namespace=namespace, q=q, result=result)
