"""The structured part of an answer that clients of the server get beside its text."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from rag_platform.contract.markdown_views import chunk_uri, snippet
from rag_platform.contract.schema import AnswerData, FoundDocument, FoundPassage, QueryData
from rag_platform.ir import Citation, QueryResult

_ANSWER_KEYS = (
    *("answer_markdown", "state", "confidence", "effective_mode", "release_id", "releases"),
    *("applied_filters", "matched_count", "unsupported", "usage", "next_cursor", "failure"),
)
_PASSAGE_KEYS = (
    *("doc_id", "section_path", "page_range", "line_range", "locator", "text", "text_start"),
    *("spans", "quote", "edited_from", "namespace"),
)
# tokens of the envelope around an answer: trace_id, warnings, braces, the cursor
ENVELOPE_TOKENS = 280
_BRIEF_RESULTS = 5  # with detail `brief`: the cited hits, then the best others


def answer_data(data: QueryData, detail: str = "full") -> AnswerData:
    """The structured data of an answer without repetitions; with detail `brief` each result has its
    source_uri itself instead of a table of documents.
    """
    cited = {citation["chunk_id"] for citation in data["citations"]}
    documents: dict[str, FoundDocument] = {}
    results: list[FoundPassage] = []
    brief = detail == "brief"
    for row in data["results"]:
        citation = row["citation"]
        documents[citation["doc_id"]] = {
            "version_id": citation["version_id"],
            "source_uri": citation["source_uri"],
        }
        part: Any = {
            "id": citation["id"],
            "uri": chunk_uri(row["chunk_id"]),
            **{key: value for key, value in citation.items() if key in _PASSAGE_KEYS},
            "score": round(row["score"], 2),
        }
        if brief:
            part["source_uri"] = citation["source_uri"]
        if row["chunk_id"] in cited:
            part["cited"] = True
        kept = ("asset_uris",) if brief else ("asset_uris", "found_by")
        part |= {k: v for k, v in row.items() if k in kept and v}
        results.append(part)
    found: Any = {
        key: value
        for key, value in data.items()
        if key in _ANSWER_KEYS and value not in (None, {}, "")
    }
    if "releases" in found:
        found.pop("release_id", None)
    found["results"] = results
    if brief:
        for key in ("effective_mode", "release_id"):  # in the text
            found.pop(key, None)
    else:
        found["documents"] = documents
    answered: AnswerData = found
    return answered


def abridge(
    result: QueryResult, numbered: Mapping[str, Citation], cited_chars: int, other_chars: int
) -> tuple[QueryResult, dict[str, Citation]]:
    """The first results, including all that the answer cites, with their texts cut to snippets."""
    cited = {citation.chunk_id for citation in result.citations}
    others = [hit.chunk_id for hit in result.hits if hit.chunk_id not in cited]
    kept = cited | set(others[: max(0, _BRIEF_RESULTS - len(cited))])
    short = {
        chunk_id: dataclasses.replace(
            citation,
            text=_without_headings(
                citation.text, cited_chars if chunk_id in cited else other_chars
            ),
            spans=(),
        )
        for chunk_id, citation in numbered.items()
        if chunk_id in kept
    }
    hits = tuple(hit for hit in result.hits if hit.chunk_id in kept)
    citations = tuple(short[citation.chunk_id] for citation in result.citations)
    return dataclasses.replace(result, hits=hits, citations=citations), short


def _without_headings(text: str, max_chars: int) -> str:
    """A snippet that starts at the first line that is not a heading; section paths show those."""
    lines = [line for line in text.splitlines() if line.strip()]
    first = next((n for n, line in enumerate(lines) if not line.startswith("#")), 0)
    return snippet("\n".join(lines[first:]), max_chars)
