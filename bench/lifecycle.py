"""Real revisions of a folder of Markdown, ingested one over the other: what changed, what was
computed, what was rewritten.

    python bench/lifecycle.py FOLDER... [--strategy fast] [--edits 50000 100000]

A FOLDER holds `r1.tar.gz`, `r2.tar.gz`, ... (the same files at several times) and
`changes-r1-r2.tsv`, ... (`A`, `M` or `D`, a tab, the path). For each step the run must find exactly
the changes that the table names, compute exactly one embedding for each text that was never seen
before, and leave every other vector as it was; anything else is printed as WRONG, and the exit code
is 1. `--edits` adds the edit of ten chunks in namespaces of these sizes (see bench/release.py).
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import sys
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import release
from ingest import NAMESPACE, Root, cpu_seconds, new_root, remove

from rag_platform.documents.versions import VersionBuild
from rag_platform.indexes.catalog import CatalogReader
from rag_platform.indexes.dense_files import read_matrix
from rag_platform.indexes.lexical import open_reader
from rag_platform.ingestion.request import IngestionTotals
from rag_platform.intake.receiving import ReceiveOptions, Reception, receive
from rag_platform.ir import Version
from rag_platform.normalisation.edits import canonical
from rag_platform.releases.manifest import Manifest
from rag_platform.releases.proofs.verification import verify_release
from rag_platform.releases.publishing import build_candidate, publish_candidate
from rag_platform.workspace import Workspace

KINDS = {"A": "new", "M": "new_version", "D": "retired"}


@dataclass
class Held:
    """What a release holds: vectors and the hash of each chunk's indexed words by chunk id, and the
    live versions.
    """

    vectors: dict[str, bytes]
    words: dict[str, str]
    postings: set[str]


@dataclass
class Step:
    """One revision taken in: what receiving decided, what it cost, and the release that came of
    it.
    """

    reception: Reception
    totals: IngestionTotals
    manifest: Manifest
    seconds: dict[str, float]  # of processors

    @property
    def total(self) -> float:
        """Those from the first look at the folder to the moved pointer."""
        return sum(self.seconds.values())


@dataclass
class Findings:
    """Lines to print, and how many of them say WRONG."""

    wrong: int = 0
    lines: list[str] = field(default_factory=list)

    def say(self, text: str, ok: bool = True) -> None:
        """Print a finding."""
        self.wrong += not ok
        print(f"  {text}" if ok else f"  WRONG {text}", flush=True)


def take_in(root: Root, folder: Path) -> Step:
    """Receive the folder as it is now, process what changed, build and publish the release."""
    seconds: dict[str, float] = {}

    def timed(name: str, function: Callable[[], object]) -> object:
        began = cpu_seconds()
        found = function()
        seconds[name] = cpu_seconds() - began
        return found

    workspace = Workspace(
        settings=root.settings, strategy=root.strategy, store=root.store, ledger=root.ledger
    )
    reception = timed(
        "receive",
        lambda: receive([folder], NAMESPACE, workspace, ReceiveOptions(sync=True)),
    )
    assert isinstance(reception, Reception)
    totals = timed("ingest", lambda: root.ingest(root.versions(reception.to_process)))
    assert isinstance(totals, IngestionTotals)
    built = timed("release", lambda: build_candidate(NAMESPACE, workspace)[0])
    assert isinstance(built, Manifest) and not built.failures, built
    timed("publish", lambda: publish_candidate(NAMESPACE, built.release_id, workspace))
    return Step(reception, totals, built, seconds)


def held(root: Root, release_id: str) -> Held:
    """What the release's stores hold, read from them."""
    directory = root.store.release_dir(NAMESPACE, release_id)
    catalog = CatalogReader(directory / "catalog.sqlite")
    entries = [
        entry
        for version_id in catalog.versions()
        for entry in catalog.entries_of_version(version_id)
    ]
    catalog.close()
    ids, matrix = read_matrix(directory / "dense")
    rows = {chunk_id: np.asarray(row).tobytes() for chunk_id, row in zip(ids, matrix, strict=True)}
    words = {entry.chunk.chunk_id: entry.sparse_hash for entry in entries if entry.sparse_hash}
    return Held(rows, words, set(open_reader(root.strategy.lexical, directory / "lexical").ids()))


def texts(root: Root, version: Version) -> Iterator[str]:
    """The hashes of the texts of a version that want an embedding, taken from the texts and not
    from what ingestion says of them.
    """
    for view in VersionBuild(version, root.strategy, root.settings, root.store).views:
        if view.dense_text.strip():
            yield hashlib.sha256(
                canonical(view.dense_text, root.strategy.cleaning).encode()
            ).hexdigest()


def expected_changes(path: Path, source: str) -> dict[str, set[str]]:
    """Decision to source_uris, from a table of changes."""
    rows = [
        line.split("\t") for line in path.read_text(encoding="utf-8").splitlines() if line.strip()
    ]
    return {
        decision: {f"{source}/{name}" for letter, name in rows if letter == sign}
        for sign, decision in KINDS.items()
    }


def unpack(archive: Path, folder: Path) -> None:
    """Replace the folder by what the archive holds."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")


def run(material: Path, strategy: str, findings: Findings) -> None:
    """Take in every revision below `material` and say what each step came to."""
    root = new_root(strategy)
    folder = root.store.home.parent / f"{root.store.home.name}-files" / "live"
    archives = sorted(material.glob("r[0-9]*.tar.gz"))
    known: set[str] = set()
    before: Held | None = None
    first = 0.0
    names = [archive.name.removesuffix(".tar.gz") for archive in archives]
    print(f"\n{material.name}, strategy {strategy}")
    for number, archive in enumerate(archives):
        unpack(archive, folder)
        uris = {
            document.doc_id: document.source_uri for document in root.ledger.documents(NAMESPACE)
        }
        step = take_in(root, folder)
        first = first or step.total
        parts = ", ".join(f"{name} {seconds:.2f}" for name, seconds in step.seconds.items())
        print(
            f" {names[number]}: {step.total:.2f} s of processors ({parts}),"
            f" {step.total / first:.3f} of the first"
        )
        if number:
            changes = expected_changes(
                material / f"changes-{names[number - 1]}-{names[number]}.tsv", "live"
            )
            items = step.reception.items
            found = {
                decision: {item.source_uri for item in items if item.decision == decision}
                for decision in ("new", "new_version")
            }
            found["retired"] = {uris[doc_id] for doc_id in step.reception.retired}
            for decision, wanted in changes.items():
                differ = sorted(wanted ^ found[decision])
                findings.say(
                    f"{decision}: {len(found[decision])}, the table says {len(wanted)}"
                    f" {differ[:3] or ''}",
                    not differ,
                )
        findings.say(
            f"failed: {len(step.totals.failures)} {step.totals.failures[:2] or ''}",
            not step.totals.failures,
        )
        hashes = {
            item for _, version in root.ledger.live(NAMESPACE) for item in texts(root, version)
        }
        new = hashes - known
        known |= hashes
        findings.say(
            f"embeddings computed: {step.totals.embeddings_computed}, new texts: {len(new)}, of"
            f" {len(hashes)}",
            step.totals.embeddings_computed == len(new),
        )
        after = held(root, step.manifest.release_id)
        if before is not None:
            _compare(before, after, step.manifest, findings)
        before = after
        proved = verify_release(root.store, NAMESPACE)
        findings.say(
            f"{proved.checked} quotes proved, {len(proved.failures)} not", not proved.failures
        )
    shutil.rmtree(folder.parent)
    remove(root)


def _compare(before: Held, after: Held, manifest: Manifest, findings: Findings) -> None:
    """Say whether exactly the delta's chunks differ between two releases."""
    delta = manifest.delta
    changed = {
        chunk_id
        for chunk_id in before.vectors.keys() & after.vectors.keys()
        if before.vectors[chunk_id] != after.vectors[chunk_id]
    }
    added, removed = (
        after.vectors.keys() - before.vectors.keys(),
        before.vectors.keys() - after.vectors.keys(),
    )
    findings.say(
        f"vectors: +{len(added)} -{len(removed)}, {len(changed)} of {len(after.vectors)} kept ones"
        f" differ; the delta says chunks +{delta['chunks_added']} -{delta['chunks_removed']}, full"
        f" build: {delta['full_build']}",
        not changed
        and not delta["full_build"]
        and len(added) <= delta["chunks_added"]
        and len(removed) <= delta["chunks_removed"],
    )
    indexed = {c for c in after.words if before.words.get(c) != after.words[c]}
    gone = before.postings - after.postings
    findings.say(
        f"postings: {len(indexed)} chunks with new words, {len(gone)} gone, {len(after.postings)}"
        " in all",
        after.postings == set(after.words)
        and len(indexed - before.words.keys()) <= delta["chunks_added"],
    )


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", type=Path, nargs="*", metavar="FOLDER")
    parser.add_argument("--strategy", default="fast")
    parser.add_argument("--edits", type=int, nargs="*", default=[], metavar="CHUNKS")
    options = parser.parse_args()
    findings = Findings()
    for folder in options.folders:
        run(folder, options.strategy, findings)
    if options.edits:
        release.main(["--chunks", *map(str, options.edits)])
    print(f"\n{findings.wrong} findings are wrong")
    return 1 if findings.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
