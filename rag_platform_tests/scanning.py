"""A scan of every file below a folder for words, decompressed and decoded by other means than the
program's own.
"""

from __future__ import annotations

import gzip
import re
import sqlite3
import zlib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

_MAGIC_ZSTD, _MAGIC_GZIP, _MAGIC_SQLITE = b"\x28\xb5\x2f\xfd", b"\x1f\x8b", b"SQLite format 3\x00"


def words_found(folder: Path, prefix: str) -> dict[str, list[str]]:
    """Words that begin with `prefix` (letters only, any case, any usual encoding), by the file
    below `folder` they stand in.
    """
    forms = {form.lower() for form in _forms(prefix)}
    pattern = re.compile(b"|".join(re.escape(form) for form in sorted(forms)), re.IGNORECASE)
    found: defaultdict[str, set[str]] = defaultdict(set)
    for path in folder.rglob("*"):
        name = path.relative_to(folder).as_posix()
        if pattern.search(name.encode("utf-8", "surrogateescape")):
            found[name].add("its name")
        if not path.is_file():
            continue
        for data in _contents(path):
            for match in pattern.finditer(data):
                found[name].add(
                    data[match.start() : match.start() + 40].decode("utf-8", "backslashreplace")
                )
    return {name: sorted(words) for name, words in sorted(found.items())}


def _forms(prefix: str) -> Iterator[bytes]:
    for text in (prefix, prefix.lower(), prefix.upper()):
        yield text.encode()
        yield text.encode("latin-1")
        yield text.encode("utf-16-le")
        yield text.encode("utf-16-be")
        escaped = "".join(
            letter if letter.isascii() else f"\\u{ord(letter):04x}" for letter in text
        )
        yield escaped.encode()
        yield escaped.replace("\\", "\\\\").encode()  # JSON inside JSON
        yield "".join(
            letter if letter.isascii() else "".join(f"%{byte:02X}" for byte in letter.encode())
            for letter in text
        ).encode()


def _contents(path: Path) -> Iterator[bytes]:
    """The bytes of a file, and what is packed in them."""
    data = path.read_bytes()
    # what is compressed holds three given bytes by chance
    if not data.startswith((_MAGIC_GZIP, _MAGIC_ZSTD, b"PAR1")):
        yield data
    if data.startswith(_MAGIC_GZIP):
        yield gzip.decompress(data)
    elif data.startswith(_MAGIC_ZSTD):
        yield pa.CompressedInputStream(pa.BufferReader(data), "zstd").read()
    elif data.startswith(b"PAR1"):
        table = pq.read_table(path)
        yield repr(table.schema.metadata).encode()
        yield from _statistics(pq.read_metadata(path))
        for column in table.columns:
            yield "\n".join(map(str, column.to_pylist())).encode("utf-8", "surrogatepass")
    elif data.startswith(b"\x89PNG"):
        yield from _deflated(data)
    elif data.startswith(_MAGIC_SQLITE):
        db = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
        for (table_name,) in db.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table'"
        ).fetchall():
            try:
                rows = db.execute(f'SELECT * FROM "{table_name}"').fetchall()
            # a virtual table whose module this program does not have; its shadow tables are read
            except sqlite3.OperationalError:
                continue
            for row in rows:
                for value in row:
                    text = (
                        value
                        if isinstance(value, bytes)
                        else str(value).encode("utf-8", "surrogatepass")
                    )
                    yield text
                    if text.startswith(b"x\x9c"):
                        yield zlib.decompress(text)
        db.close()


def _statistics(metadata: Any) -> Iterator[bytes]:
    """The smallest and largest values that a Parquet file notes beside its columns."""
    for group in range(metadata.num_row_groups):
        for column in range(metadata.num_columns):
            found = metadata.row_group(group).column(column).statistics
            if found is not None and found.has_min_max:
                yield f"{found.min} {found.max}".encode("utf-8", "surrogatepass")


def _deflated(data: bytes) -> Iterator[bytes]:
    """The text chunks of a PNG."""
    for kind in (b"tEXt", b"zTXt", b"iTXt"):
        start = data.find(kind)
        if start >= 0:
            length = int.from_bytes(data[start - 4 : start], "big")
            yield data[start : start + 4 + length]
