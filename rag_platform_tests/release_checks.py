"""The checks of a finished release, run again over all of it."""

from __future__ import annotations

from contextlib import closing

from rag_platform.config.settings import Limits, Strategy
from rag_platform.indexes.catalog import CatalogReader
from rag_platform.indexes.catalog_tables import CATALOG
from rag_platform.processes.worker import Workers
from rag_platform.releases.checks import Candidate, changed_files
from rag_platform.releases.manifest import read_manifest
from rag_platform.storage.store import Store


def check_again(store: Store, release_id: str, namespace: str = "default") -> dict[str, str]:
    """The details of each check by its name. Files have to have their recorded sha256."""
    found, failed = _results(store, release_id, namespace)
    return found | failed


def failed_checks(store: Store, release_id: str, namespace: str = "default") -> dict[str, str]:
    """The details of the checks that a release does not pass any more."""
    return _results(store, release_id, namespace)[1]


def _results(
    store: Store, release_id: str, namespace: str
) -> tuple[dict[str, str], dict[str, str]]:
    directory = store.release_dir(namespace, release_id)
    manifest = read_manifest(directory)
    with closing(CatalogReader(directory / CATALOG)) as catalog:
        versions = list(catalog.versions().values())
    candidate = Candidate(
        directory,
        store,
        Strategy.model_validate(manifest.strategy_config),
        manifest.profiles,
        Limits(),
        manifest.versions.keys(),
        versions,
        manifest.files,
        ann_recall=manifest.counts.get("ann_recall"),
    )
    with Workers() as workers:
        results, _ = candidate.results(workers)
    passed = {result.name: result.details for result in results if result.passed}
    failed = {result.name: result.details for result in results if not result.passed}
    if changed := changed_files(directory, manifest.files):
        failed["files_intact"] = f"changed since the build: {', '.join(changed)}"
    return passed, failed
