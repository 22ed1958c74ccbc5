"""Applies the gates of a namespace to a candidate. The verdict is recorded as a check, and a
candidate with a failed check is never published.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from rag_platform.config.folders import config_file
from rag_platform.config.gates import FILENAME, GateConfig, read_gates
from rag_platform.config.settings import Settings, fingerprint
from rag_platform.config.validation import place_of
from rag_platform.errors import ConfigError, ProviderError, RagError
from rag_platform.evaluation.cases import Dataset
from rag_platform.evaluation.expectations import read_expectations
from rag_platform.observability import tracing
from rag_platform.releases.manifest import (
    FAILED_GATES,
    NOT_JUDGED,
    QUALITY_GATE,
    CheckResult,
    Manifest,
)
from rag_platform.releases.publishing import record_check
from rag_platform.releases.release_store import current
from rag_platform.storage.store import Store
from rag_platform.workspace import Workspace


def is_gated(namespace: str, store: Store) -> bool:
    """True if the namespace has gates or expectations."""
    return bool(read_gates().get(namespace) or read_expectations(store, namespace).cases)


def gates_fingerprint(namespace: str, settings: Settings, store: Store) -> str:
    """A fingerprint of the gates and expectations of a namespace with their questions and judges;
    where they cannot be read, of the reason.
    """
    from rag_platform.evaluation.runs import judge_profile_id, open_judge

    try:
        gates = open_gates(namespace, read_gates().get(namespace, ()))
        expected = read_expectations(store, namespace).fingerprint
        judges = {gate.judge for gate, _ in gates if gate.judge}
        judged_by = [judge_profile_id(open_judge(name, settings, store)) for name in sorted(judges)]
    except RagError as error:
        return fingerprint(error.message)
    asked = [(gate.model_dump(mode="json"), dataset.fingerprint) for gate, dataset in gates]
    return fingerprint(expected, judged_by, *asked)


def why_not_judged(manifest: Manifest, store: Store) -> str:
    """Why no gate judged a release; empty if its namespace has none."""
    if not is_gated(manifest.namespace, store):
        return ""
    if manifest.failures:
        return f"not asked: {manifest.failures[0].name} failed before"
    return "not asked: the release is older than its gate; `rag rebuild --full` asks it"


def open_gates(namespace: str, gates: Sequence[GateConfig]) -> list[tuple[GateConfig, Dataset]]:
    """The gates of a namespace with their datasets. Raises ConfigError with the line of a gate
    whose dataset cannot be read.
    """
    from rag_platform.evaluation.sources import open_dataset

    found = []
    for number, gate in enumerate(gates):
        try:
            found.append((gate, open_dataset(gate.dataset)))
        except RagError as error:
            place = place_of(config_file(FILENAME), [namespace, number, "dataset"])
            raise ConfigError(f"{place}: {error.message}", code="invalid_gates") from error
    return found


def apply_gates(
    namespace: str, manifest: Manifest, workspace: Workspace, *, deletes: bool = False
) -> Manifest:
    """The manifest of a candidate with the verdict of the namespace's gates and expectations;
    unchanged if there are none or a check has failed already. A release that `deletes` a document
    is never held back: after a full build the verdict is recorded but passes, else it is not asked.
    Where a model is away, the check fails as NOT_JUDGED, to be asked again.
    """
    store, settings = workspace.store, workspace.settings
    if manifest.failures:
        return manifest
    alone = deletes and not manifest.delta.get("full_build")
    not_asked = "not asked: a deletion is never held back, and nothing else came in with it"
    expectations = read_expectations(store, namespace)
    try:
        configured = read_gates().get(namespace, ())
        if not (configured or expectations.cases):
            return manifest
        gates = [] if alone else open_gates(namespace, configured)
    except ConfigError as error:
        if not deletes:
            raise
        alone, not_asked = True, f"not asked: a deletion is never held back, and {error.message}"
    if alone:
        check = CheckResult(QUALITY_GATE, True, not_asked)
        return record_check(namespace, manifest.release_id, check, workspace)
    # imported late: a release without gates never needs the read side
    from rag_platform.evaluation.gates import judge_candidate, verdict_data, verdict_markdown
    from rag_platform.evaluation.results import ResultStore
    from rag_platform.evaluation.runs import open_library

    with open_library(settings, store) as library, closing(ResultStore(store.home)) as results:
        try:
            verdicts = judge_candidate(
                library,
                namespace,
                manifest.release_id,
                current(store, namespace),
                gates,
                expectations,
                results,
            )
        except ProviderError as error:
            results.mark_rejected(namespace, manifest.release_id)
            check = CheckResult(QUALITY_GATE, deletes, f"{NOT_JUDGED}{error.message}")
            return record_check(namespace, manifest.release_id, check, workspace)
        passed = all(verdict.passed for verdict in verdicts)
        if not passed and not deletes:
            results.mark_rejected(namespace, manifest.release_id)
    means = {
        f"{metric} of {verdict.dataset_id}": value
        for verdict in verdicts
        for metric, value in verdict.means.items()
    }
    for verdict in verdicts:
        tracing.event("gate.verdict", verdict_data(verdict))
    reports = [verdict_markdown(verdict) for verdict in verdicts]
    if deletes and not passed:
        reports.insert(0, "published all the same, for a deletion is never held back:")
    check = CheckResult(
        QUALITY_GATE,
        passed or deletes,
        "\n".join(reports),
        {
            "lost": sum(len(verdict.lost) for verdict in verdicts),
            FAILED_GATES: sum(not verdict.passed for verdict in verdicts),
            **means,
        },
    )
    return record_check(
        namespace,
        manifest.release_id,
        check,
        workspace,
        evaluation_run=verdicts[0].run_id,
    )
