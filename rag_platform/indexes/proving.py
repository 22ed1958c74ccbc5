"""The proof of a deletion: how much of a document every store still holds, counted by the hashes and ids that the deletion recorded."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rag_platform.config import Settings, Strategy
from rag_platform.documents import describing
from rag_platform.documents.naming import named_document, named_version
from rag_platform.errors import RagError
from rag_platform.indexes import dense, lexical
from rag_platform.indexes import release as releases
from rag_platform.indexes.belongings import Belongings, of_versions, read_record
from rag_platform.indexes.deleting import lingering, of_release, strategies_of
from rag_platform.indexes.embedding_cache import EmbeddingCache
from rag_platform.indexes.manifest import Manifest
from rag_platform.ir import Document, Json, Version
from rag_platform.ledger import Ledger
from rag_platform.observability import erasing
from rag_platform.protocols import DenseIndex
from rag_platform.registry import build
from rag_platform.store import Store, read_json

Recorded = Callable[[Collection[str], erasing.Names], tuple[int, list[str]]]  # how many records are left, what could not be looked into


@dataclass(frozen=True, slots=True)
class Proof:
    """What is left of a document, by store; `shared` counts what is left because other documents have the same bytes or text."""

    doc_id: str
    remaining: dict[str, int]
    shared: dict[str, int]
    open: tuple[str, ...]  # what could not be looked into, with the reason

    @property
    def total(self) -> int:
        """Everything that remains."""
        return sum(self.remaining.values())

    def data(self) -> Json:
        """The `gc --prove` payload of the public contract."""
        left = [f"- {name}: {count:,}" for name, count in self.remaining.items() if count]
        lines = [f"{self.total:,} of {self.doc_id} left" if left else f"nothing of {self.doc_id} is left in any store", *left]
        lines += [f"- shared with other documents: {count:,} {name}" for name, count in self.shared.items() if count]
        lines += [f"- not looked into: {reason}" for reason in self.open]
        return {"markdown": "\n".join(lines), "doc_id": self.doc_id, "remaining": self.remaining, "total": self.total,
                "shared": self.shared, "not_looked_into": list(self.open)}  # fmt: skip


def prove(
    namespace: str,
    doc: str,
    version: str | None = None,
    *,
    settings: Settings,
    store: Store,
    ledger: Ledger,
    partitions: Collection[str] = (),
    recorded: Recorded | None = None,
    unreached: Sequence[str] = (),
) -> Proof:
    """What every store still holds of a document, or of one version; nothing is changed.

    Counted is what deletions recorded and what is found now, less what versions of other documents (or, for a version, other versions of
    its own) need too. `partitions` are the keys of Dagster, `recorded` counts what it recorded under keys or about names, `unreached` says
    what nobody could open. Raises NotFoundError for an unknown document.
    """
    document = named_document(ledger, namespace, doc)
    mine = ledger.versions(namespace, document.doc_id)
    if version is not None:
        mine = [named_version(document, mine, version)]
    doc_id, version_id = document.doc_id, mine[0].version_id if version is not None else None
    manifests = releases.list_releases(store, namespace)
    ids = [version.version_id for version in mine]
    own = of_versions(store, mine, strategies=strategies_of(namespace, settings, ledger, manifests))
    for manifest in manifests:
        own |= of_release(store, manifest, ids)
    for stone in ledger.tombstones(namespace, since=0):
        if stone.doc_id == doc_id and version_id in (None, stone.version_id):
            record = read_record(store, namespace, stone.sequence)
            own = own if record is None else own | record.belongings
    work = _Count(document, mine, own, settings, store, ledger)
    names = work.names(whole=version_id is None)
    words = ledger.words_left(namespace, doc_id, ids, whole=version_id is None)
    events, blind = recorded(ids, names) if recorded is not None else (0, [])
    others, packed = _other_files(store, names)
    work.open += [*unreached, *blind, *packed]
    remaining = {
        "raw": work.held("file_sha256s", work.raw()),
        "facts": work.facts(),
        "stage_files": sum(_files(store, version) for version in mine),
        **work.in_releases(manifests),
        "embeddings": work.held("content_hashes", work.embeddings()),
        "media": work.held("asset_ids", work.media()),
        "media_texts": work.held("context_hashes", work.media_texts()),
        "descriptions": work.held("description_keys", work.descriptions()),
        "downloads": int(version_id is None and store.download_path(document.source_uri).is_file()),
        "logs": erasing.quoting(store.logs_dir, names),
        "partitions": len(set(partitions) & set(ids)),
        "events": events,
        "drafts": words.pop("drafts"),
        "ledger": sum(words.values()),
        "ledger_backups": len(store.ledger_backups()) if document.status == "deleted" else 0,
        "other_files": others,
    }
    return Proof(doc_id, remaining, {name: count for name, count in work.shared.items() if count}, tuple(work.open))


def _other_files(store: Store, names: erasing.Names) -> tuple[int, list[str]]:
    """How many files that are not ours name the document, and those that are packed in a way that is not looked into."""
    ours = {"raw", "facts", "versions", "media", "cache", "releases", "deletions", "logs", "spool", "inbox", "dagster"}
    strange = [path for path in sorted(store.home.iterdir()) if path.name not in ours and not path.name.startswith((".", "ledger"))]
    files = [file for path in strange for file in ([path] if path.is_file() else path.rglob("*")) if file.is_file()]
    unfinished = len([path for path in store.spool_dir.rglob("*") if path.is_file()])
    begun = [path for path in store.area("releases").glob("*/*/") if path.name.startswith(".") or not (path / "manifest.json").is_file()]
    packed = [f"release {path.name} of {path.parent.name} is unfinished: `rag gc` removes it when nobody builds it" for path in begun]
    packed += [f"{unfinished} unfinished files in spool/: `rag gc` removes those that nobody writes"] if unfinished else []
    packed += [f"{path.relative_to(store.home)} is packed" for folder in (store.logs_dir, *strange) for path in erasing.opaque(folder)]
    return sum(names.stand_in(path.read_bytes()) for path in files), packed


def _files(store: Store, version: Version) -> int:
    folder = store.version_dir(version)
    leftovers = folder.parent.glob(f".trash-{folder.name}*")
    return sum(path.is_file() for root in (folder, *leftovers) for path in root.rglob("*"))


class _Count:
    """One proof under way."""

    def __init__(self, document: Document, mine: list[Version], own: Belongings, settings: Settings, store: Store, ledger: Ledger) -> None:
        self.document, self.mine, self.own = document, mine, own
        self.settings, self.store, self.ledger = settings, store, ledger
        self.shared: dict[str, int] = {}
        self.open: list[str] = []
        self._others: Belongings | None = None

    def held(self, kind: str, found: Collection[str]) -> int:
        """How many of the found hashes are the document's alone; the others are told as shared."""
        if not found:
            return 0
        names = {"file_sha256s": "raw", "content_hashes": "embeddings", "asset_ids": "media", "context_hashes": "media_texts",
                 "description_keys": "descriptions"}  # fmt: skip
        alone = set(found) - getattr(self.others(), kind)
        self.shared[names[kind]] = len(found) - len(alone)
        return len(alone)

    def others(self) -> Belongings:
        """What all other versions in the ledger have; read when first needed, for it takes a look at every one of them."""
        if self._others is None:
            mine = {version.version_id for version in self.mine}
            found = Belongings()
            for namespace in self.ledger.namespaces():
                versions = [v for v in self.ledger.versions(namespace) if v.version_id not in mine and v.status != "purged"]
                found |= of_versions(self.store, versions, strategies=strategies_of(namespace, self.settings, self.ledger, ()))
            self._others = found
        return self._others

    def raw(self) -> set[str]:
        """Stored files."""
        return {value for value in self.own.file_sha256s if self.store.raw_path(value).is_file()}

    def facts(self) -> int:
        """Folders of facts, less those of bytes that others have too."""
        folders = {sha: list((self.store.area("facts") / sha[:2] / sha).glob("*")) for sha in self.own.file_sha256s}
        alone = self.own.file_sha256s - self.others().file_sha256s if any(folders.values()) else frozenset()
        self.shared["facts"] = sum(len(found) for sha, found in folders.items() if sha not in alone)
        return sum(len(folders[sha]) for sha in alone)

    def in_releases(self, manifests: Iterable[Manifest]) -> dict[str, int]:
        """Rows of catalogs, word indexes and vector indexes of every release on disk."""
        counts = {"releases": 0, "catalog": 0, "lexical": 0, "vectors": 0, "ann": 0}
        ids = [version.version_id for version in self.mine]
        chunks = self.own.chunk_ids - (self.others().chunk_ids if len(ids) < self._versions() else frozenset())
        for manifest in manifests:
            counts["releases"] += bool(manifest.versions.keys() & set(ids))
            counts["catalog"] += len(of_release(self.store, manifest, ids).chunk_ids)
            directory = self.store.release_dir(manifest.namespace, manifest.release_id)
            strategy = Strategy.model_validate(manifest.strategy_config)
            try:
                if strategy.builds_lexical:
                    counts["lexical"] += len(chunks & lexical.open_reader(strategy.lexical, directory / "lexical").ids())
                if strategy.builds_dense:
                    counts["vectors"] += len(lingering(self.store, manifest, chunks))
                    counts["ann"] += len(chunks & self._ann(directory, strategy))
            except (RagError, OSError, ValueError) as error:
                self.open.append(f"release {manifest.release_id}: {error}")
        return counts

    def _versions(self) -> int:
        return len(self.ledger.versions(self.document.namespace, self.document.doc_id))

    def _ann(self, directory: Path, strategy: Strategy) -> set[str]:
        if not dense.has_ann(directory / "dense"):
            return set()
        index: DenseIndex = build("dense_index", strategy.dense.provider, strategy.dense.options)
        reader = index.open(directory / "dense" / dense.ANN_DIRECTORY)
        try:
            return reader.ids()
        finally:
            reader.close()

    def embeddings(self) -> set[str]:
        """Content hashes with a cached vector."""
        if not self.store.embeddings_path.is_file():
            return set()
        with EmbeddingCache(self.store.embeddings_path) as cache:
            return {content_hash for _, content_hash, _ in cache.entries() if content_hash in self.own.content_hashes}

    def media(self) -> set[str]:
        """Stored images."""
        return {asset_id for asset_id in self.own.asset_ids if self.store.media_dir(asset_id).exists()}

    def media_texts(self) -> set[str]:
        """Surroundings in which a stored image was described."""
        texts = [path for asset_id in self.own.asset_ids for path in self.store.media_dir(asset_id).glob("texts/caption-*.json")]
        return {read_json(path).get("context_hash", "") for path in texts} & self.own.context_hashes

    def descriptions(self) -> set[str]:
        """Kept answers of models about chunks."""
        return set(self.own.description_keys & describing.known(self.store.descriptions_path).keys())

    def names(self, *, whole: bool) -> erasing.Names:
        """How lines of logs and events name the document."""
        words = [self.document.doc_id, self.document.source_uri] if whole else [version.version_id for version in self.mine]
        ids = self.own.chunk_ids | self.own.asset_ids
        if not whole or self.own.asset_ids:
            ids -= self.others().chunk_ids | self.others().asset_ids
        return erasing.Names(words, ids)
