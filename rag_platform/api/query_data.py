"""Turns the result of a question into the data of the public contract, cut to a budget."""

from __future__ import annotations

import dataclasses
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence, Set
from functools import cache, partial
from typing import Any, NamedTuple, cast

from rag_platform.answering.citations import make_citation
from rag_platform.api.envelopes import optional_fields, without_paths
from rag_platform.config.settings import canonical_json
from rag_platform.contract.markdown_views import (
    ALSO_FOUND,
    SOURCES,
    asset_uri,
    chunk_uri,
    find_printed_pages,
    format_edited,
    format_place,
    list_pictures,
    show_picture,
)
from rag_platform.contract.schema import (
    AnswerData,
    CitationPart,
    FoundDocument,
    FoundPassage,
    QueryData,
    ResultPart,
)
from rag_platform.errors import InputError
from rag_platform.ir import Citation, Hit, QueryResult, format_section
from rag_platform.messages import translate, translate_filled
from rag_platform.storage.records import to_json
from rag_platform.text.tokens import estimate_tokens
from rag_platform.text.wording import pluralise, shorten

DETAILS = ("full", "brief")


class _Sizes(NamedTuple):
    """How many characters of a chunk are shown: as the passage in `markdown` (0: no passages), as a
    citation's text, and as a snippet.
    """

    passage: int
    text: int
    snippet: int
    uncited: int = 0  # `text` of a hit that is not cited; 0: the same

    def text_length(self, cited: bool) -> int:
        """Characters of the text of a cited hit, or of another one."""
        return self.text if cited or not self.uncited else self.uncited

    def citation_length(self, citation: Citation, cited: bool) -> int:
        """Characters of a citation's text; its whole quote is shown, unless the budget is small."""
        length = self.text_length(cited)
        if not citation.spans or self.text < _LEAST_QUOTED:
            return length
        return max(length, citation.spans[-1][1] - _first_shown(citation, length))


WHOLE = 10**9  # characters or tokens: nothing is cut
_LEAST_QUOTED = 300  # characters; a budget that leaves less has no room for whole quotes
# Tried in this order until the data fits its budget; passages, which people read, shrink last.
_UNLINKED = {
    "full": (
        _Sizes(WHOLE, WHOLE, 320),
        _Sizes(WHOLE, 480, 200),
        _Sizes(WHOLE, 300, 120),
        _Sizes(700, 240, 100),
        _Sizes(560, 180, 90),
        _Sizes(440, 140, 80),
        _Sizes(340, 120, 80),
        _Sizes(240, 100, 60),
        _Sizes(160, 80, 60),
    ),
    "brief": (_Sizes(0, 160, 160), _Sizes(0, 80, 80)),
}
# The same for `linked` results, whose structured data repeats the passages of the text. An answer
# may stand anywhere in a passage: the last results are left out sooner than all are cut further.
_LINKED = {
    "full": tuple(_Sizes(n, n, n) for n in (WHOLE, 1600, 1300, 1000, 800, 600, 300, 150)),
    "brief": (_Sizes(0, 160, 160, 100), _Sizes(0, 80, 80)),
}
_READABLE = 4  # of the full ones, the last before results are left out

_ANSWER_KEYS = {*AnswerData.__annotations__, "failure"} - {"results"}
_PASSAGE_KEYS = {*FoundPassage.__annotations__} - {"source_uri", "score"}
# What models need of the tokens that are estimated for an embedder: of ASCII at most the first
# (o200k_base two thirds for English), of other text the second (1.0 for Chinese in the median of
# passages, 1.14 in traditional characters).
_ASCII_SHARE, _OTHER_SHARE = 0.8, 1.15
# tokens of the envelope around an answer: trace_id, warnings, braces, the cursor
_ENVELOPE_TOKENS = 280
_NAMED_SOURCES = 5  # of those with only left out results
_BRIEF_RESULTS = 5  # with detail `brief`: the cited hits, then the best others


def redact_paths(result: QueryResult) -> QueryResult:
    """The result with absolute paths in its warnings and errors cut to their last name."""
    if not result.warnings:
        return result
    changes: dict[str, Any] = {"warnings": tuple(without_paths(result.warnings))}
    if (error := result.flags.get("error")) is not None:  # then the answer is only that error
        changes |= {
            "answer_markdown": without_paths(result.answer_markdown),
            "flags": {**result.flags, "error": without_paths(error)},
        }
    return dataclasses.replace(result, **changes)


def fit_query(
    result: QueryResult, detail: str = "full", max_tokens: int = 8000, *, linked: bool = False
) -> tuple[QueryData, list[str]]:
    """(data, warnings) of a query within `max_tokens`; the warnings are the engine's and those
    about cuts, and `markdown` has them as notes.

    `full` quotes the passages in `markdown`, `brief` only names the cited ones. Every result has a
    citation: those of the answer keep their number, the others are numbered after them. To fit,
    texts are cut to a verbatim part of their chunk, its beginning or what the answer quotes; only
    if that is not enough, the last results that it does not cite are left out. With `linked`, for
    clients of the server, `markdown` has link, score and text of each source, and the budget covers
    `markdown` and its `answer_data` together.
    """
    if detail not in DETAILS:
        raise InputError(
            f"unknown detail {detail!r}; known: {', '.join(DETAILS)}", code="unknown_detail"
        )
    result = _with_picture_texts(result, brief=detail == "brief")
    numbered = _number_citations(result)
    levels = (_LINKED if linked else _UNLINKED)[detail]
    if linked and detail == "brief":
        result, numbered = abridge(result, numbered, levels[0].text, levels[0].uncited)
    everything = len(result.hits)
    longest = max(
        (len(it) for hit in result.hits for it in (hit.chunk_text, hit.picture_text)), default=0
    )
    cited = {citation.chunk_id for citation in result.citations}

    @cache
    def build(level: int, count: int) -> tuple[QueryData, list[str]]:
        """(data, warnings) with texts of this level, and only the first `count` uncited results."""
        notes = list(result.warnings)
        if detail == "full" and levels[level].text < longest:
            notes.append(
                f"texts were cut to fit {max_tokens} tokens; `library_get_chunk` reads one in full"
                if linked
                else f"texts were cut to fit {max_tokens} tokens; ask for fewer with top_k, or"
                " read the source itself (`rag docs show DOC`)"
            )
        hits = [it for n, it in enumerate(result.hits) if n < count or it.chunk_id in cited]
        if len(hits) < everything:
            notes.append(_describe_left_out(result.hits, hits, max_tokens))
        return _query_data(result, numbered, levels[level], hits, notes, linked), notes

    def fits(level: int, count: int) -> bool:
        data, notes = build(level, count)
        if not linked:
            return estimate_tokens(canonical_json(data)) <= max_tokens
        texts = (data["markdown"], canonical_json(notes), canonical_json(answer_data(data, detail)))
        return sum(map(_count_for_model, texts)) + _ENVELOPE_TOKENS <= max_tokens

    if fits(0, everything):
        return build(0, everything)
    last = len(levels) - 1
    least = _READABLE if linked and detail == "full" else last
    # as many results as fit with the shortest texts, then the longest texts that fit
    fewer = bisect_left(
        range(everything - 1), True, key=lambda dropped: fits(least, everything - dropped)
    )
    count = max(everything - fewer, 1)
    return build(bisect_left(range(last), True, key=lambda level: fits(level, count)), count)


def _with_picture_texts(result: QueryResult, *, brief: bool) -> QueryResult:
    """The result; the text of pictures is what models read in them, marked as such. With `brief`
    their URIs, which are beside it, leave it the room.
    """
    texts = {
        hit.chunk_id: show_picture(() if brief else hit.asset_ids, hit.picture_text)
        for hit in result.hits
        if not hit.chunk_text
    }
    if not texts:
        return result
    hits = [
        hit
        if hit.chunk_text
        else dataclasses.replace(hit, chunk_text=texts[hit.chunk_id], picture_text="")
        for hit in result.hits
    ]
    citations = [
        dataclasses.replace(citation, text=citation.text or texts.get(citation.chunk_id, ""))
        for citation in result.citations
    ]
    return dataclasses.replace(result, hits=tuple(hits), citations=tuple(citations))


def _describe_left_out(every: Sequence[Hit], shown: Sequence[Hit], max_tokens: int) -> str:
    """How many results were left out, and the first documents that only these are from."""
    seen = {hit.source_uri for hit in shown}
    unseen = list(dict.fromkeys(it.source_uri for it in every if it.source_uri not in seen))
    others = f"; the next are from {', '.join(unseen[:_NAMED_SOURCES])}" if unseen else ""
    return (
        f"{len(every) - len(shown)} of {len(every)} results were left out to fit {max_tokens}"
        f" tokens{others}"
    )


def _count_for_model(text: str) -> float:
    """The tokens of a text for a language model, rather too many than too few."""
    plain = estimate_tokens(text.encode("ascii", "ignore").decode())
    return _ASCII_SHARE * plain + _OTHER_SHARE * (estimate_tokens(text) - plain)


def _number_citations(result: QueryResult) -> dict[str, Citation]:
    """chunk_id to citation for every hit; hits that the answer does not cite are numbered last."""
    known = {citation.chunk_id: citation for citation in result.citations}
    number = max((citation.id for citation in result.citations), default=0)
    others = [hit for hit in result.hits if hit.chunk_id not in known]
    return known | {hit.chunk_id: make_citation(number + n, hit) for n, hit in enumerate(others, 1)}


def _query_data(
    result: QueryResult,
    numbered: Mapping[str, Citation],
    sizes: _Sizes,
    hits: Sequence[Hit],
    notes: Sequence[str],
    linked: bool,
) -> QueryData:
    several = len(result.releases) > 1
    cited = {citation.chunk_id for citation in result.citations}
    parts = {
        chunk_id: citation_part(
            citation, sizes.citation_length(citation, chunk_id in cited), named=several
        )
        for chunk_id, citation in numbered.items()
    }
    uncited = [
        numbered[hit.chunk_id] for hit in hits if numbered[hit.chunk_id] not in result.citations
    ]
    data = {
        "markdown": _query_markdown(result, uncited, sizes, notes, linked),
        "answer_markdown": result.answer_markdown,
        "citations": [parts[citation.chunk_id] for citation in result.citations],
        "results": [_result(hit, parts[hit.chunk_id], sizes) for hit in hits],
        "confidence": round(result.confidence, 4),
        "effective_mode": result.effective_mode,
        "applied_filters": to_json(result.applied_filters),
        "matched_count": result.matched_count,
        "release_id": result.release_id,
        "answered": result.answered,
        "state": result.state,
        **optional_fields(
            releases=result.releases if several else {},
            unsupported=result.flags.get("unsupported"),
            searches=result.searches,
            usage=result.usage,
        ),
    }
    if (error := result.flags.get("error")) is not None:
        message = f"the library could not be searched: {without_paths(error['message'])}"
        details = {"kind": "failed", "causes": error.get("causes", [])}
        data["failure"] = {"code": error["code"], "message": message, "details": details}
    return cast(QueryData, data)


def _result(hit: Hit, citation: CitationPart, sizes: _Sizes) -> ResultPart:
    part = {
        "rank": hit.rank,
        "chunk_id": hit.chunk_id,
        "score": hit.score,
        "source": hit.source,
        "text_snippet": shorten(hit.chunk_text, sizes.snippet),
        "citation": citation,
        "asset_ids": list(hit.asset_ids),
        "asset_uris": [asset_uri(asset_id) for asset_id in hit.asset_ids],
        **optional_fields(picture_text=hit.picture_text[: sizes.text], found_by=hit.found_by),
    }
    return cast(ResultPart, part)


def citation_part(
    citation: Citation, max_chars: int = WHOLE, *, named: bool = False
) -> CitationPart:
    """The public form of a citation, with at most `max_chars` characters of the chunk's text, and
    with its namespace where `named`.
    """
    start = _first_shown(citation, max_chars)
    shown = citation.text[start : start + max_chars]
    inside = [(first - start, last - start) for first, last in citation.spans]
    part = {
        "id": citation.id,
        "chunk_id": citation.chunk_id,
        "doc_id": citation.doc_id,
        "version_id": citation.version_id,
        "source_uri": citation.source_uri,
        "section_path": citation.section_path,
        "text": shown,
        "score": citation.score,
        **optional_fields(
            page_range=citation.page_range,
            printed_pages=find_printed_pages(citation.page_range, citation.locator),
            line_range=citation.line_range,
            locator=citation.locator,
            edited_from=citation.edited_from,
            namespace=citation.namespace if named else "",
            text_start=start,
            spans=[(first, min(last, len(shown))) for first, last in inside if first < len(shown)],
            quote=optional_fields(
                section_path=citation.quote_section,
                page_range=citation.quote_pages,
                printed_pages=find_printed_pages(citation.quote_pages, citation.locator),
                line_range=citation.quote_lines,
                locator=citation.quote_locator,
            ),
        ),
    }
    return cast(CitationPart, part)


def _first_shown(citation: Citation, max_chars: int) -> int:
    """Where the shown part of a passage begins: at 0, or if that would cut off what the answer
    quotes, at the quoted line, or at the quote itself if its line is too long.
    """
    if not citation.spans or citation.spans[-1][1] <= max_chars:
        return 0
    (first, _), (_, last) = citation.spans[0], citation.spans[-1]
    begin = citation.text.rfind("\n", 0, first) + 1
    return begin if last - begin <= max_chars else first


def source_line(citation: Citation, language: str = "en") -> str:
    """`file, heading, page or lines` of the quoted or cited text, and whether it was edited, as one
    entry of a list of sources.
    """
    pages = citation.quote_pages or citation.page_range
    lines = citation.quote_lines or citation.line_range
    locator = citation.quote_locator or citation.locator
    place = format_place(pages, lines, locator, language)
    section = format_section(citation.quote_section or citation.section_path)
    edited = translate_filled(format_edited(citation.edited_from), language)
    parts = [citation.source_uri, section, place, edited]
    return translate(", ", language).join(filter(None, parts))


def _query_markdown(
    result: QueryResult,
    uncited: Sequence[Citation],
    sizes: _Sizes,
    notes: Sequence[str],
    linked: bool,
) -> str:
    """The answer, its sources, the other hits and the search mode: everything that a text-only
    client needs.

    The answer's citations are marked [n]; other hits are numbered (n), as nothing refers to them.
    """
    say = partial(translate, language=result.language)
    lists_uncited = bool(uncited and (sizes.passage or linked))
    parts: list[str] = []
    if answer := result.answer_markdown.strip():
        parts = [answer]
    elif result.state == "nothing_found" or not lists_uncited:
        parts = [say("No passage of this library answers the question.")]
    found = {hit.chunk_id: hit for hit in result.hits}
    listed = partial(_list_sources, found=found, linked=linked, language=result.language)
    if result.citations:
        marked = [(f"[{c.id}]", c) for c in result.citations]
        parts += [f"**{say(SOURCES)}**", listed(marked, sizes)]
    if lists_uncited:
        marked = [(f"({c.id})", c) for c in uncited]
        also = sizes._replace(passage=sizes.text_length(False)) if sizes.passage else sizes
        heading = ALSO_FOUND if parts else SOURCES
        parts += [f"**{say(heading)}**", listed(marked, also)]
    if linked and (result.citations or uncited):
        marks: dict[str, str] = {}  # by doc_id
        for source in (*result.citations, *uncited):
            mark = f" ({source.id})" if source in uncited else f" [{source.id}]"
            marks[source.doc_id] = marks.get(source.doc_id, "") + mark
        parts.append(f"doc_id: {', '.join(f'`{it}`{marks[it]}' for it in marks)}")
    parts += [translate_filled(f"Note: {note}", result.language) for note in notes]
    sources = {c.chunk_id for c in (*result.citations, *(uncited if lists_uncited else ()))}
    facts = [translate_filled(it, result.language) for it in _search_facts(result, sources)]
    parts.append(f"*{' · '.join(filter(None, [*facts, result.trace_id]))}*")
    return "\n\n".join(parts)


def _search_facts(result: QueryResult, sources: Set[str]) -> Iterator[str]:
    """How the search went; `sources` are the chunks that are listed, whose images are counted."""
    if result.matched_count is not None:
        yield f"filters leave {pluralise(result.matched_count, 'chunk')}"
    if images := {it for hit in result.hits if hit.chunk_id in sources for it in hit.asset_ids}:
        yield f"{pluralise(len(images), 'image')} in these sources"
    yield f"mode {result.effective_mode}"
    yield f"confidence {result.confidence:.2f}"
    if len(result.releases) > 1:
        yield f"releases {', '.join(f'{name} {it}' for name, it in result.releases.items())}"
    else:
        yield f"release {result.release_id}"


def _list_sources(
    citations: Sequence[tuple[str, Citation]],
    sizes: _Sizes,
    *,
    found: Mapping[str, Hit],
    linked: bool,
    language: str,
) -> str:
    named = [(mark, source_line(citation, language), citation) for mark, citation in citations]
    if linked:  # a client of the server, which reads links
        lines = []
        for mark, place, c in named:
            hit = found.get(c.chunk_id)
            text = _quote(c, hit, sizes.passage) if sizes.passage else c.text
            shown = list_pictures(hit.asset_ids, text) if hit else ""
            lines.append((f"{mark} {_link(place, c)} {shown}".rstrip(), text))
        if not sizes.passage:
            return "\n".join(f"- {line}: {text}".removesuffix(": ") for line, text in lines)
        return "\n\n".join(f"{line}\n{text}" for line, text in lines)
    if not sizes.passage:
        return "\n".join(f"- {mark} {place}" for mark, place, _ in named)
    return "\n\n".join(
        f"{mark} {place}\n\n{_quote(c, found.get(c.chunk_id), sizes.passage)}"
        for mark, place, c in named
    )


def _link(place: str, citation: Citation) -> str:
    """The source as a link to its chunk's resource, with its score."""
    place = place.replace("[", "(").replace("]", ")")
    return f"[{place}]({chunk_uri(citation.chunk_id)}) {citation.score:.2f}"


def _quote(citation: Citation, hit: Hit | None, max_chars: int) -> str:
    """The shown part of the passage as a Markdown quote, then what was read in its pictures."""
    begin = _first_shown(citation, max_chars)
    shown = _cut(f"{'… ' if begin else ''}{citation.text[begin:]}".strip(), max_chars)
    if hit is not None and hit.picture_text:
        shown += f"\n\n{show_picture(hit.asset_ids, _cut(hit.picture_text, max_chars))}"
    return "\n".join(f"> {line}".rstrip() for line in shown.splitlines())


def _cut(text: str, max_chars: int) -> str:
    return text if len(text) <= max_chars else text[:max_chars].rstrip() + " …"


# --- the structured part for clients of the server, beside the text -------------------------------


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
        part = {
            "id": citation["id"],
            "uri": chunk_uri(row["chunk_id"]),
            **{key: value for key, value in citation.items() if key in _PASSAGE_KEYS},
            "score": round(row["score"], 2),
            **optional_fields(
                source_uri=citation["source_uri"] if brief else "",
                cited=row["chunk_id"] in cited,
                asset_uris=row["asset_uris"],
                picture_text=row.get("picture_text"),
                found_by=[] if brief else row.get("found_by"),
            ),
        }
        results.append(cast(FoundPassage, part))
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
    return cast(AnswerData, found)


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
    return shorten("\n".join(lines[first:]), max_chars)
