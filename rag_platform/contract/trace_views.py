"""Traces and figures over them as Markdown."""

from __future__ import annotations

from rag_platform.contract.traces import TraceRow, TraceStats
from rag_platform.text.pipe_tables import format_table

_QUESTION_CHARS = 60


def traces_markdown(rows: list[TraceRow], next_cursor: str | None) -> str:
    """One line a trace."""
    lines = [_line(row) for row in rows]
    if next_cursor is not None:
        lines.append(f"more: --cursor {next_cursor}")
    return "\n".join(lines) or "no traces"


def _line(row: TraceRow) -> str:
    question = row["question"] or ""
    if len(question) > _QUESTION_CHARS:
        question = question[: _QUESTION_CHARS - 1] + "…"
    code = row["error"]["code"] if row["error"] else ""
    facts = [row["namespace"], row["job_id"] or "", question, code]
    return (
        f"{row['trace_id']}  {row['started_at']}  {row['trace_type']:<9} {row['status']:<6}"
        f" {row['latency_ms'] or 0:>8.0f} ms  {'  '.join(filter(None, facts))}"
    ).rstrip()


def stats_markdown(stats: TraceStats) -> str:
    """Tables of what was measured."""
    parts = [
        _table(
            "traces",
            ["type", "count", "failed", "p50 ms", "p95 ms", "p99 ms"],
            [
                [row["trace_type"], row["count"], row["failed"], *_percentiles(row)]
                for row in stats["kinds"]
            ],
        ),
        _table(
            "stages",
            ["type", "stage", "count", "failed", "p50 ms", "p95 ms", "p99 ms"],
            [
                [row["trace_type"], row["stage"], row["count"], row["failed"], *_percentiles(row)]
                for row in stats["stages"]
            ],
        ),
        _table(
            "caches",
            ["cache", "hits", "misses", "hit rate"],
            [
                [row["cache"], row["hits"], row["misses"], f"{row['hit_rate']:.0%}"]
                for row in stats["caches"]
            ],
        ),
        _table(
            "model calls",
            ["provider", "model", "calls", "failed", "input tokens", "output tokens", "cost"],
            [
                [
                    row["provider"],
                    row["model"],
                    row["calls"],
                    row["failed"],
                    row["input_tokens"],
                    row["output_tokens"],
                    row["cost"],
                ]
                for row in stats["model_calls"]
            ],
        ),
    ]
    day = stats["last_24h"]
    counts = [f"{count} {kind}" for kind, count in sorted(day["counts"].items())]
    parts.append(f"last 24 hours: {', '.join(counts) or 'no traces'}")
    return "\n\n".join(filter(None, parts))


def _percentiles(row: object) -> list[str]:
    figures = [row[name] for name in ("p50_ms", "p95_ms", "p99_ms")]  # type: ignore[index]
    return ["" if value is None else f"{value:.1f}" for value in figures]


def _table(title: str, heads: list[str], rows: list[list[object]]) -> str:
    return "\n".join([f"## {title}", "", *format_table(heads, rows)]) if rows else ""
