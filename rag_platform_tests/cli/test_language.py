"""Help and errors of the command line in Chinese; in English and in JSON nothing changes."""

from __future__ import annotations

import json
import logging
import unicodedata

import pytest
from click.testing import CliRunner

from rag_platform.cli.language import say_lines
from rag_platform.cli.main import main
from rag_platform.cli.progress import progress_bar
from rag_platform.messages import translate_filled


def run(*arguments: str, language: str = "zh") -> str:
    """What a command prints on both outputs."""
    return CliRunner().invoke(main, arguments, env={"RAG_LANG": language}).output


def test_help_is_chinese_and_the_commands_stay_english() -> None:
    shown = run("query", "--help")
    assert "用法：" in shown
    assert "要检索的知识库" in shown
    assert "显示帮助后退出。" in shown
    assert "Options" not in shown
    english = run("query", "--help", language="en")
    assert "Usage: " in english
    assert "The library to search" in english


def test_help_fits_the_window_although_characters_are_two_columns_wide() -> None:
    for line in run("docs", "delete", "--help").splitlines():
        columns = sum(1 + (unicodedata.east_asian_width(sign) in "WF") for sign in line)
        assert columns <= 80, line
        assert line.lstrip()[:1] not in tuple("，。；：、）"), line


def test_the_overview_is_chinese() -> None:
    shown = run()
    assert shown.startswith("放入文档，得到带引用的回答。")
    assert "rag ingest ~/notes" in shown
    assert "运维：" in run("--help")


def test_errors_are_chinese_for_people_and_english_for_programs() -> None:
    assert "'--top-k' 的值无效：0 不在范围 1<=x<=100 内。" in run("query", "x", "--top-k", "0")
    assert "没有命令 'qury'" in run("qury")
    envelope = json.loads(run("query", "x", "--top-k", "0", "--json"))
    assert envelope["error"]["code"] == "usage"
    assert envelope["error"]["message"].startswith("Invalid value for '--top-k'")


def test_what_is_logged_to_a_terminal_is_chinese(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAG_LANG", "zh")
    run("sources", "--help")
    message = "traces and logs of this process are not kept: /srv/logs cannot be written (%s)"
    record = logging.makeLogRecord({"msg": message, "args": ("Read-only file system",)})
    assert logging.lastResort is not None
    told = "本进程的追踪和日志未能保存：/srv/logs 不可写（只读文件系统）"
    assert logging.lastResort.format(record) == told


def test_a_line_below_a_row_is_chinese(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAG_LANG", "zh")
    row = "job_1  ingest   partly     2026-11-25T22:32:37Z  default\n  "
    assert say_lines(f"{row}2 documents failed; `rag jobs retry job_1` tries them again") == (
        f"{row}2 个文档失败；`rag jobs retry job_1` 可重试"
    )
    assert say_lines("  documents 3 of 8 known so far") == "  文档：3 / 目前已知 8"
    for state, said in (("open", "编辑中"), ("not yet published", "尚未发布")):
        assert say_lines(f"gate.md: {state}, 2 operations") == f"gate.md：{said}，2 个操作"
    # the last column may be what a user asked
    assert say_lines("trc_1  query     ok  demo  no traces").endswith("  no traces")


def test_the_states_in_a_table_are_chinese(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAG_LANG", "zh")
    table = "| version | state | bytes |\n|---|---|---|\n| 1a2b | ready, live, edition 3c4d | 9 |"
    assert say_lines(f"{table}\n| ready | failed | 8 |\n\n| x | ready |") == (
        "| 版本 | 状态 | 字节 |\n|---|---|---|\n| 1a2b | 就绪，在用，编辑版 3c4d | 9 |\n"
        "| ready | 失败 | 8 |\n\n| x | ready |"
    )


def test_a_report_of_the_gate_is_chinese_line_by_line() -> None:
    report = (
        "quality_gate: golden: FAILED\n"
        "- retrieval.hit_rate@10 is 0.750 over 4 questions, the floor is 0.9\nlost:\n"
        "- port: What is it? (rank 3 -> not found): its document is gone\n"
        "questions that missed, with their traces: `rag eval cases eval_1 --failed`"
    )
    assert translate_filled(report, "zh") == (
        "quality_gate：golden：未通过\n"
        "- retrieval.hit_rate@10 在 4 个问题上为 0.750，低于下限 0.9\n丢失：\n"
        "- port: What is it?（第 3 名 → 未找到）：其文档不在了\n"
        "未达要求的问题及其追踪：`rag eval cases eval_1 --failed`"
    )


def test_a_group_without_a_command_shows_its_help_once() -> None:
    shown = run("docs", language="en")
    assert shown.count("Usage: ") == 1
    assert "error [" not in shown
    assert json.loads(run("docs", "--json", language="en"))["ok"] is False


def test_progress_is_in_the_language_of_its_reader(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RAG_LANG", "zh")
    monkeypatch.setattr("rag_platform.cli.progress._LINE_SECONDS", 0.0)
    with progress_bar(False) as advance:
        advance("embeddings", 3, 9)
    assert capsys.readouterr().err == "向量 3 / 9\n"
