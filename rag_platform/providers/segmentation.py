"""Text to index terms, the same for documents and questions: Chinese in pairs or words, words, identifiers whole and in parts.

Chinese runs become single characters and overlapping pairs, or the words of a dictionary; docs/decisions/0004 has the figures of both.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Callable
from typing import Literal, get_args

Chinese = Literal["pairs", "words"]

CHINESE: tuple[Chinese, ...] = get_args(Chinese)

MAX_TERM_CHARS = 120
_KEPT_CHARS = 40  # longer tokens are seldom seen twice

_HAN = r"\u3005\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
# Other scripts written without spaces: kana, Thai, Lao, Burmese, Khmer; and Hangul, whose particles cling to the word.
_PAIRED = r"\u3040-\u30ff\u31f0-\u31ff\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u1100-\u11ff\uac00-\ud7af"
_WORD = rf"[^\W{_HAN}{_PAIRED}]"
_JOINT = r"[._\-/\\:@'’+#&]+"
_TOKEN = re.compile(
    rf"(?P<han>[{_HAN}]+)|(?P<run>[{_PAIRED}]+)|(?P<word>(?:(?<![\w.])\.)?{_WORD}+(?:{_JOINT}{_WORD}+)*(?:\+\+|[#+](?!{_WORD}))?)"
)
_SEPARATOR = re.compile(_JOINT)
_PLAIN = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
_HYPHENATED = re.compile(r"[^\W\d_]+(?:[-'][^\W\d_]+)*")
_CASE_PARTS = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[^\W\dA-Z_]+|[A-Z]+|\d+|[^\W\d_]+")
_VERSION = re.compile(r"v\d+(?:\.\d+)+")


def terms(text: str, chinese: Chinese = "pairs") -> list[str]:
    """Lower-case terms of `text` in order, none with white space inside; an identifier stands whole, followed by its parts."""
    cut = {"han": run_terms if chinese == "pairs" else dictionary_terms, "run": run_terms}
    found: list[str] = []
    for match in _TOKEN.finditer(unicodedata.normalize("NFKC", text)):
        token, kind = match.group(), match.lastgroup or "word"
        if kind == "word":
            found += _kept_word_terms(token) if len(token) <= _KEPT_CHARS else word_terms(token)
        else:
            found += cut[kind](token)
    return found


def sequence(text: str) -> list[str]:
    """Lower-case terms of `text` in order, one a place, by which phrases are found: words and identifiers whole, the rest by character.

    >>> sequence("Set maxRetryCount: 重试次数")
    ['set', 'maxretrycount', '重', '试', '次', '数']
    """
    found: list[str] = []
    for match in _TOKEN.finditer(unicodedata.normalize("NFKC", text)):
        token = match.group().lower()
        found += [token.replace("’", "'")[:MAX_TERM_CHARS]] if match.lastgroup == "word" else token
    return found


def run_terms(run: str) -> list[str]:
    """Each character of an unspaced run, and each pair of neighbours."""
    return [*run, *(run[i : i + 2] for i in range(len(run) - 1))]


def dictionary_terms(run: str) -> list[str]:
    """The words of a Chinese run, each after the shorter dictionary words inside it (the search mode of jieba); the rest by character.

    >>> dictionary_terms("南京市长江大桥")
    ['南京', '京市', '南京市', '长江', '大桥', '长江大桥']
    """
    return [word[:MAX_TERM_CHARS] for word in _dictionary()(run)]


def word_terms(token: str) -> list[str]:
    """The term of a plain word; of an identifier, version, path or hyphenated word, the whole and its parts, single letters left out.

    >>> word_terms("maxRetryCount")
    ['maxretrycount', 'max', 'retry', 'count']
    >>> word_terms("v1.2.3")
    ['v1.2.3', '1.2.3', 'v1', '1', '2', '3']
    """
    whole = token.lower().replace("’", "'")
    if _PLAIN.fullmatch(token) and (token.islower() or token.isupper() or token[1:].islower()):
        return [whole[:MAX_TERM_CHARS]]
    parts = []
    if _VERSION.fullmatch(whole):
        parts.append(whole[1:])
    for piece in filter(None, _SEPARATOR.split(token)):
        parts.append(piece.lower())
        parts += [part.lower() for part in _CASE_PARTS.findall(piece)]
    return list(dict.fromkeys(part[:MAX_TERM_CHARS] for part in [whole, *(part for part in parts if len(part) > 1 or part.isdigit())]))


@functools.lru_cache(maxsize=16_384)
def _kept_word_terms(token: str) -> tuple[str, ...]:
    return tuple(word_terms(token))  # texts repeat their words


def is_identifier(term: str) -> bool:
    """True for a term that names one thing exactly (`ppr-9087`, `foo_bar`, `v1.2`, `a/b.c`), false for words and plain numbers."""
    return not term.isdigit() and _HYPHENATED.fullmatch(term) is None


@functools.cache
def _dictionary() -> Callable[[str], list[str]]:
    import rjieba

    # An instance of our own: words that other code adds to the shared one must not change what an index holds.
    cut: Callable[[str], list[str]] = rjieba.Jieba().cut_for_search
    return cut
