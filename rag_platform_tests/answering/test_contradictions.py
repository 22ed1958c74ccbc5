"""What tells a sentence from the text whose words it has."""

from __future__ import annotations

import pytest

from rag_platform.answering.contradictions import find_contradiction

PUMP = (
    "The pump must not run dry. It holds at least 12 litres before the first start, and 30 litres"
    " after it. The valve isn't locked, but the lid is."
)
BOILER = "锅炉不能在无水时启动，启动前至少加水 12 升，之后每天加水 3 升。管道与水箱不同，可以加盖。"


@pytest.mark.parametrize(
    ("sentence", "text", "reason"),
    [
        ("The pump must not run dry, the operator says.", PUMP, ""),
        ("The pump must run dry.", PUMP, "lacks the negation"),
        ("The valve is not locked.", PUMP, ""),
        ("The valve is locked.", PUMP, "lacks the negation"),
        ("The lid isn't locked.", PUMP, ""),  # nothing near says whether it is
        ("It holds 12 litres before the first start.", PUMP, ""),
        ("It holds at most 12 litres before the first start.", PUMP, "'at most' where"),
        ("It holds at least 30 litres before the first start.", PUMP, "it has 30 where"),
        ("启动前至少加水 12 升。", BOILER, ""),
        ("启动前至多加水 12 升。", BOILER, "'至多' where the text has '至少'"),
        ("锅炉能在无水时启动。", BOILER, ""),  # two negations in one clause: one is left
        ("启动前不加水 12 升。", BOILER, "it negates"),
        ("启动前至少加水 3 升。", BOILER, "it has 3 where"),
        ("管道与水箱不同。", BOILER, ""),
        ("The boiler does not start.", BOILER, ""),  # another language
    ],
)
def test_negations_opposites_and_numbers_of_the_nearest_clauses_are_compared(
    sentence: str, text: str, reason: str
) -> None:
    found = find_contradiction(sentence, text)
    assert reason in found if reason else not found


def test_a_number_of_the_headings_is_none_of_another_clause() -> None:
    sentence = "In 2024, staff receive 28 days of leave in 2024."
    text = "Staff receive 28 days of leave. In 2019, staff had received 25 days of leave."
    assert "it has 2024" in find_contradiction(sentence, text)
    assert find_contradiction(sentence, text, "Leave policy 2024") == ""
