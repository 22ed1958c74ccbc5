"""How many processors this process may use, and work without its garbage collector."""

from __future__ import annotations

import gc
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

# the CPU quota of a container's control group: one file in cgroup version 2, two in version 1
_QUOTAS = (
    ("/sys/fs/cgroup/cpu.max",),
    ("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "/sys/fs/cgroup/cpu/cpu.cfs_period_us"),
)


@cache
def usable_processors() -> int:
    """The number of processors in this process's affinity mask, at least 1 and at most the CPU
    quota of its container, rounded up (`docker run --cpus 1.5`: 2). The machine's count would be
    too large in a container.
    """
    affinity = getattr(os, "sched_getaffinity", None)  # Linux only
    count = len(affinity(0)) if affinity else os.cpu_count() or 1
    for files in _QUOTAS:
        try:
            text = " ".join(Path(name).read_text(encoding="ascii") for name in files)
        except OSError:
            continue
        return max(1, min(count, quota_of(text) or count))
    return max(1, count)


def quota_of(text: str) -> int | None:
    """The processors granted by a quota and its period in microseconds, rounded up; None without a
    limit (`max 100000`, `-1 100000`) or for any other text.
    """
    try:
        quota, period = map(int, text.split())
    except ValueError:
        return None
    return math.ceil(quota / period) if quota > 0 and period > 0 else None


@contextmanager
def without_collector() -> Iterator[None]:
    """Pause Python's cyclic garbage collector, which traverses many live objects again and again
    though they form no cycles: the records of a library, the characters of a page.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
