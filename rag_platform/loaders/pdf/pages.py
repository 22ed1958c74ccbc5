"""The blocks of one PDF page, made of its regions and characters; the same for both engines."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rag_platform.ir import Box, HiddenText
from rag_platform.loaders.pdf import tables
from rag_platform.loaders.pdf.images import PageImage
from rag_platform.loaders.pdf.printed import bidi
from rag_platform.loaders.pdf.printed.characters import is_line_number
from rag_platform.loaders.pdf.printed.lines import (
    code_text,
    flow_lines,
    line_text,
    list_text,
    opens_item,
    page_words,
    visual_lines,
)
from rag_platform.loaders.pdf.printed.runs import Run, bounding_box, round_out, union, usual_size
from rag_platform.loaders.pdf.regions import Region, assign_runs, matches_print
from rag_platform.text.scripts import letters

_MEANINGLESS = re.compile("[\ufffd\ue000-\uf8ff]")
_KINDS = {
    "title": "heading",
    "section-header": "heading",
    "page-header": "header",
    "page-footer": "footer",
    "caption": "caption",
    "list-item": "list",
    "table": "table",
    "formula": "formula",
    "picture": "picture",
}


@dataclass(frozen=True, slots=True)
class PageBlock:
    """A block of a page before it is placed in the facts; headings come without their `#`."""

    kind: str
    text: str
    bbox: Box
    size: float = 0.0  # font size of most of its characters in points, to half a point
    bold: bool = False
    lines: int = 1  # printed lines
    title: bool = False  # the layout model classified it as the document's title


@dataclass(frozen=True, slots=True)
class PageFacts:
    """What was read on one page. `engine` is layout, raw, or failed if nothing could be read."""

    page: int
    blocks: tuple[PageBlock, ...]
    images: tuple[PageImage, ...]
    engine: str
    warnings: tuple[str, ...] = ()
    hidden: tuple[HiddenText, ...] = ()


MAX_IMAGES_PER_PAGE = 200
_SENTENCE_ENDS = (".", ":", ";", "。", "：", "；", "，")
_LINE_GAP = 6.0  # points; the widest gap, or overlap, of two lines of code
_BLANK_LINE = 2.0  # ems; the widest gap of two lines of code around a blank line
_TERM_GAP = 0.5  # ems between a term and the text below that explains it, at most
_CODE_INDENT = 1.5  # ems by which code is set right of the text around it, at least
_MAX_OTHER = 0.3  # characters of code in a proportional font per character in a monospaced one


def page_facts(
    page: int,
    blocks: Sequence[PageBlock],
    images: Sequence[PageImage],
    engine: str,
    warnings: Sequence[str],
    hidden: Sequence[HiddenText] = (),
) -> PageFacts:
    """The facts of a page, with a warning if it has more images than are recorded."""
    more = f"only the first {MAX_IMAGES_PER_PAGE} of {len(images)} images are recorded"
    notes = [*warnings, *([f"page {page}: {more}"] if len(images) > MAX_IMAGES_PER_PAGE else [])]
    kept = tuple(images[:MAX_IMAGES_PER_PAGE])
    return PageFacts(page, tuple(blocks), kept, engine, tuple(notes), tuple(hidden))


def page_blocks(
    page: int, runs: Sequence[Run], regions: Sequence[Region]
) -> tuple[list[PageBlock], list[str]]:
    """(blocks, warnings); a block holds raw lines if structuring them would change a letter.

    Raises AssertionError if a visible character lies outside of all regions.
    """
    words = page_words(runs)
    mono = sum(len(run.chars) for run in runs if run.mono)
    # on such a page monospaced text need not be code
    typewritten = mono > 0.8 * sum(len(run.chars) for run in runs)
    pieces, orphans = assign_runs(runs, [region.bbox for region in regions])
    parts = list(regions) if typewritten else _separate_code(regions, pieces)
    if parts != list(regions):
        regions = parts
        pieces, orphans = assign_runs(runs, [region.bbox for region in regions])
    if orphans:
        raise AssertionError(
            f"{len(orphans)} pieces of text lie outside of every region, the first is"
            f" {orphans[0].text[:40]!r}"
        )
    blocks: list[PageBlock] = []
    warnings: list[str] = []
    differing = 0
    for region, owned in zip(regions, pieces, strict=True):
        if not owned:
            continue
        printed = visual_lines(owned)
        lines = [line_text(line) for line in printed]
        block = _block(region, owned, printed, lines, words, typewritten)
        if not matches_print(block.kind, block.text, letters("".join(lines))):
            differing += 1
            block = PageBlock(
                "paragraph", "\n".join(lines), region.bbox, block.size, block.bold, len(lines)
            )
        blocks.append(block)
    if differing:
        warnings.append(
            f"page {page}: {differing} blocks hold raw text because their structure would have"
            " changed it"
        )
    if bidi.is_vertical(runs):
        warnings.append(
            f"page {page}: its text is set in columns, which were read downwards and from right to"
            " left; check their order"
        )
    unknown = sum(len(_MEANINGLESS.findall(run.text)) for run in runs if not run.text.isascii())
    if unknown > 0.1 * sum(len(run.chars) for run in runs):
        warnings.append(
            f"page {page}: {unknown} characters have no Unicode meaning in the PDF's fonts; the"
            " text needs OCR"
        )
    return blocks, warnings


def _separate_code(regions: Sequence[Region], pieces: Sequence[Sequence[Run]]) -> list[Region]:
    """The regions, with code in a paragraph split off, consecutive regions of code merged, and
    monospaced terms of a list merged with their explanations.
    """
    found: list[Region] = []
    above: Box | None = None  # rectangle of the last region if that is code
    term: Box | None = None  # the same, or if it is a monospaced heading
    for whole, owned in zip(regions, pieces, strict=True):
        size = owned[0].size if owned else 0.0
        is_term = whole.label == "section-header" and all(r.mono and not r.bold for r in owned)
        if is_term and above is not None and _is_next_line(above, whole.bbox, 0.0):
            whole = replace(whole, label="text")  # a line of the code above
        for region, code in _split_code(whole, owned):
            joined = (
                above is not None and _is_next_line(above, region.bbox, size)
                if code
                else term is not None and _explains(region, term, size)
            )
            if joined:
                region = Region(union([found.pop().bbox, region.bbox]), "text")
            found.append(region)
            above = region.bbox if code else None
            term = region.bbox if code or is_term else None
    return found


def _split_code(region: Region, owned: Sequence[Run]) -> list[tuple[Region, bool]]:
    """(part, whether it is code) of a region; code begins only after the end of a paragraph or
    sentence, or where it is indented.
    """
    if region.label not in ("text", "list-item") or not owned:
        return [(region, False)]
    lines = visual_lines(owned)
    groups: list[tuple[bool, list[Run]]] = []
    above: Sequence[Run] = ()
    for line in lines:
        code = _is_code([line], 0.0)
        if groups and (groups[-1][0] == code or (code and not _begins_code(line, above, region))):
            groups[-1][1].extend(line)
        else:
            groups.append((code, list(line)))
        above = line
    if (
        len(groups) < 2
        or region.label != "text"
        or (groups[0][0] and not _is_display(groups[0][1], groups[1][1]))
    ):
        return [(region, len(groups) == 1 and groups[0][0])]
    boxes = [bounding_box(group) for _, group in groups]
    return [
        (Region(round_out(box), "text"), code) for box, (code, _) in zip(boxes, groups, strict=True)
    ]


def _explains(region: Region, term: Box, size: float) -> bool:
    """True for a text that begins right of the line above, set close below it: what a monospaced
    term of a list means.
    """
    left, top, *_ = region.bbox
    return (
        region.label in ("text", "list-item")
        and left > term[0] + _CODE_INDENT * size
        and abs(top - term[3]) < _TERM_GAP * size > term[3] - term[1] - size
    )


def _begins_code(code: Sequence[Run], above: Sequence[Run], region: Region) -> bool:
    """True if the text above ends, or for words displayed that do not continue a signature."""
    text = "".join(run.text for run in above)
    return _is_end(above, region) or (
        _is_display(code, above)
        and letters(line_text(code)) != ""
        and text.count("(") <= text.count(")")
    )


def _is_display(code: Sequence[Run], text: Sequence[Run]) -> bool:
    """True for code that begins far right of a text, below or above none of its parts."""
    left, size = min(run.box[0] for run in code), code[0].size
    return left > text[0].box[0] + _CODE_INDENT * size and not any(
        abs(run.box[0] - left) < size / 2 for run in text
    )


def _is_end(runs: Sequence[Run], region: Region) -> bool:
    """True if the last run ends a sentence, or well before the right edge of the region."""
    last = runs[-1]
    early = last.box[2] < region.bbox[2] - 0.2 * (region.bbox[2] - region.bbox[0])
    return early or last.text.rstrip().endswith(_SENTENCE_ENDS)


def _is_next_line(above: Box, below: Box, size: float) -> bool:
    """True for a rectangle of code directly below another, or with a blank line between them."""
    overlap = below[0] < above[2] and above[0] < below[2]
    return overlap and -_LINE_GAP < below[1] - above[3] < max(_LINE_GAP, _BLANK_LINE * size)


def _block(
    region: Region,
    runs: Sequence[Run],
    printed: Sequence[Sequence[Run]],
    lines: Sequence[str],
    words: frozenset[str],
    typewritten: bool,
) -> PageBlock:
    kind = _KINDS.get(region.label, "paragraph")
    size = usual_size((round(2 * run.size) / 2, len(run.chars)) for run in runs)
    bold = all(run.bold for run in runs)

    def make(kind: str, text: str) -> PageBlock:
        return PageBlock(kind, text, region.bbox, size, bold, len(lines), region.label == "title")

    if (
        kind in ("paragraph", "list", "table")
        and _is_code(printed, _MAX_OTHER if kind == "paragraph" else 0.0)
        and not (typewritten and (kind != "paragraph" or _is_prose(lines)))
    ):
        return make("code", f"```\n{code_text(printed)}\n```")
    if kind == "heading" and letters("".join(lines)) and not all(run.slanted for run in runs):
        return make("heading", flow_lines(lines, words))
    marked = any(map(opens_item, lines)) if kind == "list" else lines[0][:2] == "• "
    may_align = kind in ("paragraph", "list") and not marked
    if may_align and (text := tables.aligned_text(printed, region, words)):
        return make("table", text)
    if kind == "list" or (kind == "paragraph" and marked):
        return make("list", list_text(printed, lines, words))
    if kind == "table" and (text := tables.table_text(runs, region, words)):
        return make("table", text)
    if kind in ("table", "picture", "formula"):
        return make("paragraph" if kind == "table" else kind, "\n".join(lines))
    return make("paragraph" if kind == "heading" else kind, flow_lines(lines, words))


def _is_code(printed: Sequence[Sequence[Run]], max_other: float) -> bool:
    """True for monospaced lines. Several lines may have up to `max_other` characters in other fonts
    per monospaced one, such as a comment in Chinese.
    """
    size = max(run.size for line in printed for run in line)
    printed = [line[is_line_number(line[0].text, line[0].size, size) :] for line in printed]
    printed = [line for line in printed if line]
    runs = [run for line in printed for run in line]
    mono = sum(len(run.chars) for run in runs if run.mono)
    other = sum(len(run.chars) for run in runs if not run.mono)
    if not printed or other > (max_other * mono if len(printed) > 1 else 0):
        return False
    return all(run.mono for run in printed[0]) and all(run.horizontal for run in runs)


def _is_prose(lines: Sequence[str]) -> bool:
    """True for text with hardly any punctuation of code."""
    text = " ".join(lines)
    return sum(char in "{}[];=<>|\\/_#$" for char in text) <= 0.015 * len(text)
