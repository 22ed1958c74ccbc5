from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_platform.config import Limits
from rag_platform.errors import InputError
from rag_platform.retrieval.queries import cleaned, prepare

LIMITS = Limits(max_query_chars=50)


def test_a_question_is_cleaned_lowered_and_hashed() -> None:
    query = prepare("\u3000Ｗｈａｔ  is\tmaxRetry\x00Count\u200b？\n", LIMITS)
    assert query.original_query == "\u3000Ｗｈａｔ  is\tmaxRetry\x00Count\u200b？\n"
    assert query.dense_query_text == query.sparse_query_expr == "What is maxRetryCount?"
    assert query.normalized_query == "what is maxretrycount"
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
    [("上传文件的最大大小是多少", "zh"), ("FastAPI 如何上传文件", "zh"), ("How do I upload 文", "en"), ("ファイルの最大サイズ", "ja"),
     ("파일 크기", "ko"), ("déjà vu", "en"), ("1234 ?", "und")],
)  # fmt: skip
def test_language_by_script(text: str, expected: str) -> None:
    assert prepare(text, LIMITS).language == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("compare A and B", "compare"), ("A 和 B 的区别", "compare"), ("请总结第三章", "summarize"), ("Summarise chapter 3", "summarize"),
     ("incomparable prices", "search")],
)  # fmt: skip
def test_intent_by_words(text: str, expected: str) -> None:
    assert prepare(text, LIMITS).intent == expected


@given(st.text(max_size=50))
def test_cleaning_is_idempotent_and_leaves_one_line(text: str) -> None:
    once = cleaned(text)
    assert cleaned(once) == once
    assert "\n" not in once
    once.encode("utf-8")
