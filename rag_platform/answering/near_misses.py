"""Finds what a question and the sentences of an answer are about, and whether these are neighbours:
the filter where the question is about the tank.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from rag_platform.answering.citations import strip_marks, unescape_marks
from rag_platform.answering.quotable import read_layout
from rag_platform.ir import Hit
from rag_platform.text.markdown_blocks import cells
from rag_platform.text.plain_quotes import strip_markup
from rag_platform.text.scripts import HAN, HAN_DIGITS, HAN_RUN, has_han, simplify
from rag_platform.text.segmentation import chinese_dictionary, tag_word
from rag_platform.text.stop_words import CHINESE_FUNCTION_WORDS, ENGLISH
from rag_platform.text.terms import is_weak_term, stem

AUXILIARY = "do|does|did|can|should|must|will|would"
VERB = rf"(?:is|was|are|were|has|have|had|{AUXILIARY})\b"
_HAN_NUMBER = f"[{HAN_DIGITS[1:]}十百][{HAN_DIGITS}十百]*"
# before what a question is about, and before what a sentence is about
_BEFORE_SUBJECT = re.compile(
    rf"\A\W*|\b(?:the|an?|our|my|of|for|if|{VERB}) |如果|[，,？?]", re.IGNORECASE
)
_SENTENCE_START = re.compile(
    rf"(?:[\W\d_]|第{_HAN_NUMBER}[条條款项項]|[（(]?{_HAN_NUMBER}[、．.）)])*"
    r"(?:(?:the|an?|all|each|every|any|no|only|(?:prior|contrary|thanks|compared) to"
    r"|depending on|starting (?:from|in|with))\s+)?",
    re.IGNORECASE,
)
_OF = re.compile(r" (?:of|for|in|by)(?: the| an?)? ", re.IGNORECASE)
NOUN_TAGS = ("n", "j", "s", "t", "b", "vn")  # tags of Chinese words that qualify others begin so
# properties that an answer need not name: “it costs 3 euros” states a price
IMPLICIT_PROPERTY = re.compile(
    r"(?:(?:nick)?name|term|type|kind|sort|way|reason|purpose|difference|meaning|number|amount"
    r"|quantit(?:y|ie)|value"
    r"|limit|maximum|minimum|default|rule|goal|aim|class|example|time|date|day|year|deadline|price"
    r"|cost|fee|size|dimension|material|place|location|address|owner|person|people|thing|result"
    r"|effect|problem|procedure|process|best|status|point|idea|as)e?s?"
    r"|[名昵]称|名字|[上下]限|作用|原因|目的|含义|意思|区别|时间|日期|地[址点]|过程|方[法式]|数量|价[格钱]|费用|单价|金额|例子|标准|负责人"
    r"|情况|内容|状态|位置|尺寸|材[质料]|规定|什么",
    re.IGNORECASE,
)
_RUN = re.compile(rf"[A-Za-z](?:(?![{HAN}]|-\d+\.\d)[\w'’-])*|\d(?:[\d.,]*\d)?|[{HAN}]+")


class Phrase(NamedTuple):
    """Two adjacent words, `production tokens`."""

    modifier: str
    head: str


class _Clause(NamedTuple):
    words: frozenset[str]
    phrases: dict[Phrase, str]  # to the text of each


class _Sentence(NamedTuple):
    """A sentence, item or row, and the headings, introduction and header above it."""

    text: str
    above: str
    header: str = ""

    @property
    def words(self) -> frozenset[str]:
        return parse_clause(self.text).words

    @property
    def known(self) -> frozenset[str]:
        return self.words | parse_clause(self.above).words


def find_near_miss(
    question: str, answer: str, cited: Sequence[Hit], passages: Sequence[Hit]
) -> tuple[str, str] | None:
    """(what the question is about, what the answer is about instead); None where none is detected.

    A near miss: the question is about the tank; the sentence of the answer with most of its other
    words is about the filter; and the sentences about the tank have fewer of these words.
    """
    words = parse_clause(question).words
    # 一年 and 一晚 say little
    told = {word for word in words if not has_han(word) or tag_word(word) not in ("m", "tg")}
    places = "\n".join(f"{hit.doc_title}\n{hit.source_uri}" for hit in passages)
    if not has_han(question):  # needs no Chinese words, whose dictionary takes 29 MiB
        places = HAN_RUN.sub(" ", places)
    titles = parse_clause(places).words
    # code names no thing that a sentence is about
    quoted = [it for it in list_quoted_sentences(answer, cited) if not it.text.startswith("```")]
    for role, thing in _list_asked(question) if quoted else ():
        rest = told - titles - {thing}
        best = max(quoted, key=lambda it: len(rest & it.known))
        rival = _list_roles(best.text).get(role, "")
        is_other = rival and rival not in words and thing not in rival
        if not is_other or not rest & best.known or thing in best.known | titles:
            continue
        others = [it for hit in passages for it in list_sentences(hit) if thing in it.known]
        is_topic = any(role or _list_roles(it.text).get("") == thing for it in others)
        fewer = all(len(rest & it.known) < len(rest & best.known) for it in others)
        names = _write_both(question, thing, best.text, rival)
        if is_topic and fewer and names:
            return names
    return None


def list_quoted_sentences(answer: str, cited: Sequence[Hit]) -> list[_Sentence]:
    plain = strip_answer(answer)
    return [it for hit in cited for it in list_sentences(hit) if it.text in plain]


def strip_answer(answer: str) -> str:
    """The text of an answer as in its passages, without marks and markup."""
    return strip_markup(unescape_marks(strip_marks(answer)))


def list_sentences(hit: Hit) -> Iterator[_Sentence]:
    for unit in read_layout(hit.chunk_text).units:
        above = [hit.section_path, unit.context, *(name for _, name in unit.headings)]
        text = strip_markup(hit.chunk_text[unit.start : unit.end]).strip()
        if text:
            header = " ".join(cells(hit.chunk_text[slice(*unit.header)])) if unit.header else ""
            yield _Sentence(text, "\n".join(above), header)


def _list_asked(question: str) -> Iterator[tuple[str, str]]:
    """The things that a question may be about, each with the word before its `of` or the like;
    empty for the subject.
    """
    words = [("", 0, 0), *list_words(question)]
    subjects = {found.end() for found in _BEFORE_SUBJECT.finditer(question)}
    for (before, _, end), (word, start, _) in pairwise(words):
        if before and _OF.fullmatch(question, end, start):
            yield before, word
        if start in subjects:
            yield "", word


def _list_roles(text: str) -> dict[str, str]:
    """The words of a sentence by the word before their `of` or the like, and its first by "", if no
    comma follows it as in `Ideally, ...`.
    """
    found = _SENTENCE_START.match(text)
    first = found.end() if found else 0
    words = [it for it in list_words(text) if it[1] >= first]
    roles = {
        one: other
        for (one, _, end), (other, start, _) in pairwise(words)
        if _OF.fullmatch(text, end, start)
    }
    if words and words[0][1] == first and not text.startswith((",", "，"), words[0][2]):
        roles[""] = words[0][0]
    return roles


def may_name(word: str) -> bool:
    """True for words that may begin the name of a thing: no numbers, in English no words without a
    topic (`before`, `some`), in Chinese only nouns, of which times name no thing.
    """
    if not has_han(word):
        return not word.isdigit() and word.lower() not in ENGLISH
    tag = tag_word(word)
    return tag.startswith(NOUN_TAGS) and tag != "t"


def _write_both(question: str, thing: str, text: str, rival: str) -> tuple[str, str] | None:
    """A thing and its rival as their texts write them, with the word that follows, if it is the
    same; None for words that name no things, such as the label `Date`.
    """
    if IMPLICIT_PROPERTY.fullmatch(_write(text, rival)):
        return None
    own, other = _find_heads(question, thing), _find_heads(text, rival)
    for head in (own.keys() & other.keys()) - ENGLISH:
        return own[head], other[head]
    names = _write(question, thing), _write(text, rival)
    return names if all(map(may_name, names)) else None


def _find_heads(text: str, word: str) -> dict[str, str]:
    """The words that follow a word, each with both as the text writes them."""
    phrases = parse_clause(text).phrases.items()
    return {phrase.head: written for phrase, written in phrases if phrase.modifier == word}


def _write(text: str, word: str) -> str:
    return next(text[start:end] for it, start, end in list_words(text) if it == word)


@lru_cache(maxsize=2048)
def parse_clause(text: str) -> _Clause:
    """The words of a clause, and its pairs of adjacent words."""
    words = list(list_words(text))
    return _Clause(
        frozenset(word for word, _, _ in words),
        {
            Phrase(one, two): text[start:end]
            for (one, start, ended), (two, begins, end) in pairwise(words)
            if begins - ended <= 1 and not text[ended:begins].strip()
        },
    )


def list_words(text: str) -> Iterator[tuple[str, int, int]]:
    """The words that carry meaning, Latin ones stemmed, each with its start and end."""
    for run in _RUN.finditer(text):
        if has_han(run[0]):
            end = run.start()
            for word in chinese_dictionary().cut(simplify(run[0])):
                start, end = end, end + len(word)
                if len(word) > 1 and word not in CHINESE_FUNCTION_WORDS:
                    yield word, start, end
        elif not is_weak_term(word := stem(run[0].lower())):
            yield word, run.start(), run.end()
