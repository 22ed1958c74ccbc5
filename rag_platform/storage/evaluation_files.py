"""Locates the files of evaluations in a data root, and erases deleted documents from them."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

from rag_platform.storage.sqlite_files import connect, shrink, transaction

DATABASE = "evaluations.sqlite"  # runs and case results
RUN_PREFIX = "eval_"  # prefix of run ids, and so of the folders with their files


Mentions = Callable[[bytes], bool]  # whether a text mentions the document


def run_folder(home: Path, run_id: str) -> Path:
    return home / "evaluations" / run_id


def count_results(home: Path, mentions: Mentions) -> int:
    path = home / DATABASE
    if not path.is_file():
        return 0
    with closing(connect(path, timeout=60)) as db:
        return sum(1 for _ in _naming(db, mentions))


def erase_results(home: Path, mentions: Mentions) -> int:
    """Clear all but the metrics of case results that mention the document, and remove the files of
    their runs. Returns the number of these case results.
    """
    path = home / DATABASE
    if not path.is_file():
        return 0
    with closing(connect(path, timeout=60)) as db:
        found = list(_naming(db, mentions))
        if not found:
            return 0
        with transaction(db, path):
            db.executemany(
                "UPDATE eval_case_results SET query = '[deleted]', key = '', error = '',"
                " artifacts = '{}', stale = '[]' WHERE rowid = ?",
                [(row,) for row, _ in found],
            )
        for run_id in {run_id for _, run_id in found}:
            shutil.rmtree(run_folder(home, run_id), ignore_errors=True)
        shrink(db, path)
    return len(found)


def _naming(db: sqlite3.Connection, mentions: Mentions) -> Iterator[tuple[int, str]]:
    """(rowid, run_id) of the case results that mention the document."""
    for row, run_id, *texts in db.execute(
        "SELECT rowid, run_id, query, error, artifacts, stale FROM eval_case_results"
    ):
        if mentions("\n".join(texts).encode()):
            yield row, run_id
