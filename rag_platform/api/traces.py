"""Lists traces, reads one with its related ones, and computes statistics.

Callers get only traces of namespaces that they may see; those without a namespace only if they may
see all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, cast

from rag_platform import access
from rag_platform.api.cursors import bad_cursor, make_cursor, read_cursor
from rag_platform.contract.markdown_views import stats_markdown, traces_markdown
from rag_platform.contract.traces import TraceData, TraceParts, TraceRow, TracesData, TraceStats
from rag_platform.ir import Json
from rag_platform.observability import trace_reader
from rag_platform.observability.trace_store import queries
from rag_platform.observability.trace_store.queries import TraceFilter
from rag_platform.storage.store import Store

_EVERY = TraceFilter()


def list_traces(
    store: Store, where: TraceFilter = _EVERY, *, limit: int = 20, cursor: str | None = None
) -> TracesData:
    """A page of the traces that match, newest first. Raises InputError `bad_cursor`."""
    after = None
    if cursor is not None:
        started_at, trace_id = read_cursor(cursor, (str, str))
        try:
            after = (datetime.fromisoformat(started_at), trace_id)
        except ValueError:
            raise bad_cursor(cursor) from None
    rows, warnings = queries.list_traces(
        store.logs_dir, _visible(where), limit=limit + 1, after=after
    )
    shown = cast(list[TraceRow], rows[:limit])
    following = None
    if len(rows) > limit and shown:
        following = make_cursor(shown[-1]["started_at"], shown[-1]["trace_id"])
    return {
        "markdown": traces_markdown(shown, following),
        "traces": shown,
        "next_cursor": following,
        "warnings": list(warnings),
    }


def get_trace(store: Store, trace_id: str) -> TraceData:
    """A trace with its related ones and as text; a unique prefix of its id suffices.

    Raises NotFoundError, InputError for a malformed id and for an ambiguous prefix.
    """
    found = find_trace(store, trace_id)
    parent = [found["parent"]] if found["parent"] else []
    related = {row["trace_id"]: row for row in (*parent, *found["job"], *found["children"])}
    text = trace_reader.waterfall(dict(found["trace"]))
    if related:
        text += f"\nrelated traces:\n{traces_markdown([*related.values()], None)}"
    return {"markdown": text, **found}


def find_trace(store: Store, trace_id: str) -> TraceParts:
    """The same without the text, which doubles the time for a long trace."""
    envelope = read_visible(store, trace_id)
    related = queries.list_related(store.logs_dir, envelope, access.current().namespaces)
    return {
        "trace": cast(Any, envelope),
        "parent": related["parent"],
        "children": related["children"],
        "job": related["job"],
    }


def read_visible(store: Store, trace_id: str) -> Json:
    """A trace alone. Raises the same NotFoundError for a hidden as for a missing one."""
    envelope = trace_reader.show(store.logs_dir, trace_id)
    visible = access.current().namespaces
    request = envelope["attrs"].get("request") or {}
    namespaces = {envelope["namespace"], *(request.get("namespaces") or ())}
    if visible is not None and not namespaces <= visible:
        raise trace_reader.unknown_trace(trace_id)
    return envelope


def trace_stats(store: Store, where: TraceFilter = _EVERY) -> TraceStats:
    """Statistics of the traces that match, and the counts of the last 24 hours."""
    measured: Mapping[str, Any] = queries.measure(store.logs_dir, _visible(where))
    stats = cast(
        TraceStats,
        {
            "markdown": "",
            "since": where.since and where.since.isoformat(),
            "until": where.until and where.until.isoformat(),
            "namespace": where.namespace,
            **measured,
        },
    )
    stats["markdown"] = stats_markdown(stats)
    return stats


def _visible(where: TraceFilter) -> TraceFilter:
    """The filter, limited to what the caller may see."""
    return replace(where, visible=access.current().namespaces)
