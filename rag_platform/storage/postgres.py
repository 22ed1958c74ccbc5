"""Connections to a shared PostgreSQL database: statements in SQLite's syntax, complete results, one
connection for all threads, and locks that are released when their holder ends.

The driver comes with the extra `postgres`, and is only imported if a PostgreSQL URL is configured.
"""

from __future__ import annotations

import functools
import os
import platform
import re
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from rag_platform.errors import BusyError, ConfigError, LedgerError
from rag_platform.storage.sqlite_files import Rows

SCHEMES = ("postgresql", "postgres")
# Timeouts that may be hours by default; options in the URL take precedence.
_TIMEOUTS = {
    "connect_timeout": 5,  # seconds
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,  # milliseconds
}
_LOCK_SECONDS = 30  # how long a write waits for another one, as with SQLite
_POLL_SECONDS = 0.1  # between attempts to take a lock
_UNCERTAIN = "..."
_NAME = re.compile(r"(?<![:\w]):([a-z_]+)")

Parameters = Sequence[Any] | Mapping[str, Any]


def is_postgres(url: str) -> bool:
    return url.partition("://")[0] in SCHEMES


def mask_url(url: str) -> str:
    """A database URL without password and options, for messages. More is left out if it is unclear
    which part is the password.
    """
    scheme, _, rest = url.partition("://")
    place, *tail = re.split("([/?#])", rest, maxsplit=1)
    if "@" in "".join(tail):  # an unescaped slash or the like in the password
        return f"{scheme}://{_UNCERTAIN}"
    user, at, hosts = place.rpartition("@")
    path = re.split("[?#]", "".join(tail))[0]
    return f"{scheme}://{user.partition(':')[0]}{at}{hosts}{path}"


@functools.lru_cache(maxsize=512)
def translate(sql: str) -> str:
    """A statement with SQLite's parameters (`?` or `:name`) in the driver's form."""
    return _NAME.sub(r"%(\1)s", sql.replace("%", "%%").replace("?", "%s"))


def _adapt(value: Any) -> Any:
    """A value in the form of a column: booleans as integers, texts without NUL."""
    if isinstance(value, bool):
        return int(value)
    return value.replace("\0", "\ufffd") if isinstance(value, str) else value


def _adapted(parameters: Parameters) -> Any:
    if isinstance(parameters, Mapping):
        return {name: _adapt(value) for name, value in parameters.items()}
    return tuple(map(_adapt, parameters))


class Result(Rows):
    """The rows of a statement; `rowcount` is the number of rows found or changed."""

    def __init__(self, rows: Sequence[Any], rowcount: int) -> None:
        super().__init__(rows)
        self.rowcount = rowcount


class PostgresConnection:
    """A connection that threads share under a lock; a broken one is reopened."""

    def __init__(self, url: str, application: str = "rag") -> None:
        """Connect. Raises LedgerError `ledger_unreachable`, ConfigError without the driver."""
        self.url = url
        self._application = application
        self._lock = threading.RLock()
        self._db: Any = None
        self._writing = False
        self._connect()

    def __del__(self) -> None:
        """Close an abandoned connection, about which the driver would warn."""
        if (db := getattr(self, "_db", None)) is not None:
            db.close()

    def execute(self, sql: str, parameters: Parameters = ()) -> Result:
        """Execute a statement, outside `transaction` as its own transaction. If the connection
        turns out to be broken, it is repeated on a new one, except inside `transaction`.
        """
        with self._lock:
            if self._db is None:
                self._connect()
            try:
                return self._run(sql, parameters)
            except LedgerError:
                if self._writing or not self._db.broken:
                    raise
                self._connect()
                return self._run(sql, parameters)

    def executemany(self, sql: str, rows: Sequence[Parameters]) -> None:
        with self._lock, self._errors(), self._db.cursor() as cursor:  # within a transaction
            cursor.executemany(translate(sql), [_adapted(row) for row in rows])

    @contextmanager
    def transaction(self, first: str) -> Iterator[PostgresConnection]:
        """Commit what the block writes, or nothing if it raises; other threads wait. A commit whose
        confirmation was lost raises like a failed one.
        """
        with self._lock:
            self.execute("SELECT 1")  # reopens a broken connection
            with self._errors(), self._db.transaction():
                self._writing = True
                try:
                    self._run(first, ())
                    yield self
                finally:
                    self._writing = False

    def close(self) -> None:
        """Close the connection; the next statement opens another."""
        with self._lock:
            if self._db is not None:
                self._db.close()
                self._db = None

    def _run(self, sql: str, parameters: Parameters) -> Result:
        with self._errors():
            values = _adapted(parameters)
            cursor = self._db.execute(translate(sql) if values else sql, values or None)
            return Result(cursor.fetchall() if cursor.description else [], cursor.rowcount)

    def _connect(self) -> None:
        driver = _driver()
        self.close()
        if mask_url(self.url).endswith(_UNCERTAIN):
            raise bad_url(self.url)
        with self._errors():
            try:
                options = _TIMEOUTS | driver.conninfo.conninfo_to_dict(self.url)
            except driver.ProgrammingError:  # its message would contain the password
                raise bad_url(self.url) from None
            options |= {"application_name": self._application[:63]}
            self._db = driver.connect(**options, autocommit=True)
            self._db.execute(f"SET lock_timeout = '{_LOCK_SECONDS}s'")

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn the driver's errors into ours, with a remedy and without the password."""
        driver = _driver()
        try:
            yield
        except driver.errors.LockNotAvailable as error:
            raise BusyError(
                f"the ledger at {mask_url(self.url)} is being written for more than"
                f" {_LOCK_SECONDS} s; try again"
            ) from error
        except (driver.errors.DiskFull, driver.errors.InsufficientPrivilege) as error:
            raise LedgerError(
                f"the ledger at {mask_url(self.url)} refuses: {self._reason(error)}",
                code="ledger_refused",
            ) from None
        except driver.OperationalError as error:
            raise LedgerError(
                f"the ledger at {mask_url(self.url)} cannot be reached ({self._reason(error)}):"
                " nothing is shown or done without it, for nobody else knows which documents were"
                " deleted. Start the database, or correct `ledger` in settings.yaml (RAG_LEDGER)"
            ) from None

    def _reason(self, error: Exception) -> str:
        """The first line of the driver's message, without the password."""
        line = (str(error).strip().splitlines() or [type(error).__name__])[0]
        for secret in _secrets(self.url):
            line = line.replace(secret, "***")
        return line


def bad_url(url: str) -> ConfigError:
    return ConfigError(
        f"`ledger` = {mask_url(url)} names no database; give"
        " postgresql://USER:PASSWORD@HOST:PORT/DATABASE, with what is special in the password"
        " percent-encoded, or nothing for the file in the data root",
        code="bad_ledger",
    )


def _secrets(url: str) -> list[str]:
    with suppress(ValueError):
        parts = urlsplit(url)
        found = {parts.password or "", *(v for k, v in parse_qsl(parts.query) if k == "password")}
        return sorted({*found, *map(unquote, found)} - {""}, key=len, reverse=True)
    return []


def _driver() -> Any:
    try:
        import psycopg
        import psycopg.conninfo
    except ImportError as error:
        raise ConfigError(
            "a ledger on PostgreSQL needs psycopg, which is not installed: `pip install"
            " 'rag-platform[postgres]'`",
            code="missing_extra",
        ) from error
    return psycopg


# --- locks --------------------------------------------------------------------------------------


class AdvisoryLock:
    """An advisory lock of the database, held by its own connection and released when that ends."""

    # includes the schema, so that another ledger in the database has other locks
    _KEY = "hashtextextended('rag ' || current_schema() || ' ' || ?, 0)"

    def __init__(self, url: str, name: str, owner: str) -> None:
        self._name = name
        self._db = PostgresConnection(url, f"{owner} {os.getpid()} {platform.node()}")

    def take(self, *, shared: bool, wait: float) -> bool:
        """Take the lock; False if others hold it for `wait` seconds."""
        sql = f"SELECT pg_try_advisory_lock{'_shared' if shared else ''}({self._KEY})"
        until = time.monotonic() + wait
        while not self._db.execute(sql, (self._name,)).fetchone()[0]:
            if time.monotonic() >= until:
                return False
            time.sleep(_POLL_SECONDS)
        return True

    def holder(self) -> dict[str, Any]:
        """The `owner`, `pid`, `host` and `since` of a holder; empty if there is none now."""
        row = self._db.execute(
            f"SELECT a.application_name, extract(epoch FROM a.backend_start)::bigint"
            " FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid WHERE l.locktype ="
            " 'advisory' AND l.granted AND l.objsubid = 1 AND l.database ="
            " (SELECT oid FROM pg_database WHERE datname = current_database())"
            f" AND (l.classid::bigint << 32) | l.objid::bigint = {self._KEY} LIMIT 1",
            (self._name,),
        ).fetchone()
        if row is None or row[0].count(" ") < 2:
            return {}
        owner, pid, host = row[0].rsplit(" ", 2)
        return {"owner": owner, "pid": int(pid), "host": host, "since": int(row[1])}

    def close(self) -> None:
        """Release the lock explicitly, because the database releases the locks of a closed
        connection only some time later.
        """
        with suppress(LedgerError):
            self._db.execute("SELECT pg_advisory_unlock_all()")
        self._db.close()
