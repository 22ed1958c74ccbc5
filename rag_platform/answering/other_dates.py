"""Finds another day, month, weekday, quarter, year or place in an answer than in its question."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise

from rag_platform.ir import Hit
from rag_platform.retrieval.signals import name_place, with_place
from rag_platform.text.dates import MONTHS, find_days, read_han, write_alike
from rag_platform.text.passages import units
from rag_platform.text.scripts import has_han, simplify
from rag_platform.text.terms import meaning

# months, weekdays and quarters are a closed class: unlike `staging` and `production`, none is
# another word for a neighbour
_DAYS = "mon tue wed thu fri sat sun".split()
_ORDINALS = "first second third fourth".split()
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
_CALENDAR_YEAR = re.compile(r"(?<![\d.,])(?:19|20)\d\d(?![\d,]|\.\d)")
_SPAN = re.compile(
    r"[^\w\n]*?(to|through|until|till|and|[至到和、~～—–-])?[^\w\n]*(?:第|每)?", re.IGNORECASE
)
_Dates = list[tuple[re.Match[str], int]]  # each with its number
# what makes a day the end of a span, or one of several days of a month
_SPAN_AFTER = re.compile(
    r"(?:[（(][^（）()\n]{0,10}[）)])? ?(?:to|through|until|till|[至到]|[以之]?[前后起]|止|截"
    r"|(?:[~～—–-]|,? ?(?:and|&)|[,，、和及]) ?\d\d?(?![\d:点]))",
    re.IGNORECASE,
)
_SPAN_BEFORE = re.compile(
    r"(?:\b(?:before|after|from|since|until|till|by|through|to|than|on or)|[自从由于至到~～—]"
    r"|\d ?(?:[–,、-]|and|or|&)) ?(?:(?:19|20)\d\d ?年)?\Z",
    re.IGNORECASE,
)
_SPAN_WORD = re.compile(
    r"\b(?:deadline|due|valid|effective|expir|(?:start|begin|end|open|clos)(?:s|es|ing)?\b)"
    r"|截止|有效|生效|开始|结束",
    re.IGNORECASE,
)
# another closed class: countries (but not the own one, which texts leave out), cities (but not that
# of a head office), provinces
_PLACE = re.compile(
    "(日本|[韩美英法德泰]国|新加坡|马来西亚|越南|印尼|印度|菲律宾|俄罗斯|加拿大|澳大利亚|新西兰|意大利|西班牙|葡萄牙|荷兰|瑞[士典]|巴西"
    "|墨西哥|阿联酋|沙特|土耳其)|((?:北京|上海|天津|重庆|[广杭苏郑兰福]州|深圳|南[京昌宁]|成都|武汉|西[安宁]|长[沙春]|青岛|大连|厦门|宁波|合肥"
    "|济南|昆明|贵阳|太原|沈阳|哈尔滨|石家庄|海口)(?!总[部公]))|([河湖海]南|[河湖]北|山[东西]|广[东西]|江[苏西]|浙江|安徽|福建|四川|云南"
    "|贵州|陕西|甘肃|辽宁|吉林)"
)
_OTHERS = re.compile("其[他它余餘][国國城省地各]")
# words that hold for every unit, or for some that are not named
_EVERY = re.compile(
    r"\b(?:daily|(?:every|each|any) (?:day|month|quarter)|week(?:day|end)s?"
    r"|(?:work|business )(?:ing)? ?days?)\b|每[天日月季]|工作日|周末",
    re.IGNORECASE,
)


def find_other_date(question: str, answer: str, cited: Sequence[Hit]) -> tuple[str, str] | None:
    """(the day, month, weekday or quarter of the question, another one in the answer), where
    neither the answer nor a title of the passages that it cites has the former, or the sentences
    that have it share fewer words with the question than one that has another; None otherwise.
    """
    question = simplify(question)
    dates = [(find, asked) for find in _FINDERS if (asked := find(question))]
    if not dates:
        return None
    own = simplify(write_alike(answer, question))
    above = simplify("\n".join(map(name_place, cited)))
    rows = "\n".join(line for line in own.splitlines() if line.startswith("|"))
    if dates[0][0] is _find_days and _is_open(f"{own}\n{above}"):
        return None
    for find, [(written, number), *others] in dates:
        found = [] if others else find(f"{own}\n{above}")
        # a sentence beside a schedule holds for none of its days
        if not found or _EVERY.search(rows if find(rows) else own):
            continue
        if number not in _list_numbers(found):
            return written[0], found[0][0][0]
        if number in _list_numbers(find(above)):
            continue
        rest = meaning(question.replace(written[0], " "))
        if other := _find_nearest_date(own, find, number, rest):
            return written[0], other
    return None


def _find_nearest_date(
    text: str, find: Callable[[str], _Dates], number: int, words: set[str]
) -> str:
    """The date in the sentence with most of the words; "" if that has the date with this number, or
    one with as many words does.
    """
    best, other = 0, ""
    for unit in units(text):
        sentence = text[unit.start : unit.end]
        inside = find(sentence)
        shared = len(words & meaning(f"{unit.context}\n{sentence}"))
        has_it = number in _list_numbers(inside)
        if inside and shared > best:
            best, other = shared, "" if has_it else inside[0][0][0]
        elif shared == best and has_it:
            other = ""
    return other


def find_other_place(question: str, answer: str, passages: Sequence[Hit]) -> tuple[str, str] | None:
    """(the place of a Chinese question, another one of its kind in the answer), where no passage
    has the former and the answer tells of no other ones (其他城市); None otherwise.
    """
    asked = set(_list_places(question))
    if len(asked) != 1 or _OTHERS.search(answer):
        return None
    [(kind, place)] = asked
    other = next((name for its, name in _list_places(answer) if its == kind), None)
    texts = map(with_place, passages)
    if other is None or (kind, place) in _list_places("\n".join(texts)):
        return None
    return place, other


def _list_places(text: str) -> list[tuple[int | None, str]]:
    return [(it.lastindex, it[0]) for it in _PLACE.finditer(simplify(text))]


def find_other_year(question: str, answer: str, cited: Sequence[Hit]) -> tuple[str, str] | None:
    """(the year of the question, the first one of the answer), where neither the answer nor the
    cited passages have the former; None otherwise.
    """
    asked = list(_ASKED_YEAR.finditer(question))
    if len(asked) != 1:
        return None
    year = asked[0][1] or asked[0][2]
    texts = map(with_place, cited)
    other = _CALENDAR_YEAR.search(answer)
    held = "\n".join((answer, *texts))
    return (year, other[0]) if other and year not in held else None


def _list_numbers(found: _Dates) -> set[int]:
    """The numbers of the units, and of all those between two that a range joins."""
    numbers = {number for _, number in found}
    for (one, first), (other, last) in pairwise(found):
        joint = _find_joint(one, other)
        if joint and first < last:
            numbers.update(range(first, last))
        elif joint and joint[1]:  # over the end of the year or week
            numbers.update((*range(first, 13 * 31), *range(last)))
    return numbers


def _find_units(pattern: re.Pattern[str], text: str) -> _Dates:
    return [(match, _number(match)) for match in pattern.finditer(text)]


def _find_days(text: str) -> _Dates:
    """Days with numbers that ascend in a year."""
    return [(match, 31 * month + day) for match, (month, day) in find_days(text)]


def _is_open(text: str) -> bool:
    """True if a day is the beginning or end of a time whose other end is no day."""
    days = [match for match, _ in _find_days(text)]
    joined = [pair for pair in pairwise(days) if _find_joint(*pair)]
    first, last = {one for one, _ in joined}, {other for _, other in joined}
    return any(
        (it not in first and _SPAN_AFTER.match(text, it.end()))
        or (
            not (it in first or it in last)
            and (
                _SPAN_BEFORE.search(text, max(it.start() - 20, 0), it.start())
                or _SPAN_WORD.search(text, max(it.start() - 40, 0), it.end() + 20)
            )
        )
        for it in days
    )


def _find_joint(one: re.Match[str], other: re.Match[str]) -> re.Match[str] | None:
    return _SPAN.fullmatch(one.string, one.end(), other.start())


_FINDERS: tuple[Callable[[str], _Dates], ...] = (
    _find_days,
    *(partial(_find_units, it) for it in _UNITS),
)


def _number(match: re.Match[str]) -> int:
    word = next(filter(None, match.groups())).lower()
    if has_han(word):
        return 7 if word in "日天" else int(read_han(word))
    if word.isdecimal():
        return int(word)
    names = next(it for it in (MONTHS, _DAYS, _ORDINALS) if any(map(word.startswith, it)))
    return next(n for n, name in enumerate(names, 1) if word.startswith(name))
