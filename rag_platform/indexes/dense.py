"""The vectors of a release: a matrix that is scanned exactly and, in a large release, an
approximate index.

dense/ann/ is the approximate index of the base, built by the strategy's dense provider if
`needs_ann`; the other files are described in `indexes.dense_files`. When fresh and gone rows
outgrow the base, a new base is written (`dense_files.outgrows`).
"""

from __future__ import annotations

import logging
import shutil
import threading
from collections.abc import Collection, Iterable, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np

from rag_platform.caching import Cache
from rag_platform.config.query import ProviderConfig, RetrievalConfig
from rag_platform.errors import IntegrityError, ProviderError, RagError
from rag_platform.indexes import dense_files
from rag_platform.indexes.bounds import Rows, kernel, products, survivors
from rag_platform.indexes.dense_files import Parts, read_matrix, read_parts
from rag_platform.ir import Candidate
from rag_platform.protocols import DenseIndex, DenseReader, Vectors
from rag_platform.registry import make_provider

ANN_DIRECTORY = "ann"
SCANNED_ROWS = 50_000  # fewer vectors are always scanned
SCAN_MS = 7.5e-8  # for each number of each row
SLOW_SCAN_MS = 40.0  # an exact scan is preferred up to this time
_SCORE_DIGITS = 6  # so that equal vectors tie whatever kernel multiplied them
_OVERFETCH = 2  # times k candidates of the approximate index, because its order is not exact
_FILTERS = 16  # restrictions whose rows are cached

_log = logging.getLogger(__name__)


# --- writing ------------------------------------------------------------------------------------


def needs_ann(rows: int, dim: int, retrieval: RetrievalConfig) -> bool:
    """True when so many vectors need an approximate index."""
    if retrieval.exact_scan_rows is not None:
        return rows > retrieval.exact_scan_rows
    return rows >= SCANNED_ROWS and rows * dim * SCAN_MS > SLOW_SCAN_MS


def has_ann(directory: Path) -> bool:
    """True when there is an approximate index of the vectors in `directory`."""
    return (directory / ANN_DIRECTORY).is_dir()


def open_ann(config: ProviderConfig, directory: Path) -> DenseReader:
    """A reader of the approximate index of the vectors in `directory`."""
    index: DenseIndex = make_provider("dense_index", config.provider, config.options)
    return index.open(directory / ANN_DIRECTORY)


def update(
    config: ProviderConfig,
    directory: Path,
    *,
    dim: int,
    removed: Collection[str],
    ids: Sequence[str],
    vectors: Vectors,
    retrieval: RetrievalConfig,
) -> None:
    """Delete `removed`, then add the rows of `ids`, in any order. A small change is written next to
    the base; otherwise a new base is, with an approximate index if `needs_ann`.
    """
    first = not (directory / dense_files.BASE).is_file()
    parts = dense_files.empty(dim) if first else read_parts(directory)
    _require_fitting(parts, removed, ids, vectors)
    changed = len(ids) + len(parts.gone) + len(parts.fresh_ids) + len(removed)
    if not first and not dense_files.outgrows(changed, len(parts.ids)):
        dense_files.write_change(directory, parts, removed, ids, vectors)
        return
    count = dense_files.write_base(directory, parts, removed, ids, vectors)
    shutil.rmtree(directory / ANN_DIRECTORY, ignore_errors=True)
    if needs_ann(count, dim, retrieval):
        index: DenseIndex = make_provider("dense_index", config.provider, config.options)
        base_ids, base = read_matrix(directory)
        index.build(directory / ANN_DIRECTORY, ids=base_ids, vectors=base)


def _require_fitting(
    parts: Parts, removed: Collection[str], ids: Sequence[str], vectors: Vectors
) -> None:
    dim = parts.base.shape[1]
    if vectors.shape != (len(ids), dim):
        raise IntegrityError(
            f"vectors {vectors.shape} do not fit {len(ids)} ids and a matrix {parts.base.shape}"
        )
    if twice := parts.find_held(ids).difference(removed):
        raise IntegrityError(f"chunk {min(twice)} would have two vectors")


# --- reading ------------------------------------------------------------------------------------


class DenseVectors:
    """Nearest neighbours, exact or approximate; safe between threads.

    The exact search scans the matrix; from 4,000 rows on only those that pass the bounds of
    `indexes.bounds`, which does not change its results. In the approximate search the index
    proposes candidates and the matrix scores them. The approximate engine is only imported when it
    is used.
    """

    def __init__(self, directory: Path, config: ProviderConfig) -> None:
        self._parts = parts = read_parts(directory)
        self._base, self._fresh = parts.base, parts.fresh  # row numbers continue in `fresh`
        self._gone = parts.gone_rows()
        # none beside a small base, nor beside one of 0.1.0
        self._rounded = dense_files.read_rounded(directory, parts.base)
        self._directory = directory
        self._config = config
        self._restricted: Cache[tuple[Collection[str], Rows]] = Cache(_FILTERS)
        self._ann: DenseReader | None = None
        self.has_ann = has_ann(directory)
        self._lock = threading.Lock()

    @property
    def dim(self) -> int:
        return int(self._base.shape[1])

    def count(self) -> int:
        """The number of vectors in the release."""
        return self._parts.count()

    def ids(self) -> list[str]:
        """The chunk ids of all vectors, ascending."""
        rows = self._live_rows()
        return sorted(self._names(np.arange(self._total) if rows is None else rows))

    def search(
        self,
        vector: Vectors,
        k: int,
        *,
        chunk_ids: Collection[str] | None = None,
        approximate: bool = False,
    ) -> tuple[list[Candidate], str]:
        """(at most k candidates by cosine similarity, ties by chunk_id; the access path `exact`,
        `ann` or `exact_after_ann_error`).

        `vector` is a unit vector of the release's embedder. `chunk_ids` restricts an exact search;
        unknown ids are ignored, and the rows of a frozenset are cached. `approximate` uses the
        approximate index if the release has one.
        """
        query = np.asarray(vector, dtype=np.float32).reshape(-1)
        if query.shape[0] != self.dim or not np.isfinite(query).all():
            raise ProviderError(
                f"the query vector has {query.shape[0]} numbers, the index {self.dim}; or it is not"
                " finite"
            )
        if k <= 0 or not self.count():
            return [], "exact"
        if chunk_ids is not None:
            return self._scan(query, k, self._rows_of(chunk_ids)), "exact"
        if not approximate or not self.has_ann:
            return self._scan(query, k), "exact"
        try:
            proposed = self._propose(query, k * _OVERFETCH)
        except RagError as error:
            _log.warning(
                "the approximate index failed, scanning all %d vectors instead: %s",
                self.count(),
                error.message,
            )
            return self._scan(query, k), "exact_after_ann_error"
        fresh = np.arange(len(self._base), self._total)
        return self._scan(query, k, np.union1d(proposed, fresh)), "ann"

    def prepare(self) -> None:
        """Import now what the first exact scan would import."""
        if self._rounded is not None:
            kernel()

    def keep_embedded(self, chunk_ids: Iterable[str]) -> list[str]:
        """The chunks that have a vector, in the given order."""
        rows = self._find(ids := list(chunk_ids)).tolist()
        return [chunk_id for chunk_id, row in zip(ids, rows, strict=True) if row >= 0]

    def vectors_of(self, chunk_ids: Sequence[str]) -> Vectors:
        """float32 [n, dim], the vector of each chunk. Raises ProviderError for one without."""
        rows = self._find(chunk_ids)
        if (unknown := np.flatnonzero(rows < 0)).size:
            raise ProviderError(f"chunk {chunk_ids[unknown[0]]} has no vector in this release")
        return self._take(rows)

    def first_vectors(self, chunk_ids: Collection[str], count: int) -> Vectors:
        """float32 [n, dim], the vectors of the first `count` of the chunks that have one."""
        ids = list(chunk_ids)
        rows = self._find(ids[:count])
        if (rows < 0).any():
            rows = self._find(ids)
        return self._take(rows[rows >= 0][:count])

    def _take(self, rows: Rows) -> Vectors:
        base = len(self._base)
        found = [self._base[row] if row < base else self._fresh[row - base] for row in rows]
        return np.stack(found) if found else np.zeros((0, self.dim), dtype=np.float32)

    def close(self) -> None:
        """Close the files of the approximate index."""
        with self._lock:
            reader, self._ann = self._ann, None
        if reader is not None:
            reader.close()

    def _propose(self, query: Vectors, wanted: int) -> Rows:
        """Rows near the query by the approximate index, without gone ones that it may propose."""
        k = wanted
        while True:
            hits = self._open_ann().search(query, k)
            found = self._find([hit.chunk_id for hit in hits])
            found = found[found >= 0]
            if len(found) >= wanted or len(hits) < k:
                return found
            k *= 4

    @property
    def _total(self) -> int:
        """The number of all rows, base, fresh and gone."""
        return len(self._base) + len(self._fresh)

    def _live_rows(self) -> Rows | None:
        """The rows that are not gone, None for all."""
        return np.delete(np.arange(self._total), self._gone) if self._gone.size else None

    def _names(self, rows: Rows) -> list[str]:
        """The chunk ids of ascending rows."""
        cut = int(np.searchsorted(rows, len(self._base)))
        based = self._parts.ids.take(rows[:cut])
        return based + self._parts.fresh_ids.take(rows[cut:] - len(self._base))

    def _find(self, chunk_ids: Collection[str]) -> Rows:
        """The row of each id, -1 for an unknown one."""
        rows = self._parts.ids.find(chunk_ids)
        if self._gone.size:
            rows[dense_files.is_among(rows, self._gone)] = -1
        if len(self._fresh):
            fresh = self._parts.fresh_ids.find(chunk_ids)
            rows = np.where(fresh >= 0, fresh + len(self._base), rows)
        return rows

    def _scan(self, query: Vectors, k: int, rows: Rows | None = None) -> list[Candidate]:
        """The k best of the ascending rows, by default of all live ones."""
        rows = self._narrow(query, k, rows)
        if rows is None:
            rows = self._live_rows()
        scores = np.round(self._scores(query, rows), _SCORE_DIGITS)
        if len(scores) > k:
            floor = np.partition(scores, len(scores) - k)[len(scores) - k]
            # includes ties with the k-th, so that the cut does not depend on the partition
            best = np.flatnonzero(scores >= floor)
        else:
            best = np.arange(len(scores))
        names = self._names(best if rows is None else rows[best])
        # rounded again as 64-bit numbers, since rounded 32-bit ones print with more digits
        rounded = np.round(scores[best].astype(np.float64), _SCORE_DIGITS)
        found = sorted(zip((-rounded).tolist(), names, strict=True))
        return [Candidate(chunk_id, -negative, "dense") for negative, chunk_id in found[:k]]

    def _scores(self, query: Vectors, rows: Rows | None) -> Vectors:
        """The inner products of the rows with the query."""
        base, fresh = None, None
        if rows is not None:
            cut = int(np.searchsorted(rows, len(self._base)))
            base, fresh = rows[:cut], rows[cut:] - len(self._base)
        return np.concatenate(
            [products(self._base, query, base), products(self._fresh, query, fresh)]
        )

    def _narrow(self, query: Vectors, k: int, rows: Rows | None) -> Rows | None:
        """The rows that may be among the k best; `rows` unchanged where narrowing does not pay."""
        count = self._total if rows is None else len(rows)
        if self._rounded is None or count < dense_files.NARROWED:
            return rows
        base = len(self._base)
        cut = base if rows is None else int(np.searchsorted(rows, base))
        kept = survivors(
            self._rounded,
            query,
            k,
            lambda some: products(self._base, query, some),
            None if rows is None else rows[:cut],
            self._gone if rows is None else None,
        )
        if len(kept) > count // 4:  # gathering so many takes longer than reading all
            return rows
        return np.concatenate([kept, np.arange(base, self._total) if rows is None else rows[cut:]])

    def _rows_of(self, chunk_ids: Collection[str]) -> Rows:
        """The ascending rows of the known ids."""
        key = id(chunk_ids)
        if cached := self._restricted.get(key):
            return cached[1]
        rows = np.sort(self._find(chunk_ids))
        # drops duplicates and -1; np.unique would import masked arrays
        rows = rows[np.diff(rows, prepend=-1) > 0]
        if isinstance(chunk_ids, frozenset):
            self._restricted.put(key, (chunk_ids, rows))
        return rows

    def _open_ann(self) -> DenseReader:
        with self._lock:
            if self._ann is None:
                self._ann = open_ann(self._config, self._directory)
            return self._ann


def measure_recall(
    config: ProviderConfig, directory: Path, *, sample: int = 50, k: int = 10
) -> float:
    """The recall@k of the approximate index against exact scans, 0 to 1, for a sample of stored
    vectors without themselves as queries; ties with the k-th best count as found.
    """
    found = wanted = 0
    with closing(DenseVectors(directory, config)) as reader:
        ids = reader.ids()
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
