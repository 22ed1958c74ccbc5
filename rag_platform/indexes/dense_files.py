"""The files of a release's vectors.

dense/vectors.npy   the base: float32 [n, dim], unit rows in ascending order of chunk id
dense/ids.npy       the chunk ids of its rows, bytes of one width; ids.txt in older releases
dense/rounded.npy   its rows in 8 bits, int8 [n, dim], and
dense/scales.npy    float32 [3, n]: their steps, lengths of rounding errors, and lengths
                    (`indexes.bounds`); absent for a base so small that scans are not narrowed
dense/gone.txt      ids in the base that are no longer part of the release; absent while the release
                    has no changes, as after every full build
dense/fresh.npy     rows added since the base was written, in ascending order of chunk id; absent
                    likewise
dense/fresh.txt     the chunk ids of its rows

Readers map the base, its ids and its rounded rows into memory, so that processes share them. A
small change only writes the last three files, so that releases share the base on disk.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from rag_platform.errors import REBUILD, IntegrityError
from rag_platform.indexes.bounds import Rounded, Rows, make_rounded, round_block
from rag_platform.protocols import Vectors
from rag_platform.storage.store import atomic_path, write_text

BASE, ROUNDED = "vectors.npy", "rounded.npy"
NARROWED = 4_000  # from so many rows on a scan is narrowed by bounds first
_IDS, _OLD_IDS, _SCALES = "ids.npy", "ids.txt", "scales.npy"
_FRESH, _FRESH_IDS, _GONE = "fresh.npy", "fresh.txt", "gone.txt"
_ROWS_AT_ONCE = 16_384
# Every edit writes all changes again and every question reads them. So many rows may always differ
# from the base; above, this share of it, up to a maximum that is still cheap to write again
# (10,000 chunks: 15 MB of vectors and 30 MB of rows).
FRESH_ROWS = 1_000
FRESH_SHARE = 0.05
FRESH_MOST = 10_000


def outgrows(changed: int, base: int) -> bool:
    """True when so many changed chunks need a new base, given the size of the old one. The catalog
    and the entries of versions follow the same rule.
    """
    return changed > max(FRESH_ROWS, min(FRESH_SHARE * base, FRESH_MOST))


# --- reading ------------------------------------------------------------------------------------


class Ids:
    """Ascending chunk ids as bytes of one width, found by binary search."""

    def __init__(self, names: NDArray[np.bytes_]) -> None:
        self.names = names

    @classmethod
    def of(cls, ids: Iterable[str]) -> Ids:
        """From ascending strings."""
        return cls(_encode(ids))

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, row: int) -> str:
        return bytes(self.names[row]).decode()

    def __iter__(self) -> Iterator[str]:
        for start in range(0, len(self), _ROWS_AT_ONCE):
            yield from self.take(slice(start, start + _ROWS_AT_ONCE))

    def __contains__(self, chunk_id: object) -> bool:
        return isinstance(chunk_id, str) and bool(self.find([chunk_id])[0] >= 0)

    def take(self, rows: Rows | slice) -> list[str]:
        """The ids of some rows."""
        return [name.decode() for name in self.names[rows].tolist()]

    def find(self, chunk_ids: Collection[str]) -> Rows:
        """The row of each id, -1 for an unknown one."""
        wanted = _encode(chunk_ids)
        if not len(self) or not len(wanted):
            return np.full(len(wanted), -1, dtype=np.int64)
        # with another width numpy would copy all names
        same_width = wanted.astype(self.names.dtype)
        rows = np.searchsorted(self.names, same_width).astype(np.int64)
        is_known = self.names[np.minimum(rows, len(self) - 1)] == wanted
        return np.where(is_known, rows, -1)


def is_among(values: Rows, ascending: Rows) -> NDArray[np.bool_]:
    """Whether each value is one of the ascending ones; ten times as fast as `np.isin`."""
    places = np.minimum(np.searchsorted(ascending, values), len(ascending) - 1)
    found: NDArray[np.bool_] = ascending[places] == values
    return found


def _encode(ids: Iterable[str]) -> NDArray[np.bytes_]:
    return np.array([chunk_id.encode() for chunk_id in ids], dtype=np.bytes_)


@dataclass(frozen=True, slots=True)
class Parts:
    """The rows of a release as stored on disk."""

    ids: Ids
    base: Vectors  # memory-mapped
    gone: frozenset[str]  # ids in the base that are no longer part of the release
    fresh_ids: Ids
    fresh: Vectors

    def count(self) -> int:
        """The number of live rows."""
        return len(self.ids) - len(self.gone) + len(self.fresh_ids)

    def gone_rows(self) -> Rows:
        """The ascending row numbers of the gone ids."""
        return np.sort(self.ids.find(self.gone))

    def find_held(self, chunk_ids: Collection[str]) -> set[str]:
        """The given ids that have a live row."""
        ids = list(chunk_ids)
        base_rows, fresh_rows = self.ids.find(ids), self.fresh_ids.find(ids)
        return {
            chunk_id
            for chunk_id, row, fresh in zip(ids, base_rows, fresh_rows, strict=True)
            if fresh >= 0 or (row >= 0 and chunk_id not in self.gone)
        }


def empty(dim: int) -> Parts:
    """The parts of a release without vectors."""
    nothing = np.zeros((0, dim), dtype=np.float32)
    return Parts(Ids.of(()), nothing, frozenset(), Ids.of(()), nothing)


def read_parts(directory: Path) -> Parts:
    """The rows as stored on disk. Raises IntegrityError when ids and rows do not match."""
    names = directory / _IDS
    ids = Ids(_load(names)) if names.is_file() else _read_text(directory / _OLD_IDS)
    base = _require_rows(ids, _load(directory / BASE))
    if not (directory / _GONE).is_file():
        return Parts(ids, base, frozenset(), Ids.of(()), base[:0])
    fresh_ids = _read_text(directory / _FRESH_IDS)
    fresh = _require_rows(fresh_ids, _load(directory / _FRESH))
    gone = frozenset((directory / _GONE).read_text(encoding="utf-8").split())
    if fresh.shape[1] != base.shape[1] or (len(gone) and ids.find(gone).min() < 0):
        raise IntegrityError(
            f"fresh vectors {fresh.shape} or {len(gone)} ids do not belong to a matrix"
            f" {base.shape}; {REBUILD}"
        )
    return Parts(ids, base, gone, fresh_ids, fresh)


def read_matrix(directory: Path) -> tuple[list[str], Vectors]:
    """(ascending ids, their float32 rows [n, dim]); memory-mapped for a base without changes."""
    parts = read_parts(directory)
    if not parts.gone and not len(parts.fresh_ids):
        return list(parts.ids), parts.base
    batches = list(split_rows(parts))
    ids = [chunk_id for names, _ in batches for chunk_id in names]
    return ids, np.concatenate([*(rows for _, rows in batches), parts.base[:0]])


def split_rows(parts: Parts) -> Iterator[tuple[list[str], Vectors]]:
    """The ids and rows of `read_matrix` in batches of some thousand."""
    ids, of, rows = _merge([_without(parts.ids, parts.gone), _all(list(parts.fresh_ids))])
    for start, block in enumerate(_gather([parts.base, parts.fresh], of, rows)):
        yield ids.take(slice(start * _ROWS_AT_ONCE, (start + 1) * _ROWS_AT_ONCE)), block


def stored_ids(directory: Path, chunk_ids: Collection[str]) -> set[str]:
    """The given chunks whose vector is still stored in some file, live or gone."""
    parts, ids = read_parts(directory), list(chunk_ids)
    rows = np.maximum(parts.ids.find(ids), parts.fresh_ids.find(ids))
    return {chunk_id for chunk_id, row in zip(ids, rows, strict=True) if row >= 0}


def read_rounded(directory: Path, base: Vectors) -> Rounded | None:
    """The rounded rows of the base, None without any on disk. Raises IntegrityError when they do
    not match the base.
    """
    if not (directory / ROUNDED).is_file():
        return None
    rows, scales = _load(directory / ROUNDED), _load(directory / _SCALES)
    if rows.shape != base.shape or scales.shape != (3, len(base)):
        raise IntegrityError(
            f"rounded vectors {rows.shape} and scales {scales.shape} do not belong to a matrix"
            f" {base.shape}; {REBUILD}"
        )
    return make_rounded(rows, scales)


def _load(path: Path) -> NDArray[Any]:
    try:
        return np.asarray(np.load(path, mmap_mode="r"))
    except ValueError:  # an array without rows cannot be mapped
        return np.asarray(np.load(path))


def _read_text(path: Path) -> Ids:
    return Ids.of(path.read_text(encoding="utf-8").split())


def _require_rows(ids: Ids, matrix: Vectors) -> Vectors:
    if matrix.ndim != 2 or len(matrix) != len(ids):
        raise IntegrityError(f"{len(ids)} ids for a matrix {matrix.shape}; {REBUILD}")
    return matrix


# --- writing ------------------------------------------------------------------------------------


class Spool:
    """Collects rows in a temporary file."""

    def __init__(self, path: Path, dim: int) -> None:
        self._file = open(path, "w+b")  # noqa: SIM115
        path.unlink()  # the open file is deleted with this object
        self._dim = dim
        self.ids: list[str] = []

    def add(self, ids: Sequence[str], rows: Sequence[Vectors]) -> None:
        """Append rows with their ids."""
        if ids:
            self.ids += ids
            self._file.write(np.stack(rows).astype("<f4", copy=False).data)

    def rows(self) -> Vectors:
        """float32 [n, dim] in the order of `ids`."""
        if not self.ids:
            return np.zeros((0, self._dim), dtype=np.float32)
        self._file.flush()
        return np.memmap(self._file, dtype="<f4", mode="r", shape=(len(self.ids), self._dim))

    def close(self) -> None:
        """Close and so delete the file."""
        self._file.close()


def write_change(
    directory: Path, parts: Parts, removed: Collection[str], ids: Sequence[str], vectors: Vectors
) -> None:
    """Write the changes since the base, which is not changed."""
    gone = parts.gone | {
        name for name, row in zip(removed, parts.ids.find(removed), strict=True) if row >= 0
    }
    fresh = [_without(parts.fresh_ids, removed), _all(ids)]
    names, of, rows = _merge(fresh)
    _write_rows(directory / _FRESH, [parts.fresh, vectors], of, rows)
    write_text(directory / _FRESH_IDS, "".join(f"{chunk_id}\n" for chunk_id in names))
    write_text(directory / _GONE, "".join(f"{chunk_id}\n" for chunk_id in sorted(gone)))


def write_base(
    directory: Path, parts: Parts, removed: Collection[str], ids: Sequence[str], vectors: Vectors
) -> int:
    """Write a new base of all rows without the removed ones and of new rows, in any order; its
    bytes do not depend on the history. Returns the number of its rows.
    """
    names, of, rows = _merge(
        [
            _without(parts.ids, {*parts.gone, *removed}),
            _without(parts.fresh_ids, removed),
            _all(ids),
        ]
    )
    _write_rows(directory / BASE, [parts.base, parts.fresh, vectors], of, rows)
    with atomic_path(directory / _IDS) as temporary, open(temporary, "wb") as target:
        np.save(target, names.names)
    for name in (_OLD_IDS, _FRESH, _FRESH_IDS, _GONE, ROUNDED, _SCALES):
        (directory / name).unlink(missing_ok=True)
    _write_rounded(directory, _load(directory / BASE))
    return len(names)


_Source = tuple[Ids, Rows]  # ids, and which rows of them are used
_SourceNumbers = NDArray[np.int8]  # for each merged row the number of its source


def _all(ids: Sequence[str]) -> _Source:
    return Ids.of(ids), np.arange(len(ids))


def _without(ids: Ids, removed: Collection[str]) -> _Source:
    found = ids.find(removed)
    return ids, np.delete(np.arange(len(ids)), found[found >= 0])


def _merge(sources: Sequence[_Source]) -> tuple[Ids, _SourceNumbers, Rows]:
    """(ascending ids of all sources, the source of each, its row there). Raises IntegrityError for
    a duplicate.
    """
    names = np.concatenate([ids.names[rows] for ids, rows in sources])
    # the width depends on the present ids only, not on the history
    width = int(np.char.str_len(names).max(initial=1))
    order = np.argsort(names, kind="stable")
    names = names[order].astype(f"S{width}")
    if (twice := np.flatnonzero(names[1:] == names[:-1])).size:
        raise IntegrityError(f"chunk {names[twice[0]].decode()} would have two vectors")
    of = np.repeat(np.arange(len(sources), dtype=np.int8), [len(rows) for _, rows in sources])
    return Ids(names), of[order], np.concatenate([rows for _, rows in sources])[order]


def _gather(matrices: Sequence[Vectors], of: _SourceNumbers, rows: Rows) -> Iterator[Vectors]:
    """The merged rows in blocks of some thousand."""
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        part = slice(start, start + _ROWS_AT_ONCE)
        block = np.empty((len(rows[part]), matrices[0].shape[1]), dtype="<f4")
        for number, matrix in enumerate(matrices):
            if (own := of[part] == number).any():
                block[own] = matrix[rows[part][own]]
        yield block


def _write_rows(path: Path, matrices: Sequence[Vectors], of: _SourceNumbers, rows: Rows) -> None:
    with atomic_path(path) as temporary, open(temporary, "wb") as target:
        _write_header(target, "<f4", (len(rows), matrices[0].shape[1]))
        for block in _gather(matrices, of, rows):
            target.write(block.data)


def _write_header(target: BinaryIO, kind: str, shape: tuple[int, ...]) -> None:
    header = {"descr": kind, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(target, header)


def _write_rounded(directory: Path, base: Vectors) -> None:
    """Write the rows of the base in 8 bits, unless they are too few for narrowed scans."""
    if len(base) < NARROWED:
        return
    scales = np.empty((3, len(base)), dtype=np.float32)
    with atomic_path(directory / ROUNDED) as temporary, open(temporary, "wb") as target:
        _write_header(target, "|i1", base.shape)
        for start in range(0, len(base), _ROWS_AT_ONCE):
            part = slice(start, start + _ROWS_AT_ONCE)
            rows, *scales[:, part] = round_block(base[part])
            target.write(rows.data)
    with atomic_path(directory / _SCALES) as temporary, open(temporary, "wb") as target:
        np.save(target, scales)
