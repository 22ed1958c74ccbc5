from __future__ import annotations

import unicodedata

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rag_platform.providers.term_analysis import Analysis
from rag_platform.retrieval.lexical_reranker import select_terms
from rag_platform.text.stop_words import ENGLISH, FUNCTION_WORDS, WEAK_WORDS
from rag_platform.text.terms import (
    find_symbols,
    is_weak_term,
    meaning,
    stem,
    stem_prefix,
    symbol_terms,
    terms,
)


@pytest.mark.parametrize(
    ("words", "expected", "start"),
    [
        ("policy policies", "polici", "polic"),
        ("run runs running", "run", "run"),
        ("configuration configured configures", "configur", "configur"),
        ("die dies dying", "die", "d"),
        ("sky skies", "sky", "sk"),
        ("hope hopes hoping hoped", "hope", "hop"),
        ("gateway gateways", "gateway", "gateway"),
        ("sensible sensibility", "sensibl", "sensib"),
        ("max_retries", "max_retries", "max_retries"),
        ("v1.2", "v1.2", "v1.2"),
        ("连接", "连接", "连接"),
        ("café", "café", "café"),
    ],
)
def test_the_forms_of_a_word_have_one_stem_and_one_beginning(
    words: str, expected: str, start: str
) -> None:
    assert {stem(word) for word in words.split()} == {expected}
    assert stem_prefix(expected) == start
    assert all(word.startswith(start) for word in words.split())


@given(st.text(alphabet="abdeghiklnorstuyz'", min_size=1, max_size=12))
def test_a_word_begins_as_its_stem_says(word: str) -> None:
    assume(not word.startswith("'"))  # no term does
    assert word.startswith(stem_prefix(stem(word)).partition("'")[0])


def test_every_part_of_the_program_stems_alike() -> None:
    text = "configuration policies running"
    assert list(terms(text)) == Analysis().terms(text) == ["configur", "polici", "run"]
    assert select_terms(text) == ["configur", "polic", "run"]


@pytest.mark.parametrize(
    ("written", "asked"),
    [
        ("كِتَابُ القِرَاءَةِ", "كتاب القراءة"),
        ("الســـلام", "السلام"),
        ("أحمد إلى الآن", "احمد الي الان"),
        ("یعمل الکتاب", "يعمل الكتاب"),  # a Persian keyboard
        ("می‌شود", "میشود"),
        ("٢٠٢٤ ۲۰۲۴", "2024 2024"),
        ("בְּרֵאשִׁית", "בראשית"),
        ("\ufedf\ufefc", "للا"),  # forms as they are drawn
    ],
)
def test_arabic_persian_and_hebrew_are_found_however_they_are_typed(
    written: str, asked: str
) -> None:
    assert Analysis().terms(written) == Analysis().terms(asked) != []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("हिन्दी में दस्तावेज़।", ["हिन्दी", "में", "दस्तावेज़"]),
        ("தமிழ் மொழி v1.2", ["தமிழ்", "மொழி", "v1.2"]),
        ("বাংলা-ভাষা", ["বাংলা-ভাষা", "বাংলা", "ভাষা"]),
    ],
)
def test_the_vowel_signs_of_indian_scripts_belong_to_their_words(
    text: str, words: list[str]
) -> None:
    found = Analysis().terms(text)
    assert found[: len(words)] == [unicodedata.normalize("NFKC", word) for word in words]
    assert not any(len(term) == 1 and term.isalpha() for term in found)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("What does the server do with them?", {"server"}),
        ("How many of these are used?", set()),
        ("什么是连接池", {"连接", "接池"}),
        ("我們的連接池", {"连接", "接池"}),
        ("", set()),
    ],
)
def test_words_that_say_little_carry_no_meaning(text: str, left: set[str]) -> None:
    assert meaning(text) == left


def test_the_lists_hold_each_other() -> None:
    assert FUNCTION_WORDS < WEAK_WORDS < ENGLISH
    assert all(is_weak_term(stem(word)) for word in WEAK_WORDS)


SYMBOLS = """\
The operator `^=` takes (a) caret, `1..=5` a range; call `collect::<Vec<i32>>()`.
`?` -> ends != early, `\\|\\|` is in a table. Visit `https://a.b//c` or run `serve --no-Cache`.

```python
@app.get("/items")  # a -> b, x ^= y
```
"""


def test_only_code_holds_symbols() -> None:
    assert symbol_terms(SYMBOLS) == [
        "§^=",
        "§..=",
        "§::<",
        "§>>",
        "§?",
        "§||",
        "§@app.get",
        "§--no-cache",
    ]


def test_flags_are_symbols_in_prose_too_and_their_case_counts_if_they_are_short() -> None:
    text = """\
patch -b, --Backup  or `-B pref`; [-i[n]] and date +%Y-%m, 100% x-a well-B 5 -1 - c -xzf -a-b
"""
    assert symbol_terms(text) == ["§-b", "§--backup", "§-B", "§-i", "§%Y", "§%m"]
    assert symbol_terms("使用--verbose选项，%Y年") == ["§--verbose", "§%Y"]


@pytest.mark.parametrize(
    ("question", "symbols"),
    [
        ("what does ^= do", ["§^="]),
        ("What is ::<>?", ["§::<>"]),
        ("`?` 是什么意思", ["§?"]),
        ("..= 和 .. 有什么区别", ["§..="]),
        ("patch 的 -B 选项和 `-b` 有什么区别", ["§-B", "§-b"]),
        ("what does %Y mean, and -n?", ["§%Y", "§-n"]),
        ("--help是什么，-r选项呢", ["§--help", "§-r"]),
        ("tar命令的-x参数，用%s格式化，@app.get装饰器", ["§-x", "§%s", "§@app.get"]),
        ("is --reload the same as @app.get here", ["§--reload", "§@app.get"]),
        ("why?! really... -- well", []),
        ("mail a@b.org or https://a.b/--x", []),
        ("what is 5 / 3 - 1", []),
        ("what is the ? operator", ["§?"]),
        ("What does % mean in Rust?", ["§%"]),
        ("Rust 中 .. 是什么意思", ["§.."]),
        ("运算符 & 的优先级", ["§&"]),
        ("R & D costs 5 % more. What is it?", []),
        ("what does && do", ["§&&"]),
        ("what is -> in Rust", ["§->"]),
        ("What is ?? in TypeScript", ["§??"]),
        ("what is =>", ["§=>"]),
        ("what is => good for", ["§=>"]),
        ("migrate from v1 -> v2 in one step", []),
        ("difference between == and ===", ["§==", "§==="]),
        ("How do I restart it ? do I need root", []),
        ("报错了! 是什么意思", []),
        ("重启失败 ? 是什么原因", []),
        ("这是什么运算符? 怎么用", []),
        ("Go 里&是什么", ["§&"]),
    ],
)
def test_symbols_of_a_question(question: str, symbols: list[str]) -> None:
    assert find_symbols(question) == symbols


def test_the_symbols_of_a_very_long_question_are_found_in_one_pass() -> None:
    """Reading each word from each of its letters would take minutes."""
    assert find_symbols("İıſ" * 100_000 + " a://b/--x --reload") == ["§--reload"]
    assert find_symbols("% " * 50_000 + "运算符 " * 50_000) == ["§%"]
