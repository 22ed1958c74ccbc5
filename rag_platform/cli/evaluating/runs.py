"""Commands that evaluate: run a dataset, list runs, show one, compare two."""

from __future__ import annotations

import sys
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rag_platform.api import envelopes
from rag_platform.cli.evaluating.strategies import (
    canaries,
    compare_named,
    drift,
    evaluating,
    gaps,
    promote,
    sample,
    synthesize,
)
from rag_platform.cli.output import Context, answers, fail_if
from rag_platform.cli.progress import progress_bar
from rag_platform.errors import InputError, RagError
from rag_platform.ir import Json
from rag_platform.storage.records import to_json
from rag_platform.text.wording import pluralise

if TYPE_CHECKING:
    from rag_platform.evaluation.cases import EvalCase


@click.group(name="eval")
def evaluation() -> None:
    """Whether answers are good, and whether they got better."""


@evaluation.command("run")
@click.option(
    "--dataset",
    "name",
    required=True,
    metavar="DATASET",
    help="A file of cases, a folder in BEIR's layout, a name of config/datasets,"
    " expectations:NAMESPACE or traces:NAMESPACE?size=50.",
)
@click.option(
    "--strategy",
    metavar="NAME",
    help="Ask as this strategy does; of a dataset with documents, build them by it.",
)
@click.option("--release", "release_id", metavar="ID", help="Ask a retained release.")
@click.option(
    "--mode",
    type=click.Choice(["retrieval_only", "generation_only", "end_to_end"]),
    help="Only find, only answer from each case's own chunks, or both; a dataset with documents is"
    " only searched by default.",
)
@click.option(
    "--evaluator",
    metavar="NAME",
    help="Measure by basic, judge, ragas or deepeval; judge where --judge is given, else basic.",
)
@click.option(
    "--metric-set",
    "metric_sets",
    multiple=True,
    metavar="NAME",
    help="Measure by these sets alone; may be given again.",
)
@click.option(
    "--judge",
    metavar="NAME",
    help="Score the answers by rules, or by llm, the language model of settings.yaml.",
)
@click.option(
    "--no-reuse", "reuse", flag_value=False, default=True, help="Ask every question anew."
)
@click.option("--baseline", metavar="RUN", help="Say what differs from that run of the dataset.")
@answers(namespace=True)
def run(context: Context, name: str, **asked: Any) -> Json:
    """Ask every case of a dataset, measure what comes back, and keep it."""
    from rag_platform.evaluation.reporting import reports, run_files
    from rag_platform.evaluation.run_requests import RunRequest, run_dataset

    request = RunRequest(dataset=name, namespace=context.given_namespace or "", **asked)
    with progress_bar(context.json_output) as advance:
        found = run_dataset(context.root, request, partial(advance, "asking"))
    data: dict[str, Any] = {"markdown": reports.run_markdown(found.run), "run": to_json(found.run)}
    if found.difference is not None:
        data["markdown"] += f"\n\n{reports.compare_markdown(found.difference)}"
        data |= run_files.difference_data(found.difference)
    data["files"] = str(found.folder)
    data["markdown"] += f"\n\nreport and case results: {found.folder}"
    return data


@evaluation.command("list")
@click.option("--dataset", "dataset_id", default="", metavar="ID", help="Only runs of it.")
@click.option("--namespace", default="", metavar="NAME", help="Only runs of it.")
@click.option("--limit", type=click.IntRange(1, 1000), default=20)
@answers()
def list_runs(context: Context, dataset_id: str, namespace: str, limit: int) -> Json:
    """Runs, newest first."""
    from rag_platform.evaluation.reporting import reports

    with _store(context) as store:
        runs = store.runs(dataset_id=dataset_id, namespace=namespace, limit=limit)
    return {"markdown": reports.list_markdown(runs), "runs": to_json(runs)}


@evaluation.command("show")
@click.argument("run_id", metavar="RUN")
@click.option("--failed", is_flag=True, help="List the cases that missed.")
@answers()
def show(context: Context, run_id: str, failed: bool) -> Json:
    """One run: every metric with its interval; the id may be cut short."""
    from rag_platform.evaluation.reporting import reports
    from rag_platform.evaluation.results import CaseFilter

    with _store(context) as store:
        found = store.run(run_id)
        wanted = CaseFilter(missed=True)
        missed, _ = store.find_cases(found.run_id, wanted, limit=sys.maxsize if failed else 0)
    data: dict[str, Any] = {"markdown": reports.run_markdown(found, missed), "run": to_json(found)}
    if failed:
        data["cases"] = to_json(missed)
    return data


@evaluation.command("cases")
@click.argument("run_id", metavar="RUN")
@click.option("--failed", is_flag=True, help="Only errors, and those with a metric below 0.5.")
@click.option("--limit", type=click.IntRange(1), default=100)
@answers()
def list_cases(context: Context, run_id: str, failed: bool, limit: int) -> Json:
    """The cases of a run with their metrics and traces."""
    from rag_platform.evaluation.reporting import reports
    from rag_platform.evaluation.results import CaseFilter

    with _store(context) as store:
        full_id = store.run(run_id).run_id
        found, _ = store.find_cases(full_id, CaseFilter(missed=failed), limit=limit)
    return {"markdown": reports.cases_markdown(found) or "none", "cases": to_json(found)}


@evaluation.command("trends")
@click.argument("metric")
@click.option("--days", type=click.FloatRange(0, min_open=True), default=30.0)
@click.option("--dataset", "dataset_id", default="", metavar="ID", help="Only runs of it.")
@click.option("--namespace", default="", metavar="NAME", help="Only runs of it.")
@answers()
def trends(context: Context, metric: str, days: float, dataset_id: str, namespace: str) -> Json:
    """A metric over the runs of the last days, and its change from run to run."""
    from rag_platform.evaluation.comparing import eval_trends, require_measured
    from rag_platform.evaluation.reporting import reports

    with _store(context) as store:
        runs = store.runs(dataset_id=dataset_id, namespace=namespace, limit=10_000)
    if runs:
        require_measured(runs, metric)
    points = eval_trends(runs, metric, days=days)
    return {"markdown": reports.trends_markdown(metric, points), "points": to_json(points)}


@evaluation.command("compare")
@click.argument("before", metavar="[BEFORE]", required=False)
@click.argument("after", metavar="[AFTER]", required=False)
@click.option(
    "--strategies",
    metavar="A,B,...",
    help="Ask as each of these does, and compare with the first; beside the strategy files"
    " dense_only, sparse_only, hybrid and hybrid+rerank.",
)
@click.option("--dataset", metavar="DATASET", help="What the strategies are asked.")
@click.option("--mode", type=click.Choice(["retrieval_only", "end_to_end"]))
@answers(namespace=True, own_trace=True)
def compare(
    context: Context,
    before: str | None,
    after: str | None,
    strategies: str | None,
    dataset: str | None,
    mode: str | None,
) -> Json:
    """Two runs of one dataset, or several strategies: differences with their intervals, and the
    cases that flipped.
    """
    if strategies and dataset and not before:
        return compare_named(context, strategies, dataset, mode)
    if strategies or dataset or not (before and after):
        raise InputError(
            "name two runs, or strategies and a dataset: --strategies A,B --dataset DATASET",
            code="usage",
        )
    from rag_platform.evaluation.comparing import compare_runs
    from rag_platform.evaluation.reporting import reports, run_files

    with _store(context) as store:
        found = compare_runs(store.run(before), store.run(after), store)
    return {"markdown": reports.compare_markdown(found), **run_files.comparison_data(found)}


@evaluation.command("datasets")
@answers()
def datasets(context: Context) -> Json:
    """The datasets of the config folder."""
    from rag_platform.evaluation.run_requests import list_datasets

    rows = list_datasets()
    lines = [
        f"{row['name']}: {pluralise(row['cases'], 'case')}, {row['problem'] or row['fingerprint']}"
        for row in rows
    ]
    return {
        "markdown": "\n".join(lines) or "none; put files into config/datasets",
        "datasets": rows,
    }


@evaluation.command("import")
@click.argument("path", metavar="FILE", type=click.Path(path_type=Path))
@click.option("--name", default="", metavar="NAME", help="Another name than the file's.")
@click.option("--replace", is_flag=True, help="Take the place of a dataset of that name.")
@answers()
def import_file(context: Context, path: Path, name: str, replace: bool) -> Json:
    """Check a file of cases and copy it into config/datasets."""
    from rag_platform.evaluation.sources import import_dataset

    found = import_dataset(path, name=name, replace=replace)
    cases, fingerprint = len(found.dataset.cases), found.dataset.fingerprint
    return {
        "markdown": f"{found.path} {found.state}: {pluralise(cases, 'case')}, {fingerprint}",
        "dataset": {
            "name": found.path.stem,
            "path": str(found.path),
            "state": found.state,
            "cases": cases,
            "fingerprint": fingerprint,
        },
    }


@evaluation.command("export")
@click.argument("run_id", metavar="RUN")
@click.argument("path", metavar="PATH", type=click.Path(path_type=Path))
@answers()
def export(context: Context, run_id: str, path: Path) -> Json:
    """Write a run and its cases to a new file, .jsonl or .csv."""
    from rag_platform.evaluation.reporting.run_files import export_run

    with _store(context) as store:
        found = store.run(run_id)
        count = export_run(found, store, path)
    return {
        "markdown": f"{path}: run {found.run_id}, {pluralise(count, 'case')}",
        "path": str(path),
        "cases": count,
    }


def _store(context: Context) -> Any:
    from rag_platform.evaluation.results import ResultStore

    return closing(ResultStore(context.store.home, create=False))


for _command in (promote, canaries, drift, sample, synthesize, gaps):
    evaluation.add_command(_command)


@click.command("replay")
@click.argument("trace_id")
@click.option("--release", "release_id", default="", metavar="ID", help="Ask this release.")
@click.option("--strategy", default="", metavar="NAME", help="Ask as this strategy does.")
@answers(own_trace=True)
def replay_trace(context: Context, trace_id: str, release_id: str, strategy: str) -> Json:
    """Ask the question of a trace again; exit code 1 where the ranking differs."""
    from rag_platform.evaluation.monitoring.replaying import replay
    from rag_platform.evaluation.runs import open_library
    from rag_platform.observability.trace_reader import show as read_trace

    with open_library(context.settings, context.store) as library:
        found = replay(
            library,
            read_trace(context.store.logs_dir, trace_id),
            release_id=release_id,
            strategy=strategy,
        )
    lines = [
        f"{found.trace_id} on release {found.release_id}:"
        f" {'the same ranking' if found.same else 'another ranking'}, trace {found.new_trace_id}",
        *(f"- {reason}" for reason in found.reasons),
    ]
    data = {"markdown": "\n".join(lines), "replay": {**to_json(found), "same": found.same}}
    return fail_if(not found.same, data, code="ranking_differs")


@click.command("bisect")
@click.argument("question")
@click.option("--file", "--expect", default="", metavar="FILE", help="The document to be found.")
@click.option("--text", default="", help="Words that a hit must hold.")
@click.option("--refuse", is_flag=True, help="The question must be refused.")
@answers(namespace=True, own_trace=True)
def bisect_releases(context: Context, question: str, file: str, text: str, refuse: bool) -> Json:
    """Find the release that changed whether a question is answered as expected."""
    from rag_platform.evaluation.expectations import expectation
    from rag_platform.evaluation.monitoring.replaying import bisect
    from rag_platform.releases.release_store import list_releases

    space = context.known_namespace()
    case = expectation(question, file=file, text=text, refuse=refuse)
    kept = [
        manifest.release_id
        for manifest in reversed(list_releases(context.store, space))
        if not manifest.failures
    ]
    with evaluating(context) as (library, store, _):
        found = bisect(library, space, kept, case, store)
    state = "as expected" if found.met else f"not as expected: {found.reason}"
    if found.before is None:
        line = f"all kept releases answer alike, {state}"
    else:
        other = "was not" if found.met else "was still"
        line = (
            f"since release {found.release_id} the answer is {state}; in {found.before} it {other}"
        )
    lines = [line]
    if found.suspects:
        lines += ["what touches this question:", *(f"- {item}" for item in found.suspects)]
    if found.changes:
        lines += ["all that changed:", *(f"- {change}" for change in found.changes)]
    lines.append(f"releases asked: {len(found.asked)} of {len(kept)}")
    return {"markdown": "\n".join(lines), "bisection": to_json(found)}


class _QuestionOrCommand(click.Group):
    """A group that treats an unknown command as a question to add."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in {*self.commands, *ctx.help_option_names}:
            args = ["add", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_QuestionOrCommand)
def expect() -> None:
    """What questions must find, checked with every release."""


@expect.command("add")
@click.argument("question", required=False)
@click.option("--file", default="", metavar="FILE", help="The document, by the end of its path.")
@click.option("--section", default="", metavar="HEADING", help="The section of the text.")
@click.option("--text", default="", help="Words that a hit must hold.")
@click.option("--refuse", is_flag=True, help="The library must say that it does not know.")
@click.option("--trace", "trace_id", metavar="ID", help="Take the question of a trace.")
@answers(namespace=True)
def expect_add(
    context: Context,
    question: str | None,
    file: str,
    section: str,
    text: str,
    refuse: bool,
    trace_id: str | None,
) -> Json:
    """Pin what a question must find, or that it must be refused."""
    from rag_platform.evaluation.cases import case_data
    from rag_platform.evaluation.expectations import expectation, pin_expectation
    from rag_platform.evaluation.runs import open_library
    from rag_platform.observability.trace_reader import show as read_trace

    if bool(question) == bool(trace_id):
        raise InputError("name either a question, or a trace with --trace ID", code="usage")
    if trace_id:
        request = read_trace(context.store.logs_dir, trace_id).get("attrs", {}).get("request", {})
        question = str(request.get("text") or "")
        context.given_namespace = context.given_namespace or request.get("namespace")
    case = expectation(question or "", file=file, section=section, text=text, refuse=refuse)
    space = context.known_namespace()
    with open_library(context.settings, context.store) as library:
        new, warning = pin_expectation(library, space, case)
    outcome = "pinned" if new else "was pinned already"
    data = {
        "markdown": f"{case.case_id} {outcome}; `rag expect run --namespace {space}` checks it",
        "expectation": case_data(case),
    }
    return envelopes.envelope(data, "", [warning] if warning else [])


@expect.command("list")
@answers(namespace=True)
def expect_list(context: Context) -> Json:
    """What is expected of a library."""
    from rag_platform.evaluation.cases import case_data
    from rag_platform.evaluation.expectations import read_expectations

    space = context.known_namespace()
    cases = read_expectations(context.store, space).cases
    lines = [f"{case.case_id}  {case.query}  {_format_expected(case)}" for case in cases]
    return {
        "markdown": "\n".join(lines)
        or f'nothing yet; rag expect add "QUESTION" --file FILE --namespace {space}',
        "expectations": [case_data(case) for case in cases],
    }


@expect.command("remove")
@click.argument("case_id", metavar="ID")
@answers(namespace=True)
def expect_remove(context: Context, case_id: str) -> Json:
    """Expect it no longer."""
    from rag_platform.evaluation.cases import case_data
    from rag_platform.evaluation.expectations import remove_expectation

    case = remove_expectation(context.store, context.known_namespace(), case_id)
    return {"markdown": f"{case.case_id} is no longer expected", "expectation": case_data(case)}


@expect.command("run")
@click.option("--release", "release_id", metavar="ID", help="Ask a retained release.")
@answers(namespace=True, own_trace=True)
def expect_run(context: Context, release_id: str | None) -> Json:
    """Ask every expectation; exit code 1 where one is not met."""
    from rag_platform.evaluation.datasets.stored import Expectations
    from rag_platform.evaluation.expectations import judge
    from rag_platform.evaluation.measuring import CHEAP_METRIC_SETS
    from rag_platform.evaluation.runs import RunOptions, evaluate

    space = context.known_namespace()
    dataset = Expectations(space).load(context.store.home)
    options = RunOptions(namespace=space, release_id=release_id, metric_sets=CHEAP_METRIC_SETS)
    with evaluating(context) as (library, store, advance):
        found = evaluate(library, dataset, options, store, on_progress=partial(advance, "asking"))
        verdicts = [judge(result) for result in store.cases(found.run_id)]
    lines = [
        f"{'ok    ' if item.met else 'FAILED'} {item.case_id}  {item.query}"
        + (f": {item.reason} (trace {item.trace_id})" if item.reason else "")
        for item in verdicts
    ]
    data = {"markdown": "\n".join(lines), "run": to_json(found), "verdicts": to_json(verdicts)}
    missed = sum(not item.met for item in verdicts)
    if missed:
        error = RagError(
            f"{missed} of {pluralise(len(verdicts), 'expectation')} not met\n" + "\n".join(lines),
            code="expectations_missed",
        )
        return envelopes.failure(error, data=data)
    return data


def _format_expected(case: EvalCase) -> str:
    if case.should_refuse:
        return "-> refused"
    texts = [f"{item.text!r} in {item.file or 'any document'}" for item in case.expected_text]
    return f"-> {', '.join([*texts, *case.expected_files])}"
