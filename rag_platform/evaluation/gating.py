"""Asks the gates of a namespace about a candidate. The verdict becomes a check of the candidate, so
one that failed is never published.
"""

from __future__ import annotations

from contextlib import closing

from rag_platform.config.gates import read_gates
from rag_platform.evaluation.expectations import read_expectations
from rag_platform.observability import tracing
from rag_platform.releases.manifest import QUALITY_GATE, CheckResult, Manifest
from rag_platform.releases.publishing import record_check
from rag_platform.releases.release_store import current
from rag_platform.workspace import Workspace


def apply_gates(
    namespace: str, manifest: Manifest, workspace: Workspace, *, deletes: bool = False
) -> Manifest:
    """The manifest of a candidate with the verdict of the namespace's gates and expectations; as it
    was where there are none, or where it has failed already. One that `deletes` a document is never
    held back.
    """
    store, settings = workspace.store, workspace.settings
    configured = read_gates().get(namespace, ())
    expectations = read_expectations(store, namespace)
    if manifest.failures or not (configured or expectations.cases):
        return manifest
    if deletes:
        check = CheckResult(QUALITY_GATE, True, "not asked: a deletion is never held back")
        return record_check(
            namespace, manifest.release_id, check, store=store, ledger=workspace.ledger
        )
    # the read side, which a release without gates never needs
    from rag_platform.evaluation.gates import judge_candidate, verdict_data, verdict_markdown
    from rag_platform.evaluation.results import ResultStore
    from rag_platform.evaluation.runs import open_library
    from rag_platform.evaluation.sources import open_dataset

    gates = [(gate, open_dataset(gate.dataset)) for gate in configured]
    with open_library(settings, store) as library, closing(ResultStore(store.home)) as results:
        verdicts = judge_candidate(
            library,
            namespace,
            manifest.release_id,
            current(store, namespace),
            gates,
            expectations,
            results,
        )
    means = {
        f"{metric} of {verdict.dataset_id}": value
        for verdict in verdicts
        for metric, value in verdict.means.items()
    }
    for verdict in verdicts:
        tracing.event("gate.verdict", verdict_data(verdict))
    check = CheckResult(
        QUALITY_GATE,
        all(verdict.passed for verdict in verdicts),
        "\n".join(map(verdict_markdown, verdicts)),
        {"lost": sum(len(verdict.lost) for verdict in verdicts), **means},
    )
    return record_check(
        namespace,
        manifest.release_id,
        check,
        store=store,
        ledger=workspace.ledger,
        evaluation_run=verdicts[0].run_id,
    )
