"""A release has an approximate index only where a question may ask one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rag_platform.releases import release_store
from rag_platform.releases.manifest import read_manifest
from rag_platform_tests.release_checks import failed_checks

GUIDE = (
    "# Guide\n"
    "\n"
    "The gateway listens on port 8080.\n"
    "\n"
    "## Limits\n"
    "\n"
    "Error PPR-9087 means that the licence is missing.\n"
)

pytestmark = pytest.mark.integration


def test_a_release_that_no_question_would_ask_approximately_has_no_such_index(
    shelf: Any, tmp_path: Path
) -> None:
    """Nor does it take over that of its parent, which an older program built at every size."""
    guide, config = tmp_path / "guide.md", shelf.settings.strategies_dir / "tiny.yaml"
    words = config.read_text(encoding="utf-8")
    guide.write_text(GUIDE, encoding="utf-8")
    config.write_text(words + "retrieval: {exact_scan_rows: 0}\n", encoding="utf-8")
    first = shelf.ingest(guide)
    assert (
        shelf.store.release_dir("default", first) / "dense" / "ann" / "chroma.sqlite3"
    ).is_file()
    config.write_text(words, encoding="utf-8")
    guide.write_text(GUIDE.replace("8080", "9090"), encoding="utf-8")
    second = shelf.ingest(guide)
    directory = shelf.store.release_dir("default", second)
    manifest = read_manifest(directory)
    assert manifest.parent == first and not manifest.delta["full_build"]
    assert not (directory / "dense" / "ann").exists() and not [
        name for name in manifest.files if "/ann/" in name
    ]
    for release_id in (first, second):
        assert failed_checks(shelf.store, release_id) == {}
    opened = release_store.open_release(shelf.store, "default")
    assert opened.dense is not None
    vector = opened.dense.vectors_of(opened.dense.ids()[:1])[0]
    assert opened.dense.search(vector, 3, approximate=True) == opened.dense.search(vector, 3)
    opened.close()
