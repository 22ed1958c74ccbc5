"""Ingestion of a list of versions: batches that overlap, failures that cost nobody else, everything
counted once.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from rag_platform.config.ingestion import LoadingConfig
from rag_platform.config.profiles import INGESTION_STAGES
from rag_platform.config.query import ProviderConfig
from rag_platform.config.settings import Settings, Strategy
from rag_platform.ingestion import embedding_batches
from rag_platform.ingestion.batches import ingest_versions
from rag_platform.ingestion.request import Hooks
from rag_platform.intake.isolation import pool
from rag_platform.intake.receiving import ReceiveOptions, receive
from rag_platform.ir import Version
from rag_platform.ledger.ledger import Ledger
from rag_platform.storage.store import Store
from rag_platform.workspace import Workspace


@pytest.fixture
def workspace(settings: Settings, tiny: Strategy, store: Store, ledger: Ledger) -> Workspace:
    """The data root of a test with the strategy `tiny`."""
    return Workspace(strategy=tiny, settings=settings, store=store, ledger=ledger)


@pytest.fixture
def versions(tmp_path: Path, workspace: Workspace) -> list[Version]:
    folder = tmp_path / "docs"
    folder.mkdir()
    for number in range(12):
        text = "same words" if number in (3, 9) else f"number {number}"
        (folder / f"note-{number:02}.md").write_text(
            f"# Note\n\nThis is a note about {text}.\n", encoding="utf-8"
        )
    return received(workspace, folder)


def received(workspace: Workspace, *inputs: Path) -> list[Version]:
    """The versions that are to be processed once files were received."""
    reception = receive(inputs, "default", workspace, ReceiveOptions())
    return [workspace.ledger.version(version_id) for version_id in reception.to_process]


def test_small_batches_come_to_the_same_as_one(
    versions: list[Version], workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, ledger = workspace.store, workspace.ledger
    monkeypatch.setattr(embedding_batches, "FIRST_BATCH", 1)
    monkeypatch.setattr(embedding_batches, "BATCH_TEXTS", 2)
    store.raw_path(versions[5].file_sha256).write_bytes(b"damaged")
    seen: list[tuple[str, str]] = []
    failed: list[tuple[str, str, str]] = []
    totals = ingest_versions(
        versions,
        workspace,
        hooks=Hooks(
            on_outcome=lambda version, outcome: seen.append((version.version_id, outcome.stage)),
            on_failure=lambda version, stage, error: failed.append(
                (version.version_id, stage, error.code)
            ),
        ),
    )
    good = [version for version in versions if version != versions[5]]
    assert failed == [(versions[5].version_id, "raw_document", "raw_changed")]
    assert (
        totals.documents,
        totals.chunks,
        totals.embeddings_computed,
        totals.embeddings_reused,
    ) == (11, 11, 10, 1)
    for version in good:
        assert [stage for version_id, stage in seen if version_id == version.version_id] == list(
            INGESTION_STAGES
        )
        assert ledger.version(version.version_id).status == "ready"
    assert ledger.version(versions[5].version_id).status == "failed"
    assert len(ledger.live("default")) == 11


def test_what_exists_is_reused_and_nothing_is_embedded(
    versions: list[Version], workspace: Workspace
) -> None:
    ingest_versions(versions, workspace)
    reused: list[bool] = []
    totals = ingest_versions(
        versions,
        workspace,
        hooks=Hooks(on_outcome=lambda version, outcome: reused.append(outcome.reused)),
    )
    assert (totals.documents, totals.embeddings_computed) == (12, 0)
    assert len(reused) == 12 * 7 and all(reused)


def test_an_embedder_that_cannot_be_built_stops_the_run_and_keeps_the_stages(
    versions: list[Version], workspace: Workspace, tiny: Strategy
) -> None:
    broken = tiny.model_copy(
        update={"embedding": tiny.embedding.model_copy(update={"options": {"dim": 1}})}
    )
    with pytest.raises(Exception, match="dim"):
        ingest_versions(versions, replace(workspace, strategy=broken))
    assert workspace.ledger.live("default") == []


MEETING = '''
import time
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from rag_platform.errors import DocumentError
from rag_platform.loaders.text import TextLoader
from rag_platform.traits import Traits


@dataclass(frozen=True)
class Meeting:
    """Reads a text once two documents are being read at the same time."""

    folder: str = ""
    VERSION: ClassVar[str] = "1"
    traits: ClassVar[Traits] = Traits(isolated=True)

    def claims(self, filename, head):
        return filename.endswith(".meet")

    def load(self, path, filename):
        Path(self.folder, path.name).touch()
        until = time.monotonic() + 60
        while len(list(Path(self.folder).iterdir())) < 2:
            if time.monotonic() > until:
                raise DocumentError("no other document is being read", code="alone")
            time.sleep(0.01)
        return TextLoader().load(path, filename)
'''


@pytest.mark.skipif(
    (os.cpu_count() or 1) < 2, reason="one core: documents are read one after another"
)
def test_two_documents_are_read_at_once(
    tmp_path: Path, workspace: Workspace, tiny: Strategy, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, docs, meeting = tmp_path / "code", tmp_path / "docs", tmp_path / "meeting"
    for folder in (code, docs, meeting):
        folder.mkdir()
    (code / "meeting_loader.py").write_text(MEETING, encoding="utf-8")
    monkeypatch.syspath_prepend(str(code))
    pool().close()  # children that wait already would not know the loader
    for name in ("one", "two"):
        (docs / f"{name}.meet").write_text(f"This is document {name}.\n", encoding="utf-8")
    loader = ProviderConfig(provider="meeting_loader:Meeting", options={"folder": str(meeting)})
    strategy = tiny.model_copy(update={"loading": LoadingConfig(loaders=(loader,))})
    reading = replace(workspace, strategy=strategy)
    totals = ingest_versions(received(reading, docs), reading)
    pool().close()
    assert (totals.failures, totals.documents) == ([], 2)


def progress(versions: list[Version], workspace: Workspace) -> list[tuple[str, int, int]]:
    """What an ingest says of its progress: stage, done, total."""
    said: list[tuple[str, int, int]] = []
    ingest_versions(
        versions,
        workspace,
        hooks=Hooks(
            on_progress=lambda stage, done, total, message: said.append((stage, done, total))
        ),
    )
    return said


@pytest.mark.integration
def test_the_pages_of_pdfs_are_counted_as_they_are_read(
    tmp_path: Path, workspace: Workspace, tiny: Strategy
) -> None:
    import pymupdf

    for name, pages in (("long", 9), ("short", 2)):
        with pymupdf.open() as made:
            for number in range(pages):
                made.new_page().insert_text((72, 72), f"Page {number} of the {name} report.")
            made.save(tmp_path / f"{name}.pdf")
    fast = ProviderConfig(provider="pdf", options={"profile": "fast"})
    strategy = tiny.model_copy(update={"loading": LoadingConfig(loaders=(fast,))})
    reading = replace(workspace, strategy=strategy)
    said = progress(received(reading, tmp_path / "long.pdf", tmp_path / "short.pdf"), reading)
    assert said[0] == ("documents", 0, 2)
    pages = [figures for stage, *figures in said if stage == "pages"]
    assert len(pages) == 11 and [11, 11] in pages


@pytest.mark.integration
def test_the_number_of_texts_is_known_once_all_documents_are_read(
    versions: list[Version], workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of the batches that wait for those before them; two notes have the same words."""
    monkeypatch.setattr(embedding_batches, "FIRST_BATCH", 1)
    monkeypatch.setattr(embedding_batches, "BATCH_TEXTS", 2)
    monkeypatch.setattr(embedding_batches, "_BATCHES_AT_ONCE", 1)
    said = progress(versions, workspace)
    read = said.index(("documents", 12, 12))
    totals = [total for stage, _, total in said[read:] if stage == "embeddings"]
    assert totals == sorted(totals, reverse=True)
    assert said[-1] == ("embeddings", 11, 11)
