"""Form fields of a PDF page: with a cell for each character, as for an IBAN, and for passwords."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from rag_platform.loaders.pdf.runs import Char, Run

_PASSWORD, _COMB = 1 << 13, 1 << 24  # of a field's flags


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
            value = [run._replace(chars=tuple(map(_mask, run.chars))) for run in inside]
        else:
            value = [_write_cells(inside, field.rect.width / cells)]
        at = written.index(inside[0])
        held = set(map(id, inside))
        written = [run for run in written if id(run) not in held]
        written[at:at] = value
    return written


def _mask(char: Char) -> Char:
    return char if char.text.isspace() else char._replace(text="*")


def _write_cells(runs: Sequence[Run], width: float) -> Run:
    """The characters of the runs as one."""
    chars = [char for run in runs for char in run.chars if not char.text.isspace()]
    written = chars[:1]
    for before, char in pairwise(chars):
        if (char.x0 + char.x1 - before.x0 - before.x1) / 2 > 1.5 * width:
            written.append(Char(" ", before.x1, before.y0, char.x0, before.y1))
        written.append(char)
    return runs[0]._replace(chars=tuple(written))
