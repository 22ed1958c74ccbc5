"""Stores the bytes of files, URLs and contents, and decides what must be processed so that a
namespace holds them.

Receiving runs in whoever launches a job, before the run: where nothing changed, nothing is started.
"""

from __future__ import annotations

import hashlib
import io
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from rag_platform.config.profiles import stage_profiles, strategy_config_id
from rag_platform.errors import (
    NEEDS_ANOTHER_FILE,
    DocumentError,
    FetchError,
    InputError,
    IntegrityError,
    disk_full,
)
from rag_platform.intake.discovery import Finds, Found, Input, SourceOptions, find
from rag_platform.intake.downloading import download, is_url
from rag_platform.intake.loading import choose, require_allowed_size, sniff
from rag_platform.ir import Document, Json, Version
from rag_platform.ledger.ledger import Ledger
from rag_platform.ledger.schema import JobItem, Source, now
from rag_platform.loaders.decoding import codec_of
from rag_platform.storage.blobs import push_raw
from rag_platform.storage.store import sha256_file
from rag_platform.text.plurals import pluralise
from rag_platform.workspace import Workspace

_NAMESPACE = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_HEAD_BYTES = 4096
_GONE = (404, 410)  # what a server answers for a page that is no more
_UNREAD = ("ignored", "unsupported_type")  # files of a folder that are left alone


@dataclass(frozen=True, slots=True)
class _Arrived:
    """The bytes of one file in the store, and the loader that claims them."""

    filename: str
    file_sha256: str
    size: int
    mime: str
    loader: str
    origin: str


@dataclass(frozen=True, slots=True)
class Reception:
    """The decisions about all files, and about documents whose file is gone (`retired`, `kept`)."""

    namespace: str
    items: tuple[JobItem, ...]
    to_process: tuple[str, ...]  # version_ids, in order of arrival
    forced: tuple[str, ...]  # those whose stages run again on equal bytes
    retired: tuple[str, ...]  # doc_ids gone from their source
    changed: bool  # documents' tags or metadata differ from what the last release holds
    looked: tuple[str, ...] = ()  # beginnings of source_uris below which every file was seen


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiveOptions(SourceOptions):
    """What the caller wants done with the files, and of the sources that they belong to."""

    tags: tuple[str, ...] = ()
    metadata: Json = field(default_factory=dict)
    policy: str = "skip"  # skip | new_version
    sync: bool = False
    # whether a sync may retire all documents below a folder that holds nothing to read any more
    retire_all: bool = False


def receive(
    inputs: Sequence[Input], namespace: str, workspace: Workspace, options: ReceiveOptions
) -> Reception:
    """Store the inputs, record them in the ledger, and return what must be processed.

    A string that is a URL is fetched under settings.fetching. With options.sync, documents whose
    file is gone from the folders, or whose page answers 404 or 410, are retired, unless their
    source keeps them or they are pinned. A folder without any file to read, as a drive that is not
    mounted leaves it, is `refused` unless options.retire_all. A document that a user deleted comes
    back only when its file is named. A file that cannot be received becomes a `refused` item with
    the reason; the others go on.

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
        books = _Books.read(ledger, namespace, stage_profiles(strategy)["embeddings"])
        finds = find(
            inputs,
            namespace,
            workspace.settings,
            books.sources.values(),
            list(books.documents.values()),
            options,
        )

        def record_namespace() -> None:
            ledger.bind_strategy(namespace, strategy.name, strategy_config_id(strategy))
            for source in finds.sources.values():
                ledger.put_source(source)

        is_known = namespace in ledger.namespaces()
        if is_known:  # with another strategy nothing may be stored
            record_namespace()
        taken, gone = _take_all(finds.found.values(), books, workspace, options)
        records = [one.records for one in taken if one.records]
        if not is_known and records:  # where nothing was taken in, no library comes to be
            record_namespace()
        # another machine may process what is recorded
        push_raw(workspace.store, [version.file_sha256 for _, version in records])
        ledger.receive(records)
        sources = books.sources | finds.sources
        if options.sync and not options.retire_all:
            _keep_emptied(finds, taken, books, sources)
        gone += finds.missing(books.documents.values())
        left = [
            _leave(document, sources[document.source], options.sync)
            for document in gone
            if document.status == "active"
        ]
        retired = tuple(item.doc_id for item in left if item.decision == "retired")
        # a deleted document whose file is gone may come back with the next file there; a pinned one
        # stays live, but nothing is wanted
        ledger.retire(
            namespace,
            [
                *retired,
                *(
                    d.doc_id
                    for d in gone
                    if options.sync and (d.status == "deleted" or (d.pinned and d.wanted_version))
                ),
            ],
        )
    items = (*finds.refused, *(one.item for one in taken), *left)
    return Reception(
        namespace,
        items,
        tuple(item.version_id for item in items if item.state == "queued"),
        tuple(one.item.version_id for one in taken if one.forced),
        retired,
        any(one.edited for one in taken),
        tuple(finds.looked),
    )


@dataclass(frozen=True, slots=True)
class _Books:
    """The state of a namespace in the ledger before anything is received."""

    sources: dict[str, Source]
    documents: dict[str, Document]  # by source_uri
    versions: dict[str, Version]
    deleted: dict[str, str]  # doc_id or version_id: the day of its deletion
    profile: str  # of a version that is complete

    @classmethod
    def read(cls, ledger: Ledger, namespace: str, profile: str) -> _Books:
        return cls(
            {source.name: source for source in ledger.sources(namespace)},
            {document.source_uri: document for document in ledger.documents(namespace)},
            {version.version_id: version for version in ledger.versions(namespace)},
            {
                stone.version_id or stone.doc_id: stone.created_at[:10]
                for stone in ledger.tombstones(namespace)
            },
            profile,
        )


@dataclass(frozen=True, slots=True)
class _Taken:
    """The decision about one file, and the rows for the ledger that follow from it."""

    item: JobItem
    records: tuple[Document, Version] | None = None
    forced: bool = False
    edited: bool = False  # tags or metadata alone ask for a release


def _take_all(
    files: Iterable[Found], books: _Books, workspace: Workspace, options: ReceiveOptions
) -> tuple[list[_Taken], list[Document]]:
    """(what was decided about each file, the documents whose page is gone)."""
    taken: list[_Taken] = []
    gone: list[Document] = []
    for file in files:
        document = books.documents.get(file.source_uri)
        try:
            taken.append(_take(file, document, books, workspace, options))
        except FetchError as error:
            if (
                options.sync
                and document
                and document.status == "active"
                and error.details.get("status") in _GONE
            ):
                gone.append(document)
            else:
                taken.append(_Taken(_refusal(file, error, document)))
        except (DocumentError, IntegrityError, OSError) as error:
            if full := disk_full(error, workspace.store.home):
                raise full from error
            taken.append(_Taken(_refusal(file, error, document)))
    return taken, gone


def _take(
    file: Found,
    known: Document | None,
    books: _Books,
    workspace: Workspace,
    options: ReceiveOptions,
) -> _Taken:
    """Decide about one file, and store its bytes unless it is ignored. Raises the reason why it
    cannot be received.
    """
    uri = file.source_uri
    if file.ignored:
        code = "arriving" if file.arriving else "ignored"
        return _Taken(JobItem(uri, "", "", "ignored", "skipped", code, file.ignored))
    doc_id = known.doc_id if known else document_id(file.source.namespace, uri)
    # of one that was deleted where this library was imported from, only the deletion is known
    deleted = known.status == "deleted" if known else doc_id in books.deleted
    if deleted and not file.explicit:
        return _stays_deleted(uri, doc_id, "", books.deleted.get(doc_id))
    again = known is not None and known.doc_id in books.deleted
    document, version = _identify(file, None if again else known, workspace, options)
    if version.version_id in books.deleted and not file.explicit:
        day = books.deleted[version.version_id]
        return _stays_deleted(uri, document.doc_id, version.version_id, day)
    earlier = books.versions.get(version.version_id)
    decision = "new" if again else _decide(known, version, earlier, books.profile, options.policy)
    if earlier:
        # what the last build came to stays known: the next one is compared with it, and if that
        # fails, what is live is read by it
        version = replace(
            version, revision=earlier.revision + (decision == "new_version"), counts=earlier.counts
        )
        given_up = decision == "continue" and is_given_up(earlier, books.profile)
        if given_up and not file.explicit:
            return _Taken(given_up_item(earlier), (document, earlier))
    reason = ""
    if known and known.pinned and known.live_version != version.version_id:
        reason = (
            f"pinned to {known.live_version}, this newer file is not live; `rag docs live"
            f" {known.doc_id} --unpin` lets go"
        )
    state = "skipped" if decision == "skip" else "queued"
    item = JobItem(uri, document.doc_id, version.version_id, decision, state, "", reason)
    if decision != "skip":
        return _Taken(item, (document, version), forced=bool(earlier) and decision == "new_version")
    assert known and earlier
    edited = (document.tags, document.metadata) != (known.tags, known.metadata)
    moved_on = edited or known.wanted_version != version.version_id
    return _Taken(item, (document, earlier) if moved_on else None, edited=edited)


def is_given_up(version: Version, profile: str) -> bool:
    """True for a version that failed too often under this profile; it is tried again only on
    request.
    """
    return version.status == "dead" and version.counts.get("failed_profile", profile) == profile


def given_up_item(version: Version) -> JobItem:
    """The item of a version that was given up: why it failed, and how to try it again."""
    remedy = (
        "mend or replace the file"
        if version.code in NEEDS_ANOTHER_FILE
        else "`rag jobs retry --all` tries again"
    )
    reason = f"{version.reason} (given up after {version.attempts} failed runs; {remedy})"
    return JobItem(
        version.source_uri, version.doc_id, version.version_id, "dead", "dead", version.code, reason
    )


def _stays_deleted(source_uri: str, doc_id: str, version_id: str, day: str | None) -> _Taken:
    what = "this version was" if version_id else "it was"
    reason = f"{what} deleted on {day or 'an earlier day'}; name the file to add it"
    return _Taken(JobItem(source_uri, doc_id, version_id, "ignored", "skipped", "deleted", reason))


def _leave(document: Document, source: Source, sync: bool) -> JobItem:
    """Keep or retire a document whose file is gone, as the source asks."""
    live = document.live_version or ""
    kept = "its file is gone"
    if document.pinned:
        kept += f", it is pinned to {live}; `rag docs live {document.doc_id} --unpin` lets go"
    elif source.on_gone == "keep":
        kept += f"; source {source.name!r} keeps such documents"
    elif not sync:
        kept += "; --sync retires such documents"
    else:
        return JobItem(
            document.source_uri, document.doc_id, live, "retired", "done", "", "its file is gone"
        )
    return JobItem(document.source_uri, document.doc_id, live, "kept", "skipped", "", kept)


def _keep_emptied(
    finds: Finds, taken: Sequence[_Taken], books: _Books, sources: Mapping[str, Source]
) -> None:
    """Refuse the folders that hold no file to read, where documents came from before: the drive may
    be away, or a pattern fits no file.
    """
    read = [one.item.source_uri for one in taken if one.item.code not in _UNREAD]
    for place in finds.looked:
        if any(uri.startswith(place) for uri in read):
            continue
        going = [
            document
            for document in finds.missing(books.documents.values())
            if document.source_uri.startswith(place)
            and document.status == "active"
            and document.live_version
            and _leave(document, sources[document.source], sync=True).decision == "retired"
        ]
        if going:
            finds.unseen.append(place)
            reason = (
                "the folder holds no file to read any more; to retire what came from it"
                f" ({pluralise(len(going), 'document')}, e.g. {going[0].source_uri}), repeat the"
                " sync with --yes"
            )
            finds.refuse(place, "emptied", reason)


def check_namespace(namespace: str) -> None:
    """Raise InputError, with the rule, unless the namespace is well formed."""
    if not _NAMESPACE.fullmatch(namespace):
        raise InputError(
            f"bad library {namespace!r}: 1-63 of a-z, 0-9, _ and -, beginning with a letter or"
            " digit",
            code="bad_namespace",
        )


def document_id(namespace: str, source_uri: str) -> str:
    """A readable slug of the file's name and folder, in whatever script, plus 10 hex digits of the
    identity, e.g. `tutorial-fastapi-3f2a9c1b7d`: lists that cut a long name show its beginning.
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
    """The document and version records of a file, its bytes stored."""
    arrived = _arrive(file, known, workspace)
    doc_id = known.doc_id if known else document_id(file.source.namespace, file.source_uri)
    document = Document(
        namespace=file.source.namespace,
        doc_id=doc_id,
        source=file.source.name,
        source_uri=file.source_uri,
        filename=arrived.filename,
        title=known.title if known else "",
        tags=tuple(sorted({*(known.tags if known else ()), *options.tags})),
        categories=known.categories if known else (),
        metadata={**(known.metadata if known else {}), **options.metadata},
        status="active",
        origin=arrived.origin,
        created_at=known.created_at if known else now(),
        updated_at=now(),
    )
    version = Version(
        version_id=version_id(file.source.namespace, doc_id, arrived.file_sha256),
        namespace=file.source.namespace,
        doc_id=doc_id,
        source_uri=file.source_uri,
        filename=arrived.filename,
        file_sha256=arrived.file_sha256,
        size=arrived.size,
        mime=arrived.mime,
        loader=arrived.loader,
        strategy=workspace.strategy.name,
        received_at=now(),
    )
    return document, version


def _arrive(file: Found, known: Document | None, workspace: Workspace) -> _Arrived:
    """Store the bytes of a file, a URL or content. Raises DocumentError where no loader claims
    them.
    """
    store, limits, charset = workspace.store, workspace.settings.limits, ""
    if is_url(file.source_uri):
        got = download(file.source_uri, workspace.settings, store)
        filename, origin, charset = got.filename, got.final_url, got.charset
        file_sha256, size = got.file_sha256, got.size
        path = store.raw_path(file_sha256)
    elif file.content is not None:
        filename, origin = file.path.name, ""
        held = file.content
        with io.BytesIO(held) if isinstance(held, bytes) else open(held, "rb") as given:
            file_sha256, size = store.spool(given, limits.read_chunk_size_bytes, limits.max_bytes)
        path = store.raw_path(file_sha256)
    else:
        filename, path, origin, file_sha256, size = file.path.name, file.path, str(file.path), "", 0
    with open(path, "rb") as opened:
        head = opened.read(_HEAD_BYTES)
    loader = choose(filename, head, workspace.strategy, path)
    if not file_sha256:  # a file that no loader reads is not copied
        file_sha256, size = _store_file(path, known is not None, workspace)
    mime = sniff(filename, head, path)
    if codec_of(charset) not in ("", "utf-8") and mime.startswith("text/"):
        mime = f"{mime}; charset={charset}"
    return _Arrived(filename, file_sha256, size, mime, loader, origin)


def _store_file(path: Path, maybe_known: bool, workspace: Workspace) -> tuple[str, int]:
    """(file_sha256, size) of a file whose bytes now lie under raw/; a file that may be there
    already is hashed before it is copied.
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
    earlier: Version | None,
    complete_profile: str,
    policy: str,
) -> str:
    if known is None:
        return "new"
    if earlier is None:
        return "new_version"
    live = known.live_version == version.version_id and known.status == "active"
    if live and policy == "new_version":
        return "new_version"
    complete = earlier.status == "ready" and earlier.counts.get("profile") == complete_profile
    return "skip" if complete and (live or known.pinned) else "continue"


def _refusal(file: Found, error: Exception, document: Document | None) -> JobItem:
    code = getattr(error, "code", "unreadable")
    if code == "unsupported_type" and not file.explicit:
        return JobItem(file.source_uri, "", "", "ignored", "skipped", code, str(error))
    doc_id = document.doc_id if document else ""
    return JobItem(file.source_uri, doc_id, "", "refused", "failed", code, str(error))
