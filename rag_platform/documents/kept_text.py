"""Finds text that is in no chunk, with the reason, and measures how many of the words that a second
reader finds on each page are in the chunks.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from rag_platform.config.settings import Limits, TextKept
from rag_platform.intake.isolation import page_texts_in_child
from rag_platform.ir import VISIBLE_REASONS, Block, Chunk, Facts, Json, PageKept
from rag_platform.loaders.pdf.printed import bidi
from rag_platform.loaders.restructured import REWRITTEN
from rag_platform.normalisation.edits import INVISIBLE, Normalised
from rag_platform.registry import traits
from rag_platform.text.scripts import HAN, KANA, REORDERED_CHAR, fold_accents

NOT_CHUNKED = "not_chunked"  # not dropped on purpose: it counts as lost
_REWRITING = frozenset(
    ("asset", "newline", "control", "trailing_space", "cjk_join", "blank_lines", REWRITTEN)
)


class Dropped(NamedTuple):
    """A text of the file that is in no chunk; `page` and `line` are 0 if the format has none."""

    page: int
    line: int
    # hidden_text: WHY, one of SHOWN, repeated_header, repeated_footer, front_matter, url,
    # email, noise:N, data_uri, not_chunked
    reason: str
    text: str


def find_dropped(facts: Facts, normalised: Normalised, chunks: Sequence[Chunk]) -> list[Dropped]:
    """Hidden text and text that is not content, then text removed by edits, then text that no chunk
    covers, each in text order.
    """
    hidden = [
        Dropped(
            it.page,
            0,
            it.reason if it.reason in VISIBLE_REASONS else f"hidden_text: {it.reason}",
            it.text,
        )
        for it in facts.summary.hidden
    ]
    lost = [
        (normalised.to_facts(start), NOT_CHUNKED, normalised.text[start:end].strip())
        for start, end in _gaps(chunk_spans(chunks), len(normalised.text))
    ]
    return [*hidden, *find_removed(facts, normalised), *_place(facts, lost)]


def find_removed(facts: Facts, normalised: Normalised) -> list[Dropped]:
    """The text that edits removed, in order; edits that only rewrite text do not count."""
    edits = (edit for edit in normalised.edits if edit.rule not in _REWRITING)
    return _place(
        facts,
        ((edit.start, edit.rule, facts.text[edit.start : edit.end].strip()) for edit in edits),
    )


def _place(facts: Facts, found: Iterable[tuple[int, str, str]]) -> list[Dropped]:
    """Add page and line to (facts offset, reason, text) items; those without a word are dropped."""
    starts = [block.start for block in facts.blocks]
    placed = []
    for start, reason, text in found:
        if any(map(str.isalnum, text)):
            block = facts.blocks[at] if (at := bisect_right(starts, start) - 1) >= 0 else None
            line = (
                0
                if block is None or block.line_start is None
                else block.line_start + facts.text.count("\n", block.start, start)
            )
            placed.append(Dropped((block.page if block else 0) or 0, line, reason, text))
    return placed


def word_counts(items: Sequence[Dropped]) -> dict[str, int]:
    """Reason to the number of words dropped for it."""
    counts: Counter[str] = Counter()
    for item in items:
        counts[item.reason] += len(item.text.split())
    return dict(sorted(counts.items()))


def chunk_spans(chunks: Sequence[Chunk]) -> list[tuple[int, int]]:
    """The sorted spans of the normalised text that chunks cover, merged where they touch."""
    spans: list[tuple[int, int]] = []
    for start, end in sorted((chunk.norm_start, chunk.norm_end) for chunk in chunks):
        if spans and start <= spans[-1][1]:
            spans[-1] = (spans[-1][0], max(spans[-1][1], end))
        else:
            spans.append((start, end))
    return spans


def text_in_chunks(block: Block, normalised: Normalised, spans: Sequence[tuple[int, int]]) -> str:
    """The parts of a block's text inside the spans that chunks cover, joined by spaces."""
    start, end = normalised.span_to_norm(block.start, block.end)
    first = max(0, bisect_right(spans, (start, 1 << 60)) - 1)
    parts = []
    for begin, stop in spans[first:]:
        if begin >= end:
            break
        parts.append(normalised.text[max(start, begin) : min(end, stop)])
    return " ".join(parts)


def _gaps(spans: Sequence[tuple[int, int]], end: int) -> Iterator[tuple[int, int]]:
    edges = [0, *(edge for span in spans for edge in span), end]
    return ((a, b) for a, b in zip(edges[::2], edges[1::2], strict=True) if a < b)


_OTHER_ENGINE = {"pymupdf": "pdfium", "pdfium": "pymupdf"}  # an engine must not check itself
_VERBATIM = ("markdown", "text")  # loaders whose facts are the decoded bytes
_IDEOGRAPHS = rf"{HAN}{KANA}\u2e80-\u303f"  # with radicals and punctuation
_RUN = re.compile(r"[^\W_]+")
_WORD = re.compile(rf"[{_IDEOGRAPHS}]|[^\W_{_IDEOGRAPHS}]+")
_TOKEN = re.compile(rf"[{_IDEOGRAPHS}]|[^{_IDEOGRAPHS}]+")
# a line-end hyphen, as second readers extract it
_CUT_WORD = re.compile("[\x02\xad\ufffe]\\s*")
_SHOWN = 20
_FEW = 3  # missing words to ignore, because readers may split a few words differently


def measure(
    path: Path,
    loader: str,
    facts: Facts,
    normalised: Normalised,
    chunks: Sequence[Chunk],
    limits: Limits,
) -> list[PageKept]:
    """For each page, the number of words that the second reader finds, and how many of them are in
    chunks or were set aside.

    A format without pages has one row, for page 0; a format without a second reader has none, and
    neither has a page whose fonts that reader cannot decode. Raises DocumentError when the reader
    fails.
    """
    engine = _OTHER_ENGINE.get(traits("loader", loader).engine)
    if engine is not None:
        read: Mapping[int, str] = page_texts_in_child(path, engine, facts.summary.pages, limits)
    elif loader in _VERBATIM and facts.summary.encoding:
        read = {0: path.read_bytes().decode(facts.summary.encoding, "replace")}
    else:
        return []
    dropped = find_dropped(facts, normalised, chunks)
    # every word is in a chunk, so there is nothing to search for
    if engine is None and read[0] == facts.text and not dropped:
        count = len(_WORD.findall(facts.text))
        return [PageKept(0, count, count, 0)]
    spans = chunk_spans(chunks)
    kept: dict[int, list[str]] = {}
    for block in facts.blocks:
        kept.setdefault(block.page or 0, []).append(text_in_chunks(block, normalised, spans))
    aside: dict[int, list[str]] = {}
    for item in dropped:
        if item.reason != NOT_CHUNKED:
            aside.setdefault(item.page, []).append(item.text)
    if engine is None:  # count text between blocks too, and rewritten image addresses as set aside
        kept = {0: [normalised.text[start:end] for start, end in spans]}
        aside.setdefault(0, []).extend(
            facts.text[edit.start : edit.end]
            for edit in normalised.edits
            if edit.rule in ("asset", REWRITTEN)
        )
    rows = []
    for page, text in sorted(read.items()):
        words = list(tokens(text))
        if bidi.is_garbled(words):
            continue
        set_aside = Counter(tokens("\n".join(aside.get(page, ()))))
        found = found_words(words, "\n".join([*kept.get(page, ()), *aside.get(page, ())]))
        rows.append(PageKept(page, len(words), found, sum((set_aside & Counter(words)).values())))
    return rows


def tokens(text: str) -> Iterator[str]:
    """Words in order, case-folded, without accents, in NFKC; each ideograph is a word."""
    text = fold_accents(INVISIBLE.sub("", _CUT_WORD.sub("", text))).casefold()
    for run in _RUN.findall(text):
        yield from (run,) if run.isascii() else _TOKEN.findall(run)


def found_words(words: Sequence[str], text: str) -> int:
    """How many of the words are in the text, counting repetitions.

    Consecutive missing words are searched for as one run of letters, then each inside other words,
    because readers split words differently. In Indic and Southeast Asian scripts PDFium extracts
    many syllables twice, as glyphs and as the page's replacement text; there a syllable counts
    wherever it occurs.
    """
    here = list(tokens(text))
    left = Counter(here)
    letters = "".join(here)
    found = 0
    missing: list[list[str]] = [[]]
    for word in words:
        if left[word] > 0:
            left[word] -= 1
            found += 1
            if missing[-1]:
                missing.append([])
        else:
            missing[-1].append(word)
    for run in missing:
        if len(run) > 1 and len("".join(run)) > 2 and "".join(run) in letters:
            found += len(run)
        else:
            found += sum(
                (len(word) > 2 or REORDERED_CHAR.match(word) is not None) and word in letters
                for word in run
            )
    return found


def verdict(rows: Sequence[PageKept], policy: TextKept) -> Json:
    """Counts and share of words, state (kept, warned, failed) and details by page; {} for no rows.

    The state is also `warned` when a single page is below the limit at which documents fail.
    """
    if not rows:
        return {}
    words, found, aside = (
        sum(getattr(row, name) for row in rows) for name in ("words", "found", "set_aside")
    )
    share = found / words if words else 1.0
    short = sorted(
        (row for row in rows if row.words - row.found >= _FEW and row.share < policy.warn_below),
        key=lambda row: row.share,
    )
    state = "kept"
    if words and share < policy.fail_below:
        state = "failed"
    elif (words - found >= _FEW and share < policy.warn_below) or any(
        row.share < policy.fail_below for row in short
    ):
        state = "warned"
    details = f"{share:.1%} of {words} words that a second reader finds stand in the chunks"
    if aside:
        details += f"; {aside} of them were set aside on purpose (`rag docs show DOC --dropped`)"
    if short and rows[0].page:
        named = ", ".join(
            f"page {row.page}: {row.share:.0%} of {row.words}" for row in short[:_SHOWN]
        )
        details += f"; {named}" + (
            f" and {len(short) - _SHOWN} more" if len(short) > _SHOWN else ""
        )
    return {
        "text_pages": sum(row.page > 0 for row in rows),
        "text_words": words,
        "text_found": found,
        "text_set_aside": aside,
        "text_kept": round(share, 4),
        "text_kept_state": state,
        "text_kept_details": details,
    }
