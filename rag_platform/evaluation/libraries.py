"""The library that a dataset is asked of: the documents it brings along, published in a namespace
of their own.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

from rag_platform.config.profiles import stage_profiles
from rag_platform.config.settings import Strategy
from rag_platform.errors import ReleaseError
from rag_platform.evaluation.cases import Dataset
from rag_platform.ingestion.batches import ingest_versions, stale_versions
from rag_platform.intake.receiving import ReceiveOptions, receive
from rag_platform.releases.publishing import build_candidate, publish_candidate
from rag_platform.workspace import Workspace

OnProgress = Callable[[str, int, int], None]


def namespace_of(dataset: Dataset, strategy: Strategy) -> str:
    """The namespace of a dataset's own documents under a strategy."""
    name = f"eval-{dataset.dataset_id}-{strategy.name}".lower()
    return re.sub(r"[^a-z0-9-]+", "-", name)[:60].strip("-")


def publish_documents(dataset: Dataset, workspace: Workspace) -> str:
    """The namespace with the dataset's documents as they are now, published; nothing is built where
    nothing changed. Raises ReleaseError when a check fails.
    """
    assert dataset.load_documents is not None
    strategy, store, ledger = workspace.strategy, workspace.store, workspace.ledger
    namespace = namespace_of(dataset, strategy)
    folder = store.home / "evaluations" / namespace
    write_documents(dataset, folder)
    reception = receive(
        [folder],
        namespace,
        workspace,
        ReceiveOptions(source=namespace, sync=True),
    )
    stale = stale_versions(ledger, namespace, stage_profiles(strategy)["embeddings"])
    wanted = dict.fromkeys([*reception.to_process, *(version.version_id for version in stale)])
    versions = [ledger.version(version_id) for version_id in wanted]
    if versions:
        ingest_versions(versions, workspace)
    if not versions and store.current_path(namespace).is_file():
        return namespace
    manifest, checks = build_candidate(
        namespace,
        settings=workspace.settings,
        strategy=strategy,
        store=store,
        ledger=ledger,
    )
    if failed := [check for check in checks if not check.passed]:
        raise ReleaseError(
            f"the library of dataset {dataset.dataset_id} fails {failed[0].name}:"
            f" {failed[0].details}",
            code="checks_failed",
        )
    publish_candidate(
        namespace, manifest.release_id, settings=workspace.settings, store=store, ledger=ledger
    )
    return namespace


def write_documents(dataset: Dataset, folder: Path) -> None:
    """Make the folder hold the dataset's documents and nothing else; equal files stay untouched."""
    assert dataset.load_documents is not None
    folder.mkdir(parents=True, exist_ok=True)
    names: set[str] = set()
    for document in dataset.load_documents():
        target = folder / document.name
        names.add(document.name)
        data = document.text.encode() if document.path is None else document.path.read_bytes()
        if not target.is_file() or target.read_bytes() != data:
            target.write_bytes(data)
    for path in folder.iterdir():
        if path.name not in names:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
