"""What runs without being asked: the inbox sensor, the release after a run from the UI, and the nightly schedule."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import dagster as dg

from rag_platform import jobs
from rag_platform.assets.partitions import JOB_TAG, RANGE_END, RANGE_START, contiguous, document_versions, namespaces
from rag_platform.assets.resources import Platform
from rag_platform.config import load_settings
from rag_platform.documents.finding import Input, synced_inputs
from rag_platform.documents.receiving import ReceiveOptions, Reception, receive
from rag_platform.errors import RagError
from rag_platform.indexes.starting import start_ingest
from rag_platform.indexes.updating import unfinished
from rag_platform.ledger_rows import Job, Source
from rag_platform.profiles import INGESTION_STAGES

ingest_job = dg.define_asset_job(
    "ingest",
    # the checks are logged for documents that have something to check; planned for all, the others' would be shown as missing
    selection=dg.AssetSelection.assets(*INGESTION_STAGES).without_checks(),
    description="The seven stages for a range of document versions.",
)
release_job = dg.define_asset_job(
    "release",
    selection=["catalog", "lexical_index", "dense_index", "published_release"],
    description="Build, check and publish a namespace's release.",
)


@dg.sensor(
    jobs=[ingest_job, release_job],
    minimum_interval_seconds=15,
    default_status=dg.DefaultSensorStatus.STOPPED,
    description="Watches inbox/<namespace>/: new, changed and removed files become ingest runs.",
)
def inbox(context: dg.SensorEvaluationContext, platform: Platform) -> dg.SensorResult | dg.SkipReason:
    """Run requests for what changed in the inbox since the last tick."""
    folders = {p.name: _snapshot(p) for p in sorted(platform.store.inbox_dir.glob("*")) if p.is_dir() and not p.name.startswith(".")}
    before = json.loads(context.cursor or "{}")
    changed = [name for name, mark in folders.items() if before.get(name) != mark]
    if not changed:
        return dg.SkipReason(f"nothing changed in {len(folders)} inbox folders")
    requests: list[dg.RunRequest] = []
    keys: list[str] = []
    problems: list[str] = []
    taken: list[str] = []
    for name in changed:
        try:
            reception = _receive(platform, name, [platform.store.inbox_dir / name])
        except RagError as error:  # one folder must never stop the others; without its mark it is tried again at the next tick
            problems.append(f"{name}: {error.message}")
            folders.pop(name)
            continue
        taken.append(name)
        if arriving := [item.source_uri for item in reception.items if item.code == "arriving"]:
            problems.append(f"{name}: {len(arriving)} files may still be written, e.g. {arriving[0]}")
            folders.pop(name)
        problems += [f"{item.source_uri}: [{item.code}] {item.reason}" for item in reception.items if item.decision == "refused"]
        keys += reception.to_process
        requests += _ingest_requests(context.instance, reception.to_process, name)
        if (reception.retired or reception.changed) and not reception.to_process:
            requests.append(dg.RunRequest(job_name="release", partition_key=name, tags={"rag/namespace": name}))
    for problem in problems:
        context.log.warning(problem)
    additions = [document_versions.build_add_request(keys), namespaces.build_add_request(taken)]
    skip = None if requests else dg.SkipReason("; ".join(problems) or "what changed is held already")
    return dg.SensorResult(run_requests=requests, skip_reason=skip, cursor=json.dumps(folders), dynamic_partitions_requests=additions)


@dg.run_status_sensor(
    run_status=dg.DagsterRunStatus.SUCCESS,
    monitored_jobs=[ingest_job],
    request_job=release_job,
    default_status=dg.DefaultSensorStatus.RUNNING,
)
def release_after_success(context: dg.RunStatusSensorContext, platform: Platform) -> Iterator[dg.RunRequest | dg.SkipReason]:
    """The release run of each namespace whose documents an ingest run completed."""
    yield from _release_requests(context, platform)


@dg.run_status_sensor(
    run_status=dg.DagsterRunStatus.FAILURE,
    monitored_jobs=[ingest_job],
    request_job=release_job,
    default_status=dg.DefaultSensorStatus.RUNNING,
)
def release_after_failure(context: dg.RunStatusSensorContext, platform: Platform) -> Iterator[dg.RunRequest | dg.SkipReason]:
    """The same after a run in which some documents failed: the good ones still go live."""
    yield from _release_requests(context, platform)


@dg.op(
    description="Syncs every source of every namespace and rebuilds what another config left stale; each namespace is a job of the ledger."
)
def sync_sources(context: dg.OpExecutionContext, platform: Platform) -> None:
    """What is due in every namespace, done one after the other; fails at its end when a namespace could not be brought up to date."""
    problems: list[str] = []
    for namespace in platform.ledger.namespaces():
        try:
            job = _synced(context, platform, namespace)
        except RagError as error:  # one namespace must never stop the others
            problems.append(f"{namespace}: [{error.code}] {error.message}")
            continue
        context.log.info(f"{namespace}: job {job.job_id} is {job.state}. {job.reason}")
        if job.state != "done":
            problems.append(f"{namespace}: job {job.job_id} is {job.state}: {job.reason}")
    if problems:
        raise dg.Failure("\n".join(problems), allow_retries=False)


@dg.job(name="sync", description="Syncs every source, rebuilds what is stale, releases.")
def sync_job() -> None:
    """The work of the night."""
    sync_sources()


@dg.schedule(
    job=sync_job,
    cron_schedule=load_settings().nightly_cron,
    default_status=dg.DefaultScheduleStatus.STOPPED,
    description="Syncs every folder and list of URLs, rebuilds what another config left stale, releases.",
)
def nightly(_context: dg.ScheduleEvaluationContext) -> dg.RunRequest:
    """The run of the night; nothing is hashed or fetched in the tick itself."""
    return dg.RunRequest()


def _synced(context: dg.OpExecutionContext, platform: Platform, namespace: str) -> Job:
    """The job that brought a namespace up to date, in its final state; folders that are away are left alone."""
    inputs: list[Input] = []
    for source in platform.ledger.sources(namespace):
        if source.kind == "folder" and not Path(source.root).is_dir():
            context.log.warning(f"{namespace}: the folder of source {source.name!r} is away; its documents stay as they are")
        elif source.kind == "folder" or _has_urls(platform, namespace, source):
            inputs += synced_inputs(platform.ledger, namespace, source.name)
    started = start_ingest(
        inputs,
        namespace,
        settings=platform.settings,
        strategy=platform.strategy(namespace),
        store=platform.store,
        ledger=platform.ledger,
        options=ReceiveOptions(sync=True),
        wait=platform.settings.jobs.lock_seconds,
    )
    if started.process is None:
        return started.job
    return jobs.wait(started.job.job_id, started.process, platform.ledger, platform.store)


def _has_urls(platform: Platform, namespace: str, source: Source) -> bool:
    return source.kind == "urls" and bool(platform.ledger.documents(namespace, source=source.name, status="active"))


def _receive(platform: Platform, namespace: str, inputs: Sequence[Input]) -> Reception:
    return receive(
        inputs,
        namespace,
        strategy=platform.strategy(namespace),
        settings=platform.settings,
        store=platform.store,
        ledger=platform.ledger,
        options=ReceiveOptions(sync=True, settle_seconds=platform.settings.inbox_settle_seconds),
    )


def _ingest_requests(instance: dg.DagsterInstance, version_ids: Sequence[str], namespace: str) -> list[dg.RunRequest]:
    """One request per unbroken range of partition keys, counting the keys about to be added."""
    ordered = list(dict.fromkeys([*instance.get_dynamic_partitions(document_versions.name or ""), *version_ids]))
    return [
        dg.RunRequest(job_name="ingest", tags={RANGE_START: first, RANGE_END: last, "rag/namespace": namespace})
        for first, last in contiguous(ordered, set(version_ids))
    ]


def _release_requests(context: dg.RunStatusSensorContext, platform: Platform) -> Iterator[dg.RunRequest | dg.SkipReason]:
    if JOB_TAG in context.dagster_run.tags:
        yield dg.SkipReason("the job that started this run releases by itself")
        return
    due = [name for name in platform.ledger.namespaces() if unfinished(name, platform.settings, platform.store, platform.ledger)]
    context.instance.add_dynamic_partitions(namespaces.name or "", due)
    for name in due:
        yield dg.RunRequest(partition_key=name, run_key=f"{context.dagster_run.run_id}:{name}", tags={"rag/namespace": name})


def _snapshot(folder: Path) -> str:
    """A mark of a folder's files, their sizes and times; changes when any of them does."""
    rows = [(str(p.relative_to(folder)), s.st_size, s.st_mtime_ns) for p in sorted(folder.rglob("*")) if p.is_file() and (s := p.stat())]
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:16]
