"""Starts jobs that process documents: an ingest of what is given, a rebuild of what is stale, a
retry of what failed; says what came of it.

Everything is received and written down before a job's process starts, so a job needs nothing from
who started it.
"""

from __future__ import annotations

import subprocess
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from rag_platform.config.profiles import stage_profiles, strategy_config_id
from rag_platform.config.settings import Settings, Strategy, load_strategy
from rag_platform.errors import BusyError, NotFoundError
from rag_platform.ingestion.batches import stale_versions
from rag_platform.intake.discovery import Input
from rag_platform.intake.downloading import is_url
from rag_platform.intake.receiving import (
    ReceiveOptions,
    Reception,
    check_namespace,
    given_up,
    left_alone,
    receive,
)
from rag_platform.ir import Json, Version
from rag_platform.ledger.ledger import Ledger
from rag_platform.ledger.schema import Job, JobItem, now
from rag_platform.observability import tracing
from rag_platform.processes import jobs
from rag_platform.releases import release_store as releases
from rag_platform.releases.publishing import is_behind_ledger, settle
from rag_platform.storage.store import Store, keep_config

DOCUMENT_JOBS = ("ingest", "rebuild")
_BAD_STATES = ("failed", "dead")
_SHOWN_NOTES = 20
_POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Started:
    """A job that was written down; `process` is None when there is nothing to do."""

    job: Job
    process: subprocess.Popen[bytes] | None


def start_ingest(
    inputs: Sequence[Input],
    namespace: str,
    *,
    settings: Settings,
    strategy: Strategy,
    store: Store,
    ledger: Ledger,
    options: ReceiveOptions,
    wait: float = 0.0,
) -> Started:
    """Receive files, URLs and contents, and launch the job that processes them; one with nothing to
    do is recorded as done at once.

    Raises BusyError, before anything is received, when another job still writes the namespace after
    `wait` seconds.
    """
    check_namespace(namespace)
    with _turn(namespace, "an ingest that receives files", settings, store, ledger, wait):
        settle(namespace, store, ledger)
        reception, trace_id = _received(
            inputs, namespace, settings, strategy, store, ledger, options
        )
        profile = stage_profiles(strategy)["embeddings"]
        told = {item.source_uri for item in reception.items}
        stale = _stale(
            ledger,
            namespace,
            profile,
            {item.version_id for item in reception.items if item.decision != "kept"},
        )
        version_ids = [
            *(item.version_id for item in stale if item.state == "queued"),
            *reception.to_process,
        ]
        release = bool(version_ids or reception.retired or reception.changed) or is_behind_ledger(
            namespace, settings, store, ledger
        )
        args = {
            "version_ids": version_ids,
            "forced": list(reception.forced),
            "release": release,
            "retired": list(reception.retired),
            **_refused(inputs, reception.items, options),
        }
        # what the files given do not name is told too, or its failure would stop the release
        # without a word
        items = [*reception.items, *(item for item in stale if item.source_uri not in told)]
        job = ledger.add_job("ingest", namespace, args, items)
        ledger.update_job(job.job_id, trace_id=trace_id)
    if release:
        return Started(job, jobs.launch(job, settings, store))
    failed = [item for item in items if item.state in _BAD_STATES]
    ledger.update_job(
        job.job_id,
        state="partly" if failed else "done",
        reason=jobs.failed_documents(failed, job.job_id) if failed else "",
        started_at=now(),
        ended_at=now(),
    )
    return Started(ledger.job(job.job_id), None)


def start_rebuild(
    namespace: str,
    *,
    settings: Settings,
    strategy: Strategy,
    store: Store,
    ledger: Ledger,
    full: bool = False,
    wait: float = 0.0,
) -> Started:
    """The launched job that rebuilds what the namespace's config left stale, moves it to
    `strategy`, and releases it.

    The release is built whole where the config asks for another index, or with `full`; the
    published one serves until the new one passed its checks. Vectors and stages that are known are
    reused. `planning.plan` tells before what this comes to. Raises BusyError when another job still
    writes the namespace after `wait` seconds.
    """
    if namespace not in ledger.namespaces():
        raise NotFoundError(
            f"unknown namespace {namespace!r}; `rag ingest --namespace {namespace}` makes it",
            code="unknown_namespace",
        )
    with _turn(namespace, "a rebuild that is planned", settings, store, ledger, wait):
        ledger.rebind_strategy(namespace, strategy.name, strategy_config_id(strategy))
        items = _stale(ledger, namespace, stage_profiles(strategy)["embeddings"])
        version_ids = [item.version_id for item in items if item.state == "queued"]
        job = ledger.add_job(
            "rebuild", namespace, {"version_ids": version_ids, "release": True, "full": full}, items
        )
    return Started(job, jobs.launch(job, settings, store))


@contextmanager
def _turn(
    namespace: str, owner: str, settings: Settings, store: Store, ledger: Ledger, wait: float
) -> Iterator[None]:
    """Hold the namespace's write lock while no job of it is open: one that was launched a moment
    ago may not hold it yet.

    Raises BusyError after `wait` seconds.
    """
    until = time.monotonic() + wait
    while True:
        with store.writer(namespace, owner, wait=max(0.0, until - time.monotonic())):
            jobs.end_orphans(ledger, settings.jobs.silent_seconds)
            ahead = [
                job for state in jobs.OPEN_STATES for job in ledger.jobs(namespace, 1, state=state)
            ]
            if not ahead:
                yield
                return
        if time.monotonic() >= until:
            told = f"{ahead[0].kind} job {ahead[0].job_id}, {ahead[0].state}"
            raise BusyError(
                f"namespace {namespace!r} is being written by {told}; try again when it has ended",
                job_id=ahead[0].job_id,
            )
        time.sleep(_POLL_SECONDS)


def _received(
    inputs: Sequence[Input],
    namespace: str,
    settings: Settings,
    strategy: Strategy,
    store: Store,
    ledger: Ledger,
    options: ReceiveOptions,
) -> tuple[Reception, str]:
    """What receiving decided, and the id of its trace."""
    with (
        tracing.trace(
            "ingestion",
            logs_dir=store.logs_dir,
            namespace=namespace,
            strategy_config_id=_config_id(strategy, store),
        ) as trace,
        tracing.span("stage.dedup", provider_type="store", provider_id="sha256") as span,
    ):
        reception = receive(
            inputs,
            namespace,
            strategy=strategy,
            settings=settings,
            store=store,
            ledger=ledger,
            options=options,
        )
        span.set(**Counter(item.decision for item in reception.items))
    return reception, trace.trace_id


def _stale(
    ledger: Ledger, namespace: str, profile: str, known: Collection[str] = ()
) -> list[JobItem]:
    """Live versions that another config built, but for the `known` ones; those that failed too
    often are told and left alone.
    """
    return [
        (
            left_alone(version)
            if given_up(version, profile)
            else JobItem(version.source_uri, version.doc_id, version.version_id, "continue")
        )
        for version in stale_versions(ledger, namespace, profile)
        if version.version_id not in known
    ]


def _config_id(strategy: Strategy, store: Store) -> str:
    """The strategy's id, under which its configuration is kept."""
    found = strategy_config_id(strategy)
    keep_config(store, found, strategy.model_dump(mode="json"))
    return found


# --- retries ------------------------------------------------------------------------------------


def start_retry(
    job_id: str, *, settings: Settings, store: Store, ledger: Ledger, wait: float = 0.0
) -> Started:
    """The launched job that does what a job left undone: its failed, dead, cancelled and
    unprocessed documents, then its release.

    A file that could not be received is received again from where it was. Jobs that process no
    documents are done anew. Raises NotFoundError `nothing_to_retry`; BusyError while the job is not
    over, or another one writes the namespace after `wait` seconds.
    """
    jobs.end_orphans(ledger, settings.jobs.silent_seconds)
    job = ledger.job(job_id)
    if job.state not in jobs.FINAL_STATES:
        raise BusyError(
            f"job {job_id} is {job.state}; wait for its end, or end it with `rag jobs cancel"
            f" {job_id}`",
            code="job_not_over",
        )
    if job.kind not in DOCUMENT_JOBS:
        return _anew(job, settings, store, ledger)
    with _turn(job.namespace, f"a retry of {job_id}", settings, store, ledger, wait):
        strategy = load_strategy(settings, ledger.namespaces().get(job.namespace), ingestion=True)
        before = ledger.job_items(job_id)
        items = _undone(before, job.namespace, stage_profiles(strategy)["embeddings"], ledger)
        inputs = _inputs(before, job, ledger)
        since = any(row.published_at > job.created_at for row in ledger.releases(job.namespace))
        undone = (
            job.state in ("failed", "cancelled") and bool(job.args.get("release")) and not since
        )
        release = undone or is_behind_ledger(job.namespace, settings, store, ledger)
        if not (items or inputs or release):
            raise NotFoundError(
                f"nothing to retry: every document of job {job_id} is done, was replaced or deleted"
                " since, or has no place to be read from",
                code="nothing_to_retry",
            )
        given: Json = job.args.get("options", {})
        options = ReceiveOptions(
            given.get("source"), tuple(given.get("tags", ())), given.get("metadata", {})
        )
        return _retry(job.namespace, items, inputs, settings, strategy, store, ledger, options, job)


def start_retry_all(
    namespace: str, *, settings: Settings, store: Store, ledger: Ledger, wait: float = 0.0
) -> Started:
    """The launched job that tries every document of a namespace again that failed or was given up,
    whatever job it was in.

    Raises NotFoundError `nothing_to_retry`, BusyError as `start_retry`.
    """
    check_namespace(namespace)
    if namespace not in ledger.namespaces():
        raise NotFoundError(f"unknown namespace {namespace!r}", code="unknown_namespace")
    with _turn(namespace, "a retry of all", settings, store, ledger, wait):
        strategy = load_strategy(settings, ledger.namespaces()[namespace], ingestion=True)
        bad = [
            JobItem(v.source_uri, v.doc_id, v.version_id, "continue")
            for v in ledger.versions(namespace)
            if v.status in _BAD_STATES
        ]
        items = _undone(bad, namespace, stage_profiles(strategy)["embeddings"], ledger)
        if not items:
            raise NotFoundError(
                f"nothing to retry: no document of namespace {namespace!r} failed",
                code="nothing_to_retry",
            )
        return _retry(
            namespace, items, (), settings, strategy, store, ledger, ReceiveOptions(), None
        )


def _retry(
    namespace: str,
    items: Sequence[JobItem],
    inputs: Sequence[Input],
    settings: Settings,
    strategy: Strategy,
    store: Store,
    ledger: Ledger,
    options: ReceiveOptions,
    of: Job | None,
) -> Started:
    """The launched job over versions that are in the ledger and inputs that are received now."""
    reception, trace_id = Reception(namespace, (), (), (), (), False), ""
    if inputs:
        reception, trace_id = _received(
            inputs, namespace, settings, strategy, store, ledger, options
        )
    told = {item.source_uri for item in reception.items}
    items = [item for item in items if item.source_uri not in told]
    version_ids = [*(item.version_id for item in items), *reception.to_process]
    ledger.revive(version_ids)
    earlier: Json = of.args if of else {}
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
        **_refused(inputs, reception.items, options),
    }
    job = ledger.add_job(of.kind if of else "ingest", namespace, args, [*reception.items, *items])
    ledger.update_job(job.job_id, trace_id=trace_id)
    return Started(job, jobs.launch(job, settings, store))


def _anew(job: Job, settings: Settings, store: Store, ledger: Ledger) -> Started:
    """A job that is done as a whole or not at all, launched once more."""
    if job.kind == "sync":
        raise NotFoundError(
            f"job {job.job_id} was a run of Dagster's job `sync`: launch that again in its UI, or"
            " use `rag ingest --sync`",
            code="nothing_to_retry",
        )
    if job.state == "done":
        raise NotFoundError(
            f"nothing to retry: job {job.job_id} ({job.kind}) is done", code="nothing_to_retry"
        )
    items = [
        JobItem(item.source_uri, item.doc_id, item.version_id, item.decision)
        for item in ledger.job_items(job.job_id)
    ]
    args = {key: value for key, value in job.args.items() if key != "run_id"}
    again = ledger.add_job(job.kind, job.namespace, {**args, "retry_of": job.job_id}, items)
    return Started(again, jobs.launch(again, settings, store))


def _undone(
    items: Iterable[JobItem], namespace: str, profile: str, ledger: Ledger
) -> list[JobItem]:
    """Those of a job's documents that are still wanted and not complete under the config as it is
    now.
    """
    documents = {
        document.doc_id: document for document in ledger.documents(namespace, status="active")
    }
    versions = {version.version_id: version for version in ledger.versions(namespace)}

    def open_still(item: JobItem) -> bool:
        document, version = documents.get(item.doc_id), versions.get(item.version_id)
        if document is None or version is None or item.state == "skipped":
            return False
        return item.version_id in (
            document.wanted_version,
            document.live_version,
        ) and not _complete(version, profile)

    return [
        JobItem(item.source_uri, item.doc_id, item.version_id, "continue")
        for item in items
        if item.version_id and open_still(item)
    ]


def _complete(version: Version, profile: str) -> bool:
    return version.status == "ready" and version.counts.get("profile") == profile


def _inputs(items: Iterable[JobItem], job: Job, ledger: Ledger) -> list[Input]:
    """Where the documents of a job that could not be received are read from."""
    roots = {
        source.name: Path(source.root)
        for source in ledger.sources(job.namespace)
        if source.kind == "folder"
    }
    places: Json = job.args.get("places", {})
    found: list[Input] = []
    for item in items:
        if item.version_id or item.state not in _BAD_STATES:
            continue
        source, _, relative = item.source_uri.partition("/")
        if is_url(item.source_uri):
            found.append(item.source_uri)
        elif item.source_uri in places:
            found.append(Path(places[item.source_uri]))
        elif source in roots:
            found.append(roots[source] / relative)
    return found


def _refused(inputs: Sequence[Input], items: Iterable[JobItem], options: ReceiveOptions) -> Json:
    """What a retry needs to receive the refused files again: where those lie that were named one by
    one, and how they were to be taken.
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


# --- what came of it ----------------------------------------------------------------------------


def ingest_data(job: Job, *, store: Store, ledger: Ledger, seconds: float) -> Json:
    """The `ingest` payload of the public contract, from a job in its final state."""
    items = ledger.job_items(job.job_id)
    failures = [
        {"source_uri": i.source_uri, "code": i.code, "reason": i.reason}
        for i in items
        if i.state in _BAD_STATES
    ]
    ignored = [
        {"source_uri": i.source_uri, "reason": i.reason} for i in items if i.decision == "ignored"
    ]
    landed = [i for i in items if i.state in ("done", "skipped")]
    release_id = releases.current(store, job.namespace)
    data: Json = {
        "job_id": job.job_id,
        "release_id": release_id,
        "new": sum(i.decision == "new" for i in landed),
        "new_versions": sum(i.decision == "new_version" for i in landed),
        "continued": sum(i.decision == "continue" for i in landed),
        "skipped": sum(i.decision == "skip" for i in landed),
        "retired": len(job.args.get("retired", [])),
        "kept": sum(i.decision == "kept" for i in items),
        "failed": len(failures),
        "unprocessed": sum(i.state in ("queued", "cancelled") for i in items),
        "ignored": len(ignored),
        "documents": [
            {
                "source_uri": i.source_uri,
                "doc_id": i.doc_id,
                "version_id": i.version_id,
                "decision": i.decision,
            }
            for i in landed
            if i.doc_id and i.decision != "ignored"
        ],
        "notes": [
            {"source_uri": i.source_uri, "decision": i.decision, "reason": i.reason}
            for i in items
            if i.reason and not i.code
        ],
        "failures": failures,
        "ignored_files": ignored,
        "warnings": job.result.get("warnings", []),
        "chunks": job.result.get("chunks", 0),
        "embeddings_computed": job.result.get("embeddings_computed", 0),
        "embeddings_reused": job.result.get("embeddings_reused", 0),
        "seconds": round(seconds, 3),
    }
    return {"markdown": _ingest_markdown(data, job), **data}


def _ingest_markdown(data: Json, job: Job) -> str:
    kinds = (
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
    told = (
        ", ".join(f"{data[kind]} {kind.replace('_', ' ')}" for kind in kinds if data[kind])
        or "nothing to do"
    )
    done = job.result.get("documents", 0)
    rate = f" (documents: {jobs.pace(done / data['seconds'])})" if done and data["seconds"] else ""
    lines = [f"{told}, in {data['seconds']:.1f} s{rate}."]
    if done:
        lines.append(
            f"{data['chunks']} chunks, {data['embeddings_computed']} embeddings computed,"
            f" {data['embeddings_reused']} reused."
        )
    lines += [f"- failed: {f['source_uri']}: [{f['code']}] {f['reason']}" for f in data["failures"]]
    notes = [
        f"- {note['decision'].replace('_', ' ')}: {note['source_uri']}: {note['reason']}"
        for note in data["notes"]
    ]
    lines += [
        *notes[:_SHOWN_NOTES],
        *([f"- and {len(notes) - _SHOWN_NOTES} more"] if len(notes) > _SHOWN_NOTES else []),
    ]
    reasons = Counter(_short_reason(item) for item in data["ignored_files"])
    lines += [f"- ignored: {count} ({reason})" for reason, count in reasons.most_common(10)]
    same = "Nothing changed: release" if job.result.get("release") else "Release"
    stands = f"{same} {data['release_id']} of namespace {job.namespace!r} is published."
    lines.append(stands if data["release_id"] else "Nothing is published.")
    return "\n".join(lines)


def _short_reason(item: Json) -> str:
    """Why a folder run left a file alone, so short that equal reasons count together."""
    suffix = PurePosixPath(item["source_uri"]).suffix
    return (
        f"no loader reads {suffix or 'such'} files"
        if item["reason"].startswith("no loader")
        else str(item["reason"])
    )
