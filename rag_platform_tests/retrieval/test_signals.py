"""The signals of one search, by hand."""

from __future__ import annotations

from typing import Any

import pytest

from rag_platform.answering.engine import answer
from rag_platform.config.settings import Limits
from rag_platform.ir import Candidate, Hit, QueryRequest
from rag_platform.query.analysis import without_rules
from rag_platform.retrieval.library import Library
from rag_platform.retrieval.retrievers import Retrieved
from rag_platform.retrieval.signals import find_choosing, measure_signals, with_headings
from rag_platform_tests.published import GUIDE

QUERY = without_rules("upload limit", Limits())


def listed(*scores: float) -> list[Candidate]:
    return [Candidate(str(n), score, "dense") for n, score in enumerate(scores)]


def test_without_a_word_index_words_weigh_alike_and_none_is_called_absent() -> None:
    found = Retrieved(dense=listed(*([1.0] * 4 + [0.0] * 36)), ran=("dense",), mode="dense")
    signals = measure_signals(None, QUERY, found)
    assert (signals.sparse_reach, signals.sparse_margin, signals.words_absent) == (None, None, None)
    # mean .1 and deviation .3 of four 1 and thirty-six 0
    assert signals.dense_standing == pytest.approx(3.0)
    assert signals.words_found(["The upload takes long."]) == 0.5
    assert signals.words_found(["The upload takes long.", "A limit of uploads."]) == 1.0
    assert signals.words_found([]) == 0.0


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ("what is the difference between pumps and valves", ["pump", "valv"]),
        ("how does a pump differ from a valve", ["pump", "valv"]),
        ("pump vs valve", ["pump", "valv"]),
        ("水泵和阀门有什么区别", ["水泵", "阀门"]),
        ("What are the differences?", ["differ"]),  # nothing else is left
        ("when was pump 1.2.3 released?", ["pump", "1.2.3", "1", "2", "3"]),
        ("pump 1.2.3 是什么时候发布的？", ["pump", "1.2.3", "1", "2", "3"]),
        ("who released the valve of pump 1.2?", ["releas", "valv", "pump", "1.2", "1", "2"]),
    ],
)
def test_words_that_ask_for_a_comparison_or_release_need_not_be_found(
    question: str, words: list[str]
) -> None:
    signals = measure_signals(None, without_rules(question, Limits()), Retrieved())
    assert [item.word.text for item in signals.words] == words


@pytest.mark.parametrize(
    ("question", "path", "section", "words"),
    [
        ("what changed in pump 1.2?", "log.md", "1.2.0 (2024-01-02)", {"1.2", "1", "2"}),
        ("what changed in pump 1.2?", "log.md", "1.3.0 (2024-01-02)", set()),
        ("how many days in the 2023 policy?", "leave-2023.md", "Days", {"2023"}),
        ("how many days in the 2023 leave policy?", "leave-2023.md", "Days", {"2023"}),
        ("how many days in the 2023 policy?", "leave-2024.md", "Days", set()),
        ("did it rain in 2023?", "leave-2023.md", "Days", set()),
    ],
)
def test_words_that_chose_the_first_hit_need_not_be_found(
    question: str, path: str, section: str, words: set[str]
) -> None:
    hit = Hit(1, "c", 1.0, "hybrid", path, "v", path, path, "", section, 1, "Text.")
    found = find_choosing(question, [hit])
    assert {word for word in found if word[0].isdigit()} == words
    signals = measure_signals(None, without_rules(question, Limits()), Retrieved())
    left = {item.word.text for item in signals.without(found).words}
    assert left == {item.word.text for item in signals.words} - found


def test_too_few_or_equal_cosines_have_no_standing() -> None:
    few = Retrieved(dense=listed(0.9, *[0.1] * 38), ran=("dense",), mode="dense")
    equal = Retrieved(dense=listed(*[0.5] * 40), ran=("dense",), mode="dense")
    assert [measure_signals(None, QUERY, found).dense_standing for found in (few, equal)] == [
        None,
        None,
    ]


def test_the_margin_and_the_rarity_of_absent_words(publish: Any, library: Library) -> None:
    publish(
        {"guide": [*GUIDE, *((f"Day {n}", f"Nothing happened on day {n}.") for n in range(37))]}
    )
    with library.lease("default") as lease:
        found = Retrieved(sparse=listed(4.0, 3.0, 1.0), ran=("sparse",), mode="sparse")
        signals = measure_signals(
            lease.release.lexical, without_rules("upload pancakes", Limits()), found
        )
    assert signals.sparse_margin == 0.75
    held, absent = signals.words
    assert (held.absent, absent.absent) == (False, True) and absent.weight > held.weight
    total = held.weight + absent.weight
    assert signals.words_absent == pytest.approx(absent.weight / total)
    assert signals.sparse_reach == pytest.approx(4.0 / total)


def test_a_word_whose_stem_has_a_stem_is_found(publish: Any, library: Library) -> None:
    publish({"guide": [("Databases", "A database keeps the licence of an employee.")]})
    question = without_rules("database employees pancakes", Limits())
    with library.lease("default") as lease:
        signals = measure_signals(lease.release.lexical, question, Retrieved(ran=("sparse",)))
    assert [item.absent for item in signals.words] == [False, False, True]


def test_in_few_texts_small_words_weigh_little_and_scores_tell_nothing(
    publish: Any, library: Library
) -> None:
    publish({"guide": GUIDE})
    with library.lease("default") as lease:
        found = Retrieved(sparse=listed(4.0, 3.0), ran=("sparse",), mode="sparse")
        signals = measure_signals(
            lease.release.lexical, without_rules("upload often pancakes 天数", Limits()), found
        )
    assert (signals.sparse_reach, signals.sparse_margin) == (None, None)
    # in 103 texts, one of them with the first, and fifty with the second and the last, that name no
    # subject: ln(1 + 102.5/1.5), ln(1 + 53.5/50.5) and ln(1 + 103.5/.5)
    weights = [round(item.weight, 2) for item in signals.words]
    assert weights == [4.24, 0.72, 5.34, 0.72]
    assert [item.absent for item in signals.words] == [False, True, True, True]


def test_a_question_in_another_script_is_not_judged_by_its_words(
    publish: Any, library: Library
) -> None:
    publish({"guide": GUIDE})
    result = answer(library, QueryRequest("アップロードの上限はいくつですか？"))
    assert result.hits and result.signals["words_found"] is None
    assert result.signals["words_absent"] is None


def test_a_translated_question_is_judged_by_the_words_of_its_translation(
    publish: Any, library: Library
) -> None:
    publish({"guide": GUIDE})
    found = answer(library, QueryRequest("上传文件的大小限制是多少？")).signals
    other = answer(library, QueryRequest("上传的音乐有什么版权？")).signals  # music, copyright
    assert found["words_found"] > 0.7 > other["words_found"]
    assert found["words_absent"] < other["words_absent"]


def test_addresses_of_other_sites_in_links_are_not_read() -> None:
    text = "See [the shop](https://shop.example/pumps?id=7) and [the list](valves.md#prices)."
    read = with_headings(Hit(1, "c", 1.0, "dense", "d", "d@1", "s/d.md", "d.md", "", "", 1, text))
    assert read.strip() == "See [the shop] and [the list](valves.md#prices)."
