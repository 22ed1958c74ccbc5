"""Turns results and errors into the public contract: envelopes, query answers, exit codes. Pure functions, shared by server and CLI."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from rag_platform.config import canonical_json
from rag_platform.errors import InputError, NotFoundError, RagError
from rag_platform.ir import Citation, Hit, QueryResult
from rag_platform.retrieval.contract import CitationPart, Envelope, Payload, QueryData, ResultPart
from rag_platform.retrieval.evidence import estimate_tokens
from rag_platform.store import to_json

Detail = Literal["full", "brief"]
DONE, NOTHING_DONE, USAGE, PARTLY_DONE = 0, 1, 2, 3

_BRIEF_SNIPPET = 160
# An absolute path that is no part of a URL or of a relative path; only its last name may leave the machine.
_PATH = re.compile(r"(?<![\w/:.~-])(?:[A-Za-z]:[\\/]|~?/)(?:[^\s'\"/\\:*?<>|]+[\\/])+([^\s'\"/\\:*?<>|]*)")


@dataclass(frozen=True, slots=True)
class _Sizes:
    """How many characters of a chunk stand in the passage of `markdown`, in a citation's text and in a snippet; 0 leaves passages out."""

    passage: int
    text: int
    snippet: int


_WHOLE = 10**9
# Tried in this order until the data fits its budget; the passages, which are what a reader reads, shrink last.
_FULL = (
    _Sizes(_WHOLE, _WHOLE, 320), _Sizes(_WHOLE, 480, 200), _Sizes(_WHOLE, 300, 120), _Sizes(700, 240, 100), _Sizes(560, 180, 90),
    _Sizes(440, 140, 80), _Sizes(340, 120, 80), _Sizes(240, 100, 60), _Sizes(160, 80, 60),
)  # fmt: skip
_BRIEF = (_Sizes(0, _BRIEF_SNIPPET, _BRIEF_SNIPPET), _Sizes(0, 80, 80))


# --- envelopes -----------------------------------------------------------------------------------------------------------


def envelope(data: Mapping[str, Any] | Payload[Any], trace_id: str, warnings: Sequence[str] = ()) -> Envelope:
    """The envelope of a call that was done; a payload's own warnings come after the given ones, each once."""
    found: Mapping[str, Any] = data.data if isinstance(data, Payload) else data
    if isinstance(data, Payload):
        warnings = [*warnings, *data.warnings]
    return {"ok": True, "trace_id": trace_id, "data": to_json(dict(found)), "warnings": list(dict.fromkeys(warnings)), "error": None}


def failure(error: BaseException, trace_id: str, *, local: bool = False, warnings: Sequence[str] = ()) -> Envelope:
    """The envelope of a call that failed: code, message and details of a RagError, `internal_error` for anything else.

    Absolute paths in them are cut to their last name unless `local`: the command line talks to the owner of the machine, a server may not.
    """
    if isinstance(error, RagError):
        code, message, details = error.code, error.message, to_json(error.details)
    else:
        code, details = "internal_error", {}
        message = f"internal error ({type(error).__name__}); trace {trace_id or 'unknown'} and the log have the details"
    if not local:
        message, details = _without_paths(message), _without_paths(details)
    part = {"code": code, "message": message, "details": _plain(details)}
    return cast(Envelope, {"ok": False, "trace_id": trace_id, "data": None, "warnings": list(warnings), "error": part})


def exit_code(outcome: Envelope | BaseException) -> int:
    """The exit code of a command: 0 done, 1 nothing done, 2 usage, 3 done but some documents failed.

    A wrong argument (InputError) is usage; something named that does not exist, or any other error, is nothing done. An exception tells
    the two apart, an envelope of a failure is always 1.
    """
    if isinstance(outcome, BaseException):
        usage = isinstance(outcome, InputError) and not isinstance(outcome, NotFoundError)
        return USAGE if usage else NOTHING_DONE
    if not outcome["ok"]:
        return NOTHING_DONE
    data = outcome["data"] or {}
    if not data.get("failed"):
        return DONE
    achieved = [data[key] for key in ("new", "new_versions", "skipped") if key in data]
    return NOTHING_DONE if achieved and not sum(achieved) else PARTLY_DONE


def _without_paths(value: Any) -> Any:
    if isinstance(value, str):
        return _PATH.sub(r"\1", value)
    if isinstance(value, dict):
        return {key: _without_paths(item) for key, item in value.items()}
    return [_without_paths(item) for item in value] if isinstance(value, list) else value


def _plain(value: Any) -> Any:
    """JSON data of whatever an error carried."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted(str(item) for item in value)
    return value if value is None or isinstance(value, (str, int, float, bool)) else str(value)


# --- query ---------------------------------------------------------------------------------------------------------------


def query_data(result: QueryResult, detail: Detail = "full", max_tokens: int = 8000) -> QueryData:
    """The `data` of a query within the budget; see `query_payload`."""
    return query_payload(result, detail, max_tokens).data


def query_payload(result: QueryResult, detail: Detail = "full", max_tokens: int = 8000) -> Payload[QueryData]:
    """The `data` of a query, and warnings: the engine's own and what had to be cut for `max_tokens` (of the JSON text of all of it).

    `full` quotes the cited passages in `markdown`, `brief` only names them. Every result has a citation: those of the answer keep their
    number, the others follow. Cut texts stay verbatim beginnings of their chunk; only when that is not enough, the last results go.
    """
    warnings = list(result.warnings)
    citations = _citations(result)
    count = len(result.hits)
    levels = _FULL if detail == "full" else _BRIEF
    for sizes in levels:
        data = _query_data(result, citations, sizes, count)
        if _tokens(data) <= max_tokens:
            break
    longest = max((len(citation.text) for citation in citations), default=0)
    if detail == "full" and sizes.text < longest:
        warnings.append(
            f"texts were cut to fit {max_tokens} tokens (citations to {sizes.text} characters); ask for fewer with top_k, or read a source "
            "in full with get_document"
        )
    while _tokens(data) > max_tokens and count > 1:
        count -= 1
        data = _query_data(result, citations, sizes, count)
    if count < len(result.hits):
        warnings.append(f"{len(result.hits) - count} of {len(result.hits)} results were left out to fit {max_tokens} tokens")
    return Payload(data, tuple(warnings))


def _tokens(data: QueryData) -> int:
    return estimate_tokens(canonical_json(data))


def _citations(result: QueryResult) -> list[Citation]:
    """The answer's citations, then one for every other hit, numbered on."""
    known = {citation.chunk_id for citation in result.citations}
    number = max((citation.id for citation in result.citations), default=0)
    others = [hit for hit in result.hits if hit.chunk_id not in known]
    return [*result.citations, *(_citation(hit, number + n) for n, hit in enumerate(others, 1))]


def _citation(hit: Hit, number: int) -> Citation:
    return Citation(number, hit.chunk_id, hit.doc_id, hit.version_id, hit.source_uri, hit.section_path, hit.chunk_text, hit.score,
                    hit.page_range, hit.line_range)  # fmt: skip


def _query_data(result: QueryResult, citations: Sequence[Citation], sizes: _Sizes, count: int) -> QueryData:
    hits = result.hits[:count]
    answered = {citation.chunk_id for citation in result.citations}
    shown = {hit.chunk_id for hit in hits} | answered
    kept = [citation for citation in citations if citation.chunk_id in shown]
    parts = {citation.chunk_id: citation_part(citation, sizes.text) for citation in kept}
    return {
        "markdown": _query_markdown(result, kept, sizes),
        "answer_markdown": result.answer_markdown,
        "citations": [parts[citation.chunk_id] for citation in kept],
        "results": [_result(hit, parts[hit.chunk_id], sizes) for hit in hits],
        "confidence": round(result.confidence, 4),
        "effective_mode": result.effective_mode,
        "applied_filters": to_json(result.applied_filters),
        "matched_count": result.matched_count,
        "release_id": result.release_id,
    }


def _result(hit: Hit, citation: CitationPart, sizes: _Sizes) -> ResultPart:
    return {
        "rank": hit.rank,
        "chunk_id": hit.chunk_id,
        "score": hit.score,
        "source": hit.source,
        "text_snippet": snippet(hit.chunk_text, sizes.snippet),
        "citation": citation,
        "asset_ids": list(hit.asset_ids),
        "asset_uris": [f"asset://{asset_id}" for asset_id in hit.asset_ids],
    }


def citation_part(citation: Citation, max_chars: int = _WHOLE) -> CitationPart:
    """The public form of a citation; its text is the chunk's own, at most its first `max_chars` characters."""
    part: CitationPart = {
        "id": citation.id,
        "chunk_id": citation.chunk_id,
        "doc_id": citation.doc_id,
        "version_id": citation.version_id,
        "source_uri": citation.source_uri,
        "section_path": citation.section_path,
        "text": citation.text[:max_chars],
        "score": citation.score,
    }
    if citation.page_range is not None:
        part["page_range"] = list(citation.page_range)
    if citation.line_range is not None:
        part["line_range"] = list(citation.line_range)
    return part


def snippet(text: str, max_chars: int) -> str:
    """The text on one line, cut at a word where there is one, with an ellipsis when cut."""
    line = " ".join(text.split())
    if len(line) <= max_chars:
        return line
    cut = line[: max_chars - 1]
    word_end = cut.rfind(" ", max_chars // 2)
    return (cut[:word_end] if word_end > 0 else cut) + "…"


def place(page_range: Sequence[int] | None, line_range: Sequence[int] | None) -> str:
    """Where a span lies, for people: `page 3`, `pages 3-4`, `lines 10-24`, or nothing."""
    for name, bounds in (("page", page_range), ("line", line_range)):
        if bounds is not None:
            first, last = bounds
            return f"{name} {first}" if first == last else f"{name}s {first}-{last}"
    return ""


def source_line(citation: Citation) -> str:
    """`[n] file, heading, page or lines`: how a citation reads in a list of sources."""
    where = [citation.source_uri, citation.section_path, place(citation.page_range, citation.line_range)]
    return f"[{citation.id}] " + ", ".join(part for part in where if part)


def _query_markdown(result: QueryResult, citations: Sequence[Citation], sizes: _Sizes) -> str:
    """Answer, sources with their passages, and what to know about the run: a client that shows only text needs nothing else."""
    parts = [result.answer_markdown.strip() or "No passage of this library answers the question."]
    if citations:
        parts.append("**Sources**")
    if sizes.passage and citations:
        parts += [f"{source_line(citation)}\n\n{_quoted(citation.text, sizes.passage)}" for citation in citations]
    elif citations:
        parts.append("\n".join(f"- {source_line(citation)}" for citation in citations))
    parts += [f"Note: {warning}" for warning in result.warnings]
    images = len({asset_id for hit in result.hits for asset_id in hit.asset_ids})
    facts = [f"mode {result.effective_mode}", f"confidence {result.confidence:.2f}", f"release {result.release_id}", result.trace_id]
    if images:
        facts.insert(0, f"{images} image{'s' if images > 1 else ''} in these sources")
    if result.matched_count is not None:
        facts.insert(0, f"filters leave {result.matched_count} chunks")
    parts.append("*" + " · ".join(fact for fact in facts if fact) + "*")
    return "\n\n".join(parts)


def _quoted(text: str, max_chars: int) -> str:
    shown = text.strip()
    shown = shown if len(shown) <= max_chars else shown[:max_chars].rstrip() + " …"
    return "\n".join(f"> {line}".rstrip() for line in shown.splitlines())
