"""Promotes a strategy to be a namespace's own: what may be promoted, and what is recorded."""

from __future__ import annotations

from rag_platform.config.profiles import strategy_config_id
from rag_platform.config.settings import has_strategy, load_strategy, strategy_names
from rag_platform.errors import InputError, NotFoundError
from rag_platform.evaluation.results import ResultStore
from rag_platform.evaluation.strategies import WAYS
from rag_platform.ir import Json
from rag_platform.ledger.schema import Job
from rag_platform.releases.manifest import QUALITY_GATE
from rag_platform.releases.release_store import current, manifest_of
from rag_platform.workspace import DataRoot


def require_promotable(root: DataRoot, namespace: str, name: str) -> str:
    """The name of the strategy that a promotion would replace. Raises InputError for a way to ask
    and for the namespace's current strategy, NotFoundError for an unknown one.
    """
    bound = root.bound_strategy(namespace)
    if not has_strategy(root.settings, name):
        if name in WAYS:
            mode, reranks = WAYS[name]
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
            f"library {namespace!r} has strategy {name!r} already; after a change of its file"
            " `rag rebuild` makes the release of it",
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
