"""Formats the place of a passage for people: pages, lines, or the format's own locator in words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import unquote

from rag_platform.messages import translate

# steps of the locators of Word documents, workbooks, slides and notebooks; the loaders make them
_NOUNS = {
    "p": "paragraph",
    "tbl": "table",
    "tr": "row",
    "tc": "cell",
    "txbx": "text frame",
    "footnotes": "footnote",
    "endnotes": "endnote",
    "comments": "comment",
    "header": "header",
    "footer": "footer",
    "rows": "row",
    "columns": "column",
    "slide": "slide",
    "cell": "cell",
    "output": "output",
    "lines": "line",
}
_STEP = re.compile(r"([a-z]+?)(?:\[([\d-]+)\]|=([\dA-Z-]+)|(\d+))?")
_SEPARATOR = re.compile(r"( to |, )(?=[a-z]+\d*[=/])")  # not inside the name of a sheet
_PART = re.compile(r"part=([^;]*)(?:;|$)")  # of a book, mail or saved page
_XPATH = re.compile(r"xpath=[^;]*(?:;nodes=[\d-]+)?")
# steps that say nothing to people: every paragraph has them, or nobody can count them
_OMITTED = ("body", "shape", "head", "note")


def format_place(
    page_range: Sequence[int] | None,
    line_range: Sequence[int] | None,
    locator: str = "",
    language: str = "en",
) -> str:
    """The place of a span: `page 3`, `pages 3-4`, `lines 10-24`, else the locator in words, else
    empty.
    """
    for name, bounds in (("page", page_range), ("line", line_range)):
        if bounds is not None:
            return _count(name, "-".join(map(str, bounds)), language)
    return format_locator(locator, language)


def format_locator(locator: str, language: str = "en") -> str:
    """A locator in words; one of an unknown format is unchanged. Of one with an XPath, only the
    part of the book or mail is named.

    >>> format_locator("body/tbl[2]/tr[3-9]"), format_locator("sheet=Q1%3B;rows=4;head=1")
    ('table 2, rows 3-9', 'sheet Q1;, row 4')
    >>> format_locator("part=ch1.xhtml;xpath=/html/body/p[3]"), format_locator("xpath=/html/body/p")
    ('part ch1.xhtml', '')
    """
    first, *rest = _SEPARATOR.split(locator, maxsplit=1)
    if rest:
        separator = translate({", ": "; "}.get(rest[0], rest[0]), language)
        ends = format_locator(first, language), format_locator(rest[1], language)
        return separator.join(dict.fromkeys(filter(None, ends)))
    part = _PART.match(locator)
    steps = re.split("[;/]", re.sub(r"(?<=notes)/|(?<=comments)/", "=", _strip_xpath(locator)))
    words = [_format_step(step, language) for step in steps if step]
    if None in words:
        return locator
    if part is not None:
        words.insert(0, translate("part {name}", language, name=unquote(part[1])))
    return translate(", ", language).join(filter(None, words))


def _strip_xpath(locator: str) -> str:
    """The locator without its part and its XPath."""
    return _XPATH.sub("", _PART.sub("", locator))


def _format_step(step: str, language: str) -> str | None:
    """A step in words, empty for one that is omitted; None for an unknown one."""
    if step.startswith("sheet="):
        return translate("sheet {name}", language, name=unquote(step.removeprefix("sheet=")))
    if step in ("notes", "comments"):
        return translate(step, language)
    if step.startswith("header="):  # of a mail
        return translate("mail header", language)
    match = _STEP.fullmatch(step)
    if match is None or match[1] not in (*_NOUNS, *_OMITTED):
        return None
    if match[1] in _OMITTED:
        return ""
    return _count(_NOUNS[match[1]], match[2] or match[3] or match[4] or "1", language)


def _count(noun: str, place: str, language: str) -> str:
    first, _, last = place.partition("-")
    place = first if first == last else place
    plural = "s" if "-" in place else ""
    return translate(f"{noun}{plural} {{place}}", language, place=place)
