"""Keeps a running server up to date with what other machines publish."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

from rag_platform.config.settings import Settings
from rag_platform.errors import BusyError, RagError
from rag_platform.ledger.ledger import Ledger, open_ledger
from rag_platform.observability import faults
from rag_platform.storage.store import Store
from rag_platform.workspace import DataRoot

log = logging.getLogger(__name__)
_BEAT_SECONDS = 15.0


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
    from rag_platform.releases import servers

    tags: dict[str, str] = {}
    last_warning, next_beat = "", 0.0
    while True:
        try:
            with closing(open_ledger(store)) as ledger:
                if time.monotonic() >= next_beat:
                    servers.send_heartbeat(store, ledger)
                    next_beat = time.monotonic() + _BEAT_SECONDS
                _pull_each(store, ledger, tags)
                servers.carry_out_deletions(DataRoot(settings=settings, store=store, ledger=ledger))
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


def _pull_each(store: Store, ledger: Ledger, tags: dict[str, str]) -> None:
    """Pull the published release of every namespace whose pointer's tag changed; updates `tags`."""
    from rag_platform.releases.transfer import pull

    for namespace in ledger.namespaces():
        pulled, tags[namespace] = pull(
            namespace, store=store, ledger=ledger, known=tags.get(namespace, "")
        )
        if pulled.files or pulled.linked:
            log.info("pulled release %s of %s", pulled.release_id, namespace)
