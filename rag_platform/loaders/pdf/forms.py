"""Form fields of a PDF page with a cell for each character, as for a postcode or an IBAN."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from rag_platform.loaders.pdf.runs import Char, Run

_COMB = 1 << 24  # of a field's flags


def join_cells(page: Any, runs: Sequence[Run]) -> list[Run]:
    """The runs; the characters of such a field are one run, with a space for each empty cell
    between them and none for the gaps from cell to cell.
    """
    import pymupdf

    joined = list(runs)
    for field in page.widgets(types=[pymupdf.PDF_WIDGET_TYPE_TEXT]):
        if not field.field_flags & _COMB or field.text_maxlen < 2:
            continue
        inside = [run for run in joined if pymupdf.Rect(run.box) in field.rect and run.horizontal]
        if inside:
            at = joined.index(inside[0])
            written = _write_cells(inside, field.rect.width / field.text_maxlen)
            held = set(map(id, inside))
            joined = [run for run in joined if id(run) not in held]
            joined.insert(at, written)
    return joined


def _write_cells(runs: Sequence[Run], width: float) -> Run:
    """The characters of the runs as one."""
    chars = [char for run in runs for char in run.chars if not char.text.isspace()]
    written = chars[:1]
    for before, char in pairwise(chars):
        if (char.x0 + char.x1 - before.x0 - before.x1) / 2 > 1.5 * width:
            written.append(Char(" ", before.x1, before.y0, char.x0, before.y1))
        written.append(char)
    return runs[0]._replace(chars=tuple(written))
