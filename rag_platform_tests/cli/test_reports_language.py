"""What evaluations, traces, drafts and differences of releases print, in Chinese."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from rag_platform.cli.main import main
from rag_platform.ledger.schema import now
from rag_platform_tests.conftest import Shelf

pytestmark = pytest.mark.integration

_HEAD = re.compile(r"^(\|.+\|)\n\| ?---", re.MULTILINE)
# names that are typed, and figures
_NAME = re.compile(r"[a-z_]+(\.[a-z_]+)+(@\d+)?|(p50|p95|p99) ms|95 %|trace|token", re.ASCII)


def show(*arguments: str) -> str:
    """What a command prints for a Chinese reader."""
    return CliRunner().invoke(main, arguments, env={"RAG_LANG": "zh"}).output


def test_reports_are_in_the_language_of_their_reader(published: Shelf, tmp_path: Path) -> None:
    path = tmp_path / "ports.jsonl"
    case = {"case_id": "port", "query": "zebra quotas", "expected_text": [{"text": "port 8080"}]}
    path.write_text(json.dumps(case) + "\n", encoding="utf-8")
    for raw in (published.store.home / "raw").rglob("*"):
        if raw.is_file():
            raw.rename(raw.with_suffix(".away"))
    assert re.search(r"\n- \S+ 的 chk_\w+：raw_missing：原始字节不见了", show("verify", "--all"))
    for raw in (published.store.home / "raw").rglob("*.away"):
        raw.rename(raw.with_suffix(""))
    run = show("eval", "run", "--dataset", str(path))
    assert "# ports，策略 " in run
    assert "| 指标 | 均值 | 95 % | 用例 |" in run
    assert "报告和用例结果：" in run
    run_id = next(iter(re.findall(r"eval_\w+", run)))
    shown = {
        "missed": show("eval", "show", run_id, "--failed"),
        "list": show("eval", "list"),
        "same": show("eval", "compare", run_id, run_id),
        "trend": show("eval", "trends", "retrieval.mrr@10"),
        "canaries": show("eval", "canaries"),
        "stats": show("trace", "stats"),
        "diff": show("eval", "compare", run_id, run_id),
    }
    heads = [head for text in shown.values() for head in _HEAD.findall(text)]
    assert len(heads) >= 7
    assert not [head for head in heads if re.search("[A-Za-z]{2}", _NAME.sub("", head))]
    assert "未达到的用例：\n- port: zebra quotas (" in shown["missed"]
    assert "个金丝雀问题中，" in shown["canaries"]
    assert "\n此前能找到的都没有丢失。" in shown["canaries"]
    assert "## 阶段\n" in shown["stats"] and "\n最近 24 小时：" in shown["stats"]
    assert "还没有；请用 rag expect add" in show("expect", "list")
    show("expect", "add", "zebra quotas", "--text", "no such words")
    assert re.search(
        r"未通过 exp_\w+  zebra quotas：没有这段文字（追踪 trc_", show("expect", "run")
    )
    assert " 中没有草稿" in show("drafts", "list")
    assert re.search("最近 30 天的 [0-9]+ 个问题中，", show("eval", "gaps"))


def test_words_of_documents_stay_as_they_are(published: Shelf, tmp_path: Path) -> None:
    """A question that reads like a message of the program is shown as it was asked."""
    path = tmp_path / "none.jsonl"
    cases = [
        {"case_id": word, "query": word, "expected_text": [{"text": "port 8080"}]}
        for word in ("metric", "no traces")
    ]
    path.write_text("".join(json.dumps(case) + "\n" for case in cases), encoding="utf-8")
    run_id = next(iter(re.findall(r"eval_\w+", show("eval", "run", "--dataset", str(path)))))
    cases_shown = show("eval", "cases", run_id)
    assert "- metric: metric (" in cases_shown and "- no traces: no traces (" in cases_shown


def test_a_release_is_shown_in_a_few_lines(published: Shelf) -> None:
    lines = show("releases", "show").splitlines()
    assert len(lines) < 15 and "个文档，" in lines[0] and lines[1].startswith("策略 ")
    (proved,) = [line for line in lines if line.startswith("- 通过：provenance_proved：")]
    assert " 个新版本的 " in proved and proved.endswith(" 个文本块")
    assert lines[-1].endswith(" --namespace default --json` 输出完整的清单。")
    assert "| 版本 | 接收时间 | 状态 | 字节 | 文本块 |" in show("docs", "history", "ports")


def test_the_status_names_the_embedder_shortly(published: Shelf) -> None:
    lines = show("status").splitlines()
    assert lines[1].endswith("向量模型 hashing-256") and "- 台账：" in lines[-2]
    rows = json.loads(show("status", "--json"))["data"]["namespaces"]
    assert rows[0]["embedder"] == "hashing-256 1"


def test_documents_and_releases_are_shown_in_the_language_of_their_reader(
    published: Shelf, tmp_path: Path
) -> None:
    doc_id = published.ledger.documents("default")[0].doc_id
    outline, chunks = show("docs", "show", doc_id), show("docs", "show", doc_id, "--format=chunks")
    assert "版本 `" in outline and re.search(r"^ *- .+（\d+ 个文本块）$", outline, re.MULTILINE)
    assert re.search(r"^`chk_\w+` .*第 [\d-]+ 行", chunks, re.MULTILINE)
    assert "已移除：" in (dropped := show("docs", "show", doc_id, "--dropped")) or (
        "没有移除任何内容。" in dropped
    )
    assert re.search(r"已发布 .*\d+ 个文档；\d+ 个文本块；.*发布于 20", show("releases", "list"))
    path = tmp_path / "note.md"
    path.write_text("# Note\n\nOne line.\n", encoding="utf-8")
    preview = show("preview", str(path))
    assert "note.md：markdown，18 个字符，1 个章节，1 个文本块，0 张图片（策略 " in preview
    assert "\n章节（字符范围、文本块数、路径）\n" in preview and "第 1-3 行" in preview


def test_jobs_are_listed_with_their_states_in_the_language_of_their_reader(
    published: Shelf,
) -> None:
    job_id = published.ledger.add_job("rebuild", "default", {}).job_id
    published.ledger.update_job(job_id, state="partly", started_at=now(), ended_at=now())
    assert f"{job_id}  rebuild  部分完成" in show("jobs", "list")
    listed = json.loads(show("jobs", "list", "--json"))["data"]["markdown"]
    assert f"{job_id}  rebuild  partly" in listed


def test_the_remedy_for_a_damaged_release_names_its_library(published: Shelf) -> None:
    """What reads the files does not know it."""
    (release,) = (published.store.home / "releases" / "default").glob("2*")
    catalog = release / "catalog.sqlite"
    catalog.chmod(0o644)
    catalog.write_bytes(b"no database" * 1000)
    said = show("query", "zebra")
    assert "`rag rebuild --full --namespace default`" in said and "请用" in said, said
