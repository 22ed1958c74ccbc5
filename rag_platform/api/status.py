"""The state of the installation and of each namespace, without absolute paths and secrets."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from typing import Any, cast

from rag_platform import access
from rag_platform.api.documents import open_with_published
from rag_platform.api.envelopes import fill_shape, without_paths
from rag_platform.caching import sum_figures
from rag_platform.config.gates import find_gate_problems
from rag_platform.config.profiles import stage_profiles
from rag_platform.config.settings import Settings
from rag_platform.config.strategies import load_strategy, strategy_names
from rag_platform.contract.markdown_views import collections_markdown, status_markdown
from rag_platform.contract.schema import (
    CollectionPart,
    CollectionsData,
    FaultStatus,
    JobStatus,
    NamespaceStatus,
    ServerStatus,
    StatusData,
)
from rag_platform.errors import NEEDS_ANOTHER_FILE, ConfigError, IntegrityError, RagError
from rag_platform.indexes.catalog_tables import SCHEMA_VERSION as CATALOG_SCHEMA
from rag_platform.ir import Json
from rag_platform.ledger.ledger import Ledger, open_ledger
from rag_platform.ledger.schema import Job
from rag_platform.ledger.servers import is_silent, server_id
from rag_platform.ledger.tables import SCHEMA_VERSION as LEDGER_SCHEMA
from rag_platform.observability import faults
from rag_platform.observability.build import build_info
from rag_platform.observability.logs import LOG_SCHEMA_VERSION
from rag_platform.processes.jobs import OPEN_STATES, as_it_stands
from rag_platform.releases.deletion import name_purge
from rag_platform.releases.manifest import lacks_verdict
from rag_platform.releases.release_store import list_newer
from rag_platform.releases.stored_artifacts import read_record
from rag_platform.retrieval.library import Lease, Library
from rag_platform.retrieval.namespaces import choose_namespaces, known_namespaces
from rag_platform.storage.records import SCHEMA_VERSION as STORE_SCHEMA
from rag_platform.storage.store import Store

_STARTED = time.monotonic()
_SHOWN_FAILURES = 5


def status(library: Library, others: Sequence[Json] = (), *, serving: bool = True) -> StatusData:
    """The state of every visible namespace and of the installation.

    `others` are the `cache_figures` of the server's other processes, which are added to those of
    this one. Caches and running questions are included only for a server (`serving`).
    """
    caller, store = access.current(), library.store
    no_ledger = why_no_ledger(store)
    names = library.namespaces() if no_ledger else known_namespaces(library)
    rows = [it for it in (_namespace_status(library, name) for name in names) if _is_in_use(it[0])]
    data: StatusData = {
        "markdown": "",
        "app_version": build_info()["app_version"],
        "default_namespace": caller.default_namespace(library.settings.default_namespace),
        "default_strategy": library.settings.default_strategy,
        "strategies": strategy_names(library.settings),
        "schema_versions": {
            "store": STORE_SCHEMA,
            "ledger": LEDGER_SCHEMA,
            "catalog": CATALOG_SCHEMA,
            "logs": LOG_SCHEMA_VERSION,
        },
        "uptime_seconds": round(time.monotonic() - _STARTED, 1),
        "namespaces": [row for row, _ in rows],
    }
    data["jobs"] = [] if no_ledger else _jobs(library, names)
    data["ledger_problem"] = no_ledger
    if store.remote is not None and not no_ledger:
        with closing(open_ledger(store)) as ledger:
            data["servers"] = servers_data(library.settings, ledger, server_id(store))
    data["problems"] = [*_list_problems(data), *(it for _, problems in rows for it in problems)]
    if serving:
        caches: Any = {
            name: sum_figures([own, *(other[name] for other in others)])
            for name, own in library.cache_figures().items()
        }
        data["caches"], data["running_queries"] = caches, library.load.running
    if caller.namespaces is None:
        data["problems"] += find_gate_problems(lambda: names)
        if found := faults.summary(store.logs_dir):
            data["unexpected_errors"] = cast(FaultStatus, found)
    data["markdown"] = status_markdown(data)
    return data


def _list_problems(data: StatusData) -> Iterator[str]:
    """What is wrong with the ledger, the namespaces, their documents and their jobs."""
    rows = data["namespaces"]
    if data["ledger_problem"]:
        yield data["ledger_problem"]
    yield from (f"{row['namespace']}: {row['problem']}" for row in rows if row["problem"])
    yield from (
        f"{row['namespace']}: {it['source_uri']} could not be brought up to date, so what was read"
        f" before still answers: {it['reason']}"
        if it["still_read"]
        else f"{row['namespace']}: {it['source_uri']} could not be added: {it['reason']}"
        for row in rows
        for it in row["failures"]
    )
    yield from (
        f"{row['namespace']}: and {more} more failed; `rag docs list --filter status=failed"
        f" --namespace {row['namespace']}` lists all"
        for row in rows
        if (more := row["failed"] - len(row["failures"])) > 0 and row["failures"]
    )
    told = {row["namespace"] for row in rows if _tells_failures(row)}
    for it in data["jobs"]:
        if it["state"] == "failed" or (it["state"] == "partly" and it["namespace"] not in told):
            yield (
                f"{it['namespace']}: job {it['job_id']} ({it['kind']}) {it['state']}:"
                f" {it['reason']}"
            )


def _tells_failures(row: NamespaceStatus) -> bool:
    """True if all failures of a namespace are listed, and a job could not add how to retry them."""
    codes = {it["reason"].removeprefix("[").partition("]")[0] for it in row["failures"]}
    return row["failed"] == len(row["failures"]) > 0 and codes <= NEEDS_ANOTHER_FILE


def _release_problems(library: Library, lease: Lease) -> Iterator[str]:
    """Warnings about a published release: questions cannot be asked by its strategy's file or with
    this ledger, or a gate has not judged it, or it fails one.
    """
    namespace, manifest = lease.namespace, lease.release.manifest
    try:
        library.query_strategy(lease)
        library.hidden_names(lease)
    except (ConfigError, IntegrityError) as error:
        yield f"{namespace}: no question can be answered: {without_paths(error.message)}"
    remedy = f"; `rag rebuild --namespace {namespace}` asks them, after a rollback with --full"
    with suppress(ConfigError):  # `find_gate_problems` reports it
        if lacks_verdict(manifest, library.current_strategy(lease.strategy)):
            yield (
                f"{namespace}: gates.yaml, a dataset or strategy {manifest.strategy!r} has changed"
                f" since its gates judged release {lease.release_id}, which is asked as they judged"
                f" it{remedy}"
                if manifest.gates
                else f"{namespace}: its gates have not judged release {lease.release_id}{remedy}"
            )
    if manifest.failed_gates:
        yield (
            f"{namespace}: release {lease.release_id} is published though the gate fails it;"
            f" `rag releases show --namespace {namespace}` says why: mend the documents, or drop an"
            f" expectation that no longer holds (`rag expect remove CASE --namespace {namespace}`)"
            f" and let it judge again (`rag rebuild --full --namespace {namespace}`)"
        )


def why_no_ledger(store: Store) -> str:
    """Why the ledger cannot be opened; empty if it can or there is none yet."""
    if not store.has_ledger():
        return ""
    try:
        open_ledger(store).close()
    except RagError as error:
        return error.message
    return ""


def servers_data(settings: Settings, ledger: Ledger, own: str = "") -> list[ServerStatus]:
    """The servers recorded in the ledger; `own` is the id of this one."""
    waiting = Counter(server.server_id for _, server in ledger.find_unacknowledged())
    return [
        {
            "server": server.server_id,
            "host": server.host,
            "releases": dict(server.releases),
            "seen_at": server.seen_at,
            "gone": is_silent(server, settings.blobs.silent_seconds),
            "unacknowledged": waiting[server.server_id],
            "here": server.server_id == own,
        }
        for server in ledger.servers()
    ]


def _find_unpurged(store: Store, ledger: Ledger, namespace: str) -> Iterator[str]:
    """A warning for each hard deletion that stopped before everything was purged."""
    if any(job.kind in ("delete", "gc") for job in ledger.open_jobs()):
        return
    for tombstone in ledger.tombstones(namespace):
        if tombstone.mode != "hard":
            continue
        record = read_record(store, namespace, tombstone.sequence)
        if record is not None and not record.purged_at:
            command = name_purge(namespace, tombstone.doc_id, tombstone.version_id)
            yield f"{namespace}: a hard deletion is not finished: `{command}` goes on with it"


def _compare_with_ledger(
    store: Store, found: NamespaceStatus, namespace: str, release_id: str
) -> Iterator[str]:
    """Warnings where a rollback published an earlier release than the newest one, or the ledger
    does not know the published one; none where publications are `behind`, which is set.
    """
    with closing(open_ledger(store)) as ledger:
        if store.remote is not None:
            found["behind"] = _count_behind(namespace, release_id, ledger)
        if found.get("behind"):
            return
        known = ledger.release(namespace, release_id)
        newer = list_newer(namespace, release_id, store, ledger)
    if known is None:
        yield (
            f"{namespace}: the ledger does not know release {release_id}, which is read: it is an"
            " older copy or another one; put the newest back, or the next release lacks what came"
            " since"
        )
    elif newer:
        yield (
            f"{namespace}: since a rollback the earlier release {release_id} is read instead of"
            f" {newer[0].release_id}; `rag releases forward --namespace {namespace}` undoes that"
        )


def _count_behind(namespace: str, read: str, ledger: Ledger) -> int:
    """How many releases were published after the one that this server reads."""
    rows, published = ledger.releases(namespace), ledger.read_published(namespace)
    if not published or read in published:
        return 0
    public = [row.release_id for row in rows if row.published_at]
    return max(1, public.index(read)) if read in public else len(public)


def list_collections(library: Library) -> CollectionsData:
    """The published libraries, and those that a question without a namespace searches."""
    data: CollectionsData = {
        "markdown": "",
        "default": list(choose_namespaces(library)),
        "collections": [_collection(library, name) for name in library.namespaces()],
    }
    data["markdown"] = collections_markdown(data)
    return data


def _collection(library: Library, namespace: str) -> CollectionPart:
    found, _ = _namespace_status(library, namespace)
    languages: dict[str, float] = {}
    if not found["problem"]:
        with library.lease(namespace) as lease:
            shares = lease.languages()
        languages = {name: round(share, 2) for name, share in shares.items() if name}
    return fill_shape(
        CollectionPart, found, release_id=found["release_id"] or "", languages=languages
    )


def _jobs(library: Library, names: Sequence[str]) -> list[JobStatus]:
    """The open jobs, and the newest one of each namespace."""
    if not library.store.has_ledger():
        return []
    with closing(open_ledger(library.store)) as ledger:
        found = {
            job.job_id: job
            for name in names
            for job in (
                *ledger.jobs(name, 1),
                *(job for state in OPEN_STATES for job in ledger.jobs(name, state=state)),
            )
        }
        stands = [as_it_stands(job, ledger, library.settings.jobs) for job in found.values()]
    return [fill_shape(JobStatus, job, reason=str(without_paths(_verdict(job)))) for job in stands]


def _verdict(job: Job) -> str:
    """The first line of a job's reason, and the command that shows the report if one follows."""
    first, _, report = job.reason.partition("\n")
    return f"{first}; `rag jobs show {job.job_id}` shows the report" if report else first


def _is_in_use(row: NamespaceStatus) -> bool:
    """False for a library without releases, documents and problems."""
    return bool(row["release_id"] or row["pending"] or row["failed"] or row["problem"])


def _count_stale(namespace: str, settings: Settings, ledger: Ledger) -> int:
    """The number of live documents that the next ingest would build anew; 0 if the strategy cannot
    be used.
    """
    with suppress(RagError):
        strategy = load_strategy(settings, ledger.namespaces().get(namespace), ingestion=True)
        return ledger.count_stale(namespace, stage_profiles(strategy)["embeddings"])
    return 0


def _namespace_status(library: Library, namespace: str) -> tuple[NamespaceStatus, list[str]]:
    """(the state of a namespace, the problems of its published release)."""
    problems: list[str] = []
    found: NamespaceStatus = {
        "namespace": namespace,
        "release_id": None,
        "published_at": "",
        "documents": 0,
        "chunks": 0,
        "strategy": "",
        "strategy_config_id": "",
        "encoding": "",
        "embedder": "",
        "pending": 0,
        "stale": 0,
        "failed": 0,
        "failures": [],
        "problem": "",
    }
    try:
        with open_with_published(library, namespace) as (ledger, published):
            found["pending"] = ledger.count_waiting(namespace, published)
            found["stale"] = _count_stale(namespace, library.settings, ledger)
            found["failed"], failures = ledger.document_problems(
                namespace, published, _SHOWN_FAILURES
            )
            problems += _find_unpurged(library.store, ledger, namespace)
        found["failures"] = [
            {
                "source_uri": str(without_paths(uri)),
                "reason": str(without_paths(reason)),
                "still_read": still_read,
            }
            for uri, reason, still_read in failures
        ]
        if library.store.current_path(namespace).is_file():
            with library.lease(namespace) as lease:
                manifest = lease.release.manifest
                problems += _release_problems(library, lease)
            found["release_id"], found["published_at"] = manifest.release_id, manifest.created_at
            found["documents"] = int(manifest.counts["documents"])
            found["chunks"] = int(manifest.counts["chunks"])
            found["strategy"] = manifest.strategy
            found["strategy_config_id"] = manifest.strategy_config_id
            problems += _compare_with_ledger(library.store, found, namespace, manifest.release_id)
            found["encoding"], embedder = manifest.encoding, manifest.embedder
            found["embedder"] = f"{embedder.embedder_id} {embedder.version}" if embedder else "none"
    # one namespace that cannot be opened must not hide the state of the others
    except RagError as error:
        found["problem"] = error.message
    return found, problems
