"""From evidence and an answerer's text to what the caller reads: marks, citations, and plain words
when there is no answer.

A mark [n] outside of code points at evidence[n-1]. What an answer must not do is decided here and
not by a model: marks that point nowhere, links and pictures that the evidence does not hold, and
markup that loads or runs something are taken out of the text.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import fmean

from rag_platform.answering.groundedness import (
    CLEAR_SHARE,
    best_span,
    merged,
    quoted,
    says_something,
    support,
)
from rag_platform.contract.markdown_views import shown_text
from rag_platform.ir import Citation, Hit
from rag_platform.text.markdown_blocks import code_spans
from rag_platform.text.passages import units

_CLOSEST = 3
_SNIPPET = 240
_WORDS = {
    "nothing": (
        "Nothing in the library matches this question.",
        "资料库中没有与该问题匹配的内容。",
    ),
    "no_answer": (
        "No passage answers this question in its own words. The closest passages are:",
        "没有段落直接回答这个问题。最接近的段落如下：",
    ),
    "failed": (
        "The answer could not be written; these are the passages found:",
        "未能生成回答；检索到的段落如下：",
    ),
    "unreachable": ("The library could not be searched: {reason}", "无法检索资料库：{reason}"),
}

_MARK = re.compile(r"(?<!\\)\[(\d{1,3})\](?!\()")
_MARKS = re.compile(r"(?:\s*(?<!\\)\[\d{1,3}\])+")
# marks as models write them: [1, 2], [1][2], [^1], 【1】, 【1†source】, [1](link), [passage 1]
_LOOSE_MARK = re.compile(
    r"(?<!\\)(?:\[|【)\^?(?:passage |source |来源|段落)?(\d{1,3}(?:\s*[,，、"
    r";]\s*\d{1,3})*)(?:†[^\]】]*)?(?:\]|】)(?:\([^()\s]*\))?"
)
_URL = r"(?:(?:https?|ftp|wss?)://|www\.)[^\s<>()\[\]\"'`，。；、！？（）《》“”]+"
_PLAIN_URL = re.compile(_URL, re.IGNORECASE)
_LINK = re.compile(
    r"(!?)\[([^\]\n]*)\]\(\s*<?([^\s()<>]*(?:\([^\s()]*\)[^\s()<>]*)*)>?(?:\s+[\"'(][^\n]*?[\"')])?\s*\)"
)
_DEFINITION = re.compile(r"^[ ]{0,3}\[[^\]\n]+\]:[ \t]*\S+[^\n]*$", re.MULTILINE)
_ACTIVE_TAG = re.compile(
    r"</?(?:script|style|iframe|img|image|object|embed|form|input|link|meta|svg|video|audio|source|base)\b[^<>]*>|<[a-zA-Z][^<>]*=[^<>]*>",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Unsupported:
    """A sentence of an answer that the cited passages do not bear out."""

    sentence: str
    reason: str


@dataclass(frozen=True, slots=True)
class Cited:
    """A checked answer: marks [1], [2], ... in order of appearance, one citation each."""

    text: str
    citations: tuple[Citation, ...]
    # what was removed or added, and what is not supported, for whoever asked
    warnings: tuple[str, ...] = ()
    unsupported: tuple[Unsupported, ...] = ()
    # of the cited passages in the evidence, in the order of the citations
    numbers: tuple[int, ...] = ()
    # mean over the sentences that say something of how far the passages they cite agree with them
    agreement: float = 1.0


# --- checking an answer -------------------------------------------------------------------------


def checked(text: str, evidence: Sequence[Hit]) -> Cited:
    """The answer with its marks checked against the evidence, their citations with spans, and what
    is not supported.

    Links, pictures and active markup that the evidence does not hold are removed, and marks that
    point nowhere; a sentence without a mark is given that of the passage which clearly bears it
    out. Each is said in `warnings`. `Citation.spans` are slices of its text: the sentences
    themselves where they are quoted, else the unit nearest to them.
    """
    text, nowhere = _valid_marks(text, len(evidence))
    text, warnings = without_foreign_links(text, evidence)
    if nowhere:
        shown = ", ".join(f"[{number}]" for number in nowhere)
        warnings.append(
            f"the answer's mark{'s' if len(nowhere) > 1 else ''} {shown} pointed at no passage and"
            f" {_was(nowhere)} removed"
        )
    text, spans, unsupported, agreement = _supported(text, evidence, warnings)
    if unsupported:
        first = unsupported[0]
        warnings.append(
            f"{len(unsupported)} sentence{'s' if len(unsupported) > 1 else ''} of the answer"
            f" {_was(unsupported)} not borne out "
            f'by the passages: "{_snippet(first.sentence, 80)}" ({first.reason})'
        )
    numbers = {old: new for new, old in enumerate(cited_numbers(text, len(evidence)), 1)}
    citations = tuple(
        dataclasses.replace(citation(new, evidence[old - 1]), spans=merged(spans.get(old, ())))
        for old, new in numbers.items()
    )
    return Cited(
        renumbered_marks(text, numbers),
        citations,
        tuple(warnings),
        tuple(unsupported),
        tuple(numbers),
        agreement,
    )


def presentable(text: str, evidence: Sequence[Hit]) -> str:
    """A part of an answer that is still being written, without what `checked` would remove; marks
    keep the numbers of the evidence.
    """
    return without_foreign_links(_valid_marks(text, len(evidence))[0], evidence)[0]


def without_foreign_links(text: str, evidence: Sequence[Hit]) -> tuple[str, list[str]]:
    """The text without links, pictures and active markup that do not stand in the evidence, and a
    warning when there were any.

    A link keeps its words, a picture its description. Code is left as it is: nothing in it is
    followed.
    """
    assets = [f"asset://{asset}" for hit in evidence for asset in hit.asset_ids]
    return without_foreign_markup(text, "\n".join(hit.chunk_text for hit in evidence), assets)


def without_foreign_markup(
    text: str, source: str, allowed: Sequence[str] = ()
) -> tuple[str, list[str]]:
    """The same against one source text and the targets that are allowed besides."""
    removed: list[str] = []

    @cache
    def known() -> set[str]:
        plain = {match.rstrip(".,;:") for match in _PLAIN_URL.findall(source)}
        return plain | {match[3] for match in _LINK.finditer(source)} | set(allowed)

    def link(match: re.Match[str]) -> str:
        if match[3] in known():
            return match[0]
        removed.append(match[3])
        return match[2]

    def url(match: re.Match[str]) -> str:
        bare = match[0].rstrip(".,;:")
        if bare in known():
            return match[0]
        removed.append(bare)
        return match[0][len(bare) :]

    def markup(match: re.Match[str]) -> str:
        if match[0] in source:
            return match[0]
        removed.append(match[0])
        return ""

    def clean(prose: str) -> str:
        prose = _ACTIVE_TAG.sub(markup, prose)
        prose = _DEFINITION.sub(markup, prose)
        return _PLAIN_URL.sub(url, _LINK.sub(link, prose))

    text = _outside_code(text, clean)
    if not removed:
        return text, []
    shown = ", ".join(_snippet(item, 60) for item in dict.fromkeys(removed))
    return text, [f"links or markup that the sources do not hold were removed: {shown}"]


def _valid_marks(text: str, available: int) -> tuple[str, list[int]]:
    """(the text with every mark written [n] and those above `available` left out, the numbers left
    out).
    """
    nowhere: list[int] = []

    def mark(match: re.Match[str]) -> str:
        numbers = [int(number) for number in re.findall(r"\d+", match[1])]
        nowhere.extend(number for number in numbers if not 1 <= number <= available)
        return "".join(
            f"[{number}]" for number in dict.fromkeys(numbers) if 1 <= number <= available
        )

    text = _outside_code(text, lambda prose: _LOOSE_MARK.sub(mark, prose))
    return (re.sub(r"[ \t]+(?=[.。,，;；\n]|\Z)", "", text) if nowhere else text), list(
        dict.fromkeys(nowhere)
    )


@dataclass(slots=True)
class _Claim:
    """A sentence, list item, row or code block of the answer, and the marks that stand in it or
    after it.
    """

    kind: str
    end: int  # where a mark of its own would go
    text: str
    marks: list[int]


def _claims(text: str) -> list[_Claim]:
    """The claims of an answer in order. Marks at the beginning of one, or alone in a paragraph,
    belong to what stands before them.
    """
    found: list[_Claim] = []
    for unit in units(text):
        own = text[unit.start : unit.end]
        lead = _MARKS.match(own) if unit.kind in ("sentence", "item") else None
        if lead and found:
            numbers = [int(number) for number in _MARK.findall(lead.group())]
            following = found[-1]
            for claim in reversed(found):  # a mark below a table or list belongs to all of its rows
                if (
                    claim.marks
                    or claim.kind != following.kind
                    or (claim.kind == "sentence" and claim is not following)
                ):
                    break
                claim.marks += numbers
            own = own[lead.end() :]
        if own.strip():
            prose = (
                _outside_code(own, lambda part: _MARK.sub("", part)) if unit.kind != "code" else own
            )
            numbers = _marks(own) if unit.kind != "code" else []
            found.append(_Claim(unit.kind, unit.end, unescaped(prose).strip(), numbers))
    return found


def _supported(
    text: str, evidence: Sequence[Hit], warnings: list[str]
) -> tuple[str, dict[int, list[tuple[int, int]]], list[Unsupported], float]:
    """(the text with marks added, the spans by number of the passage, the sentences that are not
    borne out, how far passages agree).
    """
    agreements: list[float] = []
    spans: dict[int, list[tuple[int, int]]] = {}
    unsupported: list[Unsupported] = []
    added: list[tuple[int, int]] = []
    for claim in _claims(text):
        if not claim.marks:
            if not says_something(claim.text):
                continue
            source = _source(claim.text, evidence)
            if source is None:
                unsupported.append(
                    Unsupported(claim.text, "it cites nothing, and no passage clearly bears it out")
                )
                agreements.append(0.0)
                continue
            claim.marks.append(source)
            if claim.kind != "code":
                added.append((claim.end, source))
        cited = [evidence[number - 1] for number in claim.marks]
        if any(quoted(claim.text, hit.chunk_text) for hit in cited):
            agreements.append(1.0)
        elif says_something(claim.text):
            found = support(claim.text, cited)
            agreements.append(found.agreement)
            if not found.enough:
                unsupported.append(Unsupported(claim.text, found.reason))
        elif not any(map(str.isalnum, claim.text)):  # what stands between two marks
            continue
        for number in claim.marks:
            if (span := best_span(claim.text, evidence[number - 1].chunk_text)) is not None:
                spans.setdefault(number, []).append(span)
    for end, number in reversed(added):
        text = f"{text[:end]} [{number}]{text[end:]}"
    if added:
        warnings.append(
            f"{len(added)} sentence{'s' if len(added) > 1 else ''} without a mark {_was(added)}"
            " given that of the passage it rests on"
        )
    return text, spans, unsupported, fmean(agreements) if agreements else 1.0


def _source(sentence: str, evidence: Sequence[Hit]) -> int | None:
    """The number of the passage that clearly bears a sentence out, None without one."""
    found = [(support(sentence, [hit]), number) for number, hit in enumerate(evidence, 1)]
    clear = [
        (-item.share, number)
        for item, number in found
        if item.exact and item.words_count and item.share >= CLEAR_SHARE
    ]
    return min(clear)[1] if clear else None


# --- marks and citations ------------------------------------------------------------------------


def cited_numbers(answer: str, available: int) -> list[int]:
    """The distinct n of the [n] marks that point at evidence, in order of appearance; brackets in
    code are none.
    """
    return list(dict.fromkeys(number for number in _marks(answer) if 1 <= number <= available))


def renumbered_marks(answer: str, numbers: Mapping[int, int]) -> str:
    """The answer with the marks [old] rewritten to [new]; other brackets stay."""
    return _outside_code(
        answer,
        lambda prose: _MARK.sub(
            lambda m: f"[{numbers[int(m[1])]}]" if int(m[1]) in numbers else m[0], prose
        ),
    )


def escaped(quote: str) -> str:
    """A quote whose own [n] cannot be taken for marks; Markdown shows it as it was."""
    return _outside_code(quote, lambda prose: re.sub(r"(?<!\\)\[(\d{1,3})\]", r"\\[\1\\]", prose))


def unescaped(text: str) -> str:
    """The text as `escaped` was given it."""
    return re.sub(r"\\\[(\d{1,3})\\\]", r"[\1]", text)


def citation(number: int, hit: Hit) -> Citation:
    """The citation [number] of a hit."""
    return Citation(
        id=number,
        chunk_id=hit.chunk_id,
        doc_id=hit.doc_id,
        version_id=hit.version_id,
        source_uri=hit.source_uri,
        section_path=hit.section_path,
        text=hit.chunk_text,
        score=hit.score,
        page_range=hit.page_range,
        line_range=hit.line_range,
        locator=hit.locator,
        edited_from=hit.edited_from,
        namespace=hit.namespace,
    )


def passages(
    kind: str, language: str, hits: Sequence[Hit], reason: str = ""
) -> tuple[str, tuple[Citation, ...]]:
    """A plain statement in the question's language (Chinese or English), and the closest passages
    with their citations.
    """
    statement = _WORDS[kind][1 if language == "zh" else 0].format(reason=reason)
    shown = hits[:_CLOSEST]
    lines = [
        f"- {_place(hit)}: {_snippet(shown_text(hit))} [{n}]" for n, hit in enumerate(shown, 1)
    ]
    return "\n".join([statement, *([""] if lines else []), *lines]), tuple(
        citation(n, hit) for n, hit in enumerate(shown, 1)
    )


def _place(hit: Hit) -> str:
    return f"**{hit.doc_title or hit.filename}**" + (
        f" ({hit.section_path})" if hit.section_path else ""
    )


def _snippet(text: str, most: int = _SNIPPET) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= most else flat[: most - 1].rstrip() + "…"


def _was(items: Sequence[object]) -> str:
    return "were" if len(items) > 1 else "was"


def _outside_code(text: str, change: Callable[[str], str]) -> str:
    """The text with its prose changed and its code left alone."""
    return "".join(part if is_code else change(part) for part, is_code in _parts(text))


def _marks(text: str) -> list[int]:
    """The numbers of the marks outside of code."""
    return [
        int(number)
        for part, is_code in _parts(text)
        if not is_code
        for number in _MARK.findall(part)
    ]


def _parts(text: str) -> Iterator[tuple[str, bool]]:
    """The text in parts, each with whether it is code."""
    end = 0
    for start, stop in code_spans(text):
        yield text[end:start], False
        yield text[start:stop], True
        end = stop
    yield text[end:], False
