"""The read side of a data root, shared by command line, server, web pages and evaluation: opened
releases, strategies, providers and caches.

A published release is opened at its first query and replaced when CURRENT names another one;
queries in flight keep the old one, which is closed after the last of them. Everything is loaded
lazily.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rag_platform import access
from rag_platform.caching import Cache
from rag_platform.config.ingestion import EmbeddingConfig
from rag_platform.config.profiles import (
    Provider,
    is_config_id,
    providers_snapshot,
    strategy_config_id,
)
from rag_platform.config.settings import QUERY_PART, Settings, Strategy, canonical_json
from rag_platform.config.strategies import load_strategy, strategy_path
from rag_platform.errors import (
    ConfigError,
    InputError,
    NotFoundError,
    RagError,
    name_library,
    unknown_namespace,
    unknown_release,
)
from rag_platform.ir import Json
from rag_platform.ledger import traffic
from rag_platform.ledger.hiding import LedgerView
from rag_platform.ledger.ledger import open_ledger
from rag_platform.observability import tracing
from rag_platform.processes.jobs import OPEN_STATES, as_it_stands
from rag_platform.processes.limits import Load
from rag_platform.protocols import Vectors
from rag_platform.releases.release_store import (
    OpenRelease,
    Unreadable,
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
from rag_platform.retrieval.product_versions import ProductVersions
from rag_platform.retrieval.provider_cache import Models
from rag_platform.storage.store import NAMESPACE, RELEASE_ID, Store, keep_config, read_json
from rag_platform.text.wording import pluralise

if TYPE_CHECKING:
    from rag_platform.retrieval.document_mentions import DocumentNames

_log = logging.getLogger(__name__)


@dataclass(eq=False)
class Lease:
    """An opened release with its strategy and caches; closed once it is retired and unused."""

    namespace: str
    release_id: str
    release: OpenRelease
    strategy: Strategy
    readers: int = 0
    retired: bool = False
    hidden_chunks: dict[frozenset[str], frozenset[str]] = field(default_factory=dict)
    filtered: Cache[frozenset[str]] = field(default_factory=lambda: Cache(KEPT_FILTERS))
    _names: DocumentNames | None = None
    _product_versions: ProductVersions | None = None
    _languages: dict[str, float] | None = None
    # so that warming up and the first question do not both read the catalog
    _reading: threading.Lock = field(default_factory=threading.Lock)

    def names(self) -> DocumentNames:
        """The index of document names, built at the first call. Needs a word index."""
        with self._reading:
            if self._names is None:
                # not imported by pages that answer no question
                from rag_platform.retrieval.document_mentions import DocumentNames

                assert self.release.lexical is not None
                self._names = DocumentNames(self.release.catalog, self.release.lexical)
            return self._names

    def product_versions(self) -> ProductVersions:
        """The versions in the paths of the documents, read at the first call."""
        with self._reading:
            if self._product_versions is None:
                self._product_versions = ProductVersions(
                    self.release.catalog.paths(), self._share_chunks
                )
            return self._product_versions

    def _share_chunks(self, word: str) -> float:
        """The share of chunks with a word; 1 without a readable word index."""
        words = self.release.lexical
        if words is None or isinstance(words, Unreadable):
            return 1.0
        return words.doc_freq(word) / (words.count() or 1)

    def languages(self) -> dict[str, float]:
        """The share of chunks in each language, counted at the first call."""
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

    Without `ledger` there are no tombstones and no failed updates.
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

    @classmethod
    def open(cls, settings: Settings) -> Library:
        """The library of a data root, with the tombstones of its ledger."""
        store = Store.of(settings)
        return cls(settings, store, LedgerView(store))

    # --- releases --------------------------------------------------------------------------------

    def namespaces(self) -> list[str]:
        """Namespaces with a published release that the caller may see, sorted."""
        root = self.store.releases_dir("_").parent
        found = [path.parent.name for path in root.glob("*/CURRENT")] if root.is_dir() else []
        return sorted(filter(access.current().may_see, found))

    def current(self, namespace: str) -> str:
        """The published release_id; the pointer is read again only after it was replaced.

        Raises NotFoundError `unknown_namespace` or `no_release`, ReleaseError `pointer_damaged`.
        """
        self.require_visible(namespace)
        path = self.store.current_path(namespace)
        try:
            found = path.stat()
        except OSError as error:
            known = ", ".join(self.namespaces()) or "none"
            if path.parent.is_dir() or namespace == self.settings.default_namespace:
                others = "" if known == "none" else f", or name another library: {known}"
                raise _nothing_published(self.store, namespace, others, self.settings) from error
            raise unknown_namespace(namespace, self.namespaces()) from error
        stamp = (found.st_mtime_ns, found.st_ino, found.st_size)
        known_current = self._current.get(namespace)
        if known_current is None or known_current[0] != stamp:
            known_current = (stamp, require_current(self.store, namespace))
            self._current[namespace] = known_current
            current = known_current[1]
            # retained releases are opened again on demand
            self._retire(lambda key: key[0] == namespace and key[1] != current)
        return known_current[1]

    def require_visible(self, namespace: str) -> None:
        """Raises NotFoundError for an invalid name, which would become part of a path, and for a
        namespace that the caller may not see; it need not exist.
        """
        if not NAMESPACE.fullmatch(namespace) or not access.current().may_see(namespace):
            raise unknown_namespace(namespace, self.namespaces())

    @contextmanager
    def lease(self, namespace: str, release_id: str | None = None) -> Iterator[Lease]:
        """The opened release for the length of the block: the published one, or a retained one."""
        self.require_visible(namespace)
        if release_id and not RELEASE_ID.fullmatch(release_id.removeprefix(".")):
            raise unknown_release(release_id, namespace)
        if release_id:
            self._require_existing(namespace, release_id)
        opened: Lease | None = None
        try:
            opened = (
                self._acquire(namespace, release_id)
                if release_id
                else self._acquire_published(namespace)
            )
            yield opened
        except RagError as error:
            error.message = name_library(error.message, namespace)
            raise
        finally:
            if opened is not None:
                self._give_back(opened)

    def _give_back(self, opened: Lease) -> None:
        with self._lock:
            opened.readers -= 1
            done = opened.retired and not opened.readers
        if done:
            opened.release.close()

    def _acquire_published(self, namespace: str) -> Lease:
        """Open the published release; if it is replaced and removed meanwhile, the next one."""
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
        with opening:  # one thread opens the release, the others wait and then find it
            with self._lock:
                found = self._leases.get(key)
                if found is not None:
                    found.readers += 1
                    return found
            try:
                opened = self._open(namespace, release_id)
            finally:
                with self._lock:
                    self._opening.pop(key, None)
            with self._lock:
                kept = self._leases.setdefault(key, opened)
                kept.readers += 1
        # two threads may open it if a third one failed and removed their common lock
        if kept is not opened:
            opened.release.close()
        self._trim()
        return kept

    def _open(self, namespace: str, release_id: str) -> Lease:
        manifest = manifest_of(self.store, namespace, release_id, ())
        recorded = Strategy.model_validate(manifest.strategy_config)
        try:
            release = open_release(self.store, namespace, recorded, release_id)
        except (RagError, OSError):
            # if it was removed meanwhile, raise that error instead
            manifest_of(self.store, namespace, release_id, ())
            raise
        # if it was removed meanwhile, an index may be missing
        if not self._exists(namespace, release_id):
            release.close()
            manifest_of(self.store, namespace, release_id, ())
        tracing.event("release.opened", {"namespace": namespace, "release_id": release_id})
        return Lease(namespace, release_id, release, recorded)

    def _exists(self, namespace: str, release_id: str) -> bool:
        return (self.store.release_dir(namespace, release_id) / "manifest.json").is_file()

    def _require_existing(self, namespace: str, release_id: str) -> None:
        """Retire a release that was removed while open, and raise what `manifest_of` raises."""
        if self._exists(namespace, release_id):
            return
        self._retire(lambda key: key == (namespace, release_id))
        manifest_of(self.store, namespace, release_id, ())

    def _trim(self) -> None:
        """Retire the longest unused of more than MAX_RETAINED_OPEN unpublished releases."""
        with self._lock:
            published = {
                (namespace, release_id) for namespace, (_, release_id) in self._current.items()
            }
            extra = [key for key in self._leases if key not in published]
        self._retire(set(extra[:-MAX_RETAINED_OPEN]).__contains__)

    def _retire(self, choose: Callable[[tuple[str, str]], bool]) -> None:
        """Close the open releases whose (namespace, release_id) is chosen; those in use are closed
        by their last reader.
        """
        with self._lock:
            leases = [self._leases.pop(key) for key in list(self._leases) if choose(key)]
            for lease in leases:
                lease.retired = True
            idle = [lease for lease in leases if not lease.readers]
        for lease in idle:
            lease.release.close()

    def close(self) -> None:
        """Close every release, those in use after their last query."""
        self._retire(lambda _: True)

    # --- strategies, caches, tombstones ----------------------------------------------------------

    def strategy(self, name: str) -> Strategy:
        """The strategy with a name, read again after its file changed, or with a
        `strategy_config_id`.
        """
        if is_config_id(name):
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
        """The strategy in its file; the `last` good one, with a warning, if the file is broken."""
        try:
            return load_strategy(self.settings, name)
        except ConfigError as error:
            if last is None:
                raise
            _log.warning("the last good strategy %r stays in force: %s", name, error.message)
            return last

    def current_strategy(self, recorded: Strategy) -> Strategy:
        """The strategy in the file of this name, the recorded one if there is none."""
        file = strategy_path(self.settings, recorded.name)
        return self._read_strategy(recorded.name, file) if file.is_file() else recorded

    def query_strategy(self, lease: Lease, name: str | None = None) -> Strategy:
        """The strategy of one query: the ingestion part recorded in the release, and the query part
        of the current file `name`, by default that of the release's own strategy.

        The query part can therefore be tuned without a rebuild; without a file the recorded one
        applies, and so it does where gates judged the release, until they have judged the file as
        well. A release is always queried with the embedder that built it, even if the file of
        its strategy now has another one. Raises InputError `embedder_mismatch` for a different
        strategy with another embedder.
        """
        own = lease.strategy
        if name in (None, own.name):
            if lease.release.manifest.gates:
                return own
            requested = self.current_strategy(own)
            if requested is own:
                return own
        else:
            requested = self.strategy(name)
        if (
            requested.name != own.name
            and own.builds_dense
            and requested.builds_dense
            and (own.embedding.provider, own.embedding.options)
            != (requested.embedding.provider, requested.embedding.options)
        ):
            raise InputError(
                f"strategy {requested.name!r} embeds with {requested.embedding.provider}, release"
                f" {lease.release_id} was built with {own.embedding.provider}; ask with a strategy"
                f" of the same embedder, or run `rag rebuild --strategy {requested.name}"
                f" --namespace {lease.namespace}`",
                code="embedder_mismatch",
            )
        pair = (id(own), id(requested))
        derived = self._derived.get(pair)
        if derived is None:
            part = {key: getattr(requested, key) for key in QUERY_PART}
            derived = (own, requested, own.model_copy(update={"name": requested.name, **part}))
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
        """The provider of each module of a query's strategy, and by the manifest those that built
        the release. Empty where a package is missing, which the stage that needs it reports.
        """
        found = self._providers.get(id(strategy))
        if found is None:
            providers: dict[str, Provider] = {}
            with suppress(ConfigError):
                providers = providers_snapshot(strategy, built=lease.release.manifest.profiles)
            found = (strategy, providers)
            self._providers.put(id(strategy), found)
        return found[1]

    def span_profile(self, lease: Lease, strategy: Strategy, module: str) -> Provider:
        """The version and profile of a module of `providers`, as a span takes them."""
        found = self.providers(lease, strategy).get(module, {})
        return {
            "provider_version": found.get("version", ""),
            "profile_id": found.get("profile_id", ""),
        }

    def query_vector(self, config: EmbeddingConfig, text: str) -> tuple[Vectors, bool]:
        """(unit vector [dim], whether it was cached). Raises what the embedder raises."""
        vectors, cached = self.models.query_vectors(config, [text])
        return vectors[0], cached

    def cache_figures(self) -> Json:
        """`Cache.figures` of `query_vectors`, `retrievals` and `responses`."""
        caches = {
            "query_vectors": self.models.vectors,
            "retrievals": self.retrievals,
            "responses": self.responses,
        }
        return {name: cache.figures() for name, cache in caches.items()}

    def check_versions(self, lease: Lease, version_ids: Sequence[str]) -> None:
        """Raises InputError `version_not_live` for a version that the release does not contain."""
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
        """Ids of the chunks that satisfy a filter; cached for recent filters."""
        key = (where, params)
        found = lease.filtered.get(key)
        if found is None:
            found = frozenset(lease.release.catalog.select_ids(where, params))
            lease.filtered.put(key, found)
        return found

    def hidden_names(self, lease: Lease) -> frozenset[str]:
        """The doc_ids and version_ids that tombstones hide now; uncached, so that a deletion takes
        effect at once.
        """
        return (
            self.ledger.hidden(lease.namespace, lease.release.manifest.deletions)
            if self.ledger is not None
            else frozenset()
        )

    def hidden_chunks(self, lease: Lease, names: frozenset[str] | None = None) -> frozenset[str]:
        """Ids of the chunks of the documents and versions `names`, by default those that tombstones
        hide now.
        """
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


def _nothing_published(
    store: Store, namespace: str, others: str, settings: Settings
) -> NotFoundError:
    """The error of a library without a published release, with the job at work or the failures."""
    job, failed = None, 0
    with suppress(RagError), closing(open_ledger(store)) as ledger:
        found = [*ledger.open_jobs(), *ledger.jobs(namespace, 1)]
        stands = (
            as_it_stands(job, ledger, settings.jobs) for job in found if job.namespace == namespace
        )
        job, failed = next(stands, None), ledger.document_problems(namespace, (), 1)[0]
    if job is not None and job.state in OPEN_STATES:
        return NotFoundError(
            f"nothing of library {namespace!r} is published: {job.job_id} is at work; `rag jobs"
            f" show {job.job_id}` says how far it is{others}",
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
    if job is not None and job.state == "failed":
        return NotFoundError(
            f"nothing of library {namespace!r} is published: {job.job_id} failed; `rag jobs show"
            f" {job.job_id}` says why{others}",
            code="no_release",
            namespace=namespace,
        )
    return NotFoundError(
        f"library {namespace!r} has no published release; run `rag ingest PATH --namespace"
        f" {namespace}`{others}",
        code="no_release",
        namespace=namespace,
    )
