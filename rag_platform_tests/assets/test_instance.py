"""The door to Dagster's own commands: what it starts ends with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

# starts a child that ignores what interrupts its parent, as a server of a server does
PARENT = """
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); time.sleep(600)"])
print("up", flush=True)
try:
    time.sleep(600)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
SUPERVISOR = f"""
import sys
from rag_platform.assets.instance import supervised
sys.exit(supervised([sys.executable, "-c", {PARENT!r}], seconds=20))
"""


def left(session: int) -> list[int]:
    """Processes of a session that are not dead."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session and fields[0] not in "ZX":
            found.append(int(path.parent.name))
    return found


@pytest.mark.integration
@pytest.mark.skipif(not Path("/proc/self/stat").is_file(), reason="the processes of a session are found in /proc")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_no_process_outlives_the_door(number: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, "-c", SUPERVISOR], stdout=subprocess.PIPE, start_new_session=True) as door:
        assert door.stdout is not None and door.stdout.readline() == b"up\n"
        children = [int(pid) for pid in Path(f"/proc/{door.pid}/task/{door.pid}/children").read_text(encoding="utf-8").split()]
        assert len(children) == 1 and len(left(children[0])) == 2
        os.kill(door.pid, number)
        assert door.wait(30) == 128 + signal.SIGTERM
        assert door.stdout.read() == b"interrupted\n"
    until = time.monotonic() + 10
    while left(children[0]):
        assert time.monotonic() < until, left(children[0])
        time.sleep(0.05)
