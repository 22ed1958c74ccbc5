"""Brings a namespace's release up to date: build and check a candidate, publish it, roll back.

The doors (command line, server, Dagster) call these; each keeps the ledger true to what lies on
disk, disk first.
"""

from __future__ import annotations

import gc
import uuid
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from itertools import chain, takewhile

from rag_platform.config.gates import FILENAME as GATES_FILE
from rag_platform.config.profiles import index_profile, stage_profiles, strategy_config_id
from rag_platform.config.settings import Strategy
from rag_platform.documents.metadata import with_file_metadata
from rag_platform.errors import IntegrityError, NotFoundError, RagError, ReleaseError
from rag_platform.indexes.catalog import CatalogReader
from rag_platform.indexes.embedding_cache import EmbeddingCache
from rag_platform.ir import Document, Json, Version
from rag_platform.ledger.ledger import Ledger
from rag_platform.ledger.schema import Release
from rag_platform.observability import tracing
from rag_platform.releases import release_store as releases
from rag_platform.releases import transfer
from rag_platform.releases.building import Descent, Live, build
from rag_platform.releases.manifest import (
    FILENAME,
    VERSIONS,
    CheckResult,
    Manifest,
    lacks_verdict,
    read_head,
    read_manifest,
    write_manifest,
)
from rag_platform.releases.version_bundles import output_fingerprint
from rag_platform.storage.blobs import open_for_writing
from rag_platform.storage.records import to_json
from rag_platform.storage.store import Store, sha256_file
from rag_platform.workspace import DataRoot, Workspace

_LOCK_SECONDS = 1.0  # moving the pointer takes milliseconds: whoever holds the lock longer is a job


def is_behind_ledger(namespace: str, root: DataRoot) -> bool:
    """True when the published release does not show exactly the live versions, each in its edition
    (a build was interrupted or rejected, or its files are lost), or holds them as an earlier config
    built them.

    After a rollback a newer release that shows them was published once; going forward again is the
    user's decision.
    """
    store, ledger = root.store, root.ledger
    if _holds_what_changed(namespace, store, ledger):
        return False
    rows = ledger.live(namespace)
    live = {version.version_id: version.edition for _, version in rows}
    profiles = {version.counts.get("profile") for _, version in rows}
    # versions of several configs are still being rebuilt: no release can hold them
    profile = profiles.pop() if len(profiles) == 1 else None
    once_public = {row.release_id for row in ledger.releases(namespace) if row.published_at}
    published = releases.current(store, namespace)
    if published is None:
        return bool(live)
    try:
        read = read_manifest(store.release_dir(namespace, published))
    except (NotFoundError, IntegrityError):
        return True
    newer = (
        manifest
        for manifest in releases.list_releases(store, namespace)
        if manifest.created_at > read.created_at and manifest.release_id in once_public
    )
    return not any(
        manifest.contents == live
        and profile in (None, manifest.profiles.get("embeddings"))
        and _shows(manifest, rows, ledger)
        for manifest in chain((read,), newer)  # the others are read only where it does not
    )


def _holds_what_changed(namespace: str, store: Store, ledger: Ledger) -> bool:
    """True when the published release already holds the current state of everything that changed
    since it was made; the rest need not be looked at.
    """
    published = releases.current(store, namespace)
    if published is None:
        return False
    try:
        manifest = releases.manifest_of(store, namespace, published, ())
        with releases.open_catalog(store, namespace, published) as catalog:
            asked = _find_touched(namespace, published, catalog, ledger)
            if asked is None:
                return False
            held = catalog.versions(catalog.version_ids(asked)[0])
    except RagError:  # its files are lost, or of another program version
        return False
    live = ledger.live(namespace, asked)
    return (
        {name: version.edition for name, version in held.items()}
        == {version.version_id: version.edition for _, version in live}
        and all(v.counts.get("profile") == manifest.profiles.get("embeddings") for _, v in live)
        and _shows(manifest, live, ledger)
    )


def _shows(manifest: Manifest, live: Collection[tuple[Document, Version]], ledger: Ledger) -> bool:
    """True when no deletion after the release hides one of the versions in it. A lifted one does: a
    document that was deleted and ingested again needs a release of its own.
    """
    hidden = {
        stone.version_id or stone.doc_id
        for stone in ledger.tombstones(manifest.namespace, since=manifest.deletions)
    }
    return all(
        hidden.isdisjoint((document.doc_id, version.version_id)) for document, version in live
    )


def find_equal(namespace: str, strategy: Strategy, store: Store, ledger: Ledger) -> str | None:
    """The published release_id when a new release would equal it in content and profiles; None when
    they would differ, or when gates were set since that have not judged it.
    """
    published = releases.current(store, namespace)
    if published is None or releases.why_full(store, namespace, strategy, published):
        return None
    manifest = releases.manifest_of(store, namespace, published, ())
    if (
        manifest.strategy != strategy.name
        or lacks_verdict(manifest)
        or releases.missing_files(store, manifest)
    ):
        return None
    with releases.open_catalog(store, namespace, published) as catalog:
        if catalog.versions_with("failed_embed"):  # those are tried again
            return None
        asked = _find_touched(namespace, published, catalog, ledger)
        live = ledger.live(namespace, asked)
        ids = catalog.version_ids(asked)[0]
        held = catalog.versions(ids)
        documents = {
            d.doc_id: _words(d) for d in catalog.documents_of(v.doc_id for v in held.values())
        }
    same = (
        held.keys() == {version.version_id for _, version in live}
        and _shows(manifest, live, ledger)
        and all(
            _content_of(held[version.version_id]) == _content_of(version)
            and _words(with_file_metadata(document, version)) == documents.get(document.doc_id)
            for document, version in live
        )
    )
    if not same:
        return None
    again = [v for _, v in live if v.revision != held[v.version_id].revision]
    return published if _have_outputs_of(namespace, published, again, store) else None


def _have_outputs_of(
    namespace: str, release_id: str, versions: Sequence[Version], store: Store
) -> bool:
    """True when the stored outputs of the versions are those that the release was made of."""
    if not versions:
        return True
    manifest = releases.manifest_of(store, namespace, release_id, ("outputs",))
    return all(
        output_fingerprint(store, version, manifest.profiles)
        == manifest.outputs.get(version.version_id)
        for version in versions
    )


def _content_of(version: Version) -> tuple[object, ...]:
    """What a release holds of a version, as far as the ledger knows; times do not count, nor how
    often its stages ran.
    """
    return (
        version.edition,
        *(version.counts.get(key) for key in ("profile", "chunks", "warnings", "metadata")),
    )


def _words(document: Document) -> tuple[object, ...]:
    return document.title, document.tags, document.categories, document.metadata


@contextmanager
def _without_collector() -> Iterator[None]:
    """Pause Python's cyclic garbage collector. It walks over the records of a whole library again
    and again, and there are no cycles among them: a quarter of the time of a small edit in 20,000
    documents.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@_without_collector()
def build_candidate(
    namespace: str, workspace: Workspace, *, full: bool = False, deletes: bool = False
) -> tuple[Manifest, list[CheckResult]]:
    """The checked candidate of the live versions, recorded as `candidate` or, when a check failed,
    as `rejected`.

    It is made from the published release by delta, unless `full`. One that is built whole although
    nothing changed replaces the published release, also in the order of those that one can go back
    to, unless it `deletes`: then it is what is left of the published one, and nothing that waits or
    that a gate has rejected becomes public with it, wherever that can still be built.

    Raises ReleaseError when nothing is live, or a live version has no outputs for the strategy as
    it is now.
    """
    strategy, store, ledger = workspace.strategy, workspace.store, workspace.ledger
    # before what is live is read: one that comes between is hidden by readers
    deletions = ledger.deletion_sequence(namespace)
    settle(namespace, store, ledger)
    parent = releases.current(store, namespace)
    sequence: int | None = ledger.sequence(namespace)
    left = _read_left(namespace, parent, full, store, ledger) if deletes and parent else None
    if left is not None:
        strategy, sequence, live = left
    else:
        live = _read_live(namespace, None if full else parent, workspace)
    live = replace(live, deletions=deletions)
    profile = stage_profiles(strategy)["embeddings"]
    stale = [version for _, version in live.pairs if version.counts.get("profile") != profile]
    if stale:
        raise _stale_error(stale)
    retain(namespace, workspace)
    replaces = find_equal(namespace, strategy, store, ledger) if full and not deletes else None
    if replaces:
        parent = releases.manifest_of(store, namespace, replaces, ()).parent
    release_id = f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:6]}"
    with (
        EmbeddingCache(store.embeddings_path) as cache,
        tracing.span(
            "stage.upsert",
            provider_type="release",
            provider_id=strategy.encoding,
            profile_id=index_profile(strategy),
        ) as span,
    ):
        manifest = build(
            store,
            namespace,
            strategy,
            live,
            release_id=release_id,
            descent=Descent(parent, full, replaces),
            cache=cache,
            processes=workspace.settings.embedding_processes,
        )
        span.set(release_id=release_id, parent=parent, **manifest.counts)
        _trace_upsert(span, manifest, _find_unembedded(manifest, store))
    failed = [check for check in manifest.checks if not check.passed]
    ledger.put_release(
        Release(
            namespace=namespace,
            release_id=release_id,
            parent=parent,
            state="rejected" if failed else "candidate",
            strategy=strategy.name,
            strategy_config_id=strategy_config_id(strategy),
            created_at=manifest.created_at,
            counts=dict(manifest.counts),
            reason="; ".join(f"{check.name}: {check.details}" for check in failed),
            sequence=sequence,
        )
    )
    return manifest, list(manifest.checks)


def _read_live(namespace: str, parent: str | None, workspace: Workspace) -> Live:
    """The live versions: those that changed since the parent was made and those to be tried again;
    all of them where the changes are not known or the parent's files cannot be reused.
    """
    store, ledger = workspace.store, workspace.ledger
    asked, purged = None, False
    if parent and not releases.why_full(store, namespace, workspace.strategy, parent):
        with releases.open_catalog(store, namespace, parent) as catalog:
            asked = _find_touched(namespace, parent, catalog, ledger)
            purged = _holds_purged(namespace, catalog, ledger)
    return Live(ledger.live(namespace, asked), asked, purged=purged)


def _read_left(
    namespace: str, parent: str, full: bool, store: Store, ledger: Ledger
) -> tuple[Strategy, int | None, Live] | None:
    """What the parent was built by, the change that it knows last, and what of it is left of the
    documents that were deleted since, or with `full` of all; None where its files, or for `full`
    the outputs that it was made of, cannot be used.
    """
    try:
        manifest = releases.manifest_of(store, namespace, parent)
        stones = ledger.tombstones(namespace, since=manifest.deletions)
        deleted = None if full else {stone.doc_id for stone in stones}
        with releases.open_catalog(store, namespace, parent) as catalog:
            held = catalog.versions(None if full else catalog.version_ids(deleted)[0])
            found = catalog.documents_of({version.doc_id for version in held.values()})
            purged = _holds_purged(namespace, catalog, ledger)
    except RagError:  # its files are lost, or of another program version
        return None
    strategy = Strategy.model_validate(manifest.strategy_config)
    gone = {stone.version_id or stone.doc_id for stone in stones}
    documents = {document.doc_id: document for document in found}
    left = [
        (documents[version.doc_id], version)
        for version in held.values()
        if gone.isdisjoint((version.doc_id, version.version_id))
    ]
    if full:
        versions = [version for _, version in left]
        if stage_profiles(strategy) != manifest.profiles or not _have_outputs_of(
            namespace, parent, versions, store
        ):
            return None
    elif releases.why_full(store, namespace, strategy, parent):
        return None
    made = ledger.release_sequence(namespace, parent)
    return strategy, made, Live(left, deleted, purged=purged)


def _holds_purged(namespace: str, catalog: CatalogReader, ledger: Ledger) -> bool:
    """True when the files of a release hold data that was purged, or is about to be; no later
    release may reuse them.
    """
    hard = [stone for stone in ledger.tombstones(namespace) if stone.mode == "hard"]
    gone = catalog.gone()
    named = {stone.version_id or stone.doc_id for stone in hard}
    held, _ = catalog.version_ids(stone.doc_id for stone in hard if stone.version_id is None)
    return bool(
        held
        or catalog.versions(stone.version_id for stone in hard if stone.version_id)
        or not named.isdisjoint({*gone, *gone.values()})
        or ledger.find_purged(gone)
    )


def _find_touched(
    namespace: str, release_id: str, catalog: CatalogReader, ledger: Ledger
) -> set[str] | None:
    """The documents that a release may not hold as they are; None where nobody knows, because a
    restored ledger or one of an earlier program does not say when it was made.
    """
    made = ledger.release_sequence(namespace, release_id)
    if made is None:
        return None
    return ledger.find_touched(namespace, made) | catalog.owners_with("failed_embed")


def _find_unembedded(manifest: Manifest, store: Store) -> list[str]:
    """The versions with chunks that have no vector."""
    if not manifest.counts.get("failed_embed"):
        return []
    with releases.open_catalog(store, manifest.namespace, manifest.release_id) as catalog:
        return sorted(catalog.versions_with("failed_embed"))


def _trace_upsert(span: tracing.Span, manifest: Manifest, failed: Sequence[str]) -> None:
    """Record in the trace how many rows were written, and how many were reused from the release
    before; `failed` are the versions with chunks that have no vector.
    """
    rows = int(manifest.delta["chunks_added"])
    vectors = min(rows, int(manifest.counts["dense"]))
    span.set(chroma_upserted=vectors, sqlite_rows_written=rows)
    tracing.count(upserted_rows=rows)
    tracing.event(
        "ingest.upsert_result",
        {
            "vector_rows": vectors,
            "meta_rows": rows,
            "failed_ids": list(failed[:50]),
            "delta": manifest.delta,
            "failed_checks": [check.name for check in manifest.failures],
        },
    )


def _stale_error(stale: Sequence[Version]) -> ReleaseError:
    """The error for live versions that have no outputs under the current config."""
    failed = [version for version in stale if version.code]
    if not failed:
        told, remedy = stale[0].version_id, "run `rag ingest` on their source, or `rag rebuild`"
    else:
        told = (
            f"{failed[0].source_uri} ({failed[0].version_id}), which failed: [{failed[0].code}]"
            f" {failed[0].reason}"
        )
        remedy = (
            "put the config back, delete the document with `rag docs delete DOC`, or try again with"
            " `rag jobs retry --all`"
        )
    return ReleaseError(
        f"{len(stale)} live versions were built under another config, e.g. {told}; the published"
        f" release stays; {remedy}",
        code="stale_versions",
        failed=[version.source_uri for version in failed],
    )


def newest_candidate(namespace: str, ledger: Ledger) -> str:
    """The newest candidate after the last public release. Raises NotFoundError `no_candidate`."""
    for row in ledger.releases(namespace):
        if row.published_at:
            break  # what was built before it is history: publishing that would silently go back
        if row.state == "candidate":
            return row.release_id
        if row.state == "rejected":
            raise NotFoundError(
                f"release {row.release_id}, the newest of library {namespace!r}, was rejected:"
                f" {row.reason}; mend that, or publish it all the same with `rag releases publish"
                f" {row.release_id} --namespace {namespace} --override REASON`",
                code="no_candidate",
            )
    raise NotFoundError(
        f"library {namespace!r} has no candidate to publish; materialise its catalog and indexes"
        " first",
        code="no_candidate",
    )


@_without_collector()
def publish_candidate(
    namespace: str, release_id: str, root: DataRoot, *, override: str = ""
) -> Release:
    """The published release: the pointer is moved and the ledger says so, if it still says what it
    said before, then old releases are dropped. `override` is the reason for publishing over a
    failed quality gate, and recorded.

    Raises ReleaseError when a check failed, `not_judged` when the namespace has gates and nobody
    asked them, and `outdated_candidate` when another release was published since it was built.
    """
    store, ledger = root.store, root.ledger
    with store.writer(namespace, f"publish {release_id}", wait=_LOCK_SECONDS):
        settle(namespace, store, ledger)
        recorded, published = ledger.read_published(namespace), releases.current(store, namespace)
        manifest = read_head(store.release_dir(namespace, release_id))
        if published not in (manifest.parent, manifest.delta.get("replaces"), release_id):
            raise ReleaseError(
                f"release {release_id} was built on {manifest.parent or 'nothing'}, but {published}"
                " was published since; build another with `rag rebuild`, or publish this one all"
                f" the same with `rag releases rollback {release_id}`",
                code="outdated_candidate",
            )
        if lacks_verdict(manifest) and not override:
            raise ReleaseError(
                f"release {release_id} was not judged by the gates of {namespace!r} in"
                f" {GATES_FILE}; `rag rebuild --full` builds one that is",
                code="not_judged",
            )
        _publish(manifest, recorded, store, ledger, override=bool(override))
        row = _row(namespace, release_id, ledger)
        if override:
            ledger.update_release(
                namespace, release_id, reason=f"published over the quality gate: {override}"
            )
        tracing.event(
            "release.published",
            {
                "namespace": namespace,
                "release_id": release_id,
                "previous": published,
                "override": override,
            },
        )
        retain(namespace, root)
    return row


def _publish(
    manifest: Manifest,
    recorded: frozenset[str],
    store: Store,
    ledger: Ledger,
    *,
    override: bool = False,
) -> None:
    """Move the pointers to a release, those of the object store and of this machine, if the ledger
    and the object store still say what they said.
    """
    namespace, release_id = manifest.namespace, manifest.release_id
    if store.remote is None:
        with _publication(namespace, release_id, recorded, store, ledger):
            releases.publish(store, namespace, release_id, override=override)
        return
    releases.require_publishable(store, namespace, release_id, override=override)
    before = transfer.push(store, manifest)  # it may take minutes, a transaction may not
    with store.pointing(namespace), _publication(namespace, release_id, recorded, store, ledger):
        transfer.swap(store, manifest, before)
        releases.publish(store, namespace, release_id, override=override)


def _publication(
    namespace: str, release_id: str, recorded: frozenset[str], store: Store, ledger: Ledger
) -> AbstractContextManager[None]:
    """The transaction that records a release as the published one, and its manifest as it is."""
    path = store.release_dir(namespace, release_id) / FILENAME
    # a pointer may name a release that this machine has lost
    sha256 = sha256_file(path) if path.is_file() else ""
    return ledger.publication(namespace, release_id, instead_of=recorded, manifest_sha256=sha256)


def push_current(namespace: str, *, store: Store, ledger: Ledger) -> str:
    """The release_id of the published release, once the object store publishes it too: of a library
    that had none before, or whose last push was interrupted.
    """
    with store.writer(namespace, "push", wait=_LOCK_SECONDS):
        settle(namespace, store, ledger)
        release_id = releases.require_current(store, namespace)
        manifest = releases.require_publishable(store, namespace, release_id, override=True)
        before = transfer.push(store, manifest)
        if before.release_id != release_id:
            transfer.swap(store, manifest, before)
    return release_id


def record_check(
    namespace: str,
    release_id: str,
    check: CheckResult,
    *,
    store: Store,
    ledger: Ledger,
    evaluation_run: str | None = None,
) -> Manifest:
    """The manifest of a candidate with a check that was made after it was built; a failed one makes
    it `rejected`. The write lock must be held.
    """
    directory = store.release_dir(namespace, release_id)
    manifest = read_head(directory)
    if VERSIONS not in manifest.files:  # an earlier program built it
        manifest = read_manifest(directory)
    others = tuple(known for known in manifest.checks if known.name != check.name)
    manifest = replace(manifest, checks=(*others, check), evaluation_run=evaluation_run)
    write_manifest(directory, manifest)
    if not check.passed:
        ledger.update_release(
            namespace, release_id, state="rejected", reason=f"{check.name}: {check.details}"
        )
    return manifest


def roll_back(namespace: str, to: str | None, *, store: Store, ledger: Ledger) -> Release:
    """Publish `to`, or by default the release before the current one, and bind the namespace to
    the strategy that built it. Returns the release that is published now.
    """
    with store.writer(namespace, "rollback", wait=_LOCK_SECONDS):
        settle(namespace, store, ledger)
        recorded, before = ledger.read_published(namespace), releases.current(store, namespace)
        to = to or releases.before_current(store, namespace)
        if to in transfer.list_pushed(store, namespace):
            transfer.bring(store, namespace, to)
        # what is not there is named as such
        _publish(read_head(store.release_dir(namespace, to)), recorded, store, ledger)
        row = _row(namespace, to, ledger)
        if ledger.namespaces().get(namespace) != row.strategy:
            # the next ingest would publish the strategy again that somebody went back from
            ledger.rebind_strategy(namespace, row.strategy, row.strategy_config_id)
        tracing.event(
            "release.rolled_back",
            {"namespace": namespace, "release_id": row.release_id, "previous": before},
        )
    return row


def go_forward(namespace: str, *, store: Store, ledger: Ledger) -> Release:
    """The newest release that was ever public, published again after a rollback; where the pointer
    is damaged, the one that was published last. Raises ReleaseError when it is published already.
    """
    with store.writer(namespace, "forward", wait=_LOCK_SECONDS):
        try:
            published = releases.current(store, namespace)
        except ReleaseError:
            settle(namespace, store, ledger)
            return _row(namespace, releases.require_current(store, namespace), ledger)
        newest = find_newer(namespace, published, store, ledger)
        if newest is None:
            raise ReleaseError(
                f"library {namespace!r} has no newer release that was published once; `rag"
                " releases list` shows all",
                code="nothing_to_go_forward",
            )
        return roll_back(namespace, newest.release_id, store=store, ledger=ledger)


def find_newer(
    namespace: str, published: str | None, store: Store, ledger: Ledger
) -> Release | None:
    """The newest release that was public once and is kept, where it is newer than the published
    one: somebody went back.
    """
    newer = takewhile(lambda row: row.release_id != published, ledger.releases(namespace))
    once_public = [row for row in newer if row.published_at]
    if not once_public:
        return None
    kept = {manifest.release_id for manifest in releases.list_heads(store, namespace)}
    return next((row for row in once_public if row.release_id in kept), None)


def history(namespace: str, *, store: Store, ledger: Ledger) -> list[Json]:
    """Releases, newest first: the ledger's row, whether readers see it, its size on disk and what
    it changed; nothing of what is gone.

    The pointer decides which one is `published`: a crash may have come before the ledger was told.
    """
    published = releases.current(store, namespace)
    kept = {head.release_id: head for head in releases.list_heads(store, namespace)}
    found: list[Json] = []
    for row in ledger.releases(namespace):
        manifest = kept.get(row.release_id)
        state = (
            "published"
            if row.release_id == published
            else "retired"
            if row.state == "published"
            else row.state
        )
        held, alone = releases.sizes(store, namespace, row.release_id)
        found.append(
            {
                **to_json(row),
                "state": "lost" if state == "published" and manifest is None else state,
                "documents": int(row.counts.get("documents", 0)),
                "chunks": int(row.counts.get("chunks", 0)),
                "bytes": held,
                "bytes_alone": alone,
                "delta": dict(manifest.delta) if manifest else {},
            }
        )
    return found


def pin_release(
    namespace: str, release_id: str, pinned: bool, *, store: Store, ledger: Ledger
) -> Release:
    """Pin a release, so that retention always keeps it, or unpin it. Returns the release. Raises
    NotFoundError when it is not on disk.
    """
    with store.writer(namespace, "pin a release", wait=_LOCK_SECONDS):
        read_head(store.release_dir(namespace, release_id))
        ledger.update_release(namespace, release_id, pinned=pinned)
    return _row(namespace, release_id, ledger)


def retain(namespace: str, root: DataRoot) -> list[str]:
    """Remove unfinished releases and those that retention does not keep. Returns their ids; the
    ledger records them as dropped.
    """
    store, ledger = root.store, root.ledger
    rows = ledger.releases(namespace)
    public = {row.release_id for row in rows if row.published_at}
    found = releases.list_heads(store, namespace)
    there = {manifest.release_id for manifest in found}  # one without a row: a crash came first
    pinned = {row.release_id for row in rows if row.pinned}
    removed = releases.clean(
        releases.surplus(
            store, namespace, root.settings.releases.keep, pinned, there - public, found
        )
    )
    # of a damaged one the object store may hold a sound copy
    old = [release_id for release_id in removed if release_id in there]
    transfer.forget(store, namespace, old)
    kept = there.difference(removed)
    # what is not here may lie on another machine, where there is an object store
    gone = old if store.remote else [r.release_id for r in rows if r.release_id not in kept]
    record_dropped(namespace, gone, ledger)
    return removed


def record_dropped(namespace: str, release_ids: Collection[str], ledger: Ledger) -> None:
    """Record in the ledger that no machine has these releases any more."""
    for row in ledger.releases(namespace):
        if row.release_id in release_ids and row.state in ("candidate", "rejected", "retired"):
            ledger.update_release(namespace, row.release_id, state="dropped")


def settle(namespace: str, store: Store, ledger: Ledger) -> None:
    """Bring this machine and the ledger into agreement with the pointer, after a crash or a
    publication by another machine. A damaged pointer names again what the ledger says. The caller
    holds the write lock.
    """
    releases.mend_pointer(store, namespace, ledger.read_published(namespace))
    if store.remote is not None and namespace:
        open_for_writing(store)
        transfer.pull(namespace, store=store, ledger=ledger)
    published, recorded = releases.current(store, namespace), ledger.read_published(namespace)
    known = {row.release_id for row in ledger.releases(namespace)}
    if published in known and recorded != {published}:
        with _publication(namespace, published, recorded, store, ledger):
            pass


def _row(namespace: str, release_id: str, ledger: Ledger) -> Release:
    return next(row for row in ledger.releases(namespace) if row.release_id == release_id)
