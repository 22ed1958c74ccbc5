"""Selects the loader of a file, and reads the file within limits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path, PurePath
from typing import Any, cast

from rag_platform import registry
from rag_platform.config.query import ProviderConfig
from rag_platform.config.settings import Limits, Strategy
from rag_platform.errors import ConfigError, DocumentError
from rag_platform.ir import Facts
from rag_platform.loaders.archives import zip_kind
from rag_platform.loaders.decoding import holds_words, is_pdf, sniff_binary
from rag_platform.protocols import Loader

_OOXML = "application/vnd.openxmlformats-officedocument."
_ZIP_TYPES = {
    ".docx": _OOXML + "wordprocessingml.document",
    ".xlsx": _OOXML + "spreadsheetml.sheet",
    ".pptx": _OOXML + "presentationml.presentation",
    ".odt": "application/vnd.oasis.opendocument.text",
    ".ods": "application/vnd.oasis.opendocument.spreadsheet",
    ".odp": "application/vnd.oasis.opendocument.presentation",
    ".epub": "application/epub+zip",
    ".zip": "application/zip",
}
_HEAD_BYTES = 4096
_ZIP_MAGIC = (b"PK\x03\x04", b"PK\x05\x06")
_TEXT_TYPES = {
    ".md": "text/markdown",
    ".markdown": "text/markdown",
    ".html": "text/html",
    ".htm": "text/html",
    ".xhtml": "text/html",
    ".csv": "text/csv",
    ".tsv": "text/tab-separated-values",
    ".json": "application/json",
    ".xml": "text/xml",
    ".svg": "image/svg+xml",
    ".ipynb": "application/x-ipynb+json",
    ".eml": "message/rfc822",
    ".mhtml": "multipart/related",
    ".mht": "multipart/related",
}
_SUFFIXES = {
    "pdf": ".pdf",
    "pdfium": ".pdf",
    "image": ".png, .jpg, .gif, .webp, .tif, .bmp",
    "docx": ".docx, .docm",
    "xlsx": ".xlsx, .xlsm",
    "csv": ".csv, .tsv",
    "html": ".html, .htm",
    "ipynb": ".ipynb",
    "pptx": ".pptx, .pptm",
    "epub": ".epub",
    "eml": ".eml",
    "mhtml": ".mhtml, .mht",
    "markdown": ".md, .markdown",
    "text": ".txt, .rst, .log and source code",
}
# suffix to the loaders that report why the file cannot be read, when no loader claims its content
_LOADERS_BY_SUFFIX = {
    suffix: tuple(name for name, known in _SUFFIXES.items() if suffix in known.split(", "))
    for loader, suffixes in _SUFFIXES.items()
    if loader not in ("image", "text")
    for suffix in suffixes.split(", ")
} | {".txt": ("text",)}
_FORMAT_NAMES = {
    ".pdf": "PDF",
    ".docx": "Word document",
    ".docm": "Word document",
    ".xlsx": "workbook",
    ".xlsm": "workbook",
    ".pptx": "presentation",
    ".pptm": "presentation",
    ".epub": "book",
}
_ZIP_FORMATS = (".docx", ".xlsx", ".pptx", ".epub")  # that `zip_kind` recognises
_CONVERSIONS = {".doc": "docx", ".odt": "docx", ".rtf": "docx", ".xls": "xlsx", ".ods": "xlsx"}
_ARCHIVES = (".zip", ".gz", ".tgz", ".tar", ".7z", ".rar")
_REMEDIES = {
    **dict.fromkeys((".xlsb", ".et"), "save it as .xlsx"),
    **dict.fromkeys((".ppt", ".odp", ".dps"), "save it as PDF"),
    ".wps": "save it as .docx",
    ".msg": "save it as .eml",
    ".mbox": "save its mails as .eml files",
    # copies that editors and programs leave beside a document
    **dict.fromkeys((".bak", ".orig", ".rej", ".tmp", ".part", ".map"), "give it its true suffix"),
    **dict.fromkeys(_ARCHIVES, "unpack it and ingest the folder"),
    **{
        suffix: f"save it as .{kind} (LibreOffice: `soffice --headless --convert-to {kind} FILE`)"
        for suffix, kind in _CONVERSIONS.items()
    },
}
# loader options whose default is the limit of that name
_FROM_LIMITS = ("max_cells", "max_archive_ratio", "max_unpacked_bytes")


def sniff(path: Path, filename: str) -> str:
    """The content type of a file. Magic bytes decide for binary content, the suffix of `filename`
    for text.
    """
    return _sniff(filename, *_read_head(path))


def _read_head(path: Path) -> tuple[bytes, str]:
    """(the first bytes of a file, for a ZIP the suffix of its content else "")."""
    with open(path, "rb") as opened:
        head = opened.read(_HEAD_BYTES)
    return head, zip_kind(path) if head.startswith(_ZIP_MAGIC) else ""


def _sniff(filename: str, head: bytes, content: str) -> str:
    if not head:
        return "inode/x-empty"
    if head.startswith(_ZIP_MAGIC) and not is_pdf(head):
        return _ZIP_TYPES.get(content, "application/zip")
    return _sniff_binary(head) or _sniff_text(PurePath(filename).suffix.lower(), head)


def _sniff_binary(head: bytes) -> str:
    """The type of binary content, "" for text."""
    if is_pdf(head):
        return "application/pdf"
    if mime := sniff_binary(head)[1]:
        return mime
    if head[257:262] == b"ustar":
        return "application/x-tar"
    if b"\x00" in head and not head.startswith((b"\xff\xfe", b"\xfe\xff", b"\x00\x00\xfe\xff")):
        return "application/octet-stream"
    return ""


def _sniff_text(suffix: str, head: bytes) -> str:
    if suffix in _TEXT_TYPES:
        return _TEXT_TYPES[suffix]
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")[:64].lower()
    return "text/html" if start.startswith((b"<!doctype html", b"<html")) else "text/plain"


def choose(path: Path, filename: str, strategy: Strategy) -> tuple[str, str]:
    """(registry name of the strategy's first loader that claims the file, content type). If none
    does, the loader for its suffix, which then reports why the content cannot be read: a damaged
    PDF must show as failed, not as a file of an unsupported type. A text under a suffix that means
    nothing here (`README.Debian`, `site.conf.example`) is read as text if it holds words.

    An office document is recognised by its content whatever its name is. Raises DocumentError
    `unsupported_type` with the content's type and a remedy.
    """
    suffix = PurePath(filename).suffix.lower()
    head, content = _read_head(path)
    misnamed = content and _FORMAT_NAMES.get(suffix) != _FORMAT_NAMES.get(content)
    name = f"{filename}{content}" if misnamed else filename
    kind = _sniff(filename, head, content)
    # the search index of a documentation, or a program without its line ends
    minified = suffix in (".js", ".mjs", ".css") and len(head) == _HEAD_BYTES and b"\n" not in head
    if minified:
        kind += ", minified"
    for item in strategy.loading.loaders:
        loader: Loader = registry.make_provider("loader", item.provider, item.options)
        # text under the suffix of a binary format is an error page or a failed export
        other = minified or (suffix in _FORMAT_NAMES and kind.startswith("text/"))
        if not other and loader.claims(name, head):
            return item.provider, kind
    configured = {item.provider for item in strategy.loading.loaders}
    if by_suffix := next((it for it in _LOADERS_BY_SUFFIX.get(suffix, ()) if it in configured), ""):
        return by_suffix, kind
    known = suffix in {*_REMEDIES, *_FORMAT_NAMES, *_LOADERS_BY_SUFFIX} or suffix.endswith("~")
    if not known and "text" in configured and kind == "text/plain" and holds_words(head):
        return "text", kind
    readable = "; ".join(
        f"{item.provider}: {_SUFFIXES.get(item.provider, 'see its documentation')}"
        for item in strategy.loading.loaders
    )
    suitable = _LOADERS_BY_SUFFIX.get(content) or _LOADERS_BY_SUFFIX.get(suffix, ())
    remedy = (
        _REMEDIES.get(content)
        or _REMEDIES.get(suffix, "")
        or (f"add the loader `{suitable[0]}` to the strategy" if suitable else "")
    )
    if suffix in _FORMAT_NAMES and content not in _ZIP_FORMATS and _ZIP_TYPES.get(suffix) != kind:
        remedy = f"its name says {_FORMAT_NAMES[suffix]}; give it its true suffix"
    raise DocumentError(
        f"no loader of strategy {strategy.name!r} reads {filename} (content: {kind});"
        f" {remedy + '; ' if remedy else ''}known are {readable}",
        code="unsupported_type",
        mime=kind,
    )


def load(
    path: Path,
    filename: str,
    loader_name: str,
    strategy: Strategy,
    limits: Limits,
    on_page: Callable[[int, int], None] | None = None,
    *,
    charset: str = "",
    kept: Path | None = None,
) -> Facts:
    """The facts of a stored file. Texts are read in this process, other formats in child processes
    under limits.

    `on_page(done, total)` reports the progress of a PDF, whose pages are stored in the file `kept`
    in the meantime; `charset` is the encoding that a server declared. Raises DocumentError;
    ConfigError when the strategy no longer has the loader.
    """
    item = _config_of(loader_name, strategy)
    size = path.stat().st_size
    require_allowed_size(size, limits)
    if size == 0 and PurePath(filename).suffix.lower() in _FORMAT_NAMES:
        raise DocumentError(
            f"{filename} is empty (0 bytes); export it again from its source", code="empty_file"
        )
    options = {**charset_option(item.provider, charset), **options_with_limits(item, limits)}
    loader: Loader = registry.make_provider("loader", item.provider, options)
    traits = registry.traits_of(loader)
    if traits.engine:  # a reader of pages
        from rag_platform.intake.isolation import load_isolated
        from rag_platform.loaders.pdf.assembly import PagedLoader

        _require_no_other_type(path, filename)
        return load_isolated(path, cast(PagedLoader, loader), limits, on_page, kept)
    if traits.isolated:
        from rag_platform.intake.isolation import load_in_child

        return load_in_child(path, filename, item.provider, options, limits)
    return loader.load(path, filename)


def require_allowed_size(size: int, limits: Limits) -> None:
    """Raise DocumentError `too_large` for a file above the limit."""
    if size > limits.max_bytes:
        raise DocumentError(
            f"{size} bytes is above max_bytes = {limits.max_bytes}; raise limits.max_bytes in"
            " settings.yaml",
            code="too_large",
        )


def options_with_limits(item: ProviderConfig, limits: Limits) -> dict[str, Any]:
    """A loader's options; those that are also limits default to the limit."""
    names = registry.defaults("loader", item.provider)
    return {
        **{name: getattr(limits, name) for name in _FROM_LIMITS if name in names},
        **item.options,
    }


def charset_option(loader_name: str, charset: str) -> dict[str, str]:
    """The loader option for an encoding; empty for loaders without one, or without an encoding."""
    return (
        {"charset": charset} if charset and registry.takes("loader", loader_name, "charset") else {}
    )


def _require_no_other_type(path: Path, filename: str) -> None:
    """Raise DocumentError `unsupported_type` for bytes that are clearly not a PDF."""
    kind = sniff(path, filename)
    if kind not in ("application/pdf", "application/octet-stream", "text/plain", "inode/x-empty"):
        raise DocumentError(
            f"{filename} is {kind}, not a PDF as its name says; give it its true suffix",
            code="unsupported_type",
            mime=kind,
        )


def _config_of(loader_name: str, strategy: Strategy) -> ProviderConfig:
    for item in strategy.loading.loaders:
        if item.provider == loader_name:
            return item
    names = ", ".join(item.provider for item in strategy.loading.loaders)
    raise ConfigError(
        f"strategy {strategy.name!r} has no loader {loader_name!r}; it has {names}. Rebuild with"
        " the strategy it was ingested with."
    )
