"""Content gaps: questions that were refused or answered with low confidence, grouped, with the
nearest passages of the published release.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from rag_platform.answering.engine import answer
from rag_platform.contract.evaluation_shapes import GapPart, GapsData
from rag_platform.ir import Json, QueryRequest
from rag_platform.observability.trace_reader import list_outcomes
from rag_platform.retrieval.library import Library
from rag_platform.text.terms import meaning

# answers below this confidence count as gaps; chosen by hand
LOW_CONFIDENCE = 0.35
# questions whose word sets have at least this Jaccard index are one gap; chosen by hand
SAME_WORDS = 0.4
NEAREST = 3  # passages shown with each gap


def get_gaps(library: Library, namespace: str, days: int) -> GapsData:
    """The gaps of the last days. Raises NotFoundError for a namespace without a release."""
    since = datetime.now(UTC) - timedelta(days=days)
    outcomes = list_outcomes(library.store.logs_dir, namespace, since=since)
    return {
        "namespace": namespace,
        "days": days,
        "asked": len(outcomes),
        "gaps": find_gaps(library, namespace, outcomes),
    }


def find_gaps(library: Library, namespace: str, outcomes: Sequence[Json]) -> list[GapPart]:
    """The gaps among outcomes of questions, unanswered and most frequent ones first. Raises
    NotFoundError for a namespace without a release.
    """
    missed = [
        item for item in outcomes if not item["answered"] or item["confidence"] < LOW_CONFIDENCE
    ]
    with library.lease(namespace, None) as lease:
        found = [
            _describe(library, namespace, lease.release_id, group) for group in group_alike(missed)
        ]
    return sorted(found, key=lambda gap: (gap["answered_now"], -gap["times"]))


def group_alike(outcomes: Sequence[Json]) -> list[list[Json]]:
    """Groups of outcomes whose questions share enough words with the group's first one."""
    groups: list[tuple[set[str], list[Json]]] = []
    for item in outcomes:
        words = meaning(str(item["text"]))
        for known, members in groups:
            if known | words and len(known & words) / len(known | words) >= SAME_WORDS:
                members.append(item)
                break
        else:
            groups.append((words, [item]))
    return [members for _, members in groups]


def _describe(library: Library, namespace: str, release_id: str, group: list[Json]) -> GapPart:
    first = group[0]
    # a query that names a release does not count as a user's question
    result = answer(
        library,
        QueryRequest(
            str(first["text"]), namespace, filters=dict(first["filters"]), release_id=release_id
        ),
    )
    return {
        "questions": [str(item["text"]) for item in group],
        "trace_ids": [str(item["trace_id"]) for item in group],
        "times": sum(item["times"] for item in group),
        "refused": sum(item["times"] for item in group if not item["answered"]),
        "answered_now": result.answered and result.confidence >= LOW_CONFIDENCE,
        "nearest": [
            {
                "source_uri": hit.source_uri,
                "section_path": hit.section_path,
                "score": round(hit.score, 4),
            }
            for hit in result.hits[:NEAREST]
        ],
    }
