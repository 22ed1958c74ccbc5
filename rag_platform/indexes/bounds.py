"""Exact scans that fully multiply few rows, by upper bounds from copies of the rows in 8 bits.

A scan reads a quarter of the bytes of the base: a copy of each row, rounded to 8 bits, and the
length of its rounding error. For rounded vectors r' and q' with row = r' + e and query = q' + d,
the Cauchy-Schwarz inequality gives

    row . query  =  r' . q'  +  r' . d  +  e . query  <=  r' . q'  +  |r'| |d|  +  |e| |query|

so a row whose right side is below the k-th best product known so far cannot be one of the k best.
The others, some hundred of 100,000, are multiplied in full, so the result equals that of a full
scan. Products of 8-bit numbers are exact, whatever kernel computes them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rag_platform.protocols import Vectors

Rows = NDArray[np.int64]

# covers rounding errors of sums of 32-bit products, and ties of scores rounded to six digits
_SLACK = 1e-5
_LENGTH_FACTOR = 1.00001  # so that lengths are upper bounds despite rounding
_LARGEST = 127
# above 1/n of the rows, reading all is faster than gathering some; for float32 and 8 bits
_SCANNED, _SCANNED_BYTES = 4, 20
_GATHERED = 1_024  # rows that are copied at a time, so that they stay in the processor's cache
_BLOCK = 64  # the best row of each block of so many rows is multiplied first


@dataclass(frozen=True, slots=True)
class Rounded:
    """The rows of a matrix in 8 bits: row = step * rounded row + rounding error."""

    rows: NDArray[np.int8]  # [n, dim]
    steps: Vectors  # [n]
    rests: Vectors  # [n], upper bounds of the lengths of the rounding errors
    # upper bound of the length of all rounded rows; those of unit rows hardly differ
    longest: np.float32
    most: np.float32  # the largest of the rests


@cache
def kernel() -> Callable[..., Any]:
    """Multiplies 8-bit rows without the interpreter's lock. Raises ImportError."""
    from simsimd import cdist  # late, as commands without a question do not need it

    found: Callable[..., Any] = cdist
    return found


def round_block(block: Vectors) -> tuple[NDArray[np.int8], Vectors, Vectors, Vectors]:
    """(rows in 8 bits, steps, lengths of the rounding errors, lengths of the rounded rows) of some
    rows [n, dim].
    """
    block = np.asarray(block, dtype=np.float32)
    steps = np.maximum(np.abs(block).max(axis=1, initial=0.0), np.float32(1e-30)) / np.float32(
        _LARGEST
    )
    whole = np.rint(block / steps[:, None])
    rows = whole.astype(np.int8)
    whole *= steps[:, None]
    lengths = _lengths(whole)
    whole -= block
    return rows, steps, _lengths(whole), lengths


def make_rounded(rows: NDArray[np.int8], scales: Vectors) -> Rounded:
    """The rows with their `scales` [3, n]: steps, lengths of rounding errors, lengths."""
    steps, rests, lengths = scales
    return Rounded(rows, steps, rests, lengths.max(initial=0.0), rests.max(initial=0.0))


def survivors(
    matrix: Rounded,
    query: Vectors,
    k: int,
    product: Callable[[Rows], Vectors],
    rows: Rows | None = None,
    without: Rows | None = None,
) -> Rows:
    """Ascending rows that include the k best and all ties with the k-th, of the ascending `rows`,
    by default all but `without`. `product` returns the exact products of rows with the query.
    """
    rounded, (step,), (rest,), _ = round_block(query.reshape(1, -1))
    some: Any = slice(None) if rows is None else rows
    guess = _dots(matrix.rows, rounded, rows)
    guess *= matrix.steps[some]
    guess *= step
    if without is not None:
        guess[without] = -np.inf
    first = _promising(guess, k)
    if len(first) < k:
        return np.flatnonzero(guess > -np.inf) if rows is None else rows
    known = product(first if rows is None else rows[first])
    floor = np.partition(known, len(known) - k)[len(known) - k]
    least, length = (
        floor - _SLACK - matrix.longest * rest,
        np.float32(np.linalg.norm(query) * _LENGTH_FACTOR),
    )
    # one common bound first, which leaves few rows
    near = np.flatnonzero(guess >= least - matrix.most * length)
    near_rows = near if rows is None else rows[near]
    kept: Rows = near_rows[guess[near] + matrix.rests[near_rows] * length >= least]
    return kept


def products(matrix: Vectors, query: Vectors, rows: Rows | None = None) -> Vectors:
    """The inner products of the rows with the query, float32 [n]; with `rows` bit-identical to
    those of `matrix[rows]`.

    Not `matrix @ query`: BLAS splits even small products over all cores, and waits for threads that
    a busy machine does not run (2,000 rows during an ingest: p95 28 ms against 0.3 ms; the fastest
    calls: 0.03 ms against 0.11, over 20,000 rows 1.5 ms against 1.2).
    """
    if rows is None or len(rows) > len(matrix) // _SCANNED:
        whole: Vectors = np.einsum("ij,j->i", matrix, query)
        return whole if rows is None else whole[rows]
    found = np.empty(len(rows), dtype=np.float32)
    copied = np.empty((min(_GATHERED, len(rows)), matrix.shape[1]), dtype=np.float32)
    for start in range(0, len(rows), _GATHERED):
        some = rows[start : start + _GATHERED]
        block = copied[: len(some)]
        np.take(matrix, some, axis=0, out=block, mode="clip")  # the other modes copy once more
        np.einsum("ij,j->i", block, query, out=found[start : start + _GATHERED])
    return found


def _dots(matrix: NDArray[np.int8], query: NDArray[np.int8], rows: Rows | None) -> Vectors:
    """Products of 8-bit rows with the query [1, dim], float32 [n]; exact up to a dim of 1,040."""
    cdist = kernel()
    if rows is None or len(rows) > len(matrix) // _SCANNED_BYTES:
        whole: Vectors = np.asarray(cdist(query, matrix, "dot", out_dtype="float32"))[0]
        return whole if rows is None else whole[rows]
    found: Vectors = np.asarray(cdist(query, matrix[rows], "dot", out_dtype="float32"))[0]
    return found


def _promising(guess: Vectors, k: int) -> Rows:
    """The best row of each of the 2 * k best blocks, or of all blocks."""
    blocks = len(guess) // _BLOCK
    if not blocks:
        return np.zeros(0, dtype=np.int64)
    # one block is a column: the maxima of columns take a sixth of the time of those of rows
    table = guess[: blocks * _BLOCK].reshape(_BLOCK, blocks)
    wanted = min(2 * k, blocks)
    chosen = np.argpartition(-table.max(axis=0), wanted - 1)[:wanted]
    promising: Rows = table[:, chosen].argmax(axis=0) * blocks + chosen
    return promising[guess[promising] > -np.inf]


def _lengths(rows: Vectors) -> Any:
    return np.sqrt(np.einsum("ij,ij->i", rows, rows)) * np.float32(_LENGTH_FACTOR)
