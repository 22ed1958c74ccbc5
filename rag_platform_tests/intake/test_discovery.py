"""What counts as gone from a folder."""

from __future__ import annotations

from pathlib import Path

from rag_platform.intake.discovery import Finds, Found
from rag_platform.ir import Document
from rag_platform.ledger.schema import Source

DOCS = Source("lib", "docs", "folder", "/docs")


def found(name: str, ignored: str = "", arriving: bool = False) -> Found:
    return Found(Path(name), DOCS, f"docs/{name}", False, ignored, arriving=arriving)


def test_gone_is_what_was_looked_for_and_not_seen() -> None:
    """Not what lies elsewhere, in a folder that could not be read, or is still being written; but
    what a glob leaves out now.
    """
    files = [
        found("here.md"),
        found("half.md", "still written", arriving=True),
        found("out.md", "in exclude"),
    ]
    finds = Finds(
        {file.source_uri: file for file in files}, looked=["docs/"], unseen=["docs/locked/"]
    )
    uris = [
        "docs/here.md",
        "docs/half.md",
        "docs/out.md",
        "docs/gone.md",
        "docs/locked/a.md",
        "docs2/a.md",
        "files/a.md",
    ]
    documents = [Document("lib", uri, uri.split("/")[0], uri, uri) for uri in uris]
    assert [document.source_uri for document in finds.missing(documents)] == [
        "docs/out.md",
        "docs/gone.md",
    ]


def test_nothing_is_gone_where_nothing_was_looked_through() -> None:
    assert Finds().missing([Document("lib", "a", "docs", "docs/a.md", "a.md")]) == []
