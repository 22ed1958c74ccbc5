"""Brings a namespace's release up to date: start an ingest job, build and check a candidate, publish it, roll back.

The doors (command line, server, Dagster) call these; each keeps the ledger true to what lies on disk, disk first.
"""

from __future__ import annotations

import subprocess
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import PurePosixPath

from rag_platform import jobs
from rag_platform.config import Settings, Strategy, index_profile, load_strategy, stage_profiles, strategy_config_id, strategy_names
from rag_platform.documents.finding import Input
from rag_platform.documents.receiving import ReceiveOptions, Reception, receive
from rag_platform.errors import NotFoundError, ReleaseError
from rag_platform.indexes import release as releases
from rag_platform.indexes.embedding import estimate
from rag_platform.indexes.embedding_cache import EmbeddingCache
from rag_platform.indexes.ingesting import stale_versions, text_bytes
from rag_platform.indexes.manifest import CheckResult, Manifest, read_manifest
from rag_platform.ir import Json
from rag_platform.ledger import Ledger
from rag_platform.ledger_rows import Job, JobItem, Release
from rag_platform.ledger_tables import now
from rag_platform.observability import tracing
from rag_platform.store import Store


@dataclass(frozen=True, slots=True)
class Started:
    """An ingest that was received; `process` is None when there is nothing to do."""

    job: Job
    reception: Reception
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
) -> Started:
    """Receive files, URLs and contents, and launch the job that processes them; one with nothing to do is recorded as done at once."""
    with (
        tracing.trace("ingestion", logs_dir=store.logs_dir, namespace=namespace, strategy_config_id=strategy_config_id(strategy)) as trace,
        tracing.span("stage.dedup", provider_type="store", provider_id="sha256") as span,
    ):
        reception = receive(inputs, namespace, strategy=strategy, settings=settings, store=store, ledger=ledger, options=options)
        span.set(**Counter(item.decision for item in reception.items))
    queued = set(reception.to_process)
    profile = stage_profiles(strategy)["embeddings"]
    stale = [v for v in stale_versions(ledger, namespace, profile) if v.version_id not in queued]
    version_ids = [*(version.version_id for version in stale), *reception.to_process]
    told = {item.source_uri for item in reception.items}
    # what the files given do not name is told too, or its failure would stop the release without a word
    stale_items = [JobItem(v.source_uri, v.doc_id, v.version_id, "continue") for v in stale if v.source_uri not in told]
    release = bool(version_ids or reception.retired or reception.changed) or unfinished(namespace, settings, store, ledger)
    args = {"version_ids": version_ids, "forced": list(reception.forced), "release": release, "retired": list(reception.retired)}
    job = ledger.add_job("ingest", namespace, args, [*reception.items, *stale_items])
    ledger.update_job(job.job_id, trace_id=trace.trace_id)
    if not release:
        ledger.update_job(job.job_id, state="done", started_at=now(), ended_at=now())
        return Started(ledger.job(job.job_id), reception, None)
    return Started(job, reception, jobs.launch(job, settings, store))


def start_rebuild(namespace: str, *, settings: Settings, strategy: Strategy, store: Store, ledger: Ledger) -> Started:
    """The launched job that rebuilds what the namespace's config left stale, moves it to `strategy`, and builds its release anew.

    The published release serves until the new one passed its checks; vectors and stages that are known are reused.
    """
    if namespace not in ledger.namespaces():
        raise NotFoundError(f"unknown namespace {namespace!r}; `rag ingest --namespace {namespace}` makes it", code="unknown_namespace")
    ledger.rebind_strategy(namespace, strategy.name, strategy_config_id(strategy))
    stale = list(stale_versions(ledger, namespace, stage_profiles(strategy)["embeddings"]))
    items = [JobItem(version.source_uri, version.doc_id, version.version_id, "continue") for version in stale]
    version_ids = tuple(version.version_id for version in stale)
    job = ledger.add_job("rebuild", namespace, {"version_ids": list(version_ids), "release": True, "full": True}, items)
    return Started(job, Reception(namespace, tuple(items), version_ids, (), (), False), jobs.launch(job, settings, store))


def expected_seconds(version_ids: Sequence[str], *, settings: Settings, store: Store, ledger: Ledger) -> dict[str, float]:
    """Strategy to a rough number of seconds that embedding these versions takes, from measured rates; texts already known cost less."""
    size = sum(text_bytes(ledger.version(version_id)) for version_id in version_ids)
    expected = {}
    with EmbeddingCache(store.embeddings_path) as cache:
        for name in strategy_names(settings):
            strategy = load_strategy(settings, name)
            if strategy.builds_dense:
                expected[name] = estimate(size, strategy.embedding, cache, processes=settings.embedding_processes)
    return expected


def unfinished(namespace: str, settings: Settings, store: Store, ledger: Ledger) -> bool:
    """True when the published release does not hold exactly the live versions: a build was interrupted or rejected.

    After a rollback the newer release that holds them was published once; going forward again is the user's decision, not ours.
    """
    live = {version.version_id for _, version in ledger.live(namespace)}
    published = releases.current(store, namespace)
    if published is None:
        return bool(live)
    read = read_manifest(store.release_dir(namespace, published))
    if set(read.versions) == live:
        return False
    once_public = {row.release_id for row in ledger.releases(namespace) if row.published_at}
    newer = (m for m in releases.list_releases(store, namespace) if m.created_at > read.created_at and m.release_id in once_public)
    return not any(set(manifest.versions) == live for manifest in newer)


def build_candidate(
    namespace: str, *, settings: Settings, strategy: Strategy, store: Store, ledger: Ledger, full: bool = False
) -> tuple[Manifest, list[CheckResult]]:
    """The checked candidate of the live versions, recorded as `candidate` or, when a check failed, as `rejected`.

    It is made from the published release by delta, unless `full`.

    Raises ReleaseError when nothing is live, or a live version has no outputs for the strategy as it is now.
    """
    deletions = ledger.deletion_sequence(namespace)  # before what is live is read: one that comes between is hidden by readers
    live = ledger.live(namespace)
    profile = stage_profiles(strategy)["embeddings"]
    stale = [version for _, version in live if version.counts.get("profile") != profile]
    if stale:
        first = stale[0]
        remedy = f"it failed: [{first.code}] {first.reason}" if first.code else "run `rag ingest` on their source, or `rag rebuild`"
        raise ReleaseError(
            f"{len(stale)} live versions were built under another config, e.g. {first.version_id}; {remedy}", code="stale_versions"
        )
    releases.clean(store, namespace, settings.releases.keep)
    published = releases.current(store, namespace)
    release_id = f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:6]}"
    with (
        EmbeddingCache(store.embeddings_path) as cache,
        tracing.span("stage.upsert", provider_type="release", provider_id=strategy.encoding, profile_id=index_profile(strategy)) as span,
    ):
        manifest = releases.build(
            store, namespace, strategy, live, release_id=release_id, deletions=deletions, parent=published, cache=cache, full=full
        )
        span.set(release_id=release_id, parent=published, **manifest.counts)
        tracing.event("ingest.upsert_result", {"delta": manifest.delta, "failed_checks": [check.name for check in manifest.failures]})
    failed = [check for check in manifest.checks if not check.passed]
    ledger.put_release(
        Release(
            namespace=namespace,
            release_id=release_id,
            parent=published,
            state="rejected" if failed else "candidate",
            strategy=strategy.name,
            strategy_config_id=strategy_config_id(strategy),
            created_at=manifest.created_at,
            counts=dict(manifest.counts),
            reason="; ".join(f"{check.name}: {check.details}" for check in failed),
        )
    )
    return manifest, list(manifest.checks)


def newest_candidate(namespace: str, ledger: Ledger) -> str:
    """The release_id of the newest candidate. Raises NotFoundError when there is none, or only older ones than the published release."""
    for row in ledger.releases(namespace):
        if row.state == "published":
            break  # what was built before it is history: publishing that would silently go back
        if row.state == "candidate":
            return row.release_id
    raise NotFoundError(
        f"namespace {namespace!r} has no candidate to publish; materialise its catalog and indexes first", code="no_candidate"
    )


def publish_candidate(namespace: str, release_id: str, *, settings: Settings, store: Store, ledger: Ledger) -> Release:
    """The published release: the pointer is moved first, then the ledger says so, then old releases are dropped."""
    releases.publish(store, namespace, release_id)
    row = _record_current(namespace, release_id, ledger)
    releases.clean(store, namespace, settings.releases.keep)
    return row


def roll_back(namespace: str, to: str | None, *, store: Store, ledger: Ledger) -> Release:
    """The release that is published after going back to `to`, or to the one before the current."""
    return _record_current(namespace, releases.rollback(store, namespace, to), ledger)


def _record_current(namespace: str, release_id: str, ledger: Ledger) -> Release:
    rows = {row.release_id: row for row in ledger.releases(namespace)}
    for row in rows.values():
        if row.state == "published" and row.release_id != release_id:
            ledger.put_release(replace(row, state="retired"))
    published = replace(rows[release_id], state="published", published_at=now())
    ledger.put_release(published)
    return published


def ingest_data(job: Job, *, store: Store, ledger: Ledger, seconds: float) -> Json:
    """The `ingest` payload of the public contract, from a job in its final state."""
    items = ledger.job_items(job.job_id)
    failures = [{"source_uri": i.source_uri, "code": i.code, "reason": i.reason} for i in items if i.state == "failed"]
    ignored = [{"source_uri": i.source_uri, "reason": i.reason} for i in items if i.decision == "ignored"]
    landed = [i for i in items if i.state != "failed"]
    release_id = releases.current(store, job.namespace)
    data: Json = {
        "job_id": job.job_id,
        "release_id": release_id,
        "new": sum(i.decision == "new" for i in landed),
        "new_versions": sum(i.decision == "new_version" for i in landed),
        "continued": sum(i.decision == "continue" for i in landed),
        "skipped": sum(i.decision == "skip" for i in landed),
        "retired": len(job.args.get("retired", [])),
        "failed": len(failures),
        "ignored": len(ignored),
        "documents": [
            {"source_uri": i.source_uri, "doc_id": i.doc_id, "version_id": i.version_id, "decision": i.decision} for i in landed if i.doc_id
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
    kinds = ("new", "new_versions", "continued", "skipped", "retired", "failed", "ignored")
    told = ", ".join(f"{data[kind]} {kind.replace('_', ' ')}" for kind in kinds if data[kind]) or "nothing to do"
    done = job.result.get("documents", 0)
    rate = f" ({done / data['seconds']:.1f} documents a second)" if done and data["seconds"] else ""
    lines = [f"{told}, in {data['seconds']:.1f} s{rate}."]
    if done:
        lines.append(f"{data['chunks']} chunks, {data['embeddings_computed']} embeddings computed, {data['embeddings_reused']} reused.")
    lines += [f"- failed: {f['source_uri']}: [{f['code']}] {f['reason']}" for f in data["failures"]]
    reasons = Counter(_short_reason(item) for item in data["ignored_files"])
    lines += [f"- ignored: {count} ({reason})" for reason, count in reasons.most_common(10)]
    lines.append(
        f"Release {data['release_id']} of namespace {job.namespace!r} is published." if data["release_id"] else "Nothing is published."
    )
    return "\n".join(lines)


def _short_reason(item: Json) -> str:
    """Why a folder run left a file alone, so short that equal reasons count together."""
    suffix = PurePosixPath(item["source_uri"]).suffix
    return f"no loader reads {suffix or 'such'} files" if item["reason"].startswith("no loader") else str(item["reason"])
