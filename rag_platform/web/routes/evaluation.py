"""Evaluations: runs, cases, trends, comparisons, monitoring, and starting a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Form, Query, Request
from pydantic import BaseModel, Field
from starlette.responses import RedirectResponse, Response

from rag_platform import access
from rag_platform.api.envelopes import without_paths
from rag_platform.config.prompts import activate, diff_versions
from rag_platform.contract.evaluation_shapes import (
    CanariesData,
    DriftData,
    EvalCaseData,
    EvalCasesData,
    EvalChoicesData,
    EvalComparisonData,
    EvalJobData,
    EvalRunData,
    EvalRunsData,
    EvalTrendsData,
    GapsData,
    PromotionPart,
    PromptPart,
    StrategiesData,
)
from rag_platform.errors import RagError
from rag_platform.evaluation.monitoring import canaries, drift, experiments, gaps
from rag_platform.evaluation.reporting import views
from rag_platform.evaluation.results import CaseFilter
from rag_platform.evaluation.run_requests import (
    RunRequest,
    cancel_run_job,
    get_run_job,
    list_choices,
    list_run_jobs,
    start_run,
)
from rag_platform.web.dependencies import (
    ApiView,
    FormView,
    LibraryOf,
    MayAdminister,
    MayWrite,
    PageView,
    SettingsOf,
    View,
)
from rag_platform.web.rendering import link, render

api = APIRouter(prefix="/eval", tags=["evaluation"])
pages = APIRouter()

Name = Annotated[str, Query(max_length=200)]
Cursor = Annotated[str, Query(max_length=400, description="`next_cursor` of the page before.")]
Limit = Annotated[int, Query(ge=1, le=200)]
Days = Annotated[float, Query(gt=0, le=3650)]


def _filter_cases(
    missed: bool = False, words: Name = "", tag: Name = "", sort: Name = ""
) -> CaseFilter:
    return CaseFilter(missed=missed, words=words, tag=tag, sort=sort)


CaseFilterOf = Annotated[CaseFilter, Depends(_filter_cases)]


class RunChoice(BaseModel, extra="forbid"):
    """What to evaluate, and how to measure it; `/api/eval/choices` lists the valid names."""

    dataset: str = Field(min_length=1, max_length=200)
    namespace: str = Field(default="", max_length=63)
    strategy: str = Field(default="", max_length=200)
    mode: str = Field(default="", max_length=40)
    evaluator: str = Field(default="", max_length=40)
    metric_sets: list[Annotated[str, Field(max_length=40)]] = Field(
        default_factory=list, max_length=20
    )
    judge: str = Field(default="", max_length=40)
    reuse: bool = True


@api.get("/runs")
def get_runs(
    settings: SettingsOf,
    namespace: Annotated[str, Query(max_length=63)] = "",
    dataset_id: Name = "",
    strategy: Name = "",
    limit: Limit = 25,
    cursor: Cursor = "",
) -> EvalRunsData:
    """Runs, newest first."""
    return views.list_eval_runs(
        settings.home,
        namespace=namespace,
        dataset_id=dataset_id,
        strategy=strategy,
        limit=limit,
        cursor=cursor,
    )


@api.post("/runs", status_code=202, dependencies=[MayWrite])
def post_run(library: LibraryOf, choice: RunChoice) -> EvalJobData:
    """Start a run as a job."""
    if choice.namespace:
        library.require_visible(choice.namespace)
    given: dict[str, Any] = {name: value for name, value in choice if value != ""}
    given["metric_sets"] = tuple(filter(None, choice.metric_sets))
    return start_run(library.settings, RunRequest(**given))


@api.get("/runs/{run_id}")
def get_run(settings: SettingsOf, run_id: str) -> EvalRunData:
    """One run: metrics with intervals, slices, and gate results."""
    return views.get_eval_run(settings.home, run_id)


@api.get("/runs/{run_id}/cases")
def get_cases(
    settings: SettingsOf, run_id: str, where: CaseFilterOf, cursor: Cursor = ""
) -> EvalCasesData:
    """Cases of a run; `sort` is a metric (the worst first) or `latency_ms` (the slowest first)."""
    return views.list_eval_cases(settings.home, run_id, where, cursor=cursor)


@api.get("/runs/{run_id}/cases/{case_id:path}")
def get_case(library: LibraryOf, run_id: str, case_id: str) -> EvalCaseData:
    """One case: what it expects, and what each stage found."""
    return views.get_eval_case(library, library.settings.home, run_id, case_id)


@api.get("/trends")
def get_trends(
    settings: SettingsOf,
    metric: Name = "",
    days: Days = 90,
    dataset_id: Name = "",
    namespace: Annotated[str, Query(max_length=63)] = "",
) -> EvalTrendsData:
    """A metric over the runs of the last days."""
    return views.get_eval_trends(
        settings.home, metric, days=days, dataset_id=dataset_id, namespace=namespace
    )


@api.get("/compare")
def get_comparison(settings: SettingsOf, before: Name, after: Name) -> EvalComparisonData:
    """Two runs of the same cases: differences with intervals, and the cases that changed."""
    return views.compare_eval_runs(settings.home, before, after)


@api.get("/strategies")
def get_strategies(view: ApiView, dataset_id: Name) -> StrategiesData:
    """A comparison of the newest run of each strategy on a dataset."""
    return views.compare_newest(view.settings.home, dataset_id, view.namespace)


@api.get("/promotions")
def get_promotions(library: LibraryOf) -> list[PromotionPart]:
    """The promotions of strategies to a namespace's own, with their verdicts."""
    return views.list_promotions(library.store, library.namespaces())


@api.get("/choices")
def get_choices(library: LibraryOf) -> EvalChoicesData:
    """The valid choices for a run."""
    return list_choices(library.settings, library.namespaces())


@api.get("/jobs")
def get_jobs(settings: SettingsOf) -> list[EvalJobData]:
    """The jobs of the newest runs started by people."""
    return list_run_jobs(settings)


@api.get("/jobs/{job_id}")
def get_job(settings: SettingsOf, job_id: str) -> EvalJobData:
    """The progress of a run's job, with the run_id once it is done."""
    return get_run_job(settings, job_id)


@api.post("/jobs/{job_id}/cancel", dependencies=[MayWrite])
def cancel_job(settings: SettingsOf, job_id: str) -> EvalJobData:
    """Stop a run's job; the answers that it has measured are taken over by the next run."""
    return cancel_run_job(settings, job_id)


@api.get("/drift")
def get_drift(view: ApiView) -> DriftData:
    """Drift of users' recent questions and answers from the last stable window."""
    logs_dir, config = view.library.store.logs_dir, view.settings.drift
    return drift.drift_data(drift.measure_drift(logs_dir, view.namespace, config))


@api.get("/gaps")
def get_gaps(view: ApiView, days: Annotated[int, Query(ge=1, le=3650)] = 30) -> GapsData:
    """Content gaps: questions that were refused or answered with low confidence, asked
    again now.
    """
    return gaps.get_gaps(view.library, view.namespace, days)


@api.get("/canaries")
def get_canaries(view: ApiView) -> CanariesData:
    """Ask the published release questions made from the previous one."""
    return canaries.get_canaries(view.library, view.namespace)


@api.get("/prompts")
def get_prompts(library: LibraryOf) -> list[PromptPart]:
    """The versions of prompts, and the running experiments."""
    return experiments.list_prompts()


@api.post("/prompts/activate", dependencies=[MayAdminister])
def activate_prompt(reference: Annotated[str, Query(max_length=200)]) -> list[PromptPart]:
    """Make a version of a prompt, NAME@VERSION, the active one of all libraries."""
    caller = access.current()
    if caller.namespaces is not None:
        raise RagError(
            "prompts are those of all libraries: this needs a token that is not limited to some",
            code="limited_token",
        )
    activate(reference, caller.name)
    return experiments.list_prompts()


# --- pages --------------------------------------------------------------------------------------


_PAGE = 20


@pages.get("/evaluation")
def show_runs(
    view: PageView,
    everywhere: bool = False,
    dataset_id: Name = "",
    strategy: Name = "",
    cursor: Cursor = "",
) -> Response:
    """Runs, the trend of the leading metric, and the form to start a run."""
    namespace = "" if everywhere else view.namespace
    # a run that goes on, or failed before its first answer, is only a job
    unfinished = [
        job
        for job in list_run_jobs(view.settings, _PAGE)
        if not job["run_id"] and (everywhere or job["namespace"] in ("", namespace))
    ]
    return view.render(
        "evaluation/runs.html",
        everywhere=everywhere,
        dataset_id=dataset_id,
        strategy=strategy,
        cursor=cursor,
        found=get_runs(view.settings, namespace, dataset_id, strategy, _PAGE, cursor),
        trends=get_trends(view.settings, dataset_id=dataset_id, namespace=namespace),
        choices=get_choices(view.library),
        unfinished=[] if dataset_id or strategy or cursor else unfinished,
    )


@pages.post("/evaluation/run", dependencies=[MayWrite])
def start_shown_run(library: LibraryOf, choice: Annotated[RunChoice, Form()]) -> Response:
    """Start a run and show its progress."""
    job = post_run(library, choice)
    address = link(f"/evaluation/jobs/{job['job_id']}", namespace=choice.namespace)
    return RedirectResponse(address, 303)


@pages.get("/evaluation/jobs/{job_id}")
def show_job(view: PageView, job_id: str) -> Response:
    """The progress of a run; as a fragment only the part that changes."""
    job = get_job(view.settings, job_id)
    return view.render_part("evaluation/progress.html", "evaluation/job.html", job=job)


@pages.post("/evaluation/jobs/{job_id}/cancel", dependencies=[MayWrite])
def cancel_shown_job(settings: SettingsOf, job_id: str) -> Response:
    """Stop a run and show how it ended."""
    namespace = cancel_job(settings, job_id)["namespace"]
    return RedirectResponse(link(f"/evaluation/jobs/{job_id}", namespace=namespace), 303)


@pages.get("/evaluation/runs/{run_id}")
def show_run(
    request: Request, settings: SettingsOf, run_id: str, where: CaseFilterOf, cursor: Cursor = ""
) -> Response:
    """A run and its cases."""
    data = get_run(settings, run_id)
    run = data["run"]
    others = get_runs(settings, run["namespace"], run["dataset_id"], limit=50)["runs"]
    return render(
        request,
        "evaluation/run.html",
        namespace=run["namespace"],
        data=data,
        run=run,
        cases=get_cases(settings, run_id, where, cursor),
        where=where,
        cursor=cursor,
        others=[
            other
            for other in others
            if other["run_id"] != run["run_id"]
            and other["dataset_fingerprint"] == run["dataset_fingerprint"]
        ],
    )


@pages.get("/evaluation/runs/{run_id}/cases/{case_id:path}")
def show_case(request: Request, library: LibraryOf, run_id: str, case_id: str) -> Response:
    """One case: its expectations and hits."""
    data = get_case(library, run_id, case_id)
    return render(request, "evaluation/case.html", namespace=data["run"]["namespace"], data=data)


@pages.get("/evaluation/compare")
def show_comparison(view: PageView, before: Name = "", after: Name = "") -> Response:
    """A comparison of two runs."""
    found = get_comparison(view.settings, before, after) if before and after else None
    return view.render(
        "evaluation/compare.html",
        before=before,
        after=after,
        found=found,
        runs=get_runs(view.settings, limit=100)["runs"],
    )


@pages.get("/evaluation/trends")
def show_trends(
    view: PageView,
    metric: Name = "",
    days: Days = 90,
    dataset_id: Name = "",
    everywhere: bool = False,
) -> Response:
    """A metric over time, by strategy."""
    namespace = "" if everywhere else view.namespace
    return view.render(
        "evaluation/trends.html",
        trends=get_trends(view.settings, metric, days, dataset_id, namespace),
        days=days,
        dataset_id=dataset_id,
        everywhere=everywhere,
    )


@pages.get("/evaluation/strategies")
def show_strategies(view: PageView, dataset_id: Name = "") -> Response:
    """A comparison of strategies, and the promotions."""
    runs = get_runs(view.settings, view.namespace, limit=100)["runs"]
    datasets = list(dict.fromkeys(run["dataset_id"] for run in runs))
    dataset_id = dataset_id or next(iter(datasets), "")
    return view.render(
        "evaluation/strategies.html",
        datasets=datasets,
        dataset_id=dataset_id,
        found=get_strategies(view, dataset_id) if dataset_id else None,
        promotions=get_promotions(view.library),
    )


@pages.get("/evaluation/monitoring")
def show_monitoring(view: PageView) -> Response:
    """The page that links to drift, gaps and canaries."""
    return view.render("evaluation/monitoring.html")


@pages.get("/evaluation/drift")
def show_drift(view: PageView) -> Response:
    return _render_monitor(view, "drift", get_drift(view))


@pages.get("/evaluation/gaps")
def show_gaps(view: PageView, days: Annotated[int, Query(ge=1, le=3650)] = 30) -> Response:
    return _render_monitor(view, "gaps", get_gaps(view, days))


@pages.get("/evaluation/canaries")
def show_canaries(view: PageView) -> Response:
    return _render_monitor(view, "canaries", get_canaries(view))


@pages.get("/evaluation/prompts")
def show_prompts(view: PageView) -> Response:
    """The versions of prompts; those that are not active with what they would change."""
    prompts = experiments.list_prompts()
    changes = _list_changes(prompts)
    return view.render("evaluation/prompts.html", prompts=prompts, changes=changes)


def _list_changes(prompts: Sequence[PromptPart]) -> dict[str, str]:
    """By reference what each version changes in the active one, or why it cannot be read; nothing
    where the file of the active one is gone.
    """
    active = {it["name"]: it["version"] for it in prompts if it["status"] == "active"}
    changes = {}
    for name, version in ((it["name"], it["version"]) for it in prompts):
        reference, current = f"{name}@{version}", active.get(name)
        if version == current:
            continue
        try:
            changes[reference] = diff_versions(f"{name}@{current}", reference) if current else ""
        except RagError as error:
            changes[reference] = without_paths(error.message)
    return changes


@pages.post("/evaluation/prompts/activate", dependencies=[MayAdminister])
def activate_shown_prompt(
    view: FormView, reference: Annotated[str, Form(max_length=200)]
) -> Response:
    """Make a version the active one."""
    activate_prompt(reference)
    return RedirectResponse(link("/evaluation/prompts", namespace=view.namespace), 303)


def _render_monitor(view: View, name: str, found: Any) -> Response:
    return view.render_part(f"evaluation/{name}.html", "evaluation/monitoring.html", found=found)
