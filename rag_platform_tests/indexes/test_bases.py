"""When a base is written anew."""

from __future__ import annotations

import pytest

from rag_platform.indexes.bases import outgrows


@pytest.mark.parametrize(
    ("changed", "base", "new"),
    [
        (1_000, 10, False),  # however small the library
        (1_001, 10, True),
        (5_000, 100_000, False),  # a twentieth
        (5_001, 100_000, True),
        (10_000, 1_000_000, False),  # every small change writes them again
        (10_001, 1_000_000, True),
    ],
)
def test_a_base_is_outgrown(changed: int, base: int, new: bool) -> None:
    assert outgrows(changed, base) is new
