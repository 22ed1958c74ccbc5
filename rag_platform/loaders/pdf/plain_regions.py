"""Regions of a PDF page without a layout model: the engine's text blocks, split where the size, the
weight or a list marker shows that something new begins.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import chain, pairwise

from rag_platform.loaders.pdf.parallel_fields import find_parallel_fields
from rag_platform.loaders.pdf.printed import bidi
from rag_platform.loaders.pdf.printed.lines import is_cjk, opens_item
from rag_platform.loaders.pdf.printed.runs import Run, bounding_box, contains, round_out
from rag_platform.loaders.pdf.regions import (
    LONG_LINE_EMS,
    Region,
    find_line_numbers,
    find_watermarks,
)
from rag_platform.text.sentences import field_label

_MAX_HEADING_LINES = 3
_INITIAL = 1.8  # font size of an initial to that of its paragraph, at least
_CLAUSE = re.compile(r"第\s?[一二三四五六七八九十百零〇\d]+\s?[条條章节節编編]")
_CLAUSE_ENDS = tuple("。；：！？")
_FREE_EMS = 3  # right of a line that ends its paragraph
_DOUBLE_SPACING = 1.5  # ems between double-spaced lines


def plain_regions(runs: Sequence[Run]) -> list[Region]:
    """One region per paragraph, list entry, possible heading and piece of code, in order.

    Labels are the layout model's: text, list-item, section-header (here only a candidate) and
    page-footer for a column of line numbers.
    """
    if numbers := find_line_numbers(runs):
        column = Region(round_out(bounding_box(numbers)), "page-footer")
        return [*plain_regions(_without(runs, numbers)), column]
    if watermarks := find_watermarks(runs):
        return plain_regions(_without(runs, watermarks)) + [
            Region(round_out(run.box), "text") for run in watermarks
        ]
    if bidi.is_vertical(runs):
        horizontal = [run for run in runs if run.horizontal]
        return plain_regions(horizontal) + [
            Region(round_out(bounding_box(tier)), "text") for tier in bidi.group_tiers(runs)
        ]
    for columns in find_parallel_fields(runs):
        runs = _order_columns(columns, runs)
    weights: Counter[float] = Counter()
    for run in runs:
        weights[round(run.size)] += len(run.chars)
    body = weights.most_common(1)[0][0] if weights else 0
    blocks: dict[int, list[Run]] = {}
    for run in runs:
        blocks.setdefault(run.block, []).append(run)
    pieces = [piece for block in blocks.values() for piece in _split(_group_lines(block), body)]
    return [
        Region(round_out(bounding_box(group)), label)
        for label, group in _join_pieces(_join_initials(pieces))
    ]


def _without(runs: Sequence[Run], removed: Sequence[Run]) -> list[Run]:
    ids = set(map(id, removed))
    return [run for run in runs if id(run) not in ids]


def _order_columns(columns: Sequence[Sequence[Run]], runs: Sequence[Run]) -> list[Run]:
    """The runs of a page, with those in the columns' rectangle column by column, a block each."""
    box = bounding_box(chain(*columns))
    inside = [run.horizontal and contains(box, run.box) for run in runs]
    at, block = inside.index(True), max(run.block for run in runs) + 1
    return [
        *runs[:at],
        *(run._replace(block=block + k) for k, column in enumerate(columns) for run in column),
        *(run for run, within in zip(runs[at:], inside[at:], strict=True) if not within),
    ]


def _join_initials(pieces: Sequence[tuple[str, list[Run]]]) -> list[tuple[str, list[Run]]]:
    """The pieces, with each large initial joined to its paragraph."""
    result = list(pieces)
    for piece in pieces:
        initial = piece[1][0]
        if len(piece[1]) > 1 or len(text := initial.text.strip()) > 1 or not text.isalpha():
            continue
        x0, y0, x1, y1 = initial.box
        for _, group in result:
            left, top, _, bottom = bounding_box(group)
            beside = (
                x0 <= left < x1 + group[0].size
                and y0 - group[0].size < top < y1 < bottom + group[0].size
            )
            if beside and initial.size > _INITIAL * group[0].size and len(group) > 1:
                group.insert(0, initial)
                result.remove(piece)
                break
    return result


def _join_pieces(pieces: Sequence[tuple[str, list[Run]]]) -> list[tuple[str, list[Run]]]:
    """The pieces, with those of one heading or paragraph set in widely spaced lines joined."""
    result: list[tuple[str, list[Run]]] = []
    for label, group in pieces:
        if result and label == result[-1][0] == "text" and _continues(result[-1][1], group):
            result[-1][1].extend(group)
            continue
        if (
            result
            and label == result[-1][0] == "section-header"
            and not opens_item(group[0].text.strip())
        ):
            above, here = result[-1][1], bounding_box(group)
            box, size = bounding_box(above), above[-1].size
            near = (
                here[1] - box[1] > 0
                and here[1] - box[3] < 0.6 * size
                and here[0] < box[2]
                and box[0] < here[2]
            )
            same = round(size) == round(group[0].size) and above[-1].bold == group[0].bold
            if near and same and not _is_body([*above, *group]):
                above.extend(group)
                continue
        result.append((label, group))
    return result


def _continues(above: Sequence[Run], below: Sequence[Run]) -> bool:
    """True if a paragraph goes on: its last line is full, and the next one is close, aligned and of
    the same size.
    """
    last, first = _line_of(above[-1], above[-20:]), _line_of(below[0], below[:20])
    box = bounding_box(last)
    here = bounding_box(first)
    size = above[-1].size
    if round(size) != round(below[0].size) or any(
        run.mono or not run.horizontal for run in (above[-1], below[0])
    ):
        return False
    left, right = min(run.box[0] for run in above), max(run.box[2] for run in (*above, *below))
    text = below[0].text.strip()
    spacing = _DOUBLE_SPACING if text[:1].islower() else 1  # contracts are often double-spaced
    close = here[1] > box[1] and here[1] - box[3] < spacing * size
    # only the first line of a paragraph may be indented
    aligned = left - 2.5 * size < here[0] < left + 0.5 * size
    # a line is full if the next word did not fit
    word = "" if is_cjk(text[0]) else text.split(maxsplit=1)[0]
    width = max(1.5 * size, (len(word) + 0.5) * (here[2] - here[0]) / len(text))
    full = right - box[2] < width and box[2] - box[0] > LONG_LINE_EMS * size
    fields = field_label(text) and field_label(" ".join(run.text.strip() for run in last))
    starts_text = opens_item(text) or _opens_clause(text, above) or fields
    return close and aligned and full and not starts_text


def _opens_clause(text: str, above: Sequence[Run]) -> bool:
    """True for an article of a Chinese law or contract that follows the end of a sentence."""
    return _CLAUSE.match(text) is not None and above[-1].text.rstrip().endswith(_CLAUSE_ENDS)


def _is_short(above: Sequence[Run], right: float) -> bool:
    """True if the last line of a Chinese text is not full, such as `一、总则` above a text."""
    last = above[-1]
    return is_cjk(above[0].text.strip()[0]) and right - last.box[2] > _FREE_EMS * last.size


def _line_of(run: Run, runs: Sequence[Run]) -> list[Run]:
    """The run and those beside it; a run without height overlaps none, not even itself."""
    return [
        run,
        *(
            other
            for other in runs
            if min(run.box[3], other.box[3]) - max(run.box[1], other.box[1]) > 0
        ),
    ]


def _group_lines(block: Sequence[Run]) -> list[list[Run]]:
    """The runs of a block, grouped by printed line, in content order."""
    lines: list[list[Run]] = []
    core = (0.0, 0.0)
    for run in block:
        _, top, _, bottom = run.box
        if (
            lines
            and run.horizontal
            and min(core[1], bottom) - max(core[0], top)
            > 0.5 * min(core[1] - core[0], bottom - top)
        ):
            lines[-1].append(run)
            core = (min(core[0], top), max(core[1], bottom))
        else:
            lines.append([run])
            core = (top, bottom)
    return lines


def _split(lines: Sequence[Sequence[Run]], body: float) -> list[tuple[str, list[Run]]]:
    pieces: list[tuple[str, list[Run]]] = []
    right = max(run.box[2] for line in lines for run in line)
    style: object = None  # of the last piece; a line of equal style continues it
    above, free = "", 0.0  # text of the previous line, and the width it leaves free
    tabular = any(len(line) > 1 and not re.search(r"[^\W\d_]", line[-1].text) for line in lines)
    for line in lines:
        text = " ".join(run.text.strip() for run in line)
        size = max(run.size for run in line)
        bold = all(run.bold for run in line)
        mono = all(run.mono for run in line)
        large = size > 1.1 * body or (bold and size > 0.95 * body)
        label = "text"
        found: object = (label, mono)
        if large and len(text) < 160 and not _has_cells(line):
            label = "section-header"
            found = (label, round(size), bold)
        elif opens_item(text) and not mono:
            label, found = "list-item", object()
        elif (
            field_label(text)
            and not (mono or tabular)
            and (field_label(above) or free > _FREE_EMS * size)
        ):
            style = None
        elif pieces and pieces[-1][0] == "list-item" and not mono:
            if not _is_short(pieces[-1][1], right):
                pieces[-1][1].extend(line)
                continue
            style = None
        elif pieces and _opens_clause(text, pieces[-1][1]):
            style = None
        if pieces and found == style:
            pieces[-1][1].extend(line)
        else:
            pieces.append((label, list(line)))
        style, above, free = found, text, right - line[-1].box[2]
    return [
        ("text" if label == "section-header" and _is_body(group) else label, group)
        for label, group in pieces
    ]


def _has_cells(line: Sequence[Run]) -> bool:
    """True for the header of a table: pieces far apart, the first of which is no number."""
    pieces = sorted(line, key=lambda run: run.box[0])
    far = any(right.box[0] - left.box[2] > 1.5 * right.size for left, right in pairwise(pieces))
    return far and not re.fullmatch(
        r"[\divxIVX.()]{1,8}|第.{1,4}[章节節编]", pieces[0].text.strip()
    )


def _is_body(group: Sequence[Run]) -> bool:
    """True for a paragraph set in bold or large letters."""
    text = " ".join(run.text.strip() for run in group)
    long = len(_group_lines(group)) > _MAX_HEADING_LINES or len(text) > 250
    return long or not re.search(r"\w", text)
