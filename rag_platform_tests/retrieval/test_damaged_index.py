"""A release whose index files are damaged still answers with the retriever that is whole."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from rag_platform.answering.engine import answer
from rag_platform.ir import QueryRequest
from rag_platform.releases.release_store import current
from rag_platform.retrieval.library import Library
from rag_platform.storage.store import Store

TEXT = (
    "# Router\n"
    "\n"
    "The router retries a parcel twice before it sends the parcel to the exception"
    " chute of the line.\n"
)


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
        result = answer(
            library, QueryRequest("How often does the router retry a parcel?", namespace)
        )
    finally:
        library.close()
    assert (result.effective_mode, result.flags[flag]) == (mode, True)
    assert result.hits[0].source_uri.endswith("router.md")
    assert any(mode in warning for warning in result.warnings)


def test_versions_are_told_apart_without_the_word_index(
    publish: Any, library: Library, store: Store
) -> None:
    publish({f"{version}/a": [("Set", f"Value {version}.")] for version in ("1.2", "1.3")})
    shutil.rmtree(store.release_dir("default", "r1") / "lexical")
    result = answer(library, QueryRequest("What is set in Kestrel 1.3?"))
    assert [hit.filename for hit in result.hits] == ["1.3/a.md"]


@pytest.mark.parametrize("suffix", [".idx", ".term", ".store"])
def test_a_word_index_whose_files_are_overwritten_leaves_the_vectors(
    publish: Any, library: Library, store: Store, suffix: str
) -> None:
    """The engine opens it by the ends of its files; it panics over the rest, which Python does not
    call an Exception.
    """
    publish({"guide": [(str(n), f"The upload number {n} may have {n} MB.") for n in range(200)]})
    for path in (store.release_dir("default", "r1") / "lexical").glob(f"*{suffix}"):
        data = path.read_bytes()
        path.write_bytes(bytes([0xF3]) * (len(data) - 300) + data[-300:])
    result = answer(library, QueryRequest("How large may the upload number 7 be?"))
    assert (result.flags["sparse_failed"], result.effective_mode, result.answered) == (
        True,
        "dense",
        True,
    )
    assert any("the word index cannot be read" in warning for warning in result.warnings)
