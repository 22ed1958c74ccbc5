"""Unexpected exceptions of ingestion, of jobs and of child processes: logged with their stack
trace, counted, told.
"""

from __future__ import annotations

import errno
import json
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest

from rag_platform.chunkers.recursive import Recursive
from rag_platform.errors import ProviderError, RagError, StorageError
from rag_platform.indexes.embedding_pool import EmbeddingWorker
from rag_platform.observability import faults, tracing
from rag_platform.providers.hashing import Hashing
from rag_platform_tests.conftest import TINY


def logged(logs_dir: Path) -> list[dict[str, Any]]:
    """The program's log."""
    lines = [
        json.loads(line)
        for path in logs_dir.glob("20*.jsonl")
        for line in path.read_text(encoding="utf-8").splitlines()
    ]
    return [line for line in lines if line["line"] == "log"]


def broken(*_: Any, **__: Any) -> Any:
    raise AttributeError("planted in broken")


def raised(error: Exception) -> Exception:
    try:
        raise error
    except Exception as caught:
        return caught


# --- one process --------------------------------------------------------------------------------


def test_an_error_is_logged_once_however_many_see_it(tmp_path: Path) -> None:
    with (
        pytest.raises(KeyError),
        tracing.trace("query", logs_dir=tmp_path),
        tracing.span("stage.outer"),
        tracing.span("stage.fusion"),
    ):
        raise KeyError("x")
    (line,) = logged(tmp_path)
    assert (line["stage"], line["type"], line["message"]) == (
        "stage.fusion",
        "KeyError",
        "unexpected KeyError in stage.fusion: 'x'",
    )
    found = faults.summary(tmp_path)
    assert (found["count"], found["since"], found["latest"]["stage"]) == (
        1,
        line["ts"],
        "stage.fusion",
    )
    assert found["latest"]["trace_id"] == line["trace_id"]


def test_many_of_one_trace_at_one_place_are_one(tmp_path: Path) -> None:
    for _ in range(2):
        with tracing.trace("ingestion", logs_dir=tmp_path):
            for _ in range(5):
                faults.report(raised(ValueError("x")), "model.embed")
    assert faults.summary(tmp_path)["count"] == 2


@pytest.mark.parametrize(
    "error",
    [
        RagError("x"),
        FileNotFoundError("x"),
        KeyboardInterrupt(),
        sqlite3.OperationalError("database or disk is full"),
    ],
)
def test_what_is_foreseen_is_no_fault(tmp_path: Path, error: BaseException) -> None:
    with tracing.trace("query", logs_dir=tmp_path):
        faults.report(error, "stage.fusion")
    assert faults.summary(tmp_path) == {}


def test_an_error_met_while_another_one_is_handled_is_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where that one was of the storage, and where the current folder is gone."""
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with tracing.trace("query", logs_dir=tmp_path):
        try:
            try:
                raise StorageError("it is read-only", code="read_only")
            except StorageError:
                {}["missing"]
        except KeyError as error:
            faults.report(error, "stage.fusion")
        try:
            raise ValueError("the index broke") from OSError(
                errno.ENOSPC, "No space left on device"
            )
        except ValueError as error:
            faults.report(error, "stage.sparse")
    found = faults.summary(tmp_path)
    assert (found["count"], found["latest"]["stage"]) == (1, "stage.fusion")


def test_a_stack_trace_quotes_no_document(tmp_path: Path) -> None:
    secret = "The budget of the secret project is 4711 EUR. " * 50
    with tracing.trace("query", logs_dir=tmp_path):
        try:
            raise ValueError(secret)
        except ValueError as cause:
            with pytest.raises(TypeError), tracing.span("stage.rerank"):
                raise TypeError(secret) from cause
    (line,) = logged(tmp_path)
    assert (
        "ValueError: The budget" in line["exception"]
        and "TypeError: The budget" in line["exception"]
    )
    assert line["exception"].count("4711") <= 10 and len(line["message"]) < 300
    assert "4711" not in (tmp_path / faults.FILE_NAME).read_text(encoding="utf-8")


def test_secrets_of_an_error_are_redacted(tmp_path: Path) -> None:
    with tracing.trace("query", logs_dir=tmp_path):
        faults.report(raised(ValueError("refused key sk-abcdefghijklmnopqrstuvwxyz")), "model.call")
    (line,) = logged(tmp_path)
    assert (
        "sk-abcdef" not in line["exception"] + line["message"] and "[redacted]" in line["exception"]
    )


def test_a_version_is_named_so_that_its_deletion_finds_the_line(tmp_path: Path) -> None:
    with tracing.trace("ingestion", logs_dir=tmp_path), faults.about("default.a@1"):
        faults.report(raised(ValueError("x")), "inner")
    assert logged(tmp_path)[0]["version_id"] == "default.a@1"


def test_without_a_trace_the_folder_that_is_named_takes_it(tmp_path: Path) -> None:
    faults.report(raised(ValueError("x")), "warming", logs_dir=tmp_path)
    assert logged(tmp_path)[0]["trace_id"] == "" and "logs/20" in faults.sentence(
        faults.summary(tmp_path)
    )


def test_threads_count_every_one(tmp_path: Path) -> None:
    def work(number: int) -> None:
        with tracing.trace("query", logs_dir=tmp_path):
            faults.report(raised(ValueError(str(number))), "stage.fusion")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults.summary(tmp_path)["count"] == 20


# --- child processes ----------------------------------------------------------------------------


@pytest.mark.integration
def test_a_bug_in_an_embedders_process_comes_with_its_stack_trace(tmp_path: Path) -> None:
    worker = EmbeddingWorker("rag_platform_tests.broken_providers:BrokenEmbedder", {})
    try:
        with (
            tracing.trace("ingestion", logs_dir=tmp_path),
            pytest.raises(ProviderError, match="AttributeError: planted in embed"),
        ):
            worker.embed(["a"], seconds=60)
    finally:
        worker.close()
    (line,) = logged(tmp_path)
    assert (
        line["stage"] == "model.embed"
        and "broken_providers.py" in line["exception"]
        and line["trace_id"].startswith("trc_")
    )


# --- ingestion ----------------------------------------------------------------------------------


def told(desk: Any) -> dict[str, Any]:
    """What `rag status` counts."""
    found: dict[str, Any] = desk.call("status").data["unexpected_errors"]
    return found


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("owner", "name", "stage"),
    [(Recursive, "spans", "stage.chunker"), (Hashing, "embed", "model.embed")],
)
def test_a_bug_in_a_stage_costs_its_documents_and_is_seen(
    owner: type, name: str, stage: str, desk: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.write(guide="# Limits\n\nThe largest upload is 50 MB.\n")
    getattr(owner, name)
    monkeypatch.setattr(owner, name, broken)
    outcome = desk.call("ingest", desk.docs)
    assert (
        outcome.data["failed"] == 1 and "planted in broken" in outcome.data["failures"][0]["reason"]
    )
    found = told(desk)
    assert (found["count"], found["latest"]["stage"], found["latest"]["type"]) == (
        1,
        stage,
        "AttributeError",
    )
    (line,) = logged(desk.store.logs_dir)
    assert (
        "in broken" in line["exception"] and line["trace_id"] == found["latest"]["trace_id"] != ""
    )


@pytest.mark.e2e
def test_a_bug_in_a_loaders_process_is_seen(desk: Any) -> None:
    text = TINY.replace(
        "loaders:",
        "loaders:\n    - {provider: 'rag_platform_tests.broken_providers:BrokenLoader'}",
        1,
    )
    assert text != TINY
    (desk.folder / "config" / "strategies" / "tiny.yaml").write_text(text, encoding="utf-8")
    (desk.docs / "notes.txt").write_text("Some notes.\n", encoding="utf-8")
    outcome = desk.call("ingest", desk.docs)
    assert outcome.data["failures"][0]["code"] == "parser_failed"
    assert (told(desk)["count"], told(desk)["latest"]["stage"]) == (1, "stage.loader")
    (line,) = logged(desk.store.logs_dir)
    assert (
        "planted in load" in line["exception"]
        and "broken_providers.py" in line["exception"]
        and line["version_id"].startswith("default.")
    )


@pytest.mark.e2e
def test_a_bug_in_a_command_is_seen(desk: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rag_platform.processes.jobs.summary", broken)
    desk.write(guide="# Limits\n\nThe largest upload is 50 MB.\n")
    desk.call("ingest", desk.docs)
    before = len(logged(desk.store.logs_dir))
    outcome = desk.call("jobs", "list")
    assert outcome.envelope["error"]["code"] == "internal_error"
    assert (
        len(logged(desk.store.logs_dir)) == before + 1
        and told(desk)["latest"]["type"] == "AttributeError"
    )
