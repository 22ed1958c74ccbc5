"""Names that are stored beside a catalog are those that are read from it, whatever came since."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from rag_platform.errors import IntegrityError
from rag_platform.indexes import dense_files, document_names
from rag_platform.indexes.catalog import CatalogReader
from rag_platform.indexes.catalog_tables import CATALOG, CatalogWriter, ChangesWriter, Entry
from rag_platform.indexes.document_names import NAMES, Names, write_names
from rag_platform.ir import Chunk, Document, Version

WORDS = {"boeing", "2022", "bestbuy", "buy", "state", "腾讯", "airbus", "plans", "nothing"}
FOLDERS = {"state": "Plans (old)/"}


def put(catalog: CatalogWriter, doc_id: str, filename: str, title: str, size: int) -> None:
    version_id, uri = f"default.{doc_id}@{filename}", f"notes/{FOLDERS.get(doc_id, '')}{filename}"
    catalog.replace_documents(
        [Document("default", doc_id, "notes", uri, filename, title, live_version=version_id)],
        [f"default.{doc_id}@BOEING_2022_10K.pdf"],
    )
    version = Version(
        version_id, "default", doc_id, uri, filename, "f" * 64, 1, "text/plain", "text", "tiny"
    )
    chunks = [
        Chunk(f"{doc_id}-{n}-{filename}", "s", doc_id, version_id, n, "x", "f", 0, 1, 0, 1, "S")
        for n in range(size)
    ]
    catalog.add_version(version, [], [Entry(chunk, "h", "s", "ready") for chunk in chunks], [])


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A base of four documents whose names are stored."""
    monkeypatch.setattr(document_names, "STORED", 4)
    path = tmp_path / CATALOG
    with CatalogWriter(path) as catalog:
        put(catalog, "b22", "BOEING_2022_10K.pdf", "0000012927-23-000007", 3)
        put(catalog, "buy", "Best Buy.pdf", "", 2)
        put(catalog, "state", "trends.pdf", "The state of packaging 2022", 1)
        put(catalog, "tx", "腾讯-年度报告.pdf", "", 1)
    write_names(path)
    return path


@pytest.fixture
def catalog(base: Path) -> Iterator[CatalogReader]:
    with closing(CatalogReader(base)) as opened:
        yield opened


def holding(names: Names) -> dict[str, tuple[set[str], set[str]]]:
    """Word to the documents in whose names it stands, and those where it stands as two."""
    names.read_chinese()
    return {
        word: (
            {doc_id for doc_id, _ in names.documents(plain).values()},
            {doc_id for doc_id, _ in names.documents(joined).values()},
        )
        for word, (plain, joined) in names.holders(WORDS).items()
    }


def test_stored_names_are_found_by_their_words(catalog: CatalogReader) -> None:
    names = Names(catalog.stored_names(), [])
    assert (names.count, names.chunks) == (4, 7)
    assert holding(names) == {
        "boeing": ({"b22"}, set()),
        "2022": ({"b22", "state"}, set()),
        "bestbuy": (set(), {"buy"}),
        "buy": ({"buy"}, set()),
        "state": ({"state"}, set()),
        "腾讯": ({"tx"}, set()),
        "plans": ({"state"}, set()),
    }
    assert names.documents([0, 2]) == {0: ("b22", 3), 2: ("state", 1)}


def test_the_first_line_of_a_text_is_no_name(tmp_path: Path) -> None:
    with CatalogWriter(tmp_path / CATALOG) as catalog:
        for doc_id, words in (("short", 20), ("long", 25)):
            put(catalog, doc_id, f"{doc_id}.txt", "sensors " * words + "state", 1)
    with closing(CatalogReader(tmp_path / CATALOG)) as catalog:
        assert holding(Names(None, catalog.names())) == {"state": ({"short"}, set())}


def test_the_site_and_folders_of_a_page_name_it_but_not_its_protocol() -> None:
    page = ("page", "https://www.example.com/guide/start.html?from=/", "start.html", "", 1)
    held = Names(None, [page]).holders({"https", "www", "example", "guide", "start"})
    assert set(held) == {"example", "guide", "start"}


def test_what_came_and_went_since_the_base_counts(base: Path) -> None:
    with ChangesWriter(base) as changes:
        put(changes, "b22", "Airbus 2022.pdf", "", 5)  # another name
        put(changes, "new", "Buy.md", "腾讯", 2)
        changes.replace_documents([], ["default.state@trends.pdf"])
    with closing(CatalogReader(base)) as catalog:
        stored = Names(catalog.stored_names(), catalog.names(changed=True))
        assert (stored.count, stored.chunks) == (4, 10)
        assert holding(stored) == {
            "airbus": ({"b22"}, set()),
            "2022": ({"b22"}, set()),
            "bestbuy": (set(), {"buy"}),
            "buy": ({"buy", "new"}, set()),
            "腾讯": ({"tx", "new"}, set()),
        }
        # as they are read without the file
        read = Names(None, catalog.names())
        assert holding(read) == holding(stored)
        assert (read.count, read.chunks) == (stored.count, stored.chunks)


def test_few_names_are_not_stored(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (base.parent / NAMES).unlink()
    monkeypatch.setattr(document_names, "STORED", 5)
    write_names(base)
    with closing(CatalogReader(base)) as catalog:
        assert catalog.stored_names() is None
        assert "boeing" in holding(Names(None, catalog.names()))


def test_names_of_another_program_are_not_read(base: Path) -> None:
    with closing(sqlite3.connect(base.parent / NAMES)) as db:
        db.execute("PRAGMA user_version=99")
    with closing(CatalogReader(base)) as catalog:
        assert catalog.stored_names() is None


def test_a_damaged_file_is_told(base: Path) -> None:
    (base.parent / NAMES).write_bytes(b"no database at all" * 100)
    with (
        closing(CatalogReader(base)) as catalog,
        pytest.raises(IntegrityError, match="rag rebuild --full"),
    ):
        catalog.stored_names()


def test_the_file_depends_on_the_names_alone(base: Path) -> None:
    before = (base.parent / NAMES).read_bytes()
    (base.parent / NAMES).unlink()
    write_names(base)
    assert (base.parent / NAMES).read_bytes() == before


@pytest.mark.integration
def test_releases_share_the_names_of_their_base(
    shelf: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(document_names, "STORED", 1)
    boeing, notes = tmp_path / "boeing.md", tmp_path / "notes.md"
    notes.write_text("# Notes\n\nOf nothing.\n", encoding="utf-8")

    def names_after(text: str) -> Path:
        boeing.write_text(text, encoding="utf-8")
        release = shelf.store.release_dir("default", shelf.ingest(boeing, notes))
        with closing(CatalogReader(release / CATALOG)) as catalog:
            names = Names(catalog.stored_names(), catalog.names(changed=True))
            assert (names.count, set(names.holders(WORDS))) == (2, expected)
        return Path(release / NAMES)

    expected = {"boeing"}
    first = names_after("# A report\n\nPlanes were sold.\n")
    expected = {"boeing", "airbus"}
    second = names_after("# A report of Airbus\n\nPlanes were sold.\n")
    assert second.samefile(first)
    monkeypatch.setattr(dense_files, "FRESH_ROWS", 0)  # the next release has a base of its own
    expected, before = {"boeing", "state"}, first.read_bytes()
    third = names_after("# A state report\n\nPlanes were sold.\n")
    assert not third.samefile(first) and first.read_bytes() == before
    with closing(CatalogReader(third.with_name(CATALOG))) as catalog:
        assert not catalog.gone()
