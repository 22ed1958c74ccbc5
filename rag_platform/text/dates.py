"""Parses dates as found in files, and finds and writes whole ones in texts, in any form."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, date, datetime
from email.utils import parsedate_to_datetime

from rag_platform.text.scripts import HAN_DIGITS, count_in_han, simplify

_ISO = re.compile(
    r"(\d{4})(?:-(\d{1,2})(?:-(\d{1,2})(?:[T"
    r" ](\d{1,2}):(\d{2})(?::(\d{2})(?:\.\d+)?)?\s*(Z|UTC|[+-]\d{2}:?\d{2})?)?)?)?",
    re.I,
)
_PDF = re.compile(
    r"(?:D:)?(\d{4})(\d{2})(\d{2})(?:(\d{2})(\d{2})(\d{2})?)?\s*(Z|[+-]\d{2}'?(?:\d{2})?'?)?(?:00'00'?)?"
)
_YEAR_FIRST = re.compile(r"(\d{4})\s*[/.年]\s*(\d{1,2})\s*[/.月]\s*(\d{1,2})\s*日?")
_YEAR_LAST = re.compile(r"(\d{1,2})[/.-](\d{1,2})[/.-](\d{4})")
_WRITTEN = ("%B %d, %Y", "%b %d, %Y", "%d %B %Y", "%d %b %Y", "%B %d %Y", "%b %d %Y")


def iso_date(value: object, *, month_first: bool = False) -> str:
    """The date as `2024`, `2024-05`, `2024-05-01` or `2024-05-01T10:00:00Z`; empty for an invalid
    or ambiguous one. `month_first` resolves 3/5/2024 as March 5.

    >>> iso_date("D:20240501103000+02'00'")
    '2024-05-01T08:30:00Z'
    >>> iso_date("May 1, 2024"), iso_date("13/5/2024"), iso_date("3/5/2024")
    ('2024-05-01', '2024-05-13', '')
    """
    text = (
        " ".join(str(value).split())
        if isinstance(value, str | int) and not isinstance(value, bool)
        else ""
    )
    try:
        if found := _ISO.fullmatch(text) or (_PDF.fullmatch(text) if len(text) >= 8 else None):
            return _compose_date(*found.groups())
        if found := _YEAR_FIRST.fullmatch(text):
            return _compose_date(*found.groups())
        if found := _YEAR_LAST.fullmatch(text):
            first, second, year = found.groups()
            if int(first) > 12 or first == second:
                return _compose_date(year, second, first)
            return _compose_date(year, first, second) if month_first or int(second) > 12 else ""
        return _parse_written(text)
    except (ValueError, OverflowError, TypeError):
        return ""


def _compose_date(
    year: str,
    month: str | None = None,
    day: str | None = None,
    hour: str | None = None,
    minute: str | None = None,
    second: str | None = None,
    zone: str | None = None,
) -> str:
    """The ISO form, times in UTC. Raises ValueError for a date that does not exist."""
    if not month:
        return year if 1000 <= int(year) <= 2999 else ""
    moment = datetime(
        int(year),
        int(month),
        int(day or 1),
        int(hour or 0),
        int(minute or 0),
        min(int(second or 0), 59),
        tzinfo=UTC,
    )
    if not day:
        return moment.strftime("%Y-%m")
    if hour is None:
        return moment.strftime("%Y-%m-%d")
    digits = re.sub(r"\D", "", zone or "")
    if digits:
        minutes = int(digits[:2]) * 60 + int(digits[2:4] or 0)
        moment = datetime.fromtimestamp(
            moment.timestamp() - (minutes if (zone or "")[0] == "+" else -minutes) * 60, UTC
        )
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _parse_written(text: str) -> str:
    for form in _WRITTEN:
        try:
            return datetime.strptime(text, form).strftime("%Y-%m-%d")
        except ValueError:
            continue
    if not re.search(r"\d{2}:\d{2}", text):
        return ""
    moment = parsedate_to_datetime(text)
    return (moment.astimezone(UTC) if moment.tzinfo else moment).strftime("%Y-%m-%dT%H:%M:%SZ")


# --- in texts ------------------------------------------------------------------------------------

_YEAR_DIGITS = f"〇{HAN_DIGITS[1:]}"
_MONTH = (
    "(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?"
    "|sep(?:tember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)"
)
_DATE = re.compile(
    rf"(?:(?<!\d)(?:19|20)\d\d|(?<![{_YEAR_DIGITS}])[一二][{_YEAR_DIGITS}零○]{{3}})\s?年\s?(?:\d\d?|[一二三四五六七八九十]{{1,2}})"
    r"\s?月\s?(?:\d\d?|[一二三四五六七八九十]{1,3})\s?[日号號]"
    r"|(?<![\d./-])(?:19|20)\d\d([-/.])\d\d?\1\d\d?(?!\d|[./-]\d)"
    rf"|(?<![a-z\d])(?:{_MONTH} \d\d?,? |\d\d? {_MONTH},? )(?:19|20)\d\d(?!\d)",
    re.IGNORECASE,
)
_HAN_NUMBER = re.compile(f"[{_YEAR_DIGITS}零○十]+")


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
    han = "".join(_YEAR_DIGITS[int(digit)] for digit in str(year))
    english = f"{day:%B}"
    return [
        f"{year}年{month}月{number}日",
        f"{han}年{count_in_han(month)}月{count_in_han(number)}日",
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
    digits = "".join(str(max(HAN_DIGITS.find(char), 0)) for char in ones)
    if not ten:
        return digits
    return f"{max(HAN_DIGITS.find(tens), 1) if tens else 1}{digits or 0}"
