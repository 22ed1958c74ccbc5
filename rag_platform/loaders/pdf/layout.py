"""Regions of a PDF page in reading order: from the layout model, or from MuPDF's own blocks."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, groupby, pairwise, takewhile
from statistics import median
from typing import Any

from rag_platform.ir import Box
from rag_platform.loaders.pdf.parallel_fields import find_parallel_fields
from rag_platform.loaders.pdf.plain_regions import plain_regions
from rag_platform.loaders.pdf.printed import bidi
from rag_platform.loaders.pdf.printed.characters import text_flags
from rag_platform.loaders.pdf.printed.lines import (
    line_text,
    opens_item,
    visual_lines,
)
from rag_platform.loaders.pdf.printed.runs import (
    Run,
    area,
    bounding_box,
    contains,
    group_while,
    round_out,
    union,
    usual_size,
)
from rag_platform.loaders.pdf.printed.textpages import TextPage
from rag_platform.loaders.pdf.regions import (
    LEADER,
    MIN_ROWS,
    Region,
    assign_runs,
    find_line_numbers,
    find_watermarks,
    is_stretched,
    near_boxes,
    owner_of,
    owner_order,
)
from rag_platform.text.scripts import letters
from rag_platform.text.sentences import field_label

# a column of prose has at least as many lines and ems; cells and addresses have less
_MIN_PROSE_LINES, _MIN_PROSE_EMS = 3, 10
_MAX_PAIRS = 8  # lines of labels with their values; an index has more
_MAX_LINE_WIDTH = 3.0  # points; a thinner rectangle is a drawn line
_MIN_COVERED = 0.9  # share of a table's width that a line drawn through all of it covers
_GUTTER = 3.0  # points; as between columns in pymupdf4llm.helpers.utils.cluster_stripes
_MIN_WIDTH_RATIO = 0.5  # narrowest column to widest; a narrower one is a margin beside the text
_HEADING_RATIO = 1.25  # font size of a heading to that of the text below it
_SPLIT_LABELS = ("text", "list-item", "section-header", "table")
_SENTENCE_ENDS = tuple(".!?:;。！？：；…”）")
_SHORT_LINE = 0.2  # share of a region's width that a short line leaves free
_PARAGRAPH_GAP = 0.35  # ems by which a gap between paragraphs exceeds one between lines
_MIN_ENTRIES = 3  # in each column of an index
_TERM_GAP = 0.8  # ems between a term and the explanation beside it, at least
_MAX_COLUMNS = 4
_SAME_OVERLAP = 0.9  # share of their union that two rectangles of the same text overlap
_MARGINS = ("page-header", "page-footer")
_MIN_PARAGRAPH = 80  # letters and digits; a label in an image has fewer


def layout_regions(page: Any, runs: Sequence[Run]) -> list[Region]:
    """Classified regions in reading order; together they own every visible character.

    Follows `pymupdf4llm.helpers.document_layout.parse_document` without OCR, and adds regions for
    text that the model left out.
    """
    if find_line_numbers(runs):  # the model takes each numbered line for a list entry
        return plain_regions(runs)
    blocks = TextPage(page, text_flags(images=True)).blocks(characters=False)
    regions = _model_regions(page, blocks)
    if index := index_regions(regions, runs):
        return index
    if bidi.is_vertical(runs):  # the model mistakes vertical text for columns of a table
        regions = [
            replace(region, label="text", grid=None)
            if region.label == "table" and not region.rules
            else region
            for region in regions
        ]
    regions = join_rows(drop_backgrounds(regions, runs), runs)
    watermarks = find_watermarks(runs)
    regions = [r for r in regions if not any(_is_same(r.bbox, run.box) for run in watermarks)]
    # text printed across other text in a picture, such as a map, belongs to the picture
    pictures = [region.bbox for region in regions if region.label == "picture"]
    watermarks = [run for run in watermarks if not any(contains(box, run.box) for box in pictures)]
    watermark_ids = set(map(id, watermarks))
    runs = [run for run in runs if id(run) not in watermark_ids]
    rtl = bidi.is_rtl(runs) or bidi.is_vertical(runs)
    fields = {
        Region(round_out(box), "text"): split_texts(
            [Region(round_out(bounding_box(column)), "text") for column in columns], runs
        )
        for columns in find_parallel_fields(runs)
        for box in [bounding_box(chain(*columns))]
        if not any(r.label == "table" and _overlap(r.bbox, box) > 0 for r in regions)
    }
    outside = [
        run
        for run in runs
        if not run.horizontal or not any(contains(field.bbox, run.box) for field in fields)
    ]
    regions = split_columns(trim_overlapping(regions, list(fields), outside), outside)
    regions = split_texts(fit_to_text(complete_regions(regions, outside), outside), outside)
    ordered = [
        part
        for band in split_at_columns([*regions, *fields], runs, rtl=rtl)
        for region in order_regions(page, blocks, band, rtl=rtl)
        for part in fields.get(region, [region])
    ]
    return keep_sentences_whole(ordered, runs) + [
        Region(round_out(run.box), "text") for run in watermarks
    ]


def index_regions(regions: Sequence[Region], runs: Sequence[Run]) -> list[Region]:
    """The regions of a page with columns of lines that end in dots and page numbers, which the
    model takes for a table: its margins, and the engine's blocks; [] for another page.
    """
    entries = [run for run in runs if run.horizontal and LEADER.search(run.text)]
    columns = _group_columns(entries, 0.0)
    if len(columns) < 2 or min(map(len, columns)) < _MIN_ENTRIES:
        return []
    header, footer = ([r for r in regions if r.label == label] for label in _MARGINS)
    text = assign_runs(runs, [region.bbox for region in (*header, *footer)])[1]
    return [*header, *plain_regions(text), *footer]


def _model_regions(page: Any, blocks: list[dict[str, Any]]) -> list[Region]:
    """The regions that the layout model finds, tables with their grid and drawn lines."""
    from pymupdf4llm.helpers import document_layout, utils

    document_layout.get_layout_locked(page, return_raw=True)
    drawn = [
        block["bbox"]
        for block in blocks
        if block["type"] == 3 and (block["isrect"] or _is_thin(block["bbox"]))
    ]
    found: list[tuple[Box, str]] = []
    tables: dict[tuple[Box, str], Region] = {}
    for item in page.layout_information:
        box, label = item["group_bbox"], item["class_name"]
        if box[2] - box[0] <= 2 or box[3] - box[1] <= 2:
            continue
        bbox = (float(box[0]), float(box[1]), float(box[2]), float(box[3]))
        if label == "table" and (grid := item.get("table_grid")):
            borders = (
                tuple(float(v + box[0]) for v in grid.v_lines),
                tuple(float(h + box[1]) for h in grid.h_lines),
            )
            tables[bbox, label] = _add_drawn_lines(Region(bbox, label, borders), drawn)
        elif label == "table":
            label = "text"
        found.append((bbox, label))
    page.layout_information = [(*bbox, label) for bbox, label in found]
    utils.clean_pictures(page, blocks)
    utils.add_image_orphans(page, blocks)
    regions = []
    for x0, y0, x1, y1, label in page.layout_information:
        bbox = (float(x0), float(y0), float(x1), float(y1))
        regions.append(tables.get((bbox, str(label))) or Region(bbox, str(label)))
    return regions


def join_rows(regions: Sequence[Region], runs: Sequence[Run]) -> list[Region]:
    """The regions, with texts side by side joined that the file holds row by row, such as the
    labels and the keys of a reference card; columns of prose stay.
    """
    boxes = [region.bbox for region in regions]
    order = owner_order(boxes)
    owned = assign_runs(runs, boxes)[0]
    texts = {at for at, r in enumerate(regions) if r.label in ("text", "list-item") and owned[at]}
    steps: Counter[tuple[int, int]] = Counter()  # from a text to the one beside it
    for run, beside in pairwise(runs):
        if beside.box[0] > run.box[2] and run.box[1] < beside.box[3] and beside.box[1] < run.box[3]:
            one, other = (owner_of(item.chars[0], boxes, order) for item in (run, beside))
            steps[one, other] += 1
    joined = {at: at for at in range(len(regions))}
    for left in sorted(texts, key=lambda at: -boxes[at][0]):
        rights = [
            right
            for (one, right), rows in steps.items()
            if one == left != right
            and right in texts
            and rows >= 2 / 3 * len(visual_lines(owned[right]))
            and not (_is_prose(owned[left]) and _is_prose(owned[right]))
        ]
        if sum(steps[left, right] for right in rights) >= MIN_ROWS:
            joined = {at: left if to in rights else to for at, to in joined.items()}
    return [
        replace(region, bbox=union([boxes[one] for one, to in joined.items() if to == at]))
        for at, region in enumerate(regions)
        if joined[at] == at
    ]


def trim_overlapping(
    regions: Sequence[Region], others: Sequence[Region], runs: Sequence[Run]
) -> list[Region]:
    """The regions, where one other than a picture overlaps `others` shrunk to the runs within it;
    dropped if there are none.
    """
    trimmed = []
    for region in regions:
        if region.label == "picture" or not any(
            _overlap(region.bbox, other.bbox) > 0 for other in others
        ):
            trimmed.append(region)
        elif inside := [run for run in runs if contains(region.bbox, run.box)]:
            trimmed.append(replace(region, bbox=round_out(bounding_box(inside))))
    return trimmed


def fit_to_text(regions: Sequence[Region], runs: Sequence[Run]) -> list[Region]:
    """The regions, those shrunk to their text that reach far beyond it, for example over hidden
    text, or that contain another region with text.
    """
    owned = assign_runs(runs, [region.bbox for region in regions])[0]
    with_text = [region for region, lines in zip(regions, owned, strict=True) if lines]
    return [
        replace(region, bbox=round_out(bounding_box(lines)))
        if lines
        and region.label != "table"
        and (
            is_stretched(region.label, region.bbox, lines)
            or (
                region.label not in ("picture", "formula")
                and any(contains(region.bbox, other.bbox) for other in with_text if other != region)
            )
        )
        else region
        for region, lines in zip(regions, owned, strict=True)
    ]


def _is_same(one: Box, other: Box) -> bool:
    return _overlap(one, other) > _SAME_OVERLAP * area(union([one, other]))


def _is_thin(box: Box) -> bool:
    """True for a line, even if its ends are mitred, as where two sides of a cell meet."""
    return min(box[2] - box[0], box[3] - box[1]) <= _MAX_LINE_WIDTH


def _add_drawn_lines(table: Region, drawn: Sequence[Box]) -> Region:
    rows = _find_full_lines(table.bbox, drawn)
    columns = _find_full_lines(_transpose(table.bbox), [_transpose(box) for box in drawn])
    return replace(table, rules=_find_rules(table.bbox, drawn), lines=(columns, rows))


def _transpose(box: Box) -> Box:
    x0, y0, x1, y1 = box
    return y0, x0, y1, x1


def _find_full_lines(table: Box, drawn: Sequence[Box]) -> tuple[float, ...]:
    """The heights of the lines drawn across the full width of a table; empty if any line ends
    within it, since such a line borders a merged cell.
    """
    left, top, right, bottom = table
    sides = (
        (y, max(left, x0), min(right, x1))
        for x0, y0, x1, y1 in drawn
        if x1 - x0 > _MAX_LINE_WIDTH and x0 < right and x1 > left
        for y in ((y0, y1) if y1 - y0 > _MAX_LINE_WIDTH else ((y0 + y1) / 2,))
        if top + _MAX_LINE_WIDTH < y < bottom - _MAX_LINE_WIDTH
    )
    found: list[float] = []
    for level in group_while(
        sorted(sides), lambda level, side: side[0] <= level[0][0] + _MAX_LINE_WIDTH
    ):
        covered, reached = 0.0, left
        for _, x0, x1 in sorted(level, key=lambda side: side[1]):
            covered += max(0.0, x1 - max(x0, reached))
            reached = max(reached, x1)
        if covered < _MIN_COVERED * (right - left):
            return ()
        found.append(sum(y for y, _, _ in level) / len(level))
    return tuple(found)


def _find_rules(table: Box, drawn: Sequence[Box]) -> tuple[tuple[float, float, float], ...]:
    """(x, top, bottom) of the vertical edges drawn in a table: two per rectangle, one per line."""
    return tuple(
        (x, top, bottom)
        for left, top, right, bottom in drawn
        if bottom - top > _MAX_LINE_WIDTH and table[1] < (top + bottom) / 2 < table[3]
        for x in ((left, right) if right - left > _MAX_LINE_WIDTH else ((left + right) / 2,))
    )


def split_columns(regions: Sequence[Region], runs: Sequence[Run]) -> list[Region]:
    """The regions, each text (or group of overlapping texts) set in columns replaced by one region
    per column. Columns hold lines of prose, or follow each other in the file.
    """
    found: list[Region] = []
    texts: list[list[Region]] = []  # groups of overlapping texts
    for region in regions:
        if region.label != "text":
            found.append(region)
            continue
        touched = [
            group for group in texts if any(_overlap(region.bbox, one.bbox) > 0 for one in group)
        ]
        texts = [group for group in texts if group not in touched]
        texts.append([*(one for group in touched for one in group), region])
    for group in texts:
        box = union([region.bbox for region in group])
        lines = [run for run in runs if run.horizontal and contains(box, run.box)]
        columns = [round_out(bounding_box(column)) for column in _find_columns(lines)]
        found += [Region(column, "text") for column in columns] or group
    return found


def _find_columns(lines: Sequence[Run]) -> list[list[Run]]:
    """The lines of each column of prose or stored column by column; [] for a single column."""
    columns = _group_columns(lines, 0.0)
    if len(columns) > 1 and all(map(_is_prose, columns)):
        return columns
    columns = _group_columns(lines, usual_size((run.size, len(run.chars)) for run in lines))
    return columns if len(columns) > 1 and _are_stored_in_turn(columns, lines) else []


def _group_columns(lines: Sequence[Run], gap: float) -> list[list[Run]]:
    """The lines from left to right, grouped where a gap wider than `gap` points separates them."""
    columns: list[list[Run]] = []
    reached = 0.0
    for run in sorted(lines, key=lambda run: run.box[0]):
        if not columns or run.box[0] > reached + gap:
            columns.append([])
        columns[-1].append(run)
        reached = max(reached, run.box[2])
    return columns


def _are_stored_in_turn(columns: Sequence[Sequence[Run]], lines: Sequence[Run]) -> bool:
    """True if the file holds one column after the other, such as the entries of an index or two
    addresses, and no column consists of labels or figures, which belong to the column beside it.
    """
    column_of = {id(run): number for number, column in enumerate(columns) for run in column}
    changes = sum(column_of[id(one)] != column_of[id(other)] for one, other in pairwise(lines))
    return (
        changes < len(columns)
        and all(len({round(run.box[3]) for run in column}) > 1 for column in columns)
        and not any(sum(map(_is_label_or_figure, column)) > len(column) / 2 for column in columns)
        and not _are_pairs(columns)
    )


def _is_label_or_figure(run: Run) -> bool:
    """True for a label with a colon, and for a price, date or other figure."""
    figures, words = sum(map(str.isdigit, run.text)), sum(map(str.isalpha, run.text))
    return run.text.rstrip().endswith((":", "：")) or figures >= max(words, 1)


def _are_pairs(columns: Sequence[Sequence[Run]]) -> bool:
    """True for two short columns whose lines pair up: labels and their values in a form, which
    stores all values after all labels.
    """
    if len(columns) != 2 or not len(columns[0]) == len(columns[1]) <= _MAX_PAIRS:
        return False
    first, second = (sorted(column, key=lambda run: run.box[3]) for column in columns)
    return all(
        abs(one.box[3] - other.box[3]) < one.size / 2
        for one, other in zip(first, second, strict=True)
    )


def _is_prose(lines: Sequence[Run]) -> bool:
    return (
        len({round(run.box[3]) for run in lines}) >= _MIN_PROSE_LINES
        and median(run.box[2] - run.box[0] for run in lines) > _MIN_PROSE_EMS * lines[0].size
    )


def drop_backgrounds(regions: Sequence[Region], runs: Sequence[Run]) -> list[Region]:
    """The regions without images that lie behind a paragraph, which would mix columns."""
    contents = [
        "".join(run.text for run in group)
        for group in assign_runs(runs, [region.bbox for region in regions])[0]
    ]
    texts = [
        region.bbox
        for region, text in zip(regions, contents, strict=True)
        if region.label in ("text", "list-item") and len(letters(text)) >= _MIN_PARAGRAPH
    ]
    return [
        region
        for region in regions
        if region.label != "picture" or not any(contains(region.bbox, text) for text in texts)
    ]


def complete_regions(regions: Sequence[Region], runs: Sequence[Run]) -> list[Region]:
    """The regions, grown over the words they cut, and new ones around text outside of all, one per
    block of the engine.
    """
    boxes = [region.bbox for region in regions]
    order = owner_order(boxes)
    grown = list(boxes)
    loose: list[Run] = []
    for run in runs:
        near = near_boxes(run.box, boxes, order)
        if near and contains(boxes[near[0]], run.box):
            continue  # the region holds the whole line: nothing grows
        words = run.words()
        owners = [_word_owner(word, boxes, near) for word in words]
        owned = [position for position, owner in enumerate(owners) if owner >= 0]
        for position, (word, owner) in enumerate(zip(words, owners, strict=True)):
            box = word.box
            if owner < 0 and owned:
                neighbour = min(owned, key=lambda other: abs(other - position))
                gap = max(
                    boxes[owners[neighbour]][0] - box[2], box[0] - boxes[owners[neighbour]][2]
                )
                owner = owners[neighbour] if gap < 1.5 * run.size else -1
            if owner < 0:
                loose.append(word)
            else:
                grown[owner] = union([grown[owner], box])
    kept = [
        replace(region, bbox=round_out(box)) for box, region in zip(grown, regions, strict=True)
    ]
    return kept + [
        Region(round_out(bounding_box(words)), "text")
        for _, words in groupby(loose, lambda word: word.block)
    ]


def _word_owner(word: Run, boxes: Sequence[Box], order: Sequence[int]) -> int:
    return Counter(owner_of(char, boxes, order) for char in word.chars).most_common(1)[0][0]


def _overlap(one: Box, other: Box) -> float:
    return area(
        (max(one[0], other[0]), max(one[1], other[1]), min(one[2], other[2]), min(one[3], other[3]))
    )


def split_texts(regions: Sequence[Region], runs: Sequence[Run]) -> list[Region]:
    """The regions, split where the print shows a new text: below a line in much larger print, which
    becomes a heading, as on slides; within text also at a wider gap, a list marker, or a label with
    a colon that follows another label or a short line.
    """
    found: list[Region] = []
    for region, owned in zip(
        regions, assign_runs(runs, [region.bbox for region in regions])[0], strict=True
    ):
        lines = visual_lines(owned) if region.label in _SPLIT_LABELS else []
        if (
            not lines
            or not all(run.horizontal for run in owned)
            or (region.label == "table" and len(lines[0]) > 1)
        ):
            found.append(region)
            continue
        starts = [0, *_find_starts(lines, region), len(lines)]
        boxes = [bounding_box(chain(*lines[start:end])) for start, end in pairwise(starts)]
        # each box ends where the next begins, even if descenders reach into that one
        tops = [*(box[1] for box in boxes[1:]), boxes[-1][3]]
        for end, (left, top, right, bottom), below in zip(starts[1:], boxes, tops, strict=True):
            title = end < len(lines) and _is_larger(lines[end - 1], lines[end])
            box = round_out((left, top, right, min(bottom, below)))
            found.append(
                Region(box, "section-header")
                if title
                else replace(region, bbox=box if len(boxes) > 1 else region.bbox)
            )
    return found


def _find_starts(lines: Sequence[Sequence[Run]], region: Region) -> list[int]:
    """Indexes of the lines, after the first, that begin a text of their own."""
    boxes = [bounding_box(line) for line in lines]
    gaps = [below[1] - above[3] for above, below in pairwise(boxes)]
    usual = max(0.0, *sorted(gaps)[: (len(gaps) + 1) // 2]) if gaps else 0.0
    full = region.bbox[2] - _SHORT_LINE * (region.bbox[2] - region.bbox[0])
    explained = list(map(_find_explanation, lines))
    found = []
    for at, gap in enumerate(gaps, 1):
        above, line = lines[at - 1 : at + 1]
        text, before, size = line_text(line), line_text(above), above[0].size
        short = boxes[at - 1][2] < full
        starts_text = (
            (before.endswith(_SENTENCE_ENDS) or short)
            and not text[:1].islower()
            and (gap > usual + _PARAGRAPH_GAP * size or opens_item(text))
        ) or (field_label(text) and not line[0].mono and (short or field_label(before)))
        starts_text = starts_text or _opens_term(lines, explained, at)
        below_heading = _is_larger(above, line) and (region.label != "table" or at == 1)
        if gap > -size / 4 and (below_heading or (region.label == "text" and starts_text)):
            found.append(at)
    return found


def _opens_term(lines: Sequence[Sequence[Run]], explained: Sequence[float], at: int) -> bool:
    """True for a line that begins with a term in bold or monospaced print, with its explanation
    beside it: there, another line begins or has its own.
    """
    left = explained[at]
    return left > 0 and any(
        number != at and abs((other or line[0].box[0]) - left) < 1
        for number, (other, line) in enumerate(zip(explained, lines, strict=True))
    )


def _find_explanation(line: Sequence[Run]) -> float:
    """The left edge of the text behind a gap beside a term that begins the line, else 0."""
    term = list(takewhile(lambda run: run.bold or run.mono, line))
    if not 0 < len(term) < len(line):
        return 0.0
    left = line[len(term)].box[0]
    return left if left > term[-1].box[2] + _TERM_GAP * term[0].size else 0.0


def _is_larger(one: Sequence[Run], other: Sequence[Run]) -> bool:
    """True for a line in much larger print than another, each of more than one letter."""
    return min(run.size for run in one) >= _HEADING_RATIO * max(run.size for run in other) and all(
        len(letters(line_text(line))) > 1 for line in (one, other)
    )


def split_at_columns(
    regions: Sequence[Region], runs: Sequence[Run], *, rtl: bool = False
) -> list[list[Region]]:
    """The regions in parts to be read one after the other: each a column of prose, or what spans
    the columns above and below it. A single part on a page without columns of prose.

    `order_regions` alone would take a heading, or the end of a column, with nothing beside it for
    one that spans all columns.
    """
    body = sorted(
        (region for region in regions if region.label not in _MARGINS), key=lambda r: r.bbox[1]
    )
    gutters = _gutters(body, runs)
    if not gutters:
        return [list(regions)]
    columns = [bisect_right(gutters, (r.bbox[0] + r.bbox[2]) / 2) for r in body]
    parts: list[list[Region]] = [[r for r in regions if r.label == "page-header"], []]
    band: list[list[Region]] = [[] for _ in range(len(gutters) + 1)]
    for region, column in zip(body, columns, strict=True):
        if not _crosses(region, gutters):
            band[column].append(region)
            continue
        if any(band):
            parts += [*(reversed(band) if rtl else band), []]
            band = [[] for _ in band]
        parts[-1].append(region)
    parts += [
        *(reversed(band) if rtl else band),
        [r for r in regions if r.label == "page-footer"],
    ]
    return [part for part in parts if part]


def _gutters(body: Sequence[Region], runs: Sequence[Run]) -> list[float]:
    """The middles of the gaps between columns of prose of similar width; [] for one column."""
    owned = assign_runs(runs, [region.bbox for region in body])[0]
    texts = [
        (region.bbox, lines)
        for region, lines in zip(body, owned, strict=True)
        if region.label in ("text", "list-item") and lines
    ]
    texts.sort(key=lambda item: item[0][0] - item[0][2])
    whole = union([box for box, _ in texts]) if texts else (0.0, 0.0, 0.0, 0.0)
    for wider, (widest, _) in enumerate(texts):
        if widest[2] - widest[0] < (whole[2] - whole[0]) / _MAX_COLUMNS:
            break
        columns = group_while(
            sorted(texts[wider:], key=lambda item: item[0][0]),
            lambda column, item: item[0][0] - max(box[2] for box, _ in column) <= _GUTTER,
        )
        if len(columns) > 1:
            edges = [union([box for box, _ in column]) for column in columns]
            widths = [right - left for left, _, right, _ in edges]
            prose = all(_is_prose([run for _, lines in c for run in lines]) for c in columns)
            if not prose or min(widths) <= _MIN_WIDTH_RATIO * max(widths):
                break
            return [(one[2] + other[0]) / 2 for one, other in pairwise(edges)]
    return []


def _crosses(region: Region, gutters: Sequence[float]) -> bool:
    left, _, right, _ = region.bbox
    return any(left + _GUTTER < gutter < right - _GUTTER for gutter in gutters)


def order_regions(
    page: Any,
    blocks: Sequence[dict[str, Any]],
    regions: Sequence[Region],
    *,
    rtl: bool = False,
) -> list[Region]:
    """The regions in reading order, columns from the right if `rtl`; nested regions are
    folded into the one around them.
    """
    from pymupdf4llm.helpers import utils

    def mirror(box: Sequence[float]) -> Box:
        return (-box[2], box[1], -box[0], box[3]) if rtl else (box[0], box[1], box[2], box[3])

    by_key = {(mirror(region.bbox), region.label): region for region in regions}
    items = [(*mirror(region.bbox), region.label) for region in regions]
    result: list[Region] = []
    for item in utils.find_reading_order(
        page.rect, [{**block, "bbox": mirror(block["bbox"])} for block in blocks], items
    ):
        key = ((item[0], item[1], item[2], item[3]), item[4])
        region = by_key.pop(key, None)
        if region is not None:
            result.append(region)
    lost = [
        region
        for region in by_key.values()
        if not any(contains(other.bbox, region.bbox) for other in result)
    ]
    return result + lost


def keep_sentences_whole(regions: Sequence[Region], runs: Sequence[Run]) -> list[Region]:
    """The regions, with small print that interrupts a sentence moved behind the sentence.

    Such print, for example addresses and licences, stands at the foot of a column. It is moved only
    if the next text of the sentence's size begins in lower case.
    """
    contents = [
        (
            "".join(run.text for run in group).strip(),
            usual_size((run.size, len(run.chars)) for run in group),
        )
        for group in assign_runs(runs, [r.bbox for r in regions])[0]
    ]
    order = list(range(len(regions)))
    for at in range(len(order) - 2):
        text, size = contents[order[at]]
        if (
            regions[order[at]].label != "text"
            or not text
            or not (text[-1].isalpha() or text[-1] in ",-")
        ):
            continue
        for behind in range(at + 1, len(order)):
            (other, other_size), label = contents[order[behind]], regions[order[behind]].label
            if other and (other_size > size - 0.5 or label in ("table", "page-footer")):
                if label == "text" and abs(other_size - size) < 0.5 and other[0].islower():
                    order[at + 1 : behind + 1] = [order[behind], *order[at + 1 : behind]]
                break
    return [regions[place] for place in order]
