"""Splits the normalised text into sections with stable ids."""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any, ClassVar, Literal

from rag_platform.errors import ConfigError
from rag_platform.ir import JOINT, PREAMBLE, Facts, Section, Version
from rag_platform.normalisation.edits import Normalised
from rag_platform.text.entries import RELEASE, find_signatures
from rag_platform.text.markdown_blocks import HEADING
from rag_platform.text.passages import LABEL_LEVEL

# a heading that only numbers a part, whose title is in the next heading
_LABEL = re.compile(
    r"(?:chapter|part|appendix|annex|book|unit)\s+(?:\d{1,3}|[IVXLC]{1,6}|[A-Z])[.:]?"
    r"|第\s*[一二三四五六七八九十百〇\d]{1,4}\s*[章编篇部]",
    re.IGNORECASE,
)
WHOLE = "__document__"
UNDERLINE = re.compile(r" {0,3}(?:=+|-+)[ \t]*")
Heading = tuple[int, int, str]  # offset, level, title


def headings_of(facts: Facts, normalised: Normalised) -> list[Heading]:
    """(offset in the normalised text, level, title) of each heading that cleaning kept."""
    found: list[Heading] = []
    for block in facts.blocks:
        if block.kind != "heading":
            continue
        start, end = normalised.span_to_norm(block.start, block.end)
        if text := normalised.text[start:end]:
            lead = len(text) - len(text.lstrip())
            found.append(
                (
                    start + lead,
                    block.level or 1,
                    block.title or " ".join(re.sub(r"^#+|#+\s*$", "", text.strip()).split()),
                )
            )
    return found


def find_path_marks(facts: Facts, normalised: Normalised) -> list[Heading]:
    """The headings, and the signatures that are labels with the names that they describe."""
    labels = [(start, LABEL_LEVEL, name) for start, name in find_signatures(normalised.text)]
    return sorted([*headings_of(facts, normalised), *labels])


def section_id(doc_id: str, section_path: str, ordinal: int) -> str:
    """The id of a section, which edits elsewhere do not change."""
    return hashed_id("sec", doc_id, section_path, str(ordinal))


def hashed_id(kind: str, *parts: str) -> str:
    """`<kind>_` and 20 hex digits of a hash of the parts."""
    digest = hashlib.sha256("\x1f".join(parts).encode()).hexdigest()
    return f"{kind}_{digest[:20]}"


def section_fields(section: Section, version: Version) -> dict[str, Any]:
    """The fields of a chunk that depend only on its section and version."""
    return {
        "section_id": section.section_id,
        "doc_id": version.doc_id,
        "version_id": version.version_id,
        "section_path": section.section_path,
        "title": section.title,
        "h1_title": section.h1_title,
        "h2_title": section.h2_title,
    }


def extend_path(section: Section, marks: Sequence[Heading], position: int) -> str:
    """The path of the headings above a position in a section: its own, continued by those in it,
    and by the function or class whose description goes on there. At a heading inside the section,
    it is the path of the headings above that.

    A heading is left out where a level above it has none: the places in a path tell its levels.
    """
    names, described = section.section_path.split(JOINT), ""
    is_complete = len(names) == section.heading_level
    first = bisect_right(marks, section.norm_start, key=itemgetter(0))
    end = bisect_right(marks, position, key=itemgetter(0))
    for start, level, title in marks[first:end]:
        described = title if level == LABEL_LEVEL and start < position else ""
        if level == LABEL_LEVEL or not is_complete:
            continue
        is_above = start < position and title and JOINT not in title
        if level <= len(names) + 1 and (is_above or level > section.heading_level):
            names[level - 1 :] = [title] if is_above else []
    goes_on = described and section.heading_level
    return JOINT.join([*names, described] if goes_on else names)


def join_sections(sections: Sequence[Section]) -> list[Section]:
    """The sections for cutting into chunks: each extended by those that are joined to it."""
    joined: list[Section] = []
    for section in sections:
        if section.joined_to:
            joined[-1] = replace(joined[-1], norm_end=section.norm_end)
        else:
            joined.append(section)
    return joined


def section_hash(sections: Sequence[Section], text: str) -> str:
    """sha256 over paths and texts. A change with equal facts is structure drift."""
    digest = hashlib.sha256()
    for section in sections:
        body = hashlib.sha256(text[section.norm_start : section.norm_end].encode()).hexdigest()
        digest.update(f"{section.section_path}\x1f{section.ordinal}\x1f{body}\n".encode())
    return digest.hexdigest()


@dataclass(frozen=True)
class WholeDoc:
    """The whole text as one section, for texts without structure."""

    VERSION: ClassVar[str] = "1"

    def sections(self, text: str, headings: Sequence[Heading], doc_id: str) -> list[Section]:
        """One section; none for a blank text."""
        if not text.strip():
            return []
        h1 = next((title for _, level, title in headings if level == 1 and title), "")
        return [
            Section(section_id(doc_id, WHOLE, 0), WHOLE, 0, 0, 0, len(text), title=h1, h1_title=h1)
        ]


@dataclass(frozen=True)
class MarkdownHeadings:
    """A section per heading up to `max_section_level`, or of the outermost level if that is deeper;
    further headings stay inside.

    A heading without words starts no section. Text before the first heading is `__preamble__`: its
    own section, part of the first one, or dropped (`doc_preamble_mode`). Sections shorter than
    `min_section_chars` are treated as follows:

    1. A heading without text before its first subheading joins that subsection, whose path already
       contains it; one that only numbers a part (`Chapter 2`) or has a version joins the next one.
    2. A section below level 1 joins the previous section if that is a sibling or its parent's own
       text, until `min_section_chars` have been joined. So many short siblings form several groups
       for chunking, and none belongs to a distant heading. The section keeps its path and position;
       `joined_to` names the other section.
    3. All others are unchanged: the text of an H1 never joins one of its H2 sections, and nothing
       joins a preamble.

    A section that is long enough is never joined, so an edit moves boundaries only up to the next
    long one. Ordinals count headings before merging, so merging changes no other id.
    """

    max_section_level: int = 2
    include_heading: bool = True
    doc_preamble_mode: Literal["separate", "merge_into_first", "drop"] = "separate"
    min_section_chars: int = 200

    VERSION: ClassVar[str] = "4"

    def __post_init__(self) -> None:
        if self.doc_preamble_mode not in ("separate", "merge_into_first", "drop"):
            raise ConfigError(
                f"doc_preamble_mode is {self.doc_preamble_mode!r}; it must be separate,"
                " merge_into_first or drop"
            )
        if not 1 <= self.max_section_level <= 6 or self.min_section_chars < 0:
            raise ConfigError(
                f"max_section_level {self.max_section_level} must be 1 to 6, min_section_chars"
                f" {self.min_section_chars} >= 0"
            )

    def sections(self, text: str, headings: Sequence[Heading], doc_id: str) -> list[Section]:
        """Sections that cover the text in order; blank ones are left out."""
        opening = self._find_opening(headings)
        opened = self._open_sections(text, opening, doc_id)
        first = opened[0].norm_start if opened else len(text)
        if text[:first].strip():
            if opened and self.doc_preamble_mode == "merge_into_first":
                opened[0] = replace(opened[0], norm_start=0)
            elif not opened or self.doc_preamble_mode == "separate":
                opened.insert(0, Section(section_id(doc_id, PREAMBLE, 0), PREAMBLE, 0, 0, 0, first))
        merged = self._merge(text, opened)
        if not self.include_heading:
            starts = {offset for offset, _, _ in opening}
            for index, section in enumerate(merged):
                if section.norm_start in starts and not section.joined_to:
                    start = heading_end(text, section.norm_start)
                    merged[index] = replace(section, norm_start=start)
        targets = {section.joined_to for section in merged}
        return [
            section
            for section in merged
            if section.section_id in targets or text[section.norm_start : section.norm_end].strip()
        ]

    def _find_opening(self, headings: Sequence[Heading]) -> list[Heading]:
        """The headings that begin sections."""
        named = [heading for heading in headings if heading[2].strip()]
        outermost = min((level for _, level, _ in named), default=1)
        return [it for it in named if it[1] <= max(self.max_section_level, outermost)]

    def _open_sections(self, text: str, opening: Sequence[Heading], doc_id: str) -> list[Section]:
        """One section per heading, before merging."""
        stack: list[tuple[int, str]] = []
        counts: dict[str, int] = {}
        found: list[Section] = []
        for index, (offset, level, title) in enumerate(opening):
            stack = [*(item for item in stack if item[0] < level), (level, title)]
            path = JOINT.join(name for _, name in stack)
            ordinal = counts.get(path, 0)
            counts[path] = ordinal + 1
            end = opening[index + 1][0] if index + 1 < len(opening) else len(text)
            by_level = dict(stack)
            found.append(
                Section(
                    section_id(doc_id, path, ordinal),
                    path,
                    level,
                    ordinal,
                    offset,
                    end,
                    title,
                    by_level.get(1, ""),
                    by_level.get(2, ""),
                )
            )
        return found

    def _merge(self, text: str, opened: Sequence[Section]) -> list[Section]:
        if self.min_section_chars == 0:
            return list(opened)
        merged: list[Section] = []
        last: Section | None = None  # the section that others may join
        joined = 0  # characters joined to it
        pending: int | None = None  # start of the headings without own text before this section
        for index, section in enumerate(opened):
            size = len(text[section.norm_start : section.norm_end].strip())
            following = opened[index + 1] if index + 1 < len(opened) else None
            body = text[heading_end(text, section.norm_start) : section.norm_end]
            empty = size == 0 or (section.heading_level > 0 and not any(map(str.isalnum, body)))
            deeper = following.heading_level - section.heading_level if following else -1
            labels = deeper == 0 and _LABEL.fullmatch(section.title)
            if following and not RELEASE.search(following.title):
                labels = labels or RELEASE.search(section.title)
            if empty and (deeper > 0 or labels):
                pending = section.norm_start if pending is None else pending
                continue
            short = size < self.min_section_chars and joined + size <= self.min_section_chars
            if pending is None and last is not None and short and _are_related(last, section):
                merged.append(replace(section, joined_to=last.section_id))
                joined += size
                continue
            last = section if pending is None else replace(section, norm_start=pending)
            merged.append(last)
            joined, pending = 0, None
        return merged


def _are_related(last: Section, section: Section) -> bool:
    """True when `last` is a sibling of the section, or its parent's own text."""
    if section.heading_level <= 1 or last.heading_level == 0:
        return False
    parent = section.section_path[: -len(section.title)]
    sibling = (
        last.heading_level == section.heading_level
        and last.section_path[: -len(last.title)] == parent
    )
    return sibling or (
        last.heading_level < section.heading_level and last.section_path + JOINT == parent
    )


def heading_end(text: str, start: int) -> int:
    """The offset after the heading at `start`, including a Setext underline."""
    marked = HEADING.match(text, start)
    line_end = text.find("\n", marked.end() if marked else start)
    if line_end < 0:
        return len(text)
    if marked or text[start:line_end].lstrip().startswith("#"):
        return line_end + 1
    end = line_end + 1
    for _ in range(20):  # lines of a Setext heading
        stop = text.find("\n", end)
        line = text[end : stop if stop >= 0 else len(text)]
        if not line.strip() or stop < 0:
            return end + len(line) if UNDERLINE.fullmatch(line) else line_end + 1
        if UNDERLINE.fullmatch(line):
            return stop + 1
        end = stop + 1
    return line_end + 1
