"""Hands rows from one thread to another without holding all of them in memory."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

RowT = TypeVar("RowT")
_WAITING = 2  # shares of rows that lie between the two
_SECONDS = 0.5  # after which it is looked whether somebody still takes them


class Feed(Generic[RowT]):
    """A queue of rows; `take` runs in a thread of the pool from the first rows on, and receives all
    of them.
    """

    def __init__(self, pool: ThreadPoolExecutor, take: Callable[[Iterable[RowT]], None]) -> None:
        self._pool = pool
        self._take = take
        self._waiting: queue.Queue[Sequence[RowT] | None] = queue.Queue(_WAITING)
        self._taking: Future[None] | None = None
        self._ended = False

    def put(self, rows: Sequence[RowT] | None) -> None:
        """Hand on some rows; they are dropped after `take` has failed, which `result` then
        raises.
        """
        if self._taking is None:
            self._taking = self._pool.submit(self._take, self._rows())
        while not self._taking.done():
            try:
                return self._waiting.put(rows, timeout=_SECONDS)
            except queue.Full:
                continue

    def end(self) -> None:
        """Say that no more rows come."""
        if self._taking is not None and not self._ended:
            self._ended = True
            self.put(None)

    def result(self) -> None:
        """Wait until all rows are taken; raises what taking them raised."""
        if self._taking is not None:
            self._taking.result()

    def _rows(self) -> Iterator[RowT]:
        while (rows := self._waiting.get()) is not None:
            yield from rows
