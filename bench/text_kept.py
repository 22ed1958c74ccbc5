"""Which share of the words of PDFs, as PDFium reads them, stands in the chunks; the exit code is 1
when a corpus misses its goal.

    python bench/text_kept.py [--data FOLDER] [--only NAME ...] [--strategy default] [--pages 100]
    [--worst 5] [--json]

FOLDER holds `pdf-robust`, `pdf-special`, `faults/pdf` and `pdf-truth`; default RAG_TEST_DATA or
../shared/data. Every readable PDF runs through the stages of an ingest up to its chunks, in a
temporary folder, with the layout model; longer ones than --pages are read with the loader's profile
`fast`, and said so. Printed for each corpus:

    documents  read, refused by the loader with a reason, and with words for PDFium but without a
               chunk (none may be)
    words      that PDFium finds
    in chunks  the share of these words in the chunks, page by page
    kept       the same with what is listed as set aside on purpose: running headers and footers,
               text that nobody sees
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rag_platform.config.ingestion import LoadingConfig
from rag_platform.config.query import ProviderConfig
from rag_platform.config.settings import Settings, Strategy, load_settings
from rag_platform.config.strategies import load_strategy
from rag_platform.documents.versions import VersionBuild, build_stage
from rag_platform.errors import DocumentError
from rag_platform.intake import loading
from rag_platform.ir import PageKept, Version
from rag_platform.loaders.pdf import pdfium
from rag_platform.storage.store import Store, read_records

GOALS = {"pdf-robust": 0.97, "pdf-special": 0.98, "faults/pdf": 0.98, "pdf-truth": 0.98}
STAGES = ("raw_document", "facts", "media", "sections", "chunks")


@dataclass(frozen=True, slots=True)
class Row:
    """What became of one file."""

    file: str
    refused: str = ""  # the loader's reason
    pages: int = 0
    words: int = 0
    in_chunks: int = 0
    kept: int = 0
    chunks: int = 0
    fast: bool = False
    seconds: float = 0.0

    @property
    def lost(self) -> int:
        """Words that are neither in chunks nor listed."""
        return self.words - self.kept


def measured(
    path: Path, strategies: dict[str, Strategy], settings: Settings, most_pages: int
) -> Row:
    """The row of one PDF."""
    started = time.perf_counter()
    try:
        pages = pdfium.describe(path).pages
    except DocumentError:
        pages = 0
    fast = pages > most_pages
    strategy = strategies["fast" if fast else "layout"]
    with open(path, "rb") as opened, tempfile.TemporaryDirectory(prefix="rag-kept-") as folder:
        store = Store(Path(folder))
        try:
            loader, _ = loading.choose(path, path.name, strategy)
            sha256, size = store.spool(
                opened, settings.limits.read_chunk_size_bytes, settings.limits.max_bytes
            )
            doc_id = "kept-" + hashlib.sha256(path.name.encode()).hexdigest()[:10]
            version = Version(
                f"kept.{doc_id}@{sha256[:12]}",
                "kept",
                doc_id,
                path.name,
                path.name,
                sha256,
                size,
                "",
                loader,
                strategy.name,
            )
            work = VersionBuild(version, strategy, settings, store, path)
            for stage in STAGES:
                build_stage(stage, work)
        except DocumentError as error:
            return Row(path.name, refused=f"{error.code}: {error.message[:80]}")
        rows = read_records(kept, PageKept) if (kept := work.path("kept")).is_file() else []
    words = sum(row.words for row in rows)
    return Row(
        path.name,
        "",
        len(rows),
        words,
        sum(row.found - row.set_aside for row in rows),
        sum(row.found for row in rows),
        sum(bool(chunk.chunk_text.strip()) for chunk in work.chunks),
        fast,
        time.perf_counter() - started,
    )


def judged(name: str, rows: Sequence[Row], worst: int) -> bool:
    """True when the corpus reaches its goal; prints its line, then the files that lost most."""
    read = [row for row in rows if not row.refused]
    words = sum(row.words for row in read)
    in_chunks, kept = (
        sum(getattr(row, part) for row in read) / max(1, words) for part in ("in_chunks", "kept")
    )
    empty = [row for row in read if row.words and not row.chunks]
    good = kept >= GOALS[name] and not empty
    print(
        f"{name:12} {len(read):4} read {len(rows) - len(read):3} refused {len(empty):2} empty"
        f" {sum(r.pages for r in read):5} pages {words:8,} words  in chunks {in_chunks:.4f}  kept"
        f" {kept:.4f}  goal {GOALS[name]:.2f} {'ok' if good else 'MISSED'}"
    )
    for row in empty:
        print(f"    no chunk: {row.file} ({row.words} words)")
    for row in sorted((row for row in read if row.lost), key=lambda row: -row.lost)[:worst]:
        print(
            f"    {row.file[:60]:60} {row.kept}/{row.words} ="
            f" {row.kept / row.words:.3f}{' (fast)' if row.fast else ''}"
        )
    if fast := [row.file for row in read if row.fast]:
        print(f"    read with the profile fast because of their length: {', '.join(fast)}")
    return good


def main() -> None:
    """Measure the corpora."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--data", type=Path, default=Path(os.environ.get("RAG_TEST_DATA", "../shared/data"))
    )
    parser.add_argument("--only", nargs="*", choices=list(GOALS), default=list(GOALS))
    parser.add_argument("--strategy", default="default", help="for files that are not too long")
    parser.add_argument("--pages", type=int, default=100)
    parser.add_argument("--worst", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="a JSON line for each file")
    options = parser.parse_args()
    settings = load_settings()
    strategy = load_strategy(settings, options.strategy)
    quick = LoadingConfig(loaders=(ProviderConfig(provider="pdf", options={"profile": "fast"}),))
    strategies = {"layout": strategy, "fast": strategy.model_copy(update={"loading": quick})}
    good = True
    for name in options.only:
        folder = options.data / name
        if not folder.is_dir():
            print(f"{name:12} is not there: {folder}")
            good = False
            continue
        rows = [
            measured(path, strategies, settings, options.pages)
            for path in sorted(folder.glob("*.pdf"))
        ]
        good &= judged(name, rows, options.worst)
        if options.json:
            for row in rows:
                print(json.dumps(dataclasses.asdict(row)))
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
