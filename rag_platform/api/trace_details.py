"""One trace as the web pages show it: stages as bars, rankings, and events, all cut to size; and
the ranks of a question's hits in each stage.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rag_platform.api.envelopes import fill_shape, without_paths
from rag_platform.api.traces import find_trace, read_visible
from rag_platform.contract.traces import (
    CandidatePart,
    EventPart,
    LegPlace,
    OrderData,
    OrderRow,
    RankingPart,
    SpanPart,
    StagePart,
    TraceDetail,
    TraceEnvelope,
    TraceRow,
)
from rag_platform.errors import InputError, NotFoundError, RagError
from rag_platform.indexes.catalog import ChunkRow
from rag_platform.ir import Json
from rag_platform.observability.trace_store.rows import trace_facts
from rag_platform.retrieval.library import Library
from rag_platform.text.wording import shorten

STAGES_PER_PAGE = 100
EVENTS_PER_PAGE = 50
_RANKING_FIELDS = ("candidates", "ranked", "before", "after")
_RANKED_ROWS = 50
_RANKINGS = 24  # shown of one trace
_SNIPPET_CHARS = 240
_MODEL_CALLS = 200
_LOGS = 200
_ANSWERING = ("stage.context_build", "stage.generate", "stage.format_response")
_EXT_PREFIX = "ext."
LEGS = ("sparse", "dense", "fusion", "rerank")
_MAX_ROWS = 60  # of an explained order
# limits that keep whole documents off a page
TEXT_CHARS = 2000
LIST_ITEMS = 100
DEPTH = 8
PAYLOAD_CHARS = 20_000


def get_trace_detail(
    library: Library, trace_id: str, *, kind: str = "", skip: int = 0, skip_stages: int = 0
) -> TraceDetail:
    """One trace with a page of its events (of one kind or all, failures first, then by time) from
    `skip` on, and a page of its stages from `skip_stages` on.

    Raises NotFoundError, InputError for a malformed id and for an ambiguous prefix of one.
    """
    found = find_trace(library.store, trace_id)
    trace = found["trace"]
    total_ms = _duration_ms(trace)
    in_span = Counter(event["span_id"] for event in trace["events"])
    spans = trace["spans"]
    events = order_events(trace["events"], trace["spans"], kind)
    attrs, ext = _split_ext(trace["attrs"])
    model_calls = [
        {"ts_ms": event["ts_ms"], **event["payload"]}
        for event in trace["events"]
        if event["kind"] == "model.call"
    ]
    short = cut(
        {
            "trace": _row(trace, attrs),
            "build": trace["build"],
            "runtime": trace["runtime"],
            "links": trace["links"],
            "client": trace.get("client") or {},
            "providers": trace.get("providers") or {},
            "attrs": attrs,
            "ext": ext,
            "aggregates": trace["aggregates"],
            "eval": trace.get("eval") or {},
            "errors": trace["aggregates"].get("errors") or [],
            "model_calls": model_calls[:_MODEL_CALLS],
            "logs": trace["logs"][:_LOGS],
        },
        LIST_ITEMS,
    )
    stages, answering = (
        [cut(_stage(span, total_ms, in_span[span["span_id"]])) for span in chosen]
        for chosen in (
            spans[skip_stages : skip_stages + STAGES_PER_PAGE],
            [span for span in spans if span["name"] in _ANSWERING],
        )
    )
    kinds = sorted(Counter(event["kind"] for event in trace["events"]).items())
    shown: Any = {
        **short,
        "stages": stages,
        "answering": answering,
        "stages_total": len(spans),
        "kinds": [{"kind": name, "count": count} for name, count in kinds],
        "events": [cut_event(event) for event in events[skip : skip + EVENTS_PER_PAGE]],
        "events_total": len(events),
        "logs_total": len(trace["logs"]),
        "rankings": list_rankings(library, trace),
        "parent": found["parent"],
        "children": found["children"],
        "job": found["job"],
        "replayable": _is_replayable(trace),
    }
    if "error" in trace:
        shown["error"] = without_paths(trace["error"])
    detail: TraceDetail = shown
    return detail


# --- parts of what is long ----------------------------------------------------------------------


def cut(value: Any, items: int = LIST_ITEMS, depth: int = DEPTH) -> Any:
    """JSON data with long texts, long lists and deep nesting cut, each cut marked in place;
    absolute paths are cut to their last name.
    """
    if isinstance(value, str):
        text = str(without_paths(value[: 2 * TEXT_CHARS]))
        more = len(value) - TEXT_CHARS
        return text if more <= 0 else f"{text[:TEXT_CHARS]}… ({more} more characters)"
    if isinstance(value, Mapping):
        if depth == 0:
            return f"… ({len(value)} fields)"
        shown = {
            str(name): cut(item, items, depth - 1) for name, item in list(value.items())[:items]
        }
        return shown | ({"…": f"{len(value) - items} more"} if len(value) > items else {})
    if isinstance(value, (list, tuple)):
        if depth == 0:
            return f"… ({len(value)} items)"
        listed = [cut(item, items, depth - 1) for item in value[:items]]
        return listed + ([f"… ({len(value) - items} more)"] if len(value) > items else [])
    return value


def cut_event(event: EventPart) -> EventPart:
    """The event with its payload cut; one that is still too long is replaced by the beginning of
    its JSON.
    """
    payload = cut(event["payload"])
    text = json.dumps(payload, ensure_ascii=False)
    if len(text) > PAYLOAD_CHARS:
        payload = {"truncated": text[:TEXT_CHARS], "characters": len(text)}
    return {**event, "payload": payload}


def order_events(
    events: Sequence[EventPart], spans: Sequence[SpanPart], kind: str = ""
) -> list[EventPart]:
    """The events of a kind, or all: failures and events of failed stages first, then by time."""
    failed = {span["span_id"] for span in spans if span["status"] == "error"}

    def sort_key(event: EventPart) -> tuple[bool, float, str]:
        is_failure = event["kind"].endswith(("error", "_failed", "fallback"))
        return (
            not (is_failure or event["span_id"] in failed),
            event["ts_ms"],
            event["event_id"],
        )

    return sorted((event for event in events if not kind or event["kind"] == kind), key=sort_key)


# --- stages -------------------------------------------------------------------------------------


def _duration_ms(trace: TraceEnvelope) -> float:
    known = trace["aggregates"].get("latency_ms") or 0.0
    return max([float(known), *(span["end_ms"] for span in trace["spans"])]) or 1.0


def _stage(span: SpanPart, total_ms: float, events: int) -> StagePart:
    attrs, ext = _split_ext(span["attrs"])
    left = min(1000.0, max(0.0, span["start_ms"] / total_ms * 1000))
    width = max(2.0, span["duration_ms"] / total_ms * 1000)
    return {
        "span": {**span, "attrs": attrs},
        "left": round(min(left, 998.0), 1),
        "width": round(min(width, 1000.0 - min(left, 998.0)), 1),
        "ext": ext,
        "events": events,
    }


def _split_ext(attrs: Json) -> tuple[Json, Json]:
    """(common attributes, attributes `ext.PROVIDER.NAME` as provider to name to value)."""
    known = {name: value for name, value in attrs.items() if not name.startswith(_EXT_PREFIX)}
    ext: Json = {}
    for name, value in attrs.items():
        if name.startswith(_EXT_PREFIX):
            provider, _, fact = name.removeprefix(_EXT_PREFIX).rpartition(".")
            ext.setdefault(provider, {})[fact] = value
    return known, ext


def _row(trace: TraceEnvelope, attrs: Json) -> TraceRow:
    """The row that lists of traces have for it."""
    aggregates = trace["aggregates"]
    return fill_shape(
        TraceRow,
        {**trace, **trace_facts({**trace, "attrs": attrs})},
        latency_ms=aggregates.get("latency_ms"),
        namespaces=list((attrs.get("request") or {}).get("namespaces") or ()),
        error=trace.get("error"),
        error_count=aggregates.get("error_count"),
        stages=aggregates.get("stage_latency_ms") or {},
        counters=aggregates.get("counters") or {},
    )


def _is_replayable(trace: TraceEnvelope) -> bool:
    request = trace["attrs"].get("request") or {}
    return bool(
        trace["trace_type"] == "query"
        and request.get("text")
        and "ranked_chunk_ids" in trace["attrs"]
        and len(request.get("namespaces") or ()) <= 1
    )


# --- rankings -----------------------------------------------------------------------------------


def list_rankings(library: Library, trace: TraceEnvelope) -> list[RankingPart]:
    """Every ranked list of chunks in the payload of any event."""
    lists = list(_ranked_lists(trace["events"]))[:_RANKINGS]
    ids = {str(item["chunk_id"]) for *_, items in lists for item in items[:_RANKED_ROWS]}
    release_id, namespace = trace["attrs"].get("release_id"), trace["namespace"]
    rows: dict[str, ChunkRow] = {}
    if ids and release_id and namespace:
        rows, _ = read_rows(library, namespace, str(release_id), ids)
    found: list[RankingPart] = []
    before: dict[str, int] = {}
    for event, name, items in lists:
        facts = {
            key: value
            for key, value in event["payload"].items()
            if key not in _RANKING_FIELDS and isinstance(value, (str, int, float, bool))
        }
        found.append(
            {
                "kind": event["kind"],
                "name": name,
                "facts": cut(facts),
                "count": len(items),
                "rows": [
                    _candidate(rank, item, rows, before if name == "after" else {})
                    for rank, item in enumerate(items[:_RANKED_ROWS], 1)
                ],
            }
        )
        before = {str(item["chunk_id"]): rank for rank, item in enumerate(items, 1)}
    return found


def _ranked_lists(events: Sequence[EventPart]) -> Iterator[tuple[EventPart, str, list[Json]]]:
    for event in events:
        for name in _RANKING_FIELDS:
            items = event["payload"].get(name)
            if isinstance(items, list) and items:
                listed = [item if isinstance(item, dict) else {"chunk_id": item} for item in items]
                if all(isinstance(item.get("chunk_id"), str) for item in listed):
                    yield event, name, listed


def _candidate(
    rank: int, item: Json, rows: Mapping[str, ChunkRow], before: Mapping[str, int]
) -> CandidatePart:
    chunk_id, score = item["chunk_id"], item.get("score")
    row = rows.get(chunk_id)
    return {
        "rank": rank,
        "chunk_id": chunk_id,
        "score": float(score) if isinstance(score, (int, float)) else None,
        "source": str(item.get("source") or ""),
        "source_uri": row.source_uri if row else "",
        "section_path": row.chunk.section_path if row else "",
        "text": shorten(row.chunk.chunk_text, _SNIPPET_CHARS) if row else "",
        "moved": before[chunk_id] - rank if chunk_id in before else None,
    }


# --- the order of a question's hits ------------------------------------------------------------


def read_question_trace(library: Library, trace_id: str) -> Json:
    """The trace of a question that the caller may see.

    Raises NotFoundError `unknown_trace`, InputError `not_a_question`.
    """
    trace = read_visible(library.store, trace_id)
    if trace.get("trace_type") != "query":
        raise InputError(
            f"{trace['trace_id']} is the trace of a {trace.get('trace_type')}, not of a question",
            code="not_a_question",
        )
    return trace


def explain_order(library: Library, trace_id: str) -> OrderData:
    """The rank in each stage of every hit, and of the best candidates that did not become hits; for
    a result from the cache, those of the question that it was searched for.
    Raises what `read_question_trace` raises.
    """
    trace = read_question_trace(library, trace_id)
    attrs = trace.get("attrs", {})
    events, notes = list(trace["events"]), []
    for earlier in sorted({*attrs.get("searched_in", {}).values()}):
        try:
            events += read_visible(library.store, earlier)["events"]
        except NotFoundError:
            notes.append(
                f"the hits were kept from an earlier question; its trace {earlier} cannot be shown"
            )
    places = _read_legs(events)
    final = [str(chunk_id) for chunk_id in attrs.get("ranked_chunk_ids") or ()]
    others = _others(places, final)
    namespace, release_id = str(trace.get("namespace") or ""), str(attrs.get("release_id") or "")
    ids = [*final, *others]
    named: dict[str, tuple[str, ChunkRow]] = {}
    for name, release in (attrs.get("releases") or {namespace: release_id}).items():
        found, error = read_rows(library, name, release, ids)
        named |= {chunk_id: (name, row) for chunk_id, row in found.items()}
        notes += [error.message] if error else []
    if "searched_in" in attrs:  # that question may have searched other libraries too
        ids = [chunk_id for chunk_id in ids if chunk_id in named or chunk_id in final]
    rows: list[OrderRow] = []
    for number, chunk_id in enumerate(ids[:_MAX_ROWS], 1):
        space, known = named.get(chunk_id, (namespace, None))
        row: OrderRow = {
            "chunk_id": chunk_id,
            "namespace": space,
            "source_uri": known.source_uri if known else "",
            "section_path": known.chunk.section_path if known else "",
            "legs": {leg: found[chunk_id] for leg, found in places.items() if chunk_id in found},
        }
        if number <= len(final):
            row["rank"] = number
        rows.append(row)
    return {
        "trace_id": str(trace["trace_id"]),
        "question": str((attrs.get("request") or {}).get("text") or ""),
        "namespace": namespace,
        "release_id": release_id,
        "legs": [leg for leg in LEGS if places.get(leg)],
        "rows": rows,
        "notes": notes,
    }


def _read_legs(events: Sequence[Json]) -> dict[str, dict[str, LegPlace]]:
    """Stage to chunk_id to place: the best place of a retriever that ran for several phrasings, the
    last one of a repeated fusion.
    """
    places: dict[str, dict[str, LegPlace]] = {leg: {} for leg in LEGS}
    for event in events:
        kind, payload = event.get("kind"), event.get("payload") or {}
        if kind == "retrieval.candidates" and payload.get("source") in LEGS:
            known = places[payload["source"]]
            for chunk_id, place in _rank(payload.get("candidates")).items():
                if chunk_id not in known or place["rank"] < known[chunk_id]["rank"]:
                    known[chunk_id] = place
        elif kind == "fusion.ranked":
            places["fusion"] = _rank(payload.get("ranked"))
        elif kind == "rerank.ranked":
            places["rerank"] = _rank(payload.get("after"))
    return places


def _rank(items: Any) -> dict[str, LegPlace]:
    """chunk_id to place in a list of ids or of candidates with a score."""
    found: dict[str, LegPlace] = {}
    for rank, item in enumerate(items or (), 1):
        if isinstance(item, Mapping):
            place: LegPlace = {"rank": rank}
            if item.get("score") is not None:
                place["score"] = float(item["score"])
            found[str(item["chunk_id"])] = place
        else:
            found[str(item)] = {"rank": rank}
    return found


def _others(places: Mapping[str, Mapping[str, LegPlace]], final: Sequence[str]) -> list[str]:
    """The candidates that are not hits, in the order of the latest stage that ranked them."""
    rest: dict[str, None] = {}
    for leg in reversed(LEGS):
        by_rank = sorted(places[leg].items(), key=lambda item: item[1]["rank"])
        rest |= dict.fromkeys(chunk_id for chunk_id, _ in by_rank if chunk_id not in final)
    return list(rest)


def read_rows(
    library: Library, namespace: str, release_id: str, chunk_ids: Iterable[str]
) -> tuple[dict[str, ChunkRow], RagError | None]:
    """(chunk_id to row without hidden chunks, the error if the release cannot be read)."""
    try:
        with library.lease(namespace, release_id) as lease:
            visible = sorted({*chunk_ids} - library.hidden_chunks(lease))
            return lease.release.catalog.rows(visible), None
    except RagError as error:
        return {}, error
