"""Canaries: made of documents, asked of the next release, and told apart where they are lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from rag_platform.config.settings import CanarySettings
from rag_platform.errors import InputError
from rag_platform.evaluation.monitoring.canaries import (
    CanaryReport,
    ask_canaries,
    canaries_markdown,
)
from rag_platform.evaluation.runs import open_library
from rag_platform.registry import make_provider
from rag_platform_tests.conftest import Shelf

TEXTS = {
    "ports": "The gateway listens on port 8080 behind the northern firewall.",
    "keys": "Signing keys rotate every ninety days in the copper vault.",
    "quota": "| bucket class | limit |\n|---|---|\n| archive glacier tier | forty units |",
    "zh": "日志保存三十天之后自动删除，归档到冷存储服务器。",
}
CONFIG = CanarySettings(seconds=60)


@pytest.fixture
def folder(shelf: Shelf, tmp_path: Path) -> Path:
    docs = tmp_path / "docs"
    docs.mkdir()
    for name, text in TEXTS.items():
        (docs / f"{name}.md").write_text(f"# {name}\n\n{text}\n", encoding="utf-8")
    return docs


def ask(shelf: Shelf, after: str, before: str | None, seconds: float = 60) -> CanaryReport:
    config = CanarySettings(seconds=seconds)
    with open_library(shelf.settings, shelf.store) as library:
        return ask_canaries(library, "default", config, after, before)


def test_each_document_has_its_own_and_they_are_found(shelf: Shelf, folder: Path) -> None:
    release = shelf.ingest(folder)
    provider = make_provider("dataset", "canaries", {"per_document": 2})
    dataset = provider.load(shelf.store.release_dir("default", release))
    assert dataset.cases == provider.load(shelf.store.release_dir("default", release)).cases
    files = {case.expected_text[0].file.rsplit("/")[-1] for case in dataset.cases}
    assert files == {f"{name}.md" for name in TEXTS}
    assert {tag for case in dataset.cases for tag in case.tags} == {"phrase", "heading", "table"}
    assert "archive glacier tier forty units" in {case.query for case in dataset.cases}
    report = ask(shelf, release, None)
    assert report.lost == () and report.run is not None
    assert report.run.cases == report.made == len(dataset.cases)
    assert report.run.aggregates["retrieval.hit_rate@10"]["value"] == 1.0
    with pytest.raises(InputError, match="is no release"):
        provider.load(folder)


def test_a_text_under_no_heading_is_asked_for_by_its_own_words(
    shelf: Shelf, tmp_path: Path
) -> None:
    (tmp_path / "note.md").write_text(TEXTS["keys"] + "\n", encoding="utf-8")
    release = shelf.ingest(tmp_path / "note.md")
    provider = make_provider("dataset", "canaries", {"per_document": 2})
    (case,) = provider.load(shelf.store.release_dir("default", release)).cases
    assert case.tags == ("phrase",) and "copper vault" in case.query


def test_lost_ones_are_told_apart(shelf: Shelf, folder: Path) -> None:
    first = shelf.ingest(folder, sync=True)
    (folder / "keys.md").unlink()
    (folder / "ports.md").write_text("# ports\n\nNothing of that any more.\n", encoding="utf-8")
    second = shelf.ingest(folder, sync=True)
    report = ask(shelf, second, first)
    causes = {(item["document"].rsplit("/")[-1], item["cause"]) for item in report.lost}
    assert causes == {("keys.md", "document_gone"), ("ports.md", "text_gone")}
    assert report.alarms == ()
    assert "| document_gone |" in canaries_markdown(report)


def test_a_text_that_others_outrank_is_an_alarm(shelf: Shelf, folder: Path) -> None:
    first = shelf.ingest(folder, sync=True)
    words = "gateway listens port 8080 behind northern firewall"
    for number in range(12):
        (folder / f"copy{number}.md").write_text(
            f"# ports\n\nThe {words} number {number}. {words}.\n", encoding="utf-8"
        )
    second = shelf.ingest(folder, sync=True)
    report = ask(shelf, second, first)
    assert {(item["document"].rsplit("/")[-1], item["cause"]) for item in report.alarms} == {
        ("ports.md", "outranked")
    }
    first_alarm = report.alarms[0]
    assert "copy" in first_alarm["by"] and first_alarm["trace_id"].startswith("trc_")


def test_the_budget_bounds_the_questions(shelf: Shelf, folder: Path) -> None:
    for number in range(12):
        (folder / f"more{number}.md").write_text(
            f"# more{number}\n\nThe lantern numbered {number} hangs over canal {number + 40}.\n",
            encoding="utf-8",
        )
    release = shelf.ingest(folder)
    report = ask(shelf, release, None, seconds=0.0001)
    assert report.run is not None and report.run.cases == 8 < report.made
