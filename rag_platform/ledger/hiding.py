"""What the ledger tells readers of a release: what to hide although the release holds it, and which
documents have a newer version that failed.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import ExitStack

from rag_platform.errors import IntegrityError
from rag_platform.ledger.ledger import Ledger, open_ledger, require
from rag_platform.storage.store import Store


class LedgerView:
    """What a Library reads from the ledger. Connections are closed with `until`.

    Methods raise IntegrityError `no_ledger` when the ledger is missing, and LedgerError
    `ledger_unreachable`: in both cases it is unknown what was deleted.
    """

    def __init__(self, store: Store, until: ExitStack | None = None) -> None:
        self._store, self._until = store, until
        # kept open: opening costs more than reading, and every query reads
        self._opened: list[tuple[tuple[int, int], Ledger]] = []

    def _ledger(self) -> Ledger:
        require(self._store)
        file = self._store.ledger_file()
        if not self._opened or self._opened[-1][0] != file:  # restored from a backup
            self._opened.append((file, open_ledger(self._store)))
            if self._until is not None:
                self._until.callback(self._opened[-1][1].close)
        return self._opened[-1][1]

    def hidden(self, namespace: str, since: int) -> frozenset[str]:
        """The doc_ids and version_ids that were deleted after a release of the deletion sequence
        `since` was built. Raises IntegrityError `no_ledger` for a ledger older than the release.
        """
        ledger = self._ledger()
        if (last := ledger.deletion_sequence(namespace)) < since:
            raise IntegrityError(
                f"the ledger knows the deletions in library {namespace!r} up to number {last}, the"
                f" release up to {since}: it is an older copy or another one; put the newest back",
                code="no_ledger",
            )
        if last == since:
            return frozenset()
        return frozenset(it.target for it in ledger.tombstones(namespace, since=since))

    def list_unread(self, namespace: str, most: int) -> tuple[int, list[str]]:
        """The number of documents whose newest version or whose file could not be read, and at
        most that many of their names. Empty files have nothing to read.
        """
        count, problems = self._ledger().document_problems(
            namespace, (), most, without="empty_file"
        )
        return count, [source_uri for source_uri, *_ in problems]

    def failed_updates(self, namespace: str, doc_ids: Collection[str]) -> dict[str, str]:
        """source_uri to the reason of those documents whose newest version failed."""
        return self._ledger().failed_updates(namespace, doc_ids)
