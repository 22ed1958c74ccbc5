"""The word index of a release: its rows, and how they are passed to its writer."""

from __future__ import annotations

import queue
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from typing import Generic, TypeVar

from rag_platform.config.query import ProviderConfig
from rag_platform.config.settings import fingerprint
from rag_platform.ir import Chunk, LexicalRow, View
from rag_platform.protocols import LexicalIndex, LexicalReader
from rag_platform.registry import make_provider, traits_of
from rag_platform.storage.store import own_copies
from rag_platform.text.entries import find_entry_names

RowT = TypeVar("RowT")
_MAX_WAITING = 2  # batches of rows between the reading and the writing thread
_NAME_PARTS = re.compile(r"[\s_.\-]+")


def row_of(chunk: Chunk, view: View, filename: str = "") -> LexicalRow | None:
    """The row of a chunk in the word index, None when its sparse text is blank.

    The file name is indexed with the headings: people ask for "the Adobe report", and few of its
    chunks mention Adobe. It is part of the document's identity, so it never changes for a chunk.
    So are the names of the options and functions that the chunk describes.
    """
    if not view.sparse_text.strip():
        return None
    name = " ".join(_NAME_PARTS.split(PurePosixPath(filename).stem)).strip()
    described = find_entry_names(chunk.section_path, chunk.chunk_text)
    headings = "\n".join([chunk.section_path, name, *described])
    return LexicalRow(chunk.chunk_id, chunk.doc_id, view.sparse_text, headings.strip())


def row_hash(row: LexicalRow | None) -> str:
    """A fingerprint of the indexed content, empty for a chunk that is not indexed."""
    return "" if row is None else fingerprint(row.text, row.headings)


def update(
    config: ProviderConfig,
    directory: Path,
    *,
    removed: Mapping[str, str],
    rows: Iterable[LexicalRow],
) -> None:
    """Delete `removed` (chunk id: doc id) from the index in `directory`, then add `rows`."""
    index: LexicalIndex = make_provider("lexical_index", config.provider, config.options)
    if not traits_of(index).replaces_files:
        own_copies(directory)
    index.update(directory, removed=removed, rows=rows)


def open_reader(config: ProviderConfig, directory: Path) -> LexicalReader:
    index: LexicalIndex = make_provider("lexical_index", config.provider, config.options)
    return index.open(directory)


class Feed(Generic[RowT]):
    """A bounded queue of rows to another thread: `take` runs in a thread of the pool from the first
    rows on, and receives all of them.
    """

    def __init__(self, pool: ThreadPoolExecutor, take: Callable[[Iterable[RowT]], None]) -> None:
        self._pool = pool
        self._take = take
        self._waiting: queue.Queue[Sequence[RowT] | None] = queue.Queue(_MAX_WAITING)
        self._taking: Future[None] | None = None
        self._ended = False

    def put(self, rows: Sequence[RowT] | None) -> None:
        """Pass on some rows; they are dropped if `take` has failed, which `result` raises."""
        if self._taking is None:
            self._taking = self._pool.submit(self._take_all)
        self._waiting.put(rows)

    def end(self) -> None:
        if self._taking is not None and not self._ended:
            self._ended = True
            self.put(None)

    def result(self) -> None:
        """Wait until all rows are taken; raises what taking them raised."""
        if self._taking is not None:
            self._taking.result()

    def _take_all(self) -> None:
        rows = (row for batch in iter(self._waiting.get, None) for row in batch)
        try:
            self._take(rows)
        finally:
            for _ in rows:  # dropped, so that `put` does not wait for ever
                pass
