"""A quote about something beside what was asked is told as that, another one is not."""

from __future__ import annotations

from typing import Any

import pytest

from rag_platform.answering.near_misses import find_near_miss, lacks_figure
from rag_platform.ir import Hit

TOKENS = "Sandbox tokens expire after 12 hours. Production tokens are issued by the security team."
ROOMS = "The north wing of the hall opens at 9. The south wing has a stage."
HOTELS = "国内出差的酒店标准为每晚 450 元。境外出差须提前两周提交申请。"
# both are told, in sentences of their own
TRAILS = "The northern trail takes five hours. The southern trail takes two. Dogs love both."


def hit(text: str, title: str = "Guide") -> Hit:
    return Hit(1, "c1", 1.0, "hybrid", "d", "d@1", "guide.md", "guide.md", title, "", 1, text)


@pytest.mark.parametrize(
    ("question", "text", "told"),
    [
        ("When do production tokens expire?", TOKENS, ("production tokens", "Sandbox tokens")),
        ("when does the south wing of the hall open", ROOMS, ("south wing", "north wing")),
        ("境外出差的酒店标准是多少？", HOTELS, ("境外出差", "国内出差")),
        ("境外出差的酒店標準是多少？", HOTELS, ("境外出差", "国内出差")),
        ("系统提供哪些数据？", "系统提供行情数据。常见问题说明有哪些数据。", None),
        ("When do sandbox tokens expire?", TOKENS, None),
        ("国内出差的酒店标准是多少？", HOTELS, None),
        ("How long does the southern trail take?", TRAILS, None),
        # a synonym, for all that the text says
        ("When do staging tokens expire?", TOKENS, None),
        # the sentence names it, in another clause
        ("When do production tokens expire?", f"{TOKENS[:35]}, but production ones do not.", None),
    ],
)
def test_the_neighbour_of_what_was_asked_is_told(question: str, text: str, told: Any) -> None:
    assert find_near_miss(question, text, [hit(text)]) == told


def test_what_a_heading_names_is_all_that_stands_below_it() -> None:
    question = "When do production tokens expire?"
    assert find_near_miss(question, TOKENS, [hit(TOKENS, "Production")]) is None


@pytest.mark.parametrize(
    ("question", "answer", "lacks"),
    [
        ("How many times does it retry?", "It retries, as HTTP/2 has it (RFC-9110). [1]", True),
        ("When was the pump made?", "Pumps are [made](https://a.org/2024) by hand. [1]", True),
        ("What does a licence cost?", "Thousands of pumps have a licence. [1]", True),
        ("How many times does it retry?", "It retries twice. [1]", False),
        ("When was the pump made?", "It was made in 1999. [1]", False),
        ("What does a licence cost?", "A licence is free. [1]", False),
        ("How many seats are there?", "有三个座位。 [1]", False),
        ("How much faster is it?", "It is faster by far. [1]", False),
        ("When does it stop?", "It stops as soon as the lid opens. [1]", False),
    ],
)
def test_an_answer_without_the_number_that_was_asked_for_is_told(
    question: str, answer: str, lacks: bool
) -> None:
    assert lacks_figure(question, answer) == lacks
