"""An answer about another month, weekday or quarter than the question's is told as that."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from rag_platform.answering.calendar_misses import find_other_date, find_other_year
from rag_platform.answering.near_misses import find_doubts
from rag_platform.config.settings import Limits
from rag_platform.ir import Hit
from rag_platform.query.analysis import prepare

HIT = Hit(1, "c1", 1.0, "hybrid", "d", "d@1", "minutes.md", "minutes.md", "Minutes", "", 1, "")


@pytest.mark.parametrize(
    ("question", "answer", "told"),
    [
        ("华东区第二季度完成多少？", "华东区第一季度完成460万元。", ("二季度", "一季度")),
        ("What was the revenue in Q4?", "In the third quarter it was 5.", ("Q4", "third quarter")),
        ("What was the revenue in Q3?", "In the third quarter it was 5.", None),
        ("what was decided in june?", "In May the fee was raised.", ("june", "May")),
        ("2025年4月的周会决定了什么？", "时间：2025年3月12日", ("4月", "3月")),
        ("十月新增了什么？", "v1.8.0 (2025-02-18)：批量创建", ("十月", "2025-02")),
        ("二月新增了什么？", "v1.8.0 (2025-02-18)：批量创建", None),
        ("財務部週五付款嗎？", "财务部每周三付款。", ("周五", "周三")),
        ("Is it open on Sundays?", "It opens on Monday at 9.", ("Sundays", "Monday")),
        # the answer has both; the sentence with the question's words is about the other one
        ("二季度破损多少托盘？", "一季度破损12托盘。二季度出库4650件。", ("二季度", "一季度")),
        ("二季度出库多少？", "一季度破损12托盘。二季度出库4650件。", None),
        # the date that is asked for, in another form
        ("2024年3月18日签订的合同", "签订日期：二〇二四年三月十八日。2024年4月30日交货。", None),
        (
            "2024年3月18日签订的合同",
            "二〇二四年三月十八日开会。2024年4月1日签订合同。",
            ("3月", "4月"),
        ),
        # a range, all days, and a period with an open end
        ("Is it open on Thursday?", "It is open Monday to Friday.", None),
        ("周四开门吗？", "周一至周五开门，周日休息。", None),
        ("Is it open on Sundays?", "It is open daily; on Monday from 9.", None),
        ("What was added since March?", "In May exports were added.", None),
        ("3月以后新增了什么？", "5月新增导出。", None),
        # no month, and no weekday
        ("May I leave early?", "In August all may.", None),
        ("多长时间备份？周一吗？", "每周一次，每次三个月的数据。", None),
    ],
)
def test_another_month_weekday_or_quarter_is_told(question: str, answer: str, told: Any) -> None:
    assert find_other_date(question, answer, [HIT]) == told


@pytest.mark.parametrize(
    ("question", "answer", "told"),
    [
        ("2021年营业收入是多少？", "2023年营业收入3.42亿元，2022年2.88亿元。", ("2021", "2023")),
        ("What was the revenue in FY2021?", "It was $2,023 million in 2023.", ("2021", "2023")),
        ("2021年营业收入是多少？", "2023年营业收入3.42亿元，2021年2.1亿元。", None),
        ("2021年营业收入是多少？", "2023年公布，二〇二一年为2.1亿元。", None),
        # numbers that are no year, a period with an open end, a number of things
        ("2021年营业收入是多少？", "营业收入2023.5万元，负债2,022万元。", None),
        ("2021年以来新增了什么？", "2023年新增导出。", None),
        ("一次导出2000行吗？", "2023年起每次5000行。", None),
    ],
)
def test_another_year_is_told(question: str, answer: str, told: Any) -> None:
    assert find_other_year(question, answer, [HIT]) == told


def test_a_cited_passage_says_which_year_it_is_about() -> None:
    passage = dataclasses.replace(HIT, chunk_text="2021年概况。营业收入2.1亿元，2023年公布。")
    answer = "营业收入2.1亿元，2023年公布。 [1]"
    assert find_other_year("2021年营业收入是多少？", answer, [passage]) is None


def test_a_title_says_which_month_its_text_is_about() -> None:
    question, answer = "What was decided in April?", "The fee was raised. [2]"
    march, april = (
        dataclasses.replace(HIT, source_uri=f"minutes-2025-{month}.md") for month in ("03", "04")
    )
    query = prepare(question, Limits())
    told = ("the answer speaks of “2025-03”, the question of “April”",)
    assert find_doubts(query, answer, [april, march]) == told
    assert find_doubts(query, answer, [march, april]) == ()
