"""How far a ranking can be trusted before reranking."""

from __future__ import annotations

from collections.abc import Sequence

from rag_platform.ir import Hit, QueryIR
from rag_platform.query.analysis import subject_of
from rag_platform.text.entries import join_headings
from rag_platform.text.scripts import is_wide
from rag_platform.text.term_overlap import coverage, names_coverage


def confidence(query: QueryIR, hits: Sequence[Hit]) -> float:
    """The confidence in a ranking, 0 to 1: the share of the question's words in the first hit with
    its headings; across languages that of its identifiers and names, or one half without any. 0
    without hits. It orders rankings, but is no probability.
    """
    if not hits:
        return 0.0
    question, first = subject_of(query), with_headings(hits[0])
    measure = coverage if is_wide(question) == is_wide(hits[0].chunk_text) else names_coverage
    return round(measure(question, [first]), 3)


def with_headings(hit: Hit) -> str:
    """The text of a passage below its title, its headings and the names of what it describes."""
    above = join_headings(hit.doc_title, hit.section_path, hit.chunk_text)
    return f"{above}\n{hit.chunk_text}"
