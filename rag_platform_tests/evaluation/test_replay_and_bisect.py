"""Questions asked again, and the release that changed an answer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rag_platform.answering.engine import answer
from rag_platform.errors import InputError, NotFoundError
from rag_platform.evaluation.expectations import expectation
from rag_platform.evaluation.monitoring.replaying import bisect, replay
from rag_platform.evaluation.results import ResultStore
from rag_platform.evaluation.runs import open_library
from rag_platform.ir import QueryRequest
from rag_platform.observability.trace_reader import show
from rag_platform.retrieval.library import Library
from rag_platform_tests.conftest import Shelf

QUESTION = "how often do signing keys rotate"


@pytest.fixture
def folder(shelf: Shelf, tmp_path: Path) -> Path:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "keys.md").write_text("# Keys\n\nSigning keys rotate every ninety days.\n", "utf-8")
    (docs / "ports.md").write_text("# Ports\n\nThe gateway listens on port 8080.\n", "utf-8")
    return docs


@pytest.fixture
def library(shelf: Shelf) -> Iterator[Library]:
    with open_library(shelf.settings, shelf.store) as made:
        yield made


def test_a_question_is_asked_again_on_its_release(
    shelf: Shelf, folder: Path, library: Library
) -> None:
    first = shelf.ingest(folder, sync=True)
    asked = answer(library, QueryRequest(QUESTION, top_k=5, filters={"filename": "keys.md"}))
    trace = show(shelf.store.logs_dir, asked.trace_id)
    (folder / "keys.md").write_text("# Keys\n\nSigning keys rotate every sixty days.\n", "utf-8")
    second = shelf.ingest(folder, sync=True)

    again = replay(library, trace)
    assert again.same and again.reasons == () and again.release_id == first
    now = replay(library, trace, release_id=second)
    assert not now.same
    assert now.reasons[0] == f"1 hit is not in release {second}"
    assert now.reasons[1].startswith("since then: 1 document changed, first default.keys-docs")
    with pytest.raises(NotFoundError):
        replay(library, trace, release_id="20200101T000000-abcdef")


def test_what_records_no_question_is_refused(shelf: Shelf, library: Library) -> None:
    with pytest.raises(InputError, match="records no question"):
        replay(library, {"trace_id": "trc_1", "trace_type": "ingestion", "attrs": {}})


def test_the_release_that_changed_an_answer_is_found(
    shelf: Shelf, folder: Path, library: Library, tmp_path: Path
) -> None:
    releases = []
    for number in range(8):
        (folder / "news.md").write_text(f"# News\n\nIssue {number} is out.\n", "utf-8")
        if number == 5:
            (folder / "keys.md").write_text("# Keys\n\nKeys never change.\n", "utf-8")
        releases.append(shelf.ingest(folder, sync=True))
    kept = [item for item in releases if shelf.store.release_dir("default", item).is_dir()]
    case = expectation(QUESTION, file="keys.md", text="every ninety days")
    store = ResultStore(tmp_path / "results")
    found = bisect(library, "default", kept, case, store)
    assert (found.met, found.reason) == (False, "the text is not there")
    assert found.release_id == releases[5] and found.before == releases[4]
    assert len(found.asked) <= 4
    assert len(found.suspects) == 1 and found.suspects[0].startswith(
        "document changed: default.keys-docs"
    )
    assert len(found.changes) == 1 and found.changes[0].startswith("2 documents changed")
    ports = expectation("which port?", file="ports.md")
    assert bisect(library, "default", kept, ports, store).before is None
    with pytest.raises(NotFoundError):
        bisect(library, "default", [], case, store)
    store.close()
