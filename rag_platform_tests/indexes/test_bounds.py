"""Bounds of products: what they leave out is never among the best."""

from __future__ import annotations

import numpy as np
import pytest

from rag_platform.indexes.bounds import Rounded, make_rounded, products, round_block, survivors


@pytest.fixture
def rows() -> np.ndarray:
    found = np.random.default_rng(4).normal(size=(2_000, 96)).astype(np.float32)
    found /= np.linalg.norm(found, axis=1, keepdims=True)
    return found


def rounded(rows: np.ndarray) -> Rounded:
    whole, *scales = round_block(rows)
    return make_rounded(whole, np.stack(scales))


def test_rounding_says_how_much_it_left_out() -> None:
    block = np.array([[1.0, 0.5, -0.25], [0.0, 0.0, 0.0]], dtype=np.float32)
    whole, steps, rests, lengths = round_block(block)
    assert whole.tolist() == [[127, 64, -32], [0, 0, 0]]
    assert steps[0] == pytest.approx(1 / 127)
    # .5 is written as 64 / 127 and -.25 as -32 / 127: .0039 and .0020 too much
    assert rests.tolist() == pytest.approx([0.0044, 0.0], abs=1e-4)
    assert lengths.tolist() == pytest.approx([1.1478, 0.0], abs=1e-4)


@pytest.mark.parametrize("k", [1, 10])
def test_what_is_left_out_is_not_among_the_best(rows: np.ndarray, k: int) -> None:
    gone = np.arange(0, 2_000, 7)
    for query in (rows[3], rows[7], -rows[20]):
        scores = rows @ query
        scores[gone] = -np.inf
        wanted = set(np.argsort(-scores)[:k].tolist())
        kept = survivors(
            rounded(rows), query, k, lambda some, q=query: products(rows, q, some), without=gone
        )
        assert wanted <= set(kept.tolist()) and not set(kept.tolist()) & set(gone.tolist())
        assert len(kept) < 2_000 - len(gone)


def test_where_hardly_anything_is_left_all_of_it_is_looked_at(rows: np.ndarray) -> None:
    gone = np.arange(5, 2_000)
    kept = survivors(
        rounded(rows), rows[0], 10, lambda some: products(rows, rows[0], some), without=gone
    )
    assert kept.tolist() == [0, 1, 2, 3, 4]
