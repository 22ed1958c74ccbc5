"""A library of a million chunks, without the days that a million would take to be ingested.

    python bench/scale.py --chunks 1000000 [--of 10000] [--edits 3] [--queries 50] --keep FOLDER
    [--folder FOLDER --questions FILE ...]

A real library of `--of` chunks is built by bench/query.py, or taken up, and written again many
times over by the program's own writers: every copy has ids of its own, each of its vectors is moved
a little and of its texts a tenth of the terms is left out, so that no two chunks score alike. The
copies have no files and no stage outputs: what is measured is the release of an edit of one real
document, from vectors to CURRENT, and questions. Not measured is the first build.

The made-up texts have some sixty words, most of them in nearly every chunk; `--folder` grows a
library of real files instead, asked the questions of JSON lines (`question`).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import random
import re
import shutil
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import query as libraries
from corpus import question
from release import Meter, floor
from sizes import require_size

from rag_platform.answering.engine import answer
from rag_platform.indexes import dense, dense_files
from rag_platform.indexes.catalog import CatalogReader
from rag_platform.indexes.catalog_tables import CATALOG, CatalogWriter, Entry
from rag_platform.indexes.document_names import write_names
from rag_platform.ir import QueryRequest
from rag_platform.ledger.hiding import LedgerView
from rag_platform.ledger.schema import Release
from rag_platform.providers.tantivy import IndexedRow, Tantivy
from rag_platform.providers.term_analysis import Analysis
from rag_platform.releases.checks import hash_files, release_files
from rag_platform.releases.manifest import VERSIONS, read_manifest, write_manifest, write_versions
from rag_platform.releases.proofs.catalog_proof import given_fingerprints
from rag_platform.releases.publishing import publish_candidate
from rag_platform.releases.release_store import open_release, require_current
from rag_platform.retrieval.library import Library
from rag_platform.storage.store import read_records

NAMESPACE = libraries.NAMESPACE
RELEASE = "grown"
NOISE = 0.02  # of each number of a vector; a unit vector of 384 has .05 each


def copy_of(name: str, number: int) -> str:
    """The id of the copy of a chunk; the chunk's own for number 0."""
    if not number:
        return name
    return hashlib.sha256(f"{name}/{number}".encode()).hexdigest()[:24]


def owner_of(name: str, number: int) -> str:
    """The id or address of the copy of a document or version; the address is in no real folder."""
    return f"copy-{number}-{name}" if number else name


def entry_of(entry: Entry, number: int) -> Entry:
    """The copy of a row of the catalog."""
    chunk = entry.chunk
    return replace(
        entry,
        chunk=replace(
            chunk,
            chunk_id=copy_of(chunk.chunk_id, number),
            section_id=copy_of(chunk.section_id, number),
            doc_id=owner_of(chunk.doc_id, number),
            version_id=owner_of(chunk.version_id, number),
        ),
    )


def grow(shelf: libraries.Shelf, times: int) -> None:
    """Publish a release that holds the published one so many times."""
    parent = require_current(shelf.store, NAMESPACE)
    source = shelf.store.release_dir(NAMESPACE, parent)
    target = shelf.store.release_dir(NAMESPACE, RELEASE)
    target.mkdir()
    manifest = read_manifest(source)
    copy_ledger(shelf, times)
    with libraries.timed(f"catalog of {times} copies"):
        copy_catalog(source, target, times)
    with libraries.timed("names"):
        write_names(target / CATALOG)
    with libraries.timed("vectors"):
        copy_vectors(shelf, source, target, times)
    with libraries.timed("word index"):
        rows = [
            row
            for path in sorted((source / "lexical").glob("*.parquet"))
            for row in read_records(path, IndexedRow)
        ]
        options = shelf.strategy.lexical.options
        with mock.patch.object(Analysis, "rows", lambda self, given: given):
            Tantivy(**options).update(
                target / "lexical",
                removed={},
                rows=copy_rows(rows, times),  # type: ignore[arg-type]
            )
    with libraries.timed("hashes and manifest"), closing(CatalogReader(target / CATALOG)) as held:
        counts = {**manifest.counts, **held.counts()}
        chunks = held.chunk_counts()
        of_versions = {
            "versions": chunks,
            "editions": {},
            "outputs": dict.fromkeys(chunks, next(iter(manifest.outputs.values()))),
            "given": given_fingerprints(held, chunks),
        }
        _, names = release_files(target, None, {})
        files = hash_files(target, names)
        files[VERSIONS] = write_versions(target / VERSIONS, of_versions)
        write_manifest(
            target,
            replace(
                manifest,
                release_id=RELEASE,
                parent=parent,
                counts=counts,
                files=dict(sorted(files.items())),
            ),
        )
    shelf.ledger.put_release(
        Release(
            namespace=NAMESPACE,
            release_id=RELEASE,
            parent=parent,
            state="candidate",
            strategy=shelf.strategy.name,
            strategy_config_id=manifest.strategy_config_id,
            created_at=manifest.created_at,
            counts=counts,
            sequence=shelf.ledger.sequence(NAMESPACE),
        )
    )
    publish_candidate(
        NAMESPACE,
        RELEASE,
        shelf.workspace,
    )


def copy_ledger(shelf: libraries.Shelf, times: int) -> None:
    """Give every copy its document and its version."""
    with closing(sqlite3.connect(shelf.store.ledger_path)) as db, db:
        for table in ("documents", "versions"):
            names = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
            rows = db.execute(f"SELECT {', '.join(names)} FROM {table}").fetchall()
            for number in range(1, times):
                copied = [
                    tuple(
                        f"copy-{number}"
                        if name == "source"
                        else owner_of(value, number)
                        if isinstance(value, str) and name.endswith(("_id", "_version", "_uri"))
                        else value
                        for name, value in zip(names, row, strict=True)
                    )
                    for row in rows
                ]
                db.executemany(
                    f"INSERT INTO {table} ({', '.join(names)}) VALUES"
                    f" ({', '.join('?' * len(names))})",
                    copied,
                )


def copy_catalog(source: Path, target: Path, times: int) -> None:
    """Write the catalog of all copies."""
    with (
        closing(CatalogReader(source / CATALOG)) as held,
        CatalogWriter(target / CATALOG) as catalog,
    ):
        documents, versions = held.documents(), held.versions()
        catalog.replace_documents(
            replace(
                document,
                doc_id=owner_of(document.doc_id, number),
                source=f"copy-{number}" if number else document.source,
                source_uri=owner_of(document.source_uri, number),
                live_version=owner_of(document.live_version or "", number),
                wanted_version=owner_of(document.wanted_version or "", number),
            )
            for number in range(times)
            for document in documents
        )
        for version in versions.values():
            entries = held.entries_of_version(version.version_id)
            sections = held.sections(version.doc_id)
            for number in range(times):
                catalog.add_version(
                    replace(
                        version,
                        version_id=owner_of(version.version_id, number),
                        doc_id=owner_of(version.doc_id, number),
                        source_uri=owner_of(version.source_uri, number),
                    ),
                    [replace(s, section_id=copy_of(s.section_id, number)) for s in sections],
                    [entry_of(entry, number) for entry in entries],
                    [],
                )


def copy_vectors(shelf: libraries.Shelf, source: Path, target: Path, times: int) -> None:
    """Write the vectors of all copies, each moved a little."""
    ids, matrix = dense_files.read_matrix(source / "dense")
    (target / "dense").mkdir()
    rng = np.random.default_rng(5)
    spool = dense_files.Spool(target / ".vectors", matrix.shape[1])
    for number in range(times):
        moved = matrix + rng.normal(0, NOISE if number else 0, matrix.shape).astype(np.float32)
        moved /= np.linalg.norm(moved, axis=1, keepdims=True)
        spool.add([copy_of(chunk_id, number) for chunk_id in ids], list(moved))
    dense.update(
        shelf.strategy.dense,
        target / "dense",
        dim=matrix.shape[1],
        removed=(),
        ids=spool.ids,
        vectors=spool.rows(),
        retrieval=shelf.strategy.retrieval,
    )
    spool.close()


def copy_rows(rows: Sequence[IndexedRow], times: int) -> Iterator[IndexedRow]:
    """The rows of the word index of all copies, each without a tenth of its terms."""
    rng = random.Random(5)
    for number in range(times):
        for row in rows:
            terms = row.text.split(" ")
            left = rng.sample(terms, len(terms) - len(terms) // 10) if number else terms
            yield replace(
                row,
                chunk_id=copy_of(row.chunk_id, number),
                doc_id=owner_of(row.doc_id, number),
                text=" ".join(left),
            )


def build_of_files(root: Path, folder: Path) -> libraries.Shelf:
    """A published library of a copy of the folder under `root`."""
    shutil.copytree(folder, root / "rest")
    shelf = libraries.new_shelf(root)
    shelf.ingest(shelf.receive(root / "rest"))
    shelf.publish()
    return shelf


def read_questions(files: Sequence[Path], count: int) -> list[str]:
    """So many questions of the files, drawn by chance; made-up ones where there are no files."""
    rng = random.Random(3)
    if not files:
        return [question(rng) for _ in range(count)]
    lines = [line for path in files for line in path.read_text(encoding="utf-8").splitlines()]
    return [json.loads(line)["question"] for line in rng.sample(lines, min(count, len(lines)))]


def measure_edits(root: Path, shelf: libraries.Shelf, edits: int) -> None:
    """Print what the release of an edit of one document takes and writes, and of its removal."""
    path = sorted((root / "rest").rglob("*.md"))[3]
    for number in range(edits):
        path.write_text(
            path.read_text(encoding="utf-8").rstrip("\n") + f" scaled{time.time_ns()}\n",
            encoding="utf-8",
        )
        shelf.ingest(shelf.receive(root / "rest"))
        measure_release(root, shelf, f"edit {number + 1} of one document")
    if edits:
        shelf.ledger.retire(NAMESPACE, [shelf.ledger.documents(NAMESPACE)[3].doc_id])
        measure_release(root, shelf, "removal of one document")


def measure_release(root: Path, shelf: libraries.Shelf, what: str) -> None:
    """Build, check and publish what is live, and print what that took."""
    with Meter() as meter:
        release_id = shelf.publish()
    directory = shelf.store.release_dir(NAMESPACE, release_id)
    own = sum(
        found.stat().st_size
        for found in directory.rglob("*")
        if found.is_file() and found.stat().st_nlink == 1
    )
    manifest, cost = read_manifest(directory, ()), meter.cost
    steps = ", ".join(f"{step} {took:.2f}" for step, took in manifest.delta["seconds"].items())
    print(
        f"  {what}, {manifest.counts['chunks']} chunks: {cost.wall:.2f} s,"
        f" {cost.cpu:.2f} s of processor, {cost.written / 1e6:.0f} MB written,"
        f" {own / 1e6:.1f} MB the release's own; the floor of as many bytes"
        f" {floor(root, cost.written):.2f} s\n      {steps}",
        flush=True,
    )


def private_mb() -> float:
    """Memory of this process that no other could share; pages of mapped files are not counted."""
    lines = Path("/proc/self/smaps_rollup").read_text(encoding="utf-8")
    return sum(int(kb) for kb in re.findall(r"^Private_Dirty:\s+(\d+)", lines, re.M)) / 1024


def ask(root: Path, texts: Sequence[str]) -> None:
    """Print what questions take in a process of its own."""
    shelf = libraries.new_shelf(root)
    library = Library(shelf.settings, shelf.store, LedgerView(shelf.store))
    began = time.process_time()
    with library.lease(NAMESPACE) as lease:
        lease.release.dense.prepare()
    print(f"  opened and prepared: {time.process_time() - began:.2f} s of processor")
    for mode in ("sparse", "dense", "hybrid"):
        best = []
        for text in texts:
            rounds = []
            for _ in range(3):
                used, began = time.process_time(), time.perf_counter()
                answer(library, QueryRequest(text, NAMESPACE, mode=mode, answer=False))
                rounds.append((time.process_time() - used, time.perf_counter() - began))
            best.append(np.min(rounds, axis=0))
        for what, (p50, p95) in zip(
            ("of the processor", "waited"),
            1000 * np.percentile(best, (50, 95), axis=0).T,
            strict=True,
        ):
            print(f"  {mode:<8} p50 {p50:6.1f}  p95 {p95:6.1f} ms {what}", flush=True)
    print(f"  private memory of the process that asked: {private_mb():.0f} MB")
    with closing(open_release(shelf.store, NAMESPACE)) as release:
        vectors = [library.query_vector(shelf.strategy.embedding, text)[0] for text in texts[:10]]
        release.dense.prepare()
        found = [release.dense.search(vector, 10) for vector in vectors]
        release.dense._rounded = None
        whole = [release.dense.search(vector, 10) for vector in vectors]
        same = sum(one == other for one, other in zip(found, whole, strict=True))
        print(f"  nearest ten as by a scan of every vector: {same} of {len(vectors)} questions")
    library.close()


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--chunks", type=int, default=100_000)
    parser.add_argument("--of", type=int, default=10_000)
    parser.add_argument("--edits", type=int, default=3)
    parser.add_argument("--queries", type=int, default=50)
    parser.add_argument("--keep", type=Path, required=True)
    parser.add_argument("--folder", type=Path, help="real files, instead of --of")
    parser.add_argument("--questions", type=Path, nargs="*", default=[])
    options = parser.parse_args(arguments)
    root = options.keep.resolve()
    if grown(root):
        shelf = libraries.new_shelf(root)
    else:
        shelf = (
            build_of_files(root, options.folder)
            if options.folder
            else libraries.build(root, options.of)
        )
        first = require_current(shelf.store, NAMESPACE)
        manifest = read_manifest(shelf.store.release_dir(NAMESPACE, first), ())
        grow(shelf, round(options.chunks / int(manifest.counts["chunks"])))
        (root / RELEASE).touch()
    published = shelf.store.release_dir(NAMESPACE, require_current(shelf.store, NAMESPACE))
    manifest = read_manifest(published, ())
    require_size(options.chunks, int(manifest.counts["chunks"]))
    print(f"  {json.dumps(manifest.counts)}; load average {os.getloadavg()[0]:.1f}")
    for kind in sorted({path.parent.name + path.suffix for path in published.rglob("*.*")}):
        held = [p for p in published.rglob("*.*") if p.parent.name + p.suffix == kind]
        print(f"    {kind:<24}{sum(p.stat().st_size for p in held) / 1e6:10.1f} MB", flush=True)
    measure_edits(root, shelf, options.edits)
    shelf.ledger.close()
    texts = read_questions(options.questions, options.queries)
    asking = multiprocessing.get_context("spawn").Process(target=ask, args=(root, texts))
    asking.start()
    asking.join()


def grown(root: Path) -> bool:
    """True when the library was grown by an earlier run; edits drop the release of that name."""
    return (root / RELEASE).is_file()


if __name__ == "__main__":
    main()
