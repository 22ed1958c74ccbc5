"""What tells a sentence from the text whose words it has."""

from __future__ import annotations

import pytest

from rag_platform.answering.differences import (
    compare_with_rows,
    find_contradiction,
    find_foreign_flag,
    find_misplacement,
)

DRILLS = """\
| Model | Noise level | Weight | Wireless |
| --- | --- | --- | --- |
| AX-250 | 64 dB | 2.1 kg | ✅ |
| AX-300 | 71 dB | 3.4 kg | ❌ |
"""
STORES = """\
| 门店 | 店长 | 面积 |
| --- | --- | --- |
| 杭州店 | 王芳 | 120 平方米 |
| 苏州店 | 李强 | 95 平方米 |
"""
OFFICES = """\
- **Oslo**: Jens Berg
- **Lisbon**: Maria Silva
"""
LIMITS = "浓硫酸由两人领取，单次领用不超过 5 升。乙醇由一人领取，单次领用不超过 20 升。"
LETTER = (
    "The Oslo office is managed by Jens Berg since May. The Lisbon office is managed by Maria"
    " Silva since June. She reports to the board twice a year."
)
PRESSES = (
    "The press weighs 900 kg. It needs a floor of concrete and two workers to be moved. "
    "The saw weighs 45 kg. It stands on wheels."
)


@pytest.mark.parametrize(
    ("sentence", "text", "told"),
    [
        ("The AX-250 has a noise level of 64 dB.", DRILLS, ""),
        ("The AX-250 has a noise level of 71 dB.", DRILLS, "'71 db' stands beside 'ax-300'"),
        ("The weight of the AX-250 is 64 dB.", DRILLS, "'64 db' stands under 'noise level'"),
        (
            "The AX-250 does not have a noise level of 64 dB.",
            DRILLS,
            "it negates what the text says",
        ),
        ("The AX-250 has 64 dB and the AX-300 has 71 dB.", DRILLS, ""),
        ("For the AX-300, Wireless is ✅.", DRILLS, "'✅' stands beside 'ax-250'"),
        ("Both drills are sold with a case.", DRILLS, None),
        ("The AX-250 is sold with a case.", DRILLS, None),
        ("杭州店的店长是王芳。", STORES, ""),
        ("杭州店的店长不是王芳。", STORES, "it negates what the text says of '杭州店'"),
        ("杭州店的店长是李强。", STORES, "'李强' stands beside '苏州店'"),
        ("杭州店的店长是 120 平方米。", STORES, "'120 平方米' stands under '面积'"),
        ("Maria Silva leads the Oslo office.", OFFICES, "'maria silva' stands beside 'lisbon'"),
        ("Maria Silva leads the Lisbon office.", OFFICES, ""),
        ("Maria Silva leads it.", OFFICES, None),
    ],
)
def test_a_value_belongs_to_its_row_and_column(sentence: str, text: str, told: str | None) -> None:
    found = compare_with_rows(sentence, text)
    assert told in (found or "") if told else found == told


@pytest.mark.parametrize(
    ("sentence", "text", "told"),
    [
        ("Jens Berg manages the Oslo office.", LETTER, ""),
        ("The Oslo office is managed by Maria Silva since May.", LETTER, "'oslo' where"),
        ("The Lisbon office is managed by Jens Berg since June.", LETTER, "'lisbon' where"),
        ("Since June, the Lisbon office is managed by Maria Silva.", LETTER, ""),
        ("The Lisbon office is managed by Ana Costa since June.", LETTER, ""),  # not in the text
        ("浓硫酸由两人领取，单次领用不超过 5 升。", LIMITS, ""),
        ("浓硫酸由一人领取，单次领用不超过 5 升。", LIMITS, ""),  # one character is no phrase
        ("浓硫酸单次领用不超过 20 升。", LIMITS, "it has '20' where"),
        ("乙醇单次领用不超过 20 升。", LIMITS, ""),
        ("The press weighs 45 kg and needs a floor of concrete.", PRESSES, "it has '45' where"),
        ("The press weighs 900 kg.", PRESSES, ""),
        ("AX-250 的噪音是 71 分贝。", DRILLS, "71 stands apart from ax-250"),  # another language
        ("AX-300 的噪音是 71 分贝。", DRILLS, ""),
    ],
)
def test_the_parts_of_a_sentence_stand_together(sentence: str, text: str, told: str) -> None:
    found = find_misplacement(sentence, text)
    assert told in found if told else not found


def test_a_number_may_belong_to_a_heading() -> None:
    assert find_misplacement("Version 12 weighs more.", "The saw weighs 45 kg.", "Version 12") == ""


SESSIONS = "A session ends after 12 hours. Idle links end after 46 minutes."
MEALS = "国内出差每天餐补 100 元，境外出差每天 60 美元。"
PLANS = "The free plan allows 60 requests per minute and the pro plan allows 600 per minute."
LEAVE = "年假为 15 天，病假为 30 天。"
BRANCHES = "李明负责北京分公司，王芳负责上海分公司。"


@pytest.mark.parametrize(
    ("sentence", "text", "told"),
    [
        ("A session ends after 46 minutes.", SESSIONS, "'A session ends after 12 hours'"),
        ("Idle links end after 12 hours.", SESSIONS, "'Idle links end after 46 minutes'"),
        ("Sessions end after 12 hours.", SESSIONS, ""),
        ("A session lasts 12 hours, and idle links end after 46 minutes.", SESSIONS, ""),
        ("境外出差每天餐补 100 元。", MEALS, "it has '境外' where the text has '国内'"),
        ("国内出差每天 60 美元。", MEALS, "it has 60 where the text has another number"),
        ("境外出差每天餐补 60 美元。", MEALS, ""),
        ("The free plan allows 600 requests per minute.", PLANS, "it has 600"),
        ("The pro plan allows 600 requests per minute.", PLANS, ""),
        ("年假为 30 天。", LEAVE, "it has 30 where the text has another number: '年假为 15 天'"),
        ("病假有 30 天。", LEAVE, ""),
        ("李明负责上海分公司。", BRANCHES, "it has '李明' where the text has '王芳'"),
        ("上海分公司由王芳负责。", BRANCHES, ""),
        # a number of something else, and an order of time, speak against nothing
        ("The club has 500 members.", "The club has 3 courts. There are 500 members.", ""),
        ("Tesla moved in 1899.", "In 1884 Tesla sailed. He moved in 1899.", ""),
    ],
)
def test_a_value_or_name_belongs_to_its_clause(sentence: str, text: str, told: str) -> None:
    found = find_misplacement(sentence, text)
    assert told in found if told else not found


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


OPTIONS = """\
**`-f, --force`**

if a file cannot be opened, remove it and try again

**`-L`**

always follow symbolic links in SOURCE

**`-P`**

never follow symbolic links in SOURCE

Use -P to copy the links themselves.
"""


@pytest.mark.parametrize(
    ("sentence", "told"),
    [
        ("With -L, cp never follows symbolic links.", "it says of -L what the text says of `-P`"),
        (
            "cp --preserve removes a file that cannot be opened.",
            "it says of --preserve what the text says of `-f, --force`",
        ),
        ("With -P, cp never follows symbolic links.", ""),
        ("cp --force removes a file that cannot be opened.", ""),
        ("-P copies the links themselves.", ""),
        ("cp never follows symbolic links.", ""),
        ("-x 从不跟随符号链接。", ""),
    ],
)
def test_a_description_belongs_to_its_flag(sentence: str, told: str) -> None:
    assert find_foreign_flag(sentence, OPTIONS) == told
