"""Erases a document's text from the logs, in place.

Log lines refer to a document by its ids. Free text in them is overwritten without changing a
line's length, because other processes still append to these files and readers keep their offsets.
Ids, hashes and figures stay. A question is erased if its answer came from the document, or was
expected to, because it may quote it. Compressed files, which nobody appends to, are rewritten.
"""

from __future__ import annotations

import gzip
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from rag_platform.storage.store import atomic_path

ERASED = "[deleted]"
# Keys whose values may quote a document, in any line.
TEXT_KEYS = frozenset(
    "text title section section_path heading warnings failed reason message exception preview"
    " caption snippet quote citations details error query_norm words searches".split()
)
# Errors whose messages contain only ids and times; these are kept.
_ID_CODES = frozenset(
    "document_deleted already_deleted not_live not_pinned version_not_live version_not_ready"
    " unknown_version".split()
)
_IDS = re.compile(rb"chk_[0-9a-f]{20}|[0-9a-f]{64}")  # of chunks; of images and files
# A name must not be part of a longer one; it may follow a JSON escape.
_BEGINS = rb"(?:(?<![\w-])|(?<=\\[bfnrt])|(?<=\\u[0-9a-f]{4}))"
_ENDS = rb"(?![\w-])"
_TRACE = re.compile(rb'"trace_id": ?"(trc_[0-9a-f]{32})"')
# events with the sources of an answer, or with the expected documents of an evaluated question
_ANSWERED = re.compile(rb'"kind": ?"(?:context\.final|generation\.summary)"|"expected_documents"')
# traces of work on many documents; refusals of an endpoint in them may repeat texts and name none
_OF_MANY = re.compile(rb'"trace_type": ?"(?:ingestion|evaluation)"')
_REFUSED = re.compile(rb'"kind": ?"model\.call".*"error": ?\{')
_PACKED = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
# Parquet, zip, xz, bzip2, 7-Zip, lz4
_OPAQUE = (b"PAR1", b"PK\x03\x04", b"\xfd7zXZ", b"BZh", b"7z\xbc\xaf", b"\x04\x22\x4d\x18")


class Names:
    """The names of a document in log lines: `words` (doc_id, source_uri) match anywhere, ignoring
    case; `files` (file names) likewise, but not inside longer names; `ids` of chunks, images and
    files match only as a whole.
    """

    def __init__(
        self, words: Iterable[str], ids: Iterable[str] = (), files: Iterable[str] = ()
    ) -> None:
        self._words = _forms(words)
        self._files = [
            (form, re.compile(_BEGINS + re.escape(form) + _ENDS)) for form in _forms(files)
        ]
        self._ids = frozenset(value.encode() for value in ids)

    def occur_in(self, line: bytes) -> bool:
        """True if the line names the document."""
        lower = line.lower()
        return (
            any(word in lower for word in self._words)
            or any(form in lower and name.search(lower) for form, name in self._files)
            or any(found in self._ids for found in _IDS.findall(line))
        )


def _forms(words: Iterable[str]) -> tuple[bytes, ...]:
    """The words' spellings in JSON, with ASCII letters in lower case; also of the words in lower
    case, as questions are logged.
    """
    forms = (
        json.dumps(said, ensure_ascii=ascii_)[1:-1].encode("utf-8", "surrogatepass").lower()
        for word in words
        if word
        for said in (word, word.lower())
        for ascii_ in (False, True)
    )
    return tuple(dict.fromkeys(forms))


class Lines(Protocol):
    """Log lines that may quote a document, in a file or elsewhere."""

    @property
    def structured(self) -> bool:
        """True if each line is JSON."""
        ...

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """(position, line without its line end)."""
        ...

    def rewrite(self, changes: list[tuple[int, bytes]]) -> int:
        """Overwrite the lines at these positions by lines of equal length; returns their number."""
        ...


def quoting(folder: Path, names: Names, also: Sequence[Lines] = ()) -> int:
    """The number of lines that `erase` would change."""
    files: list[Lines] = [*_files(folder), *also]
    traces = _find_traces(files, names)
    return sum(1 for file in files for _ in _changes(file, names, traces))


def erase(folder: Path, names: Names, also: Sequence[Lines] = ()) -> int:
    """Erase the free text of all lines that name the document, in the logs of a folder and in
    `also`; returns their number. Others may append to the files meanwhile.
    """
    files: list[Lines] = [*_files(folder), *also]
    traces = _find_traces(files, names)
    return sum(file.rewrite(list(_changes(file, names, traces))) for file in files)


def opaque(folder: Path) -> list[Path]:
    """The files below a folder in compressed formats that cannot be searched."""
    return [
        path
        for path in _all(folder)
        if path.suffix != ".sqlite" and any(_head(path).startswith(mark) for mark in _OPAQUE)
    ]


def _files(folder: Path) -> list[_File]:
    """Traces, the program's log and the output of jobs, including rotated files."""
    return [
        _File(path)
        for path in _all(folder)
        if not any(_head(path).startswith(mark) for mark in _OPAQUE)
    ]


def _all(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def _head(path: Path) -> bytes:
    with open(path, "rb") as source:
        return source.read(8)


# --- one file -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _File:
    """A file of lines, compressed or not."""

    path: Path

    @property
    def structured(self) -> bool:
        """True for a file of JSON lines."""
        return ".jsonl" in self.path.name

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """(offset in the uncompressed file, line without its line end); a stack trace is
        one line.
        """
        at, lines = 0, _each_line(self._open())
        for block in lines if self.structured else _blocks(lines):
            yield at, block.rstrip(b"\r\n")
            at += len(block)

    def rewrite(self, changes: list[tuple[int, bytes]]) -> int:
        """Write the changed lines into the file; returns their number."""
        if not changes:
            return 0
        if (kind := self._packing()) is not None:
            data = bytearray(b"".join(_each_line(self._open())))
            for at, line in changes:
                data[at : at + len(line)] = line
            _replace(self.path, _PACKERS[kind](bytes(data)))
            return len(changes)
        with open(self.path, "r+b") as target:
            for at, line in changes:
                target.seek(at)
                target.write(line)
            target.flush()
            os.fsync(target.fileno())
        return len(changes)

    def _packing(self) -> str | None:
        head = _head(self.path)
        return next((kind for mark, kind in _PACKED.items() if head.startswith(mark)), None)

    def _open(self) -> Any:
        kind = self._packing()
        if kind == "gzip":
            return gzip.open(self.path, "rb")
        if kind == "zstd":
            import pyarrow as pa

            return pa.CompressedInputStream(pa.OSFile(str(self.path)), "zstd")
        return open(self.path, "rb")


def _zstd(data: bytes) -> bytes:
    import pyarrow as pa

    packed = pa.compress(data, codec="zstd", asbytes=True)
    assert isinstance(packed, bytes)
    return packed


_PACKERS: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "zstd": _zstd}


def _replace(path: Path, data: bytes) -> None:
    with atomic_path(path, path.stat().st_mode & 0o777) as temporary:
        temporary.write_bytes(data)


def _each_line(source: Any) -> Iterator[bytes]:
    with source:
        rest = b""
        while data := source.read(1 << 20):
            *whole, rest = (rest + data).splitlines(keepends=True)
            if rest.endswith(b"\n"):
                whole, rest = [*whole, rest], b""
            yield from whole
        if rest:
            yield rest


def _blocks(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Lines joined with their continuations: indented lines, and the last line of a stack trace,
    which has the message.
    """
    block, trace = b"", False
    for line in lines:
        if block and (line[:1] in b" \t" or trace):
            block += line
            trace = trace and line[:1] in b" \t"
        else:
            if block:
                yield block
            block = line
        trace = trace or line.startswith(b"Traceback ")
    if block:
        yield block


def _changes(file: Lines, names: Names, traces: Set[bytes]) -> Iterator[tuple[int, bytes]]:
    """(position, erased line) of each line with free text that names the document or belongs to one
    of the traces; of the trace of an ingest or an evaluation, only refusals.
    """
    for at, line in file.lines():
        trace = _TRACE.search(line) if traces else None
        belongs = trace is not None and trace[1] in traces
        if names.occur_in(line) or (
            belongs and (_OF_MANY.search(line) is None or _REFUSED.search(line) is not None)
        ):
            erased = _erase_line(line, structured=file.structured)
            if erased != line:
                yield at, erased


def _find_traces(files: Iterable[Lines], names: Names) -> set[bytes]:
    """The ids of traces of questions that were answered from the document, and of ingests and
    evaluations that name it.
    """
    found = set()
    for file in files:
        for _, line in file.lines():
            meant = _ANSWERED.search(line) or _OF_MANY.search(line)
            if meant and names.occur_in(line) and (trace := _TRACE.search(line)):
                found.add(trace[1])
    return found


# --- one line -----------------------------------------------------------------------------------


def _erase_line(line: bytes, *, structured: bool) -> bytes:
    """The line without free text, of the same length."""
    if not structured:
        return (
            line
            if line.startswith(ERASED.encode())
            else _pad(ERASED.encode()[: len(line)], len(line))
        )
    try:
        value = json.loads(line)
    except ValueError:  # an incomplete line, all of it treated as free text
        return _pad(b"", len(line)) if line.strip() else line
    if not isinstance(value, dict):
        return line
    made = without_words(value)
    if made == value:
        return line
    short = json.dumps(made, ensure_ascii=False, separators=(",", ":")).encode(
        "utf-8", "backslashreplace"
    )
    return _pad(short if len(short) <= len(line) else b"{}", len(line))


def without_words(value: Any, keys: Set[str] = TEXT_KEYS, *, free: bool = False) -> Any:
    """The JSON value with every text under one of the keys replaced by one that is not longer;
    messages that contain only ids stay. A `free` value is itself under one of the keys.
    """
    if isinstance(value, dict):
        ids_only = isinstance(code := value.get("code"), str) and code in _ID_CODES
        return {
            key: without_words(item, keys, free=key in keys and not (ids_only and key == "message"))
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [without_words(item, keys, free=free) for item in value]
    if not free or not isinstance(value, str) or value == ERASED:
        return value
    return ERASED if len(value.encode("utf-8", "replace")) >= len(ERASED) else ""


def _pad(line: bytes, length: int) -> bytes:
    return line + b" " * (length - len(line))
