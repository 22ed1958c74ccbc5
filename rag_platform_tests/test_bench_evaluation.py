"""bench/evaluation.py sees that a figure is not trec_eval's."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

from rag_platform.ir import Hit

BENCH = Path(__file__).resolve().parent.parent / "bench"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCH))
    return importlib.import_module("evaluation")


def test_the_figures_are_those_of_trec_eval(bench: Any, capsys: pytest.CaptureFixture[str]) -> None:
    items = bench.make_cases(60)
    assert any(not item.result.hits for item in items)
    assert any(not any(item.labels.grades.values()) for item in items)
    assert max(bench.compare_figures(items)) < bench.TOLERANCE
    assert capsys.readouterr().out.count("| retrieval.") == 16


def test_a_ranking_turned_round_is_seen(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    items = bench.make_cases(60)
    measured = bench.measure_by_trec_eval(items)

    def turn_round(self: Any, hits: tuple[Hit, ...]) -> list[str]:
        return [hit.chunk_id for hit in reversed(hits)]

    monkeypatch.setattr("rag_platform.evaluation.labels.Labels.rank", turn_round)
    assert max(bench.compare_figures(items)) > 0.1
    assert bench.measure_by_trec_eval(items) == measured
