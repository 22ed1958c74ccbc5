"""Parses dates as found in files; finds dates and numbered parts (第7条) in texts, in any form."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, date, datetime
from email.utils import parsedate_to_datetime

from rag_platform.text.scripts import HAN_DIGIT, HAN_DIGITS, count_in_han, has_han, simplify

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
_REPUBLIC = 1911  # the year before the first one of 民國, the calendar of Taiwan
MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split()
_MONTH = (
    "(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?"
    "|sep(?:tember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)"
)
_YEAR = (
    rf"(?:(?<!\d)(?:19|20)\d\d|(?<![{_YEAR_DIGITS}])[一二][{_YEAR_DIGITS}零○]{{3}}"
    rf"|民[国國]\s?(?:\d{{2,3}}|[{HAN_DIGITS}十百]{{1,6}}))"
)
_DATE = re.compile(
    rf"{_YEAR}\s?年\s?(?:\d\d?|{HAN_DIGIT}{{1,2}})\s?月"
    rf"(?:\s?(?:\d\d?|{HAN_DIGIT}{{1,3}})\s?[日号號])?"
    r"|(?<![\d./-])(?:19|20)\d\d(?:([-/.])\d\d?\1\d\d?|[-/.]\d\d)(?!\d|[./-]\d)"
    rf"|(?<![a-z\d])(?:{_MONTH} (?:\d\d?,? )?|\d\d? {_MONTH},? )(?:19|20)\d\d(?!\d)"
    rf"|第\s?(?:\d{{1,3}}|[{HAN_DIGITS}十百]{{1,5}})\s?[条條款章节節步]",
    re.IGNORECASE,
)
_HAN_NUMBER = re.compile(f"[{_YEAR_DIGITS}零○十百]+")
_MONTH_NUMBER, _DAY_NUMBER = "(?:1[0-2]|0?[1-9])", "(?:3[01]|[12][0-9]|0?[1-9])"
_DAY_GROUPS = [[f"{kind}{n}" for n in range(5)] for kind in "md"]
# days of a month, with or without a year; of `12/1` and `12-01` only what stands alone in a cell,
# since others are fractions and ranges
_DAY = re.compile(
    rf"(?<![\d./-])(?:(?:19|20)\d\d(?P<mark>[-/.])(?P<m0>{_MONTH_NUMBER})(?P=mark)"
    rf"(?P<d0>{_DAY_NUMBER})(?![\d./-])"
    rf"|(?<!{HAN_DIGIT})(?P<m1>{_MONTH_NUMBER}|{HAN_DIGIT}{{1,2}})\s?月\s?"
    rf"(?P<d1>{_DAY_NUMBER}|{HAN_DIGIT}{{1,3}})\s?[日号號]"
    rf"|(?<=\| )(?P<m2>{_MONTH_NUMBER})[-/](?P<d2>{_DAY_NUMBER})(?= \|))"
    rf"|(?<![a-z\d])(?P<m3>{_MONTH})\.? (?P<d3>{_DAY_NUMBER})(?:st|nd|rd|th)?(?![\w:]|\.\d)"
    rf"|(?<![\d.,])(?P<d4>{_DAY_NUMBER})(?:st|nd|rd|th)?(?: of)? (?P<m4>{_MONTH})"
    r"(?!\w|(?-i:(?<= may) [a-z]))",  # not `3 may enter`
    re.IGNORECASE,
)


def find_dates(text: str) -> Iterator[tuple[str, str]]:
    """(a date as written, its ISO form) for each whole date of a text, and each month of a year;
    (a numbered part as written, the same in digits).

    >>> list(find_dates("二〇二四年三月十八日至民國113年6月，第十二條"))
    [('二〇二四年三月十八日', '2024-03-18'), ('民國113年6月', '2024-06'), ('第十二條', '第12条')]
    """
    for match in _DATE.finditer(text):
        narrow = unicodedata.normalize("NFKC", simplify(match[0])).lower()
        written = _HAN_NUMBER.sub(lambda it: read_han(it[0]), narrow)
        if written[0] == "第":
            yield match[0], "".join(written.split())
            continue
        numbers = re.findall(r"\d+", written)
        if named := re.match(r"(\d+ )?([a-z]{3})", written):
            numbers = [numbers[-1], str(MONTHS.index(named[2]) + 1), *numbers[:-1]]
        elif written[0] == "民":
            numbers[0] = str(int(numbers[0]) + _REPUBLIC)
        with suppress(ValueError):  # there is no such day
            yield match[0], _compose_date(*numbers)


def find_days(text: str) -> list[tuple[re.Match[str], tuple[int, int]]]:
    """(a day as written, its month and day) for each day of a text, with or without a year; then
    those alone in a cell once more, read with the day first, unless the text is Chinese.

    >>> [day for _, day in find_days("| 12/4 | 11月5号 | 2026-11-05 | Nov 5th | 5 May |")]
    [(12, 4), (11, 5), (11, 5), (11, 5), (5, 5)]
    >>> [day for _, day in find_days("| 12/4 | Carla |")]
    [(12, 4), (4, 12)]
    """
    found = [(match, _read_day(match)) for match in _DAY.finditer(text)]
    ambiguous = () if has_han(text) else (it for it in found if it[0]["m2"])
    return [*found, *((match, day[::-1]) for match, day in ambiguous)]


def _read_day(match: re.Match[str]) -> tuple[int, int]:
    found = match.groupdict()
    month, day = (next(filter(None, map(found.get, names))) for names in _DAY_GROUPS)
    return _read_month(month), int(day) if day.isdecimal() else int(read_han(day))


def _read_month(name: str) -> int:
    if name.isdecimal():
        return int(name)
    named = name[:3].lower()
    return MONTHS.index(named) + 1 if named in MONTHS else int(read_han(name))


def write_alike(text: str, model: str) -> str:
    """The text with the dates, months and days that the model has too written as there.

    >>> write_alike("签订于二〇二四年三月十八日", "2024-03-18")
    '签订于2024-03-18'
    >>> write_alike("| 12/4 | Carla |", "Who comes on December 4?")
    '| December 4 | Carla |'
    """
    forms = {day: written for written, day in find_dates(model)}
    for written, day in find_dates(text) if forms else ():
        text = text.replace(written, forms.get(day, written))
    for written in forms.values():  # another year's day is not the same
        model = model.replace(written, " ")
    days = {month_day: match[0] for match, month_day in find_days(model)}
    return _DAY.sub(lambda it: days.get(_read_day(it), it[0]), text) if days else text


def date_forms(iso: str) -> list[str]:
    """The usual ways to write a date, a month of a year, or a numbered part.

    >>> date_forms("2024-03-18")[1:3], date_forms("2024-03")[1]
    (['二〇二四年三月十八日', '2024 年 3 月 18 日'], '二〇二四年三月')
    >>> date_forms("第12条")
    ['第12条', '第十二条', '第 12 条']
    """
    if iso[0] == "第":
        number, part = iso[1:-1], iso[-1]
        return [f"第{it}{part}" for it in (number, count_in_han(int(number)), f" {number} ")]
    year, month, *days = map(int, iso.split("-"))
    han = "".join(_YEAR_DIGITS[int(digit)] for digit in str(year))
    counted, english = count_in_han(month), f"{date(year, month, 1):%B}"
    years = [f"民国{year - _REPUBLIC}", f"民国{count_in_han(year - _REPUBLIC)}"]
    forms = [
        f"{year}年{month}月" + "".join(f"{day}日" for day in days),
        f"{han}年{counted}月" + "".join(f"{count_in_han(day)}日" for day in days),
        f"{year} 年 {month} 月" + "".join(f" {day} 日" for day in days),
        f"{year}年{month:02}月" + "".join(f"{day:02}日" for day in days),
        *(mark.join([str(year), *(f"{it:02}" for it in (month, *days))]) for mark in "-/."),
    ]
    if year > _REPUBLIC:
        forms += [
            f"{years[0]}年{month}月" + "".join(f"{day}日" for day in days),
            f"{years[1]}年{counted}月" + "".join(f"{count_in_han(day)}日" for day in days),
        ]
    for day in days:
        forms += [f"{year}{mark}{month}{mark}{day}" for mark in "-/."]
        forms += [f"{english} {day}, {year}", f"{day} {english} {year}"]
    return forms if days else [*forms, f"{english} {year}", f"{english[:3]} {year}"]


def read_han(number: str) -> str:
    """A Chinese number in digits, counted (十八) or digit by digit (二〇二四)."""
    for name, zeros in (("千", "000"), ("百", "00"), ("十", "0")):
        many, unit, rest = number.rpartition(name)
        if unit:
            return str(int((read_han(many) if many else "1") + zeros) + int(read_han(rest) or 0))
    return "".join(str(max(HAN_DIGITS.find(digit), 0)) for digit in number)
