"""What command line, server, pages and evaluation read with: opened releases, strategies,
providers.

A published release is opened at its first query and replaced when CURRENT names another one;
queries in flight keep the old one, which is closed after the last of them. Nothing is loaded before
it is needed.
"""

from __future__ import annotations

import logging
import re
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rag_platform import access
from rag_platform.caching import Cache
from rag_platform.config.ingestion import EmbeddingConfig
from rag_platform.config.profiles import Provider, providers_snapshot, strategy_config_id
from rag_platform.config.settings import (
    Settings,
    Strategy,
    canonical_json,
    load_strategy,
    strategy_path,
)
from rag_platform.errors import ConfigError, InputError, NotFoundError, RagError, unknown_namespace
from rag_platform.ir import Json
from rag_platform.ledger import traffic
from rag_platform.ledger.hiding import LedgerView
from rag_platform.ledger.ledger import open_ledger
from rag_platform.observability import tracing
from rag_platform.processes.limits import Load
from rag_platform.protocols import Vectors
from rag_platform.releases.release_store import (
    OpenRelease,
    list_releases,
    manifest_of,
    open_release,
    require_current,
)
from rag_platform.retrieval.constants import (
    HELD_LANGUAGE,
    KEPT_FILTERS,
    KEPT_STRATEGIES,
    MAX_RETAINED_OPEN,
)
from rag_platform.retrieval.provider_cache import Models
from rag_platform.storage.store import Store, keep_config, read_json
from rag_platform.text.plurals import pluralise

if TYPE_CHECKING:
    from rag_platform.retrieval.document_mentions import DocumentNames

_log = logging.getLogger(__name__)
_NAMESPACE = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_RELEASE = re.compile(r"\.?[\w-][\w.-]{0,120}", re.ASCII)
_QUERY_PART = ("query", "retrieval", "fusion", "reranker", "context", "answerer", "summary", "llm")


@dataclass(eq=False)
class Lease:
    """An opened release with its strategy; closed when it is retired and has no readers."""

    namespace: str
    release_id: str
    release: OpenRelease
    strategy: Strategy
    readers: int = 0
    retired: bool = False
    hidden_chunks: dict[frozenset[str], frozenset[str]] = field(default_factory=dict)
    filtered: Cache[frozenset[str]] = field(default_factory=lambda: Cache(KEPT_FILTERS))
    _names: DocumentNames | None = None
    _languages: dict[str, float] | None = None
    # whoever warms up and the first question want the same, and each would map the catalog
    _reading: threading.Lock = field(default_factory=threading.Lock)

    def names(self) -> DocumentNames:
        """The words by which documents are known, made at the first call. Needs a word index."""
        with self._reading:
            if self._names is None:
                # with the first question: the pages show themselves without what answers need
                from rag_platform.retrieval.document_mentions import DocumentNames

                assert self.release.lexical is not None
                self._names = DocumentNames(self.release.catalog, self.release.lexical)
            return self._names

    def languages(self) -> dict[str, float]:
        """The share of each language, counted at the first call."""
        with self._reading:
            if self._languages is None:
                self._languages = self.release.catalog.languages()
            return self._languages

    def holds_language(self, language: str) -> bool:
        """True where at least one in twenty chunks is in that language or in an unknown one."""
        shares = self.languages()
        return shares.get(language, 0.0) + shares.get("", 0.0) >= HELD_LANGUAGE


class Library:
    """Reads every namespace under one data root; safe for any number of threads.

    Without `ledger` nothing is hidden, and no document is behind its file.
    """

    def __init__(self, settings: Settings, store: Store, ledger: LedgerView | None = None) -> None:
        self.settings = settings
        self.store = store
        traffic.use(settings.traffic, store)
        self.models = Models(settings)
        self.load = Load(settings.load)
        self.retrievals: Cache[Any] = Cache(settings.caches.retrievals, settings.caches.seconds)
        self.responses: Cache[Any] = Cache(settings.caches.responses, settings.caches.seconds)
        self.ledger = ledger
        self._lock = threading.Lock()
        self._opening: dict[tuple[str, str], threading.Lock] = {}
        self._current: dict[str, tuple[tuple[int, int, int], str]] = {}
        self._leases: OrderedDict[tuple[str, str], Lease] = OrderedDict()
        self._derived: Cache[tuple[Strategy, Strategy, Strategy]] = Cache(KEPT_STRATEGIES)
        self._config_ids: Cache[tuple[Strategy, str]] = Cache(KEPT_STRATEGIES)
        self._providers: Cache[tuple[Strategy, dict[str, Provider]]] = Cache(KEPT_STRATEGIES)
        self._strategies: dict[str, tuple[int, Strategy]] = {}

    # --- releases --------------------------------------------------------------------------------

    def namespaces(self) -> list[str]:
        """Namespaces with a published release that the caller may see, sorted."""
        root = self.store.releases_dir("_").parent
        found = [path.parent.name for path in root.glob("*/CURRENT")] if root.is_dir() else []
        return sorted(filter(access.current().may_see, found))

    def current(self, namespace: str) -> str:
        """The published release_id, read again only when the pointer was replaced.

        Raises NotFoundError `unknown_namespace` or `no_release`, ReleaseError `pointer_damaged`.
        """
        self._require_name(namespace)
        path = self.store.current_path(namespace)
        try:
            found = path.stat()
        except OSError as error:
            known = ", ".join(self.namespaces()) or "none"
            if path.parent.is_dir() or namespace == self.settings.default_namespace:
                others = "" if known == "none" else f", or name another library: {known}"
                raise _nothing_published(self.store, namespace, others) from error
            raise unknown_namespace(namespace, self.namespaces()) from error
        stamp = (found.st_mtime_ns, found.st_ino, found.st_size)
        known_current = self._current.get(namespace)
        if known_current is None or known_current[0] != stamp:
            known_current = (stamp, require_current(self.store, namespace))
            self._current[namespace] = known_current
            self._retire(namespace, known_current[1])
        return known_current[1]

    def require_visible(self, namespace: str) -> None:
        """Raises NotFoundError for what is no namespace of the caller's; it need not be there."""
        self._require_name(namespace)

    def _require_name(self, namespace: str) -> None:
        """Raises NotFoundError for one that the caller may not see, and for what cannot be a
        namespace: it becomes part of a path.
        """
        if not _NAMESPACE.fullmatch(namespace) or not access.current().may_see(namespace):
            raise unknown_namespace(namespace, self.namespaces())

    @contextmanager
    def lease(self, namespace: str, release_id: str | None = None) -> Iterator[Lease]:
        """The opened release for the length of the block: the published one, or a retained one."""
        self._require_name(namespace)
        if release_id and not _RELEASE.fullmatch(release_id):
            raise NotFoundError(
                f"no release {release_id[:80]!r}; see `rag releases list`", code="unknown_release"
            )
        if release_id:
            self._require_there(namespace, release_id)
        opened = (
            self._acquire(namespace, release_id)
            if release_id
            else self._acquire_published(namespace)
        )
        try:
            yield opened
        finally:
            with self._lock:
                opened.readers -= 1
                done = opened.retired and not opened.readers
            if done:
                opened.release.close()

    def _acquire_published(self, namespace: str) -> Lease:
        """The published release, opened; if it is replaced and removed meanwhile, the next one."""
        while True:
            release_id = self.current(namespace)
            try:
                return self._acquire(namespace, release_id)
            except (RagError, OSError):
                if self.current(namespace) == release_id:
                    raise

    def _acquire(self, namespace: str, release_id: str) -> Lease:
        key = (namespace, release_id)
        with self._lock:
            if (found := self._leases.get(key)) is not None:
                found.readers += 1
                self._leases.move_to_end(key)
                return found
            opening = self._opening.setdefault(key, threading.Lock())
        with opening:  # one thread opens, the others wait for it and find it
            with self._lock:
                found = self._leases.get(key)
                if found is not None:
                    found.readers += 1
                    return found
            try:
                made = self._open(namespace, release_id)
            finally:
                with self._lock:
                    self._opening.pop(key, None)
            with self._lock:
                kept = self._leases.setdefault(key, made)
                kept.readers += 1
        # opened twice: the lock that both should have waited for went with a failure
        if kept is not made:
            made.release.close()
        self._trim()
        return kept

    def _open(self, namespace: str, release_id: str) -> Lease:
        manifest = manifest_of(self.store, namespace, release_id, ())
        recorded = Strategy.model_validate(manifest.strategy_config)
        try:
            release = open_release(self.store, namespace, recorded, release_id)
        except (RagError, OSError):
            # removed meanwhile: that is what has to be said
            manifest_of(self.store, namespace, release_id, ())
            raise
        # removed meanwhile, so an index may be missing
        if not self._is_there(namespace, release_id):
            release.close()
            manifest_of(self.store, namespace, release_id, ())
        tracing.event("release.opened", {"namespace": namespace, "release_id": release_id})
        return Lease(namespace, release_id, release, recorded)

    def _is_there(self, namespace: str, release_id: str) -> bool:
        return (self.store.release_dir(namespace, release_id) / "manifest.json").is_file()

    def _require_there(self, namespace: str, release_id: str) -> None:
        """Let go of a release that was removed while open; raises what `manifest_of` raises."""
        if self._is_there(namespace, release_id):
            return
        with self._lock:
            key = (namespace, release_id)
            idle = self._let_go(key) if key in self._leases else None
        if idle is not None:
            idle.release.close()
        manifest_of(self.store, namespace, release_id, ())

    def _retire(self, namespace: str, current: str) -> None:
        """Let go of the namespace's other releases; retained ones are opened again on demand."""
        with self._lock:
            old = [key for key in self._leases if key[0] == namespace and key[1] != current]
            idle = [lease for key in old if (lease := self._let_go(key)) is not None]
        for lease in idle:
            lease.release.close()

    def _trim(self) -> None:
        with self._lock:
            published = {
                (namespace, release_id) for namespace, (_, release_id) in self._current.items()
            }
            extra = [key for key in self._leases if key not in published]
            idle = [
                lease
                for key in extra[:-MAX_RETAINED_OPEN]
                if (lease := self._let_go(key)) is not None
            ]
        for lease in idle:
            lease.release.close()

    def _let_go(self, key: tuple[str, str]) -> Lease | None:
        """Retire a lease. Returned when nobody reads it, to be closed outside the lock."""
        lease = self._leases.pop(key)
        lease.retired = True
        return None if lease.readers else lease

    def close(self) -> None:
        """Close every release that nobody reads; the others close with their last query."""
        with self._lock:
            idle = [lease for key in list(self._leases) if (lease := self._let_go(key)) is not None]
        for lease in idle:
            lease.release.close()

    # --- what a query needs besides --------------------------------------------------------------

    def strategy(self, name: str) -> Strategy:
        """The strategy of a name, read again after its file changed, or a `strategy_config_id`."""
        if name.startswith("scfg_") and re.fullmatch(r"scfg_[0-9a-f]{16}", name):
            path = self.store.config_path(name)
            if not path.is_file():
                raise NotFoundError(
                    f"no configuration {name!r} was kept under this data root",
                    code="unknown_strategy",
                )
            return Strategy.model_validate(read_json(path))
        return self._read_strategy(name, strategy_path(self.settings, name))

    def _read_strategy(self, name: str, file: Path) -> Strategy:
        stamp = file.stat().st_mtime_ns if file.is_file() else -1
        known = self._strategies.get(name)
        if known is None or known[0] != stamp or stamp < 0:
            known = (stamp, self._reload(name, known and known[1]))
            self._strategies[name] = known
        return known[1]

    def _reload(self, name: str, last: Strategy | None) -> Strategy:
        """The strategy as its file is now; the `last` good one, with a warning, where that is
        broken.
        """
        try:
            return load_strategy(self.settings, name)
        except ConfigError as error:
            if last is None:
                raise
            _log.warning("the last good strategy %r stays in force: %s", name, error.message)
            return last

    def query_strategy(self, lease: Lease, name: str | None = None) -> Strategy:
        """The strategy of one call: the ingestion part of the release, and the query part of the
        file `name` as it is now. By default that is the file of the release's own strategy.

        A query part can therefore be tuned without a rebuild; without a file the recorded one
        counts. A release answers with the embedder that built it, even if its strategy's file now
        names another one. Raises InputError, naming both, for a strategy with another embedder.
        """
        own = lease.strategy
        if name in (None, own.name):
            file = strategy_path(self.settings, own.name)
            if not file.is_file():
                return own
            asked = self._read_strategy(own.name, file)
        else:
            asked = self.strategy(name)
        if (
            asked.name != own.name
            and own.builds_dense
            and asked.builds_dense
            and not _same_space(own.embedding, asked.embedding)
        ):
            raise InputError(
                f"strategy {asked.name!r} embeds with {asked.embedding.provider}, release"
                f" {lease.release_id} was built with {own.embedding.provider}; ask with a strategy"
                f" of the same embedder, or run `rag rebuild --strategy {asked.name}`",
                code="embedder_mismatch",
            )
        pair = (id(own), id(asked))
        derived = self._derived.get(pair)
        if derived is None:
            part = {key: getattr(asked, key) for key in _QUERY_PART}
            derived = (own, asked, own.model_copy(update={"name": asked.name, **part}))
            self._derived.put(pair, derived)
        return derived[2]

    def config_id(self, strategy: Strategy) -> str:
        """The strategy_config_id, hashed once for each strategy object."""
        found = self._config_ids.get(id(strategy))
        if found is None:
            found = (strategy, strategy_config_id(strategy))
            keep_config(self.store, found[1], strategy.model_dump(mode="json"))
            self._config_ids.put(id(strategy), found)
        return found[1]

    def providers(self, lease: Lease, strategy: Strategy) -> dict[str, Provider]:
        """What does the work of each module of a question's strategy, and what did it of those that
        made the release, by its manifest. Empty where a package is missing, as the stage that needs
        it says.
        """
        found = self._providers.get(id(strategy))
        if found is None:
            providers: dict[str, Provider] = {}
            with suppress(ConfigError):
                providers = providers_snapshot(strategy, built=lease.release.manifest.profiles)
            found = (strategy, providers)
            self._providers.put(id(strategy), found)
        return found[1]

    def query_vector(self, config: EmbeddingConfig, text: str) -> tuple[Vectors, bool]:
        """(unit vector [dim], whether it was remembered). Raises what the embedder raises."""
        vectors, remembered = self.models.query_vectors(config, [text])
        return vectors[0], remembered

    def cache_figures(self) -> Json:
        """`Cache.figures` of `query_vectors`, `retrievals` and `responses`."""
        caches = {
            "query_vectors": self.models.vectors,
            "retrievals": self.retrievals,
            "responses": self.responses,
        }
        return {name: cache.figures() for name, cache in caches.items()}

    def check_versions(self, lease: Lease, version_ids: Sequence[str]) -> None:
        """Raises InputError `version_not_live` for a version that the release does not hold."""
        for version_id in version_ids:
            if lease.release.catalog.version(version_id) is not None:
                continue
            doc_id = str(version_id).rpartition("@")[0].removeprefix(f"{lease.namespace}.")
            live = [
                v
                for v, version in lease.release.catalog.versions().items()
                if version.doc_id == doc_id
            ]
            holders = self._releases_with(lease.namespace, version_id)
            raise InputError(
                f"version {version_id!r} is not in release {lease.release_id}; "
                + (
                    f"the live version of the document is {live[0]!r}"
                    if live
                    else "the release holds no version of that document"
                )
                + "; leave version_id out to ask what is live"
                + (
                    f", or ask release {', '.join(holders)}, which holds it, with `rag query"
                    " --release`"
                    if holders
                    else ""
                ),
                code="version_not_live",
                live=live,
                releases=holders,
            )

    def _releases_with(self, namespace: str, version_id: str) -> list[str]:
        return sorted(
            manifest.release_id
            for manifest in list_releases(self.store, namespace)
            if version_id in manifest.versions
        )

    def matching_chunks(self, lease: Lease, where: str, params: tuple[Any, ...]) -> frozenset[str]:
        """Ids of the chunks that satisfy a filter; recent filters are remembered."""
        key = (where, params)
        found = lease.filtered.get(key)
        if found is None:
            found = frozenset(lease.release.catalog.select_ids(where, params))
            lease.filtered.put(key, found)
        return found

    def hidden_names(self, lease: Lease) -> frozenset[str]:
        """The doc_ids and version_ids that tombstones hide now. The ledger is asked each time, so
        that a deletion acts at once.
        """
        return (
            self.ledger.hidden(lease.namespace, lease.release.manifest.deletions)
            if self.ledger is not None
            else frozenset()
        )

    def hidden_chunks(self, lease: Lease, names: frozenset[str] | None = None) -> frozenset[str]:
        """Ids of the chunks that tombstones hide now, or of the documents and versions named."""
        hidden = self.hidden_names(lease) if names is None else names
        if not hidden:
            return frozenset()
        found = lease.hidden_chunks.get(hidden)
        if found is None:
            listed = canonical_json(sorted(hidden))
            where = (
                "doc_id IN (SELECT value FROM json_each(?)) OR version_id IN (SELECT value FROM"
                " json_each(?))"
            )
            found = frozenset(lease.release.catalog.chunk_ids(where, (listed, listed)))
            lease.hidden_chunks = {hidden: found}
        return found


def _nothing_published(store: Store, namespace: str, others: str) -> NotFoundError:
    """The error that says what is under way in a library, else what failed."""
    job_id, failed = "", 0
    with suppress(RagError), closing(open_ledger(store)) as ledger:
        at_work = (job.job_id for job in ledger.open_jobs() if job.namespace == namespace)
        job_id, failed = next(at_work, ""), ledger.document_problems(namespace, (), 1)[0]
    if job_id:
        return NotFoundError(
            f"nothing of library {namespace!r} is published: {job_id} is at work; `rag jobs show"
            f" {job_id}` says how far it is{others}",
            code="no_release",
            namespace=namespace,
        )
    if failed:
        return NotFoundError(
            f"nothing of library {namespace!r} is published:"
            f" {pluralise(failed, 'document')} failed; `rag status` says why{others}",
            code="no_release",
            namespace=namespace,
        )
    return NotFoundError(
        f"library {namespace!r} has no published release; run `rag ingest`{others}",
        code="no_release",
        namespace=namespace,
    )


def _same_space(left: EmbeddingConfig, right: EmbeddingConfig) -> bool:
    return left.provider == right.provider and left.options == right.options
