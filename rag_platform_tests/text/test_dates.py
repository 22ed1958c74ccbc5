from __future__ import annotations

from datetime import date, timedelta

import pytest

from rag_platform.text.dates import date_forms, find_dates, find_days, iso_date, write_alike


@pytest.mark.parametrize(
    ("written", "iso"),
    [
        ("2024", "2024"),
        (2024, "2024"),
        ("2024-5", "2024-05"),
        ("2024-05-01", "2024-05-01"),
        ("2024-05-01T10:30:00Z", "2024-05-01T10:30:00Z"),
        ("2024-05-01 10:30", "2024-05-01T10:30:00Z"),
        ("2024-05-01T10:30:00.123+02:00", "2024-05-01T08:30:00Z"),
        ("2024-05-01T23:30:00-0230", "2024-05-02T02:00:00Z"),
        ("D:20240501103000+02'00'", "2024-05-01T08:30:00Z"),
        ("D:20240501103000Z00'00'", "2024-05-01T10:30:00Z"),
        ("D:20240501", "2024-05-01"),
        ("20240501", "2024-05-01"),
        ("2024/5/1", "2024-05-01"),
        ("2024年5月1日", "2024-05-01"),
        ("13/05/2024", "2024-05-13"),
        ("05/13/2024", "2024-05-13"),
        ("05/05/2024", "2024-05-05"),
        ("03/05/2024", ""),  # two different days
        ("May 1, 2024", "2024-05-01"),
        ("1 Sep 2024", "2024-09-01"),
        ("Wed, 01 May 2024 10:30:00 +0200", "2024-05-01T08:30:00Z"),
        ("2024-13-45", ""),
        ("31/02/2024", ""),
        ("draft", ""),
        ("", ""),
        (None, ""),
        (True, ""),
    ],
)
def test_iso_date(written: object, iso: str) -> None:
    assert iso_date(written) == iso


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("自二〇二四年三月十八日起", [("二〇二四年三月十八日", "2024-03-18")]),
        ("自二零二四年十月三十號起", [("二零二四年十月三十號", "2024-10-30")]),
        ("定于 2024 年 3 月 8 日召开", [("2024 年 3 月 8 日", "2024-03-08")]),
        (
            "入职2019-03-04，离职2024/12/31。",
            [("2019-03-04", "2019-03-04"), ("2024/12/31", "2024-12-31")],
        ),
        ("at 2024-03-18T10:00Z", [("2024-03-18", "2024-03-18")]),
        ("signed on March 18, 2024", [("March 18, 2024", "2024-03-18")]),
        ("signed on 18 Mar 2024", [("18 Mar 2024", "2024-03-18")]),
        ("二〇二四年三月及2024-04", [("二〇二四年三月", "2024-03"), ("2024-04", "2024-04")]),
        ("in March 2024", [("March 2024", "2024-03")]),
        ("民國113年3月18日", [("民國113年3月18日", "2024-03-18")]),
        ("中华民国一百零五年十月", [("民国一百零五年十月", "2016-10")]),
        ("第８７条", [("第８７条", "第87条")]),
        # no year, no such month or day, a version, an address
        ("三月十八日；2024.3；the season 2023-24", []),
        ("二〇二四年二月三十日", []),
        ("v2024.3.18.1 at 10.2024.3.18", []),
    ],
)
def test_whole_dates_are_found(text: str, found: list[tuple[str, str]]) -> None:
    assert list(find_dates(text)) == found


def test_every_form_of_every_day_and_month_is_read_as_that() -> None:
    for number in range(366):
        day = (date(2024, 1, 1) + timedelta(number)).isoformat()
        for iso in (day, day[:7]):
            for form in date_forms(iso):
                assert list(find_dates(f"于 {form} 签订")) == [(form, iso)]


def test_dates_are_written_as_in_another_text() -> None:
    text = "二〇二四年三月十八日签订，2024-04-30交货"
    assert write_alike(text, "2024年3月18日的合同") == "2024年3月18日签订，2024-04-30交货"
    assert write_alike(text, "三月的合同") == text


@pytest.mark.parametrize(
    ("text", "days"),
    [
        ("十一月十五日和11月 5 日", [(11, 15), (11, 5)]),
        ("2026.11.05 or 2026-11-05", [(11, 5), (11, 5)]),
        ("the 5th of November, Nov. 21st", [(11, 5), (11, 21)]),
        ("| 12/4 | 12-01 |", [(12, 4), (12, 1), (4, 12), (1, 12)]),
        ("3-5 days, 12/4 of it, 3.12/4, November 2026, 11月", []),
        ("Nov 5:30, version 1.2 May, 3 may enter", []),
    ],
)
def test_days_of_a_month_are_found(text: str, days: list[tuple[int, int]]) -> None:
    assert [day for _, day in find_days(text)] == days


def test_a_day_of_another_year_is_not_written_alike() -> None:
    assert write_alike("2025-12-21 and 2026/12/21", "2026-12-21") == "2025-12-21 and 2026-12-21"
