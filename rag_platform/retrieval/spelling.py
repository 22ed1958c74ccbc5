"""Corrects typing errors in a question by the words of the library, and writes its dates as the
library does.

Only words of ASCII letters are corrected, alone or as parts of identifiers
(`denpendency_overrides`), and only if no text and no heading has them. Words in quotation marks are
kept, and so are words that are single tokens of the embedder's tokenizer (`stock`, `hand|ed`). A
correction begins with the same letter and is one edit away: a letter too many or too few, two
letters swapped, or another vowel. Words of at least LONG_WORD letters may need two edits of any
kind (optimal string alignment), unless the tokenizer knows them as two pieces, like many names
(`ever|note`). Words with the same first two letters are tried first. The nearest word is chosen, of
several the most frequent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from rag_platform.ir import QueryIR
from rag_platform.observability import tracing
from rag_platform.protocols import LexicalReader
from rag_platform.query.analysis import find_identifiers
from rag_platform.releases.release_store import Unreadable
from rag_platform.retrieval.constants import (
    DATED_CHUNKS,
    LONG_WORD,
    MAX_CHECKED_WORDS,
    MIN_CORRECTED_CHARS,
)
from rag_platform.retrieval.search_context import SearchContext
from rag_platform.text.dates import date_forms, find_dates
from rag_platform.text.scripts import is_wide
from rag_platform.text.terms import is_weak_term, stem

# a run of letters: camelCase is split, digits and separators are left out
_WORD = re.compile(r"(?<![\u00c0-\u024f])(?:[A-Z]?[a-z]+|[A-Z]+(?![a-z]))(?![\u00c0-\u024f])")
_VOWELS = frozenset("aeiouy")
_ENDING = re.compile(r"(?<=[a-z]{4})(?:s|ed|ing)$")


def correct(s: SearchContext, query: QueryIR) -> QueryIR:
    """The question without typing errors, with a warning for each. A question in a language that no
    text is in is unchanged: the texts lack its words, but these are correct.
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
                f"no text holds {word!r}; {correction!r} was searched for instead"
                for word, correction in corrections.items()
            ]
            return apply_corrections(query, corrections)
    return query


def find_corrections(
    query: QueryIR,
    index: LexicalReader,
    count_tokens: Callable[[Sequence[str]], list[int]] | None = None,
) -> dict[str, str]:
    """The typing errors of a question as written, each with its correction. Without a tokenizer
    correct words that no text has are corrected as well.
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
        if index.doc_freq(lowered):
            continue
        pieces = min(count_tokens([lowered, _ENDING.sub("", lowered)])) if count_tokens else 3
        if pieces == 1:
            continue
        # errors are rare in the first two letters, and few words share both
        for letters in (2, 1):
            known = index.terms_with_prefix(lowered[:letters])
            if correction := _find_nearest(lowered, known, pieces - 1):
                found[word] = _match_case(word, correction)
                break
    return found


def apply_corrections(query: QueryIR, corrections: Mapping[str, str]) -> QueryIR:
    """The question with its typing errors replaced."""
    return _change(
        query, lambda text: _WORD.sub(lambda match: corrections.get(match[0], match[0]), text)
    )


def _change(query: QueryIR, write: Callable[[str], str]) -> QueryIR:
    """The question with all of its searched texts rewritten."""
    text = write(query.normalised)
    return replace(
        query,
        normalised=text,
        dense_text=write(query.dense_text),
        sparse_query=write(query.sparse_query),
        identifiers=find_identifiers(text),
    )


def _find_nearest(word: str, known: Sequence[tuple[str, int]], max_edits: int) -> str:
    """The nearest of the known words, of several the most frequent; empty where none is near."""
    near = [
        (edits, -count, other)
        for other, count in known
        if abs(len(other) - len(word)) <= 2  # a cheap test first, as there may be thousands
        and (edits := count_edits(word, other)) is not None
        and edits <= max_edits
        and not is_weak_term(stem(other))
    ]
    edits, _, nearest = min(near, default=(0, 0, ""))
    return nearest if edits else ""


def _match_case(word: str, correction: str) -> str:
    """The correction with the capitals of the word."""
    if word.isupper():
        return correction.upper()
    return correction.capitalize() if word[0].isupper() else correction


def count_edits(word: str, other: str) -> int | None:
    """The edits from one word to the other; None where these are too many for a typing error.

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
    """The optimal string alignment distance (insertions, deletions, substitutions and swaps of
    neighbours count 1 each); a value above 2 is a lower bound.
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


# --- dates ---------------------------------------------------------------------------------------


def rewrite_dates(s: SearchContext, query: QueryIR) -> QueryIR:
    """The question with its dates and months as the library writes them, since 2024年3月18日,
    二〇二四年三月十八日 and 2024-03-18 share no word.
    """
    index = s.lease.release.lexical
    asked = dict(islice(find_dates(query.normalised), MAX_CHECKED_WORDS))
    if not asked or index is None or isinstance(index, Unreadable):
        return query
    with s.attempt("spelling", "other forms of a date could not be looked for (%s)"):
        text = query.sparse_query
        known = {it: _find_form(s, index, text, it, iso) for it, iso in asked.items()}
        if changed := {written: form for written, form in known.items() if form != written}:
            tracing.event("query.corrected", {"words": changed})

            def write(text: str) -> str:
                for written, form in changed.items():
                    text = text.replace(written, form)
                return text

            return _change(query, write)
    return query


def _find_form(
    s: SearchContext, index: LexicalReader, question: str, written: str, iso: str
) -> str:
    """How the library writes a date, in the chunk that best matches the question of those that have
    it; as asked where none has.
    """
    others = [(form, 1.0) for form in date_forms(iso)]
    found = index.search(question, DATED_CHUNKS, expansions=others, phrases=[written])
    chunks = s.lease.release.catalog.chunks(candidate.chunk_id for candidate in found)
    for chunk_id in (candidate.chunk_id for candidate in found):
        text = chunks[chunk_id].chunk_text if chunk_id in chunks else ""
        if forms := [form for form, it in find_dates(text) if it == iso]:
            return written if written in forms else forms[0]
    return written
