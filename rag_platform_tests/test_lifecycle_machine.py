"""Random lives of a library against a model and full builds (bench/machine.py runs hundreds of
them).
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rag_platform_tests.conftest import THOROUGH

BENCH = Path(__file__).resolve().parent.parent / "bench"

pytestmark = pytest.mark.integration


def test_random_lives_equal_full_builds(tmp_path: Path) -> None:
    ended = subprocess.run(
        [
            sys.executable,
            str(BENCH / "machine.py"),
            "--sequences",
            "30" if THOROUGH else "3",
            "--steps",
            "10",
            "--seed",
            "11",
        ],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert ended.returncode == 0 and "differences=0" in ended.stdout, ended.stdout + ended.stderr
