"""The outcome of a prompt experiment: compares the questions of its two arms, read from the traces.

The text of a question determines its arm, even if the model's call failed and the answer was made
without it (intention to treat). A repeated question counts once, with its mean values. Cached
answers sent no prompt and do not count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np

from rag_platform.api.envelopes import fill_shape
from rag_platform.config.prompts import list_versions
from rag_platform.contract.evaluation_shapes import PromptPart
from rag_platform.evaluation.metrics import Interval, bootstrap_difference
from rag_platform.ir import Json
from rag_platform.observability.trace_reader import read_questions
from rag_platform.text.markdown_blocks import format_table

ARMS = ("control", "treatment")


@dataclass(frozen=True, slots=True)
class ExperimentResult:
    """Questions and means by arm, and by metric the difference, treatment minus control."""

    experiment_id: str
    questions: Mapping[str, int]
    means: Mapping[str, Mapping[str, float]]  # metric to arm to mean
    differences: Mapping[str, Interval]


def list_prompts() -> list[PromptPart]:
    """Every version of every prompt, and the running experiments."""
    return [
        fill_shape(PromptPart, item, at=item.at.isoformat(timespec="seconds") if item.at else "")
        for item in list_versions()
    ]


def judge_experiment(
    logs_dir: Path, experiment_id: str, *, since: datetime, namespace: str | None = None
) -> ExperimentResult:
    """The result over the questions since `since`, of one namespace or of all."""
    found: dict[str, dict[str, list[dict[str, float]]]] = {arm: {} for arm in ARMS}
    for record in read_questions(logs_dir, namespace, since=since):
        attrs = record["attrs"]
        for chosen in (attrs.get("experiments") or {}).values():
            if chosen["experiment_id"] == experiment_id:
                asked = found[chosen["arm"]].setdefault(str(attrs.get("query_hash")), [])
                asked.append(_measure(record, attrs))
    values = {arm: [_mean(times) for times in found[arm].values()] for arm in ARMS}
    metrics = sorted({name for items in values.values() for item in items for name in item})
    means: dict[str, dict[str, float]] = {}
    differences: dict[str, Interval] = {}
    for metric in metrics:
        measured = {arm: [it[metric] for it in values[arm] if metric in it] for arm in ARMS}
        if all(measured.values()):
            means[metric] = {arm: float(np.mean(found)) for arm, found in measured.items()}
            differences[metric] = bootstrap_difference(measured["control"], measured["treatment"])
    return ExperimentResult(
        experiment_id, {arm: len(values[arm]) for arm in ARMS}, means, differences
    )


def _measure(record: Json, attrs: Json) -> dict[str, float]:
    flags = attrs.get("flags") or {}
    aggregates = record.get("aggregates") or {}
    counters = aggregates.get("counters") or {}
    known = {
        "answered": flags.get("answered"),
        "confidence": attrs.get("confidence"),
        "citations": counters.get("citations_count"),
        "unsupported": len(flags.get("unsupported") or ()),
        "fallback": flags.get("fallback_mode") == "structured_response",
        "latency_ms": aggregates.get("latency_ms"),
        "cost": (attrs.get("usage") or {}).get("cost"),
    }
    return {name: float(value) for name, value in known.items() if value is not None}


def _mean(times: list[dict[str, float]]) -> dict[str, float]:
    return {
        name: float(np.mean([item[name] for item in times if name in item]))
        for name in set().union(*times)
    }


def experiment_markdown(result: ExperimentResult) -> str:
    """A table of the arms; a star marks significant differences."""
    counts = ", ".join(f"{result.questions[arm]} {arm}" for arm in ARMS)
    head = f"{result.experiment_id}: different questions asked: {counts}"
    if not result.differences:
        return f"{head}; both arms need questions before anything can be said"
    rows = []
    for metric, item in result.differences.items():
        digits = 6 if metric == "cost" else 3  # a question costs some hundredths of a cent
        means = (f"{result.means[metric][arm]:.{digits}f}" for arm in ARMS)
        found = [f"{value:+.{digits}f}" for value in (item.value, item.low, item.high)]
        star = " *" * item.excludes_zero
        rows.append((metric, *means, f"{found[0]} [{found[1]}, {found[2]}]{star}"))
    return "\n".join(
        [
            head,
            "",
            *format_table(("metric", "control", "treatment", "difference, 95 % interval"), rows),
            "",
            "\\* the interval leaves out 0.",
        ]
    )
