"""What runs without being asked: the inbox sensor, the release of what runs changed, and the
nightly schedule.
"""

import hashlib
import json
from collections.abc import Collection, Sequence
from pathlib import Path

import dagster as dg

from rag_platform.assets.partitions import (
    NAMESPACE_TAG,
    RANGE_END,
    RANGE_START,
    contiguous,
    document_versions,
    namespaces,
)
from rag_platform.assets.release import RELEASE_JOB
from rag_platform.assets.resources import Platform
from rag_platform.assets.runs import (
    busy,
    concerns,
    end_orphans,
    explain_backfills,
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
from rag_platform.releases.release_store import current
from rag_platform.text.plurals import pluralise
from rag_platform.workspace import DataRoot

_CANCELED = dg.DagsterRunStatus.CANCELED
_ENDED = [dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, _CANCELED]
_RUNS_LOOKED_AT = 50
# Dagster's tags of a run that a sensor asked for: its key, and the sensor
_RUN_KEY, _SENSOR = "dagster/run_key", "dagster/sensor_name"

ingest_job = dg.define_asset_job(
    "ingest",
    # the checks are logged for documents that have something to check; planned for all, the others'
    # would be shown as missing
    selection=dg.AssetSelection.assets(*INGESTION_STAGES).without_checks(),
    description="The seven stages for a range of document versions.",
)
release_job = dg.define_asset_job(
    RELEASE_JOB,
    # canaries are asked by what publishes, and drift is a matter of time, not of releases
    selection=dg.AssetSelection.assets(
        "catalog", "lexical_index", "dense_index", "published_release"
    )
    - dg.AssetSelection.checks_for_assets("published_release"),
    description="Build, check and publish a library's release.",
)


@dg.sensor(
    jobs=[ingest_job, release_job],
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
    """Run requests for what changed in the inbox since the last tick."""
    root = platform.root
    there = sorted(p for p in root.store.inbox_dir.glob("*") if not p.name.startswith("."))
    folders = {p.name: _snapshot(p) for p in there if p.is_dir()}
    before = json.loads(context.cursor or "{}")
    changed = [name for name, mark in folders.items() if before.get(name) != mark]
    requests = _unfinished_requests(context.instance, root, folders.keys() - {*changed})
    keys: list[str] = []
    problems = [
        f"{p.name} lies outside the folders of the inbox, each of which is a library"
        for p in there
        if p.is_file()
    ]
    received: list[str] = []
    for name in changed:
        options = ReceiveOptions(
            sync=True,
            settle_seconds=root.settings.inbox_settle_seconds,
            moved=_was_inbox(root, name),
        )
        try:
            reception = receive([root.store.inbox_dir / name], name, root.workspace(name), options)
        # one folder must never stop the others; without its mark it is tried again at the next tick
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
        if (reception.retired or reception.changed) and not reception.to_process:
            requests.append(
                dg.RunRequest(job_name="release", partition_key=name, tags={NAMESPACE_TAG: name})
            )
    for problem in problems:
        context.log.warning(problem)
    held = (
        "what changed is held already"
        if changed
        else f"nothing changed in {pluralise(len(folders), 'folder')} of {root.store.inbox_dir}"
    )
    skip = None if requests else dg.SkipReason("; ".join(problems) or held)
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
    """A release run for every namespace that some run left ahead of its release, whatever that run
    was called and however it ended.

    What is due is read off the ledger and the published release, so nothing is missed while the
    daemon is away, and the runs of a backfill come to one release.
    """
    root = platform.root
    end_orphans(context.instance, root.ledger, root.settings.jobs)
    mark = root.ledger.mark()
    if context.cursor == mark:
        return dg.SkipReason("nothing was written since nothing was due")
    names = list(root.ledger.namespaces())
    waiting = busy(context.instance, root.ledger, names)
    # an open backfill keeps its namespaces waiting, so a tick follows its end
    explain_backfills(context.instance, root.ledger)
    due = [name for name in names if name not in waiting and _is_due(context, root, name)]
    context.instance.add_dynamic_partitions(namespaces.name or "", due)
    requests = [
        dg.RunRequest(
            partition_key=name,
            run_key=_run_key(context.instance, root, name),
            tags={NAMESPACE_TAG: name},
        )
        for name in due
    ]
    if requests or waiting:
        return dg.SensorResult(
            run_requests=requests,
            skip_reason=None if requests else dg.SkipReason(f"busy: {', '.join(waiting)}"),
        )
    return dg.SensorResult(
        cursor=mark, skip_reason=dg.SkipReason("every release holds what is live")
    )


@dg.op(
    description=(
        "Syncs every source of every library and rebuilds what another config left stale; each"
        " library is a job of the ledger."
    )
)
def sync_sources(context: dg.OpExecutionContext, platform: Platform) -> None:
    """What is due in every namespace, done one after the other; fails at its end when a namespace
    could not be brought up to date.
    """
    problems: list[str] = []
    root = platform.root
    with record_job(context, root.ledger, "sync", ""):
        for namespace in root.ledger.namespaces():
            try:
                job = _sync(context, root, namespace)
            except RagError as error:  # one namespace must never stop the others
                problems.append(f"{namespace}: [{error.code}] {error.message}")
                continue
            said = f"{namespace}: job {job.job_id} is {job.state}. {job.reason}"
            if job.state == "done":
                context.log.info(said)
            elif job.state == "partly" and _lies_in_files(job, root):
                context.log.warning(said)
            else:
                problems.append(said)
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
    description=(
        "Syncs every folder and list of URLs, rebuilds what another config left stale, releases."
    ),
)
def nightly(_context: dg.ScheduleEvaluationContext) -> dg.RunRequest:
    """The run of the night; nothing is hashed or fetched in the tick itself."""
    return dg.RunRequest()


def _sync(context: dg.OpExecutionContext, root: DataRoot, namespace: str) -> Job:
    """The job that brought a namespace up to date, in its final state; folders that are away are
    left alone.
    """
    inputs: list[Input] = []
    for source in root.ledger.sources(namespace):
        if source.kind == "folder" and not Path(source.root).is_dir():
            context.log.warning(
                f"{namespace}: the folder of source {source.name!r} is away; its documents stay as"
                " they are"
            )
        elif source.kind == "folder" or _has_urls(root, namespace, source):
            inputs += inputs_to_sync(root.ledger, namespace, source.name)
    started = start_ingest(
        inputs,
        namespace,
        root.workspace(namespace),
        ReceiveOptions(sync=True),
        wait=root.settings.jobs.lock_seconds,
    )
    if started.process is None:
        return started.job
    policy = root.settings.jobs
    return jobs.wait(started.job.job_id, started.process, root.ledger, root.store, policy=policy)


def _lies_in_files(job: Job, root: DataRoot) -> bool:
    """True where all that failed in a job are files that cannot be read as they are."""
    failed = root.ledger.failed_job_items(job.job_id)
    return bool(failed) and all(item.code in NEEDS_ANOTHER_FILE for item in failed)


def _has_urls(root: DataRoot, namespace: str, source: Source) -> bool:
    return source.kind == "urls" and bool(
        root.ledger.documents(namespace, source=source.name, status="active")
    )


def _unfinished_requests(
    instance: dg.DagsterInstance, root: DataRoot, names: Collection[str]
) -> list[dg.RunRequest]:
    """Requests for what a run of these libraries was to process and did not, because it was killed;
    each as often as a document is tried. What somebody cancelled waits until its folder changes.
    """
    left = {
        name: [version.version_id for version in root.ledger.find_received(name)] for name in names
    }
    waiting = busy(instance, root.ledger, list(names)) if any(left.values()) else set()
    found: list[dg.RunRequest] = []
    for name in sorted(name for name in names if left[name] and name not in waiting):
        own = {NAMESPACE_TAG: name, _SENSOR: inbox.name}
        last = dg.RunsFilter(job_name=ingest_job.name, tags=own)
        if [run.status for run in instance.get_runs(last, limit=1)] == [_CANCELED]:
            continue
        for request in _ingest_requests(instance, left[name], name):
            key = ":".join((name, request.tags[RANGE_START], request.tags[RANGE_END]))
            keys = [f"{key}:{number}" for number in range(root.settings.jobs.max_attempts)]
            tried = instance.get_runs_count(dg.RunsFilter(tags={_RUN_KEY: keys}))
            if tried < len(keys):
                found.append(request.with_replaced_attrs(run_key=keys[tried]))
    return found


def _ingest_requests(
    instance: dg.DagsterInstance, version_ids: Sequence[str], namespace: str
) -> list[dg.RunRequest]:
    """One request per unbroken range of partition keys, counting the keys about to be added."""
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
    """True when a release of the namespace would differ from the published one and can be built."""
    try:
        if not is_behind_ledger(namespace, root):
            return False
        profile = stage_profiles(root.workspace(namespace).strategy)["embeddings"]
    except RagError as error:  # one namespace must never stop the others
        context.log.warning(f"{namespace}: {error.message}")
        return False
    stale = sum(1 for _ in stale_versions(root.ledger, namespace, profile))
    if stale:
        context.log.info(
            f"{namespace}: a release waits for {pluralise(stale, 'live version')} built under"
            " another config (`rag rebuild`)"
        )
    return not stale


def _run_key(instance: dg.DagsterInstance, root: DataRoot, namespace: str) -> str:
    """The key of the release of what is live after the newest run; one that was killed is asked for
    again, as often as a document is tried.
    """
    live = {version.version_id: version.edition for _, version in root.ledger.live(namespace)}
    ended = instance.get_runs(dg.RunsFilter(statuses=_ENDED), limit=_RUNS_LOOKED_AT)
    others = (run for run in ended if run.job_name != release_job.name)
    newest = next(
        (run.run_id for run in others if concerns(run, root.ledger) in (namespace, None)), ""
    )
    profiles = stage_profiles(root.workspace(namespace).strategy)
    parts = [namespace, live, profiles, current(root.store, namespace), newest]
    digest = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
    key = f"{namespace}:{digest[:16]}"
    failed = instance.get_runs(
        dg.RunsFilter(job_name=release_job.name, tags={NAMESPACE_TAG: namespace}, statuses=_ENDED)
    )
    lost = sum(
        run.tags.get(_RUN_KEY, "").startswith(f"{key}:") and was_killed(run, root.ledger)
        for run in failed
    )
    return f"{key}:{min(lost, root.settings.jobs.max_attempts - 1)}"


def _was_inbox(root: DataRoot, name: str) -> bool:
    """True where the source of an inbox folder is one, though of a data root that lay elsewhere."""
    return any(
        source.name == name and Path(source.root).parts[-2:] == (root.store.inbox_dir.name, name)
        for source in root.ledger.sources(name)
    )


def _snapshot(folder: Path) -> str:
    """A mark of a folder's files, their sizes and times; changes when any of them does."""
    rows = [
        (str(p.relative_to(folder)), s.st_size, s.st_mtime_ns)
        for p in sorted(folder.rglob("*"))
        if p.is_file() and (s := p.stat())
    ]
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:16]
