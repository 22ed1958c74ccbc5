"""Lists, publishes and pins releases, for the web pages."""

from __future__ import annotations

from typing import cast

from rag_platform.api.envelopes import fill_shape, without_paths
from rag_platform.api.writing import open_root
from rag_platform.config.settings import Settings
from rag_platform.contract.upkeep_shapes import (
    DeletionProof,
    ReleaseRow,
    ReleasesData,
)
from rag_platform.errors import InputError
from rag_platform.ir import Json
from rag_platform.releases.manifest import Manifest
from rag_platform.retrieval.library import Library
from rag_platform.retrieval.namespaces import require_known

_UNCHECKED_PARTITIONS = "Dagster's partitions and events: `rag gc --prove` looks into them"


def list_releases(library: Library, namespace: str) -> ReleasesData:
    """The releases of a namespace, newest first. Raises NotFoundError `unknown_namespace`."""
    require_known(library, namespace)
    return _read_releases(library.settings, namespace)


def _read_releases(settings: Settings, namespace: str) -> ReleasesData:
    from rag_platform.releases.publishing import history
    from rag_platform.releases.release_store import current, list_heads

    with open_root(settings) as root:
        store = root.store
        heads = {head.release_id: head for head in list_heads(store, namespace)}
        rows = [
            _release_row(row, heads.get(row["release_id"]))
            for row in history(namespace, store=store, ledger=root.ledger)
        ]
        published = current(store, namespace)
        newer = [row for row in rows if row["published_at"] and row["kept"]]
        return {
            "namespace": namespace,
            "keep": settings.releases.keep,
            "can_roll_back": published in heads and heads[published].parent in heads,
            "can_go_forward": bool(newer) and newer[0]["release_id"] != published,
            "releases": rows,
        }


def _release_row(row: Json, head: Manifest | None) -> ReleaseRow:
    checks = head.checks if head else ()
    return fill_shape(
        ReleaseRow,
        without_paths(row),
        kept=head is not None,
        checks=[
            {"name": it.name, "passed": it.passed, "details": without_paths(it.details)}
            for it in checks
        ],
    )


def roll_back(settings: Settings, namespace: str, release_id: str | None = None) -> ReleasesData:
    """Publish an earlier release again and list the releases. Raises RagError."""
    from rag_platform.releases import publishing

    with open_root(settings) as root:
        publishing.roll_back(namespace, release_id, store=root.store, ledger=root.ledger)
    return _read_releases(settings, namespace)


def go_forward(settings: Settings, namespace: str) -> ReleasesData:
    """Publish the newest release again and list the releases. Raises ReleaseError."""
    from rag_platform.releases import publishing

    with open_root(settings) as root:
        publishing.go_forward(namespace, store=root.store, ledger=root.ledger)
    return _read_releases(settings, namespace)


def publish_rejected(
    settings: Settings, namespace: str, release_id: str, reason: str
) -> ReleasesData:
    """Publish a release that the quality gate rejected, record the reason, and list the releases.
    Raises InputError without a reason, ReleaseError.
    """
    from rag_platform.releases import publishing

    if not reason.strip():
        raise InputError("say why it is published all the same", code="no_reason")
    with open_root(settings) as root:
        publishing.publish_candidate(namespace, release_id, root, override=reason.strip())
    return _read_releases(settings, namespace)


def pin(settings: Settings, namespace: str, release_id: str, pinned: bool) -> ReleasesData:
    """Pin a release, or unpin it, and list the releases. Raises NotFoundError."""
    from rag_platform.releases import publishing

    with open_root(settings) as root:
        publishing.pin_release(namespace, release_id, pinned, store=root.store, ledger=root.ledger)
    return _read_releases(settings, namespace)


def prove_deletion(settings: Settings, namespace: str, doc_id: str) -> DeletionProof:
    """What is left of a deleted document in the places that a server can read. Raises
    NotFoundError.
    """
    from rag_platform.releases.proofs.deletion_proof import prove

    with open_root(settings) as root:
        found = prove(namespace, doc_id, root, partitions=_UNCHECKED_PARTITIONS)
    return cast(DeletionProof, without_paths(found.data()))
