"""Pagination cursors: opaque strings that callers pass back unchanged to get the next page."""

from __future__ import annotations

import base64
import json
from typing import Any

from rag_platform.errors import InputError


def make_cursor(*values: Any) -> str:
    """The cursor that encodes these JSON values."""
    return base64.urlsafe_b64encode(json.dumps(values, ensure_ascii=False).encode()).decode()


def read_cursor(cursor: str, kinds: tuple[type, ...]) -> list[Any]:
    """The values of a cursor, of these types. Raises InputError `bad_cursor` for any other text."""
    try:
        values = json.loads(base64.urlsafe_b64decode(cursor.encode()))
    except (ValueError, RecursionError):
        values = None
    matching = isinstance(values, list) and len(values) == len(kinds)
    if not matching or not all(map(isinstance, values, kinds)):
        raise bad_cursor(cursor)
    return list(values)


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
