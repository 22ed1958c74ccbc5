"""Exports traces to files: Parquet or JSON lines, one file for each table."""

from __future__ import annotations

from pathlib import Path

from rag_platform.errors import InputError, NotFoundError
from rag_platform.observability.trace_store.queries import TraceFilter, choose
from rag_platform.observability.trace_store.rows import COLUMNS, time_column
from rag_platform.observability.trace_store.tables import open_tables, quote
from rag_platform.storage.store import atomic_path

FORMATS = {"parquet": "FORMAT parquet, COMPRESSION zstd", "jsonl": "FORMAT json"}
# what a line has beside the columns of its table
_REST = {"traces": "attrs", "spans": "attrs", "events": "payload"}


def export(logs_dir: Path, where: TraceFilter, target: Path, form: str) -> dict[str, int]:
    """Export the selected ended traces, with their spans, events and model calls, into a folder.
    Returns the number of rows by file; `attrs` and `payload` are JSON. Raises NotFoundError when no
    trace is selected, InputError when a file of that name exists.
    """
    counts: dict[str, int] = {}
    with open_tables(logs_dir, where.since) as tables:
        choose(tables, where)
        if not tables.select("SELECT 1 FROM chosen LIMIT 1"):
            raise NotFoundError(
                "no trace that ended is as the filters say; `rag trace list` shows those there are",
                code="no_traces",
            )
        for name in COLUMNS:
            path = target / f"{name}.{form}"
            if path.exists():
                raise InputError(
                    f"{path} is there already; name another folder, or remove it",
                    code="file_exists",
                )
            rest = _REST.get(name)
            columns = "*" if rest is None else f"* EXCLUDE (line), line->'$.{rest}' AS {rest}"
            with atomic_path(path) as temporary:
                ((count,),) = tables.connection.execute(
                    f"COPY (SELECT {columns} FROM {name} SEMI JOIN chosen USING (trace_key)"
                    f" ORDER BY {time_column(name)}) TO {quote(temporary)} ({FORMATS[form]})"
                ).fetchall()
            counts[path.name] = count
    return counts
