"""The pages of evaluations: runs, cases, trends, comparisons, monitoring, and starting a run."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Form, Query, Request
from starlette.responses import RedirectResponse, Response

from rag_platform.evaluation.monitoring import monitor_views
from rag_platform.evaluation.reporting import case_views, run_views
from rag_platform.evaluation.run_requests import get_run_job, list_choices, list_run_jobs
from rag_platform.web.dependencies import MayWrite, PageNamespace, SiteOf
from rag_platform.web.rendering import is_fragment, link, render
from rag_platform.web.routes.evaluation import (
    Cursor,
    Days,
    Name,
    RunChoice,
    WantedCases,
    start,
)

router = APIRouter()
_PAGE = 20


@router.get("/evaluation")
def show_runs(
    request: Request,
    site: SiteOf,
    namespace: PageNamespace,
    everywhere: bool = False,
    dataset_id: Name = "",
    strategy: Name = "",
    cursor: Cursor = "",
) -> Response:
    """Runs, the trend of the leading metric, and the form to start a run."""
    home = site.settings.home
    space = "" if everywhere else namespace
    found = run_views.list_eval_runs(
        home, namespace=space, dataset_id=dataset_id, strategy=strategy, limit=_PAGE, cursor=cursor
    )
    trends = run_views.get_eval_trends(home, dataset_id=dataset_id, namespace=space)
    return render(
        request,
        "evaluation/runs.html",
        namespace=namespace,
        everywhere=everywhere,
        dataset_id=dataset_id,
        strategy=strategy,
        cursor=cursor,
        found=found,
        trends=trends,
        choices=list_choices(site.settings, site.library.namespaces()),
        jobs=list_run_jobs(site.store),
    )


@router.post("/eval/run", dependencies=[MayWrite])
def start_run(site: SiteOf, choice: Annotated[RunChoice, Form()]) -> Response:
    """Start a run and show its progress."""
    job = start(site, choice)
    address = link(f"/evaluation/jobs/{job['job_id']}", namespace=choice.namespace)
    return RedirectResponse(address, 303)


@router.get("/evaluation/jobs/{job_id}")
def show_job(request: Request, site: SiteOf, namespace: PageNamespace, job_id: str) -> Response:
    """The progress of a run; as a fragment only the part that changes."""
    template = "evaluation/progress.html" if is_fragment(request) else "evaluation/job.html"
    return render(request, template, namespace=namespace, job=get_run_job(site.settings, job_id))


@router.get("/evaluation/runs/{run_id}")
def show_run(
    request: Request, site: SiteOf, run_id: str, wanted: WantedCases, cursor: Cursor = ""
) -> Response:
    """A run and its cases."""
    home = site.settings.home
    data = run_views.get_eval_run(home, run_id)
    cases = case_views.list_eval_cases(home, run_id, wanted, cursor=cursor)
    run = data["run"]
    others = run_views.list_eval_runs(
        home, namespace=run["namespace"], dataset_id=run["dataset_id"], limit=50
    )["runs"]
    return render(
        request,
        "evaluation/run.html",
        namespace=run["namespace"],
        data=data,
        run=run,
        cases=cases,
        wanted=wanted,
        cursor=cursor,
        others=[
            other
            for other in others
            if other["run_id"] != run["run_id"]
            and other["dataset_fingerprint"] == run["dataset_fingerprint"]
        ],
    )


@router.get("/evaluation/runs/{run_id}/cases/{case_id:path}")
def show_case(request: Request, site: SiteOf, run_id: str, case_id: str) -> Response:
    """One case: its expectations and hits."""
    data = case_views.get_eval_case(site.library, site.settings.home, run_id, case_id)
    return render(request, "evaluation/case.html", namespace=data["run"]["namespace"], data=data)


@router.get("/evaluation/compare")
def show_comparison(
    request: Request, site: SiteOf, namespace: PageNamespace, before: Name = "", after: Name = ""
) -> Response:
    """A comparison of two runs."""
    home = site.settings.home
    found = run_views.compare_eval_runs(home, before, after) if before and after else None
    return render(
        request,
        "evaluation/compare.html",
        namespace=namespace,
        before=before,
        after=after,
        found=found,
        runs=run_views.list_eval_runs(home, limit=100)["runs"],
    )


@router.get("/evaluation/trends")
def show_trends(
    request: Request,
    site: SiteOf,
    namespace: PageNamespace,
    metric: Name = "",
    days: Days = 90,
    dataset_id: Name = "",
    everywhere: bool = False,
) -> Response:
    """A metric over time, by strategy."""
    trends = run_views.get_eval_trends(
        site.settings.home,
        metric,
        days=days,
        dataset_id=dataset_id,
        namespace="" if everywhere else namespace,
    )
    return render(
        request,
        "evaluation/trends.html",
        namespace=namespace,
        trends=trends,
        days=days,
        dataset_id=dataset_id,
        everywhere=everywhere,
    )


@router.get("/evaluation/strategies")
def show_strategies(
    request: Request, site: SiteOf, namespace: PageNamespace, dataset_id: Name = ""
) -> Response:
    """A comparison of strategies, and the promotions."""
    home = site.settings.home
    runs = run_views.list_eval_runs(home, namespace=namespace, limit=100)["runs"]
    datasets = list(dict.fromkeys(run["dataset_id"] for run in runs))
    dataset_id = dataset_id or next(iter(datasets), "")
    found = run_views.compare_newest(home, dataset_id, namespace) if dataset_id else None
    return render(
        request,
        "evaluation/strategies.html",
        namespace=namespace,
        datasets=datasets,
        dataset_id=dataset_id,
        found=found,
        promotions=run_views.list_promotions(site.store, site.library.namespaces()),
    )


@router.get("/evaluation/monitoring")
def show_monitoring(request: Request, namespace: PageNamespace) -> Response:
    """The page that links to drift, gaps and canaries."""
    return render(request, "evaluation/monitoring.html", namespace=namespace)


@router.get("/evaluation/drift")
def show_drift(request: Request, site: SiteOf, namespace: PageNamespace) -> Response:
    found = monitor_views.get_drift(site.settings, namespace)
    return _render_found(request, "evaluation/drift.html", namespace=namespace, found=found)


@router.get("/evaluation/gaps")
def show_gaps(
    request: Request,
    site: SiteOf,
    namespace: PageNamespace,
    days: Annotated[int, Query(ge=1, le=3650)] = 30,
) -> Response:
    found = monitor_views.get_gaps(site.library, namespace, days)
    return _render_found(request, "evaluation/gaps.html", namespace=namespace, found=found)


@router.get("/evaluation/canaries")
def show_canaries(request: Request, site: SiteOf, namespace: PageNamespace) -> Response:
    found = monitor_views.get_canaries(site.library, namespace)
    return _render_found(request, "evaluation/canaries.html", namespace=namespace, found=found)


@router.get("/evaluation/prompts")
def show_prompts(request: Request, namespace: PageNamespace) -> Response:
    """The versions of prompts."""
    return render(
        request,
        "evaluation/prompts.html",
        namespace=namespace,
        prompts=monitor_views.list_prompts(),
    )


def _render_found(request: Request, template: str, **values: Any) -> Response:
    """The fragment for htmx, else the page that contains it."""
    if is_fragment(request):
        return render(request, template, **values)
    return render(request, "evaluation/monitoring.html", part=template, **values)
