"""Finds whole dates in texts, however they are written, and writes them in other ways."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date

from rag_platform.text.dates import iso_date
from rag_platform.text.scripts import simplify

_DIGITS = "〇一二三四五六七八九"
_MONTH = (
    "(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?"
    "|sep(?:tember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)"
)
_DATE = re.compile(
    rf"(?:(?<!\d)(?:19|20)\d\d|(?<![{_DIGITS}])[一二][{_DIGITS}零○]{{3}})\s?年\s?(?:\d\d?|[一二三四五六七八九十]{{1,2}})"
    r"\s?月\s?(?:\d\d?|[一二三四五六七八九十]{1,3})\s?[日号號]"
    r"|(?<![\d./-])(?:19|20)\d\d([-/.])\d\d?\1\d\d?(?!\d|[./-]\d)"
    rf"|(?<![a-z\d])(?:{_MONTH} \d\d?,? |\d\d? {_MONTH},? )(?:19|20)\d\d(?!\d)",
    re.IGNORECASE,
)
_HAN_NUMBER = re.compile(f"[{_DIGITS}零○十]+")


def find_dates(text: str) -> Iterator[tuple[str, str]]:
    """(a date as written, its ISO form) for each whole date of a text.

    >>> list(find_dates("二〇二四年三月十八日至2024.4.5"))
    [('二〇二四年三月十八日', '2024-03-18'), ('2024.4.5', '2024-04-05')]
    """
    for match in _DATE.finditer(text):
        written = _HAN_NUMBER.sub(_write_digits, simplify(match[0])).replace("号", "日")
        if match[1]:
            written = written.replace(match[1], "/")
        if found := iso_date(written):
            yield match[0], found


def write_alike(text: str, model: str) -> str:
    """The text with the whole dates that the model has too written as there.

    >>> write_alike("签订于二〇二四年三月十八日", "2024-03-18")
    '签订于2024-03-18'
    """
    forms = {day: written for written, day in find_dates(model)}
    for written, day in find_dates(text) if forms else ():
        text = text.replace(written, forms.get(day, written))
    return text


def date_forms(iso: str) -> list[str]:
    """The usual ways to write a date.

    >>> date_forms("2024-03-18")[:4]
    ['2024年3月18日', '二〇二四年三月十八日', '2024 年 3 月 18 日', '2024年03月18日']
    """
    day = date.fromisoformat(iso)
    year, month, number = day.year, day.month, day.day
    han = "".join(_DIGITS[int(digit)] for digit in str(year))
    english = f"{day:%B}"
    return [
        f"{year}年{month}月{number}日",
        f"{han}年{_count(month)}月{_count(number)}日",
        f"{year} 年 {month} 月 {number} 日",
        f"{year}年{month:02}月{number:02}日",
        *(
            f"{year}{mark}{month:{width}}{mark}{number:{width}}"
            for mark in "-/."
            for width in ("", "02")
        ),
        f"{english} {number}, {year}",
        f"{number} {english} {year}",
    ]


def _write_digits(match: re.Match[str]) -> str:
    tens, ten, ones = match[0].rpartition("十")
    digits = "".join(str(max(_DIGITS.find(char), 0)) for char in ones)
    if not ten:
        return digits
    return f"{max(_DIGITS.find(tens), 1) if tens else 1}{digits or 0}"


def _count(number: int) -> str:
    """A number below 100 as it is counted: 十, 十八, 三十一."""
    tens, ones = divmod(number, 10)
    return (
        ("" if tens < 2 else _DIGITS[tens])
        + ("十" if tens else "")
        + (_DIGITS[ones] if ones else "")
    )
