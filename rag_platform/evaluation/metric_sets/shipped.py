"""Metric sets: ranking of the expected documents and chunks, answers, citations, and a judge's
scores of answers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from rag_platform.answering.citations import check_claims
from rag_platform.errors import InputError
from rag_platform.evaluation.labels import contains_quote, fold, is_of_file
from rag_platform.evaluation.measuring import AskedCase, CaseMetrics, Judge, Score
from rag_platform.evaluation.metrics import measure_ranking
from rag_platform.ir import Citation, Hit
from rag_platform.observability import tracing

_PARALLEL = 4  # answers judged at once, as many calls as `load.provider_calls` allows


@dataclass(frozen=True)
class Retrieval:
    """Hit rate, recall, MRR and nDCG at each k for cases with labels; a question without hits
    counts 0. `retrieval.coverage` is the share of hits within the case's `doc_scope`.
    """

    VERSION: ClassVar[str] = "4"

    def compute(
        self, items: Sequence[AskedCase], k_values: Sequence[int], judge: Judge | None = None
    ) -> CaseMetrics:
        return {item.case.case_id: _measure_ranking(item, k_values) for item in items}


def _measure_ranking(item: AskedCase, k_values: Sequence[int]) -> dict[str, float]:
    found: dict[str, float] = {}
    hits, grades = item.result.hits, item.labels.grades
    if any(grades.values()):
        values = measure_ranking(item.labels.rank(hits), grades, k_values)
        found = {f"retrieval.{name}": value for name, value in values.items()}
    if item.in_scope is not None:
        inside = sum(hit.chunk_id in item.in_scope for hit in hits)
        found["retrieval.coverage"] = inside / len(hits) if hits else 0.0
    return found


@dataclass(frozen=True)
class Answers:
    """`refusal.right`: whether the library rightly answered or refused; `answer.evidence`: whether
    the answer contains the expected texts, without those that the release no longer has.
    """

    VERSION: ClassVar[str] = "4"

    def compute(
        self, items: Sequence[AskedCase], k_values: Sequence[int], judge: Judge | None = None
    ) -> CaseMetrics:
        return {item.case.case_id: _measure_answer(item) for item in items}


def _measure_answer(item: AskedCase) -> dict[str, float]:
    case, result = item.case, item.result
    found: dict[str, float] = {}
    if case.should_refuse:
        # a failed question is not a refusal
        return {"refusal.right": float(not (result.answered or item.failed))}
    if item.is_stale:
        return found
    if case.is_ranked or case.expected_answer or case.should_refuse is not None:
        found["refusal.right"] = float(result.answered)
    gone = {label.label for label in item.labels.stale}
    texts = [
        expected.text
        for number, expected in enumerate(case.expected_text, 1)
        if f"text {number}" not in gone
    ]
    if texts:
        answer = fold(result.answer_markdown) if result.answered else ""
        found_texts = [contains_quote(answer, text) for text in texts]
        found["answer.evidence"] = float(
            any(found_texts) if case.match == "any" else all(found_texts)
        )
    return found


@dataclass(frozen=True)
class Citations:
    """Shares: `citation.precision` of citations that are of a returned chunk, proved against the
    stored bytes, and support every sentence that they are attached to; `citation.provenance` of
    proved citations; `citation.coverage` of sentences with a citation; `citation.recall` of
    `expected_citations` that are cited.
    """

    VERSION: ClassVar[str] = "3"
    needs_proof: ClassVar[bool] = True

    def compute(
        self, items: Sequence[AskedCase], k_values: Sequence[int], judge: Judge | None = None
    ) -> CaseMetrics:
        return {item.case.case_id: _measure_citations(item) for item in items}


def _measure_citations(item: AskedCase) -> dict[str, float]:
    result, found = item.result, dict[str, float]()
    known = {hit.chunk_id: hit for hit in (*result.hits, *item.context)}
    cited = [_as_hit(it, known.get(it.chunk_id)) for it in result.citations if result.answered]
    if item.case.expected_citations:
        found["citation.recall"] = _share(
            any(
                contains_quote(fold(hit.readable), expected.text)
                and (not expected.file or is_of_file(hit.source_uri, expected.file))
                for hit in cited
            )
            for expected in item.case.expected_citations
        )
    if not result.answered:
        return found
    claims = check_claims(result.answer_markdown, cited)
    doubtful = {number for claim in claims if not claim.supported for number in claim.marks}
    found["citation.precision"] = _share(
        hit.chunk_id in known and hit.chunk_id in item.proved and hit.rank not in doubtful
        for hit in cited
    )
    found["citation.provenance"] = _share(hit.chunk_id in item.proved for hit in cited)
    if claims:
        found["citation.coverage"] = _share(bool(claim.marks) for claim in claims)
    return found


def _share(kept: Iterable[bool]) -> float:
    """The share of true values, 0 if there are none."""
    values = list(kept)
    return sum(values) / len(values) if values else 0.0


def _as_hit(citation: Citation, hit: Hit | None) -> Hit:
    """The cited text as a hit, with title and pictures of the hit that it is from."""
    return Hit(
        rank=citation.id,
        chunk_id=citation.chunk_id,
        score=citation.score,
        source="",
        doc_id=citation.doc_id,
        version_id=citation.version_id,
        source_uri=citation.source_uri,
        filename="",
        doc_title=hit.doc_title if hit else "",
        section_path=citation.section_path,
        chunk_index=0,
        chunk_text=citation.text,
        picture_text=hit.picture_text if hit else "",
    )


# --- judged -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class JudgedAnswers:
    """`generation.faithfulness` and `generation.answer_relevancy` of answers, and
    `generation.answer_correctness` of cases with an `expected_answer`.

    Without an answer where one was expected, relevancy and correctness are 0, unless the release no
    longer has the expected text. The reasons are in the trace, as events `judge.score`.
    """

    VERSION: ClassVar[str] = "2"

    def compute(
        self, items: Sequence[AskedCase], k_values: Sequence[int], judge: Judge | None = None
    ) -> CaseMetrics:
        """Raises InputError `no_judge` without a judge."""
        if judge is None:
            raise InputError(
                "the metric set 'judged' needs a judge: --judge rules, or --judge llm",
                code="no_judge",
            )
        values = tracing.map_in_threads(partial(_measure_judged, judge=judge), items, _PARALLEL)
        return {item.case.case_id: found for item, found in zip(items, values, strict=True)}


def _measure_judged(item: AskedCase, judge: Judge) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, score in _scores(item, judge):
        tracing.event(
            "judge.score",
            {
                "metric": name,
                "case_id": item.case.case_id,
                "answer_trace_id": item.result.trace_id,
                "score": score.score,
                "reason": score.reason,
                # a deletion finds the reason by them, as it may quote the document
                "chunk_ids": [hit.chunk_id for hit in item.context],
            },
        )
        if score.score is not None or score.failed:
            found[name] = math.nan if score.score is None else score.score
    return found


def _scores(item: AskedCase, judge: Judge) -> Iterator[tuple[str, Score]]:
    case, answer = item.case, item.result.answer_markdown
    expected = "" if case.should_refuse or item.is_stale else case.expected_answer
    if item.result.answered:
        contexts = [_with_headings(hit) for hit in item.context]
        yield "generation.faithfulness", judge.score_faithfulness(answer, contexts)
        yield "generation.answer_relevancy", judge.score_answer_relevancy(answer, case.query)
        if expected:
            score = judge.score_answer_correctness(answer, expected, case.query)
            yield "generation.answer_correctness", score
    elif case.expects_something and not (case.should_refuse or item.is_stale):
        yield "generation.answer_relevancy", Score(0.0, "nothing was answered")
        if expected:
            yield "generation.answer_correctness", Score(0.0, "nothing was answered")


def _with_headings(hit: Hit) -> str:
    return "\n".join(filter(None, (hit.doc_title, hit.section_path, hit.readable)))
