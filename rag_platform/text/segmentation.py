"""Text to index terms, the same for documents and questions: Chinese in pairs or words, words,
identifiers whole and in parts.

Chinese runs become single characters and overlapping pairs, or the words of a dictionary;
docs/decisions/0004 has the figures of both.


Words that are kept whole beside what the usual cut makes of them: names of people and products,
mixed words such as `T恤`.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.machinery
import importlib.util
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

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

CHINESE: tuple[Chinese, ...] = get_args(Chinese)

MAX_TERM_CHARS = 120
_KEPT_CHARS = 40  # longer tokens are seldom seen twice

# scripts without spaces, and Hangul, whose particles cling to the word
_PAIRED = KANA + SOUTHEAST_ASIAN + HANGUL
_WORD = rf"[^\W{HAN}{_PAIRED}]"
_JOINT = r"[._\-/\\:@'’+#&]+"
# Devanagari to Sinhala, whose vowel signs are letters to readers but not to `\w`
_INDIC = "\u0900-\u0963\u0970-\u0dff"


def _compile_tokens(word: str) -> re.Pattern[str]:
    return re.compile(
        rf"(?P<han>[{HAN}]+)|(?P<run>[{_PAIRED}]+)|(?P<word>(?:(?<![\w.])\.)?{word}+(?:{_JOINT}{word}+)*(?:\+\+|[#+](?!{word}))?)"
    )


_TOKEN, _INDIC_TOKEN = map(_compile_tokens, (_WORD, rf"(?:{_WORD}|[{_INDIC}])"))
_HAS_INDIC = re.compile(f"[{_INDIC}]")
# The words of a text that is ASCII throughout: the same pattern, in a fifth of the time.
_ASCII_WORD = re.compile(
    r"(?:(?<![\w.])\.)?\w+(?:[._\-/\\:@'+#&]+\w+)*(?:\+\+|[#+](?!\w))?", re.ASCII
)
_SEPARATOR = re.compile(_JOINT)
_PAIR = re.compile(rf"[{HAN}]{{2}}|[{_PAIRED}]{{2}}")
_APART = re.compile(rf"[\s,;!?()\[\]{{}}\"|<>*=~`$%^{HAN}{_PAIRED}]")  # what no word reaches across
_FULL_WIDTH = tuple(zip("，：；！？（）", ",:;!?()", strict=True))
_LETTER = rf"(?:[^\W\d_]|[{_INDIC}])"
_PLAIN = re.compile(rf"{_LETTER}+(?:['’]{_LETTER}+)*")
_HYPHENATED = re.compile(rf"{_LETTER}+(?:[-']{_LETTER}+)*")
_CASE_PARTS = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[^\W\dA-Z_]+|[A-Z]+|\d+|[^\W\d_]+")
_MIXED = {"han", "word"}
# letters and digits, an underscore, or numbers joined by no point
_EXACT = re.compile(r"(?=.*\d)(?=.*[^\W\d]).+|.*_.*|\d+(?:[-/:]\d+)+")
_BESIDE = (1, 2)  # characters
_VERSION = re.compile(r"v\d+(?:\.\d+)+")
_SEMITIC = re.compile("[\u0590-\u08ff]")
# vowel marks of Hebrew and Arabic, signs of recitation, the stretching of words, joiners
_UNWRITTEN = re.compile(
    "[\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u0640\u064b-\u065f\u0670"
    "\u06d6-\u06dc\u06df-\u06e8\u06ea-\u06ed\u200c\u200d]"
)
# letters and digits that one types for another, as Lucene's normalizers of Arabic and Persian and
# its DecimalDigitFilter have them
_FOLDED = str.maketrans(
    "آأإٱىیےکہۀةۃ٠١٢٣٤٥٦٧٨٩۰۱۲۳۴۵۶۷۸۹",
    "اااايييكهههه01234567890123456789",
)


def terms(text: str, chinese: Chinese = "pairs") -> list[str]:
    """Lower-case terms of `text` in order, none with white space inside; an identifier stands
    whole, followed by its parts.
    """
    found: list[str] = []
    if text.isascii():
        for token in ascii_words(text):
            found += _kept_word_terms(token) if len(token) <= _KEPT_CHARS else word_terms(token)
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
        if kind == "word":
            found += _kept_word_terms(token) if len(token) <= _KEPT_CHARS else word_terms(token)
        else:
            found += cut[kind](token)
    return found


def _tokens(text: str) -> Iterator[re.Match[str]]:
    return (_INDIC_TOKEN if _HAS_INDIC.search(text) else _TOKEN).finditer(text)


def to_nfkc(text: str) -> str:
    """The text in NFKC (Unicode Standard Annex 15), Arabic, Persian and Hebrew folded, Chinese
    simplified.
    """
    if text.isascii():
        return text
    # as NFKC does; most Chinese text holds nothing else for it to change, which it tells fast
    for wide, narrow in _FULL_WIDTH:
        text = text.replace(wide, narrow)
    return fold_semitic(simplify(unicodedata.normalize("NFKC", unify_radicals(text))))


def fold_semitic(text: str) -> str:
    """Arabic, Persian and Hebrew as one types a question: without vowel marks and stretching, with
    one form of each letter and ASCII digits. Other text as it is.

    >>> fold_semitic("كِتَابُ القـــراءة ۱۲"), fold_semitic("שָׁלוֹם")
    ('كتاب القراءه 12', 'שלום')
    """
    if not _SEMITIC.search(text):
        return text
    return _UNWRITTEN.sub("", text).translate(_FOLDED)


def is_pair(term: str) -> bool:
    """True for a term that the `terms` of a normalised text contain wherever its two characters are
    neighbours.
    """
    return _PAIR.fullmatch(term) is not None


def find_around(text: str, at: int) -> tuple[int, int]:
    """The span around a position in a normalized text that is cut into the same words by itself as
    within the text.
    """
    apart = _APART.search(text, at)
    start = at
    while start and not _APART.match(text, start - 1):
        start -= 1
    if start and text[start] == ".":  # it begins a word or does not, by what stands before it
        start -= 1
    return start, apart.start() if apart else len(text)


def ascii_words(text: str) -> list[str]:
    """The words and identifiers of a text that is ASCII throughout, as they are written."""
    return _ASCII_WORD.findall(text)


def sequence(text: str) -> list[str]:
    """Lower-case terms of `text` in order, one a place, by which phrases are found: words and
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
    """The term of a word and its Chinese neighbour; names such as `T恤` and `XK7-三代` are found by
    it.
    """
    between = text[left.end() : right.start()]
    if between and not _SEPARATOR.fullmatch(between):
        return []
    first, second = (
        (left.group(), right.group()[0])
        if left.lastgroup == "word"
        else (left.group()[-1], right.group())
    )
    return [f"{first}{second}".lower()] if len(first) + len(second) <= _KEPT_CHARS else []


def exact_names(text: str) -> list[list[str]]:
    """The term sequences of exact names: identifiers, several in a row, and identifiers with the
    Chinese before or after them.

    Where a name ends among Chinese characters is unknown. Each guess is a sequence; the wrong ones
    match nothing.

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
            before, after = _beside(text, tokens, number, -1), _beside(text, tokens, last - 1, 1)
            found += [[*before[-count:], *name] for count in _BESIDE if len(before) >= count]
            found += [[*name, *after[:count]] for count in _BESIDE if len(after) >= count]
        number = max(last, number + 1)
    return found


def _is_name(token: re.Match[str]) -> bool:
    return token.lastgroup == "word" and is_identifier(token.group().lower())


def _beside(text: str, tokens: list[re.Match[str]], number: int, step: int) -> str:
    """The Chinese run right before or after a token, with no more than one joint between."""
    other = number + step
    if not 0 <= other < len(tokens) or tokens[other].lastgroup != "han":
        return ""
    left, right = sorted((number, other))
    between = text[tokens[left].end() : tokens[right].start()]
    return tokens[other].group() if not between or _SEPARATOR.fullmatch(between) else ""


def run_terms(run: str) -> list[str]:
    """Each character of an unspaced run, and each pair of neighbours."""
    return [*run, *(run[i : i + 2] for i in range(len(run) - 1))]


def dictionary_terms(run: str) -> list[str]:
    """The words of a Chinese run, each after the shorter dictionary words inside it (the search
    mode of jieba); the rest by character.

    >>> dictionary_terms("南京市长江大桥")
    ['南京', '京市', '南京市', '长江', '大桥', '长江大桥']
    """
    return [word[:MAX_TERM_CHARS] for word in chinese_dictionary().cut_for_search(run)]


def word_terms(token: str) -> list[str]:
    """The term of a plain word; of an identifier, version, path or hyphenated word, the whole and
    its parts, single letters left out.

    >>> word_terms("maxRetryCount")
    ['maxretrycount', 'max', 'retry', 'count']
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
def _kept_word_terms(token: str) -> tuple[str, ...]:
    return tuple(word_terms(token))  # texts repeat their words


def is_identifier(term: str) -> bool:
    """True for a term that names one thing exactly (`ppr-9087`, `foo_bar`, `v1.2`, `a/b.c`), false
    for words and plain numbers.
    """
    return not term.isdigit() and _HYPHENATED.fullmatch(term) is None


@functools.cache
def chinese_dictionary() -> Any:
    """The Chinese dictionary of the program, loaded once: words that other code adds to rjieba's
    own must not change what is stored. That one, of 24 MB, is made where the package is imported,
    so only the module below it is.
    """
    package = importlib.util.find_spec("rjieba")
    folder = package.submodule_search_locations if package else []
    spec = importlib.machinery.PathFinder.find_spec("rjieba.rjieba", folder)
    if spec is None or spec.loader is None:
        raise ImportError("the package rjieba is not installed")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Jieba()


MAX_WORDS = 200_000
MAX_CHARS = 60  # of a word
MARK = "="  # before a term that is a word of the dictionary; no other term begins with it
_SPACE = re.compile(r"\s+")


@dataclass(frozen=True)
class Dictionary:
    """The words, and how they are found in a text: every one at every place, also inside of and
    across others.
    """

    words: tuple[str, ...] = ()
    _lengths: Mapping[str, tuple[int, ...]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    _known: frozenset[str] = field(default=frozenset(), init=False, repr=False, compare=False)
    _first: Any = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        lengths: defaultdict[str, set[int]] = defaultdict(set)
        for word in self.words:
            lengths[word[0]].add(len(word))
        object.__setattr__(self, "_known", frozenset(self.words))
        object.__setattr__(
            self, "_lengths", {first: tuple(sorted(found)) for first, found in lengths.items()}
        )
        object.__setattr__(
            self,
            "_first",
            re.compile(f"[{re.escape(''.join(sorted(lengths)))}]") if lengths else None,
        )

    def terms(self, text: str) -> list[str]:
        """The words in NFKC `text` as `find` gives them, each as one term.

        >>> Dictionary(("big data",)).terms("Big Data")
        ['=big␣data']
        """
        # a term holds no white space
        return [MARK + word.replace(" ", "\u2423") for word in self.find(text)]

    def find(self, text: str) -> list[str]:
        """The words in NFKC `text`, in order and in lower case; a word that begins or ends with a
        letter or digit of a spaced script stands alone there.

        >>> Dictionary(("阿里云", "阿里云ecs", "t恤")).find("阿里云ECS与T恤")
        ['阿里云', '阿里云ecs', 't恤']
        """
        if self._first is None:
            return []
        text = _SPACE.sub(" ", text.lower())
        found = []
        for match in self._first.finditer(text):
            start = match.start()
            for length in self._lengths[match.group()]:
                word = text[start : start + length]
                if word in self._known and not _cuts_a_word(text, start, start + length):
                    found.append(word)
        return found


def normalise_words(words: Sequence[str]) -> tuple[str, ...]:
    """The words as they are compared: NFKC, lower case, single spaces, sorted, each once. Raises
    ConfigError for one that is too long.
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
    """The dictionary of a list of words, or of a UTF-8 file, one word a line, `#` starts a comment;
    relative to the config folder.

    Raises ConfigError when there is no such file, or it is no UTF-8.
    """
    if not isinstance(dictionary, str):
        return Dictionary(normalise_words([str(word) for word in dictionary]))
    return _parse(_read(dictionary)) if dictionary else Dictionary()


def fingerprint_dictionary(dictionary: Sequence[str] | str) -> str:
    """What identifies the words of a dictionary file, empty for a list, which stands in the config
    itself.
    """
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


def _cuts_a_word(text: str, start: int, end: int) -> bool:
    """True when an end of the span lies inside of a word or number of a script with spaces."""
    return any(
        0 < at < len(text) and _is_spaced(text[at - 1]) and _is_spaced(text[at])
        for at in (start, end)
    )


def _is_spaced(char: str) -> bool:
    return char.isalnum() and char < "\u0e00"
