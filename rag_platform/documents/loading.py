"""Which loader reads a file, and reading it within limits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path, PurePath

from rag_platform import registry
from rag_platform.config import Limits, ProviderConfig, Strategy
from rag_platform.errors import ConfigError, DocumentError
from rag_platform.ir import Facts
from rag_platform.protocols import Loader

_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"II*\x00", "image/tiff"),
    (b"MM\x00*", "image/tiff"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "application/x-ole-storage"),
    (b"{\\rtf", "application/rtf"),
    (b"\x1f\x8b", "application/gzip"),
    (b"7z\xbc\xaf\x27\x1c", "application/x-7z-compressed"),
    (b"Rar!\x1a\x07", "application/vnd.rar"),
    (b"\x7fELF", "application/x-executable"),
    (b"MZ", "application/x-msdownload"),
    (b"SQLite format 3\x00", "application/vnd.sqlite3"),
    (b"%!PS", "application/postscript"),
)
_OOXML = "application/vnd.openxmlformats-officedocument."
_ZIPPED = {
    ".docx": _OOXML + "wordprocessingml.document",
    ".xlsx": _OOXML + "spreadsheetml.sheet",
    ".pptx": _OOXML + "presentationml.presentation",
    ".odt": "application/vnd.oasis.opendocument.text",
    ".epub": "application/epub+zip",
}
_TEXTS = {".md": "text/markdown", ".markdown": "text/markdown", ".html": "text/html", ".htm": "text/html", ".csv": "text/csv",
          ".json": "application/json", ".xml": "text/xml", ".svg": "image/svg+xml"}  # fmt: skip
_SUFFIXES = {"pdf": ".pdf", "markdown": ".md, .markdown", "text": ".txt, .rst, .log and source code"}
_REMEDIES = {
    ".doc": "save it as .docx or PDF (LibreOffice: `soffice --headless --convert-to pdf FILE`)",
    ".docx": "save it as PDF or Markdown (`pandoc FILE -o out.md`)",
    ".rtf": "save it as PDF or Markdown (`pandoc FILE -o out.md`)",
    ".odt": "save it as PDF or Markdown (`pandoc FILE -o out.md`)",
    ".ppt": "save it as PDF",
    ".pptx": "save it as PDF",
    ".xls": "save its sheets as CSV, or print it to PDF",
    ".xlsx": "save its sheets as CSV, or print it to PDF",
    ".epub": "convert it to Markdown (`pandoc FILE -o out.md`)",
    ".html": "convert it to Markdown (`pandoc FILE -o out.md`)",
    ".htm": "convert it to Markdown (`pandoc FILE -o out.md`)",
    ".zip": "unpack it and ingest the folder",
}


def sniff(filename: str, head: bytes) -> str:
    """The content type: magic bytes decide binary types, among texts the suffix decides. `head` holds the first 4096 bytes."""
    suffix = PurePath(filename).suffix.lower()
    if not head:
        return "inode/x-empty"
    if b"%PDF-" in head[:1024]:
        return "application/pdf"
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return _zipped(suffix, head)
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    if head[:2] == b"BM" and len(head) > 14 and b"\x00" in head[:14]:
        return "image/bmp"
    for magic, mime in _MAGIC:
        if head.startswith(magic) and not (magic == b"MZ" and b"\x00" not in head):
            return mime
    if b"\x00" in head and not head.startswith((b"\xff\xfe", b"\xfe\xff", b"\x00\x00\xfe\xff")):
        return "application/octet-stream"
    if suffix in _TEXTS:
        return _TEXTS[suffix]
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")[:64].lower()
    return "text/html" if start.startswith((b"<!doctype html", b"<html")) else "text/plain"


def _zipped(suffix: str, head: bytes) -> str:
    for part, kind in ((b"word/", ".docx"), (b"xl/", ".xlsx"), (b"ppt/", ".pptx")):
        if part in head:
            return _ZIPPED[kind]
    return _ZIPPED[suffix] if suffix in _ZIPPED and (b"[Content_Types]" in head or b"mimetype" in head) else "application/zip"


def choose(filename: str, head: bytes, strategy: Strategy) -> str:
    """The registry name of the first loader of the strategy that claims the file.

    Raises DocumentError: `empty_file` for a PDF without a byte, `unsupported_type` naming what the content is and what to do.
    """
    suffix = PurePath(filename).suffix.lower()
    if not head and suffix == ".pdf":
        raise DocumentError(f"{filename} is empty (0 bytes); export it again from its source", code="empty_file")
    for item in strategy.loading.loaders:
        loader: Loader = registry.build("loader", item.provider, item.options)
        if loader.claims(filename, head):
            return item.provider
    known = "; ".join(f"{item.provider}: {_SUFFIXES.get(item.provider, 'see its documentation')}" for item in strategy.loading.loaders)
    remedy = _REMEDIES.get(suffix, "")
    kind = sniff(filename, head)
    if suffix == ".pdf":
        remedy = "it is no PDF whatever its name says; give it its true suffix"
    raise DocumentError(
        f"no loader of strategy {strategy.name!r} reads {filename} (content: {kind}); {remedy + '; ' if remedy else ''}known are {known}",
        code="unsupported_type",
        mime=kind,
    )


def load(
    path: Path, filename: str, loader_name: str, strategy: Strategy, limits: Limits, on_page: Callable[[int, int], None] | None = None
) -> Facts:
    """The facts of a stored file: texts are read in this process, PDFs in children under limits; `on_page(done, total)` tells progress.

    Raises DocumentError with code and reason when there are none; ConfigError when the strategy no longer names the loader.
    """
    from rag_platform.loaders.pdf import PdfLoader

    item = _configured(loader_name, strategy)
    if (size := path.stat().st_size) > limits.max_bytes:
        raise DocumentError(
            f"{size} bytes is above max_bytes = {limits.max_bytes}; raise limits.max_bytes in settings.yaml", code="too_large"
        )
    loader: Loader = registry.build("loader", item.provider, item.options)
    if isinstance(loader, PdfLoader):
        from rag_platform.documents.isolation import load_isolated

        _require_no_other_type(path, filename)
        return load_isolated(path, loader, limits, on_page)
    facts = loader.load(path, filename)
    if on_page:
        on_page(1, 1)
    return facts


def _require_no_other_type(path: Path, filename: str) -> None:
    """Nothing for what may be a PDF, damaged or not. Raises DocumentError `unsupported_type` for bytes that are plainly something else."""
    with open(path, "rb") as opened:
        kind = sniff(filename, opened.read(4096))
    if kind not in ("application/pdf", "application/octet-stream", "text/plain", "inode/x-empty"):
        raise DocumentError(
            f"{filename} is {kind}, it is no PDF whatever its name says; give it its true suffix", code="unsupported_type", mime=kind
        )


def _configured(loader_name: str, strategy: Strategy) -> ProviderConfig:
    for item in strategy.loading.loaders:
        if item.provider == loader_name:
            return item
    names = ", ".join(item.provider for item in strategy.loading.loaders)
    raise ConfigError(
        f"strategy {strategy.name!r} has no loader {loader_name!r}; it has {names}. Rebuild with the strategy it was ingested with."
    )
