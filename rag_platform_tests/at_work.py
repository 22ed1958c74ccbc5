"""Processes that stand for those of jobs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

SLEEP = "import time; print(0, flush=True); time.sleep(60)"


@contextmanager
def working(code: str, job_id: str) -> Iterator[tuple[subprocess.Popen[bytes], bytes]]:
    """A process that is a job's as far as anybody can see, and the line that it printed when it was
    up.
    """
    made = subprocess.Popen(
        [sys.executable, "-c", code, job_id], start_new_session=True, stdout=subprocess.PIPE
    )
    assert made.stdout is not None
    try:
        yield made, made.stdout.readline()
    finally:
        made.kill()
        made.communicate()
