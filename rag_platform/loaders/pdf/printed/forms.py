"""Form fields of a PDF page: comb fields (a cell per character), passwords, and check boxes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from rag_platform.loaders.pdf.printed.runs import Char, Run

_PASSWORD, _COMB = 1 << 13, 1 << 24  # field flags
_MIN_MARK, _MIN_BOX, _MAX_BOX = 1.2, 6.0, 18.0  # points; a mark smaller than a box is a bullet
_MAX_DISTANCE = 20  # ems from a label to the box on its right
_MAX_MARKS = 200  # per page; a page with more is a drawing
_SLACK = 1.5  # points by which the sides of equal boxes may differ
_ZOOM, _MARGIN = 4, (-1, -1, 1, 1)  # pixels per point; points
_CONTRAST, _LIGHT = 40, 200  # of 255: contrast of a line, brightness of the background


def write_fields(page: Any, runs: Sequence[Run]) -> list[Run]:
    """The runs, with each comb field as one run without spaces between adjacent cells but with one
    per group of empty cells, and with asterisks for the characters of a password.
    """
    import pymupdf

    written = list(runs)
    for field in page.widgets(types=[pymupdf.PDF_WIDGET_TYPE_TEXT]):
        cells = field.text_maxlen if field.field_flags & _COMB else 0
        if cells < 2 and not field.field_flags & _PASSWORD:
            continue
        inside = [run for run in written if pymupdf.Rect(run.box) in field.rect and run.horizontal]
        if not inside:
            continue
        if field.field_flags & _PASSWORD:
            value = [
                run._replace(chars=tuple(char._replace(text="*") for char in run.chars))
                for run in inside
            ]
        else:
            value = [_write_cells(inside, field.rect.width / cells)]
        at = written.index(inside[0])
        replaced = set(map(id, inside))
        written = [run for run in written if id(run) not in replaced]
        written[at:at] = value
    return written


def _write_cells(runs: Sequence[Run], width: float) -> Run:
    """The characters as one run, each extended to the next one so that no gap separates them."""
    chars = [char for run in runs for char in run.chars if not char.text.isspace()]
    written: list[Char] = []
    for char, after in pairwise(chars):
        written.append(char._replace(x1=after.x0))
        if (after.x0 + after.x1 - char.x0 - char.x1) / 2 > 1.5 * width:
            written.append(Char(" ", after.x0, char.y0, after.x0, char.y1))
    return runs[0]._replace(chars=(*written, *chars[-1:]))


def write_marks(page: Any, runs: Sequence[Run], blocks: Sequence[dict[str, Any]]) -> list[Run]:
    """The runs, with drawn boxes as ☑ or ☐ before the text on their right, or after the text on the
    left of a column of boxes, and drawn bullets as • before their text. A box counts as ticked if
    something is in it and another box of its size is empty.
    """
    import pymupdf

    sides = [(item["bbox"], item["stroked"]) for item in blocks if item["type"] == 3]
    drawn = [
        pymupdf.Rect(box)
        for box, _ in sides
        if _MIN_MARK < box[2] - box[0] < _MAX_BOX
        and abs(box[2] - box[0] - box[3] + box[1]) < _SLACK
    ]
    if not 0 < len(drawn) < _MAX_MARKS:
        return list(runs)
    rings = {_centre(box) for box, stroked in sides if stroked}
    shown = None
    found: list[tuple[tuple[int, int], Any, str]] = []
    for box in drawn:
        near = [other for other in drawn if other.intersects(box + _MARGIN)]
        # not painted over by another box, and not a cell among others
        alone = near[0] is box and all((one & box).width > box.width / 2 for one in near)
        place = alone and (_find_label(box, runs) or _find_label_before(box, drawn, runs))
        if not place:
            continue
        if box.width > _MIN_BOX:
            shown = shown or page.get_displaylist()
            if (ticked := _is_ticked(shown, box)) is not None:
                found.append((place, box, "☑" if ticked else "☐"))
        elif place[1] == 0 and _centre(box) not in rings:  # not the dot of a radio button
            found.append((place, box, "•"))
    empty = [box.width for _, box, sign in found if sign == "☐"]
    places = [place for place, _, _ in found]
    written = list(runs)
    for (at, start), box, sign in sorted(
        found, reverse=True, key=lambda item: (item[0], item[1].x0)
    ):
        if sign == "•" or any(abs(box.width - width) < _SLACK for width in empty):
            if start < len(runs[at].chars):
                chars = _mark_before(written[at].chars, start, Char(sign, *box))
            else:
                alone = places.count((at, start)) == 1
                chars = _mark_behind(written[at].chars, start, Char(sign, *box), alone=alone)
            written[at] = written[at]._replace(chars=chars)
    return written


def _mark_before(chars: Sequence[Char], start: int, mark: Char) -> tuple[Char, ...]:
    space = Char(" ", mark.x1, mark.y0, chars[start].x0, mark.y1)
    return (*chars[:start], mark, space, *chars[start:])


def _mark_behind(chars: Sequence[Char], start: int, mark: Char, *, alone: bool) -> tuple[Char, ...]:
    """The characters with the mark; the only mark of a label is moved next to it."""
    x = chars[start - 1].x1
    if alone:
        mark = mark._replace(x0=x + _SLACK, x1=x + _SLACK + mark.x1 - mark.x0)
    return (*chars[:start], Char(" ", x, mark.y0, mark.x0, mark.y1), mark, *chars[start:])


def _centre(box: Any) -> tuple[int, int]:
    return round(box[0] + box[2]), round(box[1] + box[3])


def _find_label(box: Any, runs: Sequence[Run]) -> tuple[int, int] | None:
    """(index of the run, index in the run) of the text that begins right of a box."""
    for at, run in enumerate(runs):
        _, top, right, bottom = run.box
        if run.horizontal and right > box.x1 and top < (box.y0 + box.y1) / 2 < bottom:
            chars = [(i, char) for i, char in enumerate(run.chars) if not char.text.isspace()]
            before = [char.x1 for _, char in chars if char.x0 < box.x1 - _SLACK]
            start, first = (chars[len(before) :] or chars)[0]
            if (
                max(before, default=0.0) < box.x0 + _SLACK
                and -_SLACK <= first.x0 - box.x1 < 1.5 * run.size
                and first.text.isalpha()
            ):
                return at, start
    return None


def _find_label_before(
    box: Any, drawn: Sequence[Any], runs: Sequence[Run]
) -> tuple[int, int] | None:
    """(index of the run, its length) of the text left of a box, if the box is one of a column and
    has no text close on its right.
    """
    column = [other for other in drawn if abs(other.x0 - box.x0) < _SLACK]
    beside = [
        (at, run)
        for at, run in enumerate(runs)
        if run.horizontal and run.box[1] < (box.y0 + box.y1) / 2 < run.box[3]
    ]
    near = any(-_SLACK <= run.box[0] - box.x1 < 1.5 * run.size for _, run in beside)
    before = [(run.box[2], at) for at, run in beside if run.box[2] < box.x0 + _SLACK]
    if near or not before or len(column) < 2:
        return None
    right, at = max(before)
    return (at, len(runs[at].chars)) if box.x0 - right < _MAX_DISTANCE * runs[at].size else None


def _is_ticked(shown: Any, box: Any) -> bool | None:
    """Whether something is in a box; None for a shape without a frame, or filled with a colour."""
    import numpy as np
    import pymupdf

    drawn = shown.get_pixmap(pymupdf.Matrix(_ZOOM, _ZOOM), pymupdf.csGRAY, 0, box + _MARGIN)
    pixels = np.frombuffer(drawn.samples, np.uint8).reshape(drawn.height, drawn.stride)
    edge, middle = drawn.width // 5, drawn.width // 2
    across, down = pixels[middle], pixels[:, middle]
    sides = (across[:edge], across[-edge:], down[:edge], down[-edge:])
    inside = np.concatenate((across[edge:-edge], down[edge:-edge]))
    if min(map(np.ptp, sides)) < _CONTRAST:
        return None
    return True if np.ptp(inside) >= _CONTRAST else False if inside.min() >= _LIGHT else None
