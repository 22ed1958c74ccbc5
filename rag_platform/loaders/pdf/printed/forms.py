"""Forms of a PDF page: fields with a cell for each character, passwords, and boxes to tick."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from rag_platform.loaders.pdf.printed.runs import Char, Run

_PASSWORD, _COMB = 1 << 13, 1 << 24  # of a field's flags
_LEAST_MARK, _LEAST_BOX, _MOST_BOX = 1.2, 6.0, 18.0  # points; what is smaller is a bullet
_FURTHEST = 20  # em, from a label to the box right of it
_MOST_MARKS = 200  # of a page; one with more is a drawing
_SLACK = 1.5  # points by which the sides of equal boxes may differ
_LOOK, _AROUND = 4, (-1, -1, 1, 1)  # pixels a point, points
_CONTRAST, _LIGHT = 40, 200  # of 255: of a line, of what is written on


def write_fields(page: Any, runs: Sequence[Run]) -> list[Run]:
    """The runs; the characters of a field with cells are one run, with a space for each empty cell
    between them and none for the gaps from cell to cell, and those of a password are asterisks.
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
        held = set(map(id, inside))
        written = [run for run in written if id(run) not in held]
        written[at:at] = value
    return written


def _write_cells(runs: Sequence[Run], width: float) -> Run:
    """The characters of the runs as one, each as wide as it is to the next: no gap parts a word."""
    chars = [char for run in runs for char in run.chars if not char.text.isspace()]
    written: list[Char] = []
    for char, after in pairwise(chars):
        written.append(char._replace(x1=after.x0))
        if (after.x0 + after.x1 - char.x0 - char.x1) / 2 > 1.5 * width:
            written.append(Char(" ", after.x0, char.y0, after.x0, char.y1))
    return runs[0]._replace(chars=(*written, *chars[-1:]))


def write_marks(page: Any, runs: Sequence[Run], blocks: Sequence[dict[str, Any]]) -> list[Run]:
    """The runs; text right of a drawn box begins with ☑ or ☐, and of a drawn bullet with •; text
    left of boxes that stand below each other ends with it. A box is ticked where something is in it
    and another of its size is empty.
    """
    import pymupdf

    sides = [(item["bbox"], item["stroked"]) for item in blocks if item["type"] == 3]
    drawn = [
        pymupdf.Rect(box)
        for box, _ in sides
        if _LEAST_MARK < box[2] - box[0] < _MOST_BOX
        and abs(box[2] - box[0] - box[3] + box[1]) < _SLACK
    ]
    if not 0 < len(drawn) < _MOST_MARKS:
        return list(runs)
    rings = {_centre(box) for box, stroked in sides if stroked}
    shown = None
    found: list[tuple[tuple[int, int], Any, str]] = []
    for box in drawn:
        near = [other for other in drawn if other.intersects(box + _AROUND)]
        # else another is painted over it, or it is a cell among others
        alone = near[0] is box and all((one & box).width > box.width / 2 for one in near)
        place = alone and (_find_label(box, runs) or _find_label_before(box, drawn, runs))
        if not place:
            continue
        if box.width > _LEAST_BOX:
            shown = shown or page.get_displaylist()
            if (ticked := _is_ticked(shown, box)) is not None:
                found.append((place, box, "☑" if ticked else "☐"))
        elif place[1] == 0 and _centre(box) not in rings:  # else the point of a button
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
    """The characters; the only mark of a label stays with it, however far it is printed."""
    x = chars[start - 1].x1
    if alone:
        mark = mark._replace(x0=x + _SLACK, x1=x + _SLACK + mark.x1 - mark.x0)
    return (*chars[:start], Char(" ", x, mark.y0, mark.x0, mark.y1), mark, *chars[start:])


def _centre(box: Any) -> tuple[int, int]:
    return round(box[0] + box[2]), round(box[1] + box[3])


def _find_label(box: Any, runs: Sequence[Run]) -> tuple[int, int] | None:
    """The run, and the place in it, of the text that begins right of a box."""
    for at, run in enumerate(runs):
        _, top, right, bottom = run.box
        if run.horizontal and right > box.x1 and top < (box.y0 + box.y1) / 2 < bottom:
            seen = [(i, char) for i, char in enumerate(run.chars) if not char.text.isspace()]
            before = [char.x1 for _, char in seen if char.x0 < box.x1 - _SLACK]
            start, first = (seen[len(before) :] or seen)[0]
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
    """The run that ends left of a box with nothing near at its right, and the place behind its
    text, where boxes stand below each other.
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
    return (at, len(runs[at].chars)) if box.x0 - right < _FURTHEST * runs[at].size else None


def _is_ticked(shown: Any, box: Any) -> bool | None:
    """Whether something is in a box; None for what has no frame, or is filled with a colour."""
    import numpy as np
    import pymupdf

    drawn = shown.get_pixmap(pymupdf.Matrix(_LOOK, _LOOK), pymupdf.csGRAY, 0, box + _AROUND)
    pixels = np.frombuffer(drawn.samples, np.uint8).reshape(drawn.height, drawn.stride)
    edge, middle = drawn.width // 5, drawn.width // 2
    across, down = pixels[middle], pixels[:, middle]
    sides = (across[:edge], across[-edge:], down[:edge], down[-edge:])
    inside = np.concatenate((across[edge:-edge], down[edge:-edge]))
    if min(map(np.ptp, sides)) < _CONTRAST:
        return None
    return True if np.ptp(inside) >= _CONTRAST else False if inside.min() >= _LIGHT else None
