"""Questions, releases and edits against the bare index libraries on the same data, in one run.

    python bench/query.py [--chunks 2000 20000] [--queries 100] [--rounds 3] [--keep FOLDER]
    [--clients 8] [--peers PYTHON] [--costs]

The library is built by the program's own functions, with an embedder that costs nothing (feature
hashing), so the model's time is in no figure. Raw: the same terms asked of a bare tantivy searcher,
and the same vector of a bare numpy scan, or of a bare Chroma collection where the program asks its
approximate index; ids and scores, nothing else. Each question is asked in `rounds` rounds that
alternate raw and ours, and counts with its fastest round: a shared machine only ever adds time.
What a filter leaves is compared with a search whose every hit is tested. `--keep` leaves the
library there, or takes up one that an earlier run of this or of bench/release.py left, and refuses
one of another size, strategy or code. `--clients` asks one server process with one and with so many
questions at a time. `--peers` names a Python that has what bench/peers.py needs, and measures
LlamaIndex and Haystack over the same chunks and vectors. `--costs` prints what
`retrieval/retrievers.py` plans with.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import yaml
from corpus import question, write_corpus
from serve import EMPTY
from sizes import described, require_kept, require_size

from rag_platform import registry
from rag_platform.answering.engine import answer
from rag_platform.config.settings import Settings, Strategy, load_settings
from rag_platform.config.strategies import load_strategy
from rag_platform.ingestion.batches import ingest_versions
from rag_platform.ingestion.request import IngestionTotals
from rag_platform.intake.receiving import ReceiveOptions, Reception, receive
from rag_platform.ir import QueryRequest
from rag_platform.ledger.hiding import LedgerView
from rag_platform.ledger.ledger import Ledger, open_ledger
from rag_platform.observability import tracing
from rag_platform.protocols import Vectors
from rag_platform.releases.publishing import build_candidate, publish_candidate, roll_back
from rag_platform.releases.release_store import OpenRelease, open_release
from rag_platform.retrieval.library import Library
from rag_platform.retrieval.retrievers import prefers_approximate
from rag_platform.storage.store import Store
from rag_platform.workspace import Workspace

REPOSITORY = Path(__file__).resolve().parent.parent
NAMESPACE = "bench"
DIM = 384
# without the last word chunks without tags match as well
TENTH = {"tags": {"$in": ["tenth"], "$missing": "exclude"}}


@dataclass(frozen=True)
class Shelf:
    """A data root whose strategy is `fast` with hashing vectors, and what works on it."""

    settings: Settings
    strategy: Strategy
    store: Store
    ledger: Ledger

    @property
    def workspace(self) -> Workspace:
        """What every writing function wants."""
        return Workspace(**vars(self))

    def receive(self, folder: Path, tags: tuple[str, ...] = ()) -> Reception:
        """Receive a folder."""
        return receive([folder], NAMESPACE, self.workspace, ReceiveOptions(tags=tags))

    def ingest(self, reception: Reception) -> IngestionTotals:
        """The seven stages."""
        return ingest_versions(
            [self.ledger.version(item) for item in reception.to_process], self.workspace
        )

    def publish(self) -> str:
        """Build, check and publish; returns the release_id."""
        manifest, checks = build_candidate(NAMESPACE, self.workspace)
        assert all(check.passed for check in checks), checks
        publish_candidate(NAMESPACE, manifest.release_id, self.workspace)
        return manifest.release_id


def new_shelf(root: Path) -> Shelf:
    """The shelf under `root`, an empty one where there is none, in force for this process."""
    config = root / "config"
    shutil.copytree(REPOSITORY / "rag_platform" / "defaults", config, dirs_exist_ok=True)
    strategy = yaml.safe_load((config / "strategies" / "fast.yaml").read_text(encoding="utf-8"))
    strategy["embedding"] = {"provider": "hashing", "options": {"dim": DIM}}
    (config / "strategies" / "bench.yaml").write_text(
        yaml.safe_dump(strategy, allow_unicode=True), encoding="utf-8"
    )
    os.environ |= {
        "RAG_CONFIG": str(config),
        "RAG_HOME": str(root / "home"),
        "RAG_STRATEGY": "bench",
    }
    loaded = load_settings()
    # questions are repeated here
    settings = loaded.model_copy(
        update={"caches": loaded.caches.model_copy(update={"retrievals": 0})}
    )
    store = Store(settings.home)
    return Shelf(settings, load_strategy(settings), store, open_ledger(store))


@contextmanager
def timed(label: str, note: str = "") -> Iterator[None]:
    """Print how long the block took."""
    started = time.perf_counter()
    yield
    print(f"  {label:<34}{time.perf_counter() - started:9.2f} s   {note}")


# --- raw calls ----------------------------------------------------------------------------------


def raw_words(release: OpenRelease, k: int) -> Callable[[str], object]:
    """A bare tantivy search for the terms of a question: both fields, no boosts, the ids and scores
    of the k best.
    """
    import tantivy

    reader: Any = release.lexical
    searcher, schema = reader._searcher, reader._index.schema

    def search(text: str) -> object:
        terms = reader._analysis.weights(text)
        clauses = [
            (tantivy.Occur.Should, tantivy.Query.term_query(schema, name, term, "freq"))
            for term in terms
            for name in ("text", "headings")
        ]
        hits = searcher.search(tantivy.Query.boolean_query(clauses), k, count=False).hits
        return [(searcher.doc(address)["chunk_id"][0], score) for score, address in hits]

    return search


def raw_scan(release: OpenRelease, k: int) -> Callable[[Vectors], object]:
    """A bare numpy scan of the same matrix: ids and scores of the k best; by einsum, which was
    faster than BLAS on the machines seen.
    """
    dense: Any = release.dense
    matrix, ids = dense._base, dense.ids()

    def search(vector: Vectors) -> object:
        scores = np.einsum("ij,j->i", matrix, vector)
        best = np.argpartition(scores, -k)[-k:]
        return [(ids[row], float(scores[row])) for row in best[np.argsort(-scores[best])]]

    return search


def raw_ann(release: OpenRelease, k: int) -> Callable[[Vectors], object]:
    """A bare query of the same Chroma collection."""
    dense: Any = release.dense
    collection = dense._open_ann()._collection

    def search(vector: Vectors) -> object:
        return collection.query(query_embeddings=[vector], n_results=k, include=["distances"])

    return search


@contextmanager
def untraced() -> Iterator[None]:
    """Spans and events do nothing inside the block."""

    @contextmanager
    def nothing(*_: Any, **__: Any) -> Iterator[tracing.Trace]:
        yield tracing.Trace("query", None, {"trace_id": "", "strategy_config_id": ""})

    with mock.patch.object(tracing, "trace", nothing):
        yield


# --- measurements -------------------------------------------------------------------------------


def measure(
    calls: dict[str, Callable[[int], object]], count: int, rounds: int
) -> dict[str, list[float]]:
    """Milliseconds of every call for every question, the fastest of `rounds` rounds; the calls
    alternate within a round.
    """
    best = {name: [float("inf")] * count for name in calls}
    for _ in range(rounds):
        for number in range(count):
            for name, call in calls.items():
                started = time.perf_counter()
                call(number)
                best[name][number] = min(best[name][number], 1000 * (time.perf_counter() - started))
    return best


def ask(
    shelf: Shelf, release: OpenRelease, count: int, rounds: int
) -> tuple[list[str], list[Vectors]]:
    """Print the table of question times; returns the questions and their vectors."""
    rng = random.Random(3)
    texts = [question(rng) for _ in range(count)]
    k = shelf.strategy.retrieval.pool_k
    counts = release.manifest.counts
    approximate = (
        release.dense is not None
        and release.dense.has_ann
        and prefers_approximate(
            counts["dense"], DIM, counts.get("ann_recall"), shelf.strategy.retrieval
        )
    )
    library = Library(shelf.settings, shelf.store, LedgerView(shelf.store))
    vectors = [library.query_vector(shelf.strategy.embedding, text)[0] for text in texts]
    if release.dense is not None:
        release.dense.prepare()
    words = raw_words(release, k)
    scan = raw_ann(release, k) if approximate else raw_scan(release, k)

    def ours(**options: Any) -> Callable[[int], object]:
        return lambda number: answer(library, QueryRequest(texts[number], NAMESPACE, **options))

    def bare(number: int) -> object:
        return words(texts[number]), scan(vectors[number])

    def silent(number: int) -> object:
        with untraced():
            return answer(library, QueryRequest(texts[number], NAMESPACE, answer=False))

    with library.lease(NAMESPACE) as lease:
        lease.release.dense.prepare()
    ours()(0)
    calls: dict[str, Callable[[int], object]] = {
        "raw words": lambda number: words(texts[number]),
        "raw vectors": lambda number: scan(vectors[number]),
        "raw both, one after the other": bare,
        "sparse, hits": ours(mode="sparse", answer=False),
        "dense, hits": ours(mode="dense", answer=False),
        "hybrid, hits": ours(answer=False),
        "hybrid, hits, no trace": silent,
        "hybrid, extractive answer": ours(),
        "hybrid, hits, 10 % filter": ours(answer=False, filters=TENTH),
    }
    found = measure(calls, count, rounds)
    base = {"sparse, hits": "raw words", "dense, hits": "raw vectors"}
    print(
        f"  {'milliseconds a question':<34}{'p50':>8}{'p95':>8}{'ratio to raw':>14}   vectors:"
        f" {'Chroma' if approximate else 'numpy'}"
    )
    for name, values in found.items():
        p50, p95 = np.percentile(values, (50, 95))
        against = np.percentile(found[base.get(name, "raw both, one after the other")], 50)
        ratio = "" if name.startswith("raw") else f"{p50 / against:14.2f}"
        print(f"  {name:<34}{p50:8.2f}{p95:8.2f}{ratio}")
    recalls(release, library, texts, vectors, k)
    library.close()
    return texts, vectors


def recalls(
    release: OpenRelease, library: Library, texts: Sequence[str], vectors: Sequence[Vectors], k: int
) -> None:
    """Print what the approximate index finds, and that a filter loses nothing: the program's hits
    beside those of a tested search.
    """
    dense, words = release.dense, release.lexical
    assert dense is not None and words is not None
    agree = []
    for vector in vectors if dense.has_ann else ():
        exact, near = (dense.search(vector, k, approximate=way)[0] for way in (False, True))
        agree.append(
            [
                len({c.chunk_id for c in exact[:n]} & {c.chunk_id for c in near[:n]}) / n
                for n in (10, k)
            ]
        )
    if agree:
        at_ten, at_k = (statistics.mean(column) for column in zip(*agree, strict=True))
        print(
            f"  approximate index asked for {k}: recall@10 {at_ten:.3f}, recall@{k} {at_k:.3f}"
            " against the exact scan"
        )
    else:
        print("  no approximate index: no question would ask it, every one scans exactly")
    where = "EXISTS (SELECT 1 FROM json_each(d.tags) WHERE value = 'tenth')"
    allowed = frozenset(release.catalog.select_ids(where))
    ids = dense.ids()
    matrix = dense.vectors_of(ids)
    found, right = 0, 0
    for text, vector in list(zip(texts, vectors, strict=True))[:20]:
        for mode in ("dense", "sparse"):
            request = QueryRequest(
                text,
                NAMESPACE,
                mode=mode,
                filters=TENTH,
                answer=False,
                top_k=10,
                infer=False,
                rerank=False,
            )
            hits = {hit.chunk_id for hit in answer(library, request).hits}
            if mode == "dense":
                best = [ids[row] for row in np.argsort(-(matrix @ vector)) if ids[row] in allowed][
                    : len(hits)
                ]
            else:
                best = [
                    hit.chunk_id for hit in words.search(text, len(ids)) if hit.chunk_id in allowed
                ][: len(hits)]
            found, right = found + len(hits & set(best)), right + len(best)
    print(f"  10 % filter: {found} of {right} hits are those of a search whose every hit is tested")


# --- one server, several clients; peers; costs --------------------------------------------------


@dataclass
class Server:
    """A server process on raw pipes: its answers are counted, not read, so that it and not its
    client is what is measured.
    """

    process: subprocess.Popen[bytes]
    tool: str
    arguments: dict[str, Any]
    asked: int = 0

    @classmethod
    def start(cls, code: str, tool: str, arguments: dict[str, Any]) -> Server:
        """The server that `code` runs, greeted."""
        command = [sys.executable, "-c", code]
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
        )
        server = cls(process, tool, arguments)
        hello = {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "bench", "version": "1"},
        }
        server.send({"id": 0, "method": "initialize", "params": hello})
        server.received()
        server.send({"method": "notifications/initialized"})
        return server

    def send(self, message: dict[str, Any]) -> None:
        """Write one message."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def ask(self, text: str) -> None:
        """Ask; no question twice, or the retrieval cache would answer it."""
        self.asked += 1
        arguments = {"query": f"{text} {self.asked}", **self.arguments}
        self.send(
            {
                "id": self.asked,
                "method": "tools/call",
                "params": {"name": self.tool, "arguments": arguments},
            }
        )

    def received(self) -> int:
        """Wait for output; the number of answers that ended in it. Raises RuntimeError when the
        server is gone or refuses.
        """
        assert self.process.stdout is not None
        part = os.read(self.process.stdout.fileno(), 1 << 20)
        if not part or b'"isError":true' in part:
            raise RuntimeError(
                f"the server closed its output or answered with an error: {part[:500]!r}"
            )
        return part.count(b"\n")

    def cpu(self) -> float:
        """Milliseconds of the processor so far, of the processes it started as well; 0 where the
        system does not tell.
        """
        ticks = 0
        for pid in (self.process.pid, *self.children()):
            path = Path(f"/proc/{pid}/stat")
            ticks += (
                sum(map(int, path.read_text(encoding="utf-8").rsplit(")", 1)[1].split()[11:13]))
                if path.is_file()
                else 0
            )
        return 1000 * ticks / os.sysconf("SC_CLK_TCK")

    def children(self) -> list[str]:
        """The ids of the processes that it started and that run now."""
        return [
            pid
            for path in Path(f"/proc/{self.process.pid}/task").glob("*/children")
            for pid in path.read_text(encoding="utf-8").split()
        ]

    def rate(self, texts: Sequence[str], at_once: int, seconds: float) -> tuple[float, float]:
        """(questions a second, milliseconds of the server's processor for each) with so many of
        them on their way.
        """
        waiting, done, used, started = 0, 0, self.cpu(), time.perf_counter()
        while True:
            going = time.perf_counter() - started < seconds
            while going and waiting < at_once:
                self.ask(texts[self.asked % len(texts)])
                waiting += 1
            if not waiting:
                return done / (time.perf_counter() - started), (self.cpu() - used) / max(1, done)
            ended = self.received()
            waiting, done = waiting - ended, done + ended

    def stop(self) -> None:
        """Close its input and wait for its end."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=30)


def throughput(texts: Sequence[str], clients: int, seconds: float = 5.0) -> None:
    """Print how many questions a second one server answers, one and `clients` at a time: this
    program, and an empty tool of the SDK.

    The empty tool tells what the protocol itself takes and gains. Rounds alternate; medians of
    them, for other work comes and goes.
    """
    ours = (
        "from rag_platform.cli.main import main; main(['serve'])",
        "library_query",
        {"collections": [NAMESPACE]},
    )
    for label, (code, tool, arguments) in {
        "one server": ours,
        "an empty tool": (EMPTY, "ping", {}),
    }.items():
        server = Server.start(code, tool, arguments)
        try:
            # warms up, and starts the processes that it shares questions with
            server.rate(texts, clients, seconds)
            found = [
                [server.rate(texts, at_once, seconds / 2) for at_once in (1, clients)]
                for _ in range(4)
            ]
            processes = 1 + len(server.children())
        finally:
            server.stop()
        (one, one_cpu), (many, many_cpu) = (
            [statistics.median(column) for column in zip(*side, strict=True)]
            for side in zip(*found, strict=True)
        )
        print(
            f"  {label}: {one:.0f} questions a second one at a time, {many:.0f} with {clients} at a"
            f" time: {many / one:.2f} x; processes: {processes}; {one_cpu:.1f} and {many_cpu:.1f}"
            " ms of the processor for each"
        )


def peers(
    python: str, release: OpenRelease, texts: Sequence[str], vectors: Sequence[Vectors], k: int
) -> None:
    """Print what LlamaIndex and Haystack take for the same questions."""
    assert release.dense is not None
    with tempfile.TemporaryDirectory(prefix="rag-peers-") as name:
        folder, ids = Path(name), release.dense.ids()
        rows = {}
        for start in range(0, len(ids), 5_000):
            rows.update(release.catalog.chunks(ids[start : start + 5_000]))
        lines = (
            json.dumps({"id": chunk_id, "text": rows[chunk_id].chunk_text}, ensure_ascii=False)
            + "\n"
            for chunk_id in ids
        )
        (folder / "chunks.jsonl").write_text("".join(lines), encoding="utf-8")
        (folder / "questions.jsonl").write_text(
            "".join(json.dumps(text) + "\n" for text in texts), encoding="utf-8"
        )
        np.save(folder / "vectors.npy", release.dense.vectors_of(ids))
        np.save(folder / "questions.npy", np.stack(list(vectors)))
        done = subprocess.run(
            [python, str(REPOSITORY / "bench" / "peers.py"), name, str(k)],
            capture_output=True,
            text=True,
            check=False,
        )
        told = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        for peer in told or [{"peer": "peers", "error": done.stderr[-300:]}]:
            if "error" in peer:
                print(f"  {peer['peer']:<34}skipped: {peer['error']}")
            else:
                p50, p95 = np.percentile(peer["milliseconds"], (50, 95))
                asked = (
                    f"{len(peer['milliseconds'])} questions; stores built in {peer['built']:.0f} s"
                )
                print(f"  {peer['peer'] + ' hybrid':<34}{p50:8.2f}{p95:8.2f}   {asked}")


def costs(release: OpenRelease, texts: Sequence[str], vectors: Sequence[Vectors], k: int) -> None:
    """Print the processor's milliseconds of each way to ask the indexes, medians of the fastest of
    three.
    """
    dense, words = release.dense, release.lexical
    assert dense is not None and words is not None
    ids = dense.ids()
    sets = {
        count: frozenset(random.Random(1).sample(ids, count))
        for count in (10, 100, 1_000, len(ids) // 10)
        if count <= len(ids)
    }
    calls: dict[str, Callable[[int], object]] = {
        "exact": lambda n: dense.search(vectors[n], k),
        **(
            {"ann": lambda n: dense.search(vectors[n], k, approximate=True)}
            if dense.has_ann
            else {}
        ),
        "words": lambda n: words.search(texts[n], k),
        "words, 1,000 hits": lambda n: words.search(texts[n], 1_000),
        **{
            f"exact of {size}": lambda n, s=some: dense.search(vectors[n], k, chunk_ids=s)
            for size, some in sets.items()
        },
        **{
            f"words of {size} ids": lambda n, s=some: words.search(texts[n], k, chunk_ids=s)
            for size, some in sets.items()
            if size <= 1_000
        },
    }
    for name, call in calls.items():
        call(0)
        best = []
        for number in range(min(20, len(texts))):
            rounds = []
            for _ in range(3):
                started = time.thread_time()
                call(number)
                rounds.append(1000 * (time.thread_time() - started))
            best.append(min(rounds))
        print(f"  {name:<34}{statistics.median(best):8.2f} ms of the processor")


def edit(folder: Path, documents: int, word: str) -> None:
    """Put a word into the last chunk of each of the first documents."""
    for path in sorted(folder.rglob("*.md"))[:documents]:
        path.write_text(
            path.read_text(encoding="utf-8").rstrip("\n") + f" {word}\n", encoding="utf-8"
        )


def build(root: Path, chunks: int) -> Shelf:
    """A published library of `chunks` chunks under `root`, of which a tenth has a tag; the one that
    is there already.

    Raises SystemExit when it does not hold so many, or the one that is there is another.
    """
    kept = (root / "home").is_dir()
    shelf = new_shelf(root)
    if kept:
        require_kept(shelf.store, NAMESPACE, shelf.strategy, chunks)
        print(f"  {described(shelf.store, NAMESPACE, shelf.strategy)} (kept)")
        return shelf
    write_corpus(root / "rest", chunks * 9 // 10, shelf.strategy, shelf.settings)
    write_corpus(root / "tenth", chunks // 10, shelf.strategy, shelf.settings, seed=8)
    with timed("receive"):
        received = [
            shelf.receive(root / "rest"),
            shelf.receive(root / "tenth", ("tenth",)),
        ]
    started = time.perf_counter()
    totals = [shelf.ingest(reception) for reception in received]
    seconds = time.perf_counter() - started
    require_size(chunks, sum(total.chunks for total in totals))
    with timed("first release, built and published"):
        shelf.publish()
    print(f"  {described(shelf.store, NAMESPACE, shelf.strategy)}")
    documents = sum(total.documents for total in totals)
    embedding = embed_alone(shelf) / (os.cpu_count() or 1)
    print(
        f"  {'ingest':<34}{seconds:9.2f} s   {1000 * seconds / documents:.1f} ms a document,"
        f" {1000 * (seconds - embedding) / documents:.1f} without the embedder"
    )
    return shelf


def embed_alone(shelf: Shelf) -> float:
    """Seconds of the processor that the embedder takes for the texts of the library."""
    with closing(open_release(shelf.store, NAMESPACE)) as release:
        chunks = release.catalog.chunks(release.catalog.chunk_ids())
    texts = [chunk.chunk_text for chunk in chunks.values()]
    config = shelf.strategy.embedding
    embedder = registry.make_provider("embedder", config.provider, config.options)
    started = time.process_time()
    embedder.embed(texts)
    return time.process_time() - started


def run(root: Path, chunks: int, options: argparse.Namespace) -> None:
    """Build or take up a library of `chunks` chunks and print its figures."""
    print(f"\n{chunks} chunks asked for; load average {os.getloadavg()[0]:.1f}")
    shelf = build(root, chunks)
    with timed("open a release"):
        release = open_release(shelf.store, NAMESPACE)
    texts, vectors = ask(shelf, release, options.queries, options.rounds)
    k = shelf.strategy.retrieval.pool_k
    if options.clients:
        throughput(texts, options.clients)
    if options.costs:
        costs(release, texts, vectors, k)
    if options.peers:
        peers(options.peers, release, texts, vectors, k)
    release.close()
    if options.keep is None:
        with timed("the same folder again"):
            assert not shelf.receive(root / "rest").to_process
        for attempt in range(2):
            edit(root / "rest", 10, f"amended{attempt} ")
            ingested = shelf.ingest(shelf.receive(root / "rest"))
            with timed(
                "10-chunk edit, vectors to CURRENT", f"{ingested.embeddings_computed} embeddings"
            ):
                shelf.publish()
        with timed("roll back"):
            roll_back(NAMESPACE, None, shelf.workspace)
    shelf.ledger.close()


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--chunks", type=int, nargs="*", default=[2000, 20000])
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--clients", type=int, default=8, help="0: no server is started")
    parser.add_argument("--peers", help="a Python with the packages of bench/peers.py")
    parser.add_argument("--costs", action="store_true")
    options = parser.parse_args(arguments)
    for chunks in options.chunks:
        if options.keep is not None:
            run(options.keep.resolve() / str(chunks), chunks, options)
            continue
        with tempfile.TemporaryDirectory(prefix="rag-bench-") as name:
            run(Path(name), chunks, options)


if __name__ == "__main__":
    main()
