"""Counts what every store still holds of a deleted document."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass, field

from rag_platform.config.folders import config_folders
from rag_platform.config.settings import Strategy
from rag_platform.documents import descriptions
from rag_platform.documents.lookup import find_document, find_version
from rag_platform.errors import RagError
from rag_platform.indexes import dense, lexical
from rag_platform.indexes.embedding_cache import EmbeddingCache
from rag_platform.ir import Document, Json, Version
from rag_platform.ledger.servers import name_waiting
from rag_platform.observability import redaction
from rag_platform.observability.trace_store import erasing
from rag_platform.releases import release_store as releases
from rag_platform.releases.deletion import (
    STORES,
    Partitions,
    find_belongings,
    find_lingering_vectors,
    name_purge,
    names_of,
    strategies_of,
)
from rag_platform.releases.manifest import Manifest
from rag_platform.releases.stored_artifacts import Belongings, of_versions
from rag_platform.releases.transfer import count_in_bucket
from rag_platform.storage.evaluation_files import DATABASE, RUN_PREFIX, count_results
from rag_platform.storage.records import CACHE_REMEDY
from rag_platform.storage.store import Store, read_json
from rag_platform.text.wording import pluralise
from rag_platform.workspace import DataRoot

_OUR_FOLDERS = frozenset(
    "raw facts versions media cache releases deletions logs traces spool inbox dagster".split()
)
_READ_TOGETHER = (("chunk_ids", "content_hashes"),)  # kinds that are in the same files


@dataclass(frozen=True, slots=True)
class Proof:
    """What is left of a document, by store."""

    doc_id: str
    remaining: dict[str, int]
    shared: dict[str, int]  # items that other documents need too
    open: tuple[str, ...]  # what could not be searched, with the reason
    command: str  # that purges it
    hard: bool  # a hard deletion is in force

    @property
    def total(self) -> int:
        return sum(self.remaining.values())

    def data(self) -> Json:
        """The `gc --prove` payload of the public contract."""
        left = [f"- {name}: {count:,}" for name, count in self.remaining.items() if count]
        lines = [
            (
                f"{self.total:,} of {self.doc_id} left"
                if left
                else f"nothing of {self.doc_id} is left in any store"
            ),
            *left,
        ]
        lines += [
            f"- shared with other documents: {count:,} {name}"
            for name, count in self.shared.items()
            if count
        ]
        lines += [f"- not looked into: {reason}" for reason in self.open]
        if left:
            lines.append(f"`{self.command}` purges it.")
        if self.remaining["other_files"]:
            lines.append("Other files are not of this program: remove them by hand.")
        return {
            "markdown": "\n".join(lines),
            "doc_id": self.doc_id,
            "remaining": self.remaining,
            "total": self.total,
            "shared": self.shared,
            "not_looked_into": list(self.open),
        }


def prove(
    namespace: str,
    doc: str,
    root: DataRoot,
    version: str | None = None,
    *,
    partitions: Partitions | str,
) -> Proof:
    """What every store still holds of a document, or of one version; nothing is changed.

    Counted are items that deletions recorded and those found now, without items that other
    documents (or, for a version, the document's other versions) need too. `partitions` may be the
    reason why the partitions could not be opened. Raises NotFoundError for an unknown document.
    """
    store, ledger = root.store, root.ledger
    document = find_document(ledger, namespace, doc)
    versions = ledger.versions(namespace, document.doc_id)
    if version is not None:
        versions = [find_version(document, versions, version)]
    doc_id, version_id = document.doc_id, versions[0].version_id if version is not None else None
    manifests = releases.list_releases(store, namespace)
    ids = [version.version_id for version in versions]
    of_document = ledger.tombstones(namespace, doc_id, since=0)
    tombstones = [it for it in of_document if version_id in (None, it.version_id)]
    belongings = find_belongings(namespace, versions, tombstones, manifests, root)
    work = _Count(document, versions, belongings, root)
    names = work.names(whole=version_id is None)
    words = ledger.count_words(namespace, doc_id, ids, whole=version_id is None)
    if isinstance(partitions, str):
        keys, events, unsearched = set[str](), 0, [partitions]
    else:
        keys, (events, unsearched) = partitions.keys(), partitions.count_records(ids, names)
    others, opaque = _other_files(store, names)
    in_bucket: dict[str, int] = {}
    if store.remote is not None:
        alone = belongings.file_sha256s - work.others("file_sha256s")
        in_bucket["blobs"], unreachable = count_in_bucket(namespace, versions, alone, store)
        waiting = [pair for pair in ledger.find_unacknowledged(namespace) if pair[0] in tombstones]
        work.open += [*unreachable, *name_waiting(waiting, root.settings.blobs.silent_seconds)]
    work.open += [*unsearched, *opaque, *_list_datasets(document, belongings.chunk_ids)]
    work.open += [
        f"release {path.name} is damaged and not looked into: `rag gc` removes it"
        for path in releases.list_damaged(store, namespace, manifests)
    ]
    remaining = {
        "raw": work.count_own("file_sha256s", lambda sha: store.raw_path(sha).is_file()),
        "facts": work.facts(),
        "stage_files": sum(_count_files(store, version) for version in versions),
        **work.in_releases(manifests),
        "embeddings": work.count_own("content_hashes", _list_embedded(store).__contains__),
        "media": work.count_own("asset_ids", lambda asset: store.media_dir(asset).exists()),
        "media_texts": work.count_own("context_hashes", work.list_contexts().__contains__),
        "descriptions": work.count_own(
            "description_keys", descriptions.list_answers(store.descriptions_path).__contains__
        ),
        "downloads": int(version_id is None and store.download_path(document.source_uri).is_file()),
        "logs": erasing.quoting(store.logs_dir, names),
        "partitions": len(keys & set(ids)),
        "events": events,
        "drafts": words.pop("drafts"),
        "ledger": sum(words.values()),
        # not by the document's status: a sync retires a deleted document whose file is gone
        "ledger_backups": len(store.ledger_backups())
        if any(not s.lifted_at for s in tombstones)
        else 0,
        "evaluations": count_results(store.home, names.occur_in),
        "other_files": others,
        **in_bucket,
    }
    return Proof(
        doc_id,
        remaining,
        {name: count for name, count in work.shared.items() if count},
        tuple(work.open),
        name_purge(namespace, doc_id, version_id),
        any(it.mode == "hard" and not it.lifted_at for it in tombstones),
    )


def _other_files(store: Store, names: redaction.Names) -> tuple[int, list[str]]:
    """(number of foreign files in the data root that name the document, unsearchable files)."""
    foreign = [
        path
        for path in sorted(store.home.iterdir())
        if path.name not in _OUR_FOLDERS
        and not path.name.startswith((".", "ledger", DATABASE, "evaluations"))
    ]
    # the files of runs are counted with the evaluations
    foreign += [
        path
        for path in (store.home / "evaluations").glob("*")
        if not path.name.startswith(RUN_PREFIX)
    ]
    files = [file for path in foreign for file in (path, *path.rglob("*")) if file.is_file()]
    unfinished = sum(path.is_file() for path in store.spool_dir.rglob("*"))
    unsearched = [
        f"release {path.name} of {path.parent.name} is unfinished: `rag gc` removes it when nobody"
        " builds it"
        for path in store.area("releases").glob("*/*/")
        if path.name.startswith(".") or not (path / "manifest.json").is_file()
    ]
    if unfinished:
        unsearched.append(
            f"{pluralise(unfinished, 'unfinished file')} in spool/: `rag gc` removes those that"
            " nobody writes"
        )
    unsearched += [
        f"{path.relative_to(store.home)} is packed"
        for folder in (store.logs_dir, *foreign)
        for path in redaction.opaque(folder)
    ]
    return sum(names.occur_in(path.read_bytes()) for path in files), unsearched


def _list_datasets(document: Document, chunk_ids: Iterable[str]) -> list[str]:
    """The datasets of the user's config folder that name the document; nothing changes those."""
    names = redaction.Names([document.doc_id, document.filename], chunk_ids)
    folder, _ = config_folders("datasets")
    return [
        f"dataset {path.name} of the config folder names it and may quote it: take its cases out"
        for path in sorted(folder.glob("*"))
        if path.is_file() and names.occur_in(path.read_bytes())
    ]


def _count_files(store: Store, version: Version) -> int:
    folder = store.version_dir(version)
    leftovers = folder.parent.glob(f".trash-{folder.name}*")
    return sum(path.is_file() for root in (folder, *leftovers) for path in root.rglob("*"))


def _list_embedded(store: Store) -> set[str]:
    """The content hashes with a cached vector."""
    if not store.embeddings_path.is_file():
        return set()
    with EmbeddingCache(store.embeddings_path) as cache:
        return {content_hash for _, content_hash, _ in cache.entries()}


@dataclass
class _Count:
    """One proof in progress."""

    document: Document
    mine: list[Version]
    own: Belongings
    root: DataRoot
    shared: dict[str, int] = field(default_factory=dict)
    open: list[str] = field(default_factory=list)
    _others: dict[str, frozenset[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.store, self.ledger = self.root.store, self.root.ledger

    def count_own(self, kind: str, is_stored: Callable[[str], bool]) -> int:
        """How many stored hashes only this document has; the others are counted as shared."""
        found = set(filter(is_stored, getattr(self.own, kind)))
        if not found:
            return 0
        unshared = found - self.others(kind)
        self.shared[STORES[kind]] = len(found) - len(unshared)
        return len(unshared)

    def others(self, kind: str) -> frozenset[str]:
        """All hashes of one kind that other versions in the ledger have; read when first needed."""
        if kind not in self._others:
            kinds = next((group for group in _READ_TOGETHER if kind in group), (kind,))
            mine = {version.version_id for version in self.mine}
            found = Belongings()
            for namespace in self.ledger.namespaces():
                versions = [
                    v
                    for v in self.ledger.versions(namespace)
                    if v.version_id not in mine and v.status != "purged"
                ]
                found |= of_versions(
                    self.store,
                    versions,
                    strategies=strategies_of(namespace, self.root.settings, self.ledger, ()),
                    kinds=kinds,
                )
            self._others |= {name: getattr(found, name) for name in kinds}
        return self._others[kind]

    def facts(self) -> int:
        """The number of facts folders, without those of bytes that other documents have too."""
        folders = {
            sha: list((self.store.area("facts") / sha[:2] / sha).glob("*"))
            for sha in self.own.file_sha256s
        }
        own = (
            self.own.file_sha256s - self.others("file_sha256s")
            if any(folders.values())
            else frozenset()
        )
        self.shared["facts"] = sum(len(found) for sha, found in folders.items() if sha not in own)
        return sum(len(folders[sha]) for sha in own)

    def in_releases(self, manifests: Iterable[Manifest]) -> dict[str, int]:
        """Rows of catalogs, word indexes and vector indexes of every release on disk."""
        counts = {"releases": 0, "catalog": 0, "lexical": 0, "vectors": 0, "ann": 0}
        ids = [version.version_id for version in self.mine]
        versions = self.ledger.versions(self.document.namespace, self.document.doc_id)
        chunks = self.own.chunk_ids
        if len(ids) < len(versions):
            chunks -= self.others("chunk_ids")
        for manifest in manifests:
            counts["releases"] += bool(manifest.versions.keys() & set(ids))
            with releases.open_catalog(
                self.store, manifest.namespace, manifest.release_id
            ) as catalog:
                counts["catalog"] += len(catalog.stored_ids(chunks, ids))
            directory = self.store.release_dir(manifest.namespace, manifest.release_id)
            strategy = Strategy.model_validate(manifest.strategy_config)
            try:
                if strategy.builds_lexical:
                    counts["lexical"] += len(
                        chunks & lexical.open_reader(strategy.lexical, directory / "lexical").ids()
                    )
                if strategy.builds_dense:
                    counts["vectors"] += len(find_lingering_vectors(self.store, manifest, chunks))
                    if dense.has_ann(directory / "dense"):
                        with closing(dense.open_ann(strategy.dense, directory / "dense")) as ann:
                            counts["ann"] += len(chunks & ann.ids())
            except (RagError, OSError, ValueError) as error:
                self.open.append(f"release {manifest.release_id}: {error}")
        return counts

    def list_contexts(self) -> set[str]:
        """The hashes of the text around captioned images."""
        return {
            read_json(path, CACHE_REMEDY).get("context_hash", "")
            for asset_id in self.own.asset_ids
            for path in self.store.media_dir(asset_id).glob("texts/caption-*.json")
        }

    def names(self, *, whole: bool) -> redaction.Names:
        """The names by which lines of logs and events refer to the document."""
        words, files = (
            names_of(self.document, self.ledger)
            if whole
            else ([version.version_id for version in self.mine], [])
        )
        ids = self.own.chunk_ids | self.own.asset_ids
        if not whole or self.own.asset_ids:
            ids -= self.others("chunk_ids") | self.others("asset_ids")
        return redaction.Names(words, ids, files)
