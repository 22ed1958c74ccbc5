"""Proves the published release: its quotes against the raw bytes, its catalog column by column."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field

from rag_platform.config.profiles import stage_profiles, text_norm_profile_id
from rag_platform.config.settings import Limits, Strategy
from rag_platform.documents.provenance import count_edited, verify_version
from rag_platform.errors import NotFoundError, RagError, disk_full
from rag_platform.indexes import dense_files
from rag_platform.indexes.catalog import CatalogReader
from rag_platform.indexes.catalog_tables import CATALOG
from rag_platform.indexes.embedding_cache import EmbeddingCache
from rag_platform.ir import Json, VerifyFailure, Version
from rag_platform.ledger import ledger as ledgers
from rag_platform.ledger.ledger import open_ledger
from rag_platform.loaders.images import Missing, explain
from rag_platform.media.store import find_damage
from rag_platform.observability import faults
from rag_platform.releases.checks import changed_files, count_rows, index_differences, unknown_files
from rag_platform.releases.manifest import read_manifest
from rag_platform.releases.proofs.catalog_proof import CatalogProof
from rag_platform.releases.release_store import require_current
from rag_platform.releases.version_bundles import fetch_version
from rag_platform.storage.records import to_json
from rag_platform.storage.store import Store
from rag_platform.text.wording import pluralise

# the largest distance between two unit vectors of one text: a quantised model gives slightly
# different ones in another batch
_TOLERANCE = 0.1


@dataclass(frozen=True, slots=True)
class Verification:
    """How many chunks were checked, and what could not be proved: chunks or, with an empty
    chunk_id, documents or the whole release.

    `edited` chunks were changed by hand, so they are no quotes; the texts they were edited from are
    proved instead. `warnings` name the limits of the proof.
    """

    release_id: str
    checked: int
    failures: tuple[VerifyFailure, ...]
    edited: int = 0
    warnings: tuple[str, ...] = ()

    def data(self) -> Json:
        """The `verify` payload of the public contract."""
        summary = (
            f"{pluralise(self.checked, 'chunk')} checked against the raw bytes,"
            f" {len(self.failures)} could not be proved (release {self.release_id})."
        )
        if self.edited:
            summary += (
                f" {self.edited} were edited by hand and are no quotes; what was checked are the"
                " texts they were edited from."
            )
        lines = [
            f"- {failure.chunk_id or failure.version_id or 'release'} of"
            f" {failure.source_uri or self.release_id}: {failure.reason}"
            for failure in self.failures
        ]
        return {
            "markdown": "\n".join(
                [summary, *lines, *(f"Warning: {warning}" for warning in self.warnings)]
            ),
            **to_json(self),
            "failed": len(self.failures),
        }


def verify_release(
    store: Store,
    namespace: str,
    *,
    chunk_id: str | None = None,
    limits: Limits | None = None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> Verification:
    """The verification of every chunk of the published release, or of one. Raises NotFoundError for
    an unknown chunk or namespace, IntegrityError `no_ledger` without the ledger, which records
    deletions.

    With all chunks the release is proved too: its files by their hashes, and that no row was added
    or lost. One chunk is proved with the rows that its citation shows: its own and those of its
    document, version and sections.
    """
    ledgers.require(store)
    release_id = require_current(store, namespace)
    directory = store.release_dir(namespace, release_id)
    manifest = read_manifest(directory)
    try:
        with ExitStack() as opened:
            ledger = opened.enter_context(closing(open_ledger(store)))
            catalog = opened.enter_context(closing(CatalogReader(directory / CATALOG)))
            proof = CatalogProof(store, manifest, catalog, ledger)
            work = _Proof(proof, limits or Limits())
            if chunk_id is not None:
                return work.one(chunk_id)
            version_ids = proof.version_ids()
            for done, version_id in enumerate(version_ids, 1):
                work.version(version_id)
                on_progress(done, len(version_ids))
            work.release()
            return work.result()
    except sqlite3.DatabaseError as error:
        if full := disk_full(error, store.home):
            raise full from error
        raise


@dataclass
class _Proof:
    """One call of `verify_release`."""

    rows: CatalogProof
    limits: Limits
    failures: list[VerifyFailure] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    checked_images: set[str] = field(default_factory=set)
    checked: int = 0
    edited: int = 0

    def __post_init__(self) -> None:
        self.store, self.catalog = self.rows.store, self.rows.catalog
        self.manifest = self.rows.manifest
        self.strategy = Strategy.model_validate(self.manifest.strategy_config)

    def one(self, chunk_id: str) -> Verification:
        """The verification of one chunk, with everything that its citation shows."""
        version_id = self.rows.version_of(chunk_id)
        if version_id is None:
            raise NotFoundError(
                f"no chunk {chunk_id!r} in release {self.manifest.release_id} of library"
                f" {self.manifest.namespace!r}; `rag query` prints chunk ids"
            )
        self.version(version_id, only=chunk_id)
        self.failures = [failure for failure in self.failures if failure.chunk_id in ("", chunk_id)]
        return self.result()

    def version(self, version_id: str, only: str = "") -> None:
        """Prove a version's rows and chunks, or one chunk; an exception counts as a failure."""
        source_uri = ""
        # tampered data can raise anything, which must neither end the proof nor pass it
        with faults.about(version_id), faults.Attempt("verify") as attempt:
            version = self.catalog.version(version_id)
            if version is None:
                self._fail(
                    f"rows: there are chunks of version {version_id}, which the release does not"
                    " hold",
                    only,
                    version_id,
                )
                return
            source_uri = version.source_uri
            fetch_version(self.store, version, self.manifest.profiles)
            self.failures += self.rows.of_version(version)
            self._check_images(version)
            chunks = (
                list(self.catalog.chunks([only]).values())
                if only
                else self.catalog.chunks_of_version(version_id)
            )
            self.checked += len(chunks)
            self.edited += count_edited(chunks)
            failed = {failure.chunk_id for failure in self.failures}
            found = verify_version(
                self.store,
                version,
                self.manifest.profiles,
                chunks,
                self.limits,
                self.strategy,
                self.warnings,
            )
            self.failures += [failure for failure in found if failure.chunk_id not in failed]
        if attempt.error is not None:
            reason = f"unreadable: {_message_of(attempt.error)}"
            self._fail(reason, "", version_id, source_uri)

    def _check_images(self, version: Version) -> None:
        """Prove the images that a version shows, each once."""
        for asset_id in self.rows.asset_ids(version.version_id):
            if asset_id in self.checked_images:
                continue
            self.checked_images.add(asset_id)
            try:
                reason = find_damage(asset_id, self.store, self.strategy.media, self.limits)
            except Missing as error:
                self.warnings.append(
                    f"{version.source_uri}: image {asset_id[:12]} is proved, its smaller pictures"
                    f" are not: {explain(str(error))}"
                )
            else:
                if reason:
                    self._fail(reason, "", version.version_id, version.source_uri)

    def release(self) -> None:
        """Prove that the release is complete: its files, its rows, its indexes."""
        for name in changed_files(self.rows.directory, self.manifest.files):
            self._fail(f"file_changed: {name} is gone or has another sha256 than the manifest says")
        for name in unknown_files(self.rows.directory, self.manifest.files):
            self._fail(f"file_unknown: the manifest names no file {name}")
        with faults.Attempt("verify") as attempt:  # as above
            for reason in self.rows.of_release(count_rows(self.catalog, self.strategy)):
                self._fail(reason)
            for reason in index_differences(self.rows.directory, self.strategy, self.catalog):
                self._fail(f"counts: {reason}")
            self._check_vectors()
        if attempt.error is not None:
            self._fail(f"unreadable: {_message_of(attempt.error)}")

    def _check_vectors(self) -> None:
        """Compare the vectors with the cache they were copied from, where they are still cached."""
        info, path = self.manifest.embedder, self.store.embeddings_path
        if info is None or not path.is_file():
            return
        hashes = self.rows.content_hashes()
        profile = text_norm_profile_id(self.strategy.cleaning)
        with EmbeddingCache(path) as cache:
            parts = dense_files.read_parts(self.rows.directory / "dense")
            for ids, vectors in dense_files.split_rows(parts):
                cached = cache.get({hashes.get(chunk_id, "") for chunk_id in ids}, info, profile)
                for chunk_id, vector in zip(ids, vectors, strict=True):
                    known = cached.get(hashes.get(chunk_id, ""))
                    if known is not None and ((known - vector) ** 2).sum() > _TOLERANCE**2:
                        self._fail(
                            "vector_changed: it is another one than in the cache of embeddings,"
                            f" which it was copied from; remove {path}, then `rag rebuild --full"
                            f" --namespace {self.manifest.namespace}` computes both anew",
                            chunk_id,
                        )

    def _fail(
        self, reason: str, chunk_id: str = "", version_id: str = "", source_uri: str = ""
    ) -> None:
        self.failures.append(VerifyFailure(chunk_id, version_id, source_uri, reason))

    def result(self) -> Verification:
        if self.failures and self._is_by_earlier_program():
            self.warnings.append(
                "the release was built by an earlier program, which may have read files"
                f" otherwise: `rag rebuild --namespace {self.manifest.namespace}` builds it anew"
            )
        return Verification(
            self.manifest.release_id,
            self.checked,
            tuple(self.failures),
            self.edited,
            (*self.rows.warnings, *self.warnings),
        )

    def _is_by_earlier_program(self) -> bool:
        with suppress(RagError):  # a provider of its strategy is gone
            return stage_profiles(self.strategy) != self.manifest.profiles
        return True


def _message_of(error: Exception) -> str:
    return error.message if isinstance(error, RagError) else f"{type(error).__name__}: {error}"
