"""Takes the words of a document out of the logs, in place.

A line names a document by its ids. What stands in such a line under a key of free text is overwritten by as many bytes, so files that
other processes are appending to keep their lines and their readers keep their places; ids, hashes and figures stay.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

ERASED = "[deleted]"
# Keys whose values may quote a document, whatever line they stand in.
TEXT_KEYS = frozenset(
    {"text", "title", "section", "section_path", "heading", "warnings", "failed", "reason", "message", "exception", "preview", "caption",
     "snippet", "quote", "citations", "details", "error"}
)  # fmt: skip
_IDS = re.compile(rb"chk_[0-9a-f]{20}|[0-9a-f]{64}")  # of chunks; of images and files


class Names:
    """How lines name a document: `words` (doc_id, source_uri) anywhere, `ids` (of chunks, images, files) as a whole."""

    def __init__(self, words: Iterable[str], ids: Iterable[str] = ()) -> None:
        self._words = tuple(json.dumps(word, ensure_ascii=False)[1:-1].encode() for word in words)
        self._ids = frozenset(value.encode() for value in ids)

    def stand_in(self, line: bytes) -> bool:
        """True when the line names the document."""
        return any(word in line for word in self._words) or any(found in self._ids for found in _IDS.findall(line))


def quoting(logs_dir: Path, names: Names) -> int:
    """How many lines of the logs name the document and still hold words under a key of free text."""
    return sum(1 for path in _files(logs_dir) for _, line in _lines(path, names) if _erased(line, path) != line)


def erase(logs_dir: Path, names: Names) -> int:
    """How many lines were rewritten; afterwards none of them quotes the document. Safe beside processes that append to the same files."""
    rewritten = 0
    for path in _files(logs_dir):
        changes = [(at, made) for at, line in _lines(path, names) if (made := _erased(line, path)) != line]
        if not changes:
            continue
        with open(path, "r+b") as target:
            for at, line in changes:
                target.seek(at)
                target.write(line)
            target.flush()
            os.fsync(target.fileno())
        rewritten += len(changes)
    return rewritten


def _files(logs_dir: Path) -> list[Path]:
    """Traces and the program's log, and what jobs printed."""
    return [*sorted(logs_dir.glob("*.jsonl")), *sorted((logs_dir / "jobs").glob("*.log"))]


def _lines(path: Path, names: Names) -> Iterator[tuple[int, bytes]]:
    """(offset, line without its end) of each line that names the document."""
    at = 0
    with open(path, "rb") as source:
        for line in source:
            if names.stand_in(line):
                yield at, line.rstrip(b"\r\n")
            at += len(line)


def _erased(line: bytes, path: Path) -> bytes:
    """The line without words, as long as before."""
    if path.suffix != ".jsonl":
        return line if line.startswith(ERASED.encode()) else _padded(ERASED.encode()[: len(line)], len(line))
    try:
        value = json.loads(line)
    except ValueError:  # a torn line, of which nothing but its words is left
        return _padded(b"", len(line)) if line.strip() else line
    if not isinstance(value, dict):
        return line
    made = _without_words(value)
    if made == value:
        return line
    short = json.dumps(made, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace")
    return _padded(short if len(short) <= len(line) else b"{}", len(line))


def _without_words(value: Any, free: bool = False) -> Any:
    """The value with every text under a free key replaced, by nothing longer than itself."""
    if isinstance(value, dict):
        return {key: _without_words(item, key in TEXT_KEYS) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_words(item, free) for item in value]
    if not free or not isinstance(value, str) or value == ERASED:
        return value
    return ERASED if len(value.encode("utf-8", "replace")) >= len(ERASED) else ""


def _padded(line: bytes, length: int) -> bytes:
    return line + b" " * (length - len(line))
