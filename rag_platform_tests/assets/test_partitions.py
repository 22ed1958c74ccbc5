"""Which ranges of partition keys a job asks Dagster for."""

from __future__ import annotations

import pytest

from rag_platform.assets.partitions import contiguous


@pytest.mark.parametrize(
    ("wanted", "ranges"),
    [
        (set(), []),
        ({"a"}, [("a", "a")]),
        ({"a", "b", "c", "d"}, [("a", "d")]),
        ({"a", "b", "d"}, [("a", "b"), ("d", "d")]),
        ({"b", "d"}, [("b", "b"), ("d", "d")]),
        ({"a", "c", "d"}, [("a", "a"), ("c", "d")]),
    ],
)
def test_contiguous_ranges(wanted: set[str], ranges: list[tuple[str, str]]) -> None:
    # Dagster takes a first and a last key: keys between two wanted ones must never be part of a
    # range.
    assert contiguous(["a", "b", "c", "d"], wanted) == ranges
