"""Splits file names and titles into the words by which questions find them, including pairs of
words that a name may join.
"""

from __future__ import annotations

import re
from collections.abc import Set
from posixpath import basename, dirname, splitext

from rag_platform.text import segmentation
from rag_platform.text.scripts import FIRST_CJK, RUN
from rag_platform.text.terms import find_flags

_COMMAND_CHARS = 30  # before a flag, where the name of its command stands; chosen by hand
_MAX_CHARS = 40  # of a word of a name; chosen by hand
# parts of a run of letters and digits: 2022 of FY2022, 2024 and q2 of 2024Q2
_PIECE = re.compile(
    r"\d{3,}|[^\W\d_]{3,}|[^\W\d_]{1,2}\d{1,2}(?!\d)|\d{1,2}[^\W\d_]{1,2}(?![^\W\d_])"
)
# a number or letter after a word: RFC 1034, pep-0008, contract B; no version
_NUMBERED = re.compile(
    r"(?<![^\W_])(?P<word>[^\W\d_]{2,30})"
    r"(?:[\s_#-]{0,2}(?P<number>\d{1,6})|[\s_-](?P<letter>[a-z]))(?!\.*\d|[^\W_])"
)


def name_words(text: str, *, chinese: bool = True) -> tuple[set[str], dict[str, str]]:
    """(the words of a name or a question in lower case; two adjacent words joined, to the same with
    a space).

    Without `chinese`, Chinese words are left out and their dictionary is not loaded.

    >>> words, pairs = name_words("Best Buy FY2024Q2")
    >>> sorted(words), pairs["bestbuy"]
    (['2024', 'best', 'buy', 'fy2024q2', 'q2'], 'best buy')
    """
    words: set[str] = set()
    pairs: dict[str, str] = {}
    before = ""
    for run in RUN.findall(text.lower()):
        if run[0] >= FIRST_CJK:
            words.update(_dictionary_words(run) if chinese else ())
            before = ""
            continue
        if len(run) > _MAX_CHARS:
            before = ""
            continue
        if run.isalpha():
            if len(run) > 1:
                words.add(run)
        else:
            words.update(_PIECE.findall(run))
            if not run.isdigit():
                words.add(run)
        if before and run.isalpha():
            pairs[before + run] = f"{before} {run}"
        before = run if run.isalpha() else ""
    return words, pairs


def find_command_words(question: str) -> set[str]:
    """The words beside the flags of a question, of which some may name their command; empty without
    a flag.

    >>> sorted(find_command_words("what does git log -S do"))
    ['do', 'does', 'git', 'log', 'what']
    """
    places = map(question.find, find_flags(question))
    near = [question[max(0, it - _COMMAND_CHARS) : it + _COMMAND_CHARS] for it in places]
    return name_words("\n".join(near))[0] if near else set()


def is_whole_name(filename: str, words: Set[str]) -> bool:
    """True if all words of a file name are among these: `git-log.txt`, but not `git-log-tree.txt`,
    among git and log.
    """
    own, _ = name_words(splitext(filename)[0])
    return bool(own) and own <= words


def is_about(thing: Set[str], filename: str, title: str, source_uri: str) -> bool:
    """True if a document is about the thing of these words: they are its whole file name or title,
    or the folder of which it is the README or index.
    """
    name = splitext(filename)[0]
    if name.lower() in ("readme", "index"):
        name = basename(dirname(source_uri))
    return any(name_words(it)[0] == thing for it in (name, title) if it)


def find_numbered(text: str) -> dict[str, tuple[str, str]]:
    """Each number or letter after a word, as written in lower case, to a key of the word and one of
    both.

    >>> find_numbered("RFC 1034 and pep-0008")
    {'rfc 1034': ('rfc#', 'rfc#1034'), 'pep-0008': ('pep#', 'pep#8')}
    """
    return {found[0]: _series_keys(found) for found in _NUMBERED.finditer(text.lower())}


def find_series(name: str) -> tuple[str, ...]:
    """These keys of a name that begins with such a word; empty for others."""
    found = _NUMBERED.match(name.lower())
    return _series_keys(found) if found else ()


def _series_keys(found: re.Match[str]) -> tuple[str, str]:
    word, number, letter = found.groups()
    return f"{word}#", f"{word}#{letter or int(number)}"


def chinese_words(text: str) -> set[str]:
    """The Chinese words of a name."""
    runs = (run for run in RUN.findall(text) if run[0] >= FIRST_CJK)
    return {word for run in runs for word in _dictionary_words(run)}


def _dictionary_words(run: str) -> list[str]:
    return [word for word in segmentation.dictionary_terms(run) if len(word) > 1]
