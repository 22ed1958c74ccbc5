"""What differs between two versions of a document as they were cut: sections and chunks added, removed, changed, unchanged.

Sections and chunks are compared by their ids, which hold no version: a chunk whose text stayed has its id still. Of what remains, chunks
that stand at the same place of the same section are one chunk that changed.
"""

from __future__ import annotations

import difflib
import hashlib
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rag_platform.ir import Chunk, Json, Section

_CONTEXT_LINES = 2


@dataclass(frozen=True, slots=True)
class Parts:
    """A version as it was cut; `text` is the normalised text that the sections are slices of."""

    text: str
    sections: Sequence[Section]
    chunks: Sequence[Chunk]


@dataclass(frozen=True, slots=True)
class Revision:
    """The differences from one version to another, each kind in the order of the text."""

    sections_added: tuple[Section, ...]
    sections_removed: tuple[Section, ...]
    sections_changed: tuple[Section, ...]  # as they are after
    sections_unchanged: int
    chunks_added: tuple[Chunk, ...]
    chunks_removed: tuple[Chunk, ...]
    chunks_changed: tuple[tuple[Chunk, Chunk], ...]  # (before, after)
    chunks_unchanged: int

    def data(self) -> Json:
        """Counts, and every difference with its text, for programs."""
        return {
            "sections": {
                "added": [_named(section) for section in self.sections_added],
                "removed": [_named(section) for section in self.sections_removed],
                "changed": [_named(section) for section in self.sections_changed],
                "unchanged": self.sections_unchanged,
            },
            "chunks": {
                "added": [_told(chunk) for chunk in self.chunks_added],
                "removed": [_told(chunk) for chunk in self.chunks_removed],
                "changed": [{"before": _told(before), "after": _told(after)} for before, after in self.chunks_changed],
                "unchanged": self.chunks_unchanged,
            },
        }

    def markdown(self, shown: int) -> str:
        """Counts and the text of the first `shown` differing chunks as unified diffs."""
        lines = [
            f"- sections: {_counts(self.sections_added, self.sections_removed, self.sections_changed, self.sections_unchanged)}",
            *(f"  - added: {section.section_path}" for section in self.sections_added),
            *(f"  - removed: {section.section_path}" for section in self.sections_removed),
            *(f"  - changed: {section.section_path}" for section in self.sections_changed),
            f"- chunks: {_counts(self.chunks_added, self.chunks_removed, self.chunks_changed, self.chunks_unchanged)}",
        ]
        differing = list(self._differing())
        for before, after in differing[:shown]:
            lines += ["", *_diff(before, after)]
        if len(differing) > shown:
            lines += ["", f"{len(differing) - shown} more chunks differ; --json has them all"]
        return "\n".join(lines)

    def _differing(self) -> Iterator[tuple[Chunk | None, Chunk | None]]:
        yield from self.chunks_changed
        yield from ((None, chunk) for chunk in self.chunks_added)
        yield from ((chunk, None) for chunk in self.chunks_removed)


def revise(before: Parts, after: Parts) -> Revision:
    """The differences from `before` to `after`."""
    old, new = _section_hashes(before), _section_hashes(after)
    had, has = ({chunk.chunk_id for chunk in parts.chunks} for parts in (before, after))
    left, came = _at_places(before.chunks, had & has), _at_places(after.chunks, had & has)
    pairs = [pair for place, chunks in came.items() for pair in zip(left.get(place, ()), chunks, strict=False)]
    paired = {chunk.chunk_id for pair in pairs for chunk in pair}
    return Revision(
        sections_added=tuple(s for s in after.sections if s.section_id not in old),
        sections_removed=tuple(s for s in before.sections if s.section_id not in new),
        sections_changed=tuple(s for s in after.sections if old.get(s.section_id, "") not in ("", new[s.section_id])),
        sections_unchanged=sum(new.get(section_id) == mark for section_id, mark in old.items()),
        chunks_added=tuple(c for c in after.chunks if c.chunk_id not in had and c.chunk_id not in paired),
        chunks_removed=tuple(c for c in before.chunks if c.chunk_id not in has and c.chunk_id not in paired),
        chunks_changed=tuple(pairs),
        chunks_unchanged=len(had & has),
    )


def _section_hashes(parts: Parts) -> dict[str, str]:
    """Of the text without what surrounds it: a section that is no longer the last one has not changed by that."""
    return {s.section_id: hashlib.sha256(parts.text[s.norm_start : s.norm_end].strip().encode()).hexdigest() for s in parts.sections}


def _at_places(chunks: Sequence[Chunk], common: set[str]) -> dict[tuple[str, str, str], list[Chunk]]:
    """Chunks that only one version has, by section, type, and the common chunk before them."""
    found: dict[tuple[str, str, str], list[Chunk]] = defaultdict(list)
    last: dict[tuple[str, str], str] = {}
    for chunk in chunks:
        row = (chunk.section_id, chunk.chunk_type)
        if chunk.chunk_id in common:
            last[row] = chunk.chunk_id
        else:
            found[*row, last.get(row, "")].append(chunk)
    return found


def _counts(added: Sequence[object], removed: Sequence[object], changed: Sequence[object], unchanged: int) -> str:
    return f"{len(added)} added, {len(removed)} removed, {len(changed)} changed, {unchanged} unchanged"


def _named(section: Section) -> Json:
    return {"section_id": section.section_id, "section_path": section.section_path}


def _told(chunk: Chunk) -> Json:
    return {
        "chunk_id": chunk.chunk_id,
        "section_path": chunk.section_path,
        "chunk_index": chunk.chunk_index,
        "chunk_type": chunk.chunk_type,
        "text": chunk.chunk_text,
    }


def _diff(before: Chunk | None, after: Chunk | None) -> list[str]:
    chunk = after or before
    assert chunk is not None
    what = "changed" if before and after else "added" if after else "removed"
    old, new = (one.chunk_text.splitlines() if one else [] for one in (before, after))
    body = [line for line in difflib.unified_diff(old, new, n=_CONTEXT_LINES, lineterm="") if not line.startswith(("--- ", "+++ ", "@@"))]
    fence = "`" * max(3, 1 + max((len(run) for line in body for run in re.findall("`+", line)), default=0))
    return [f"**{chunk.section_path or 'no section'}**, chunk {chunk.chunk_index}, {what}:", "", f"{fence}diff", *body, fence]
