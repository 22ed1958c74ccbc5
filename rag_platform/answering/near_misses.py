"""Tells where a quote speaks of something beside what was asked: of sandbox tokens, where the
question is about production tokens.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from rag_platform.answering.contradictions import split_clauses
from rag_platform.ir import Hit
from rag_platform.text.passages import units
from rag_platform.text.plain_quotes import plain
from rag_platform.text.scripts import HAN, has_han, simplify
from rag_platform.text.segmentation import chinese_dictionary
from rag_platform.text.stop_words import CHINESE_FUNCTION_WORDS
from rag_platform.text.terms import beginning, is_weak_term, meaning, stem

_ASKS_FIGURE = re.compile(
    r"\bhow (?:many|much(?! \w+er\b)|old|tall|heavy|far)\b|\bwhen (?:was|were|did)\b"
    r"|\bwhat (?:does|do|did|will|would) [^.?!]* cost\b|\bwhat is the (?:price|cost)\b",
    re.IGNORECASE,
)
# a number that is no part of a name, or what stands for one
_FIGURE = re.compile(
    r"(?<![\w/.#-])[^\w\s]?\d|[零一二两三四五六七八九十百千万]|\b(?:zero|one|two|three|four|five|six"
    r"|seven|eight|nine|ten|eleven|twelve|twenty|thirty|dozen|hundred|thousand|million"
    r"|billion|half|single|once|twice|both|infinite|unlimited|as many|free|no limit"
    r"|(?:jan|febr)uary|march|april|june|july|august|(?:sept|nov|dec)ember|october)\b",
    re.IGNORECASE,
)
_MARK = re.compile(r"\]\([^()\s]*\)|\[\d+\]|https?://\S+")  # targets of links, marks of quotes
_RUN = re.compile(rf"[A-Za-z][\w'’-]*|\d(?:[\d.,]*\d)?|[{HAN}]+")


class _Phrase(NamedTuple):
    """Two words that stand beside each other; the first tells which of its kind is meant."""

    told: str
    kind: str


class _Clause(NamedTuple):
    words: frozenset[str]
    phrases: dict[_Phrase, str]  # as they are written


def find_near_miss(question: str, answer: str, passages: Sequence[Hit]) -> tuple[str, str] | None:
    """(what was asked about, what the answer speaks of instead), None where nothing tells.

    It is told where the question has `production tokens`, a sentence of the answer has other words
    of the question and `sandbox tokens`, and the passages speak of `production tokens` too, but
    nowhere with those other words.
    """
    asked = _read(question)
    rivals = list(_list_rivals(asked, answer))
    if not rivals:  # as of most answers: nothing more need be read
        return None
    headings = meaning("\n".join(f"{hit.doc_title}\n{hit.section_path}" for hit in passages))
    named = asked.words | headings
    rivals = [
        (phrase, other, clause)
        for phrase, other, clause in rivals
        if phrase.told not in headings and not any(other.told in word for word in named)
    ]
    if not rivals:
        return None
    told = "|".join({re.escape(beginning(phrase.told)) for phrase, _, _ in rivals})
    may_hold = re.compile(told, re.IGNORECASE).search
    clauses = (text for hit in passages for text in split_clauses(plain(hit.chunk_text)))
    known = [_read(text) for text in clauses if may_hold(simplify(text))]
    for phrase, other, clause in rivals:
        rest = (clause.words & asked.words) - {phrase.kind}
        if any(phrase in it.phrases for it in known) and not any(
            phrase.told in it.words and it.words & rest for it in known
        ):
            return asked.phrases[phrase], clause.phrases[other]
    return None


def lacks_figure(question: str, answer: str) -> bool:
    """True where the question asks how many, how much or when, and the answer has no number."""
    return bool(_ASKS_FIGURE.search(question)) and not _FIGURE.search(_MARK.sub("", answer))


def _list_rivals(asked: _Clause, answer: str) -> Iterator[tuple[_Phrase, _Phrase, _Clause]]:
    """(a phrase of the question, its rival in the answer, the clause with that): the sentence does
    not have the first, and the clause has more of the question than what both are about.
    """
    for unit in units(answer) if asked.phrases else ():
        clauses = [_read(text) for text in split_clauses(plain(answer[unit.start : unit.end]))]
        named = set[str]().union(*(clause.words for clause in clauses))
        for clause in clauses:
            for phrase in asked.phrases:
                if phrase.told not in named and (clause.words & asked.words) - {phrase.kind}:
                    for other in clause.phrases:
                        if _is_rival(phrase, other):
                            yield phrase, other, clause


def _is_rival(phrase: _Phrase, other: _Phrase) -> bool:
    """True where two different words, written alike, tell things of one kind apart."""
    one, two = phrase.told, other.told
    return (
        phrase.kind == other.kind
        and one not in two
        and two not in one
        and (has_han(one), one.isdigit()) == (has_han(two), two.isdigit())
    )


def _read(text: str) -> _Clause:
    """The words of a clause, and those beside each other."""
    words = list(_words(text))
    return _Clause(
        frozenset(word for word, _, _ in words),
        {
            _Phrase(one, two): text[start:end]
            for (one, start, ended), (two, begins, end) in pairwise(words)
            if begins - ended <= 1 and not text[ended:begins].strip()
        },
    )


def _words(text: str) -> Iterator[tuple[str, int, int]]:
    """The words that carry meaning, Latin ones as stems, with their places."""
    for run in _RUN.finditer(text):
        if has_han(run[0]):
            end = run.start()
            for word in chinese_dictionary().cut(simplify(run[0])):
                start, end = end, end + len(word)
                if len(word) > 1 and word not in CHINESE_FUNCTION_WORDS:
                    yield word, start, end
        elif not is_weak_term(word := stem(run[0].lower())):
            yield word, run.start(), run.end()
