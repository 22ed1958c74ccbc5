"""Sections that a question names by their number, and the numbers of headings: `section 5.2.2`,
`§ 12`, `appendix B`, `第三章第二节`; and releases, whose headings have a version.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache

from rag_platform.text.dates import read_han
from rag_platform.text.entries import RELEASE, VERSION, find_headings
from rag_platform.text.scripts import HAN_NUMBER, simplify
from rag_platform.text.term_overlap import question_terms, question_words

_KINDS = {
    "section": r"sections?\b|sect?\.|clauses?\b|paragraphs?\b|para\.|§{1,2}",
    "chapter": r"chapters?\b|ch(?:ap)?\.",
    "part": r"parts?\b",
    "article": r"articles?\b|art\.",
    "appendix": r"appendix\b|annex\b|schedule\b|exhibit\b",
}
_KIND = "|".join(f"(?P<{kind}>{words})" for kind, words in _KINDS.items())
_DIGITS = r"\d{1,3}(?:\.\d{1,3})*[a-z]?"
_NUMBER = rf"(?:[A-Z]\.?)?{_DIGITS}|[IVXLC]{{1,6}}|[A-Z]"
_ENDS = r"(?![\w-]|\.\w)"
_HAN = rf"第\s?(?P<han>{HAN_NUMBER})\s?(?P<unit>[编篇章节]|部分)"
_ASKED = re.compile(
    rf"(?<!\w)(?i:{_KIND})\s*(?P<number>{_NUMBER}){_ENDS}"
    rf"|(?<![\w.-])(?P<code>[A-Z]\.\d{{1,3}}(?:\.\d{{1,3}})*){_ENDS}|{_HAN}"
)
_HEADING = re.compile(
    rf"(?:(?i:{_KIND})\s*(?P<number>{_NUMBER}){_ENDS}"
    rf"|(?P<code>(?:[A-Z]\.)?{_DIGITS}(?=[.:)]?(?:\s|$))|[A-Z](?=[.:](?:\s|$)))|{_HAN})"
)

# `2.0`, `v2`, `2.x`, `version 2`, and `yargs 17` at the end of a question
_ASKED_RELEASE = re.compile(
    rf"{VERSION.pattern}|(?<![\w.-])(?:v\d+|v?\d+(?:\.\d+)*\.x|(?<=version )\d+|(?<=release )\d+"
    r"|(?<=[a-z] )\d\d?(?=\W*\Z))(?![\w-]|\.\w)",
    re.ASCII | re.IGNORECASE,
)
_NAMED = re.compile(rf"(?:[\w.+-]+\s){{0,2}}(?:{_ASKED_RELEASE.pattern})", re.ASCII | re.IGNORECASE)
# the words of questions about a release as a whole
_RELEASE_WORDS = re.compile(
    r"\b(?:add|bug|break|chang|date|deprecat|enhanc|featur|fix|improv|introduc|new|notes?\b|publish"
    r"|releas|remov|ship|updat|version)[a-z]*"
    r"|版本|更新|变更|变化|改动|修改|修复|改进|优化|新增|增加|移除|弃用|功能|特性|内容|问题|发布|上线|时间"
    r"|日期|时候"
)


def find_asked_sections(question: str) -> dict[str, str]:
    """The numbers of the sections that a question names, as written and with their kind.

    >>> find_asked_sections("What does § 5.2.2 of RFC 1034 say?")
    {'§ 5.2.2': 'section 5.2.2'}
    >>> find_asked_sections("第三章第二节讲什么")
    {'第三章': '第3章', '第二节': '第2节'}
    """
    found = _ASKED.finditer(simplify(question))
    return {question[slice(*it.span())]: _read(it) for it in found}


def is_in_sections(path: Iterable[str], asked: Iterable[str]) -> bool:
    """True below headings with all of these numbers. A heading without a kind has any: `4. Files`
    is chapter 4.

    >>> is_in_sections(["RFC 1034", "5. Resolvers", "5.2.2. Aliases"], ["section 5.2.2"])
    True
    """
    numbers = {number for heading in path if (number := _number_heading(heading))}
    return all({it, it.rpartition(" ")[2]} & numbers for it in asked)


def find_asked_releases(question: str) -> dict[str, str]:
    """The versions that a question names, as written and without `v` and zeros at the end.

    >>> find_asked_releases("What changed in v5.0.1?"), find_asked_releases("2.0版本修复了什么")
    ({'v5.0.1': '5.0.1'}, {'2.0': '2'})
    """
    return {it[0]: _plain_version(it[0]) for it in _ASKED_RELEASE.finditer(question)}


def is_about_releases(question: str, names: Iterable[str] = ()) -> bool:
    """True where a question names versions and has no words but these, up to two words before each,
    as of its product, other `names`, and what changed or when.

    >>> is_about_releases("When was Spring Boot 3.2.0 released?")
    True
    >>> is_about_releases("How do I set the port in Spring Boot 3.2.0?")
    False
    """
    if not _ASKED_RELEASE.search(question):
        return False
    said = (it[0] for it in _NAMED.finditer(question))
    known = question_terms(question).find_in(
        "\n".join([*find_release_words(question), *said, *names])
    )
    return all(word.is_whole_in(known) for word in question_words(question))


def find_release_words(question: str) -> list[str]:
    """The words for what changed or when."""
    return _RELEASE_WORDS.findall(question.lower())


def is_in_release(path: Iterable[str], asked: Collection[str]) -> bool:
    """True below a heading with one of these versions, as of `find_asked_releases`, and none with
    another below it. 2 is also 2.0.0, and 2.x every version that begins with `2.`.

    >>> is_in_release(["1.9.0 (2020-09-28)", "1.8.17 (2019-11-06)", "Fixed"], {"1.8.17"})
    True
    >>> is_in_release(["1.9.0 (2020-09-28)", "1.8.17 (2019-11-06)"], {"1.9.0"})
    False
    """
    last = find_release(path)
    lines = tuple(it[:-1] for it in asked if it.endswith(".x"))
    return last in asked or (bool(lines) and f"{last}.".startswith(lines))


def has_release(path: Sequence[str], text: str, asked: Collection[str]) -> bool:
    """True for a passage below headings with one of these versions, or with such a heading."""
    return any(is_in_release(it, asked) for it in (path, *zip(find_headings(text), strict=True)))


def find_release(path: Iterable[str]) -> str:
    """The version that the last heading with one has, as of `find_asked_releases`, else ""."""
    versions = [it[1] for heading in path if (it := RELEASE.search(heading))]
    return _plain_version(versions[-1]) if versions else ""


def _plain_version(version: str) -> str:
    parts = version.lower().removeprefix("v").rstrip(".+-~").split(".")
    while len(parts) > 1 and parts[-1] == "0":
        parts.pop()
    return ".".join(parts)


@lru_cache(maxsize=4096)
def _number_heading(heading: str) -> str:
    found = _HEADING.match(simplify(heading).strip("*_` "))
    return _read(found) if found else ""


def _read(found: re.Match[str]) -> str:
    if found["unit"]:
        number = found["han"]
        return f"第{number if number.isdigit() else read_han(number)}{found['unit']}"
    kind = next((kind for kind in _KINDS if found[kind]), "")
    number = (found["number"] or found["code"]).lower()
    return f"{kind} {number}".lstrip()
