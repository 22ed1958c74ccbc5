"""The approximate nearest-neighbour index: a Chroma collection in a directory, telemetry off."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from rag_platform.errors import REBUILD, ProviderError, full_disk
from rag_platform.ir import Candidate
from rag_platform.protocols import Vectors
from rag_platform.providers.engine_errors import engine_errors
from rag_platform.storage.sqlite_files import mirror_folder, writable
from rag_platform.traits import Traits

COLLECTION = "chunks"
_DATABASE = "chroma.sqlite3"
_BATCH = 5_000  # Chroma refuses more than 5,461 rows a call
_SCORE_DIGITS = 6
_NO_ROOM = 1024 * 1024  # with less free a failed write is a full disk


@dataclass(frozen=True)
class Chroma:
    """HNSW over cosine distance (arXiv:1603.09320); a larger `ef_search` finds more neighbours, but
    is slower.
    """

    max_neighbors: int = 16
    ef_construction: int = 100
    ef_search: int = 100

    VERSION: ClassVar[str] = "1"
    traits: ClassVar[Traits] = Traits()

    def build(self, directory: Path, *, ids: Sequence[str], vectors: Vectors) -> None:
        """Write the index of these rows [len(ids), dim] into a new directory."""
        if len(ids) != len(vectors):
            raise ProviderError(f"{len(ids)} ids for {len(vectors)} vectors")
        directory.mkdir(parents=True)
        hnsw = {
            "space": "cosine",
            "max_neighbors": self.max_neighbors,
            "ef_construction": self.ef_construction,
            "ef_search": self.ef_search,
            # every call writes to disk, so that readers have nothing left to write
            "batch_size": 1,
            "sync_threshold": 1,
        }
        with _writing(directory) as client:
            sys.audit("rag_platform.commit", str(directory))
            collection = client.create_collection(
                COLLECTION, embedding_function=None, configuration={"hnsw": hnsw}
            )
            for start in range(0, len(ids), _BATCH):
                sys.audit("rag_platform.commit", str(directory))
                collection.add(
                    ids=list(ids[start : start + _BATCH]),
                    embeddings=vectors[start : start + _BATCH],
                )

    def open(self, directory: Path) -> ChromaReader:
        """A reader of a finished directory. Raises ProviderError `no_dense_index`."""
        if not (directory / _DATABASE).is_file():
            raise ProviderError(
                f"no vector index in {directory.name}; {REBUILD}", code="no_dense_index"
            )
        with _reading():
            return ChromaReader(directory)


class ChromaReader:
    """A protocols.DenseReader; thread-safe. Equal scores are ordered by chunk_id."""

    def __init__(self, directory: Path) -> None:
        # the engine records each opening in its database, and opens the other files for writing
        copy = mirror_folder(
            directory, self, lambda path: path.name == _DATABASE or not writable(path)
        )
        self._client = _connect(copy)
        self._collection = self._client.get_collection(COLLECTION, embedding_function=None)
        # once: the directory never changes, and counting 100,000 takes 7 ms
        self._count = int(self._collection.count())

    def count(self) -> int:
        return self._count

    def ids(self) -> set[str]:
        return set(self._collection.get(include=[])["ids"])

    def search(self, vector: Vectors, k: int) -> list[Candidate]:
        if k <= 0 or not self._count:
            return []
        with _reading():
            found = self._collection.query(
                query_embeddings=[vector], n_results=min(k, self._count), include=["distances"]
            )
        pairs = zip(found["ids"][0], found["distances"][0], strict=True)
        scored = [(round(1.0 - distance, _SCORE_DIGITS), chunk_id) for chunk_id, distance in pairs]
        return [
            Candidate(chunk_id, score, "dense")
            for score, chunk_id in sorted(scored, key=lambda hit: (-hit[0], hit[1]))
        ]

    def close(self) -> None:
        self._client.close()


def _reading() -> AbstractContextManager[None]:
    return engine_errors("the vector index cannot be read", stage="model.dense_index")


@contextmanager
def _writing(directory: Path) -> Iterator[Any]:
    with engine_errors("the vector index cannot be written", stage="model.dense_index"):
        try:
            client = _connect(directory)
            try:
                yield client
            finally:
                sys.audit("rag_platform.commit", str(directory))
                client.close()  # writes back what its database still holds
        except Exception as error:
            if shutil.disk_usage(directory).free < _NO_ROOM:  # the engine does not say so
                raise full_disk(directory) from error
            raise


def _connect(directory: Path) -> Any:
    import chromadb
    from chromadb.config import Settings

    return chromadb.PersistentClient(
        path=str(directory), settings=Settings(anonymized_telemetry=False)
    )
