"""Finds the release that changed an answer, by binary search over the kept releases."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rag_platform.errors import NotFoundError
from rag_platform.evaluation.cases import Dataset, EvalCase
from rag_platform.evaluation.expectations import TOP, judge
from rag_platform.evaluation.gates import describe_changes
from rag_platform.evaluation.labels import LabelReader
from rag_platform.evaluation.measuring import CHEAP_METRIC_SETS
from rag_platform.evaluation.results import CaseResult, ResultStore
from rag_platform.evaluation.runs import RunOptions, evaluate
from rag_platform.retrieval.library import Lease, Library


@dataclass(frozen=True, slots=True)
class Bisection:
    """`release_id` is the first release that answers as the newest does, `before` its predecessor.
    If all answer alike, `release_id` is the oldest one.
    """

    met: bool  # whether the newest release meets the expectation
    reason: str  # why not
    release_id: str
    before: str | None  # None: all kept releases answer alike
    suspects: tuple[str, ...]  # changes between the two that concern this question
    changes: tuple[str, ...]  # all changes between the two
    asked: tuple[str, ...]  # releases in the order they were evaluated


def bisect(
    library: Library, namespace: str, release_ids: Sequence[str], case: EvalCase, store: ResultStore
) -> Bisection:
    """Find the release that changed whether a case is met among releases from oldest to newest, by
    evaluating 1 + log2(n) of them. Raises NotFoundError without releases.
    """
    if not release_ids:
        raise NotFoundError(f"library {namespace!r} has no releases", code="no_release")
    results: dict[str, CaseResult] = {}
    dataset = Dataset(dataset_id="bisect", version="1", cases=(case,), k_values=(TOP, 10))

    def ask(release_id: str) -> tuple[bool, str]:
        with library.lease(namespace, release_id) as lease:
            config = library.config_id(lease.strategy)
        run = evaluate(
            library,
            dataset,
            RunOptions(
                namespace=namespace,
                release_id=release_id,
                strategy=config,
                metric_sets=CHEAP_METRIC_SETS,
            ),
            store,
        )
        results[release_id] = next(iter(store.cases(run.run_id)))
        verdict = judge(results[release_id])
        return verdict.met, verdict.reason

    met, reason = ask(release_ids[-1])
    low, high = 0, len(release_ids) - 1  # assumes a single change
    while low < high:
        middle = (low + high) // 2
        if ask(release_ids[middle])[0] == met:
            high = middle
        else:
            low = middle + 1
    if high == 0:
        return Bisection(met, reason, release_ids[0], None, (), (), tuple(results))
    before, after = release_ids[high - 1], release_ids[high]
    with library.lease(namespace, before) as old, library.lease(namespace, after) as new:
        changes = describe_changes(old, new)
        suspects = list(_expected_changes(dataset, old, new))
        if not (results[before].stale or results[after].stale):  # it exists, but is outranked
            suspects += _newcomers(results[after], old, new)
        suspects += [change for change in changes if change.startswith("config ")]
    return Bisection(met, reason, after, before, tuple(suspects), changes, tuple(results))


def _expected_changes(dataset: Dataset, old: Lease, new: Lease) -> Iterator[str]:
    """The changes of the documents with the expected text."""
    versions: dict[str, list[str]] = {}
    for lease in (old, new):
        release = lease.release
        labels = LabelReader.of(release, dataset).read(dataset.cases[0])
        for chunk in release.catalog.chunks(labels.chunks).values():
            versions.setdefault(chunk.doc_id, [])
        for doc_id in labels.documents:
            versions.setdefault(doc_id, [])
    for lease in (old, new):
        live = {item.doc_id: item.version_id for item in lease.release.catalog.versions().values()}
        for doc_id, found in versions.items():
            found.append(live.get(doc_id, ""))
    for doc_id, (before, after) in versions.items():
        if not after:
            yield f"document {doc_id} is gone"
        elif not before:
            yield f"document {doc_id} is new"
        elif before != after:
            yield f"document changed: {before} -> {after}"


def _newcomers(result: CaseResult, old: Lease, new: Lease) -> Iterator[str]:
    """Versions among the first hits that are not in the previous release."""
    ranked = [item["chunk_id"] for item in result.artifacts["retrieved"]][:TOP]
    chunks = new.release.catalog.chunks(ranked)
    versions = {chunk.version_id for chunk in chunks.values()}
    known = old.release.catalog.versions(versions)
    for version_id in sorted(versions):
        if version_id not in known:
            yield f"{version_id} came and is among the first {TOP} hits"
