"""Proves the quotes of a published release against the raw bytes, version by version."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rag_platform.config import Limits
from rag_platform.documents.provenance import edited_count, verify_version
from rag_platform.errors import NotFoundError
from rag_platform.indexes.catalog import CatalogReader
from rag_platform.indexes.manifest import read_manifest
from rag_platform.indexes.release import require_current
from rag_platform.ir import Json, VerifyFailure
from rag_platform.store import Store, to_json


@dataclass(frozen=True, slots=True)
class Verification:
    """How many chunks were checked, and those that could not be proved.

    `edited` of them were edited by hand: they are no quotes, what was proved are the texts they were edited from.
    """

    release_id: str
    checked: int
    failures: tuple[VerifyFailure, ...]
    edited: int = 0

    def data(self) -> Json:
        """The `verify` payload of the public contract."""
        failures = [to_json(failure) for failure in self.failures]
        summary = f"{self.checked} chunks checked against the raw bytes, {len(failures)} could not be proved (release {self.release_id})."
        if self.edited:
            summary += f" {self.edited} were edited by hand and are no quotes; what was checked are the texts they were edited from."
        lines = [f"- {f['chunk_id']} of {f['source_uri']}: {f['reason']}" for f in failures]
        return {
            "markdown": "\n".join([summary, *lines]),
            "checked": self.checked,
            "edited": self.edited,
            "failed": len(failures),
            "failures": failures,
            "release_id": self.release_id,
        }


def verify_release(
    store: Store,
    namespace: str,
    *,
    chunk_id: str | None = None,
    limits: Limits | None = None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> Verification:
    """The verification of every chunk of the published release, or of one. Raises NotFoundError for an unknown chunk or namespace."""
    release_id = require_current(store, namespace)
    directory = store.release_dir(namespace, release_id)
    manifest = read_manifest(directory)
    catalog = CatalogReader(directory / "catalog.sqlite")
    try:
        versions = catalog.versions()
        if chunk_id is not None:
            found = catalog.chunks([chunk_id])
            if not found:
                raise NotFoundError(
                    f"no chunk {chunk_id!r} in release {release_id} of namespace {namespace!r}; `rag query` prints chunk ids"
                )
            chunk = found[chunk_id]
            failures = verify_version(store, versions[chunk.version_id], manifest.profiles, [chunk], limits)
            return Verification(release_id, 1, tuple(failures), edited_count([chunk]))
        checked, edited, all_failures = 0, 0, []
        for done, (version_id, version) in enumerate(sorted(versions.items()), 1):
            chunks = catalog.chunks_of_version(version_id)
            checked += len(chunks)
            edited += edited_count(chunks)
            all_failures += verify_version(store, version, manifest.profiles, chunks, limits)
            on_progress(done, len(versions))
        return Verification(release_id, checked, tuple(all_failures), edited)
    finally:
        catalog.close()
