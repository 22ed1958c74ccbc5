"""A finished SQLite file is read by threads that come before and after it was removed."""

from __future__ import annotations

import os
import sqlite3
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from rag_platform.storage.sqlite_files import LastingFile


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with three numbers, in a folder whose name a URI must escape."""
    folder = tmp_path / "50 % #1?"
    folder.mkdir()
    with sqlite3.connect(folder / "numbers.sqlite") as db:
        db.execute("CREATE TABLE numbers (n INTEGER)")
        db.executemany("INSERT INTO numbers VALUES (?)", [(1,), (2,), (3,)])
    db.close()
    return folder / "numbers.sqlite"


def in_threads(count: int, function: Any) -> list[Any]:
    """What `function` returns or raises in so many new threads at once."""
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(function())
        except Exception as error:
            found.append(error)

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_threads_that_come_after_the_file_is_gone_read_it_all_the_same(path: Path) -> None:
    file = LastingFile(path, lambda db: None)
    assert file.execute("SELECT n FROM numbers").fetchall() == [(1,), (2,), (3,)]
    path.unlink()
    path.parent.rmdir()

    def asked() -> Any:
        some = [
            tuple(row)
            for _ in range(50)
            for row in file.execute("SELECT n FROM numbers WHERE n > ?", (1,))
        ]
        assert some == [(2,), (3,)] * 50
        return (
            file.execute("SELECT max(n) FROM numbers").fetchone(),
            file.execute("SELECT n FROM numbers WHERE n > 9").fetchone(),
        )

    assert in_threads(8, asked) == [((3,), None)] * 8
    file.close()
    assert {type(error) for error in in_threads(2, asked)} == {sqlite3.ProgrammingError}


def test_a_file_that_is_there_and_cannot_be_read_says_so(path: Path) -> None:
    both = threading.Barrier(2, timeout=30)

    def prepare(db: sqlite3.Connection) -> None:
        db.execute("SELECT n FROM numbers")
        db.create_function("meet", 0, lambda: both.wait() * 0)

    file = LastingFile(path, prepare)
    reader = threading.Thread(target=file.execute, args=("SELECT meet() + meet()",))
    reader.start()  # reads by the one connection that there is
    both.wait()
    path.write_bytes(b"no database, but long enough to look like one" * 50)
    with pytest.raises(sqlite3.DatabaseError, match="not a database"):
        file.execute("SELECT 1")
    both.wait()
    reader.join()
    file.close()


def test_close_ends_every_connection(path: Path) -> None:
    file = LastingFile(path, lambda db: None)
    file.close()
    with pytest.raises(sqlite3.ProgrammingError, match=r"numbers.sqlite was closed"):
        file.execute("SELECT 1")


@pytest.mark.parametrize("round_", range(20))
def test_close_waits_for_the_statements_that_run(path: Path, round_: int) -> None:
    """SQLite crashes the process when a connection is closed while another thread reads by it; here
    only an error may come.
    """
    file, start = LastingFile(path, lambda db: None), threading.Barrier(5)

    def read() -> None:
        start.wait()
        while True:
            file.execute(
                "SELECT a.n FROM numbers a, numbers b, numbers c, numbers d, numbers e, numbers f"
            )

    def close() -> None:
        start.wait()
        file.close()

    closer = threading.Thread(target=close)
    closer.start()
    assert {type(error) for error in in_threads(4, read)} == {sqlite3.ProgrammingError}
    closer.join()


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="open files are counted in /proc")
def test_there_are_as_many_connections_as_statements_at_a_time(path: Path) -> None:
    """Each maps the file for itself, and a server asks from many threads."""
    both = threading.Barrier(2, timeout=30)
    file = LastingFile(path, lambda db: db.create_function("meet", 0, both.wait))

    def count_open() -> int:
        count = 0
        for link in Path("/proc/self/fd").iterdir():
            with suppress(FileNotFoundError):  # another thread closed it while this counts
                count += os.readlink(link) == str(path)
        return count

    for _ in range(30):
        in_threads(1, lambda: file.execute("SELECT 1"))
    assert count_open() == 1
    in_threads(2, lambda: file.execute("SELECT meet()"))
    assert count_open() == 2
    in_threads(40, lambda: [file.execute("SELECT n FROM numbers") for _ in range(50)])
    assert count_open() <= 8
    file.close()
    assert count_open() == 0


def test_what_refuses_a_connection_is_raised_and_leaves_none_open(path: Path) -> None:
    def refuse(db: sqlite3.Connection) -> None:
        raise ValueError("not this one")

    with pytest.raises(ValueError, match="not this one"):
        LastingFile(path, refuse)
