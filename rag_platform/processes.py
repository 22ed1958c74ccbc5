"""Which process does a piece of work, where, and whether it still lives.

A process id means something only on its own machine, since that was started, and in its own pid namespace (a container has one of its own).
"""

from __future__ import annotations

import functools
import os
import platform
import subprocess
from pathlib import Path

from rag_platform.ir import Json


@functools.cache
def here() -> Json:
    """Where this process counts its ids: `host`, `boot_id` and `pid_namespace`, the last two empty where the system does not tell."""
    return {"host": platform.node(), "boot_id": _text("/proc/sys/kernel/random/boot_id"), "pid_namespace": _link("/proc/self/ns/pid")}


def identity(pid: int) -> Json:
    """`here` and the time at which a process of this place began, in the clock of its kernel; empty where nobody knows."""
    return {**here(), "started": _started(pid)}


def is_here(process: Json) -> bool:
    """True when a recorded process would be seen from here under its id; one of which no place is known is taken to be."""
    return all(process.get(key, value) == value for key, value in here().items())


def alive(pid: int, mark: str, started: str = "") -> bool:
    """True while a process of this place has the id, began when it is said to, and has the mark in its command: an id is given again."""
    if pid == os.getpid():
        return not started or started == _started(pid)
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # somebody else's
        return False
    return mark in _command(pid, mark) and (not started or started == _started(pid))


def _command(pid: int, unknown: str) -> str:
    """The command line of a process, empty when it is dead and only waits to be collected; `unknown` where the system does not tell."""
    if Path("/proc/self/stat").is_file():
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace")
            state = _stat(pid)[0]
        except (OSError, IndexError):
            return ""
        return command or ("" if state in "ZX" else unknown)  # for a moment after its start a process has none
    try:
        asked = ["ps", "-ww", "-o", "command=", "-p", str(pid)]
        return subprocess.run(asked, capture_output=True, text=True, timeout=5, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return unknown


def _started(pid: int) -> str:
    try:
        return _stat(pid)[19]
    except (OSError, IndexError):
        return ""


def _stat(pid: int) -> list[str]:
    """What the kernel tells of a process, from its state on: what comes before may hold spaces."""
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _link(path: str) -> str:
    try:
        return str(Path(path).readlink())
    except OSError:
        return ""
