"""Groundedness without a model: whether cited passages support a sentence, judged by its words,
numbers and identifiers.

A sentence is supported when all its numbers and identifiers and at least half of its other words
are in the passages; an identifier alone supports no statement about it. Where the languages differ,
only numbers and identifiers count.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from rag_platform.answering.constants import MIN_SHARE, MIN_TERMS, NAME_ENDING, SPAN_EXCESS_SCALE
from rag_platform.ir import Hit
from rag_platform.text.dates import read_han
from rag_platform.text.language import language
from rag_platform.text.passages import units
from rag_platform.text.plain_quotes import strip_markup
from rag_platform.text.scripts import HAN_DIGITS, UNSPACED, has_han, is_wide
from rag_platform.text.segmentation import is_identifier
from rag_platform.text.sentences import STOPS
from rag_platform.text.stop_words import WEAK_WORDS
from rag_platform.text.terms import kind_weight, meaning, stem

_SEPARATOR = re.compile(r"[^0-9a-z]+")
# a capitalised word that begins no sentence, or a single letter: building A
_NAME = re.compile(
    rf"(?<!^)(?<![.!?:] )(?<![\w.])[A-Z][A-Za-z](?:[^\W{UNSPACED}]|['-])*"
    r"|(?<=[a-z] )[A-HJ-Z](?![\w.'-])"
)
_NUMBER = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)*")
_WORDS = (
    "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen"
    " sixteen seventeen eighteen nineteen"
).split()
_TENS = "ten twenty thirty forty fifty sixty seventy eighty ninety".split()
_VALUES = {word: number for number, word in enumerate(_WORDS, 1)} | {
    word: 10 * number for number, word in enumerate(_TENS, 1)
}
_UNIT = (  # of a Chinese number: 三百件, 两倍
    r"(?P<unit>[个個名位人次天日周週月年岁歲点點秒时時小分刻倍成折元块塊件条條项項份台臺套家只隻种種级級"
    r"层層楼樓米公里英平吨噸克升度页頁章张張组組轮輪期季千万萬亿億艘辆輛枚座间間所口篇部代届屆号號票球架支])"
)
_ENGLISH_UNIT = rf"[ -](?=(?P<noun>(?!(?:{'|'.join(_VALUES)})\b)[a-z]{{3,}}))"
_ONE_TO_NINE = f"[{HAN_DIGITS[1:]}]"
# a number in words before its unit: no ordinal but that of a clause or a chapter, estimate (两三天)
# or decimal, nor 十分, 百分之, 万一 and the articles one and 一个; and the digits of `3-day`, which
# are compared with 3 days
_BELOW_HUNDRED = rf"{_ONE_TO_NINE}?十{_ONE_TO_NINE}?"
_HUNDREDS = rf"百(?:零{_ONE_TO_NINE}|{_BELOW_HUNDRED})?"
_WRITTEN = re.compile(
    rf"(?<![几数百千两兩十〇{HAN_DIGITS}])(?<![点點](?!.{{1,3}}分))(?!十分(?!钟|鐘))"
    rf"(?<!第(?![{HAN_DIGITS}十百]{{1,5}}[条條款章节節项項页頁]))"
    rf"(?P<han>[一二][〇○{HAN_DIGITS}]{{3}}(?=年)"
    rf"|(?:{_ONE_TO_NINE}|[两兩])千(?:零(?:{_BELOW_HUNDRED}|{_ONE_TO_NINE})"
    rf"|{_ONE_TO_NINE}{_HUNDREDS})"
    rf"|(?:{_ONE_TO_NINE}|[两兩])?{_HUNDREDS}|{_BELOW_HUNDRED}|[{HAN_DIGITS[2:]}两兩]"
    rf"|(?<=第)一|(?<![同统統唯万萬逐单單某任每这這那哪另前后後])一(?=[天周年月日号號倍元岁歲秒米]))"
    rf"(?!分之)(?={_UNIT})"
    rf"|(?<![\w.-])(?P<word>(?:{'|'.join(_TENS[1:])})(?:-(?:{'|'.join(_WORDS[:9])}))?"
    rf"|{'|'.join(_WORDS[1:])}|\d{{1,9}}(?=-)){_ENGLISH_UNIT}",
    re.IGNORECASE,
)
# 百分之五十, 三分之一
_SHARE = re.compile(
    rf"(?P<of>[{HAN_DIGITS}十百]{{1,5}})分之(?P<part>[{HAN_DIGITS}十百]{{1,5}})"
    rf"(?:[点點](?P<decimals>[{HAN_DIGITS}]{{1,4}}))?"
)
_COUNTED = re.compile(rf"\d\s?{_UNIT}|\d{_ENGLISH_UNIT}")
_COUNTED_SHARE = re.compile(r"\d\s?(?P<sign>[%％/])")


@dataclass(frozen=True, slots=True)
class Support:
    """How far passages support a sentence: the share of its plain words that they have, and the
    numbers and identifiers that they lack.
    """

    share: float
    numbers: tuple[str, ...] = ()
    identifiers: tuple[str, ...] = ()
    words_count: bool = True  # False where the languages differ and words cannot be compared

    @property
    def exact(self) -> bool:
        """True when no number and no identifier is missing."""
        return not self.numbers and not self.identifiers

    @property
    def enough(self) -> bool:
        """True when the passages support the sentence."""
        return self.exact and (self.share >= MIN_SHARE or not self.words_count)

    @property
    def agreement(self) -> float:
        """0 where a number or identifier is missing, else min(1, share / MIN_SHARE)."""
        if not self.exact:
            return 0.0
        return min(1.0, self.share / MIN_SHARE) if self.words_count else 1.0

    @property
    def reason(self) -> str:
        """Why the sentence is not supported, in words for the user."""
        missing = [
            f"{name} that the cited text does not hold: {', '.join(items[:5])}"
            for name, items in (("numbers", self.numbers), ("identifiers", self.identifiers))
            if items
        ]
        return "; ".join(missing) or f"only {self.share:.0%} of its words stand in the cited text"


def says_something(sentence: str) -> bool:
    """False for a sentence with nothing to check: a bare yes, an introduction ending in a colon."""
    return not sentence.rstrip().endswith((":", "：")) and (
        len(meaning(sentence)) >= MIN_TERMS or bool(numbers(sentence))
    )


def can_compare(sentence: str, text: str) -> bool:
    """False for a sentence in another language than the text that has no number or identifier."""
    return is_wide(sentence) == is_wide(text) or any(
        [*numbers(sentence), *filter(is_name, meaning(sentence))]
    )


def is_quoted(sentence: str, text: str) -> bool:
    """True when the text, with or without its markup, has the sentence verbatim as whole words."""
    return any(_contains(form, sentence) for form in (text, strip_markup(text)))


def _contains(text: str, sentence: str) -> bool:
    at = text.find(sentence)
    if not sentence or at < 0:
        return False
    end = at + len(sentence)
    return all(
        edge in (0, len(text))
        or any(char.isspace() or char in STOPS for char in text[edge - 1 : edge + 1])
        for edge in (at, end)
    )


def support(sentence: str, passages: Sequence[Hit]) -> Support:
    """How far the passages together, with their headings and titles, support the sentence."""
    return support_by(
        sentence,
        "\n".join(hit.readable for hit in passages),
        "\n".join(f"{hit.doc_title}\n{hit.section_path}\n{hit.table_head}" for hit in passages),
    )


def support_by(sentence: str, body: str, headings: str = "") -> Support:
    """How far a text and its headings support the sentence."""
    sentence, body, headings = count_alike(sentence, body, headings)
    have = meaning(body) | meaning(headings)
    words = meaning(sentence)
    plain = _plain_words(words)
    share = len(plain & have) / len(plain) if plain else 1.0
    known = numbers(body) | numbers(headings)
    lower = f"{body}\n{headings}".lower()
    return Support(
        share,
        tuple(sorted(numbers(sentence) - known)),
        tuple(
            sorted(
                term for term in words if is_name(term) and term not in have and term not in lower
            )
        ),
        words_count=is_wide(sentence) == is_wide(body),
    )


def find_span(sentence: str, text: str) -> tuple[int, int] | None:
    """[start, end) of the sentence in `text`, else of the unit that shares most words with it; None
    where no unit shares any.
    """
    if sentence and (at := text.find(sentence)) >= 0:
        return at, at + len(sentence)
    words = meaning(sentence) | numbers(sentence)
    best, span = 0.0, None
    for unit in units(text):
        quote = text[unit.start : unit.end]
        if strip_markup(quote) == sentence:
            return unit.start, unit.end
        own = meaning(quote) | numbers(quote)
        excess = max(0, len(own) - 2 * len(words))
        score = sum(map(kind_weight, words & own)) / (1 + excess / SPAN_EXCESS_SCALE)
        if score > best:
            best, span = score, (unit.start, unit.end)
    return span


def missing_numbers(text: str, source: str) -> list[str]:
    """The numbers of a text that are not in its source, sorted."""
    return sorted(numbers(text) - numbers(source))


def find_names(text: str) -> set[str]:
    """The proper names of a text: capitalised words that begin no sentence. Empty where
    capitalisation says nothing, in headlines and in German.
    """
    names = {name.removesuffix("'s") for name in _NAME.findall(text)}
    is_headline = 2 * len(names) > len(text.split()) > 1
    return set() if is_headline or language(text) == "de" else names


def missing_names(names: Iterable[str], source: str) -> list[str]:
    """The names that the source lacks, sorted; its endings may differ."""
    lower = source.lower()

    def is_present(name: str) -> bool:
        if len(name) == 1:
            return re.search(rf"(?<=[\w|] ){name}(?![\w-])", source) is not None
        return name.lower()[: max(4, len(name) - NAME_ENDING)] in lower

    return sorted(name for name in names if not is_present(name))


def merge_spans(spans: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """The spans in order, with those that overlap or touch joined."""
    joined: list[tuple[int, int]] = []
    for start, end in sorted(set(spans)):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return tuple(joined)


def numbers(text: str) -> set[str]:
    """The numbers of a text without thousands separators, including those in identifiers; wide
    digits become narrow ones.
    """
    found = (unicodedata.normalize("NFKC", match) for match in _NUMBER.findall(text))
    return {number.replace(",", "").rstrip(".") for number in found}


def count_alike(sentence: str, *texts: str) -> tuple[str, ...]:
    """The sentence and the texts with written numbers in digits, so that they can be compared; in
    the sentence only those of units that the texts count, and shares written as theirs.

    >>> count_alike("加班按三倍支付，分两步", "加班按两倍支付")
    ('加班按3倍支付，分两步', '加班按2倍支付')
    """
    read = [_write_numbers(text) for text in texts]
    counted = frozenset[str]().union(*(units for _, units in read))
    own = sentence
    if "分之" in sentence:
        found = (it["sign"] for written, _ in read for it in _COUNTED_SHARE.finditer(written))
        signs = {sign.replace("％", "%") for sign in found}
        own = _SHARE.sub(
            lambda it: share if signs.intersection(share := _write_share(it)) else it[0], own
        )
    own = _WRITTEN.sub(lambda it: _write_number(it) if _read_unit(it) in counted else it[0], own)
    return own, *(written for written, _ in read)


@lru_cache(maxsize=256)
def _write_numbers(text: str) -> tuple[str, frozenset[str]]:
    """The text with written numbers in digits, and the units that it counts."""
    # cached, because each sentence of an answer is compared with the same passages
    written = _WRITTEN.sub(_write_number, _SHARE.sub(_write_share, text))
    return written, frozenset(_read_unit(found) for found in _COUNTED.finditer(written))


def _write_number(found: re.Match[str]) -> str:
    if found["han"]:
        return read_han(re.sub("[两兩]", "二", found["han"]))
    if found["noun"].lower() in WEAK_WORDS:  # the two were
        return found[0]
    word = found["word"].lower()
    number = word if word.isdecimal() else sum(_VALUES[part] for part in word.split("-"))
    return f"{number} "


def _write_share(found: re.Match[str]) -> str:
    of, part = read_han(found["of"]), read_han(found["part"])
    decimals = f".{read_han(found['decimals'])}" if found["decimals"] else ""
    return f"{part}{decimals}%" if of == "100" else f"{part}{decimals} / {of}"


def _read_unit(found: re.Match[str]) -> str:
    return found["unit"] or stem(found["noun"].lower())


def _plain_words(words: set[str]) -> set[str]:
    """The words without numbers, identifiers and the parts of identifiers."""
    parts = {part for term in words if is_identifier(term) for part in _SEPARATOR.split(term)}
    return {term for term in words - parts if not is_identifier(term) and not _NUMBER.search(term)}


def is_name(term: str) -> bool:
    """True for an identifier, except words joined by a slash (`and/or`) and one with an attached
    Chinese character.
    """
    joined = "/" in term and all(part.isalpha() for part in term.split("/") if part)
    return is_identifier(term) and not joined and not has_han(term)
