"""Which versions keep their data when garbage is collected; pure functions over rows of the ledger."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime

from rag_platform.config import Retention
from rag_platform.ir import Document, Version
from rag_platform.ledger_rows import Tombstone


def kept_versions(
    documents: Iterable[Document],
    versions: Sequence[Version],
    tombstones: Sequence[Tombstone],
    *,
    held: Collection[str],
    drafted: Collection[str],
    retention: Retention,
    now: datetime,
) -> set[str]:
    """Ids of the versions of one namespace whose data stays.

    Kept are those that are live or wanted by their source, those in a release that is kept (`held`), those a draft is based on (`drafted`),
    and of each document the newest `retention.versions` complete ones and any younger than `retention.days`. What is deleted softly or
    retired keeps that for `retention.days` and no longer; what is deleted hard keeps nothing. `tombstones` are all of the namespace,
    lifted ones too; `versions` come oldest first.
    """
    by_id = {document.doc_id: document for document in documents}
    by_document: defaultdict[str, list[Version]] = defaultdict(list)
    for version in versions:
        if version.status != "purged":
            by_document[version.doc_id].append(version)
    stones: defaultdict[str, list[Tombstone]] = defaultdict(list)
    for stone in tombstones:
        stones[stone.doc_id].append(stone)
    kept: set[str] = set()
    for doc_id, own in by_document.items():
        document = by_id.get(doc_id)
        used = {document.live_version, document.wanted_version} if document else set()
        ready = [version.version_id for version in own if version.status == "ready"]
        newest = ready[-retention.versions :] if retention.versions else []
        for version in own:
            needed = version.version_id in used or version.version_id in held or version.version_id in drafted
            recent = version.version_id in newest or _days(version.received_at, now) < retention.days
            stays = needed or (recent and not _over(document, version, stones[doc_id], retention, now))
            if stays and not condemned(version, stones[doc_id], used):
                kept.add(version.version_id)
    return kept


def condemned(version: Version, stones: Iterable[Tombstone], used: Collection[str | None] = ()) -> bool:
    """True when a hard deletion took the version's data; adding the document again saves the version that came (`used`), no older one."""
    return any(
        stone.mode == "hard"
        and stone.doc_id == version.doc_id
        and stone.version_id in (None, version.version_id)
        and (not stone.lifted_at or (version.version_id not in used and version.received_at <= stone.created_at))
        for stone in stones
    )


def _over(document: Document | None, version: Version, stones: Iterable[Tombstone], retention: Retention, now: datetime) -> bool:
    """True when the version left the library, by deletion or with its file, longer ago than retention says."""
    if document is None:
        return True
    left = [s.created_at for s in stones if not s.lifted_at and s.version_id in (None, version.version_id)]
    if document.status != "active":
        left.append(document.updated_at)
    return bool(left) and _days(min(left), now) >= retention.days


def _days(since: str, now: datetime) -> float:
    return (now - datetime.fromisoformat(since.replace("Z", "+00:00"))).total_seconds() / 86_400
