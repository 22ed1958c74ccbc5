"""`/api/traces`: lists, statistics, and one trace."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Depends, Query
from pydantic import BeforeValidator, Field

from rag_platform.api.trace_details import get_trace_detail
from rag_platform.api.traces import TraceFilter, list_traces, trace_stats
from rag_platform.contract.traces import TraceDetail, TracesData, TraceStats
from rag_platform.observability.trace_store.queries import Status, TraceType
from rag_platform.web.dependencies import SiteOf

router = APIRouter(prefix="/traces", tags=["traces"])

Text = Annotated[str, Query(max_length=200)]
Skip = Annotated[int, Query(ge=0, le=10_000_000)]


def _read_given(value: object) -> object:
    """None for an empty form field."""
    return None if value in ("", [""]) else value


_Optional = BeforeValidator(_read_given)
Milliseconds = Annotated[
    Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)] | None, _Optional, Query()
]
Share = Annotated[Annotated[float, Field(ge=0, le=1)] | None, _Optional, Query()]
Time = Annotated[datetime | None, _Optional, Query()]


class Choices:
    """Filters of traces by kind, time and text."""

    def __init__(
        self,
        kind: Annotated[list[TraceType] | None, _Optional, Query()] = None,
        status: Annotated[list[Status] | None, _Optional, Query()] = None,
        since: Time = None,
        until: Time = None,
        namespace: Annotated[str, Query(max_length=63)] = "",
        strategy_config_id: Text = "",
        client: Text = "",
        words: Text = "",
    ) -> None:
        self.kinds, self.statuses = tuple(kind or ()), tuple(status or ())
        self.since, self.until = _aware(since), _aware(until)
        self.namespace, self.strategy_config_id = namespace, strategy_config_id
        self.client, self.words = client, words


class Bounds:
    """Filters of traces by latency, confidence and job."""

    def __init__(
        self,
        min_latency_ms: Milliseconds = None,
        max_latency_ms: Milliseconds = None,
        min_confidence: Share = None,
        max_confidence: Share = None,
        job_id: Text = "",
        published: bool = False,
    ) -> None:
        self.min_latency_ms, self.max_latency_ms = min_latency_ms, max_latency_ms
        self.min_confidence, self.max_confidence = min_confidence, max_confidence
        self.job_id, self.published = job_id, published


def _aware(time: datetime | None) -> datetime | None:
    """The time, as UTC if it has no zone."""
    return time if time is None or time.tzinfo is not None else time.replace(tzinfo=UTC)


def _filter(
    choices: Annotated[Choices, Depends()], bounds: Annotated[Bounds, Depends()]
) -> TraceFilter:
    return TraceFilter(
        kinds=choices.kinds,
        statuses=choices.statuses,
        since=choices.since,
        until=choices.until,
        namespace=choices.namespace or None,
        strategy_config_id=choices.strategy_config_id or None,
        client=choices.client or None,
        words=choices.words or None,
        min_latency_ms=bounds.min_latency_ms,
        max_latency_ms=bounds.max_latency_ms,
        min_confidence=bounds.min_confidence,
        max_confidence=bounds.max_confidence,
        job_id=bounds.job_id or None,
        published=bounds.published,
    )


FilterOf = Annotated[TraceFilter, Depends(_filter)]


@router.get("")
def get_traces(
    site: SiteOf,
    where: FilterOf,
    limit: Annotated[int, Query(ge=1, le=200)] = 25,
    cursor: Annotated[str, Query(max_length=400)] = "",
) -> TracesData:
    """Traces, newest first."""
    return list_traces(site.store, where, limit=limit, cursor=cursor or None)


@router.get("/stats")
def get_stats(site: SiteOf, where: FilterOf) -> TraceStats:
    """Counts, quantiles by stage, caches and model calls of the traces that match."""
    return trace_stats(site.store, where)


@router.get("/{trace_id}")
def get_trace(
    site: SiteOf, trace_id: str, kind: Text = "", skip: Skip = 0, skip_stages: Skip = 0
) -> TraceDetail:
    """One trace; its events are paged by `skip`, and may be of one `kind`."""
    return get_trace_detail(site.library, trace_id, kind=kind, skip=skip, skip_stages=skip_stages)
