"""A data root that an older program wrote (November 22nd, 2026, strategy fast, two documents in
English and Chinese) is read, proved and rebuilt by this one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.e2e

STORED = Path(__file__).with_name("stored") / "home_2026_11_22.tar.xz"
REPOSITORY = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def old_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked data root; tests follow each other on it."""
    folder = tmp_path_factory.mktemp("stored")
    with tarfile.open(STORED) as packed:
        packed.extractall(folder, filter="data")
    return folder / "home"


def rag(home: Path, *arguments: str) -> dict[str, Any]:
    """What a command prints with --json."""
    done = subprocess.run(
        [sys.executable, "-m", "rag_platform.cli.main", *arguments, "--json"],
        capture_output=True,
        text=True,
        timeout=240,
        env={
            **os.environ,
            "RAG_HOME": str(home),
            "RAG_CONFIG": str(REPOSITORY / "rag_platform" / "defaults"),
        },
    )
    assert done.returncode == 0, done.stderr + done.stdout
    told: dict[str, Any] = json.loads(done.stdout)
    return told["data"]


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ("What is the maximum upload size?", "The maximum upload size is 50 MB."),
        ("连接池的最大连接数是多少？", "连接池的最大连接数是 100。"),
    ],
)
def test_its_release_answers(old_home: Path, question: str, words: str) -> None:
    found = rag(old_home, "query", question)
    assert words in found["answer_markdown"]
    assert found["release_id"] == "20261123T051039-e155d1"
    assert found["effective_mode"] == "hybrid"


def test_its_release_is_proved(old_home: Path) -> None:
    proved = rag(old_home, "verify", "--all")
    assert (proved["checked"], proved["failures"]) == (2, [])


def test_its_ledger_and_cache_carry_a_rebuild(old_home: Path) -> None:
    """Both documents are cut anew, since cutting has changed; no vector is, since no text has."""
    assert rag(old_home, "docs", "list")["total"] == 2
    done = rag(old_home, "rebuild")
    assert (done["continued"], done["failed"], done["embeddings_computed"]) == (2, 0, 0)
    found = rag(old_home, "query", "What is the maximum upload size?")
    assert "The maximum upload size is 50 MB." in found["answer_markdown"]
    assert found["release_id"] != "20261123T051039-e155d1"
