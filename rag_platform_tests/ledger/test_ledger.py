"""The ledger: one transaction a method, and a live version that only `complete` moves."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from rag_platform.errors import InputError, NotFoundError, SchemaVersionError
from rag_platform.ir import Document, Version
from rag_platform.ledger import tables
from rag_platform.ledger.backends import SqliteBackend
from rag_platform.ledger.ledger import Ledger, open_url
from rag_platform.ledger.schema import Draft, JobItem, Release, Source
from rag_platform.processes import launchers

DOCUMENT = Document(
    "lib",
    "guide-1",
    "docs",
    "docs/guide.md",
    "guide.md",
    tags=("a", "b"),
    metadata={"team": "core"},
    origin="/x/guide.md",
)
FIRST = Version(
    "lib.guide-1@aaa",
    "lib",
    "guide-1",
    "docs/guide.md",
    "guide.md",
    "a" * 64,
    10,
    "text/markdown",
    "markdown",
    "tiny",
)
SECOND = replace(FIRST, version_id="lib.guide-1@bbb", file_sha256="b" * 64)


@pytest.fixture
def ledger(ledger_url: str) -> Iterator[Ledger]:
    opened = open_url(ledger_url)
    yield opened
    opened.close()


def at(path: Path) -> Ledger:
    return open_url(f"sqlite:///{path}")


def test_a_received_version_is_not_live_until_it_is_complete(ledger: Ledger) -> None:
    ledger.receive([(DOCUMENT, FIRST)])
    assert ledger.live("lib") == []
    ledger.complete(FIRST.version_id, title="Guide", counts={"chunks": 3})
    [(document, version)] = ledger.live("lib")
    assert (document.title, document.live_version, version.status, version.counts) == (
        "Guide",
        FIRST.version_id,
        "ready",
        {"chunks": 3},
    )


def test_a_failed_new_version_leaves_the_previous_one_live(ledger: Ledger) -> None:
    ledger.receive([(DOCUMENT, FIRST)])
    ledger.complete(FIRST.version_id, title="Guide", counts={})
    ledger.receive([(DOCUMENT, SECOND)])
    ledger.fail(SECOND.version_id, "broken_file", "no pages")
    assert [version.version_id for _, version in ledger.live("lib")] == [FIRST.version_id]
    assert (ledger.version(SECOND.version_id).code, ledger.version(SECOND.version_id).reason) == (
        "broken_file",
        "no pages",
    )


def test_records_come_back_as_they_went_in(ledger: Ledger) -> None:
    ledger.receive([(DOCUMENT, FIRST)])
    found = ledger.document("lib", "guide-1")
    assert (found.tags, found.metadata, found.pinned, found.origin) == (
        ("a", "b"),
        {"team": "core"},
        False,
        "/x/guide.md",
    )
    ledger.put_source(Source("lib", "docs", "folder", "/x", include=("*.md",)))
    assert ledger.sources("lib")[0].include == ("*.md",)


def test_a_namespace_keeps_the_strategy_that_it_was_published_with(ledger: Ledger) -> None:
    ledger.bind_strategy("lib", "fast", "scfg_1")
    ledger.bind_strategy("lib", "fast", "scfg_2")
    ledger.put_release(
        Release(
            "lib",
            "r1",
            None,
            "published",
            "fast",
            "scfg_1",
            "2026-01-01T00:00:00Z",
            "2026-01-01T00:00:01Z",
        )
    )
    with pytest.raises(InputError, match="rebuild --strategy default"):
        ledger.bind_strategy("lib", "default", "scfg_3")


def test_a_first_ingest_that_was_cancelled_binds_nobody(ledger: Ledger) -> None:
    ledger.bind_strategy("lib", "fast", "scfg_1")
    job = ledger.add_job("ingest", "lib", {})
    with pytest.raises(InputError, match="not 'default'"):  # its job may still be working
        ledger.bind_strategy("lib", "default", "scfg_2")
    ledger.update_job(job.job_id, state="cancelled")
    ledger.bind_strategy("lib", "default", "scfg_2")
    assert ledger.namespaces() == {"lib": "default"}


def stored_files(ledger: Ledger, request: pytest.FixtureRequest) -> list[Path]:
    """The files in which a database keeps its tables."""
    if isinstance(ledger.backend, SqliteBackend):
        folder = ledger.backend.path.parent
    else:
        ledger.backend.db().execute("CHECKPOINT")
        folder = request.getfixturevalue("postgres").folder / "data" / "base"
    return [path for path in folder.rglob("*") if path.is_file()]


def holds(files: list[Path], word: str) -> bool:
    return any(word.encode() in path.read_bytes() for path in files)


def test_no_table_keeps_a_word_that_was_deleted(
    ledger: Ledger, request: pytest.FixtureRequest
) -> None:
    secret, version_id = "Zwiebelturm", FIRST.version_id
    ledger.receive(
        [(replace(DOCUMENT, title=secret, tags=(secret,), metadata={"title": secret}), FIRST)]
    )
    ledger.complete(version_id, title=secret, counts={"title": secret})
    operations = [{"op": "edit_text", "chunk_id": "chk_1", "text": secret}]
    ledger.put_draft(
        Draft("lib", "guide-1", version_id, ({"op": "edit_text", "text": f"{secret} taken back"},))
    )
    ledger.put_draft(Draft("lib", "guide-1", version_id, tuple(operations)))
    ledger.put_edition(version_id, "e1", operations)
    uri = DOCUMENT.source_uri
    args = {
        "version_ids": [version_id],
        "drafted": {version_id: operations, "other": [{"op": "disable"}]},
    }
    job = ledger.add_job(
        "draft", "lib", args, [JobItem(uri, "guide-1", version_id, "continue", reason=secret)]
    )
    ledger.update_job(
        job.job_id,
        result={"warnings": [f"{uri}: {secret}", "docs/other.md: fine"]},
        reason=f"{uri}: {secret} is odd",
        progress={"message": f"{uri}: {secret}"},
    )
    refused = ledger.add_job(
        "ingest",
        "lib",
        {"places": {uri: f"/x/{uri}"}, "options": {"tags": [secret], "metadata": {}}},
    )
    ledger.delete("lib", "guide-1", None, "hard")
    before = ledger.count_words("lib", "guide-1", [version_id], whole=True)
    assert before == {
        "versions": 1,
        "editions": 1,
        "drafts": 1,
        "job_items": 1,
        "documents": 1,
        "jobs": 2,
    }
    ledger.scrub("lib", "guide-1", [version_id], whole=True)
    for versions in ([version_id], []):  # without any, as of a deletion whose versions are gone
        assert set(ledger.count_words("lib", "guide-1", versions, whole=True).values()) == {0}
    assert holds(stored_files(ledger, request), secret)
    assert ledger.backend.compact()
    assert not holds(stored_files(ledger, request), secret)
    kept = ledger.job(job.job_id)
    assert kept.args == {"version_ids": [version_id], "drafted": {"other": [{"op": "disable"}]}}
    assert kept.result == {"warnings": ["docs/other.md: fine"]} and ledger.job(
        refused.job_id
    ).args == {"places": {}, "options": {}}


def test_a_retired_document_is_not_live_and_a_pinned_one_stays(ledger: Ledger) -> None:
    pinned = replace(
        DOCUMENT,
        doc_id="pinned-2",
        source_uri="docs/pinned.md",
        pinned=True,
        live_version="lib.pinned-2@ccc",
    )
    kept = replace(FIRST, version_id="lib.pinned-2@ccc", doc_id="pinned-2", file_sha256="c" * 64)
    ledger.receive([(DOCUMENT, FIRST), (pinned, kept)])
    ledger.complete(FIRST.version_id, title="Guide", counts={})
    ledger.retire("lib", ["guide-1", "pinned-2"])
    assert [document.doc_id for document, _ in ledger.live("lib")] == ["pinned-2"]
    assert ledger.document("lib", "guide-1").status == "retired"


def test_jobs_and_their_documents(ledger: Ledger) -> None:
    job = ledger.add_job(
        "ingest",
        "lib",
        {"release": True},
        [JobItem("docs/guide.md", "guide-1", FIRST.version_id, "new")],
    )
    ledger.update_job(job.job_id, state="running", progress={"done": 1})
    ledger.update_job_item(job.job_id, FIRST.version_id, "failed", "encrypted", "needs a password")
    found = ledger.job(job.job_id)
    assert (found.state, found.progress, found.args) == ("running", {"done": 1}, {"release": True})
    [item] = ledger.job_items(job.job_id)
    assert (item.state, item.code, item.reason) == ("failed", "encrypted", "needs a password")


def test_releases_newest_first(ledger: Ledger) -> None:
    for release_id, created in (("r1", "2026-01-01T00:00:00Z"), ("r2", "2026-01-02T00:00:00Z")):
        ledger.put_release(Release("lib", release_id, None, "candidate", "tiny", "scfg_1", created))
    assert [row.release_id for row in ledger.releases("lib")] == ["r2", "r1"]


def test_unknown_ids_are_named(ledger: Ledger) -> None:
    with pytest.raises(NotFoundError, match="no-such"):
        ledger.document("lib", "no-such")


def test_a_ledger_is_made_by_the_first_write(tmp_path: Path) -> None:
    path = tmp_path / "home" / "ledger.sqlite"
    reading, writing = at(path), at(path)
    assert reading.namespaces() == {} and not path.parent.exists()
    writing.bind_strategy("lib", "tiny", "scfg_1")
    assert reading.namespaces() == writing.namespaces() == {"lib": "tiny"}
    reading.bind_strategy("other", "tiny", "scfg_1")
    assert set(writing.namespaces()) == {"lib", "other"}


def test_a_newer_ledger_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    made = at(path)
    made.bind_strategy("lib", "tiny", "scfg_1")
    made.close()
    with sqlite3.connect(path) as db:
        db.execute("UPDATE meta SET value = '99' WHERE key = 'schema_version'")
    db.close()
    with pytest.raises(SchemaVersionError, match="99"):
        at(path)


def test_only_what_the_source_held_last_goes_live_by_itself(ledger: Ledger) -> None:
    ledger.receive([(DOCUMENT, FIRST)])
    ledger.receive([(DOCUMENT, SECOND)])
    ledger.complete(SECOND.version_id, title="Guide", counts={})
    # a backfill of what was received first and never processed
    ledger.complete(FIRST.version_id, title="Guide", counts={})
    assert [version.version_id for _, version in ledger.live("lib")] == [SECOND.version_id]
    ledger.receive([(DOCUMENT, FIRST)])  # the file is as it was before
    ledger.complete(FIRST.version_id, title="Guide", counts={})
    assert [version.version_id for _, version in ledger.live("lib")] == [FIRST.version_id]


def test_a_pinned_version_stays_until_it_is_let_go(ledger: Ledger) -> None:
    ledger.receive([(DOCUMENT, FIRST)])
    ledger.complete(FIRST.version_id, title="Guide", counts={})
    ledger.pin("lib", "guide-1", FIRST.version_id)
    ledger.receive([(DOCUMENT, SECOND)])
    ledger.complete(SECOND.version_id, title="Guide 2", counts={})
    found = ledger.document("lib", "guide-1")
    assert (found.live_version, found.wanted_version, found.pinned) == (
        FIRST.version_id,
        SECOND.version_id,
        True,
    )
    ledger.unpin("lib", "guide-1")
    assert ledger.document("lib", "guide-1").live_version == SECOND.version_id
    ledger.pin("lib", "guide-1", FIRST.version_id)
    ledger.retire("lib", ["guide-1"])
    assert ledger.document("lib", "guide-1").live_version == FIRST.version_id
    ledger.unpin("lib", "guide-1")
    assert (ledger.document("lib", "guide-1").status, ledger.live("lib")) == ("retired", [])


def test_a_deletion_hides_for_good_in_what_was_built_before_it(ledger: Ledger) -> None:
    ledger.receive([(DOCUMENT, FIRST)])
    ledger.complete(FIRST.version_id, title="Guide", counts={})
    built_before = ledger.deletion_sequence("lib")
    stone = ledger.delete("lib", "guide-1", None, "soft")
    assert (stone.doc_id, stone.version_id, stone.sequence) == ("guide-1", None, 1)
    assert ledger.live("lib") == [] and ledger.document("lib", "guide-1").status == "deleted"
    ledger.receive([(DOCUMENT, FIRST)])  # added again
    ledger.complete(FIRST.version_id, title="Guide", counts={})
    assert ledger.tombstones("lib") == [] and len(ledger.live("lib")) == 1
    assert [t.doc_id for t in ledger.tombstones("lib", since=built_before)] == ["guide-1"]
    assert ledger.tombstones("lib", since=ledger.deletion_sequence("lib")) == []


def test_a_deleted_version_takes_nothing_else_with_it(ledger: Ledger) -> None:
    for version in (FIRST, SECOND):
        ledger.receive([(DOCUMENT, version)])
        ledger.complete(version.version_id, title="Guide", counts={})
    ledger.delete("lib", "guide-1", FIRST.version_id, "hard")
    assert [version.version_id for _, version in ledger.live("lib")] == [SECOND.version_id]
    ledger.delete("lib", "guide-1", SECOND.version_id, "hard")
    assert ledger.live("lib") == [] and ledger.document("lib", "guide-1").status == "retired"


def test_a_version_that_fails_too_often_is_dead_until_it_is_revived(ledger: Ledger) -> None:
    ledger.receive([(DOCUMENT, FIRST)])
    for expected in ("failed", "failed", "dead"):
        ledger.fail(FIRST.version_id, "broken_file", "no pages", max_attempts=3)
        assert ledger.version(FIRST.version_id).status == expected
    ledger.revive([FIRST.version_id])
    assert (ledger.version(FIRST.version_id).status, ledger.version(FIRST.version_id).attempts) == (
        "received",
        0,
    )


def test_a_withdrawn_version_makes_way_for_the_one_before(ledger: Ledger) -> None:
    def withdraw(version: Version, back_to: str | None, title: str | None) -> bool:
        return ledger.withdraw(
            version.version_id, "not_proved", "why", profile="p1", back_to=back_to, title=title
        )

    for version, title in ((FIRST, "Guide"), (SECOND, "Garbled")):
        ledger.receive([(DOCUMENT, version)])
        ledger.complete(version.version_id, title=title, counts={"chunks": 3})
    assert not withdraw(FIRST, None, None)  # it is no longer live
    item = JobItem("docs/guide.md", "guide-1", SECOND.version_id, "new", "done")
    jobs = [ledger.add_job("ingest", "lib", {}, [item]) for _ in range(2)]
    ledger.update_job(jobs[0].job_id, state="done")
    assert withdraw(SECOND, FIRST.version_id, "Guide")
    [(document, live)] = ledger.live("lib")
    assert (document.title, live.version_id) == ("Guide", FIRST.version_id)
    found = ledger.version(SECOND.version_id)
    assert (found.status, found.code, found.attempts) == ("dead", "not_proved", 1)
    assert found.counts == {"chunks": 3, "failed_profile": "p1"}
    states = [item.state for job in jobs for item in ledger.job_items(job.job_id)]
    assert states == ["done", "dead"]
    assert withdraw(FIRST, None, None) and ledger.live("lib") == []
    ledger.complete(FIRST.version_id, title="Guide", counts={})
    ledger.complete(SECOND.version_id, title="Garbled", counts={})
    ledger.delete("lib", "guide-1", FIRST.version_id, "hard")
    assert withdraw(SECOND, FIRST.version_id, "Guide") and ledger.live("lib") == []
    ledger.complete(SECOND.version_id, title="Garbled", counts={})
    ledger.pin("lib", "guide-1", SECOND.version_id)
    assert not withdraw(SECOND, None, None)  # the user's choice


def test_drafts_and_editions(ledger: Ledger) -> None:
    ledger.receive([(DOCUMENT, FIRST)])
    ledger.put_draft(
        Draft("lib", "guide-1", FIRST.version_id, ({"op": "disable", "chunk_id": "c1"},))
    )
    [draft] = ledger.drafts("lib")
    assert draft.operations == ({"op": "disable", "chunk_id": "c1"},) and draft.created_at
    ledger.put_edition(FIRST.version_id, "e1", draft.operations)
    assert (
        ledger.version(FIRST.version_id).edition == "e1"
        and ledger.operations(FIRST.version_id, "e1") == draft.operations
    )
    ledger.drop_draft("lib", "guide-1")
    assert ledger.drafts("lib") == []


def test_a_ledger_of_schema_1_is_brought_up_to_date(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    db = sqlite3.connect(path)
    for statement in tables._SCHEMA.split(";"):
        db.execute(statement)
    db.execute("CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL)")
    db.execute("INSERT INTO meta VALUES ('schema_version', '1')")
    document = (
        "lib",
        "guide-1",
        "docs",
        "docs/guide.md",
        "guide.md",
        "Guide",
        "[]",
        "[]",
        "{}",
        "v1",
        0,
        "active",
        "",
        "t0",
        "t0",
    )
    db.execute(f"INSERT INTO documents VALUES ({','.join('?' * 15)})", document)
    for version_id, received in (("v1", "2026-01-01T00:00:00Z"), ("v2", "2026-01-02T00:00:00Z")):
        common = (
            "lib",
            "guide-1",
            "docs/guide.md",
            "guide.md",
            "a" * 64,
            1,
            "m",
            "markdown",
            "tiny",
            1,
            "ready",
            "",
            "",
        )
        row = (version_id, *common, received, "", "{}")
        db.execute(f"INSERT INTO versions VALUES ({','.join('?' * 17)})", row)
    db.commit()
    db.close()
    ledger = at(path)
    found = ledger.document("lib", "guide-1")
    assert (found.live_version, found.wanted_version) == ("v1", "v2")
    assert [(v.edition, v.attempts) for v in ledger.versions("lib")] == [("", 0), ("", 0)]
    ledger.close()
    at(path).close()


def test_a_ledger_of_schema_2_is_brought_up_to_date(tmp_path: Path) -> None:
    """A job that the earlier program wrote knows of no place: its process is looked for here."""
    path = tmp_path / "ledger.sqlite"
    db = sqlite3.connect(path)
    for statement in f"{tables._SCHEMA};{tables._CHANGES[2]}".split(";"):
        db.execute(statement)
    db.execute("CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL)")
    db.execute("INSERT INTO meta VALUES ('schema_version', '2')")
    row = (
        "job_1",
        "ingest",
        "lib",
        "running",
        "{}",
        "{}",
        "{}",
        "",
        4711,
        "",
        "2026-01-01T00:00:00Z",
        "2026-01-01T00:00:01Z",
        "",
    )
    db.execute(f"INSERT INTO jobs VALUES ({','.join('?' * len(row))})", row)
    db.commit()
    db.close()
    ledger = at(path)
    (job,) = ledger.jobs("lib")
    assert (job.pid, job.process, job.heartbeat_at) == (4711, {}, "") and launchers.is_here(
        job.process
    )
    ledger.update_job("job_1", process=launchers.identity(os.getpid()))
    assert ledger.job("job_1").process["host"] == launchers.here()["host"]
    ledger.close()
    at(path).close()


def test_every_change_of_a_document_or_its_versions_is_counted(ledger: Ledger) -> None:
    other = replace(DOCUMENT, doc_id="notes-2", source_uri="docs/notes.md")
    notes = replace(
        FIRST, version_id="lib.notes-2@ccc", doc_id="notes-2", source_uri="docs/notes.md"
    )
    assert (ledger.sequence("lib"), ledger.find_changed_documents("lib", 0)) == (0, set())
    ledger.receive([(DOCUMENT, FIRST), (other, notes)])
    for version in (FIRST, notes):
        ledger.complete(version.version_id, title="Guide", counts={"chunks": 3})
    assert ledger.find_changed_documents("lib", 0) == {"guide-1", "notes-2"}
    steps = [
        lambda: ledger.put_document(replace(ledger.document("lib", "notes-2"), tags=("new",))),
        lambda: ledger.put_edition(notes.version_id, "e1", ()),
        lambda: ledger.pin("lib", "notes-2", notes.version_id),
        lambda: ledger.unpin("lib", "notes-2"),
        lambda: ledger.receive([(other, notes)]),
        lambda: ledger.fail(notes.version_id, "broken", "why"),
        lambda: ledger.scrub("lib", "notes-2", [notes.version_id], whole=False),
        lambda: ledger.purge([notes.version_id]),
        lambda: ledger.retire("lib", ["notes-2"]),
        lambda: ledger.delete("lib", "notes-2", None, "soft"),
    ]
    for step in steps:
        before = ledger.sequence("lib")
        step()
        assert ledger.sequence("lib") > before
        assert ledger.find_changed_documents("lib", before) == {"notes-2"}
        assert ledger.changed_documents("lib", before) == [ledger.document("lib", "notes-2")]
        assert ledger.find_changed_documents("lib", ledger.sequence("lib")) == set()
    assert ledger.find_changed_documents("other", 0) == set()
    ledger.add_job("ingest", "lib", {})
    assert ledger.find_changed_documents("lib", ledger.sequence("lib")) == set()


def test_a_version_that_is_built_again_to_the_same_stays_as_it_is(ledger: Ledger) -> None:
    ledger.receive([(DOCUMENT, FIRST)])
    ledger.complete(FIRST.version_id, title="Guide", counts={"chunks": 3})
    before = ledger.version(FIRST.version_id), ledger.document("lib", DOCUMENT.doc_id)
    mark = ledger.sequence("lib")
    ledger.complete(FIRST.version_id, title="Guide", counts={"chunks": 3})
    after = ledger.version(FIRST.version_id), ledger.document("lib", DOCUMENT.doc_id)
    assert after == before and ledger.sequence("lib") == mark
    ledger.complete(FIRST.version_id, title="Guide", counts={"chunks": 4})
    assert ledger.find_changed_documents("lib", mark) == {DOCUMENT.doc_id}


def test_documents_that_wait_for_a_rebuild(ledger: Ledger) -> None:
    second = replace(FIRST, doc_id="other", version_id="other@1", source_uri="docs/other.md")
    also = replace(DOCUMENT, doc_id="other", source_uri="docs/other.md")
    ledger.receive([(DOCUMENT, FIRST), (also, second)])
    ledger.complete(FIRST.version_id, title="Guide", counts={"profile": "old"})
    ledger.complete("other@1", title="Guide", counts={"profile": "new"})
    found = [ledger.count_stale("lib", profile) for profile in ("old", "new", "newest")]
    assert found == [1, 1, 2]


def test_documents_that_wait_for_a_release(ledger: Ledger) -> None:
    published = {FIRST.version_id: ""}
    ledger.receive([(DOCUMENT, FIRST)])
    assert ledger.count_waiting("lib", {}) == 1
    ledger.complete(FIRST.version_id, title="Guide", counts={})
    assert ledger.count_waiting("lib", {}) == 1 and ledger.count_waiting("lib", published) == 0
    ledger.receive([(DOCUMENT, SECOND)])
    assert ledger.count_waiting("lib", published) == 1
    assert [version.version_id for version in ledger.find_wanted("lib", "received")] == [
        SECOND.version_id
    ]
    ledger.fail(SECOND.version_id, "broken", "why")
    assert (
        ledger.count_waiting("lib", published) == 0 and ledger.find_wanted("lib", "received") == []
    )
    ledger.complete(SECOND.version_id, title="Guide", counts={})  # a gate keeps it back
    assert ledger.count_waiting("lib", published) == 1
    ledger.delete("lib", DOCUMENT.doc_id, None, "soft")
    assert ledger.count_waiting("lib", published) == 0


def test_failed_versions_that_documents_should_show(ledger: Ledger) -> None:
    ledger.receive([(DOCUMENT, FIRST)])
    ledger.complete(FIRST.version_id, title="Guide", counts={})
    assert ledger.find_wanted("lib", "failed", "dead") == []
    ledger.receive([(DOCUMENT, SECOND)])
    assert ledger.find_wanted("lib", "failed", "dead") == []
    ledger.fail(SECOND.version_id, "broken", "why")
    assert [(v.version_id, v.code) for v in ledger.find_wanted("lib", "failed", "dead")] == [
        (SECOND.version_id, "broken")
    ]
    ledger.fail(FIRST.version_id, "broken", "why")  # not what it should show
    assert [v.version_id for v in ledger.find_wanted("lib", "failed", "dead")] == [
        SECOND.version_id
    ]
    ledger.retire("lib", ["guide-1"])
    assert ledger.find_wanted("lib", "failed", "dead") == []


def test_live_documents_can_be_asked_for_by_their_ids(ledger: Ledger) -> None:
    made = [
        (
            replace(DOCUMENT, doc_id=f"d-{n:04}", source_uri=f"docs/{n}.md"),
            replace(FIRST, version_id=f"lib.d-{n:04}@a", doc_id=f"d-{n:04}"),
        )
        for n in range(1_200)
    ]
    ledger.receive(made)
    for _, version in made[::2]:
        ledger.complete(version.version_id, title="Guide", counts={})
    names = [document.doc_id for document, _ in made]
    assert [d.doc_id for d, _ in ledger.live("lib", names)] == names[::2]
    assert [d.doc_id for d, _ in ledger.live("lib", ["d-0002", "d-0003", "x"])] == ["d-0002"]
    assert ledger.live("lib", []) == []


def test_no_more_jobs_are_read_than_are_asked_for(ledger: Ledger) -> None:
    made = [ledger.add_job("ingest", "lib", {}).job_id for _ in range(60)]
    assert [job.job_id for job in ledger.jobs("lib", 3)] == made[:-4:-1]
    assert len(ledger.jobs()) == 50
    if not isinstance(ledger.backend, SqliteBackend):
        return  # its driver tells no statements
    statements: list[str] = []
    ledger._db().set_trace_callback(statements.append)
    ledger.jobs("lib", 3)
    assert len(statements) == 1 and statements[0].endswith("LIMIT 3")
