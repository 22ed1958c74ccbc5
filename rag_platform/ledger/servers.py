"""The data roots that share a ledger, and which hard deletions each of them has carried out."""

from __future__ import annotations

import dataclasses
import platform
import uuid
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta

from rag_platform.errors import NotFoundError
from rag_platform.ledger.schema import Database, Server, Tombstone, delete, now, put
from rag_platform.storage.records import columns, from_row
from rag_platform.storage.store import Store, write_text

_FILE = ".server"  # in the data root: the id under which it is registered
_UNACKNOWLEDGED = """
SELECT {}, {} FROM deletions d CROSS JOIN servers s WHERE d.mode = 'hard' AND NOT EXISTS
    (SELECT 1 FROM acknowledgements a WHERE a.sequence = d.sequence AND a.server_id = s.server_id)
"""


def server_id(store: Store) -> str:
    """The id of a data root, created on first use."""
    path = store.home / _FILE
    if not path.is_file():
        store.create()
        write_text(path, f"{platform.node()[:40]}-{uuid.uuid4().hex[:8]}\n")
    return path.read_text(encoding="utf-8").strip()


def is_silent(server: Server, seconds: float) -> bool:
    """True when a server's last heartbeat is older than `seconds`."""
    return datetime.now(UTC) - datetime.fromisoformat(server.seen_at) > timedelta(seconds=seconds)


def name_waiting(found: Iterable[tuple[Tombstone, Server]], seconds: float) -> list[str]:
    """A sentence for each server that has not acknowledged a hard deletion; a server without a
    heartbeat for `seconds` is reported as gone.
    """
    servers = {server.server_id: server for _, server in found}
    return [
        f"server {name} has not acknowledged that nothing of it is left there"
        + (
            f", and was last seen at {server.seen_at}: start it, or, when its disk is gone, `rag"
            f" servers remove {name}`"
            if is_silent(server, seconds)
            else " yet"
        )
        for name, server in servers.items()
    ]


class Servers(Database):
    """The part of the ledger about servers."""

    def servers(self) -> list[Server]:
        """Every registered server, oldest registration first."""
        return self._select(Server, "servers", {}, "registered_at, server_id")

    def register(self, server_id: str, host: str, *, empty: bool = False) -> None:
        """Add an unknown server; an `empty` data root acknowledges all earlier deletions."""
        time = now()
        with self._write() as db:
            found = db.execute(
                "INSERT INTO servers (server_id, host, releases, registered_at, seen_at) VALUES"
                " (?, ?, '{}', ?, ?) ON CONFLICT DO NOTHING",
                (server_id, host, time, time),
            )
            if empty and found.rowcount:
                db.execute(
                    "INSERT INTO acknowledgements (sequence, server_id, created_at) SELECT"
                    " sequence, ?, ? FROM deletions WHERE mode = 'hard'",
                    (server_id, time),
                )

    def beat(self, server_id: str, host: str, releases: Mapping[str, str]) -> None:
        """Record a server's heartbeat and the releases it reads; registers a removed server."""
        server = Server(server_id, host, dict(releases), now(), now())
        with self._write() as db:
            put(db, "servers", server, ("server_id",), keep=("registered_at",))

    def remove_server(self, server_id: str) -> Server:
        """Remove a server whose data root is gone. Raises NotFoundError."""
        found = self._find(Server, "servers", {"server_id": server_id})
        if found is None:
            known = ", ".join(server.server_id for server in self.servers()) or "none"
            raise NotFoundError(
                f"no server {server_id!r} is registered; known: {known}", code="unknown_server"
            )
        with self._write() as db:
            for table in ("acknowledgements", "servers"):
                delete(db, table, {"server_id": server_id})
        return found

    def acknowledge(self, sequence: int, server_id: str) -> None:
        """Record that a server holds nothing more of a hard deletion."""
        with self._write() as db:
            db.execute(
                "INSERT INTO acknowledgements (sequence, server_id, created_at) VALUES (?, ?, ?)"
                " ON CONFLICT DO NOTHING",
                (sequence, server_id, now()),
            )

    def find_unacknowledged(self, namespace: str | None = None) -> list[tuple[Tombstone, Server]]:
        """(hard deletion, server that has not acknowledged it), oldest deletion first."""
        sql = _UNACKNOWLEDGED.format(columns(Tombstone, "d"), columns(Server, "s"))
        condition, values = (" AND d.namespace = ?", (namespace,)) if namespace else ("", ())
        rows = self._db().execute(f"{sql}{condition} ORDER BY d.sequence, s.server_id", values)
        width = len(dataclasses.fields(Tombstone))
        return [(from_row(Tombstone, row), from_row(Server, row[width:])) for row in rows]
