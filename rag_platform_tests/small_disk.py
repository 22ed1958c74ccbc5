"""Disks of a few megabytes, for tests of what happens when they are full."""

from __future__ import annotations

import errno
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[None]:
    """A file system in memory at `folder`."""
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    try:
        done = subprocess.run(mount, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        pytest.skip(f"no small disk can be mounted here: {error}")
    if done.returncode:
        pytest.skip(f"no small disk can be mounted here: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path) -> None:
    """Take every byte that is free."""
    with pytest.raises(OSError) as raised, open(folder / "filler", "ab", buffering=0) as filler:
        while True:
            filler.write(bytes(4096))
    assert raised.value.errno == errno.ENOSPC
