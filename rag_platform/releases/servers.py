"""What a data root that shares a ledger reports about itself, and how it carries out hard
deletions.

A hard deletion is over when no data root holds any of its data: releases, fetched files, caches,
logs and traces. Each data root acknowledges that in the ledger, where everybody sees which ones
have not.
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


def say_that_it_lives(store: Store, ledger: Ledger) -> None:
    """Report that this data root is being read, and which releases; registers it first."""
    register(store, ledger)
    read = {name: releases.current_or_empty(store, name) for name in ledger.namespaces()}
    ledger.beat(server_id(store), platform.node(), read)


def carry_out_deletions(root: DataRoot) -> None:
    """Remove what hard deletions left in this data root, and acknowledge those that are finished
    here. Data that another process is writing right now waits for the next round.
    """
    store, ledger = root.store, root.ledger
    for stone in _waiting_for(store, ledger):
        try:
            with exclude_others(store, [stone.namespace], "carrying out a deletion", wait=0):
                collect_here(record_deletion(stone, root), root)
        except BusyError:
            break
    acknowledge(store, ledger)


def acknowledge(store: Store, ledger: Ledger) -> None:
    """Record in the ledger which hard deletions are finished in this data root."""
    for stone in _waiting_for(store, ledger):
        record = read_record(store, stone.namespace, stone.sequence)
        if record is not None and record.purged_at:
            ledger.acknowledge(stone.sequence, server_id(store))


def _waiting_for(store: Store, ledger: Ledger) -> list[Tombstone]:
    """The hard deletions that this data root has not acknowledged."""
    if store.remote is None:
        return []
    own = server_id(store)
    return [stone for stone, server in ledger.find_unacknowledged() if server.server_id == own]


def wait_for_servers(sequence: int, settings: Settings, ledger: Ledger) -> list[str]:
    """Wait some time for living servers to acknowledge a hard deletion. Returns a sentence for each
    server that has not.
    """
    until = time.monotonic() + settings.blobs.acknowledge_seconds
    seconds = settings.blobs.silent_seconds
    while True:
        found = [
            (s, server) for s, server in ledger.find_unacknowledged() if s.sequence == sequence
        ]
        if time.monotonic() >= until or all(is_silent(server, seconds) for _, server in found):
            return name_waiting(found, seconds)
        time.sleep(_POLL_SECONDS)
