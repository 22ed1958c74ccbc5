"""Runs requested by a command, a page or a program: opens dataset and library by name, evaluates,
and writes the report files. Also starts runs as jobs and lists the possible choices.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path

from rag_platform import access
from rag_platform.api.envelopes import fill_shape
from rag_platform.api.writing import job_progress, watch
from rag_platform.config.folders import DEMO, SHIPPED
from rag_platform.config.gates import dataset_names
from rag_platform.config.settings import Settings
from rag_platform.contract.evaluation_shapes import DatasetPart, EvalChoicesData, EvalJobData
from rag_platform.errors import InputError, NotFoundError, RagError, read_only
from rag_platform.evaluation.comparing import Comparison, compare_runs
from rag_platform.evaluation.expectations import read_expectations
from rag_platform.evaluation.measuring import MODES
from rag_platform.evaluation.reporting.run_files import write_run_files
from rag_platform.evaluation.results import EvalRun, ResultStore
from rag_platform.evaluation.runs import OnProgress, RunOptions, open_library
from rag_platform.evaluation.sources import open_dataset
from rag_platform.evaluation.strategies import comparable_names, run_strategy
from rag_platform.ir import Json
from rag_platform.ledger.ledger import open_ledger
from rag_platform.ledger.schema import Job
from rag_platform.processes import jobs
from rag_platform.registry import PROVIDERS
from rag_platform.releases.release_store import require_current
from rag_platform.storage.store import Store
from rag_platform.workspace import DataRoot

JOB_KIND = "evaluate"
_RUNS_WITHOUT_MODEL = "rules"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest(RunOptions):
    """The name of a dataset, and the options of its run."""

    dataset: str
    baseline: str | None = None  # a run of the same dataset


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """A run, its difference to the baseline, and the folder with its files."""

    run: EvalRun
    difference: Comparison | None
    folder: Path


def run_dataset(
    root: DataRoot, request: RunRequest, on_progress: OnProgress | None = None
) -> FinishedRun:
    """Run a dataset and write the files. Raises what `open_dataset` and `run_strategy` raise,
    NotFoundError for an unknown baseline, and StorageError `read_only` before anything is asked.
    """
    if root.ledger.read_only:
        raise read_only(root.store.home)
    dataset = open_dataset(request.dataset, root.store.home)
    with closing(ResultStore(root.store.home)) as store:
        before = store.run(request.baseline) if request.baseline else None
        with open_library(root.settings, root.store) as library:
            run = run_strategy(root, library, dataset, request, store, on_progress)
        difference = None if before is None else compare_runs(before, run, store)
        folder = write_run_files(root.store.home, run, store, difference)
    return FinishedRun(run, difference, folder)


# --- as a job -----------------------------------------------------------------------------------


def start_run(settings: Settings, request: RunRequest) -> EvalJobData:
    """Launch a job that runs a dataset; it holds no lock.

    Raises NotFoundError `unknown_dataset` and InputError `invalid_choice` for anything that
    `list_choices` does not offer, and whatever `require_current` raises.
    """
    store = Store.of(settings)
    _require_choice(settings, store, request)
    with closing(open_ledger(store)) as ledger:
        job = ledger.add_job(JOB_KIND, "", {"request": asdict(request)})
        watch(jobs.launch(job, settings, store), settings)
        return job_data(ledger.job(job.job_id))


def run_job(job: Job, root: DataRoot, on_progress: OnProgress) -> None:
    """Carry out a job of `start_run`; its result has the run_id."""
    values = {**job.args["request"]}
    request = RunRequest(**{**values, "metric_sets": tuple(values["metric_sets"])})
    run = run_dataset(root, request, on_progress).run
    result = {"run_id": run.run_id, "cases": run.cases, "failed": run.failed}
    root.ledger.update_job(job.job_id, result=result)


def list_run_jobs(settings: Settings, limit: int = 5) -> list[EvalJobData]:
    """The newest jobs of `start_run` that the caller may see."""
    store = Store.of(settings)
    if not store.has_ledger():
        return []
    with closing(open_ledger(store)) as ledger:
        found = [job for job in ledger.jobs("", 50) if _is_visible(job)][:limit]
        return [job_data(jobs.as_it_stands(job, ledger, settings.jobs)) for job in found]


def get_run_job(settings: Settings, job_id: str) -> EvalJobData:
    """A job of `start_run`. Raises NotFoundError `unknown_job`."""
    store = Store.of(settings)
    with closing(open_ledger(store)) as ledger:
        jobs.end_orphans(ledger, settings.jobs)
        job = jobs.as_it_stands(ledger.job(job_id), ledger, settings.jobs)
    if not _is_visible(job):
        raise NotFoundError(f"{job_id[:80]!r} is no job of an evaluation", code="unknown_job")
    return job_data(job)


def cancel_run_job(settings: Settings, job_id: str) -> EvalJobData:
    """Stop a job of `start_run`. Raises NotFoundError `unknown_job` and `nothing_to_cancel`."""
    get_run_job(settings, job_id)  # the caller may see it
    with closing(open_ledger(Store.of(settings))) as ledger:
        return job_data(jobs.cancel(job_id, ledger, settings.jobs))


def _is_visible(job: Job) -> bool:
    request = job.args.get("request")
    return (
        job.kind == JOB_KIND
        and request is not None
        and access.current().may_see(str(request["namespace"] or ""))
    )


def job_data(job: Job) -> EvalJobData:
    """A job of `start_run` as clients see it."""
    request: Json = job.args["request"]
    return fill_shape(
        EvalJobData,
        job_progress(job),
        dataset=request["dataset"],
        namespace=request["namespace"] or "",
        strategy=request["strategy"] or "",
        run_id=str(job.result.get("run_id", "")),
    )


# --- what can be chosen -------------------------------------------------------------------------


def list_choices(settings: Settings, namespaces: Sequence[str]) -> EvalChoicesData:
    """The choices for a run: datasets of the config folder and expectations of the namespaces,
    strategies, evaluators, metric sets, judges and modes.
    """
    store = Store.of(settings)
    judges = [
        name
        for name in PROVIDERS["judge"]
        if name == _RUNS_WITHOUT_MODEL or settings.judge.provider != "none"
    ]
    return {
        "datasets": [*list_datasets(), *_expectations(store, namespaces)],
        "strategies": comparable_names(settings),
        "evaluators": list(PROVIDERS["evaluator"]),
        "metric_sets": list(PROVIDERS["metric_set"]),
        "judges": judges,
        "modes": list(MODES),
    }


def list_datasets() -> list[DatasetPart]:
    """The datasets of the config folder; one that cannot be read has a `problem`."""
    found: list[DatasetPart] = []
    for name, path in dataset_names().items():
        about = DEMO if path.is_relative_to(SHIPPED) else ""
        part = DatasetPart(name=name, cases=0, fingerprint="", problem="", about=about)
        try:
            part["cases"], part["fingerprint"] = _summarise(path, path.stat().st_mtime_ns)
        except (RagError, OSError) as error:
            part["problem"] = error.message if isinstance(error, RagError) else str(error)
        found.append(part)
    return found


def _expectations(store: Store, namespaces: Sequence[str]) -> list[DatasetPart]:
    return [
        {
            "name": f"expectations:{name}",
            "cases": len(dataset.cases),
            "fingerprint": dataset.fingerprint,
            "problem": "",
            "about": name,
        }
        for name in namespaces
        if (dataset := read_expectations(store, name)).cases
    ]


@lru_cache(maxsize=64)
def _summarise(path: Path, _modified: int) -> tuple[int, str]:
    dataset = open_dataset(str(path))
    return len(dataset.cases), dataset.fingerprint


def _require_choice(settings: Settings, store: Store, request: RunRequest) -> None:
    space = request.namespace or settings.default_namespace
    choices = list_choices(settings, [space])
    known = [item["name"] for item in choices["datasets"]]
    if request.dataset not in known:
        raise NotFoundError(
            f"no dataset {request.dataset[:80]!r} can be asked from here; known:"
            f" {', '.join(known) or 'none'}; `rag eval import FILE` adds one",
            code="unknown_dataset",
        )
    given: tuple[tuple[str, str | None, Sequence[str]], ...] = (
        ("strategy", request.strategy, choices["strategies"]),
        ("evaluator", request.evaluator, choices["evaluators"]),
        ("judge", request.judge, choices["judges"]),
        ("mode", request.mode, choices["modes"]),
        *(("metric set", name, choices["metric_sets"]) for name in request.metric_sets),
    )
    for what, name, names in given:
        if name and name not in names:
            raise InputError(
                f"unknown {what} {name[:80]!r}; known: {', '.join(names)}", code="invalid_choice"
            )
    if request.namespace:
        require_current(store, request.namespace)
