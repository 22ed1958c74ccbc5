"""Which jobs have their embedders loaded before Dagster is imported."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from rag_platform.assets.job_process import begin_embedding
from rag_platform.indexes.embedding_pool import take_pool
from rag_platform.intake.receiving import ReceiveOptions, receive
from rag_platform.ir import EmbedderInfo
from rag_platform.protocols import Vectors
from rag_platform.traits import Traits
from rag_platform.workspace import DataRoot
from rag_platform_tests.conftest import TINY

pytestmark = pytest.mark.integration


@dataclass(frozen=True)
class Slow:
    """An embedder that says it takes long to load."""

    VERSION: ClassVar[str] = "1"
    traits: ClassVar[Traits] = Traits(load_seconds=2.0)

    def info(self) -> EmbedderInfo:
        return EmbedderInfo("slow", "1", 2)

    def embed(self, texts: Sequence[str], *, query: bool = False) -> Vectors:
        return np.array([(1.0, 0.0)] * len(texts), dtype=np.float32)


@pytest.fixture
def slow(config_folder: Path) -> str:
    """The name of a strategy whose embedder is slow to load; two processes may embed."""
    strategy = TINY.replace("provider: hashing", f"provider: {__name__}:Slow")
    (config_folder / "strategies" / "slow.yaml").write_text(strategy, encoding="utf-8")
    path = config_folder / "settings.yaml"
    settings = path.read_text(encoding="utf-8")
    path.write_text(settings.replace("processes: 1", "processes: 2"), encoding="utf-8")
    return "slow"


def begun(root: DataRoot, paths: Sequence[Path], strategy: str) -> int:
    """How many processes have a head start when these files are ingested."""
    workspace = root.workspace("default", strategy)
    received = receive(paths, "default", workspace, ReceiveOptions())
    args = {"version_ids": [item.version_id for item in received.items if item.version_id]}
    begin_embedding(root.ledger.add_job("ingest", "default", args).job_id)
    with take_pool(workspace.strategy.embedding, root.store.embeddings_path.parent) as pool:
        return pool.size


def test_only_new_documents_and_slow_embedders_have_a_head_start(
    slow: str, shelf: Any, tmp_path: Path
) -> None:
    old, new = tmp_path / "old.md", tmp_path / "new.md"
    old.write_text("# Gate\n\nThe gate opens at 05:30.\n", encoding="utf-8")
    new.write_text("# Dock\n\nThe dock holds 12 trucks.\n", encoding="utf-8")
    root = DataRoot(settings=shelf.settings, store=shelf.store, ledger=shelf.ledger)
    assert begun(root, [old], slow) == 1
    shelf.ingest(old, strategy=slow)
    assert begun(root, [old], slow) == 0
    assert begun(root, [old, new], slow) == 1


def test_a_quick_embedder_has_none(shelf: Any, tmp_path: Path) -> None:
    path = tmp_path / "gate.md"
    path.write_text("# Gate\n\nThe gate opens at 05:30.\n", encoding="utf-8")
    root = DataRoot(settings=shelf.settings, store=shelf.store, ledger=shelf.ledger)
    assert begun(root, [path], "tiny") == 0


def test_what_stands_in_the_way_is_left_to_the_job(home: Path, config_folder: Path) -> None:
    begin_embedding("job_that_is_not_there")
    (config_folder / "settings.yaml").write_text("default_strategy: [", encoding="utf-8")
    begin_embedding("job_that_is_not_there")
