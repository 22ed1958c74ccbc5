"""Pagination cursors: strings that callers pass back unchanged to get the next page.

They are plain text with a checksum, as assistants read and repeat them: encoded ones take two to
five times as many tokens. Other characters than letters, digits and a few signs are written `~` and
their bytes in hexadecimal, which addresses leave as they are.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import unquote
from zlib import crc32

from rag_platform.errors import InputError

_SPECIAL = re.compile(r"[^\w/.:@-]")
_NUMBER = re.compile(r"-?\d{1,18}")


def make_cursor(*values: Any) -> str:
    """The cursor of these texts and numbers; None counts as an empty text.

    >>> make_cursor("资料/a, b.md", 40, None)
    '资料/a~2c~20b.md,40,,3e24'
    """
    texts = ("" if value is None else str(value) for value in values)
    body = ",".join(_SPECIAL.sub(_escape, text) for text in texts)
    return f"{body},{_checksum(body)}"


def _escape(found: re.Match[str]) -> str:
    return "".join(f"~{byte:02x}" for byte in found[0].encode())


def _checksum(body: str) -> str:
    return f"{crc32(body.encode(errors='replace')) & 0xFFFF:04x}"


def read_cursor(cursor: str, kinds: tuple[type, ...]) -> list[Any]:
    """The values of a cursor, of these types: str or int. Raises InputError `bad_cursor` for any
    other text.
    """
    body, _, checksum = cursor.rpartition(",")
    parts = body.split(",")
    if checksum != _checksum(body) or len(parts) != len(kinds):
        raise bad_cursor(cursor)
    read = list(zip(parts, kinds, strict=True))
    if any(kind is int and not _NUMBER.fullmatch(part) for part, kind in read):
        raise bad_cursor(cursor)
    return [int(part) if kind is int else unquote(part.replace("~", "%")) for part, kind in read]


def read_offset(cursor: str | None) -> int:
    """The index of a page's first row; 0 without a cursor. Raises InputError `bad_cursor`."""
    begin: int = read_cursor(cursor, (int,))[0] if cursor else 0
    if not 0 <= begin < 2**31:
        raise bad_cursor(str(cursor))
    return begin


def bad_cursor(cursor: str) -> InputError:
    """The error for a text that is no cursor of the list."""
    return InputError(
        f"cursor {cursor[:40]!r} was not given out here; pass next_cursor of the page before"
        " unchanged",
        code="bad_cursor",
    )
