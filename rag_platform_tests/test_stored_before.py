"""A data root that an older program wrote (November 22nd, 2026, strategy fast, two documents in
English and Chinese) is read, proved and rebuilt by this one.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rag_platform_tests.conftest import Desk, seated

pytestmark = pytest.mark.e2e

STORED = Path(__file__).with_name("stored") / "home_2026_11_22.tar.xz"
REPOSITORY = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """A desk over the unpacked data root and the shipped config; tests follow each other on it."""
    with unpacked(tmp_path_factory.mktemp("stored") / "desk") as desk:
        yield desk


@contextmanager
def unpacked(folder: Path) -> Iterator[Desk]:
    """A desk over its own copy of the data root."""
    with seated(folder) as desk, pytest.MonkeyPatch.context() as patch:
        (folder / "home").rmdir()
        with tarfile.open(STORED) as packed:
            packed.extractall(folder, filter="data")
        patch.setenv("RAG_CONFIG", str(REPOSITORY / "rag_platform" / "defaults"))
        yield desk


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ("What is the maximum upload size?", "The maximum upload size is 50 MB."),
        ("连接池的最大连接数是多少？", "连接池的最大连接数是 100。"),
    ],
)
def test_its_release_answers(old: Desk, question: str, words: str) -> None:
    found = old.call("query", question).data
    assert words in found["answer_markdown"]
    assert found["release_id"] == "20261123T051039-e155d1"
    assert found["effective_mode"] == "hybrid"


def test_its_release_is_proved(old: Desk) -> None:
    proved = old.call("verify", "--all").data
    assert (proved["checked"], proved["failures"]) == (2, [])


def test_the_status_tells_what_is_to_be_built_anew(old: Desk) -> None:
    """It tells so before anything is built, as the next ingest renews the whole library."""
    told = old.call("status").data
    assert [(row["documents"], row["stale"]) for row in told["namespaces"]] == [(2, 2)]
    assert "2 built by an earlier config or program; the next ingest, or" in told["markdown"]


def test_its_ledger_and_cache_carry_a_rebuild(old: Desk) -> None:
    """Both documents are cut anew, since cutting has changed; no vector is, since no text has."""
    assert old.call("docs", "list").data["total"] == 2
    done = old.call("rebuild").data
    assert old.call("status").data["namespaces"][0]["stale"] == 0
    assert (done["continued"], done["failed"], done["embeddings_computed"]) == (2, 0, 0)
    found = old.call("query", "What is the maximum upload size?").data
    assert "The maximum upload size is 50 MB." in found["answer_markdown"]
    assert found["release_id"] != "20261123T051039-e155d1"


def test_an_ingest_says_that_it_builds_the_rest_anew(tmp_path: Path) -> None:
    with unpacked(tmp_path / "desk") as desk:
        raw = next(path for path in (desk.folder / "home" / "raw").rglob("*") if path.is_file())
        raw.rename(raw.with_suffix(".away"))
        *_, hint = desk.call("verify", "--all").data["warnings"]
        assert hint.startswith("the release was built by an earlier program")
        raw.with_suffix(".away").rename(raw)
        desk.write(new="# New\n\nThe gate opens at seven.\n")
        said = subprocess.run(
            [sys.executable, "-m", "rag_platform.cli.main", "ingest", str(desk.docs / "new.md")],
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        ).stderr
        assert "also builds anew what an earlier config or program built: 2 documents" in said
