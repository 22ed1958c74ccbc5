"""Small published releases, written straight into their directory: the query path is tested here,
not how a release comes about.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import pytest

from rag_platform.config.profiles import index_profile, stage_profiles, strategy_config_id
from rag_platform.config.settings import Settings, Strategy
from rag_platform.config.strategies import load_strategy
from rag_platform.indexes import lexical
from rag_platform.indexes.catalog_tables import CatalogWriter, Entry
from rag_platform.ir import Chunk, Document, LexicalRow, Version
from rag_platform.ledger.hiding import LedgerView
from rag_platform.registry import make_provider
from rag_platform.releases.manifest import Manifest, embedder_info, write_manifest
from rag_platform.retrieval.library import Library
from rag_platform.storage.store import Store, write_text
from rag_platform_tests.matrices import write_matrix

GUIDE = [
    ("Limits", "The maximum upload size is 50 MB. Larger files are refused with code 413."),
    ("Settings", "| Setting | Default |\n|---|---|\n| max_retry_count | 3 |\n| timeout_s | 30 |"),
    ("Errors", "Error PPR-9087 means that the licence server cannot be reached."),
]
HANDBOOK = [
    ("连接池", "连接池的最大连接数是 100。超过上限的请求会排队等待。"),
    ("日志", "日志保存三十天，之后自动删除。"),
]
Publish = Callable[..., str]


def make_release(
    store: Store, strategy: Strategy, namespace: str, documents: dict[str, Any], release_id: str
) -> None:
    """A finished release directory: `documents` maps doc_id to (section, text) pairs, or to (pairs,
    changes of the document).
    """
    directory = store.release_dir(namespace, release_id)
    directory.mkdir(parents=True)
    rows: list[LexicalRow] = []
    versions: dict[str, int] = {}
    with CatalogWriter(directory / "catalog.sqlite") as catalog:
        pairs = {
            doc_id: value if isinstance(value, tuple) else (value, {})
            for doc_id, value in documents.items()
        }
        catalog.replace_documents(
            Document(
                namespace,
                doc_id,
                **{
                    "source": "docs",
                    "source_uri": f"docs/{doc_id}.md",
                    "filename": f"{doc_id}.md",
                    "title": doc_id,
                    **c,
                },
            )
            for doc_id, (_, c) in pairs.items()
        )
        for doc_id, (sections, _) in pairs.items():
            sha = hashlib.sha256(repr(sections).encode()).hexdigest()
            version_id = f"{namespace}.{doc_id}@{sha[:12]}"
            version = Version(
                version_id,
                namespace,
                doc_id,
                f"docs/{doc_id}.md",
                f"{doc_id}.md",
                sha,
                1,
                "text/markdown",
                "markdown",
                strategy.name,
                received_at="2026-01-01T00:00:00Z",
            )
            entries = []
            for number, (section, text) in enumerate(sections):
                chunk = Chunk(
                    chunk_id=f"{doc_id}-{number}",
                    section_id=f"{doc_id}-{section}",
                    doc_id=doc_id,
                    version_id=version_id,
                    chunk_index=number,
                    chunk_text=text,
                    chunk_fingerprint="",
                    norm_start=0,
                    norm_end=len(text),
                    fact_start=0,
                    fact_end=len(text),
                    section_path=section,
                    lang="en",
                    line_start=number + 1,
                    line_end=number + 1,
                )
                entries.append(Entry(chunk, "h", "h", "ready"))
                rows.append(LexicalRow(chunk.chunk_id, doc_id, f"{section}\n{text}", section))
            versions[version_id] = len(entries)
            catalog.add_version(version, [], entries, [])
    if strategy.builds_lexical:
        lexical.update(strategy.lexical, directory / "lexical", removed={}, rows=rows)
    info = embedder_info(strategy)
    if info is not None:
        embedder = make_provider(
            "embedder", strategy.embedding.provider, strategy.embedding.options
        )
        ordered = sorted(rows, key=lambda row: row.chunk_id)
        (directory / "dense").mkdir()
        write_matrix(
            directory / "dense",
            dim=info.dim,
            removed=(),
            ids=[row.chunk_id for row in ordered],
            vectors=embedder.embed([row.text for row in ordered]),
        )
    write_manifest(
        directory,
        Manifest(
            release_id=release_id,
            namespace=namespace,
            parent=None,
            created_at=release_id,
            strategy=strategy.name,
            strategy_config_id=strategy_config_id(strategy),
            strategy_config=strategy.model_dump(mode="json"),
            index_profile=index_profile(strategy),
            profiles=stage_profiles(strategy),
            encoding=strategy.encoding,
            embedder=info,
            versions=versions,
            counts={"documents": len(versions), "chunks": sum(versions.values())},
        ),
    )


@pytest.fixture
def publish(store: Store, settings: Settings) -> Publish:
    """Makes a release of the given documents and points CURRENT at it; returns its id."""

    def published(
        documents: dict[str, Any],
        *,
        namespace: str = "default",
        strategy: str = "tiny",
        release_id: str = "r1",
    ) -> str:
        make_release(store, load_strategy(settings, strategy), namespace, documents, release_id)
        write_text(store.current_path(namespace), release_id + "\n")
        return release_id

    return published


@pytest.fixture
def library(settings: Settings, store: Store) -> Iterator[Library]:
    """A library over the test's data root."""
    opened = Library(settings, store)
    yield opened
    opened.close()


@pytest.fixture
def guide(publish: Publish) -> dict[str, list[tuple[str, str]]]:
    """Two published documents: `guide` in English, `handbook` in Chinese."""
    documents = {"guide": GUIDE, "handbook": HANDBOOK}
    publish(documents)
    return documents


@pytest.fixture
def vary(config_folder: Path) -> Callable[..., str]:
    """Writes a strategy: the text of `tiny` with words replaced and lines added; returns its
    name.
    """

    def write(name: str, lines: str = "", **replace: str) -> str:
        text = (config_folder / "strategies" / "tiny.yaml").read_text(encoding="utf-8")
        for old, new in replace.items():
            assert old in text
            text = text.replace(old, new)
        (config_folder / "strategies" / f"{name}.yaml").write_text(text + lines, encoding="utf-8")
        return name

    return write


class Hiding(LedgerView):
    """A view without a ledger, by which documents are hidden as long as they are in `names`."""

    def __init__(self, names: set[str]) -> None:
        self.names = names

    def hidden(self, namespace: str, since: int) -> frozenset[str]:
        return frozenset(self.names)

    def failed_updates(self, namespace: str, doc_ids: Collection[str]) -> dict[str, str]:
        return {}
