"""The approximate nearest-neighbour index: one Chroma collection in a directory of its own,
telemetry off.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from rag_platform.errors import ProviderError, full_disk
from rag_platform.ir import Candidate
from rag_platform.observability import faults
from rag_platform.protocols import Vectors
from rag_platform.providers.panics import is_panic
from rag_platform.storage.sqlite_files import stand_in, writable
from rag_platform.traits import Traits

COLLECTION = "chunks"
_BATCH = 5_000  # Chroma refuses more than 5,461 rows a call
_SCORE_DIGITS = 6
_NO_ROOM = 1024 * 1024  # with less free a failed write is a full disk


@dataclass(frozen=True)
class Chroma:
    """HNSW over cosine distance (arXiv:1603.09320); larger `ef_search` finds more and takes longer.

    Changes are written into the graph's files in place. Readers open these for writing too, but
    write nothing.
    """

    max_neighbors: int = 16
    ef_construction: int = 100
    ef_search: int = 100

    NAME: ClassVar[str] = "chroma"
    VERSION: ClassVar[str] = "1"
    # Opening a client records a line in this database, so its hash proves nothing.
    traits: ClassVar[Traits] = Traits(rewritten_on_open=("chroma.sqlite3",))

    def update(
        self, directory: Path, *, removed: Collection[str], ids: Sequence[str], vectors: Vectors
    ) -> None:
        """Delete `removed`, then add `ids` with their vectors [len(ids), dim]; creates the index
        when the directory is empty.
        """
        if len(ids) != len(vectors):
            raise ProviderError(f"{len(ids)} ids for {len(vectors)} vectors")
        directory.mkdir(parents=True, exist_ok=True)
        graph = {
            "space": "cosine",
            "max_neighbors": self.max_neighbors,
            "ef_construction": self.ef_construction,
            "ef_search": self.ef_search,
        }
        # Every call is written through; otherwise the first reader of a small collection writes the
        # rest into the finished directory.
        through = {"batch_size": 1, "sync_threshold": 1}
        with _client(directory) as client:
            sys.audit("rag_platform.commit", str(directory))
            collection = client.get_or_create_collection(
                COLLECTION, embedding_function=None, configuration={"hnsw": {**graph, **through}}
            )
            gone = list(removed)
            for start in range(0, len(gone), _BATCH):
                sys.audit("rag_platform.commit", str(directory))
                collection.delete(ids=gone[start : start + _BATCH])
            for start in range(0, len(ids), _BATCH):
                sys.audit("rag_platform.commit", str(directory))
                collection.add(
                    ids=list(ids[start : start + _BATCH]),
                    embeddings=vectors[start : start + _BATCH],
                )

    def open(self, directory: Path) -> ChromaReader:
        """A reader of a finished directory. Raises ProviderError when there is no index."""
        if not (directory / "chroma.sqlite3").is_file():
            raise ProviderError(
                f"no vector index in {directory.name}; rebuild the release with `rag rebuild`",
                code="no_dense_index",
            )
        with _told():
            return ChromaReader(directory)


class ChromaReader:
    """An opened index; safe between threads."""

    def __init__(self, directory: Path) -> None:
        if not writable(directory / "chroma.sqlite3"):  # the engine opens its files for writing
            directory = stand_in(directory, self, copied=True)
        self._client = _connect(directory)
        self._collection = self._client.get_collection(COLLECTION, embedding_function=None)
        # once: the directory never changes, and counting 100,000 takes 7 ms
        self._count = int(self._collection.count())

    def count(self) -> int:
        """Number of vectors held."""
        return self._count

    def ids(self) -> set[str]:
        """Every chunk id held."""
        return set(self._collection.get(include=[])["ids"])

    def search(self, vector: Vectors, k: int) -> list[Candidate]:
        """At most k candidates by cosine similarity, equal scores by chunk_id."""
        if k <= 0 or not self._count:
            return []
        with _told():
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
        """Let go of the files."""
        self._client.close()


@contextmanager
def _client(directory: Path) -> Iterator[Any]:
    try:
        client = _connect(directory)
        try:
            yield client
        finally:
            sys.audit("rag_platform.commit", str(directory))
            # writes back what the database still holds, so that a copy of the directory is complete
            client.close()
    except Exception as error:
        if shutil.disk_usage(directory).free < _NO_ROOM:  # the engine does not say so
            raise full_disk(directory) from error
        raise


@contextmanager
def _told() -> Iterator[None]:
    """Raises ProviderError for what the engine raises, which has exceptions of its own and bare
    ones.
    """
    try:
        yield
    except ProviderError:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and not is_panic(error):
            raise
        faults.report(error, "model.dense_index")
        raise ProviderError(
            f"the vector index cannot be read: {error}; rebuild the release with `rag rebuild`"
        ) from error


def _connect(directory: Path) -> Any:
    import chromadb
    from chromadb.config import Settings

    with _told():
        return chromadb.PersistentClient(
            path=str(directory), settings=Settings(anonymized_telemetry=False)
        )
