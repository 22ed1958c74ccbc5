"""Killed at a write point, or out of disk there: the library is whole and the work can be done
again (bench/crashes.py tries every point).

The program runs as a process of its own: it forks for each point, which a process with pytest's
threads must not do.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rag_platform_tests.conftest import THOROUGH

BENCH = Path(__file__).resolve().parent.parent / "bench"

pytestmark = pytest.mark.integration


def run(tmp_path: Path, *arguments: str) -> Any:
    """What bench/crashes.py printed; its temporary data below `tmp_path`."""
    return subprocess.run(
        [sys.executable, str(BENCH / "crashes.py"), *arguments],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )


def test_every_write_point_tried_is_recovered(tmp_path: Path) -> None:
    """A mixture of the first and last occurrences of every site; RAG_THOROUGH=1 tries more of them.
    Each is a kill and a full disk.
    """
    scenarios = ("update", "rollback", "purge", "gc")
    points = 20 if THOROUGH else 2
    ended = run(tmp_path, "--scenario", *scenarios, "--first-and-last", "--points", str(points))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    found = re.search(r"(\d+) faults, (\d+) recovered, 0 not", ended.stdout)
    assert found and int(found[1]) == int(found[2]) == 2 * points * len(scenarios), ended.stdout


@pytest.mark.perf
@pytest.mark.skipif(
    "RAG_ALL_POINTS" not in os.environ,
    reason="takes many minutes: set RAG_ALL_POINTS=1, or run bench/crashes.py",
)
def test_every_write_point_is_recovered(tmp_path: Path) -> None:
    ended = run(tmp_path)
    assert ended.returncode == 0, ended.stdout
