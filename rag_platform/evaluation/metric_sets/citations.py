"""Metrics of citations that need no judge."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from rag_platform.answering.citations import check_claims
from rag_platform.evaluation.measuring import AskedCase, CaseMetrics, Judge
from rag_platform.evaluation.quotes import contains_quote, fold, is_of_file
from rag_platform.ir import Citation, Hit


@dataclass(frozen=True)
class Citations:
    """Shares: `citation.precision` of citations that are of a returned chunk, proved against the
    stored bytes, and support every sentence that they are attached to; `citation.provenance` of
    proved citations; `citation.coverage` of sentences with a citation; `citation.recall` of
    `expected_citations` that are cited.
    """

    VERSION: ClassVar[str] = "2"
    needs_proof: ClassVar[bool] = True

    def compute(
        self, items: Sequence[AskedCase], k_values: Sequence[int], judge: Judge | None = None
    ) -> CaseMetrics:
        return {item.case.case_id: _measure(item) for item in items}


def _measure(item: AskedCase) -> dict[str, float]:
    result, found = item.result, dict[str, float]()
    cited = result.citations if result.answered else ()
    if item.case.expected_citations:
        found["citation.recall"] = _share(
            any(
                contains_quote(fold(citation.text), expected.text)
                and (not expected.file or is_of_file(citation.source_uri, expected.file))
                for citation in cited
            )
            for expected in item.case.expected_citations
        )
    if not result.answered:
        return found
    titles = {hit.chunk_id: hit.doc_title for hit in (*result.hits, *item.context)}
    claims = check_claims(
        result.answer_markdown, [_as_hit(one, titles.get(one.chunk_id, "")) for one in cited]
    )
    doubtful = {number for claim in claims if not claim.supported for number in claim.marks}
    found["citation.precision"] = _share(
        one.chunk_id in titles and one.chunk_id in item.proved and one.id not in doubtful
        for one in cited
    )
    found["citation.provenance"] = _share(one.chunk_id in item.proved for one in cited)
    if claims:
        found["citation.coverage"] = _share(bool(claim.marks) for claim in claims)
    return found


def _share(kept: Iterable[bool]) -> float:
    """The share of true values, 0 if there are none."""
    values = list(kept)
    return sum(values) / len(values) if values else 0.0


def _as_hit(citation: Citation, title: str) -> Hit:
    return Hit(
        rank=citation.id,
        chunk_id=citation.chunk_id,
        score=citation.score,
        source="",
        doc_id=citation.doc_id,
        version_id=citation.version_id,
        source_uri=citation.source_uri,
        filename="",
        doc_title=title,
        section_path=citation.section_path,
        chunk_index=0,
        chunk_text=citation.text,
    )
