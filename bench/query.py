"""Questions, releases and edits against the bare index libraries on the same data, in one run.

    python bench/query.py [--chunks 2000 20000] [--queries 100] [--rounds 3]

The library is built by the program's own functions, with an embedder that costs nothing (feature hashing), so the model's time is in
no figure. Raw: the same terms asked of a bare tantivy searcher, and the same vector of a bare numpy scan, or of a bare Chroma collection
where the program asks its approximate index; ids and scores, nothing else. Each question is asked in `rounds` rounds that alternate raw
and ours, and counts with its fastest round: a shared machine only ever adds time.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import yaml
from corpus import question, write_corpus

from rag_platform.config import Settings, Strategy, load_settings, load_strategy
from rag_platform.documents.receiving import ReceiveOptions, Reception, receive
from rag_platform.indexes.ingesting import IngestionTotals, ingest_versions
from rag_platform.indexes.release import OpenRelease, open_release
from rag_platform.indexes.updating import build_candidate, publish_candidate, roll_back
from rag_platform.ir import QueryRequest
from rag_platform.ledger import Ledger
from rag_platform.observability import tracing
from rag_platform.protocols import Vectors
from rag_platform.providers import segmentation
from rag_platform.retrieval.engine import answer
from rag_platform.retrieval.library import Library
from rag_platform.retrieval.reading import hidden_by_ledger
from rag_platform.store import Store

REPOSITORY = Path(__file__).resolve().parent.parent
NAMESPACE = "bench"
DIM = 384
TENTH = {"tags": ["tenth"]}


@dataclass(frozen=True)
class Shelf:
    """A data root whose strategy is `fast` with hashing vectors, and what works on it."""

    settings: Settings
    strategy: Strategy
    store: Store
    ledger: Ledger

    def parts(self) -> dict[str, Any]:
        """What every writing function wants."""
        return {"settings": self.settings, "strategy": self.strategy, "store": self.store, "ledger": self.ledger}

    def receive(self, folder: Path, tags: tuple[str, ...] = ()) -> Reception:
        """Receive a folder."""
        return receive([folder], NAMESPACE, options=ReceiveOptions(tags=tags), **self.parts())

    def ingest(self, reception: Reception) -> IngestionTotals:
        """The seven stages."""
        return ingest_versions([self.ledger.version(item) for item in reception.to_process], **self.parts())

    def publish(self) -> str:
        """Build, check and publish; returns the release_id."""
        manifest, checks = build_candidate(NAMESPACE, **self.parts())
        assert all(check.passed for check in checks), checks
        publish_candidate(NAMESPACE, manifest.release_id, settings=self.settings, store=self.store, ledger=self.ledger)
        return manifest.release_id


def new_shelf(root: Path) -> Shelf:
    """An empty shelf under `root`, in force for this process."""
    config = root / "config"
    shutil.copytree(REPOSITORY / "config", config)
    strategy = yaml.safe_load((config / "strategies" / "fast.yaml").read_text(encoding="utf-8"))
    strategy["embedding"] = {"provider": "hashing", "options": {"dim": DIM}}
    (config / "strategies" / "bench.yaml").write_text(yaml.safe_dump(strategy, allow_unicode=True), encoding="utf-8")
    os.environ |= {"RAG_CONFIG": str(config), "RAG_HOME": str(root / "home"), "RAG_STRATEGY": "bench"}
    settings = load_settings()
    store = Store(settings.home)
    return Shelf(settings, load_strategy(settings), store, Ledger(store.ledger_path))


@contextmanager
def timed(label: str, note: str = "") -> Iterator[None]:
    """Print how long the block took."""
    started = time.perf_counter()
    yield
    print(f"  {label:<34}{time.perf_counter() - started:9.2f} s   {note}")


# --- raw calls -----------------------------------------------------------------------------------------------------------


def raw_words(release: OpenRelease, k: int) -> Callable[[str], object]:
    """A bare tantivy search for the terms of a question: both fields, no boosts, the ids and scores of the k best."""
    import tantivy

    reader: Any = release.lexical
    searcher, schema = reader._searcher, reader._index.schema

    def search(text: str) -> object:
        terms = reader._analyzer.analyze(" ".join(segmentation.terms(text)))
        clauses = [
            (tantivy.Occur.Should, tantivy.Query.term_query(schema, name, term, "freq")) for term in terms for name in ("text", "headings")
        ]
        hits = searcher.search(tantivy.Query.boolean_query(clauses), k, count=False).hits
        return [(searcher.doc(address)["chunk_id"][0], score) for score, address in hits]

    return search


def raw_scan(release: OpenRelease, k: int) -> Callable[[Vectors], object]:
    """A bare numpy scan of the same matrix: the ids and scores of the k best."""
    dense: Any = release.dense
    matrix, ids = dense._base, dense._ids

    def search(vector: Vectors) -> object:
        scores = matrix @ vector
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
        yield tracing.Trace("query", None, {"trace_id": ""}, None)

    with mock.patch.object(tracing, "trace", nothing):
        yield


# --- measurements --------------------------------------------------------------------------------------------------------


def measure(calls: dict[str, Callable[[int], object]], count: int, rounds: int) -> dict[str, list[float]]:
    """Milliseconds of every call for every question, the fastest of `rounds` rounds; the calls alternate within a round."""
    best = {name: [float("inf")] * count for name in calls}
    for _ in range(rounds):
        for number in range(count):
            for name, call in calls.items():
                started = time.perf_counter()
                call(number)
                best[name][number] = min(best[name][number], 1000 * (time.perf_counter() - started))
    return best


def ask(shelf: Shelf, release: OpenRelease, count: int, rounds: int) -> None:
    """Print the table of question times."""
    rng = random.Random(3)
    texts = [question(rng) for _ in range(count)]
    k = shelf.strategy.retrieval.pool_k
    rows = release.dense.count() if release.dense else 0
    approximate = rows > shelf.strategy.retrieval.exact_scan_rows
    library = Library(shelf.settings, shelf.store, hidden_by_ledger(shelf.store))
    vectors = [library.query_vector(shelf.strategy.embedding, text)[0] for text in texts]
    words = raw_words(release, k)
    scan = raw_ann(release, k) if approximate else raw_scan(release, k)

    def ours(**options: Any) -> Callable[[int], object]:
        return lambda number: answer(library, QueryRequest(texts[number], NAMESPACE, **options))

    def bare(number: int) -> object:
        return words(texts[number]), scan(vectors[number])

    def silent(number: int) -> object:
        with untraced():
            return answer(library, QueryRequest(texts[number], NAMESPACE, answer=False))

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
    print(f"  {'milliseconds a question':<34}{'p50':>8}{'p95':>8}{'ratio to raw':>14}   vectors: {'Chroma' if approximate else 'numpy'}")
    for name, values in found.items():
        p50, p95 = np.percentile(values, (50, 95))
        against = np.percentile(found[base.get(name, "raw both, one after the other")], 50)
        ratio = "" if name.startswith("raw") else f"{p50 / against:14.2f}"
        print(f"  {name:<34}{p50:8.2f}{p95:8.2f}{ratio}")
    library_vectors = release.dense
    if library_vectors is not None:
        agree = []
        for vector in vectors:
            exact, near = (library_vectors.search(vector, k, exact_rows=limit)[0] for limit in (rows, 0))
            agree.append([len({c.chunk_id for c in exact[:n]} & {c.chunk_id for c in near[:n]}) / n for n in (10, k)])
        at_ten, at_k = (statistics.mean(column) for column in zip(*agree, strict=True))
        print(f"  approximate index asked for {k}: recall@10 {at_ten:.3f}, recall@{k} {at_k:.3f} against the exact scan")


def edit(folder: Path, documents: int, word: str) -> None:
    """Put a word into the last chunk of each of the first documents."""
    for path in sorted(folder.rglob("*.md"))[:documents]:
        path.write_text(path.read_text(encoding="utf-8").rstrip("\n") + f" {word}\n", encoding="utf-8")


def run(chunks: int, queries: int, rounds: int) -> None:
    """Build a library of about `chunks` chunks and print its figures."""
    with tempfile.TemporaryDirectory(prefix="rag-bench-") as name:
        root = Path(name)
        shelf = new_shelf(root)
        rest, tenth = root / "rest", root / "tenth"
        write_corpus(rest, chunks * 9 // 10)
        write_corpus(tenth, chunks // 10, seed=8)
        print(f"\n{chunks} chunks asked for; load average {os.getloadavg()[0]:.1f}")
        with timed("receive and ingest"):
            totals = [shelf.ingest(shelf.receive(rest)), shelf.ingest(shelf.receive(tenth, ("tenth",)))]
        print(f"  {sum(t.documents for t in totals)} documents, {sum(t.chunks for t in totals)} chunks")
        with timed("first release, built and published"):
            shelf.publish()
        with timed("the same folder again"):
            assert not shelf.receive(rest).to_process
        with timed("open a release"):
            release = open_release(shelf.store, NAMESPACE)
        ask(shelf, release, queries, rounds)
        release.close()
        for attempt in range(2):
            edit(rest, 10, f"amended{attempt} ")
            ingested = shelf.ingest(shelf.receive(rest))
            with timed("10-chunk edit, vectors to CURRENT", f"{ingested.embeddings_computed} embeddings"):
                shelf.publish()
        with timed("roll back"):
            roll_back(NAMESPACE, None, store=shelf.store, ledger=shelf.ledger)
        shelf.ledger.close()


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chunks", type=int, nargs="*", default=[2000, 20000])
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args(arguments)
    for chunks in options.chunks:
        run(chunks, options.queries, options.rounds)


if __name__ == "__main__":
    main()
