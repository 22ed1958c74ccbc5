"""Word documents and sheets from receiving to the proof of their chunks."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import docx
import openpyxl
import pytest
from PIL import Image

from rag_platform.config.profiles import stage_profiles
from rag_platform.config.strategies import load_strategy
from rag_platform.documents.provenance import verify_version
from rag_platform.ir import Block, Chunk, Version
from rag_platform.storage.store import read_records, write_records

Shelf = Any  # the fixture's class lives in conftest


@pytest.fixture
def office(shelf: Shelf, config_folder: Path) -> Shelf:
    """A shelf with a strategy `office` that reads office documents."""
    tiny = (config_folder / "strategies" / "tiny.yaml").read_text(encoding="utf-8")
    loaders = "".join(f"    - provider: {name}\n" for name in ("docx", "xlsx", "csv"))
    # groups of rows are made for the shipped size
    first, rest = tiny.replace("chunk_size: 400", "chunk_size: 800").split("  loaders:\n")
    rest = "".join(
        line
        for line in rest.splitlines(keepends=True)
        if line.strip() not in {item.strip() for item in loaders.splitlines()}
    )
    (config_folder / "strategies" / "office.yaml").write_text(
        f"{first}  loaders:\n{loaders}{rest}", encoding="utf-8"
    )
    return shelf


def documents(folder: Path) -> Path:
    """A folder with a Word document, a workbook, a CSV file, and a copy of each under a false
    name.
    """
    folder.mkdir()
    Image.new("RGB", (4, 4), "red").save(folder / "p.png")
    made = docx.Document()
    made.add_heading("休假制度", 1)
    made.add_paragraph("员工每年有十五天带薪年假。")
    made.add_picture(str(folder / "p.png"))
    table = made.add_table(2, 2)
    for cell, text in zip(
        [cell for row in table.rows for cell in row.cells],
        ("tier", "rate", "pro", "600"),
        strict=True,
    ):
        cell.text = text
    made.save(str(folder / "leave.docx"))
    book = openpyxl.Workbook()
    book.active.title = "Q1"
    for line in (["city", "sales"], *(["Rome", n] for n in range(100))):
        book.active.append(line)
    book.save(folder / "sales.xlsx")
    (folder / "list.csv").write_text("city;sales\nRome;5\nBonn;6\n", encoding="utf-8")
    (folder / "p.png").unlink()
    shutil.copy(folder / "leave.docx", folder / "false.pdf")
    shutil.copy(folder / "sales.xlsx", folder / "false.zip")
    return folder


def proof(shelf: Shelf, version: Version) -> tuple[list[Chunk], list[str]]:
    """(chunks, reasons of those that are not proved)."""
    profiles = stage_profiles(load_strategy(shelf.settings, "office"))
    chunks = read_records(shelf.store.version_path(version, "chunks", profiles["chunks"]), Chunk)
    return chunks, [
        failure.reason for failure in verify_version(shelf.store, version, profiles, chunks)
    ]


@pytest.mark.integration
def test_office_documents_are_ingested_located_and_proved(office: Shelf, tmp_path: Path) -> None:
    office.ingest(documents(tmp_path / "docs"), strategy="office")
    found = {
        version.filename: (version, *proof(office, version))
        for version in office.ledger.versions("default")
    }
    assert {
        name: (version.loader, version.status, bad) for name, (version, _, bad) in found.items()
    } == {
        "leave.docx": ("docx", "ready", []),
        "false.pdf": ("docx", "ready", []),
        "sales.xlsx": ("xlsx", "ready", []),
        "false.zip": ("xlsx", "ready", []),
        "list.csv": ("csv", "ready", []),
    }
    (word,) = found["leave.docx"][1]
    assert (
        word.locator == "body/p[1] to body/tbl[1]/tr[2]"
        and len(word.asset_ids) == 1
        and "asset://" in word.chunk_text
    )
    sales = found["sales.xlsx"][1]
    assert all("| city | sales |" in chunk.chunk_text for chunk in sales)
    assert sales[0].locator.startswith("sheet=Q1;rows=2-") and sales[-1].locator.endswith("-101")
    (lines,) = found["list.csv"][1]
    assert (lines.line_start, lines.line_end, lines.locator) == (2, 3, "rows=2-3")


@pytest.mark.integration
def test_a_changed_locator_is_not_proved(office: Shelf, tmp_path: Path) -> None:
    office.ingest(documents(tmp_path / "docs") / "list.csv", strategy="office")
    (version,) = office.ledger.versions("default")
    folder = office.store.facts_dir(
        version, stage_profiles(load_strategy(office.settings, "office"))["facts"]
    )
    blocks = read_records(folder / "blocks.parquet", Block)
    write_records(
        folder / "blocks.parquet",
        Block,
        [replace(block, locator="rows=3-4;head=1") for block in blocks],
    )
    assert [reason.split(":")[0] for reason in proof(office, version)[1]] == ["block_locator"]
