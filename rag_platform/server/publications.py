"""Notifies clients of published releases and of the documents that changed with them."""

from __future__ import annotations

import logging
import weakref
from contextlib import suppress

import anyio
import anyio.to_thread
from mcp.server.connection import Connection
from mcp.server.session import ServerSession
from mcp.server.subscriptions import ResourcesListChanged, ResourceUpdated, SubscriptionBus

from rag_platform.errors import RagError
from rag_platform.releases.release_store import manifest_of
from rag_platform.retrieval.library import Library

log = logging.getLogger(__name__)

POLL_SECONDS = 1.0  # between two checks for published releases


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
                log.warning("whether releases were published cannot be told: %s", error)

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
