"""How far an answer can be trusted: its passages hold the question's words, both retrievers agree,
and its hits stand out.
"""

from __future__ import annotations

from collections.abc import Sequence

from rag_platform.ir import Hit, QueryIR
from rag_platform.query.analysis import subject_of
from rag_platform.retrieval.constants import (
    AGREEING_HITS,
    AGREEMENT_WEIGHT,
    COVERAGE_WEIGHT,
    MAX_UNCITED,
    ONE_RETRIEVER,
    STANDING_WEIGHT,
)
from rag_platform.text.scripts import is_wide
from rag_platform.text.term_overlap import best_coverage, coverage, names_coverage


def confidence(
    query: QueryIR | str,
    cited: Sequence[Hit],
    evidence: Sequence[Hit],
    hits: Sequence[Hit],
    *,
    retrievers: int,
    support: float = 1.0,
) -> float:
    """How far to trust an answer with these citations, 0 to 1: coverage x (0.7 + 0.2 agreement +
    0.1 standing) x support.

    Coverage is the share of the question's words, weighted by rarity, in the best cited chunk with
    its headings; for a comparison, in all cited chunks together. Across languages it is the share
    of identifiers and names, or one half without any. Agreement is the share of the first three
    hits that both retrievers found, or one half with one retriever. Standing is the place of the
    best cited score between the lowest and the highest. `support` is the agreement of the cited
    passages with the answer (`citations.Cited`). The result is at most 0.2 without a citation and 0
    without hits. It orders answers; it is no probability.
    """
    if not hits:
        return 0.0
    question = question_text(query)
    texts = [_with_headings(hit) for hit in cited or hits[:1]]
    if is_wide(question) != is_wide(" ".join(hit.chunk_text for hit in cited or hits[:1])):
        covered = names_coverage(question, texts)
    else:
        covered = words_held(query, cited or hits[:1], evidence)
    first = hits[:AGREEING_HITS]
    hybrid = sum(hit.source == "hybrid" for hit in first)
    agreement = ONE_RETRIEVER if retrievers < 2 else hybrid / len(first)
    scores = [hit.score for hit in hits]
    low, high = min(scores), max(scores)
    standing = (
        (max((hit.score for hit in cited), default=low) - low) / (high - low) if high > low else 1.0
    )
    value = covered * (
        COVERAGE_WEIGHT
        + AGREEMENT_WEIGHT * agreement
        + STANDING_WEIGHT * min(1.0, max(0.0, standing))
    )
    return round(value * support if cited else min(MAX_UNCITED, value), 3)


def words_held(query: QueryIR | str, hits: Sequence[Hit], among: Sequence[Hit]) -> float:
    """The share of the question's words in the passage that holds most of them; of a comparison in
    all of them together.

    Words that stand far apart say little: without the right passage its neighbours together still
    hold most of them.
    """
    question = question_text(query)
    together = isinstance(query, QueryIR) and query.intent == "compare"
    return (coverage if together else best_coverage)(
        question, [_with_headings(hit) for hit in hits], [_with_headings(hit) for hit in among]
    )


def question_text(query: QueryIR | str) -> str:
    """What the question is about, in words."""
    return query if isinstance(query, str) else subject_of(query)


def _with_headings(hit: Hit) -> str:
    return f"{hit.doc_title}\n{hit.section_path}\n{hit.chunk_text}"
