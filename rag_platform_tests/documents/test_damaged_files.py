"""Damaged files: one reason in plain words, and never a document that landed without a chunk."""

from __future__ import annotations

import io
import re
import struct
import zipfile
import zlib
from pathlib import Path

import pytest
from PIL import Image

from rag_platform.config.settings import Settings
from rag_platform.config.strategies import load_strategy
from rag_platform.ingestion.batches import ingest_versions
from rag_platform.intake import isolation
from rag_platform.intake.receiving import ReceiveOptions, receive
from rag_platform.ledger.ledger import open_ledger
from rag_platform.storage.store import Store
from rag_platform.workspace import Workspace

CLASS_NAME = re.compile(r"\b\w*(?:Error|Exception|BadZipFile)\b|\bNone\b|Traceback")


@pytest.fixture(autouse=True, scope="module")
def _end_children():
    yield
    isolation.pool().close()


def picture(kind: str, size: tuple[int, int] = (64, 64)) -> bytes:
    stream = io.BytesIO()
    Image.effect_noise(size, 90).save(stream, kind)
    return stream.getvalue()


def blank(width: int, height: int) -> bytes:
    stream = io.BytesIO()
    Image.new("1", (width, height)).save(stream, "PNG")
    return stream.getvalue()


def bomb() -> bytes:
    """A PNG whose header claims 30,000 x 30,000 pixels."""
    body = b"IHDR" + struct.pack(">IIBBBBB", 30_000, 30_000, 8, 0, 0, 0, 0)
    data = picture("PNG")
    return data[:8] + struct.pack(">I", 13) + body + struct.pack(">I", zlib.crc32(body)) + data[33:]


def zipped(**parts: str) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, text in parts.items():
            archive.writestr(name.replace("__", "/"), text)
    return stream.getvalue()


PNG, JPEG = picture("PNG"), picture("JPEG")
DAMAGED = {
    "cut.png": (PNG[: len(PNG) // 2], "ends too early"),
    "cut.jpg": (JPEG[: len(JPEG) // 2], "ends too early"),
    "head.png": (PNG[:20], "ends too early"),
    "noise.png": (PNG[:8] + bytes(range(256)) * 4, ""),
    "bomb.png": (bomb(), "more pixels than"),
    "large.png": (blank(8000, 7000), "media.max_pixels"),
    "cut.gif": (picture("GIF")[:40], ""),
    "cut.tif": (picture("TIFF")[:60], ""),
    "book.xlsx": (zipped(**{"[Content_Types].xml": "<x/>", "xl__workbook.xml": "<broken"}), ""),
    "word.docx": (zipped(**{"[Content_Types].xml": "<x/>", "word__document.xml": "<broken"}), ""),
}


@pytest.mark.integration
def test_damaged_files_fail_with_one_reason_in_plain_words(
    settings: Settings, tmp_path: Path
) -> None:
    tiny = load_strategy(settings, "tiny")
    loaders = tiny.loading.model_validate(
        {"loaders": [{"provider": name} for name in ("image", "docx", "xlsx", "text")]}
    )
    strategy = tiny.model_copy(update={"loading": loaders})
    store, ledger = Store(settings.home), open_ledger(Store.of(settings))
    parts = {"settings": settings, "strategy": strategy, "store": store, "ledger": ledger}
    folder = tmp_path / "shots"
    folder.mkdir()
    for name, (data, _) in DAMAGED.items():
        (folder / name).write_bytes(data)
    (folder / "sound.png").write_bytes(PNG)
    reception = receive([folder], "lib", Workspace(**parts), ReceiveOptions())
    totals = ingest_versions(
        [ledger.version(item) for item in reception.to_process], Workspace(**parts)
    )
    reasons = {
        source_uri.split("/")[-1]: (code, reason) for source_uri, code, reason in totals.failures
    }
    assert set(reasons) == set(DAMAGED)
    for name, (code, reason) in reasons.items():
        assert DAMAGED[name][1] in reason and code in (
            "broken_file",
            "too_large",
            "parser_failed",
        ), (name, code, reason)
        assert not CLASS_NAME.search(reason), (name, reason)
    assert (totals.documents, totals.chunks) == (1, 1)
    ledger.close()
