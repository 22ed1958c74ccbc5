"""A release whose index files are damaged still answers with the leg that is whole."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rag_platform.indexes.release import current
from rag_platform.ir import QueryRequest
from rag_platform.retrieval.engine import answer

TEXT = "# Router\n\nThe router retries a parcel twice before it sends the parcel to the exception chute of the line.\n"


@pytest.mark.parametrize(
    ("lost", "flag", "mode"),
    [("dense/vectors.npy", "dense_failed", "sparse"), ("lexical", "sparse_failed", "dense")],
)
def test_the_other_leg_answers(shelf, tmp_path: Path, lost: str, flag: str, mode: str) -> None:  # type: ignore[no-untyped-def]
    document = tmp_path / "router.md"
    document.write_text(TEXT, encoding="utf-8")
    shelf.ingest(document)
    store, namespace = shelf.store, "default"
    damaged = store.release_dir(namespace, current(store, namespace) or "") / lost
    shutil.rmtree(damaged) if damaged.is_dir() else damaged.unlink()
    library = shelf.library()
    try:
        result = answer(library, QueryRequest("How often does the router retry a parcel?", namespace))
    finally:
        library.close()
    assert (result.effective_mode, result.flags[flag]) == (mode, True)
    assert result.hits[0].source_uri.endswith("router.md")
    assert any(mode in warning for warning in result.warnings)
