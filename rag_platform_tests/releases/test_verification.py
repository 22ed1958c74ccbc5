"""What a citation shows is proved: whatever is forged in a catalog, `verify_release` finds it, and
nothing else.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pymupdf
import pytest
from PIL import Image

from rag_platform.config.ingestion import MediaConfig
from rag_platform.config.strategies import load_strategy
from rag_platform.indexes.catalog_tables import TABLES, column_names
from rag_platform.indexes.dense_files import read_matrix
from rag_platform.ingestion.batches import ingest_versions
from rag_platform.ingestion.rebuild_plan import estimate_embedding
from rag_platform.intake.receiving import ReceiveOptions, receive
from rag_platform.ir import Block, Chunk, Edit
from rag_platform.media.store import keep
from rag_platform.releases.proofs.verification import verify_release
from rag_platform.storage.records import REINGEST_REMEDY
from rag_platform.storage.store import LEDGER, read_records, sha256_file, write_records
from rag_platform.workspace import Workspace

Shelf = Any  # the fixture's class lives in conftest

GATES = (
    "# Gates\n\nThe north gate opens at five.\n\n## Docks\n\nThe south dock holds twelve trucks.\n"
)
ROADS = "# Roads\n\nThe ring road is closed at night.\n"


@pytest.fixture
def published(shelf: Shelf, tmp_path: Path) -> Path:
    """The folder of a release of two Markdown files and a PDF of one page."""
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "gates.md").write_text(GATES, encoding="utf-8")
    (docs / "roads.md").write_text(ROADS, encoding="utf-8")
    file = pymupdf.open()
    page = file.new_page()
    page.insert_text((72, 90), "Pump PX-40", fontsize=22)
    page.insert_textbox(
        (72, 120, 500, 300),
        "The pump moves forty litres of water per minute. It must not run dry for longer than ten"
        " seconds.",
    )
    file.save(docs / "pump.pdf")
    return shelf.store.release_dir("default", shelf.ingest(docs))


def forge(directory: Path, *statements: str, name: str = "catalog.sqlite") -> None:
    """Change the catalog, and the hash that the manifest has of it."""
    with closing(sqlite3.connect(directory / name)) as db, db:
        for statement in statements:
            db.execute(statement)
    change_manifest(
        directory,
        lambda manifest: manifest["files"].update({name: sha256_file(directory / name)}),
    )


def change_manifest(
    directory: Path, change: Callable[[dict[str, Any]], Any], *, recorded: bool = True
) -> None:
    """Change the manifest, and the hash that the ledger has of it."""
    path = directory / "manifest.json"
    manifest = json.loads(path.read_text(encoding="utf-8"))
    change(manifest)
    path.write_text(json.dumps(manifest), encoding="utf-8")
    if recorded:
        with closing(sqlite3.connect(directory.parents[2] / LEDGER)) as db, db:
            db.execute(
                "UPDATE releases SET manifest_sha256 = ? WHERE release_id = ?",
                (sha256_file(path), directory.name),
            )


def codes(shelf: Shelf) -> list[str]:
    return [
        failure.reason.partition(":")[0]
        for failure in verify_release(shelf.store, "default").failures
    ]


def test_a_sound_release_is_proved_without_a_warning(published: Path, shelf: Shelf) -> None:
    result = verify_release(shelf.store, "default")
    assert (result.checked, result.failures, result.warnings) == (4, (), ())


DOCK = "WHERE section_path LIKE '%Docks'"


@pytest.mark.parametrize(
    ("statement", "code"),
    [
        (f"UPDATE chunks SET line_start = line_start + 7 {DOCK}", "column"),
        (f"UPDATE chunks SET line_end = line_end - 1 {DOCK}", "column"),
        ("UPDATE chunks SET page_start = 99 WHERE page_start = 1", "column"),
        (f"UPDATE chunks SET byte_end = byte_end + 1 {DOCK}", "column"),
        (f"UPDATE chunks SET section_path = 'Gates / Doors' {DOCK}", "column"),
        (f"UPDATE chunks SET title = 'Doors' {DOCK}", "column"),
        (f"UPDATE chunks SET chunk_text = 'The south dock holds trucks twelve.' {DOCK}", "column"),
        (
            (
                "UPDATE chunks SET doc_id = (SELECT doc_id FROM documents WHERE filename ="
                f" 'roads.md') {DOCK}"
            ),
            "column",
        ),
        (
            (
                "UPDATE chunks SET version_id = (SELECT version_id FROM versions WHERE filename ="
                f" 'roads.md') {DOCK}"
            ),
            "row_missing",
        ),
        (
            "UPDATE documents SET source_uri = 'files/other.md' WHERE filename = 'gates.md'",
            "identity",
        ),
        ("UPDATE documents SET filename = 'other.md' WHERE filename = 'gates.md'", "given"),
        ("UPDATE documents SET title = 'Other' WHERE filename = 'gates.md'", "given"),
        (
            "UPDATE versions SET source_uri = 'files/other.md' WHERE filename = 'gates.md'",
            "identity",
        ),
        (f"DELETE FROM chunks {DOCK}", "row_missing"),
        ("DELETE FROM documents WHERE filename = 'gates.md'", "rows"),
        ("DELETE FROM versions WHERE filename = 'gates.md'", "rows"),
        ("DELETE FROM sections WHERE title = 'Docks'", "row_missing"),
        ("UPDATE sections SET title = 'Doors' WHERE title = 'Docks'", "column"),
        (f"UPDATE chunks SET in_lexical = 0 {DOCK}", "column"),
    ],
)
def test_a_forged_catalog_is_found(
    published: Path, shelf: Shelf, statement: str, code: str
) -> None:
    forge(published, statement)
    assert code in codes(shelf)


@pytest.mark.parametrize(
    ("statement", "code"),
    [
        ("UPDATE chunks SET line_start = line_start + 7", "column"),
        ("UPDATE documents SET title = 'Other'", "given"),
        ("DELETE FROM chunks", "row_missing"),
        # shows the version before as well
        ("DELETE FROM gone", "rows"),
        ("INSERT INTO gone SELECT 'roads-md', 'another'", "rows"),
    ],
)
def test_forged_changes_beside_a_base_are_found(
    published: Path, shelf: Shelf, tmp_path: Path, statement: str, code: str
) -> None:
    """An edited document stands beside the base that both releases share."""
    (tmp_path / "docs" / "gates.md").write_text(GATES.replace("twelve", "ten"), encoding="utf-8")
    directory = shelf.store.release_dir("default", shelf.ingest(tmp_path / "docs"))
    assert (directory / "catalog.sqlite").samefile(published / "catalog.sqlite")
    assert codes(shelf) == []
    roads = next(
        document.doc_id
        for document in shelf.ledger.documents("default")
        if document.filename == "roads.md"
    )
    forge(directory, statement.replace("roads-md", roads), name="catalog-changes.sqlite")
    assert code in codes(shelf)


def test_a_whole_document_taken_from_the_catalog_is_missed(published: Path, shelf: Shelf) -> None:
    version = "(SELECT version_id FROM versions WHERE filename = 'roads.md')"
    forge(
        published,
        *(
            f"DELETE FROM {table} WHERE version_id = {version}"
            for table in ("chunks", "sections", "asset_anchor")
        ),
        "DELETE FROM documents WHERE filename = 'roads.md'",
        "DELETE FROM versions WHERE filename = 'roads.md'",
    )
    assert {"rows", "counts"} <= set(codes(shelf))


def test_a_changed_file_of_the_release_is_named(published: Path, shelf: Shelf) -> None:
    with closing(sqlite3.connect(published / "catalog.sqlite")) as db, db:
        db.execute("CREATE TABLE more (name TEXT)")
    (failure,) = verify_release(shelf.store, "default").failures
    assert failure.reason.startswith("file_changed: catalog.sqlite")


def test_changed_outputs_are_found(published: Path, shelf: Shelf) -> None:
    (path,) = shelf.store.area("versions").glob("default/roads-docs-*/*/views/*.parquet")
    path.write_bytes(path.read_bytes() + b"\n")
    assert "outputs_changed" in codes(shelf)
    path.unlink()
    assert {"outputs_changed", "outputs_unreadable"} <= set(codes(shelf))


def test_edits_and_headings_that_make_other_texts_and_sections_are_found(
    published: Path, shelf: Shelf
) -> None:
    change_manifest(published, lambda manifest: manifest.update(outputs={}, given={}))
    (path,) = shelf.store.area("versions").glob("default/gates-docs-*/*/edits/*.parquet")
    sound, edits = path.read_bytes(), read_records(path, Edit)
    write_records(path, Edit, [*edits, Edit(4, 5, "", "control")])
    assert codes(shelf) == ["edits_changed"] * 2
    path.write_bytes(sound)
    (path,) = [
        p
        for p in shelf.store.area("facts").rglob("blocks.parquet")
        if "Docks" in p.with_name("facts.md").read_text(encoding="utf-8")
    ]
    blocks = read_records(path, Block)
    write_records(
        path,
        Block,
        [replace(block, title="Doors") if block.title == "Docks" else block for block in blocks],
    )
    assert codes(shelf) == ["sections_changed"] * 2


SLUICE = "The sluice is opened by two people, who read the gauge aloud. " * 6
WEIR = (
    "# Weir\n\n"
    + "Otters swim below the weir. " * 13
    + f"\n\n{SLUICE}\n\n"
    + "Herons wait at the weir for fish. " * 11
    + f"\n\n{SLUICE}\n"
)
PLACE = (
    "norm_start norm_end fact_start fact_end byte_start byte_end line_start line_end locator"
).split()


def moved(chunks: list[Chunk]) -> list[Chunk]:
    """The first of two equal texts, shown where the second one stands."""
    first, second = (chunk for chunk in chunks if chunk.chunk_text.startswith("The sluice"))
    there = {name: getattr(second, name) for name in PLACE}
    return [replace(chunk, **there) if chunk is first else chunk for chunk in chunks]


def swapped(chunks: list[Chunk]) -> list[Chunk]:
    first, second, *rest = chunks
    return [replace(second, chunk_index=0), replace(first, chunk_index=1), *rest]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (moved, "chunk_order"),
        (swapped, "chunk_order"),
        (lambda chunks: [chunks[0], *chunks[2:]], "section_gap"),
    ],
    ids=["moved to an equal text", "in another order", "left out"],
)
def test_chunks_forged_alike_in_catalog_and_outputs_are_found(
    shelf: Shelf,
    tmp_path: Path,
    change: Callable[[list[Chunk]], list[Chunk]],
    code: str,
) -> None:
    (tmp_path / "weir.md").write_text(WEIR, encoding="utf-8")
    directory = shelf.store.release_dir("default", shelf.ingest(tmp_path / "weir.md"))
    (path,) = shelf.store.area("versions").glob("default/weir-*/*/chunks/*.parquet")
    chunks = read_records(path, Chunk)
    assert (len(chunks), codes(shelf)) == (4, [])
    forged = change(chunks)
    write_records(path, Chunk, forged)
    statements = [
        f"UPDATE chunks SET {name} = {value!r} WHERE chunk_id = '{chunk.chunk_id}'"
        for chunk in forged
        for name in ("chunk_index", *PLACE)
        if (value := getattr(chunk, name)) is not None
    ]
    ids = ", ".join(f"'{chunk.chunk_id}'" for chunk in forged)
    forge(directory, *statements, f"DELETE FROM chunks WHERE chunk_id NOT IN ({ids})")
    change_manifest(directory, lambda manifest: manifest.update(outputs={}, given={}))
    assert code in codes(shelf)


def test_a_block_shown_where_its_text_stands_again_is_found(shelf: Shelf, tmp_path: Path) -> None:
    (tmp_path / "weir.md").write_text(WEIR, encoding="utf-8")
    directory = shelf.store.release_dir("default", shelf.ingest(tmp_path / "weir.md"))
    (path,) = shelf.store.area("facts").rglob("blocks.parquet")
    blocks = read_records(path, Block)
    facts = path.with_name("facts.md").read_text(encoding="utf-8")
    first, second = (b for b in blocks if facts[b.start : b.end].startswith("The sluice"))
    there = {field: getattr(second, field) for field in ("byte_start", "byte_end", "locator")}
    forged = [replace(block, **there) if block is first else block for block in blocks]
    write_records(path, Block, forged)
    change_manifest(directory, lambda manifest: manifest.update(outputs={}, given={}))
    assert "block_order" in codes(shelf)


def test_an_older_release_is_proved_with_what_it_has(published: Path, shelf: Shelf) -> None:
    change_manifest(published, lambda manifest: manifest.update(outputs={}, given={}))
    result = verify_release(shelf.store, "default")
    assert result.failures == () and "before fingerprints were recorded" in result.warnings[0]
    forge(
        published,
        f"UPDATE chunks SET line_start = line_start + 7 {DOCK}",
        "UPDATE documents SET title = 'Other'",
    )
    assert set(codes(shelf)) == {"column", "ledger"}


@pytest.fixture
def pictured(shelf: Shelf, tmp_path: Path) -> list[Path]:
    """The folders of two pictures that a published Markdown file shows."""
    for name, colour in (("red", "red"), ("blue", "blue")):
        Image.new("RGB", (40, 30), colour).save(tmp_path / f"{name}.png")
    text = "# Lamps\n\nThe lamps hang above the gate.\n\n![red](red.png)\n\n![blue](blue.png)\n"
    (tmp_path / "lamps.md").write_text(text, encoding="utf-8")
    shelf.ingest(tmp_path / "lamps.md")
    assert codes(shelf) == []
    return sorted(shelf.store.area("media").glob("*"))


@pytest.mark.parametrize("name", ["original.png", "thumb.webp"])
def test_a_picture_that_shows_something_else_is_found(
    pictured: list[Path], shelf: Shelf, name: str
) -> None:
    first, second = pictured
    (first / name).write_bytes((second / name).read_bytes())
    (failure,) = verify_release(shelf.store, "default").failures
    assert failure.reason.startswith(f"picture_changed: {name} of image {first.name}")


def test_a_vector_changed_together_with_its_hash_is_found(published: Path, shelf: Shelf) -> None:
    name = "dense/vectors.npy"
    rows = np.load(published / name)
    rows[[0, 1]] = rows[[1, 0]]
    np.save(published / name, rows)
    change_manifest(
        published,
        lambda manifest: manifest["files"].update({name: sha256_file(published / name)}),
    )
    failures = verify_release(shelf.store, "default").failures
    ids, _ = read_matrix(published / "dense")
    assert [failure.chunk_id for failure in failures] == ids[:2]
    assert all(failure.reason.startswith("vector_changed: ") for failure in failures)
    shelf.store.embeddings_path.unlink()  # nothing is left to compare them with
    assert codes(shelf) == []


def test_a_picture_that_is_gone_is_found(pictured: list[Path], shelf: Shelf) -> None:
    for folder in pictured:
        (folder / "original.png").unlink()
    assert codes(shelf) == ["picture_missing"] * 2
    (pictured[0] / "meta.json").unlink()
    assert codes(shelf) == ["picture_missing"] * 2


@pytest.mark.parametrize("written", [b"", b'{"mime": "image/png"', b"[]", b"\xff\xfe"])
def test_damage_of_what_is_known_of_a_picture_is_told_and_mended(
    pictured: list[Path], shelf: Shelf, written: bytes
) -> None:
    meta = pictured[0] / "meta.json"
    before = meta.read_bytes()
    meta.write_bytes(written)
    (failure,) = verify_release(shelf.store, "default").failures
    assert failure.reason.startswith(
        f"damaged_file: media/{meta.parent.name}/meta.json is damaged ("
    )
    assert failure.reason.endswith(
        "; `rag ingest FILE --policy new_version` of its document stores it again"
    )
    keep((pictured[0] / "original.png").read_bytes(), shelf.store, MediaConfig())
    assert meta.read_bytes() == before and codes(shelf) == []


def test_a_picture_drawn_by_another_program_version_is_proved(
    pictured: list[Path], shelf: Shelf
) -> None:
    path = pictured[0] / "thumb.webp"
    before = path.read_bytes()
    with Image.open(path) as image:
        image.save(path, "WEBP", quality=60)
    assert path.read_bytes() != before and codes(shelf) == []


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda m: m["files"].pop("catalog.sqlite"), "file_unknown"),
        (lambda m: m["counts"].update(failed_embed=3), "counts"),
        (lambda m: m["counts"].clear(), "ledger"),
        (lambda m: m.update(created_at="2020-01-01T00:00:00+00:00"), "ledger"),
        (lambda m: m.update(parent="20200101T000000-abcdef"), "ledger"),
        (lambda m: m.update(strategy="other"), "ledger"),
        (lambda m: m["strategy_config"]["chunker"]["options"].update(chunk_size=7), "manifest"),
        (lambda m: m.update(deletions=7), "deletions"),
    ],
    ids="file counts no_counts time parent strategy config deletions".split(),
)
def test_a_forged_manifest_is_found(
    published: Path, shelf: Shelf, change: Callable[[dict[str, Any]], Any], code: str
) -> None:
    change_manifest(published, change)
    assert code in codes(shelf)


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m.update(checks=[]),
        lambda m: m.update(delta={}),
        lambda m: m.update(embedder=None),
        lambda m: m.update(evaluation_run="run_1"),
        lambda m: m["profiles"].update(embeddings="e_1"),
    ],
    ids="checks delta embedder evaluation profile".split(),
)
def test_a_manifest_changed_since_it_was_published_is_found(
    published: Path, shelf: Shelf, change: Callable[[dict[str, Any]], Any]
) -> None:
    change_manifest(published, change, recorded=False)
    assert codes(shelf) == ["ledger"]


def test_a_file_put_into_a_release_is_found(published: Path, shelf: Shelf) -> None:
    (published / "dense" / "more.npy").write_bytes(b"x")
    assert codes(shelf) == ["file_unknown"]


def test_a_release_under_another_name_is_found(published: Path, shelf: Shelf) -> None:
    other = published.with_name("20270101T000000-abcdef")
    published.rename(other)
    change_manifest(other, lambda manifest: manifest.update(release_id=other.name))
    shelf.store.current_path("default").write_text(other.name + "\n", encoding="utf-8")
    assert codes(shelf) == ["ledger"]


def test_a_deleted_document_that_a_release_claims_to_be_newer_than_is_found(
    published: Path, shelf: Shelf
) -> None:
    """Readers hide what was deleted after a release was built, so a release that claims to know of
    the deletion would show it again.
    """
    roads = next(it for it in shelf.ledger.documents("default") if it.filename == "roads.md")
    stone = shelf.ledger.delete("default", roads.doc_id, None, "soft")
    assert "deletions" not in codes(shelf)
    change_manifest(published, lambda manifest: manifest.update(deletions=stone.sequence))
    assert "deletions" in codes(shelf)


def test_a_live_version_that_was_lost_is_found(
    published: Path, shelf: Shelf, tmp_path: Path
) -> None:
    """By the release, or by the ledger."""

    def change(sql: str) -> None:
        with closing(sqlite3.connect(shelf.store.home / LEDGER)) as db, db:
            db.execute(sql)

    roads = next(it for it in shelf.ledger.documents("default") if it.filename == "roads.md")
    change(f"UPDATE documents SET live_version = NULL WHERE doc_id = '{roads.doc_id}'")
    (lost,) = verify_release(shelf.store, "default").failures
    assert (lost.version_id, lost.reason) == (
        roads.live_version,
        "ledger: no version of the document is live, the next release would be without it;"
        f" `rag docs live {roads.doc_id} {roads.live_version} --namespace default` puts it back",
    )
    change(f"UPDATE documents SET live_version = wanted_version WHERE doc_id = '{roads.doc_id}'")
    assert codes(shelf) == []
    (path := tmp_path / "late.md").write_text("# Late\n\nA later text.\n", encoding="utf-8")
    workspace = Workspace(
        settings=shelf.settings,
        strategy=load_strategy(shelf.settings, "tiny"),
        store=shelf.store,
        ledger=shelf.ledger,
    )
    taken = receive([path], "default", workspace, ReceiveOptions()).to_process
    ingest_versions([shelf.ledger.version(name) for name in taken], workspace)
    assert codes(shelf) == []  # it waits for the next release
    change("UPDATE releases SET sequence = (SELECT max(sequence) FROM touched)")
    (lost,) = verify_release(shelf.store, "default").failures
    assert lost.reason.startswith("rows: versions lacks of what is live default.late-")


def test_another_pointer_than_the_recorded_one_is_warned_of(
    published: Path, shelf: Shelf, tmp_path: Path
) -> None:
    (tmp_path / "docs" / "gates.md").write_text(GATES.replace("twelve", "ten"), encoding="utf-8")
    newest = shelf.ingest(tmp_path / "docs")
    assert verify_release(shelf.store, "default").warnings == ()
    shelf.store.current_path("default").write_text(published.name + "\n", encoding="utf-8")
    (warning,) = verify_release(shelf.store, "default").warnings
    assert published.name in warning and newest in warning


def test_damaged_outputs_are_made_anew_as_the_reason_says(
    published: Path, shelf: Shelf, tmp_path: Path
) -> None:
    (path,) = shelf.store.area("versions").glob("default/roads-docs-*/*/views/*.parquet")
    path.write_bytes(b"bad")
    reasons = [failure.reason for failure in verify_release(shelf.store, "default").failures]
    assert reasons and all(REINGEST_REMEDY in reason for reason in reasons)
    told = f"{path.relative_to(shelf.store.home)} is damaged ("
    assert any(f"unreadable: {told}" in reason for reason in reasons)
    workspace = Workspace(
        settings=shelf.settings,
        strategy=load_strategy(shelf.settings, "tiny"),
        store=shelf.store,
        ledger=shelf.ledger,
    )
    # what `rag ingest` says beforehand must not fail on what it mends
    document = next(it for it in shelf.ledger.documents("default") if it.filename == "roads.md")
    assert estimate_embedding([document.live_version or ""], workspace)
    options = ReceiveOptions(policy="new_version")
    taken = receive([tmp_path / "docs" / "roads.md"], "default", workspace, options)
    assert taken.forced
    ingest_versions(
        [shelf.ledger.version(name) for name in taken.to_process], workspace, forced=taken.forced
    )
    shelf.ingest(tmp_path / "docs")
    assert codes(shelf) == []


def test_every_column_of_the_catalog_is_compared(published: Path) -> None:
    with closing(sqlite3.connect(published / "catalog.sqlite")) as db:
        tables = [
            row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        ]
        held = {
            table: [row[1] for row in db.execute(f"PRAGMA table_info({table})")] for table in tables
        }
    assert held.pop("meta") == ["key", "value"]
    assert held == {table: column_names(table) for table in TABLES}
