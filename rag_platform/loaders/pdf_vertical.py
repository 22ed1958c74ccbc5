"""Chinese and Japanese set in columns: each is one run, and they are read from the rightmost on."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rag_platform.loaders.pdf_runs import Run

_IDEOGRAPH = re.compile("[\u3041-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
_LEAST = 4  # signs one under the other, before they are taken for a column
_MARKS = "、。，．：；！？「」『』（）〔〕【】《》〈〉ー…︑︒﹁﹂﹃﹄"


def joined(runs: Sequence[Run]) -> list[Run]:
    """The runs, in which signs that a file sets one by one under each other are one run, which is not horizontal."""
    found: list[Run] = []
    chain: list[Run] = []
    for run in runs:
        if chain and not (_is_sign(run) and _is_below(chain[-1], run)):
            found += _column(chain)
            chain = []
        if _is_sign(run):
            chain.append(run)
        else:
            found.append(run)
    return found + _column(chain)


def is_vertical(runs: Sequence[Run]) -> bool:
    """True where most characters stand in columns of Chinese or Japanese that are read downwards."""
    total = sum(len(run.text.strip()) for run in runs)
    return 2 * sum(len(run.text.strip()) for run in runs if _is_column(run)) > total > 0


def in_columns(runs: Sequence[Run]) -> list[Run]:
    """Runs that are not horizontal: columns of Chinese and Japanese from right to left and downwards, others in content order."""
    if not is_vertical(runs):
        return list(runs)
    columns: list[list[Run]] = []
    for run in sorted(runs, key=lambda run: -(run.box[0] + run.box[2])):
        middle = (run.box[0] + run.box[2]) / 2
        if columns and abs((columns[-1][0].box[0] + columns[-1][0].box[2]) / 2 - middle) < 0.5 * run.size:
            columns[-1].append(run)
        else:
            columns.append([run])
    return [run for column in columns for run in sorted(column, key=lambda run: run.box[1])]


def tiers(runs: Sequence[Run]) -> list[list[Run]]:
    """The columns of a page that is set in columns, by the height at which they stand: from the upper ones to the lower."""
    found: list[list[Run]] = []
    bottom = 0.0
    for run in sorted((run for run in runs if not run.horizontal), key=lambda run: run.box[1]):
        if found and run.box[1] < bottom:
            found[-1].append(run)
        else:
            found.append([run])
        bottom = max(bottom, run.box[3])
    return found


def _is_sign(run: Run) -> bool:
    text = run.text.strip()
    return len(text) == 1 and (text in _MARKS or _IDEOGRAPH.match(text) is not None)


def _is_below(above: Run, below: Run) -> bool:
    one, other = above.box, below.box
    step = (other[1] + other[3] - one[1] - one[3]) / 2
    beside = abs(one[0] + one[2] - other[0] - other[2]) / 2
    return beside < 0.5 * above.size and 0.4 * above.size < step < 1.7 * above.size and abs(above.size - below.size) < 0.1 * above.size


def _column(chain: list[Run]) -> list[Run]:
    if len(chain) < _LEAST:
        return chain
    return [chain[0]._replace(chars=tuple(char for run in chain for char in run.chars if not char.text.isspace()), horizontal=False)]


def _is_column(run: Run) -> bool:
    visible = [char for char in run.chars if not char.text.isspace()]
    if run.horizontal or 2 * len(_IDEOGRAPH.findall(run.text)) <= len(visible):
        return False
    return len(visible) == 1 or visible[-1].y0 > visible[0].y0
