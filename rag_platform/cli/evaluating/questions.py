"""Commands that sample or generate questions to label, and find content gaps."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from rag_platform.api import envelopes
from rag_platform.cli.output import Context, answers
from rag_platform.ir import Json, format_section
from rag_platform.text.plurals import pluralise

if TYPE_CHECKING:
    from rag_platform.evaluation.cases import EvalCase


@click.command("sample")
@click.option("--size", type=click.IntRange(1), default=50, help="Questions to draw.")
@click.option("--seed", type=int, default=7, help="Another seed draws others.")
@answers(namespace=True, reports=False)
def sample(context: Context, size: int, seed: int) -> Json:
    """Draw real questions from the traces, one case a line, each waiting for an expectation."""
    from rag_platform.evaluation.datasets.stored import SampledTraces

    sampled = SampledTraces(context.namespace, size, seed).load(context.store.home)
    hint = (
        "give each expected_text, expected_files, expected_answer or should_refuse before"
        " `rag eval run` can ask them"
    )
    return _show_cases(sampled.cases, f"; {hint}")


@click.command("synthesize")
@click.option("--size", type=click.IntRange(1), default=50, help="Questions to make, at most.")
@click.option("--seed", type=int, default=7, help="Another seed takes other passages.")
@answers(namespace=True, reports=False)
def synthesize(context: Context, size: int, seed: int) -> Json:
    """Make questions with their evidence, one case a line: by the language model of `judge` in
    settings.yaml, without one the known-item questions of `rag eval canaries`.
    """
    from rag_platform.evaluation.datasets.synthetic import synthesize_cases

    made = synthesize_cases(
        context.settings, context.store, context.namespace, size=size, seed=seed
    )
    return _show_cases(made.cases, f", {made.dataset_id}; read them before a gate relies on them")


def _show_cases(cases: Sequence[EvalCase], hint: str) -> Json:
    """One case a line, and their number with a hint as a warning."""
    from rag_platform.evaluation.cases import case_data

    rows = [case_data(case) for case in cases]
    lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    warning = f"{pluralise(len(rows), 'question')}{hint}"
    return envelopes.envelope({"markdown": "\n".join(lines), "cases": rows}, "", [warning])


@click.command("gaps")
@click.option("--days", type=click.IntRange(1), default=30, help="How far back to look.")
@answers(namespace=True, own_trace=True)
def gaps(context: Context, days: int) -> Json:
    """What should be written: refused and doubtful questions, with the nearest passages."""
    from rag_platform.evaluation.monitoring.gaps import get_gaps
    from rag_platform.evaluation.runs import open_library

    with open_library(context.settings, context.store) as library:
        found = get_gaps(library, context.namespace, days)
    lines = [
        f"{sum(len(gap['questions']) for gap in found['gaps'])} of {found['asked']} questions of"
        f" the last {days} days were refused or answered with little confidence."
    ]
    for gap in found["gaps"]:
        state = " (answered by now)" if gap["answered_now"] else ""
        often = "once" if gap["times"] == 1 else f"{gap['times']} times"
        first, *others = gap["questions"]
        lines += ["", f"## {first}{state}", f"asked {often}; trace {gap['trace_ids'][0]}"]
        lines += [f"- also: {text}" for text in others]
        lines += [
            f"- near: {item['source_uri']} {format_section(item['section_path'])}".rstrip()
            for item in gap["nearest"]
        ]
    return {"markdown": "\n".join(lines), **found}
