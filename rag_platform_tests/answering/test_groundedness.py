"""Which sentences passages bear out, by words, numbers and identifiers."""

from __future__ import annotations

import re

import pytest

from rag_platform.answering.groundedness import count_alike, support_by

TABLE = """\
### 2.1 Ratings

| Property | PX-20 | PX-40 |
| --- | --- | --- |
| Maximum throughput | 6,200 parcels/h | 11,400 parcels/h |

## 3 Use
"""
CHINESE = "PX-40 的最大吞吐量为每小时 11,400 件，重量上限 35 kg。"


@pytest.mark.parametrize(
    ("sentence", "body", "reason"),
    [
        ("The maximum throughput of the PX-40 is 11,400 parcels per hour.", TABLE, ""),
        ("PX-40最大吞吐量为每小时 11,400 件。", CHINESE, ""),
        # the product and the number are there, what is said of them is not
        ("The PX-40 costs 3 euros.", TABLE, "only 0% of its words"),
        ("PX-40 售价 35 元。", CHINESE, "only 0% of its words"),
        (
            "The maximum throughput of the PX-40 is 11,500 parcels.",
            TABLE,
            "numbers that the cited text does not hold: 11500",
        ),
        ("The maximum throughput of the PX-90 is 11,400.", TABLE, "identifiers .*: px-90"),
    ],
)
def test_a_sentence_needs_its_numbers_its_names_and_half_of_its_words(
    sentence: str, body: str, reason: str
) -> None:
    found = support_by(sentence, body)
    assert found.enough is not bool(reason)
    if reason:
        assert re.search(reason, found.reason)


LEAVE = "员工每年享有十五天带薪年假，须提前两周申请。周末加班按小时工资的两倍支付，十分公平。"
RESTART = "The router restarts within two minutes, after twenty-five retries."


@pytest.mark.parametrize(
    ("sentence", "body", "missing"),
    [
        ("周末加班按小时工资的三倍支付。", LEAVE, "3"),
        ("员工每年享有十六天带薪年假。", LEAVE, "16"),
        ("员工每年享有15天带薪年假，须提前 2 周申请。", LEAVE, ""),
        ("员工每年享有15天带薪年假。", "员工每年享有 15 天带薪年假。", ""),
        ("保修一年。", "保修两年。", "1"),
        ("需要一名操作员。", "需要操作员。", ""),  # an article
        ("加班十分公平，分三步申请。", LEAVE, ""),  # the text counts no steps
        ("第三章说明百分之五的费用。", "第三章说明百分之五的费用，共两章。", ""),
        ("The router restarts within three minutes.", RESTART, "3"),
        ("The router restarts within 2 minutes, after 25 retries.", RESTART, ""),
        ("The router restarts in both of two ways.", RESTART, ""),  # the text counts no ways
        ("保修一百五十天。", "保修一百二十天。", "150"),
        ("保修一百二十天。", "保修120天。", ""),
        ("成立于一九九八年。", "成立于1998年。", ""),
        ("成立于二〇二三年五月一日。", "成立于2024年5月1日。", "2023"),
        ("八点三十分开始。", "八点四十分开始。", "30"),
        ("需要两三天。", "需要 2 到 3 天。", ""),  # an estimate, not 23
        ("有34个人参加。", "有三四个人参加。", "34"),
        ("七八百人，二三十人。", "七百到八百人，20 到 30 人。", ""),
        ("提升三点五倍。", "提升 3.5 倍。", ""),  # not 5
        ("两个版本在同一年发布。", "两个版本均于 2019 年发布。", ""),
        ("万一天气不好，活动延期三天。", "天气不好时，活动延期3天。", ""),
        ("统一日期是唯一号码，任一天有效。", "日期统一，号码唯一：3 天，5 日，2 号。", ""),
        ("有一天假。", "有 2 天假。", "1"),
        ("三分之一的用户", "60% 的用户得 2 分。", ""),
        ("报销百分之五十五。", "报销 55%。", ""),
        ("报销百分之六十。", "报销 55%。", "60"),
        ("报销 60%。", "报销百分之五十点五。", "60"),
        ("增长百分之五十点五。", "增长50.5%。", ""),
        ("全部，百分之百。", "100% 的用户。", ""),
        ("三分之一的用户。", "三分之二的用户，共 3 人。", "1"),
        ("押金一千二百元。", "押金 1,200 元。", ""),
        ("押金一千零五十元。", "押金 1,500 元。", "1050"),
        ("押金两千三百元。", "押金2300元。", ""),
        ("重三千克。", "重3千克。", ""),  # 千克 is a kilogram
        ("见第三条。", "见第3条。", ""),
        ("见第三条。", "见第4条。", "3"),
        ("第一，见第二十一条。", "见第21条。", ""),
        ("第三次", "3次", ""),  # no number of a clause
        ("It has a three-minute timeout.", "The timeout is 3 minutes.", ""),
        ("It has a 3-minute timeout.", "The timeout is three minutes.", ""),
        ("It has three boxes.", "It has one box of 5 boxes.", "3"),
        ("The two were merged.", "Both were merged; three were rejected.", ""),
        ("Costs are split fifty-fifty.", "Costs are split 50-50.", ""),
        ("It takes 20 minutes.", "It takes twenty one minutes.", "20"),
    ],
)
def test_numbers_in_words_are_compared_as_numbers(sentence: str, body: str, missing: str) -> None:
    found = support_by(sentence, body)
    assert (", ".join(found.numbers), found.identifiers) == (missing, ())


@pytest.mark.parametrize(
    "run",
    [
        "二" * 100_000,
        "十百" * 50_000,
        "第" * 100_000,
        "twenty-2" * 20_000,
        "2 " * 50_000,
        "2-" * 50_000,
    ],
)
def test_long_runs_of_numbers_are_no_counts(run: str) -> None:
    assert count_alike(run, run + "个") == (run, run + "个")
