"""Tells whether a recorded process is still the same one. A process id is only valid on its
machine, since its last boot and in its pid namespace (a container has its own), so all three are
recorded.
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
    """Where process ids of this process are valid: `host`, `boot_id`, `pid_namespace`. The last two
    are empty where the system does not tell them.
    """
    return {
        "host": platform.node(),
        "boot_id": _read_text("/proc/sys/kernel/random/boot_id"),
        "pid_namespace": _read_link("/proc/self/ns/pid"),
    }


def identity(pid: int) -> Json:
    """`here` and the start time of a process on this machine by the kernel's clock; the time is
    empty where it is not known.
    """
    return {**here(), "started": _start_time(pid)}


def is_here(process: Json) -> bool:
    """True when the id of a recorded process is valid here; also when it is not known where it is
    valid.
    """
    return all(process.get(key, value) == value for key, value in here().items())


def alive(pid: int, mark: str, started: str = "") -> bool:
    """True while a process of this place has the id, the start time and the mark in its command
    line: ids are reused.
    """
    if pid == os.getpid():
        return is_same(pid, started)
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # somebody else's
        return False
    return mark in _command(pid, mark) and is_same(pid, started)


def is_same(pid: int, started: str) -> bool:
    """False only when the process with the id is known to be another one, or gone."""
    return not started or started == _start_time(pid)


def _command(pid: int, unknown: str) -> str:
    """The command line of a process, empty for a zombie; `unknown` where the system does not
    say.
    """
    if Path("/proc/self/stat").is_file():
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace")
            state = _stat(pid)[0]
        except (OSError, IndexError):
            return ""
        # for a moment after its start a process has none
        return command or ("" if state in "ZX" else unknown)
    try:
        ps = ["ps", "-ww", "-o", "command=", "-p", str(pid)]
        return subprocess.run(ps, capture_output=True, text=True, timeout=5, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return unknown


def _start_time(pid: int) -> str:
    try:
        return _stat(pid)[19]
    except (OSError, IndexError):
        return ""


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the state on; those before may hold spaces."""
    return (
        Path(f"/proc/{pid}/stat")
        .read_text(encoding="utf-8", errors="replace")
        .rpartition(")")[2]
        .split()
    )


def _read_text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _read_link(path: str) -> str:
    try:
        return str(Path(path).readlink())
    except OSError:
        return ""
