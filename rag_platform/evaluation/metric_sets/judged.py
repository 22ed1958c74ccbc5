"""A judge's scores of answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import ClassVar

from rag_platform.errors import InputError
from rag_platform.evaluation.measuring import AskedCase, CaseMetrics, Judge, Score
from rag_platform.ir import Hit
from rag_platform.observability import tracing

_PARALLEL = 4  # answers judged at once, as many calls as `load.provider_calls` allows


@dataclass(frozen=True)
class JudgedAnswers:
    """`generation.faithfulness` and `generation.answer_relevancy` of answers, and
    `generation.answer_correctness` of cases with an `expected_answer`.

    Without an answer where one was expected, relevancy and correctness are 0, unless the release no
    longer has the expected text. Scores that the judge could not give are absent. The reasons are
    in the trace, as events `judge.score`.
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
        with ThreadPoolExecutor(_PARALLEL) as pool:
            running = [pool.submit(tracing.carry(_measure), item, judge) for item in items]
            try:
                values = [future.result() for future in running]
            except BaseException:  # after one error the other scores are not used
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        return {item.case.case_id: found for item, found in zip(items, values, strict=True)}


def _measure(item: AskedCase, judge: Judge) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, score in _judge(item, judge):
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
        if score.score is not None:
            found[name] = score.score
    return found


def _judge(item: AskedCase, judge: Judge) -> Iterator[tuple[str, Score]]:
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
    return "\n".join(filter(None, (hit.doc_title, hit.section_path, hit.chunk_text)))
