"""Cursors: what goes in comes out, and nothing else is read."""

from __future__ import annotations

import pytest

from rag_platform.api.cursors import make_cursor, read_cursor
from rag_platform.errors import InputError


def test_values_come_back_whatever_they_hold() -> None:
    values = ("资料/a, b`~%2C.md\n", -3, "", "20261130T045650-fe985e")
    assert read_cursor(make_cursor(*values), (str, int, str, str)) == list(values)


@pytest.mark.parametrize(
    "cursor", ["", "x", ",", "notes,40", "notes,41,95ab", "notes,40,95AB", "\udc80,0000", "a,b,c,d"]
)
def test_a_cursor_that_was_changed_is_refused(cursor: str) -> None:
    assert make_cursor("notes", 40) == "notes,40,95ab"
    with pytest.raises(InputError, match="was not given out here"):
        read_cursor(cursor, (str, int))


def test_a_cursor_of_another_list_is_refused() -> None:
    for values in (("notes", "x"), ("notes", 40, 1), ("notes",)):
        with pytest.raises(InputError):
            read_cursor(make_cursor(*values), (str, int))
