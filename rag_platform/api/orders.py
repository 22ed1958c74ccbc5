"""Explains the ranking of a question's hits from its trace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rag_platform.api.traces import read_visible
from rag_platform.contract.source_shapes import LegPlace, OrderData, OrderRow
from rag_platform.errors import InputError, RagError
from rag_platform.indexes.catalog import ChunkRow
from rag_platform.ir import Json
from rag_platform.retrieval.library import Library

LEGS = ("sparse", "dense", "fusion", "rerank")
_MAX_ROWS = 60


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
    """The rank in each stage of every hit, and of the best candidates that did not become hits.
    Raises what `read_question_trace` raises.
    """
    trace = read_question_trace(library, trace_id)
    attrs = trace.get("attrs", {})
    places = _read_legs(trace["events"])
    final = [str(chunk_id) for chunk_id in attrs.get("ranked_chunk_ids") or ()]
    others = _others(places, final)
    namespace, release_id = str(trace.get("namespace") or ""), str(attrs.get("release_id") or "")
    ids = [*final, *others][:_MAX_ROWS]
    releases = attrs.get("releases") or {namespace: release_id}
    named, notes = read_rows(library, releases, ids)
    rows: list[OrderRow] = []
    for number, chunk_id in enumerate(ids, 1):
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
    library: Library, releases: Mapping[str, str], chunk_ids: Sequence[str]
) -> tuple[dict[str, tuple[str, ChunkRow]], list[str]]:
    """(chunk_id to namespace and row, notes on releases that cannot be read); `releases` has one
    release_id per namespace, and hidden chunks are left out.
    """
    found: dict[str, tuple[str, ChunkRow]] = {}
    notes: list[str] = []
    for name, release_id in releases.items():
        try:
            with library.lease(name, release_id) as lease:
                hidden = library.hidden_chunks(lease)
                rows = lease.release.catalog.rows(chunk_ids)
                found |= {key: (name, row) for key, row in rows.items() if key not in hidden}
        except RagError as error:
            notes.append(error.message)
    return found, notes
