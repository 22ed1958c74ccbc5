"""Quality gates: whether a candidate release may be published, judged by its answers.

Before a candidate is published it answers the gate's questions, and is compared with the published
release question by question. Every regression is reported with its cause.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from rag_platform.config.gates import GateConfig
from rag_platform.errors import ProviderError
from rag_platform.evaluation.cases import Dataset, EvalCase
from rag_platform.evaluation.expectations import judge
from rag_platform.evaluation.labels import LabelReader, Labels
from rag_platform.evaluation.measuring import CHEAP_METRIC_SETS
from rag_platform.evaluation.metrics import bootstrap, cutoff_of, mean, sort_metrics
from rag_platform.evaluation.results import CaseResult, ResultStore
from rag_platform.evaluation.runs import evaluate_release
from rag_platform.ir import Chunk
from rag_platform.retrieval.library import Lease, Library
from rag_platform.text.wording import pluralise

_TOP = 10  # releases are compared by their first hits, whatever `k_values` a dataset has
_HIT_RATE = f"retrieval.hit_rate@{_TOP}"
_MRR = f"retrieval.mrr@{_TOP}"
_REFUSAL = "refusal.right"
_COMPARED = (_HIT_RATE, _MRR, f"retrieval.ndcg@{_TOP}", _REFUSAL)
# smaller mean differences do not hold a release back; chosen by hand
_TOLERANCE = 0.01
# A document that keeps a smaller share of its chunks counts as replaced, and its expectations as
# lost; one that keeps more was edited, and labels that it no longer satisfies are stale. Chosen by
# hand.
_KEPT_SHARE = 0.5
_TIMED_CASES = 8  # timed to estimate how many fit into `max_seconds`
_SHOWN = 10
_OUTRANKED = "its passage is there, but other passages come first"
# the same by the artifacts of a result, in the order of its stages
_OUTRANKED_BY = {
    "before_fusion": "its passage is there, but the retrievers find other passages first",
    "after_fusion": "its passage is found, but the fusion puts other passages first",
    "after_rerank": "its passage is found, but the reranker puts other passages first",
}


@dataclass(frozen=True, slots=True)
class Lost:
    """A question that the published release answers right and the candidate does not."""

    case_id: str
    query: str
    cause: str
    before: str  # rank or state in the published release
    after: str
    trace_before: str
    trace_after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The verdict of a gate on a candidate, which passes if there are no `reasons`."""

    dataset_id: str
    run_id: str
    baseline_run_id: str = ""
    reasons: tuple[str, ...]
    lost: tuple[Lost, ...]
    unmet: tuple[Lost, ...] = ()  # expectations that the published release does not meet either
    changes: tuple[str, ...]  # of config and documents between the two releases
    notes: tuple[str, ...] = ()  # floors that are reached, questions that were not measured
    means: Mapping[str, float]  # of the candidate by metric; lost questions count 0

    @property
    def passed(self) -> bool:
        return not self.reasons


def judge_candidate(
    library: Library,
    namespace: str,
    candidate_id: str,
    published_id: str | None,
    gates: Sequence[tuple[GateConfig, Dataset]],
    expectations: Dataset | None,
    store: ResultStore,
) -> list[Verdict]:
    """The verdict of every gate, that of the expectations last; each release answers under the
    config that it was built with. Raises ProviderError if the candidate was asked while a model or
    another part of the search failed: such answers tell neither for nor against it.
    """
    with (
        library.lease(namespace, candidate_id) as candidate,
        library.lease(namespace, published_id) if published_id else nullcontext() as published,
    ):
        return _GateJudge(library, candidate, published, store).verdicts(gates, expectations)


class _GateJudge:
    def __init__(
        self, library: Library, candidate: Lease, published: Lease | None, store: ResultStore
    ) -> None:
        self._library, self._store = library, store
        self._candidate, self._published = candidate, published
        self._changes = () if published is None else describe_changes(published, candidate)

    def verdicts(
        self, gates: Sequence[tuple[GateConfig, Dataset]], expectations: Dataset | None
    ) -> list[Verdict]:
        found = [self._judge(gate, dataset) for gate, dataset in gates]
        if expectations is not None and expectations.cases:
            found.append(self._judge_expectations(expectations))
        return found

    def _run(
        self,
        lease: Lease | None,
        dataset: Dataset,
        metric_sets: tuple[str, ...] = CHEAP_METRIC_SETS,
        gate: GateConfig | None = None,
    ) -> tuple[str, dict[str, CaseResult]]:
        """(run_id, results by case_id) of a release; empty without one."""
        if lease is None:
            return "", {}
        judge = gate.judge if gate else None
        asked = [cutoff_of(name) for name in gate.floors] if gate else []
        cutoffs = tuple(sorted({*dataset.k_values, _TOP, *filter(None, asked)}))
        dataset = dataclasses.replace(dataset, k_values=cutoffs)
        run = evaluate_release(
            self._library, lease, dataset, self._store, metric_sets=metric_sets, judge=judge
        )
        return run.run_id, {result.case_id: result for result in self._store.cases(run.run_id)}

    def _judge(self, gate: GateConfig, whole: Dataset) -> Verdict:
        dataset = self._sample(whole, gate.max_seconds)
        metric_sets: tuple[str, ...] = CHEAP_METRIC_SETS
        if any(name.startswith("citation.") for name in gate.floors):
            metric_sets += ("citations",)
        if gate.judge:
            metric_sets += ("judged",)
        run_id, after = self._run(self._candidate, dataset, metric_sets, gate)
        _require_whole(dataset, after)
        baseline_run_id, before = self._run(self._published, dataset, metric_sets, gate)
        lost, gone = self._lost(dataset, before, after)
        values = _values(after, gone)
        means = _means(values)
        reasons, notes = _judge_means(values, gate.floors)
        if errors := [item.error for item in after.values() if item.error]:
            failed = pluralise(len(errors), "question")
            reasons.insert(0, f"{failed} failed, the first with {errors[0]}")
        if len(dataset.cases) < len(whole.cases):
            notes.append(
                f"{len(dataset.cases)} of {len(whole.cases)} questions were asked, as many as fit"
                " into max_seconds"
            )
        measured = gone | {item.case_id for item in after.values() if item.metrics}
        reasons += _judge_measured(dataset, measured, gate.least_measured)
        if unmeasured := sorted(after.keys() - measured):
            notes.append(
                f"{len(unmeasured)} of {pluralise(len(after), 'question')} could not be measured,"
                " for the release holds nothing that they expect to find:"
                f" {', '.join(unmeasured[:_SHOWN])}"
            )
        if unjudged := sum(item.artifacts.get("unjudged", 0) for item in after.values()):
            notes.append(f"{pluralise(unjudged, 'score')} the judge failed to give")
        if gate.not_worse and gone:
            reasons.append(
                f"the expected text or document is gone of {pluralise(len(gone), 'question')}:"
                f" {', '.join(sorted(gone)[:_SHOWN])}"
            )
        if gate.not_worse:
            worse, doubtful = _find_losses(_values(before, set()), values)
            reasons, notes = reasons + worse, notes + doubtful
            # its model may be gone for ever, so it holds nothing back
            if stages := ", ".join(sorted(_find_failed(before))):
                notes.append(f"the published release was asked while this failed: {stages}")
        return Verdict(
            dataset_id=dataset.dataset_id,
            run_id=run_id,
            baseline_run_id=baseline_run_id,
            reasons=tuple(reasons),
            lost=tuple(lost),
            changes=self._changes if reasons else (),
            notes=tuple(notes),
            means=means,
        )

    def _judge_expectations(self, dataset: Dataset) -> Verdict:
        run_id, after = self._run(self._candidate, dataset)
        _require_whole(dataset, after)
        missed = [verdict for item in after.values() if not (verdict := judge(item)).met]
        before = self._find_met_before(dataset, {verdict.case_id for verdict in missed})
        lost: list[Lost] = []
        unmet: list[Lost] = []
        for v in missed:
            trace = before.get(v.case_id)
            state = "not met" if trace is None else "met"
            item = Lost(v.case_id, v.query, v.reason, state, "not met", trace or "", v.trace_id)
            (unmet if trace is None else lost).append(item)
        reason = f"{len(missed)} of {pluralise(len(after), 'expectation')} not met"
        return Verdict(
            dataset_id=dataset.dataset_id,
            run_id=run_id,
            reasons=(reason,) if missed else (),
            lost=tuple(lost),
            unmet=tuple(unmet),
            changes=self._changes if missed else (),
            means=_means(_values(after, set())),
        )

    def _find_met_before(self, dataset: Dataset, missed: set[str]) -> dict[str, str]:
        """case_id to trace_id of the `missed` expectations that the published release meets."""
        if not missed:
            return {}
        cases = tuple(case for case in dataset.cases if case.case_id in missed)
        _, results = self._run(self._published, dataclasses.replace(dataset, cases=cases))
        return {name: item.trace_id for name, item in results.items() if judge(item).met}

    def _sample(self, dataset: Dataset, max_seconds: float | None) -> Dataset:
        """The dataset, or a sample that fits into the budget."""
        if max_seconds is None or len(dataset.cases) <= _TIMED_CASES:
            return dataset
        started = time.perf_counter()
        self._run(self._candidate, dataset.sample(_TIMED_CASES))
        each = (time.perf_counter() - started) / _TIMED_CASES
        return dataset.sample(max(_TIMED_CASES, int(max_seconds / max(each, 1e-6))))

    def _lost(
        self, dataset: Dataset, before: Mapping[str, CaseResult], after: Mapping[str, CaseResult]
    ) -> tuple[list[Lost], set[str]]:
        """(the lost questions, the ids of those whose document or text is gone)."""
        found: list[Lost] = []
        gone: set[str] = set()
        if self._published is None:
            return found, gone
        old = LabelReader.of(self._published.release, dataset)
        new = LabelReader.of(self._candidate.release, dataset)
        for case in dataset.cases:
            one, other = before[case.case_id], after[case.case_id]
            if not _is_right(one):
                continue
            if cause := self._find_gone(case, one, other, old):
                gone.add(case.case_id)
            else:
                cause = _why_worse(case, one, other)
            if cause == _OUTRANKED:
                cause = _find_stage(new.read(case), other)
            if cause:
                states, traces = (_state(one), _state(other)), (one.trace_id, other.trace_id)
                found.append(Lost(case.case_id, case.query, cause, *states, *traces))
        return found, gone

    def _find_gone(
        self, case: EvalCase, before: CaseResult, after: CaseResult, old: LabelReader
    ) -> str:
        """Which document or text the candidate lacks of what the published release has for the
        case; empty if none, or if its document was only edited, which makes the label stale.
        `old` reads the labels in the published release.
        """
        known = {label["label"] for label in before.stale}
        reasons = {
            label["label"]: label["reason"] for label in after.stale if label["label"] not in known
        }
        if self._published is None or after.error or not reasons:
            return ""
        if "document_gone" in reasons.values():
            return "its document is gone"
        expected = old.read(case).chunks
        for row in self._published.release.catalog.rows(sorted(expected)).values():
            fresh = {reasons[label] for label in expected[row.chunk.chunk_id] & reasons.keys()}
            if fresh and (cause := self._why_gone(row.chunk, fresh)):
                return cause
        return ""

    def _why_gone(self, chunk: Chunk, reasons: Collection[str]) -> str:
        """Why the candidate lacks what this chunk of the published release satisfied; empty if its
        document was edited. The text of an unchanged document was dropped by config or program.
        """
        assert self._published is not None
        old, new = self._published.release.catalog, self._candidate.release.catalog
        before, after = old.version(chunk.version_id), new.version(chunk.version_id)
        unchanged = before is not None and after is not None and before.edition == after.edition
        if unchanged and "text_gone" in reasons:
            return f"document {chunk.doc_id} is unchanged, but no passage has the text any more"
        ids = [other.chunk_id for other in old.chunks_of_version(chunk.version_id)]
        if len(new.chunks(ids)) >= _KEPT_SHARE * len(ids):
            return ""
        if unchanged:
            return f"document {chunk.doc_id} is unchanged, but cut into other chunks"
        return f"the text of document {chunk.doc_id} was replaced"


def _find_failed(results: Mapping[str, CaseResult]) -> dict[str, CaseResult]:
    """The stages that failed of any question, each with the last such question."""
    return {stage: item for item in results.values() for stage in item.failed_stages}


def _require_whole(dataset: Dataset, results: Mapping[str, CaseResult]) -> None:
    """Raises ProviderError if a stage failed of a question, which then tells nothing about the
    release.
    """
    if failed := _find_failed(results):
        first = next(iter(failed.values()))
        cause = f" with {first.error}" if first.error else ""
        raise ProviderError(
            f"questions of {dataset.dataset_id} were asked while this failed:"
            f" {', '.join(sorted(failed))}{cause}; `rag trace show {first.trace_id}` shows one",
            code="gate_interrupted",
        )


def _why_worse(case: EvalCase, before: CaseResult, after: CaseResult) -> str:
    """Why a question that was right no longer is, though what it expects is there; empty if it
    still is.
    """
    if after.error:
        return f"the question failed: {after.error}"
    if after.metrics.get(_HIT_RATE, 1.0) < before.metrics.get(_HIT_RATE, 1.0):
        return _OUTRANKED
    if after.metrics.get(_REFUSAL, 1.0) < before.metrics.get(_REFUSAL, 1.0):
        wrong = "answered now, where a refusal was right"
        return f"it is {wrong if case.should_refuse else 'refused now'}"
    return ""


def _find_stage(expected: Labels, after: CaseResult) -> str:
    """Which stage of the search puts other passages before the expected ones."""
    if not expected.is_whole:
        return "its passage is there, but cut into pieces"
    if not expected.chunks:  # documents or pages
        return _OUTRANKED
    for name, cause in _OUTRANKED_BY.items():
        found = after.artifacts.get(name) or []
        if isinstance(found, dict):
            found = [item for candidates in found.values() for item in candidates]
        if found and expected.chunks.keys().isdisjoint(item["chunk_id"] for item in found):
            return cause
    return _OUTRANKED


def _is_right(result: CaseResult) -> bool:
    """True if something expected is among ten hits, or a refusal is right."""
    mrr = result.metrics.get(_MRR)
    return bool(mrr) if mrr is not None else result.metrics.get(_REFUSAL) == 1.0


def _state(result: CaseResult) -> str:
    """The rank of the first expected hit, and whether the question was refused."""
    answered = result.artifacts.get("answered")
    if (mrr := result.metrics.get(_MRR)) is None:
        return "answered" if answered else "refused"
    if not mrr:
        return "not found"
    return f"rank {round(1 / mrr)}{'' if answered else ', refused'}"


def _values(results: Mapping[str, CaseResult], lost: set[str]) -> dict[str, dict[str, float]]:
    """Metric to case_id to value; `lost` cases count 0 in every retrieval metric."""
    names = {*_COMPARED, *(name for result in results.values() for name in result.metrics)}
    nothing = {name: 0.0 for name in names if name.startswith("retrieval.")}
    found: dict[str, dict[str, float]] = {}
    for result in results.values():
        metrics: Mapping[str, float] = result.metrics
        if result.case_id in lost:
            metrics = {**metrics, **nothing}
        for name, value in metrics.items():
            found.setdefault(name, {})[result.case_id] = value
    return found


def _means(values: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    return {metric: mean(of_cases) for metric, of_cases in values.items()}


def _judge_means(
    values: Mapping[str, Mapping[str, float]], floors: Mapping[str, float]
) -> tuple[list[str], list[str]]:
    """(messages about missed floors, messages about reached ones)."""
    missed, reached = [], []
    for metric, least in floors.items():
        if not (of_cases := values.get(metric)):
            measured = ", ".join(sort_metrics(values)) or "nothing"
            missed.append(f"{metric} has a floor and was not measured; measured: {measured}")
            continue
        reaches = mean(of_cases)
        found = f"{metric} is {reaches:.3f} over {pluralise(len(of_cases), 'question')}"
        if reaches < least:
            missed.append(f"{found}, the floor is {least:g}")
        else:
            reached.append(f"{found} and reaches the floor, {least:g}")
    return missed, reached


def _judge_measured(dataset: Dataset, measured: Collection[str], least: float) -> list[str]:
    """A message where a smaller share than `least` of the cases that expect hits were measured; a
    mean over the others tells little of the release.
    """
    ranked = [case.case_id for case in dataset.cases if case.is_ranked]
    known = sum(case_id in measured for case_id in ranked)
    if known >= least * len(ranked) and (known or not ranked):
        return []
    if known:
        return [
            f"only {known} of {pluralise(len(ranked), 'question')} with something to find could be"
            f" measured; mend what {dataset.dataset_id} expects, or lower least_measured of the"
            " gate"
        ]
    return [
        f"{dataset.dataset_id} names nothing to be found in this release; name a dataset about the"
        " library in gates.yaml"
    ]


def _find_losses(
    before: Mapping[str, Mapping[str, float]], after: Mapping[str, Mapping[str, float]]
) -> tuple[list[str], list[str]]:
    """Messages about mean losses above the tolerance: (significant ones, for which the 95 %
    interval of the paired difference lies below 0; those that may be chance).
    """
    significant, doubtful = [], []
    for metric in _COMPARED:
        shared = before.get(metric, {}).keys() & after.get(metric, {}).keys()
        if not shared:
            continue
        difference = bootstrap(
            after[metric][name] - before[metric][name] for name in sorted(shared)
        )
        if difference.value >= -_TOLERANCE:
            continue
        fall = (
            f"{metric} falls by {-difference.value:.3f} over {len(shared)} questions (95 %"
            f" {difference.low:+.3f} .. {difference.high:+.3f})"
        )
        if difference.high < 0:
            significant.append(fall)
        else:
            doubtful.append(f"{fall}, which may be chance; more questions would tell")
    return significant, doubtful


def describe_changes(before: Lease, after: Lease) -> tuple[str, ...]:
    """The differences between two releases: keys of the config, documents, and edits by hand."""
    old, new = before.release, after.release
    found = [
        f"config {key}: {_short(one)} -> {_short(other)}"
        for key, one, other in _differences(
            old.manifest.strategy_config, new.manifest.strategy_config
        )
    ]
    documents = [
        {version.partition("@")[0] for version in release.versions} for release in (old, new)
    ]
    gone, added = documents[0] - documents[1], documents[1] - documents[0]
    changed = {
        version.partition("@")[0] for version in new.versions if version not in old.versions
    } - added
    for what, names in (("gone", gone), ("new", added), ("changed", changed)):
        if names:
            found.append(f"{pluralise(len(names), 'document')} {what}, first {sorted(names)[0]}")
    editions = [
        {(it.doc_id, it.edition) for it in release.catalog.versions().values() if it.edition}
        for release in (old, new)
    ]
    if edited := sorted(editions[1] - editions[0]):
        first = edited[0][0]
        undo = f"`rag drafts revert {first} --namespace {new.manifest.namespace}` undoes it"
        found.append(f"{pluralise(len(edited), 'document')} edited by hand, first {first}; {undo}")
    return tuple(found)


def _differences(before: Any, after: Any, key: str = "") -> list[tuple[str, Any, Any]]:
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        return [
            item
            for name in sorted({*before, *after})
            for item in _differences(
                before.get(name), after.get(name), f"{key}.{name}" if key else str(name)
            )
        ]
    return [] if before == after else [(key, before, after)]


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def verdict_markdown(verdict: Verdict) -> str:
    """The reasons, the lost questions with their causes, and what changed."""
    head = f"{verdict.dataset_id}: {'passed' if verdict.passed else 'FAILED'}"
    cases = f"questions that missed, with their traces: `rag eval cases {verdict.run_id} --failed`"
    return "\n".join(
        [
            head,
            *(f"- {line}" for line in (*verdict.reasons, *verdict.notes)),
            *_list_lost("lost:", verdict.lost),
            *_list_lost("not met before either:", verdict.unmet),
            *(
                ["what changed:", *(f"- {change}" for change in verdict.changes)]
                if verdict.changes
                else []
            ),
            *([] if verdict.passed else [cases]),
        ]
    )


def _list_lost(title: str, lost: Sequence[Lost]) -> list[str]:
    shown = [
        f"- {item.case_id}: {item.query} ({item.before} -> {item.after}): {item.cause}"
        for item in lost[:_SHOWN]
    ]
    more = len(lost) - len(shown)
    return [title, *shown, *([f"- and {more} more"] if more else [])] if lost else []
