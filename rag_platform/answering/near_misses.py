"""Tells where an answer of quotes is beside what was asked: it is about sandbox tokens, where the
question is about production tokens, or has no name where that asks who.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from rag_platform.answering.contradictions import split_clauses
from rag_platform.ir import Hit, QueryIR
from rag_platform.text.passages import units
from rag_platform.text.plain_quotes import plain
from rag_platform.text.scripts import HAN, has_han, is_wide, simplify
from rag_platform.text.segmentation import chinese_dictionary
from rag_platform.text.stop_words import CHINESE_FUNCTION_WORDS
from rag_platform.text.term_overlap import question_terms, question_words
from rag_platform.text.terms import beginning, is_weak_term, meaning, stem

# asks for a name, not for those of a kind as `who may` and `who approves` do
_ASKS_NAME = re.compile(
    r"\bwho (?:\w+ly )?(?:(?:co-?)?founded|wrote|created|invented|designed|developed|made|built"
    r"|started|published|maintains?|sponsors?|sponsored|funds?|owns?|leads|chairs)\b"
    r"|\bwho (?:is|was|are|were) [^.?!]*\b(?:author|founder|creator|inventor|maintainer|sponsor"
    r"|designer|developer|director|president|chair|ceo)s?\b|谁",
    re.IGNORECASE,
)
# capitals inside a sentence, two of them, an account, what stands behind `by`, a foreign name
_NAME = re.compile(
    rf"(?:(?<=[a-z,;({HAN}] )|(?<=[{HAN}]))\[?[A-Z][\w'’-]+|[A-Z][\w'’-]+ (?:[A-Z]\. )?[A-Z]\w+"
    rf"|(?<!\w)@\w+|(?:\b(?:by|authors?|maintainers?|copyright)|©)\W+\w+|[{HAN}]·[{HAN}]"
)
# how the words end that persons and organisations are called by
_CALLED = "司团部门处科室心会队组局院所校厂社行店台者方人员长师生户客友家民众理管任监服府盟王我你"
_ASKS_FIGURE = re.compile(
    r"\bhow (?:many|much(?! \w+er\b)|long|old|tall|heavy|far)\b|\bwhat is the (?:price|cost)\b"
    r"|\bwhat (?:does|do|did|will|would) [^.?!]* cost\b"
    r"|多少|多[久长大高重远]|几[个次天年月周种人名台件元倍岁层米]",
    re.IGNORECASE,
)
# a number that is no part of a name, or what stands for one
_FIGURE = re.compile(
    r"(?<![A-Za-z\d_/.#-])[^\w\s]?\d|[零二两三四五六七八九十百半]|[不无]限|免费|永久|直到|立即|全部"
    r"|一(?=[个次天年月周种人名台件元倍岁层米日小分秒千万])|\b(?:zero|one|two|three|four|five|six"
    r"|seven|eight|nine|ten|eleven|twelve|twenty|thirty|dozen|hundred|thousand|million"
    r"|billion|half|single|once|twice|both|infinite|unlimited|as (?:many|long) as|free|no limit"
    r"|until|forever|indefinitely|permanent(?:ly)?|immediately)\b",
    re.IGNORECASE,
)
_ASKS_DATE = re.compile(
    r"\bwhen (?:was|were|did)\b|\b(?:what|which) (?:year|date|day)\b|哪一?[年天日]|几[号点月]"
    r"|(?:何时|什么时候).{0,6}?(?:[成创建]立|建成|发布|上线|开[业始会]|出版|交[货付]|到期|截止|签署|生效)",
    re.IGNORECASE,
)
_DATE = re.compile(
    r"(?<!\d)(?:1\d|20)\d\d(?!\d)|\d[:：]\d\d|\d ?[ap]\.?m\b|\b(?:in|since|version) v?\d+\.\d"
    r"|[\d零一二三四五六七八九十]\s*(?:[年月日号天周点时分]|世纪)|星期|周[一二三四五六日天]"
    r"|[每当][年月周天日季]|\b(?:(?:jan|febr)uary|march|april|may|june|july|august|october"
    r"|(?:sept|nov|dec)ember|(?:mon|tues|wednes|thurs|fri|satur|sun)day|today|noon|midnight"
    r"|(?:second|minute|hour|day|week|month|year)s?|century|BC|BP|AD)\b",
    re.IGNORECASE,
)
_CODE = re.compile(r"^[ >]*(```+|~~~+).*?^[ >]*\1", re.MULTILINE | re.DOTALL)
_TABLE = re.compile(r"(\|.*)\n\| ---.*\n((?:\|.*\n?)+)")
_MOST = re.compile(r"最\w|\b(?:\w+est|most)\b", re.IGNORECASE)  # what picks one of all rows
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


def find_doubts(query: QueryIR, answer: str, passages: Sequence[Hit]) -> tuple[str, ...]:
    """Warnings where an answer of quotes has no name, number or date that the question asks for,
    begins with a table of which only the header fits, or is about the neighbour of what was asked.
    """
    if beside := find_near_miss(query.original, answer, passages):
        return (f"the answer speaks of “{beside[1]}”, the question of “{beside[0]}”",)
    question, text = simplify(query.original), _MARK.sub("", _CODE.sub("", simplify(answer)))
    asks_name = _ASKS_NAME.search(question) and is_wide(question) == is_wide(text)
    if asks_name and not _holds_name(question, re.sub("`[^`\n]+`", "", text)):
        return ("the question asks who, and the answer has no name",)
    asks, has = (_ASKS_DATE, _DATE) if _ASKS_DATE.search(question) else (_ASKS_FIGURE, _FIGURE)
    if asks.search(question) and not has.search(text):
        return ("the question asks for a number or a date, and the answer has none",)
    if table := _TABLE.match(answer):
        looked_for = question_terms(" ".join((question, *query.rewrites)))
        titles = [f"{hit.doc_title}\n{hit.section_path}" for hit in passages]
        above = looked_for.find_in("\n".join([table[1], *titles]))
        words = question_words(_MOST.sub("", question))
        if not all(word.share_in(above) for word in words) and not looked_for.find_in(table[2]):
            return ("the question names something that no row of the table has",)
    return ()


def _holds_name(question: str, text: str) -> bool:
    """True where a text names a person or an organisation that the question does not name."""
    asked = question.lower()
    return any(found[0].strip("[").lower() not in asked for found in _NAME.finditer(text)) or any(
        word not in asked
        and (kind.startswith(("nr", "nt")) or (kind[0] in "nx" and word[-1] in _CALLED))
        for run in re.findall(f"[{HAN}]+", text)
        for word, kind in chinese_dictionary().tag(run)
    )


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
