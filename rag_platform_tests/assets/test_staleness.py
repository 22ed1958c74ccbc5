"""A change of any part of a strategy makes exactly the assets stale that it touches, as Dagster
itself tells; changing it back, none.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml
from dagster._core.definitions.data_version import (
    CachingStaleStatusResolver,
    StaleCauseCategory,
    StaleStatus,
)
from dagster._core.loader import LoadingContextForTest

from rag_platform import definitions
from rag_platform.assets import ingestion, release
from rag_platform.assets.partitions import RANGE_END, RANGE_START, document_versions, namespaces
from rag_platform.config.profiles import INGESTION_STAGES
from rag_platform.config.settings import load_settings
from rag_platform.config.strategies import load_strategy
from rag_platform.intake.receiving import ReceiveOptions, receive
from rag_platform.ledger.ledger import open_ledger
from rag_platform.storage.store import Store
from rag_platform.workspace import Workspace

pytestmark = pytest.mark.integration

STAGES = list(INGESTION_STAGES)
RELEASE = ["catalog", "lexical_index", "dense_index", "published_release"]


@dataclass
class Library:
    """Documents released through Dagster, and the files of their strategies."""

    strategies: Path
    instance: dg.DagsterInstance
    versions: list[str]
    tiny: dict[str, Any]

    def write(self, name: str = "tiny", **changes: Any) -> None:
        """The strategy's file with some sections replaced."""
        text = yaml.safe_dump({**self.tiny, **changes}, sort_keys=False)
        (self.strategies / f"{name}.yaml").write_text(text, encoding="utf-8")

    def stale(self) -> dict[str, list[str]]:
        """Stale asset to its stale partitions, after the definitions were loaded again as the UI
        does; every cause is new code.
        """
        for module in (ingestion, release, definitions):
            importlib.reload(module)
        graph = definitions.defs.resolve_asset_graph()
        resolver = CachingStaleStatusResolver(
            self.instance, graph, LoadingContextForTest(self.instance)
        )
        found: dict[str, list[str]] = {}
        for asset in [*STAGES, *RELEASE]:
            for partition in self.versions if asset in STAGES else self.namespaces:
                key = dg.AssetKey(asset)
                status = resolver.get_status(key, partition)
                assert status != StaleStatus.MISSING, (asset, partition)
                causes = resolver.get_stale_root_causes(key, partition)
                told = [
                    (cause.key.asset_key, cause.key.partition_key, cause.category)
                    for cause in causes
                ]
                assert told == (
                    [(key, partition, StaleCauseCategory.CODE)]
                    if status == StaleStatus.STALE
                    else []
                )
                if status == StaleStatus.STALE:
                    found.setdefault(asset, []).append(partition)
        return found

    @property
    def namespaces(self) -> list[str]:
        """The namespaces of the versions."""
        return sorted({version.partition(".")[0] for version in self.versions})

    def ingest(self, folder: Path, namespace: str, strategy: str = "tiny") -> None:
        """Take a folder in and release it through the assets."""
        settings = load_settings()
        store = Store(settings.home)
        ledger = open_ledger(store)
        parts = {
            "settings": settings,
            "strategy": load_strategy(settings, strategy),
            "store": store,
            "ledger": ledger,
        }
        keys = list(
            receive(
                [folder], namespace, Workspace(**parts), ReceiveOptions(source=namespace)
            ).to_process
        )
        ledger.close()
        self.versions += keys
        self.run(keys, namespace)

    def run(self, keys: list[str], namespace: str) -> None:
        """Both runs of a namespace, over these versions."""
        self.instance.add_dynamic_partitions(document_versions.name or "", keys)
        self.instance.add_dynamic_partitions(namespaces.name or "", [namespace])
        tags = {RANGE_START: keys[0], RANGE_END: keys[-1]}
        assert (
            definitions.defs.resolve_job_def("ingest")
            .execute_in_process(instance=self.instance, tags=tags)
            .success
        )
        assert (
            definitions.defs.resolve_job_def("release")
            .execute_in_process(instance=self.instance, partition_key=namespace)
            .success
        )


def write_documents(folder: Path) -> Path:
    """A folder with two small documents."""
    folder.mkdir(parents=True)
    (folder / "a.md").write_text("# Gate\n\nThe gate opens at 05:30.\n", encoding="utf-8")
    (folder / "b.md").write_text("# 码头\n\n码头可停十二辆卡车。\n", encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def library(shared_desk: Any) -> Iterator[Library]:
    """Two documents of the namespace `default`; each test leaves the strategy as it was."""
    strategies = shared_desk.folder / "config" / "strategies"
    tiny = yaml.safe_load((strategies / "tiny.yaml").read_text(encoding="utf-8"))
    with dg.DagsterInstance.ephemeral() as instance:
        made = Library(strategies, instance, [], tiny)
        made.write()
        made.ingest(write_documents(shared_desk.folder / "first"), "default")
        yield made


def after(stage: str) -> list[str]:
    """A stage and all that follow it."""
    return STAGES[STAGES.index(stage) :]


LOADERS = [{"provider": "pdf"}, {"provider": "markdown"}, {"provider": "text"}]
CHANGES: dict[str, tuple[dict[str, Any], list[str]]] = {
    # what is changed: (sections of the strategy, the assets that hold something else under it)
    "loading": ({"loading": {"loaders": [*LOADERS[1:], LOADERS[0]]}}, [*after("facts"), *RELEASE]),
    "media": ({"media": {"max_pixels": 1_000_000}}, [*after("media"), *RELEASE]),
    "media_texts": (
        {"media_texts": {"ocr_min_pixels": 5_000}},
        ["media", *after("views"), *RELEASE],
    ),
    "cleaning": ({"cleaning": {"drop_urls": True}}, [*after("sections"), *RELEASE]),
    "cleaning of what is canonical": (
        {"cleaning": {"max_blank_lines": 2}},
        [*after("sections"), *RELEASE],
    ),
    "sectioner": (
        {"sectioner": {"provider": "markdown_headings", "options": {"max_section_level": 1}}},
        [*after("sections"), *RELEASE],
    ),
    "chunker": (
        {"chunker": {"provider": "recursive", "options": {"chunk_size": 300}}},
        [*after("chunks"), *RELEASE],
    ),
    "views": ({"views": {"sparse_template": "{text}\n{headings}"}}, [*after("views"), *RELEASE]),
    "embedding": (
        {"embedding": {"provider": "hashing", "options": {"dim": 128}}},
        ["embeddings", "catalog", "dense_index", "published_release"],
    ),
    "embedding in larger batches": ({"embedding": {"provider": "hashing", "batch_size": 8}}, []),
    "encoding without vectors": (
        {"encoding": "sparse_only"},
        ["embeddings", "catalog", "dense_index", "published_release"],
    ),
    "encoding without words": (
        {"encoding": "dense_only"},
        ["catalog", "lexical_index", "published_release"],
    ),
    "lexical": (
        {"lexical": {"provider": "tantivy", "options": {"headings_boost": 3.0}}},
        ["lexical_index", "published_release"],
    ),
    "dense": (
        {"dense": {"provider": "chroma", "options": {"ef_search": 77}}},
        ["dense_index", "published_release"],
    ),
    "what questions alone read": (
        {
            "query": {"rewrite": {"enabled": True}},
            "retrieval": {"top_k": 3},
            "fusion": {"provider": "rrf"},
            "reranker": {"provider": "none"},
            "context": {"max_tokens": 500},
            "answerer": {"provider": "extractive"},
            "summary": {"method": "textrank"},
            "llm": {"provider": "openai", "options": {"model": "m", "api_key_env": ""}},
            "description": "said otherwise",
        },
        [],
    ),
}


@pytest.mark.parametrize("what", CHANGES)
def test_exactly_what_a_change_touches_is_stale(library: Library, what: str) -> None:
    sections, expected = CHANGES[what]
    try:
        library.write(**sections)
        stale = library.stale()
    finally:
        library.write()
    assert list(stale) == expected
    assert all(
        partitions == (library.versions if asset in STAGES else ["default"])
        for asset, partitions in stale.items()
    )
    assert library.stale() == {}


def test_every_section_of_a_strategy_is_changed_above() -> None:
    strategy = load_strategy(load_settings(), load_settings().default_strategy)
    assert {section for changed, _ in CHANGES.values() for section in changed} == set(
        type(strategy).model_fields
    ) - {"name"}


def test_with_two_strategies_only_the_plan_tells_them_apart(
    library: Library, shared_desk: Any
) -> None:
    """An asset has one code version for all partitions; one strategy more, or a change of the other
    one, shows in all of them.
    """
    library.write("other", chunker={"provider": "whole_section"})
    assert library.stale() == {}  # a strategy that nobody uses is no change
    library.ingest(write_documents(shared_desk.folder / "second"), "second", "other")
    stale = library.stale()
    assert list(stale) == [*after("chunks"), *RELEASE]
    assert all(partitions in (library.versions[:2], ["default"]) for partitions in stale.values())
