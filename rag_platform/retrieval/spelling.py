"""Corrects typing errors in a question by the words of the library.

Only words of ASCII letters are corrected, alone or as parts of identifiers
(`denpendency_overrides`), and only if no text and no heading holds them. Words in quotation marks
stay, and so do words that the embedder's tokenizer knows whole (`stock`, `hand|ed`). A correction
begins with the same letter and is one edit away: a letter too many or too few, two letters swapped,
or another vowel. Words of LONG_WORD letters or more may need two edits of any kind (optimal string
alignment). Words with the same first two letters are tried first. The nearest one wins, of several
the most frequent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from rag_platform.ir import QueryIR
from rag_platform.observability import tracing
from rag_platform.query.analysis import find_identifiers
from rag_platform.releases.release_store import Unreadable
from rag_platform.retrieval.constants import LONG_WORD, MAX_CHECKED_WORDS, MIN_CORRECTED_CHARS
from rag_platform.retrieval.search_context import SearchContext
from rag_platform.text.scripts import is_wide
from rag_platform.text.terms import is_weak_term, stem

# a word by itself: camelCase is cut, digits and joints belong to none
_WORD = re.compile(r"(?<![\u00c0-\u024f])(?:[A-Z]?[a-z]+|[A-Z]+(?![a-z]))(?![\u00c0-\u024f])")
_VOWELS = frozenset("aeiouy")
_ENDING = re.compile(r"(?<=[a-z]{4})(?:s|ed|ing)$")


class Words(Protocol):
    """What is asked of a release's word index."""

    def doc_freq(self, words: str) -> int:
        """How many chunks hold all of these words in their text."""
        ...

    def terms_with_prefix(self, beginning: str) -> list[tuple[str, int]]:
        """The words of texts and headings that begin so, and how many chunks hold each."""
        ...


def correct(s: SearchContext, query: QueryIR) -> QueryIR:
    """The question without typing errors, each named in a warning. A question in a language of no
    text stays: the texts lack its words, but they are right.
    """
    release = s.lease.release
    known = query.language == "und" or s.lease.holds_language(query.language)
    if (
        release.lexical is None
        or isinstance(release.lexical, Unreadable)  # the sparse retriever reports it
        or not (known or is_wide(query.normalised))
    ):
        return query
    with s.attempt("spelling", "typing errors could not be looked for (%s)"):
        count_tokens = None
        if release.dense is not None:
            embedder = s.library.models.provider("embedder", s.strategy.embedding).instance
            count_tokens = getattr(embedder, "count_question_tokens", None) or getattr(
                embedder, "count_tokens", None
            )
        if corrections := find_corrections(query, release.lexical, count_tokens):
            tracing.event("query.corrected", {"words": corrections})
            s.warnings += [
                f"no text holds {word!r}; {meant!r} was searched for instead"
                for word, meant in corrections.items()
            ]
            return apply_corrections(query, corrections)
    return query


def find_corrections(
    query: QueryIR, index: Words, count_tokens: Callable[[Sequence[str]], list[int]] | None = None
) -> dict[str, str]:
    """The typing errors of a question as they are written, and what is meant by each; without a
    tokenizer also words that are right and stand in no text.
    """
    quoted = "\n".join(query.phrases)
    words = [
        word
        for word in dict.fromkeys(_WORD.findall(query.normalised))
        if len(word) >= MIN_CORRECTED_CHARS and word not in quoted and not is_weak_term(word)
    ]
    found = {}
    for word in words[:MAX_CHECKED_WORDS]:
        lowered = word.lower()
        if index.doc_freq(lowered) or (count_tokens and _is_word(lowered, count_tokens)):
            continue
        # few begin with the same two letters, and few errors are among these
        for letters in (2, 1):
            if meant := _find_meant(lowered, index.terms_with_prefix(lowered[:letters])):
                found[word] = _write_like(word, meant)
                break
    return found


def apply_corrections(query: QueryIR, corrections: Mapping[str, str]) -> QueryIR:
    """The question with what is meant in place of its typing errors."""

    def write(text: str) -> str:
        return _WORD.sub(lambda match: corrections.get(match[0], match[0]), text)

    text = write(query.normalised)
    return replace(
        query,
        normalised=text,
        dense_text=write(query.dense_text),
        sparse_query=write(query.sparse_query),
        identifiers=find_identifiers(text),
    )


def _is_word(word: str, count_tokens: Callable[[Sequence[str]], list[int]]) -> bool:
    return 1 in count_tokens([word, _ENDING.sub("", word)])


def _find_meant(word: str, known: Sequence[tuple[str, int]]) -> str:
    near = [
        (edits, -count, other)
        for other, count in known
        if abs(len(other) - len(word)) <= 2  # the fastest look at thousands
        and (edits := count_edits(word, other)) is not None
        and not is_weak_term(stem(other))
    ]
    edits, _, meant = min(near, default=(0, 0, ""))
    return meant if edits else ""


def _write_like(word: str, meant: str) -> str:
    """What is meant, with the capitals of the word."""
    if word.isupper():
        return meant.upper()
    return meant.capitalize() if word[0].isupper() else meant


def count_edits(word: str, other: str) -> int | None:
    """The edits from one word to the other, None where they are more than a typing error makes.

    >>> count_edits("sintax", "syntax"), count_edits("distors", "distros")
    (1, 1)
    >>> count_edits("react", "reach"), count_edits("imediatly", "immediately")
    (None, 2)
    """
    long = len(word) >= LONG_WORD
    if abs(len(word) - len(other)) > 1 + long or not other.isalpha():
        return None
    start = 0
    while start < min(len(word), len(other)) and word[start] == other[start]:
        start += 1
    end = 0
    while end < min(len(word), len(other)) - start and word[-1 - end] == other[-1 - end]:
        end += 1
    left, right = word[start : len(word) - end], other[start : len(other) - end]
    if long:
        edits = _align(left, right)
        return edits if edits <= 2 else None
    if not left and not right:
        return 0
    one = len(left) + len(right) == 1
    swapped = len(left) == 2 and left == right[::-1]
    vowels = len(left) == len(right) == 1 and {left, right} <= _VOWELS
    return 1 if one or swapped or vowels else None


def _align(left: str, right: str) -> int:
    """The optimal string alignment distance: insertions, deletions, substitutions and swapped
    neighbours count 1 each; above 2 a lower bound.
    """
    if abs(len(left) - len(right)) > 2 or len(set(left) ^ set(right)) > 4:
        return 3
    before: list[int] = []
    row = list(range(len(right) + 1))
    for i, char in enumerate(left, 1):
        following = [i]
        for j, other in enumerate(right, 1):
            cost = min(row[j] + 1, following[-1] + 1, row[j - 1] + (char != other))
            if i > 1 and j > 1 and char == right[j - 2] and left[i - 2] == other:
                cost = min(cost, before[j - 2] + 1)
            following.append(cost)
        before, row = row, following
    return row[-1]
