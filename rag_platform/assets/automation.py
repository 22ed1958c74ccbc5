"""Automation: the inbox sensor, the sensor that releases changed libraries, and the
nightly sync.
"""

import hashlib
import json
import time
from collections.abc import Collection, Sequence
from pathlib import Path

import dagster as dg

from rag_platform.assets.launch import Work, gc
from rag_platform.assets.partitions import (
    NAMESPACE_TAG,
    RANGE_END,
    RANGE_START,
    contiguous,
    document_versions,
    namespaces,
)
from rag_platform.assets.release import RELEASE_JOB, find_rejection, release_inputs
from rag_platform.assets.resources import Platform
from rag_platform.assets.runs import (
    PASSING_TAG,
    end_orphans,
    explain_backfills,
    find_busy,
    namespace_of_run,
    record_job,
    was_killed,
)
from rag_platform.config.profiles import INGESTION_STAGES, stage_profiles
from rag_platform.config.settings import load_settings
from rag_platform.errors import NEEDS_ANOTHER_FILE, RagError
from rag_platform.ingestion.batches import stale_versions
from rag_platform.ingestion.job_start import start_ingest
from rag_platform.intake.discovery import Input, inputs_to_sync
from rag_platform.intake.receiving import ReceiveOptions, receive
from rag_platform.ledger.schema import Job, Source
from rag_platform.processes import jobs
from rag_platform.releases.publishing import is_behind_ledger
from rag_platform.text.wording import pluralise
from rag_platform.workspace import DataRoot

_CANCELED = dg.DagsterRunStatus.CANCELED
_ENDED = [dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, _CANCELED]
_MAX_RUNS = 50
# A release that failed for what passes is tried again after 1, 2, 4 ... minutes, for 17 hours.
_PASSING_SECONDS, _MAX_PASSING = 30.0, 11
_SETTINGS = load_settings()
# Dagster's tags of a run that a sensor requested: its key, and the sensor
_RUN_KEY, _SENSOR = "dagster/run_key", "dagster/sensor_name"

ingest_job = dg.define_asset_job(
    "ingest",
    # checks are logged only for documents that have something to check; if they were planned, those
    # of the others would be shown as missing
    selection=dg.AssetSelection.assets(*INGESTION_STAGES).without_checks(),
    description="The seven stages for a range of document versions.",
)
release_job = dg.define_asset_job(
    RELEASE_JOB,
    # canaries are run when publishing, and drift is checked by time, not per release
    selection=dg.AssetSelection.assets(
        "catalog", "lexical_index", "dense_index", "published_release"
    )
    - dg.AssetSelection.checks_for_assets("published_release"),
    description="Build, check and publish a library's release.",
)


@dg.sensor(
    job=ingest_job,
    minimum_interval_seconds=15,
    default_status=dg.DefaultSensorStatus.STOPPED,
    description=(
        "Watches inbox/<library>/ in the data folder: new, changed and removed files become ingest"
        " runs."
    ),
)
def inbox(
    context: dg.SensorEvaluationContext, platform: Platform
) -> dg.SensorResult | dg.SkipReason:
    """Request runs for the changes in the inbox since the last tick."""
    root = platform.root
    entries = sorted(p for p in root.store.inbox_dir.glob("*") if not p.name.startswith("."))
    folders = {p.name: _snapshot(p) for p in entries if p.is_dir()}
    before = json.loads(context.cursor or "{}")
    changed = [name for name, mark in folders.items() if before.get(name) != mark]
    requests = _unfinished_requests(context.instance, root, folders.keys() - {*changed})
    keys: list[str] = []
    problems = [
        f"{p.name} lies outside the folders of the inbox, each of which is a library"
        for p in entries
        if p.is_file()
    ]
    received: list[str] = []
    to_release: list[str] = []
    for name in changed:
        options = ReceiveOptions(
            sync=True,
            settle_seconds=root.settings.inbox_settle_seconds,
            moved=_was_inbox(root, name),
        )
        try:
            reception = receive([root.store.inbox_dir / name], name, root.workspace(name), options)
        # one folder must not stop the others; without its snapshot it is retried at the next tick
        except RagError as error:
            problems.append(f"{name}: {error.message}")
            folders.pop(name)
            continue
        received.append(name)
        if arriving := [item.source_uri for item in reception.items if item.code == "arriving"]:
            problems.append(
                f"{name}: {pluralise(len(arriving), 'file')} may still be written, e.g."
                f" {arriving[0]}"
            )
            folders.pop(name)
        problems += [
            f"{item.source_uri}: [{item.code}] {item.reason}"
            for item in reception.items
            if item.decision == "refused"
        ]
        keys += reception.to_process
        requests += _ingest_requests(context.instance, reception.to_process, name)
        if reception.retired or reception.changed:
            to_release.append(name)
    for problem in problems:
        context.log.warning(problem)
    idle = (
        f"`{release_when_quiet.name}` publishes what left or moved in {', '.join(to_release)}"
        if to_release
        else "what changed is held already"
        if changed
        else f"nothing changed in {pluralise(len(folders), 'folder')} of {root.store.inbox_dir}"
    )
    skip = None if requests else dg.SkipReason("; ".join(problems) or idle)
    return dg.SensorResult(
        run_requests=requests,
        skip_reason=skip,
        cursor=json.dumps(folders),
        dynamic_partitions_requests=[
            document_versions.build_add_request(keys),
            namespaces.build_add_request(received),
        ],
    )


@dg.sensor(
    job=release_job,
    minimum_interval_seconds=10,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description=(
        "Frees the slots of killed runs, says why backfills failed, and releases each library whose"
        " documents changed once nothing runs for it any more."
    ),
)
def release_when_quiet(
    context: dg.SensorEvaluationContext, platform: Platform
) -> dg.SensorResult | dg.SkipReason:
    """Request a release run for every idle namespace whose ledger is ahead of its published
    release.

    This compares the ledger with the release, whatever run caused the change, so nothing is missed
    while the daemon is down, and all runs of a backfill lead to one release.
    """
    root = platform.root
    end_orphans(context.instance, root.ledger, root.settings.jobs)
    mark = root.ledger.backend.mark()
    if context.cursor == mark:
        return dg.SkipReason("nothing was written since nothing was due")
    names = list(root.ledger.namespaces())
    waiting = find_busy(context.instance, root.ledger, names)
    # an open backfill keeps its namespaces busy, so a tick follows its end
    explain_backfills(context.instance, root.ledger)
    due = [name for name in names if name not in waiting and _is_due(context, root, name)]
    rejected = [
        name for name in due if find_rejection(context.instance, name, root.workspace(name))
    ]
    keys = {name: _run_key(context.instance, root, name) for name in due if name not in rejected}
    requests = [
        dg.RunRequest(partition_key=name, run_key=key, tags={NAMESPACE_TAG: name})
        for name, key in keys.items()
        if key
    ]
    context.instance.add_dynamic_partitions(namespaces.name or "", due)
    # gates, expectations and strategies leave no mark in the ledger
    if keys or waiting or rejected:
        reasons = {
            "busy": sorted(waiting),
            "rejected, unchanged since": rejected,
            "failed for now, tried again later": [name for name in keys if not keys[name]],
        }
        told = "; ".join(f"{why}: {', '.join(found)}" for why, found in reasons.items() if found)
        return dg.SensorResult(
            run_requests=requests, skip_reason=None if requests else dg.SkipReason(told)
        )
    return dg.SensorResult(cursor=mark, skip_reason=dg.SkipReason("no release is due"))


@dg.op(
    description=(
        "Syncs every source of every library and rebuilds what another config left stale; each"
        " library is a job of the ledger."
    )
)
def sync_sources(context: dg.OpExecutionContext, platform: Platform) -> None:
    """Sync and rebuild every namespace in turn; fails at the end if any of them failed."""
    problems: list[str] = []
    root = platform.root
    with record_job(context, root.ledger, "sync", ""):
        for namespace in root.ledger.namespaces():
            try:
                job = _sync(root, namespace)
            except RagError as error:  # one namespace must not stop the others
                problems.append(f"{namespace}: [{error.code}] {error.message}")
                continue
            message = f"{namespace}: job {job.job_id} is {job.state}. {job.reason}"
            if job.state == "done":
                context.log.info(message)
            elif job.state == "partly" and _has_only_file_errors(job, root):
                context.log.warning(message)
            else:
                problems.append(message)
        if problems:
            raise dg.Failure("\n".join(problems), allow_retries=False)


@dg.job(name="sync", description="Syncs every source, rebuilds what is stale, releases.")
def sync_job() -> None:
    sync_sources()


def make_schedule(
    name: str, job: dg.JobDefinition, cron: str, description: str
) -> dg.ScheduleDefinition:
    """A schedule, switched off at first, whose ticks only request a run of the job."""
    return dg.ScheduleDefinition(
        name,
        job=job,
        cron_schedule=cron,
        execution_timezone=_SETTINGS.schedule_timezone,
        default_status=dg.DefaultScheduleStatus.STOPPED,
        description=description,
    )


nightly = make_schedule(
    "nightly",
    sync_job,
    _SETTINGS.nightly_cron,
    "Syncs every folder and list of URLs, rebuilds what another config left stale, releases.",
)


@dg.op(description="Removes what no document, release or draft of any library needs: `rag gc`.")
def remove_unneeded(context: dg.OpExecutionContext, platform: Platform) -> None:
    """Collect the garbage of the data root as a job that no library waits for."""
    root = platform.root
    context.instance.add_run_tags(context.run.run_id, {NAMESPACE_TAG: ""})
    with record_job(context, root.ledger, "gc", "") as record:
        progress = jobs.Progress(root.ledger, record.job.job_id)
        record.state, record.reason = gc(Work(record.job, root, context.instance, progress))
        context.log.info(root.ledger.job(record.job.job_id).result["markdown"])


@dg.job(name="gc", description="Removes what is no longer needed.")
def gc_job() -> None:
    remove_unneeded()


nightly_gc = make_schedule(
    "nightly_gc",
    gc_job,
    _SETTINGS.gc_cron,
    "Removes old releases, versions and runs that the settings no longer keep.",
)


def _sync(root: DataRoot, namespace: str) -> Job:
    """Bring a namespace up to date and return its job in its final state; folders that are away and
    lists of URLs are skipped if they have no documents.
    """
    inputs: list[Input] = []
    for source in root.ledger.sources(namespace):
        is_there = source.kind == "folder" and Path(source.root).is_dir()
        may_come = source.kind in ("folder", "urls")
        if is_there or (may_come and _has_documents(root, namespace, source)):
            inputs += inputs_to_sync(root.ledger, namespace, source.name)
    started = start_ingest(
        inputs,
        namespace,
        root.workspace(namespace),
        ReceiveOptions(sync=True),
        wait=root.settings.jobs.lock_seconds,
    )
    return jobs.wait(started, root.ledger, root.store, policy=root.settings.jobs)


def _has_only_file_errors(job: Job, root: DataRoot) -> bool:
    """True if every failure of a job is a file that only a different file could mend."""
    failed = root.ledger.failed_job_items(job.job_id)
    return bool(failed) and all(item.code in NEEDS_ANOTHER_FILE for item in failed)


def _has_documents(root: DataRoot, namespace: str, source: Source) -> bool:
    return bool(root.ledger.documents(namespace, source=source.name, status="active"))


def _unfinished_requests(
    instance: dg.DagsterInstance, root: DataRoot, names: Collection[str]
) -> list[dg.RunRequest]:
    """Requests for versions that a killed run of these libraries did not process, repeated up to
    `max_attempts` times. After a cancelled run they wait until the folder changes.
    """
    unprocessed = {
        name: [version.version_id for version in root.ledger.find_wanted(name, "received")]
        for name in names
    }
    waiting = find_busy(instance, root.ledger, list(names)) if any(unprocessed.values()) else set()
    found: list[dg.RunRequest] = []
    for name in sorted(name for name in names if unprocessed[name] and name not in waiting):
        own = {NAMESPACE_TAG: name, _SENSOR: inbox.name}
        last = dg.RunsFilter(job_name=ingest_job.name, tags=own)
        if [run.status for run in instance.get_runs(last, limit=1)] == [_CANCELED]:
            continue
        for request in _ingest_requests(instance, unprocessed[name], name):
            key = ":".join((name, request.tags[RANGE_START], request.tags[RANGE_END]))
            keys = [f"{key}:{number}" for number in range(root.settings.jobs.max_attempts)]
            tried = instance.get_runs_count(dg.RunsFilter(tags={_RUN_KEY: keys}))
            if tried < len(keys):
                found.append(request.with_replaced_attrs(run_key=keys[tried]))
    return found


def _ingest_requests(
    instance: dg.DagsterInstance, version_ids: Sequence[str], namespace: str
) -> list[dg.RunRequest]:
    """One request per contiguous range of partition keys, including the keys about to be added."""
    ordered = list(
        dict.fromkeys(
            [*instance.get_dynamic_partitions(document_versions.name or ""), *version_ids]
        )
    )
    return [
        dg.RunRequest(
            job_name="ingest", tags={RANGE_START: first, RANGE_END: last, NAMESPACE_TAG: namespace}
        )
        for first, last in contiguous(ordered, set(version_ids))
    ]


def _is_due(context: dg.SensorEvaluationContext, root: DataRoot, namespace: str) -> bool:
    """True if a release of the namespace would differ from the published one and can be built."""
    try:
        if not is_behind_ledger(namespace, root):
            return False
        profile = stage_profiles(root.workspace(namespace).strategy)["embeddings"]
    except RagError as error:  # one namespace must not stop the others
        context.log.warning(f"{namespace}: {error.message}")
        return False
    stale = sum(1 for _ in stale_versions(root.ledger, namespace, profile))
    if stale:
        context.log.info(
            f"{namespace}: a release waits for {pluralise(stale, 'live version')} built under"
            f" another config (`rag rebuild --namespace {namespace}`)"
        )
    return not stale


def _run_key(instance: dg.DagsterInstance, root: DataRoot, namespace: str) -> str:
    """The run key of a release of what is live after the newest run; it changes, up to
    `max_attempts` times, when a release run was killed, and up to `_MAX_PASSING` times when one
    failed for what passes, so that it is requested again. Empty while the next such try is not due.
    """
    ended = instance.get_runs(dg.RunsFilter(statuses=_ENDED), limit=_MAX_RUNS)
    others = (run for run in ended if run.job_name != release_job.name)
    newest = next(
        (run.run_id for run in others if namespace_of_run(run, root.ledger) in (namespace, None)),
        "",
    )
    key = f"{release_inputs(namespace, root.workspace(namespace))}:{newest}"
    failed = instance.get_run_records(
        dg.RunsFilter(job_name=release_job.name, tags={NAMESPACE_TAG: namespace}, statuses=_ENDED)
    )
    tried = [it for it in failed if it.dagster_run.tags.get(_RUN_KEY, "").startswith(f"{key}:")]
    killed = sum(was_killed(it.dagster_run, root.ledger) for it in tried)
    passing = [it.end_time or 0.0 for it in tried if PASSING_TAG in it.dagster_run.tags]
    # a clock that was set back does not count
    if passing and 0 <= time.time() - max(passing) < _PASSING_SECONDS * 2 ** len(passing):
        return ""
    killed = min(killed, root.settings.jobs.max_attempts - 1)
    return f"{key}:{killed + min(len(passing), _MAX_PASSING - 1)}"


def _was_inbox(root: DataRoot, name: str) -> bool:
    """True if the library has this inbox folder as a source, possibly at the data root's
    old path.
    """
    return any(
        source.name == name and Path(source.root).parts[-2:] == (root.store.inbox_dir.name, name)
        for source in root.ledger.sources(name)
    )


def _snapshot(folder: Path) -> str:
    """A hash of the names, sizes and times of a folder's files."""
    rows = [
        (str(p.relative_to(folder)), s.st_size, s.st_mtime_ns)
        for p in sorted(folder.rglob("*"))
        if p.is_file() and (s := p.stat())
    ]
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:16]
