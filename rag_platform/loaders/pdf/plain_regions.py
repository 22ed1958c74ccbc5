"""Regions of a PDF page without a layout model: the engine's text blocks, split where the size, the
weight or a list marker shows that something new begins.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import chain, pairwise

from rag_platform.loaders.numerals import without_page_number
from rag_platform.loaders.pdf.parallel_fields import find_parallel_fields
from rag_platform.loaders.pdf.printed import bidi
from rag_platform.loaders.pdf.printed.lines import is_cjk, opens_bullet, opens_item
from rag_platform.loaders.pdf.printed.runs import Run, bounding_box, contains, round_out
from rag_platform.loaders.pdf.regions import (
    LONG_LINE_EMS,
    Region,
    find_line_numbers,
    find_watermarks,
)
from rag_platform.loaders.pdf.split_tables import join_table_parts
from rag_platform.text.sentences import field_label

_MAX_HEADING_LINES = 3
_MID_SENTENCE = (",", "-", "\u2010", "\u00ad", "，", "、")
# what begins entries, and lines within sentences: `S. 65`, `A. Meyer`, `3. Mai`, `– that is`
_AMBIGUOUS = re.compile(r"(?:[a-zA-Z]|\d{1,3})\.(?:\s|$)|[–—-](?:\s|$)")
_BEFORE_LAST = re.compile(r";\s\w+$")  # `; and` before the last entry of an enumeration
_INITIAL = 1.8  # font size of an initial to that of its paragraph, at least
_CLAUSE = re.compile(r"第\s?[一二三四五六七八九十百零〇\d]+\s?[条條章节節编編]")
_CLAUSE_ENDS = tuple("。；：！？")
# share by which font sizes of one text differ: Japanese TeX sets kana smaller than Latin letters
_SAME_SIZE = 0.08
_FREE_EMS = 3  # right of a line that ends its paragraph
_DOUBLE_SPACING = 1.5  # ems between double-spaced lines
_CELL_GAP = 1.5  # ems between the cells of a row, or a running header and its page number
_HEADER_GAP = 1.0  # ems between a running header and the text, at least
_HANGING = (0.5, 4.0)  # ems by which all lines of an entry but the first are indented
_OPENING = "（“‘《〈「『【〔"  # marks whose empty half, half an em, may reach into the margin


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
    for run in _detach_page_numbers(_join_touching(runs)):
        blocks.setdefault(run.block, []).append(run)
    pieces = [piece for block in blocks.values() for piece in _split(_group_lines(block), body)]
    return [
        Region(round_out(bounding_box(group)), label)
        for label, group in join_table_parts(_join_pieces(_join_initials(pieces)))
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


def _join_touching(runs: Sequence[Run]) -> list[Run]:
    """The runs, with blocks joined that an underlined or drawn character splits in a line."""
    joined: dict[int, int] = {}
    result: list[Run] = []
    for run in runs:
        above = result[-1] if result else run
        same = run.horizontal and round(run.size) == round(above.size)
        touching = same and abs(run.box[0] - above.box[2]) < 0.5 * run.size
        if run.block not in joined:
            level = min(run.box[3], above.box[3]) - max(run.box[1], above.box[1])
            joined[run.block] = (
                above.block if touching and level > 0.5 * (run.box[3] - run.box[1]) else run.block
            )
        block = joined[run.block]
        result.append(run if run.block == block else run._replace(block=block))
    return result


def _detach_page_numbers(runs: Sequence[Run]) -> list[Run]:
    """The runs, with the page number beside the words of a running header or footer in a block of
    its own: of the first or last line of a page, apart from the text and not bold like a heading.
    """
    level = [run for run in runs if run.horizontal]
    numbers: set[int] = set()
    for edge in (min, max) if level else ():
        outer = edge(level, key=lambda run: run.box[1] + run.box[3])
        row = sorted(_line_of(outer, level)[1:], key=lambda run: run.box[0])
        _, top, _, bottom = bounding_box([outer, *row])
        row_ids = set(map(id, row))
        if len(row) < 2 or any(
            max(run.box[1] - bottom, top - run.box[3]) < _HEADER_GAP * outer.size
            for run in level
            if id(run) not in row_ids
        ):
            continue
        numbers |= {
            id(run)
            for run, beside in ((row[0], row[1]), (row[-1], row[-2]))
            if run.block == beside.block
            and not run.bold
            and max(run.box[0] - beside.box[2], beside.box[0] - run.box[2]) > _CELL_GAP * run.size
            and without_page_number(beside.text)
            and not without_page_number(run.text)
            and not run.text.rstrip().endswith((".", ")"))  # a heading or an equation
        }
    after = max((run.block for run in runs), default=0) + 1
    return [
        run._replace(block=after + at) if id(run) in numbers else run for at, run in enumerate(runs)
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
            if len(group) < 2 or initial.size <= _INITIAL * group[0].size:
                continue
            left, top, _, bottom = bounding_box(group)
            beside = (
                x0 <= left < x1 + group[0].size
                and y0 - group[0].size < top < y1 < bottom + group[0].size
            )
            if beside:
                group.insert(0, initial)
                result.remove(piece)
                break
    return result


def _join_pieces(pieces: Sequence[tuple[str, list[Run]]]) -> list[tuple[str, list[Run]]]:
    """The pieces, with those of one heading or paragraph set in widely spaced lines joined."""
    result: list[tuple[str, list[Run]]] = []
    for label, group in pieces:
        if (
            result
            and label in ("text", "list-item")
            and result[-1][0] in ("text", "list-item")
            and _continues(result[-1][1], group, entry=result[-1][0] == "list-item")
        ):
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


def _continues(above: Sequence[Run], below: Sequence[Run], *, entry: bool) -> bool:
    """True if a paragraph, or a list's `entry`, goes on: its last line is full, and the next one is
    close, aligned and of the same size.
    """
    last, first = _line_of(above[-1], above[-20:]), _line_of(below[0], below[:20])
    box = bounding_box(last)
    here = bounding_box(first)
    size = above[-1].size
    text = below[0].text.strip()
    same_size = round(size) == round(below[0].size)
    if is_cjk(text[0]) or is_cjk(above[-1].text.strip()[-1]):
        same_size |= abs(size - below[0].size) < _SAME_SIZE * size
    if not same_size or any(not run.horizontal for run in (above[-1], below[0])):
        return False
    ends = above[-1].text.rstrip()[-1:]
    unfinished = ends.isalpha() or ends in _MID_SENTENCE
    # of code, only the words in which a sentence ends continue a paragraph
    stops = below[-1].text.rstrip().endswith(".") and not all(run.mono for run in last)
    if not (unfinished and stops and not is_cjk(ends)) if below[0].mono else above[-1].mono:
        return False
    spacing = _DOUBLE_SPACING if text[:1].islower() else 1  # contracts are often double-spaced
    if not (here[1] > box[1] and here[1] - box[3] < spacing * size):
        return False
    left, right = min(run.box[0] for run in above), max(run.box[2] for run in (*above, *below))
    # only the first line of a paragraph may be indented, or all but the first of an entry
    lines = _group_lines(above)
    starts = [min(run.box[0] for run in line) for line in lines]
    indent = (here[0] - starts[0]) / size
    hangs = len(starts) > 1 and min(starts[1:]) > starts[0] + _HANGING[0] * size
    flush = not entry and left - 2.5 * size < here[0] < left + 0.5 * size
    indent += 0.5 * (entry and text[0] in _OPENING)
    continued = text[0].islower() and not (ends.isdigit() or ends in _CLAUSE_ENDS)
    # MuPDF cuts an entry after its first line, or after each line
    hanging = (
        _HANGING[0] < indent < _HANGING[1]
        and (unfinished or (continued and "=" not in text))
        and (len(starts) == 1 or abs(here[0] - starts[-1]) < size)
    )
    aligned = hanging or (flush and not (hangs and indent < _HANGING[0]))
    # a line is full if the next word did not fit
    word = "" if is_cjk(text[0]) else text.split(maxsplit=1)[0]
    width = max(1.5 * size, (len(word) + 0.5) * (here[2] - here[0]) / len(text))
    full = right - box[2] < width and box[2] - box[0] > LONG_LINE_EMS * size
    before, line = (
        " ".join(run.text.strip() for run in runs) for runs in (lines[-1], _group_lines(below)[0])
    )
    cut = unfinished and not (entry or is_cjk(ends) or _BEFORE_LAST.search(before))
    opens = opens_item(line) and not (cut and _AMBIGUOUS.match(line))
    fields = field_label(text) and field_label(before)
    starts_text = opens or _opens_clause(text, above) or fields
    return aligned and full and not starts_text


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
        item = opens_bullet(text) and text[0] not in "–—"
        if pieces and pieces[-1][0] == "list-item":
            item |= _hangs(line, pieces[-1][1])
        if large and len(text) < 160 and not _has_cells(line) and not item:
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


def _hangs(line: Sequence[Run], entry: Sequence[Run]) -> bool:
    """True for a line in the style of a list entry that is indented below its marker."""
    size, bold = max(run.size for run in line), all(run.bold for run in line)
    indent = line[0].box[0] - entry[0].box[0]
    return indent > _HANGING[0] * size and size < 1.1 * entry[-1].size and bold == entry[-1].bold


def _has_cells(line: Sequence[Run]) -> bool:
    """True for the header of a table: pieces far apart, the first of which is no number."""
    pieces = sorted(line, key=lambda run: run.box[0])
    far = any(
        right.box[0] - left.box[2] > _CELL_GAP * right.size for left, right in pairwise(pieces)
    )
    return far and not re.fullmatch(
        r"[\divxIVX.()]{1,8}|第.{1,4}[章节節编]", pieces[0].text.strip()
    )


def _is_body(group: Sequence[Run]) -> bool:
    """True for a paragraph set in bold or large letters."""
    text = " ".join(run.text.strip() for run in group)
    long = len(_group_lines(group)) > _MAX_HEADING_LINES or len(text) > 250
    return long or not re.search(r"\w", text)
