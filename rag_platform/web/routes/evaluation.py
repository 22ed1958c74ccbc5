"""`/api/eval`: runs, cases, trends, comparisons, and starting a run."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query
from pydantic import BaseModel, Field

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
from rag_platform.evaluation.monitoring import monitor_views
from rag_platform.evaluation.reporting import case_views, run_views
from rag_platform.evaluation.results import CaseFilter
from rag_platform.evaluation.run_requests import (
    RunRequest,
    get_run_job,
    list_choices,
    list_run_jobs,
    start_run,
)
from rag_platform.web.dependencies import MayWrite, NamespaceOf, SiteOf
from rag_platform.web.site import Site

router = APIRouter(prefix="/eval", tags=["evaluation"])

Name = Annotated[str, Query(max_length=200)]
Cursor = Annotated[str, Query(max_length=400, description="`next_cursor` of the page before.")]
Limit = Annotated[int, Query(ge=1, le=200)]
Days = Annotated[float, Query(gt=0, le=3650)]


def _case_filter(
    missed: bool = False, words: Name = "", tag: Name = "", sort: Name = ""
) -> CaseFilter:
    return CaseFilter(missed=missed, words=words, tag=tag, sort=sort)


WantedCases = Annotated[CaseFilter, Depends(_case_filter)]


class RunChoice(BaseModel):
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


def start(site: Site, choice: RunChoice) -> EvalJobData:
    """Launch the job of a run; empty texts mean the default."""
    if choice.namespace:
        site.library.require_visible(choice.namespace)
    request = RunRequest(
        dataset=choice.dataset,
        namespace=choice.namespace or None,
        strategy=choice.strategy or None,
        mode=choice.mode or None,
        evaluator=choice.evaluator or None,
        metric_sets=tuple(filter(None, choice.metric_sets)),
        judge=choice.judge or None,
        reuse=choice.reuse,
    )
    return start_run(site.settings, request)


@router.get("/runs")
def get_runs(
    site: SiteOf,
    namespace: Annotated[str, Query(max_length=63)] = "",
    dataset_id: Name = "",
    strategy: Name = "",
    limit: Limit = 25,
    cursor: Cursor = "",
) -> EvalRunsData:
    """Runs, newest first."""
    return run_views.list_eval_runs(
        site.settings.home,
        namespace=namespace,
        dataset_id=dataset_id,
        strategy=strategy,
        limit=limit,
        cursor=cursor,
    )


@router.post("/runs", status_code=202, dependencies=[MayWrite])
def post_run(site: SiteOf, choice: RunChoice) -> EvalJobData:
    """Start a run as a job."""
    return start(site, choice)


@router.get("/runs/{run_id}")
def get_run(site: SiteOf, run_id: str) -> EvalRunData:
    """One run: metrics with intervals, slices, and gate results."""
    return run_views.get_eval_run(site.settings.home, run_id)


@router.get("/runs/{run_id}/cases")
def get_cases(site: SiteOf, run_id: str, wanted: WantedCases, cursor: Cursor = "") -> EvalCasesData:
    """Cases of a run; `sort` is a metric (the worst first) or `latency_ms` (the slowest first)."""
    return case_views.list_eval_cases(site.settings.home, run_id, wanted, cursor=cursor)


@router.get("/runs/{run_id}/cases/{case_id:path}")
def get_case(site: SiteOf, run_id: str, case_id: str) -> EvalCaseData:
    """One case: what it expects, and what each stage found."""
    return case_views.get_eval_case(site.library, site.settings.home, run_id, case_id)


@router.get("/trends")
def get_trends(
    site: SiteOf,
    metric: Name = "",
    days: Days = 90,
    dataset_id: Name = "",
    namespace: Annotated[str, Query(max_length=63)] = "",
) -> EvalTrendsData:
    """A metric over the runs of the last days."""
    return run_views.get_eval_trends(
        site.settings.home, metric, days=days, dataset_id=dataset_id, namespace=namespace
    )


@router.get("/compare")
def get_comparison(site: SiteOf, before: Name, after: Name) -> EvalComparisonData:
    """Two runs of the same cases: differences with intervals, and the cases that changed."""
    return run_views.compare_eval_runs(site.settings.home, before, after)


@router.get("/strategies")
def get_strategies(site: SiteOf, namespace: NamespaceOf, dataset_id: Name) -> StrategiesData:
    """A comparison of the newest run of each strategy on a dataset."""
    return run_views.compare_newest(site.settings.home, dataset_id, namespace)


@router.get("/promotions")
def get_promotions(site: SiteOf) -> list[PromotionPart]:
    """The promotions of strategies to a namespace's own, with their verdicts."""
    return run_views.list_promotions(site.store, site.library.namespaces())


@router.get("/choices")
def get_choices(site: SiteOf) -> EvalChoicesData:
    """The valid choices for a run."""
    return list_choices(site.settings, site.library.namespaces())


@router.get("/jobs")
def get_jobs(site: SiteOf) -> list[EvalJobData]:
    """The jobs of the newest runs started by people."""
    return list_run_jobs(site.store)


@router.get("/jobs/{job_id}")
def get_job(site: SiteOf, job_id: str) -> EvalJobData:
    """The progress of a run's job, with the run_id once it is done."""
    return get_run_job(site.settings, job_id)


@router.get("/drift")
def get_drift(site: SiteOf, namespace: NamespaceOf) -> DriftData:
    """Drift of users' recent questions and answers from the last stable window."""
    return monitor_views.get_drift(site.settings, namespace)


@router.get("/gaps")
def get_gaps(
    site: SiteOf, namespace: NamespaceOf, days: Annotated[int, Query(ge=1, le=3650)] = 30
) -> GapsData:
    """Content gaps: questions that were refused or answered with low confidence, asked
    again now.
    """
    return monitor_views.get_gaps(site.library, namespace, days)


@router.get("/canaries")
def get_canaries(site: SiteOf, namespace: NamespaceOf) -> CanariesData:
    """Ask the published release questions made from the previous one."""
    return monitor_views.get_canaries(site.library, namespace)


@router.get("/prompts")
def get_prompts(site: SiteOf) -> list[PromptPart]:
    """The versions of prompts, and the running experiments."""
    return monitor_views.list_prompts()
