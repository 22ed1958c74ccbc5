"""Ingestion against the bare library calls on the same files, in one run.

    python bench/ingest.py [--chunks 2000 20000] [--strategy fast] [--pdf FOLDER]

Bare calls: parse (markdown-it, or pymupdf4llm with the same options) and embed the very texts that
our run embeds, with the embedder's own batching, in as many processes as there are cores. Printed:
walls, their ratio, a second ingest of the same files, and what Dagster's bookkeeping adds. On a
machine that others use the ratio of the walls says how busy it was in each half; that of the
processor times does not.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from corpus import write_corpus
from sizes import of_strategy, require_size

from rag_platform.config.settings import Settings, Strategy, load_settings
from rag_platform.config.strategies import load_strategy
from rag_platform.documents.versions import VersionBuild
from rag_platform.ingestion.batches import ingest_versions
from rag_platform.ingestion.request import IngestionTotals
from rag_platform.intake.receiving import ReceiveOptions, Reception, receive
from rag_platform.ir import Version
from rag_platform.ledger.ledger import Ledger, open_ledger
from rag_platform.processes.jobs import Progress
from rag_platform.registry import make_provider
from rag_platform.storage.store import Store
from rag_platform.workspace import DataRoot, Workspace

NAMESPACE = "bench"


@dataclass(frozen=True)
class Root:
    """A data root of its own, and what works on it."""

    settings: Settings
    store: Store
    ledger: Ledger
    strategy: Strategy

    def receive(self, folder: Path) -> Reception:
        """Receive a folder."""
        return receive(
            [folder],
            NAMESPACE,
            Workspace(
                strategy=self.strategy, settings=self.settings, store=self.store, ledger=self.ledger
            ),
            ReceiveOptions(),
        )

    def versions(self, ids: Sequence[str]) -> list[Version]:
        """The ledger's rows."""
        return [self.ledger.version(version_id) for version_id in ids]

    def ingest(self, versions: Sequence[Version]) -> IngestionTotals:
        """The seven stages, without Dagster."""
        return ingest_versions(
            versions,
            Workspace(
                settings=self.settings, strategy=self.strategy, store=self.store, ledger=self.ledger
            ),
        )


def new_root(strategy: str) -> Root:
    """An empty data root in a temporary folder, in force for this process and its children."""
    os.environ["RAG_HOME"] = tempfile.mkdtemp(prefix="rag-bench-")
    os.environ.pop("DAGSTER_HOME", None)
    settings = load_settings()
    store = Store(settings.home)
    return Root(settings, store, open_ledger(store), load_strategy(settings, strategy))


def timed(function: Callable[[], object]) -> tuple[float, object]:
    """(seconds, result) of one call."""
    started = time.perf_counter()
    result = function()
    return time.perf_counter() - started, result


def cpu_seconds() -> float:
    """Processor time of this process and of its ended children so far."""
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(item.ru_utime + item.ru_stime for item in usage)


def parse_markdown(files: Sequence[Path]) -> None:
    """What the bare parser does with the same files."""
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark").enable("table")
    for path in files:
        parser.parse(path.read_text(encoding="utf-8"))


def parse_pdf(files: Sequence[Path]) -> None:
    """What the bare layout parser does with the same files."""
    import pymupdf
    import pymupdf.layout
    import pymupdf4llm

    for path in files:
        with pymupdf.open(path) as document:
            pymupdf4llm.to_markdown(document, page_chunks=True, use_ocr=False, show_progress=False)


def embed_share(provider: str, options: dict[str, object], texts: list[str]) -> int:
    """Embed texts with the bare library in this process; returns how many."""
    return len(make_provider("embedder", provider, options).embed(texts))


def embed_bare(strategy: Strategy, texts: list[str], processes: int) -> None:
    """Embed texts in as many processes as there are cores, each calling the library once on its
    share.
    """
    ordered = sorted(texts, key=len)
    shares = [ordered[i::processes] for i in range(processes)]
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        list(
            pool.map(
                embed_share,
                [strategy.embedding.provider] * processes,
                [strategy.embedding.options] * processes,
                shares,
            )
        )


def texts_of(root: Root, versions: Sequence[Version]) -> list[str]:
    """The distinct texts that a run over these versions embeds."""
    views = (
        v
        for version in versions
        for v in VersionBuild(version, root.strategy, root.settings, root.store).views
    )
    return list(
        {view.content_hash: view.dense_text for view in views if view.dense_text.strip()}.values()
    )


def run_dagster(root: Root, ids: Sequence[str]) -> float:
    """Seconds of the Dagster job over versions whose outputs all exist: its bookkeeping, and
    reading what is reused; imports excluded.
    """
    import dagster as dg

    import rag_platform.definitions  # noqa: F401
    from rag_platform.assets.instance import prepare
    from rag_platform.assets.launch import Work, run_documents

    prepare(root.store)
    job = root.ledger.add_job("ingest", NAMESPACE, {"version_ids": list(ids)})
    with dg.DagsterInstance.get() as instance:
        work = Work(
            job,
            DataRoot(settings=root.settings, store=root.store, ledger=root.ledger),
            instance,
            Progress(root.ledger, job.job_id),
        )
        return timed(lambda: run_documents(work))[0]


def remove(root: Root) -> None:
    """Delete a data root."""
    root.ledger.close()
    shutil.rmtree(root.store.home)


def measure(
    label: str,
    folder: Path,
    root: Root,
    parse: Callable[[Sequence[Path]], None],
    suffix: str,
    chunks: int = 0,
) -> None:
    """Print one table of figures for one corpus. Raises SystemExit when it was to have `chunks`
    chunks and has not.
    """
    files = sorted(folder.rglob(f"*{suffix}"))
    reception = root.receive(folder)
    versions = root.versions(reception.to_process)
    cpu = [cpu_seconds()]
    ours, totals = timed(lambda: root.ingest(versions))
    cpu.append(cpu_seconds())
    assert isinstance(totals, IngestionTotals)
    if chunks:
        require_size(chunks, totals.chunks)
    landed = [v for v in root.versions(reception.to_process) if v.status == "ready"]
    texts = texts_of(root, landed)
    cpu.append(cpu_seconds())
    parse_seconds = timed(lambda: parse(files))[0]
    embed_seconds = timed(lambda: embed_bare(root.strategy, texts, os.cpu_count() or 1))[0]
    bare = parse_seconds + embed_seconds
    cpu.append(cpu_seconds())
    again, second = timed(lambda: root.receive(folder))
    assert isinstance(second, Reception)
    print(f"\n{label}; load average {os.getloadavg()[0]:.1f}")
    size = sum(path.stat().st_size for path in files)
    print(
        f"  built: {totals.documents} documents of {size / 1e6:.1f} MB, {totals.chunks} chunks,"
        f" {len(texts)} vectors, {len(totals.failures)} failed; {of_strategy(root.strategy)}"
    )
    rate = len(texts) / embed_seconds
    print(
        f"  bare libraries      {bare:8.2f} s   parse {parse_seconds:.2f} + embed"
        f" {embed_seconds:.2f} ({rate:.0f} texts/s)"
    )
    print(
        f"  our seven stages    {ours:8.2f} s   ratio {ours / bare:.2f}  "
        f" {totals.documents / ours:.1f} documents/s"
    )
    if suffix == ".md":  # the children that read PDFs live on, so their time cannot be told yet
        ours_cpu, bare_cpu = cpu[1] - cpu[0], cpu[3] - cpu[2]
        print(
            f"  processor time      {bare_cpu:8.2f} s   ours {ours_cpu:.2f} s, ratio"
            f" {ours_cpu / bare_cpu:.2f}"
        )
    print(
        f"  the same again      {again:8.2f} s   {100 * again / ours:.1f} % of the first,"
        f" {len(second.to_process)} to process"
    )
    if landed:
        ids = [v.version_id for v in landed]
        # Twice, and the faster one counts: a shared machine only ever adds time.
        reused = min(timed(lambda: root.ingest(landed))[0] for _ in range(2))
        dagster = min(run_dagster(root, ids) for _ in range(2))
        alone = run_dagster(root, ids[:1])
        added = 1000 * (dagster - reused) / len(ids)
        print(
            f"  all outputs reused  {reused:8.2f} s   as a Dagster run {dagster:.2f} s: bookkeeping"
            f" {added:.1f} ms a document in all;"
        )
        print(f"                                 a run over one document takes {alone:.2f} s")
    remove(root)


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--chunks", type=int, nargs="*", default=[2000])
    parser.add_argument("--strategy", default="fast")
    parser.add_argument("--pdf", type=Path, help="a folder of PDFs to measure too")
    options = parser.parse_args()
    for chunks in options.chunks:
        with tempfile.TemporaryDirectory() as folder:
            root = new_root(options.strategy)
            write_corpus(Path(folder), chunks, root.strategy, root.settings)
            measure(
                f"Markdown, {chunks} chunks asked for",
                Path(folder),
                root,
                parse_markdown,
                ".md",
                chunks,
            )
    if options.pdf:
        measure(
            f"PDF, {options.pdf.name}", options.pdf, new_root(options.strategy), parse_pdf, ".pdf"
        )


if __name__ == "__main__":
    main()
