"""MCP resources: documents, passages and pictures by their URIs, the list of documents,
subscriptions, notifications of published releases, and completion of ids and names.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import anyio
import anyio.to_thread
from mcp.server import MCPServer
from mcp.server.apps import client_supports_apps
from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.helper_types import ReadResourceContents
from mcp.server.mcpserver.exceptions import ResourceError, ResourceNotFoundError
from mcp.server.session import ServerSession
from mcp.server.subscriptions import ResourcesListChanged, ResourceUpdated, SubscriptionBus
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CompleteRequestParams,
    CompleteResult,
    Completion,
    CompletionArgument,
    CompletionContext,
    EmptyResult,
    ListResourcesResult,
    PaginatedRequestParams,
    Resource,
    SubscribeRequestParams,
    SubscriptionsListenRequestParams,
    UnsubscribeRequestParams,
)

from rag_platform import access
from rag_platform.api import documents, passages
from rag_platform.api.cursors import make_cursor, read_cursor
from rag_platform.api.envelopes import failure
from rag_platform.errors import NotFoundError, RagError
from rag_platform.ir import Document
from rag_platform.observability import tracing
from rag_platform.releases.release_store import list_heads, manifest_of
from rag_platform.retrieval.library import Library

_log = logging.getLogger(__name__)
POLL_SECONDS = 1.0  # between two checks for published releases
PAGE = 100  # documents per page of resources/list
_COMPLETED = 100  # the protocol's limit of values in a completion
_ID_CHARS = 5  # of a chunk id before it is completed, as there are many

ReadT = TypeVar("ReadT")


def add_resources(server: MCPServer[Any], library: Library) -> None:
    """Register `doc://{doc_id}`, `chunk://{chunk_id}` and `asset://{asset_id}`."""

    @server.resource(
        "doc://{doc_id}",
        name="document",
        title="Document",
        description="The whole text of a document, as Markdown.",
        mime_type="text/markdown",
    )
    def document(doc_id: str) -> str:
        return _read_traced(library, "resource.document", lambda: document_text(library, doc_id))

    @server.resource(
        "chunk://{chunk_id}",
        name="chunk",
        title="Passage",
        description="One cited passage with its place in the source.",
        mime_type="text/markdown",
    )
    def chunk(chunk_id: str) -> str:
        return _read_traced(
            library, "resource.chunk", lambda: passages.get_chunk(library, chunk_id)["markdown"]
        )

    @server.resource(
        "asset://{asset_id}",
        name="asset",
        title="Picture",
        description="A picture of a document.",
        mime_type="image/*",
    )
    def asset(asset_id: str) -> str | bytes:
        return read_picture(library, asset_id).content


def document_text(library: Library, doc_id: str) -> str:
    """The text of a document of any namespace. Raises NotFoundError."""
    namespace = passages.find_document_namespace(library, doc_id)
    if namespace is None:
        raise NotFoundError(f"no published document {doc_id[:80]!r}", code="unknown_document")
    return documents.get_document(library, namespace, doc_id)["markdown"]


def read_picture(library: Library, asset_id: str) -> ReadResourceContents:
    """A picture that a published document shows. Raises ResourceNotFoundError."""

    def read() -> ReadResourceContents:
        found = passages.read_asset(library, asset_id)
        return ReadResourceContents(content=found.path.read_bytes(), mime_type=found.mime)

    return _read_traced(library, "resource.asset", read)


def _read_traced(library: Library, name: str, read: Callable[[], ReadT]) -> ReadT:
    trace_id = ""
    try:
        with tracing.trace("tool", logs_dir=library.store.logs_dir) as trace, tracing.span(name):
            trace_id = trace.trace_id
            return read()
    except RagError as error:  # outside the trace, which must record the original error
        part = failure(error, trace_id)["error"]
        kind = ResourceNotFoundError if isinstance(error, NotFoundError) else ResourceError
        raise kind(f"{part['code']}: {part['message']}") from error


# --- lists --------------------------------------------------------------------------------------


def list_page(library: Library, cursor: str | None) -> tuple[list[Resource], str | None]:
    """(a page of the published documents as resources, the next page's cursor). A library that
    cannot be opened is left out; its error is raised where nothing is left. Raises InputError
    `bad_cursor`.
    """
    namespace, after = read_cursor(cursor, (str, str)) if cursor is not None else ("", "")
    page: list[Resource] = []
    last = ("", "")
    broken: RagError | None = None
    for name in library.namespaces():
        if name < namespace:
            continue
        try:
            for document in _documents(library, name, after if name == namespace else ""):
                if len(page) == PAGE:
                    return page, make_cursor(*last)
                page.append(_resource(name, document))
                last = name, document.doc_id
        except RagError as error:
            _log.warning("library %s is missing from the list of resources: %s", name, error)
            broken = error
    if broken is not None and not page:
        raise broken
    return page, None


def _documents(library: Library, namespace: str, after: str) -> Iterator[Document]:
    """The documents of a namespace with larger ids than `after`, by id, without deleted ones."""
    while True:
        with library.lease(namespace) as lease:
            hidden = library.hidden_names(lease)
            found = lease.release.catalog.documents(after=after, limit=PAGE + 1)
        yield from (it for it in found if hidden.isdisjoint((it.doc_id, it.live_version)))
        if len(found) <= PAGE:
            return
        after = found[-1].doc_id


def _resource(namespace: str, document: Document) -> Resource:
    tags = f", tags {', '.join(document.tags)}" if document.tags else ""
    return Resource(
        uri=f"doc://{document.doc_id}",
        name=document.source_uri,
        title=document.title or document.filename,
        description=f"Library {namespace}{tags}",
        mime_type="text/markdown",
    )


def may_subscribe(library: Library, uri: str) -> bool:
    """False if the caller may not see the document of this URI."""
    if access.current().namespaces is None:
        return True
    scheme, _, doc_id = uri.partition("://")
    return scheme == "doc" and passages.find_document_namespace(library, doc_id) is not None


class Listeners:
    """Connections of clients that listed resources, and the URIs to which each subscribed."""

    def __init__(self) -> None:
        self._uris: weakref.WeakKeyDictionary[Connection, set[str]] = weakref.WeakKeyDictionary()

    def add(self, session: ServerSession, uri: str = "") -> None:
        """Add the connection of a request, and a URI that it subscribes to."""
        self._uris.setdefault(_connection(session), set()).update([uri] if uri else [])

    def remove(self, session: ServerSession, uri: str) -> None:
        self._uris.get(_connection(session), set()).discard(uri)

    async def notify(self, uris: set[str]) -> None:
        """Notify every client that the list changed, and of its changed URIs."""
        for connection, wanted in list(self._uris.items()):
            with suppress(Exception):  # a closed connection must not block the others
                await connection.send_resource_list_changed()
                for uri in sorted(wanted & uris):
                    await connection.send_resource_updated(uri)


def _connection(session: ServerSession) -> Connection:
    """The connection, which outlives the session of a request."""
    return session._connection


class ResourceRequests:
    """Handlers of the requests about resources and completion that the SDK's server does not handle
    itself.
    """

    def __init__(
        self, library: Library, listeners: Listeners, fixed: Callable[[], Awaitable[list[Resource]]]
    ) -> None:
        self._library, self._listeners = library, listeners
        self._fixed = fixed  # resources registered with fixed URIs, listed on the first page

    async def list(
        self, context: ServerRequestContext[Any], params: PaginatedRequestParams | None
    ) -> ListResourcesResult:
        """A page of documents; from then on the client is notified of changes."""
        self._listeners.add(context.session)
        page, cursor = await anyio.to_thread.run_sync(
            list_page, self._library, params.cursor if params else None
        )
        shows = client_supports_apps(context)
        fixed = [] if params and params.cursor else await self._fixed()
        fixed = [it for it in fixed if shows or not it.uri.startswith("ui://")]
        return ListResourcesResult(resources=[*fixed, *page], next_cursor=cursor)

    async def picture(self, asset_id: str) -> ReadResourceContents:
        """A picture with its MIME type. Raises ResourceNotFoundError."""
        return await anyio.to_thread.run_sync(read_picture, self._library, asset_id)

    async def subscribe(
        self, context: ServerRequestContext[Any], params: SubscribeRequestParams
    ) -> EmptyResult:
        """Notify the client when this resource changes."""
        if not may_subscribe(self._library, uri := str(params.uri)):
            raise MCPError(INVALID_PARAMS, f"no published document {uri[:80]!r}")
        self._listeners.add(context.session, uri)
        return EmptyResult()

    async def unsubscribe(
        self, context: ServerRequestContext[Any], params: UnsubscribeRequestParams
    ) -> EmptyResult:
        self._listeners.remove(context.session, str(params.uri))
        return EmptyResult()

    async def listen(
        self,
        inner: Callable[[Any, SubscriptionsListenRequestParams], Awaitable[Any]],
        context: ServerRequestContext[Any],
        params: SubscriptionsListenRequestParams,
    ) -> Any:
        """A stream of changes, without documents that the caller may not see."""
        wanted = params.notifications.resource_subscriptions or []
        allowed = [uri for uri in wanted if may_subscribe(self._library, uri)]
        changed = params.notifications.model_copy(update={"resource_subscriptions": allowed})
        return await inner(context, params.model_copy(update={"notifications": changed}))

    async def complete(
        self, context: ServerRequestContext[Any], params: CompleteRequestParams
    ) -> CompleteResult:
        """Completions of an argument of a template or prompt."""
        values = await anyio.to_thread.run_sync(
            complete_value, self._library, params.argument, params.context
        )
        more = len(values) > _COMPLETED
        return CompleteResult(
            completion=Completion(values=values[:_COMPLETED], total=len(values), has_more=more)
        )


# --- completion ---------------------------------------------------------------------------------


def complete_value(
    library: Library, argument: CompletionArgument, context: CompletionContext | None
) -> list[str]:
    """The values with which an argument of a template or prompt may go on; doc_ids that only
    contain the text come last, and chunk ids need _ID_CHARS characters.
    """
    prefix = argument.value
    chosen = (context.arguments or {}).get("collection") if context is not None else None
    names = [name for name in library.namespaces() if chosen in (None, "", name)]
    if argument.name == "collection":
        found: Sequence[str] = library.namespaces()
    elif argument.name == "doc_id":
        found = [it.doc_id for name in names for it in _documents(library, name, "")]
        inside = [doc_id for doc_id in found if prefix.lower() in doc_id]
        return sorted(inside, key=lambda doc_id: (not doc_id.startswith(prefix), doc_id))
    elif argument.name == "tag":
        found = [tag for name in names for it in _documents(library, name, "") for tag in it.tags]
    elif argument.name == "since":
        # the days on which the kept releases were made
        kept = [release for name in names for release in list_heads(library.store, name)]
        found = [release.created_at[:10] for release in kept]
    elif argument.name == "chunk_id" and len(prefix) >= _ID_CHARS:
        found = [chunk_id for name in names for chunk_id in _chunk_ids(library, name, prefix)]
    else:
        found = []
    return sorted({value for value in found if value.startswith(prefix)})


def _chunk_ids(library: Library, namespace: str, prefix: str) -> list[str]:
    with library.lease(namespace) as lease:
        bounds = (prefix, f"{prefix}\U0010ffff")
        found = lease.release.catalog.chunk_ids("chunk_id >= ? AND chunk_id < ?", bounds)
        hidden = library.hidden_chunks(lease)
    return [chunk_id for chunk_id in found if chunk_id not in hidden]


# --- notifications of published releases --------------------------------------------------------


class Publications:
    """Looks for new releases and announces them."""

    def __init__(self, library: Library, bus: SubscriptionBus, listeners: Listeners) -> None:
        self._library = library
        self._bus = bus  # for clients since protocol 2026-07-28
        self._listeners = listeners  # for older clients
        self._known = self._read_published()

    async def announce(self) -> None:
        """Announce every publication until cancelled."""
        while True:
            await anyio.sleep(POLL_SECONDS)
            try:
                await self._check()
            except (RagError, OSError) as error:
                _log.warning("whether releases were published cannot be told: %s", error)

    async def _check(self) -> None:
        before, self._known = self._known, self._read_published()
        if before == self._known:
            return
        uris = await anyio.to_thread.run_sync(self._find_changed, before, self._known)
        await self._bus.publish(ResourcesListChanged())
        for uri in sorted(uris):
            await self._bus.publish(ResourceUpdated(uri=uri))
        await self._listeners.notify(uris)

    def _read_published(self) -> dict[str, str]:
        """Namespace to release_id."""
        found: dict[str, str] = {}
        for namespace in self._library.namespaces():
            with suppress(RagError):
                found[namespace] = self._library.current(namespace)
        return found

    def _find_changed(self, before: dict[str, str], after: dict[str, str]) -> set[str]:
        """The `doc://` URIs of documents that were added, changed or removed."""
        uris: set[str] = set()
        for namespace in before.keys() | after.keys():
            if before.get(namespace) == after.get(namespace):
                continue
            old = self._versions(namespace, before.get(namespace))
            new = self._versions(namespace, after.get(namespace))
            for version_id in old ^ new:
                doc_id = version_id.rpartition("@")[0].removeprefix(f"{namespace}.")
                uris.add(f"doc://{doc_id}")
        return uris

    def _versions(self, namespace: str, release_id: str | None) -> set[str]:
        """The version_ids of a release; empty if it is no longer kept."""
        with suppress(RagError):
            if release_id is not None:
                return set(manifest_of(self._library.store, namespace, release_id).versions)
        return set()
