"""The heartbeat of a data root that shares a ledger, and its part in hard deletions.

A hard deletion is finished when no data root holds any of its data: releases, fetched files,
caches, logs and traces. Each data root acknowledges that in the ledger, which shows who has not.
"""

from __future__ import annotations

import platform
import time

from rag_platform.config.settings import Settings
from rag_platform.errors import BusyError
from rag_platform.ledger.ledger import Ledger
from rag_platform.ledger.schema import Tombstone
from rag_platform.ledger.servers import is_silent, name_waiting, server_id
from rag_platform.releases import release_store as releases
from rag_platform.releases.deletion import record_deletion
from rag_platform.releases.garbage_collection import collect_here, exclude_others
from rag_platform.releases.stored_artifacts import read_record
from rag_platform.storage.store import Store
from rag_platform.workspace import DataRoot

_POLL_SECONDS = 0.2


def register(store: Store, ledger: Ledger) -> None:
    """Make hard deletions wait for this data root from now on."""
    if store.remote is not None:
        ledger.register(server_id(store), platform.node(), empty=not store.has_releases())


def send_heartbeat(store: Store, ledger: Ledger) -> None:
    """Record that this data root is being read, and which releases; registers it first."""
    register(store, ledger)
    read = {name: releases.current_or_empty(store, name) for name in ledger.namespaces()}
    ledger.beat(server_id(store), platform.node(), read)


def carry_out_deletions(root: DataRoot) -> None:
    """Remove what hard deletions left in this data root, and acknowledge the finished ones. Data
    that another process is writing right now is left for the next round.
    """
    store, ledger = root.store, root.ledger
    for tombstone in _find_unacknowledged(store, ledger):
        try:
            with exclude_others(store, [tombstone.namespace], "carrying out a deletion", wait=0):
                collect_here(record_deletion(tombstone, root), root)
        except BusyError:
            break
    acknowledge(store, ledger)


def acknowledge(store: Store, ledger: Ledger) -> None:
    """Record in the ledger which hard deletions are finished in this data root."""
    for tombstone in _find_unacknowledged(store, ledger):
        record = read_record(store, tombstone.namespace, tombstone.sequence)
        if record is not None and record.purged_at:
            ledger.acknowledge(tombstone.sequence, server_id(store))


def _find_unacknowledged(store: Store, ledger: Ledger) -> list[Tombstone]:
    """The hard deletions that this data root has not acknowledged."""
    if store.remote is None:
        return []
    own = server_id(store)
    return [
        tombstone for tombstone, server in ledger.find_unacknowledged() if server.server_id == own
    ]


def wait_for_servers(sequence: int, settings: Settings, ledger: Ledger) -> list[str]:
    """Wait for living servers to acknowledge a hard deletion, at most `blobs.acknowledge_seconds`.
    Returns a sentence for each server that has not.
    """
    until = time.monotonic() + settings.blobs.acknowledge_seconds
    seconds = settings.blobs.silent_seconds
    while True:
        waiting = [
            (tombstone, server)
            for tombstone, server in ledger.find_unacknowledged()
            if tombstone.sequence == sequence
        ]
        if time.monotonic() >= until or all(is_silent(server, seconds) for _, server in waiting):
            return name_waiting(waiting, seconds)
        time.sleep(_POLL_SECONDS)
