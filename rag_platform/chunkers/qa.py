"""The chunker `qa`: one chunk for each question with its answer."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from rag_platform.chunkers.recursive import Recursive
from rag_platform.chunkers.sizes import Ruler, Span, require_sizes, trim
from rag_platform.text.markdown_blocks import (
    ANSWERING,
    ASKING,
    DELIMITER,
    HEADING,
    Guarded,
    cells,
    heading_level,
    heading_text,
    line_spans,
    only_headings,
    structure,
)

_MARK = r"[ \t]*(?:[-*+>][ \t]+|\d{1,3}[.)、][ \t]*)?(?:#{1,6}[ \t]+)?[*_]{0,2}"
_QUESTION, _ANSWER = (
    re.compile(rf"{_MARK}{words}[ \t]*\d{{0,4}}[*_]{{0,2}}[ \t]*[:：.、]", re.IGNORECASE)
    for words in (ASKING, ANSWERING)
)
_QUESTION_END = re.compile(r"[?？][*_”\"')）]*[ \t]*(?:\{[^{}]*\})?$")
_BOLD_QUESTION = re.compile(r"[ \t]*(?:\*\*|__)[^*_\n]*[?？](?:\*\*|__)[ \t]*$")
_QUESTION_COLUMN = re.compile(rf"{ASKING}s?|常见问题", re.IGNORECASE)
_ANSWER_COLUMN = re.compile(rf"{ANSWERING}s?", re.IGNORECASE)


@dataclass(frozen=True)
class QuestionAnswer:
    """One chunk for each question with its answer; other text is cut as by Recursive.

    A pair is `Q: ... A: ...` (also 问, 问题 with 答), a heading or bold line with a question and
    the text up to the next one, or a row of a table with question and answer columns. A pair above
    `max_chars` or `max_tokens` is cut as by Recursive.
    """

    max_chars: int = 2000
    chunk_size: int = 800
    chunk_overlap: int = 120
    max_tokens: int = 460

    VERSION: ClassVar[str] = "11"

    def __post_init__(self) -> None:
        require_sizes(self.chunk_size, self.chunk_overlap, self.max_tokens)
        require_sizes(self.max_chars, 0, self.max_tokens)

    def spans(self, text: str) -> list[Span]:
        if not text.strip():
            return []
        ruler = Ruler(text, self.max_chars, self.max_tokens)
        rest = Recursive(
            chunk_size=self.chunk_size, chunk_overlap=self.chunk_overlap, max_tokens=self.max_tokens
        )
        found: list[Span] = []
        done = 0
        for start, end in [*pairs(text), (len(text), len(text))]:
            if start < len(text) and only_headings(text, done, start):
                start = done  # a heading stays with the pair below it
            elif text[done:start].strip():
                found += rest.spans_within(text, done, start)
            if span := trim(text, start, end):
                found += [span] if ruler.fits(*span) else rest.spans_within(text, start, end)
            done = end
        return found


@dataclass(frozen=True, slots=True)
class _Line:
    start: int
    text: str


def pairs(text: str) -> list[Span]:
    """The spans of questions with their answers, in order and without overlaps."""
    runs = structure(text)
    lines = list(_prose_lines(text, runs))
    found = [
        *_find_marked(lines, len(text)),
        *_find_headings(lines, len(text)),
        *_find_rows(text, runs),
    ]
    disjoint: list[Span] = []
    for span in sorted(found, key=lambda span: (span[0], -span[1])):
        if not disjoint or span[0] >= disjoint[-1][1]:
            disjoint.append(span)
    return disjoint


def _prose_lines(text: str, runs: list[Guarded]) -> Iterator[_Line]:
    """The lines outside fences and tables."""
    index = 0
    for start, end in line_spans(text):
        while index < len(runs) and runs[index].end <= start:
            index += 1
        if index == len(runs) or start < runs[index].start:
            yield _Line(start, text[start:end])


def _find_marked(lines: list[_Line], stop: int) -> Iterator[Span]:
    """The spans from a marked question to the next question or heading that contain an answer."""
    start: int | None = None
    answered = False
    for line in [*lines, _Line(stop, "# ")]:
        is_question = _QUESTION.match(line.text) is not None
        if start is not None and answered and (is_question or line.text.startswith("#")):
            yield start, line.start
            start = None
        if is_question:
            start, answered = line.start, False
        elif start is not None and _ANSWER.match(line.text):
            answered = True
        elif line.text.startswith("#"):
            start = None


def _find_headings(lines: list[_Line], stop: int) -> Iterator[Span]:
    """The spans from a heading or bold line with a question to the next one, if not empty."""
    start, level, answered = -1, 0, False
    for line in [*lines, _Line(stop, "# ")]:
        heading = HEADING.match(line.text)
        is_question = (
            bool(heading and _QUESTION_END.search(heading_text(line.text)))
            or _BOLD_QUESTION.match(line.text) is not None
        )
        rank = heading_level(heading) if heading else 7
        if start >= 0 and (is_question or (heading is not None and rank <= level)):
            if answered:
                yield start, line.start
            start = -1
        if is_question:
            start, level, answered = line.start, rank, False
        elif line.text.strip():
            answered = True


def _find_rows(text: str, runs: list[Guarded]) -> Iterator[Span]:
    """The rows of tables with question and answer columns; the first includes the header."""
    has_pairs, end = False, -1
    for run in runs:
        if run.kind != "row":
            continue
        head, rule = (*text[run.start : run.end].split("\n"), "")[:2]
        if DELIMITER.fullmatch(rule):
            names = [cell.strip(" *_`\t>") for cell in cells(head.strip(" \t>"))]
            has_pairs = any(map(_QUESTION_COLUMN.fullmatch, names)) and any(
                map(_ANSWER_COLUMN.fullmatch, names)
            )
        elif run.start != end:
            has_pairs = False
        if has_pairs:
            yield run.start, run.end
        end = run.end
