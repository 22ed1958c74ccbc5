"""PostgreSQL under the ledger: its URL and password, what is said when it is away, its locks."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from typing import Any

import pytest

from rag_platform.config.settings import load_settings
from rag_platform.errors import BusyError, ConfigError, LedgerError
from rag_platform.storage.locks import SharedLock, hold_lock
from rag_platform.storage.postgres import PostgresConnection, mask_url, translate
from rag_platform.storage.store import Store
from rag_platform_tests.postgres_server import PASSWORD, PostgresServer

WHAT = "the library is written"
SECRET = "postgresql://ann:Zwiebel%2Fturm@db:5433/rag?password=Turm&application_name=x"


def taken(lock: SharedLock, *, shared: bool = False) -> bool:
    """True when the lock can be had now."""
    try:
        with hold_lock(lock, "somebody", WHAT, shared=shared, wait=0):
            return True
    except BusyError:
        return False


@pytest.mark.parametrize(
    ("url", "name"),
    [
        (SECRET, "postgresql://ann@db:5433/rag"),
        ("postgresql:///rag?host=/run", "postgresql:///rag"),
        ("postgresql://ann:a/b@db/rag", "postgresql://..."),
        ("postgresql://ann:12/34@db/rag", "postgresql://..."),
        ("postgresql://ann:12#34@db/rag", "postgresql://..."),
        ("postgresql://ann:p@w@db1:5433,db2:5433/rag", "postgresql://ann@db1:5433,db2:5433/rag"),
    ],
)
def test_a_url_is_shown_without_its_password(url: str, name: str) -> None:
    assert mask_url(url) == name


@pytest.mark.parametrize(
    ("sql", "translated"),
    [
        ("SELECT ? LIKE 'a%'", "SELECT %s LIKE 'a%%'"),
        ("x = :name AND y = :name", "x = %(name)s AND y = %(name)s"),
        ("value::bigint % 2 = ?", "value::bigint %% 2 = %s"),
    ],
)
def test_parameters_are_those_of_the_driver(sql: str, translated: str) -> None:
    assert translate(sql) == translated


def test_settings_and_stores_do_not_show_it(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAG_LEDGER", SECRET)
    loaded = load_settings()
    said = f"{loaded!r} {loaded.model_dump()} {loaded.model_dump_json()} {Store.of(loaded)!r}"
    assert "Zwiebel" not in said and "Turm" not in said
    store = Store.of(loaded)
    assert (store.ledger_url, store.ledger_name) == (SECRET, "postgresql://ann@db:5433/rag")
    assert store.has_ledger() and not Store(settings.home).has_ledger()


@pytest.mark.integration
def test_errors_name_the_place_and_not_the_password(postgres: PostgresServer) -> None:
    wrong = postgres.base.replace(PASSWORD, "Lauch%2Fbeet")
    away = postgres.base.replace(f":{postgres.port}", ":1")
    for url, reason in ((wrong, "password authentication failed"), (away, "Connection refused")):
        with pytest.raises(LedgerError, match=reason) as raised:
            PostgresConnection(url)
        assert raised.value.code == "ledger_unreachable"
        assert "Lauch" not in str(raised.value) and "Zwiebel" not in str(raised.value)
    for bad in ("postgresql://ann:Lauch@db/rag?no_such_option=1", "postgresql://ann:L/auch@db/r"):
        with pytest.raises(ConfigError, match="names no database") as refused:
            PostgresConnection(bad)
        assert "auch" not in str(refused.value)


@pytest.mark.integration
def test_a_connection_that_broke_is_opened_again_between_transactions(
    postgres: PostgresServer,
) -> None:
    url = postgres.new_url()
    with closing(PostgresConnection(url)) as db, closing(PostgresConnection(url)) as other:
        db.execute("CREATE TABLE kept (word TEXT)")
        cut = "SELECT pg_terminate_backend(?)"
        (own,) = db.execute("SELECT pg_backend_pid()").fetchone()
        other.execute(cut, (own,))
        assert db.execute("SELECT 7").fetchall() == [(7,)]
        with pytest.raises(LedgerError), db.transaction("SELECT 1"):
            db.execute("INSERT INTO kept VALUES (?)", ("lost",))
            (own,) = db.execute("SELECT pg_backend_pid()").fetchone()
            other.execute(cut, (own,))
            db.execute("INSERT INTO kept VALUES (?)", ("never",))
        with db.transaction("SELECT 1"):
            db.execute("INSERT INTO kept VALUES (?)", ("a\0b",))
        assert db.execute("SELECT word FROM kept").fetchall() == [("a\ufffdb",)]


@pytest.mark.integration
def test_a_lock_is_held_by_one_who_is_named(postgres: PostgresServer, elsewhere: Any) -> None:
    url = postgres.new_url()
    lock = SharedLock(url, "releases/default/.writer")
    with elsewhere(hold_lock(lock, "job 1", WHAT, wait=0)):
        with (
            pytest.raises(BusyError, match=rf"^{WHAT} by job 1 \(process \d+ on .+, for \d+ s\)"),
            hold_lock(lock, "job 2", WHAT, wait=0),
        ):
            pass
        assert not taken(lock, shared=True)
        assert taken(SharedLock(url, "releases/other/.writer"))
        assert taken(SharedLock(postgres.new_url(), lock.name))  # another ledger of the database
    with elsewhere(hold_lock(lock, "reader", WHAT, shared=True, wait=0)):
        assert taken(lock, shared=True) and not taken(lock)
    assert taken(lock)


@pytest.mark.integration
def test_a_killed_process_leaves_no_lock(postgres: PostgresServer) -> None:
    lock = SharedLock(postgres.new_url(), ".collector")
    code = (
        "import sys, time; from rag_platform.storage.locks import SharedLock, hold_lock\n"
        "with hold_lock(SharedLock(*sys.argv[1:]), 'job', 'it is written', wait=0):"
        " print('in', flush=True); time.sleep(600)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, lock.url, lock.name], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "in\n"
        assert not taken(lock)
        process.kill()
    with hold_lock(lock, "us", WHAT, wait=60):
        pass
