"""Regions of a PDF page in reading order: from the layout model, or from MuPDF's own blocks."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby, pairwise
from statistics import median
from typing import Any

from rag_platform.ir import Box
from rag_platform.loaders.pdf.parallel_fields import box_of, find_parallel_fields
from rag_platform.loaders.pdf.plain_regions import plain_regions
from rag_platform.loaders.pdf.printed import bidi
from rag_platform.loaders.pdf.printed.characters import text_flags
from rag_platform.loaders.pdf.printed.lines import (
    line_text,
    opens_item,
    visual_lines,
)
from rag_platform.loaders.pdf.printed.runs import Run, area, contains, round_out, union, usual_size
from rag_platform.loaders.pdf.printed.textpages import TextPage
from rag_platform.loaders.pdf.regions import (
    Region,
    assign_runs,
    find_across,
    find_line_numbers,
    is_stretched,
    near_boxes,
    owner_of,
    owner_order,
)
from rag_platform.text.scripts import letters
from rag_platform.text.sentences import field_label

_COLUMN_LINES, _COLUMN_EMS = 3, 10  # of prose; fewer or shorter lines are cells and addresses
_MOST_PAIRS = 8  # lines of labels and what stands beside them; an index has more
_RULE = 3.0  # points; what is drawn thinner is a line
_WHOLE = 0.9  # of a table's width
_GUTTER = 3.0  # points; as between columns in pymupdf4llm.helpers.utils.cluster_stripes
_ALIKE = 0.5  # the narrowest column by the widest; a narrower one is a margin beside the text
_TITLE = 1.25  # of the size of the text below it
_PARTED = ("text", "list-item", "section-header", "table")
_ENDS = tuple(".!?:;。！？：；…”）")
_EARLY = 0.2  # of the width of a text, before its end, where a full line does not end
_WIDER = 0.35  # of its size, by which a gap between lines is one between paragraphs
_MOST_COLUMNS = 4
_SAME = 0.9  # of what two rectangles cover, above which they are of the same text
_MARGINS = ("page-header", "page-footer")
_PARAGRAPH = 80  # letters and digits; a label in an image has fewer


def layout_regions(page: Any, runs: Sequence[Run]) -> list[Region]:
    """Classified regions in reading order; they own every visible character.

    The steps are those of `pymupdf4llm.helpers.document_layout.parse_document` without OCR; text
    that the model left outside of its boxes is added.
    """
    from pymupdf4llm.helpers import document_layout, utils

    if find_line_numbers(runs):  # the model takes each line that begins with one for an entry
        return plain_regions(runs)
    blocks = TextPage(page, text_flags(images=True)).blocks(characters=False)
    document_layout.get_layout_locked(page, return_raw=True)
    found: list[Region] = []
    for item in page.layout_information:
        box = item["group_bbox"]
        grid = item.get("table_grid") if item["class_name"] == "table" else None
        if box[2] - box[0] <= 2 or box[3] - box[1] <= 2:
            continue
        label = item["class_name"] if item["class_name"] != "table" or grid else "text"
        borders = (
            (
                tuple(float(v + box[0]) for v in grid.v_lines),
                tuple(float(h + box[1]) for h in grid.h_lines),
            )
            if grid
            else None
        )
        found.append(
            Region((float(box[0]), float(box[1]), float(box[2]), float(box[3])), label, borders)
        )
    drawn = [
        block["bbox"]
        for block in blocks
        if block["type"] == 3 and (block["isrect"] or _is_thin(block["bbox"]))
    ]
    page.layout_information = [(*region.bbox, region.label) for region in found]
    utils.clean_pictures(page, blocks)
    utils.add_image_orphans(page, blocks)
    tables = {
        (region.bbox, region.label): _with_drawn_lines(region, drawn)
        for region in found
        if region.grid
    }
    found = []
    for item in page.layout_information:
        bbox = (float(item[0]), float(item[1]), float(item[2]), float(item[3]))
        region = Region(bbox, str(item[4]))
        found.append(tables.get((region.bbox, region.label), region))
    if bidi.is_vertical(runs):  # the model takes columns for those of a table
        found = [
            region
            if region.label != "table" or region.rules
            else replace(region, label="text", grid=None)
            for region in found
        ]
    found = drop_backgrounds(found, runs)
    across = find_across(runs)
    found = [r for r in found if not any(_is_same(r.bbox, run.box) for run in across)]
    # what is printed across others within a picture, as in a map, is part of that
    pictures = [region.bbox for region in found if region.label == "picture"]
    across = [run for run in across if not any(contains(box, run.box) for box in pictures)]
    apart = set(map(id, across))
    runs = [run for run in runs if id(run) not in apart]
    leftwards = bidi.is_leftwards(runs) or bidi.is_vertical(runs)
    fields = {
        Region(round_out(box_of(columns)), "text"): split_texts(
            [Region(round_out(box_of([column])), "text") for column in columns], runs
        )
        for columns in find_parallel_fields(runs)
        if not any(r.label == "table" and _overlap(r.bbox, box_of(columns)) > 0 for r in found)
    }
    whole = runs
    runs = [
        run
        for run in runs
        if not run.horizontal or not any(contains(region.bbox, run.box) for region in fields)
    ]
    found = split_columns(cut_clear(found, list(fields), runs), runs)
    found = split_texts(fit_to_text(complete_regions(found, runs), runs), runs)
    ordered = [
        part
        for band in read_columns([*found, *fields], whole, leftwards=leftwards)
        for region in order_regions(page, blocks, band, leftwards=leftwards)
        for part in fields.get(region, [region])
    ]
    return keep_sentences_whole(ordered, whole) + [
        Region(round_out(run.box), "text") for run in across
    ]


def cut_clear(
    regions: Sequence[Region], others: Sequence[Region], runs: Sequence[Run]
) -> list[Region]:
    """The regions; those of text that overlap others are cut to the runs they hold and go without
    any.
    """
    found = []
    for region in regions:
        if region.label == "picture" or not any(
            _overlap(region.bbox, other.bbox) > 0 for other in others
        ):
            found.append(region)
        elif held := [run.box for run in runs if contains(region.bbox, run.box)]:
            found.append(replace(region, bbox=round_out(union(held))))
    return found


def fit_to_text(regions: Sequence[Region], runs: Sequence[Run]) -> list[Region]:
    """The regions; those of text that reach far beyond it, as over hidden text, or around others
    are cut to it.
    """
    owned = assign_runs(runs, [region.bbox for region in regions])[0]
    said = [region for region, lines in zip(regions, owned, strict=True) if lines]
    return [
        replace(region, bbox=round_out(union([run.box for run in lines])))
        if lines
        and region.label != "table"
        and (
            is_stretched(region.label, region.bbox, lines)
            or (
                region.label not in ("picture", "formula")
                and any(contains(region.bbox, other.bbox) for other in said if other != region)
            )
        )
        else region
        for region, lines in zip(regions, owned, strict=True)
    ]


def _is_same(one: Box, other: Box) -> bool:
    return _overlap(one, other) > _SAME * area(union([one, other]))


def _is_thin(box: Box) -> bool:
    """True for a line, also one whose ends are slanted, as where two sides of a cell meet."""
    return min(box[2] - box[0], box[3] - box[1]) <= _RULE


def _with_drawn_lines(region: Region, drawn: Sequence[Box]) -> Region:
    """The table with the lines drawn in it."""
    rows = _whole_lines(region.bbox, drawn)
    columns = _whole_lines(_turn(region.bbox), [_turn(box) for box in drawn])
    return replace(region, rules=_rules(region.bbox, drawn), lines=(columns, rows))


def _turn(box: Box) -> Box:
    x0, y0, x1, y1 = box
    return y0, x0, y1, x1


def _whole_lines(table: Box, drawn: Sequence[Box]) -> tuple[float, ...]:
    """The heights at which lines are drawn through the whole of a table, none where others end
    within it: they part a merged cell from its neighbours.
    """
    left, top, right, bottom = table
    sides = sorted(
        (y, max(left, x0), min(right, x1))
        for x0, y0, x1, y1 in drawn
        if x1 - x0 > _RULE and x0 < right and x1 > left
        for y in ((y0, y1) if y1 - y0 > _RULE else ((y0 + y1) / 2,))
        if top + _RULE < y < bottom - _RULE
    )
    found: list[float] = []
    while sides:
        level = [side for side in sides if side[0] <= sides[0][0] + _RULE]
        sides = sides[len(level) :]
        covered, reached = 0.0, left
        for _, x0, x1 in sorted(level, key=lambda side: side[1]):
            covered += max(0.0, x1 - max(x0, reached))
            reached = max(reached, x1)
        if covered < _WHOLE * (right - left):
            return ()
        found.append(sum(y for y, _, _ in level) / len(level))
    return tuple(found)


def _rules(table: Box, drawn: Sequence[Box]) -> tuple[tuple[float, float, float], ...]:
    """The vertical sides of what is drawn in a table: x, top, bottom; a thin one has one side."""
    return tuple(
        (x, top, bottom)
        for left, top, right, bottom in drawn
        if bottom - top > _RULE and table[1] < (top + bottom) / 2 < table[3]
        for x in ((left, right) if right - left > _RULE else ((left + right) / 2,))
    )


def split_columns(regions: Sequence[Region], runs: Sequence[Run]) -> list[Region]:
    """The regions; a text whose lines stand in columns with nothing between them, or several that
    overlap, become one region a column: full lines, or such as the file holds column by column.
    """
    found: list[Region] = []
    texts: list[list[Region]] = []  # that overlap
    for region in regions:
        if region.label != "text":
            found += _split_entries(region, runs) if region.label == "list-item" else [region]
            continue
        touched = [
            group for group in texts if any(_overlap(region.bbox, one.bbox) > 0 for one in group)
        ]
        texts = [group for group in texts if group not in touched]
        texts.append([*(one for group in touched for one in group), region])
    for group in texts:
        box = union([region.bbox for region in group])
        lines = [run for run in runs if run.horizontal and contains(box, run.box)]
        columns = [round_out(union([run.box for run in column])) for column in _columns(lines)]
        found += [Region(column, "text") for column in columns] or group
    return found


def _split_entries(region: Region, runs: Sequence[Run]) -> list[Region]:
    """The region; columns of a list that each begin with a bullet or number are one region each."""
    lines = [run for run in runs if run.horizontal and contains(region.bbox, run.box)]
    columns = _stand_apart(lines, 0.0)
    firsts = [line_text(visual_lines(column)[0]) for column in columns]
    if len(lines) == len(columns) or not all(" " in line and opens_item(line) for line in firsts):
        return [region]
    return [replace(region, bbox=round_out(union([run.box for run in held]))) for held in columns]


def _columns(lines: Sequence[Run]) -> list[list[Run]]:
    """The lines of each column, none where there are no two of prose and none written as such."""
    columns = _stand_apart(lines, 0.0)
    if len(columns) > 1 and all(map(_is_prose, columns)):
        return columns
    columns = _stand_apart(lines, usual_size((run.size, len(run.chars)) for run in lines))
    return columns if len(columns) > 1 and _are_written_apart(columns, lines) else []


def _stand_apart(lines: Sequence[Run], gap: float) -> list[list[Run]]:
    columns: list[list[Run]] = []
    reached = 0.0
    for run in sorted(lines, key=lambda run: run.box[0]):
        if not columns or run.box[0] > reached + gap:
            columns.append([])
        columns[-1].append(run)
        reached = max(reached, run.box[2])
    return columns


def _are_written_apart(columns: Sequence[Sequence[Run]], lines: Sequence[Run]) -> bool:
    """True where the file holds one column after the other, as the entries of an index or two
    addresses, and none of them says what stands beside it or has figures for it.
    """
    column_of = {id(run): number for number, column in enumerate(columns) for run in column}
    changes = sum(column_of[id(one)] != column_of[id(other)] for one, other in pairwise(lines))
    return (
        changes < len(columns)
        and all(len({round(run.box[3]) for run in column}) > 1 for column in columns)
        and not any(sum(map(_tells_of_row, column)) > len(column) / 2 for column in columns)
        and not _are_pairs(columns)
    )


def _tells_of_row(run: Run) -> bool:
    """True for a label with a colon, a price, a date or another figure."""
    figures, words = sum(map(str.isdigit, run.text)), sum(map(str.isalpha, run.text))
    return run.text.rstrip().endswith((":", "：")) or figures >= max(words, 1)


def _are_pairs(columns: Sequence[Sequence[Run]]) -> bool:
    """True for a few lines with one beside each, as labels and what was filled in, which a form
    holds behind all labels.
    """
    if len(columns) != 2 or not len(columns[0]) == len(columns[1]) <= _MOST_PAIRS:
        return False
    first, second = (sorted(column, key=lambda run: run.box[3]) for column in columns)
    return all(
        abs(one.box[3] - other.box[3]) < one.size / 2
        for one, other in zip(first, second, strict=True)
    )


def _is_prose(lines: Sequence[Run]) -> bool:
    return (
        len({round(run.box[3]) for run in lines}) >= _COLUMN_LINES
        and median(run.box[2] - run.box[0] for run in lines) > _COLUMN_EMS * lines[0].size
    )


def drop_backgrounds(regions: Sequence[Region], runs: Sequence[Run]) -> list[Region]:
    """The regions without images behind a paragraph, which would mix columns."""
    said = [
        "".join(run.text for run in group)
        for group in assign_runs(runs, [region.bbox for region in regions])[0]
    ]
    texts = [
        region.bbox
        for region, text in zip(regions, said, strict=True)
        if region.label in ("text", "list-item") and len(letters(text)) >= _PARAGRAPH
    ]
    return [
        region
        for region in regions
        if region.label != "picture" or not any(contains(region.bbox, text) for text in texts)
    ]


def complete_regions(regions: Sequence[Region], runs: Sequence[Run]) -> list[Region]:
    """The regions grown over words they cut, and new ones around lines outside of all."""
    boxes = [region.bbox for region in regions]
    order = owner_order(boxes)
    grown = list(boxes)
    loose: list[Run] = []
    for run in runs:
        near = near_boxes(run.box, boxes, order)
        if near and contains(boxes[near[0]], run.box):
            continue  # it holds the whole line: nothing grows
        words = _words(run)
        owners = [_word_owner(word, boxes, near) for word in words]
        held = [position for position, owner in enumerate(owners) if owner >= 0]
        for position, (word, owner) in enumerate(zip(words, owners, strict=True)):
            box = word.box
            if owner < 0 and held:
                neighbour = min(held, key=lambda other: abs(other - position))
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
        Region(round_out(box), "text") for box in _clusters(loose, [region.bbox for region in kept])
    ]


def _words(run: Run) -> list[Run]:
    words = groupby(run.chars, lambda char: char.text.isspace())
    return [run._replace(chars=tuple(word)) for blank, word in words if not blank]


def _word_owner(word: Run, boxes: Sequence[Box], order: Sequence[int]) -> int:
    return Counter(owner_of(char, boxes, order) for char in word.chars).most_common(1)[0][0]


def _clusters(words: Sequence[Run], others: Sequence[Box]) -> list[Box]:
    """Rectangles around loose words of a text block that stay clear of the other regions."""
    clusters: list[tuple[int, Box]] = []
    for word in words:
        box = word.box
        if clusters and clusters[-1][0] == word.block:
            joined = union([clusters[-1][1], box])
            if not any(_overlap(joined, other) > 0 for other in others):
                clusters[-1] = (word.block, joined)
                continue
            same_line = min(clusters[-1][1][3], box[3]) - max(clusters[-1][1][1], box[1]) > 0.5 * (
                box[3] - box[1]
            )
            if same_line and not any(
                _overlap(joined, other)
                > _overlap(clusters[-1][1], other) + _overlap(box, other) + 1
                for other in others
            ):
                clusters[-1] = (word.block, joined)
                continue
        clusters.append((word.block, box))
    return [box for _, box in clusters]


def _overlap(one: Box, other: Box) -> float:
    return area(
        (max(one[0], other[0]), max(one[1], other[1]), min(one[2], other[2]), min(one[3], other[3]))
    )


def split_texts(regions: Sequence[Region], runs: Sequence[Run]) -> list[Region]:
    """The regions; where the print shows that a text begins anew, it is a region of its own: below
    a line in much larger print, which is a heading, as on slides, and, in text, at a wider gap, the
    mark of an entry, or a label with a colon below another or a line with room for more.
    """
    found: list[Region] = []
    for region, owned in zip(
        regions, assign_runs(runs, [region.bbox for region in regions])[0], strict=True
    ):
        lines = visual_lines(owned) if region.label in _PARTED else []
        if (
            not lines
            or not all(run.horizontal for run in owned)
            or (region.label == "table" and len(lines[0]) > 1)
        ):
            found.append(region)
            continue
        starts = [0, *_beginnings(lines, region), len(lines)]
        boxes = [
            union([run.box for line in lines[start:end] for run in line])
            for start, end in pairwise(starts)
        ]
        # each ends above the next: long letters may reach down into it
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


def _beginnings(lines: Sequence[Sequence[Run]], region: Region) -> list[int]:
    """The lines behind the first that begin a text of their own."""
    boxes = [union([run.box for run in line]) for line in lines]
    gaps = [below[1] - above[3] for above, below in pairwise(boxes)]
    usual = max(0.0, *sorted(gaps)[: (len(gaps) + 1) // 2]) if gaps else 0.0
    full = region.bbox[2] - _EARLY * (region.bbox[2] - region.bbox[0])
    found = []
    for at, gap in enumerate(gaps, 1):
        above, line = lines[at - 1 : at + 1]
        text, before, size = line_text(line), line_text(above), above[0].size
        short = boxes[at - 1][2] < full
        anew = (
            (before.endswith(_ENDS) or short)
            and not text[:1].islower()
            and (gap > usual + _WIDER * size or opens_item(text))
        ) or (field_label(text) and not line[0].mono and (short or field_label(before)))
        heads = _is_larger(above, line) and (region.label != "table" or at == 1)
        if gap > -size / 4 and (heads or (region.label == "text" and anew)):
            found.append(at)
    return found


def _is_larger(one: Sequence[Run], other: Sequence[Run]) -> bool:
    """True for a line in much larger print than another, neither of them a letter."""
    return min(run.size for run in one) >= _TITLE * max(run.size for run in other) and all(
        len(letters(line_text(line))) > 1 for line in (one, other)
    )


def read_columns(
    regions: Sequence[Region], runs: Sequence[Run], *, leftwards: bool = False
) -> list[list[Region]]:
    """The regions in parts that are read one after the other: a column of prose, or what reaches
    over the columns above and below it. One part where there are no columns of prose.

    `order_regions` alone reads a heading, or the end of a column, that has nothing beside it, as
    if it reached over all columns.
    """
    body = sorted(
        (region for region in regions if region.label not in _MARGINS), key=lambda r: r.bbox[1]
    )
    gutters = _gutters(body, runs)
    if not gutters:
        return [list(regions)]
    columns = [bisect_right(gutters, (r.bbox[0] + r.bbox[2]) / 2) for r in body]
    first = len(gutters) if leftwards else 0
    parts: list[list[Region]] = [[r for r in regions if r.label == "page-header"], []]
    band: list[list[Region]] = [[] for _ in range(len(gutters) + 1)]
    for at, (region, column) in enumerate(zip(body, columns, strict=True)):
        if not (
            _crosses(region, gutters)
            or (
                column == first
                and region.label == "section-header"
                and _heads_columns(region, band, body[at + 1 :], gutters)
            )
        ):
            band[column].append(region)
            continue
        if any(band):
            parts += [*(reversed(band) if leftwards else band), []]
            band = [[] for _ in band]
        parts[-1].append(region)
    parts += [
        *(reversed(band) if leftwards else band),
        [r for r in regions if r.label == "page-footer"],
    ]
    return [part for part in parts if part]


def _gutters(body: Sequence[Region], runs: Sequence[Run]) -> list[float]:
    """The middles of the gaps between columns of prose that are about as wide; [] without any."""
    owned = assign_runs(runs, [region.bbox for region in body])[0]
    texts = [
        (region.bbox, lines)
        for region, lines in zip(body, owned, strict=True)
        if region.label in ("text", "list-item") and lines
    ]
    texts.sort(key=lambda item: item[0][0] - item[0][2])
    whole = union([box for box, _ in texts]) if texts else (0.0, 0.0, 0.0, 0.0)
    for wider, (widest, _) in enumerate(texts):
        if widest[2] - widest[0] < (whole[2] - whole[0]) / _MOST_COLUMNS:
            break
        columns: list[list[tuple[Box, list[Run]]]] = []
        reached = 0.0
        for box, lines in sorted(texts[wider:], key=lambda item: item[0][0]):
            if not columns or box[0] - reached > _GUTTER:
                columns.append([])
            columns[-1].append((box, lines))
            reached = max(reached, box[2])
        if len(columns) > 1:
            edges = [union([box for box, _ in column]) for column in columns]
            widths = [right - left for left, _, right, _ in edges]
            prose = all(_is_prose([run for _, lines in c for run in lines]) for c in columns)
            if not prose or min(widths) <= _ALIKE * max(widths):
                break
            return [(one[2] + other[0]) / 2 for one, other in pairwise(edges)]
    return []


def _crosses(region: Region, gutters: Sequence[float]) -> bool:
    left, _, right, _ = region.bbox
    return any(left + _GUTTER < gutter < right - _GUTTER for gutter in gutters)


def _heads_columns(
    heading: Region,
    band: Sequence[Sequence[Region]],
    below: Sequence[Region],
    gutters: Sequence[float],
) -> bool:
    """Whether a heading in the first column is one of all columns: none has anything beside it, and
    all go on below it at the same height, or what reaches over them does.
    """
    _, top, _, bottom = heading.bbox
    if not all(band) or any(region.bbox[3] > top for column in band for region in column):
        return False
    tops: dict[int, float] = {}
    for region in below:
        if _crosses(region, gutters):
            return len(tops) <= 1
        tops.setdefault(
            bisect_right(gutters, (region.bbox[0] + region.bbox[2]) / 2), region.bbox[1]
        )
    return (
        len(tops) == len(band)
        and min(tops.values()) >= bottom
        and max(tops.values()) - min(tops.values()) < (bottom - top) / 2
    )


def order_regions(
    page: Any,
    blocks: Sequence[dict[str, Any]],
    regions: Sequence[Region],
    *,
    leftwards: bool = False,
) -> list[Region]:
    """The regions in reading order; nested ones are folded into the one around them.

    `leftwards`: columns are read from the rightmost on.
    """
    from pymupdf4llm.helpers import utils

    def mirror(box: Sequence[float]) -> Box:
        return (-box[2], box[1], -box[0], box[3]) if leftwards else (box[0], box[1], box[2], box[3])

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
    """The regions; small print that splits a sentence comes after its second half.

    The foot of a column holds such print, such as addresses and licences. The next text of the same
    size must go on in lower case, or nothing moves.
    """
    said = [
        (
            "".join(run.text for run in group).strip(),
            usual_size((run.size, len(run.chars)) for run in group),
        )
        for group in assign_runs(runs, [r.bbox for r in regions])[0]
    ]
    order = list(range(len(regions)))
    for at in range(len(order) - 2):
        text, size = said[order[at]]
        if (
            regions[order[at]].label != "text"
            or not text
            or not (text[-1].isalpha() or text[-1] in ",-")
        ):
            continue
        for behind in range(at + 1, len(order)):
            (other, other_size), label = said[order[behind]], regions[order[behind]].label
            if other and (other_size > size - 0.5 or label in ("table", "page-footer")):
                if label == "text" and abs(other_size - size) < 0.5 and other[0].islower():
                    order[at + 1 : behind + 1] = [order[behind], *order[at + 1 : behind]]
                break
    return [regions[place] for place in order]
