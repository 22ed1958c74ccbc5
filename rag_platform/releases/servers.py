"""The part of a running server in a library that machines share: it follows what others publish,
sends heartbeats and carries out hard deletions.

A hard deletion is finished when no data root holds any of its data: releases, fetched files,
caches, logs and traces. Each data root acknowledges that in the ledger, which shows who has not.
"""

from __future__ import annotations

import logging
import platform
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

from rag_platform.config.settings import Settings
from rag_platform.errors import BusyError, RagError
from rag_platform.ledger.ledger import Ledger, open_ledger
from rag_platform.ledger.schema import Tombstone
from rag_platform.ledger.servers import is_silent, name_waiting, server_id
from rag_platform.observability import faults
from rag_platform.releases import release_store as releases
from rag_platform.storage.store import Store
from rag_platform.workspace import DataRoot

log = logging.getLogger(__name__)
_BEAT_SECONDS = 15.0
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
    # late, because a server that only reads should start fast
    from rag_platform.releases.deletion import record_deletion
    from rag_platform.releases.garbage_collection import collect_here, exclude_others

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
    from rag_platform.releases.stored_artifacts import read_record

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


# --- following other machines -------------------------------------------------------------------


@contextmanager
def following(settings: Settings) -> Iterator[None]:
    """Follow what other machines publish for the duration of the block: a thread polls the pointers
    in the object store, pulls new releases and carries out hard deletions. Does nothing without an
    object store.
    """
    store = Store.of(settings)
    if store.remote is None:
        yield
        return
    stop = threading.Event()
    follower = threading.Thread(
        target=_follow, args=(settings, store, stop), name="rag-pull", daemon=True
    )
    follower.start()
    try:
        yield
    finally:
        stop.set()


def _follow(settings: Settings, store: Store, stop: threading.Event) -> None:
    from rag_platform.releases.transfer import pull

    tags: dict[str, str] = {}
    last_warning, next_beat = "", 0.0
    while True:
        try:
            with closing(open_ledger(store)) as ledger:
                root = DataRoot(settings=settings, store=store, ledger=ledger)
                if time.monotonic() >= next_beat:
                    send_heartbeat(store, ledger)
                    next_beat = time.monotonic() + _BEAT_SECONDS
                for namespace in ledger.namespaces():
                    known = tags.get(namespace, "")
                    pulled, tags[namespace] = pull(namespace, root, known=known)
                    if pulled.files or pulled.linked:
                        log.info("pulled release %s of %s", pulled.release_id, namespace)
                carry_out_deletions(root)
            last_warning = ""
        except BusyError:  # another process of this machine pulls it
            pass
        except (RagError, OSError) as error:
            if str(error) != last_warning:
                log.warning("what other machines published cannot be pulled: %s", error)
            last_warning = str(error)
        except Exception as error:  # noqa: BLE001 (the next look may go well)
            faults.report(error, "pull", logs_dir=store.logs_dir)
        if stop.wait(settings.blobs.poll_seconds):
            return
