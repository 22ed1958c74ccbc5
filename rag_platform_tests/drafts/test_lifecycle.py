from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from rag_platform.answering.engine import answer
from rag_platform.api.documents import get_document
from rag_platform.api.query_data import citation_part, source_line
from rag_platform.config.profiles import edition_name
from rag_platform.config.settings import Strategy
from rag_platform.config.strategies import load_strategy
from rag_platform.drafts.lifecycle import Drafts, Opened, no_longer_live
from rag_platform.drafts.reports import list_data, preview_data, show_data
from rag_platform.errors import InputError, ReleaseError
from rag_platform.indexes.delta import load_version
from rag_platform.ingestion.batches import ingest_versions
from rag_platform.ingestion.request import IngestionTotals
from rag_platform.ir import QueryRequest, QueryResult
from rag_platform.releases.manifest import read_manifest
from rag_platform.releases.proofs.verification import verify_release
from rag_platform.releases.publishing import (
    build_candidate,
    is_behind_ledger,
    publish_candidate,
    roll_back,
)
from rag_platform.releases.release_store import current
from rag_platform.workspace import Workspace

GUIDE = """\
# Guide

The gateway listens on port 8080.

## Limits

Free users may ask sixty times a minute.

## Support

Write to the desk in the hall.
"""
REPOSITORY = Path(__file__).resolve().parents[2]


class Case:
    """A shelf with one document, and its drafts."""

    def __init__(self, shelf: Any, folder: Path, strategy: Strategy) -> None:
        self.shelf, self.path = shelf, folder / "guide.md"
        self.path.write_text(GUIDE, encoding="utf-8")
        shelf.ingest(self.path)
        (self.doc_id,) = [document.doc_id for document in shelf.ledger.documents("default")]
        self.drafts = Drafts(
            "default",
            Workspace(
                settings=shelf.settings, strategy=strategy, store=shelf.store, ledger=shelf.ledger
            ),
        )

    def chunk(self, words: str) -> str:
        """The id of the draft's chunk that holds these words."""
        pieces = self.drafts.open(self.doc_id).edited.pieces
        return next(piece.chunk.chunk_id for piece in pieces if words in piece.chunk.chunk_text)

    def add(self, op: str, words: str, **values: Any) -> Opened:
        """The draft after one more operation on the chunk that holds the words."""
        return self.drafts.add(self.doc_id, {"op": op, "chunk_id": self.chunk(words), **values})

    def publish(self, drafted: Any = None) -> IngestionTotals:
        """The totals of making the draft's edition (or that of these operations), which is released
        then.
        """
        opened = self.drafts.open(self.doc_id)
        operations = opened.edited.operations if drafted is None else drafted
        workspace = self.drafts.workspace
        totals = ingest_versions(
            [opened.version], workspace, drafted={opened.version.version_id: operations}
        )
        assert totals.failures == []
        manifest, checks = build_candidate("default", workspace)
        assert all(check.passed for check in checks), checks
        publish_candidate("default", manifest.release_id, workspace)
        return totals

    def ask(self, text: str) -> QueryResult:
        """What the engine answers from the published release."""
        library = self.shelf.library()
        try:
            return answer(library, QueryRequest(text, top_k=1))
        finally:
            library.close()

    def row(self) -> Any:
        """The document's draft in the ledger, None without one."""
        return next(iter(self.shelf.ledger.drafts("default", self.doc_id)), None)


@pytest.fixture
def case(shelf: Any, tmp_path: Path, tiny: Strategy) -> Case:
    """One ingested document."""
    return Case(shelf, tmp_path, tiny)


def test_an_edit_is_found_after_publishing_and_gone_after_a_rollback(case: Case) -> None:
    origin = case.chunk("sixty times")
    case.add(
        "edit_text",
        "sixty times",
        text="## Limits\n\nNobody may ask more than ninety times an hour.",
    )
    case.add("split_at", "port 8080", offset=9)
    assert "sixty" in case.ask("how many times").hits[0].chunk_text  # a draft changes nothing
    totals = case.publish()
    assert (totals.embeddings_computed, totals.embeddings_reused) == (3, 1)
    hit = case.ask("how many times").hits[0]
    assert "ninety times an hour" in hit.chunk_text and hit.edited_from == (origin,)
    version = case.shelf.ledger.live("default")[0][1]
    manifest = read_manifest(
        case.shelf.store.release_dir("default", current(case.shelf.store, "default") or "")
    )
    assert manifest.editions == {version.version_id: version.edition} and len(version.edition) == 12
    assert (manifest.delta["chunks_added"], manifest.delta["chunks_removed"]) == (3, 2)
    checked = verify_release(case.shelf.store, "default")
    assert (checked.checked, checked.edited, checked.failures) == (4, 1, ())
    assert "1 were edited by hand" in checked.data()["markdown"]
    details = next(check.details for check in manifest.checks if check.name == "provenance_proved")
    assert "1 of them edited by hand" in details
    roll_back("default", None, case.shelf.root)
    assert "sixty" in case.ask("how many times").hits[0].chunk_text
    assert verify_release(case.shelf.store, "default").failures == ()
    # going back was on purpose
    assert not is_behind_ledger(
        "default",
        case.shelf.root,
    )


def test_citations_and_documents_say_what_was_edited(case: Case) -> None:
    origin = case.chunk("sixty times")
    case.add("edit_text", "sixty times", text="Nobody may ask more than ninety times an hour.")
    case.publish()
    result = case.ask("How often may one ask?")
    assert citation_part(result.citations[0])["edited_from"] == [origin]
    assert source_line(result.citations[0], "zh").endswith(f"，人工编辑自 {origin}")
    data = get_document(case.shelf.library(), "default", case.doc_id, format="chunks")
    assert [chunk.get("edited_from") for chunk in data["document"]["chunks"]] == [
        None,
        [origin],
        None,
    ]
    assert f"edited from {origin}" in data["markdown"]


def test_a_changed_origin_fails_the_verification(case: Case) -> None:
    case.add("edit_text", "sixty times", text="Nobody may ask more.")
    case.publish()
    raw = case.shelf.store.raw_path(case.shelf.ledger.live("default")[0][1].file_sha256)
    raw.write_bytes(raw.read_bytes().replace(b"sixty", b"fifty"))
    assert {
        failure.reason.split(":")[0]
        for failure in verify_release(case.shelf.store, "default").failures
    } == {"raw_changed"}


def test_edits_that_the_ledger_records_otherwise_are_found(case: Case) -> None:
    case.add("edit_text", "sixty times", text="Nobody may ask more.")
    case.publish()
    assert verify_release(case.shelf.store, "default").failures == ()
    with closing(sqlite3.connect(case.shelf.store.ledger_path)) as db, db:
        db.execute("UPDATE editions SET operations = replace(operations, 'more', 'less')")
    (failure,) = verify_release(case.shelf.store, "default").failures
    assert failure.reason.startswith("ledger: the edits by hand are not those of edition ")
    with closing(sqlite3.connect(case.shelf.store.ledger_path)) as db, db:
        db.execute("DELETE FROM editions")
    (failure,) = verify_release(case.shelf.store, "default").failures
    assert failure.reason.startswith("ledger: version ") and "has no edition" in failure.reason


def test_an_edited_chunk_without_its_origin_is_not_proved(case: Case) -> None:
    case.add("edit_text", "sixty times", text="Nobody may ask more.")
    case.publish()
    opened = case.drafts.open(case.doc_id)
    opened.work.path("chunks").unlink()
    changed, failure = verify_release(case.shelf.store, "default").failures
    assert changed.reason.startswith("outputs_changed") and changed.chunk_id == ""
    assert failure.reason.startswith(
        "origin_missing: chunk " + case.row().operations[0]["chunk_id"]
    )


def test_disabled_chunks_are_not_released(case: Case) -> None:
    case.add("disable", "port 8080")
    case.publish()
    rows = load_version(
        case.shelf.store,
        case.shelf.ledger.live("default")[0][1],
        case.drafts.open(case.doc_id).work.profiles,
    )
    assert [chunk.chunk_index for chunk in rows.chunks] == [0, 1]
    assert "8080" not in str(case.ask("8080").hits)


def test_undo_and_discard(case: Case) -> None:
    case.add("edit_text", "sixty times", text="A.")
    case.add("disable", "port 8080")
    opened, operation = case.drafts.undo(case.doc_id)
    assert operation["op"] == "disable" and [o["op"] for o in opened.edited.operations] == [
        "edit_text"
    ]
    case.publish()
    assert (case.row().state, len(case.row().operations)) == ("published", 1)
    case.add("disable", "port 8080")
    assert case.row().state == "open"
    case.drafts.discard(case.doc_id)
    assert (case.row().state, len(case.row().operations)) == ("published", 1)
    case.publish(drafted=())
    assert case.row() is None and case.shelf.ledger.live("default")[0][1].edition == ""
    with pytest.raises(InputError, match="no operation to undo"):
        case.drafts.undo(case.doc_id)
    with pytest.raises(InputError, match="no draft"):
        case.drafts.discard(case.doc_id)


def test_a_preview_changes_nothing(case: Case) -> None:
    case.add("edit_text", "sixty times", text="A.")
    case.add("move_before", "the desk", target=case.chunk("port 8080"))
    case.add("disable", "port 8080")
    before = sorted(path for path in case.shelf.store.home.rglob("*") if path.is_file())
    data = preview_data(case.drafts.open(case.doc_id))
    assert (
        data["chunks"],
        data["chunks_added"],
        data["chunks_removed"],
        data["embeddings_to_compute"],
    ) == (2, 1, 2, 1)
    assert data["moved"] == [case.chunk("the desk")] and data["disabled"] == [
        case.chunk("port 8080")
    ]
    assert sorted(path for path in case.shelf.store.home.rglob("*") if path.is_file()) == before
    assert case.publish().embeddings_computed == 1
    shown = show_data(case.drafts.open(case.doc_id))
    assert shown["state"] == "published" and [chunk["disabled"] for chunk in shown["chunks"]] == [
        False,
        True,
        False,
    ]
    assert list_data(case.drafts)["drafts"][0]["outdated"] is False


def test_a_draft_whose_release_was_rejected_is_listed_as_such(case: Case) -> None:
    case.add("edit_text", "sixty times", text="A.")
    opened = case.drafts.open(case.doc_id)
    given = {opened.version.version_id: opened.edited.operations}
    ingest_versions([opened.version], case.drafts.workspace, drafted=given)

    def told() -> tuple[str, str]:
        listed = list_data(case.drafts)
        shown = show_data(case.drafts.open(case.doc_id))
        assert listed["drafts"][0]["state"] == shown["state"]
        return listed["markdown"].partition(": ")[2], shown["state"]

    assert told() == ("not yet published, 1 operation", "unreleased")
    case.publish()
    assert told() == ("published, 1 operation", "published")


def test_what_nobody_touched_keeps_its_vectors_and_postings(case: Case) -> None:
    untouched = case.chunk("the desk")
    case.add("edit_text", "sixty times", text="A.")
    case.publish()
    base, edition = (
        load_version(case.shelf.store, version, case.drafts.open(case.doc_id).work.profiles)
        for version in (
            case.drafts.open(case.doc_id).version,
            case.shelf.ledger.live("default")[0][1],
        )
    )
    assert base.views[untouched] == edition.views[untouched]
    assert not is_behind_ledger(
        "default",
        case.shelf.root,
    )


# --- newer versions and other configs -----------------------------------------------------------


def test_published_edits_go_along_with_a_newer_version(case: Case) -> None:
    case.add("edit_text", "sixty times", text="Nobody may ask more than ninety times.")
    case.add("edit_text", "the desk", text="Write to nobody.")
    case.publish()
    case.path.write_text(
        GUIDE.replace("the desk in the hall", "the desk in the yard").replace("8080", "9090"),
        encoding="utf-8",
    )
    case.shelf.ingest(case.path)
    rows = load_version(
        case.shelf.store,
        case.shelf.ledger.live("default")[0][1],
        case.drafts.open(case.doc_id).work.profiles,
    )
    assert [chunk.chunk_text.splitlines()[-1] for chunk in rows.chunks] == [
        "The gateway listens on port 9090.",
        "Nobody may ask more than ninety times.",
        "Write to the desk in the yard.",
    ]
    row = case.row()
    assert (row.state, row.version_id, len(row.operations)) == (
        "open",
        case.shelf.ledger.live("default")[0][1].version_id,
        1,
    )
    assert [(c["index"], c["code"], c["operation"]["text"]) for c in row.conflicts] == [
        (1, "unknown_chunk", "Write to nobody.")
    ]
    with pytest.raises(InputError, match="edits of") as caught:
        case.drafts.start_publish(case.doc_id)
    assert caught.value.details["conflicts"] == list(row.conflicts)
    # the old bytes come back, and with them what the edit was made of
    case.path.write_text(GUIDE, encoding="utf-8")
    case.shelf.ingest(case.path)
    assert (case.row().state, len(case.row().operations), case.row().conflicts) == (
        "published",
        2,
        (),
    )
    assert "nobody" in case.ask("whom to write to").hits[0].chunk_text


def test_an_open_draft_waits_for_its_rebase(case: Case) -> None:
    case.add("edit_text", "sixty times", text="Ninety.")
    case.add("disable", "the desk")
    case.path.write_text(GUIDE.replace("sixty", "seventy"), encoding="utf-8")
    case.shelf.ingest(case.path)
    assert case.shelf.ledger.live("default")[0][1].edition == ""
    assert list_data(case.drafts)["drafts"][0]["outdated"]
    with pytest.raises(InputError, match="rebase"):
        case.add("disable", "port 8080")
    opened = case.drafts.rebase(case.doc_id)
    assert not case.drafts.open(case.doc_id).outdated
    assert (
        [o["op"] for o in opened.edited.operations],
        [p.code for p in opened.edited.problems],
    ) == (["disable"], ["unknown_chunk"])
    assert "conflict: edit_text" in show_data(case.drafts.open(case.doc_id))["markdown"]
    case.drafts.rebase(case.doc_id, drop_conflicts=True)
    case.publish()
    assert (case.row().state, case.row().conflicts) == ("published", ())


def test_edits_follow_a_change_of_config(case: Case) -> None:
    case.add("edit_text", "sixty times", text="Ninety.")
    case.add("disable", "the desk")
    case.publish()
    first = case.shelf.ledger.live("default")[0][1].edition
    path = case.shelf.settings.strategies_dir / "tiny.yaml"
    kept = path.read_text(encoding="utf-8")
    path.write_text(
        kept.replace("max_section_level: 2", "max_section_level: 1").replace(
            "chunk_size: 400", "chunk_size: 60"
        ),
        encoding="utf-8",
    )

    def rebuilt() -> Any:
        strategy = load_strategy(case.shelf.settings, "tiny")
        workspace = Workspace(**vars(case.shelf.root), strategy=strategy)
        with pytest.raises(ReleaseError, match="rebuild"):
            Drafts("default", workspace).open(case.doc_id)
        totals = ingest_versions([case.shelf.ledger.live("default")[0][1]], workspace)
        return totals, case.shelf.ledger.live("default")[0][1].edition

    totals, second = rebuilt()
    assert second == "" and [c["code"] for c in case.row().conflicts] == [
        "unknown_chunk",
        "unknown_chunk",
    ]
    assert len(totals.warnings) == 1 and "the chunks of 2 of 2 edits by hand" in totals.warnings[0]
    path.write_text(kept, encoding="utf-8")
    totals, third = rebuilt()
    assert third == first and totals.embeddings_computed == 0 and case.row().state == "published"


def test_a_draft_that_cannot_be_embedded_leaves_what_is_published(case: Case) -> None:
    case.add("edit_text", "sixty times", text="Ninety.")
    opened = case.drafts.open(case.doc_id)
    shutil.rmtree(opened.work.path("views").parent)
    opened.work.path("views").parent.write_text("in the way")
    workspace = case.drafts.workspace
    drafted = {opened.version.version_id: opened.edited.operations}
    totals = ingest_versions([opened.version], workspace, drafted=drafted)
    assert len(totals.failures) == 1
    version = case.shelf.ledger.live("default")[0][1]
    assert (version.status, version.edition, case.row().state) == ("ready", "", "open")


def test_a_job_for_a_version_that_is_no_longer_live_says_so(case: Case) -> None:
    version = case.shelf.ledger.live("default")[0][1]
    job = case.shelf.ledger.add_job("draft", "default", {"version_ids": [version.version_id]})
    assert no_longer_live(job, case.shelf.ledger) == ""
    case.path.write_text(GUIDE + "\nMore.\n", encoding="utf-8")
    case.shelf.ingest(case.path)
    assert "is no longer live" in no_longer_live(job, case.shelf.ledger)


def test_two_drafts_at_once_wait_for_each_other(
    case: Case, elsewhere: Callable[[Any], Any]
) -> None:
    with (
        elsewhere(case.shelf.store.drafting("default")),
        pytest.raises(Exception, match="being changed"),
        case.shelf.store.drafting("default", wait=0.1),
    ):
        raise AssertionError("the lock was given twice")


def test_splits_and_merges_of_a_pdf_are_quotes(shelf: Any, tiny: Strategy) -> None:
    shelf.ingest(REPOSITORY / "rag_platform" / "samples" / "datasheet.pdf")
    document, version = shelf.ledger.live("default")[0]
    drafts = Drafts(
        "default",
        Workspace(settings=shelf.settings, strategy=tiny, store=shelf.store, ledger=shelf.ledger),
    )
    chunks = drafts.open(document.doc_id).base.chunks
    longest = max(chunks, key=lambda chunk: chunk.text_len)
    drafts.add(
        document.doc_id,
        {"op": "split_at", "chunk_id": longest.chunk_id, "offset": longest.text_len // 2},
    )
    opened = drafts.add(document.doc_id, {"op": "merge_with_next", "chunk_id": chunks[0].chunk_id})
    workspace = Workspace(**vars(shelf.root), strategy=tiny)
    ingest_versions([version], workspace, drafted={version.version_id: opened.edited.operations})
    _, checks = build_candidate("default", workspace)
    assert all(check.passed for check in checks), checks
    made = [
        c for c in opened.edited.chunks if c.chunk_id not in {chunk.chunk_id for chunk in chunks}
    ]
    assert len(made) >= 2 and all(chunk.page_start and not chunk.edited_from for chunk in made)


def test_a_document_that_comes_back_has_its_edits(case: Case) -> None:
    case.add("edit_text", "sixty times", text="Ninety.")
    case.publish()
    case.shelf.ledger.retire("default", [case.doc_id])
    case.path.write_text(GUIDE + "\nMore.\n", encoding="utf-8")
    case.shelf.ingest(case.path)
    version = case.shelf.ledger.live("default")[0][1]
    assert case.row().version_id == version.version_id and case.row().state == "published"
    assert case.ask("Ninety").hits[0].chunk_text == "Ninety."


def test_an_interrupted_publication_is_done_again(case: Case) -> None:
    case.add("edit_text", "sixty times", text="Ninety.")
    opened = case.drafts.open(case.doc_id)
    name = edition_name(opened.edited.operations, opened.work.profiles["chunks"])
    # killed right behind it
    case.shelf.ledger.put_edition(opened.version.version_id, name, opened.edited.operations)
    assert is_behind_ledger(
        "default",
        case.shelf.root,
    )
    assert not case.drafts.open(case.doc_id).changes
    case.publish()
    assert (case.row().state, case.ask("Ninety").hits[0].chunk_text) == ("published", "Ninety.")
