"""Lists the documents of a namespace and reads one of them, for the server, the command line and
the web pages. Read-only, without search.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from rag_platform.api.cursors import make_cursor, read_cursor
from rag_platform.api.document_views import (
    FORMS,
    PublishedDocument,
    RenderedPart,
    Window,
    cut_notice,
    dropped_data,
)
from rag_platform.api.envelopes import fill_shape
from rag_platform.contract.markdown_views import document_line, documents_markdown
from rag_platform.contract.schema import (
    BriefDocument,
    BriefDocumentsData,
    BriefGroup,
    DocumentData,
    DocumentGroup,
    DocumentsData,
    DroppedData,
    ListedDocument,
)
from rag_platform.errors import InputError, IntegrityError, NotFoundError
from rag_platform.ir import Document
from rag_platform.ledger.document_list import DocumentFilter, GroupBy, Place
from rag_platform.ledger.ledger import Ledger, open_ledger
from rag_platform.releases.release_store import list_releases
from rag_platform.retrieval.library import Lease, Library
from rag_platform.retrieval.namespaces import require_known
from rag_platform.storage.store import Store
from rag_platform.text.dates import iso_date
from rag_platform.text.tokens import estimate_tokens

ReadT = TypeVar("ReadT")
GROUPINGS: tuple[GroupBy, ...] = ("tags", "categories", "source")
_TEXT_KEYS = ("words", "since", "until")
FILTER_KEYS = ("tags", "categories", "source", "status", *_TEXT_KEYS)
STATUSES = ("active", "pending", "failed", "retired", "deleted")
MAX_LIMIT = 1000


# --- documents ----------------------------------------------------------------------------------


def list_documents(
    library: Library,
    namespace: str,
    *,
    group_by: str | None = "tags",
    filter: Mapping[str, Any] | None = None,
    limit: int = 50,
    cursor: str | None = None,
    include_deleted: bool = False,
    max_tokens: int | None = None,
) -> DocumentsData:
    """One page of a namespace's documents, ordered by group and source_uri; a document with two
    tags is in two groups.

    The keys of `filter` are FILTER_KEYS; a value may be a list, any item of which may match. Every
    word of `words` must occur in title, file name or source_uri; `since` and `until` are inclusive
    dates of the last change. A page has at most `limit` rows, fewer where it would exceed
    `max_tokens`; `next_cursor` stays valid while documents are added and removed. Retired and
    deleted documents are listed only with `include_deleted` or a status filter that names them.
    Raises InputError, or NotFoundError `unknown_namespace`.
    """
    grouping: dict[str | None, GroupBy | None] = {name: name for name in GROUPINGS} | {None: None}
    if group_by not in grouping:
        raise InputError(
            f"cannot group by {group_by!r}; known: {', '.join(GROUPINGS)}, or null",
            code="unknown_group",
        )
    if not 1 <= limit <= MAX_LIMIT:
        raise InputError(f"limit {limit} is not within 1-{MAX_LIMIT}", code="bad_limit")
    wanted = _parse_filter(filter or {}, include_deleted)
    after = None if cursor is None else _read_place(cursor, group_by)
    with open_with_published(library, namespace) as (ledger, published):
        found = ledger.document_page(
            namespace,
            wanted,
            published,
            group_by=grouping[group_by],
            after=after,
            limit=limit + 1,  # one more tells whether a page follows
        )
        counts = {} if filter or cursor else ledger.count_documents(namespace, published)
    rows = [
        (
            place,
            fill_shape(
                ListedDocument,
                place.document,
                chunks=published.get(place.document.version_id, 0),
            ),
        )
        for place in found.places[:limit]
    ]
    shown = rows if max_tokens is None else _fit_rows(rows, group_by, max_tokens)
    groups: list[DocumentGroup] = []
    for place, listed in shown:
        if not groups or groups[-1]["key"] != place.group:
            groups.append({"key": place.group, "count": place.count, "documents": []})
        groups[-1]["documents"].append(listed)
    last = shown[-1][0] if len(shown) < len(found.places) else None
    data: DocumentsData = {
        "markdown": "",
        "namespace": namespace,
        "group_by": group_by,
        "groups": groups,
        "total": found.total,
        "next_cursor": (
            None if last is None else make_cursor(group_by, last.group, last.document.source_uri)
        ),
    }
    if unpublished := counts.get("failed", 0) + counts.get("pending", 0):
        data["unpublished"] = unpublished
    data["markdown"] = documents_markdown(data, filtered=bool(filter))
    return data


def abridge_rows(data: DocumentsData) -> BriefDocumentsData:
    """The page with brief rows; a document listed in an earlier group too has only its names."""
    seen: set[str] = set()
    groups = [
        BriefGroup(
            key=group["key"],
            count=group["count"],
            documents=[_brief(it, seen) for it in group["documents"]],
        )
        for group in data["groups"]
    ]
    return {**data, "groups": groups}


def _brief(listed: ListedDocument, seen: set[str]) -> BriefDocument:
    row: BriefDocument = {"doc_id": listed["doc_id"], "filename": listed["filename"]}
    if listed["doc_id"] in seen:
        return row
    seen.add(listed["doc_id"])
    row |= {
        "updated_at": listed["updated_at"][:10],
        "tags": listed["tags"],
        "status": listed["status"],
    }
    if listed["problem"]:
        row["problem"] = listed["problem"]
    return row


def _parse_filter(given: Mapping[str, Any], include_deleted: bool) -> DocumentFilter:
    """The validated filter. Raises InputError."""
    wanted: dict[str, Any] = {}
    for key, value in given.items():
        if key not in FILTER_KEYS:
            raise InputError(
                f"unknown filter {key!r}; known: {', '.join(FILTER_KEYS)}", code="unknown_filter"
            )
        if key in _TEXT_KEYS:
            wanted[key] = _parse_text(key, value)
            continue
        values = [value] if isinstance(value, str) else value
        if not isinstance(values, (list, tuple)) or not all(isinstance(v, str) for v in values):
            raise InputError(
                f"filter {key!r} takes a text or a list of texts, not {value!r}", code="bad_filter"
            )
        wanted[key] = tuple(values)
    if unknown := sorted(set(wanted.get("status", ())) - set(STATUSES)):
        raise InputError(
            f"unknown status {unknown[0]!r}; known: {', '.join(STATUSES)}", code="bad_filter"
        )
    return DocumentFilter(**wanted, gone=include_deleted)


def _parse_text(key: str, value: Any) -> str:
    if not isinstance(value, str):
        raise InputError(f"filter {key!r} takes a text, not {value!r}", code="bad_filter")
    if key == "words" or not value:
        return value
    if not (date := iso_date(value)):
        raise InputError(
            f"filter {key!r} takes a date such as 2026-11-23, not {value[:40]!r}", code="bad_filter"
        )
    return date


def _read_place(cursor: str, group_by: str | None) -> tuple[str, str]:
    """The (group, source_uri) of the last row before the page. Raises InputError `bad_cursor`."""
    grouping, group, source_uri = read_cursor(cursor, (str, str, str))
    if grouping != (group_by or ""):
        raise InputError(
            f"the cursor belongs to a list grouped by {grouping or None}; ask with the same"
            " group_by",
            code="bad_cursor",
        )
    return group, source_uri


def _fit_rows(
    rows: Sequence[tuple[Place, ListedDocument]], grouping: str | None, max_tokens: int
) -> Sequence[tuple[Place, ListedDocument]]:
    """The first rows, at least one, whose text and brief form fit in `max_tokens` together."""
    left = max_tokens - 200
    seen: set[str] = set()
    for n, (_, listed) in enumerate(rows):
        left -= estimate_tokens(json.dumps(_brief(listed, seen), ensure_ascii=False))
        left -= estimate_tokens(document_line(listed, grouping))
        if left < 0 and n:
            return rows[:n]
    return rows


@contextmanager
def open_with_published(
    library: Library, namespace: str
) -> Iterator[tuple[Ledger, Mapping[str, int]]]:
    """(the ledger, chunk counts of the published release by version_id); no counts before the first
    release.

    Raises NotFoundError `unknown_namespace`, and IntegrityError where a data root has releases but
    no ledger.
    """
    library.require_visible(namespace)
    published: Mapping[str, int] | None = None
    if library.store.current_path(namespace).is_file():
        with library.lease(namespace) as lease:
            published = lease.release.versions
    with closing(open_ledger(library.store)) as ledger:
        if published is None:
            require_known(library, namespace)
        yield ledger, published or {}


# --- one document -------------------------------------------------------------------------------


class Selection(NamedTuple):
    """Which part of a document is read: what follows a cursor, or the chunks in an inclusive range
    of pages or lines.
    """

    cursor: str | None = None
    pages: tuple[int, int] | None = None
    lines: tuple[int, int] | None = None


_WHOLE = Selection()


def get_document(
    library: Library,
    namespace: str,
    doc_id: str,
    *,
    version_id: str | None = None,
    format: str = "md",
    max_chars: int | None = None,
    max_tokens: int | None = None,
    selection: Selection = _WHOLE,
) -> DocumentData:
    """Text, sections, chunks or outline of a document: of its published version, or of
    `version_id`, which may be in any kept release.

    `md` is the extracted text with the recorded `asset://` targets. The text is cut to `max_chars`
    characters, or without that to what fits in `max_tokens`; then `warnings`, `truncated` and
    `total_chars` describe the cut, and `next_cursor` continues there. Raises NotFoundError for an
    unknown document (with similar ids), a deleted one (with the date), and a version in no kept
    release (with the live one); IntegrityError when its files are lost.
    """
    if format not in FORMS:
        raise InputError(
            f"unknown format {format!r}; known: {', '.join(FORMS)}", code="unknown_format"
        )
    if max_chars is not None and max_chars < 1:
        raise InputError(f"max_chars {max_chars} is less than 1", code="bad_limit")

    if format != "chunks" and (selection.pages or selection.lines):
        raise InputError(
            f"pages and lines select chunks: ask with format chunks, not {format}", code="bad_range"
        )

    def read(lease: Lease, found: PublishedDocument) -> RenderedPart:
        row, offset = _read_start(selection.cursor, found, format)
        window = Window(max_chars, max_tokens, row, offset, selection.pages, selection.lines)
        return FORMS[format](lease, library.store, found, window)

    part, markdown, following = _read_leased(library, namespace, doc_id, version_id, read)
    data: DocumentData = {"markdown": markdown, "document": part}
    if following:
        data["next_cursor"] = make_cursor(_content_of(part["version_id"]), format, *following)
        data["warnings"] = [cut_notice(part, max_chars)]
    return data


def _read_start(cursor: str | None, found: PublishedDocument, format: str) -> tuple[int, int]:
    """The (row, offset) at which the page begins. Raises InputError `bad_cursor` for a cursor of
    another version or format.
    """
    if cursor is None:
        return 0, 0
    version_id, form, row, offset = read_cursor(cursor, (str, str, int, int))
    read = _content_of(found.version.version_id)
    if (version_id, form) != (read, format) or row < 0 or offset < 0:
        raise InputError(
            f"the cursor belongs to version {version_id} as {form}; this is {read} as {format}:"
            " begin again without it",
            code="bad_cursor",
        )
    return row, offset


def _content_of(version_id: str) -> str:
    """The part of a version_id that the versions of a document differ in, as cursors are short."""
    return version_id.rpartition("@")[2]


def list_dropped(
    library: Library, namespace: str, doc_id: str, *, version_id: str | None = None
) -> DroppedData:
    """The text of a document that is in no chunk, each part with its place and reason, and how much
    of it a second loader found too. Raises what `get_document` raises.
    """

    def read(lease: Lease, found: PublishedDocument) -> DroppedData:
        return dropped_data(lease, library.store, found)

    return _read_leased(library, namespace, doc_id, version_id, read)


def _read_leased(
    library: Library,
    namespace: str,
    doc_id: str,
    version_id: str | None,
    read: Callable[[Lease, PublishedDocument], ReadT],
) -> ReadT:
    """The result of `read` on a leased release; where a newer release has replaced it and its files
    were removed meanwhile, the read is repeated on the newer one.
    """
    release_id = _older_release(library, namespace, version_id)
    while True:
        with library.lease(namespace, release_id) as lease:
            hidden = library.hidden_names(lease)
            found = _find(library, lease, doc_id, version_id, hidden)
            try:
                return read(lease, found)
            except FileNotFoundError as error:
                current = release_id or library.current(namespace)
                if current == lease.release_id and library.hidden_names(lease) == hidden:
                    raise IntegrityError(
                        f"{Path(str(error.filename)).name} of {found.version.version_id} is gone"
                        " from disk; process the document anew with `rag rebuild --namespace"
                        f" {namespace}`",
                        code="files_missing",
                    ) from error


def _older_release(library: Library, namespace: str, version_id: str | None) -> str | None:
    """The newest kept release that has the version; None where the published one has it, or none
    has.
    """
    if version_id is None:
        return None
    current = library.current(namespace)
    holding = [
        manifest.release_id
        for manifest in list_releases(library.store, namespace)
        if version_id in manifest.versions and not manifest.failures
    ]
    return None if not holding or current in holding else holding[0]


def _find(
    library: Library, lease: Lease, doc_id: str, version_id: str | None, hidden: frozenset[str]
) -> PublishedDocument:
    reader = lease.release.catalog
    document = reader.document(doc_id)
    if document is None or document.doc_id in hidden or document.live_version in hidden:
        known = _unpublished_document(library.store, lease.namespace, doc_id)
        raise known or unknown_document(library, doc_id, [lease.namespace])
    version = reader.version(document.live_version or "")
    if version is None:
        raise NotFoundError(
            f"document {doc_id!r} has no version in release {lease.release_id}; rebuild it with"
            f" `rag rebuild --namespace {lease.namespace}`"
        )
    if version_id is not None and version_id != version.version_id:
        raise NotFoundError(
            f"no kept release holds version {version_id!r}; the live version of {doc_id} in release"
            f" {lease.release_id} is {version.version_id}; leave version_id out to read that one",
            code="version_not_live",
            live_version=version.version_id,
            release_id=lease.release_id,
        )
    assets = dict.fromkeys(link.asset_id for link in reader.media(doc_id) if link.asset_id)
    return PublishedDocument(document, version, list(assets))


def _unpublished_document(store: Store, namespace: str, doc_id: str) -> NotFoundError | None:
    """The error for a document that was deleted, with the date, or whose newest version failed;
    None for any other.
    """
    if not store.has_ledger():
        return None
    with closing(open_ledger(store)) as ledger:
        dates = [it.created_at for it in ledger.tombstones(namespace) if it.doc_id == doc_id]
        newest = next(reversed(ledger.versions(namespace, doc_id)), None)
    if dates:
        return NotFoundError(
            f"document {doc_id!r} was deleted on {dates[-1]}",
            code="document_deleted",
            deleted_at=dates[-1],
        )
    if newest is not None and newest.status in ("failed", "dead"):
        reason = f"[{newest.code}] {newest.reason}"
        return NotFoundError(
            f"document {doc_id!r} is in no release, because its file failed: {reason}",
            code="not_published",
        )
    return None


def unknown_document(library: Library, doc_id: str, namespaces: Sequence[str]) -> NotFoundError:
    """The error for a doc_id that none of the namespaces has, with similar ids from all of them."""
    known: list[Document] = []
    for namespace in namespaces:
        with library.lease(namespace) as lease:
            hidden = library.hidden_names(lease)
            known += [d for d in lease.release.catalog.documents() if d.doc_id not in hidden]
    same = [
        d.doc_id
        for d in known
        if doc_id in (d.filename, d.source_uri, d.title, d.source_uri.rpartition("/")[2])
    ]
    ids = [d.doc_id for d in known]
    part = [known_id for known_id in ids if doc_id and doc_id.lower() in known_id]
    stems = {d.filename.partition(".")[0].lower(): d.doc_id for d in known}
    stem = doc_id.rpartition("/")[2].partition(".")[0].lower()
    alike = difflib.get_close_matches(stem, stems, n=3, cutoff=0.6)
    near = (
        same
        or part
        or [stems[stem] for stem in alike]
        or difflib.get_close_matches(doc_id, ids, n=3, cutoff=0.5)
    )[:3]
    hint = (
        f"did you mean {', '.join(near)}?"
        if near
        else f"`rag docs list --namespace {namespaces[0]}` shows them"
    )
    return NotFoundError(
        f"no document {doc_id!r} in library {' or '.join(map(repr, namespaces))}; {hint}",
        code="unknown_document",
        near=near,
    )
