"""Versions that child processes build come to the same bytes, outcomes, failures and trace as those
that one process builds.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from rag_platform.config.settings import Settings, Strategy
from rag_platform.ingestion import version_workers
from rag_platform.ingestion.batches import ingest_versions
from rag_platform.ingestion.request import Hooks, IngestionTotals
from rag_platform.intake.receiving import ReceiveOptions, receive
from rag_platform.ir import Version
from rag_platform.ledger.ledger import open_ledger
from rag_platform.observability import tracing
from rag_platform.storage.store import Store
from rag_platform.workspace import Workspace

DOCUMENTS = 40  # besides the damaged one


@dataclass(frozen=True)
class Told:
    """What a run came to, and what it told."""

    totals: IngestionTotals
    outcomes: list[tuple[str, str, str, int, bool]]  # uri, stage, sha256, chunks or views, reused
    failures: list[tuple[str, str, str]]
    files: dict[str, bytes]
    rows: list[tuple[str, str, str, object]]
    spans: Counter[tuple[str, str]]
    all_within: bool  # one span that was open around the run


def library(folder: Path) -> Path:
    folder.mkdir()
    for number in range(DOCUMENTS + 1):
        words = "the same words" if number in (7, 8) else f"valve {number} and 阀门 {number}"
        (folder / f"note-{number:03}.md").write_text(
            f"# Note {number % 9}\n\nThis is about {words}.\n\n## More\n\n- one\n", encoding="utf-8"
        )
    return folder


def ingest(folder: Path, home: Path, settings: Settings, strategy: Strategy) -> Told:
    store = Store(home)
    ledger = open_ledger(store)
    parts = {
        "settings": settings.model_copy(update={"home": home}),
        "strategy": strategy,
        "store": store,
        "ledger": ledger,
    }
    received = receive([folder], "default", Workspace(**parts), ReceiveOptions())
    versions: list[Version] = [ledger.version(name) for name in received.to_process]
    damaged = next(version for version in versions if version.filename == "note-005.md")
    store.raw_path(damaged.file_sha256).write_bytes(b"damaged")
    outcomes: list[tuple[str, str, str, int, bool]] = []
    failures: list[tuple[str, str, str]] = []
    with (
        tracing.trace("ingestion", logs_dir=store.logs_dir, namespace="default") as trace,
        tracing.span("stage.all") as around,
    ):
        totals = ingest_versions(
            versions,
            Workspace(**parts),
            hooks=Hooks(
                on_outcome=lambda v, o: outcomes.append(
                    (v.filename, o.stage, o.sha256, int(o.counts.get("chunk_count", 0)), o.reused)
                ),
                on_failure=lambda v, stage, error: failures.append((v.filename, stage, error.code)),
            ),
        )
    lines = [
        json.loads(line)
        for path in store.logs_dir.glob("*.jsonl")
        for line in path.read_text().splitlines()
    ]
    mine = [
        line
        for line in lines
        if line.get("trace_id") == trace.trace_id and line["line"] == "span.end"
    ]
    stages = [line for line in mine if line["attrs"].get("version_id")]
    files = {
        path.relative_to(home).as_posix(): path.read_bytes()
        for area in ("facts", "versions")
        for path in (home / area).rglob("*")
        if path.is_file()
    }
    rows = [
        (d.doc_id, v.status, d.title, v.counts.get("chunks")) for d, v in ledger.live("default")
    ]
    ledger.close()
    return Told(
        totals,
        outcomes,
        failures,
        files,
        sorted(rows),
        Counter((line["name"], line["status"]) for line in stages),
        {line["parent_span_id"] for line in stages} == {around.span_id},
    )


@pytest.fixture
def two(settings: Settings) -> Settings:
    return settings.model_copy(update={"embedding_processes": 2})


def test_children_build_what_one_process_builds(
    tmp_path: Path,
    settings: Settings,
    two: Settings,
    tiny: Strategy,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(version_workers, "_MIN_VERSIONS", DOCUMENTS)
    folder = library(tmp_path / "docs")
    here, there = (
        ingest(folder, tmp_path / "here", settings, tiny),
        ingest(folder, tmp_path / "there", two, tiny),
    )
    assert len(here.files) > DOCUMENTS * 7 and here.files == there.files
    assert (
        sorted(here.outcomes) == sorted(there.outcomes)
        and here.rows == there.rows
        and len(here.rows) == DOCUMENTS
    )
    assert here.failures == there.failures == [("note-005.md", "raw_document", "raw_changed")]
    assert (
        (here.totals.documents, here.totals.chunks)
        == (there.totals.documents, there.totals.chunks)
        == (DOCUMENTS, there.totals.chunks)
    )
    assert (
        here.spans == there.spans
        and here.spans["stage.chunker", "ok"] == DOCUMENTS
        and here.spans["stage.dedup", "error"] == 1
    )
    assert here.all_within and there.all_within


def test_only_many_documents_that_need_no_model_go_apart(tiny: Strategy) -> None:
    note = Version(
        version_id="v",
        namespace="default",
        doc_id="d",
        source_uri="a.md",
        filename="a.md",
        file_sha256="0" * 64,
        size=1,
        mime="text/markdown",
        loader="markdown",
        strategy="tiny",
    )
    assert version_workers.are_worthwhile(
        tiny, [note] * 128
    ) and not version_workers.are_worthwhile(tiny, [note] * 127)
    keybert = tiny.views.model_copy(
        update={"keyphrases": tiny.views.keyphrases.model_copy(update={"method": "keybert"})}
    )
    assert not version_workers.are_worthwhile(
        tiny.model_copy(update={"views": keybert}), [note] * 128
    )
