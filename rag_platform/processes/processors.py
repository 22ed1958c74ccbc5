"""How many processors this process may use."""

from __future__ import annotations

import math
import os
from functools import cache
from pathlib import Path

# the limit of a control group, as a container sees its own: version 2 in one file, version 1 in two
_QUOTAS = (
    ("/sys/fs/cgroup/cpu.max",),
    ("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "/sys/fs/cgroup/cpu/cpu.cfs_period_us"),
)


@cache
def usable_processors() -> int:
    """The processors that this process may run on, at least 1, and no more than the time that its
    container was given is worth, rounded up (`docker run --cpus 1.5`: 2).

    A machine's own count would start as many embedders as it has cores in a container that may use
    two of them.
    """
    affinity = getattr(os, "sched_getaffinity", None)  # Linux alone has it
    count = len(affinity(0)) if affinity else os.cpu_count() or 1
    for files in _QUOTAS:
        try:
            text = " ".join(Path(name).read_text(encoding="ascii") for name in files)
        except OSError:
            continue
        return max(1, min(count, quota_of(text) or count))
    return max(1, count)


def quota_of(text: str) -> int | None:
    """Processors that a quota and its period in microseconds are worth, rounded up; None where
    there is no limit (`max 100000`, `-1 100000`) or the text is none of theirs.
    """
    try:
        quota, period = map(int, text.split())
    except ValueError:
        return None
    return math.ceil(quota / period) if quota > 0 and period > 0 else None
