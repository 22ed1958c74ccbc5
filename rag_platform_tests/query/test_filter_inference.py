"""Filters told from the words of a question: what asks for one, and above all what does not."""

from __future__ import annotations

import json
import time
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_platform.config.query import InferenceConfig
from rag_platform.query.analysis import clean
from rag_platform.query.constants import MAX_RULED_CHARS
from rag_platform.query.filter_inference import describe_condition, infer_filters
from rag_platform.query.filters import plan

TODAY = date(2026, 11, 22)
CONFIG = InferenceConfig()
PDF = {"content_type": "application/pdf"}
WORD = {"content_type": "application/vnd.openxmlformats-officedocument.wordprocessingml.document"}


def told(text: str, config: InferenceConfig = CONFIG) -> tuple[dict[str, Any], str]:
    found = infer_filters(clean(text), today=TODAY, config=config)
    return found.filters, found.rest


def tag(value: str) -> dict[str, Any]:
    return {"tags": {"$contains": value, "$missing": "exclude"}}


def keyphrase(value: str) -> dict[str, Any]:
    return {"keyphrases": {"$contains": value, "$missing": "exclude"}}


def source(value: str) -> dict[str, Any]:
    return {"source": {"$eq": value, "$missing": "exclude"}}


@pytest.mark.parametrize(
    ("text", "filters", "rest"),
    [
        # kinds of files and media
        ("报销流程, PDF only", PDF, "报销流程"),
        ("报销流程（仅PDF）", PDF, "报销流程"),
        ("只要ＰＤＦ：报销流程", PDF, "报销流程"),
        ("What is the refund policy, PDF only please", PDF, "What is the refund policy"),
        ("expense policy pdf only", PDF, "expense policy"),
        ("search only the PDFs for the refund policy", PDF, "the refund policy"),
        ("关于报销的PDF文档", PDF, "关于报销的"),
        ("哪些PDF文件提到了退款", PDF, "哪些 提到了退款"),
        ("报销流程 word 文档", WORD, "报销流程"),
        (
            "What does it say about caching in the markdown files?",
            {"content_type": "text/markdown"},
            "What does it say about caching?",
        ),
        ("只看图片 架构", {"media_type": "image"}, "架构"),
        ("images only: architecture", {"media_type": "image"}, "architecture"),
        # language
        ("只看英文 怎么部署", {"lang": "en"}, "怎么部署"),
        ("依赖注入 只看中文", {"lang": "zh"}, "依赖注入"),
        ("依赖注入怎么用 请只查英文文档", {"lang": "en"}, "依赖注入怎么用"),
        ("中文文档：怎么部署", {"lang": "zh"}, "怎么部署"),
        ("在英文资料中，什么是向量", {"lang": "en"}, "什么是向量"),
        ("what is a vector (English only)", {"lang": "en"}, "what is a vector"),
        ("In the English docs, what is a dependency?", {"lang": "en"}, "what is a dependency?"),
        ("有没有英文文档?", {"lang": "en"}, "有没有?"),
        # quality
        ("质量>=0.8 报销流程", {"quality_score": {"$gte": 0.8}}, "报销流程"),
        ("质量≥0.8 报销流程", {"quality_score": {"$gte": 0.8}}, "报销流程"),
        ("报销流程 质量大于0.8", {"quality_score": {"$gt": 0.8}}, "报销流程"),
        ("质量大于0.8 报销流程", {"quality_score": {"$gt": 0.8}}, "报销流程"),
        ("报销 质量高于 80% 怎么提交", {"quality_score": {"$gt": 0.8}}, "报销 怎么提交"),
        ("质量不低于80%的文档里怎么报销", {"quality_score": {"$gte": 0.8}}, "文档里怎么报销"),
        ("refunds, quality at least 0.8", {"quality_score": {"$gte": 0.8}}, "refunds"),
        # time
        ("近一周的文档里怎么报销", {"created_at": {"$gte": "2026-11-15"}}, "怎么报销"),
        ("近一周 报销文档", {"created_at": {"$gte": "2026-11-15"}}, "报销文档"),
        ("报销制度文档 近一周", {"created_at": {"$gte": "2026-11-15"}}, "报销制度文档"),
        ("近一个月新增的资料", {"created_at": {"$gte": "2026-10-23"}}, "资料"),
        ("最近三天更新的文件", {"created_at": {"$gte": "2026-11-19"}}, "文件"),
        ("近三十天的文件", {"created_at": {"$gte": "2026-10-23"}}, "文件"),
        ("近半年的报告", {"created_at": {"$gte": "2026-05-24"}}, "报告"),
        (
            "documents from the last 7 days about refunds",
            {"created_at": {"$gte": "2026-11-15"}},
            "documents about refunds",
        ),
        (
            "documents from the last week about refunds",
            {"created_at": {"$gte": "2026-11-15"}},
            "documents about refunds",
        ),
        (
            "files updated in the past month on refunds",
            {"created_at": {"$gte": "2026-10-23"}},
            "files on refunds",
        ),
        ("refund policy, last 7 days", {"created_at": {"$gte": "2026-11-15"}}, "refund policy"),
        ("release notes since 2025-01", {"doc_date": {"$gte": "2025-01"}}, "release notes"),
        ("2024年的文档", {"doc_date": "2024"}, "文档"),
        ("2024 年 5 月发布的文档里的价格", {"doc_date": "2024-05"}, "文档里的价格"),
        ("2024年以后的文件 价格", {"doc_date": {"$gte": "2024"}}, "文件 价格"),
        (
            "documents from May 2024 about pricing",
            {"doc_date": "2024-05"},
            "documents about pricing",
        ),
        ("files dated 2024-05", {"doc_date": "2024-05"}, "files"),
        # a time and a name for the same documents
        ("近一周的PDF文档", {"created_at": {"$gte": "2026-11-15"}, **PDF}, "文档"),
        (
            "近三个月的中文文档 依赖注入",
            {"created_at": {"$gte": "2026-08-24"}, "lang": "zh"},
            "文档 依赖注入",
        ),
        (
            "近一周更新的PDF中文文档里怎么报销",
            {"created_at": {"$gte": "2026-11-15"}, "lang": "zh", **PDF},
            "怎么报销",
        ),
        ("2024年发布的英文文件 价格", {"doc_date": "2024", "lang": "en"}, "文件 价格"),
        (
            "PDF documents from the last week about refunds",
            {"created_at": {"$gte": "2026-11-15"}, **PDF},
            "documents about refunds",
        ),
        ("German notes since 2025-01", {"doc_date": {"$gte": "2025-01"}, "lang": "de"}, "notes"),
        # tags and sources
        ("标签：发票 怎么报销", tag("发票"), "怎么报销"),
        ("标签为发票的文档", tag("发票"), "文档"),
        ("tag:api rate limits", tag("api"), "rate limits"),
        ('rate limits tag:"rate limit"', tag("rate limit"), "rate limits"),
        ("怎么报销 #发票", tag("发票"), "怎么报销"),
        ("documents tagged invoice about refunds", tag("invoice"), "documents about refunds"),
        ('anything tagged "invoice"?', tag("invoice"), "anything?"),
        ("报销流程 来源 handbook", source("handbook"), "报销流程"),
        ("来源:handbook 怎么报销", source("handbook"), "怎么报销"),
        (
            "What is said on leave from source handbook?",
            source("handbook"),
            "What is said on leave?",
        ),
        # traditional characters; what is named stays as it is written
        ("標籤：發票 怎麼報銷", tag("發票"), "怎麼報銷"),
        ("近一週的檔案裡怎麼報銷", {"created_at": {"$gte": "2026-11-15"}}, "怎麼報銷"),
        ("只看圖片 架構", {"media_type": "image"}, "架構"),
        ("关键词:报销 怎么提交", keyphrase("报销"), "怎么提交"),
        ("keyword:refund deadlines", keyphrase("refund"), "deadlines"),
        # several at once, and one alone, which stays what is searched
        (
            "报销, 近一周的文档, PDF only",
            {"created_at": {"$gte": "2026-11-15"}, **PDF},
            "报销, 文档",
        ),
        ("只看中文", {"lang": "zh"}, "只看中文"),
    ],
)
def test_wording_that_asks_for_a_filter(text: str, filters: dict[str, Any], rest: str) -> None:
    assert told(text) == (filters, rest)
    compiled = plan(filters)
    assert compiled.where or compiled.drop


_SUBJECTS = """
哪一年推出中文版
How do I export to PDF?
近一周股价
PDF 如何转换为 word 文档
如何打开 word 文档
在Word文档中查找替换怎么用
How do I extract tables in PDF files?
How do I build FFmpeg from source statically?
install from source on Linux
from source code
C# 怎么用
How does #include work
#include <stdio.h> error
颜色 #ff00aa
质量大于0.8千克
质量大于 0.8 倍太阳质量的恒星
air quality above 0.8 ppm
质量大于 0.8 的行星有哪些
质量大于0.5 小于2 的恒星
行星质量大于0.8 半径大于1
近三年的英文文献综述怎么写
近三年的英文资料综述
近三年中文小说文章
系统 只看中文的用户
How are tagged unions implemented
git tag: how
HTML 标签:怎么用
标签是什么
只要PDF就可以上传吗
Is the app available in English only?
Does it accept PDF only?
仅英文版提供该功能吗
系统支持只上传 PDF 吗
non-PDF only
Over the last 3 years, what has been the revenue?
近三年发布的手机
最近三个月 iOS 更新
离北京最近的城市
来源 IP 怎么限制
中文文档如何翻译成英文
how to translate the English docs
近三年的文献综述怎么写
What documents were signed in 1945?
1945年的大事
open source: what
根據2015年的資料統計，香港的女性有多少人?
根据2015年的文件，谁负责
时间: 2022 来源: 时间: 2023
#密室大逃脱还有下一季吗？
质量>=5
the last 99999 days
近零天的文档
2024年13月的文档
2024年2月30日的文档
标签:
来源：
tag:
"PDF"
only
仅
"""


@pytest.mark.parametrize("text", _SUBJECTS.strip().splitlines())
def test_wording_that_asks_for_none(text: str) -> None:
    assert told(text) == ({}, clean(text))


@pytest.mark.parametrize(
    ("text", "preferences"),
    [
        ("最新的 API 设计规范", ("prefer_recent",)),
        ("the latest API design", ("prefer_recent",)),
        ("官方发布的多模态方案", ("prefer_official",)),
        ("official documentation of uploads", ("prefer_official",)),
        ("带图的安装步骤", ("prefer_has_image",)),
        ("explain the architecture with a picture", ("prefer_has_image",)),
        ("官方语言是什么", ()),
        ("What is the official language of Kenya?", ()),
        ("离北京最近的城市", ()),
        ("submit it at the latest on Monday", ()),
    ],
)
def test_preferences_are_told_and_their_words_stay(text: str, preferences: tuple[str, ...]) -> None:
    found = infer_filters(text, today=TODAY, config=CONFIG)
    assert (found.preferences, found.filters, found.rest) == (preferences, {}, text)


def test_each_filter_is_said_in_a_sentence() -> None:
    found = infer_filters("报销, PDF only", today=TODAY, config=CONFIG)
    assert found.explanations == ("`PDF only` asks for content_type = application/pdf",)
    assert infer_filters("标签:发票 报销", today=TODAY, config=CONFIG).explanations == (
        "`标签:发票` asks for tags with 发票",
    )


def test_bounds_are_said_as_of_times_or_of_numbers() -> None:
    assert describe_condition("quality_score", {"$gt": 0.1, "$lt": 0.8}) == (
        "quality_score above 0.1 below 0.8"
    )
    assert describe_condition("page", {"$gt": 5, "$missing": "exclude"}) == "page above 5"
    assert describe_condition("doc_date", {"$gt": "2024", "$lt": "2026"}) == (
        "doc_date after 2024 before 2026"
    )


def test_a_long_text_is_a_passage_and_asks_for_nothing() -> None:
    assert told(f"{'x' * 380}, PDF only")[0] == PDF
    text = f"{'x' * 400}, PDF only"
    assert told(text) == ({}, text)


def test_only_the_fields_of_the_configuration_are_told() -> None:
    assert told("报销, PDF only", InferenceConfig(fields=("tags",))) == ({}, "报销, PDF only")


def test_aliases_of_the_configuration() -> None:
    config = InferenceConfig(
        language_aliases={"国文,繁中": "zh", "Klingon": "tlh"},
        media_type_by_keyword={"影片, clip": "video", "可携式文件": "pdf"},
    )
    assert told("只看国文 报销", config) == ({"lang": "zh"}, "报销")
    assert told("klingon only: honour", config) == ({"lang": "tlh"}, "honour")
    assert told("clips only: honour", config) == ({"media_type": "video"}, "honour")
    assert told("只看可携式文件 报销", config) == (PDF, "报销")
    assert told("报销, PDF only", config) == (PDF, "报销")


@given(
    st.text(max_size=120)
    | st.text(
        alphabet="近一周的文档只看PDF only,质量>=0.8标签:# tag来源 source 2024年", max_size=60
    )
)
def test_any_text_is_read_and_what_is_told_compiles(text: str) -> None:
    cleaned = clean(text)
    found = infer_filters(cleaned, today=TODAY, config=CONFIG)
    plan(found.filters)
    assert bool(found.filters) == bool(found.explanations)
    assert found.rest == cleaned or (found.filters and len(found.rest) < len(cleaned))


@pytest.mark.perf
@pytest.mark.parametrize(
    "piece",
    [
        "近一周",
        "only pdf ",
        "质量",
        "tag:a",
        "关于的PDF文档",
        "in the pdf files ",
        "documents since ",
        "2024年",
        "# ",
        "只看",
        '"',
        "a ",
        "，",
        "1",
        "来源 a",
    ],
)
def test_no_wording_makes_it_slow(piece: str) -> None:
    text = (piece * MAX_RULED_CHARS)[:MAX_RULED_CHARS]
    infer_filters(text, today=TODAY, config=CONFIG)
    started = time.process_time()
    infer_filters(text, today=TODAY, config=CONFIG)
    # under 5 ms each; a pattern that backtracks would take seconds
    assert time.process_time() - started < 0.1


def test_questions_of_public_sets_ask_for_no_filter(material: Path) -> None:
    files = [
        *sorted((material / "retrieval").glob("*/queries.jsonl")),
        material / "pdf-qa" / "questions.jsonl",
    ]
    rows = [
        json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()
    ]
    texts = [
        row.get("text") or row["question"] for row in rows if row.get("text") or row.get("question")
    ]
    assert len(texts) > 7000
    assert [text for text in texts if told(text)[0]] == []
