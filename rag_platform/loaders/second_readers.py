"""The second reader of each format: another engine, or the plainest way there is to the words of a file, apart from its loader.

PDFs are read by the other engine; pages by `html.parser`; Word files and workbooks from their XML by ElementTree; CSV as lines of text.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path

from rag_platform.ir import Block

# loader: the child process that reads for the second time; formats with bytes are compared byte by byte and need none
ENGINES = {"pdf": "pdfium", "pdfium": "pymupdf", "html": "other", "docx": "other", "xlsx": "other", "csv": "other"}

Reasons = dict[int, str]


def missing(loader: str) -> str:
    """Why there is no second reader of what a loader reads, empty where there is one."""
    if loader not in ENGINES:
        return f"there is no second reader for loader {loader!r}"
    if loader == "pdfium" and importlib.util.find_spec("pymupdf") is None:
        return "PyMuPDF is not installed, the second reader of what PDFium read"
    return ""


def reread(path: Path, loader: str, text: str, blocks: Sequence[Block]) -> tuple[Reasons, Reasons]:
    """(ordinal to reason of the blocks that the second reader reads otherwise, of those that it cannot read); of PDFs whole pages.

    Raises DocumentError, or what the reader raises of a file that it cannot open.
    """
    return _reader(loader)(path, text, blocks)


def _reader(loader: str) -> Callable[[Path, str, Sequence[Block]], tuple[Reasons, Reasons]]:
    if loader in ("pdf", "pdfium"):
        from rag_platform.loaders import pdf_second

        return lambda path, text, blocks: pdf_second.reread(path, loader, text, blocks)
    from rag_platform.loaders import plain_readers

    return {"html": plain_readers.html, "docx": plain_readers.docx, "xlsx": plain_readers.xlsx, "csv": plain_readers.csv}[loader]
