"""Stores the bytes of files, URLs and uploads, and decides which versions must be processed.

This happens before a job's run, in the process that launches it: where nothing changed, no run is
started.
"""

from __future__ import annotations

import hashlib
import io
import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from rag_platform.config.profiles import stage_profiles, strategy_config_id
from rag_platform.config.settings import Settings, fingerprint
from rag_platform.errors import (
    NEEDS_ANOTHER_FILE,
    DocumentError,
    FetchError,
    InputError,
    IntegrityError,
    disk_full,
)
from rag_platform.intake.discovery import Finds, Found, Input, SourceOptions, find
from rag_platform.intake.fetching import download_url, is_url
from rag_platform.intake.loading import choose, require_allowed_size
from rag_platform.ir import Document, Json, Version
from rag_platform.ledger.ledger import Ledger
from rag_platform.ledger.schema import JobItem, Source, now
from rag_platform.loaders.decoding import codec_of
from rag_platform.observability.build import build_info
from rag_platform.storage.blobs import push_raw
from rag_platform.storage.store import NAMESPACE, sha256_file
from rag_platform.text.wording import pluralise
from rag_platform.workspace import Workspace

_GONE = (404, 410)  # HTTP statuses of a page that no longer exists
_UNREAD = ("ignored", "unsupported_type")  # codes of files that are not read
# a sync may always retire so many documents of a source, or a small one could hardly change
_HANDFUL = 5
_SHOWN_GONE = 3


@dataclass(frozen=True, slots=True)
class Reception:
    """The decisions about all files, and about documents whose file is gone (`retired`, `kept`)."""

    namespace: str
    items: tuple[JobItem, ...]
    to_process: tuple[str, ...]  # version_ids, in order of arrival
    forced: tuple[str, ...]  # version_ids whose stages run again on equal bytes
    retired: tuple[str, ...]  # doc_ids gone from their source
    changed: bool  # tags or metadata of documents differ from the last release
    looked: tuple[str, ...] = ()  # prefixes of source_uris below which every file was seen


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiveOptions(SourceOptions):
    """How to receive the files, and options of the sources they belong to."""

    tags: tuple[str, ...] = ()
    metadata: Json = field(default_factory=dict)
    policy: str = "skip"  # skip | new_version
    sync: bool = False
    # whether a sync may retire most or all documents of a source
    retire_all: bool = False


def receive(
    inputs: Sequence[Input], namespace: str, workspace: Workspace, options: ReceiveOptions
) -> Reception:
    """Store the inputs, record them in the ledger, and return the decisions.

    A string that is a URL is fetched under settings.fetching. With options.sync, documents whose
    file is gone from the folders, or whose page answers 404 or 410, are retired, unless their
    source keeps them or they are pinned. A folder without any readable file (an unmounted drive
    looks like that), and a source of which more than `settings.max_gone_share` is gone (another
    disk in its place), are `refused` and stay as they are unless options.retire_all. A document
    that a user deleted comes back only when its file is named. A file that cannot be received
    becomes a `refused` item with the reason; the others go on.

    Raises InputError for a bad namespace, policy, source name or strategy, before anything is
    stored; BusyError while garbage is collected.
    """
    check_namespace(namespace)
    for name, value, known in (
        ("policy", options.policy, ("skip", "new_version")),
        ("on_gone", options.on_gone, (None, "retire", "keep")),
    ):
        if value not in known:
            raise InputError(f"unknown {name} {value!r}; known: {', '.join(filter(None, known))}")
    strategy, ledger = workspace.strategy, workspace.ledger
    with workspace.store.receiving():
        state = _NamespaceState.read(ledger, namespace, stage_profiles(strategy)["embeddings"])
        finds = find(
            inputs,
            namespace,
            workspace.settings,
            state.sources.values(),
            list(state.documents.values()),
            options,
        )

        def record_namespace() -> None:
            ledger.bind_strategy(namespace, strategy.name, strategy_config_id(strategy))
            held = {file.source.name for file in finds.found.values() if not file.ignored}
            for name, source in finds.sources.items():
                if name in state.sources or name in held:
                    ledger.put_source(source)

        is_known = namespace in ledger.namespaces()
        if is_known:  # before anything is stored: this raises for another strategy
            record_namespace()
        sources = state.sources | finds.sources
        guards = options.sync and not options.retire_all
        missing: list[Document] = []  # what the sync would retire
        if guards:
            missing = _would_retire(finds.missing(state.documents.values()), sources)
            _refuse_replaced_folders(finds, missing, state, workspace.settings)
        decisions, gone = _decide_all(finds.found.values(), state, workspace, options)
        records = [decision.records for decision in decisions if decision.records]
        if not is_known and records:  # without records no namespace is created
            record_namespace()
        # first, since another machine may process what is recorded
        push_raw(workspace.store, [version.file_sha256 for _, version in records])
        ledger.receive(records)
        if guards:
            _refuse_emptied_folders(finds, missing, decisions)
            gone = _refuse_vanished_lists(finds, gone, state, sources, workspace.settings)
        gone += finds.missing(state.documents.values())
        kept_or_retired = [
            _keep_or_retire(document, sources[document.source], options.sync)
            for document in gone
            if document.status == "active"
        ]
        retired = tuple(item.doc_id for item in kept_or_retired if item.decision == "retired")
        # a deleted document whose file is gone may return with the next file there; a pinned one
        # stays live without a wanted version
        unwanted = [
            document.doc_id
            for document in (gone if options.sync else ())
            if document.status == "deleted" or (document.pinned and document.wanted_version)
        ]
        ledger.retire(namespace, [*retired, *unwanted])
    items = (*finds.refused, *(decision.item for decision in decisions), *kept_or_retired)
    return Reception(
        namespace,
        items,
        tuple(item.version_id for item in items if item.state == "queued"),
        tuple(decision.item.version_id for decision in decisions if decision.forced),
        retired,
        any(decision.edited for decision in decisions),
        tuple(finds.looked),
    )


@dataclass(frozen=True, slots=True)
class _NamespaceState:
    """A namespace in the ledger before anything is received."""

    sources: dict[str, Source]
    documents: dict[str, Document]  # by source_uri
    versions: dict[str, Version]
    deleted: dict[str, str]  # doc_id or version_id: the day of its deletion
    profile: str  # of complete versions

    @classmethod
    def read(cls, ledger: Ledger, namespace: str, profile: str) -> _NamespaceState:
        return cls(
            {source.name: source for source in ledger.sources(namespace)},
            {document.source_uri: document for document in ledger.documents(namespace)},
            {version.version_id: version for version in ledger.versions(namespace)},
            {it.target: it.created_at[:10] for it in ledger.tombstones(namespace)},
            profile,
        )

    def live(self) -> Iterator[Document]:
        """The documents with live text."""
        return filter(_is_live, self.documents.values())


def _is_live(document: Document) -> bool:
    return document.status == "active" and document.live_version is not None


@dataclass(frozen=True, slots=True)
class _Decision:
    """The decision about one file, and the ledger rows that follow from it."""

    item: JobItem
    records: tuple[Document, Version] | None = None
    forced: bool = False
    edited: bool = False  # needs a release because of tags or metadata only


def _decide_all(
    files: Iterable[Found], state: _NamespaceState, workspace: Workspace, options: ReceiveOptions
) -> tuple[list[_Decision], list[Document]]:
    """(the decision about each file, the documents whose page is gone)."""
    decisions: list[_Decision] = []
    gone: list[Document] = []
    for file in files:
        document = state.documents.get(file.source_uri)
        try:
            decisions.append(_decide_file(file, document, state, workspace, options))
        except FetchError as error:
            if (
                options.sync
                and document
                and document.status == "active"
                and error.details.get("status") in _GONE
            ):
                gone.append(document)
            else:
                decisions.append(_Decision(_refusal(file, error, document)))
        except (DocumentError, IntegrityError, OSError) as error:
            if full := disk_full(error, workspace.store.home):
                raise full from error
            decisions.append(_Decision(_refusal(file, error, document)))
    return decisions, gone


def _decide_file(
    file: Found,
    known: Document | None,
    state: _NamespaceState,
    workspace: Workspace,
    options: ReceiveOptions,
) -> _Decision:
    """Decide about one file, and store its bytes unless it is ignored. Raises the reason why it
    cannot be received.
    """
    uri = file.source_uri
    if file.ignored:
        code = "arriving" if file.arriving else "ignored"
        return _Decision(JobItem(uri, "", "", "ignored", "skipped", code, file.ignored))
    doc_id = known.doc_id if known else document_id(file.source.namespace, uri)
    # of a deletion before the library was exported and imported, only the tombstone is known
    deleted = known.status == "deleted" if known else doc_id in state.deleted
    if deleted and not file.explicit:
        return _stays_deleted(uri, doc_id, "", state.deleted.get(doc_id))
    is_restored = known is not None and known.doc_id in state.deleted
    document, version = _identify(file, None if is_restored else known, workspace, options)
    if version.version_id in state.deleted and not file.explicit:
        day = state.deleted[version.version_id]
        return _stays_deleted(uri, document.doc_id, version.version_id, day)
    recorded = state.versions.get(version.version_id)
    decision = (
        "new" if is_restored else _decide(known, version, recorded, state.profile, options.policy)
    )
    if recorded:
        # keep the counts of the last build: the next one is compared with them, and if it fails,
        # the live outputs are read by them
        version = replace(
            version,
            revision=recorded.revision + (decision == "new_version"),
            counts=recorded.counts,
        )
        in_vain = is_given_up(recorded, workspace) or (
            options.sync
            and recorded.code in NEEDS_ANOTHER_FILE
            and _has_failed_before(recorded, workspace)
        )
        if decision == "continue" and in_vain and not file.explicit:
            return _Decision(given_up_item(recorded), (document, recorded))
    reason = ""
    if known and known.pinned and known.live_version != version.version_id:
        reason = (
            f"pinned to {known.live_version}, this newer file is not live; `rag docs live"
            f" {known.doc_id} --unpin --namespace {known.namespace}` lets go"
        )
    item_state = "skipped" if decision == "skip" else "queued"
    item = JobItem(uri, document.doc_id, version.version_id, decision, item_state, "", reason)
    if decision != "skip":
        return _Decision(
            item, (document, version), forced=bool(recorded) and decision == "new_version"
        )
    assert known and recorded
    edited = (document.tags, document.metadata) != (known.tags, known.metadata)
    needs_update = edited or known.wanted_version != version.version_id
    return _Decision(item, (document, recorded) if needs_update else None, edited=edited)


def is_given_up(version: Version, workspace: Workspace) -> bool:
    """True for a version that failed too often under this config; retried only on request."""
    return version.status == "dead" and _has_failed_before(version, workspace)


def _has_failed_before(version: Version, workspace: Workspace) -> bool:
    profile = failure_profile(workspace)
    failed = version.status in ("failed", "dead")
    return failed and version.counts.get("failed_profile", profile) == profile


def failure_profile(workspace: Workspace) -> str:
    """Under what a version failed: with another config, other limits or another version of the
    program it may succeed.
    """
    limits = workspace.settings.limits.model_dump(mode="json")
    embeddings = stage_profiles(workspace.strategy)["embeddings"]
    return fingerprint(embeddings, limits, build_info(), length=12)


def given_up_item(version: Version) -> JobItem:
    """The item of a version that was given up: why it failed, and how to retry it unless only
    another file can help, which the reason says.
    """
    reason = version.reason
    if version.code not in NEEDS_ANOTHER_FILE:
        again = f"`rag jobs retry --all --namespace {version.namespace}` tries again"
        reason += f" (given up at attempt {version.attempts}; {again})"
    return JobItem(
        version.source_uri, version.doc_id, version.version_id, "dead", "dead", version.code, reason
    )


def _stays_deleted(source_uri: str, doc_id: str, version_id: str, day: str | None) -> _Decision:
    what = "this version was" if version_id else "it was"
    reason = f"{what} deleted on {day or 'an earlier day'}; name the file to add it"
    return _Decision(
        JobItem(source_uri, doc_id, version_id, "ignored", "skipped", "deleted", reason)
    )


def _keep_or_retire(document: Document, source: Source, sync: bool) -> JobItem:
    """The item of a document whose file is gone: kept or retired, according to its source."""
    live = document.live_version or ""
    reason = "its file is gone"
    if document.pinned:
        reason += (
            f", it is pinned to {live}; `rag docs live {document.doc_id} --unpin --namespace"
            f" {document.namespace}` lets go"
        )
    elif source.on_gone == "keep":
        reason += f"; source {source.name!r} keeps such documents"
    elif not sync:
        reason += "; --sync retires such documents"
    else:
        return JobItem(
            document.source_uri, document.doc_id, live, "retired", "done", "", "its file is gone"
        )
    return JobItem(document.source_uri, document.doc_id, live, "kept", "skipped", "", reason)


def _would_retire(documents: Iterable[Document], sources: Mapping[str, Source]) -> list[Document]:
    """Those of the documents, whose files are gone, that have live text and that a sync retires."""
    return [
        document
        for document in documents
        if _is_live(document)
        and _keep_or_retire(document, sources[document.source], sync=True).decision == "retired"
    ]


def _refuse_replaced_folders(
    finds: Finds, missing: Sequence[Document], state: _NamespaceState, settings: Settings
) -> None:
    """Refuse folders of which so much is gone that another disk or checkout may stand in their
    place, and read nothing of them. What was only renamed or moved inside of them is not gone.
    Folders without any file are left to `_refuse_emptied_folders`.
    """
    held = finds.held()
    for place in finds.looked:
        if place.startswith(tuple(finds.unseen)) or not any(it.startswith(place) for it in held):
            continue
        lost = [document for document in missing if document.source_uri.startswith(place)]
        live = sum(document.source_uri.startswith(place) for document in state.live())
        if not _is_too_much(len(lost), live, settings):
            continue
        versions = {it.doc_id: state.versions[it.live_version or ""] for it in lost}
        new = [
            file.path
            for file in finds.found.values()
            if file.source_uri.startswith(place)
            and not file.ignored
            and file.source_uri not in state.documents
        ]
        moved = set(_hash_sized(new, {it.size for it in versions.values()}, settings))
        lost = [it for it in lost if versions[it.doc_id].file_sha256 not in moved]
        if _is_too_much(len(lost), live, settings):
            finds.skip(place)
            finds.refuse(place, "mostly_gone", _mostly_gone(lost, live))


def _hash_sized(paths: Iterable[Path], sizes: Collection[int], settings: Settings) -> Iterator[str]:
    """The sha256 of each file of one of the sizes."""
    for path in paths:
        with suppress(OSError):  # reported when it is received
            if path.stat().st_size in sizes:
                yield sha256_file(path, settings.limits.read_chunk_size_bytes)


def _refuse_vanished_lists(
    finds: Finds,
    gone: Sequence[Document],
    state: _NamespaceState,
    sources: Mapping[str, Source],
    settings: Settings,
) -> list[Document]:
    """The documents whose page is gone, without those of lists of URLs that are refused because so
    many pages vanished at once: the server may have moved, or be badly set up.
    """
    kept: list[Document] = []
    for name in dict.fromkeys(document.source for document in gone):
        here = [document for document in gone if document.source == name]
        lost = _would_retire(here, sources)
        live = sum(document.source == name for document in state.live())
        if _is_too_much(len(lost), live, settings):
            finds.refuse(name, "mostly_gone", _mostly_gone(lost, live))
        else:
            kept += here
    return kept


def _is_too_much(lost: int, live: int, settings: Settings) -> bool:
    return lost > max(_HANDFUL, settings.max_gone_share * live)


def _mostly_gone(lost: Sequence[Document], live: int) -> str:
    examples = ", ".join(document.source_uri for document in lost[:_SHOWN_GONE])
    return (
        f"{len(lost)} of {pluralise(live, 'document')} from here are gone, e.g. {examples}, so"
        " another disk, folder or server may stand in this place; its documents stay as they are."
        " To retire those that are gone, repeat the sync with --yes"
    )


def _refuse_emptied_folders(
    finds: Finds, missing: Sequence[Document], decisions: Sequence[_Decision]
) -> None:
    """Refuse folders that no longer hold any readable file although documents came from them: the
    drive may be unmounted, or a pattern may match nothing.
    """
    read_uris = [it.item.source_uri for it in decisions if it.item.code not in _UNREAD]
    for place in finds.looked:
        if place.startswith(tuple(finds.unseen)) or any(it.startswith(place) for it in read_uris):
            continue
        if lost := [document for document in missing if document.source_uri.startswith(place)]:
            finds.unseen.append(place)
            reason = (
                "the folder holds no file to read any more; to retire what came from it"
                f" ({pluralise(len(lost), 'document')}, e.g. {lost[0].source_uri}), repeat the"
                " sync with --yes"
            )
            finds.refuse(place, "emptied", reason)


def check_namespace(namespace: str) -> None:
    """Raise InputError, with the rule, unless the namespace is well formed."""
    if not NAMESPACE.fullmatch(namespace):
        raise InputError(
            f"bad library {namespace!r}: 1-63 of a-z, 0-9, _ and -, beginning with a letter or"
            " digit",
            code="bad_namespace",
        )


def document_id(namespace: str, source_uri: str) -> str:
    """A readable slug of the file's name and folder, in any script, plus 10 hex digits of the
    identity, e.g. `tutorial-fastapi-3f2a9c1b7d`. The name comes first, so it survives truncation in
    lists.
    """
    folder, _, name = source_uri.rpartition("/")
    stem = "-".join([re.sub(r"\.[A-Za-z0-9]{1,8}$", "", name), folder.rpartition("/")[2]])
    words = re.sub(r"[\W_]+", "-", unicodedata.normalize("NFKC", stem).lower())
    slug = words.strip("-")[:48].strip("-") or "doc"
    digest = hashlib.sha256(f"{namespace}\n{source_uri}".encode()).hexdigest()
    return f"{slug}-{digest[:10]}"


def version_id(namespace: str, doc_id: str, file_sha256: str) -> str:
    """`<namespace>.<doc_id>@<first 12 of file_sha256>`: the Dagster partition key."""
    return f"{namespace}.{doc_id}@{file_sha256[:12]}"


def _identify(
    file: Found, known: Document | None, workspace: Workspace, options: ReceiveOptions
) -> tuple[Document, Version]:
    """The document and version records of a file; stores its bytes."""
    version, origin = _store(file, known, workspace)
    document = Document(
        namespace=version.namespace,
        doc_id=version.doc_id,
        source=file.source.name,
        source_uri=file.source_uri,
        filename=version.filename,
        title=known.title if known else "",
        tags=tuple(sorted({*(known.tags if known else ()), *options.tags})),
        categories=known.categories if known else (),
        metadata={**(known.metadata if known else {}), **options.metadata},
        origin=origin,
        created_at=known.created_at if known else now(),
        updated_at=now(),
    )
    return document, version


def _store(file: Found, known: Document | None, workspace: Workspace) -> tuple[Version, str]:
    """(version, path or final URL) of a file, URL or upload, whose bytes are stored. Raises
    DocumentError when no loader claims them.
    """
    store, limits, charset = workspace.store, workspace.settings.limits, ""
    if is_url(file.source_uri):
        downloaded = download_url(file.source_uri, workspace.settings, store)
        filename, origin, charset = downloaded.filename, downloaded.final_url, downloaded.charset
        file_sha256, size = downloaded.file_sha256, downloaded.size
        path = store.raw_path(file_sha256)
    elif file.content is not None:
        filename, origin = file.path.name, ""
        content = file.content
        with io.BytesIO(content) if isinstance(content, bytes) else open(content, "rb") as stream:
            file_sha256, size = store.spool(stream, limits.read_chunk_size_bytes, limits.max_bytes)
        path = store.raw_path(file_sha256)
    else:
        filename, path, origin, file_sha256, size = file.path.name, file.path, str(file.path), "", 0
    loader, mime = choose(path, filename, workspace.strategy)
    if not file_sha256:  # a file that no loader reads is not copied
        file_sha256, size = _store_file(path, known is not None, workspace)
    if codec_of(charset) not in ("", "utf-8") and mime.startswith("text/"):
        mime = f"{mime}; charset={charset}"
    namespace = file.source.namespace
    doc_id = known.doc_id if known else document_id(namespace, file.source_uri)
    version = Version(
        version_id(namespace, doc_id, file_sha256),
        namespace,
        doc_id,
        file.source_uri,
        filename,
        file_sha256,
        size,
        mime,
        loader,
        workspace.strategy.name,
        received_at=now(),
    )
    return version, origin


def _store_file(path: Path, maybe_known: bool, workspace: Workspace) -> tuple[str, int]:
    """(file_sha256, size) after storing a file under raw/; one that may be stored already is hashed
    before it is copied.
    """
    store, limits = workspace.store, workspace.settings.limits
    size = path.stat().st_size
    require_allowed_size(size, limits)
    if maybe_known:
        digest = sha256_file(path, limits.read_chunk_size_bytes)
        if store.raw_path(digest).is_file():
            return digest, size
    with open(path, "rb") as source:
        return store.spool(source, limits.read_chunk_size_bytes, limits.max_bytes)


def _decide(
    known: Document | None,
    version: Version,
    recorded: Version | None,
    complete_profile: str,
    policy: str,
) -> str:
    if known is None:
        return "new"
    if recorded is None:
        return "new_version"
    is_live = known.live_version == version.version_id and known.status == "active"
    if is_live and policy == "new_version":
        return "new_version"
    is_complete = recorded.is_complete(complete_profile)
    return "skip" if is_complete and (is_live or known.pinned) else "continue"


def _refusal(file: Found, error: Exception, document: Document | None) -> JobItem:
    code = getattr(error, "code", "unreadable")
    if code == "unsupported_type" and not file.explicit:
        return JobItem(file.source_uri, "", "", "ignored", "skipped", code, str(error))
    reason = str(error)
    if isinstance(error, OSError) and error.strerror:
        reason = f"it cannot be read ({error.strerror}); look at its permissions and its disk"
    doc_id = document.doc_id if document else ""
    return JobItem(file.source_uri, doc_id, "", "refused", "failed", code, reason)
