"""Which printed line a piece of text is of, where its height does not say so: raised and lowered signs, flat signs, fractions, limits."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rag_platform.ir import Box

if TYPE_CHECKING:
    from rag_platform.loaders.pdf_runs import Run

_FORMULA = re.compile("[=≈≠≤≥∝∫∑∏√∇∂±×÷−]")
MAX_PART = 12  # characters above or below the bar of a fraction


def line_boxes(runs: Sequence[Run]) -> list[tuple[Box, Run]]:
    """Runs with the rectangle that says which line they are of: flat signs count as half a line, raised and lowered ones as the sign
    that they stand at, behind which a run is cut."""
    sizes: Counter[float] = Counter()
    for run in runs:
        sizes[run.size] += len(run.chars)
    usual = max(sizes, key=lambda size: (sizes[size], size), default=0.0)
    scripts = [run for run in runs if run.size <= 0.8 * usual]
    found: list[tuple[Box, Run]] = []
    for run in runs:
        if run.size > 0.8 * usual:
            pieces, scripts = _cut_at_scripts(run, scripts) if scripts and run.size < 1.25 * usual else ([(_half_line(run), run)], scripts)
            found += pieces
    return [*found, *((_half_line(run), run) for run in scripts)]


def _cut_at_scripts(run: Run, scripts: list[Run]) -> tuple[list[tuple[Box, Run]], list[Run]]:
    """(a run in pieces, each followed by the scripts at its last sign; the scripts that stand elsewhere)."""
    x0, y0, x1, y1 = run.box
    reach = 0.2 * run.size
    near = [s for s in scripts if s.box[1] < y1 and s.box[3] > y0 and x0 < s.box[0] < x1 + reach]
    found: list[tuple[Box, Run]] = []
    start = 0
    for at, char in enumerate(run.chars) if near else ():
        held = [s for s in near if abs(s.box[0] - char.x1) < reach and s.box[1] < char.y1 and s.box[3] > char.y0 and not char[0].isspace()]
        if held:
            piece = run._replace(chars=run.chars[start : at + 1])
            found += [(_half_line(piece), item) for item in (piece, *held)]
            near, scripts = [s for s in near if s not in held], [s for s in scripts if s not in held]
            start = at + 1
    rest = run._replace(chars=run.chars[start:]) if start else run
    return ([*found, (_half_line(rest), rest)] if rest.text.strip() else found), scripts


def _half_line(run: Run) -> Box:
    x0, y0, x1, y1 = run.box
    middle, half = (y0 + y1) / 2, max(y1 - y0, 0.5 * run.size) / 2
    return x0, middle - half, x1, middle + half


def with_fractions(lines: Sequence[list[Run]]) -> list[list[Run]]:
    """The lines, in which two short ones above and below the same gap of a formula are read in that gap: the upper one first, limits of
    an integral or a sum from the lower to the upper."""
    result = list(lines)
    at = 1
    while at < len(result) - 1:
        above, line, below = result[at - 1 : at + 2]
        slot = _slot(above, line, below) if _FORMULA.search("".join(run.text for run in line)) else None
        if slot is None:
            at += 1
            continue
        limits = max(run.size for run in (*above, *below)) <= 0.8 * max(run.size for run in line)
        result[at - 1 : at + 2] = [[*line[:slot], *(below if limits else above), *(above if limits else below), *line[slot:]]]
    return result


def _slot(above: Sequence[Run], line: Sequence[Run], below: Sequence[Run]) -> int | None:
    """The place among the runs of a line over which one part stands and under which the other; None when it has no such gap."""
    top, bottom = min(run.box[1] for run in line), max(run.box[3] for run in line)
    reach = 0.8 * max(run.size for run in line)
    places = set()
    for part in (above, below):
        left, right = min(run.box[0] for run in part), max(run.box[2] for run in part)
        if sum(len(run.text.strip()) for run in part) > MAX_PART or any(run.box[0] < right - 1 and run.box[2] > left + 1 for run in line):
            return None
        places.add(sum(run.box[2] <= left + 1 for run in line))
    close = top - max(run.box[3] for run in above) < reach and min(run.box[1] for run in below) - bottom < reach
    left, right = min(run.box[0] for run in (*above, *below)), max(run.box[2] for run in (*above, *below))
    beside = min(max(run.box[0] - right, left - run.box[2]) for run in line) < reach
    return places.pop() if close and beside and len(places) == 1 else None
