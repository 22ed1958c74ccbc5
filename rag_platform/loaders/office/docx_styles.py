"""Styles and numbering of a DOCX file: which paragraphs are headings, captions or code, and the
labels that Word prints before list items.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from rag_platform.loaders.numerals import format_list_number
from rag_platform.loaders.office.ooxml import DELETED, Element, W, attribute, is_on
from rag_platform.text.scripts import HAN_DIGITS

HEADING = re.compile(
    r"(?:heading|标题|標題|見出し|제목|überschrift|titre|título|titolo|заголовок)\s*(\d)",
    re.IGNORECASE,
)
CHINESE_HEADING = re.compile(
    rf"[标標][题題]\s?([{HAN_DIGITS[1:]}])|([{HAN_DIGITS[1:]}])[级級][标標][题題]"
)
TITLE = {"title", "标题", "標題", "文档标题", "表題", "제목", "titel"}
CODE = re.compile(
    r"(?:source\s*code|code(?:\s*block)?|html preformatted|verbatim|preformatted"
    r" text|代码|程序代码|源代码)",
    re.IGNORECASE,
)
# styles of lists that are nested only by their indentation
NESTED = re.compile(r"list (?:bullet|number) ([2-9])", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Style:
    """The attributes of a style that say what its paragraphs are."""

    style_id: str
    name: str
    based_on: str = ""
    outline: int | None = None  # 0 to 8 are heading levels, 9 is body text
    number: str | None = None  # numId
    level: str | None = None  # of that list
    toggles: Mapping[str, bool] = field(default_factory=dict)  # `vanish` and `b`, if set


@dataclass(frozen=True)
class Styles:
    """The styles by id, and the id of the default paragraph style."""

    by_id: Mapping[str, Style] = field(default_factory=dict)
    default: str = ""

    def hides(self, run: Element) -> bool:
        """True for hidden text."""
        return self._is_toggled(run, "vanish")

    def is_bold(self, paragraph: Element) -> bool:
        """True if all visible text of a paragraph is bold."""
        read = [
            self._is_toggled(run, "b")
            for run in paragraph.iter(f"{W}r")
            if any((item.text or "").strip() for item in run.iterfind(f"{W}t"))
        ]
        return bool(read) and all(read)

    def _is_toggled(self, run: Element, name: str) -> bool:
        """True if a property is on for a run: by its own value, else by its style, else by the
        style of its paragraph.
        """
        if run.find(f"{W}rPr/{W}{name}") is not None:
            return is_on(run, f"rPr/{name}")
        if name not in self._toggled:
            return False
        paragraph = next(run.iterancestors(f"{W}p"), None)
        styles = [
            *self._with_bases(attribute(run, "rPr/rStyle") or ""),
            *(self.chain(paragraph) if paragraph is not None else ()),
        ]
        return next((style.toggles[name] for style in styles if name in style.toggles), False)

    @cached_property
    def _toggled(self) -> set[str]:
        return {name for style in self.by_id.values() for name in style.toggles}

    def chain(self, paragraph: Element) -> Iterator[Style]:
        """The paragraph's style and those it is based on."""
        return self._with_bases(attribute(paragraph, "pPr/pStyle") or self.default)

    def _with_bases(self, style_id: str) -> Iterator[Style]:
        seen: set[str] = set()
        while style_id not in seen and (style := self.by_id.get(style_id)):
            seen.add(style_id)
            yield style
            style_id = style.based_on

    def heading_level(self, paragraph: Element) -> int:
        """1 to 6 for a heading or the title, 0 for other text."""
        own = attribute(paragraph, "pPr/outlineLvl")
        if own is not None and own.isdecimal():
            return _to_heading_level(int(own))
        for style in self.chain(paragraph):
            if style.outline is not None:
                return _to_heading_level(style.outline)
            if match := HEADING.fullmatch(style.name):
                return _to_heading_level(int(match[1]) - 1)
            if match := CHINESE_HEADING.fullmatch(style.name):
                return _to_heading_level(HAN_DIGITS.index(match[1] or match[2]) - 1)
            if style.name.lower() in TITLE:
                return 1
        return 0

    def has_name(self, paragraph: Element, *names: str) -> bool:
        """True if the paragraph's style, or one it is based on, has one of the names."""
        return any(style.name.lower() in names for style in self.chain(paragraph))

    def list_level(self, paragraph: Element) -> int:
        """The level from 0 that a style such as `List Bullet 2` gives a list item."""
        matches = (NESTED.fullmatch(style.name) for style in self.chain(paragraph))
        return next((int(match[1]) - 1 for match in matches if match), 0)

    def is_code(self, paragraph: Element) -> bool:
        """True for a style for program code."""
        return any(CODE.fullmatch(style.name) for style in self.chain(paragraph))


def _to_heading_level(outline: int) -> int:
    return min(outline + 1, 6) if 0 <= outline < 9 else 0


def read_styles(root: Element) -> Styles:
    """The styles of a styles part; none for a missing part."""
    by_id: dict[str, Style] = {}
    default = ""
    for item in root.iter(W + "style") if root is not None else ():
        style_id = str(item.get(W + "styleId", ""))
        outline = attribute(item, "pPr/outlineLvl")
        by_id[style_id] = Style(
            style_id,
            attribute(item, "name") or style_id,
            attribute(item, "basedOn") or "",
            int(outline) if outline and outline.isdecimal() else None,
            attribute(item, "pPr/numPr/numId"),
            attribute(item, "pPr/numPr/ilvl"),
            {
                name: is_on(item, f"rPr/{name}")
                for name in ("vanish", "b")
                if item.find(f"{W}rPr/{W}{name}") is not None
            },
        )
        if item.get(W + "type", "paragraph") == "paragraph" and item.get(W + "default") in (
            "1",
            "true",
        ):
            default = style_id
    return Styles(by_id, default)


# --- numbering ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Label:
    """The label before a list item: its text (empty for a bullet) and its level from 0."""

    text: str
    level: int


@dataclass(slots=True)
class _Level:
    form: str = "decimal"
    text: str = ""
    start: int = 1
    legal: bool = False  # numbers of all levels are in digits, as in 1.1 below "Article I"
    style_id: str = ""  # the style whose paragraphs have this level by default
    restart: int | None = None  # the deepest level, from 1, after which it restarts; 0: never


@dataclass(slots=True)
class _List:
    """A list definition with its counters, which several numberings may share."""

    levels: dict[int, _Level] = field(default_factory=dict)
    counts: dict[int, int] = field(default_factory=dict)
    link: str | None = None  # the style that defines the list instead


@dataclass(slots=True)
class _Numbering:
    list_id: str
    # level to first number, for the levels that this numbering restarts
    starts: dict[int, int] = field(default_factory=dict)
    levels: dict[int, _Level] = field(default_factory=dict)
    used: bool = False


def find_labels(
    paragraphs: Iterable[Element], numbering: Element, styles: Styles
) -> dict[Element, Label]:
    """The label of each numbered paragraph; the paragraphs must be in document order."""
    lists, numberings = _read_definitions(numbering)
    found: dict[Element, Label] = {}
    for paragraph in paragraphs:
        if any(paragraph.find(f"{W}pPr/{W}rPr/{W}{name}") is not None for name in DELETED):
            continue  # its paragraph mark is deleted, so it is part of the next paragraph
        number = numberings.get(_number_id(paragraph, styles))
        if number is None:
            continue
        counted = lists.setdefault(number.list_id, _List())
        level = _find_level(paragraph, styles, {**counted.levels, **number.levels})
        if not number.used:
            number.used = True
            for reset in number.starts:
                counted.counts.pop(reset, None)
        label = _next_label(number, counted, level)
        found[paragraph] = replace(label, level=max(label.level, styles.list_level(paragraph)))
    return found


def _number_id(paragraph: Element, styles: Styles) -> str:
    """The numId of a paragraph, its own or its style's; "" without one."""
    numbers = [attribute(paragraph, "pPr/numPr/numId")]
    numbers += [style.number for style in styles.chain(paragraph)]
    return next(filter(None, numbers), "")


def _find_level(paragraph: Element, styles: Styles, levels: Mapping[int, _Level]) -> int:
    """The level of a numbered paragraph: its own, its style's, or the one linked to its style."""
    chain = list(styles.chain(paragraph))
    given = [attribute(paragraph, "pPr/numPr/ilvl"), *(style.level for style in chain)]
    if level := next((item for item in given if item and item.isdecimal()), None):
        return min(int(level), 8)
    by_style = {level.style_id: at for at, level in levels.items()}
    return next((by_style[style.style_id] for style in chain if style.style_id in by_style), 0)


def _read_definitions(root: Element) -> tuple[dict[str, _List], dict[str, _Numbering]]:
    lists: dict[str, _List] = {}
    numberings: dict[str, _Numbering] = {}
    styled: dict[str | None, _List] = {}
    for item in root.iter(W + "abstractNum") if root is not None else ():
        link, name = attribute(item, "numStyleLink"), str(item.get(W + "abstractNumId"))
        lists[name] = _List(dict(_read_levels(item)), link=link)
        styled[attribute(item, "styleLink")] = lists[name]
    lists = {
        name: styled.get(item.link, item) if item.link else item for name, item in lists.items()
    }
    for item in root.iter(W + "num") if root is not None else ():
        number = _Numbering(attribute(item, "abstractNumId") or "")
        for override in item.iter(W + "lvlOverride"):
            level = int(override.get(W + "ilvl", "0"))
            start = attribute(override, "startOverride")
            number.levels.update(_read_levels(override))
            if start and start.isdecimal():
                number.starts[level] = int(start)
        numberings[str(item.get(W + "numId"))] = number
    return lists, numberings


def _read_levels(item: Element) -> Iterator[tuple[int, _Level]]:
    for level in item.iter(W + "lvl"):
        start = attribute(level, "start") or "1"
        number = str(level.get(W + "ilvl", "0"))
        restart = attribute(level, "lvlRestart")
        yield (
            int(number) if number.isdecimal() else 0,
            _Level(
                attribute(level, "numFmt") or "decimal",
                attribute(level, "lvlText") or "",
                int(start) if start.isdecimal() else 1,
                is_on(level, "isLgl"),
                attribute(level, "pStyle") or "",
                int(restart) if restart and restart.isdecimal() else None,
            ),
        )


def _next_label(number: _Numbering, counted: _List, level: int) -> Label:
    def form(at: int) -> _Level:
        return number.levels.get(at) or counted.levels.get(at) or _Level(text=f"%{at + 1}.")

    here = form(level)
    first = number.starts.get(level, here.start)
    counted.counts[level] = counted.counts.get(level, first - 1) + 1
    for deeper in [at for at in counted.counts if at > level]:
        restart = form(deeper).restart
        if restart is None or level < restart:
            del counted.counts[deeper]
    if here.form in ("bullet", "none"):
        return Label("" if here.form == "bullet" else re.sub(r"%\d", "", here.text).strip(), level)

    def print_number(match: re.Match[str]) -> str:
        at = int(match[1]) - 1
        own = "decimal" if here.legal else form(at).form
        return format_list_number(counted.counts.get(at, form(at).start), own)

    return Label(re.sub(r"%([1-9])", print_number, here.text).strip(), level)
