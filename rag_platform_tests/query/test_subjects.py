"""What a question is about: the words of preferences and commands are left out of it, and nothing
else.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_platform.answering.engine import answer
from rag_platform.config.settings import Limits
from rag_platform.ir import QueryRequest
from rag_platform.query.analysis import (
    clean,
    find_subject,
    prepare,
    relax,
    reword,
    subject_of,
    undo,
)
from rag_platform.query.constants import MAX_RULED_CHARS
from rag_platform.retrieval.library import Library


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # preferences
        ("最新的 API 设计规范", "API 设计规范"),
        ("最新规定多久报销？", "规定多久报销？"),
        ("最近的公告讲了什么", "公告讲了什么"),
        ("newest response cookies", "response cookies"),
        ("What is the latest way to set headers?", "What is way to set headers?"),
        ("set headers, latest version", "set headers, version"),
        ("the most recent docs about cookies", "cookies"),
        ("官方发布的多模态方案", "多模态方案"),
        ("官方文档里怎么报销？", "怎么报销？"),
        ("官方网站怎么登录", "网站怎么登录"),
        ("official guide to dependencies", "to dependencies"),
        ("What do the official docs say about headers?", "What do the say about headers?"),
        ("the official statement on refunds", "the statement on refunds"),
        ("带图的安装步骤", "安装步骤"),
        ("怎么安装？要带图", "怎么安装？"),
        ("explain the architecture with a picture", "the architecture"),
        ("Show me documentation with images about headers", "headers"),
        # commands
        ("summarise response headers", "response headers"),
        ("Summarize briefly for me an overview of headers", "headers"),
        ("Could you please explain dependencies with yield?", "dependencies with yield?"),
        ("Give me a short summary of response cookies", "response cookies"),
        ("I'd like an overview of templates", "templates"),
        ("list documents about cookies", "cookies"),
        ("find the most recent guide to cookies", "cookies"),
        ("Introduction to cookies", "cookies"),
        ("show me how to set cookies", "how to set cookies"),
        ("response cookies, briefly", "response cookies"),
        ("response cookies overview", "response cookies"),
        ("总结一下系统组成", "系统组成"),
        ("請總結系統組成", "系統組成"),
        ("麻烦您给我详细介绍一下关于报销的流程", "报销的流程"),
        ("把系统组成总结一下", "把系统组成"),
        ("系统组成的概述", "系统组成"),
        ("查一下报销流程", "报销流程"),
        ("文档 依赖注入", "依赖注入"),
    ],
)
def test_words_of_preferences_and_commands_are_left_out(text: str, expected: str) -> None:
    assert find_subject(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        # nothing that carries meaning would be left
        "总结一下",
        "summarise the latest",
        "What is the latest?",
        "overview of the newest",
        # the words are the subject
        "说明书在哪里",
        "解释器怎么安装",
        "如何写论文的摘要",
        "What is in the executive summary?",
        "EXPLAIN plan of a query",
        "list comprehension",
        "find files on the Windows drive",
        "What documents are needed for a visa?",
        "How do I upload files with images?",
        "如何发送带图片的消息",
        "带图标的按钮",
        "the latest-tag of an image",
        "submit it at the latest on Monday",
        "离北京最近的城市",
        "What is the official language of Kenya?",
        "请求头是什么",
        "response cookies",
    ],
)
def test_other_words_stay(text: str) -> None:
    assert find_subject(text) == text


def test_a_long_text_stays() -> None:
    assert (
        find_subject(f"summarise {'x' * MAX_RULED_CHARS}") == f"summarise {'x' * MAX_RULED_CHARS}"
    )


def test_what_is_searched_stays_whole() -> None:
    query = prepare("summarise the latest refunds, PDF only", Limits())
    assert subject_of(query) == "refunds"
    assert query.dense_text == query.normalised == "summarise the latest refunds"
    assert query.sparse_query == "summarise latest refunds"
    assert subject_of(relax(query)) == subject_of(undo(query)) == "refunds, PDF only"
    assert subject_of(reword(query, "newest money back")) == "money back"
    assert subject_of(prepare("newest refunds", Limits(), infer=False)) == "refunds"


@pytest.mark.parametrize(
    "text",
    [
        "newest maximum upload size",
        "the latest on maximum upload size",
        "official guide to maximum upload size",
        "summarize the maximum upload size",
        "Show me documentation with images about maximum upload size",
    ],
)
def test_preferences_and_commands_cost_no_answer(guide: Any, library: Library, text: str) -> None:
    bare, asked = (
        answer(library, QueryRequest("maximum upload size", "default")),
        answer(library, QueryRequest(text, "default")),
    )
    assert asked.answered and bare.answered
    # the vector of what is left still has a word such as `on` or `the`
    assert asked.confidence == pytest.approx(bare.confidence, abs=0.005)
    assert asked.citations[0].chunk_id == "guide-0"


@pytest.mark.parametrize(
    "text",
    ["summarize the French Revolution", "the latest recipe for pancakes", "总结一下法国大革命"],
)
def test_what_the_library_does_not_hold_stays_unknown(
    guide: Any, library: Library, text: str
) -> None:
    assert not answer(library, QueryRequest(text, "default")).answered


@given(
    st.text(max_size=120)
    | st.text(
        alphabet="总结一下最新的官方带图 summary of the latest docs with images,。", max_size=60
    )
)
def test_any_text_keeps_a_subject(text: str) -> None:
    cleaned = clean(text)
    kept = find_subject(cleaned)
    assert len(kept) <= len(cleaned)
    assert bool(kept) == bool(cleaned)


@pytest.mark.perf
@pytest.mark.parametrize(
    "piece",
    [
        "the ",
        "summary of ",
        "with images ",
        "总结一下",
        "的概述",
        "最新的",
        "please ",
        ", ",
        "带图",
        "a ",
    ],
)
def test_no_wording_makes_it_slow(piece: str) -> None:
    text = (piece * MAX_RULED_CHARS)[:MAX_RULED_CHARS]
    find_subject(text)
    started = time.process_time()
    find_subject(text)
    assert time.process_time() - started < 0.1


def test_questions_of_public_sets_keep_their_words(material: Path) -> None:
    """Seven of 7,400: six where nothing that is asked for goes, one where a verb of the text
    does.
    """
    files = [
        *sorted((material / "retrieval").glob("*/queries.jsonl")),
        material / "pdf-qa" / "questions.jsonl",
    ]
    rows = [
        json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()
    ]
    texts = {
        clean(row.get("text") or row["question"])
        for row in rows
        if row.get("text") or row.get("question")
    }
    assert len(texts) > 7000
    assert sum(find_subject(text) != text for text in texts) < 10
