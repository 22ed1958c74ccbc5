"""Detects sentences that are wrong although the text has their words.

A sentence may contradict the clauses that share most words with it, by an added or missing
negation, an antonym or another number. Or it combines words of different places: a table or list
value of another row or column, a number far from the words that the sentence connects it with, a
number or name of a neighbouring clause, a phrase in place of another. A sentence that passes may
still be wrong.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from itertools import takewhile
from typing import NamedTuple

from rag_platform.answering.constants import (
    FLAG_MARGIN,
    FRAME_TOKENS,
    MAX_REPEATS,
    MIN_SHARE,
    NEAR_CLAUSE_SHARE,
    NUMBER_MARGIN,
    REPLACED_LENGTH,
)
from rag_platform.answering.groundedness import count_alike, is_name, is_quoted, numbers
from rag_platform.ir import Hit
from rag_platform.text.markdown_blocks import cells
from rag_platform.text.passages import Unit, units
from rag_platform.text.plain_quotes import strip_markup
from rag_platform.text.scripts import is_wide
from rag_platform.text.terms import find_flags, kind_weight, meaning

_MARKS = re.compile(r"[\s*`_]+")
_LABELLED = re.compile(  # a list item `label: value`
    r"\s*(?P<label>[^:：|]{1,60}?)\s*[:：](?:\s|(?<=：))\s*(?P<value>\S.*)", re.S
)
_WORD = re.compile(r"\w")
_YEAR = re.compile(r"(?<!\d)(?:1\d|20)\d\d(?!\d)")
# a number and its possible unit: a word, or two Chinese characters
_VALUE = re.compile(r"(\d[\d.,:]*)\s?(%|[A-Za-z°]+|[\u4e00-\u9fff]{0,2})")
_TOKEN = re.compile(r"[^\W_\u2e80-\uffff](?:[\w.'’-]*[^\W_\u2e80-\uffff])?|[\u2e80-\uffff]")
_PRONOUN = re.compile(
    r"[他她它牠本该此其該这這]|\b(?:he|she|it|its|his|her|this|that|these|they)\b"
)


class _Row(NamedTuple):
    label: str
    values: dict[str, str]  # by the name of the column; all in the form of `_fold`


def compare_with_rows(sentence: str, text: str) -> str | None:
    """Why a sentence contradicts the table row or list item of the text that it names; empty where
    it agrees with that, None where it names none or no value.
    """
    folded = _fold(sentence)
    rows = list(_rows(text))
    named = _drop_partial([row for row in rows if _contains(folded, row.label)])
    if not named:
        return None
    columns = {name for row in rows for name in row.values if _contains(folded, name)}
    columns = {it for it in columns if not any(it in other != it for other in columns)}
    rest = folded
    for name in [*(row.label for row in named), *columns]:
        rest = rest.replace(name, " ")
    own = [(name, value) for row in named for name, value in row.values.items()]
    own = [(name, value) for name, value in own if _contains(rest, value)]
    if own:
        elsewhere = not any(name in columns for name, _ in own)
        if columns and elsewhere and any(set(row.values) & columns for row in named):
            name, value = own[0]
            return f"{value!r} stands under {name!r} in the text, not under {min(columns)!r}"
        for _, value in own:
            rest = rest.replace(value, " ")
        if _is_negated(rest):
            return f"it negates what the text says of {named[0].label!r}: {own[0][1]!r}"
        return ""
    values = [value for row in named for value in row.values.values()]
    for row in rows:
        for value in row.values.values() if row not in named else ():
            if _contains(rest, value) and not any(_contains(other, value) for other in values):
                return f"{value!r} stands beside {row.label!r} in the text, not {named[0].label!r}"
    return None


def find_difference(sentence: str, passages: Sequence[Hit]) -> str:
    """Why passages that share the words of a sentence still do not support it; empty where no
    reason is found.
    """
    text = "\n\n".join(hit.readable for hit in passages)
    if any(is_quoted(sentence, hit.readable) for hit in passages):
        return ""
    headings = "\n".join(f"{hit.doc_title}\n{hit.section_path}" for hit in passages)
    sentence, text, headings = count_alike(sentence, text, headings)
    if (reason := compare_with_rows(sentence, text)) is not None:
        return reason
    return (
        find_foreign_flag(sentence, text)
        or find_contradiction(sentence, text, headings)
        or find_misplacement(sentence, text, headings)
    )


def find_foreign_flag(sentence: str, text: str) -> str:
    """Why a sentence about an option of a command says what the text says of another: most of its
    words stand below the label of that one; else "".
    """
    asked = {*find_flags(sentence)}
    if not asked:
        return ""
    words, own, foreign, label = meaning(sentence), 0.0, 0.0, ""
    for unit in units(text):
        above = unit.headings[-1][1] if unit.headings else ""
        quote, described = text[unit.start : unit.end], find_flags(above)
        if not asked.isdisjoint([*described, *find_flags(quote)]):
            own = max(own, _weigh(words & meaning(quote)))
        elif described and (shared := _weigh(words & meaning(quote))) > foreign:
            foreign, label = shared, above
    named = ", ".join(sorted(asked))
    is_foreign = own < FLAG_MARGIN * foreign
    return f"it says of {named} what the text says of {label}" if is_foreign else ""


def find_misplacement(sentence: str, text: str, headings: str = "") -> str:
    """Why the parts of a sentence do not belong together in the text; empty where no reason is
    found.
    """
    parts = units(text)
    quotes = [text[unit.start : unit.end] for unit in parts]
    if reason := (
        _find_distant_number(sentence, text, parts, headings) or _find_replaced(sentence, quotes)
    ):
        return reason
    clauses = [clause for quote in quotes for clause in _split_clauses(quote)]
    for clause in _split_clauses(sentence):
        if reason := (
            _find_foreign_number(clause, clauses, headings) or _find_swapped(clause, clauses)
        ):
            return reason
    return ""


# --- tables and lists -----------------------------------------------------------------------------


def _rows(text: str) -> Iterator[_Row]:
    for unit in units(text):
        own = text[unit.start : unit.end]
        if unit.kind == "row" and unit.header:
            names = [_fold(name) for name in cells(text[slice(*unit.header)])]
            label, *values = (_fold(cell) for cell in cells(own))
            named = dict(zip(names[1:], values, strict=False))
        elif unit.kind == "item" and (match := _LABELLED.fullmatch(own)):
            label, named = _fold(match["label"]), {"": _fold(match["value"]).rstrip(".。;；")}
        else:
            continue
        # a cell "no" may match another word of the sentence; a tick cannot
        named = {name: it for name, it in named.items() if meaning(it) or not _WORD.search(it)}
        if label and named:
            yield _Row(label, named)


def _drop_partial(rows: list[_Row]) -> list[_Row]:
    """The rows without those whose label is part of another's."""
    return [row for row in rows if not any(row.label in it.label != row.label for it in rows)]


def _fold(text: str) -> str:
    """The text in lower case, without links, emphasis and repeated white space."""
    return _MARKS.sub(" ", strip_markup(text)).strip().lower()


def _contains(text: str, phrase: str) -> bool:
    """True where the text has the phrase outside of longer Latin words and numbers."""
    if not phrase or phrase not in text:
        return False
    return (
        re.search(
            rf"(?<![a-z0-9])(?<!\d[.,]){re.escape(phrase)}(?![a-z0-9]|[.,]\d)", text, re.ASCII
        )
        is not None
    )


# --- numbers --------------------------------------------------------------------------------------


def _find_distant_number(sentence: str, text: str, parts: Sequence[Unit], headings: str) -> str:
    """Why a number does not belong to the words of its clause: another place of the text has far
    more of these words than any with the number. A place is a row, an item or two sentences.
    """
    places: list[set[str]] = []
    before: set[str] = set()
    for unit in parts:
        terms = _terms(text[unit.start : unit.end]) | _terms(unit.context)
        places.append(terms | before)
        before = terms if unit.kind == "sentence" else set()
    known = set().union(*places) - _terms(headings)
    same_language = is_wide(sentence) == is_wide(text)
    for clause in _split_clauses(sentence):
        words = {it for it in meaning(clause) & known if is_name(it) or not numbers(it)}
        words = words if same_language else set(filter(is_name, words))
        weight = _weigh(words)
        for number in (numbers(clause) & known) - set().union(*map(numbers, words)):
            with_number = max(_weigh(place & words) for place in places if number in place)
            nearest = max(places, key=lambda place: _weigh(place & words)) & words
            best = _weigh(nearest)
            if weight > 1 and best >= max(MIN_SHARE * weight, with_number + NUMBER_MARGIN * weight):
                return f"{number} stands apart from {', '.join(sorted(nearest)[:5])} in the text"
    return ""


def _find_foreign_number(clause: str, clauses: Sequence[str], headings: str) -> str:
    """Why the only number of a clause belongs to another one.

    A clause of the text with another number contains a strict superset of the words that each
    clause with the number shares with the sentence's clause; one of the additional words is rare in
    the text. Where the clauses with the number share no words, the units must be equal.
    """
    values = _read_values(clause)
    if len(values) != 1 or _YEAR.search(clause):
        return ""
    [(number, unit)] = values.items()
    words = {it for it in meaning(clause) - meaning(unit) - _terms(headings) if not numbers(it)}
    read = [(it, meaning(it) & words, _read_values(it)) for it in clauses]
    with_number = [(text, shared) for text, shared, found in read if number in found]
    if not with_number or any(_PRONOUN.search(text.lower()) for text, _ in with_number):
        return ""
    repeats = Counter(term for _, shared, _ in read for term in shared)
    for text, shared, found in read:
        if (
            found
            and number not in found
            and all(
                less < shared
                and (less or unit in {*found.values()} - {""})
                and min(repeats[it] for it in shared - less) <= MAX_REPEATS
                for _, less in with_number
            )
        ):
            return f"it has {number} where the text has another number: {text!r}"
    return ""


def _read_values(clause: str) -> dict[str, str]:
    """The numbers of a clause, each with the word after it as its unit."""
    return {
        number: match[2].lower()
        for match in _VALUE.finditer(clause)
        for number in numbers(match[1])
    }


def _terms(text: str) -> set[str]:
    return meaning(text) | numbers(text)


def _weigh(terms: set[str]) -> float:
    return sum(map(kind_weight, terms))


# --- phrases --------------------------------------------------------------------------------------


def _find_replaced(sentence: str, quotes: Sequence[str]) -> str:
    """Why a phrase of a sentence replaces another one: the most similar unit of the text has the
    same tokens before and after it but another phrase, and the phrase is in another unit.
    """
    words, quotes = meaning(sentence), list(quotes)
    shares = [len(words & meaning(quote)) for quote in quotes]
    if not words or max(shares, default=0) < MIN_SHARE * len(words):
        return ""
    nearest = quotes.pop(shares.index(max(shares)))
    own, theirs = _tokens(sentence), _tokens(nearest)
    elsewhere = [" ".join(_tokens(quote)) for quote in quotes]
    runs = SequenceMatcher(None, own, theirs, autojunk=False).get_opcodes()
    for before, run, after in zip([None, *runs], runs, [*runs[1:], None], strict=False):
        kind, start, end, other_start, other_end = run
        frame = [it[2] - it[1] if it[0] == "equal" else 0 for it in (before, after) if it]
        if kind != "replace" or not all(frame) or sum(frame) < FRAME_TOKENS:
            continue
        phrase, other = own[start:end], theirs[other_start:other_end]
        if _is_rival(phrase, other, own, theirs) and any(
            f" {' '.join(phrase)} " in f" {quote} " for quote in elsewhere
        ):
            return f"it has {_join(phrase)!r} where the text has {_join(other)!r}"
    return ""


def _find_swapped(clause: str, clauses: Sequence[str]) -> str:
    """Why the beginning or the end of a clause belongs to another one: the text has the rest of the
    clause with another beginning or end, and has this one in a clause that shares a word with the
    rest.
    """
    own, read = _tokens(clause), [_tokens(it) for it in clauses]
    joined = [f" {' '.join(it)} " for it in read]
    if any(f" {' '.join(own)} " in it for it in joined):
        return ""
    for theirs in read:
        begin, end = _count_common(own, theirs), _count_common(own[::-1], theirs[::-1])
        frame = begin or end
        if frame < FRAME_TOKENS or (begin and end) or 3 * frame < 2 * len(own):
            continue
        phrase, other = own[begin : len(own) - end], theirs[begin : len(theirs) - end]
        rest = meaning(_join(own[:begin] or own[len(own) - end :]))
        if (
            not numbers(_join(phrase))
            and _is_rival(phrase, other, own, theirs)
            and any(
                f" {' '.join(phrase)} " in it and rest & meaning(_join(tokens))
                for tokens, it in zip(read, joined, strict=True)
            )
        ):
            return f"it has {_join(phrase)!r} where the text has {_join(other)!r}"
    return ""


def _count_common(one: Sequence[str], other: Sequence[str]) -> int:
    """The length of the longest common prefix of two sequences of tokens."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _is_rival(phrase: list[str], other: list[str], own: list[str], theirs: list[str]) -> bool:
    """True for two different numbers, or two phrases of similar length of which neither is in the
    other's clause.
    """
    lengths = sorted((len("".join(phrase)), len("".join(other))))
    if numbers(_join(phrase)) and numbers(_join(other)):
        return not numbers(_join(phrase)) & numbers(_join(theirs))
    return (
        lengths[0] > 1
        and lengths[1] <= REPLACED_LENGTH * lengths[0] + 2
        and bool(meaning(_join(phrase)) and meaning(_join(other)))
        and not _PRONOUN.search(_join(other))
        and _join(phrase) not in _join(theirs)
        and _join(other) not in _join(own)
    )


def _tokens(text: str) -> list[str]:
    """The words of a text in lower case, and each Chinese character."""
    return _TOKEN.findall(text.lower())


def _join(tokens: list[str]) -> str:
    """The tokens as a text, Chinese without spaces."""
    return re.sub(r"(?<=[\u2e80-\uffff]) (?=[\u2e80-\uffff])", "", " ".join(tokens))


# --- contradictions -------------------------------------------------------------------------------

_CLAUSE_END = re.compile(
    r"[，。；！？;!?\n|]|[,.:](?=\s|$)|(?<!\bnot)\s(?=(?:and|but|although|while|because|if|when)\s)|但"
)
_NEGATION = re.compile(
    r"\b(?:no|not|never|none|nothing|nobody|neither|nor|without|cannot)\b|n['’]t\b|[不没无未勿]"
    r"|非(?!常)|别(?=再|忘|把)",
    re.IGNORECASE,
)
# expressions that contain a negation but negate nothing
_NO_NEGATION = re.compile(
    r"\bnot only\b|\bno\.\s*(?=\d)|不得不|不[同过仅但只断久少管论锈]|无[论穷线数]|除非|未[来必]",
    re.IGNORECASE,
)
_OPPOSITES = [
    (re.compile(rf"\b(?:{one})\b|{chinese_one}", re.I), re.compile(rf"\b(?:{other})\b|{zh}", re.I))
    for one, chinese_one, other, zh in (
        (
            "more|greater|higher|larger|longer",
            "大于|高于|多于",
            "less|fewer|lower|smaller|shorter",
            "小于|低于|少于",
        ),
        ("at least|minimum", "至少|最少|最低|最小", "at most|maximum", "至多|最多|最高|最大"),
        ("before", "之前|以前", "after", "之后|以后"),
        ("above", "以上", "below", "以下"),
        ("true|yes|enabled?s?", "开启|启用|打开", "false|disabled?s?", "关闭|禁用|停用"),
        ("always", "总是|始终", "never", "从不|从未"),
        (
            "increase[sd]?|increasing|rises?|rose",
            "增加|上升|提高",
            "decrease[sd]?|decreasing|falls?|fell",
            "减少|下降|降低",
        ),
        ("first", "首先|第一", "last", "最后"),
        ("allow(?:s|ed)?", "允许", "forbids?|forbidden|prohibit(?:s|ed)?", "禁止"),
        ("required", "必须|必填", "optional", "可选|选填"),
        ("north(?:ern)?", "北部|北方", "south(?:ern)?", "南部|南方"),
        ("east(?:ern)?", "东部|东方", "west(?:ern)?", "西部|西方"),
    )
]


class _Clause(NamedTuple):
    text: str
    terms: set[str]


def find_contradiction(sentence: str, text: str, headings: str = "") -> str:
    """Why the sentence contradicts the text; empty where no contradiction is found and where their
    languages differ. Numbers in the headings apply to the whole text.
    """
    if is_wide(sentence) != is_wide(text):
        return ""
    known = list(_clauses(text))
    heading_numbers = numbers(headings)
    for clause in _clauses(sentence):
        near = _find_nearest(clause, known)
        if near and (reason := _compare(clause.text, near, heading_numbers)):
            return reason
    return ""


def _split_clauses(text: str) -> list[str]:
    """The clauses of a text in order, without blank ones."""
    return [part.strip() for part in _CLAUSE_END.split(text) if part.strip()]


def _clauses(text: str) -> Iterator[_Clause]:
    for part in _split_clauses(text):
        if terms := meaning(part):
            yield _Clause(part, terms)


def _find_nearest(clause: _Clause, known: list[_Clause]) -> list[str]:
    """The clauses that share most words with this one, nearest first; empty where none has at least
    MIN_SHARE of its words.
    """
    shares = [(len(clause.terms & other.terms) / len(clause.terms), other) for other in known]
    best = max((share for share, _ in shares), default=0.0)
    if best < MIN_SHARE:
        return []
    shares.sort(key=lambda item: -item[0])
    return [other.text for share, other in shares if share >= NEAR_CLAUSE_SHARE * best]


def _compare(clause: str, near: list[str], heading_numbers: set[str]) -> str:
    """Why a clause contradicts all clauses near it; empty where it does not."""
    quote = near[0] if len(near[0]) <= 80 else f"{near[0][:80]}…"
    negated = _is_negated(clause)
    if all(_is_negated(other) is not negated for other in near):
        difference = "it negates" if negated else "it lacks the negation of"
        return f"{difference} what the text says: {quote!r}"
    for pair in _OPPOSITES:
        for own, opposite in (pair, pair[::-1]):
            if (found := own.search(clause)) and not opposite.search(clause):
                others = [opposite.search(other) for other in near]
                if others[0] and not any(own.search(other) for other in near):
                    return f"it has {found[0]!r} where the text has {others[0][0]!r}: {quote!r}"
    if own_numbers := numbers(clause) - heading_numbers:
        theirs = [numbers(other) for other in near]
        if theirs[0] and not any(own_numbers <= other for other in theirs):
            shown = ", ".join(sorted(own_numbers))
            return f"it has {shown} where the text has another number: {quote!r}"
    return ""


def _is_negated(text: str) -> bool:
    return _NEGATION.search(_NO_NEGATION.sub(" ", text)) is not None
