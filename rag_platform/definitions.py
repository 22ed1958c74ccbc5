"""What Dagster loads: `dagster dev -m rag_platform.definitions`."""

import dagster as dg

from rag_platform.assets import automation, ingestion, release
from rag_platform.assets.resources import Platform

defs = dg.Definitions(
    assets=[ingestion.ingestion, release.candidate, release.published_release],
    jobs=[automation.ingest_job, automation.release_job, automation.sync_job],
    sensors=[automation.inbox, automation.release_after_success, automation.release_after_failure],
    schedules=[automation.nightly],
    resources={"platform": Platform()},
    executor=dg.in_process_executor,  # a run is one chain of steps: a process for each would only cost its start
)
