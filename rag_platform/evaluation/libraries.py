"""Publishes the documents that come with a dataset in a namespace of their own."""

from __future__ import annotations

import hashlib
import re
import shutil
from pathlib import Path

from rag_platform.config.profiles import stage_profiles
from rag_platform.config.settings import Strategy, fingerprint
from rag_platform.errors import ReleaseError
from rag_platform.evaluation.cases import Dataset
from rag_platform.releases.release_store import current
from rag_platform.storage.records import CACHE_REMEDY
from rag_platform.storage.store import read_json, write_json
from rag_platform.workspace import Workspace


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
