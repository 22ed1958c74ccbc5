"""The vectors of a release: a matrix that is scanned exactly and, in a release so large that a
question may ask one, an approximate index beside it.

dense/vectors.npy   the base: float32 [n, dim], unit rows in ascending order of chunk id,
                    memory-mapped by readers
dense/ids.txt       the chunk ids of its rows
dense/ann/          the approximate index over the base, built with it by the strategy's dense
                    provider where `needs_ann` says so
dense/gone.txt      ids of the base that no longer hold; absent while the release is one base, as
                    every full build is
dense/fresh.npy     rows that came since the base was written, in ascending order of chunk id;
                    absent likewise
dense/fresh.txt     the chunk ids of its rows

A small change writes the last three files and leaves the base as it is, so that releases share it
on disk. When fresh and gone rows outgrow FRESH_ROWS and FRESH_SHARE, a new base is written.

A scan reads a quarter of the bytes of the base: every row is kept once more in memory with its
numbers rounded to 8 bits, and with the length of what the rounding left out. For rounded vectors r'
and q' with row = r' + e and query = q' + d, the Cauchy-Schwarz inequality gives

    row . query  =  r' . q'  +  r' . d  +  e . query  <=  r' . q'  +  |r'| |d|  +  |e| |query|

so a row whose right side lies below the k-th best product known so far cannot be one of the k best.
The others, some hundred of 100,000, are multiplied in full: the answer is that of a scan over
everything. Products of 8-bit numbers are exact, whatever kernel computes them.
"""

from __future__ import annotations

import itertools
import logging
import shutil
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rag_platform.caching import Cache
from rag_platform.config.query import ProviderConfig, RetrievalConfig
from rag_platform.errors import IntegrityError, ProviderError, RagError
from rag_platform.ir import Candidate
from rag_platform.observability import faults
from rag_platform.protocols import DenseIndex, DenseReader, Vectors
from rag_platform.registry import build
from rag_platform.storage.store import atomic_path, write_text

ANN_DIRECTORY = "ann"
# so many fresh and gone rows are always scanned beside the base; above, this share of it
FRESH_ROWS = 1_000
FRESH_SHARE = 0.05
SCANNED_ROWS = 50_000  # so many vectors are scanned whatever their length
SCAN_MS = 7.5e-8  # for each number of each row
SLOW_SCAN_MS = 10.0  # a scan that misses nothing is preferred up to this
BASE, BASE_IDS = "vectors.npy", "ids.txt"
_FRESH, _FRESH_IDS, _GONE = "fresh.npy", "fresh.txt", "gone.txt"
_SCORE_DIGITS = 6  # equal vectors tie whatever kernel multiplied them
_MORE = 2  # the approximate index is asked for so many times k, because its order is not exact
_NARROWED = 4_000  # from so many rows on a scan is narrowed by bounds first
_NARROWED_BYTES = 2**29  # of rounded rows; above it no scan is fast
_FILTERS = 16  # restrictions whose rows are remembered
_REBUILD = "rebuild the release with `rag rebuild`"

_log = logging.getLogger(__name__)


# --- writing ------------------------------------------------------------------------------------


def needs_ann(rows: int, dim: int, retrieval: RetrievalConfig) -> bool:
    """True when a question to so many vectors may ask the approximate index."""
    if retrieval.exact_scan_rows is not None:
        return rows > retrieval.exact_scan_rows
    return rows >= SCANNED_ROWS and rows * dim * SCAN_MS > SLOW_SCAN_MS


def has_ann(directory: Path) -> bool:
    """True when there is an approximate index beside the vectors in `directory`."""
    return (directory / ANN_DIRECTORY).is_dir()


def open_ann(config: ProviderConfig, directory: Path) -> DenseReader:
    """A reader of the approximate index beside the vectors in `directory`."""
    index: DenseIndex = build("dense_index", config.provider, config.options)
    return index.open(directory / ANN_DIRECTORY)


def update(
    config: ProviderConfig,
    directory: Path,
    *,
    dim: int,
    removed: Collection[str],
    added: Mapping[str, Vectors],
    retrieval: RetrievalConfig,
) -> None:
    """Delete `removed`, then add `added`. A new base comes with an approximate index where
    `retrieval` may ask one; a small change leaves both as they are.
    """
    first = not (directory / BASE_IDS).is_file()
    parts = _empty(dim) if first else read_parts(directory)
    ids, vectors = sorted(added), stack_rows(added, dim)
    gone = frozenset(removed)
    left_out = gone.intersection(parts.ids) | parts.gone
    kept = {
        chunk_id: row
        for chunk_id, row in zip(parts.fresh_ids, parts.fresh, strict=True)
        if chunk_id not in gone
    }
    changed = len(kept) + len(ids) + len(left_out)
    if not first and changed <= max(FRESH_ROWS, FRESH_SHARE * len(parts.ids)):
        _require_fitting(parts, removed, ids, vectors)
        fresh = kept | dict(zip(ids, vectors, strict=True))
        rows = (sorted(fresh), stack_rows(fresh, dim), frozenset[str]())
        _write_matrix(directory, _FRESH, _FRESH_IDS, [rows], dim)
        write_text(directory / _GONE, "".join(f"{chunk_id}\n" for chunk_id in sorted(left_out)))
        return
    write_matrix(directory, dim=dim, removed=removed, ids=ids, vectors=vectors)
    shutil.rmtree(directory / ANN_DIRECTORY, ignore_errors=True)
    base_ids, base = read_matrix(directory)
    if needs_ann(len(base_ids), dim, retrieval):
        index: DenseIndex = build("dense_index", config.provider, config.options)
        index.build(directory / ANN_DIRECTORY, ids=base_ids, vectors=base)


def stack_rows(vectors: Mapping[str, Vectors], dim: int) -> Vectors:
    """float32 [n, dim], one row for each id in ascending order."""
    return (
        np.stack([vectors[chunk_id] for chunk_id in sorted(vectors)])
        if vectors
        else np.zeros((0, dim), dtype=np.float32)
    )


def write_matrix(
    directory: Path, *, dim: int, removed: Collection[str], ids: Sequence[str], vectors: Vectors
) -> None:
    """Make one base of all rows in `directory` without the removed ones and of sorted new rows; its
    bytes do not depend on the history.
    """
    parts = read_parts(directory) if (directory / BASE_IDS).is_file() else _empty(dim)
    _require_fitting(parts, removed, ids, vectors)
    gone = frozenset(removed)
    sources = [
        (parts.ids, parts.base, parts.gone | gone),
        (parts.fresh_ids, parts.fresh, gone),
        (ids, vectors, frozenset[str]()),
    ]
    _write_matrix(directory, BASE, BASE_IDS, sources, dim)
    del parts, sources
    for name in (_FRESH, _FRESH_IDS, _GONE):
        (directory / name).unlink(missing_ok=True)


def _write_matrix(
    directory: Path,
    name: str,
    ids_name: str,
    sources: Sequence[tuple[Sequence[str], Vectors, Collection[str]]],
    dim: int,
) -> None:
    """Write the rows of (ids, rows, ids that are left out), merged by id."""
    merged = sorted(
        (chunk_id, source, row)
        for source, (ids, _, out) in enumerate(sources)
        for row, chunk_id in enumerate(ids)
        if chunk_id not in out
    )
    with atomic_path(directory / name) as temporary, open(temporary, "wb") as target:
        header = {"descr": "<f4", "fortran_order": False, "shape": (len(merged), dim)}
        np.lib.format.write_array_header_1_0(target, header)
        # Rows that stand together in their source are written together, straight from it.
        for _, run in itertools.groupby(
            enumerate(merged), key=lambda item: (item[1][1], item[1][2] - item[0])
        ):
            rows = [(source, row) for _, (_, source, row) in run]
            (source, start), (_, end) = rows[0], rows[-1]
            target.write(
                np.ascontiguousarray(sources[source][1][start : end + 1], dtype="<f4").data
            )
    write_text(directory / ids_name, "".join(f"{chunk_id}\n" for chunk_id, _, _ in merged))


def _require_fitting(
    parts: Parts, removed: Collection[str], ids: Sequence[str], vectors: Vectors
) -> None:
    dim = parts.base.shape[1]
    if vectors.shape != (len(ids), dim):
        raise IntegrityError(
            f"vectors {vectors.shape} do not fit {len(ids)} ids and a matrix {parts.base.shape}"
        )
    held = (set(parts.ids) - parts.gone) | set(parts.fresh_ids)
    if twice := (held - set(removed)).intersection(ids):
        raise IntegrityError(f"chunk {min(twice)} would have two vectors")


# --- reading ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Parts:
    """The rows of a release as they lie on disk."""

    ids: list[str]
    base: Vectors  # memory-mapped
    gone: frozenset[str]  # ids of the base that no longer hold
    fresh_ids: list[str]
    fresh: Vectors

    def count(self) -> int:
        """Number of rows that hold."""
        return len(self.ids) - len(self.gone) + len(self.fresh_ids)


def _empty(dim: int) -> Parts:
    nothing = np.zeros((0, dim), dtype=np.float32)
    return Parts([], nothing, frozenset(), [], nothing)


def read_parts(directory: Path) -> Parts:
    """The rows as they lie on disk. Raises IntegrityError when ids and rows do not fit."""
    ids, base = _read(directory / BASE_IDS, directory / BASE)
    if not (directory / _GONE).is_file():
        return Parts(ids, base, frozenset(), [], base[:0])
    fresh_ids, fresh = _read(directory / _FRESH_IDS, directory / _FRESH)
    gone = frozenset((directory / _GONE).read_text(encoding="utf-8").split())
    if fresh.shape[1] != base.shape[1] or not gone.issubset(ids):
        raise IntegrityError(
            f"fresh vectors {fresh.shape} or {len(gone)} ids do not belong to a matrix"
            f" {base.shape}; {_REBUILD}"
        )
    return Parts(ids, base, gone, fresh_ids, fresh)


def _read(ids_path: Path, path: Path) -> tuple[list[str], Vectors]:
    ids = ids_path.read_text(encoding="utf-8").split()
    # An array without rows cannot be mapped.
    matrix: Vectors = np.asarray(np.load(path, mmap_mode="r") if ids else np.load(path))
    if matrix.ndim != 2 or len(matrix) != len(ids):
        raise IntegrityError(f"{len(ids)} ids for a matrix {matrix.shape}; {_REBUILD}")
    return ids, matrix


def read_matrix(directory: Path) -> tuple[list[str], Vectors]:
    """Ids in ascending order and their float32 rows [n, dim]; a single base is memory-mapped."""
    parts = read_parts(directory)
    if not parts.gone and not parts.fresh_ids:
        return parts.ids, parts.base
    rows = [row for row, chunk_id in enumerate(parts.ids) if chunk_id not in parts.gone]
    ids = [*(parts.ids[row] for row in rows), *parts.fresh_ids]
    order = sorted(range(len(ids)), key=ids.__getitem__)
    return [ids[row] for row in order], np.concatenate([parts.base[rows], parts.fresh])[order]


def stored_ids(directory: Path) -> set[str]:
    """Every chunk id of which some file holds a vector, those that no longer hold included."""
    parts = read_parts(directory)
    return {*parts.ids, *parts.fresh_ids}


class DenseVectors:
    """Nearest neighbours in two ways; safe between threads.

    The exact one scans the matrix, from 4,000 rows on narrowed by bounds
    once these are computed, beside the first questions: its hits are those of a scan over
    everything. Otherwise the approximate index proposes and the matrix scores. The approximate
    engine is not even imported before it is asked.
    """

    def __init__(self, directory: Path, config: ProviderConfig) -> None:
        parts = read_parts(directory)
        self._ids = [*parts.ids, *parts.fresh_ids]  # by row: those of the base, then the fresh ones
        self._base, self._fresh = parts.base, parts.fresh
        self._holding: Rows | None = None  # the rows that hold, None where all do
        if parts.gone:
            self._holding = np.array(
                [n for n, i in enumerate(self._ids) if n >= len(parts.ids) or i not in parts.gone],
                dtype=np.int64,
            )
        self._count = parts.count()
        self._directory = directory
        self._config = config
        self._rows: dict[str, int] | None = None
        self._restricted: Cache[tuple[Collection[str], Rows]] = Cache(_FILTERS)
        self._rounded: Rounded | None = None
        self._preparing = len(self._base) < _NARROWED or self._base.size > _NARROWED_BYTES
        self._ann: DenseReader | None = None
        self.has_ann = has_ann(directory)
        self._lock = threading.Lock()

    @property
    def dim(self) -> int:
        """Numbers of a vector."""
        return int(self._base.shape[1])

    def count(self) -> int:
        """Number of vectors held."""
        return self._count

    def ids(self) -> list[str]:
        """Every chunk id held, ascending."""
        return sorted(self._row_of())

    def search(
        self,
        vector: Vectors,
        k: int,
        *,
        chunk_ids: Collection[str] | None = None,
        approximate: bool = False,
    ) -> tuple[list[Candidate], str]:
        """At most k candidates by cosine similarity, equal ones by chunk_id, and the way: `exact`,
        `ann` or `exact_after_ann_error`.

        `approximate` asks the approximate index where the release has one.

        `vector` is a unit vector of the release's embedder. `chunk_ids` restricts what may match,
        exactly always; unknown ids in it are ignored, and the rows of a frozenset are looked up
        once.
        """
        query = np.asarray(vector, dtype=np.float32).reshape(-1)
        if query.shape[0] != self.dim or not np.isfinite(query).all():
            raise ProviderError(
                f"the query vector has {query.shape[0]} numbers, the index {self.dim}; or it is not"
                " finite"
            )
        if k <= 0 or not self._count:
            return [], "exact"
        if chunk_ids is not None:
            return self._scan(query, k, self._rows_of(chunk_ids)), "exact"
        if not approximate or not self.has_ann:
            return self._scan(query, k, self._holding), "exact"
        try:
            proposed = self._propose(query, k * _MORE)
        except RagError as error:
            _log.warning(
                "the approximate index failed, scanning all %d vectors instead: %s",
                self._count,
                error.message,
            )
            return self._scan(query, k, self._holding), "exact_after_ann_error"
        fresh = range(len(self._base), len(self._ids))
        return self._scan(query, k, np.array(sorted({*proposed, *fresh}), dtype=np.int64)), "ann"

    def prepare(self) -> None:
        """Compute what narrows exact scans; otherwise the first scan begins it."""
        with self._lock:
            if self._preparing:
                return
            self._preparing = True
        self._prepare()

    def keep_embedded(self, chunk_ids: Iterable[str]) -> list[str]:
        """Those of the chunks that have a vector, in their order."""
        known = self._row_of()
        return [chunk_id for chunk_id in chunk_ids if chunk_id in known]

    def vectors_of(self, chunk_ids: Sequence[str]) -> Vectors:
        """float32 [n, dim], the stored row of each id. Raises ProviderError without one."""
        known = self._row_of()
        if unknown := [chunk_id for chunk_id in chunk_ids if chunk_id not in known]:
            raise ProviderError(f"chunk {unknown[0]} has no vector in this release")
        rows, base = [known[chunk_id] for chunk_id in chunk_ids], len(self._base)
        found = [self._base[row] if row < base else self._fresh[row - base] for row in rows]
        return np.stack(found) if found else np.zeros((0, self.dim), dtype=np.float32)

    def close(self) -> None:
        """Let go of the approximate index's files."""
        with self._lock:
            reader, self._ann = self._ann, None
        if reader is not None:
            reader.close()

    def _propose(self, query: Vectors, wanted: int) -> list[int]:
        """Rows that hold near the query, by the approximate index, which may propose gone ones."""
        known, asked = self._row_of(), wanted
        while True:
            hits = self._open_ann().search(query, asked)
            found = [known[hit.chunk_id] for hit in hits if hit.chunk_id in known]
            if len(found) >= wanted or len(hits) < asked:
                return found
            asked *= 4

    def _prepare(self) -> None:
        with faults.Attempt("dense_index.narrow") as attempt:  # questions are answered without it
            self._row_of()
            kernel()  # without it, all rows are scanned
            self._rounded = round_rows(self._base)
        if attempt.error is not None:
            _log.warning("scans of %d vectors are not narrowed: %s", len(self._base), attempt.error)

    def _scan(self, query: Vectors, k: int, rows: Rows | None) -> list[Candidate]:
        """The best of the rows, which ascend; of all where they are None."""
        rows = self._narrow(query, k, rows)
        scores = np.round(self._scores(query, rows), _SCORE_DIGITS)
        if len(scores) > k:
            floor = np.partition(scores, len(scores) - k)[len(scores) - k]
            # ties with the k-th included, so that the cut does not depend on the partition
            best = np.flatnonzero(scores >= floor)
        else:
            best = np.arange(len(scores))
        numbers = best if rows is None else rows[best]
        # a 32-bit number has more digits when it is written out
        shown = np.round(scores[best].astype(np.float64), _SCORE_DIGITS)
        found = sorted(
            zip((-shown).tolist(), [self._ids[row] for row in numbers.tolist()], strict=True)
        )
        return [Candidate(chunk_id, -negative, "dense") for negative, chunk_id in found[:k]]

    def _scores(self, query: Vectors, rows: Rows | None) -> Vectors:
        """The products of the rows with the query."""
        base, fresh = None, None
        if rows is not None:
            cut = int(np.searchsorted(rows, len(self._base)))
            base, fresh = rows[:cut], rows[cut:] - len(self._base)
        return np.concatenate(
            [products(self._base, query, base), products(self._fresh, query, fresh)]
        )

    def _narrow(self, query: Vectors, k: int, rows: Rows | None) -> Rows | None:
        """Rows that may be among the best; all of them where that costs too much to know."""
        count = len(self._ids) if rows is None else len(rows)
        if count < _NARROWED:
            return rows
        if self._rounded is None:
            self._begin_to_prepare()
            return rows
        base = len(self._base)
        cut = base if rows is None else int(np.searchsorted(rows, base))
        kept = survivors(
            self._rounded,
            query,
            k,
            lambda some: products(self._base, query, some),
            None if rows is None else rows[:cut],
        )
        if len(kept) > count // 4:  # gathering so many would take longer than reading them all
            return rows
        return np.concatenate(
            [kept, np.arange(base, len(self._ids)) if rows is None else rows[cut:]]
        )

    def _begin_to_prepare(self) -> None:
        with self._lock:
            begun, self._preparing = self._preparing, True
        if not begun:
            threading.Thread(target=self._prepare, name="rag-bounds", daemon=True).start()

    def _rows_of(self, chunk_ids: Collection[str]) -> Rows:
        """The ascending rows of the ids that are held."""
        key = id(chunk_ids)
        if remembered := self._restricted.get(key):
            return remembered[1]
        known = self._row_of()
        rows = np.array(
            sorted(known[chunk_id] for chunk_id in chunk_ids if chunk_id in known), dtype=np.int64
        )
        if isinstance(chunk_ids, frozenset):
            self._restricted.put(key, (chunk_ids, rows))
        return rows

    def _row_of(self) -> dict[str, int]:
        if self._rows is None:
            rows = range(len(self._ids)) if self._holding is None else self._holding.tolist()
            self._rows = {self._ids[row]: row for row in rows}
        return self._rows

    def _open_ann(self) -> DenseReader:
        with self._lock:
            if self._ann is None:
                self._ann = open_ann(self._config, self._directory)
            return self._ann


def measure_recall(
    config: ProviderConfig, directory: Path, *, sample: int = 50, k: int = 10
) -> float:
    """The share of the k best of a scan that the approximate index finds too, over stored vectors
    but without themselves; a hit that ties with the k-th best counts.
    """
    found = wanted = 0
    with closing(DenseVectors(directory, config)) as reader:
        ids = reader.ids()
        reader.prepare()
        for chunk_id in ids[:: max(1, len(ids) // sample)][:sample]:
            (vector,) = reader.vectors_of([chunk_id])
            best, near = (
                [
                    hit.score
                    for hit in reader.search(vector, k + 1, approximate=way)[0]
                    if hit.chunk_id != chunk_id
                ][:k]
                for way in (False, True)
            )
            found += sum(score >= best[-1] for score in near)
            wanted += len(best)
    return round(found / max(1, wanted), 4)


Rows = NDArray[np.int64]

# sums of 32-bit products are rounded, and scores that round to the same six digits tie
_SLACK = 1e-5
_LONGER = 1.00001  # lengths are never told too short
_LARGEST = 127
# from this part of the rows on reading all of them is faster than gathering some
_SCANNED, _SCANNED_BYTES = 4, 20
# rows that are copied side by side at a time, which stay in the processor's cache
_GATHERED = 1_024
_BLOCK = 64  # the best rows of blocks of that many rows are multiplied first
_ROWS_AT_ONCE = 16_384


@dataclass(frozen=True, slots=True)
class Rounded:
    """The rows of one matrix in 8 bits: row = step * bytes + what is left out."""

    rows: NDArray[np.int8]  # [n, dim]
    steps: Vectors  # [n]
    rests: Vectors  # [n], the lengths of what is left out, at least
    # the length of the longest rounded row, at least; unit rows hardly differ in it
    longest: np.float32
    most: np.float32  # the largest of the rests


@cache
def kernel() -> Callable[..., Any]:
    """Multiplies 8-bit rows without the interpreter's lock. Raises ImportError."""
    from simsimd import cdist  # not to be paid for by a command that asks nothing

    found: Callable[..., Any] = cdist
    return found


def round_rows(matrix: Vectors) -> Rounded:
    """The rows [n, dim] in 8 bits; a fifth of a second for 100,000 rows of 384."""
    count, dim = matrix.shape
    rows, steps, rests = (
        np.empty((count, dim), dtype=np.int8),
        *(np.empty(count, dtype=np.float32) for _ in range(2)),
    )
    longest = np.float32(0.0)
    for start in range(0, count, _ROWS_AT_ONCE):
        part = slice(start, start + _ROWS_AT_ONCE)
        block = np.asarray(matrix[part], dtype=np.float32)
        steps[part] = np.maximum(
            np.abs(block).max(axis=1, initial=0.0), np.float32(1e-30)
        ) / np.float32(_LARGEST)
        whole = np.rint(block / steps[part, None])
        rows[part] = whole
        whole *= steps[part, None]
        longest = max(longest, _lengths(whole).max())
        whole -= block
        rests[part] = _lengths(whole)
    return Rounded(rows, steps, rests, longest, rests.max(initial=0.0))


def survivors(
    matrix: Rounded,
    query: Vectors,
    k: int,
    product: Callable[[Rows], Vectors],
    rows: Rows | None = None,
) -> Rows:
    """Ascending rows among which are the k best and all that tie with the k-th; of `rows`, which
    ascend, where given.

    `product` gives the exact products of some rows with the query.
    """
    asked = round_rows(query.reshape(1, -1))
    some: Any = slice(None) if rows is None else rows
    guess = _dots(matrix.rows, asked.rows, rows)
    guess *= matrix.steps[some]
    guess *= asked.steps[0]
    first = _promising(guess, k)
    if len(first) < k:
        return np.arange(len(guess), dtype=np.int64) if rows is None else rows
    known = product(first if rows is None else rows[first])
    floor = np.partition(known, len(known) - k)[len(known) - k]
    least, length = (
        floor - _SLACK - matrix.longest * asked.rests[0],
        np.float32(np.linalg.norm(query) * _LONGER),
    )
    # the worst bound of all rows leaves few to look at
    near = np.flatnonzero(guess >= least - matrix.most * length)
    near_rows = near if rows is None else rows[near]
    kept: Rows = near_rows[guess[near] + matrix.rests[near_rows] * length >= least]
    return kept


def products(matrix: Vectors, query: Vectors, rows: Rows | None = None) -> Vectors:
    """The inner products of the rows with the query, float32 [n]; of some rows where given, to the
    last bit those of `matrix[rows]`.

    Not `matrix @ query`: BLAS splits even small products over all cores, and waits for threads that
    a busy machine does not run (2,000 rows beside an ingest: p95 28 ms against 0.3 ms; the fastest
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
    table = guess[: blocks * _BLOCK].reshape(blocks, _BLOCK)
    wanted = min(2 * k, blocks)
    chosen = np.argpartition(-table.max(axis=1), wanted - 1)[:wanted]
    promising: Rows = chosen * _BLOCK + table[chosen].argmax(axis=1)
    return promising


def _lengths(rows: Vectors) -> Any:
    return np.sqrt(np.einsum("ij,ij->i", rows, rows)) * np.float32(_LONGER)
