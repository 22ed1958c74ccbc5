"""Checks whether a recorded process still exists. A process id is valid only on its machine, since
its last boot and in its pid namespace (each container has its own), so all three are recorded.
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
    """The scope of this process's process ids: `host`, `boot_id`, `pid_namespace`. The last two are
    empty if the system does not provide them.
    """
    return {
        "host": platform.node(),
        "boot_id": _read_text("/proc/sys/kernel/random/boot_id"),
        "pid_namespace": _read_link("/proc/self/ns/pid"),
    }


def identity(pid: int) -> Json:
    """`here` plus the kernel's start time of a process on this machine, empty if unknown."""
    return {**here(), "started": _start_time(pid)}


def is_here(process: Json) -> bool:
    """True when a recorded process id is valid in this scope, or its scope is unknown."""
    return all(process.get(key, value) == value for key, value in here().items())


def alive(pid: int, mark: str, started: str = "") -> bool:
    """True while a local process has the id, the start time, and `mark` in its command line; the id
    alone may have been reused.
    """
    if pid == os.getpid():
        return is_same(pid, started)
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # another user's process
        return False
    return mark in _command(pid, mark) and is_same(pid, started)


def is_same(pid: int, started: str) -> bool:
    """False only when the process with the id is known to be gone or another one."""
    return not started or started == _start_time(pid)


def _command(pid: int, unknown: str) -> str:
    """The command line of a process, empty for a zombie; `unknown` if it cannot be determined."""
    if Path("/proc/self/stat").is_file():
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace")
            state = _stat(pid)[0]
        except (OSError, IndexError):
            return ""
        # a process has no command line for a moment after its start
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
    """The fields of /proc/PID/stat from the state on; earlier ones may contain spaces."""
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
