"""Drift of what users ask and get, over traces written as the query path writes them."""

from __future__ import annotations

import json
import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from rag_platform.config.settings import DriftSettings
from rag_platform.evaluation.monitoring.drift import (
    drift_markdown,
    ks_distance,
    ks_limit,
    measure_drift,
    psi_limit,
    stability_index,
)

NOW = datetime(2026, 3, 29, 12, tzinfo=UTC)
CONFIG = DriftSettings()


def write(
    logs: Path,
    days_ago: float,
    count: int,
    *,
    refused: float = 0.1,
    latency: float = 40.0,
    release_id: str | None = None,
) -> None:
    """Append the last lines of questions that were asked around that time."""
    chance = random.Random(f"{days_ago} {count} {refused}")
    at = NOW - timedelta(days=days_ago)
    logs.mkdir(exist_ok=True)
    with (logs / f"{at:%Y-%m-%d}-7.jsonl").open("a", encoding="utf-8") as file:
        for number in range(count):
            record = {
                "schema_version": 1,
                "line": "trace.end",
                "trace_id": f"trc_{number:032x}",
                "trace_type": "query",
                "ts": at.isoformat(),
                "started_at": at.isoformat().replace("+00:00", "Z"),
                "namespace": "default",
                "attrs": {
                    "request": {"text": "q", "release_id": release_id},
                    "release_id": "r1",
                    "flags": {"answered": number >= count * refused},
                    "confidence": chance.uniform(0.4, 0.9),
                    "language": "en" if number % 4 else "zh",
                    "top_score": chance.gauss(3, 1),
                    "dense_topk_overlap_sparse": chance.uniform(0, 1),
                },
                "aggregates": {"latency_ms": chance.gauss(latency, 5)},
            }
            file.write(json.dumps(record, separators=(",", ":")) + "\n")


def test_distances_and_their_limits_by_hand() -> None:
    assert ks_distance([1, 2, 3, 4], [3, 4, 5, 6]) == 0.5
    assert ks_distance([1, 2], [1, 2]) == 0.0
    assert ks_limit(10_000, 10_000, CONFIG) == 0.25
    # sqrt(-ln(.0005) / 2 * 60 / 900)
    assert ks_limit(30, 30, CONFIG) == pytest.approx(0.5034, abs=1e-4)
    # (50.5 - 80.5) / 101 * ln(50.5 / 80.5) and the same for the other share
    assert stability_index(Counter(a=80, b=20), Counter(a=50, b=50)) == pytest.approx(
        0.4063, abs=1e-4
    )
    # chi-square with one degree of freedom: 10.83 at 0.001
    assert psi_limit(Counter(a=20, b=10), Counter(a=30), CONFIG) == pytest.approx(
        10.83 / 15, rel=0.04
    )


def test_the_same_questions_do_not_drift(tmp_path: Path) -> None:
    for week in range(4):
        write(tmp_path / "logs", 7 * week + 3, 100)
    report = measure_drift(tmp_path / "logs", "default", CONFIG, NOW)
    assert report.stable is not None and report.current.questions == 100
    assert [signal.name for signal in report.signals] == [
        "top_score",
        "confidence",
        "dense_topk_overlap_sparse",
        "latency_ms",
        "refused",
        "language",
    ]
    assert report.drifted == ()
    assert "No drift." in drift_markdown(report)


def test_what_changed_is_named_against_the_last_stable_window(tmp_path: Path) -> None:
    write(tmp_path / "logs", 24, 100)
    write(tmp_path / "logs", 17, 100)
    write(tmp_path / "logs", 10, 100, refused=0.9, latency=400)  # itself no stable window
    write(tmp_path / "logs", 3, 100, refused=0.8, latency=400)
    report = measure_drift(tmp_path / "logs", "default", CONFIG, NOW)
    assert report.stable is not None and report.stable.end == NOW - timedelta(days=14)
    assert [signal.name for signal in report.drifted] == ["latency_ms", "refused"]
    assert "Drifted: latency_ms, refused" in drift_markdown(report)


def test_questions_of_evaluations_and_too_few_say_nothing(tmp_path: Path) -> None:
    write(tmp_path / "logs", 10, 100)
    write(tmp_path / "logs", 3, 100, refused=0.9, release_id="r1")
    write(tmp_path / "logs", 3, 5)
    with (tmp_path / "logs" / "2026-03-26-7.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"schema_version":1,"line":"trace.end","trace_id":"trc_torn\n')
    report = measure_drift(tmp_path / "logs", "default", CONFIG, NOW)
    assert report.current.questions == 5 and report.signals == ()
    assert "5 questions in 7 days are too few to compare; it takes 30" in report.reason
    assert measure_drift(tmp_path / "none", "default", CONFIG, NOW).current.questions == 0
