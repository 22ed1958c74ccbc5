"""Runs as people read them."""

from __future__ import annotations

import dataclasses

from rag_platform.evaluation.reporting.reports import cases_markdown, list_markdown, run_markdown
from rag_platform.evaluation.results import CaseResult, EvalRun, summarise

RANKS = {"late": 7, "missing": 0}


def case(name: str, position: int) -> CaseResult:
    """A question whose passage came at its rank, 0 for not at all."""
    rank = RANKS[name]
    metrics = {f"retrieval.hit_rate@{k}": float(0 < rank <= k) for k in (1, 3, 5, 10)}
    metrics |= {f"retrieval.mrr@{k}": 1 / rank if 0 < rank <= k else 0.0 for k in (1, 3, 5, 10)}
    stale = ({"label": "text 2", "reason": "text_gone"},)
    return CaseResult(
        case_id=name, position=position, key=name, query="which?", metrics=metrics, stale=stale
    )


CASES = [case(name, position) for position, name in enumerate(RANKS)]


def test_a_missed_question_tells_whether_anything_was_found_at_all() -> None:
    aggregates, figures, _ = summarise(CASES)
    run = EvalRun(
        run_id="eval_1", started_at="2026-01-01T00:00:00", ended_at="", status="running",
        judge_profile_id="", dataset_id="small", dataset_version="1",
        dataset_fingerprint="f", namespace="notes", release_id="r", strategy="default",
        strategy_config_id="c", eval_profile_id="p", metric_set_ids=(), mode="end_to_end",
        cases=2, aggregates=aggregates, figures=figures,
    )  # fmt: skip
    assert " | notes | " in list_markdown([run])
    said = run_markdown(run, CASES)
    assert "- late: which? (retrieval.mrr@10 0.14, " in said
    assert "- missing: which? (retrieval.hit_rate@10 0.00, " in said
    names = [
        line.split(" | ")[0] for line in said.splitlines() if line.startswith("| retrieval.hit")
    ]
    assert names == [f"| retrieval.hit_rate@{k}" for k in (1, 3, 5, 10)]
    assert "2 stale labels left out" in said
    said = run_markdown(dataclasses.replace(run, figures={"stale_labels": 1, "unmeasured": 1}))
    assert "1 stale label left out, see" in said and "1 case could not be measured." in said


def test_stale_labels_are_named_beside_their_case() -> None:
    for line in cases_markdown(CASES).splitlines():
        assert "retrieval.mrr@10 " in line and "stale: text 2 (text_gone)" in line
