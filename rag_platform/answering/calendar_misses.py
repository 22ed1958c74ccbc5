"""Detects answers about another year, month, weekday or quarter than the question names.

These words are a closed class: unlike `staging` and `production`, none is another word for a
neighbour.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from rag_platform.ir import Hit
from rag_platform.text.dates import write_alike
from rag_platform.text.passages import units
from rag_platform.text.scripts import HAN_DIGITS, count_in_han, simplify
from rag_platform.text.terms import meaning

_MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split()
_DAYS = "mon tue wed thu fri sat sun".split()
_ORDINALS = "first second third fourth".split()
_HAN_NUMBERS = {count_in_han(n): str(n) for n in range(1, 13)} | {"日": "7", "天": "7"}
_MONTH_NAME = (
    r"jan(?:uary)?|feb(?:ruary)?|march|apr(?:il)?|june?|july?"
    r"|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?"
    r"|(?-i:(?<=[a-z\d,(|/-] )May|May(?= \d))"  # not `May I`
)
# months, weekdays and quarters, each with its number or name as a group
_UNITS = (
    re.compile(
        rf"\b({_MONTH_NAME})\b|(?<![\d.])(1[0-2]|0?[1-9]|十[一二]?|[一二三四五六七八九])月"
        r"|(?<!\d)(?:19|20)\d\d[-/.](1[0-2]|0?[1-9])(?!\d)",
        re.IGNORECASE,
    ),
    re.compile(
        r"\b(mon|tues|wednes|thurs|fri|satur|sun)days?\b"
        r"|(?:星期|(?<![一两])周|礼拜)([一二三四五六日天])(?!次)",
        re.IGNORECASE,
    ),
    re.compile(
        rf"\bq([1-4])(?!\w)|\b({'|'.join(_ORDINALS)}) quarter\b|([一二三四1-4])季度",
        re.IGNORECASE,
    ),
)
_ASKED_YEAR = re.compile(
    r"(?<!\d)((?:19|20)\d\d) ?年|\b(?:in |fy ?|fiscal (?:year )?)((?:19|20)\d\d)\b", re.I
)
_YEAR = re.compile(r"(?<![\d.,])(?:19|20)\d\d(?![\d,]|\.\d)")
_YEAR_DIGITS = str.maketrans(f"〇{HAN_DIGITS}", "00123456789")
_SPAN = re.compile(r"\W*(?:to|through|until|till|and|[至到和、~～–-])?\W*(?:第|每)?", re.IGNORECASE)
# words that hold for every unit, or for some that are not named
_EVERY = re.compile(
    r"\b(?:daily|(?:every|each|any) (?:day|month|quarter)|week(?:day|end)s?"
    r"|(?:work|business )(?:ing)? ?days?)\b|每[天日月季]|工作日|周末",
    re.IGNORECASE,
)
_OPEN_BEFORE = re.compile(r"\b(?:since|after|before|until|till|by|from|between|to)\W*$|自|截至")
_OPEN_AFTER = re.compile(r"[份底初末]?(?:\d+[日号])?(?:以来|[以之]?[前后]|起|至|到)")


def find_other_date(question: str, answer: str, cited: Sequence[Hit]) -> tuple[str, str] | None:
    """(the month, weekday or quarter of the question, another one in the answer), where neither the
    answer nor a title of the passages that it cites has the former, or the sentences that have it
    share fewer words with the question than one that has another; None otherwise.
    """
    question, answer = simplify(question), write_alike(answer, question)
    for pattern in _UNITS:
        asked = list(pattern.finditer(question))
        if len(asked) != 1 or _is_open(question, asked[0]):
            continue
        titles = (f"{it.doc_title}\n{it.section_path}\n{it.source_uri}" for it in cited)
        own, above = simplify(answer), simplify("\n".join(titles))
        found = list(pattern.finditer(f"{own}\n{above}"))
        if not found or _EVERY.search(own):
            continue
        number = _number(asked[0])
        if number not in _list_numbers(found):
            return asked[0][0], found[0][0]
        if number in _list_numbers(list(pattern.finditer(above))):
            continue
        rest = meaning(pattern.sub(" ", question))
        best, other = 0, ""
        for unit in units(own):
            sentence = own[unit.start : unit.end]
            inside = list(pattern.finditer(sentence))
            shared = len(rest & meaning(pattern.sub(" ", sentence)))
            has_it = number in _list_numbers(inside)
            if inside and shared > best:
                best, other = shared, "" if has_it else inside[0][0]
            elif shared == best and has_it:
                other = ""
        if other:
            return asked[0][0], other
    return None


def find_other_year(question: str, answer: str, cited: Sequence[Hit]) -> tuple[str, str] | None:
    """(the year of the question, the first one of the answer), where neither the answer nor the
    cited passages have the former; None otherwise.
    """
    asked = list(_ASKED_YEAR.finditer(question))
    if len(asked) != 1 or _is_open(question, asked[0]):
        return None
    year = asked[0][1] or asked[0][2]
    texts = (f"{it.doc_title}\n{it.section_path}\n{it.source_uri}\n{it.chunk_text}" for it in cited)
    other = _YEAR.search(answer)
    held = "\n".join((answer, *texts)).translate(_YEAR_DIGITS)
    return (year, other[0]) if other and year not in held else None


def _is_open(text: str, match: re.Match[str]) -> bool:
    """True where a unit only begins or ends a period: since March."""
    before = text[max(0, match.start() - 10) : match.start()]
    return bool(_OPEN_BEFORE.search(before) or _OPEN_AFTER.match(text, match.end()))


def _list_numbers(found: Sequence[re.Match[str]]) -> set[int]:
    """The numbers of the units, and of all those between two that a range joins."""
    numbers = {_number(match) for match in found}
    for one, other in pairwise(found):
        if _SPAN.fullmatch(one.string, one.end(), other.start()):
            numbers.update(range(_number(one), _number(other)))
    return numbers


def _number(match: re.Match[str]) -> int:
    word = next(filter(None, match.groups())).lower()
    word = _HAN_NUMBERS.get(word, word)
    if word.isdecimal():
        return int(word)
    names = next(it for it in (_MONTHS, _DAYS, _ORDINALS) if any(map(word.startswith, it)))
    return next(n for n, name in enumerate(names, 1) if word.startswith(name))
