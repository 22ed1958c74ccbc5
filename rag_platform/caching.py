"""A thread-safe LRU cache with expiry."""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Generic, TypeVar

from rag_platform.ir import Json

V = TypeVar("V")


class Cache(Generic[V]):
    """At most `size` values, each for `seconds`; a size of 0 disables the cache.

    Keys must contain everything that a value depends on, as nothing is invalidated: after a new
    release, lookups have other keys, and the old entries are evicted. If a key contains the `id` of
    an object, the value must reference that object, so that its id is not reused.
    """

    def __init__(
        self, size: int, seconds: float = math.inf, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._size = size
        self._seconds = seconds
        self._clock = clock
        self._entries: OrderedDict[Hashable, tuple[float, V]] = OrderedDict()
        self._lock = threading.Lock()
        self._hits = 0
        self._misses = 0

    def __bool__(self) -> bool:
        return self._size > 0

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: Hashable) -> V | None:
        """The value of the key; None if there is none or it has expired."""
        if not self._size:
            return None
        with self._lock:
            found = self._entries.get(key)
            if found is not None and found[0] < self._clock():
                del self._entries[key]
                found = None
            if found is None:
                self._misses += 1
                return None
            self._entries.move_to_end(key)
            self._hits += 1
            return found[1]

    def put(self, key: Hashable, value: V) -> None:
        if not self._size:
            return
        with self._lock:
            self._entries[key] = (self._clock() + self._seconds, value)
            self._entries.move_to_end(key)
            if len(self._entries) > self._size:
                self._entries.popitem(last=False)

    def figures(self) -> Json:
        """`size` and `entries`, `hits` and `misses` since the start, and the `hit_rate` (0 before
        the first lookup).
        """
        with self._lock:
            return _figures(self._size, len(self._entries), self._hits, self._misses)


def sum_figures(figures: Sequence[Json]) -> Json:
    """The summed figures of one cache in several processes."""
    return _figures(
        *(sum(each[name] for each in figures) for name in ("size", "entries", "hits", "misses"))
    )


def _figures(size: int, entries: int, hits: int, misses: int) -> Json:
    lookups = hits + misses
    return {
        "size": size,
        "entries": entries,
        "hits": hits,
        "misses": misses,
        "hit_rate": round(hits / lookups, 4) if lookups else 0.0,
    }
