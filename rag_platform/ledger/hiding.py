"""What readers must no longer show, even where a release still holds it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from rag_platform.errors import IntegrityError
from rag_platform.ledger.ledger import Ledger, open_ledger, require
from rag_platform.storage.store import Store


def hidden_by_ledger(
    store: Store, until: ExitStack | None = None
) -> Callable[[str, int], frozenset[str]]:
    """A function that tells a Library which doc_ids and version_ids are hidden by tombstones; what
    it opens is closed with `until`.

    It raises IntegrityError `no_ledger` when the ledger is missing or older than the release, and
    LedgerError `ledger_unreachable`: in both cases nobody knows what was deleted.
    """
    # kept open: opening costs more than asking, and every query asks
    opened: list[tuple[tuple[int, int], Ledger]] = []

    def hidden(namespace: str, since: int) -> frozenset[str]:
        require(store)
        file = store.ledger_file()
        if not opened or opened[-1][0] != file:  # it was put back from a backup
            opened.append((file, open_ledger(store)))
            if until is not None:
                until.callback(opened[-1][1].close)
        ledger = opened[-1][1]
        if (last := ledger.deletion_sequence(namespace)) < since:
            raise IntegrityError(
                f"the ledger knows of {last} deletions in library {namespace!r}, the release of"
                f" {since}: it is an older copy or another one; put the newest back",
                code="no_ledger",
            )
        if last == since:
            return frozenset()
        return frozenset(
            stone.version_id or stone.doc_id for stone in ledger.tombstones(namespace, since=since)
        )

    return hidden
