"""Compares questions, answers and passages by their weighted words: the stemmed terms of the word
index. Identifiers weigh most, function words nothing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from rag_platform.text import segmentation, stop_words
from rag_platform.text.scripts import HAN, HAN_RUN, has_han, is_wide
from rag_platform.text.segmentation import is_identifier
from rag_platform.text.stop_words import CHINESE_FUNCTION_CHARACTER, CHINESE_FUNCTION_WORDS
from rag_platform.text.terms import (
    IDENTIFIER_WEIGHT,
    SYMBOL,
    is_sign,
    is_weak_term,
    stem_prefix,
    stemmed_terms,
    stemmed_word,
    symbol_terms,
    terms,
)

ASKS_NUMBER = re.compile(
    r"\bhow"
    r" (?:many|much|long|large|big|often|far|old|high|fast)\b|\b(?:max|min)(?:imum)?\b|"
    r"\b(?:limit|size|port|version)\b"
    r"|多少|几|多大|多长|多久|多高|上限|最大|最小|端口"
    r"|\bwhen\b|\bwhat (?:year|date|day|time)\b|何时|什么时候|哪一?年|哪天|日期"
)
# the names of change logs, and the wording of questions about changes
HISTORY = re.compile(
    r"(?:.*[-_ ])?(?:change[-_ ]?log|changes|release[-_ ]?notes|(?:release|version) history)"
    r"(?:\.\w+)?"
    r"|(?:history|news)\.\w+"  # files alone: a chapter of that name is about anything
    r"|(?:v|version |release )?\d+\.\d+[\w.]*(?:\W+\d{4}\b.*)?|更新日志|变更记录|发布说明|版本历史",
    re.IGNORECASE,
)
ASKS_HISTORY = re.compile(
    r"\bv?\d|\b(?:when (?:was|were|did)|since|change[ds]|change ?logs?|releas\w+|removed|deprecated"
    r"|migrat\w+|histor\w+|breaking|(?:which|what) versions?)\b"
    r"|版本|更新|变更|何时|什么时候|新增|移除|弃用|升级|迁移|发布"
)
# the wording of questions for a version, and of versions
ASKS_VERSION = re.compile(
    r"\b(?:which|what) (?:version|release)s?\b|哪一?个?版|什么版本|版本号?是(?! ?(?:否|v?\d))"
)
VERSION_NUMBER = re.compile(r"\d+\.\d+")
# the name of a thing that something needs, in a question for its version
_NAME = "([a-z][a-z.+#-]{0,30})"
_NEEDED_VERSION = re.compile(
    r"(?:需|要求|依赖|支持|最低|至少|兼容)[^，。？?]{0,12}?"
    rf"(?:(?:什么|哪一?个|多少|几)版本?的? ?{_NAME}|{_NAME} ?的?(?:什么|哪一?个|多少)版本"
    rf"|{_NAME} ?的?(?:最低)?(?:版本号?[是为要]?(?:多少|几|什么|哪)|几(?=以上|才|\W*$)))"
    rf"|{_NAME} ?的?(?:最低)?版本要求"
    rf"|\b(?:which|what) (?:minimum )?(?:versions? of (?:the |an? )?{_NAME}|{_NAME} versions?)"
    r"\b(?=.{0,200}\b(?:needs?|needed|requires?|required|supported)\b)"
)
_GAP = r"(?:[^\w\n]|\n(?=\w))"  # lines are wrapped inside sentences
_BESIDE_VERSION = (
    rf"{_GAP}{{0,6}}(?:(?:[的需要求为是至少或及和与]|版本|最[低高]|不?[低高大]于|等于|以上|以下|更[高新]|or|and|of|is|at"
    rf"|least|later|higher|newer|above|minimum|versions?){_GAP}{{0,4}}){{0,8}}"
)
POINTS = re.compile(
    r"\b(?:see|refer to|read|check(?: ?out)?)\b[^.!?]{0,30}\]\("
    r"|(?:参见|请参阅|参阅|请查看|查看|详见)[^。！？\[]{0,10}(?:\[[^\]\n]{0,80})?\]\("
    r"|^(?:see(?: also)?|refer to)\b.{0,160}$|^(?:(?:请|另)?(?:参见|参阅|参考)|详见|另见).{0,80}$",
    re.IGNORECASE,
)
DIGIT = re.compile(r"\d|[一二三四五六七八九十百千万两]+[个次年月日号天小时分秒元人名种]")
NAME_WEIGHT = 2.0
# T恤. After more than one letter or a digit the character is the next word: cookie会, 6度
_LETTER_WORD = re.compile(rf"[a-z][{HAN}]")
# verbs as people say them, and as texts write them
_WRITTEN_VERBS = {"装": "安装", "卸": "卸载", "删": "删除", "改": "修改", "充": "充值"}
_HAN_CHARACTER = re.compile(rf"[{HAN}]\Z")
_MAX_SEARCHED = 64  # terms; for more, a text is tokenised instead of searched for each
_WITHIN_WORD = re.compile("[a-z]{2}|[0-9]{2}")  # two characters of one part of a word
_LATIN_TOKEN = re.compile(r"(?<![\w.])[A-Za-z][\w.+#-]*[\w+#]")


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a question with its weight; a text may have all or some of its terms."""

    text: str
    parts: tuple[str, ...]
    weight: float

    @property
    def is_identifier(self) -> bool:
        return self.weight == IDENTIFIER_WEIGHT

    def share_in(self, have: Collection[str]) -> float:
        """The share of the word among the terms of a text, 0 to 1; a partial share is multiplied by
        0.66, since half of the terms carry less than half of the meaning.
        """
        if len(self.parts) == 1:
            return 1.0 if self.parts[0] in have else 0.0
        found = sum([part in have for part in self.parts]) / len(self.parts)
        return found if found == 1 else found * 0.66

    def is_whole_in(self, have: Collection[str]) -> bool:
        """True when all terms of the word are among `have`."""
        return self.parts[0] in have and (
            len(self.parts) == 1 or all([part in have for part in self.parts])
        )


def find_version_form(question: str) -> re.Pattern[str] | None:
    """What the answer to a question for a version has: a version, right beside its name where the
    question asks which version of a thing is needed. None for other questions.
    """
    lower = question.lower()
    if not (named := _NEEDED_VERSION.search(lower)):
        return VERSION_NUMBER if ASKS_VERSION.search(lower) else None
    [name] = filter(None, named.groups())
    name = rf"\b\w?{re.escape(re.sub('[.]?js$', '', name))}(?:\.?js)?"  # CPython
    number = r"(?<![\d.x+])\d[\d.x+]*"
    return re.compile(
        rf"{name}{_BESIDE_VERSION}v?\d|{number}{_BESIDE_VERSION}{name}", re.IGNORECASE
    )


@lru_cache(maxsize=256)
def question_words(query: str) -> tuple[Word, ...]:
    """The distinct meaningful words of a question; all of its terms when it has no others.

    Chinese is segmented by a dictionary and each word compared by its pairs of characters, so that
    工作进程 partly matches a text about 进程. Operators count where they are code, and flags of one
    letter everywhere.
    """
    text = segmentation.to_nfkc(query)
    names = _names(text)
    text = stop_words.remove_function_words(text)
    shares = _shares(text)
    words: dict[str, Word] = {}
    for term in stemmed_terms(text):
        is_word = not has_han(term) or _LETTER_WORD.fullmatch(term)
        if is_word and not is_weak_term(term):
            weight = (
                IDENTIFIER_WEIGHT if is_identifier(term) else NAME_WEIGHT if term in names else 1.0
            )
            words.setdefault(term, Word(term, (term,), weight * shares.get(term, 1.0)))
    for run in HAN_RUN.findall(text):
        cut = [
            word
            for said in _add_short_nouns(segmentation.dictionary_terms(run))
            if len(word := _WRITTEN_VERBS.get(said, said)) > 1
            and word not in CHINESE_FUNCTION_WORDS
        ]
        has_word = segmentation.chinese_dictionary().has_word
        for word in dict.fromkeys(cut):
            inside = any(word != other and word in other for other in cut)
            if not inside and (
                len(CHINESE_FUNCTION_CHARACTER.sub("", word)) > 1
                # 成都, but not 几省, whose tag is a guess
                or (segmentation.tag_word(word) == "ns" and has_word(word))
            ):
                words.setdefault(
                    word, Word(word, tuple(word[i : i + 2] for i in range(len(word) - 1)), 1.0)
                )
    signs = filter(is_sign, symbol_terms(query))
    words |= {sign: Word(sign, (sign,), IDENTIFIER_WEIGHT) for sign in signs}
    if words and all(map(str.isdecimal, words)):  # 干了8个月被裁赔多少: 赔 says more than 8
        for term in segmentation.dictionary_terms(text):
            if _HAN_CHARACTER.match(term) and not CHINESE_FUNCTION_CHARACTER.match(term):
                words.setdefault(term, Word(term, (term,), 1.0))
    return tuple(words.values()) or tuple(
        Word(term, (term,), 1.0) for term in dict.fromkeys(stemmed_terms(text))
    )


def _add_short_nouns(words: Sequence[str]) -> list[str]:
    """The words, and the nouns of two characters that the dictionary cuts apart, as 年假."""
    tag = segmentation.tag_word
    return [
        *words,
        *(
            one + two
            for one, two in pairwise(words)
            if len(one) == len(two) == 1 and tag(two) == "n" and tag(one) in "abfmnq"
        ),
    ]


def _shares(text: str) -> dict[str, float]:
    """The weights of the parts of identifiers, relative to the whole identifier: together one half.
    Parts that are also separate words of the question are left out.
    """
    cut = [stemmed_word(word) for word in segmentation.ascii_words(text)]
    found = {part: 0.5 / len(parts) for _, *parts in cut for part in parts}
    return {part: share for part, share in found.items() if (part,) not in cut}


@dataclass(frozen=True, slots=True)
class QuestionTerms:
    """The terms of a question, which are found in texts without tokenising these completely."""

    terms: frozenset[str]
    pairs: tuple[str, ...]  # of Chinese characters, and single ones
    words: tuple[tuple[str, str], ...]  # each with the common prefix of its inflected forms
    symbols: frozenset[str]
    others: frozenset[str]

    def find_in(self, text: str) -> frozenset[str]:
        """The question's terms that are among the `terms` of the text."""
        if len(self.terms) > _MAX_SEARCHED:
            return self.terms.intersection(terms(text))
        normal = segmentation.to_nfkc(text)
        found = [pair for pair in self.pairs if pair in normal]
        if self.symbols:
            found += self.symbols.intersection(symbol_terms(text))
        if self.words:
            folded = normal.casefold()
            if len(folded) > len(normal):  # ß became ss: positions differ
                return self.terms.intersection(terms(text))
            found += [
                term
                for term, beginning in self.words
                if beginning in folded and _has_term(term, beginning, normal, folded)
            ]
        if self.others:
            found += self.others.intersection(terms(text))
        return frozenset(found)


@lru_cache(maxsize=256)
def question_terms(query: str) -> QuestionTerms:
    """The terms of the words of a question."""
    parts = frozenset(part for word in question_words(query) for part in word.parts)
    pairs = {part for part in parts if segmentation.is_pair(part) or _HAN_CHARACTER.match(part)}
    words = {part for part in parts if part.isascii() and _common_beginning(part)}
    symbols = {part for part in parts if part.startswith(SYMBOL)}
    return QuestionTerms(
        parts,
        tuple(pairs),
        tuple((word, _common_beginning(word)) for word in words),
        frozenset(symbols),
        parts - pairs - words - symbols,
    )


def _common_beginning(stem: str) -> str:
    """The common prefix of all words with a stem, up to an apostrophe."""
    return stem_prefix(stem).partition("'")[0]


def _has_term(term: str, beginning: str, text: str, folded: str) -> bool:
    """True if a word of the normalised text that has this beginning has the term."""
    at = folded.find(beginning)
    while at >= 0:
        end = at + 1
        if at == 0 or not _WITHIN_WORD.match(text, at - 1):
            start, end = segmentation.find_around(text, at)
            if term in stemmed_terms(text[start:end]):
                return True
        at = folded.find(beginning, max(end, at + 1))
    return False


def coverage(query: str, texts: Sequence[str]) -> float:
    """The weighted share of the question's words that the texts together have; 0 without texts."""
    words = question_words(query)
    have = frozenset().union(*_find_terms_each(query, texts))
    total = sum(word.weight for word in words)
    return sum(word.weight * word.share_in(have) for word in words) / (total or 1.0)


def _find_terms_each(query: str, texts: Sequence[str]) -> list[frozenset[str]]:
    return [_find_terms(query, text) for text in texts]


@lru_cache(maxsize=256)
def _find_terms(query: str, text: str) -> frozenset[str]:
    # cached, because ranking, answering and confidence compare the same texts
    return question_terms(query).find_in(text)


def names_coverage(query: str, texts: Sequence[str]) -> float:
    """The weighted share of the question's identifiers and names that the texts have, in any
    language; one half without any.
    """
    names = [word for word in question_words(query) if word.weight > 1]
    have = frozenset().union(*_find_terms_each(query, texts))
    return (
        sum(word.weight * word.share_in(have) for word in names)
        / sum(word.weight for word in names)
        if names
        else 0.5
    )


def rarity(words: Sequence[Word], texts: Sequence[Collection[str]]) -> list[float]:
    """The weight of each word: its own times log(1 + (N + 1) / (n + 0.5)), where n of N texts have
    it whole; its own without texts.
    """
    if not texts:
        return [word.weight for word in words]
    counts = [sum([word.is_whole_in(have) for have in texts]) for word in words]
    return [
        word.weight * math.log(1 + (len(texts) + 1) / (n + 0.5))
        for word, n in zip(words, counts, strict=True)
    ]


def _names(text: str) -> set[str]:
    """The terms of proper names: capitalised words in an English question, Latin words in a Chinese
    one.
    """
    wide = is_wide(text)
    found = (
        match
        for match in _LATIN_TOKEN.finditer(text)
        if wide or not match[0][1:].islower() or (match[0][0].isupper() and match.start())
    )
    return {
        term
        for match in found
        if wide or not match[0].islower()
        for term in stemmed_terms(match[0])
    }
