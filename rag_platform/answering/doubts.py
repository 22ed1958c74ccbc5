"""Warns of extractive answers that may miss their question: they are about a neighbour, speak of
another day, place or post, or lack the property or a part that it asks for.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from rag_platform.answering.citations import find_cited, split_quotes, strip_marks
from rag_platform.answering.extractive import count_own_words
from rag_platform.answering.missing_words import (
    Embed,
    find_foreign_word,
    find_missing_code,
    find_missing_column,
    find_missing_flag,
    find_missing_phrase,
    find_missing_post,
    find_missing_property,
    lacks_name,
    lacks_version,
)
from rag_platform.answering.near_misses import (
    find_near_miss,
    list_quoted_sentences,
    list_sentences,
    strip_answer,
)
from rag_platform.answering.other_dates import find_other_date, find_other_place, find_other_year
from rag_platform.ir import Hit, QueryIR
from rag_platform.text.scripts import has_han, is_wide, simplify
from rag_platform.text.segmentation import chinese_dictionary
from rag_platform.text.stop_words import CHINESE_FUNCTION_WORDS
from rag_platform.text.terms import meaning

_PRONOUN = re.compile(r"\b(?:it|its|them|they|that|this|these|those)\b", re.IGNORECASE)
_TABLE = re.compile(r"(\|.*)\n\| ---.*\n((?:\|.*\n?)+)")


def list_quoted(question: str, answer: str, passages: Sequence[Hit]) -> list[str]:
    """The sentences, items and rows, after their header, that an extractive answer quotes of its
    passages, without those that are part of another, such as the item `port` of a sentence with
    that word. One below a heading with the words of the question comes after that heading.
    """
    quoted = list_quoted_sentences(answer, _list_cited(answer, passages))
    asked, texts = meaning(question), list[str]()
    for it in quoted:
        if not any(it.text != other.text and it.text in other.text for other in quoted):
            heading = it.above.rpartition("\n")[2]
            texts += [heading] if asked and meaning(heading) == asked else []
            texts.append(f"{it.header} {it.text}".strip())
    return list(dict.fromkeys(texts))


def _list_cited(answer: str, passages: Sequence[Hit]) -> list[Hit]:
    return [passages[n - 1] for n in sorted(find_cited(answer, len(passages)))]


def find_doubts(
    query: QueryIR, answer: str, passages: Sequence[Hit], embed: Embed | None = None
) -> tuple[str, ...]:
    """A warning of why an extractive answer may miss the question, or the part of it that seems
    unanswered; empty without a doubt.
    """
    parts = count_own_words(query)
    quotes = split_quotes(answer, len(passages)) if parts else []
    quoted = {quote: _read_quote(quote, passages[n - 1]) for quote, n in quotes}
    for number, (part, count) in enumerate(parts):
        part_query = replace(query, original=part)
        before = [other for _, other in parts[:number] if _refers_back(part)]
        own = [
            quote
            for quote, text in quoted.items()
            if count(text) and (not before or any(other(text) for other in before))
        ]
        if all(_check(part_query, quote, passages, embed) for quote in own):
            return (f"this part of the question may be unanswered: “{part.rstrip('?')}”",)
    return () if parts else _check(query, answer, passages, embed)


def _refers_back(part: str) -> bool:
    """True for a part of a question whose subject is in an earlier one."""
    if not has_han(part):
        return _PRONOUN.search(part) is not None
    tagged = chinese_dictionary().tag(simplify(part))
    words = ((word, tag) for word, tag in tagged if word not in CHINESE_FUNCTION_WORDS)
    return not any(tag[0] == "n" and has_han(word) for word, tag in words)


def _read_quote(quote: str, hit: Hit) -> str:
    """A quote with the headings above it."""
    text = strip_answer(quote)
    return "\n".join([text, *(it.above for it in list_sentences(hit) if it.text in text)])


def _check(
    query: QueryIR, answer: str, passages: Sequence[Hit], embed: Embed | None
) -> tuple[str, ...]:
    """The first warning that applies to an extractive answer: it is about a neighbour, or
    another year, month, weekday or quarter; it lacks the code, post or thing that the question asks
    for; or no passage mentions the property asked for. `embed` compares that property with the
    columns of a table. Empty without a doubt.
    """
    cited = _list_cited(answer, passages)
    if other := (
        find_other_year(query.original, answer, cited)
        or find_other_date(query.original, answer, cited)
        or find_other_place(query.original, answer, passages)
        or find_near_miss(query.original, answer, cited, passages)
    ):
        return (f"the answer speaks of “{other[1]}”, the question of “{other[0]}”",)
    if missing := find_missing_flag(query.original, cited, passages):
        return (f"what was found does not speak of “{missing}”",)
    question, text = simplify(query.original), strip_marks(simplify(answer))
    if is_wide(question) != is_wide(text):
        return ()
    if lacks_name(question, text):
        return ("the question asks who, and the answer has no name",)
    if lacks_version(question, text):
        return ("the question asks for a version, and the answer has none",)
    table = _TABLE.match(answer)
    missing = (
        find_missing_code(question, cited, passages)
        or find_missing_post(question, text, cited)
        or find_foreign_word(question, passages)
    )
    if not missing and not query.rewrites:  # the passages may have a word of a phrasing for it
        missing = find_missing_phrase(question, text, passages) or (
            find_missing_column(question, table, passages, embed)
            if table
            else find_missing_property(question, answer, passages)
        )
    return (f"what was found does not speak of “{missing}”",) if missing else ()
