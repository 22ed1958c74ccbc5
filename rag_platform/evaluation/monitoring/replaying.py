"""Explains a changed answer: replays a traced question and compares the rankings, or finds the
release that changed the answer by binary search over the kept releases.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rag_platform.answering.engine import answer
from rag_platform.api.asking import rank_both
from rag_platform.api.envelopes import fill_shape
from rag_platform.api.trace_details import read_question_trace, read_rows
from rag_platform.contract.traces import ReplayData
from rag_platform.errors import InputError, NotFoundError
from rag_platform.evaluation.cases import Dataset, EvalCase
from rag_platform.evaluation.expectations import TOP, judge
from rag_platform.evaluation.gates import describe_changes
from rag_platform.evaluation.labels import LabelReader
from rag_platform.evaluation.measuring import CHEAP_METRIC_SETS
from rag_platform.evaluation.results import CaseResult, ResultStore
from rag_platform.evaluation.runs import evaluate_release
from rag_platform.ir import Json, QueryRequest
from rag_platform.retrieval.library import Lease, Library
from rag_platform.text.wording import pluralise

_FIELDS = {field.name for field in dataclasses.fields(QueryRequest)}


@dataclass(frozen=True, slots=True)
class Replay:
    """The rankings then and now, and why they differ; `reasons` are empty if they do not."""

    trace_id: str
    release_id: str
    before: tuple[str, ...]
    after: tuple[str, ...]
    reasons: tuple[str, ...]
    new_trace_id: str

    @property
    def same(self) -> bool:
        return self.before == self.after


def replay(library: Library, trace: Json, *, release_id: str = "", strategy: str = "") -> Replay:
    """Run the question of a trace (as read by `trace_reader.show`) again, by default on the
    recorded release and config.

    Raises InputError `not_replayable` for a trace without a question or ranking, NotFoundError if
    the release or the config is no longer kept.
    """
    recorded = trace.get("attrs", {})
    request = recorded.get("request") or {}
    text = str(request.get("text") or "")
    if trace.get("trace_type") != "query" or "ranked_chunk_ids" not in recorded or not text:
        raise InputError(
            f"{trace['trace_id']} cannot be asked again: it records no question with its ranking",
            code="not_replayable",
        )
    if len(request.get("namespaces") or ()) > 1:
        raise InputError(
            f"{trace['trace_id']} asked several libraries; only a question to one can be replayed",
            code="not_replayable",
        )
    old_release = str(recorded["release_id"])
    values = {
        **{name: value for name, value in request.items() if name in _FIELDS},
        "namespaces": tuple(request.get("namespaces") or ()),
        "searches": tuple(request.get("searches") or ()),
        "release_id": release_id or old_release,
        "strategy": strategy or str(trace["strategy_config_id"]),
    }
    result = answer(library, QueryRequest(**values))
    found = Replay(
        trace_id=str(trace["trace_id"]),
        release_id=release_id or old_release,
        before=tuple(recorded["ranked_chunk_ids"]),
        after=tuple(hit.chunk_id for hit in result.hits),
        reasons=(),
        new_trace_id=result.trace_id,
    )
    if found.same:
        return found
    reasons = _explain(library, str(request["namespace"]), old_release, found, strategy)
    return dataclasses.replace(found, reasons=tuple(reasons))


def replay_question(library: Library, trace_id: str, *, published: bool = False) -> ReplayData:
    """Replay a question on the recorded or the published release, and describe the ranked chunks.
    Raises what `read_question_trace` and `replay` raise.
    """
    trace = read_question_trace(library, trace_id)
    request = trace["attrs"]["request"]
    namespace = str(request["namespace"])
    now = library.current(namespace) if published else ""
    found = replay(library, trace, release_id=now)
    rows = rank_both(found.before, found.after)
    for release_id in dict.fromkeys((str(trace["attrs"]["release_id"]), found.release_id)):
        wanted = [row["chunk_id"] for row in rows if "source_uri" not in row]
        places, _ = read_rows(library, namespace, release_id, wanted)
        for row in rows:
            if (chunk_row := places.get(row["chunk_id"])) is not None:
                row["source_uri"] = chunk_row.source_uri
                row["section_path"] = chunk_row.chunk.section_path
    question = str(request["text"])
    return fill_shape(ReplayData, found, question=question, namespace=namespace, rows=rows)


def _explain(
    library: Library, namespace: str, old_release: str, found: Replay, strategy: str
) -> list[str]:
    """The causes of different rankings; `strategy` is empty for the recorded one."""
    reasons = []
    with library.lease(namespace, found.release_id) as lease:
        if hidden := library.hidden_chunks(lease) & {*found.before}:
            verb = "was" if len(hidden) == 1 else "were"
            reasons.append(f"{pluralise(len(hidden), 'hit')} {verb} deleted since")
        if missing := {*found.before} - lease.release.catalog.chunks(found.before).keys():
            verb = "is" if len(missing) == 1 else "are"
            hits = pluralise(len(missing), "hit")
            reasons.append(f"{hits} {verb} not in release {found.release_id}")
        if strategy:
            reasons.append(f"asked as strategy {strategy}")
        if found.release_id != old_release:
            reasons += _describe_changes_since(library, namespace, old_release, lease)
    if not reasons:
        new = [chunk_id for chunk_id in found.after if chunk_id not in found.before]
        reasons.append(
            f"the same release and config gave {len(new)} other hits, or another order: a"
            " stage that failed then or now, another version of the program or of a model"
        )
    return reasons


def _describe_changes_since(
    library: Library, namespace: str, release_id: str, lease: Lease
) -> list[str]:
    try:
        with library.lease(namespace, release_id) as old:
            return [f"since then: {change}" for change in describe_changes(old, lease)]
    except NotFoundError:
        return [f"release {release_id} is no longer kept, so what changed since cannot be named"]


# --- bisecting ------------------------------------------------------------------------------------


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
            run = evaluate_release(library, lease, dataset, store, metric_sets=CHEAP_METRIC_SETS)
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
