"""A small library of its own in a folder: documents that are edited, two strategies without a
model, and what can be said of its state.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from rag_platform.answering.engine import answer
from rag_platform.config.profiles import index_profile, stage_profiles, strategy_config_id
from rag_platform.config.settings import Settings, Strategy, load_settings
from rag_platform.config.strategies import load_strategy
from rag_platform.indexes.catalog import CatalogReader
from rag_platform.indexes.dense_files import read_matrix
from rag_platform.ingestion.batches import ingest_versions, stale_versions
from rag_platform.intake.receiving import ReceiveOptions, Reception, receive
from rag_platform.ir import QueryRequest
from rag_platform.ledger.hiding import LedgerView
from rag_platform.ledger.ledger import Ledger, open_ledger
from rag_platform.releases import release_store as releases
from rag_platform.releases.checks import changed_files
from rag_platform.releases.deletion import record_deletion
from rag_platform.releases.garbage_collection import collect, exclude_others
from rag_platform.releases.manifest import Manifest, read_manifest
from rag_platform.releases.proofs.verification import verify_release
from rag_platform.releases.publishing import (
    build_candidate,
    is_behind_ledger,
    publish_candidate,
    roll_back,
    settle,
)
from rag_platform.releases.stored_artifacts import Record
from rag_platform.retrieval.library import Library
from rag_platform.storage.store import Store
from rag_platform.workspace import Workspace

NAMESPACE = "default"
CONFIG = Path(__file__).resolve().parent.parent / "rag_platform" / "defaults"
STRATEGY = """\
description: vectors by feature hashing, no model
loading: {{loaders: [{{provider: markdown}}, {{provider: text}}]}}
sectioner:
  provider: markdown_headings
  options: {{max_section_level: 2, include_heading: true, doc_preamble_mode: separate, \
min_section_chars: 0}}
chunker: {{provider: recursive, options: {{chunk_size: {size}, chunk_overlap: 0}}}}
embedding: {{provider: hashing}}
encoding: hybrid
fusion: {{provider: min_max, options: {{alpha: 0.3}}}}
retrieval: {{dedupe: false}}
"""
SETTINGS = """\
schema_version: 1
default_strategy: small
embedding_processes: 1
releases: {keep: 2}
retention: {versions: 0, days: 0}
jobs: {lock_seconds: 5, backoff_seconds: 0.01}
"""
QUERIES = (
    "Which port does the gateway listen on?",
    "病假需要医生证明",
    "crash on start PPR-9087",
    "requests per minute of the pro tier",
)


def picture(colour: str) -> bytes:
    """A PNG of 8 x 8 pixels."""
    from PIL import Image

    target = io.BytesIO()
    Image.new("RGB", (8, 8), colour).save(target, "PNG")
    return target.getvalue()


def write_config(folder: Path) -> None:
    """A config folder with the strategies `small` and `smaller`, which differ in the size of their
    chunks.
    """
    (folder / "strategies").mkdir(parents=True, exist_ok=True)
    (folder / "settings.yaml").write_text(SETTINGS, encoding="utf-8")
    for name, size in (("small", 400), ("smaller", 120)):
        (folder / "strategies" / f"{name}.yaml").write_text(
            STRATEGY.format(size=size), encoding="utf-8"
        )
    shutil.copy(CONFIG / "logging.yaml", folder)


@dataclass(frozen=True)
class Place:
    """A folder with `docs`, `config` and a data root, which may be another than `home` below it."""

    folder: Path
    home: Path
    strategy_name: str = "small"

    def enter(self) -> Place:
        """Put the config and the data root in force for this process."""
        if not (self.folder / "config").is_dir():
            write_config(self.folder / "config")
        (self.folder / "tmp").mkdir(exist_ok=True)
        os.environ |= {
            "RAG_CONFIG": str(self.folder / "config"),
            "RAG_HOME": str(self.home),
            "TMPDIR": str(self.folder / "tmp"),
        }
        for name in ("RAG_STRATEGY", "RAG_NAMESPACE"):
            os.environ.pop(name, None)
        return self

    @property
    def docs(self) -> Path:
        """The watched folder."""
        return self.folder / "docs"

    @cached_property
    def settings(self) -> Settings:
        """The effective settings."""
        return load_settings()

    @cached_property
    def strategy(self) -> Strategy:
        """The strategy of this place."""
        return load_strategy(self.settings, self.strategy_name)

    @property
    def store(self) -> Store:
        """The data root, with the ledger and the object store that the environment names."""
        return replace(Store.of(self.settings), home=self.home)

    @cached_property
    def ledger(self) -> Ledger:
        """The ledger, opened when it is first needed."""
        return open_ledger(self.store)

    @property
    def workspace(self) -> Workspace:
        """What receiving, ingesting and building want."""
        return Workspace(
            settings=self.settings, strategy=self.strategy, store=self.store, ledger=self.ledger
        )

    def library(self) -> Library:
        """A new read side."""
        return Library(self.settings, self.store, LedgerView(self.store))

    # --- the work of a job -----------------------------------------------------------------------

    def receive(self, *inputs: Path) -> Reception:
        """Take in the inputs, or the watched folder as it is now."""
        return receive(
            inputs or (self.docs,),
            NAMESPACE,
            self.workspace,
            ReceiveOptions(sync=not inputs, retire_all=True),
        )

    def ingest(self, reception: Reception) -> None:
        """Process what was received and whatever is stale. Raises RuntimeError with the reasons
        when a document failed.
        """
        stale = stale_versions(self.ledger, NAMESPACE, stage_profiles(self.strategy)["embeddings"])
        wanted = dict.fromkeys([*(version.version_id for version in stale), *reception.to_process])
        totals = ingest_versions(
            [self.ledger.version(version_id) for version_id in wanted], self.workspace
        )
        if totals.failures:
            raise RuntimeError(f"failed documents: {totals.failures}")

    def publish(self, full: bool = False, deletes: bool = False) -> Manifest:
        """Build, check and publish the release of what is live."""
        manifest, checks = build_candidate(NAMESPACE, self.workspace, full=full, deletes=deletes)
        failed = [check for check in checks if not check.passed]
        if failed:
            raise RuntimeError(f"failed checks: {failed}")
        publish_candidate(NAMESPACE, manifest.release_id, self.workspace)
        return manifest

    def update(self, *inputs: Path) -> None:
        """Everything from the watched folder to the published release, as a job does it; nothing
        where nothing is to do.
        """
        with self.store.writer(NAMESPACE, "update"):
            settle(NAMESPACE, self.workspace)
            self.ingest(self.receive(*inputs))
            if self.behind():
                self.publish()

    def behind(self) -> bool:
        """True when the published release is not what the live documents and the config make."""
        published = releases.current(self.store, NAMESPACE)
        if published and read_manifest(
            self.store.release_dir(NAMESPACE, published)
        ).index_profile != index_profile(self.strategy):
            return True
        return is_behind_ledger(NAMESPACE, self.workspace)

    def move(self) -> None:
        """Give the namespace the strategy of this place, rebuild what that leaves stale, and
        publish.
        """
        with self.store.writer(NAMESPACE, "rebuild"):
            self.ledger.rebind_strategy(
                NAMESPACE, self.strategy.name, strategy_config_id(self.strategy)
            )
            self.update()

    def delete(self, doc_id: str, mode: str) -> None:
        """Delete a document, release without it and, when the deletion is hard, purge what it took;
        a deletion in force goes on.
        """
        with self.store.writer(NAMESPACE, "delete"):
            settle(NAMESPACE, self.workspace)
            known = [
                stone
                for stone in self.ledger.tombstones(NAMESPACE)
                if stone.doc_id == doc_id and stone.mode == mode
            ]
            stone = known[-1] if known else self.ledger.delete(NAMESPACE, doc_id, None, mode)
            record = record_deletion(stone, self.workspace)
            if releases.current(self.store, NAMESPACE) and self.behind():
                self.publish(full=mode == "hard", deletes=True)
            if releases.current(self.store, NAMESPACE) and self.behind():
                self.publish()  # what waited beside it
        if mode == "hard":
            self.collect(record)

    def collect(self, scope: Record | None = None) -> None:
        """Collect garbage; the pointer is made old, for the collector waits until nobody reads the
        release before.
        """
        pointer = self.store.current_path(NAMESPACE)
        if pointer.is_file():
            os.utime(pointer, (0, 0))
        with exclude_others(self.store, [NAMESPACE], "gc", wait=1):
            collect(self.workspace, scope=scope)

    def roll_back(self, to: str) -> None:
        """Publish an older release again."""
        with self.store.writer(NAMESPACE, "rollback"):
            roll_back(NAMESPACE, to, self.workspace)


@dataclass(frozen=True)
class State:
    """What readers see of a library."""

    release_id: str
    # (chunk_id, version_id) of every chunk the published release holds
    chunks: tuple[tuple[str, str], ...]
    vectors: str  # a hash over every chunk_id and its vector
    answers: str  # a hash over the hits of every query in three modes, with their scores
    hidden: tuple[str, ...]  # doc_ids and version_ids that tombstones hide in it
    visible: tuple[tuple[str, str], ...]  # the chunks that they do not hide

    def content(self) -> tuple[Any, ...]:
        """Everything but the release's name."""
        return self.chunks, self.vectors, self.answers, self.hidden


NOTHING = State("", (), "", "", (), ())


def state_of(place: Place, release_id: str = "", queries: Sequence[str] = QUERIES) -> State:
    """What readers see of the published release, or of another, and proof that it is whole. Raises
    AssertionError with what is wrong.
    """
    store = place.store
    release_id = release_id or releases.current(store, NAMESPACE) or ""
    if not release_id:
        return NOTHING
    directory = store.release_dir(NAMESPACE, release_id)
    manifest = read_manifest(directory)
    changed = changed_files(directory, manifest.files)
    assert not changed, f"files of {release_id} changed after it was built: {changed}"
    library = place.library()
    with library.lease(NAMESPACE, release_id) as lease:
        hidden = tuple(sorted(library.hidden_names(lease)))
        found = hits_of(library, queries, release_id)
        chunks = pairs_of(directory)
        visible = tuple(
            pair
            for pair in chunks
            if not {pair[1], pair[1].rpartition("@")[0].partition(".")[2]} & set(hidden)
        )
        unknown = {hit[:2] for hits in found for hit in hits} - set(visible)
        assert not unknown, f"answers hold chunks that {release_id} does not show: {unknown}"
    library.close()
    ids, matrix = read_matrix(directory / "dense")
    digest = hashlib.sha256()
    for chunk_id, row in zip(ids, matrix, strict=True):
        digest.update(chunk_id.encode() + np.asarray(row, dtype="<f4").tobytes())
    if release_id == releases.current(store, NAMESPACE):
        proved = verify_release(store, NAMESPACE)
        assert not proved.failures, f"quotes that cannot be proved: {proved.failures[:3]}"
    return State(
        release_id,
        tuple(chunks),
        digest.hexdigest(),
        hashlib.sha256(json.dumps(found).encode()).hexdigest(),
        hidden,
        visible,
    )


def hits_of(
    library: Library, queries: Sequence[str], release_id: str | None = None
) -> list[list[tuple[str, str, float]]]:
    """(chunk_id, version_id, score) of the hits of every query in each mode."""
    found = []
    for mode in ("dense", "sparse", "hybrid"):
        for query in queries:
            result = answer(
                library,
                QueryRequest(
                    query, NAMESPACE, top_k=10, mode=mode, release_id=release_id, answer=False
                ),
            )
            assert not result.warnings, result.warnings
            found.append([(hit.chunk_id, hit.version_id, hit.score) for hit in result.hits])
    return found


def pairs_of(directory: Path) -> list[tuple[str, str]]:
    """(chunk_id, version_id) of every chunk of a release."""
    catalog = CatalogReader(directory / "catalog.sqlite")
    try:
        return sorted(
            (chunk.chunk_id, version)
            for version in catalog.versions()
            for chunk in catalog.chunks_of_version(version)
        )
    finally:
        catalog.close()


def files_of(home: Path) -> list[str]:
    """Every file that the library keeps, release directories as one and numbered by age; logs
    and traces apart.
    """
    found = []
    for path in sorted(home.rglob("*")):
        parts = path.relative_to(home).parts
        if parts[0] in ("logs", "releases", "traces") or (path.is_dir() and any(path.iterdir())):
            continue
        found.append("/".join(parts))
    for folder in sorted((home / "releases").glob("*")):
        names = sorted(item.name for item in folder.iterdir())
        kept = [name for name in names if not name.startswith(".") and name != "CURRENT"]
        numbers = {name: f"release {n} of {len(kept)}" for n, name in enumerate(kept, 1)}
        found += [f"releases/{folder.name}/{numbers.get(name, name)}" for name in names]
    return sorted(name for name in found if not name.endswith(("-wal", "-shm", "-journal")))
