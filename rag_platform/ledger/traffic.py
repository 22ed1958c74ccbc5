"""Limits and counts calls of model endpoints across all processes of a data root, or of all
machines whose ledger is in one PostgreSQL database.

Only endpoints ("places") with a limit in the settings are tracked. The rows are not part of the
ledger: they are in a file of their own, or in tables of the ledger's database with a lock of their
own, so that a call neither waits for ledger writers nor looks like a change of documents.

A call is a ticket with a lease, which its process renews. Tickets of a place start in the order of
their numbers: the first waiting one starts when fewer than `at_once` are running, the interval of
`per_minute` has passed since the last start, and no refusal by the endpoint has paused the place.
Tickets of a dead process expire with their leases.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import platform
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from rag_platform.config.services import ProviderLimit, TrafficSettings
from rag_platform.errors import IntegrityError, ProviderError, RagError, StorageError, disk_full
from rag_platform.ir import Json
from rag_platform.ledger.backends import to_postgres
from rag_platform.storage.postgres import PostgresConnection
from rag_platform.storage.sqlite_files import connect_shared, has_room, transaction
from rag_platform.storage.store import Store

log = logging.getLogger(__name__)

_POLL_SECONDS = 0.05  # how often a waiting call checks for a running one to end
_TABLES = (
    """
CREATE TABLE IF NOT EXISTS traffic_places (
    place TEXT PRIMARY KEY, free_at REAL NOT NULL, paused_until REAL NOT NULL)""",
    """
CREATE TABLE IF NOT EXISTS traffic_tickets (
    ticket INTEGER PRIMARY KEY AUTOINCREMENT, place TEXT NOT NULL, holder TEXT NOT NULL,
    running INTEGER NOT NULL, lease_until REAL NOT NULL)""",
    """
CREATE TABLE IF NOT EXISTS traffic_spending (
    place TEXT NOT NULL, day TEXT NOT NULL, calls INTEGER NOT NULL,
    input_tokens INTEGER NOT NULL, output_tokens INTEGER NOT NULL, cost REAL NOT NULL,
    PRIMARY KEY (place, day))""",
)
_SPEND = """
INSERT INTO traffic_spending (place, day, calls, input_tokens, output_tokens, cost)
VALUES (?, ?, 1, ?, ?, ?) ON CONFLICT (place, day) DO UPDATE SET
    calls = traffic_spending.calls + 1,
    input_tokens = traffic_spending.input_tokens + excluded.input_tokens,
    output_tokens = traffic_spending.output_tokens + excluded.output_tokens,
    cost = traffic_spending.cost + excluded.cost
"""


@dataclass(frozen=True, slots=True)
class PlaceTraffic:
    """What a limited place spent today (UTC), and who uses it now."""

    place: str
    calls: int
    input_tokens: int
    output_tokens: int
    cost: float  # of the calls whose price is known
    running: tuple[str, ...]  # holders, `host:pid`
    waiting: tuple[str, ...]
    paused_seconds: float

    def sentence(self) -> str:
        text = (
            f"{self.calls} calls today, {self.input_tokens} tokens in, {self.output_tokens} out,"
            f" cost {self.cost:.4f}; {_list_holders('running', self.running)},"
            f" {_list_holders('waiting', self.waiting)}"
        )
        return text + (
            f"; left alone for {self.paused_seconds:.0f} s" if self.paused_seconds else ""
        )


def _list_holders(what: str, holders: tuple[str, ...]) -> str:
    named = sorted(set(holders))
    return f"{len(holders)} {what}" + (f" ({', '.join(named)})" if named else "")


def host_of(place: str) -> str:
    """The lower-case host of an address, with the port if given.

    >>> host_of("https://key@API.example.com:8443/v1"), host_of("api.openai.com")
    ('api.example.com:8443', 'api.openai.com')
    """
    return urlsplit(place if "://" in place else f"//{place}").netloc.rpartition("@")[2].lower()


class _SqliteTables:
    """The tables in a file, for the processes of one machine."""

    def __init__(self, store: Store) -> None:
        self._home, self._path = store.home, store.traffic_path
        self._lock = threading.Lock()
        with self._errors():
            store.create()
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._db = connect_shared(self._path)
        try:
            with self._errors():
                self._db.execute("PRAGMA synchronous = NORMAL")
            with self.write() as (db, _):
                for statement in _TABLES:
                    db.execute(statement)
        except BaseException:
            self._db.close()
            raise

    @contextmanager
    def write(self) -> Iterator[tuple[Any, float]]:
        with self._errors(), self._lock, transaction(self._db, self._path):
            yield self._db, time.time()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (OSError, sqlite3.Error, IntegrityError) as error:
            if full := disk_full(error, self._home):
                raise full from error
            raise StorageError(
                f"calls of model endpoints cannot be counted in {self._path}"
                f" ({error.__cause__ or error}), so none is made: let this process write the file,"
                " or remove it where it is damaged",
                code="traffic_unusable",
            ) from error

    def close(self) -> None:
        self._db.close()


class _PostgresTables:
    """The tables in the ledger's database, with the times of its clock."""

    # one lock a schema, held to the end of the transaction; writers of the ledger use another one
    _LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('rag traffic ' || current_schema(), 0))"

    def __init__(self, store: Store) -> None:
        self._db = PostgresConnection(store.database, "rag traffic")
        with self.write() as (db, _):
            for statement in _TABLES:
                db.execute(to_postgres(statement))

    @contextmanager
    def write(self) -> Iterator[tuple[Any, float]]:
        with self._db.transaction(self._LOCK) as db:
            clock = db.execute("SELECT extract(epoch FROM clock_timestamp())::float8")
            yield db, float(clock.fetchone()[0])

    def close(self) -> None:
        self._db.close()


class Traffic:
    """The limited places of a data root, as one process sees them."""

    def __init__(self, settings: TrafficSettings, store: Store) -> None:
        self._settings = settings
        self._tables = _PostgresTables(store) if store.database else _SqliteTables(store)
        self._holder = f"{platform.node()}:{os.getpid()}"
        self._running: set[int] = set()
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._renewing = False

    def close(self) -> None:
        self._closed.set()
        self._tables.close()

    @contextmanager
    def turn(self, limit: ProviderLimit, *, ends: float = math.inf) -> Iterator[None]:
        """Wait for a turn at the place; the block is the call.

        Raises ProviderError `provider_busy` when no turn comes within `wait_seconds` or before
        `ends` (time.monotonic), and StorageError `traffic_unusable` when the tables cannot be used.
        """
        ends = min(ends, time.monotonic() + self._settings.wait_seconds)
        with self._tables.write() as (db, now):
            lease = now + self._settings.lease_seconds
            row = db.execute(
                "INSERT INTO traffic_tickets (place, holder, running, lease_until)"
                " VALUES (?, ?, 0, ?) RETURNING ticket",
                (limit.place, self._holder, lease),
            ).fetchone()
        ticket = int(row[0])
        try:
            while wait := self._try_to_start(limit, ticket):
                if time.monotonic() + wait >= ends:
                    raise ProviderError(
                        f"{limit.place} is used up to its limit, and no turn came in time"
                        " (traffic.limits, traffic.wait_seconds)",
                        code="provider_busy",
                        retryable=True,
                    )
                # not so long that the lease expires or a freed place stays unused
                time.sleep(min(wait, self._settings.lease_seconds / 3))
            with self._lock:
                self._running.add(ticket)
                if not self._renewing:
                    self._renewing = True
                    threading.Thread(target=self._renew, name="rag-traffic", daemon=True).start()
            yield
        finally:
            with self._lock:
                self._running.discard(ticket)
            self._release(ticket)

    def _release(self, ticket: int) -> None:
        try:
            with self._tables.write() as (db, _):
                db.execute("DELETE FROM traffic_tickets WHERE ticket = ?", (ticket,))
        except RagError as error:  # its lease will expire
            log.warning("the place of a call was not given back: %s", error)

    def _try_to_start(self, limit: ProviderLimit, ticket: int) -> float:
        """0 when the ticket is running now, else the seconds to wait before the next try."""
        place, gap = limit.place, 60 / limit.per_minute if limit.per_minute else 0.0
        with self._tables.write() as (db, now):
            lease = now + self._settings.lease_seconds
            db.execute("DELETE FROM traffic_tickets WHERE lease_until < ?", (now,))
            db.execute(  # restores a ticket that expired while its process was suspended
                "INSERT INTO traffic_tickets (ticket, place, holder, running, lease_until)"
                " VALUES (?, ?, ?, 0, ?) ON CONFLICT (ticket) DO UPDATE SET"
                " lease_until = excluded.lease_until",
                (ticket, place, self._holder, lease),
            )
            running, before = db.execute(
                "SELECT COALESCE(SUM(running), 0),"
                " COALESCE(SUM(CASE WHEN running = 0 AND ticket < ? THEN 1 ELSE 0 END), 0)"
                " FROM traffic_tickets WHERE place = ?",
                (ticket, place),
            ).fetchone()
            found = db.execute(
                "SELECT free_at, paused_until FROM traffic_places WHERE place = ?", (place,)
            ).fetchone() or (0.0, 0.0)
            wait = max(*found, now) - now
            if wait or before:
                return max(wait + gap * int(before), _POLL_SECONDS)
            if limit.at_once and running >= limit.at_once:
                return _POLL_SECONDS
            db.execute("UPDATE traffic_tickets SET running = 1 WHERE ticket = ?", (ticket,))
            if gap:
                self._put_place(db, place, now + gap, 0.0)
        return 0.0

    def pause(self, limit: ProviderLimit, seconds: float) -> None:
        """Keep every process from calling the place for so long; a longer pause in force stays."""
        with self._tables.write() as (db, now):
            self._put_place(db, limit.place, 0.0, now + seconds)

    @staticmethod
    def _put_place(db: Any, place: str, free_at: float, paused_until: float) -> None:
        later = "CASE WHEN excluded.{0} > traffic_places.{0} THEN excluded.{0}"
        later += " ELSE traffic_places.{0} END"
        db.execute(
            "INSERT INTO traffic_places (place, free_at, paused_until) VALUES (?, ?, ?)"
            f" ON CONFLICT (place) DO UPDATE SET free_at = {later.format('free_at')},"
            f" paused_until = {later.format('paused_until')}",
            (place, free_at, paused_until),
        )

    def spend(self, limit: ProviderLimit, usage: Json, cost: float | None) -> None:
        tokens = (int(usage.get("input_tokens") or 0), int(usage.get("output_tokens") or 0))
        with self._tables.write() as (db, now):
            db.execute(_SPEND, (limit.place, _day(now), *tokens, cost or 0.0))

    def places(self) -> list[PlaceTraffic]:
        with self._tables.write() as (db, now):
            return [_read_place(db, limit.place, now) for limit in self._settings.limits]

    def _renew(self) -> None:
        while not self._closed.wait(self._settings.lease_seconds / 3):
            with self._lock:
                tickets = sorted(self._running)
            if not tickets:
                continue
            try:
                with self._tables.write() as (db, now):
                    lease = now + self._settings.lease_seconds
                    db.executemany(
                        "UPDATE traffic_tickets SET lease_until = ? WHERE ticket = ?",
                        [(lease, ticket) for ticket in tickets],
                    )
            except RagError as error:
                log.warning("leases of calls were not renewed: %s", error)


def _read_place(db: Any, place: str, now: float) -> PlaceTraffic:
    spent = db.execute(
        "SELECT calls, input_tokens, output_tokens, cost FROM traffic_spending"
        " WHERE place = ? AND day = ?",
        (place, _day(now)),
    ).fetchone() or (0, 0, 0, 0.0)
    tickets = db.execute(
        "SELECT running, holder FROM traffic_tickets WHERE place = ? AND lease_until >= ?"
        " ORDER BY ticket",
        (place, now),
    ).fetchall()
    paused = db.execute(
        "SELECT paused_until FROM traffic_places WHERE place = ?", (place,)
    ).fetchone()
    return PlaceTraffic(
        place=place,
        calls=spent[0],
        input_tokens=spent[1],
        output_tokens=spent[2],
        cost=spent[3],
        running=tuple(holder for running, holder in tickets if running),
        waiting=tuple(holder for running, holder in tickets if not running),
        paused_seconds=max(0.0, paused[0] - now) if paused else 0.0,
    )


def _day(now: float) -> str:
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%d")


# --- this process -------------------------------------------------------------------------------

Used = tuple[TrafficSettings, Store]
_used: Used | None = None
_open: tuple[int, Traffic] | None = None  # with the pid that opened it: it does not survive a fork
_opening = threading.Lock()
_inherited: list[Traffic] = []  # never closed: that would end the parent's connection too


def use(settings: TrafficSettings, store: Store) -> None:
    """Apply these limits to this process's calls, shared with all processes of the data root."""
    global _used, _open
    wanted = (settings, store) if settings.limits else None
    if wanted == _used:
        return
    with _opening:
        _used = wanted
        if _open is not None and _open[0] == os.getpid():
            _open[1].close()
        _open = None


def get_used() -> Used | None:
    """The arguments of the last `use`, for a child process; None without limits."""
    return _used


def limit_of(place: str, model: str) -> ProviderLimit | None:
    """The first limit of the settings that covers a model at a place."""
    if (used := _used) is None:
        return None
    host = host_of(place)
    return next((each for each in used[0].limits if each.covers(host, model)), None)


@contextmanager
def turn(limit: ProviderLimit | None, *, ends: float = math.inf) -> Iterator[None]:
    """`Traffic.turn`; without a limit the block starts at once."""
    with _traffic().turn(limit, ends=ends) if limit else contextlib.nullcontext():
        yield


def pause(limit: ProviderLimit | None, seconds: float) -> None:
    """Pause the place for every process. A failure is only logged."""
    if limit is None:
        return
    try:
        _traffic().pause(limit, seconds)
    except RagError as error:
        log.warning("nobody else was told to leave %s alone: %s", limit.place, error)


def spend(place: str, model: str, usage: Json, cost: float | None) -> None:
    """Count a call at a limited place. A failure is only logged: the call has been made."""
    if (limit := limit_of(place, model)) is None:
        return
    try:
        _traffic().spend(limit, usage, cost)
    except RagError as error:
        log.warning("a call of %s was not counted: %s", limit.place, error)


def _traffic() -> Traffic:
    global _open
    with _opening:
        if _open is None or _open[0] != os.getpid():
            if _open is not None:
                _inherited.append(_open[1])
            assert _used is not None
            _open = (os.getpid(), Traffic(*_used))
        return _open[1]


def read_places(settings: TrafficSettings, store: Store) -> list[PlaceTraffic]:
    """The traffic of a data root's limited places; empty before the first call."""
    exists = bool(store.database) or (store.traffic_path.is_file() and has_room(store.traffic_path))
    if not settings.limits or not exists:
        return []
    traffic = Traffic(settings, store)
    try:
        return traffic.places()
    finally:
        traffic.close()
