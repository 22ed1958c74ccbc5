"""Runs and comparisons as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from rag_platform.contract.evaluation_shapes import FlipPart, TrendPart
from rag_platform.evaluation.comparing import Comparison
from rag_platform.evaluation.metrics import cutoff_of, sort_metrics
from rag_platform.evaluation.results import CaseResult, EvalRun
from rag_platform.text.markdown_blocks import format_table
from rag_platform.text.wording import pluralise

if TYPE_CHECKING:  # loads the query engine
    from rag_platform.evaluation.strategies import StrategyComparison

MOST_CASES = 20
LEADING = ("retrieval.hit_rate@10", "retrieval.ndcg@10", "refusal.right", "answer.evidence")


def gate_markdown(report: str) -> str:
    """The report of a gate, with the lines that are no list as paragraphs."""
    lines = report.splitlines()
    return "\n".join(line if line.startswith("- ") else f"\n{line}\n" for line in lines).strip()


def list_markdown(runs: Sequence[EvalRun]) -> str:
    """A table with one line per run."""
    if not runs:
        return "no evaluation yet; `rag eval run --dataset FILE` makes one"
    rows = [
        (
            run.run_id,
            run.started_at[:19],
            run.dataset_id,
            run.namespace,
            run.strategy,
            run.release_id,
            run.cases,
            run.status,
            _headline(run),
        )
        for run in runs
    ]
    head = ("run", "started", "dataset", "library", "strategy", "release", "cases", "state", "")
    return "\n".join(format_table(head, rows))


def run_markdown(run: EvalRun, worst: Iterable[CaseResult] = ()) -> str:
    """The metrics of a run with their intervals, and the cases that missed."""
    rows = [
        (
            name,
            f"{item['value']:.4f}",
            f"{item['low']:.3f} .. {item['high']:.3f}",
            f"{item['cases']:.0f}",
        )
        for name, item in run.aggregates.items()
    ]
    stale, unmeasured, unjudged = (
        run.figures.get(name, 0) for name in ("stale_labels", "unmeasured", "unjudged")
    )
    notes = {
        f"{run.reused} of {run.cases} results taken over from earlier runs": run.reused,
        f"{pluralise(run.failed, 'question')} failed, counted as 0": run.failed,
        f"{pluralise(stale, 'stale label')} left out, see `rag eval cases`": stale,
        f"{pluralise(unmeasured, 'case')} could not be measured": unmeasured,
        f"{pluralise(unjudged, 'score')} the judge failed to give, for the reasons in"
        " `rag trace list --type evaluation`; the next run asks again": unjudged,
    }
    missed = [
        f"- {result.case_id}: {result.query} ({result.error or _describe_missed(result)})"
        for result in islice(worst, MOST_CASES)
    ]
    return "\n".join(
        [
            f"# {run.dataset_id}, strategy {run.strategy}",
            "",
            f"run {run.run_id}, {run.started_at[:19]}, library {run.namespace}, release"
            f" {run.release_id}, {run.mode}, {pluralise(run.cases, 'case')}, profile"
            f" {run.eval_profile_id}",
            "",
            *format_table(("metric", "mean", "95 %", "cases"), rows),
            *_group_lines(run),
            *(f"\n{note}." for note, count in notes.items() if count),
            *(["", "Missed:", *missed] if missed else []),
        ]
    )


def cases_markdown(results: Sequence[CaseResult]) -> str:
    """One line per case: its question, metrics and trace."""
    return "\n".join(
        f"- {result.case_id}: {result.query} ({result.error or _figures(result)}), trace"
        f" {result.trace_id}"
        for result in results
    )


def trends_markdown(metric: str, points: Sequence[TrendPart]) -> str:
    """A metric over runs, oldest first."""
    if not points:
        return f"no run measured {metric}"
    rows = [
        (
            point["run_id"],
            point["started_at"][:19],
            point["dataset_id"],
            point["strategy"],
            point["release_id"],
            f"{point['value']:.4f}",
            f"{point['low']:.3f} .. {point['high']:.3f}",
            point["cases"],
            None if point["change"] is None else f"{point['change']:+.4f}",
        )
        for point in points
    ]
    head = ("run", "started", "dataset", "strategy", "release", metric, "95 %", "cases", "change")
    return "\n".join(format_table(head, rows))


def _group_lines(run: EvalRun) -> list[str]:
    """The leading metrics by tag, language and file type, if there are several of a kind."""
    rows = []
    for kind, members in run.figures.get("groups", {}).items():
        for member, metrics in members.items() if len(members) > 1 else ():
            cells = [f"{metrics[name]['value']:.3f}" if name in metrics else "" for name in LEADING]
            cases = max((item["cases"] for item in metrics.values()), default=0)
            rows.append((f"{kind} {member}", *cells, cases))
    return ["", *format_table(("by", *LEADING, "cases"), rows)] if rows else []


def compare_markdown(found: Comparison) -> str:
    """The differences with their intervals, then the cases that flipped."""
    rows = [
        (
            name,
            *(f"{value:.4f}" for value in found.means[name]),
            f"{item.value:+.4f}",
            f"{item.low:+.4f} .. {item.high:+.4f}",
            found.paired[name],
        )
        for name, item in found.differences.items()
    ]
    return "\n".join(
        [
            f"# {found.before.dataset_id}: {found.before.strategy} on {found.before.release_id},"
            f" then {found.after.strategy} on {found.after.release_id}",
            "",
            *format_table(("metric", "before", "after", "difference", "95 %", "cases"), rows),
            *_judge_lines(found),
            *_stale_lines(found.stale),
            *_flip_lines("Worse", found.worse),
            *_flip_lines("Better", found.better),
        ]
    )


def _judge_lines(found: Comparison) -> list[str]:
    if not found.differing_judges:
        return []
    one, other = found.differing_judges
    return ["", f"The judges differ ({one}, {other}): differences of generation.* may be theirs."]


def _stale_lines(stale: Sequence[str]) -> list[str]:
    if not stale:
        return []
    names = ", ".join(stale[:MOST_CASES])
    return ["", f"Not compared, since labels are stale in one of the runs ({len(stale)}): {names}"]


def _flip_lines(title: str, flips: Sequence[FlipPart]) -> list[str]:
    if not flips:
        return []
    lines = [
        f"- {flip['case_id']}: {flip['query']} ({flip['metric']} {flip['before']:.2f} ->"
        f" {flip['after']:.2f}, traces {flip['trace_before']} and {flip['trace_after']})"
        for flip in flips[:MOST_CASES]
    ]
    more = len(flips) - len(lines)
    return ["", f"{title} ({len(flips)}):", *lines, *([f"- and {more} more"] if more else [])]


def comparison_table(found: StrategyComparison) -> str:
    """Every metric of every strategy; a star marks a significant difference from the first."""
    names = list(found.runs)
    metrics = sort_metrics({metric for run in found.runs.values() for metric in run.aggregates})
    rows = [(metric, *(_cell(found, name, metric) for name in names)) for metric in metrics]
    releases = sorted({f"{run.namespace}/{run.release_id}" for run in found.runs.values()})
    return "\n".join(
        [
            *format_table(("metric", *names), rows),
            "",
            f"\\* differs from {names[0]}: the 95 % interval of the paired difference leaves out 0."
            f" Releases: {', '.join(releases)}.",
        ]
    )


def _cell(found: StrategyComparison, name: str, metric: str) -> str:
    if metric not in found.runs[name].aggregates:
        return ""
    text = f"{found.runs[name].aggregates[metric]['value']:.3f}"
    return f"{text} \\*" if found.is_significant(name, metric) else text


def comparison_markdown(found: StrategyComparison) -> str:
    """The table, then each strategy against the first with intervals and flipped cases."""
    parts = [comparison_table(found)]
    parts += [compare_markdown(item) for item in found.comparisons.values()]
    return "\n\n".join(parts)


def _headline(run: EvalRun) -> str:
    figures = [
        f"{name.rpartition('.')[2]} {run.aggregates[name]['value']:.3f}"
        for name in LEADING
        if name in run.aggregates
    ]
    return ", ".join(figures)


def _figures(result: CaseResult) -> str:
    """The metrics, of those at several cutoffs the one at the largest; then the stale labels."""
    most = max(map(cutoff_of, result.metrics), default=0)
    figures = [
        f"{name} {result.metrics[name]:.2f}"
        for name in sort_metrics(result.metrics)
        if cutoff_of(name) in (0, most)
    ]
    stale = [f"stale: {label['label']} ({label['reason']})" for label in result.stale]
    return ", ".join(figures + stale)


def _describe_missed(result: CaseResult) -> str:
    """The low metrics, those at the largest cutoff first."""
    low = [name for name, value in result.metrics.items() if value < 0.5]
    most = max(map(cutoff_of, result.metrics), default=0)
    low.sort(key=lambda name: (cutoff_of(name) not in (0, most), name not in LEADING))
    return ", ".join(f"{name} {result.metrics[name]:.2f}" for name in low[:3])
