"""The difference of two releases: documents, chunks, and the hits of the questions that were
asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rag_platform.answering.engine import answer
from rag_platform.api.release_diff import compare
from rag_platform.errors import NotFoundError, ReleaseError
from rag_platform.ir import QueryRequest
from rag_platform.observability.trace_reader import list_questions
from rag_platform.releases.release_store import drop

pytestmark = pytest.mark.integration

GATE = "# Gate\n\nThe gate opens at five.\n"
DOCK = "# Dock\n\nThe dock holds twelve trucks.\n"
YARD = "# Yard\n\nThe yard holds crates.\n"


@pytest.fixture
def library(shelf: Any) -> Iterator[Any]:
    opened = shelf.library()
    yield opened
    opened.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "docs"
    made.mkdir()
    return made


def release(shelf: Any, folder: Path, **texts: str | None) -> str:
    """The release after these files were written, those with None removed."""
    for name, text in texts.items():
        path = folder / f"{name}.md"
        path.unlink() if text is None else path.write_text(text, encoding="utf-8")
    release_id: str = shelf.ingest(folder, sync=True)
    return release_id


def test_documents_chunks_and_ranks(shelf: Any, library: Any, folder: Path) -> None:
    first = release(
        shelf, folder, gate=GATE + "\n## Night\n\nThe guard opens it.\n", dock=DOCK, yard=YARD
    )
    # the third is the second, written otherwise
    for question in ("twelve trucks", "gate", "Gate ", "crates"):
        answer(library, QueryRequest(question, mode="sparse"))
    second = release(
        shelf,
        folder,
        gate=GATE.replace("five", "six") + "\n## Night\n\nThe guard opens it.\n",
        dock=None,
        quay="# Quay\n\nThe quay holds trucks and crates.\n",
    )
    found = compare(library, "default")
    assert [found["before"], found["after"]] == [first, second]
    assert (found["unchanged"], found["hidden"]) == (1, 0)
    versions = {v.source_uri: [] for v in shelf.ledger.versions("default")}
    for version in shelf.ledger.versions("default"):
        versions[version.source_uri].append(version.version_id)
    by_file = {change["source_uri"]: change for change in found["documents"]}
    assert {
        uri: (c["change"], c["chunks_added"], c["chunks_removed"], c["chunks_kept"])
        for uri, c in by_file.items()
    } == {
        "docs/gate.md": ("changed", 1, 1, 1),
        "docs/dock.md": ("removed", 0, 1, 0),
        "docs/quay.md": ("added", 1, 0, 0),
    }
    gate = by_file["docs/gate.md"]
    assert [gate["before"], gate["after"]] == versions["docs/gate.md"]
    assert found["chunks"] == {"added": 2, "removed": 2, "kept": 2}

    asked = {query["text"]: query for query in found["queries"]}
    assert list(asked) == ["crates", "Gate ", "twelve trucks"] and found["wordless"] == 0
    trucks = asked["twelve trucks"]
    places = [*trucks["entered"], *trucks["left"]]
    assert [(it["source_uri"], it["before"], it["after"]) for it in places] == [
        ("docs/quay.md", None, 1),
        ("docs/dock.md", 1, None),
    ]
    crates = asked["crates"]
    assert [it["source_uri"] for it in crates["entered"]] == ["docs/quay.md"] and not crates["left"]
    assert found["queries"][0]["same"] is False
    assert "1 added, 1 removed, 1 changed, 1 unchanged" in found["markdown"]
    assert (
        "+ 1. docs/quay.md Quay" in found["markdown"]
        and "docs/yard.md" not in found["markdown"].split("Questions")[0]
    )

    back = compare(library, "default", second, first, queries=0)
    assert back["chunks"] == {"added": 2, "removed": 2, "kept": 2} and back["queries"] == []
    same = compare(library, "default", second, second)
    assert not same["documents"] and same["unchanged"] == 3
    assert [query["same"] for query in same["queries"]] == [True] * 3


def test_releases_of_two_embedders_are_asked_in_their_own_space(
    shelf: Any, library: Any, folder: Path, config_folder: Path
) -> None:
    release(shelf, folder, gate=GATE, dock=DOCK)
    answer(library, QueryRequest("how many trucks", mode="dense"))
    path = config_folder / "strategies" / "tiny.yaml"
    text = path.read_text(encoding="utf-8")
    path.write_text(
        text.replace("provider: hashing", "provider: hashing\n  options: {dim: 64}"),
        encoding="utf-8",
    )
    with shelf.ledger.backend.write() as db:
        db.execute("UPDATE versions SET status = 'received'")
    release(shelf, folder)
    found = compare(library, "default")
    assert (found["unchanged"], found["chunks"]) == (2, {"added": 0, "removed": 0, "kept": 2})
    assert [query["problem"] for query in found["queries"]] == [""]


def test_deleted_documents_are_counted_and_not_named(
    shelf: Any, library: Any, folder: Path
) -> None:
    release(shelf, folder, gate=GATE, dock=DOCK)
    answer(library, QueryRequest("trucks", mode="sparse"))
    (document,) = [d for d in shelf.ledger.documents("default") if d.filename == "dock.md"]
    shelf.ledger.delete("default", document.doc_id, None, "soft")
    (folder / "dock.md").unlink()
    release(shelf, folder, gate=GATE.replace("five", "six"))
    found = compare(library, "default")
    assert found["hidden"] == 1
    assert [change["source_uri"] for change in found["documents"]] == ["docs/gate.md"]
    assert "dock" not in found["markdown"].lower() and found["queries"][0]["same"]


def test_what_cannot_be_compared(shelf: Any, library: Any, folder: Path) -> None:
    first = release(shelf, folder, gate=GATE)
    with pytest.raises(ReleaseError, match="no parent") as raised:
        compare(library, "default")
    assert raised.value.code == "no_parent"
    release(shelf, folder, gate=GATE.replace("five", "six"))
    drop(shelf.store.release_dir("default", first))  # as a hard deletion does
    with pytest.raises(ReleaseError, match=r"was dropped, by a hard deletion .* kept: \d") as gone:
        compare(library, "default")
    assert gone.value.code == "parent_dropped" and first not in gone.value.message
    first = release(shelf, folder, gate=GATE)
    with pytest.raises(NotFoundError):
        compare(library, "default", "20200101T000000-000000", first)
    answer(
        library,
        QueryRequest(
            "gate", filters={"version_id": next(iter(shelf.ledger.versions("default"))).version_id}
        ),
    )
    release(shelf, folder, gate=GATE.replace("five", "six"))
    (query,) = compare(library, "default")["queries"]
    assert "is not in release" in query["problem"] and not query["same"]


def test_questions_come_from_the_traces_of_the_namespace(
    shelf: Any, library: Any, folder: Path
) -> None:
    """Those put to a named release are replays and comparisons; words that were erased are not
    asked.
    """
    release_id = release(shelf, folder, gate=GATE)
    for number in range(4):
        answer(library, QueryRequest(f"gate {number}"))
    answer(library, QueryRequest("gate of old", release_id=release_id))
    questions, wordless = list_questions(shelf.store.logs_dir, "default", 3)
    assert ([question["text"] for question in questions], wordless) == (
        ["gate 3", "gate 2", "gate 1"],
        0,
    )
    assert list_questions(shelf.store.logs_dir, "other", 3) == ([], 0)
    for path in shelf.store.logs_dir.glob("*.jsonl"):
        path.write_bytes(path.read_bytes().replace(b'"text":"gate 2"', b'"text":"[deleted]"'))
    questions, wordless = list_questions(shelf.store.logs_dir, "default", 9)
    assert ([question["text"] for question in questions], wordless) == (
        ["gate 3", "gate 1", "gate 0"],
        1,
    )
