"""Readers ask without a pause while another process publishes, deletes and goes back (bench/serving.py asks a server process too)."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parent.parent / "bench"

pytestmark = pytest.mark.integration


def test_answers_come_wholly_from_one_release_and_nothing_deleted_returns(tmp_path: Path) -> None:
    command = ["--door", "library", "--chunks", "60", "--updates", "5", "--deletions", "2", "--rollbacks", "2", "--quiet", "0"]
    ended = subprocess.run(
        [sys.executable, str(BENCH / "serving.py"), *command],
        capture_output=True, text=True, timeout=300, check=False, env={**os.environ, "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert ended.returncode == 0 and "wrong answers: 0" in ended.stdout, ended.stdout + ended.stderr
    asked = re.search(r"library: (\d+) questions", ended.stdout)
    assert asked and int(asked[1]) > 20
