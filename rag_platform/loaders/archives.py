"""ZIP containers: their type, and the rejection of decompression bombs before unpacking. Also the
error messages for damaged files of any format.
"""

from __future__ import annotations

import errno
import logging
import re
import struct
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from rag_platform.errors import DocumentError
from rag_platform.loaders.languages import suffix_of
from rag_platform.observability import faults

MAX_ENTRIES = 20_000
MAX_DIRECTORY_BYTES = 16 * 1024 * 1024
MAX_RATIO = 200.0
MAX_UNPACKED_BYTES = 1024 * 1024 * 1024
RATIO_FROM_BYTES = 16 * 1024 * 1024  # smaller files may compress well without being bombs
OLE_MAGIC = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_END = struct.Struct("<4s4H2LH")  # end of central directory record, without its comment
_MUPDF_CODE = re.compile(r"^code=\d+: ")
_MAIN_PARTS = (("word/", ".docx"), ("xl/", ".xlsx"), ("ppt/", ".pptx"))
_MIMETYPES = {
    b"application/vnd.oasis.opendocument.text": ".odt",
    b"application/vnd.oasis.opendocument.spreadsheet": ".ods",
    b"application/vnd.oasis.opendocument.presentation": ".odp",
    b"application/epub+zip": ".epub",
}


@dataclass(frozen=True)
class ZipLoader:
    """Base of loaders whose files are ZIP containers, with their limits."""

    max_archive_ratio: float = MAX_RATIO
    max_unpacked_bytes: int = MAX_UNPACKED_BYTES

    SUFFIXES: ClassVar[tuple[str, ...]] = ()

    def claims(self, filename: str, head: bytes) -> bool:
        """True for a ZIP container with one of the loader's suffixes."""
        return head.startswith(b"PK\x03\x04") and suffix_of(filename) in self.SUFFIXES

    def require(self, path: Path, suffix: str = "") -> None:
        """Raise DocumentError unless the container is safe to unpack and of the suffix's kind."""
        if suffix:
            _require_office(path, suffix)
        require_sane(
            path, max_ratio=self.max_archive_ratio, max_unpacked_bytes=self.max_unpacked_bytes
        )
        if suffix and (kind := zip_kind(path)) != suffix:
            raise DocumentError(
                f"the container holds no {suffix} document (it looks like"
                f" {kind or 'a damaged ZIP'}); export it again as {suffix}",
                code="broken_file",
            )


def zip_kind(path: Path) -> str:
    """The suffix for the content of a ZIP: `.zip` if it is unknown, "" for a broken file."""
    try:
        require_small_directory(path)
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            if "[Content_Types].xml" in names or "_rels/.rels" in names:
                for folder, suffix in _MAIN_PARTS:
                    if any(name.startswith(folder) for name in names):
                        return suffix
            if "mimetype" in names and archive.getinfo("mimetype").file_size < 200:
                return _MIMETYPES.get(archive.read("mimetype").strip(), ".zip")
            return ".zip"
    except (DocumentError, zipfile.BadZipFile, OSError, ValueError, RuntimeError):
        return ""


def _require_office(path: Path, suffix: str) -> None:
    """Raise DocumentError `unsupported_type` for a file that is no ZIP, `encrypted` for an Office
    file with a password.
    """
    marker = "EncryptedPackage".encode("utf-16-le")
    with open(path, "rb") as opened:
        head = opened.read(8)
        if head == OLE_MAGIC:
            # the stream directory of a large encrypted document lies at its end
            encrypted = marker in opened.read(4 * 1024 * 1024)
            opened.seek(max(0, path.stat().st_size - 4 * 1024 * 1024))
            if encrypted or marker in opened.read():
                raise DocumentError(
                    "the document is encrypted; save it without a password", code="encrypted"
                )
            raise DocumentError(
                "the content is an old Office file (.doc, .xls) under another name; save it as"
                f" {suffix}",
                code="unsupported_type",
            )
    if not head.startswith(b"PK"):
        raise DocumentError(
            f"the content is not that of a {suffix} file; give it its right suffix",
            code="unsupported_type",
        )


def require_sane(
    path: Path, *, max_ratio: float = MAX_RATIO, max_unpacked_bytes: int = MAX_UNPACKED_BYTES
) -> None:
    """Raise DocumentError unless the archive is safe to unpack; only its directory is read.

    Codes: `broken_file`, `encrypted`, `archive_bomb` (too many entries, too large, too high a
    ratio).
    """
    require_small_directory(path)
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise DocumentError(
            f"its ZIP container is damaged ({error}); export the document again", code="broken_file"
        ) from error
    if len(entries) > MAX_ENTRIES:
        raise _bomb(f"{len(entries)} entries, above {MAX_ENTRIES}")
    if any(entry.flag_bits & 1 for entry in entries):
        raise DocumentError(
            "entries of its ZIP container are encrypted; save it without a password",
            code="encrypted",
        )
    unpacked, packed = sum(entry.file_size for entry in entries), max(1, path.stat().st_size)
    if unpacked > max_unpacked_bytes:
        raise _bomb(
            f"{unpacked} bytes unpacked, above limits.max_unpacked_bytes = {max_unpacked_bytes}"
        )
    if unpacked > RATIO_FROM_BYTES and unpacked / packed > max_ratio:
        raise _bomb(
            f"{unpacked / packed:.0f} times its size unpacked, above limits.max_archive_ratio ="
            f" {max_ratio:g}"
        )


def require_small_directory(path: Path) -> None:
    """Raise DocumentError for an archive whose directory would take gigabytes to read."""
    size = path.stat().st_size
    with open(path, "rb") as opened:
        opened.seek(max(0, size - 65_535 - _END.size))
        tail = opened.read()
    at = tail.rfind(b"PK\x05\x06")
    if at < 0 or len(tail) - at < _END.size:
        raise DocumentError(
            "its ZIP container has no directory: the file is cut off; fetch or export it again",
            code="broken_file",
        )
    _, _, _, _, entries, directory_bytes, _, _ = _END.unpack_from(tail, at)
    if entries > MAX_ENTRIES or directory_bytes > MAX_DIRECTORY_BYTES:
        raise _bomb(f"{entries} entries or more in a directory of {directory_bytes} bytes")


def _bomb(reason: str) -> DocumentError:
    return DocumentError(
        f"refused as a decompression bomb: {reason}; unpack it yourself if you trust it",
        code="archive_bomb",
    )


log = logging.getLogger(__name__)

# (class of the exception or of a base class, description); the first match counts
_DAMAGES = (
    ("MemoryError", "it needs more memory than there is"),
    ("RecursionError", "its parts are nested too deeply"),
    ("DecompressionBombError", "it has too many pixels"),
    ("UnidentifiedImageError", "its content is not an image of a known type"),
    ("BadZipFile", "its archive is damaged"),
    ("LargeZipFile", "its archive is too large"),
    ("XMLSyntaxError", "its XML is damaged"),
    ("ParseError", "its XML is damaged"),
    ("error", "its compressed data is damaged"),  # of zlib and struct
    ("UnicodeError", "its text is not in the encoding that it says"),
    ("EOFError", "it ends too early"),
    ("KeyError", "a part of it is missing"),
    ("NotImplementedError", "it uses a feature that is not read"),
    ("PermissionError", "permission to read it is missing"),
    ("FileNotFoundError", "it no longer exists"),
    ("SyntaxError", "its header is damaged"),
)


def describe_damage(error: BaseException) -> str:
    """Why a parser failed, in words such as `its archive is damaged`; logs the exception."""
    log.info("a parser failed", exc_info=error)
    if "truncated" in str(error).lower() or "eof" in str(error).lower().split():
        return "it ends too early"
    names = [cls.__name__ for cls in type(error).__mro__]
    return next((words for name, words in _DAMAGES if name in names), "its content is damaged")


@contextmanager
def reject_damaged(problem: str, remedy: str) -> Iterator[None]:
    """Turn any exception of the block into the DocumentError `broken_file`, because parsers raise
    exceptions of all types on damaged files; except those for which the machine is to blame.
    """
    try:
        yield
    except (DocumentError, MemoryError, ImportError):
        raise
    except Exception as error:
        # EINVAL comes from offsets in the file
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise
        faults.report_own(error, "stage.loader")
        raise DocumentError(
            f"{problem}: {describe_damage(error)}; {remedy}", code="broken_file"
        ) from error


class Reading(faults.Attempt):
    """An attempt to read part of a file that may be damaged; reports only this package's errors."""

    def give_up(self, error: Exception) -> None:
        """Report an error raised by this package."""
        faults.report_own(error, self.stage)

    @property
    def reason(self) -> str:
        """The engine's message in one line; "" if nothing failed."""
        return "" if self.error is None else describe_fault(self.error)


def describe_fault(error: BaseException) -> str:
    """An engine's message in one line, without the error code that MuPDF puts before it."""
    line = (str(error).splitlines() or [""])[0]
    return _MUPDF_CODE.sub("", line)[:200] or type(error).__name__
