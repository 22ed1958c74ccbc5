"""What was found out about documents and chunks, from the file to the filter."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from rag_platform.config.profiles import stage_profiles
from rag_platform.config.strategies import load_strategy
from rag_platform.errors import ConfigError
from rag_platform.indexes.catalog import CatalogReader
from rag_platform.ir import Json
from rag_platform.protocols import Completion, Message
from rag_platform.query.filters import plan

PAGE = """---
title: Server ports
tags: [network, ops]
keywords: firewall, ports
created: 2024-05-01
---
# Ports

The server port is 80. The server port must be open in the firewall of the machine, or nothing of \
the outside reaches it.

## 中文

差旅费报销流程：员工先填写报销单，再由经理审批。报销单要附发票，审批之后由财务打款，通常需要三个工作日。
"""


@dataclass(frozen=True)
class Titled:
    """Describes every passage alike, those with Han characters not at all."""

    NAME: ClassVar[str] = "titled"
    VERSION: ClassVar[str] = "1"

    def generate(
        self,
        messages: Sequence[Message],
        *,
        mode: str = "online",
        max_tokens: int | None = None,
        json_schema: Json | None = None,
    ) -> Completion:
        text = (
            "no"
            if "报销" in messages[1].text
            else json.dumps({"title": "Open doors", "summary": "Which one.", "tags": ["gates"]})
        )
        return Completion(text, "titled", "t")


def reader(shelf: Any, release_id: str) -> CatalogReader:
    return CatalogReader(shelf.store.release_dir("default", release_id) / "catalog.sqlite")


def found(catalog: CatalogReader, filters: Json) -> int:
    compiled = plan(filters)
    return len(catalog.select_ids(compiled.where, compiled.params))


def test_a_files_own_metadata_reaches_filters_and_never_takes_the_place_of_the_users(
    shelf: Any, tmp_path: Path
) -> None:
    page = tmp_path / "docs" / "ports.md"
    page.parent.mkdir()
    page.write_text(PAGE, encoding="utf-8")
    catalog = reader(shelf, shelf.ingest(page.parent, tags=("mine",)))
    (document,) = catalog.documents()
    assert (document.title, document.tags) == (
        "Server ports",
        ("mine", "network", "ops", "firewall", "ports"),
    )
    assert document.metadata["created"] == "2024-05-01" and document.metadata["modified"] > "2024"
    tagged = {
        "tags": {"$in": ["ops"], "$missing": "exclude"},
        "created": {"$gte": "2024-01", "$lt": "2025"},
    }
    assert found(catalog, tagged) == catalog.counts()["chunks"] == 2
    assert found(catalog, {"created": {"$gt": "2024-05-01"}}) == 0
    assert found(catalog, {"lang": "zh"}) == found(catalog, {"h2_title": "中文"}) == 1
    catalog.close()
    page.write_text(PAGE.replace("[network, ops]", "[moved]"), encoding="utf-8")
    catalog = reader(shelf, shelf.ingest(page.parent))
    assert catalog.documents()[0].tags == ("mine", "moved", "firewall", "ports")
    catalog.close()


def test_chunks_carry_keyphrases_and_quality(shelf: Any, tmp_path: Path) -> None:
    (tmp_path / "ports.md").write_text(PAGE, encoding="utf-8")
    release_id = shelf.ingest(tmp_path / "ports.md")
    catalog = reader(shelf, release_id)
    entries = {
        entry.chunk.h2_title: entry
        for entry in catalog.entries_of_version(next(iter(catalog.versions())))
    }
    assert entries[""].keyphrases[0] == "server port" and "firewall" in entries[""].keyphrases
    assert "报销" in entries["中文"].keyphrases
    assert all(0.8 < (entry.quality_score or 0) <= 1 for entry in entries.values())
    assert (entries[""].view_title, entries[""].view_tags) == ("", ())
    catalog.close()


def test_a_model_may_describe_chunks_and_one_that_fails_costs_nothing(
    shelf: Any, tmp_path: Path, config_folder: Path
) -> None:
    tiny = (config_folder / "strategies" / "tiny.yaml").read_text(encoding="utf-8")
    views = (
        "views:\n"
        "  sparse_template: '{text} {title}'\n"
        f"  describe: {{provider: '{__name__}:Titled'}}\n"
    )
    (config_folder / "strategies" / "told.yaml").write_text(tiny + views, encoding="utf-8")
    (tmp_path / "ports.md").write_text(PAGE, encoding="utf-8")
    catalog = reader(shelf, shelf.ingest(tmp_path / "ports.md", strategy="told"))
    said = {
        entry.chunk.h2_title: (entry.view_title, entry.view_summary, entry.view_tags)
        for entry in _entries(catalog)
    }
    assert said == {"": ("Open doors", "Which one.", ("gates",)), "中文": ("", "", ())}
    assert not any("Open doors" in entry.chunk.chunk_text for entry in _entries(catalog))
    catalog.close()


def _entries(catalog: CatalogReader) -> list[Any]:
    return [
        entry
        for version_id in catalog.versions()
        for entry in catalog.entries_of_version(version_id)
    ]


def test_views_are_stale_when_stop_words_prompt_or_model_change(
    settings: Any, config_folder: Path
) -> None:
    tiny = load_strategy(settings, "tiny")
    before = stage_profiles(tiny)
    keyed = tiny.model_copy(
        update={
            "views": tiny.views.model_validate({"keyphrases": {"stopwords": {"path": "stop.txt"}}})
        }
    )
    (config_folder / "stop.txt").write_text("port\n", encoding="utf-8")
    first = stage_profiles(keyed)
    (config_folder / "stop.txt").write_text("port\nserver\n", encoding="utf-8")
    second = stage_profiles(keyed)
    told = stage_profiles(
        tiny.model_copy(
            update={
                "views": tiny.views.model_validate({"describe": {"provider": f"{__name__}:Titled"}})
            }
        )
    )
    assert len({before["views"], first["views"], second["views"], told["views"]}) == 4
    assert len({profiles["chunks"] for profiles in (before, first, second, told)}) == 1


def test_keybert_asks_the_strategys_own_embedder(
    shelf: Any, tmp_path: Path, config_folder: Path
) -> None:
    tiny = (config_folder / "strategies" / "tiny.yaml").read_text(encoding="utf-8")
    (config_folder / "strategies" / "bert.yaml").write_text(
        tiny + "views: {keyphrases: {method: keybert, topk: 3}}\n", encoding="utf-8"
    )
    (tmp_path / "ports.md").write_text(PAGE, encoding="utf-8")
    catalog = reader(shelf, shelf.ingest(tmp_path / "ports.md", strategy="bert"))
    assert all(len(entry.keyphrases) == 3 for entry in _entries(catalog))
    catalog.close()


def test_an_unknown_method_or_model_is_refused_by_name(settings: Any, config_folder: Path) -> None:
    tiny = (config_folder / "strategies" / "tiny.yaml").read_text(encoding="utf-8")
    (config_folder / "strategies" / "bad.yaml").write_text(
        tiny + "views: {keyphrases: {method: rake}}\n", encoding="utf-8"
    )
    with pytest.raises(ConfigError, match=r"views\.keyphrases\.method"):
        load_strategy(settings, "bad")
