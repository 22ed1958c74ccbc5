"""A deletion acts at once on every reader, whatever was open before and whatever is published
after.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rag_platform.answering.engine import answer
from rag_platform.api.documents import get_document, list_documents
from rag_platform.api.passages import get_chunk
from rag_platform.errors import BusyError, InputError, NotFoundError, ReleaseError
from rag_platform.ir import QueryRequest
from rag_platform.processes import jobs
from rag_platform.releases import release_store as releases
from rag_platform.releases.deletion import plan_delete, start_delete
from rag_platform.releases.publishing import (
    build_candidate,
    pin_release,
    publish_candidate,
    roll_back,
)
from rag_platform.releases.stored_artifacts import read_record

GATE = "# Gate\n\nThe north gate opens at 05:30 for trucks.\n"
DOCK = "# Dock\n\nThe south dock holds 12 trucks.\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "docs"
    made.mkdir()
    (made / "gate.md").write_text(GATE, encoding="utf-8")
    (made / "dock.md").write_text(DOCK, encoding="utf-8")
    return made


def found(library: Any, mode: str, **more: Any) -> set[str]:
    """Names of the files that a question about trucks finds."""
    return {
        hit.filename
        for hit in answer(library, QueryRequest("How many trucks?", mode=mode, **more)).hits
    }


def release(shelf: Any) -> str:
    manifest, checks = build_candidate("default", shelf.workspace())
    assert all(check.passed for check in checks), checks
    publish_candidate("default", manifest.release_id, shelf.root)
    return str(manifest.release_id)


def test_the_job_starts_although_what_else_belongs_to_it_cannot_be_dropped(
    shelf: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf.ingest(folder)
    old = next(it for it in shelf.ledger.documents("default") if it.filename == "gate.md")
    shelf.ledger.retire("default", [old.doc_id])
    (folder / "gate.md").rename(folder / "door.md")
    shelf.ingest(folder)
    launched = []

    def launch(job: Any, settings: Any, store: Any) -> jobs.Started:
        launched.append(job.kind)
        return jobs.Started(job, None)

    monkeypatch.setattr(jobs, "launch", launch)

    def refuse(source_uri: str) -> None:
        raise BusyError(f"{source_uri} is being changed")

    with pytest.raises(BusyError, match="is being changed"):
        start_delete(plan_delete("default", "door.md", shelf.root), shelf.root, refuse)
    assert launched == ["delete", "delete"]
    assert {it.status for it in shelf.ledger.documents("default")} == {"active", "deleted"}


def test_a_server_that_was_running_hides_it_from_its_next_query(
    shelf: Any, folder: Path, delete: Any
) -> None:
    first = shelf.ingest(folder)
    server = shelf.library()
    gate = next(
        hit
        for hit in answer(server, QueryRequest("gate", mode="sparse")).hits
        if hit.filename == "gate.md"
    )
    assert all(
        found(server, mode) == {"gate.md", "dock.md"} for mode in ("dense", "sparse", "hybrid")
    )
    assert "05:30" in get_chunk(server, gate.chunk_id)["markdown"] and get_document(
        server, "default", gate.doc_id
    )

    started = delete("gate.md")
    stores = (
        "versions",
        "releases",
        "catalog",
        "lexical",
        "vectors",
        "raw",
        "chunks",
        "embeddings",
    )
    assert started.job.args["affected"] == {**dict.fromkeys(stores, 1), "media": 0}
    assert all(found(server, mode) == {"dock.md"} for mode in ("dense", "sparse", "hybrid"))
    assert found(server, "hybrid", filters={"doc_id": gate.doc_id}) == set()
    with pytest.raises(NotFoundError, match="was deleted on 20") as refused:
        get_document(server, "default", gate.doc_id)
    assert refused.value.code == "document_deleted"
    with pytest.raises(NotFoundError, match="no chunk"):
        get_chunk(server, gate.chunk_id)
    listed = [
        row["filename"]
        for row in list_documents(server, "default", group_by=None)["groups"][0]["documents"]
    ]
    everything = list_documents(server, "default", group_by=None, include_deleted=True)["groups"][
        0
    ]["documents"]
    assert (
        listed == ["dock.md"]
        and {row["filename"]: row["status"] for row in everything}["gate.md"] == "deleted"
    )

    second = release(shelf)
    assert releases.current(shelf.store, "default") == second != first
    assert all(found(server, mode) == {"dock.md"} for mode in ("dense", "sparse", "hybrid"))
    with pytest.raises(NotFoundError, match="was deleted on 20"):
        get_document(server, "default", gate.doc_id)
    roll_back("default", first, shelf.root)
    assert all(found(server, mode) == {"dock.md"} for mode in ("dense", "sparse", "hybrid"))
    server.close()


def test_adding_it_again_lifts_it_for_later_releases_alone(
    shelf: Any, folder: Path, delete: Any
) -> None:
    first = shelf.ingest(folder)
    delete("gate.md")
    release(shelf)
    shelf.ingest(folder)  # a scan of the folder does not bring it back
    library = shelf.library()
    assert found(library, "sparse") == {"dock.md"}
    shelf.ingest(folder / "gate.md")  # naming it does
    assert found(library, "sparse") == {"gate.md", "dock.md"}
    roll_back("default", first, shelf.root)
    assert found(library, "sparse") == {"dock.md"}
    library.close()


def test_one_version(shelf: Any, folder: Path, delete: Any) -> None:
    first = shelf.ingest(folder)
    (folder / "gate.md").write_text(GATE.replace("05:30", "06:45"), encoding="utf-8")
    shelf.ingest(folder)
    document = next(d for d in shelf.ledger.documents("default") if d.filename == "gate.md")
    old, new = (version.version_id for version in shelf.ledger.versions("default", document.doc_id))
    library = shelf.library()

    started = delete("gate.md", old)  # not the live one: only a rollback would have shown it
    assert started.job.args["version_ids"] == [old]
    assert found(library, "sparse") == {"gate.md", "dock.md"}
    roll_back("default", first, shelf.root)
    assert found(library, "sparse") == {"dock.md"}
    roll_back("default", shelf.ledger.releases("default")[0].release_id, shelf.root)
    assert found(library, "sparse") == {"gate.md", "dock.md"}

    assert delete("gate.md", "live").job.args["was_live"]
    assert found(library, "sparse") == {"dock.md"}
    held = shelf.ledger.document("default", document.doc_id)
    assert (held.live_version, held.status, started.document.live_version) == (None, "retired", new)
    release(shelf)
    assert found(library, "sparse") == {"dock.md"}
    library.close()


def test_a_library_without_documents_answers_nothing(shelf: Any, folder: Path, delete: Any) -> None:
    shelf.ingest(folder)
    delete("gate.md")
    delete("dock.md")
    release(shelf)
    library = shelf.library()
    assert all(found(library, mode) == set() for mode in ("dense", "sparse", "hybrid"))
    assert list_documents(library, "default")["total"] == 0
    shelf.ingest(folder / "gate.md")
    assert all(found(library, mode) == {"gate.md"} for mode in ("dense", "sparse", "hybrid"))
    library.close()


def test_what_cannot_be_deleted(shelf: Any, folder: Path, delete: Any) -> None:
    first = shelf.ingest(folder)
    with pytest.raises(NotFoundError, match=r"no document 'gates\.md'"):
        delete("gates.md")
    with pytest.raises(NotFoundError, match="has no version 'ffff'"):
        delete("gate.md", "ffff")
    with pytest.raises(InputError, match="unknown mode 'gone'"):
        delete("gate.md", mode="gone")
    pin_release("default", first, True, shelf.root)
    with pytest.raises(ReleaseError, match=f"pinned releases hold it: {first}") as refused:
        delete("gate.md", mode="hard")
    assert refused.value.code == "pinned_releases" and not shelf.ledger.tombstones("default")

    delete("gate.md")  # softly: the pinned release stays and hides it
    with pytest.raises(InputError, match=r"was deleted on 20.*--mode hard") as twice:
        delete("gate.md")
    assert twice.value.code == "already_deleted"
    hard = delete("gate.md", mode="hard", force=True)
    assert [stone.mode for stone in shelf.ledger.tombstones("default")] == ["soft", "hard"]
    again = delete("gate.md", mode="hard", force=True)  # one that was interrupted is taken up again
    assert again.tombstone == hard.tombstone and again.job.job_id != hard.job.job_id
    with pytest.raises(InputError, match="it is purged"):
        delete("gate.md")


def test_copies_of_the_ledger_are_named_before_they_go(shelf: Any, folder: Path) -> None:
    shelf.ingest(folder)
    shelf.store.ledger_path.with_name("ledger-monday.sqlite").write_bytes(b"copy")
    soft, hard = (
        plan_delete("default", "gate.md", shelf.root, mode=mode).data()["markdown"]
        for mode in ("soft", "hard")
    )
    assert "ledger-monday.sqlite" in hard and "ledger-monday.sqlite" not in soft


def test_the_record_of_a_deletion_holds_no_word(shelf: Any, folder: Path, delete: Any) -> None:
    shelf.ingest(folder)
    started = delete("gate.md", mode="hard")
    text = shelf.store.deletion_path("default", started.tombstone.sequence).read_text(
        encoding="utf-8"
    )
    assert "trucks" not in text and "opens" not in text
    record = read_record(shelf.store, "default", started.tombstone.sequence)
    (version,) = shelf.ledger.versions("default", started.document.doc_id)
    assert (
        record
        and record.belongings.file_sha256s == {version.file_sha256}
        and len(record.belongings.chunk_ids) == 1
    )
    args = started.job.args
    assert args["full"] and args["release"] and args["version_ids"] == [version.version_id]
