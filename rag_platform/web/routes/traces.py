"""Traces: lists, statistics, and one trace with all its stages."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query, Request
from pydantic import Field
from starlette.responses import Response

from rag_platform.api.trace_details import EVENTS_PER_PAGE, STAGES_PER_PAGE, get_trace_detail
from rag_platform.api.traces import list_traces, trace_stats
from rag_platform.contract.traces import TraceDetail, TracesData, TraceStats
from rag_platform.observability.trace_store.queries import Status, TraceFilter, TraceType
from rag_platform.web.dependencies import LibraryOf, PageView, View
from rag_platform.web.first_page import FormFields
from rag_platform.web.rendering import is_fragment, render

api = APIRouter(prefix="/traces", tags=["traces"])
pages = APIRouter()

Text = Annotated[str, Query(max_length=200)]
Skip = Annotated[int, Query(ge=0, le=10_000_000)]


class _Conditions(FormFields):
    """The fields of TraceFilter as query parameters."""

    kind: list[TraceType] = Field([])
    status: list[Status] = Field([])
    since: datetime | None = None
    until: datetime | None = None
    namespace: str | None = Field(None, max_length=63)
    strategy_config_id: str | None = Field(None, max_length=200)
    client: str | None = Field(None, max_length=200)
    words: str | None = Field(None, max_length=200)
    min_latency_ms: float | None = Field(None, ge=0, le=1e9, allow_inf_nan=False)
    max_latency_ms: float | None = Field(None, ge=0, le=1e9, allow_inf_nan=False)
    min_confidence: float | None = Field(None, ge=0, le=1)
    max_confidence: float | None = Field(None, ge=0, le=1)
    job_id: str | None = Field(None, max_length=200)
    published: bool = False


def _filter(given: Annotated[_Conditions, Query()]) -> TraceFilter:
    values = given.model_dump()
    for name in ("since", "until"):
        if (time := values[name]) is not None and time.tzinfo is None:
            values[name] = time.replace(tzinfo=UTC)
    kinds, statuses = (tuple(values.pop(name)) for name in ("kind", "status"))
    return TraceFilter(kinds=kinds, statuses=statuses, **values)


FilterOf = Annotated[TraceFilter, Depends(_filter)]


@api.get("")
def get_traces(
    library: LibraryOf,
    where: FilterOf,
    limit: Annotated[int, Query(ge=1, le=200)] = 25,
    cursor: Annotated[str, Query(max_length=400)] = "",
) -> TracesData:
    """Traces, newest first."""
    return list_traces(library.store, where, limit=limit, cursor=cursor or None)


@api.get("/stats")
def get_stats(library: LibraryOf, where: FilterOf) -> TraceStats:
    """Counts, quantiles by stage, caches and model calls of the traces that match."""
    return trace_stats(library.store, where)


@api.get("/{trace_id}")
def get_trace(
    library: LibraryOf, trace_id: str, kind: Text = "", skip: Skip = 0, skip_stages: Skip = 0
) -> TraceDetail:
    """One trace; its events are paged by `skip`, and may be of one `kind`."""
    return get_trace_detail(library, trace_id, kind=kind, skip=skip, skip_stages=skip_stages)


# --- pages --------------------------------------------------------------------------------------


_PAGE = 25
_QUERY_KINDS = ("query", "tool", "command", "evaluation")
_HOURS = {"1h": 1, "24h": 24, "7d": 24 * 7, "30d": 24 * 30, "all": 0}
Period = Literal["1h", "24h", "7d", "30d", "all"]
Cursor = Annotated[str, Query(max_length=400)]


@pages.get("/query-traces")
def show_queries(
    view: PageView,
    where: FilterOf,
    period: Period = "7d",
    everywhere: bool = False,
    own: bool = False,
    cursor: Cursor = "",
) -> Response:
    """Traces of users' questions, newest first; with `own` also those of evaluations, canaries and
    comparisons.
    """
    where = replace(where, kinds=where.kinds or ("query",), published=not own)
    return _show(view, _within(where, view.namespace, period, everywhere), cursor)


@pages.get("/ingestion-traces")
def show_ingests(
    view: PageView,
    where: FilterOf,
    period: Period = "30d",
    everywhere: bool = False,
    cursor: Cursor = "",
) -> Response:
    """Traces of ingestion and publication, newest first."""
    where = replace(where, kinds=("ingestion",))
    return _show(view, _within(where, view.namespace, period, everywhere), cursor)


def _within(where: TraceFilter, namespace: str, period: str, everywhere: bool) -> TraceFilter:
    hours = _HOURS[period]
    since = where.since
    if since is None and hours:
        since = datetime.now(UTC) - timedelta(hours=hours)
    return replace(where, since=since, namespace=None if everywhere else namespace)


def _show(view: View, where: TraceFilter, cursor: str) -> Response:
    if is_fragment(view.request):
        figures = trace_stats(view.library.store, where)
        return view.render("traces/figures.html", stats=figures)
    given = {
        name: value
        for name, value in view.request.query_params.multi_items()
        if value and name not in ("cursor", "namespace")
    }
    is_ingestion = view.request.url.path == "/ingestion-traces"
    return view.render(
        "traces/list.html",
        found=list_traces(view.library.store, where, limit=_PAGE, cursor=cursor or None),
        where=where,
        given=given,
        is_ingestion=is_ingestion,
        period=given.get("period") or ("30d" if is_ingestion else "7d"),
        kinds=_QUERY_KINDS,
        cursor=cursor,
    )


@pages.get("/traces/{trace_id}")
def show_trace(
    request: Request,
    library: LibraryOf,
    trace_id: str,
    kind: Text = "",
    skip: Skip = 0,
    skip_stages: Skip = 0,
) -> Response:
    """One trace; as a fragment, a page of its events."""
    data = get_trace(library, trace_id, kind, skip, skip_stages)
    return render(
        request,
        "traces/events.html" if is_fragment(request) else "traces/trace.html",
        namespace=data["trace"]["namespace"],
        data=data,
        trace=data["trace"],
        kind=kind,
        skip=skip,
        skip_stages=skip_stages,
        events_per_page=EVENTS_PER_PAGE,
        stages_per_page=STAGES_PER_PAGE,
    )
