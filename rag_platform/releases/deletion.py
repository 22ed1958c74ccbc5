"""Deletes a document or a version: hides it from every reader at once, leaves it out of the next
release, and purges its data on request.

The tombstone is written first. From that transaction on, every running server and every older
release hides what it names. Before anything is purged, hashes and ids of the deleted data are
recorded, so that a proof can count afterwards what every store still holds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from rag_platform.config.settings import Settings, Strategy
from rag_platform.config.strategies import load_strategy
from rag_platform.documents.lookup import find_document, find_version
from rag_platform.errors import InputError, ReleaseError
from rag_platform.indexes import dense_files
from rag_platform.ir import Document, Json, Version
from rag_platform.ledger.ledger import Ledger
from rag_platform.ledger.schema import Job, JobItem, Tombstone
from rag_platform.observability import redaction, tracing
from rag_platform.processes import jobs
from rag_platform.releases import release_store as releases
from rag_platform.releases.manifest import Manifest
from rag_platform.releases.stored_artifacts import (
    Belongings,
    Record,
    fetch_record,
    of_versions,
    push_record,
    read_record,
    write_record,
)
from rag_platform.releases.version_history import list_holding
from rag_platform.storage.store import Store
from rag_platform.text.wording import pluralise
from rag_platform.workspace import DataRoot

MODES = ("soft", "hard")
# kinds of belongings, by the store that holds them
STORES = {
    "file_sha256s": "raw",
    "chunk_ids": "chunks",
    "content_hashes": "embeddings",
    "asset_ids": "media",
    "context_hashes": "media_texts",
    "description_keys": "descriptions",
}


@dataclass(frozen=True, slots=True)
class StartedDeletion(jobs.Started):
    """A deletion that is in force, and the job that carries it out."""

    tombstone: Tombstone
    document: Document
    old_names: tuple[StartedDeletion, ...] = ()  # the same for earlier names of the document


@dataclass(frozen=True, slots=True)
class DeletionPlan:
    """What a deletion would take. `old_names` are the plans for retired documents with the same
    file: the document was renamed, or had a copy.
    """

    document: Document
    versions: tuple[Version, ...]
    version_id: str | None
    mode: str
    force: bool  # although pinned releases hold it
    held: Belongings
    holding: tuple[Manifest, ...]  # releases that hold it, newest first
    pinned: tuple[str, ...]  # those of them that are pinned
    staying: tuple[str, ...]  # other releases, newest first
    affected: dict[str, int]
    ledger_copies: tuple[str, ...]  # files beside the ledger, which a hard deletion removes
    old_names: tuple[DeletionPlan, ...] = ()

    @property
    def dropped(self) -> tuple[str, ...]:
        """The releases whose files are removed, newest first."""
        every = {release.release_id for plan in (self, *self.old_names) for release in plan.holding}
        return tuple(sorted(every, reverse=True)) if self.mode == "hard" else ()

    def data(self) -> Json:
        """The plan, as `markdown` to confirm and in parts."""
        what = (
            f"version {self.version_id} of {self.document.source_uri}"
            if self.version_id
            else f"document {self.document.source_uri}"
        )
        lines = [
            f"{what} ({self.document.doc_id}) will be deleted ({self.mode}): no reader shows it"
            " from then on, nor after a rollback."
        ]
        lines.append(
            f"It has {_list_counts(self.affected)}."
            if any(self.affected.values())
            else "It has no data."
        )
        if self.old_names:
            named = ", ".join(plan.document.source_uri for plan in self.old_names)
            lines.append(f"Deleted with it, for they had the same file and are not live: {named}.")
        if self.mode == "soft":
            lines.append(
                "Its data and every release stay until retention ends; ingesting the file again"
                " brings it back."
            )
        else:
            lines.append(
                "Its data is purged from every store, the ledger, drafts, logs and Dagster's"
                " events; that cannot be undone."
            )
            if self.dropped:
                lines.append(
                    f"Releases that are dropped, for they hold it: {', '.join(self.dropped)}."
                )
            if self.pinned:
                lines.append(f"Pinned among them: {', '.join(self.pinned)}.")
            if self.ledger_copies:
                lines.append(
                    "Copies of the ledger that are removed, for they may hold it:"
                    f" {', '.join(self.ledger_copies)}."
                )
            staying = [release for release in self.staying if release not in self.dropped]
            before = f"to {', '.join(staying)}" if staying else "again once a later release follows"
            lines.append(f"Rolling back is possible {before}.")
        return {
            "markdown": "\n".join(lines),
            "doc_id": self.document.doc_id,
            "version_ids": [v.version_id for v in self.versions],
            "mode": self.mode,
            "affected": self.affected,
            "drops": list(self.dropped),
            "pinned": list(self.pinned),
            "rollback": [release for release in self.staying if release not in self.dropped],
        }


def plan_delete(
    namespace: str,
    doc: str,
    root: DataRoot,
    version: str | None = None,
    *,
    mode: str = "soft",
    force: bool = False,
) -> DeletionPlan:
    """What deleting a document, or one version of it, would take; nothing is changed.

    Names are resolved as in `documents.lookup`. Raises NotFoundError for an unknown name,
    InputError for what is deleted already, ReleaseError `pinned_releases` for a hard deletion of
    data that pinned releases hold, unless `force` is set.
    """
    if mode not in MODES:
        raise InputError(f"unknown mode {mode!r}; known: {', '.join(MODES)}", code="bad_mode")
    ledger = root.ledger
    document = find_document(ledger, namespace, doc)
    versions = ledger.versions(namespace, document.doc_id)
    plan = partial(_plan, mode=mode, force=force, root=root)
    if version is not None:
        versions = [find_version(document, versions, version)]
        return plan(document, versions, versions[0].version_id)
    old_names = [
        plan(old, ledger.versions(namespace, old.doc_id), None)
        for old in _find_old_names(document, versions, ledger)
    ]
    return replace(plan(document, versions, None), old_names=tuple(old_names))


def _plan(
    document: Document,
    versions: Sequence[Version],
    version_id: str | None,
    *,
    mode: str,
    force: bool,
    root: DataRoot,
) -> DeletionPlan:
    store, ledger = root.store, root.ledger
    namespace = document.namespace
    version_ids = [version.version_id for version in versions]
    _find_tombstone(document, version_id, mode, ledger)
    tombstones = ledger.tombstones(namespace, document.doc_id, since=0)
    manifests = releases.list_heads(store, namespace)
    held = find_belongings(namespace, versions, tombstones, manifests, root)
    holders = list_holding(namespace, version_ids, store)
    holding = [
        manifest
        for manifest in manifests
        if holders.get(manifest.release_id) or lingering(store, manifest, held.chunk_ids)
    ]
    pinned_ids = {row.release_id for row in ledger.releases(namespace) if row.pinned}
    pinned = tuple(manifest.release_id for manifest in holding if manifest.release_id in pinned_ids)
    if mode == "hard" and pinned and not force:
        raise ReleaseError(
            f"pinned releases hold it: {', '.join(sorted(pinned))}; unpin them, or"
            " delete with --force, which drops them",
            code="pinned_releases",
            releases=sorted(pinned),
        )
    holding_ids = {manifest.release_id for manifest in holding}
    staying = tuple(m.release_id for m in manifests if m.release_id not in holding_ids)
    affected = {
        "versions": len(versions),
        "releases": len(holding),
        **_count_rows(store, holding, version_ids),
        **{
            STORES[kind]: len(getattr(held, kind))
            for kind in ("file_sha256s", "chunk_ids", "content_hashes", "asset_ids")
        },
    }
    return DeletionPlan(
        document,
        tuple(versions),
        version_id,
        mode,
        force,
        held,
        tuple(holding),
        pinned,
        staying,
        affected,
        tuple(path.name for path in store.ledger_backups()),
    )


def _find_old_names(
    document: Document, versions: Sequence[Version], ledger: Ledger
) -> list[Document]:
    """The retired documents of the library, by doc_id, that share a file with the document."""
    files = {version.file_sha256 for version in versions}
    same_file = {it.doc_id for it in ledger.versions(document.namespace) if it.file_sha256 in files}
    return [
        other
        for other in ledger.documents(document.namespace)
        if other.status == "retired" and other.doc_id in same_file - {document.doc_id}
    ]


def start_delete(
    plan: DeletionPlan,
    root: DataRoot,
    on_hidden: Callable[[str], object] = lambda source_uri: None,
) -> StartedDeletion:
    """Hide what a plan names from now on, and launch the job that releases without it and, if
    `hard`, purges its data.

    `on_hidden` is called with the source_uri of a whole document before its job starts; if it
    raises, this and all other jobs start before the error is passed on.
    A `soft` deletion keeps the data until retention ends. An interrupted hard deletion is
    continued. Raises InputError `already_deleted`.
    """
    started: list[StartedDeletion] = []
    with ExitStack() as last_first:
        for it in (plan, *reversed(plan.old_names)):
            last_first.callback(lambda it: started.append(_start(it, root, on_hidden)), it)
    *old_names, own = started
    return replace(own, old_names=tuple(old_names))


def _start(
    plan: DeletionPlan, root: DataRoot, on_hidden: Callable[[str], object]
) -> StartedDeletion:
    """The same without the document's old names."""
    store, ledger = root.store, root.ledger
    document, version_id, affected = plan.document, plan.version_id, plan.affected
    namespace, mode = document.namespace, plan.mode
    doc_id, version_ids = document.doc_id, [version.version_id for version in plan.versions]
    was_live = document.live_version in version_ids
    with (
        tracing.trace("ingestion", logs_dir=store.logs_dir, namespace=namespace) as trace,
        tracing.span("stage.delete", provider_type="ledger", provider_id="tombstone") as span,
    ):
        tombstone = _find_tombstone(document, version_id, mode, ledger) or ledger.delete(
            namespace, doc_id, version_id, mode
        )
        record_deletion(tombstone, root, plan.held)
        span.set(doc_id=doc_id, mode=mode, **affected)
        tracing.event(
            "document.deleted",
            {
                "doc_id": doc_id,
                "version_ids": version_ids,
                "mode": mode,
                "affected": affected,
            },
        )
    args = {
        "doc_id": doc_id,
        "version_id": version_id,
        "version_ids": version_ids,
        "mode": mode,
        "force": plan.force,
        "sequence": tombstone.sequence,
        "affected": affected,
        "was_live": was_live,
        # hard-deleted data must not linger in files that a release shares with its parent
        "release": bool(plan.holding) or was_live,
        "full": mode == "hard",
    }
    job = ledger.add_job(
        "delete",
        namespace,
        args,
        [JobItem(document.source_uri, doc_id, version_id or "", "delete")],
    )
    ledger.update_job(job.job_id, trace_id=trace.trace_id)
    try:
        if version_id is None:
            on_hidden(document.source_uri)
    finally:  # the tombstone is in force, so the rest must follow
        process = jobs.launch(job, root.settings, store).process
    return StartedDeletion(job, process, tombstone, document)


def name_purge(namespace: str, doc_id: str, version_id: str | None) -> str:
    """The command that purges a document or a version, also after an interrupted deletion."""
    version = f" --version {version_id}" if version_id else ""
    return f"rag docs delete {doc_id}{version} --mode hard --namespace {namespace}"


def _find_tombstone(
    document: Document, version_id: str | None, mode: str, ledger: Ledger
) -> Tombstone | None:
    """The tombstone of an earlier hard deletion. Raises InputError `already_deleted`."""
    tombstones = ledger.tombstones(document.namespace, document.doc_id)
    matching = [tombstone for tombstone in tombstones if tombstone.version_id in (None, version_id)]
    hard = [tombstone for tombstone in matching if tombstone.mode == "hard"]
    if mode == "hard":
        return hard[-1] if hard else None
    if matching:
        what = f"version {version_id}" if version_id else f"document {document.doc_id}"
        remedy = (
            "it is purged"
            if hard
            else "its data stays until retention ends; `--mode hard` purges it now"
        )
        raise InputError(
            f"{what} was deleted on {matching[-1].created_at}; {remedy}", code="already_deleted"
        )
    return None


def lingering(store: Store, manifest: Manifest, chunk_ids: Collection[str]) -> set[str]:
    """The chunks of which a file of the release still holds a row or a vector, even an unused one:
    releases share the files that they do not change.
    """
    if not chunk_ids:
        return set()
    with releases.open_catalog(store, manifest.namespace, manifest.release_id) as catalog:
        rows = catalog.stored_ids(chunk_ids)
    return rows | find_lingering_vectors(store, manifest, chunk_ids)


def find_lingering_vectors(
    store: Store, manifest: Manifest, chunk_ids: Collection[str]
) -> set[str]:
    """The ids of these chunks that still have a vector in a release."""
    if manifest.embedder is None or not chunk_ids:
        return set()
    directory = store.release_dir(manifest.namespace, manifest.release_id)
    return dense_files.stored_ids(directory / "dense", chunk_ids)


def record_deletion(
    tombstone: Tombstone,
    root: DataRoot,
    belongings: Belongings | None = None,
    *,
    write: bool = True,
) -> Record:
    """The record of a deletion. A missing one is made from `belongings` or the stores' content."""
    store, ledger = root.store, root.ledger
    for find in (read_record, fetch_record):
        if (known := find(store, tombstone.namespace, tombstone.sequence)) is not None:
            return known
    versions = [
        v
        for v in ledger.versions(tombstone.namespace, tombstone.doc_id)
        if tombstone.version_id in (None, v.version_id)
    ]
    if belongings is None:
        belongings = find_belongings(
            tombstone.namespace,
            versions,
            ledger.tombstones(tombstone.namespace, tombstone.doc_id, since=0),
            releases.list_releases(store, tombstone.namespace),
            root,
        )
    ids = tuple(version.version_id for version in versions)
    record = Record(
        tombstone.sequence,
        tombstone.namespace,
        tombstone.doc_id,
        ids,
        tombstone.mode,
        tombstone.created_at,
        belongings,
    )
    if write:
        write_record(store, record)
        push_record(store, record)
    return record


def find_belongings(
    namespace: str,
    versions: Sequence[Version],
    tombstones: Iterable[Tombstone],
    manifests: Sequence[Manifest],
    root: DataRoot,
) -> Belongings:
    """What versions own according to stage files, releases and records of earlier deletions."""
    store = root.store
    strategies = strategies_of(namespace, root.settings, root.ledger, manifests)
    found = of_versions(store, versions, strategies=strategies)
    for manifest in manifests:
        found |= of_release(store, manifest, [version.version_id for version in versions])
    for tombstone in tombstones:
        if (record := read_record(store, namespace, tombstone.sequence)) is not None:
            found |= record.belongings
    return found


def strategies_of(
    namespace: str, settings: Settings, ledger: Ledger, manifests: Iterable[Manifest]
) -> list[Strategy]:
    """The namespace's current strategy, then those of its releases, without duplicates."""
    found = [load_strategy(settings, ledger.namespaces().get(namespace))]
    for manifest in manifests:
        strategy = Strategy.model_validate(manifest.strategy_config)
        if strategy not in found:
            found.append(strategy)
    return found


def of_release(store: Store, manifest: Manifest, version_ids: Sequence[str]) -> Belongings:
    """What a release holds of versions; its chunks may be older than the stage files."""
    with releases.open_catalog(store, manifest.namespace, manifest.release_id) as catalog:
        entries = [entry for v in version_ids for entry in catalog.entries_of_version(v)]
        texts = [text for v in version_ids for text in catalog.media_texts(v)]
    return Belongings(
        chunk_ids=frozenset(entry.chunk.chunk_id for entry in entries),
        content_hashes=frozenset(entry.content_hash for entry in entries) - {""},
        asset_ids=frozenset(asset_id for entry in entries for asset_id in entry.chunk.asset_ids),
        context_hashes=frozenset(text.context_hash for text in texts) - {""},
    )


def _count_rows(
    store: Store, manifests: Iterable[Manifest], version_ids: Sequence[str]
) -> dict[str, int]:
    counts = {"catalog": 0, "lexical": 0, "vectors": 0}
    for manifest in manifests:
        with releases.open_catalog(store, manifest.namespace, manifest.release_id) as catalog:
            for entry in (e for v in version_ids for e in catalog.entries_of_version(v)):
                counts["catalog"] += 1
                counts["lexical"] += entry.indexed[0]
                counts["vectors"] += entry.indexed[1]
    return counts


_COUNTED = {
    "versions": "version",
    "chunks": "chunk",
    "embeddings": "embedding",
    "raw": "raw file",
    "releases": "release",
}


def _list_counts(affected: dict[str, int]) -> str:
    """The counts that are shown to a person, without those of indexes inside releases."""
    return ", ".join(
        pluralise(affected[name], noun) for name, noun in _COUNTED.items() if affected.get(name)
    )


def delete_data(job: Job, *, store: Store, waiting: Sequence[str] = ()) -> Json:
    """The `delete` payload of a finished job; `waiting` names servers that are not done yet."""
    args = job.args
    data: Json = {
        "doc_id": args["doc_id"],
        "version_ids": args["version_ids"],
        "mode": args["mode"],
        "affected": args["affected"],
        "job_id": job.job_id,
        "release_id": releases.current(store, job.namespace),
        "removed": job.result.get("removed", {}),
    }
    what = f"version {args['version_id']}" if args["version_id"] else f"document {args['doc_id']}"
    lines = [
        f"{what} is deleted: no reader of library {job.namespace!r} shows it any more, nor will"
        " after a rollback."
    ]
    if args["version_id"] and args["was_live"]:
        lines.append(
            f"The document has no live version until `rag docs live {args['doc_id']} VERSION"
            f" --namespace {job.namespace}` names another, or its file changes."
        )
    counted = _list_counts(args["affected"])
    lines.append(f"It had {counted}." if counted else "It had no data.")
    if args["mode"] == "soft":
        lines.append("Its data stays until retention ends; `--mode hard` purges it.")
    elif data["removed"]:
        bytes_ = sum(item["bytes"] for item in data["removed"].values())
        lines.append(
            f"Purged: {bytes_:,} bytes. `rag gc --prove {args['doc_id']} --namespace"
            f" {job.namespace}` counts what is left."
        )
        lines += [f"Not over: {sentence}." for sentence in waiting]
        data["unacknowledged"] = list(waiting)
    return {"markdown": "\n".join(lines), **data}


class Partitions(Protocol):
    """Dagster's partition keys of document versions, and the events recorded under them."""

    def keys(self) -> set[str]:
        """All partition keys."""

    def drop(self, keys: Collection[str]) -> None:
        """Remove keys."""

    def forget(self, keys: Collection[str], names: redaction.Names) -> tuple[int, list[str]]:
        """Erase the events of these keys and others that name the documents. Returns (number of
        events, what could not be reached).
        """

    def count_records(self, keys: Collection[str], names: redaction.Names) -> tuple[int, list[str]]:
        """(number of events that `forget` would erase, what could not be searched)."""

    def prune(
        self, kept: Collection[str], days: float, *, plan: bool
    ) -> Mapping[str, tuple[int, int]]:
        """Remove runs older than `days` and the events of keys that are not `kept`, or with `plan`
        only count them. Returns (count, bytes) by kind.
        """


def names_of(document: Document, ledger: Ledger) -> tuple[list[str], list[str]]:
    """([doc_id, address], [file name, if it has a suffix and no other document has it])."""
    unique = "." in document.filename and ledger.has_unique_filename(document)
    return [document.doc_id, document.source_uri], [document.filename] if unique else []
