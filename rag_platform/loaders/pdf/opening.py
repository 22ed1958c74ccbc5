"""Opens PDFs with MuPDF, and the errors for those that cannot be opened."""

from __future__ import annotations

import importlib
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rag_platform.errors import DocumentError
from rag_platform.loaders.archives import describe_fault

# MuPDF keeps global state: one thread at a time may use it.
MUPDF_LOCK = threading.RLock()


def load_pymupdf(*, layout: bool = False) -> Any:
    """The module pymupdf; its layout models (0.5 s, 100 MB) are loaded only with `layout`."""
    if "pymupdf" not in sys.modules and not layout:
        sys.modules["pymupdf.layout"] = None  # type: ignore[assignment]  # keeps `import pymupdf` from loading the models
        try:
            import pymupdf
        finally:
            del sys.modules["pymupdf.layout"]
    import pymupdf

    if layout:
        importlib.import_module("pymupdf.layout")
    return pymupdf


_NO_PDF = "no PDF structure in it"


@contextmanager
def open_pdf(path: Path) -> Iterator[Any]:
    """The opened PDF, locked to this thread. Raises `empty_file`, `broken_file`, `encrypted`."""
    pymupdf = load_pymupdf()
    require_bytes(path)
    with MUPDF_LOCK:
        pymupdf.TOOLS.mupdf_display_errors(False)
        pymupdf.TOOLS.mupdf_display_warnings(False)
        # the layout engine sets this too: rectangles have the same meaning everywhere
        pymupdf.TOOLS.unset_quad_corrections(True)
        try:
            document = pymupdf.open(path, filetype="pdf")
        except (RuntimeError, ValueError, TypeError) as error:
            raise broken_pdf(error, path) from error
        with document:
            if not document.is_pdf:  # MuPDF detects the format by content and reads others too
                raise broken_pdf(_NO_PDF)
            if document.needs_pass and not document.authenticate(""):
                raise encrypted_pdf()
            try:
                pages = int(document.page_count)
            except (RuntimeError, ValueError) as error:
                raise broken_pdf(error, path) from error
            if pages < 1:
                raise broken_pdf("it has no pages")
            yield document


def open_page(document: Any, number: int) -> Any:
    """The page `number`, from 0. Raises `blank_page` where its content is missing, as in a file
    that was cut off: MuPDF would show an empty page.
    """
    loaded = document[number]
    page = document.this.pdf_document_from_fz_document().pdf_lookup_page_obj(number)
    contents = page.pdf_dict_gets("Contents")
    streams = [contents.pdf_array_get(at) for at in range(contents.pdf_array_len())]
    if not page.pdf_is_dict() or any(
        stream.pdf_is_indirect() and stream.pdf_is_null() for stream in (contents, *streams)
    ):
        raise DocumentError("its content is missing from the file", code="blank_page")
    return loaded


def require_bytes(path: Path) -> None:
    """Raise DocumentError `empty_file` for a file without a byte."""
    if path.stat().st_size == 0:
        raise DocumentError(
            f"{path.name}: the file is empty (0 bytes); export it again from its source",
            code="empty_file",
        )


def encrypted_pdf() -> DocumentError:
    """The error for a PDF that needs a password."""
    return DocumentError(
        "the PDF is encrypted and needs a password; remove the protection (for example"
        " `qpdf --decrypt --password=...`) and ingest the result",
        code="encrypted",
    )


def broken_pdf(reason: str | Exception, path: Path | None = None) -> DocumentError:
    """The error for a PDF that cannot be read; `path` is removed from the engine's message."""
    text = (
        reason if isinstance(reason, str) else describe_fault(reason).replace(str(path), "the file")
    )
    if re.search("Failed to (open|load)", text):
        text = _NO_PDF
    return DocumentError(
        f"the PDF cannot be read ({text}); repair it (for example `qpdf in.pdf out.pdf`) or export"
        " it again",
        code="broken_file",
    )


def unrotate(page: Any) -> None:
    """Rotate a page upright, keeping its crop, which MuPDF alone would undo."""
    if not page.rotation:
        return
    pymupdf = load_pymupdf()
    crop, media = page.cropbox, page.mediabox
    visible = pymupdf.Rect(crop.x0, media.y1 - crop.y1, crop.x1, media.y1 - crop.y0)
    back = page.remove_rotation()
    if crop != media:
        page.set_mediabox(visible * ~back)
