"""Which kind of image a picture is, by the words around it, then by its lines and colours (seed 000 §3.6.6.3)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

_WORDS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (kind, re.compile(pattern, re.I))
    for kind, pattern in (
        ("table", r"表格|一览表|(?<![代图列仪手外发])表\s?[\d一二三四五六七八九十]|\btables?\b|\btabular\b"),
        ("chart", r"趋势|曲线|折线|柱状|饼图|直方|散点|图表|统计图|\bcharts?\b|\bplots?\b|\bgraphs?\b|\btrends?\b|\bcurves?\b|histogram"),
        ("flowchart", r"流程|步骤|flow[ _-]?charts?|\bwork[ _-]?flow\b|\bflow\b"),
        ("diagram", r"架构|结构图|示意|拓扑|时序图|\bdiagrams?\b|\barchitectures?\b|schematic|topology|pipeline"),
        ("screenshot", r"截图|截屏|界面|窗口|screen[ _-]?shots?|\bscreen\b|\bdialog\b|\bui\b|\bconsole\b"),
        ("photo", r"照片|实拍|\bphotos?\b|photograph"),
    )
)
_LOOKED_AT = 400  # pixels of the longer side


def by_words(*texts: str) -> str:
    """The kind that the first of the texts with a known word names, `unknown` where none does."""
    for text in texts:
        spaced = re.sub(r"[_./\\-]+", " ", text)
        places = [(found.start(), kind) for kind, pattern in _WORDS if (found := pattern.search(spaced))]
        if places:
            return min(places)[1]
    return "unknown"


def by_picture(path: Path) -> str:
    """The kind by coarse rules: a grid of long lines is a table, two axes a chart, many short lines a flowchart, many colours a photo."""
    import numpy as np
    from PIL import Image

    with Image.open(path) as opened:
        picture = opened.convert("RGB")
    picture.thumbnail((_LOOKED_AT, _LOOKED_AT))
    pixels = np.asarray(picture)
    if min(pixels.shape[:2]) < 20:
        return "unknown"
    grey = pixels.mean(axis=2)
    paper = float(np.median(grey))
    ink = abs(grey - paper) > 60
    flat = float((abs(grey - paper) < 12).mean())
    colours = len(np.unique(pixels.reshape(-1, 3) // 16, axis=0))
    if flat < 0.35 and colours > 250:
        return "photo"
    across, down = _lines(ink), _lines(ink.T)
    long_across, long_down = (sum(length > 0.5 for length in lines) for lines in (across, down))
    if long_across >= 3 and long_down >= 3:
        return "table"
    if 1 <= long_across <= 2 and 1 <= long_down <= 2 and flat > 0.5:
        return "chart"
    if sum(length < 0.5 for length in across) >= 4 and sum(length < 0.5 for length in down) >= 4 and flat > 0.5:
        return "flowchart"
    return "unknown"


def _lines(ink: Any) -> list[float]:
    """The longest run of ink of each row that holds one above a twelfth of its length, as a share; neighbouring rows are one line."""
    import numpy as np

    found: list[float] = []
    before = -2
    for index, row in enumerate(ink):
        edges = np.flatnonzero(np.diff(np.concatenate(([0], row.view(np.int8), [0]))))
        longest = float((edges[1::2] - edges[::2]).max(initial=0)) / len(row)
        if longest < 1 / 12:
            continue
        if index - before <= 1:
            found[-1] = max(found[-1], longest)
        else:
            found.append(longest)
        before = index
    return found
