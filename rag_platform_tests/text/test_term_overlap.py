from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_platform.text.scripts import has_han
from rag_platform.text.segmentation import to_nfkc
from rag_platform.text.term_overlap import (
    VERSION_NUMBER,
    find_version_form,
    question_terms,
    question_words,
)
from rag_platform.text.terms import terms


@pytest.mark.parametrize(
    ("question", "text", "held"),
    [
        ("retry policies", "Its policy says: retries, not tries.", {"retri", "polici"}),
        ("runs", "He runs. The trunk is long.", {"run"}),
        ("run", "The trunk is long.", set()),
        ("max retry", "Set maxRetryCount to 3", {"max", "retri"}),
        ("release 12", "in 2012 came v12.1, 120 in all", {"12"}),
        ("release 12", "in 2012 came 120", set()),
        ("company's T恤", "The company’s shirt is a T-恤.", {"compani", "t", "t恤"}),
        ("最大连接数 Redis", "用Redis缓存，连接数为 100", {"连接", "接数", "redi"}),
        ("怎麼查筆畫數", "查询笔画数", {"笔画", "画数"}),
        ("笔画数", "漢字的筆畫數", {"笔画", "画数"}),
        ("straße 12", "Die Straße Nummer 12.", {"straße", "12"}),
        ("年假没休完", "年假为七天。", {"年假"}),
        ("干了8个月被裁赔多少", "7 月 8 日", {"8", "月"}),  # not the 8 alone
        ("anything", "", set()),
    ],
)
def test_what_a_text_holds_of_a_question(question: str, text: str, held: set[str]) -> None:
    assert question_terms(question).find_in(text) == held


WORDS = st.sampled_from(
    "runs retries a A b1 12 2012 1.2.3 .net v2 max Retry _ - . ' ’ / # + , “ ` "
    "年 工作 进程 T恤 ， ： か が 한국 é É ß İ Σς ﬁ ㈱ \u0301".split()
)
TEXTS = st.lists(WORDS | st.just(" ") | st.just("\n"), max_size=14).map("".join)


@given(TEXTS, TEXTS)
def test_nothing_is_found_that_is_not_among_the_terms_and_nothing_is_missed(
    question: str, text: str
) -> None:
    found = question_terms(question)
    for shown in (text, question, f"{text} {question}{text}"):
        characters = filter(has_han, to_nfkc(shown))  # of a question without any longer word
        assert found.find_in(shown) == found.terms & {*terms(shown), *characters}


@pytest.mark.parametrize(
    "question",
    [
        "y",
        "x y",
        "solve for y, s and e",
        "ies",
        "a'b 'y",
        "sky",
        "es ed ing",
        "y " * 200 + "z9 " * 80,
    ],
)
def test_short_words_are_found_as_their_terms_are(question: str) -> None:
    for text in (
        "扫描站格口目的地默认值席位件数查询。",
        "y = 3x",
        "The sky, the skies; yes. S.E.",
        "",
        "...",
        "。y。",
        "z9 Y",
    ):
        assert question_terms(question).find_in(text) == question_terms(
            question
        ).terms.intersection(terms(text))


def test_a_verb_of_one_character_is_found_as_texts_write_it() -> None:
    assert question_terms("nzh怎么装").find_in("## 安装\n\nnpm install nzh") == {"nzh", "安装"}
    assert question_terms("怎么删文档").find_in("删除文档") == {"删除", "文档"}


def test_a_place_whose_name_has_a_function_character_is_a_word() -> None:
    assert [word.text for word in question_words("成都办公室网关是多少")] == [
        "成都",
        "办公室",
        "网关",
    ]
    assert [word.text for word in question_words("会议室都在哪里")] == ["会议室"]
    assert [word.text for word in question_words("公司在几省有分公司")] == ["分公司"]


@pytest.mark.parametrize(
    ("question", "right", "wrong"),
    [
        ("nonebot2 需要python几", "Python 3.10 及以上", "NoneBot 2.0 使用 Python"),
        ("sdk要求node版本多少", "Node.js 10.0.0 版本及以上", "Node.js SDK 4.0"),
        ("需要什么版本的 Java", "至少 17 版本的 Java", "Java 服务的 2.1 版"),
        ("which version of Python is required", "Python version 3.9 or later", "Python has pip 24"),
        ("Which WSL version does it need?", "requires WSL 2.9.3", "the WSL container 2.9"),
    ],
)
def test_the_version_of_a_needed_thing_is_beside_its_name(
    question: str, right: str, wrong: str
) -> None:
    form = find_version_form(question)
    assert form is not None and form.search(right) and not form.search(wrong)
    assert form.search(f"python node {'的' * 100_000}") is None


def test_a_needed_version_may_be_on_the_next_line_or_of_an_implementation() -> None:
    form = find_version_form("What version of Python does psutil need?")
    assert form is not None and form.search("runs on Python\n3.8+") and form.search("cPython 3.6+")
    assert not form.search("- Python\n- 3.5 GB of memory") and not form.search("Python\n\n3.8")


def test_long_words_and_numbers_take_no_time_to_read_for_a_version() -> None:
    assert find_version_form(f"需要{'a' * 100_000}") is None
    assert find_version_form(f"which {'a' * 100_000}") is None
    assert find_version_form("which version of a " * 5_000) is VERSION_NUMBER
    form = find_version_form("需要python几")
    assert form is not None and form.search("1." * 50_000) is None


@pytest.mark.parametrize(
    "question",
    ["xgplayer哪个版本支持横屏", "In which version of FastAPI was support dropped?"],
)
def test_a_question_when_something_came_asks_for_any_version(question: str) -> None:
    assert find_version_form(question) is VERSION_NUMBER
    assert find_version_form("支持几种语言") is None
