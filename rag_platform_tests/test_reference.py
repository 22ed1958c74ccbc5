"""docs/reference is what the code says."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.mark.integration
def test_the_reference_is_current() -> None:
    spec = importlib.util.spec_from_file_location("reference", REPOSITORY / "tools/reference.py")
    assert spec is not None and spec.loader is not None
    reference = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(reference)
    pages = reference.pages()
    assert len(pages) == 5 and all(text.count("\n") > 40 for text in pages.values())
    for name, text in pages.items():
        written = (REPOSITORY / "docs" / "reference" / name).read_text(encoding="utf-8")
        assert written == text, f"run `make reference`: {name} is not current"
