"""docs/reference/constants.md lists every constant of the query path with its source."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("stage", ["query", "retrieval", "answering"])
def test_every_constant_stands_in_the_reference(stage: str) -> None:
    """Whether the page is current, test_reference.py says."""
    module = importlib.import_module(f"rag_platform.{stage}.constants")
    page = (REPOSITORY / "docs/reference/constants.md").read_text(encoding="utf-8")
    assert [name for name in vars(module) if name.isupper() and f"| `{name}` |" not in page] == []
