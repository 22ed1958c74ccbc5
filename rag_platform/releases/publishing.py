"""Brings a namespace's release up to date: builds and checks a candidate, publishes it, rolls back.

The command line, the server and Dagster call these functions. Each changes the files first and the
ledger after them.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from itertools import takewhile

from rag_platform.config.gates import FILENAME as GATES_FILE
from rag_platform.config.profiles import index_profile, stage_profiles
from rag_platform.config.settings import Strategy
from rag_platform.documents.metadata import with_file_metadata
from rag_platform.documents.provenance import UNREADABLE
from rag_platform.errors import NotFoundError, RagError, ReleaseError, unknown_namespace
from rag_platform.indexes.catalog import CatalogReader
from rag_platform.indexes.embedding_cache import EmbeddingCache
from rag_platform.intake.receiving import failure_profile
from rag_platform.ir import Document, Json, Version
from rag_platform.ledger.ledger import Ledger
from rag_platform.ledger.schema import Release
from rag_platform.observability import tracing
from rag_platform.processes.processors import without_collector
from rag_platform.releases import release_store as releases
from rag_platform.releases import transfer
from rag_platform.releases.building import Lineage, LiveVersions, build
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
from rag_platform.releases.retention import retain
from rag_platform.releases.version_bundles import output_fingerprint
from rag_platform.storage.blobs import open_for_writing
from rag_platform.storage.records import to_json
from rag_platform.storage.store import Store, sha256_file
from rag_platform.workspace import DataRoot, Workspace

# publishing takes milliseconds: a lock that is held for longer belongs to a job
_LOCK_SECONDS = 1.0
NOT_PROVED = "not_proved"  # code of versions that a build gave up


def is_behind_ledger(namespace: str, root: DataRoot) -> bool:
    """True when the published release does not hold exactly the live versions in their current
    editions (a build was interrupted or rejected, or its files are lost), or an earlier config
    built it.

    False after a rollback from a release that does hold them: going forward again is the user's
    decision.
    """
    store, ledger = root.store, root.ledger
    published = releases.current(store, namespace)
    if published is None:
        return bool(ledger.live(namespace))
    if not (store.release_dir(namespace, published) / FILENAME).is_file():
        return True
    rows = takewhile(lambda row: row.release_id != published, ledger.releases(namespace))
    release_ids = [published, *(row.release_id for row in rows if row.published_at)]
    if any(_holds_live(namespace, release_id, root) for release_id in release_ids):
        return False
    profiles = {version.profile for _, version in ledger.live(namespace)}
    # versions of several configs are still being rebuilt: no release can hold them
    return len(profiles) == 1 or not any(
        _holds_live(namespace, release_id, root, any_profile=True) for release_id in release_ids
    )


def _holds_live(
    namespace: str, release_id: str, root: DataRoot, *, any_profile: bool = False
) -> bool:
    """True when a release holds the current state of all documents changed since it was made."""
    store, ledger = root.store, root.ledger
    try:
        manifest = releases.manifest_of(store, namespace, release_id, ())
        with releases.open_catalog(store, namespace, release_id) as catalog:
            released, live = _read_changed(namespace, release_id, catalog, ledger)
    except RagError:  # its files are lost, or of another program version
        return False
    profile = manifest.profiles.get("embeddings")
    return (
        {name: version.edition for name, version in released.items()}
        == {version.version_id: version.edition for _, version in live}
        and (any_profile or all(v.profile == profile for _, v in live))
        and _hides_none(manifest, live, ledger)
    )


def _hides_none(
    manifest: Manifest, live: Collection[tuple[Document, Version]], ledger: Ledger
) -> bool:
    """True when no tombstone newer than the release hides one of the live versions. A lifted
    tombstone still hides: a document that was deleted and ingested again needs a new release.
    """
    later = ledger.tombstones(manifest.namespace, since=manifest.deletions)
    hidden = {tombstone.target for tombstone in later}
    return all(
        hidden.isdisjoint((document.doc_id, version.version_id)) for document, version in live
    )


def find_equal(
    namespace: str, strategy: Strategy, root: DataRoot, *, damaged: bool = False
) -> str | None:
    """The id of the published release when a new one would have the same content and profiles. None
    when they would differ, or when gates were configured since that have not judged the release, or
    when its files changed since, unless `damaged`.
    """
    store, ledger = root.store, root.ledger
    published = releases.current(store, namespace)
    find_reason = releases.other_build_reason if damaged else releases.full_build_reason
    if published is None or find_reason(store, namespace, strategy, published):
        return None
    manifest = releases.manifest_of(store, namespace, published, ())
    if (
        manifest.strategy != strategy.name
        or lacks_verdict(manifest, strategy)
        or releases.missing_files(store, manifest)
    ):
        return None
    with releases.open_catalog(store, namespace, published) as catalog:
        if catalog.unembedded():  # a new build embeds those again
            return None
        released, live = _read_changed(namespace, published, catalog, ledger)
        documents = {
            d.doc_id: description_of(d)
            for d in catalog.documents_of(v.doc_id for v in released.values())
        }
    same = (
        released.keys() == {version.version_id for _, version in live}
        and _hides_none(manifest, live, ledger)
        and all(
            _content_of(released[version.version_id]) == _content_of(version)
            and description_of(with_file_metadata(document, version))
            == documents.get(document.doc_id)
            for document, version in live
        )
    )
    if not same:
        return None
    rebuilt = [v for _, v in live if v.revision != released[v.version_id].revision]
    return published if _are_outputs_unchanged(namespace, published, rebuilt, store) else None


def _are_outputs_unchanged(
    namespace: str, release_id: str, versions: Sequence[Version], store: Store
) -> bool:
    """True when the versions' stored outputs are those that the release was built from."""
    if not versions:
        return True
    manifest = releases.manifest_of(store, namespace, release_id, ("outputs",))
    return all(
        output_fingerprint(store, version, manifest.profiles)
        == manifest.outputs.get(version.version_id)
        for version in versions
    )


def _content_of(version: Version) -> tuple[object, ...]:
    """What the ledger knows of a version's content in a release, without times and revisions."""
    return (
        version.edition,
        *(version.counts.get(key) for key in ("profile", "chunks", "warnings", "metadata")),
    )


def description_of(document: Document) -> tuple[object, ...]:
    """What a release says of a document beside its versions."""
    return document.title, document.tags, document.categories, document.metadata


# the collector takes a quarter of the time of a small edit in 20,000 documents
@without_collector()
def build_candidate(
    namespace: str, workspace: Workspace, *, full: bool = False, deletes: bool = False
) -> tuple[Manifest, list[CheckResult]]:
    """The checked candidate of the live versions and its checks, recorded in the ledger as
    `candidate` or, when a check failed, as `rejected`.

    By default it is built from the published release and the differences; with `full` from the
    stage outputs. A full build of unchanged content takes the place of the published release, also
    in the rollback order. New versions that are not proved by their files are given up, and the
    candidate is built once more without them. With `deletes` the candidate is the published release
    without what was deleted since: pending or rejected changes do not become public with it. Where
    that cannot be built any more, the live versions are used.

    Raises ReleaseError when nothing is live, or when a live version has no outputs under the
    current strategy.
    """
    strategy, store, ledger = workspace.strategy, workspace.store, workspace.ledger
    # read before the live versions: readers hide what is deleted in between
    deletions = ledger.deletion_sequence(namespace)
    settle(namespace, workspace)
    parent = releases.current(store, namespace)
    sequence: int | None = ledger.sequence(namespace)
    remainder = _read_remainder(namespace, parent, full, workspace) if deletes and parent else None
    if remainder is not None:
        strategy, sequence, live = remainder
    else:
        live = _read_live(namespace, None if full else parent, workspace)
    live = replace(live, deletions=deletions)
    profile = stage_profiles(strategy)["embeddings"]
    stale = [version for _, version in live.pairs if version.profile != profile]
    if stale:
        raise _stale_error(stale)
    retain(namespace, workspace)
    replaces = None
    if full and not deletes:
        replaces = find_equal(namespace, strategy, workspace, damaged=True)
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
        manifest, unproved = build(
            store,
            namespace,
            strategy,
            live,
            release_id=release_id,
            lineage=Lineage(parent, full, replaces),
            cache=cache,
            settings=workspace.settings,
        )
        span.set(release_id=release_id, parent=parent, **manifest.counts)
        _trace_upsert(span, manifest, store)
    if (
        unproved
        and not deletes
        and _give_up(unproved, namespace, workspace)
        and ledger.live(namespace)
    ):
        releases.drop(store.release_dir(namespace, release_id))
        return build_candidate(namespace, workspace, full=full)
    record_candidate(manifest, sequence, ledger)
    return manifest, list(manifest.checks)


def _give_up(unproved: Mapping[str, str], namespace: str, workspace: Workspace) -> bool:
    """Give up the versions that were read otherwise than their files prove, so that the other
    documents do not wait for them; their documents stay as published. True if any of the versions
    is no longer live. Left are those that could not be read again or of which stored files are
    damaged, pinned ones, and where the version itself or one of another config is published:
    without these, published text would be lost.
    """
    store, ledger = workspace.store, workspace.ledger
    profile = stage_profiles(workspace.strategy)["embeddings"]
    owners = {version_id: ledger.version(version_id).doc_id for version_id in unproved}
    published: dict[str, Version] = {}
    titles: dict[str, str] = {}
    if parent := releases.current(store, namespace):
        try:
            with releases.open_catalog(store, namespace, parent) as catalog:
                held = catalog.versions(catalog.version_ids(owners.values())[0])
                published = {it.doc_id: it for it in held.values()}
                titles = {it.doc_id: it.title for it in catalog.documents_of(published)}
        except RagError:  # its files are lost, so nobody knows what would be
            return False
    found = False
    for version_id, doc_id in owners.items():
        if ledger.document(namespace, doc_id).live_version != version_id:  # deleted meanwhile
            found = True
            continue
        before, reason = published.get(doc_id), unproved[version_id]
        if reason.partition(":")[0] in UNREADABLE or (
            before and (before.version_id == version_id or before.profile != profile)
        ):
            continue
        why = f"what was read is not proved by the file: {reason}"
        if ledger.withdraw(
            version_id,
            NOT_PROVED,
            why,
            profile=failure_profile(workspace),
            back_to=before.version_id if before else None,
            title=titles.get(doc_id),
        ):
            found = True
            given_up = {"version_id": version_id, "stage": "release", "code": NOT_PROVED}
            tracing.event("ingest.document_failed", {**given_up, "reason": why})
    return found


def record_candidate(manifest: Manifest, sequence: int | None, ledger: Ledger) -> None:
    """Record a release as `candidate` or, when a check failed, as `rejected`."""
    reasons = [f"{check.name}: {check.details}" for check in manifest.failures]
    ledger.put_release(
        Release(
            namespace=manifest.namespace,
            release_id=manifest.release_id,
            parent=manifest.parent,
            state="rejected" if reasons else "candidate",
            strategy=manifest.strategy,
            strategy_config_id=manifest.strategy_config_id,
            created_at=manifest.created_at,
            counts=dict(manifest.counts),
            reason="; ".join(reasons),
            sequence=sequence,
        )
    )


def _read_live(namespace: str, parent: str | None, workspace: Workspace) -> LiveVersions:
    """The live versions of the documents that changed since the parent was made or whose embedding
    failed; of all documents where the changes are unknown or the parent's files cannot be reused.
    """
    store, ledger = workspace.store, workspace.ledger
    changed, purged = None, False
    if parent and not releases.full_build_reason(store, namespace, workspace.strategy, parent):
        with releases.open_catalog(store, namespace, parent) as catalog:
            changed = _find_changed(namespace, parent, catalog, ledger)
            purged = _holds_purged(namespace, catalog, ledger)
    return LiveVersions(ledger.live(namespace, changed), changed, purged=purged)


def _read_remainder(
    namespace: str, parent: str, full: bool, root: DataRoot
) -> tuple[Strategy, int | None, LiveVersions] | None:
    """The parent's strategy, the ledger sequence it was built at, and its versions that no deletion
    took: those of the documents with deletions since, or with `full` of all documents. None where
    the parent's files, or for `full` the stage outputs it was built from, cannot be used.
    """
    store, ledger = root.store, root.ledger
    try:
        manifest = releases.manifest_of(store, namespace, parent)
        tombstones = ledger.tombstones(namespace, since=manifest.deletions)
        deleted = None if full else {it.doc_id for it in tombstones}
        with releases.open_catalog(store, namespace, parent) as catalog:
            released = catalog.versions(None if full else catalog.version_ids(deleted)[0])
            owners = catalog.documents_of({version.doc_id for version in released.values()})
            purged = _holds_purged(namespace, catalog, ledger)
    except RagError:  # its files are lost, or of another program version
        return None
    strategy = Strategy.model_validate(manifest.strategy_config)
    hidden = {tombstone.target for tombstone in tombstones}
    documents = {document.doc_id: document for document in owners}
    remaining = [
        (documents[version.doc_id], version)
        for version in released.values()
        if hidden.isdisjoint((version.doc_id, version.version_id))
    ]
    if full:
        versions = [version for _, version in remaining]
        if stage_profiles(strategy) != manifest.profiles or not _are_outputs_unchanged(
            namespace, parent, versions, store
        ):
            return None
    elif releases.full_build_reason(store, namespace, strategy, parent):
        return None
    sequence = ledger.release_sequence(namespace, parent)
    return strategy, sequence, LiveVersions(remaining, deleted, purged=purged)


def _holds_purged(namespace: str, catalog: CatalogReader, ledger: Ledger) -> bool:
    """True when the files hold data that is purged or about to be: no release may reuse them."""
    hard = [tombstone for tombstone in ledger.tombstones(namespace) if tombstone.mode == "hard"]
    removed = catalog.gone()
    named = {tombstone.target for tombstone in hard}
    released, _ = catalog.version_ids(
        tombstone.doc_id for tombstone in hard if tombstone.version_id is None
    )
    return bool(
        released
        or catalog.versions(tombstone.version_id for tombstone in hard if tombstone.version_id)
        or not named.isdisjoint({*removed, *removed.values()})
        or ledger.find_purged(removed)
    )


def _read_changed(
    namespace: str, release_id: str, catalog: CatalogReader, ledger: Ledger
) -> tuple[dict[str, Version], list[tuple[Document, Version]]]:
    """(the release's versions by id, what is live now) of the documents in `_find_changed`."""
    changed = _find_changed(namespace, release_id, catalog, ledger)
    return catalog.versions(catalog.version_ids(changed)[0]), ledger.live(namespace, changed)


def _find_changed(
    namespace: str, release_id: str, catalog: CatalogReader, ledger: Ledger
) -> set[str] | None:
    """The doc_ids whose state may have changed since the release was made. None where that is
    unknown: a restored ledger, or one of an earlier program, does not record when the release was
    made.
    """
    sequence = ledger.release_sequence(namespace, release_id)
    if sequence is None:
        return None
    return ledger.find_changed_documents(namespace, sequence).union(catalog.unembedded().values())


def _trace_upsert(span: tracing.Span, manifest: Manifest, store: Store) -> None:
    """Trace how many rows were written, and the versions with chunks that have no vector."""
    rows = int(manifest.delta["chunks_added"])
    vectors = min(rows, int(manifest.counts["dense"]))
    span.set(chroma_upserted=vectors, sqlite_rows_written=rows)
    tracing.count(upserted_rows=rows)
    unembedded: list[str] = []
    if manifest.counts.get("failed_embed"):
        with releases.open_catalog(store, manifest.namespace, manifest.release_id) as catalog:
            unembedded = sorted(catalog.unembedded())
    tracing.event(
        "ingest.upsert_result",
        {
            "vector_rows": vectors,
            "meta_rows": rows,
            "failed_ids": unembedded[:50],
            "delta": manifest.delta,
            "failed_checks": [check.name for check in manifest.failures],
        },
    )


def _stale_error(stale: Sequence[Version]) -> ReleaseError:
    """The error for live versions that have no outputs under the current config."""
    failed = [version for version in stale if version.code]
    namespace = stale[0].namespace
    if not failed:
        example = stale[0].version_id
        remedy = f"run `rag ingest` on their source, or `rag rebuild --namespace {namespace}`"
    else:
        example = (
            f"{failed[0].source_uri} ({failed[0].version_id}), which failed: [{failed[0].code}]"
            f" {failed[0].reason}"
        )
        remedy = (
            "put the config back, delete the document with `rag docs delete DOC --namespace"
            f" {namespace}`, or try again with `rag jobs retry --all --namespace {namespace}`"
        )
    return ReleaseError(
        f"{len(stale)} live versions were built under another config, e.g. {example}; the published"
        f" release stays; {remedy}",
        code="stale_versions",
        failed=[version.source_uri for version in failed],
    )


def newest_candidate(namespace: str, ledger: Ledger) -> str:
    """The id of the newest candidate after the last public release. Raises NotFoundError."""
    for row in ledger.releases(namespace):
        if row.published_at:
            break  # publishing an older candidate would silently go back
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


@without_collector()
def publish_candidate(
    namespace: str, release_id: str, root: DataRoot, *, override: str = ""
) -> Release:
    """The ledger's row of the published release. Moves the pointer, then records the publication,
    then drops old releases. `override` is the recorded reason for publishing despite a failed
    quality gate.

    Raises ReleaseError when a check failed, `not_judged` when the namespace has gates that did not
    judge the candidate, `outdated_candidate` when another release was published since it was built.
    """
    store, ledger = root.store, root.ledger
    with _writing(namespace, f"publish {release_id}", root):
        settle(namespace, root)
        recorded, published = ledger.read_published(namespace), releases.current(store, namespace)
        manifest = read_head(store.release_dir(namespace, release_id))
        if published not in (manifest.parent, manifest.delta.get("replaces"), release_id):
            raise ReleaseError(
                f"release {release_id} was built on {manifest.parent or 'nothing'}, but {published}"
                f" was published since; build another with `rag rebuild --namespace {namespace}`,"
                f" or publish this one all the same with `rag releases rollback {release_id}"
                f" --namespace {namespace}`",
                code="outdated_candidate",
            )
        if not (override or manifest.only_deletes) and lacks_verdict(manifest):
            raise ReleaseError(
                f"release {release_id} was not judged by the gates of {namespace!r} in"
                f" {GATES_FILE}; `rag rebuild --full --namespace {namespace}` builds one that is",
                code="not_judged",
            )
        with tracing.span("stage.publish", release_id=release_id, previous=published):
            _publish(namespace, release_id, recorded, root, override=bool(override))
        row = _row(namespace, release_id, ledger)
        if override:
            ledger.update_release(
                namespace, release_id, reason=f"published over the quality gate: {override}"
            )
            _bind_strategy(row, ledger)  # a rejected promotion has restored the former one
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
    namespace: str,
    release_id: str,
    recorded: frozenset[str],
    root: DataRoot,
    *,
    override: bool = False,
) -> None:
    """Move the pointers of the object store and of this machine to a release, unless the ledger or
    the object store records another publication since `recorded` was read. Raises what
    `require_publishable` raises.
    """
    store = root.store
    manifest = releases.require_publishable(store, namespace, release_id, override=override)
    # may take minutes, so outside the transaction
    before = transfer.push(store, manifest) if store.remote is not None else None
    with (
        nullcontext() if before is None else store.pointing(namespace),
        _publication(namespace, release_id, recorded, root),
    ):
        if before is not None:
            transfer.swap(store, manifest, before)
        releases.point_at(store, namespace, release_id)


def _publication(
    namespace: str, release_id: str, recorded: frozenset[str], root: DataRoot
) -> AbstractContextManager[None]:
    """The ledger transaction that records a release, with its manifest's sha256, as published."""
    path = root.store.release_dir(namespace, release_id) / FILENAME
    # the pointer may name a release whose files this machine has lost
    sha256 = sha256_file(path) if path.is_file() else ""
    return root.ledger.publication(
        namespace, release_id, instead_of=recorded, manifest_sha256=sha256
    )


def push_current(namespace: str, root: DataRoot) -> str:
    """Publish the current release in the object store too, for a library that had no object store
    before or whose last push was interrupted. Returns the release_id.
    """
    store = root.store
    with _writing(namespace, "push", root):
        settle(namespace, root)
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
    root: DataRoot,
    *,
    gates: str,
    evaluation_run: str | None = None,
) -> Manifest:
    """Add the result of a check that ran after the build, by gates of this `gates_id`, to a
    candidate's manifest; a failed one makes the candidate `rejected`. Returns the manifest. The
    caller holds the write lock.
    """
    directory = root.store.release_dir(namespace, release_id)
    manifest = read_head(directory)
    if VERSIONS not in manifest.files:  # an earlier program built it
        manifest = read_manifest(directory)
    others = tuple(known for known in manifest.checks if known.name != check.name)
    checks = (*others, check)
    manifest = replace(manifest, checks=checks, evaluation_run=evaluation_run, gates=gates)
    write_manifest(directory, manifest)
    if not check.passed:
        root.ledger.update_release(
            namespace, release_id, state="rejected", reason=f"{check.name}: {check.details}"
        )
    return manifest


def _writing(namespace: str, owner: str, root: DataRoot) -> AbstractContextManager[None]:
    """The write lock of an existing library, so that a mistyped name makes no folder. Raises
    NotFoundError.
    """
    known = root.ledger.namespaces()
    if namespace not in known:
        raise unknown_namespace(namespace, known)
    return root.store.writer(namespace, owner, wait=_LOCK_SECONDS)


def roll_back(namespace: str, to: str | None, root: DataRoot) -> Release:
    """Publish `to`, or by default the release before the current one, and bind the namespace to
    the strategy that built it. Returns the release that is published now.
    """
    store, ledger = root.store, root.ledger
    with _writing(namespace, "rollback", root):
        settle(namespace, root)
        recorded, before = ledger.read_published(namespace), releases.current(store, namespace)
        to = to or releases.before_current(store, namespace)
        if to in transfer.list_pushed(store, namespace):
            transfer.fetch_release(store, namespace, to)
        _publish(namespace, to, recorded, root)
        row = _row(namespace, to, ledger)
        _bind_strategy(row, ledger)
        tracing.event(
            "release.rolled_back",
            {"namespace": namespace, "release_id": row.release_id, "previous": before},
        )
    return row


def _bind_strategy(row: Release, ledger: Ledger) -> None:
    """Bind the namespace to the strategy of its published release; otherwise the next ingest, or
    the sensor, would publish with the one before.
    """
    if ledger.namespaces().get(row.namespace) != row.strategy:
        ledger.rebind_strategy(row.namespace, row.strategy, row.strategy_config_id)


def go_forward(namespace: str, root: DataRoot) -> Release:
    """Undo a rollback: publish the newest release that was ever public. Where the pointer is
    damaged, restore the release that was published last. Raises ReleaseError when there is no newer
    one.
    """
    store, ledger = root.store, root.ledger
    with _writing(namespace, "forward", root):
        try:
            published = releases.current(store, namespace)
        except ReleaseError:
            settle(namespace, root)
            return _row(namespace, releases.require_current(store, namespace), ledger)
        newer = releases.list_newer(namespace, published, store, ledger)
        if not newer:
            raise ReleaseError(
                f"library {namespace!r} has no newer release that was published once; `rag"
                f" releases list --namespace {namespace}` shows all",
                code="nothing_to_go_forward",
            )
        return roll_back(namespace, newer[0].release_id, root)


def history(namespace: str, root: DataRoot) -> list[Json]:
    """The releases, newest first: the ledger's row, whether readers see it, its size on disk and
    its delta; size and delta are empty for removed ones.

    The pointer decides which one is `published`: after a crash the ledger may not know it yet.
    """
    store = root.store
    published = releases.current(store, namespace)
    kept = {head.release_id: head for head in releases.list_heads(store, namespace)}
    rows: list[Json] = []
    for row in root.ledger.releases(namespace):
        manifest = kept.get(row.release_id)
        state = (
            "published"
            if row.release_id == published
            else "retired"
            if row.state == "published"
            else row.state
        )
        size, unshared = releases.sizes(store, namespace, row.release_id)
        rows.append(
            {
                **to_json(row),
                "state": "lost" if state == "published" and manifest is None else state,
                "documents": int(row.counts.get("documents", 0)),
                "chunks": int(row.counts.get("chunks", 0)),
                "bytes": size,
                "bytes_alone": unshared,
                "delta": dict(manifest.delta) if manifest else {},
            }
        )
    return rows


def pin_release(namespace: str, release_id: str, pinned: bool, root: DataRoot) -> Release:
    """Pin a release against retention, or unpin it. Raises NotFoundError if it is not on disk."""
    with _writing(namespace, "pin a release", root):
        read_head(root.store.release_dir(namespace, release_id))
        root.ledger.update_release(namespace, release_id, pinned=pinned)
    return _row(namespace, release_id, root.ledger)


def settle(namespace: str, root: DataRoot) -> None:
    """Bring this machine and the ledger into agreement with the pointer, after a crash or a
    publication by another machine; a damaged pointer is restored from the ledger. The caller holds
    the write lock.
    """
    store, ledger = root.store, root.ledger
    releases.mend_pointer(store, namespace, ledger.read_published(namespace))
    if store.remote is not None and namespace:
        open_for_writing(store)
        transfer.pull(namespace, root)
    published, recorded = releases.current(store, namespace), ledger.read_published(namespace)
    known = {row.release_id for row in ledger.releases(namespace)}
    if published in known and recorded != {published}:
        with _publication(namespace, published, recorded, root):
            pass


def _row(namespace: str, release_id: str, ledger: Ledger) -> Release:
    row = ledger.release(namespace, release_id)
    assert row is not None  # it was just updated
    return row
