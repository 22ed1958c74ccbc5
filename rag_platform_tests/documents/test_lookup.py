"""Which document or version is meant by a part of its name."""

from __future__ import annotations

import pytest

from rag_platform.documents.lookup import find_document, find_version
from rag_platform.errors import InputError, NotFoundError
from rag_platform.ir import Document, Version
from rag_platform.ledger.ledger import Ledger

DOCUMENTS = {
    "docs-guide-aa11": "docs/guide.md",
    "old-guide-bb22": "docs/old/guide.md",
    "docs-ports-cc33": "docs/ports.md",
    "ports-of-call-dd44": "docs/ports of call.md",
    "ports-ee55": "ship/ports",
}


@pytest.fixture
def shelf_of_three(ledger: Ledger) -> Ledger:
    ledger.bind_strategy("lib", "tiny", "scfg_0")
    for doc_id, uri in DOCUMENTS.items():
        for mark in ("abcd", "abff"):
            sha256 = mark + doc_id[-4:] + "0" * 56
            version = Version(
                f"lib.{doc_id}@{sha256[:12]}",
                "lib",
                doc_id,
                uri,
                "x.md",
                sha256,
                1,
                "text/markdown",
                "markdown",
                "tiny",
                received_at="2026-11-22T00:00:00Z",
            )
            ledger.receive([(Document("lib", doc_id, "docs", uri, "x.md"), version)])
    return ledger


@pytest.mark.parametrize(
    ("name", "doc_id"),
    [
        ("docs-guide-aa11", "docs-guide-aa11"),
        ("docs-g", "docs-guide-aa11"),
        ("docs/old/guide.md", "old-guide-bb22"),
        ("old/guide.md", "old-guide-bb22"),
        ("ports.md", "docs-ports-cc33"),
        ("docs/ports", "docs-ports-cc33"),
        ("ports", "ports-ee55"),  # the only file of exactly that name
        ("ports of call", "ports-of-call-dd44"),
        ("ports-o", "ports-of-call-dd44"),
    ],
)
def test_a_document_by_id_place_or_a_part_of_either(
    shelf_of_three: Ledger, name: str, doc_id: str
) -> None:
    assert find_document(shelf_of_three, "lib", name).doc_id == doc_id


def test_what_may_be_two_documents_is_asked_back(shelf_of_three: Ledger) -> None:
    with pytest.raises(
        InputError,
        match=(
            r"'guide.md' may be any of 2 documents: docs-guide-aa11 \(docs/guide.md\),"
            r" old-guide-bb22"
        ),
    ):
        find_document(shelf_of_three, "lib", "guide.md")


@pytest.mark.parametrize("name", ["docs-port-cc33", "", "nothing like it"])
def test_an_unknown_document_is_not_guessed(shelf_of_three: Ledger, name: str) -> None:
    with pytest.raises(NotFoundError, match=f"no document {name!r} in library 'lib'"):
        find_document(shelf_of_three, "lib", name)


def test_near_names_are_offered(shelf_of_three: Ledger) -> None:
    with pytest.raises(NotFoundError, match="did you mean docs-ports-cc33"):
        find_document(shelf_of_three, "lib", "docs-port-cc33")


def test_a_version_by_id_by_its_hash_or_by_what_it_is(shelf_of_three: Ledger) -> None:
    document = shelf_of_three.document("lib", "docs-ports-cc33")
    versions = shelf_of_three.versions("lib", "docs-ports-cc33")
    assert [
        find_version(document, versions, name).file_sha256[:4]
        for name in (versions[0].version_id, "abcd", "abf", "wanted")
    ] == [
        "abcd",
        "abcd",
        "abff",
        "abff",
    ]
    with pytest.raises(InputError, match="may be any of 2 versions"):
        find_version(document, versions, "ab")
    with pytest.raises(
        NotFoundError,
        match="has no version 'live'; it has abffcc330000, abcdcc330000, newest first",
    ):
        find_version(document, versions, "live")
