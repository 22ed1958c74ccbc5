"""The terms by which texts are compared: those of the word index, with English stemmed (Snowball,
Porter 2).
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterable, Iterator
from typing import Any

from rag_platform.text import segmentation
from rag_platform.text.markdown_blocks import CODE_SPANS, structure
from rag_platform.text.scripts import HAN
from rag_platform.text.segmentation import is_identifier
from rag_platform.text.stop_words import (
    CHINESE,
    CHINESE_FUNCTION_CHARACTER,
    CHINESE_FUNCTION_WORDS,
    ENGLISH,
    WEAK_WORDS,
)

IDENTIFIER_WEIGHT = 3.0
_MAX_CACHED_CHARS = 2000


def terms(text: str) -> tuple[str, ...]:
    """The stemmed terms in order, without single Chinese characters; cached for short texts."""
    return _cached_terms(text) if len(text) <= _MAX_CACHED_CHARS else stemmed_terms(text)


@functools.lru_cache(maxsize=4096)
def _cached_terms(text: str) -> tuple[str, ...]:
    return stemmed_terms(text)


def stemmed_terms(text: str) -> tuple[str, ...]:
    """The same as `terms`, uncached."""
    if text.isascii():
        return tuple(
            itertools.chain.from_iterable(map(stemmed_word, segmentation.ascii_words(text)))
        )
    return tuple(
        [stem(term) for term in segmentation.terms(text) if len(term) > 1 or term.isascii()]
    )


@functools.lru_cache(maxsize=8192)
def stemmed_word(word: str) -> tuple[str, ...]:
    """The terms of a word or an identifier: the whole, then its parts."""
    return tuple(map(stem, segmentation.word_terms(word)))


def is_weak_term(term: str) -> bool:
    """True for the term of a word with little meaning; also for a Chinese pair with a function
    character, which crosses a word boundary.
    """
    if term.isascii():
        return term in _weak_stems()
    return term in CHINESE_FUNCTION_WORDS or CHINESE_FUNCTION_CHARACTER.search(term) is not None


@functools.cache
def _weak_stems() -> frozenset[str]:
    return WEAK_WORDS.union(map(stem, WEAK_WORDS))


@functools.cache
def stop_terms() -> frozenset[str]:
    """The terms of words that cannot be the topic of a text, in English and Chinese."""
    return frozenset(term for word in ENGLISH for term in stemmed_terms(word)) | CHINESE


def meaning(text: str) -> set[str]:
    """The set of a text's meaningful terms; may be empty."""
    return {term for term in terms(text) if not is_weak_term(term)}


def kind_weight(term: str) -> float:
    """The weight of a term in a comparison: 3 for identifiers, 1 for words."""
    return IDENTIFIER_WEIGHT if is_identifier(term) else 1.0


_IRREGULAR = {"die": "d", "lie": "l", "tie": "t", "sky": "sk"}  # dying, lying, tying, skies


def fold_terms(terms: Iterable[str]) -> list[str]:
    """The terms without accents; they must not contain white space."""
    found: list[str] = _analyzer(stems=False).analyze(" ".join(terms))
    return found


def stem_terms(terms: Iterable[str]) -> list[str]:
    """The stems of lower-case terms without accents; they must not contain white space."""
    found: list[str] = _analyzer(stems=True).analyze(" ".join(terms))
    return found


@functools.lru_cache(maxsize=16_384)
def stem(term: str) -> str:
    """The stem of a lower-case word of ASCII letters and apostrophes; other terms are unchanged.

    >>> stem("policies"), stem("company's"), stem("max_retries")
    ('polici', 'compani', 'max_retries')
    """
    return (
        "".join(stem_terms([term])) if term.isascii() and term.replace("'", "").isalpha() else term
    )


def stem_prefix(stem: str) -> str:
    """The common prefix of all words with a stem; may be empty.

    >>> stem_prefix("polici"), stem_prefix("stabl"), stem_prefix("hope")
    ('polic', 'stab', 'hop')
    """
    if stem in _IRREGULAR:
        return _IRREGULAR[stem]
    bare = stem.removesuffix("e")
    return bare.removesuffix("l") if bare.endswith("bl") else bare.removesuffix("i")


@functools.cache
def _analyzer(*, stems: bool) -> Any:
    import tantivy

    builder = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.whitespace()).filter(
        tantivy.Filter.ascii_fold()
    )
    return (builder.filter(tantivy.Filter.stemmer("english")) if stems else builder).build()


# --- symbols ------------------------------------------------------------------------------------

# Symbols and operators are terms of their own: `^=`, `::<>`, `?`, `--flag`, `-B`, `%Y`, `@app.get`.
# Texts are indexed by their flags and by the symbols in their code: operators in code spans,
# decorators also in fences. Questions are also searched for symbols between spaces, except
# punctuation, unless they ask what it means.

SYMBOL = "§"  # prefix of terms for symbols; no other term begins with it
_SIGN = r"[!$%&*+\-./:<=>?@^|~\\#]"
_ALONE_IN_CODE = re.compile(r"[^\w\s]{1,8}")
_INSIDE_CODE = re.compile(rf"(?<!{_SIGN}){_SIGN}{{2,4}}(?!{_SIGN})")
# in ASCII, because Chinese follows without a space: 用-r选项
_DECORATOR = re.compile(r"(?<![\w\-@/.])@[A-Za-z]\w*(?:\.\w+)*", re.ASCII)
_FLAG = re.compile(
    r"(?<![\w\-@/.])(?:--[A-Za-z][\w-]*|-[A-Za-z](?![\w-]))|(?<![\w%])%[A-Za-z](?!\w)", re.ASCII
)
_SHORT_FLAG = re.compile(rf"{SYMBOL}[-%][A-Za-z]")  # its case counts
_STANDING_ALONE = re.compile(rf"(?:(?<=[\s{HAN}])|^){_SIGN}{{2,8}}(?=[\s{HAN},，]|$)")
# right behind a Chinese character, these end its sentence
_ASKED = re.compile(
    rf"(?:(?<=\s)|^|(?<=[{HAN}])(?![.!?~])){_SIGN}{{1,8}}"
    r"(?=\s+(?:(?:operator|symbol|sign|mean)s?\b|do(?:$| in\b))"
    r"|\s*(?:运算符|操作符|符号|是(?:什么|啥)(?=$|意思|运算符|操作符|符号)|什么意思|有什么用"
    r"|[是有]?干什么|的(?:作用|意思|含义)))"
    rf"|(?:(?<=\s)|^)(?![.!?~]){_SIGN}{{1,8}}(?=\s+in\b)|(?<=\boperator ){_SIGN}{{1,8}}"
    rf"|(?:(?<=\bwhat is )|(?<=\bwhat's )|(?<=\bwhat does )){_SIGN}{{1,8}}(?=\s|$)"
    rf"|(?<=运算符|操作符)(?:\s|(?![.!?~])){_SIGN}{{1,8}}",
    re.IGNORECASE,
)
_PUNCTUATION = re.compile(r"[.!?~*#-]+|[-=]+>|<-+|>{2,}")  # also arrows
_ADDRESS = re.compile(r"\b\w+://\S*")


def symbol_terms(text: str) -> list[str]:
    """The flags of a Markdown text and the symbols in its code, with repetitions."""
    found = _find_in_spans(text)
    for run in structure(text) if "```" in text or "~~~" in text else ():
        if run.kind == "fence":
            found += _DECORATOR.findall(text, run.start, run.end)
    return list(map(_as_term, found + find_flags(text)))


def find_symbols(question: str) -> list[str]:
    """The distinct symbols in a question, as terms.

    >>> find_symbols("what does ^= mean in `1..=5`, and --reload?")
    ['§..=', '§--reload', '§^=']
    >>> find_symbols("Really?! Yes -- it fails... why"), find_symbols("what is the ? operator")
    ([], ['§?'])
    """
    found = _find_in_spans(question)
    bare = _ADDRESS.sub(" ", CODE_SPANS.sub(" ", question)).rstrip(" .?!。？！")
    found += find_flags(question) + _DECORATOR.findall(bare)
    found += [
        symbol for symbol in _STANDING_ALONE.findall(bare) if not _PUNCTUATION.fullmatch(symbol)
    ]
    found += map(str.strip, _ASKED.findall(bare))
    return list(map(_as_term, dict.fromkeys(found)))


def find_flags(text: str) -> list[str]:
    """The options of commands in a text, with repetitions: `--reload`, `-r`, `%Y`."""
    return _FLAG.findall(_ADDRESS.sub(" ", text))


def is_sign(term: str) -> bool:
    """True for the term of a symbol without letters or digits, or of a flag of one letter."""
    return term.startswith(SYMBOL) and (
        not any(map(str.isalnum, term)) or _SHORT_FLAG.fullmatch(term) is not None
    )


def _as_term(symbol: str) -> str:
    term = SYMBOL + symbol
    return term if _SHORT_FLAG.fullmatch(term) else term.lower()


def _find_in_spans(text: str) -> list[str]:
    return [symbol for span in CODE_SPANS.finditer(text) for symbol in _of_code(span.group())]


def _of_code(span: str) -> Iterator[str]:
    """The symbols of a code span: the whole if it has no letters, else operators and decorators."""
    code = span.strip("`").strip().replace(r"\|", "|")  # as tables write it
    if _ALONE_IN_CODE.fullmatch(code):
        yield code
    else:
        code = _ADDRESS.sub(" ", code)
        yield from _DECORATOR.findall(code)
        yield from _INSIDE_CODE.findall(_DECORATOR.sub(" ", _FLAG.sub(" ", code)))
