"""The vectors of a release: a matrix that is scanned exactly and, in a release so large that a
question may ask one, an approximate index beside it.

dense/ann/ is the approximate index over the base, built with it by the strategy's dense provider
where `needs_ann` says so; the other files are those of `indexes.dense_files`. When fresh and gone
rows outgrow the base, a new one is written (`indexes.bases`).
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
from rag_platform.indexes import bases, dense_files
from rag_platform.indexes.bounds import Rounded, Rows, kernel, products, round_rows, survivors
from rag_platform.indexes.dense_files import Parts, read_matrix, read_parts
from rag_platform.ir import Candidate
from rag_platform.observability import faults
from rag_platform.protocols import DenseIndex, DenseReader, Vectors
from rag_platform.registry import build

ANN_DIRECTORY = "ann"
SCANNED_ROWS = 50_000  # so many vectors are scanned whatever their length
SCAN_MS = 7.5e-8  # for each number of each row
SLOW_SCAN_MS = 40.0  # a scan that misses nothing is preferred up to this
_SCORE_DIGITS = 6  # equal vectors tie whatever kernel multiplied them
_MORE = 2  # the approximate index is asked for so many times k, because its order is not exact
_FILTERS = 16  # restrictions whose rows are remembered

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
    ids: Sequence[str],
    vectors: Vectors,
    retrieval: RetrievalConfig,
) -> None:
    """Delete `removed`, then add the rows of `ids`, which come in any order. A new base comes with
    an approximate index where `retrieval` may ask one; a small change leaves both as they are.
    """
    first = not dense_files.has_base(directory)
    parts = dense_files.empty(dim) if first else read_parts(directory)
    _require_fitting(parts, removed, ids, vectors)
    changed = len(ids) + len(parts.gone) + len(parts.fresh_ids) + len(removed)
    if not first and not bases.outgrows(changed, len(parts.ids)):
        dense_files.write_change(directory, parts, removed, ids, vectors)
        return
    count = dense_files.write_base(directory, parts, removed, ids, vectors)
    shutil.rmtree(directory / ANN_DIRECTORY, ignore_errors=True)
    if needs_ann(count, dim, retrieval):
        index: DenseIndex = build("dense_index", config.provider, config.options)
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
    """Nearest neighbours in two ways; safe between threads.

    The exact one scans the matrix, from 4,000 rows on narrowed by bounds
    once these are computed, beside the first questions: its hits are those of a scan over
    everything. Otherwise the approximate index proposes and the matrix scores. The approximate
    engine is not even imported before it is asked.
    """

    def __init__(self, directory: Path, config: ProviderConfig) -> None:
        self._parts = parts = read_parts(directory)
        self._base, self._fresh = parts.base, parts.fresh  # rows are counted through both
        self._gone = parts.gone_rows()
        self._on_disk = dense_files.read_rounded(directory, parts.base)
        self._directory = directory
        self._config = config
        self._restricted: Cache[tuple[Collection[str], Rows]] = Cache(_FILTERS)
        self._rounded: Rounded | None = None
        self._preparing = len(self._base) < dense_files.NARROWED
        self._ann: DenseReader | None = None
        self.has_ann = has_ann(directory)
        self._lock = threading.Lock()

    @property
    def dim(self) -> int:
        """Numbers of a vector."""
        return int(self._base.shape[1])

    def count(self) -> int:
        """Number of vectors held."""
        return self._parts.count()

    def ids(self) -> list[str]:
        """Every chunk id held, ascending."""
        rows = self._holding()
        return sorted(self._names(np.arange(self._total) if rows is None else rows))

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
        if k <= 0 or not self.count():
            return [], "exact"
        if chunk_ids is not None:
            return self._scan(query, k, self._rows_of(chunk_ids)), "exact"
        if not approximate or not self.has_ann:
            return self._scan(query, k), "exact"
        try:
            proposed = self._propose(query, k * _MORE)
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
        """Compute what narrows exact scans; otherwise the first scan begins it."""
        with self._lock:
            if self._preparing:
                return
            self._preparing = True
        self._prepare()

    def keep_embedded(self, chunk_ids: Iterable[str]) -> list[str]:
        """Those of the chunks that have a vector, in their order."""
        rows = self._find(asked := list(chunk_ids)).tolist()
        return [chunk_id for chunk_id, row in zip(asked, rows, strict=True) if row >= 0]

    def vectors_of(self, chunk_ids: Sequence[str]) -> Vectors:
        """float32 [n, dim], the stored row of each id. Raises ProviderError without one."""
        rows = self._find(chunk_ids)
        if (unknown := np.flatnonzero(rows < 0)).size:
            raise ProviderError(f"chunk {chunk_ids[unknown[0]]} has no vector in this release")
        return self._take(rows)

    def first_vectors(self, chunk_ids: Collection[str], count: int) -> Vectors:
        """float32 [n, dim], the stored rows of the first `count` of the chunks that have one."""
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
        """Let go of the approximate index's files."""
        with self._lock:
            reader, self._ann = self._ann, None
        if reader is not None:
            reader.close()

    def _propose(self, query: Vectors, wanted: int) -> Rows:
        """Rows that hold near the query, by the approximate index, which may propose gone ones."""
        asked = wanted
        while True:
            hits = self._open_ann().search(query, asked)
            found = self._find([hit.chunk_id for hit in hits])
            found = found[found >= 0]
            if len(found) >= wanted or len(hits) < asked:
                return found
            asked *= 4

    def _prepare(self) -> None:
        with faults.Attempt("dense_index.narrow") as attempt:  # questions are answered without it
            kernel()  # without it, all rows are scanned
            # those of a release that an older program built are made in memory
            self._rounded = self._on_disk or round_rows(self._base)
        if attempt.error is not None:
            _log.warning("scans of %d vectors are not narrowed: %s", len(self._base), attempt.error)

    @property
    def _total(self) -> int:
        """Rows of the base and fresh ones, those that no longer hold included."""
        return len(self._base) + len(self._fresh)

    def _holding(self) -> Rows | None:
        """The rows that hold, None where all do."""
        return np.delete(np.arange(self._total), self._gone) if self._gone.size else None

    def _names(self, rows: Rows) -> list[str]:
        """The chunk ids of rows, which ascend."""
        cut = int(np.searchsorted(rows, len(self._base)))
        based = self._parts.ids.take(rows[:cut])
        return based + self._parts.fresh_ids.take(rows[cut:] - len(self._base))

    def _find(self, chunk_ids: Collection[str]) -> Rows:
        """The row of each id, -1 for one that is not held."""
        rows = self._parts.ids.find(chunk_ids)
        if self._gone.size:
            rows[dense_files.lie_among(rows, self._gone)] = -1
        if len(self._fresh):
            fresh = self._parts.fresh_ids.find(chunk_ids)
            rows = np.where(fresh >= 0, fresh + len(self._base), rows)
        return rows

    def _scan(self, query: Vectors, k: int, rows: Rows | None = None) -> list[Candidate]:
        """The best of the rows, which ascend; of all that hold where they are None."""
        rows = self._narrow(query, k, rows)
        if rows is None:
            rows = self._holding()
        scores = np.round(self._scores(query, rows), _SCORE_DIGITS)
        if len(scores) > k:
            floor = np.partition(scores, len(scores) - k)[len(scores) - k]
            # ties with the k-th included, so that the cut does not depend on the partition
            best = np.flatnonzero(scores >= floor)
        else:
            best = np.arange(len(scores))
        names = self._names(best if rows is None else rows[best])
        # a 32-bit number has more digits when it is written out
        shown = np.round(scores[best].astype(np.float64), _SCORE_DIGITS)
        found = sorted(zip((-shown).tolist(), names, strict=True))
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
        count = self._total if rows is None else len(rows)
        if count < dense_files.NARROWED:
            return rows
        if self._rounded is None:
            self._begin_to_prepare()
        if self._rounded is None:
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
        if len(kept) > count // 4:  # gathering so many would take longer than reading them all
            return rows
        return np.concatenate([kept, np.arange(base, self._total) if rows is None else rows[cut:]])

    def _begin_to_prepare(self) -> None:
        if self._on_disk is not None:
            self.prepare()
            return
        with self._lock:
            begun, self._preparing = self._preparing, True
        if not begun:
            threading.Thread(target=self._prepare, name="rag-bounds", daemon=True).start()

    def _rows_of(self, chunk_ids: Collection[str]) -> Rows:
        """The ascending rows of the ids that are held."""
        key = id(chunk_ids)
        if remembered := self._restricted.get(key):
            return remembered[1]
        rows = np.sort(self._find(chunk_ids))
        # each once and none that is not held; np.unique would import masked arrays
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
