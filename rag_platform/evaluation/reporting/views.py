"""Runs, their cases, trends and comparisons, for `/api/eval` and the web pages."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from operator import attrgetter
from pathlib import Path

from rag_platform import access
from rag_platform.api.cursors import make_cursor, read_cursor, read_offset
from rag_platform.api.envelopes import fill_shape
from rag_platform.api.trace_details import read_rows
from rag_platform.config.gates import read_gates
from rag_platform.contract.evaluation_shapes import (
    DifferencePart,
    EvalCaseData,
    EvalCasePart,
    EvalCasesData,
    EvalComparisonData,
    EvalRunData,
    EvalRunPart,
    EvalRunsData,
    EvalTrendsData,
    ExpectedPart,
    FloorPart,
    GatePart,
    MetricPart,
    PromotionPart,
    RankedPart,
    SlicePart,
    StrategiesData,
    StrategyRow,
)
from rag_platform.errors import NotFoundError
from rag_platform.evaluation.cases import EvalCase
from rag_platform.evaluation.comparing import (
    Comparison,
    compare_runs,
    eval_trends,
    measured_metrics,
    require_measured,
)
from rag_platform.evaluation.metrics import sort_metrics
from rag_platform.evaluation.reporting.reports import LEADING, gate_markdown
from rag_platform.evaluation.results import CaseFilter, CaseResult, EvalRun, ResultStore
from rag_platform.evaluation.sources import find_dataset
from rag_platform.evaluation.strategies import compare_strategies
from rag_platform.indexes.catalog import ChunkRow
from rag_platform.ir import Json
from rag_platform.ledger.ledger import open_ledger
from rag_platform.releases.manifest import QUALITY_GATE, CheckResult
from rag_platform.releases.release_store import manifest_of
from rag_platform.retrieval.library import Library
from rag_platform.storage.store import Store
from rag_platform.text.wording import shorten

_RECENT = 500  # latest runs, searched for the newest one of each strategy
_PROMOTIONS = 20


def results_of(home: Path) -> closing[ResultStore]:
    """The results of a data root, read-only."""
    return closing(ResultStore(home, create=False))


def find_run(store: ResultStore, run_id: str) -> EvalRun:
    """A run that the caller may see. Raises NotFoundError `unknown_run`."""
    run = store.run(run_id)
    if not access.current().may_see(run.namespace):
        raise NotFoundError(f"no run begins with {run_id[:80]!r}", code="unknown_run")
    return run


def list_eval_runs(
    home: Path,
    *,
    namespace: str = "",
    dataset_id: str = "",
    strategy: str = "",
    limit: int = 25,
    cursor: str = "",
) -> EvalRunsData:
    """Runs that the caller may see, newest first. Raises InputError `bad_cursor`."""
    before = read_cursor(cursor, (str,))[0] if cursor else ""
    with results_of(home) as store:
        # the cursor is a time, so runs of equal time must be on one page
        found = store.runs(
            namespace=namespace,
            dataset_id=dataset_id,
            strategy=strategy,
            limit=limit + 20,
            before=before,
        )
    page = found[:limit]
    page += [run for run in found[limit:] if run.started_at == page[-1].started_at]
    may_see = access.current().may_see
    data: EvalRunsData = {"runs": [run_part(run) for run in page if may_see(run.namespace)]}
    if len(found) > len(page):
        data["next_cursor"] = make_cursor(page[-1].started_at)
    return data


def run_part(run: EvalRun) -> EvalRunPart:
    """The summary of a run."""
    leading = {name: run.aggregates[name]["value"] for name in LEADING if name in run.aggregates}
    return fill_shape(EvalRunPart, run, leading=leading)


def get_eval_run(home: Path, run_id: str) -> EvalRunData:
    """One run with its metrics, slices and gate results. Raises NotFoundError `unknown_run`."""
    with results_of(home) as store:
        run = find_run(store, run_id)
        _, missed = store.find_cases(run.run_id, CaseFilter(missed=True), limit=0)
    figures, gate = run.figures, _gate(home, run)
    return {
        "run": run_part(run),
        "metrics": [
            fill_shape(MetricPart, item, name=name, cases=int(item["cases"]))
            for name, item in run.aggregates.items()
        ],
        "slices": _slices(run),
        "floors": _floors(run, gate),
        "gate": gate,
        "latency_ms": dict(figures.get("latency_ms", {})),
        "usage": dict(figures.get("usage", {})),
        "seconds": float(figures.get("seconds", 0.0)),
        "stale_labels": int(figures.get("stale_labels", 0)),
        "unmeasured": int(figures.get("unmeasured", 0)),
        "unjudged": int(figures.get("unjudged", 0)),
        "missed": missed,
        "eval_profile_id": run.eval_profile_id,
        "providers": dict(run.providers),
    }


def _slices(run: EvalRun) -> list[SlicePart]:
    """The metrics per group, for kinds with several groups."""
    return [
        {
            "kind": kind,
            "name": name,
            "cases": int(max((item["cases"] for item in metrics.values()), default=0)),
            "metrics": {metric: item["value"] for metric, item in metrics.items()},
        }
        for kind, members in run.figures.get("groups", {}).items()
        if len(members) > 1
        for name, metrics in members.items()
    ]


def _floors(run: EvalRun, judged: GatePart | None) -> list[FloorPart]:
    """None for a run by which a gate judged: its report has them, with lost questions as 0."""
    found: list[FloorPart] = []
    if judged and judged["judged_this_run"]:
        return found
    for gate in read_gates().get(run.namespace, ()):
        if Path(gate.dataset).stem != run.dataset_id:
            continue
        for metric, floor in gate.floors.items():
            value = run.aggregates.get(metric, {}).get("value")
            reached = value is not None and value >= floor
            found.append({"metric": metric, "floor": floor, "value": value, "reached": reached})
    return found


def _gate(home: Path, run: EvalRun) -> GatePart | None:
    judged_by = None
    try:
        manifest = manifest_of(Store(home), run.namespace, run.release_id)
    except NotFoundError:
        check = _find_rejection(Store(home), run)
    else:
        judged_by = manifest.evaluation_run
        check = next((it for it in manifest.checks if it.name == QUALITY_GATE), None)
    if check is None:
        return None
    return {
        "passed": check.passed,
        "markdown": gate_markdown(check.details),
        # of several gates, the manifest names the run of the first, the report those that failed
        "judged_this_run": run.run_id == judged_by or run.run_id in check.details,
    }


def _find_rejection(store: Store, run: EvalRun) -> CheckResult | None:
    """The verdict on a release that is removed, if the ledger says that it was rejected."""
    if not store.has_ledger():
        return None
    with closing(open_ledger(store)) as ledger:
        row = ledger.release(run.namespace, run.release_id)
    name, _, report = ("" if row is None else row.reason).partition(": ")
    return CheckResult(name, False, report) if name == QUALITY_GATE else None


# --- over time, and beside each other -----------------------------------------------------------


def get_eval_trends(
    home: Path, metric: str = "", *, days: float = 90.0, dataset_id: str = "", namespace: str = ""
) -> EvalTrendsData:
    """A metric over the runs of the last days, oldest first, by default the first measured one of
    LEADING. Raises NotFoundError `unknown_metric`.
    """
    with results_of(home) as store:
        recent = store.runs(dataset_id=dataset_id, namespace=namespace, limit=_RECENT)
    runs = [run for run in recent if access.current().may_see(run.namespace)]
    known = measured_metrics(runs)
    metric = metric or next((name for name in LEADING if name in known), "")
    if metric:
        require_measured(runs, metric)
    return {"metric": metric, "metrics": known, "points": eval_trends(runs, metric, days=days)}


def compare_eval_runs(home: Path, before: str, after: str) -> EvalComparisonData:
    """Compare two runs of the same cases. Raises NotFoundError `unknown_run`, InputError
    `other_dataset`.
    """
    with results_of(home) as store:
        found = compare_runs(find_run(store, before), find_run(store, after), store)
    return fill_shape(
        EvalComparisonData,
        found,
        before=run_part(found.before),
        after=run_part(found.after),
        judges_differ=bool(found.differing_judges),
        differences=_differences(found),
    )


def _differences(found: Comparison) -> list[DifferencePart]:
    return [
        {
            "metric": name,
            "before": found.means[name][0],
            "after": found.means[name][1],
            "difference": item.value,
            "low": item.low,
            "high": item.high,
            "cases": found.paired[name],
            "significant": item.excludes_zero,
        }
        for name, item in found.differences.items()
    ]


def compare_newest(home: Path, dataset_id: str, namespace: str) -> StrategiesData:
    """Compare the newest runs of each strategy that have the dataset, release and mode of the last
    run; the oldest one is the baseline. Empty without runs.
    """
    with results_of(home) as store:
        runs = [
            run
            for run in store.runs(dataset_id=dataset_id, namespace=namespace, limit=_RECENT)
            if run.status == "done"
        ]
        asked = attrgetter("dataset_fingerprint", "release_id", "mode")
        newest: dict[str, EvalRun] = {}
        for run in runs:
            if asked(run) == asked(runs[0]):
                newest.setdefault(run.strategy, run)
        ordered = dict(sorted(newest.items(), key=lambda item: item[1].started_at))
        compared = compare_strategies(ordered, store)
    rows: list[StrategyRow] = []
    for metric in sort_metrics({name for run in ordered.values() for name in run.aggregates}):
        row: StrategyRow = {"metric": metric, "values": {}}
        for name, run in ordered.items():
            if metric in run.aggregates:
                row["values"][name] = {
                    "value": run.aggregates[metric]["value"],
                    "significant": compared.is_significant(name, metric),
                }
        rows.append(row)
    return {
        "dataset_id": dataset_id,
        "namespace": namespace,
        "release_id": runs[0].release_id if runs else "",
        "runs": {name: run.run_id for name, run in ordered.items()},
        "rows": rows,
    }


def list_promotions(store: Store, namespaces: Collection[str]) -> list[PromotionPart]:
    """The promotions of strategies, successful or not, newest first."""
    if not store.has_ledger():
        return []
    with closing(open_ledger(store)) as ledger:
        jobs = [job for name in namespaces for job in ledger.jobs(name, 200)]
    found: list[PromotionPart] = []
    for job in sorted(jobs, key=lambda job: job.created_at, reverse=True):
        promotion = job.args.get("promotion")
        if promotion is None:
            continue
        promotion = {**promotion, **job.result.get("promotion", {})}
        found.append(
            fill_shape(
                PromotionPart,
                job,
                at=job.created_at,
                before=str(promotion.get("from", "")),
                after=str(promotion.get("to", "")),
                by=str(promotion.get("by", "")),
                verdict=str(promotion.get("verdict", "")),
                gate=promotion.get("gate"),
                release_id=str(promotion.get("release_id", "")),
                run_ids=list(promotion.get("run_ids", ())),
            )
        )
    return found[:_PROMOTIONS]


# --- cases ----------------------------------------------------------------------------------------


_CASES_PER_PAGE = 50
_SNIPPET_CHARS = 400


def list_eval_cases(
    home: Path, run_id: str, wanted: CaseFilter, *, cursor: str = ""
) -> EvalCasesData:
    """A page of the cases of a run. Raises NotFoundError `unknown_run`, InputError `bad_cursor`."""
    skip = read_offset(cursor)
    with results_of(home) as store:
        run = find_run(store, run_id)
        found, count = store.find_cases(run.run_id, wanted, limit=_CASES_PER_PAGE, skip=skip)
    data: EvalCasesData = {
        "run_id": run.run_id,
        "count": count,
        "cases": [case_part(result) for result in found],
    }
    if skip + len(found) < count:
        data["next_cursor"] = make_cursor(skip + len(found))
    return data


def case_part(result: CaseResult) -> EvalCasePart:
    """The result of a case without its hits."""
    artifacts = result.artifacts
    return fill_shape(
        EvalCasePart,
        result,
        latency_ms=artifacts.get("latency_ms", {}).get("total"),
        answered=artifacts.get("answered"),
        confidence=artifacts.get("confidence"),
    )


def get_eval_case(library: Library, home: Path, run_id: str, case_id: str) -> EvalCaseData:
    """One case with its hits, whose texts are missing if the release is gone or the document was
    deleted. Raises NotFoundError `unknown_run`, `unknown_case`.
    """
    with results_of(home) as store:
        run = find_run(store, run_id)
        result = store.case(run.run_id, case_id)
    artifacts = result.artifacts
    separate = artifacts.get("before_fusion", {})
    found = artifacts.get("retrieved", [])
    stages = {
        "dense": separate.get("dense", []),
        "sparse": separate.get("sparse", []),
        "fusion": artifacts.get("after_fusion", []),
        "rerank": artifacts.get("after_rerank", []),
    }
    listed = (item["chunk_id"] for items in (found, *stages.values()) for item in items)
    rows, error = read_rows(library, run.namespace, run.release_id, listed)
    if error and not isinstance(error, NotFoundError):  # else the release is no longer kept
        raise error
    cited, context = artifacts.get("citations", []), set(artifacts.get("context_chunks", ()))

    def parts(items: Sequence[Json]) -> list[RankedPart]:
        return [
            _ranked_part(rank, item, rows.get(item["chunk_id"]), cited, context)
            for rank, item in enumerate(items, 1)
        ]

    expected, note = _describe_expected(home, run, result)
    return {
        "run": run_part(run),
        "case": case_part(result),
        "expected": expected,
        "expected_note": note,
        "found": parts(found),
        "stages": {name: parts(items) for name, items in stages.items() if items},
        "latency_ms": {
            name: value
            for name, value in artifacts.get("latency_ms", {}).items()
            if isinstance(value, (int, float))
        },
        "usage": dict(artifacts.get("usage", {})),
        "flags": list(artifacts.get("flags", ())),
        "citations": list(cited),
    }


def _ranked_part(
    rank: int, item: Json, row: ChunkRow | None, cited: Sequence[str], context: set[str]
) -> RankedPart:
    return {
        "rank": rank,
        "chunk_id": item["chunk_id"],
        "score": float(item["score"]),
        "source": item["source"],
        "source_uri": row.source_uri if row else "",
        "section_path": row.chunk.section_path if row else "",
        "text": shorten(row.chunk.chunk_text, _SNIPPET_CHARS) if row else "",
        "cited": item["chunk_id"] in cited,
        "in_context": item["chunk_id"] in context,
    }


def _describe_expected(
    home: Path, run: EvalRun, result: CaseResult
) -> tuple[list[ExpectedPart], str]:
    """(the expectations of the case, why they are unknown or may have changed)."""
    dataset = find_dataset(home, run.dataset_id, run.namespace)
    if dataset is None:
        return [], f"{run.dataset_id} is no dataset of the config folder"
    case = next((case for case in dataset.cases if case.case_id == result.case_id), None)
    if case is None or case.query != result.query:
        return [], f"{run.dataset_id} has changed since, and no longer holds this case"
    note = (
        ""
        if dataset.fingerprint == run.dataset_fingerprint
        else f"{run.dataset_id} has changed since; this is what it expects now"
    )
    return list(_expected_parts(case)), note


def _expected_parts(case: EvalCase) -> Iterator[ExpectedPart]:
    def part(kind: str, value: str, file: str = "", section: str = "") -> ExpectedPart:
        return {"kind": kind, "value": value, "file": file, "section": section}

    if case.should_refuse is not None:
        yield part("refusal", "yes" if case.should_refuse else "no")
    if case.expected_answer:
        yield part("answer", case.expected_answer)
    for kind, texts in (("text", case.expected_text), ("citation", case.expected_citations)):
        for item in texts:
            yield part(kind, item.text, item.file, item.section)
    for kind, names in (
        ("file", case.expected_files),
        ("tag", case.expected_tags),
        ("chunk", case.expected_chunk_ids),
    ):
        for name in names:
            yield part(kind, name)
    for kind, grades in (("document", case.relevance_doc), ("chunk", case.relevance_chunk)):
        for name, grade in grades.items():
            yield part(kind, f"{name} ({grade})")
