"""How far a ranking can be trusted before reranking: its first hit has the question's words, both
retrievers agree, and its score stands out.
"""

from __future__ import annotations

from collections.abc import Sequence

from rag_platform.ir import Hit, QueryIR
from rag_platform.query.analysis import subject_of
from rag_platform.retrieval.constants import (
    AGREEING_HITS,
    AGREEMENT_WEIGHT,
    COVERAGE_WEIGHT,
    ONE_RETRIEVER,
    STANDING_WEIGHT,
)
from rag_platform.text.entries import join_headings
from rag_platform.text.scripts import is_wide
from rag_platform.text.term_overlap import coverage, names_coverage


def confidence(query: QueryIR, hits: Sequence[Hit], *, retrievers: int) -> float:
    """The confidence in a ranking, 0 to 1: coverage x (0.7 + 0.2 agreement + 0.1 standing); 0
    without hits. It orders rankings, but is no probability.

    Coverage is the share of the question's words, weighted by rarity, in the first hit with its
    headings; across languages the share of identifiers and names, or one half without any.
    Agreement is the share of the first three hits that both retrievers found, or one half with one
    retriever. Standing is the first score, min-max scaled over the hits.
    """
    if not hits:
        return 0.0
    question = subject_of(query)
    if is_wide(question) != is_wide(hits[0].chunk_text):
        covered = names_coverage(question, [with_headings(hits[0])])
    else:
        text = with_headings(hits[0])
        covered = coverage(question, [text], [text])
    first = hits[:AGREEING_HITS]
    hybrid = sum(hit.source == "hybrid" for hit in first)
    agreement = ONE_RETRIEVER if retrievers < 2 else hybrid / len(first)
    scores = [hit.score for hit in hits]
    low, high = min(scores), max(scores)
    standing = (hits[0].score - low) / (high - low) if high > low else 1.0
    return round(
        covered * (COVERAGE_WEIGHT + AGREEMENT_WEIGHT * agreement + STANDING_WEIGHT * standing),
        3,
    )


def with_headings(hit: Hit) -> str:
    """The text of a passage below its title, its headings and the names of what it describes."""
    above = join_headings(hit.doc_title, hit.section_path, hit.chunk_text)
    return f"{above}\n{hit.chunk_text}"
