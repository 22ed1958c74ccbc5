"""Charts and SmartArt diagrams of Word and PowerPoint files, read as rows and lines; for the proof
their words are read again from the XML by other code.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from rag_platform.errors import DocumentError
from rag_platform.loaders.office.number_formats import format_general
from rag_platform.loaders.office.ooxml import A, C, D, Element, Package, R
from rag_platform.text import markdown_blocks

_QUOTED = re.compile(r'"[^"]*"|\\.|\[[^\]]*\]')  # literal text in a number format
# kinds of charts that python-pptx does not read, to kinds with the same XML
_SIMILAR_KINDS = {
    **{f"{kind}3D".encode(): kind.encode() for kind in ("area", "bar", "line", "pie")},
    b"ofPie": b"pie",
    b"stock": b"line",
    b"surface": b"area",
    b"surface3D": b"area",
}
_CHART_TAG = re.compile(rb"(</?(?:[\w.-]+:)?)(" + b"|".join(_SIMILAR_KINDS) + rb")(?=Chart[\s/>])")
MAX_LEVEL = 16  # of nested points in a diagram


def read_chart(root: Element) -> list[list[str]]:
    """A header row with the titles of the chart and its axes and the names of the series, then a
    row for each category; [] for a kind of chart that is not read, and for damaged values.
    """
    from lxml import etree
    from pptx.chart.chart import Chart
    from pptx.oxml import parse_xml

    flat = _CHART_TAG.sub(lambda found: found[1] + _SIMILAR_KINDS[found[2]], etree.tostring(root))
    try:
        return _read_rows(Chart(parse_xml(flat), None))
    # python-pptx raises these for values that are not numbers, missing elements and other charts
    except (ValueError, LookupError, AttributeError, NotImplementedError):
        return []


def _read_rows(chart: Any) -> list[list[str]]:
    plots = list(chart.plots)
    categories = plots[0].categories if plots else ()
    series = [item for plot in plots for item in plot.series]
    if (
        not categories
        or categories.depth > 1
        or not all(hasattr(item, "values") for item in series)
    ):
        return []
    titled = chart.has_title and chart.chart_title.has_text_frame
    titles = [chart.chart_title.text_frame.text] if titled else []
    titles += ["".join(item.itertext(f"{A}t")) for item in _find_axis_titles(chart._chartSpace)]
    title = "; ".join(words for text in titles if (words := " ".join(text.split())))
    shown = [
        [
            *("" if value is None else figure(value) for value in item.values),
            *[""] * len(categories),
        ]
        for item in series
        for figure in [_number_formatter(item._element)]
    ]
    rows = [[str(label), *(row[at] for row in shown)] for at, label in enumerate(categories)]
    return [[title, *(item.name for item in series)], *rows]


def _find_axis_titles(root: Element) -> Iterator[Element]:
    """The titles of the visible axes, which name quantities and units."""
    for axis in root.iterfind(f"{C}chart/{C}plotArea/*"):
        hidden = axis.find(f"{C}delete")
        if hidden is None or hidden.get("val", "1") in ("0", "false"):
            yield from axis.iterfind(f"{C}title")


def _number_formatter(series: Element) -> Callable[[float], str]:
    """A function that formats the values of a series with all their digits: as percentages if the
    format of the values, their labels or their axis is one. Labels and axes that show shares of the
    whole do not count.
    """
    plot = series.getparent()
    axes = {item.get("val") for item in plot.iterfind(f"{C}axId")}
    stacked = plot.find(f"{C}grouping[@val='percentStacked']") is not None
    near = [
        *(item for item in plot.getparent() if _axis_id(item) in axes and not stacked),
        *(item for owner in (series, plot) for item in owner.iterfind(f"{C}dLbls")),
    ]
    formats = [item.text or "" for item in series.iterfind(f"{C}val//{C}formatCode")]
    formats += [
        form.get("formatCode", "")
        for owner in near
        if owner.find(f"{C}showPercent[@val='1']") is None
        for form in owner.iterfind(f"{C}numFmt")
    ]
    if any("%" in _QUOTED.sub("", form) for form in formats):
        return lambda value: f"{format_general(round(100 * value, 10))}%"
    return format_general


def _axis_id(element: Element) -> str | None:
    found = element.find(f"{C}axId") if element.tag == f"{C}valAx" else None
    return None if found is None else found.get("val")


def read_diagram(root: Element) -> list[tuple[int, str]]:
    """(level, words) of the points of a SmartArt diagram, in display order."""
    points = {point.get("modelId"): point for point in root.iter(f"{D}pt")}
    below: dict[str | None, list[tuple[int, str]]] = {}
    for link in root.iter(f"{D}cxn"):
        if link.get("type", "parOf") == "parOf":
            place = (int(link.get("srcOrd", "0")), link.get("destId", ""))
            below.setdefault(link.get("srcId"), []).append(place)
    found: list[tuple[int, str]] = []
    waiting = [(-1, name) for name, point in points.items() if point.get("type") == "doc"]
    while waiting:
        level, name = waiting.pop()
        waiting += [(level + 1, child) for _, child in sorted(below.pop(name, ()), reverse=True)]
        for paragraph in points[name].iter(f"{A}p") if level >= 0 and name in points else ():
            text = "".join(item.text or "" for item in paragraph.iter(f"{A}t"))
            if words := " ".join(text.split()):
                found.append((min(level, MAX_LEVEL), words))
    return found


def format_table(rows: Sequence[Sequence[str]]) -> str:
    """The rows as a pipe table, the first as its header; "" if all cells are empty."""
    if not any(map(any, rows)):
        return ""
    lines = [markdown_blocks.format_row([" ".join(cell.split()) for cell in row]) for row in rows]
    return "\n".join([lines[0], markdown_blocks.format_rule(len(rows[0])), *lines[1:]])


def format_lines(lines: Iterable[tuple[int, str]]) -> str:
    """The lines of a diagram as a Markdown list."""
    return "\n".join(f"{'    ' * level}- {words}" for level, words in lines)


def find_root(package: Package, part: str, drawing: Element) -> Element | None:
    """The root of the part to which a `c:chart` or `dgm:relIds` of another part refers, or None."""
    name = drawing.get(f"{R}id") or drawing.get(f"{R}dm")
    relation = package.relations(part).get(str(name))
    return None if relation is None or relation.external else package.root(relation.target)


def read_drawing(package: Package, part: str, drawing: Element) -> tuple[str, str]:
    """(kind of block, Markdown) of a chart or diagram; the Markdown is "" if it is damaged or of a
    kind that is not read.
    """
    try:
        root = find_root(package, part, drawing)
        if root is None:
            return "", ""
        if root.tag != f"{C}chartSpace":
            return "list", format_lines(read_diagram(root))
        return "table", format_table(read_chart(root))
    except (DocumentError, ValueError, LookupError):
        return "", ""


def words_of(root: Element) -> str:
    """The words in the XML of a chart or diagram, in the order of its rows or lines."""
    if root.tag != f"{C}chartSpace":
        return " ".join(words for _, words in read_diagram(root))
    points = [
        {
            name: {
                point.get("idx", "0"): point.findtext(f"{C}v", "")
                for point in item.iterfind(f"{C}{name}//{C}pt")
            }
            for name in ("tx", "cat", "val")
        }
        for item in root.iter(f"{C}ser")
    ]
    figures = [_number_formatter(item) for item in root.iter(f"{C}ser")]
    heading = root.find(f"{C}chart/{C}title")
    words = [text.text or "" for text in heading.iter(f"{A}t")] if heading is not None else []
    words += [text for item in _find_axis_titles(root) for text in item.itertext(f"{A}t")]
    words += [name for item in points for name in item["tx"].values()]
    count = root.find(f".//{C}ser/{C}cat//{C}ptCount")
    for place in map(str, range(int(count.get("val", "0")) if count is not None else 0)):
        values = zip(figures, (item["val"].get(place) for item in points), strict=True)
        words.append(points[0]["cat"].get(place, ""))  # a category may have no name
        words += [figure(float(value)) for figure, value in values if value]
    return " ".join(words)
