"""Commands that compare and promote strategies, ask canaries, look for drift and content gaps, and
sample or generate questions to label.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from typing import TYPE_CHECKING

import click

from rag_platform import access
from rag_platform.api import envelopes
from rag_platform.cli.language import say_lines
from rag_platform.cli.output import (
    Context,
    answers,
    fail_if,
    finish_job,
    wait_option,
)
from rag_platform.cli.progress import Advance, progress_bar
from rag_platform.errors import InputError, RagError
from rag_platform.ir import Json, format_section
from rag_platform.storage.records import to_json
from rag_platform.text.wording import pluralise

if TYPE_CHECKING:
    from rag_platform.evaluation.cases import EvalCase
    from rag_platform.evaluation.results import ResultStore
    from rag_platform.retrieval.library import Library


@contextmanager
def evaluating(context: Context) -> Iterator[tuple[Library, ResultStore, Advance]]:
    """The library without caches, the store of the results, and what shows the progress."""
    from rag_platform.evaluation.results import ResultStore
    from rag_platform.evaluation.runs import open_library

    with (
        open_library(context.settings, context.store) as library,
        closing(ResultStore(context.store.home)) as store,
        progress_bar(context.json_output) as advance,
    ):
        yield library, store, advance


def compare_named(context: Context, names: str, dataset_name: str, mode: str | None) -> Json:
    """Evaluate each of the named strategies on a dataset, and compare them with the first."""
    from rag_platform.evaluation.reporting.reports import comparison_markdown
    from rag_platform.evaluation.reporting.run_files import comparison_data
    from rag_platform.evaluation.runs import RunOptions
    from rag_platform.evaluation.sources import open_dataset
    from rag_platform.evaluation.strategies import compare_strategies, parse_names, run_strategy

    wanted = parse_names(names)
    if len(wanted) < 2:
        raise InputError("--strategies takes at least two names, as in fast,hybrid", code="usage")
    dataset = open_dataset(dataset_name, context.store.home)
    runs = {}
    with evaluating(context) as (library, store, advance):
        for name in wanted:
            options = RunOptions(
                namespace=context.given_namespace or "",
                mode=mode,  # type: ignore[arg-type]
                strategy=name,
            )
            runs[name] = run_strategy(
                context.root, library, dataset, options, store, partial(advance, name)
            )
        found = compare_strategies(runs, store)
    return {
        "markdown": comparison_markdown(found),
        "runs": {name: to_json(run) for name, run in found.runs.items()},
        "comparisons": {name: comparison_data(item) for name, item in found.comparisons.items()},
    }


@click.command("promote")
@click.argument("strategy")
@wait_option
@answers(namespace=True)
def promote(context: Context, strategy: str, wait: float) -> Json:
    """Make a strategy the library's own, through its gate; one that the gate rejects leaves
    everything as it was.
    """
    from rag_platform.evaluation.gating import is_gated
    from rag_platform.evaluation.results import ResultStore
    from rag_platform.evaluation.strategies import describe_promotion, require_promotable
    from rag_platform.ingestion.job_start import start_rebuild
    from rag_platform.ingestion.rebuild_plan import plan
    from rag_platform.releases.manifest import QUALITY_GATE
    from rag_platform.releases.release_store import current, manifest_of

    started_at = time.perf_counter()
    space = context.namespace
    before = require_promotable(context.root, space, strategy)
    workspace = context.root.workspace(space, strategy)
    planned = plan(space, workspace)
    if not context.json_output:
        click.echo(say_lines(planned.data()["markdown"]), err=True)
    published = current(context.store, space)
    earlier = {row.release_id for row in context.ledger.releases(space)}
    promotion: Json = {"from": before, "to": strategy, "by": access.current().name}
    started = start_rebuild(space, workspace, wait=wait, args={"promotion": promotion})
    ended = finish_job(context, started, started_at)
    ledger = context.ledger
    made = [row.release_id for row in ledger.releases(space) if row.release_id not in earlier]
    with closing(ResultStore(context.store.home, create=False)) as store:
        if made:
            promotion |= describe_promotion(context.root, space, made[0], store)
    job = ledger.job(started.job.job_id)
    # if the published release was already built by the strategy, it stays and the job is done
    if current(context.store, space) == published and job.state != "done":
        promotion["verdict"] = promotion.get("verdict", "not released")
        ledger.update_job(job.job_id, result={**job.result, "promotion": promotion})
        # the old outputs are still stored, so this rebuild computes nothing
        back = start_rebuild(space, context.root.workspace(space, before), wait=wait)
        finish_job(context, back, started_at)
        reason = job.reason or str((ended["error"] or {}).get("message", ""))
        error = RagError(
            f"{strategy} was not promoted; {space!r} stays with {before} and release {published}:"
            f" {reason}",
            code="not_promoted",
            **promotion,
        )
        return envelopes.failure(error, "", local=True)
    promotion = {"release_id": published, "verdict": "published before"} | promotion
    ledger.update_job(job.job_id, result={**job.result, "promotion": promotion})
    gated = is_gated(space, context.store)
    warnings = [] if gated else [f"{space!r} has no gate in gates.yaml, so no question judged it"]
    checks = manifest_of(context.store, space, made[0]).checks if made else ()
    lines = [
        *(check.details for check in checks if check.name == QUALITY_GATE),
        f"{space!r} is ingested and asked by {strategy} from now on, release"
        f" {promotion['release_id']}; gate: {promotion['verdict'] if gated else 'none'}",
        f"recorded in job {job.job_id}; `rag eval promote {before} --namespace {space}` goes back",
    ]
    data = {"markdown": "\n".join(lines), "promotion": promotion, "job_id": job.job_id}
    return envelopes.envelope(data, "", warnings)


@click.command("canaries")
@click.option("--release", "release_id", metavar="ID", help="Ask this release.")
@click.option("--before", metavar="ID", help="Make them of this one; by default of its parent.")
@click.option(
    "--seconds", type=click.FloatRange(0), help="How long to ask; by default canaries.seconds."
)
@answers(namespace=True, own_trace=True)
def canaries(
    context: Context, release_id: str | None, before: str | None, seconds: float | None
) -> Json:
    """Ask a release questions made of the one before; exit code 1 where some were lost."""
    from rag_platform.evaluation.monitoring.canaries import ask_canaries, canaries_markdown
    from rag_platform.evaluation.runs import open_library

    config = context.settings.canaries
    if seconds is not None:
        config = config.model_copy(update={"seconds": seconds})
    with open_library(context.settings, context.store) as library:
        report = ask_canaries(library, context.namespace, config, release_id, before)
    data = {"markdown": canaries_markdown(report), "canaries": to_json(report)}
    return fail_if(bool(report.alarms), data, code="canaries_lost")


@click.command("drift")
@answers(namespace=True)
def drift(context: Context) -> Json:
    """Compare what users asked and got of late with the last stable window; exit code 1 where it
    changed.
    """
    from rag_platform.evaluation.monitoring.drift import drift_data, drift_markdown, measure_drift

    report = measure_drift(context.store.logs_dir, context.namespace, context.settings.drift)
    data = {"markdown": drift_markdown(report), **drift_data(report)}
    return fail_if(bool(report.drifted), data, code="drifted")


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
    from rag_platform.evaluation.datasets.stored import synthesize_cases

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
