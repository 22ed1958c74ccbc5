"""A question prepared by rules: what is cleaned, told apart and inferred, and what no input may
break.
"""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_platform.config.query import InferenceConfig, QueryConfig
from rag_platform.config.settings import Limits
from rag_platform.errors import InputError
from rag_platform.query.analysis import (
    clean,
    expected_words,
    find_identifiers,
    find_parts,
    find_phrases,
    fold,
    half_width,
    prepare,
    relax,
    undo,
    without_directions,
)

LIMITS = Limits(max_query_chars=50)
TODAY = date(2026, 11, 22)


def test_a_question_is_cleaned_lowered_and_hashed() -> None:
    query = prepare("\u3000Ｗｈａｔ  is\tmaxRetry\x00Count\u200b？\n", LIMITS)
    assert query.original == "\u3000Ｗｈａｔ  is\tmaxRetry\x00Count\u200b？\n"
    assert query.dense_text == expected_words(query) == "What is maxRetryCount?"
    assert query.sparse_query == "maxRetryCount?"
    assert fold(query.normalised) == "what is maxretrycount"
    assert query.query_hash == prepare("what IS maxretrycount?", LIMITS).query_hash
    assert (query.language, query.intent) == ("en", "search")


@pytest.mark.parametrize("text", ["", "   ", "\n\t", "\u200b\ufeff", "\x00"])
def test_an_empty_question_is_an_error(text: str) -> None:
    with pytest.raises(InputError) as raised:
        prepare(text, LIMITS)
    assert raised.value.code == "empty_query"


def test_a_long_question_is_refused_with_both_numbers() -> None:
    prepare("x" * 50, LIMITS)
    with pytest.raises(InputError, match=r"51 characters, the limit is 50") as raised:
        prepare("x" * 51, LIMITS)
    assert raised.value.code == "query_too_long"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("上传文件的最大大小是多少", "zh"),
        ("FastAPI 如何上传文件", "zh"),
        ("order_target_percent 和 order_percent 区别", "zh"),
        ("How do I upload 文", "en"),
        ("hz-app-09 的 IP", "zh"),
        ("ファイルの最大サイズ", "ja"),
        ("파일 크기", "ko"),
        ("déjà vu", "en"),
        ("1234 ?", "und"),
    ],
)
def test_language_by_script(text: str, expected: str) -> None:
    assert prepare(text, LIMITS).language == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("compare A and B", "compare"),
        ("A 和 B 的区别", "compare"),
        ("请总结第三章", "summarize"),
        ("Summarise chapter 3", "summarize"),
        ("incomparable prices", "search"),
        ("请删除这份文档", "tool_call"),
        ("把旧手册删掉", "tool_call"),
        ("delete the old document", "tool_call"),
        ("如何删除文档", "search"),
        ("How do I delete a file?", "search"),
        ("list all documents", "metadata_filter"),
        ("有哪些文档", "metadata_filter"),
        ("只看中文", "metadata_filter"),
        ("upload limits", "search"),
        ("What documents are needed for a visa?", "search"),
    ],
)
def test_intent_by_words(text: str, expected: str) -> None:
    assert prepare(text, LIMITS).intent == expected


@given(st.text(max_size=50))
def test_cleaning_is_idempotent_and_leaves_one_line(text: str) -> None:
    once = clean(text)
    assert clean(once) == once
    assert "\n" not in once
    once.encode("utf-8")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("What is FOO_bar-1?", "what is foo_bar-1"),
        ("《红楼梦》的作者是谁？", "红楼梦 的作者是谁"),
        ("C++, C# and .NET 3.5!", "c++ c# and .net 3.5"),
        ("it's 50% (v1.2.3): a/b.c", "it's 50% v1.2.3 a/b.c"),
        ("你好，世界。。。", "你好 世界"),
        ("???", "???"),
        ("🙂", "🙂"),
    ],
)
def test_normalised_text_has_no_signs_of_sentences(text: str, expected: str) -> None:
    assert fold(clean(text)) == expected


@pytest.mark.parametrize(
    ("text", "searched"),
    [
        ("Whats the default, and why cant I change it", "default, can't change"),
        ("it doesnt start if i dont pick one", "doesn't start don't pick one"),
        ("is dont_care or `wont` a name?", "dont_care `wont` name?"),
        ("whatsapp cantilever wants front", "whatsapp cantilever wants front"),
        ("hows.txt lacks wont.md, whats wrong?", "hows.txt lacks wont.md, wrong?"),
    ],
)
def test_contractions_typed_without_an_apostrophe_get_it(text: str, searched: str) -> None:
    assert prepare(text, LIMITS).sparse_query == searched


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("why ERR_X-12 in /etc/hosts of v1.2.3", ("ERR_X-12", "etc/hosts", "v1.2.3")),
        ("错误PPR-9087是什么, foo_bar 呢", ("PPR-9087", "foo_bar")),
        ("C++ or .NET or C#", ("C++", ".NET", "C#")),
        ("plain words, well-known ones and 2024", ()),
    ],
)
def test_identifiers_stand_as_written(text: str, expected: tuple[str, ...]) -> None:
    assert find_identifiers(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('the "connection pool" and “max size”', ("connection pool", "max size")),
        ("《红楼梦》和「石头记」", ("红楼梦", "石头记")),
        ('an "unclosed one', ()),
        ('"" "!!" " "', ()),
        (" ".join(f'"phrase {n}"' for n in range(20)), tuple(f"phrase {n}" for n in range(8))),
    ],
)
def test_phrases_are_what_is_quoted(text: str, expected: tuple[str, ...]) -> None:
    assert find_phrases(text) == expected


@pytest.mark.parametrize(
    ("text", "dense"),
    [
        ("“connection pool” — size", '"connection pool" - size'),
        ("「依赖注入」和『路由』怎么用。", '"依赖注入"和"路由"怎么用.'),
        ("【公告】‘甲’、〔乙〕（丙）：１０～２０！", "[公告]'甲',[乙](丙):10~20!"),
        # marks of a title, found best as they stand in the texts
        ("《红楼梦》的作者", "《红楼梦》的作者"),
    ],
)
def test_what_is_embedded_has_half_width_signs_and_what_is_looked_up_its_own(
    text: str, dense: str
) -> None:
    query = prepare(text, LIMITS)
    assert (query.dense_text, undo(query).dense_text) == (dense, dense)
    assert query.normalised == clean(text)
    assert query.phrases == find_phrases(clean(text))


def test_the_words_of_a_filter_are_not_searched_but_the_question_stays() -> None:
    query = prepare("最新的报销流程，PDF only", LIMITS, {"tags": "api"}, today=TODAY)
    assert query.original == "最新的报销流程，PDF only"
    assert query.dense_text == query.sparse_query == "最新的报销流程"
    assert query.filters == {
        "tags": "api",
        "content_type": "application/pdf",
        "prefer_recent": True,
    }
    assert query.inferred == {"content_type": "application/pdf", "prefer_recent": True}
    assert query.preferences == ("prefer_recent",)
    assert query.warnings == (
        (
            "`PDF only` asks for content_type = application/pdf; ask without inferred filters to"
            " search everything"
        ),
    )


@pytest.mark.parametrize(
    ("filters", "kept"),
    [
        ({"content_type": "text/html"}, {"content_type": "text/html"}),
        (
            {"$or": [{"content_type": "text/html"}, {"lang": "en"}]},
            {"$or": [{"content_type": "text/html"}, {"lang": "en"}]},
        ),
    ],
)
def test_a_field_that_the_caller_filters_by_is_not_inferred(
    filters: dict[str, Any], kept: dict[str, Any]
) -> None:
    query = prepare("报销, PDF only", LIMITS, filters)
    assert (query.filters, query.inferred, query.dense_text, query.warnings) == (
        kept,
        {},
        "报销, PDF only",
        (),
    )


def test_the_words_of_the_callers_field_stay_while_others_are_taken() -> None:
    query = prepare("报销, PDF only, 标签:发票", LIMITS, {"content_type": "text/html"})
    assert (query.inferred, query.dense_text) == (
        {"tags": {"$contains": "发票", "$missing": "exclude"}},
        "报销, PDF only",
    )


def test_a_preference_that_the_caller_refuses_stays_off() -> None:
    query = prepare("最新的规范", LIMITS, {"prefer_recent": False})
    assert (query.preferences, query.filters) == ((), {"prefer_recent": False})
    assert prepare("规范", LIMITS, {"prefer_official": True}).preferences == ("prefer_official",)


def test_inference_is_switched_by_call_and_by_configuration() -> None:
    off = QueryConfig(inference=InferenceConfig(enabled=False))
    text = "报销, PDF only"
    assert prepare(text, LIMITS, infer=False).filters == {}
    assert prepare(text, LIMITS, config=off).filters == {}
    assert prepare(text, LIMITS, config=off, infer=True).filters == {
        "content_type": "application/pdf"
    }


def test_relaxed_asks_the_whole_question_without_what_was_inferred() -> None:
    query = prepare("最新的报销, PDF only", LIMITS, {"lang": "zh"})
    loose = relax(query)
    assert loose.dense_text == loose.sparse_query == "最新的报销, PDF only"
    assert loose.filters == {"lang": "zh", "prefer_recent": True}
    assert undo(query).filters == {"lang": "zh"}


def test_the_profile_follows_rules_and_configuration_but_not_the_question() -> None:
    one = prepare("a", LIMITS).query_profile_id
    assert one == prepare("b", LIMITS, config=QueryConfig()).query_profile_id
    others = {
        prepare("a", LIMITS, config=QueryConfig(synonyms={"a": ("b",)})).query_profile_id,
        prepare("a", LIMITS, config=QueryConfig(expansion_weight=0.1)).query_profile_id,
    }
    assert len(others | {one}) == 3


@pytest.mark.parametrize("filters", ["doc_id = 1", 7, ["a"]])
def test_filters_that_are_no_object_are_refused(filters: Any) -> None:
    with pytest.raises(InputError) as raised:
        prepare("x", LIMITS, filters)
    assert raised.value.code == "invalid_filter"


@pytest.mark.parametrize("text", [None, 7, b"bytes", ["x"]])
def test_what_is_no_text_is_refused(text: Any) -> None:
    with pytest.raises(InputError) as raised:
        prepare(text, LIMITS)
    assert raised.value.code == "invalid_query"


HOSTILE = [
    "???",
    "。。。！！！",
    "🙂👨\u200d👩\u200d👧",
    "\ud800 lone",
    "\u202egnp.exe\u202c",
    "Z\u0351\u036b\u0343\u0363\u0363\u0363\u0363algo",
    "a\u0301" * 500,
    "\u0301" * 2000 + "x",
    "'; DROP TABLE chunks; --",
    'a" OR "1"="1',
    "NEAR(a b) AND NOT title:x*",
    '"',
    "*",
    "^foo",
    "((((((((",
    "\\" * 500,
    "\ufdfa" * 100,
    "%s%n{0}{query}",
    "<script>alert(1)</script>",
    "../../etc/passwd",
    "近一周" * 300,
    '"a" ' * 500,
    "tag:" * 400,
    "a." * 1000,
]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_questions_are_prepared_or_clearly_refused(text: str) -> None:
    query = prepare(text, Limits())
    for made in (
        query.normalised,
        query.dense_text,
        query.sparse_query,
        *query.identifiers,
        *query.phrases,
    ):
        assert made.strip()
        made.encode("utf-8")
    json.dumps(query.filters)


def test_a_hundred_thousand_characters_are_refused_before_any_work() -> None:
    with pytest.raises(InputError) as raised:
        prepare("近一周 only pdf " * 10_000, Limits())
    assert raised.value.code == "query_too_long"


@given(st.text(max_size=200))
def test_any_text_is_a_question_or_a_documented_refusal(text: str) -> None:
    try:
        query = prepare(text, Limits(), today=TODAY)
    except InputError as error:
        assert error.code == "empty_query"
        assert clean(text) == ""
        return
    assert query.dense_text and query.normalised
    assert undo(query).dense_text == half_width(clean(text))


def test_naughty_strings_are_prepared_or_clearly_refused(material: Path) -> None:
    found = sorted((material / "unicode").rglob("*naughty*")) or sorted(
        (material / "unicode").rglob("*blns*")
    )
    lines = [
        line
        for file in found
        if file.suffix in (".txt", ".json")
        for line in file.read_text(encoding="utf-8").splitlines()
    ]
    assert len(lines) > 100
    for line in lines:
        try:
            prepare(line, Limits())
        except InputError as error:
            assert error.code in ("empty_query", "query_too_long")


def test_preparing_an_english_question_loads_no_dictionary() -> None:
    code = (
        "import sys; from rag_platform.config.settings import Limits; from"
        " rag_platform.query.analysis import prepare;prepare('how large may an upload be, PDF"
        " only', Limits());print([name for name in ('rjieba', 'openai', 'httpx', 'pyarrow',"
        " 'pandas', 'chromadb') if name in sys.modules])"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.strip()
        == "[]"
    )


@pytest.mark.parametrize(
    ("question", "parts"),
    [
        (
            "We use Docker. Should it run as root, and where do the logs go?",
            ("We use Docker. Should it run as root", "where do the logs go?"),
        ),
        ("What is the port and how is it set?", ("What is the port", "how is it set?")),
        (
            "默认保留多少天？过期以后还能不能恢复？",
            ("默认保留多少天？", "过期以后还能不能恢复？"),
        ),
        ("童锁是什么，怎么关闭？", ("童锁是什么", "怎么关闭？")),
        ("掛號費多少，疫苗什麼時候開始接種？", ("掛號費多少", "疫苗什麼時候開始接種？")),
        # symptoms before one question, one question with `and`, a tail that asks nothing
        ("It hangs. The log is empty. How do I find out why?", ()),
        ("How do I search and replace?", ()),
        ("Why does it fail? It worked before.", ()),
        ("登录失败了。日志是空的，怎么查？", ()),
        # too short a part, too many parts
        ("How large is it, and why?", ()),
        ("What is alpha? What is beta? What is gamma? What is delta?", ()),
    ],
)
def test_a_question_has_parts_where_each_asks(question: str, parts: tuple[str, ...]) -> None:
    assert find_parts(question, clauses=True) == parts


@pytest.mark.parametrize("question", ["童锁是什么，怎么关闭？", "童锁是什么？怎么关闭？"])
def test_clauses_and_short_sentences_of_chinese_are_not_searched_for(question: str) -> None:
    assert find_parts(question) == ()


@pytest.mark.parametrize(
    ("question", "searched"),
    [
        ("Did it fall? If that says little, then state that.", "Did it fall?"),
        ("毛利率是多少？请保留两位小数。", "毛利率是多少？"),
        ("Is it safe? Please answer in one word.", "Is it safe?"),
        # what tells more of the matter, or asks again, stays
        ("Why does it fail? It worked before.", "Why does it fail? It worked before."),
        (
            "Is it round? Round means no edge, does it?",
            "Is it round? Round means no edge, does it?",
        ),
        ("Round the tank. If it leaks, say so.", "Round the tank. If it leaks, say so."),
    ],
)
def test_how_to_answer_is_not_searched_for(question: str, searched: str) -> None:
    assert without_directions(question) == searched
