"""One evaluation run: the engine answers every case, and the results are measured and stored."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import os
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from rag_platform.answering.engine import answer
from rag_platform.config.profiles import Provider
from rag_platform.config.settings import Settings, Strategy, fingerprint
from rag_platform.documents.provenance import verify_version
from rag_platform.errors import CancelledError, ConfigError, InputError, ProviderError, RagError
from rag_platform.evaluation.cases import Dataset, EvalCase, case_data
from rag_platform.evaluation.labels import LabelReader, Labels
from rag_platform.evaluation.measuring import (
    MODES,
    AskedCase,
    CaseMetrics,
    Evaluator,
    Judge,
    MetricSet,
    Mode,
    compute,
)
from rag_platform.evaluation.results import CaseResult, EvalRun, ResultStore, summarise
from rag_platform.ir import Chunk, Citation, Json, QueryRequest, QueryResult
from rag_platform.ledger.hiding import LedgerView
from rag_platform.observability import tracing
from rag_platform.processes.launchers import identity
from rag_platform.processes.processors import usable_processors
from rag_platform.query import filters
from rag_platform.registry import make_provider, provider_version
from rag_platform.retrieval.library import Lease, Library
from rag_platform.retrieval.retrievers import list_candidates
from rag_platform.retrieval.search_context import Artifacts
from rag_platform.storage.evaluation_files import RUN_PREFIX
from rag_platform.storage.store import Store
from rag_platform.text.scripts import is_wide

OnProgress = Callable[[int, int], None]  # cases done, all cases

_BATCH = 64  # cases committed together: the most that a killed run loses
_TOP_K = 10
_THREADS = min(8, usable_processors())  # below the load at which a library degrades
_DEFAULT_EVALUATOR = "basic"  # without an evaluator and without a judge


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The options of a run besides its dataset. In a request, the namespace may be empty (see
    `run_strategy`) and the strategy be a way to ask.
    """

    namespace: str = ""
    mode: Mode | None = None  # None: end_to_end, of a dataset with documents retrieval_only
    strategy: str | None = None  # of the questions; None: that of the release
    release_id: str | None = None  # None: the published one
    evaluator: str | None = None  # None: `judge` if a judge is named, else `basic`
    metric_sets: tuple[str, ...] = ()  # empty: those of the evaluator
    judge: str | None = None  # None: the evaluator's
    reuse: bool = True  # reuse earlier results that depend on nothing that changed
    require_found: bool = False  # fail if the release has nothing that any case expects


@contextmanager
def open_library(settings: Settings, store: Store) -> Iterator[Library]:
    """The library of a data root, with result caches off; closed on exit."""
    caches = settings.caches.model_copy(update={"retrievals": 0, "responses": 0})
    settings = settings.model_copy(update={"caches": caches})
    with (
        ExitStack() as opened,
        closing(Library(settings, store, LedgerView(store, opened))) as library,
    ):
        yield library


def evaluate(
    library: Library,
    dataset: Dataset,
    options: RunOptions,
    store: ResultStore,
    *,
    on_progress: OnProgress | None = None,
) -> EvalRun:
    """The finished run. Case results are committed in batches, so a killed run resumes when it is
    started again.

    Raises InputError for an unknown mode, or `other_namespace` for a dataset about other documents,
    ConfigError for an unknown evaluator, metric set or judge, and NotFoundError for an unknown
    release. An error of one question becomes that case's `error`.
    """
    if options.mode not in (None, *MODES):
        raise InputError(
            f"unknown mode {options.mode!r}; known: {', '.join(MODES)}", code="invalid_mode"
        )
    with library.lease(options.namespace, options.release_id) as lease:
        report = on_progress or (lambda done, total: None)
        return _Run(library, dataset, options, lease, store, report).finish()


def evaluate_release(
    library: Library, lease: Lease, dataset: Dataset, store: ResultStore, **options: Any
) -> EvalRun:
    """The run of a dataset on a release under the config that it was built with, with further
    `options` of RunOptions.
    """
    run_options = RunOptions(
        namespace=lease.namespace,
        release_id=lease.release_id,
        strategy=library.config_id(lease.strategy),
        **options,
    )
    return evaluate(library, dataset, run_options, store)


class _KeyedCase(NamedTuple):
    position: int  # in the dataset
    case: EvalCase
    key: str  # fingerprint of everything that the result depends on


@dataclass(frozen=True, slots=True)
class _CaseRun:
    """An answered case, the artifacts of its stages, and the error if the question failed."""

    asked: AskedCase
    artifacts: Artifacts
    error: str


class _Run:
    def __init__(
        self,
        library: Library,
        dataset: Dataset,
        options: RunOptions,
        lease: Lease,
        store: ResultStore,
        report: OnProgress,
    ) -> None:
        self._library, self._dataset, self._options = library, dataset, options
        self._lease, self._store, self._report = lease, store, report
        self._mode: Mode = options.mode or "end_to_end"
        if self._mode == "generation_only":  # of no chunk at all, an answer is never written
            asked = (it for it in dataset.cases if it.context_chunks or not it.should_refuse)
            self._dataset = dataset = dataclasses.replace(dataset, cases=tuple(asked))
        evaluator_id = options.evaluator or ("judge" if options.judge else _DEFAULT_EVALUATOR)
        evaluator: Evaluator = make_provider(
            "evaluator", evaluator_id, {"judge": options.judge} if options.judge else {}
        )
        own = evaluator.metric_sets(self._mode)
        sets = options.metric_sets or own
        self._metric_sets: dict[str, MetricSet] = {
            name: make_provider("metric_set", name) for name in sets
        }
        self._judge: Judge | None = (
            open_judge(evaluator.judge, library.settings, library.store)
            if evaluator.judge
            else None
        )
        judge_id = "" if self._judge is None else judge_profile_id(self._judge)
        strategy = library.query_strategy(lease, options.strategy)
        config_id = library.config_id(strategy)
        self._labels = LabelReader.of(lease.release, dataset)
        self._proof: CitationProof | None = None
        if any(getattr(item, "needs_proof", False) for item in self._metric_sets.values()):
            self._proof = CitationProof(library, lease)
        self._top_k = max(_TOP_K, *dataset.k_values)
        versions = tuple(f"{name}@{item.VERSION}" for name, item in self._metric_sets.items())
        prompts = library.models.question_prompts(strategy)
        measured_by = (config_id, versions, judge_id, self._mode)
        profile = fingerprint(dataset.fingerprint, *measured_by)
        self._basis = (lease.release_id, sorted(library.hidden_names(lease)), *measured_by, prompts)
        self._run = EvalRun(
            run_id=f"{RUN_PREFIX}{uuid.uuid4().hex[:12]}",
            started_at=tracing.now(),
            ended_at="",
            status="running",
            dataset_id=dataset.dataset_id,
            dataset_version=dataset.version,
            dataset_fingerprint=dataset.fingerprint,
            namespace=options.namespace,
            release_id=lease.release_id,
            strategy=strategy.name,
            strategy_config_id=config_id,
            eval_profile_id=f"evp_{profile}",
            metric_set_ids=versions,
            judge_profile_id=judge_id,
            mode=self._mode,
            cases=len(dataset.cases),
            figures={"process": {"pid": os.getpid(), **identity(os.getpid())}},
            providers={"evaluator": {"id": evaluator_id, "version": evaluator.VERSION}},
        )

    def finish(self) -> EvalRun:
        """The finished run; one that an error ends stays in the store as failed, one that somebody
        ends as cancelled.
        """
        if self._options.require_found:
            self._require_found()
        self._store.put_run(self._run)
        logs_dir, run = self._library.store.logs_dir, self._run
        try:
            with tracing.trace("evaluation", logs_dir=logs_dir, namespace=run.namespace) as trace:
                trace.describe(run.strategy_config_id, {})
                trace.set(
                    eval_run_id=run.run_id,
                    dataset_id=run.dataset_id,
                    release_id=run.release_id,
                    judge_profile_id=run.judge_profile_id,
                )
                finished = self._ask_all()
                trace.count(cases=run.cases, reused=finished.reused, failed=finished.failed)
                return finished
        except BaseException as error:  # an interrupt too: its process may go on with other work
            told = isinstance(error, CancelledError) or not isinstance(error, Exception)
            status = "cancelled" if told else "failed"
            ended = dataclasses.replace(
                self._run, ended_at=tracing.now(), status=status, figures={}
            )
            self._store.put_run(ended)
            raise

    def _ask_all(self) -> EvalRun:
        cases = [
            _KeyedCase(position, case, self._key(case))
            for position, case in enumerate(self._dataset.cases)
        ]
        started, reused = time.perf_counter(), 0
        with ThreadPoolExecutor(_THREADS) as pool:
            for start in range(0, len(cases), _BATCH):
                part = cases[start : start + _BATCH]
                keys = [it.key for it in part]
                known = self._store.find_known(keys) if self._options.reuse else {}
                results = [
                    dataclasses.replace(
                        known[it.key], case_id=it.case.case_id, position=it.position
                    )
                    for it in part
                    if it.key in known
                ]
                reused += len(results)
                fresh = [it for it in part if it.key not in known]
                results += self._ask(pool, fresh, start + len(results))
                self._store.put_cases(self._run.run_id, results)
                self._report(start + len(part), len(cases))
        aggregates, figures, failed = summarise(self._store.cases(self._run.run_id))
        run = dataclasses.replace(
            self._run,
            ended_at=tracing.now(),
            status="done",
            reused=reused,
            failed=failed,
            aggregates=aggregates,
            figures={**figures, "seconds": round(time.perf_counter() - started, 3)},
        )
        self._store.put_run(run)
        return run

    def _require_found(self) -> None:
        stale = 0
        for case in self._dataset.cases:
            labels = self._labels.read(case)
            if any(labels.grades.values()):
                return
            stale += len(labels.stale)
        if stale:
            raise InputError(
                f"none of the {stale} documents and texts that {self._dataset.dataset_id} expects"
                f" is in release {self._lease.release_id} of library {self._lease.namespace!r};"
                " choose the library that the dataset is about",
                code="other_namespace",
            )

    def _key(self, case: EvalCase) -> str:
        """Fingerprint of everything that the case's result depends on."""
        return fingerprint(*self._basis, self._dataset.k_values, case_data(case))

    def _ask(
        self, pool: ThreadPoolExecutor, part: Sequence[_KeyedCase], done: int
    ) -> list[CaseResult]:
        """The results of cases that are asked now, after `done` others."""
        asked: list[_CaseRun] = []
        for item in pool.map(self._answer, (it.case for it in part)):
            # the last one is reported once all are committed
            self._report(done + len(asked), self._run.cases)
            asked.append(self._prove(item))
        scored = compute(
            [item.asked for item in asked], self._dataset.k_values, self._metric_sets, self._judge
        )
        metrics = {
            case_id: {name: value for name, value in found.items() if not math.isnan(value)}
            for case_id, found in scored.items()
        }
        self._write_to_traces(asked, metrics)
        return [
            CaseResult(
                case_id=it.case.case_id,
                position=it.position,
                key=it.key,
                query=it.case.query,
                tags=it.case.tags,
                metrics=metrics[it.case.case_id],
                stale=tuple(dataclasses.asdict(label) for label in item.asked.labels.stale),
                error=item.error,
                trace_id=item.asked.result.trace_id,
                artifacts={
                    **artifacts_data(item.asked.result, item.artifacts, self._top_k),
                    "groups": case_groups(it.case),
                    "unjudged": len(scored[it.case.case_id]) - len(metrics[it.case.case_id]),
                },
            )
            for it, item in zip(part, asked, strict=True)
        ]

    def _prove(self, item: _CaseRun) -> _CaseRun:
        if self._proof is None or not item.asked.result.answered:
            return item
        proved = self._proof.find_proved(item.asked.result.citations)
        return dataclasses.replace(item, asked=dataclasses.replace(item.asked, proved=proved))

    def _write_to_traces(self, asked: Sequence[_CaseRun], metrics: CaseMetrics) -> None:
        tracing.evaluate(
            self._library.store.logs_dir,
            {
                item.asked.result.trace_id: {
                    "eval_run_id": self._run.run_id,
                    "case_id": item.asked.case.case_id,
                    "dataset_id": self._run.dataset_id,
                    "expected_documents": list(item.asked.case.expected_documents),
                    "metric_set_id": "+".join(self._run.metric_set_ids),
                    "judge_profile_id": self._run.judge_profile_id,
                    "metrics": [
                        {"name": name, "value": value}
                        for name, value in sorted(metrics[item.asked.case.case_id].items())
                    ],
                }
                for item in asked
                if item.asked.result.trace_id
            },
        )

    def _answer(self, case: EvalCase) -> _CaseRun:
        """The answered case; a question that fails has an error and no hits."""
        labels = self._labels.read(case)
        request = QueryRequest(
            case.query,
            self._options.namespace,
            top_k=self._top_k,
            filters=dict(case.doc_scope),
            release_id=self._lease.release_id,
            strategy=self._options.strategy,
            answer=self._mode != "retrieval_only",
            # documents are ranked by their best chunk; pages and chunks individually
            max_per_document={"document": 1, "page": 0}.get(labels.unit),
        )
        artifacts = Artifacts()
        try:
            if self._mode == "generation_only":
                request = dataclasses.replace(request, context_chunks=_given_context(case, labels))
            result, error = answer(self._library, request, artifacts=artifacts), ""
            scope = self._in_scope(case, result)
        except RagError as raised:
            trace_id = str(raised.details.get("trace_id", ""))
            # flagged like a failed stage, if a model was away rather than the question at fault
            flags = {"question_failed": True} if isinstance(raised, ProviderError) else {}
            result = QueryResult(
                "", (), (), 0.0, "none", flags, None, self._lease.release_id, trace_id
            )
            error = f"{raised.code}: {raised.message}"
            scope = frozenset() if case.doc_scope else None
        asked = AskedCase(
            case, labels, result, tuple(artifacts.context), in_scope=scope, failed=bool(error)
        )
        return _CaseRun(asked, artifacts, error)

    def _in_scope(self, case: EvalCase, result: QueryResult) -> frozenset[str] | None:
        """The hits within the case's `doc_scope`; None if it excludes nothing."""
        plan = filters.plan(case.doc_scope)
        if not (plan.where or plan.drop):
            return None
        found = frozenset(hit.chunk_id for hit in result.hits)
        if plan.where:
            found &= self._library.matching_chunks(self._lease, plan.where, plan.params)
        if plan.drop:
            where, params = filters.select_dropped(sorted(found), plan)
            found -= frozenset(self._lease.release.catalog.chunk_ids(where, params))
        return found


def _given_context(case: EvalCase, labels: Labels) -> tuple[str, ...]:
    """The chunks to answer a case from without a search: its context chunks, else the expected
    ones. Raises InputError `no_context`.
    """
    found = case.context_chunks or tuple(sorted(labels.chunks))
    if not found:
        raise InputError(
            f"case {case.case_id!r} has no chunks to answer from; give context_chunks,"
            " expected_chunk_ids or expected_text",
            code="no_context",
        )
    return found


def open_judge(name: str, settings: Settings, store: Store) -> Judge:
    """The judge of that name. Raises ConfigError: for an unknown name, and `no_judge` for `llm`
    without a configured model.
    """
    options: Json = {}
    if name == "llm":
        if settings.judge.provider == "none":
            raise ConfigError(
                "the judge 'llm' has no language model; name one under `judge` in settings.yaml, as"
                " {provider: openai, options: {model: ...}}, or take --judge rules",
                code="no_judge",
            )
        options = {"llm": settings.judge.model_dump(), "cache": str(store.judgements_path)}
    judge: Judge = make_provider("judge", name, options)
    return judge


def judge_profile_id(judge: Judge) -> str:
    """The hash of the judge's profile; scores are comparable only if it is equal."""
    return f"jdg_{fingerprint(judge.profile())}"


def evaluation_snapshot(settings: Settings) -> dict[str, Provider]:
    """The default evaluator and judge, in the format of `providers_snapshot`."""
    judge = settings.judge.provider
    return {
        "evaluator": {
            "provider_id": f"evaluator.{_DEFAULT_EVALUATOR}",
            "version": provider_version("evaluator", _DEFAULT_EVALUATOR),
            "profile_id": "",
        },
        "judge": {
            "provider_id": f"llm.{judge}",
            "version": provider_version("llm", judge) if judge != "none" else "",
            "profile_id": "",
        },
    }


# --- what is stored of a case ---------------------------------------------------------------------


def artifacts_data(result: QueryResult, made: Artifacts, top_k: int) -> Json:
    """How a result came about, as ids and figures without document text, so that deletions need not
    touch it: of an answer only its hash, of warnings (which are in the trace) their number.
    """
    return {
        "retrieved": list_candidates(result.hits, top_k),
        "before_fusion": {
            "dense": list_candidates(made.dense, top_k),
            "sparse": list_candidates(made.sparse, top_k),
        },
        "after_fusion": list_candidates(made.fused, top_k),
        "after_rerank": list_candidates(made.reranked, top_k),
        "context_chunks": [hit.chunk_id for hit in made.context],
        "answered": result.answered,
        "answer_sha256": hashlib.sha256(result.answer_markdown.encode()).hexdigest()
        if result.answer_markdown
        else "",
        "confidence": result.confidence,
        "citations": [citation.chunk_id for citation in result.citations],
        "asset_ids": sorted({asset for hit in result.hits for asset in hit.asset_ids}),
        "latency_ms": made.latency_ms,
        "effective_mode": result.effective_mode,
        "flags": sorted(name for name, value in result.flags.items() if value is True),
        "warnings": len(result.warnings),
        "usage": result.usage,
    }


def case_groups(case: EvalCase) -> dict[str, list[str]]:
    """The groups of a case: its tags, the script of its question, and the suffixes of the expected
    files.
    """
    files = (
        *case.expected_files,
        *(expected.file for expected in case.expected_text),
        *case.relevance_doc,
    )
    suffixes = {PurePosixPath(name).suffix.lower().lstrip(".") for name in files}
    return {
        "tag": list(case.tags),
        "language": ["zh" if is_wide(case.query) else "en"],
        "file_type": sorted(suffixes - {""}),
    }


class CitationProof:
    """Proves cited chunks as `rag verify` does, each once per run."""

    def __init__(self, library: Library, lease: Lease) -> None:
        self._library, self._lease = library, lease
        self._manifest = lease.release.manifest
        self._strategy = Strategy.model_validate(self._manifest.strategy_config)
        self._texts: dict[str, str | None] = {}  # of the checked chunks; None: not proved

    def find_proved(self, citations: Iterable[Citation]) -> frozenset[str]:
        """The cited chunks that the stored bytes prove and whose citation has the same text."""
        cited = list(citations)
        self._prove({citation.chunk_id for citation in cited} - self._texts.keys())
        return frozenset(
            citation.chunk_id
            for citation in cited
            if (text := self._texts.get(citation.chunk_id)) is not None
            and (text in citation.text or citation.text in text)
        )

    def _prove(self, chunk_ids: set[str]) -> None:
        self._texts |= dict.fromkeys(chunk_ids)
        by_version: dict[str, list[Chunk]] = defaultdict(list)
        for chunk in self._lease.release.catalog.chunks(chunk_ids).values():
            by_version[chunk.version_id].append(chunk)
        for version_id, chunks in by_version.items():
            failed = self._find_failed(version_id, chunks)
            self._texts |= {
                chunk.chunk_id: chunk.chunk_text for chunk in chunks if chunk.chunk_id not in failed
            }

    def _find_failed(self, version_id: str, chunks: Sequence[Chunk]) -> set[str]:
        version = self._lease.release.catalog.version(version_id)
        if version is None:
            return {chunk.chunk_id for chunk in chunks}
        try:
            failures = verify_version(
                self._library.store,
                version,
                self._manifest.profiles,
                chunks,
                self._library.settings.limits,
                self._strategy,
            )
        except (RagError, OSError, ValueError):  # stored files are damaged: nothing is proved
            return {chunk.chunk_id for chunk in chunks}
        return {failure.chunk_id for failure in failures}
