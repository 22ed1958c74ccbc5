"""What of a document's text no chunk holds, and why: read from its facts, edits and chunks as they are stored."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from rag_platform.documents.cleaning import Normalised
from rag_platform.ir import Block, Chunk, Facts

NOT_CHUNKED = "not_chunked"  # nobody asked for that: it counts as lost
_REWRITING = frozenset(("asset", "newline", "control", "trailing_space", "cjk_join", "blank_lines"))


class Dropped(NamedTuple):
    """Words that stand in the file and in no chunk. `page` and `line` are 0 where the format has none."""

    page: int
    line: int
    reason: str  # hidden_text: WHY, repeated_header, repeated_footer, front_matter, url, email, noise:N, data_uri, not_chunked
    text: str


def dropped_text(facts: Facts, normalised: Normalised, chunks: Sequence[Chunk]) -> list[Dropped]:
    """What loading set aside as hidden, what the edits removed, and what no chunk covers, each in the order of the text."""
    hidden = [Dropped(item.page, 0, f"hidden_text: {item.reason}", item.text) for item in facts.summary.hidden]
    lost = [(normalised.to_facts(start), NOT_CHUNKED, normalised.text[start:end].strip())
            for start, end in _gaps(chunk_spans(chunks), len(normalised.text))]  # fmt: skip
    return [*hidden, *removed_text(facts, normalised), *_placed(facts, lost)]


def removed_text(facts: Facts, normalised: Normalised) -> list[Dropped]:
    """What the edits removed, in the order of the text; edits that only rewrite are no loss."""
    edits = (edit for edit in normalised.edits if edit.rule not in _REWRITING)
    return _placed(facts, ((edit.start, edit.rule, facts.text[edit.start : edit.end].strip()) for edit in edits))


def _placed(facts: Facts, found: Iterable[tuple[int, str, str]]) -> list[Dropped]:
    """Facts offset, reason and text of each find with a word in it, as page or line, reason and text."""
    starts = [block.start for block in facts.blocks]
    placed = []
    for start, reason, text in found:
        if any(map(str.isalnum, text)):
            block = facts.blocks[at] if (at := bisect_right(starts, start) - 1) >= 0 else None
            line = 0 if block is None or block.line_start is None else block.line_start + facts.text.count("\n", block.start, start)
            placed.append(Dropped((block.page if block else 0) or 0, line, reason, text))
    return placed


def word_counts(items: Sequence[Dropped]) -> dict[str, int]:
    """Reason to the number of words dropped for it."""
    counts: Counter[str] = Counter()
    for item in items:
        counts[item.reason] += len(item.text.split())
    return dict(sorted(counts.items()))


def chunk_spans(chunks: Sequence[Chunk]) -> list[tuple[int, int]]:
    """The spans of the normalised text that chunks cover, joined where they touch, in order."""
    spans: list[tuple[int, int]] = []
    for start, end in sorted((chunk.norm_start, chunk.norm_end) for chunk in chunks):
        if spans and start <= spans[-1][1]:
            spans[-1] = (spans[-1][0], max(spans[-1][1], end))
        else:
            spans.append((start, end))
    return spans


def kept_text(block: Block, normalised: Normalised, spans: Sequence[tuple[int, int]]) -> str:
    """The words of a block that stand in chunks, which cover these spans."""
    start, end = normalised.span_to_norm(block.start, block.end)
    first = max(0, bisect_right(spans, (start, 1 << 60)) - 1)
    parts = []
    for begin, stop in spans[first:]:
        if begin >= end:
            break
        parts.append(normalised.text[max(start, begin) : min(end, stop)])
    return " ".join(parts)


def _gaps(spans: Sequence[tuple[int, int]], end: int) -> Iterator[tuple[int, int]]:
    at = 0
    for start, stop in spans:
        if start > at:
            yield at, start
        at = max(at, stop)
    if at < end:
        yield at, end
