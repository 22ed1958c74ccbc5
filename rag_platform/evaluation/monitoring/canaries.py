"""Canaries: questions generated without a model from passages, so that the expected hit is known.

A document gets a few: the rarest words of a sentence, a heading with the rarest words of its
section, the first cells of a table row. A new release is queried with the canaries of the previous
release; those that it no longer finds are reported with the cause.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from rag_platform.api.envelopes import fill_shape
from rag_platform.config.settings import CanarySettings
from rag_platform.contract.evaluation_shapes import CanariesData, LostCanaryPart
from rag_platform.evaluation.cases import Dataset, EvalCase, ExpectedText
from rag_platform.evaluation.labels import find_quote, fold, open_catalog
from rag_platform.evaluation.results import CaseResult, EvalRun, ResultStore
from rag_platform.evaluation.runs import evaluate_release
from rag_platform.indexes.catalog import CatalogReader
from rag_platform.ir import PREAMBLE, Version
from rag_platform.releases.release_store import find_parent, require_current
from rag_platform.retrieval.library import Lease, Library
from rag_platform.text.markdown_blocks import cells, format_table
from rag_platform.text.passages import units
from rag_platform.text.scripts import has_han
from rag_platform.text.segmentation import terms
from rag_platform.traits import Traits

DATASET_ID = "canaries"
_TIMED = 8  # canaries timed to estimate how many fit into the budget
_WORDS = 6  # of a question: the rarest of its sentence
_MIN_WORDS = 3  # a sentence with fewer does not identify its document
_MIN_CHARS, _MAX_CHARS = 16, 400  # of a sentence or row to generate a question from
_CLAUSE = re.compile(r"[^\s，。；：、？！,.;:?!（）()「」“”|*#`]{6,24}")  # of a Chinese sentence
_MODE = "retrieval_only"
_HIT = "retrieval.hit_rate@10"
_COUNTED_CHUNKS = 2000  # sample for word frequencies
_MAX_SHOWN = 20


# --- making -------------------------------------------------------------------------------------


def make_canaries(catalog: CatalogReader, config: CanarySettings) -> Dataset:
    """The canaries of a release, from a sample of its documents that is stable between releases."""
    versions = sorted(catalog.versions().values(), key=lambda item: _stable_order(item.doc_id))
    rarity = _count_words(catalog)
    cases: list[EvalCase] = []
    for version in versions[: config.documents]:
        cases += _make_for_document(version, catalog, rarity, config.per_document)
    return Dataset(dataset_id=DATASET_ID, version="1", cases=tuple(cases), k_values=(1, 3, 10))


def _count_words(catalog: CatalogReader) -> Counter[str]:
    """Document frequency of each word in a sample of the chunks."""
    ids = sorted(catalog.chunk_ids(), key=_stable_order)[:_COUNTED_CHUNKS]
    return Counter(
        word for chunk in catalog.chunks(ids).values() for word in set(terms(chunk.chunk_text))
    )


def _make_for_document(
    version: Version, catalog: CatalogReader, rarity: Mapping[str, int], count: int
) -> list[EvalCase]:
    """The rarest sentences, headings and table rows in turn, as `count` cases."""
    kinds: dict[str, list[tuple[float, str, str]]] = {"phrase": [], "table": [], "heading": []}
    seen: set[str] = set()
    for chunk in catalog.chunks_of_version(version.version_id):
        for unit in units(chunk.chunk_text):
            text = chunk.chunk_text[unit.start : unit.end]
            if text in seen or not _MIN_CHARS <= len(text) <= _MAX_CHARS:
                continue
            seen.add(text)
            for kind, query in _questions(unit.kind, text, chunk.section_path, rarity):
                kinds[kind].append((_rarity_of(query, rarity), query, text))
    ranked = {kind: sorted(found) for kind, found in kinds.items()}
    chosen: dict[str, EvalCase] = {}
    for place in range(count):
        for kind, found in ranked.items():
            if place < len(found) and len(chosen) < count:
                _, query, text = found[place]
                name = hashlib.sha256(f"{version.doc_id}\n{query}".encode()).hexdigest()[:12]
                expected = ExpectedText(text=text, file=version.source_uri)
                chosen[name] = EvalCase(
                    case_id=f"canary_{name}", query=query, tags=(kind,), expected_text=(expected,)
                )
    return list(chosen.values())


def _questions(
    kind: str, text: str, section_path: str, rarity: Mapping[str, int]
) -> Iterator[tuple[str, str]]:
    """The (kind, question) pairs generated from a sentence or a table row."""
    if kind == "row":
        found = [cell for cell in cells(text) if cell.strip(" -:")]
        if len(found) > 1:
            yield "table", " ".join(found[:2])
        return
    if not (words := _rarest(text, rarity)):
        return
    yield "phrase", " ".join(words)
    heading = section_path.rpartition("/")[2].strip()
    if heading and heading != PREAMBLE:
        yield "heading", " ".join([heading, *words[: _WORDS // 2]])


def _rarest(text: str, rarity: Mapping[str, int]) -> list[str]:
    """The rarest words of a text in text order, or the rarest clause of a Chinese one; empty if the
    text has too few.
    """
    if has_han(text):
        clauses = [clause for clause in _CLAUSE.findall(text) if has_han(clause)]
        return sorted(clauses, key=lambda clause: _rarity_of(clause, rarity))[:1]
    words = [word for word in dict.fromkeys(terms(text)) if len(word) > 1]
    kept = set(sorted(words, key=lambda word: (rarity.get(word, 0), -len(word), word))[:_WORDS])
    return [word for word in words if word in kept] if len(words) >= _MIN_WORDS else []


def _rarity_of(text: str, rarity: Mapping[str, int]) -> float:
    """The mean document frequency of a text's words."""
    words = terms(text)
    return sum(rarity.get(word, 0) for word in words) / max(1, len(words))


def _stable_order(name: str) -> bytes:
    return hashlib.sha256(name.encode()).digest()


@dataclass(frozen=True)
class Canaries:
    """The dataset provider `canaries`: its source is the folder of a release."""

    documents: int = 60
    per_document: int = 2

    VERSION: ClassVar[str] = "1"
    traits: ClassVar[Traits] = Traits()

    def load(self, source: Path) -> Dataset:
        """The canaries of a release. Raises InputError `invalid_dataset` for another folder."""
        config = CanarySettings(documents=self.documents, per_document=self.per_document)
        with open_catalog(source) as catalog:
            return make_canaries(catalog, config)


# --- asking -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CanaryReport:
    """The outcome of a release's canaries."""

    release_id: str
    before: str  # the release that they were generated from
    made: int  # more than were asked, if not all fit into the budget
    run: EvalRun | None
    seconds: float
    lost: tuple[LostCanaryPart, ...]

    @property
    def alarms(self) -> tuple[LostCanaryPart, ...]:
        """The lost canaries that the removal of a text or document does not explain."""
        return tuple(it for it in self.lost if it["cause"] in ("outranked", "recut", "failed"))


def ask_canaries(
    library: Library,
    namespace: str,
    config: CanarySettings,
    release_id: str | None = None,
    before: str | None = None,
) -> CanaryReport:
    """Query a release (by default the published one) with the canaries of the one `before` (by
    default its parent; without one its own): the first eight, and as many more as fit into
    `config.seconds`. Nothing is stored, as canaries contain document text. Raises NotFoundError for
    a namespace without a release.
    """
    started = time.perf_counter()
    release_id = release_id or require_current(library.store, namespace)
    before = before or find_parent(library.store, namespace, release_id)
    with (
        closing(ResultStore(None)) as store,
        library.lease(namespace, release_id) as lease,
        library.lease(namespace, before or release_id) as old,
    ):
        dataset = make_canaries(old.release.catalog, config)
        if not dataset.cases:
            return CanaryReport(release_id, before or "", 0, None, 0.0, ())
        run = _ask(library, lease, dataset, config.seconds, store)
        found = {it.case_id: it for it in store.cases(run.run_id) if _is_missed(it)}
        missed = [case for case in dataset.cases if case.case_id in found]
        if missed and old is not lease:
            # a canary that was not found before is not lost
            only = dataclasses.replace(dataset, cases=tuple(missed))
            earlier = evaluate_release(library, old, only, store, mode=_MODE)
            right = {r.case_id for r in store.cases(earlier.run_id) if r.metrics.get(_HIT)}
            missed = [case for case in missed if case.case_id in right]
        lost = tuple(_explain(case, found[case.case_id], old, lease) for case in missed)
        seconds = time.perf_counter() - started
    return CanaryReport(release_id, before or "", len(dataset.cases), run, round(seconds, 2), lost)


def get_canaries(library: Library, namespace: str) -> CanariesData:
    """The canary report of the published release, for `/api/eval` and the pages. Raises
    NotFoundError for a namespace without a release.
    """
    report = ask_canaries(library, namespace, library.settings.canaries)
    run = report.run
    return fill_shape(
        CanariesData,
        report,
        namespace=namespace,
        asked=run.cases if run is not None else 0,
        found=run.aggregates.get(_HIT, {}).get("value") if run is not None else None,
    )


def _ask(
    library: Library, lease: Lease, dataset: Dataset, seconds: float, store: ResultStore
) -> EvalRun:
    first = dataset.sample(_TIMED)
    if lease.release.dense is not None:
        # loads the model, which would distort the timing
        library.query_vector(lease.strategy.embedding, first.cases[0].query)
    begun = time.perf_counter()
    # so would reused results
    run = evaluate_release(library, lease, first, store, mode=_MODE, reuse=False)
    each = (time.perf_counter() - begun) / len(first.cases)
    # each may cost a second query, on the previous release
    further = int(seconds / (2 * max(each, 1e-6)))
    if further <= 0 or len(dataset.cases) <= _TIMED:
        return run
    return evaluate_release(library, lease, dataset.sample(_TIMED + further), store, mode=_MODE)


def _is_missed(result: CaseResult) -> bool:
    return bool(result.error or result.stale) or not result.metrics.get(_HIT)


def _explain(case: EvalCase, result: CaseResult, old: Lease, new: Lease) -> LostCanaryPart:
    (expected,) = case.expected_text
    by = result.error
    if result.error:
        cause = "failed"
    elif result.stale:
        cause = str(result.stale[0]["reason"])
    else:
        same = _find_chunks_with(old, expected) & _find_chunks_with(new, expected)
        cause, by = "outranked" if same else "recut", "nothing was found"
        if found := result.artifacts.get("retrieved"):
            chunk_id = found[0]["chunk_id"]
            row = new.release.catalog.rows([chunk_id])[chunk_id]
            by = f"{row.source_uri} # {row.chunk.section_path}"
    return fill_shape(LostCanaryPart, result, document=expected.file, cause=cause, by=by)


def _find_chunks_with(lease: Lease, expected: ExpectedText) -> set[str]:
    """Ids of the chunks that contain the expected text, in its document."""
    catalog = lease.release.catalog
    return {
        chunk_id
        for version in catalog.versions().values()
        if version.source_uri == expected.file
        for chunk_id in find_quote(
            [
                (chunk, fold(chunk.chunk_text))
                for chunk in catalog.chunks_of_version(version.version_id)
            ],
            expected,
        )
    }


def canaries_markdown(report: CanaryReport) -> str:
    """How many were asked and found, and a table of the lost ones."""
    if report.run is None:
        return "no document holds a text that a canary could be made of"
    found = report.run.aggregates.get(_HIT, {}).get("value", 0.0)
    lines = [
        f"{report.run.cases} of {report.made} canaries of release"
        f" {report.before or report.release_id} were asked of {report.release_id} in"
        f" {report.seconds:.1f} s; of those whose text is there {found:.1%} are among ten hits."
    ]
    lines += _lost_lines(report.lost)
    return "\n".join(lines)


def _lost_lines(lost: Sequence[LostCanaryPart]) -> list[str]:
    if not lost:
        return ["", "None that was found before is lost."]
    rows = [
        (item["cause"], item["query"], item["document"], item["by"], item["trace_id"])
        for item in sorted(lost, key=lambda item: (item["cause"], item["document"]))[:_MAX_SHOWN]
    ]
    more = [f"\nand {len(lost) - _MAX_SHOWN} more"] if len(lost) > _MAX_SHOWN else []
    head = ("lost", "question", "document", "first now", "trace")
    return ["", *format_table(head, rows), *more]
