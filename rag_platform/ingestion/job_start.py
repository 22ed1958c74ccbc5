"""Starts the jobs that process documents (ingest, rebuild, retry) and reports their outcome.

All inputs are received and recorded before a job's process starts, so the process needs nothing
from its caller.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from rag_platform.config.gates import read_gates
from rag_platform.config.profiles import stage_profiles, strategy_config_id
from rag_platform.errors import NEEDS_ANOTHER_FILE, SYNC_STOPPED, BusyError, NotFoundError
from rag_platform.ingestion.batches import stale_versions
from rag_platform.ingestion.rebuild_plan import find_lost
from rag_platform.intake.discovery import Input
from rag_platform.intake.fetching import is_url
from rag_platform.intake.receiving import (
    ReceiveOptions,
    Reception,
    check_namespace,
    given_up_item,
    is_given_up,
    receive,
)
from rag_platform.ir import Json, Version
from rag_platform.ledger.ledger import Ledger, new_job_id
from rag_platform.ledger.schema import Job, JobItem, now, range_of
from rag_platform.observability import tracing
from rag_platform.processes import jobs
from rag_platform.releases import release_store as releases
from rag_platform.releases.manifest import embedder_info
from rag_platform.releases.publishing import is_behind_ledger, settle
from rag_platform.text.wording import pluralise
from rag_platform.workspace import DataRoot, Workspace

DOCUMENT_JOBS = ("ingest", "rebuild")
_BAD_STATES = ("failed", "dead")
_SHOWN_NOTES = 20
_SHOWN_FILES = 3  # ignored files listed per reason
_POLL_SECONDS = 0.1
_NOTHING_RECEIVED = Reception("", (), (), (), (), False)


def start_ingest(
    inputs: Sequence[Input],
    namespace: str,
    workspace: Workspace,
    options: ReceiveOptions,
    *,
    wait: float = 0.0,
) -> jobs.Started:
    """Receive files, URLs and content, and launch the job that processes them. A job with nothing
    to do is recorded as done at once, unless it must clean up after a killed process.

    Before anything is received, it raises ConfigError if the strategy's embedder cannot be used as
    it is configured, and BusyError when another job still writes the namespace after `wait`
    seconds.
    """
    check_namespace(namespace)
    embedder_info(workspace.strategy)
    ledger = workspace.ledger
    with _hold(namespace, "an ingest that receives files", workspace, wait):
        settle(namespace, workspace)
        job_id = new_job_id()
        reception, trace_id = _receive(inputs, namespace, workspace, options, job_id)
        new = {item.version_id for item in reception.items if item.decision != "kept"}
        outdated = _stale_items(namespace, workspace)
        stale = [item for item in outdated if item.version_id not in new]
        version_ids = [
            *(item.version_id for item in stale if item.state == "queued"),
            *reception.to_process,
        ]
        renewed = {item.version_id for item in outdated}.intersection(version_ids)
        due = bool(reception.retired or reception.changed) or is_behind_ledger(namespace, workspace)
        release = due or bool(version_ids)
        args = {
            "version_ids": version_ids,
            "renewed": len(renewed.difference(reception.forced)),
            "forced": list(reception.forced),
            "release": release,
            "due": due,  # release even if every document fails
            "retired": list(reception.retired),
            "looked": list(reception.looked),
            "sync": options.sync,
            **_refused_places(inputs, reception.items, options),
        }
        # also list stale versions, so that a failure of theirs that stops the release is reported
        listed = {item.source_uri for item in reception.items}
        items = [*reception.items, *(item for item in stale if item.source_uri not in listed)]
        job = ledger.add_job("ingest", namespace, args, items, job_id)
        ledger.update_job(job.job_id, trace_id=trace_id)
    if release or jobs.left_runs_open(namespace, ledger):
        return jobs.launch(job, workspace.settings, workspace.store)
    state, reason = jobs.judge(job, ledger)
    ledger.update_job(
        job.job_id,
        state=state,
        reason=reason,
        result={"release": "nothing changed"},
        started_at=now(),
        ended_at=now(),
    )
    return jobs.Started(ledger.job(job.job_id), None)


def start_rebuild(
    namespace: str,
    workspace: Workspace,
    *,
    full: bool = False,
    wait: float = 0.0,
    args: Json | None = None,
) -> jobs.Started:
    """Bind the namespace to the workspace's strategy, and launch the job that rebuilds its stale
    versions and releases them.

    The release is built in full if the config needs another index, or with `full`; the published
    one serves until the new one has passed its checks. `rebuild_plan.plan` tells the work in
    advance; `args` are recorded with the job. Raises what `start_ingest` raises.
    """
    ledger, strategy = workspace.ledger, workspace.strategy
    embedder_info(strategy)
    workspace.bound_strategy(namespace)
    with _hold(namespace, "a rebuild that is planned", workspace, wait):
        ledger.rebind_strategy(namespace, strategy.name, strategy_config_id(strategy))
        items = _stale_items(namespace, workspace)
        items += map(_queued_item, find_lost(namespace, workspace))
        version_ids = [item.version_id for item in items if item.state == "queued"]
        own = {"version_ids": version_ids, "release": True, "full": full}
        job = ledger.add_job("rebuild", namespace, {**(args or {}), **own}, items)
    return jobs.launch(job, workspace.settings, workspace.store)


@contextmanager
def _hold(namespace: str, owner: str, root: DataRoot, wait: float) -> Iterator[None]:
    """Hold the namespace's write lock once none of its jobs is open; the lock alone is not enough,
    because a job just launched may not hold it yet. Raises BusyError after `wait` seconds, and
    ConfigError if the gates, which judge the release that follows, cannot be read.
    """
    read_gates()
    until = time.monotonic() + wait
    while True:
        with root.store.writer(namespace, owner, wait=max(0.0, until - time.monotonic())):
            jobs.end_orphans(root.ledger, root.settings.jobs)
            ahead = [
                job
                for state in jobs.OPEN_STATES
                for job in root.ledger.jobs(namespace, 1, state=state)
            ]
            if not ahead:
                yield
                return
        if time.monotonic() >= until:
            first = ahead[0]
            raise BusyError(
                f"library {namespace!r} is being written by {first.kind} job {first.job_id},"
                f" {first.state}; try again when it has ended",
                job_id=first.job_id,
            )
        time.sleep(_POLL_SECONDS)


def _receive(
    inputs: Sequence[Input],
    namespace: str,
    workspace: Workspace,
    options: ReceiveOptions,
    job_id: str,
) -> tuple[Reception, str]:
    """Receive the inputs; (the decisions, the id of the trace, which belongs to the future job)."""
    with (
        tracing.trace(
            "ingestion",
            logs_dir=workspace.store.logs_dir,
            namespace=namespace,
            job_id=job_id,
        ) as trace,
        tracing.span("stage.dedup", provider_type="store", provider_id="sha256") as span,
    ):
        workspace.describe(trace)
        reception = receive(inputs, namespace, workspace, options)
        span.set(**Counter(item.decision for item in reception.items))
        for item in reception.items:
            if item.version_id:
                decision = {
                    "doc_id": item.doc_id,
                    "version_id": item.version_id,
                    "decision": item.decision,
                }
                tracing.event("ingest.dedup_decision", decision)
    return reception, trace.trace_id


def _stale_items(namespace: str, workspace: Workspace) -> list[JobItem]:
    """Items of the live versions that another config built. Given-up versions are listed with the
    reason, but not queued.
    """
    return [
        given_up_item(version) if is_given_up(version, workspace) else _queued_item(version)
        for version in stale_versions(workspace.ledger, namespace, _profile(workspace))
    ]


def _profile(workspace: Workspace) -> str:
    """The profile of a completely built version."""
    return stage_profiles(workspace.strategy)["embeddings"]


def _queued_item(version: Version | JobItem) -> JobItem:
    return JobItem(version.source_uri, version.doc_id, version.version_id, "continue")


# --- retries ------------------------------------------------------------------------------------


def start_retry(
    job_id: str, root: DataRoot, *, wait: float = 0.0, source_uri: str | None = None
) -> jobs.Started:
    """Launch a job that does what another job left undone: its failed, dead, cancelled and
    unprocessed documents, or only `source_uri`, then its release. Files that need to be replaced
    before they can succeed are left out.

    A file that could not be received is received again from the same place. Jobs that process no
    documents are repeated as a whole. A job that still waits in a queue is cancelled first, because
    the queue may have lost it. Raises NotFoundError `nothing_to_retry`; BusyError while the job is
    running, or when another one still writes the namespace after `wait` seconds.
    """
    ledger = root.ledger
    jobs.end_orphans(ledger, root.settings.jobs)
    job_id = range_of(job_id) or job_id  # of a range, its whole job is retried
    job = ledger.job(job_id)
    if job.state not in jobs.FINAL_STATES and jobs.has_not_begun(job, ledger):
        job = jobs.cancel(job_id, ledger, root.settings.jobs)
    if job.state not in jobs.FINAL_STATES:
        raise BusyError(
            f"job {job_id} is {job.state}; wait for its end, or end it with `rag jobs cancel"
            f" {job_id}`",
            code="job_not_over",
        )
    if job.kind not in DOCUMENT_JOBS:
        return _repeat(job, root)
    with _hold(job.namespace, f"a retry of {job_id}", root, wait):
        workspace = root.workspace(job.namespace)
        before = [
            item
            for item in ledger.job_items(job_id)
            if source_uri in (None, item.source_uri) and item.code not in NEEDS_ANOTHER_FILE
        ]
        items = _list_undone(before, job.namespace, _profile(workspace), ledger)
        inputs = _inputs(before, job, ledger)
        since = any(row.published_at > job.created_at for row in ledger.releases(job.namespace))
        undone = (
            job.state in ("failed", "cancelled") and bool(job.args.get("release")) and not since
        )
        if not (items or inputs or undone or is_behind_ledger(job.namespace, root)):
            raise _nothing_to_retry(
                f"every document of job {job_id} is done, was replaced or deleted since, has no"
                " place to be read from, or fails again as it is; mend or replace a file or address"
                " that failed, or change the setting that its reason names, then ingest it again"
            )
        return _retry(job.namespace, items, workspace, inputs=inputs, of=job)


def start_retry_all(namespace: str, root: DataRoot, *, wait: float = 0.0) -> jobs.Started:
    """Launch a job that retries every failed or given-up document of a namespace, whichever job it
    failed in. Raises NotFoundError `nothing_to_retry`, and BusyError like `start_retry`.
    """
    check_namespace(namespace)
    root.bound_strategy(namespace)
    with _hold(namespace, "a retry of all", root, wait):
        workspace = root.workspace(namespace)
        bad = [_queued_item(v) for v in root.ledger.versions(namespace) if v.status in _BAD_STATES]
        items = _list_undone(bad, namespace, _profile(workspace), root.ledger)
        if not items:
            raise _nothing_to_retry(f"no document of library {namespace!r} failed")
        return _retry(namespace, items, workspace)


def _nothing_to_retry(why: str) -> NotFoundError:
    return NotFoundError(f"nothing to retry: {why}", code="nothing_to_retry")


def _retry(
    namespace: str,
    items: Sequence[JobItem],
    workspace: Workspace,
    *,
    inputs: Sequence[Input] = (),
    of: Job | None = None,
) -> jobs.Started:
    """Launch a job over `items`, which are in the ledger, and `inputs`, which are received first;
    `of` is the job that is retried.
    """
    ledger = workspace.ledger
    earlier: Json = of.args if of else {}
    given: Json = earlier.get("options", {})
    options = ReceiveOptions(
        source=given.get("source"),
        tags=tuple(given.get("tags", ())),
        metadata=given.get("metadata", {}),
    )
    reception, trace_id, new_id = _NOTHING_RECEIVED, "", new_job_id()
    if inputs:
        reception, trace_id = _receive(inputs, namespace, workspace, options, new_id)
    received = {item.source_uri for item in reception.items}
    items = [item for item in items if item.source_uri not in received]
    version_ids = [*(item.version_id for item in items), *reception.to_process]
    ledger.revive(version_ids)
    args = {
        "version_ids": version_ids,
        "forced": [
            version_id
            for version_id in (*earlier.get("forced", ()), *reception.forced)
            if version_id in version_ids
        ],
        "release": True,
        "full": bool(earlier.get("full")),
        "retry_of": of.job_id if of else "all",
        "looked": list(reception.looked),
        **_refused_places(inputs, reception.items, options),
    }
    items = [*reception.items, *items]
    job = ledger.add_job(of.kind if of else "ingest", namespace, args, items, new_id)
    ledger.update_job(job.job_id, trace_id=trace_id)
    return jobs.launch(job, workspace.settings, workspace.store)


def _repeat(job: Job, root: DataRoot) -> jobs.Started:
    """Launch a job of a kind that has no documents of its own again, as a whole."""
    if job.kind == "sync":
        raise NotFoundError(
            f"job {job.job_id} was a run of Dagster's job `sync`: launch that again in its UI, or"
            " use `rag ingest --sync`",
            code="nothing_to_retry",
        )
    if job.kind == "evaluate":
        raise NotFoundError(
            f"job {job.job_id} was an evaluation in Dagster: launch that again in its UI, or use"
            " `rag eval run`",
            code="nothing_to_retry",
        )
    if job.state == "done":
        raise _nothing_to_retry(f"job {job.job_id} ({job.kind}) is done")
    items = [
        JobItem(item.source_uri, item.doc_id, item.version_id, item.decision)
        for item in root.ledger.job_items(job.job_id)
    ]
    args = {key: value for key, value in job.args.items() if key != "run_id"}
    args["retry_of"] = job.job_id
    again = root.ledger.add_job(job.kind, job.namespace, args, items)
    return jobs.launch(again, root.settings, root.store)


def _list_undone(
    items: Iterable[JobItem], namespace: str, profile: str, ledger: Ledger
) -> list[JobItem]:
    """Items of the documents that are still wanted and not complete under the current config."""
    documents = {
        document.doc_id: document for document in ledger.documents(namespace, status="active")
    }
    versions = {version.version_id: version for version in ledger.versions(namespace)}

    def is_undone(item: JobItem) -> bool:
        document, version = documents.get(item.doc_id), versions.get(item.version_id)
        if document is None or version is None or item.state == "skipped":
            return False
        wanted = item.version_id in (document.wanted_version, document.live_version)
        return wanted and not version.is_complete(profile)

    return [_queued_item(item) for item in items if item.version_id and is_undone(item)]


def _inputs(items: Iterable[JobItem], job: Job, ledger: Ledger) -> list[Input]:
    """The paths and URLs of the documents that a job could not receive."""
    roots = {
        source.name: Path(source.root)
        for source in ledger.sources(job.namespace)
        if source.kind == "folder"
    }
    places: Json = job.args.get("places", {})
    found: list[Input] = []
    for item in items:
        if item.version_id or item.state not in _BAD_STATES or item.code in SYNC_STOPPED:
            continue
        source, _, relative = item.source_uri.partition("/")
        if is_url(item.source_uri):
            found.append(item.source_uri)
        elif item.source_uri in places:
            found.append(Path(places[item.source_uri]))
        elif source in roots:
            found.append(roots[source] / relative)
    return found


def _refused_places(
    inputs: Sequence[Input], items: Iterable[JobItem], options: ReceiveOptions
) -> Json:
    """The job arguments that let a retry receive refused files again: `places` (source_uri to the
    path the user gave) and `options`; empty without refused files.
    """
    refused = [item.source_uri for item in items if item.decision == "refused"]
    named = [str(path.expanduser().absolute()) for path in inputs if isinstance(path, Path)]
    places = {
        uri: path
        for uri in refused
        for path in named
        if path.endswith("/" + uri.removeprefix("files/"))
    }
    taken = {"source": options.source, "tags": list(options.tags), "metadata": options.metadata}
    return {"places": places, "options": taken} if refused else {}


# --- reports ------------------------------------------------------------------------------------


_COUNTS = (
    "new",
    "new_versions",
    "continued",
    "skipped",
    "retired",
    "kept",
    "failed",
    "unprocessed",
    "ignored",
)


def ingest_data(job: Job, root: DataRoot, seconds: float) -> Json:
    """The `ingest` payload of the public contract, from a job in its final state."""
    items = root.ledger.job_items(job.job_id)
    succeeded = [item for item in items if item.state in ("done", "skipped")]
    failed = [item for item in items if item.state in _BAD_STATES]
    lasting = jobs.find_told_before(job, failed, root.ledger)
    failed.sort(key=lambda item: item.source_uri in lasting)  # new failures first
    ignored = [item for item in items if item.decision == "ignored"]
    decisions = Counter(item.decision for item in succeeded)
    published = releases.current(root.store, job.namespace)
    data: Json = {
        "job_id": job.job_id,
        "release_id": published,
        "gone_back": bool(releases.list_newer(job.namespace, published, root.store, root.ledger)),
        "new": decisions["new"],
        "new_versions": decisions["new_version"],
        "continued": decisions["continue"],
        "skipped": decisions["skip"],
        "retired": len(job.args.get("retired", [])),
        "kept": sum(item.decision == "kept" for item in items),
        "failed": len(failed),
        "failed_before": len(lasting),  # of these: told by an earlier sync, and unchanged
        "unprocessed": sum(item.state in ("queued", "cancelled") for item in items),
        "ignored": len(ignored),
        "empty": job.kind == "ingest" and not items,  # no file was found
        "documents": [
            _pick(item, "source_uri", "doc_id", "version_id", "decision")
            for item in succeeded
            if item.doc_id and item.decision != "ignored"
        ],
        "notes": [
            _pick(item, "source_uri", "decision", "reason")
            for item in items
            if item.reason and not item.code
        ],
        "failures": [_pick(item, "source_uri", "code", "reason") for item in failed],
        "still_read": len(
            root.ledger.live(job.namespace, {item.doc_id for item in failed if item.doc_id})
        ),
        "ignored_files": [_pick(item, "source_uri", "reason") for item in ignored],
        "warnings": job.result.get("warnings", []),
        "chunks": job.result.get("chunks", 0),
        "embeddings_computed": job.result.get("embeddings_computed", 0),
        "embeddings_reused": job.result.get("embeddings_reused", 0),
        "published": job.result.get("release") == "published",
        "seconds": round(seconds, 3),
    }
    return {"markdown": _ingest_markdown(data, job), **data}


def _pick(item: JobItem, *names: str) -> Json:
    return {name: getattr(item, name) for name in names}


def _ingest_markdown(data: Json, job: Job) -> str:
    counts = [
        pluralise(data[kind], "new version")
        if kind == "new_versions"
        else f"{data[kind]} {kind.replace('_', ' ')}"
        for kind in _COUNTS
        if data[kind]
    ]
    done = job.result.get("documents", 0)
    rate = f" (documents: {jobs.pace(done / data['seconds'])})" if done and data["seconds"] else ""
    nothing = "no file was found" if job.kind == "ingest" else "no document changed"
    lines = [f"{', '.join(counts) or nothing}, in {data['seconds']:.1f} s{rate}."]
    if done:
        lines.append(
            f"{pluralise(data['chunks'], 'chunk')},"
            f" {pluralise(data['embeddings_computed'], 'embedding')} computed,"
            f" {data['embeddings_reused']} reused."
        )
    new = len(data["failures"]) - data["failed_before"]
    lines += [
        f"- failed{' as before' if place >= new else ''}: {f['source_uri']}: [{f['code']}]"
        f" {f['reason']}"
        for place, f in enumerate(data["failures"])
    ]
    if (still := data["still_read"]) and not data["gone_back"]:
        lines.append(f"Of {pluralise(still, 'failed file')} the version before is still read.")
    lines += [
        f"- {note['decision'].replace('_', ' ')}: {note['source_uri']}: {note['reason']}"
        for note in data["notes"][:_SHOWN_NOTES]
    ]
    if len(data["notes"]) > _SHOWN_NOTES:
        lines.append(f"- and {len(data['notes']) - _SHOWN_NOTES} more")
    reasons: dict[str, list[str]] = {}
    for item in data["ignored_files"]:
        reasons.setdefault(_short_reason(item), []).append(item["source_uri"])
    for reason, uris in sorted(reasons.items(), key=lambda kept: -len(kept[1]))[:10]:
        named = ", ".join([*uris[:_SHOWN_FILES], *(["..."] if uris[_SHOWN_FILES:] else [])])
        lines.append(f"- ignored: {len(uris)} ({reason}): {named}")
    unchanged = job.result.get("release") == "nothing changed"
    same = "Nothing changed: release" if unchanged else "Release"
    published = f"{same} {data['release_id']} of library {job.namespace!r} is published."
    lines.append(published if data["release_id"] else "Nothing is published.")
    if data["gone_back"]:
        lines.append(
            "It is an earlier one, which a rollback published: it stays until a document changes or"
            f" `rag releases forward --namespace {job.namespace}`."
        )
    return "\n".join(lines)


def _short_reason(item: Json) -> str:
    """Why a file was ignored, without details that differ between files, for grouping."""
    if not item["reason"].startswith("no loader"):
        return str(item["reason"])
    minified = "minified " if ", minified)" in item["reason"] else ""
    return f"no loader reads {minified}{PurePosixPath(item['source_uri']).suffix or 'such'} files"
