"""The catalog gives back what was put in, filters by every whitelisted field, and is refused when
it is another program's.
"""

from __future__ import annotations

import dataclasses
import json
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

from rag_platform.errors import IntegrityError, NotFoundError, SchemaVersionError
from rag_platform.indexes.catalog import FILTERABLE, CatalogReader
from rag_platform.indexes.catalog_tables import CHANGES, CatalogWriter, ChangesWriter, Entry
from rag_platform.ir import Chunk, Document, MediaLink, MediaText, Section, Version
from rag_platform.query.filters import plan


def document(number: int, **changes: object) -> Document:
    base = Document(
        "default",
        f"doc-{number}",
        "handbook",
        f"handbook/{number}.md",
        f"{number}.md",
        title=f"Title {number}",
        tags=("ops", "指南"),
        metadata={"owner": "ann", "n": [1, 2]},
        live_version=f"default.doc-{number}@aaa",
        pinned=True,
        updated_at="2026-02-01",
    )
    return dataclasses.replace(base, **changes)  # type: ignore[arg-type]


def version(number: int) -> Version:
    return Version(
        f"default.doc-{number}@aaa",
        "default",
        f"doc-{number}",
        f"handbook/{number}.md",
        f"{number}.md",
        "a" * 64,
        10,
        "text/markdown",
        "markdown",
        "tiny",
        counts={"chunks": 3, "warnings": []},
        received_at="2026-01-01",
    )


def chunk(number: int, index: int, **changes: object) -> Chunk:
    text = f"text {index} of {number}"
    base = Chunk(
        f"chk-{number}-{index}",
        f"sec-{number}",
        f"doc-{number}",
        f"default.doc-{number}@aaa",
        index,
        text,
        "f" * 64,
        0,
        len(text),
        0,
        len(text),
        "Guide / Part",
        title="Part",
        lang="zh" if index == 2 else "en",
        page_start=index + 1,
        page_end=index + 1,
        asset_ids=("pic",) if index == 0 else (),
        too_short=index == 1,
    )
    return dataclasses.replace(base, **changes)  # type: ignore[arg-type]


FULL = Entry(
    chunk(2, 2),
    "h22",
    "s",
    "failed_embed",
    ("key", "phrase"),
    0.5,
    "A title",
    "What it says.",
    ("tag",),
)
SECTIONS = [
    Section("sec-1", "Guide / Part", 2, 0, 0, 9, title="Part"),
    Section("sec-1b", "Guide", 1, 1, 9, 12),
]
LINK = MediaLink(
    "r1",
    "pic",
    "pics/a.png",
    mime="image/png",
    width=3,
    height=4,
    size=5,
    page=1,
    bbox=(1.0, 2.0, 3.5, 4.0),
    order=1,
)
MISSING = MediaLink("r2", "", "pics/b.png", order=2, reason="not found")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Documents 1 and 2 with three chunks each; the third chunk of document 2 has no vector, its
    second no text.
    """
    path = tmp_path / "catalog.sqlite"
    with CatalogWriter(path) as catalog:
        catalog.replace_documents([document(1), document(2, source="web", tags=())])
        for number in (1, 2):
            entries = [
                Entry(chunk(number, index), f"h{number}{index}", "s", "ready") for index in range(3)
            ]
            if number == 2:
                entries[1] = Entry(chunk(2, 1), "", "", "no_text")
                entries[2] = FULL
            catalog.add_version(
                version(number),
                SECTIONS if number == 1 else [],
                entries,
                [LINK, MISSING] if number == 1 else [],
            )
    return path


@pytest.fixture
def catalog(path: Path) -> CatalogReader:
    return CatalogReader(path)


def test_records_come_back_equal(catalog: CatalogReader) -> None:
    assert catalog.chunks(["chk-1-0", "gone"]) == {"chk-1-0": chunk(1, 0)}
    assert catalog.chunks_of_version("default.doc-2@aaa") == [chunk(2, 0), chunk(2, 1), chunk(2, 2)]
    assert catalog.entries_of_version("default.doc-2@aaa")[2] == FULL
    assert (catalog.document("doc-1"), catalog.document("gone")) == (document(1), None)
    assert (catalog.version("default.doc-1@aaa"), catalog.version("gone")) == (version(1), None)
    assert list(catalog.versions()) == ["default.doc-1@aaa", "default.doc-2@aaa"]
    assert catalog.sections("doc-1") == SECTIONS
    assert catalog.media("doc-1") == [LINK, MISSING]


def test_an_image_that_is_missing_is_not_counted(catalog: CatalogReader) -> None:
    assert (catalog.count_images(), catalog.count_images("2000")) == (1, 1)


def test_rows_join_document_and_version(catalog: CatalogReader) -> None:
    row = catalog.rows(["chk-1-2"])["chk-1-2"]
    assert row.chunk == chunk(1, 2)
    assert (row.doc_title, row.source, row.source_uri, row.filename) == (
        "Title 1",
        "handbook",
        "handbook/1.md",
        "1.md",
    )
    assert (row.tags, row.content_type, row.created_at, row.status) == (
        ("ops", "指南"),
        "text/markdown",
        "2026-01-01",
        "ready",
    )


def test_what_hits_show_is_that_of_whole_rows(catalog: CatalogReader) -> None:
    shown = catalog.hit_rows(["chk-1-2", "gone"])
    assert list(shown) == ["chk-1-2"]
    row, whole = shown["chk-1-2"], catalog.rows(["chk-1-2"])["chk-1-2"]
    assert row.doc_date == whole.created_at  # the document has no date of its own
    for name in set(row._fields) - {"doc_date"}:
        of = whole if hasattr(whole, name) else whole.chunk
        held = getattr(row, name)
        wanted = getattr(of, name)
        assert (tuple(json.loads(held)) if isinstance(wanted, tuple) else held) == wanted, name


def test_rows_of_more_ids_than_a_statement_takes(catalog: CatalogReader) -> None:
    assert set(catalog.rows([f"gone-{n}" for n in range(1200)] + ["chk-1-0"])) == {"chk-1-0"}


@pytest.mark.parametrize(
    ("where", "params", "expected"),
    [
        ("d.doc_id = ?", ["doc-1"], {"chk-1-0", "chk-1-1", "chk-1-2"}),
        ("c.lang = ? AND d.source = ?", ["zh", "web"], {"chk-2-2"}),
        (
            "EXISTS (SELECT 1 FROM json_each(d.tags) WHERE value = ?)",
            ["指南"],
            {"chk-1-0", "chk-1-1", "chk-1-2"},
        ),
        (
            "EXISTS (SELECT 1 FROM json_each(c.asset_ids) WHERE value = ?)",
            ["pic"],
            {"chk-1-0", "chk-2-0"},
        ),
        ("c.page_start >= ?", [3], {"chk-1-2", "chk-2-2"}),
        ("c.too_short", [], {"chk-1-1", "chk-2-1"}),
        ("v.mime = ?", ["application/pdf"], set()),
        ("d.title = ?", ["x' OR '1'='1"], set()),
    ],
)
def test_select_ids(
    catalog: CatalogReader, where: str, params: list[object], expected: set[str]
) -> None:
    assert catalog.select_ids(where, params) == expected


@pytest.mark.parametrize("name", sorted(FILTERABLE))
def test_every_filterable_field_can_be_asked(catalog: CatalogReader, name: str) -> None:
    field = FILTERABLE[name]
    sql = (
        f"EXISTS (SELECT 1 FROM json_each({field.sql}) WHERE value = ?)"
        if field.kind == "list"
        else f"{field.sql} = ?"
    )
    catalog.select_ids(sql, ["nothing"])


def test_documents_are_paged_and_filtered(catalog: CatalogReader) -> None:
    assert [d.doc_id for d in catalog.documents(limit=1)] == ["doc-1"]
    assert [d.doc_id for d in catalog.documents(after="doc-1")] == ["doc-2"]
    assert [d.doc_id for d in catalog.documents(tag="ops")] == ["doc-1"]


def test_neighbours(catalog: CatalogReader) -> None:
    assert [c.chunk_index for c in catalog.neighbours("chk-1-0", before=1, after=1)] == [0, 1]
    assert [c.chunk_index for c in catalog.neighbours("chk-1-1", before=1, after=5)] == [0, 1, 2]
    with pytest.raises(NotFoundError, match="gone"):
        catalog.neighbours("gone")


def test_counts(catalog: CatalogReader) -> None:
    expected = {"documents": 2, "versions": 2, "sections": 2, "chunks": 6, "asset": 1}
    assert catalog.counts() == expected | {
        "lexical": 5,
        "dense": 4,
        "failed_embed": 1,
        "no_text": 1,
    }
    assert catalog.chunk_counts() == {"default.doc-1@aaa": 3, "default.doc-2@aaa": 3}
    assert list(catalog.names()) == [
        ("doc-1", "handbook/1.md", "1.md", "Title 1", 3),
        ("doc-2", "handbook/2.md", "2.md", "Title 2", 3),
    ]
    assert set(catalog.unembedded()) == {"default.doc-2@aaa"}
    assert catalog.chunk_ids("in_dense") == ["chk-1-0", "chk-1-1", "chk-1-2", "chk-2-0"]


def test_dropping_a_version_leaves_nothing_of_it(path: Path) -> None:
    with CatalogWriter(path) as writer:
        writer.replace_documents([document(2)], ["default.doc-1@aaa"])
        writer.drop_versions(["default.doc-1@aaa"])
    catalog = CatalogReader(path)
    assert catalog.counts()["asset"] == 0 and list(catalog.chunk_counts()) == ["default.doc-2@aaa"]
    assert (catalog.sections("doc-1"), catalog.media("doc-1"), catalog.document("doc-1")) == (
        [],
        [],
        None,
    )
    assert sorted(item.name for item in path.parent.iterdir()) == ["catalog.sqlite"]


def test_an_error_while_writing_changes_nothing(path: Path) -> None:
    with (
        pytest.raises(IntegrityError, match="already in the catalog"),
        CatalogWriter(path) as writer,
    ):
        writer.replace_documents([])
        writer.add_version(
            dataclasses.replace(version(1), version_id="other"),
            [],
            [Entry(chunk(1, 0), "h", "s", "ready")],
            [],
        )
    assert CatalogReader(path).counts()["documents"] == 2


def test_chunks_of_the_shipped_size_fill_their_pages(tmp_path: Path) -> None:
    """Every release copies, flushes and hashes the whole file."""
    path, text, keys = tmp_path / "catalog.sqlite", "x" * 1600, ("k" * 24,) * 10
    with CatalogWriter(path) as writer:
        writer.replace_documents([document(1)])
        writer.add_version(
            version(1),
            [],
            [Entry(chunk(1, n, chunk_text=text), "h" * 64, "s", "ready", keys) for n in range(400)],
            [],
        )
    assert path.stat().st_size < 400 * 3_700  # pages of 4 kB: 4,434 for each
    db = sqlite3.connect(path)
    held = {
        row[0]
        for row in db.execute(
            "SELECT name FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL"
        )
    }
    db.close()
    assert {
        "chunks_id",
        "chunks_document",
        "chunks_version",
        "chunks_state",
        "versions_document",
        "sections_version",
    } <= held


def test_threads_read_at_once_and_close_ends_them_all(catalog: CatalogReader) -> None:
    found: list[int] = []
    threads = [
        threading.Thread(target=lambda: found.append(len(catalog.rows(["chk-1-0", "chk-2-0"]))))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [2] * 8
    catalog.close()
    with pytest.raises(sqlite3.ProgrammingError):
        catalog.counts()


def test_missing_newer_and_foreign_files_are_refused(path: Path, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        CatalogReader(tmp_path / "gone.sqlite")
    db = sqlite3.connect(path)
    db.execute("UPDATE meta SET value = '99'")
    db.commit()
    db.close()
    with pytest.raises(SchemaVersionError, match="schema 99"):
        CatalogReader(path)
    (tmp_path / "foreign.sqlite").write_bytes(
        b"not a database at all, but long enough to be looked at" * 30
    )
    with pytest.raises(SchemaVersionError, match="not a catalog"):
        CatalogReader(tmp_path / "foreign.sqlite")


def test_a_damaged_file_is_named_with_the_remedy(path: Path) -> None:
    data = path.read_bytes()
    whole = 3 * 16_384  # the pages of the schema and of its version
    path.write_bytes(data[:whole] + b"\xff" * (len(data) - whole))
    catalog = CatalogReader(path)
    with pytest.raises(
        IntegrityError, match=r"catalog\.sqlite cannot be read.*rag rebuild --full"
    ) as caught:
        catalog.chunk_ids()
    assert caught.value.code == "catalog_damaged" and str(path) in caught.value.message
    catalog.close()


# The tables as the first released schema had them.
SCHEMA_1 = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
INSERT INTO meta VALUES ('schema_version', '1');
CREATE TABLE documents ("namespace", "doc_id", "source", "source_uri", "filename", "title", "tags",
"categories", "metadata",
    "live_version", "pinned", "status", "origin", "created_at", "updated_at");
CREATE TABLE versions ("version_id", "namespace", "doc_id", "source_uri", "filename", "file_sha256",
"size", "mime", "loader", "strategy",
    "revision", "status", "code", "reason", "received_at", "completed_at", "counts");
CREATE TABLE sections ("section_id", "section_path", "heading_level", "ordinal", "norm_start",
"norm_end", "title", "h1_title", "h2_title",
    doc_id TEXT NOT NULL, version_id TEXT NOT NULL, position INTEGER NOT NULL);
CREATE TABLE chunks ("chunk_id", "section_id", "doc_id", "version_id", "chunk_index", "chunk_text",
"chunk_fingerprint", "norm_start",
    "norm_end", "fact_start", "fact_end", "section_path", "title", "h1_title", "h2_title",
    "token_count", "text_len", "too_short", "chunk_type", "parent_id", "lang", "media_type",
    "page_start", "page_end", "line_start", "line_end", "byte_start", "byte_end", "asset_ids",
    content_hash TEXT NOT NULL, sparse_hash TEXT NOT NULL, status TEXT NOT NULL,
    keyphrases TEXT NOT NULL DEFAULT '[]', quality_score REAL, in_lexical INTEGER NOT NULL,
    in_dense INTEGER NOT NULL);
CREATE TABLE asset_anchor ("ref_id", "asset_id", "origin_ref", "mime", "width", "height", "size",
"start", "end", "page", "bbox", "order",
    "heading_path", "reason", doc_id TEXT NOT NULL, version_id TEXT NOT NULL);
CREATE TABLE asset (asset_id TEXT PRIMARY KEY, mime TEXT, width INTEGER, height INTEGER,
size INTEGER);
CREATE INDEX chunks_version ON chunks(version_id, chunk_index);
CREATE INDEX chunks_state ON chunks(status, in_lexical, in_dense, chunk_id);
INSERT INTO documents VALUES ('n', 'd', 'src', 'src/a.md', 'a.md', 'A', '["ops"]', '[]', '{}',
'n.d@1', 0, 'active', '', '', '2026-02-01');
INSERT INTO versions VALUES ('n.d@1', 'n', 'd', 'src/a.md', 'a.md', '00', 1, 'text/markdown',
'markdown', 'tiny', 1, 'ready', '', '',
    '2026-01-01', '', '{"chunks": 2}');
INSERT INTO sections VALUES ('s', 'A', 1, 0, 0, 9, 'A', 'A', '', 'd', 'n.d@1', 0);
INSERT INTO chunks VALUES ('c2', 's', 'd', 'n.d@1', 1, 'two', 'f', 4, 7, 4, 7, 'A', 'A', 'A', '', 1,
3, 1, 'child', '', 'en', 'text', NULL,
    NULL, 2, 2, 4, 7, '["pic"]', 'h2', 's2', 'ready', '[]', NULL, 1, 1);
INSERT INTO chunks VALUES ('c1', 's', 'd', 'n.d@1', 0, 'one', 'f', 0, 3, 0, 3, 'A', 'A', 'A', '', 1,
3, 1, 'child', '', 'en', 'text', NULL,
    NULL, 1, 1, 0, 3, '[]', 'h1', 's1', 'ready', '[]', NULL, 1, 1);
INSERT INTO asset_anchor VALUES ('r', 'pic', 'a.png', 'image/png', 1, 1, 5, NULL, NULL, NULL, NULL,
0, '', '', 'd', 'n.d@1');
INSERT INTO asset VALUES ('pic', 'image/png', 1, 1, 5);
"""


def test_a_catalog_of_the_schema_before_still_answers(tmp_path: Path) -> None:
    path = tmp_path / "catalog.sqlite"
    db = sqlite3.connect(path)
    db.executescript(SCHEMA_1)
    db.close()
    before = path.read_bytes()
    catalog = CatalogReader(path)
    first, second = catalog.entries_of_version("n.d@1")
    assert (
        first.chunk.chunk_text,
        first.chunk.locator,
        first.keyphrases,
        first.view_title,
        first.view_tags,
    ) == ("one", "", (), "", ())
    assert second.chunk == catalog.chunks(["c2"])["c2"] == catalog.neighbours("c1")[1]
    assert catalog.rows(["c2"])["c2"].tags == ("ops",)
    assert catalog.hit_rows(["c2"])["c2"].tags == '["ops"]'
    assert catalog.indexed_ids() == ({"c1", "c2"}, {"c1", "c2"})
    assert (
        catalog.counts()["chunks"] == 2
        and catalog.media("d")[0].asset_id == "pic"
        and catalog.media_texts("n.d@1") == []
    )
    for field in FILTERABLE.values():
        catalog.select_ids(f"{field.sql} IS NULL OR 1")
    assert catalog.select_ids("c.view_title = '' AND c.locator = '' AND c.line_end = 2") == {"c2"}
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(len(catalog.chunks_of_version("n.d@1"))))
    thread.start()
    thread.join()
    assert found == [2]
    catalog.close()
    assert path.read_bytes() == before
    with pytest.raises(SchemaVersionError, match="schema 1"):
        CatalogWriter(path)


# --- a base and what differs from it ------------------------------------------------------------


def write_documents(writer: CatalogWriter, numbers: list[int], texts: dict[int, str]) -> None:
    """One version each, named by its text, with two chunks and a picture that even ones share."""
    for n in numbers:
        picture = dataclasses.replace(LINK, ref_id=f"ref-{n}", asset_id=f"pic-{n % 2}")
        writer.add_version(
            named(n, texts[n]),
            [Section(f"sec-{n}", "A", 1, 0, 0, 9, title="A")],
            [
                Entry(
                    chunk(
                        n,
                        place,
                        chunk_text=f"{texts[n]} {place}",
                        version_id=f"v{n}@{texts[n]}",
                        asset_ids=(f"pic-{n % 2}",),
                    ),
                    "h",
                    "s" if place else "",
                    "ready" if n != 3 else "failed_embed",
                )
                for place in range(2)
            ],
            [picture],
            [MediaText(f"pic-{n % 2}", caption=f"caption {texts[n]}")],
        )


def named(n: int, text: str) -> Version:
    return dataclasses.replace(version(n), version_id=f"v{n}@{text}")


def shown(n: int, text: str, tags: tuple[str, ...]) -> Document:
    return dataclasses.replace(document(n, tags=tags), live_version=f"v{n}@{text}")


def read_everything(path: Path) -> dict[str, object]:
    """What every method of a reader tells."""
    catalog = CatalogReader(path)
    ids = catalog.chunk_ids()
    versions = sorted(catalog.versions())
    found = {
        "chunks": catalog.chunks(ids),
        "rows": catalog.rows(ids),
        "hits": catalog.hit_rows(ids),
        "entries": {v: catalog.entries_of_version(v) for v in versions},
        "pages": {v: catalog.chunk_page(v, "", 1, 1) for v in versions},
        "sections": {v: catalog.section_counts(v) for v in versions},
        "neighbours": {i: catalog.neighbours(i) for i in ids},
        "tagged": catalog.select_ids("EXISTS (SELECT 1 FROM json_each(d.tags) WHERE value = 'x')"),
        "captions": catalog.select_ids(f"{FILTERABLE['image_caption'].sql} = 'caption b'"),
        "all": catalog.select_ids("c.chunk_index >= ?", [0]),
        "indexed": catalog.indexed_ids(),
        "documents": catalog.documents(),
        "page": catalog.documents(tag="x", after="doc-1", limit=2),
        "names": list(catalog.names()),
        "live": catalog.live_versions(),
        "languages": catalog.languages(),
        "versions": catalog.versions(),
        "ids": catalog.version_ids(),
        "failed": set(catalog.unembedded()),
        "own": {n: (catalog.sections(f"doc-{n}"), catalog.media(f"doc-{n}")) for n in range(7)},
        "shown": catalog.asset_documents(["pic-0", "pic-1"]),
        "texts": {v: catalog.media_texts(v) for v in versions},
        "counts": catalog.counts(),
        "since": [catalog.count_images(since) for since in ("", "2000", "2999")],
        "new": sorted(catalog.versions_since("2000")),
        "chunk_counts": catalog.chunk_counts(),
    }
    catalog.close()
    return found


def test_changes_beside_a_base_read_like_one_catalog(tmp_path: Path) -> None:
    """Edited, tagged, removed, new, put back and edited again: as if it had been written so."""
    grown, base = tmp_path / "grown", tmp_path / "grown" / "catalog.sqlite"
    grown.mkdir()
    texts = dict.fromkeys(range(1, 6), "a")
    tags: dict[int, tuple[str, ...]] = dict.fromkeys(range(1, 6), ("x",))

    def documents(numbers: list[int]) -> list[Document]:
        return [shown(n, texts[n], tags[n]) for n in numbers]

    with CatalogWriter(base) as writer:
        writer.replace_documents(documents([1, 2, 3, 4, 5]))
        write_documents(writer, [1, 2, 3, 4, 5], texts)
    before = base.read_bytes()
    # (removed, edited to a text, tagged)
    steps: list[tuple[list[int], dict[int, str], dict[int, tuple[str, ...]]]] = [
        ([], {1: "b"}, {4: ("y",)}),
        ([2], {1: "c", 6: "a"}, {}),
        ([6], {1: "a", 4: "b"}, {3: ()}),
        ([], {2: "b"}, {}),
        ([], {5: "a"}, {}),  # the same version once more
    ]
    for number, (removed, edited, tagged) in enumerate(steps):
        dropped = [f"v{n}@{texts.pop(n)}" for n in removed]
        dropped += [f"v{n}@{texts[n]}" for n in edited if n in texts]
        texts |= edited
        tags |= {**dict.fromkeys(edited, ("x",)), **tagged}
        with ChangesWriter(base) as writer:
            changed = writer.replace_documents(documents(sorted({*edited, *tagged, 5})), dropped)
            writer.drop_versions(dropped)
            write_documents(writer, list(edited), texts)
        assert changed == sorted(f"doc-{n}" for n in {*removed, *edited, *tagged} - {5})
        whole = tmp_path / f"whole{number}" / "catalog.sqlite"
        whole.parent.mkdir()
        with CatalogWriter(whole) as writer:
            writer.replace_documents(documents(sorted(texts)))
            write_documents(writer, sorted(texts), texts)
        wanted = read_everything(whole)
        assert read_everything(base) == wanted
        joined = tmp_path / f"joined{number}" / "catalog.sqlite"
        joined.parent.mkdir()
        joined.write_bytes(before)
        with CatalogWriter(joined, {"changes": base.with_name(CHANGES)}) as writer:
            writer.merge()
        assert read_everything(joined) == wanted
    assert base.read_bytes() == before
    with closing(CatalogReader(base)) as reader:
        assert reader.count_changes() == 2 * 5 + 2 * 5  # all came again


def test_a_chunk_of_the_base_cannot_come_again_in_the_changes(path: Path) -> None:
    with (
        pytest.raises(IntegrityError, match="chk-1-0 in the base"),
        ChangesWriter(path) as writer,
    ):
        writer.add_version(
            dataclasses.replace(version(1), version_id="other"),
            [],
            [Entry(dataclasses.replace(chunk(1, 0), version_id="other"), "h", "s", "ready")],
            [],
        )


def test_a_base_with_changes_of_the_schema_before_still_answers(tmp_path: Path) -> None:
    base = tmp_path / "catalog.sqlite"
    texts = {1: "a", 2: "a"}
    with CatalogWriter(base) as writer:
        writer.replace_documents([shown(1, "a", ()), shown(2, "a", ())])
        write_documents(writer, [1, 2], texts)
    with ChangesWriter(base) as writer:
        writer.replace_documents([shown(1, "b", ())], ["v1@a"])
        writer.drop_versions(["v1@a"])
        write_documents(writer, [1], {1: "b"})
    wanted, paths = read_everything(base), plan({"section_path": "Guide"})
    with closing(CatalogReader(base)) as catalog:
        held = catalog.select_ids(paths.where, paths.params)
        named = catalog.field_values(FILTERABLE["section_path"], (), 9)
    assert held and named
    for path in (base, base.with_name(CHANGES)):
        with closing(sqlite3.connect(path, isolation_level=None)) as db:
            db.execute("ALTER TABLE sections DROP COLUMN joined_to")
            db.execute("UPDATE meta SET value = '3' WHERE key = 'schema_version'")
    assert read_everything(base) == wanted
    with closing(CatalogReader(base)) as catalog:
        assert catalog.schema_version == 3
        assert catalog.select_ids(paths.where, paths.params) == held
        assert catalog.field_values(FILTERABLE["section_path"], (), 9) == named
