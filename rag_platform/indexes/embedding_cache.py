"""Caches vectors by content hash, embedder and text normalisation."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rag_platform.errors import IntegrityError
from rag_platform.ir import EmbedderInfo
from rag_platform.protocols import Vectors
from rag_platform.providers.joined import join_vectors
from rag_platform.storage.sqlite_files import connect_versioned, select_in, shrink, transaction

SCHEMA_VERSION = 1
Space = tuple[str, str, str]  # embedder id, embedder version, text_norm_profile_id
_EMPTY_SHARE = 0.25  # of the pages, above which the file is vacuumed


def parts_of(info: EmbedderInfo) -> list[EmbedderInfo]:
    """The embedders whose vectors are stored for this one: the parts of a joined one, or itself."""
    return [EmbedderInfo(part.embedder_id, part.version, part.dim) for part in info.parts] or [info]


_SCHEMA = """
CREATE TABLE IF NOT EXISTS spaces (space_id INTEGER PRIMARY KEY, embedder_id TEXT NOT NULL,
    embedder_version TEXT NOT NULL, text_norm_profile_id TEXT NOT NULL, dim INTEGER NOT NULL,
    bytes_per_second REAL, UNIQUE (embedder_id, embedder_version, text_norm_profile_id));
CREATE TABLE IF NOT EXISTS embeddings (space_id INTEGER NOT NULL, content_hash TEXT NOT NULL,
    vector BLOB NOT NULL, PRIMARY KEY (space_id, content_hash));
"""


class EmbeddingCache:
    """The cache; safe between threads and processes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._db, self._read_only = connect_versioned(
            path, SCHEMA_VERSION, _SCHEMA, remedy=", or delete the cache"
        )
        self._db.execute("PRAGMA synchronous=NORMAL")

    def close(self) -> None:
        """Close the database; later statements raise sqlite3.ProgrammingError."""
        with self._lock:  # closing a connection that another thread uses crashes the process
            self._db.close()

    def __enter__(self) -> EmbeddingCache:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def hits(self, hashes: Iterable[str], info: EmbedderInfo, text_norm_profile: str) -> set[str]:
        """The hashes that have a vector, for a joined embedder one of every part."""
        found = set(hashes)
        for part in parts_of(info):
            found &= {row[0] for row in self._rows("content_hash", found, part, text_norm_profile)}
        return found

    def get(
        self, hashes: Iterable[str], info: EmbedderInfo, text_norm_profile: str
    ) -> dict[str, Vectors]:
        """float32 vectors [dim] by hash, absent without one; those of a joined embedder are made of
        its parts' vectors. Raises IntegrityError for a vector of another length.
        """
        if info.parts:
            wanted = list(hashes)
            found = [self.get(wanted, part, text_norm_profile) for part in parts_of(info)]
            shared = [key for key in found[0] if all(key in vectors for vectors in found)]
            if not shared:
                return {}
            whole = join_vectors(
                [np.stack([vectors[key] for key in shared]) for vectors in found],
                [part.weight for part in info.parts],
            )
            return dict(zip(shared, whole, strict=True))
        vectors: dict[str, Vectors] = {}
        for content_hash, blob in self._rows(
            "content_hash, vector", hashes, info, text_norm_profile
        ):
            vector = np.frombuffer(blob, dtype=np.float32)
            if vector.shape != (info.dim,):
                raise IntegrityError(
                    f"{self.path} holds a vector of {vector.size} numbers for {content_hash[:12]},"
                    f" expected {info.dim}; delete the cache"
                )
            vectors[content_hash] = vector
        return vectors

    def put(
        self, vectors: Mapping[str, Vectors], info: EmbedderInfo, text_norm_profile: str
    ) -> None:
        """Store vectors in one commit."""
        space = self._space(info, text_norm_profile)
        rows = [
            (space, key, np.ascontiguousarray(vector, dtype=np.float32).tobytes())
            for key, vector in vectors.items()
        ]
        with self._lock, transaction(self._db, self.path):
            self._db.executemany("INSERT OR REPLACE INTO embeddings VALUES (?, ?, ?)", rows)

    def entries(self) -> Iterator[tuple[Space, str, int]]:
        """(space, content_hash, bytes) of every vector."""
        with self._lock:
            rows = self._db.execute(
                "SELECT embedder_id, embedder_version, text_norm_profile_id, content_hash,"
                " length(vector) FROM embeddings JOIN spaces USING (space_id)"
            ).fetchall()
        return (((row[0], row[1], row[2]), row[3], row[4]) for row in rows)

    def remove(self, entries: Iterable[tuple[Space, str]]) -> None:
        """Delete vectors in one commit and overwrite them on disk; shrinks a mostly empty file."""
        rows = [(*space, content_hash) for space, content_hash in entries]
        with self._lock:
            self._db.execute("PRAGMA secure_delete=ON")
            with transaction(self._db, self.path):
                self._db.executemany(
                    "DELETE FROM embeddings WHERE space_id = (SELECT space_id FROM spaces WHERE"
                    " embedder_id = ? AND embedder_version = ? AND text_norm_profile_id = ?) AND"
                    " content_hash = ?",
                    rows,
                )
            empty, pages = (
                self._db.execute(f"PRAGMA {name}").fetchone()[0]
                for name in ("freelist_count", "page_count")
            )
            if empty > _EMPTY_SHARE * pages:
                shrink(self._db, self.path)
            else:
                self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def rate(self, info: EmbedderInfo) -> float | None:
        """The last measured UTF-8 bytes per second and process, None without one."""
        with self._lock:
            row = self._db.execute(
                "SELECT bytes_per_second FROM spaces WHERE embedder_id = ? AND embedder_version = ?"
                " AND bytes_per_second IS NOT NULL ORDER BY space_id DESC",
                (info.embedder_id, info.version),
            ).fetchone()
        return None if row is None else float(row[0])

    def set_rate(self, info: EmbedderInfo, text_norm_profile: str, bytes_per_second: float) -> None:
        space = self._space(info, text_norm_profile)
        with self._lock, transaction(self._db, self.path):
            self._db.execute(
                "UPDATE spaces SET bytes_per_second = ? WHERE space_id = ?",
                (bytes_per_second, space),
            )

    def _rows(
        self, columns: str, hashes: Iterable[str], info: EmbedderInfo, profile: str
    ) -> Iterator[tuple[Any, ...]]:
        space = self._space(info, profile)

        def select(sql: str, values: Sequence[Any]) -> list[Any]:
            with self._lock:
                return self._db.execute(sql, values).fetchall()

        sql = f"SELECT {columns} FROM embeddings WHERE space_id = {space:d} AND content_hash IN (?)"
        return select_in(select, sql, dict.fromkeys(hashes))

    def _space(self, info: EmbedderInfo, profile: str) -> int:
        key = (info.embedder_id, info.version, profile)
        sql = (
            "SELECT space_id FROM spaces WHERE embedder_id = ? AND embedder_version = ? AND"
            " text_norm_profile_id = ?"
        )
        with self._lock:
            row = self._db.execute(sql, key).fetchone()
            if row is None and self._read_only:
                return -1  # no vector has this space
            if row is None:
                with transaction(self._db, self.path):
                    self._db.execute(
                        "INSERT OR IGNORE INTO spaces (embedder_id, embedder_version,"
                        " text_norm_profile_id, dim) VALUES (?, ?, ?, ?)",
                        (*key, info.dim),
                    )
                row = self._db.execute(sql, key).fetchone()
        return int(row[0])
