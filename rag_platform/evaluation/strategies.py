"""Runs one dataset under several strategies and compares the others with the first; promotes a
strategy to be a namespace's own.

Besides the strategy files there are four ways to ask any release: `dense_only`, `sparse_only`,
`hybrid` and `hybrid+rerank`. They take the release's own strategy and change which retrievers run
and whether hits are reranked. `STRATEGY+PROMPT@VERSION` is the strategy (without one, the
release's own) with that version of a prompt instead of the active one.
"""

from __future__ import annotations

import hashlib
import logging
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from rag_platform.config.folders import DEMO, SHIPPED
from rag_platform.config.gates import dataset_names, read_gates
from rag_platform.config.profiles import is_config_id, stage_profiles, strategy_config_id
from rag_platform.config.prompts import use_prompt
from rag_platform.config.query import RerankConfig
from rag_platform.config.settings import Settings, Strategy, fingerprint
from rag_platform.config.strategies import has_strategy, load_strategy, strategy_names
from rag_platform.errors import ConfigError, InputError, NotFoundError, ReleaseError
from rag_platform.evaluation.cases import Dataset
from rag_platform.evaluation.comparing import Comparison, compare_runs
from rag_platform.evaluation.results import EvalRun, ResultStore
from rag_platform.evaluation.runs import OnProgress, RunOptions, evaluate
from rag_platform.ir import Json
from rag_platform.ledger.ledger import bound_namespaces
from rag_platform.ledger.schema import Job
from rag_platform.releases.manifest import QUALITY_GATE, Manifest
from rag_platform.releases.release_store import current, manifest_of
from rag_platform.retrieval.library import Library
from rag_platform.retrieval.namespaces import choose_namespace
from rag_platform.storage.records import CACHE_REMEDY
from rag_platform.storage.store import Store, read_json, write_json
from rag_platform.workspace import DataRoot, Workspace

_log = logging.getLogger(__name__)

# way to ask: which retrievers run, and whether hits are reranked
QUERY_VARIANTS: Mapping[str, tuple[Literal["dense", "sparse", "hybrid"], bool]] = {
    "dense_only": ("dense", False),
    "sparse_only": ("sparse", False),
    "hybrid": ("hybrid", False),
    "hybrid+rerank": ("hybrid", True),
}
_RERANKER = "features"  # for a strategy without one: it needs no model


def comparable_names(settings: Settings) -> list[str]:
    """The strategy files, then the ways to ask that are not hidden by a file of the same name."""
    files = strategy_names(settings)
    return [*files, *(name for name in QUERY_VARIANTS if name not in files)]


def evaluation_targets(settings: Settings) -> dict[str, tuple[str, str]]:
    """`dataset@namespace` to (dataset, namespace) of what is evaluated automatically: datasets of
    gates.yaml in their namespaces; shipped ones in the samples' namespace, if that exists; other
    ones in the default namespace, or in all namespaces where that does not exist. A gates.yaml that
    cannot be read is left out with a warning, as the definitions of Dagster's assets need this.
    """
    own, bound = settings.default_namespace, bound_namespaces(Store.of(settings))
    spaces = [own] if own in bound or "default_namespace" in settings.model_fields_set else [*bound]
    try:
        pairs = [(gate.dataset, name) for name, gates in read_gates().items() for gate in gates]
    except ConfigError as error:
        _log.warning("the datasets of the gates are left out: %s", error.message)
        pairs = []
    gated = {dataset for dataset, _ in pairs}
    for name, path in dataset_names().items():
        if path.is_relative_to(SHIPPED):
            pairs += [(name, DEMO)] if DEMO in bound else []
        elif name not in gated:
            pairs += [(name, space) for space in spaces or [own]]
    return {f"{dataset}@{namespace}": (dataset, namespace) for dataset, namespace in pairs}


def run_strategy(
    root: DataRoot,
    library: Library,
    dataset: Dataset,
    options: RunOptions,
    store: ResultStore,
    on_progress: OnProgress | None = None,
) -> EvalRun:
    """The run of a dataset under a strategy or a way to ask (None: the library's own). Without a
    namespace, the dataset's own documents are first published by that strategy; a dataset without
    documents is asked of the default namespace.

    Raises NotFoundError `unknown_strategy` with the known ones, InputError for a strategy that does
    not fit the release's vectors, or `other_namespace` for a dataset about other documents.
    """
    name = options.strategy
    base = _require_known(root.settings, name) if name else ""
    file = base if has_strategy(root.settings, base) else None
    brings_documents = dataset.load_documents is not None and not options.namespace
    if brings_documents:
        space = publish_documents(dataset, root.workspace("", file))
    else:
        space = options.namespace or choose_namespace(library)
    strategy: str | None = None  # that of the release, by which its documents were just built
    if name and not (brings_documents and file == name):
        strategy = find_strategy(root.settings, library, space, name)
    mode = options.mode or ("retrieval_only" if brings_documents else None)
    options = replace(options, namespace=space, mode=mode, strategy=strategy, require_found=True)
    return evaluate(library, dataset, options, store, on_progress=on_progress)


def find_strategy(settings: Settings, library: Library, namespace: str, name: str) -> str:
    """The name to put into a query for this strategy or way to ask: its own, or the
    strategy_config_id under which the derived strategy is stored. Raises what `run_strategy` does.
    """
    base = _require_known(settings, name)
    prompt = name.removeprefix(base).removeprefix("+")
    if has_strategy(settings, base) and not prompt:
        return name
    with library.lease(namespace) as lease:
        if base in QUERY_VARIANTS and not has_strategy(settings, base):
            _require_encoding(lease.release.manifest, base)
            strategy = _derive(library.query_strategy(lease), base)
        else:
            strategy = library.query_strategy(lease, base or None)
        if prompt:
            own_name = f"{strategy.name}+{prompt}"
            strategy = use_prompt(strategy, prompt).model_copy(update={"name": own_name})
        return library.config_id(strategy)


def _require_known(settings: Settings, name: str) -> str:
    """`name` without its prompt version; empty for the release's own strategy. Raises
    NotFoundError `unknown_strategy`.
    """
    base = name.rpartition("+")[0] if "@" in name else name
    known = comparable_names(settings)
    if base and base not in known and not is_config_id(base):
        raise NotFoundError(
            f"unknown strategy {base!r}; known: {', '.join(known)}", code="unknown_strategy"
        )
    return base


def _derive(own: Strategy, name: str) -> Strategy:
    mode, reranks = QUERY_VARIANTS[name]
    reranker = own.reranker
    if not reranks:
        reranker = RerankConfig()
    elif reranker.provider == "none":
        reranker = RerankConfig(provider=_RERANKER)
    retrieval = own.retrieval.model_copy(update={"mode": mode})
    return own.model_copy(update={"name": name, "retrieval": retrieval, "reranker": reranker})


def _require_encoding(manifest: Manifest, name: str) -> None:
    mode, _ = QUERY_VARIANTS[name]
    if manifest.encoding not in ("hybrid", f"{mode}_only"):
        raise InputError(
            f"release {manifest.release_id} is {manifest.encoding}; it cannot be asked {name}. Set"
            f" `encoding: hybrid` in strategy {manifest.strategy} and run `rag rebuild --namespace"
            f" {manifest.namespace}`",
            code="not_encoded",
        )


@dataclass(frozen=True, slots=True)
class StrategyComparison:
    """Runs of one dataset by strategy, and the comparison of each but the first with the first."""

    runs: Mapping[str, EvalRun]
    comparisons: Mapping[str, Comparison]

    def is_significant(self, name: str, metric: str) -> bool:
        """True if a strategy's mean differs significantly from that of the first."""
        compared = self.comparisons.get(name)
        difference = compared.differences.get(metric) if compared is not None else None
        return difference is not None and difference.excludes_zero


def compare_strategies(runs: Mapping[str, EvalRun], store: ResultStore) -> StrategyComparison:
    """Compare runs with the first of them. Raises InputError `other_dataset` if their cases
    differ.
    """
    names = list(runs)
    found = {name: compare_runs(runs[names[0]], runs[name], store) for name in names[1:]}
    return StrategyComparison(runs, found)


def parse_names(text: str) -> Sequence[str]:
    """The names of a comma-separated list, without duplicates."""
    return list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


# --- promotion to be a namespace's own strategy ---------------------------------------------------


def require_promotable(root: DataRoot, namespace: str, name: str) -> str:
    """The name of the strategy that a promotion would replace. Raises InputError for a way to ask
    and for the namespace's current strategy, NotFoundError for an unknown one.
    """
    bound = root.bound_strategy(namespace)
    if not has_strategy(root.settings, name):
        if name in QUERY_VARIANTS:
            mode, reranks = QUERY_VARIANTS[name]
            reranker = "" if reranks else ", `reranker: {provider: none}`"
            raise InputError(
                f"{name} is a way to ask, not a strategy; write a strategy file with `retrieval:"
                f" {{mode: {mode}}}`{reranker} and promote that",
                code="no_strategy",
            )
        known = ", ".join(strategy_names(root.settings))
        raise NotFoundError(f"unknown strategy {name!r}; known: {known}", code="unknown_strategy")
    if bound == name:
        raise InputError(
            f"library {namespace!r} has strategy {name!r} already; after a change of its file `rag"
            f" rebuild --namespace {namespace}` makes the release of it",
            code="bound_already",
        )
    return bound


def restore_strategy(root: DataRoot, job: Job) -> None:
    """Bind a namespace to its former strategy again if the job of a promotion ended without
    publishing (the process that started the job may no longer exist).
    """
    promotion = job.args.get("promotion")
    if promotion is None or root.bound_strategy(job.namespace) != promotion["to"]:
        return
    published = current(root.store, job.namespace)
    if published and manifest_of(root.store, job.namespace, published).strategy == promotion["to"]:
        return
    before = load_strategy(root.settings, promotion["from"])
    root.ledger.rebind_strategy(job.namespace, before.name, strategy_config_id(before))


def describe_promotion(
    root: DataRoot, namespace: str, candidate_id: str, store: ResultStore
) -> Json:
    """What the ledger records about a promotion's release: its verdict, and the gate's runs."""
    manifest = manifest_of(root.store, namespace, candidate_id)
    verdicts = {check.name: check.passed for check in manifest.checks}
    runs = store.runs(namespace=namespace, limit=1000)
    return {
        "release_id": candidate_id,
        "verdict": "failed" if manifest.failures else "passed",
        "gate": verdicts.get(QUALITY_GATE),
        "run_ids": [
            run.run_id for run in runs if run.release_id in (candidate_id, manifest.parent)
        ],
    }


# --- a dataset's own documents --------------------------------------------------------------------


def namespace_of(dataset: Dataset, strategy: Strategy) -> str:
    """The namespace of a dataset's own documents under a strategy."""
    name = f"eval-{dataset.dataset_id}-{strategy.name}".lower()
    return re.sub(r"[^a-z0-9-]+", "-", name)[:60].strip("-")


def publish_documents(dataset: Dataset, workspace: Workspace) -> str:
    """The namespace in which the dataset's documents are published; they are ingested again only if
    they or the config changed. Raises ReleaseError if a check fails.
    """
    strategy, store = workspace.strategy, workspace.store
    namespace = namespace_of(dataset, strategy)
    folder = store.home / "evaluations" / namespace
    written = write_documents(dataset, folder)
    marker = folder.with_suffix(".json")
    state = [written, stage_profiles(strategy), current(store, namespace)]
    if marker.is_file() and read_json(marker, CACHE_REMEDY) == state:
        return namespace
    _publish(namespace, folder, workspace)
    write_json(marker, [*state[:2], current(store, namespace)])
    return namespace


def _publish(namespace: str, folder: Path, workspace: Workspace) -> None:
    # imported late: a third of the start time when the library is published already
    from rag_platform.ingestion.batches import ingest_versions, stale_versions
    from rag_platform.intake.receiving import ReceiveOptions, receive
    from rag_platform.releases.publishing import build_candidate, publish_candidate

    strategy, store, ledger = workspace.strategy, workspace.store, workspace.ledger
    reception = receive(
        [folder],
        namespace,
        workspace,
        ReceiveOptions(source=namespace, sync=True, moved=True),  # the data root may have moved
    )
    stale = stale_versions(ledger, namespace, stage_profiles(strategy)["embeddings"])
    wanted = dict.fromkeys([*reception.to_process, *(version.version_id for version in stale)])
    versions = [ledger.version(version_id) for version_id in wanted]
    if versions:
        ingest_versions(versions, workspace)
    if not versions and store.current_path(namespace).is_file():
        return
    manifest, checks = build_candidate(namespace, workspace)
    if failed := [check for check in checks if not check.passed]:
        raise ReleaseError(
            f"the library {namespace} fails {failed[0].name}: {failed[0].details}",
            code="checks_failed",
        )
    publish_candidate(namespace, manifest.release_id, workspace)


def write_documents(dataset: Dataset, folder: Path) -> str:
    """Make the folder contain exactly the dataset's documents, leaving equal files untouched, and
    return their fingerprint.
    """
    assert dataset.load_documents is not None
    folder.mkdir(parents=True, exist_ok=True)
    hashes: dict[str, str] = {}
    for document in dataset.load_documents():
        target = folder / document.name
        data = document.text.encode() if document.path is None else document.path.read_bytes()
        hashes[document.name] = hashlib.sha256(data).hexdigest()
        if not target.is_file() or target.read_bytes() != data:
            target.write_bytes(data)
    for path in folder.iterdir():
        if path.name not in hashes:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    return fingerprint(hashes)
