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
from rag_platform.errors import InputError, NotFoundError
from rag_platform.ir import Json
from rag_platform.releases.manifest import Manifest
from rag_platform.retrieval.library import Library
from rag_platform.retrieval.namespaces import require_known
from rag_platform.workspace import DataRoot

_UNCHECKED_PARTITIONS = "Dagster's partitions and events: `rag gc --prove` looks into them"


def list_releases(library: Library, namespace: str) -> ReleasesData:
    """The releases of a namespace, newest first. Raises NotFoundError `unknown_namespace`."""
    require_known(library, namespace)
    with open_root(library.settings) as root:
        return _read_releases(root, namespace)


def change_releases(
    settings: Settings, namespace: str, change: str, release_id: str | None = None, reason: str = ""
) -> ReleasesData:
    """Publish an earlier release again (`rollback`) or the newest one (`forward`), keep one
    regardless of retention (`pin`) or no longer (`unpin`), or publish one that the quality gate
    rejected for a `reason`, which is recorded (`publish`); then list the releases.

    Raises NotFoundError for another change and for `pin`, `unpin` and `publish` without a release,
    InputError without a reason, and ReleaseError.
    """
    from rag_platform.releases import publishing

    with open_root(settings) as root:
        store, ledger = root.store, root.ledger
        if change == "rollback":
            publishing.roll_back(namespace, release_id, store=store, ledger=ledger)
        elif change == "forward":
            publishing.go_forward(namespace, store=store, ledger=ledger)
        elif change in ("pin", "unpin") and release_id:
            pinned = change == "pin"
            publishing.pin_release(namespace, release_id, pinned, store=store, ledger=ledger)
        elif change == "publish" and release_id:
            if not reason.strip():
                raise InputError("say why it is published all the same", code="no_reason")
            publishing.publish_candidate(namespace, release_id, root, override=reason.strip())
        else:
            raise NotFoundError(
                f"nothing is done to releases by {change[:40]!r}", code="http_error"
            )
        return _read_releases(root, namespace)


def _read_releases(root: DataRoot, namespace: str) -> ReleasesData:
    from rag_platform.releases.publishing import history
    from rag_platform.releases.release_store import current, list_heads

    heads = {head.release_id: head for head in list_heads(root.store, namespace)}
    rows = [
        _release_row(row, heads.get(row["release_id"]))
        for row in history(namespace, store=root.store, ledger=root.ledger)
    ]
    published = current(root.store, namespace)
    newer = [row for row in rows if row["published_at"] and row["kept"]]
    return {
        "namespace": namespace,
        "keep": root.settings.releases.keep,
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


def prove_deletion(settings: Settings, namespace: str, doc_id: str) -> DeletionProof:
    """What is left of a deleted document in the places that a server can read. Raises
    NotFoundError.
    """
    from rag_platform.releases.proofs.deletion_proof import prove

    with open_root(settings) as root:
        found = prove(namespace, doc_id, root, partitions=_UNCHECKED_PARTITIONS)
    return cast(DeletionProof, without_paths(found.data()))
