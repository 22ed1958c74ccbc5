from __future__ import annotations

import pytest

from rag_platform.config.query import QueryConfig
from rag_platform.config.settings import Limits
from rag_platform.query.analysis import expected_words, prepare, relax, reword, undo
from rag_platform.text.stop_words import is_only_function_words, remove_function_words

LIMITS = Limits()


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (
            "Which header must a proxy set so that the protocol is known?",
            "header must proxy set so protocol known?",
        ),
        ("What's the limit? How do I raise it?", "limit? raise ?"),
        ("The page I open, since then I'm asked.", "page open, since asked."),
        ("ge 和 le 分别表示什么？", "ge 和 le ？"),
        ("为什么需要多少个几何图形", "需要 个几何图形"),
        ("請問氣壓為什麼會下降嗎？", "氣壓 會下降 ？"),
        ("在 Kubernetes 中需要几个进程呢", "在 Kubernetes 中需要 个进程"),
    ],
)
def test_function_words_are_left_out(text: str, left: str) -> None:
    assert remove_function_words(text) == left


@pytest.mark.parametrize(
    "text",
    [
        "on_delete, what-if and/or --in, a.is, `for`, is() and:this",  # parts of names
        "WHO guidelines, vitamin A",  # capitals
        "哪吒, 还是否定, 吗啡, 意思自治, 几何",  # characters of other words
        "不是 no not",
    ],
)
def test_what_is_part_of_a_name_stays(text: str) -> None:
    assert remove_function_words(text) == text


@pytest.mark.parametrize("text", ["What is it?", "什么？", "the who", "？"])
def test_a_question_of_nothing_else_stays_as_it_is(text: str) -> None:
    assert remove_function_words(text) == text


@pytest.mark.parametrize(
    ("text", "nothing_else"),
    [
        ("the", True),
        ("What is it, please?", True),
        ("请问这是什么？", True),
        ("从哪里", True),
        ("WHO", False),
        ("what is %", False),
        ("what does `for` do", False),
        ("怎么办", False),
        ("???", False),
        ("", False),
    ],
)
def test_texts_of_function_words_alone_are_known(text: str, nothing_else: bool) -> None:
    assert is_only_function_words(text) == nothing_else


def test_words_of_ones_own_are_left_out_too() -> None:
    assert (
        remove_function_words("Kindly name the port 麻烦端口", ("kindly", "麻烦"))
        == "name port 端口"
    )
    assert remove_function_words("麻烦了 kindly") == "麻烦了 kindly"


def test_only_the_word_index_is_asked_without_them() -> None:
    query = prepare("What does “yield from” mean?", LIMITS)
    assert query.sparse_query == "“yield ” mean?"
    assert expected_words(query) == "What does “yield from” mean?"
    assert query.dense_text == 'What does "yield from" mean?'
    kept = prepare("What does it mean?", LIMITS, config=QueryConfig(drop_function_words=False))
    assert kept.sparse_query == "What does it mean?"
    own = QueryConfig(function_words=("mean",))
    assert prepare("What does yield mean?", LIMITS, config=own).sparse_query == "yield ?"
    assert (
        prepare("yield", LIMITS, config=own).query_profile_id
        != prepare("yield", LIMITS).query_profile_id
    )


def test_words_of_a_chinese_question_that_texts_should_hold_are_those_that_name_something() -> None:
    query = prepare("ge 和 le 分别表示什么？只看中文", LIMITS)
    assert expected_words(query) == query.sparse_query == "ge 和 le ?"
    assert query.normalised == "ge 和 le 分别表示什么?"


def test_further_relaxed_and_plain_questions() -> None:
    query = prepare("What is yield, PDF only?", LIMITS)
    assert (
        reword(query, "How does yield work").sparse_query,
        expected_words(reword(query, "How does it work")),
    ) == (
        "yield work",
        "How does it work",
    )
    assert relax(query).sparse_query == "yield, PDF only?"
    assert undo(query).sparse_query == expected_words(undo(query)) == "What is yield, PDF only?"
