"""Writes the dates of a question as the library writes them.

2024年3月18日, 二〇二四年三月十八日 and 2024-03-18 share no word, so a text with one is not found by
another. Of several forms in the library the most frequent is taken; one that the library has as
asked is kept.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import islice

from rag_platform.ir import QueryIR
from rag_platform.observability import tracing
from rag_platform.protocols import LexicalReader
from rag_platform.query.analysis import find_identifiers
from rag_platform.releases.release_store import Unreadable
from rag_platform.retrieval.constants import DATED_CHUNKS, MAX_CHECKED_WORDS
from rag_platform.retrieval.search_context import SearchContext
from rag_platform.text.dates import date_forms, find_dates


def rewrite_dates(s: SearchContext, query: QueryIR) -> QueryIR:
    """The question with its whole dates in the library's form; unchanged without any."""
    index = s.lease.release.lexical
    asked = dict(islice(find_dates(query.normalised), MAX_CHECKED_WORDS))
    if not asked or index is None or isinstance(index, Unreadable):
        return query
    with s.attempt("spelling", "other forms of a date could not be looked for (%s)"):
        known = {written: _find_form(s, index, written, iso) for written, iso in asked.items()}
        if changed := {written: form for written, form in known.items() if form != written}:
            tracing.event("query.corrected", {"words": changed})
            texts = {"normalised": query.normalised, "dense_text": query.dense_text}
            texts["sparse_query"] = query.sparse_query
            for written, form in changed.items():
                texts = {name: text.replace(written, form) for name, text in texts.items()}
            identifiers = find_identifiers(texts["normalised"])
            return replace(query, **texts, identifiers=identifiers)  # type: ignore[arg-type]
    return query


def _find_form(s: SearchContext, index: LexicalReader, written: str, iso: str) -> str:
    """How the library writes a date; as asked where it does, or where it has none."""
    others = [(form, 1.0) for form in date_forms(iso)]
    found = index.search(written, DATED_CHUNKS, expansions=others, phrases=[written])
    chunks = s.lease.release.catalog.chunks(candidate.chunk_id for candidate in found)
    forms = Counter(
        form for chunk in chunks.values() for form, it in find_dates(chunk.chunk_text) if it == iso
    )
    return written if not forms or written in forms else forms.most_common(1)[0][0]
