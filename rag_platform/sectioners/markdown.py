"""The sectioner `ast_markdown`: sections that consist of whole Markdown nodes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import ClassVar

from rag_platform.errors import ConfigError
from rag_platform.ir import Section
from rag_platform.loaders.markdown import MAX_QUOTES, block_parser
from rag_platform.sectioners.sections import Heading, MarkdownHeadings, join_sections, section_id

_TOO_DEEP = re.compile(rf"(?m)^(?:[ \t]*>){{{MAX_QUOTES + 1}}}")
_PARAGRAPH_END = re.compile(r"\n[ \t]*\n\s*")


@dataclass(frozen=True)
class AstMarkdown:
    """Sections of whole nodes of the Markdown tree, each up to `max_section_chars`.

    A paragraph, list, table, fence or quote is never split, even if it is longer. A paragraph that
    ends with a colon stays with the node it introduces, and a heading with the node after it.
    Headings up to `max_section_level` begin sections; a longer section is split into several with
    the same path and different ordinals.
    """

    max_section_chars: int = 2000
    max_section_level: int = 3
    min_section_chars: int = 200

    VERSION: ClassVar[str] = "3"

    def __post_init__(self) -> None:
        if self.max_section_chars < max(200, self.min_section_chars):
            raise ConfigError(
                f"max_section_chars {self.max_section_chars} must be 200 or more, and at least"
                f" min_section_chars {self.min_section_chars}"
            )
        self._headings()

    def _headings(self) -> MarkdownHeadings:
        return MarkdownHeadings(
            max_section_level=self.max_section_level, min_section_chars=self.min_section_chars
        )

    def sections(self, text: str, headings: Sequence[Heading], doc_id: str) -> list[Section]:
        """Sections that cover the text in order; blank ones are left out."""
        starts = _node_starts(text, {offset for offset, _, _ in headings})
        counts: dict[str, int] = {}
        found: list[Section] = []
        for section in join_sections(self._headings().sections(text, headings, doc_id)):
            for start, end in self._groups(text, section, starts):
                ordinal = counts.get(section.section_path, 0)
                counts[section.section_path] = ordinal + 1
                name = section_id(doc_id, section.section_path, ordinal)
                found.append(
                    replace(
                        section, section_id=name, ordinal=ordinal, norm_start=start, norm_end=end
                    )
                )
        return found

    def _groups(self, text: str, section: Section, starts: Sequence[int]) -> list[tuple[int, int]]:
        """Spans of consecutive nodes that fit; a node that does not fit is a group of its own."""
        edges = [
            section.norm_start,
            *(start for start in starts if section.norm_start < start < section.norm_end),
            section.norm_end,
        ]
        groups: list[tuple[int, int]] = []
        begin = section.norm_start
        for start, end in pairwise(edges):
            if (
                start > begin
                and len(text[begin:end].strip()) > self.max_section_chars
                and text[begin:start].strip()
            ):
                groups.append((begin, start))
                begin = start
        return [*groups, (begin, section.norm_end)]


def _node_starts(text: str, headings: set[int]) -> list[int]:
    """The starts of top-level nodes, except nodes that stay with the previous one."""
    starts = _top_level(text)
    kept: list[int] = []
    for index, start in enumerate(starts):
        before = text[starts[index - 1] : start].rstrip() if index else text[:start].rstrip()
        if (index and starts[index - 1] in headings) or before.endswith((":", "：")):
            continue
        kept.append(start)
    return kept


def _top_level(text: str) -> list[int]:
    if _TOO_DEEP.search(text):  # parsing would not be linear; split into paragraphs instead
        ends = (match.end() for match in _PARAGRAPH_END.finditer(text))
        return [0, *(end for end in ends if end < len(text))]
    lines = [0]
    for line in text.split("\n"):
        lines.append(lines[-1] + len(line) + 1)
    tokens = block_parser().parse(text)
    return [
        lines[token.map[0]]
        for token in tokens
        if token.level == 0 and token.map is not None and token.nesting >= 0
    ]
