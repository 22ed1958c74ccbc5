"""A question that was asked, asked again for pages and `/api`."""

from __future__ import annotations

from rag_platform.api.asking import rank_both
from rag_platform.api.orders import read_question_trace, read_rows
from rag_platform.contract.source_shapes import ReplayData
from rag_platform.retrieval.library import Library


def replay_question(library: Library, trace_id: str, *, published: bool = False) -> ReplayData:
    """The rankings then and now, of the same release or of the published one. Raises what
    `read_question_trace` and `replay` raise.
    """
    from rag_platform.evaluation.monitoring.replay import replay

    trace = read_question_trace(library, trace_id)
    request = trace["attrs"]["request"]
    namespace = str(request["namespace"])
    now = library.current(namespace) if published else ""
    found = replay(library, trace, release_id=now)
    rows = rank_both(found.before, found.after)
    for release_id in dict.fromkeys((str(trace["attrs"]["release_id"]), found.release_id)):
        wanted = [row["chunk_id"] for row in rows if "source_uri" not in row]
        places, _ = read_rows(library, {namespace: release_id}, wanted)
        for row in rows:
            if row["chunk_id"] in places:
                _, held = places[row["chunk_id"]]
                row["source_uri"] = held.source_uri
                row["section_path"] = held.chunk.section_path
    return {
        "trace_id": found.trace_id,
        "new_trace_id": found.new_trace_id,
        "question": str(request["text"]),
        "namespace": namespace,
        "release_id": found.release_id,
        "same": found.same,
        "reasons": list(found.reasons),
        "rows": rows,
    }
