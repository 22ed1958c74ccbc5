"""From evidence and an answerer's text to what the caller reads: marks, citations, and plain words when there is no answer."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rag_platform.ir import Citation, Hit
from rag_platform.protocols import Written
from rag_platform.retrieval.rendering import shown_text

_CLOSEST = 3
_SNIPPET = 240
_WORDS = {
    "nothing": ("Nothing in the library matches this question.", "资料库中没有与该问题匹配的内容。"),
    "no_answer": ("No passage answers this question in its own words. The closest passages are:",
                  "没有段落直接回答这个问题。最接近的段落如下："),
    "failed": ("The answer could not be written; these are the passages found:", "未能生成回答；检索到的段落如下："),
    "unreachable": ("The library could not be searched: {reason}", "无法检索资料库：{reason}"),
}  # fmt: skip


def cited_numbers(answer: str, available: int) -> list[int]:
    """The distinct n of the [n] marks that point at evidence, in order of appearance."""
    found = (int(number) for number in re.findall(r"\[(\d{1,3})\]", answer))
    return list(dict.fromkeys(number for number in found if 1 <= number <= available))


def renumbered_marks(answer: str, numbers: Mapping[int, int]) -> str:
    """The answer with the marks [old] rewritten to [new]; other brackets stay."""
    return re.sub(r"\[(\d{1,3})\]", lambda m: f"[{numbers[int(m[1])]}]" if int(m[1]) in numbers else m[0], answer)


def citation(number: int, hit: Hit) -> Citation:
    """The citation [number] of a hit."""
    return Citation(
        id=number, chunk_id=hit.chunk_id, doc_id=hit.doc_id, version_id=hit.version_id, source_uri=hit.source_uri,
        section_path=hit.section_path, text=hit.chunk_text, score=hit.score, page_range=hit.page_range,
        line_range=hit.line_range, locator=hit.locator, edited_from=hit.edited_from,
    )  # fmt: skip


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
    warnings: tuple[str, ...] = ()  # what was removed or added, and what is not supported, for the caller of the query
    unsupported: tuple[Unsupported, ...] = ()


def checked(text: str, evidence: Sequence[Hit]) -> Cited:
    """The answer with its marks checked against the evidence, their citations with spans, and what is not supported."""
    shown, citations = cited(text, evidence)
    return Cited(shown, citations)


def cited(answer: str | Written, evidence: Sequence[Hit]) -> tuple[str, tuple[Citation, ...]]:
    """The answer with its marks renumbered 1, 2, 3, ... in order of appearance, and the citation of each."""
    answer = answer if isinstance(answer, str) else answer.text
    numbers = {old: new for new, old in enumerate(cited_numbers(answer, len(evidence)), 1)}
    return renumbered_marks(answer, numbers), tuple(citation(new, evidence[old - 1]) for old, new in numbers.items())


def passages(kind: str, language: str, hits: Sequence[Hit], reason: str = "") -> tuple[str, tuple[Citation, ...]]:
    """A plain statement in the question's language (Chinese or English), and the closest passages with their citations."""
    statement = _WORDS[kind][1 if language == "zh" else 0].format(reason=reason)
    shown = hits[:_CLOSEST]
    lines = [f"- {_place(hit)}: {_snippet(shown_text(hit))} [{n}]" for n, hit in enumerate(shown, 1)]
    return "\n".join([statement, *([""] if lines else []), *lines]), tuple(citation(n, hit) for n, hit in enumerate(shown, 1))


def _place(hit: Hit) -> str:
    return f"**{hit.doc_title or hit.filename}**" + (f" ({hit.section_path})" if hit.section_path else "")


def _snippet(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= _SNIPPET else flat[: _SNIPPET - 1].rstrip() + "…"
