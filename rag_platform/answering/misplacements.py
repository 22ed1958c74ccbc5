"""What makes a sentence wrong though its words stand in a text: they belong to different places.

Three things are told: a value of a table or list that belongs to another name or column, a number
that stands away from what the sentence says of it, and a phrase in the place of another one of the
text. What is found is wrong, what is not found may still be.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

from rag_platform.answering.constants import (
    FRAME_TOKENS,
    MIN_SHARE,
    NUMBER_MARGIN,
    REPLACED_LENGTH,
)
from rag_platform.answering.contradictions import CLAUSE_END, find_contradiction, is_negated
from rag_platform.answering.groundedness import is_name, is_quoted, numbers
from rag_platform.ir import Hit
from rag_platform.text.markdown_blocks import cells
from rag_platform.text.passages import Unit, units
from rag_platform.text.plain_quotes import plain
from rag_platform.text.scripts import is_wide
from rag_platform.text.terms import kind_weight, meaning

_MARKS = re.compile(r"[\s*`_]+")
# an item that names something and says one thing of it
_LABELLED = re.compile(
    r"\s*(?P<label>[^:：|]{1,60}?)\s*[:：](?:\s|(?<=：))\s*(?P<value>\S.*)", re.S
)
_WORD = re.compile(r"\w")
_TOKEN = re.compile(r"[^\W_\u2e80-\uffff](?:[\w.'’-]*[^\W_\u2e80-\uffff])?|[\u2e80-\uffff]")
_POINTER = re.compile(
    r"[他她它牠本该此其該这這]|\b(?:he|she|it|its|his|her|this|that|these|they)\b"
)


class _Row(NamedTuple):
    label: str
    values: dict[str, str]  # by the name of the column, in lower case without marks


def compare_with_rows(sentence: str, text: str) -> str | None:
    """Why a row of a table or an item of a list in the text says otherwise than the sentence that
    names it; empty where it says the same, None where none tells.
    """
    said = _fold(sentence)
    rows = list(_rows(text))
    named = _longest([row for row in rows if _holds(said, row.label)])
    if not named:
        return None
    columns = {name for row in rows for name in row.values if _holds(said, name)}
    columns = {it for it in columns if not any(it in other != it for other in columns)}
    rest = said
    for name in [*(row.label for row in named), *columns]:
        rest = rest.replace(name, " ")
    own = [(name, value) for row in named for name, value in row.values.items()]
    own = [(name, value) for name, value in own if _holds(rest, value)]
    if own:
        elsewhere = not any(name in columns for name, _ in own)
        if columns and elsewhere and any(set(row.values) & columns for row in named):
            name, value = own[0]
            return f"{value!r} stands under {name!r} in the text, not under {min(columns)!r}"
        for _, value in own:
            rest = rest.replace(value, " ")
        if is_negated(rest):
            return f"it negates what the text says of {named[0].label!r}: {own[0][1]!r}"
        return ""
    theirs = [value for row in named for value in row.values.values()]
    for row in rows:
        for value in row.values.values() if row not in named else ():
            if _holds(rest, value) and not any(_holds(other, value) for other in theirs):
                return f"{value!r} stands beside {row.label!r} in the text, not {named[0].label!r}"
    return None


def find_difference(sentence: str, passages: Sequence[Hit]) -> str:
    """Why passages that have the words of a sentence do not support it; empty where they may."""
    text = "\n\n".join(hit.chunk_text for hit in passages)
    if any(is_quoted(sentence, hit.chunk_text) for hit in passages):
        return ""
    if (told := compare_with_rows(sentence, text)) is not None:
        return told
    headings = "\n".join(f"{hit.doc_title}\n{hit.section_path}" for hit in passages)
    return find_contradiction(sentence, text, headings) or find_misplacement(
        sentence, text, headings
    )


def find_misplacement(sentence: str, text: str, headings: str = "") -> str:
    """Why the parts of a sentence do not belong together in the text; empty where nothing tells."""
    parts = units(text)
    return _find_number(sentence, text, parts, headings) or _find_replaced(sentence, text, parts)


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
        # a bare "no" is as often a word of the sentence as its value; a tick is not
        named = {name: it for name, it in named.items() if meaning(it) or not _WORD.search(it)}
        if label and named:
            yield _Row(label, named)


def _longest(rows: list[_Row]) -> list[_Row]:
    """Those whose name is no part of another one's."""
    return [row for row in rows if not any(row.label in it.label != row.label for it in rows)]


def _fold(text: str) -> str:
    """In lower case, without links, marks and repeated white space."""
    return _MARKS.sub(" ", plain(text)).strip().lower()


def _holds(text: str, phrase: str) -> bool:
    """True where the text has the phrase, not within a longer Latin word or number."""
    if not phrase or phrase not in text:
        return False
    return (
        re.search(
            rf"(?<![a-z0-9])(?<!\d[.,]){re.escape(phrase)}(?![a-z0-9]|[.,]\d)", text, re.ASCII
        )
        is not None
    )


# --- numbers --------------------------------------------------------------------------------------


def _find_number(sentence: str, text: str, parts: Sequence[Unit], headings: str) -> str:
    """Why a number does not belong to what its clause says: no place that has the number has as
    many of the clause's words as another one. A place is a row or item, or a sentence with the one
    before it.
    """
    places: list[set[str]] = []
    before: set[str] = set()
    for unit in parts:
        terms = _terms(text[unit.start : unit.end]) | _terms(unit.context)
        places.append(terms | before)
        before = terms if unit.kind == "sentence" else set()
    known = set().union(*places) - _terms(headings)
    same_language = is_wide(sentence) == is_wide(text)
    for clause in CLAUSE_END.split(sentence):
        words = {it for it in meaning(clause) & known if is_name(it) or not numbers(it)}
        words = words if same_language else set(filter(is_name, words))
        weight = _weigh(words)
        for number in (numbers(clause) & known) - set().union(*map(numbers, words)):
            beside = max(_weigh(place & words) for place in places if number in place)
            nearest = max(places, key=lambda place: _weigh(place & words)) & words
            most = _weigh(nearest)
            if weight > 1 and most >= max(MIN_SHARE * weight, beside + NUMBER_MARGIN * weight):
                return f"{number} stands apart from {', '.join(sorted(nearest)[:5])} in the text"
    return ""


def _terms(text: str) -> set[str]:
    return meaning(text) | numbers(text)


def _weigh(terms: set[str]) -> float:
    return sum(map(kind_weight, terms))


# --- phrases --------------------------------------------------------------------------------------


def _find_replaced(sentence: str, text: str, parts: Sequence[Unit]) -> str:
    """The phrase of a sentence that takes the place of another one: the part of the text nearest to
    the sentence reads alike before and behind, and the phrase stands elsewhere.
    """
    words = meaning(sentence)
    quotes = [text[unit.start : unit.end] for unit in parts]
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


def _is_rival(phrase: list[str], other: list[str], own: list[str], theirs: list[str]) -> bool:
    """True for two numbers, or two phrases of like length, that name different things."""
    lengths = sorted((len("".join(phrase)), len("".join(other))))
    if numbers(_join(phrase)) and numbers(_join(other)):
        return not numbers(_join(phrase)) & numbers(_join(theirs))
    return (
        lengths[0] > 1
        and lengths[1] <= REPLACED_LENGTH * lengths[0] + 2
        and bool(meaning(_join(phrase)) and meaning(_join(other)))
        and not _POINTER.search(_join(other))
        and _join(phrase) not in _join(theirs)
        and _join(other) not in _join(own)
    )


def _tokens(text: str) -> list[str]:
    """The words of a text in lower case, and each Chinese character."""
    return _TOKEN.findall(text.lower())


def _join(tokens: list[str]) -> str:
    """The tokens as they are read, Chinese without spaces."""
    return re.sub(r"(?<=[\u2e80-\uffff]) (?=[\u2e80-\uffff])", "", " ".join(tokens))
