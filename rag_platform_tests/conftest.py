"""Fixtures shared by every test: a data root of its own, settings, stores, and a strategy that needs no model."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from rag_platform.config import Settings, Strategy, load_settings, load_strategy
from rag_platform.ledger import Ledger
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


@pytest.fixture(scope="session")
def material() -> Path:
    """The folder of real test material: `RAG_TEST_DATA`, or `../shared/data` beside the checkout; skips when it is absent."""
    folder = Path(os.environ.get("RAG_TEST_DATA") or REPOSITORY.parent / "shared" / "data")
    if not folder.is_dir():
        pytest.skip("no test material: set RAG_TEST_DATA to its folder")
    return folder
