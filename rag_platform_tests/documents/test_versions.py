"""Stages of a version: what a stage hands on is what it stored, and half of a stage never stays."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from rag_platform.config.settings import Settings, Strategy
from rag_platform.documents import versions
from rag_platform.documents.versions import STAGES, VersionBuild, build_stage
from rag_platform.intake.receiving import ReceiveOptions, receive
from rag_platform.ledger.ledger import Ledger
from rag_platform.messages import translate_filled
from rag_platform.storage.store import Store, Writes
from rag_platform.workspace import Workspace

TEXT = (
    "---\n"
    "title: Ports\n"
    "---\n"
    "# Ports\r\n"
    "\r\n"
    "The gateway listens on 8080.\n"
    "\n"
    "![a](a.png)\n"
    "\n"
    "## 端口\n"
    "\n"
    "| a | b |\n"
    "|---|---|\n"
    "| 1 | 2 |\n"
)


@pytest.fixture
def work(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    settings: Settings,
    tiny: Strategy,
    store: Store,
    ledger: Ledger,
) -> VersionBuild:
    source = tmp_path / "docs" / "ports.md"
    source.parent.mkdir()
    source.write_text(getattr(request, "param", TEXT), encoding="utf-8", newline="")
    reception = receive(
        [source.parent],
        "default",
        Workspace(strategy=tiny, settings=settings, store=store, ledger=ledger),
        ReceiveOptions(),
    )
    return VersionBuild(
        ledger.version(reception.to_process[0]), tiny, settings, store, source, source.parent
    )


def again(work: VersionBuild, deferred: bool = False) -> VersionBuild:
    return VersionBuild(
        work.version,
        work.strategy,
        work.settings,
        work.store,
        work.origin,
        work.root,
        deferred=deferred,
    )


@pytest.mark.parametrize(
    "work", ["![](a.png) ![](b.png) ![](b.png)\n\n![](https://a.example/c.png)\n"], indirect=True
)
def test_each_reason_why_images_are_left_out_is_told_once(work: VersionBuild) -> None:
    told = {stage: build_stage(stage, work) for stage in STAGES}["media"].warnings
    assert told == (
        "3 images left out (not found): b.png ×2, a.png",
        "1 image left out (on the web, and media.fetch_remote is off): https://a.example/c.png",
    )
    assert translate_filled(f"s/ports.md: {told[0]}", "zh") == (
        "s/ports.md：3 张图片未收录（未找到）：b.png ×2, a.png"
    )


def test_what_a_stage_hands_on_is_what_it_stored(work: VersionBuild) -> None:
    built = [build_stage(stage, work) for stage in STAGES]
    stored = again(work)
    assert stored.facts == work.facts
    assert stored.links == work.links
    assert stored.sections == work.sections
    assert stored.chunks == work.chunks
    assert stored.views == work.views
    assert stored.normalised == work.normalised
    reused = [build_stage(stage, again(work)) for stage in STAGES]
    assert [dataclasses.replace(outcome, seconds=0.0) for outcome in reused] == [
        dataclasses.replace(outcome, seconds=0.0, reused=True) for outcome in built
    ]


def test_deferred_outputs_appear_with_the_commit(work: VersionBuild) -> None:
    deferred = again(work, deferred=True)
    for stage in STAGES:
        build_stage(stage, deferred)
    assert not deferred.path("views").is_file()
    deferred.writes.commit()
    assert again(work).views == deferred.views


def test_a_failing_stage_leaves_nothing_of_itself_and_all_of_the_stages_before(
    work: VersionBuild, monkeypatch: pytest.MonkeyPatch
) -> None:
    deferred = again(work, deferred=True)
    build_stage("raw_document", deferred)
    build_stage("facts", deferred)
    build_stage("media", deferred)
    real = Writes.records

    def full(self: Writes, path: Path, record: type[object], rows: list[object]) -> str:
        digest = real(self, path, record, rows)
        if record is versions.Section:
            raise OSError("no space left on device")
        return digest

    monkeypatch.setattr(Writes, "records", full)
    with pytest.raises(OSError, match="no space"):
        build_stage("sections", deferred)
    deferred.writes.commit()
    stored = again(work)
    assert stored.facts.summary.title == "Ports"
    assert not stored.path("sections").is_file() and not stored.path("edits").is_file()
    left = [path.name for path in work.store.home.rglob(".*.parquet.*")]
    assert left == []
