"""Pages of documents as the ledger selects them: tags of users and of files, states, words and
dates.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from rag_platform.ir import Document, Version
from rag_platform.ledger.document_list import DocumentFilter
from rag_platform.ledger.ledger import Ledger, open_url
from rag_platform.ledger.schema import JobItem, Source

PUBLISHED = {"default.a@1": 3, "default.b@1": 2}


def put(ledger: Ledger, name: str, *, tags: tuple[str, ...] = (), title: str = "") -> Version:
    """A document with one received version."""
    document = Document(
        namespace="default",
        doc_id=name,
        source="files",
        source_uri=f"files/{name}.md",
        filename=f"{name}.md",
        title=title,
        tags=tags,
        updated_at=f"2026-11-0{len(name)}T10:00:00Z",
    )
    version = Version(
        f"default.{name}@1", "default", name, document.source_uri, document.filename,
        "0" * 64, 1, "text/markdown", "markdown", "tiny",
    )  # fmt: skip
    ledger.receive([(document, replace(version, received_at="2026-11-01T00:00:00Z"))])
    return version


@pytest.fixture
def ledger(ledger_url: str) -> Iterator[Ledger]:
    """`a` and `b` are published, `ccc` failed, `dddd` waits, `eeeee` was deleted."""
    made = open_url(ledger_url)
    metadata = {"tags": ["Ärger", "x"], "categories": ["c"]}
    a = put(made, "a", tags=("x",), title="Große Fähren")
    made.complete(a.version_id, title="Große Fähren", counts={"metadata": metadata})
    made.complete(put(made, "b", tags=("a[]",)).version_id, title="B", counts={})
    made.fail(put(made, "ccc").version_id, "broken", "it is torn")
    put(made, "dddd", tags=("x",))
    put(made, "eeeee")
    made.delete("default", "eeeee", None, "soft")
    yield made
    made.close()


def names(ledger: Ledger, **wanted: object) -> list[str]:
    """doc_ids of one page, without groups."""
    page = ledger.document_page("default", DocumentFilter(**wanted), PUBLISHED)  # type: ignore[arg-type]
    return [place.document.doc_id for place in page.places]


def test_a_document_has_the_tags_of_its_user_and_of_its_file(ledger: Ledger) -> None:
    page = ledger.document_page("default", DocumentFilter(), PUBLISHED, group_by="tags")
    assert [(it.group, it.document.doc_id, it.count) for it in page.places] == [
        ("a[]", "b", 1),
        ("x", "a", 2),
        ("x", "dddd", 2),
        ("Ärger", "a", 1),
        ("", "ccc", 1),
    ]
    assert page.total == 4
    assert page.places[1].document.tags == ["x", "Ärger"]
    assert names(ledger, tags=("Ärger", "no such")) == ["a"]
    assert names(ledger, categories=("c",)) == ["a"]


def test_a_page_begins_behind_a_place_and_still_counts_all(ledger: Ledger) -> None:
    page = ledger.document_page(
        "default", DocumentFilter(), PUBLISHED, group_by="tags", after=("x", "files/a.md"), limit=1
    )
    assert [(it.group, it.document.doc_id, it.count) for it in page.places] == [("x", "dddd", 2)]
    assert page.total == 4
    last = ledger.document_page(
        "default", DocumentFilter(), PUBLISHED, after=("", "files/z"), limit=1
    )
    assert (last.total, last.places) == (4, [])


def test_states_follow_the_release_the_newest_version_and_deletions(ledger: Ledger) -> None:
    assert ledger.count_documents("default", PUBLISHED) == {
        "active": 2,
        "failed": 1,
        "pending": 1,
        "deleted": 1,
    }
    assert names(ledger, status=("failed",)) == ["ccc"]
    assert names(ledger, status=("deleted", "pending")) == ["dddd", "eeeee"]
    assert names(ledger, gone=True) == ["a", "b", "ccc", "dddd", "eeeee"]
    assert ledger.document_problems("default", PUBLISHED, 0) == (1, [])
    assert ledger.document_problems("default", PUBLISHED, 5) == (
        1,
        [("files/ccc.md", "[broken] it is torn", False)],
    )
    assert ledger.document_problems("default", PUBLISHED, 5, without="broken") == (0, [])
    assert ledger.document_problems("default", PUBLISHED, 5, without="broke")[0] == 1


def test_a_failed_newest_version_is_a_problem_of_a_live_document(ledger: Ledger) -> None:
    newer = replace(
        ledger.version("default.a@1"), version_id="default.a@2", received_at="2026-11-02T00:00:00Z"
    )
    ledger.receive([(ledger.document("default", "a"), newer)])
    ledger.fail("default.a@2", "broken", "it is torn")
    row = (
        ledger.document_page("default", DocumentFilter(words="fähren"), PUBLISHED)
        .places[0]
        .document
    )
    assert (row.status, row.version_id, row.problem) == (
        "active",
        "default.a@1",
        "[broken] it is torn",
    )
    assert [it[::2] for it in ledger.document_problems("default", PUBLISHED, 5)[1]] == [
        (row.source_uri, True),
        ("files/ccc.md", False),
    ]
    told = ledger.failed_updates("default", {"a", "b"})
    assert told == {ledger.document("default", "a").source_uri: "[broken] it is torn"}


def test_a_file_that_was_refused_is_a_problem_until_a_newer_look(ledger: Ledger) -> None:
    def ingest(*uris: str, **args: object) -> None:
        refused = [JobItem(uri, "", "", "refused", "failed", "bad_name", "odd") for uri in uris]
        ledger.add_job("ingest", "default", args, refused)

    def problems() -> list[str]:
        total, found = ledger.document_problems("default", PUBLISHED, 9)
        assert total == len(found)
        return [uri for uri, *_ in found if uri != "files/ccc.md"]

    ledger.put_source(Source("default", "docs", "folder", "/srv/docs"))
    ledger.put_source(Source("default", "more", "folder", "/srv/more"))
    ingest("docs/x", "docs/sub", "docs/sub/y", "late.md", "files/ccc.md", looked=["docs/"])
    assert problems() == ["docs/sub", "docs/sub/y", "docs/x", "late.md"]
    ingest("late.md", looked=[], retry_of="job_1")
    assert problems() == ["docs/sub", "docs/sub/y", "docs/x", "late.md"]
    ingest("more/z", looked=["more/"])
    assert problems() == ["docs/sub", "docs/sub/y", "docs/x", "more/z"]
    ingest(looked=["docs/sub/"])
    assert problems() == ["docs/x", "more/z"]
    ledger.add_job("ingest", "default", {}, [])
    ingest(looked=["docs/"])
    assert problems() == ["more/z"]


def test_words_and_dates_select(ledger: Ledger) -> None:
    assert names(ledger, words="GROSSE a.md") == ["a"]
    assert names(ledger, words="grosse b.md") == []
    assert names(ledger, since="2026-11-03", until="2026-11-04", status=("failed", "pending")) == [
        "ccc",
        "dddd",
    ]
    assert names(ledger, until="2026-11-03T10", status=("failed", "pending")) == ["ccc"]
