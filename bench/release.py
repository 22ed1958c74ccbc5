"""What the release of a small edit takes in a large library, step by step, and that it equals a
full build.

    python bench/release.py [--chunks 5000 50000] [--edits 3] [--full] [--keep FOLDER]

Ten chunks are edited, once one in each of ten documents, once all in one document, and the release
is built, checked and published: from embeddings to CURRENT, evaluation excluded. The floor beside
it writes, flushes and hashes as many bytes as the release wrote. With `--full` a full build of the
same versions is compared: chunk ids, vectors, hits and scores of 100 questions, and of 100 vectors
scanned exactly. The library is that of bench/query.py: `--keep` leaves it there, or takes up one
that an earlier run of either left, and refuses one of another size, strategy or code.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import re
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import query as libraries
from corpus import question

from rag_platform.indexes.dense_files import read_matrix
from rag_platform.indexes.embedding_cache import EmbeddingCache
from rag_platform.releases.building import Lineage, LiveVersions, build
from rag_platform.releases.manifest import read_manifest
from rag_platform.releases.publishing import roll_back
from rag_platform.releases.release_store import open_release

GOAL_SECONDS = 2.0


@dataclass(frozen=True)
class Cost:
    """What a block took: seconds on the wall and of processor, bytes sent to the disk."""

    wall: float
    cpu: float
    written: int


class Meter:
    """Measures one block; `cost` holds what it took."""

    def __enter__(self) -> Meter:
        self._before = self._now()
        return self

    def __exit__(self, *_: object) -> None:
        after = self._now()
        self.cost = Cost(*(new - old for old, new in zip(self._before, after, strict=True)))

    def _now(self) -> tuple[float, float, int]:
        io = Path("/proc/self/io")
        written = (
            int(re.search(r"^write_bytes: (\d+)", io.read_text(), re.M)[1]) if io.is_file() else 0
        )  # type: ignore[index]
        return time.perf_counter(), time.process_time(), written


def floor(folder: Path, size: int) -> float:
    """Seconds that writing, flushing and hashing so many bytes take."""
    block = os.urandom(1 << 20)
    started = time.perf_counter()
    with open(folder / "floor", "wb") as target:
        for _ in range(size >> 20):
            target.write(block)
        target.flush()
        os.fsync(target.fileno())
    with open(folder / "floor", "rb") as source:
        hashlib.file_digest(source, "sha256")
    seconds = time.perf_counter() - started
    (folder / "floor").unlink()
    return seconds


def one_chunk_each(folder: Path, word: str) -> None:
    """Put a word into the last chunk of ten documents that lie far apart."""
    paths = sorted(folder.rglob("*.md"))
    for path in paths[:: max(1, len(paths) // 10)][:10]:
        path.write_text(
            path.read_text(encoding="utf-8").rstrip("\n") + f" {word}\n", encoding="utf-8"
        )


def all_in_one(folder: Path, word: str) -> None:
    """Put a word into every paragraph of one document."""
    path = sorted(folder.rglob("*.md"))[len(word)]
    lines = path.read_text(encoding="utf-8").split("\n")
    path.write_text(
        "\n".join(f"{line} {word}" if line and line[0] not in "#|" else line for line in lines),
        encoding="utf-8",
    )


def difference(shelf: libraries.Shelf, release_id: str) -> list[str]:
    """In what a release differs from a full build of the same versions; empty is right."""
    with (
        EmbeddingCache(shelf.store.embeddings_path) as cache,
        libraries.timed("full build of the same versions"),
    ):
        live = shelf.ledger.live(libraries.NAMESPACE)
        build(
            shelf.store,
            libraries.NAMESPACE,
            shelf.strategy,
            LiveVersions(live),
            release_id="full",
            lineage=Lineage(full=True),
            cache=cache,
            settings=shelf.settings,
        )
    grown, whole = (
        open_release(shelf.store, libraries.NAMESPACE, release_id=name)
        for name in (release_id, "full")
    )
    assert grown.lexical and whole.lexical and grown.dense and whole.dense
    (ids, matrix), (whole_ids, whole_matrix) = (
        read_matrix(shelf.store.release_dir(libraries.NAMESPACE, name) / "dense")
        for name in (release_id, "full")
    )
    found = (
        []
        if ids == whole_ids and grown.catalog.chunk_ids() == whole.catalog.chunk_ids() == ids
        else ["chunk ids"]
    )
    if grown.lexical.ids() != whole.lexical.ids():
        found.append("chunk ids of the word index")
    if not np.array_equal(matrix, whole_matrix):
        found.append("vectors")
    rng = random.Random(9)
    for number in range(100):
        text = question(rng)
        if grown.lexical.search(text, 50) != whole.lexical.search(text, 50):
            found.append(f"hits of {text!r}")
        vector = np.array(whole_matrix[rng.randrange(len(whole_ids))])
        if grown.dense.search(vector, 50) != whole.dense.search(vector, 50):
            found.append(f"nearest of vector {number}")
    grown.close()
    whole.close()
    return found


def run(root: Path, chunks: int, edits: int, full: bool) -> None:
    """Print the figures of a library of `chunks` chunks."""
    print(
        f"\n"
        f"{chunks} chunks asked for; load average {os.getloadavg()[0]:.1f} on {os.cpu_count()}"
        " cores"
    )
    shelf = libraries.build(root, chunks)
    stamp, release_id = f"{time.time():.0f}", ""
    for name, edit in (
        ("one chunk in each of ten documents", one_chunk_each),
        ("ten chunks in one document", all_in_one),
    ):
        for number in range(edits):
            edit(root / "rest", f"amended{stamp}x{number}")
            shelf.ingest(shelf.receive(root / "rest"))
            with Meter() as meter:
                release_id = shelf.publish()
            manifest = read_manifest(shelf.store.release_dir(libraries.NAMESPACE, release_id))
            cost, least = meter.cost, floor(root, meter.cost.written)
            steps = ", ".join(
                f"{step} {seconds:.2f}" for step, seconds in manifest.delta["seconds"].items()
            )
            print(
                f"  {name}, {manifest.counts['chunks']} chunks: {cost.wall:.2f} s (goal"
                f" {GOAL_SECONDS:.0f}; {cost.cpu:.2f} s of processor), {cost.written / 1e6:.0f} MB"
                f" written, {cost.wall / least:.1f} x their floor of {least:.2f} s\n"
                f"      {steps}"
            )
    with Meter() as meter:
        roll_back(libraries.NAMESPACE, None, shelf.workspace)
    print(f"  roll back: {meter.cost.wall:.3f} s (goal 1)")
    if full:
        wrong = difference(shelf, release_id)
        print(
            "  compared with a full build:"
            f" {'equal ids, vectors, hits and scores' if not wrong else '; '.join(wrong[:5])}"
        )
    shelf.ledger.close()


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--chunks", type=int, nargs="*", default=[5000, 50000])
    parser.add_argument("--edits", type=int, default=3)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args(arguments)
    for chunks in options.chunks:
        if options.keep is not None:
            run(options.keep.resolve() / str(chunks), chunks, options.edits, options.full)
            continue
        with tempfile.TemporaryDirectory(prefix="rag-bench-") as name:
            run(Path(name), chunks, options.edits, options.full)


if __name__ == "__main__":
    main()
