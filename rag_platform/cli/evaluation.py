"""Commands that evaluate: run a dataset, list runs, show one, compare two."""

from __future__ import annotations

from typing import Any

import click

from rag_platform.api import envelopes
from rag_platform.cli.output import Context, answers, namespace_option, progress_bar
from rag_platform.config.settings import load_strategy
from rag_platform.ir import Json
from rag_platform.storage.records import to_json


@click.group(name="eval")
def evaluation() -> None:
    """Whether answers are good, and whether they got better."""


@evaluation.command("run")
@click.option(
    "--dataset",
    "name",
    required=True,
    metavar="DATASET",
    help="A file of cases, a folder in BEIR's layout, or a name of config/datasets.",
)
@namespace_option
@click.option(
    "--strategy",
    metavar="NAME",
    help="Ask as this strategy does; of a dataset with documents, build them by it.",
)
@click.option("--release", "release_id", metavar="ID", help="Ask a retained release.")
@click.option(
    "--mode",
    type=click.Choice(["retrieval_only", "end_to_end"]),
    help="Only find, or answer as well; a dataset with documents is only searched by default.",
)
@click.option("--no-reuse", is_flag=True, help="Ask every question anew.")
@answers(own_trace=True)
def run(
    context: Context,
    name: str,
    namespace: str | None,
    strategy: str | None,
    release_id: str | None,
    mode: str | None,
    no_reuse: bool,
) -> Json:
    """Ask every case of a dataset, measure what comes back, and keep it."""
    from rag_platform.evaluation import libraries, reports
    from rag_platform.evaluation.results import ResultStore
    from rag_platform.evaluation.runs import RunOptions, evaluate, without_caches
    from rag_platform.evaluation.sources import open_dataset
    from rag_platform.retrieval.library import Library

    dataset = open_dataset(name, context.settings)
    own = dataset.load_documents is not None and namespace is None
    if own:
        built = load_strategy(context.settings, strategy, ingestion=True)
        space = libraries.publish_documents(
            dataset,
            settings=context.settings,
            strategy=built,
            store=context.store,
            ledger=context.ledger,
        )
    else:
        space = context.namespace(namespace)
    options = RunOptions(
        namespace=space,
        mode=mode or ("retrieval_only" if own else "end_to_end"),  # type: ignore[arg-type]
        strategy=None if own else strategy,
        release_id=release_id,
        reuse=not no_reuse,
    )
    from rag_platform.api.documents import hidden_by_ledger

    library = Library(
        without_caches(context.settings), context.store, hidden=hidden_by_ledger(context.store)
    )
    store = ResultStore(context.store.home)
    try:
        with progress_bar(context.json_output) as advance:
            found = evaluate(
                library,
                dataset,
                options,
                store,
                on_progress=lambda done, total: advance("asking", done, total),
            )
        markdown = reports.run_markdown(found)
    finally:
        library.close()
        store.close()
    return envelopes.envelope({"markdown": markdown, "run": to_json(found)}, "")


@evaluation.command("list")
@click.option("--dataset", "dataset_id", default="", metavar="ID", help="Only runs of it.")
@click.option("--namespace", default="", metavar="NAME", help="Only runs of it.")
@click.option("--limit", type=click.IntRange(1, 1000), default=20)
@answers()
def list_runs(context: Context, dataset_id: str, namespace: str, limit: int) -> Json:
    """Runs, newest first."""
    from rag_platform.evaluation import reports

    with _store(context) as store:
        runs = store.runs(dataset_id=dataset_id, namespace=namespace, limit=limit)
    return envelopes.envelope({"markdown": reports.list_markdown(runs), "runs": to_json(runs)}, "")


@evaluation.command("show")
@click.argument("run_id", metavar="RUN")
@click.option("--failed", is_flag=True, help="List the cases that missed.")
@answers()
def show(context: Context, run_id: str, failed: bool) -> Json:
    """One run: every metric with its interval; the id may be cut short."""
    from rag_platform.evaluation import reports

    with _store(context) as store:
        found = store.run(run_id)
        missed = [
            result
            for result in (store.cases(found.run_id) if failed else ())
            if result.error or any(value < 0.5 for value in result.metrics.values())
        ]
    data: dict[str, Any] = {
        "markdown": reports.run_markdown(found, missed),
        "run": to_json(found),
    }
    if failed:
        data["cases"] = to_json(missed)
    return envelopes.envelope(data, "")


@evaluation.command("compare")
@click.argument("before", metavar="BEFORE")
@click.argument("after", metavar="AFTER")
@answers()
def compare(context: Context, before: str, after: str) -> Json:
    """Two runs of one dataset: differences with their intervals, and the cases that flipped."""
    from rag_platform.evaluation import reports
    from rag_platform.evaluation.comparing import compare_runs

    with _store(context) as store:
        found = compare_runs(store.run(before), store.run(after), store)
    return envelopes.envelope(
        {
            "markdown": reports.compare_markdown(found),
            "differences": {name: to_json(item) for name, item in found.differences.items()},
            "worse": to_json(found.worse),
            "better": to_json(found.better),
        },
        "",
    )


@evaluation.command("datasets")
@answers()
def datasets(context: Context) -> Json:
    """The datasets of the config folder."""
    from rag_platform.evaluation.sources import dataset_names, open_dataset

    rows = []
    for name in dataset_names(context.settings):
        dataset = open_dataset(name, context.settings)
        rows.append({"name": name, "cases": len(dataset.cases), "fingerprint": dataset.fingerprint})
    lines = [f"{row['name']}: {row['cases']} cases, {row['fingerprint']}" for row in rows]
    return envelopes.envelope(
        {"markdown": "\n".join(lines) or "none; put files into config/datasets", "datasets": rows},
        "",
    )


def _store(context: Context) -> Any:
    from contextlib import closing

    from rag_platform.evaluation.results import ResultStore

    return closing(ResultStore(context.store.home, create=False))
