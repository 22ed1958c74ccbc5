"""Splits text into index terms, in the same way for documents and questions: words, and identifiers
whole and in parts.

Chinese runs become single characters and overlapping pairs, or the words of a dictionary;
docs/decisions/0004 compares both. A configured `Dictionary` adds words that are also indexed whole:
names of people and products, mixed words such as `T恤`.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.machinery
import importlib.util
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rag_platform.config.folders import config_file
from rag_platform.errors import ConfigError
from rag_platform.text.scripts import (
    HAN,
    HANGUL,
    KANA,
    SOUTHEAST_ASIAN,
    simplify,
    unify_radicals,
)

Chinese = Literal["pairs", "words"]

MAX_TERM_CHARS = 120
_MAX_CACHED_CHARS = 40  # longer tokens rarely repeat
_MAX_MIXED_CHARS = 40  # of a word with its Chinese neighbour

# scripts without spaces, and Hangul, whose particles are attached to words
_PAIRED = KANA + SOUTHEAST_ASIAN + HANGUL
_WORD = rf"[^\W{HAN}{_PAIRED}]"
_JOINT = r"[._\-/\\:@'’+#&]+"
# Devanagari to Sinhala, whose vowel signs are part of words but not matched by `\w`
_INDIC = "\u0900-\u0963\u0970-\u0dff"


def _compile_tokens(word: str) -> re.Pattern[str]:
    return re.compile(
        rf"(?P<han>[{HAN}]+)|(?P<run>[{_PAIRED}]+)|(?P<word>(?:(?<![\w.])\.)?{word}+(?:{_JOINT}{word}+)*(?:\+\+|[#+](?!{word}))?)"
    )


_TOKEN, _INDIC_TOKEN = map(_compile_tokens, (_WORD, rf"(?:{_WORD}|[{_INDIC}])"))
_HAS_INDIC = re.compile(f"[{_INDIC}]")
# words of an ASCII text: the same pattern, five times as fast
_ASCII_WORD = re.compile(
    r"(?:(?<![\w.])\.)?\w+(?:[._\-/\\:@'+#&]+\w+)*(?:\+\+|[#+](?!\w))?", re.ASCII
)
_SEPARATOR = re.compile(_JOINT)
_QUALIFIES = re.compile(r"[./\\:@+#&]+")  # separates the names in a path: app.max_size, a/b-c
_PAIR = re.compile(rf"[{HAN}]{{2}}|[{_PAIRED}]{{2}}")
_WORD_BREAK = re.compile(rf"[\s,;!?()\[\]{{}}\"|<>*=~`$%^{HAN}{_PAIRED}]")  # never inside a word
_FULL_WIDTH = tuple(zip("，：；！？（）", ",:;!?()", strict=True))
_LETTER = rf"(?:[^\W\d_]|[{_INDIC}])"
_PLAIN = re.compile(rf"{_LETTER}+(?:['’]{_LETTER}+)*")
_HYPHENATED = re.compile(rf"{_LETTER}+(?:[-']{_LETTER}+)*")
_CASE_PARTS = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[^\W\dA-Z_]+|[A-Z]+|\d+|[^\W\d_]+")
_MIXED = {"han", "word"}
# letters and digits, an underscore, or numbers joined by anything but a point
_EXACT = re.compile(r"(?=.*\d)(?=.*[^\W\d]).+|.*_.*|\d+(?:[-/:]\d+)+")
_ATTACHED_CHARS = (1, 2)  # Chinese characters that may belong to an adjacent identifier
_VERSION = re.compile(r"v\d+(?:\.\d+)+")
_SEMITIC = re.compile("[\u0590-\u08ff]")
# vowel marks of Hebrew and Arabic, recitation signs, tatweel, joiners
_OMITTED = re.compile(
    "[\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u0640\u064b-\u065f\u0670"
    "\u06d6-\u06dc\u06df-\u06e8\u06ea-\u06ed\u200c\u200d]"
)
# variants of letters and digits, as folded by Lucene's normalizers of Arabic and Persian and its
# DecimalDigitFilter
_FOLDED = str.maketrans(
    "آأإٱىیےکہۀةۃ٠١٢٣٤٥٦٧٨٩۰۱۲۳۴۵۶۷۸۹",
    "اااايييكهههه01234567890123456789",
)


def terms(text: str, chinese: Chinese = "pairs") -> list[str]:
    """Lower-case terms of `text` in order, without white space inside; an identifier is followed by
    its parts.
    """
    found: list[str] = []
    if text.isascii():
        for token in ascii_words(text):
            short = len(token) <= _MAX_CACHED_CHARS
            found += _cached_word_terms(token) if short else word_terms(token)
        return found
    cut = {"han": run_terms if chinese == "pairs" else dictionary_terms, "run": run_terms}
    text = to_nfkc(text)
    before: re.Match[str] | None = None
    for match in _tokens(text):
        token, kind = match.group(), match.lastgroup or "word"
        if (
            before is not None
            and {kind, before.lastgroup} == _MIXED
            and match.start() - before.end() <= 1
        ):
            found += _mixed_term(text, before, match)
        before = match
        if kind != "word":
            found += cut[kind](token)
        else:
            short = len(token) <= _MAX_CACHED_CHARS
            found += _cached_word_terms(token) if short else word_terms(token)
    return found


def _tokens(text: str) -> Iterator[re.Match[str]]:
    return (_INDIC_TOKEN if _HAS_INDIC.search(text) else _TOKEN).finditer(text)


def to_nfkc(text: str) -> str:
    """The text in NFKC (Unicode Standard Annex 15), Arabic, Persian and Hebrew folded, Chinese
    simplified.
    """
    if text.isascii():
        return text
    # part of NFKC; most Chinese text needs no more of it, which `normalize` then detects quickly
    for wide, narrow in _FULL_WIDTH:
        text = text.replace(wide, narrow)
    return fold_semitic(simplify(unicodedata.normalize("NFKC", unify_radicals(text))))


def fold_semitic(text: str) -> str:
    """Arabic, Persian and Hebrew without vowel marks and tatweel, with one form of each letter and
    ASCII digits, as people type questions. Other text is unchanged.

    >>> fold_semitic("كِتَابُ القـــراءة ۱۲"), fold_semitic("שָׁלוֹם")
    ('كتاب القراءه 12', 'שלום')
    """
    if not _SEMITIC.search(text):
        return text
    return _OMITTED.sub("", text).translate(_FOLDED)


def is_pair(term: str) -> bool:
    """True for a term of two characters that `terms` yields wherever they are adjacent in a
    normalised text.
    """
    return _PAIR.fullmatch(term) is not None


def find_around(text: str, at: int) -> tuple[int, int]:
    """The span around a position in a normalised text that, taken alone, is split into the same
    words as within the text.
    """
    following = _WORD_BREAK.search(text, at)
    start = at
    while start and not _WORD_BREAK.match(text, start - 1):
        start -= 1
    if start and text[start] == ".":  # the character before it decides whether it begins a word
        start -= 1
    return start, following.start() if following else len(text)


def ascii_words(text: str) -> list[str]:
    """The words and identifiers of an ASCII text, as written."""
    return _ASCII_WORD.findall(text)


def sequence(text: str) -> list[str]:
    """Lower-case terms of `text` in order, one for each position of a phrase search: words and
    identifiers whole, the rest by character.

    >>> sequence("Set maxRetryCount: 重试次数")
    ['set', 'maxretrycount', '重', '试', '次', '数']
    """
    found: list[str] = []
    for match in _tokens(to_nfkc(text)):
        token = match.group().lower()
        found += [token.replace("’", "'")[:MAX_TERM_CHARS]] if match.lastgroup == "word" else token
    return found


def _mixed_term(text: str, left: re.Match[str], right: re.Match[str]) -> list[str]:
    """[the term of a word joined with its Chinese neighbour], as in `T恤` and `XK7-三代`,
    or [] where they are not joined.
    """
    between = text[left.end() : right.start()]
    if between and not _SEPARATOR.fullmatch(between):
        return []
    first, second = (
        (left.group(), right.group()[0])
        if left.lastgroup == "word"
        else (left.group()[-1], right.group())
    )
    return [f"{first}{second}".lower()] if len(first) + len(second) <= _MAX_MIXED_CHARS else []


def exact_names(text: str) -> list[list[str]]:
    """The term sequences of exact names: identifiers, several in a row, and identifiers with
    Chinese characters before or after them.

    Where a name ends among Chinese characters is unknown, so each possibility is a sequence; wrong
    ones match nothing.

    >>> exact_names("GB/T 19001-2016, XK7-三代")
    [['19001-2016'], ['gb/t', '19001-2016'], ['xk7'], ['xk7', '三'], ['xk7', '三', '代']]
    """
    text = to_nfkc(text)
    tokens = list(_tokens(text))
    found: list[list[str]] = []
    number = 0
    while number < len(tokens):
        last = number
        while (
            last < len(tokens)
            and _is_name(tokens[last])
            and (last == number or text[tokens[last - 1].end() : tokens[last].start()] == " ")
        ):
            last += 1
        name = [term for token in tokens[number:last] for term in sequence(token.group())]
        if exact := [[term] for term in name if _EXACT.fullmatch(term)]:
            found += exact
            found += [name] if len(name) > 1 else []
            before = _find_attached(text, tokens, number, -1)
            after = _find_attached(text, tokens, last - 1, 1)
            found += [[*before[-n:], *name] for n in _ATTACHED_CHARS if len(before) >= n]
            found += [[*name, *after[:n]] for n in _ATTACHED_CHARS if len(after) >= n]
        number = max(last, number + 1)
    return found


def _is_name(token: re.Match[str]) -> bool:
    return token.lastgroup == "word" and is_identifier(token.group().lower())


def _find_attached(text: str, tokens: list[re.Match[str]], number: int, step: int) -> str:
    """The Chinese run right before (`step` -1) or after (1) a token, at most a separator apart."""
    other = number + step
    if not 0 <= other < len(tokens) or tokens[other].lastgroup != "han":
        return ""
    left, right = sorted((number, other))
    between = text[tokens[left].end() : tokens[right].start()]
    return tokens[other].group() if not between or _SEPARATOR.fullmatch(between) else ""


def run_terms(run: str) -> list[str]:
    """Each character of an unspaced run, and each pair of adjacent ones."""
    return [*run, *(run[i : i + 2] for i in range(len(run) - 1))]


def dictionary_terms(run: str) -> list[str]:
    """The words of a Chinese run, each after the shorter dictionary words inside it (the search
    mode of jieba); the rest by character.

    >>> dictionary_terms("南京市长江大桥")
    ['南京', '京市', '南京市', '长江', '大桥', '长江大桥']
    """
    return [word[:MAX_TERM_CHARS] for word in chinese_dictionary().cut_for_search(run)]


def word_terms(token: str) -> list[str]:
    """The term of a plain word; for an identifier, version, path or hyphenated word, the whole, the
    names that it joins, and its parts without single letters.

    >>> word_terms("maxRetryCount")
    ['maxretrycount', 'max', 'retry', 'count']
    >>> word_terms("c.Hub.connect_ip")
    ['c.hub.connect_ip', 'connect_ip', 'hub', 'connect', 'ip']
    >>> word_terms("v1.2.3")
    ['v1.2.3', '1.2.3', 'v1', '1', '2', '3']
    """
    whole = token.lower().replace("’", "'")
    has_parts = not (token.islower() or token.isupper() or token[1:].islower())
    if _PLAIN.fullmatch(token) and (not has_parts or whole == token.upper()):
        return [whole[:MAX_TERM_CHARS]]
    parts = []
    if _VERSION.fullmatch(whole):
        parts.append(whole[1:])
    parts += [name for name in _QUALIFIES.split(whole) if "_" in name or "-" in name]
    for piece in filter(None, _SEPARATOR.split(token)):
        parts.append(piece.lower())
        parts += [part.lower() for part in _CASE_PARTS.findall(piece)]
    return list(
        dict.fromkeys(
            part[:MAX_TERM_CHARS]
            for part in [whole, *(part for part in parts if len(part) > 1 or part.isdigit())]
        )
    )


@functools.lru_cache(maxsize=16_384)
def _cached_word_terms(token: str) -> tuple[str, ...]:
    return tuple(word_terms(token))


def is_identifier(term: str) -> bool:
    """True for a term such as `ppr-9087`, `foo_bar`, `v1.2` or `a/b.c`, False for words and plain
    numbers.
    """
    return not term.isdigit() and _HYPHENATED.fullmatch(term) is None


@functools.cache
def chinese_dictionary() -> Any:
    """The program's own instance of the Chinese dictionary, loaded once, so that words that other
    code adds to rjieba's do not change indexes. Only the extension module is imported, because
    importing the package would create another instance of 24 MB.
    """
    package = importlib.util.find_spec("rjieba")
    folder = package.submodule_search_locations if package else []
    spec = importlib.machinery.PathFinder.find_spec("rjieba.rjieba", folder)
    if spec is None or spec.loader is None:
        raise ImportError("the package rjieba is not installed")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Jieba()


def tag_word(word: str) -> str:
    """The part of speech of a Chinese word, of its last one where the dictionary cuts it.

    >>> tag_word("使用安卓"), tag_word("按照")
    ('nr', 'p')
    """
    [*_, (_, tag)] = chinese_dictionary().tag(simplify(word))
    return str(tag)


MAX_WORDS = 200_000
MAX_CHARS = 60  # of a word
MARK = "="  # prefix of the terms of a dictionary's words; no other term begins with it
_SPACE = re.compile(r"\s+")


@dataclass(frozen=True)
class Dictionary:
    """A dictionary whose words are found at every position of a text, also inside of and across
    other words.
    """

    words: tuple[str, ...] = ()

    @functools.cached_property
    def _lengths(self) -> dict[str, list[int]]:
        """The lengths of the words, ascending, by their first character."""
        lengths: defaultdict[str, set[int]] = defaultdict(set)
        for word in self.words:
            lengths[word[0]].add(len(word))
        return {first: sorted(found) for first, found in lengths.items()}

    @functools.cached_property
    def _known(self) -> frozenset[str]:
        return frozenset(self.words)

    @functools.cached_property
    def _first(self) -> re.Pattern[str]:
        return re.compile(f"[{re.escape(''.join(sorted(self._lengths)))}]")

    def terms(self, text: str) -> list[str]:
        """The words in NFKC `text` as `find` gives them, each as one term.

        >>> Dictionary(("big data",)).terms("Big Data")
        ['=big␣data']
        """
        # a term holds no white space
        return [MARK + word.replace(" ", "\u2423") for word in self.find(text)]

    def find(self, text: str) -> list[str]:
        """The words in NFKC `text`, in order and in lower case; no match begins or ends inside a
        word of a spaced script.

        >>> Dictionary(("阿里云", "阿里云ecs", "t恤")).find("阿里云ECS与T恤")
        ['阿里云', '阿里云ecs', 't恤']
        """
        if not self.words:
            return []
        text = _SPACE.sub(" ", text.lower())
        found = []
        for match in self._first.finditer(text):
            start = match.start()
            for length in self._lengths[match.group()]:
                word = text[start : start + length]
                if word in self._known and not _splits_word(text, start, start + length):
                    found.append(word)
        return found


def normalise_words(words: Sequence[str]) -> tuple[str, ...]:
    """The distinct words in NFKC and lower case with single spaces, sorted. Raises ConfigError if a
    word is too long or there are too many.
    """
    found = sorted(
        {
            _SPACE.sub(" ", unicodedata.normalize("NFKC", word).lower().replace("\0", " ")).strip()
            for word in words
        }
        - {""}
    )
    if long := [word for word in found if len(word) > MAX_CHARS]:
        raise ConfigError(
            f"the dictionary's word {long[0][:20]!r}… has {len(long[0])} characters, {MAX_CHARS}"
            " are the most"
        )
    if len(found) > MAX_WORDS:
        raise ConfigError(f"the dictionary has {len(found)} words, {MAX_WORDS} are the most")
    return tuple(found)


def load_dictionary(dictionary: Sequence[str] | str) -> Dictionary:
    """The dictionary of a list of words, or of a UTF-8 file relative to the config folder, with one
    word a line and `#` before comments. Raises ConfigError for an unreadable file.
    """
    if not isinstance(dictionary, str):
        return Dictionary(normalise_words([str(word) for word in dictionary]))
    return _parse(_read(dictionary)) if dictionary else Dictionary()


def fingerprint_dictionary(dictionary: Sequence[str] | str) -> str:
    """The SHA-256 of a dictionary file; empty for a list, which the config itself contains."""
    return (
        hashlib.sha256(_read(dictionary).encode()).hexdigest()
        if isinstance(dictionary, str) and dictionary
        else ""
    )


def _read(name: str) -> str:
    path = config_file(name)
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"the dictionary {str(path)!r} cannot be read: {error}; it must be UTF-8 with one word"
            " a line"
        ) from error


@functools.lru_cache(maxsize=4)
def _parse(text: str) -> Dictionary:
    return Dictionary(normalise_words([line.partition("#")[0] for line in text.splitlines()]))


def _splits_word(text: str, start: int, end: int) -> bool:
    """True when the span begins or ends inside a word or number of a script with spaces."""
    return any(
        0 < at < len(text) and _is_spaced(text[at - 1]) and _is_spaced(text[at])
        for at in (start, end)
    )


def _is_spaced(char: str) -> bool:
    return char.isalnum() and char < "\u0e00"
