"""What Dagster loads: `dagster dev -m rag_platform.definitions`."""

import dagster as dg

from rag_platform.assets import (
    automation,
    evaluation,
    ingestion,
    release,
    signals,
    submission,
)
from rag_platform.assets.resources import platform

defs = dg.Definitions(
    assets=[
        ingestion.ingestion,
        release.candidate,
        release.published_release,
        evaluation.evaluation_run,
        evaluation.strategy_comparison,
    ],
    asset_checks=[signals.signals],
    jobs=[
        automation.ingest_job,
        automation.release_job,
        automation.sync_job,
        automation.gc_job,
        evaluation.evaluation_job,
        submission.work_job,
    ],
    sensors=[automation.inbox, automation.release_when_quiet],
    schedules=[automation.nightly, automation.nightly_gc, evaluation.nightly_evaluation],
    resources={"platform": platform},
    # A run is one chain of steps over the data root: a process per step would only add its start,
    # and a Celery worker cannot start processes, so this holds for every run launcher.
    executor=dg.in_process_executor,
)
