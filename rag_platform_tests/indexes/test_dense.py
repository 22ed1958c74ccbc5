"""The matrix of a release, its exact scan, and when the approximate index is asked."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_platform.config import ProviderConfig
from rag_platform.errors import IntegrityError, ProviderError
from rag_platform.indexes import dense
from rag_platform.indexes.dense import DenseVectors, read_matrix, write_matrix

CHROMA = ProviderConfig(provider="chroma")
AXES = np.eye(4, dtype=np.float32)


def ids_of(found: tuple[list, str]) -> tuple[list[str], str]:
    return [hit.chunk_id for hit in found[0]], found[1]


@pytest.fixture
def vectors(tmp_path: Path) -> DenseVectors:
    """a = x, b = y, c between x and y, d = e = z."""
    between = np.array([0.6, 0.8, 0, 0], dtype=np.float32)
    write_matrix(
        tmp_path, dim=4, removed=(), ids=["a", "b", "c", "d", "e"], vectors=np.stack([AXES[0], AXES[1], between, AXES[2], AXES[2]])
    )
    return DenseVectors(tmp_path, CHROMA)


def test_scan_orders_by_cosine_then_id(vectors: DenseVectors) -> None:
    found, plan = vectors.search(AXES[0], 3)
    assert plan == "exact"
    assert [(hit.chunk_id, hit.score, hit.source) for hit in found] == [("a", 1.0, "dense"), ("c", 0.6, "dense"), ("b", 0.0, "dense")]
    assert ids_of(vectors.search(AXES[2], 1)) == (["d"], "exact")
    assert ids_of(vectors.search(AXES[2], 9)) == (["d", "e", "a", "b", "c"], "exact")


def test_filter_restricts_and_ignores_unknown_ids(vectors: DenseVectors) -> None:
    assert ids_of(vectors.search(AXES[0], 2, chunk_ids={"b", "c", "gone"}, exact_rows=0)) == (["c", "b"], "exact")
    assert ids_of(vectors.search(AXES[0], 2, chunk_ids={"a", "b", "c", "d"})) == (["a", "c"], "exact")
    assert ids_of(vectors.search(AXES[0], 2, chunk_ids=[])) == ([], "exact")


@pytest.mark.parametrize("bad", [np.ones(3, dtype=np.float32), np.array([np.nan, 0, 0, 0], dtype=np.float32)])
def test_unusable_query_vector_is_an_error(vectors: DenseVectors, bad: np.ndarray) -> None:
    with pytest.raises(ProviderError, match="query vector"):
        vectors.search(bad, 3)


def test_a_broken_approximate_index_falls_back_visibly(vectors: DenseVectors, caplog: pytest.LogCaptureFixture) -> None:
    assert ids_of(vectors.search(AXES[0], 1, exact_rows=0)) == (["a"], "exact_after_ann_error")
    assert "no vector index" in caplog.text


@pytest.mark.integration
def test_approximate_index_proposes_and_the_matrix_scores(tmp_path: Path) -> None:
    rows = np.random.default_rng(1).normal(size=(500, 8)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    dense.update(CHROMA, tmp_path, dim=8, removed=(), added={f"c{n:03}": row for n, row in enumerate(rows)})
    dense.update(CHROMA, tmp_path, dim=8, removed=["c000", "c001"], added={"c001": rows[0]})
    reader = DenseVectors(tmp_path, CHROMA)
    assert reader.count() == 499 and reader.ids()[0] == "c001"
    exact, _ = reader.search(rows[5], 10)
    approximate, plan = reader.search(rows[5], 10, exact_rows=100)
    assert plan == "ann"
    assert [hit.chunk_id for hit in approximate] == [hit.chunk_id for hit in exact]
    assert [hit.score for hit in approximate] == pytest.approx([hit.score for hit in exact], abs=2e-6)
    assert reader.search(rows[0], 1, exact_rows=100)[0][0].chunk_id == "c001"
    reader.close()


def test_empty_matrix_can_be_written_read_and_searched(tmp_path: Path) -> None:
    write_matrix(tmp_path, dim=4, removed=(), ids=[], vectors=np.zeros((0, 4), dtype=np.float32))
    assert DenseVectors(tmp_path, CHROMA).search(AXES[0], 3) == ([], "exact")


def test_matrix_refuses_two_vectors_for_a_chunk_and_another_dimension(tmp_path: Path) -> None:
    write_matrix(tmp_path, dim=4, removed=(), ids=["a"], vectors=AXES[:1])
    with pytest.raises(IntegrityError, match="a would have two vectors"):
        write_matrix(tmp_path, dim=4, removed=(), ids=["a"], vectors=AXES[:1])
    with pytest.raises(IntegrityError, match="do not fit"):
        write_matrix(tmp_path, dim=3, removed=(), ids=["b"], vectors=np.ones((1, 3), dtype=np.float32))


def test_ids_and_matrix_that_do_not_belong_together_are_an_error(tmp_path: Path) -> None:
    write_matrix(tmp_path, dim=4, removed=(), ids=["a", "b"], vectors=AXES[:2])
    (tmp_path / "ids.txt").write_text("a\n", encoding="utf-8")
    with pytest.raises(IntegrityError, match="1 ids for a matrix"):
        read_matrix(tmp_path)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.sets(st.integers(0, 30)), st.sets(st.integers(0, 30))), max_size=5))
def test_matrix_does_not_depend_on_its_history(tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[set[int], set[int]]]) -> None:
    folder = tmp_path_factory.mktemp("matrix")
    held: set[int] = set()
    for remove, add in steps:
        new = sorted(f"c{n}" for n in add - (held - remove))
        vectors = np.array([[int(name[1:]), 1.0] for name in new], dtype=np.float32).reshape(len(new), 2)
        write_matrix(folder / "grown", dim=2, removed=[f"c{n}" for n in remove], ids=new, vectors=vectors)
        held = (held - remove) | add
    names = sorted(f"c{n}" for n in held)
    whole = np.array([[int(name[1:]), 1.0] for name in names], dtype=np.float32).reshape(len(names), 2)
    write_matrix(folder / "built", dim=2, removed=(), ids=names, vectors=whole)
    if steps:
        for name in ("vectors.npy", "ids.txt"):
            assert (folder / "grown" / name).read_bytes() == (folder / "built" / name).read_bytes()
