"""The checks that a candidate must pass before it can be published."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from rag_platform.config.settings import Limits, Strategy
from rag_platform.documents.drift import MOVED
from rag_platform.documents.provenance import count_edited, verify_version
from rag_platform.indexes import dense, dense_files, lexical
from rag_platform.indexes.catalog import CatalogReader
from rag_platform.indexes.catalog_tables import CATALOG
from rag_platform.indexes.dense_files import Ids
from rag_platform.ir import StageOutcome, VerifyFailure, Version
from rag_platform.processes.worker import Workers, split_into_tasks
from rag_platform.protocols import Vectors
from rag_platform.releases.manifest import FILENAME, CheckResult
from rag_platform.storage.store import Store, files_below, flush_file, sha256_file
from rag_platform.text.wording import pluralise

CHECKS: dict[str, str] = {
    "counts_agree": "The catalog and each index hold the same chunks, and every chunk id once.",
    "embeddings_complete": "Every chunk with text has a vector.",
    "vectors_valid": "Every vector is finite and of length 1, and texts do not share one vector.",
    "ann_recall": (
        "The recall of the approximate index is measured where questions may use it. It never"
        " fails: an index below `retrieval.ann_recall` is not used."
    ),
    "versions_complete": "Every live version is present, and no other.",
    "provenance_proved": "Every quote of a version new to the release stands in its source file.",
    "files_intact": "Every file of the release was written whole.",
}

PROCESSED = "processed"

# name: (stage whose outcome is judged, description)
DOCUMENT_CHECKS: dict[str, tuple[str, str]] = {
    PROCESSED: (
        "raw_document",
        (
            "The document passed every stage. Where it did not: the stage, the reason and what to"
            " do. A file that cannot be read only warns, and the other documents go live. Few that"
            " passed at once have a result."
        ),
    ),
    "pages_complete": (
        "facts",
        (
            "Every page of the file is in the facts, or named as one that holds no text; none was"
            " unreadable."
        ),
    ),
    "text_kept": (
        "chunks",
        (
            "The words that a second reader finds in the file stand in the chunks, or are listed as"
            " dropped on purpose. A file without pages has a result only where something is lost."
        ),
    ),
    "chunks_stable": (
        "chunks",
        (
            "Chunks moved only where the text did; otherwise a profile explains it: see `rag docs"
            " history DOC`."
        ),
    ),
}

_KEPT: tuple[str, ...] = ("text_kept", "text_words", "text_found", "text_set_aside")
_ROWS_AT_ONCE = 16_384
_SHOWN = 5
# Two different texts rarely get the same vector. When most of a sample of this size share one, the
# model is broken; among fewer than ten texts it may be chance (hand-chosen bounds).
_COMPARED_TEXTS, _FEWEST_TEXTS = 500, 10


def document_checks(outcome: StageOutcome) -> list[CheckResult]:
    """The check results that a stage's outcome implies for its document; often none."""
    counts = outcome.counts
    if outcome.stage == "chunks":
        found = []
        state = counts.get("text_kept_state", "kept")
        # an event costs more than chunking a short text: without pages only a loss is reported
        if state != "kept" or counts.get("text_pages"):
            kept = {name: counts[name] for name in _KEPT if name in counts}
            found.append(
                CheckResult("text_kept", state == "kept", counts["text_kept_details"], kept)
            )
        if counts.get("drift", "content") != "content":
            found.append(
                CheckResult("chunks_stable", counts["drift"] not in MOVED, counts["drift_details"])
            )
        return found
    if outcome.stage != "facts" or not counts.get("pages"):
        return []
    pages, out, failed = int(counts["pages"]), int(counts["pages_out"]), int(counts["pages_failed"])
    details = (
        f"{out} of {pluralise(pages, 'page')}; {counts['pages_without_text']} without text,"
        f" {failed} of these could not be read"
    )
    named = [
        warning
        for warning in outcome.warnings
        if warning.startswith(("page ", "pages ", "nothing could be read"))
    ]
    figures = {
        "pages": pages,
        "pages_in_facts": out,
        "pages_without_text": counts["pages_without_text"],
        "pages_failed": failed,
    }
    return [
        CheckResult(
            "pages_complete",
            out == pages and not failed,
            "; ".join([details, *named[:_SHOWN]]),
            figures,
        )
    ]


def is_severe(outcome: StageOutcome, result: CheckResult) -> bool:
    """True for a failed check that means loss: most of the document's text cannot be found."""
    return result.name == "text_kept" and outcome.counts.get("text_kept_state") == "failed"


@dataclass(frozen=True, slots=True)
class IndexChanges:
    """Ids of the chunks removed from and added to an index; a changed chunk is in both sets."""

    removed: set[str] = field(default_factory=set)
    added: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class Candidate:
    """A release directory under test, and what it should hold."""

    directory: Path
    store: Store
    strategy: Strategy
    profiles: Mapping[str, str]
    limits: Limits  # of reading a file again
    live: Collection[str]  # version_ids, of the `changed` documents only
    to_prove: Sequence[Version]  # versions whose provenance no earlier release has proved
    files: Collection[str]  # relative paths
    changed: Collection[str] | None = None  # doc_ids; None for all
    versions: int = 0  # the expected number of versions, given `changed`
    parent: str | None = None  # the release with which the carried files were checked
    carried: Collection[str] = ()  # files shared with the parent
    ann_recall: float | None = None  # as measured when the base was written
    # of the word index and of the vectors, against a parent whose catalog agrees with both
    index_changes: tuple[IndexChanges, IndexChanges] | None = None

    def results(self, workers: Workers) -> tuple[list[CheckResult], dict[str, str]]:
        """The results of CHECKS, in that order, and version_id to the first reason of those whose
        provenance is not proved. `workers` share the proofs.
        """
        with closing(CatalogReader(self.directory / CATALOG)) as catalog:
            counts = catalog.counts()
            vectors = [
                CheckResult(name, True, "the strategy builds no vectors")
                for name in ("embeddings_complete", "vectors_valid", "ann_recall")
            ]
            if self.strategy.builds_dense:
                vectors = [
                    self._embeddings_complete(catalog, counts),
                    self._vectors_valid(catalog),
                    self._ann_recall(),
                ]
            proved, unproved = self._provenance_proved(workers)
            return [
                self._counts_agree(catalog, counts),
                *vectors,
                self._versions_complete(catalog, counts),
                proved,
                self._files_intact(),
            ], unproved

    def _counts_agree(self, catalog: CatalogReader, counts: Mapping[str, int]) -> CheckResult:
        wrong = index_differences(self.directory, self.strategy, catalog, self.index_changes)
        documents = pluralise(counts["documents"], "document")
        details = f"{pluralise(counts['chunks'], 'chunk')} of {documents}"
        if self.strategy.builds_dense:
            indexed = len(dense_files.read_parts(self.directory / "dense").ids)
            if not dense.has_ann(self.directory / "dense"):
                details += "; no approximate index, for every question scans exactly"
            elif f"dense/{dense_files.BASE}" in self.carried:
                details += (
                    f"; the approximate index over {indexed} of them as in release {self.parent}"
                )
            else:
                with closing(dense.open_ann(self.strategy.dense, self.directory / "dense")) as ann:
                    if (count := ann.count()) != indexed:
                        wrong.append(f"approximate index: {count} vectors, expected {indexed}")
        figures = {"chunks": counts["chunks"], "documents": counts["documents"]}
        return CheckResult("counts_agree", not wrong, "; ".join(wrong) or details, figures)

    def _embeddings_complete(
        self, catalog: CatalogReader, counts: Mapping[str, int]
    ) -> CheckResult:
        details = (
            f"{counts['dense']} embedded, {counts['failed_embed']} failed, {counts['no_text']}"
            " without text"
        )
        if counts["failed_embed"]:
            details += f": {', '.join(sorted(catalog.unembedded())[:_SHOWN])}"
        figures = {
            "embedded": counts["dense"],
            "failed": counts["failed_embed"],
            "without_text": counts["no_text"],
        }
        return CheckResult("embeddings_complete", not counts["failed_embed"], details, figures)

    def _vectors_valid(self, catalog: CatalogReader) -> CheckResult:
        parts = dense_files.read_parts(self.directory / "dense")
        bad = _bad_rows(parts.fresh_ids, parts.fresh)
        shared = _find_shared(catalog, parts.fresh_ids, parts.fresh)
        details = f"{pluralise(parts.count(), 'vector')} of length 1"
        if f"dense/{dense_files.BASE}" in self.carried:
            details = (
                f"{pluralise(len(parts.fresh_ids), 'vector')} of length 1, {len(parts.ids)} in the"
                f" file that was proved with release {self.parent}"
            )
        else:
            bad += [name for name in _bad_rows(parts.ids, parts.base) if name not in parts.gone]
            shared = shared or _find_shared(catalog, parts.ids, parts.base)
        if bad:
            details = f"{pluralise(len(bad), 'vector')} not of length 1: {', '.join(bad[:_SHOWN])}"
        figures = {"vectors": parts.count(), "invalid": len(bad)}
        return CheckResult("vectors_valid", not (bad or shared), shared or details, figures)

    def _ann_recall(self) -> CheckResult:
        """Never a failure: an index below `retrieval.ann_recall` is not used."""
        details = "no approximate index: every question scans exactly"
        figures: dict[str, float] = {}
        if dense.has_ann(self.directory / "dense"):
            details = "not measured by the program that built the release"
            if self.ann_recall is not None:
                figures["recall@10"] = self.ann_recall
                details = (
                    f"recall@10 {self.ann_recall:.3f} against exact scans, over 50 stored vectors"
                )
                if self.ann_recall < (floor := self.strategy.retrieval.ann_recall):
                    details += (
                        f"; below {floor:g} (retrieval.ann_recall), so questions scan exactly"
                    )
        return CheckResult("ann_recall", True, details, figures)

    def _versions_complete(self, catalog: CatalogReader, counts: Mapping[str, int]) -> CheckResult:
        held, documents = catalog.version_ids(self.changed)
        live, versions = set(self.live), counts["versions"]
        wrong = [
            f"{what}: {', '.join(sorted(ids)[:_SHOWN])}"
            for what, ids in (
                ("missing versions", live - held),
                ("versions that are not live", held - live),
                ("documents without their versions", documents - held),
            )
            if ids
        ]
        if self.changed is not None and {versions, counts["documents"]} != {self.versions}:
            wrong.append(
                f"{pluralise(versions, 'version')} of {pluralise(counts['documents'], 'document')},"
                f" expected {self.versions}"
            )
        details = "; ".join(wrong) or pluralise(versions, "live version")
        figures = {"versions": versions, "missing": len(live - held), "not_live": len(held - live)}
        return CheckResult("versions_complete", not wrong, details, figures)

    def _provenance_proved(self, workers: Workers) -> tuple[CheckResult, dict[str, str]]:
        failures: list[VerifyFailure] = []
        chunks = edited = 0
        tasks = [
            (self.directory / CATALOG, self.store, self.strategy, self.profiles, self.limits, share)
            for share in split_into_tasks(self.to_prove)
        ]
        for found, checked, changed in workers.map(_prove, tasks):
            failures += found
            chunks += checked
            edited += changed
        unproved: dict[str, str] = {}
        for item in failures:
            unproved.setdefault(item.version_id, item.reason)
        shown = "; ".join(
            f"{item.source_uri} {item.chunk_id}: {item.reason}" for item in failures[:_SHOWN]
        )
        details = (
            f"{pluralise(len(failures), 'chunk')} not proved: {shown}"
            if failures
            else f"{pluralise(chunks, 'chunk')} of {pluralise(len(self.to_prove), 'new version')}"
        )
        details += (
            f"; {edited} of them edited by hand, proved are the texts they were edited from"
            if edited and not failures
            else ""
        )
        figures = {
            "versions": len(self.to_prove),
            "chunks": chunks,
            "not_proved": len(failures),
            "edited": edited,
        }
        return CheckResult("provenance_proved", not failures, details, figures), unproved

    def _files_intact(self) -> CheckResult:
        wrong = [name for name in self.files if not (self.directory / name).is_file()]
        return CheckResult(
            "files_intact",
            not wrong,
            f"files are missing: {wrong[:_SHOWN]}" if wrong else pluralise(len(self.files), "file"),
            {"files": len(self.files), "missing": len(wrong)},
        )


def _prove(
    task: tuple[Path, Store, Strategy, Mapping[str, str], Limits, Sequence[Version]],
) -> tuple[list[VerifyFailure], int, int]:
    """(failures, number of chunks, number edited by hand) of versions; a task for `Workers`."""
    path, store, strategy, profiles, limits, versions = task
    failures: list[VerifyFailure] = []
    checked = edited = 0
    with closing(CatalogReader(path)) as catalog:
        for version in versions:
            chunks = catalog.chunks_of_version(version.version_id)
            failures += verify_version(store, version, profiles, chunks, limits, strategy)
            checked += len(chunks)
            edited += count_edited(chunks)
    return failures, checked, edited


def index_differences(
    directory: Path,
    strategy: Strategy,
    catalog: CatalogReader,
    changes: tuple[IndexChanges, IndexChanges] | None = None,
) -> list[str]:
    """How the chunks of the word index and of the vectors differ from those in the release's
    catalog; empty when all agree.

    Given the `changes` of the word index and of the vectors against a parent that was checked in
    full, only the changed chunks are looked up, and the totals are compared.
    """
    wrong: list[str] = []
    words, vectors = changes or (None, None)
    in_lexical, in_dense = (
        catalog.indexed_ids() if changes is None else [it.added for it in changes]
    )
    counts = catalog.counts() if changes is not None else {}
    if strategy.builds_lexical:
        reader = lexical.open_reader(strategy.lexical, directory / "lexical")
        found = reader.ids(None if words is None else words.removed | words.added)
        expected = counts.get("lexical", len(found))
        wrong += _difference("word index", in_lexical, found, reader.count(), expected)
    if strategy.builds_dense:
        parts = dense_files.read_parts(directory / "dense")
        if vectors is None:
            found = {*parts.ids}.difference(parts.gone).union(parts.fresh_ids)
        else:
            found = parts.find_held(vectors.removed | vectors.added)
        expected = counts.get("dense", len(found))
        wrong += _difference("vectors", in_dense, found, parts.count(), expected)
    return wrong


def release_files(
    directory: Path, parent: Path | None, parent_hashes: Mapping[str, str]
) -> tuple[dict[str, str], list[str]]:
    """({file shared with the parent: sha256}, names of the other files) of a release."""
    carried: dict[str, str] = {}
    fresh: list[str] = []
    for name in files_below(directory):
        if name.endswith(".lock") or name == "manifest.json":
            continue
        if parent is not None and name in parent_hashes and _is_same(directory, parent, name):
            carried[name] = parent_hashes[name]
        else:
            fresh.append(name)
    return carried, fresh


def _is_same(directory: Path, parent: Path, name: str) -> bool:
    with suppress(FileNotFoundError):
        return (directory / name).samefile(parent / name)
    return False


def hash_files(directory: Path, names: Sequence[str]) -> dict[str, str]:
    """Relative path to sha256. Each file is flushed to disk before it is hashed."""
    with ThreadPoolExecutor() as pool:  # hashing and flushing release the interpreter lock
        return dict(
            zip(names, pool.map(lambda name: _flush_and_hash(directory / name), names), strict=True)
        )


def _flush_and_hash(path: Path) -> str:
    flush_file(path)
    return sha256_file(path)


def count_rows(catalog: CatalogReader, strategy: Strategy) -> dict[str, int]:
    """`catalog.counts()`, with 0 chunks in an index that the strategy does not build."""
    counts = catalog.counts()
    absent = {"lexical": not strategy.builds_lexical, "dense": not strategy.builds_dense}
    return counts | {name: 0 for name, is_absent in absent.items() if is_absent}


def changed_files(directory: Path, files: Mapping[str, str]) -> list[str]:
    """Names of the files that are missing or differ from their recorded sha256."""
    return [
        name
        for name, expected in files.items()
        if not (directory / name).is_file() or sha256_file(directory / name) != expected
    ]


def unknown_files(directory: Path, files: Collection[str]) -> list[str]:
    """The files that are not in the manifest, except side files of databases and engines."""
    side_files = (".lock", "-journal", "-wal", "-shm")
    return [
        name
        for name in files_below(directory)
        if name not in files and name != FILENAME and not name.endswith(side_files)
    ]


def _bad_rows(ids: Ids, matrix: Vectors) -> list[str]:
    """Ids of the rows whose length is not 1."""
    bad: list[str] = []
    for start in range(0, len(ids), _ROWS_AT_ONCE):
        block = matrix[start : start + _ROWS_AT_ONCE]
        norms = np.sqrt(np.einsum("ij,ij->i", block, block))
        bad += [ids[start + int(row)] for row in np.flatnonzero(~(np.abs(norms - 1.0) <= 1e-3))]
    return bad


def _find_shared(catalog: CatalogReader, ids: Ids, matrix: Vectors) -> str:
    """The problem when most texts of a sample have the same vector, as a broken model gives them;
    "" when they differ, or are too few to tell.
    """
    step = max(1, len(ids) // _COMPARED_TEXTS)
    sample = {ids[row]: matrix[row].tobytes() for row in range(0, len(ids), step)}
    texts = {chunk.chunk_text: sample[name] for name, chunk in catalog.chunks(sample).items()}
    if len(texts) < _FEWEST_TEXTS:
        return ""
    ((_, most),) = Counter(texts.values()).most_common(1)
    return f"{most} of {len(texts)} texts have the same vector" if 2 * most > len(texts) else ""


def _difference(
    what: str, expected: set[str], found: set[str], count: int, expected_count: int
) -> list[str]:
    wrong = []
    if lost := expected - found:
        wrong.append(f"{what}: {pluralise(len(lost), 'chunk')} missing, e.g. {min(lost)}")
    if extra := found - expected:
        wrong.append(f"{what}: {pluralise(len(extra), 'chunk')} too many, e.g. {min(extra)}")
    if count != expected_count:
        wrong.append(f"{what}: {count} rows for {expected_count} chunk ids")
    return wrong
