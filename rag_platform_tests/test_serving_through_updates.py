"""Readers ask without a pause while another process publishes, deletes and goes back
(bench/serving.py asks a server process too).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rag_platform.answering.engine import answer
from rag_platform.ir import QueryRequest
from rag_platform.releases import release_store as releases
from rag_platform.retrieval.library import Lease, Library

BENCH = Path(__file__).resolve().parent.parent / "bench"

pytestmark = pytest.mark.integration


def test_a_release_that_is_replaced_and_removed_before_it_is_opened(
    shelf: Any, tmp_path: Path
) -> None:
    """The reader has read the pointer when two releases are published and its own goes: it answers
    from the newest.
    """
    note = tmp_path / "note.md"
    note.write_text("# Gate\n\nThe gate opens at 05:30.\n", encoding="utf-8")
    first = shelf.ingest(note)

    class Slow(Library):
        def _open(self, namespace: str, release_id: str) -> Lease:
            if release_id == first:
                note.write_text("# Gate\n\nThe gate opens at 06:00.\n", encoding="utf-8")
                shelf.ingest(note)
                releases.drop(self.store.release_dir(namespace, first))
            return super()._open(namespace, release_id)

    library = Slow(shelf.settings, shelf.store)
    found = answer(library, QueryRequest("When does the gate open?", top_k=1))
    assert found.release_id != first and "06:00" in found.hits[0].chunk_text and not found.warnings
    library.close()


def test_answers_come_wholly_from_one_release_and_nothing_deleted_returns(tmp_path: Path) -> None:
    command = [
        "--door",
        "library",
        "--chunks",
        "60",
        "--updates",
        "5",
        "--deletions",
        "2",
        "--rollbacks",
        "2",
        "--quiet",
        "0",
    ]
    ended = subprocess.run(
        [sys.executable, str(BENCH / "serving.py"), *command],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert ended.returncode == 0 and "wrong answers: 0" in ended.stdout, ended.stdout + ended.stderr
    asked = re.search(r"library: (\d+) questions", ended.stdout)
    assert asked and int(asked[1]) > 20
