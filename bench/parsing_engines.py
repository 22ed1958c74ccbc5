"""PDF parsers under one signature: our two profiles and their peers. Each runs in a process of its
own, which its times and memory are of.

As a script it reads a path a line on stdin and answers each with a JSON line: Markdown, time and
memory.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from rag_platform import telemetry

telemetry.switch_off()  # of the peers' engines, before any is loaded


class Output(NamedTuple):
    """What a parser made of a file: all of it, and the same without the page headers and footers it
    recognised.
    """

    text: str
    body: str
    pages: int
    notes: tuple[str, ...] = ()


def ours(path: Path, profile: str) -> Output:
    """Our facts, read in this process."""
    from rag_platform.loaders.pdf.mupdf import PdfLoader

    facts = PdfLoader(profile=profile).load(path, path.name)  # type: ignore[arg-type]
    kept = [
        facts.text[block.start : block.end]
        for block in facts.blocks
        if block.kind not in ("header", "footer")
    ]
    notes = tuple(
        note for note in facts.summary.warnings if "raw" in note or "could be read" in note
    )
    return Output(facts.text, "\n\n".join(kept), facts.summary.pages or 0, notes)


def pymupdf4llm(path: Path) -> Output:
    """The layout parser alone."""
    import pymupdf4llm

    chunks = pymupdf4llm.to_markdown(str(path), page_chunks=True, use_ocr=False)
    body = [
        chunk["text"][box["pos"][0] : box["pos"][1]]
        for chunk in chunks
        for box in chunk["page_boxes"]
        if box["class"] not in ("page-header", "page-footer")
    ]
    return Output("\n\n".join(chunk["text"] for chunk in chunks), "\n\n".join(body), len(chunks))


def markitdown(path: Path) -> Output:
    """Microsoft's converter."""
    from markitdown import MarkItDown

    text = MarkItDown().convert(str(path)).text_content
    return Output(text, text, 0)


def pypdfium2(path: Path) -> Output:
    """The plain text of Chrome's PDF engine, page by page; it knows no tables and no headings."""
    import pypdfium2

    with contextlib.closing(pypdfium2.PdfDocument(path)) as document:
        pages = [page.get_textpage().get_text_bounded() for page in document]
    text = "\n\n".join(pages).replace("\r\n", "\n").replace("\ufffe", "-")
    return Output(text, text, len(pages))


ENGINES: dict[str, Callable[[Path], Output]] = {
    "layout": lambda path: ours(path, "layout"),
    "fast": lambda path: ours(path, "fast"),
    "pymupdf4llm": pymupdf4llm,
    "markitdown": markitdown,
    "pypdfium2": pypdfium2,
}


def _child(name: str, answers: int) -> None:
    with os.fdopen(answers, "w", encoding="utf-8") as out:
        for source in map(str.strip, sys.stdin):
            wall, processor = time.perf_counter(), time.process_time()
            result, error = Output("", "", 0), ""
            try:
                result = ENGINES[name](Path(source))
            # a parser that fails on a file scores 0 there, and is named
            except Exception as problem:
                error = f"{type(problem).__name__}: {problem}"[:300]
            wall, processor = time.perf_counter() - wall, time.process_time() - processor
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            line = {
                "file": source,
                **result._asdict(),
                "error": error,
                "wall": wall,
                "processor": processor,
                "peak_mb": peak,
            }
            out.write(json.dumps(line) + "\n")
            out.flush()


if __name__ == "__main__":
    answers = os.dup(1)
    os.dup2(2, 1)  # what a library prints must not mix with the answers
    _child(sys.argv[1], answers)
