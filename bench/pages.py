"""Processor time of every page and list, warm, over a library of the asked size.

    python bench/pages.py [--chunks 10000] [--sections 5] [--embedder hashing] [--repeats 5]
                          [--keep FOLDER]

Goals: 150 ms for each page; the first page, with nothing loaded before, within a second of the
server's answering. Documents have five sections, about a chunk each: `--chunks 100000 --sections
10` is 10,000 of them. The embedder matters to no page: the
default one, which only hashes words, builds a large library in minutes. `--keep` asks what was
built there. Ends with exit code 1 where a goal is missed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import yaml
from corpus import write_corpus
from serve import publish
from sizes import require_kept
from starlette.testclient import TestClient

from rag_platform.config.folders import SHIPPED
from rag_platform.config.settings import load_settings
from rag_platform.config.strategies import load_strategy
from rag_platform.ledger.ledger import open_ledger
from rag_platform.observability import tracing
from rag_platform.storage.store import Store

PAGE_MS, FIRST_SECONDS = 150.0, 1.0
QUESTION = "Which timeout does the scanner of lane 7 have?"
STRATEGY = "pages"


def build(folder: Path, chunks: int, sections: int, embedder: str) -> str:
    """Build the library, unless it is there; returns what it holds, in one line."""
    config = folder / "config"
    os.environ.update(RAG_HOME=str(folder / "home"), RAG_CONFIG=str(config))
    (config / "strategies").mkdir(parents=True, exist_ok=True)
    shipped = yaml.safe_load((SHIPPED / "strategies" / "fast.yaml").read_text(encoding="utf-8"))
    shipped["embedding"] = {"provider": embedder}
    (config / "strategies" / f"{STRATEGY}.yaml").write_text(
        yaml.safe_dump({**shipped, "name": STRATEGY}), encoding="utf-8"
    )
    (config / "settings.yaml").write_text(f"default_strategy: {STRATEGY}\n", encoding="utf-8")
    settings = load_settings()
    strategy, built = load_strategy(settings, STRATEGY), folder / "built.txt"
    if not built.is_file():
        write_corpus(folder / "docs", chunks, strategy, settings, sections=sections)
        built.write_text(publish(folder / "docs", STRATEGY), encoding="utf-8")
    require_kept(Store(settings.home), settings.default_namespace, strategy, chunks)
    return built.read_text(encoding="utf-8")


def addresses(client: TestClient) -> Iterator[str]:
    """Every page, and those of one document, chunk and trace; at last a trace of 5,000 events."""
    yield from ("/", f"/?q={QUESTION}", "/browser", "/browser?group_by=tags", "/browser?words=note")
    yield from ("/ingestion", "/releases", "/drafts", "/ingestion-traces", "/query-traces")
    yield from ("/evaluation", "/overview", "/api/status", "/api/documents", "/api/traces")
    settings = load_settings()
    space = settings.default_namespace
    chunk = client.get("/api/ask", params={"q": QUESTION}).json()["results"][0]["chunk_id"]
    trace = client.get("/api/traces", params={"limit": 1}).json()["traces"][0]["trace_id"]
    with closing(open_ledger(Store.of(settings))) as ledger:
        document = next(iter(ledger.documents(space))).doc_id
    yield f"/documents/{space}/{document}"
    yield f"/chunks/{space}/{chunk}"
    yield f"/source/{space}/{chunk}"
    yield f"/traces/{trace}"
    yield f"/traces/{_write_trace(Store.of(settings).logs_dir, space)}"


def _write_trace(logs_dir: Path, namespace: str) -> str:
    """The id of a trace of 5,000 events in 1,000 stages."""
    with tracing.trace("ingestion", logs_dir=logs_dir, namespace=namespace) as trace:
        for number in range(1_000):
            with tracing.span("stage.loader", provider_type="loader", provider_id="loader.bench"):
                for _ in range(5):
                    tracing.event("ingest.parse_summary", {"text": QUESTION, "number": number})
    return trace.trace_id


def main() -> None:
    """Build, ask every page, and judge."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--chunks", type=int, default=10_000)
    parser.add_argument("--sections", type=int, default=5)
    parser.add_argument("--embedder", default="hashing")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--keep", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.keep or Path(temporary)
        print(build(folder, given.chunks, given.sections, given.embedder))
        missed = measure(given.repeats)
    sys.exit(1 if missed else 0)


def measure(repeats: int) -> int:
    """Print a line for each page; returns how many missed their goal."""
    from rag_platform.retrieval.library import Library
    from rag_platform.web.app import create_app

    missed = 0
    app = create_app(Library.open(load_settings()))
    with TestClient(app, base_url="http://127.0.0.1") as client:
        began = time.perf_counter()
        client.get("/").raise_for_status()
        first = time.perf_counter() - began
        missed += first > FIRST_SECONDS
        print(f"first page {first:.2f} s of {FIRST_SECONDS:g}")
        for address in addresses(client):
            spent = []
            for _ in range(repeats + 1):
                began = time.process_time()
                client.get(address, headers={"Accept": "text/html"}).raise_for_status()
                spent.append((time.process_time() - began) * 1000)
            median = statistics.median(spent[1:])  # the first one fills caches
            missed += median > PAGE_MS
            verdict = "" if median <= PAGE_MS else f"  MISSED ({PAGE_MS:g})"
            print(f"{median:7.1f} ms  {address}{verdict}")
    return missed


if __name__ == "__main__":
    main()
