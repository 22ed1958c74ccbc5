"""The state of the installation and of each namespace, without absolute paths and secrets."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from typing import cast

from rag_platform import access
from rag_platform.api.documents import document_states
from rag_platform.caching import together
from rag_platform.config.settings import strategy_names
from rag_platform.contract.markdown_views import status_markdown
from rag_platform.contract.schema import FaultStatus, NamespaceStatus, StatusData
from rag_platform.errors import RagError
from rag_platform.indexes.catalog_tables import SCHEMA_VERSION as CATALOG_SCHEMA
from rag_platform.ir import Json
from rag_platform.ledger.ledger import Ledger
from rag_platform.ledger.schema import SCHEMA_VERSION as LEDGER_SCHEMA
from rag_platform.observability import faults
from rag_platform.observability.logs import LOG_SCHEMA_VERSION
from rag_platform.observability.tracing import build_info
from rag_platform.retrieval.library import Library
from rag_platform.storage.records import SCHEMA_VERSION as STORE_SCHEMA

_STARTED = time.monotonic()


def status(library: Library, others: Sequence[Json] = (), *, serving: bool = True) -> StatusData:
    """What every namespace publishes, and how this installation is set up.

    `others` are the `cache_figures` of the server's other processes, which are added to those of
    the library. Caches and running questions are only shown of a program that is `serving`.
    """
    caches: Json = {
        name: together([own, *(other[name] for other in others)])
        for name, own in library.cache_figures().items()
    }
    data: StatusData = {
        "markdown": "",
        "app_version": build_info()["app_version"],
        "default_namespace": library.settings.default_namespace,
        "default_strategy": library.settings.default_strategy,
        "strategies": strategy_names(library.settings),
        "schema_versions": {
            "store": STORE_SCHEMA,
            "ledger": LEDGER_SCHEMA,
            "catalog": CATALOG_SCHEMA,
            "logs": LOG_SCHEMA_VERSION,
        },
        "uptime_seconds": round(time.monotonic() - _STARTED, 1),
        "namespaces": [_namespace_status(library, namespace) for namespace in _namespaces(library)],
    }
    if serving:
        data["caches"], data["running_queries"] = caches, library.load.running
    everything = access.current().namespaces is None
    if everything and (found := faults.summary(library.store.logs_dir)):
        data["unexpected_errors"] = cast(FaultStatus, found)
    data["markdown"] = status_markdown(data)
    return data


def _namespaces(library: Library) -> list[str]:
    known = set(library.namespaces())
    if library.store.ledger_path.is_file():
        with closing(Ledger(library.store.ledger_path)) as ledger:
            known |= set(ledger.namespaces())
    return sorted(filter(access.current().may_see, known))


def _namespace_status(library: Library, namespace: str) -> NamespaceStatus:
    found: NamespaceStatus = {
        "namespace": namespace,
        "release_id": None,
        "published_at": "",
        "documents": 0,
        "chunks": 0,
        "strategy": "",
        "strategy_config_id": "",
        "encoding": "",
        "embedder": "",
        "pending": 0,
        "failed": 0,
        "problem": "",
    }
    try:
        states = document_states(library, namespace)
        found["pending"], found["failed"] = states["pending"], states["problem"]
        if library.store.current_path(namespace).is_file():
            with library.lease(namespace) as lease:
                manifest, counts = lease.release.manifest, lease.release.catalog.counts()
            found["release_id"], found["published_at"] = manifest.release_id, manifest.created_at
            found["documents"], found["chunks"] = counts["documents"], counts["chunks"]
            found["strategy"] = manifest.strategy
            found["strategy_config_id"] = manifest.strategy_config_id
            found["encoding"], embedder = manifest.encoding, manifest.embedder
            found["embedder"] = f"{embedder.embedder_id} {embedder.version}" if embedder else "none"
    # one namespace that cannot be opened must not hide the state of the others
    except RagError as error:
        found["problem"] = error.message
    return found
