"""PageRank of small graphs, computed by hand."""

from __future__ import annotations

import numpy as np
import pytest

from rag_platform.text.textrank import pagerank


def test_nodes_of_a_ring_keep_what_they_jumped_with() -> None:
    ring = np.array([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    assert pagerank(ring, np.ones(3), rounds=5).tolist() == pytest.approx([1.0, 1.0, 1.0])


def test_a_node_that_everybody_points_to_ranks_first() -> None:
    # 0 <- 1, 0 <- 2; one round from (1, 1, 1): .15 + .85 * 2, and .15 for the others
    star = np.array([[0.0, 1.0, 1.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    assert pagerank(star, np.ones(3), rounds=1).tolist() == pytest.approx([1.85, 0.15, 0.15])
    # a second round: .15 + .85 * (.15 + .15)
    assert pagerank(star, np.ones(3), rounds=2).tolist() == pytest.approx([0.405, 0.15, 0.15])


def test_it_ends_once_no_rank_changes_by_the_tolerance() -> None:
    star = np.array([[0.0, 1.0, 1.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    after_one = pagerank(star, np.ones(3), rounds=9, tolerance=0.9)
    assert after_one.tolist() == pytest.approx([1.85, 0.15, 0.15])
