"""The ledger: one transaction a method, and a live version that only `complete` moves."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from rag_platform.errors import InputError, NotFoundError, SchemaVersionError
from rag_platform.ir import Document, JobItem, Release, Source, Version
from rag_platform.ledger import Ledger

DOCUMENT = Document("lib", "guide-1", "docs", "docs/guide.md", "guide.md", tags=("a", "b"), metadata={"team": "core"}, origin="/x/guide.md")
FIRST = Version("lib.guide-1@aaa", "lib", "guide-1", "docs/guide.md", "guide.md", "a" * 64, 10, "text/markdown", "markdown", "tiny")
SECOND = replace(FIRST, version_id="lib.guide-1@bbb", file_sha256="b" * 64)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger.sqlite")


def test_a_received_version_is_not_live_until_it_is_complete(ledger: Ledger) -> None:
    ledger.receive([(DOCUMENT, FIRST)])
    assert ledger.live("lib") == []
    ledger.complete(FIRST.version_id, title="Guide", counts={"chunks": 3})
    [(document, version)] = ledger.live("lib")
    assert (document.title, document.live_version, version.status, version.counts) == ("Guide", FIRST.version_id, "ready", {"chunks": 3})


def test_a_failed_new_version_leaves_the_previous_one_live(ledger: Ledger) -> None:
    ledger.receive([(DOCUMENT, FIRST)])
    ledger.complete(FIRST.version_id, title="Guide", counts={})
    ledger.receive([(DOCUMENT, SECOND)])
    ledger.fail(SECOND.version_id, "broken_file", "no pages")
    assert [version.version_id for _, version in ledger.live("lib")] == [FIRST.version_id]
    assert (ledger.version(SECOND.version_id).code, ledger.version(SECOND.version_id).reason) == ("broken_file", "no pages")


def test_records_come_back_as_they_went_in(ledger: Ledger) -> None:
    ledger.receive([(DOCUMENT, FIRST)])
    found = ledger.document("lib", "guide-1")
    assert (found.tags, found.metadata, found.pinned, found.origin) == (("a", "b"), {"team": "core"}, False, "/x/guide.md")
    ledger.put_source(Source("lib", "docs", "folder", "/x", include=("*.md",)))
    assert ledger.sources("lib")[0].include == ("*.md",)


def test_a_namespace_keeps_its_first_strategy(ledger: Ledger) -> None:
    ledger.bind_strategy("lib", "fast", "scfg_1")
    ledger.bind_strategy("lib", "fast", "scfg_2")
    with pytest.raises(InputError, match="rebuild --strategy default"):
        ledger.bind_strategy("lib", "default", "scfg_3")


def test_a_retired_document_is_not_live_and_a_pinned_one_stays(ledger: Ledger) -> None:
    pinned = replace(DOCUMENT, doc_id="pinned-2", source_uri="docs/pinned.md", pinned=True, live_version="lib.pinned-2@ccc")
    kept = replace(FIRST, version_id="lib.pinned-2@ccc", doc_id="pinned-2", file_sha256="c" * 64)
    ledger.receive([(DOCUMENT, FIRST), (pinned, kept)])
    ledger.complete(FIRST.version_id, title="Guide", counts={})
    ledger.retire("lib", ["guide-1", "pinned-2"])
    assert [document.doc_id for document, _ in ledger.live("lib")] == ["pinned-2"]
    assert ledger.document("lib", "guide-1").status == "retired"


def test_jobs_and_their_documents(ledger: Ledger) -> None:
    job = ledger.add_job("ingest", "lib", {"release": True}, [JobItem("docs/guide.md", "guide-1", FIRST.version_id, "new")])
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


def test_a_newer_ledger_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    Ledger(path).close()
    with sqlite3.connect(path) as db:
        db.execute("UPDATE meta SET value = '99' WHERE key = 'schema_version'")
    db.close()
    with pytest.raises(SchemaVersionError, match="99"):
        Ledger(path)
