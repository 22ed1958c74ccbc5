"""Fixtures shared by every test: a data root of its own, settings, stores, and a strategy that needs no model."""

from __future__ import annotations

import base64
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from rag_platform.config import Settings, Strategy, load_settings, load_strategy
from rag_platform.ledger import Ledger
from rag_platform.retrieval.library import Library
from rag_platform.retrieval.reading import hidden_by_ledger
from rag_platform.store import Store

REPOSITORY = Path(__file__).resolve().parent.parent

TINY = """\
description: for tests; vectors by feature hashing, no model
loading:
  loaders:
    - provider: pdf
    - provider: markdown
    - provider: text
sectioner:
  provider: markdown_headings
  options: {max_section_level: 2, include_heading: true, doc_preamble_mode: separate, min_section_chars: 0}
chunker:
  provider: recursive
  options: {chunk_size: 400, chunk_overlap: 0}
embedding:
  provider: hashing
encoding: hybrid
fusion:
  provider: min_max
  options: {alpha: 0.3}
"""


# a PNG of 2 x 2 pixels
PICTURE = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAIAAAACCAIAAAD91JpzAAAAFklEQVR4nGM8ISfHwMDAxMDAwMDAAAANBAEIfXHKZgAAAABJRU5ErkJggg==")


def write_config(folder: Path, **strategies: str) -> Path:
    """A config folder with the shipped logging and prompts, settings whose default strategy is `tiny`, and the given strategies."""
    (folder / "strategies").mkdir(parents=True)
    (folder / "settings.yaml").write_text("schema_version: 1\ndefault_strategy: tiny\nembedding_processes: 1\n", encoding="utf-8")
    for name, text in {"tiny": TINY, **strategies}.items():
        (folder / "strategies" / f"{name}.yaml").write_text(text, encoding="utf-8")
    shutil.copy(REPOSITORY / "config" / "logging.yaml", folder / "logging.yaml")
    return folder


@pytest.fixture
def config_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A config folder of this test, in force: strategy `tiny` is the default."""
    folder = write_config(tmp_path / "config")
    monkeypatch.setenv("RAG_CONFIG", str(folder))
    return folder


@pytest.fixture
def home(tmp_path: Path, config_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty data root, in force as RAG_HOME."""
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("RAG_HOME", str(folder))
    for name in ("RAG_STRATEGY", "RAG_NAMESPACE"):
        monkeypatch.delenv(name, raising=False)
    return folder


@pytest.fixture
def settings(home: Path) -> Settings:
    """Settings over `home` and the test's config folder."""
    return load_settings()


@pytest.fixture
def tiny(settings: Settings) -> Strategy:
    """The strategy without a model."""
    return load_strategy(settings, "tiny")


@pytest.fixture
def store(home: Path) -> Store:
    """The store over `home`."""
    return Store(home)


@pytest.fixture
def ledger(store: Store) -> Iterator[Ledger]:
    """The ledger of `home`."""
    opened = Ledger(store.ledger_path)
    yield opened
    opened.close()


@dataclass(frozen=True)
class Shelf:
    """A data root with what writes to it, and the way from files to a published release without Dagster."""

    settings: Settings
    store: Store
    ledger: Ledger

    def ingest(
        self, *paths: Path, namespace: str = "default", strategy: str = "tiny", tags: tuple[str, ...] = (), sync: bool = False
    ) -> str:
        """The release_id published after receiving and processing the paths."""
        from rag_platform.documents.receiving import ReceiveOptions, receive
        from rag_platform.indexes.ingesting import ingest_versions
        from rag_platform.indexes.updating import build_candidate, publish_candidate

        chosen = load_strategy(self.settings, strategy)
        parts = {"settings": self.settings, "strategy": chosen, "store": self.store, "ledger": self.ledger}
        reception = receive(paths, namespace, options=ReceiveOptions(tags=tags, sync=sync), **parts)
        ingest_versions([self.ledger.version(item) for item in reception.to_process], **parts)
        manifest, checks = build_candidate(namespace, **parts)
        assert all(check.passed for check in checks), checks
        publish_candidate(namespace, manifest.release_id, settings=self.settings, store=self.store, ledger=self.ledger)
        return manifest.release_id

    def library(self) -> Library:
        """A new read side over this data root."""
        return Library(self.settings, self.store, hidden_by_ledger(self.store))


@pytest.fixture
def shelf(settings: Settings, store: Store, ledger: Ledger) -> Shelf:
    """An empty shelf over `home`."""
    return Shelf(settings, store, ledger)


PORTS = """\
---
title: Port guide
---

# Ports

The gateway listens on port 8080 unless `PORT-9087` is set.

## Limits

| tier | requests per minute |
| --- | --- |
| free | 60 |
| pro | 600 |

![diagram](diagram.png)
"""
HOLIDAYS = """\
# 休假制度

员工每年有十五天带薪年假，须提前三个工作日申请。

## 病假

病假需要医生证明，超过三天的病假由部门经理批准。
"""
NOTES = "Release notes\n\nVersion 2.4.1 fixes the crash on start and adds the option max_retry_count.\n"


@pytest.fixture(scope="session")
def read_only_shelf(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shelf]:
    """Three small documents (English Markdown with table and picture, Chinese Markdown, plain text), published; only for reading."""
    root = tmp_path_factory.mktemp("shelf")
    docs = root / "docs"
    docs.mkdir()
    for name, text in (("ports.md", PORTS), ("休假.md", HOLIDAYS), ("notes.txt", NOTES)):
        (docs / name).write_text(text, encoding="utf-8")
    (docs / "diagram.png").write_bytes(PICTURE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAG_CONFIG", str(write_config(root / "config")))
        patch.setenv("RAG_HOME", str(root / "home"))
        settings = load_settings()
        ledger = Ledger(Store(settings.home).ledger_path)
        built = Shelf(settings, Store(settings.home), ledger)
        built.ingest(docs / "ports.md", docs / "notes.txt", tags=("ops", "guide"))
        built.ingest(docs / "休假.md", tags=("hr",))
        yield built
        ledger.close()


@pytest.fixture(scope="session")
def material() -> Path:
    """The folder of real test material: `RAG_TEST_DATA`, or `../shared/data` beside the checkout; skips when it is absent."""
    folder = Path(os.environ.get("RAG_TEST_DATA") or REPOSITORY.parent / "shared" / "data")
    if not folder.is_dir():
        pytest.skip("no test material: set RAG_TEST_DATA to its folder")
    return folder
