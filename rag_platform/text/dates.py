"""Parses dates as found in files and texts."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

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
