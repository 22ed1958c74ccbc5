"""Lets as many searches run at once as there are processors, in the order in which they came.

More of them at once finish fewer: eight clients of a 2-core server reached 66 hybrid questions a second all at once and 87 in turns, of the
word index alone 133 and 215. Their threads take the interpreter's lock and the processor's caches from each other.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager


class Turns:
    """So many places, given in order of arrival."""

    def __init__(self, places: int) -> None:
        self.places = places
        self._free = places
        self._waiting: deque[threading.Lock] = deque()
        self._lock = threading.Lock()

    def crowded(self, threads: int) -> bool:
        """True when so many threads are more than there are places."""
        return threads > self.places

    @contextmanager
    def taken(self, seconds: float) -> Iterator[bool]:
        """A place for the length of the block; after waiting `seconds` for one the block runs without (False)."""
        held = self._take(seconds)
        try:
            yield held
        finally:
            if held:
                self._give_back()

    def _take(self, seconds: float) -> bool:
        with self._lock:
            if self._free:
                self._free -= 1
                return True
            turn = threading.Lock()
            turn.acquire()
            self._waiting.append(turn)
        if turn.acquire(timeout=max(0.0, seconds)):
            return True
        with self._lock:
            if turn in self._waiting:
                self._waiting.remove(turn)
                return False
        return True  # the place came at the last moment

    def _give_back(self) -> None:
        with self._lock:
            if self._waiting:
                self._waiting.popleft().release()  # the place goes to the one who waited longest
            else:
                self._free += 1


searches = Turns(os.cpu_count() or 1)
