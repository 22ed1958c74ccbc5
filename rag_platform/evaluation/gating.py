"""Applies the gates of a namespace to a candidate. The verdict is recorded as a check, and a
candidate with a failed check is never published.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from rag_platform.config.folders import config_file
from rag_platform.config.gates import FILENAME, GateConfig, dataset_path, read_gates
from rag_platform.config.settings import Settings, fingerprint
from rag_platform.config.yaml_files import place_of
from rag_platform.errors import ConfigError, ProviderError, RagError
from rag_platform.evaluation.cases import Dataset
from rag_platform.evaluation.expectations import read_expectations
from rag_platform.ir import Document
from rag_platform.observability import tracing
from rag_platform.releases.manifest import (
    FAILED_GATES,
    NOT_ASKED,
    NOT_JUDGED,
    QUALITY_GATE,
    CheckResult,
    Manifest,
    gates_id,
)
from rag_platform.releases.publishing import record_check
from rag_platform.releases.release_store import current, manifest_of, open_catalog
from rag_platform.storage.store import Store
from rag_platform.workspace import Workspace

if TYPE_CHECKING:
    from rag_platform.evaluation.gates import Verdict


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
    return (
        "not asked: the release is older than its gate; `rag rebuild --full --namespace"
        f" {manifest.namespace}` asks it"
    )


def open_gates(namespace: str, gates: Sequence[GateConfig]) -> list[tuple[GateConfig, Dataset]]:
    """The gates of a namespace with their datasets. Raises ConfigError with the line of a gate
    whose dataset cannot be read.
    """
    from rag_platform.evaluation.sources import open_dataset

    found = []
    for number, gate in enumerate(gates):
        try:
            path = dataset_path(gate.dataset)
            found.append((gate, open_dataset(str(path) if path.exists() else gate.dataset)))
        except RagError as error:
            place = place_of(config_file(FILENAME), [namespace, number, "dataset"])
            raise ConfigError(f"{place}: {error.message}", code="invalid_gates") from error
    return found


def apply_gates(manifest: Manifest, workspace: Workspace, *, deletes: bool = False) -> Manifest:
    """The manifest of a candidate with the verdict of the namespace's gates and expectations;
    unchanged if there are none or a check has failed already. A release that `deletes` a document
    is never held back: after a full build the verdict is recorded but passes, else it is not asked.
    Nor is one that only takes back edits by hand: its verdict is recorded. Where a model is away,
    the check fails as NOT_JUDGED, to be asked again.
    """
    if manifest.failures:
        return manifest
    namespace, release_id, store = manifest.namespace, manifest.release_id, workspace.store
    expectations = read_expectations(store, namespace)
    alone = deletes and not manifest.delta.get("full_build")
    not_asked = ""
    if alone:
        not_asked = f"{NOT_ASKED}a deletion is never held back, and nothing else came in with it"
    try:
        configured = read_gates().get(namespace, ())
        if not (configured or expectations.cases):
            return manifest
        gates = [] if alone else open_gates(namespace, configured)
    except ConfigError as error:
        if not deletes:
            raise
        not_asked = f"{NOT_ASKED}a deletion is never held back, and {error.message}"
    if not_asked:
        check = CheckResult(QUALITY_GATE, True, not_asked)
        gates_before = ""
        with suppress(RagError):  # without a parent, or with a damaged one
            parent = manifest_of(store, namespace, manifest.parent or "", ())
            gates_before = parent.gates if parent.is_judged else gates_id(())
        return record_check(namespace, release_id, check, workspace, gates=gates_before)
    # imported late: a release without gates never needs the read side
    from rag_platform.evaluation.gates import judge_candidate
    from rag_platform.evaluation.results import ResultStore
    from rag_platform.evaluation.runs import open_library

    published, run_id = current(store, namespace), None
    why_passed = _DELETES if deletes else ""
    if published and not deletes and _only_takes_back_edits(manifest, published, store):
        why_passed = _TAKES_BACK
    with (
        open_library(workspace.settings, store) as library,
        closing(ResultStore(store.home)) as results,
    ):
        try:
            verdicts = judge_candidate(
                library, namespace, release_id, published, gates, expectations, results
            )
            check, run_id = _check_of(namespace, verdicts, why_passed), verdicts[0].run_id
        except ProviderError as error:
            check = CheckResult(QUALITY_GATE, bool(why_passed), f"{NOT_JUDGED}{error.message}")
        if not check.passed or run_id is None:
            results.mark_rejected(namespace, release_id)
    asked = gates_id(configured)
    return record_check(namespace, release_id, check, workspace, gates=asked, evaluation_run=run_id)


_DELETES = "published all the same, for a deletion is never held back:"
_TAKES_BACK = "published all the same, for taking back an edit by hand is never held back:"


def _only_takes_back_edits(manifest: Manifest, published: str, store: Store) -> bool:
    """True if all that a candidate changes of the published release are texts edited by hand, which
    are again as their files have them.
    """
    ids = (published, manifest.release_id)
    old, new = (manifest_of(store, manifest.namespace, release_id) for release_id in ids)
    if (
        old.strategy_config_id != new.strategy_config_id
        or old.profiles != new.profiles
        or old.versions.keys() != new.versions.keys()
    ):
        return False
    changed = {it for it in new.versions if _row(old, it) != _row(new, it)}
    if not changed or not all(old.editions.get(it) and not new.editions.get(it) for it in changed):
        return False
    before, after = (_read_documents(it, manifest.namespace, changed, store) for it in ids)
    return before == after


def _read_documents(
    release_id: str, namespace: str, version_ids: Collection[str], store: Store
) -> list[Document]:
    """The documents of these versions in a release, with their titles, tags and metadata."""
    with open_catalog(store, namespace, release_id) as catalog:
        doc_ids = sorted(version.doc_id for version in catalog.versions(version_ids).values())
        return [replace(it, updated_at="") for it in catalog.documents_of(doc_ids)]


def _row(manifest: Manifest, version_id: str) -> tuple[str | None, ...]:
    fields = (manifest.editions, manifest.outputs, manifest.given)
    return tuple(field.get(version_id) for field in fields)


def _check_of(namespace: str, verdicts: Sequence[Verdict], why_passed: str) -> CheckResult:
    """The check that records the verdicts, which are traced; with `why_passed` it passes in any
    case.
    """
    from rag_platform.evaluation.gates import verdict_markdown

    for verdict in verdicts:
        tracing.event("gate.verdict", {**asdict(verdict), "passed": verdict.passed})
    reports = [verdict_markdown(verdict) for verdict in verdicts]
    failed = sum(not verdict.passed for verdict in verdicts)
    if why_passed and failed:
        remedy = f"`rag expect remove CASE --namespace {namespace}`"
        reports = [
            why_passed,
            *reports,
            f"an expectation that no longer holds is dropped by {remedy}",
        ]
    figures = {"lost": sum(len(verdict.lost) for verdict in verdicts), FAILED_GATES: failed}
    means = {
        f"{metric} of {verdict.dataset_id}": value
        for verdict in verdicts
        for metric, value in verdict.means.items()
    }
    return CheckResult(
        QUALITY_GATE, bool(why_passed) or not failed, "\n".join(reports), figures | means
    )
