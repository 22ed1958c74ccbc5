"""Answers and compares questions for the web pages and `/api`."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from rag_platform.contract.traces import AskedData, ComparedData, RankedRow
from rag_platform.errors import InputError, ProviderError
from rag_platform.ir import Json, QueryRequest
from rag_platform.query.constants import MAX_SEARCH_CHARS, MAX_SEARCHES
from rag_platform.retrieval.constants import MAX_TOP_K
from rag_platform.retrieval.library import Library
from rag_platform.retrieval.namespaces import choose_namespaces

# a page shows whole passages, unless there are very many
_PAGE_TOKENS = 200_000
_MAX_CHARS = 4000
_UNRANKED = 10**6  # the rank of a chunk that is not in a list
_Name = Annotated[str, Field(max_length=63)]
_Words = Annotated[str, Field(max_length=MAX_SEARCH_CHARS)]
_Short = Annotated[str, Field(max_length=200)]


class Options(BaseModel):
    """A question and its options, except the free filters."""

    model_config = ConfigDict(extra="ignore")

    q: str = Field(max_length=_MAX_CHARS, description="The question.")
    namespace: list[_Name] = Field(
        default=[], max_length=50, description="The libraries; default: those asked first."
    )
    top_k: int | None = Field(default=None, ge=1, le=MAX_TOP_K, description="Results at most.")
    mode: Literal["hybrid", "dense", "sparse"] | None = None
    strategy: str | None = Field(default=None, max_length=100, description="A way to search.")
    release: str | None = Field(
        default=None, max_length=100, description="As of a release_id or a date."
    )
    rerank: bool = True
    max_per_document: int | None = Field(
        default=None, ge=0, le=MAX_TOP_K, description="Results of one document; 0: no limit."
    )
    searches: list[_Words] = Field(
        default=[], max_length=MAX_SEARCHES, description="Phrasings searched beside the question."
    )
    source: str | None = Field(default=None, max_length=500, description="Only of this source.")
    tags: list[_Short] = Field(
        default=[], max_length=50, description="Only documents with one of these tags."
    )
    section: str | None = Field(
        default=None, max_length=1000, description="Only sections whose path begins so."
    )
    since: date | None = Field(default=None, description="Only documents of this day or later.")
    until: date | None = Field(default=None, description="Only documents of this day or earlier.")


class Question(Options, extra="forbid"):
    """A question with its free filters as a JSON object."""

    filters: dict[str, Any] = Field(default={}, description="Filters by field.")


class QuestionAddress(Options):
    """A question in a URL's query string, with its free filters as JSON text."""

    filters: str = Field(default="", max_length=4000, description="Filters by field, as JSON.")

    def question(self) -> Question:
        """The parsed question. Raises InputError `invalid_filter` unless the filters are a JSON
        object.
        """
        try:
            found = json.loads(self.filters.strip() or "{}")
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise InputError(
                f'filters {self.filters[:80]!r} are no JSON object; write {{"lang": "en"}}, for'
                " example",
                code="invalid_filter",
            )
        return Question(**{**self.model_dump(), "filters": found})


def ask(
    library: Library,
    question: Question,
    *,
    language: str = "",
    on_text: Callable[[str], None] | None = None,
    cancelled: threading.Event | None = None,
) -> AskedData:
    """The answer to a question; `language` is the reader's. Raises what `answering.engine.answer`
    raises, and ProviderError if no search was possible.
    """
    # imported with the first question, so that the server starts fast
    from rag_platform.answering.engine import answer
    from rag_platform.api.query_data import fit_query, redact_paths

    request = replace(query_request(library, question), language=language)
    result = redact_paths(answer(library, request, on_text=on_text, cancelled=cancelled))
    found, warnings = fit_query(result, max_tokens=_PAGE_TOKENS)
    data: Any = dict(found)
    if (failed := data.pop("failure", None)) is not None:
        raise ProviderError(failed["message"], code=failed["code"], trace_id=result.trace_id)
    data |= {"trace_id": result.trace_id, "warnings": warnings}
    asked: AskedData = data
    return asked


def compare(
    library: Library,
    question: Question,
    left: str,
    right: str,
    *,
    language: str = "",
    cancelled: threading.Event | None = None,
) -> ComparedData:
    """A question asked in two ways. Each is `strategy:NAME`, `release:ID` (or a date), or empty for
    the question unchanged. Raises InputError, and what `ask` raises.
    """
    from rag_platform.answering.citations import strip_marks

    answers = [
        ask(library, _change_question(question, change), language=language, cancelled=cancelled)
        for change in (left, right)
    ]
    rankings = [[row["chunk_id"] for row in answer["results"]] for answer in answers]
    rows = rank_both(rankings[0], rankings[1])
    places = {row["chunk_id"]: row["citation"] for a in answers for row in a["results"]}
    for row in rows:
        place = places[row["chunk_id"]]
        row["source_uri"], row["section_path"] = place["source_uri"], place["section_path"]
        if "namespace" in place:
            row["namespace"] = place["namespace"]
    texts = [strip_marks(answer["answer_markdown"]) for answer in answers]
    return {
        "left_name": left,
        "right_name": right,
        "left": answers[0],
        "right": answers[1],
        "rows": rows,
        "same_answer": texts[0] == texts[1],
        "same_ranking": rankings[0] == rankings[1],
    }


def rank_both(before: Sequence[str], after: Sequence[str]) -> list[RankedRow]:
    """Every chunk of two rankings with its ranks, by the better of them."""
    left = {chunk_id: rank for rank, chunk_id in enumerate(before, 1)}
    right = {chunk_id: rank for rank, chunk_id in enumerate(after, 1)}
    rows: list[RankedRow] = [
        {"chunk_id": chunk_id, "before": left.get(chunk_id), "after": right.get(chunk_id)}
        for chunk_id in dict.fromkeys([*after, *before])
    ]
    return sorted(rows, key=lambda row: min(row["before"] or _UNRANKED, row["after"] or _UNRANKED))


def _change_question(question: Question, change: str) -> Question:
    """The question with another strategy or release. Raises InputError `bad_way`."""
    kind, _, value = change.partition(":")
    if not change:
        return question
    if kind not in ("strategy", "release") or not value:
        raise InputError(
            f"{change[:80]!r} is no way to ask; write strategy:NAME or release:ID", code="bad_way"
        )
    return question.model_copy(update={kind: value})


def query_request(library: Library, question: Question) -> QueryRequest:
    """The engine's request for a question. Raises InputError, NotFoundError."""
    names = choose_namespaces(library, question.namespace)
    release_id = None
    if question.release:
        from rag_platform.api.release_choice import find_release

        if len(names) > 1:
            raise InputError(
                f"a release belongs to one library; name it ({', '.join(names)})",
                code="release_of_several",
            )
        release_id = find_release(library, names[0], question.release)
    return QueryRequest(
        question.q,
        names[0],
        question.top_k,
        question.mode,
        _filters(question),
        release_id=release_id,
        strategy=question.strategy,
        max_per_document=question.max_per_document,
        namespaces=names if len(names) > 1 else (),
        rerank=question.rerank,
        searches=tuple(words for words in question.searches if words.strip()),
    )


def _filters(question: Question) -> Json:
    """The free filters combined with those that have a field of their own; all must match."""
    dates = {
        operator: day.isoformat()
        for operator, day in (("$gte", question.since), ("$lte", question.until))
        if day is not None
    }
    own: Json = {
        "source": question.source,
        "tags": {"$in": list(question.tags), "$missing": "exclude"} if question.tags else None,
        "section_path": question.section,
        "doc_date": dates,
    }
    own = {field: value for field, value in own.items() if value}
    both = own.keys() & question.filters.keys()
    if not both:
        return {**question.filters, **own}
    given = question.filters.get("$and", [])
    extra = {field: own[field] for field in both}
    return {
        **own,
        **question.filters,
        "$and": [*(given if isinstance(given, list) else [given]), extra],
    }
