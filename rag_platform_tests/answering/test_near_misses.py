"""A quote about something beside what was asked is told as that, another one is not."""

from __future__ import annotations

from typing import Any

import pytest

from rag_platform.answering.near_misses import find_near_miss
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
