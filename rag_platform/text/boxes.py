"""Finds the boxes in Markdown as documentation tools write it: admonitions, tabs, cards and other
components, each with the title or kind that it is rendered with.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

# kinds of admonitions, which are rendered with their kind where they have no title
KINDS = dict.fromkeys(
    "success question failure bug example quote abstract check attention seealso todo".split(), ""
) | {  # with what Chinese questions call them
    "note": "说明",
    "tip": "提示",
    "hint": "提示",
    "info": "信息",
    "warning": "警告",
    "caution": "注意",
    "danger": "危险",
    "important": "重要",
    "error": "错误",
}
# directives of MyST whose body is Markdown
_DIRECTIVES = frozenset(KINDS) | frozenset(
    "admonition dropdown details tab-set tab-item grid grid-item grid-item-card card sidebar margin"
    " topic versionadded versionchanged deprecated".split()
)
_CODE = frozenset(("highlight", "code", "code-toggle"))  # shortcodes with code in them
_UNTITLED = frozenset("html caption figure-caption figure define settings include".split())
_NAMED = ("tab", "details", "expand", "accordion", "collapse")  # with a title without its key
# attributes with the title of a box, its kind, and code that it shows
_TITLES = ("title", "label", "name", "tabName", "path", "query", "body", "header", "summary")
_STYLES = ("type", "style", "kind", "variant", "color")
_SHOWN = ("text", "code", "command")
_ATTRIBUTE = re.compile(
    r"(?<![\w-])([\w-]+)[ ]*=[ ]*\{?(?:\"([^\"]*)\"|'([^']*)'|`([^`]*)`|(\w[\w.-]*))"
)
_QUOTED = re.compile(r"[\"']([^\"'\n]+)[\"']")
_ITEMS = re.compile(r"\sitems=(?:\{\[([^\]{}]*)\]\}|(\"[^\"\n]*\"))")
_VALUES = (
    r"(?:[^<>\"'`{}]|\"[^\"]{0,500}\"|'[^']{0,500}'|`[^`]{0,500}`"
    r"|\{(?:[^{}]|\{[^{}]{0,500}\}){0,500}\})*+"
)
_SHORT = r"\{(?:\{[<%]|%)-?[ \t]*"  # begins a shortcode of Hugo, or a tag of Liquid
_EVENT = re.compile(
    r"^(?P<lead>[ \t>]*(?:[-*+][ \t]+|\d+[.)][ \t]+)?)(?:"
    r"(?P<fence>`{3,}(?=[^`\n]*$)|~{3,})[ \t]*(?:\{(?P<directive>[\w-]+)\})?(?P<info>[^\n]*)$"
    r"|(?:!{3}|\?{3}\+?)[ \t]+(?P<kind>[\w-]+)[^\"\n]*(?:\"(?P<title>[^\"\n]*)\")?[ \t]*$"
    r"|={3}[+!]?[ \t]+\"(?P<tab>[^\"\n]+)\"[ \t]*$"
    r"|(?P<mark>:{3,}|/{3,})[ \t]*(?:\{?(?P<block>[A-Za-z][\w-]*)\}?[ \t]*"
    r"(?:[|\[ \t][ \t]*(?P<named>[^\n]*?)\]?)?(?:\{[^{}\n]*\})?)?[ \t]*$"
    r"|>[ \t]*\[!(?P<alert>\w+)\][-+]?[ \t]*(?P<heading>[^\n]{0,60}(?<![.。]))$"
    rf"|<(?P<tag>[A-Z][\w.]*)(?P<values>(?:\s{_VALUES})?)>"
    rf")|{_SHORT}(?P<short>(?!end)[A-Za-z][\w-]*)(?P<given>(?:[ \t][^{{}}\n]*?)?)[ \t]*-?[>%]\}}+"
    rf"|{_SHORT}(?:/[ \t]*|end)(?P<over>[A-Za-z][\w-]*)|</(?P<end>[A-Z][\w.]*)>|`[^`\n]+`",
    re.MULTILINE,
)
_MARKS = ("!!!", "???", "===", ":::", "///", "[!", "{{", "{%", "</", "/>", "`{", "~{")
_OPTION = re.compile(r"\n[ \t>]*:[\w-]+:(?:[ \t][^\n]*)?(?=\n|\Z)")
_BELOW_QUOTE = re.compile(r"^(?![ \t]*>)", re.MULTILINE)
_MOST_OPEN = 100  # boxes around a place; more are not told apart


@dataclass(slots=True)
class Box:
    """A box up to its closing mark, without its opening mark if it is code; with its title or kind,
    "" where it shows none.
    """

    start: int
    end: int
    name: str = ""
    kind: str = ""  # of an admonition
    closed_by: str = ""  # the mark or name that ends it
    is_code: bool = False
    is_group: bool = False  # of code blocks that are tabs
    edges: list[int] = field(default_factory=list)  # starts of fences and options, its marks
    tabs: list[str] = field(default_factory=list)  # titles of the tabs in it that are to come


def find_boxes(text: str) -> list[Box]:
    """The boxes of a text, outer ones first, and none in code. One that does not end goes to the
    end of the text.
    """
    if not any(mark in text for mark in _MARKS):
        return []
    found: list[Box] = []
    opened: list[Box] = []
    code: Box | None = None
    for event in _EVENT.finditer(text):
        fence = event["fence"]
        is_bare = not (event["directive"] or event["block"] or (event["info"] or "").strip())
        if code:
            if fence and is_bare and fence.startswith(code.closed_by):
                code.end, code = event.start(), None
            continue
        opened = [box for box in opened if event.start() < box.end]
        ends = event["over"] or event["end"] or (is_bare and (fence or event["mark"]))
        if ends and any(box.closed_by == ends for box in opened):
            while (box := opened.pop()).closed_by != ends:
                box.end = event.start()
            box.end = event.start()
            box.edges += [event.start()] if fence else []
            continue
        new = _open(text, event, opened)
        if new and fence and not new.edges:
            code = new
        elif new:
            opened.append(new)
        found += [new] if new else []
    # most shortcodes have no end, and no content
    alone = {id(box) for box in opened if box.closed_by.islower()}
    shown = (box for box in found if box.name or box.is_code or box.edges)
    return [box for box in shown if id(box) not in alone]


def _open(text: str, event: re.Match[str], opened: list[Box]) -> Box | None:
    """The box that an event opens, with the end of the text as its end unless it is known."""
    start, end = event.start(), len(text)
    if fence := event["fence"]:
        directive, info = event["directive"] or "", event["info"].strip()
        if directive in _DIRECTIVES and len(opened) < _MOST_OPEN:
            edges = [start, *_read_options(text, event.end())]
            return Box(start, end, *_name(directive, info), fence, edges=edges)
        is_tab = bool(opened) and opened[-1].is_group
        name = info[info.find("[") :].strip("[]") if "[" in info else info.partition(" ")[2]
        return Box(start, end, name if is_tab else "", "", fence)
    if len(opened) >= _MOST_OPEN:
        return None
    if event["kind"] or event["tab"]:
        blanks = r"[ \t>]" if ">" in event["lead"] else r"[ \t]"
        body = re.compile(rf"^(?!{blanks}{{{len(event['lead']) + 1}}}|{blanks}*$)", re.MULTILINE)
        below = body.search(text, event.end())
        named = (event["tab"], "") if event["tab"] else _name(event["kind"], event["title"] or "")
        return Box(start, below.start() if below else end, *named)
    if kind := event["block"]:
        named = _name(kind, event["named"] or "")
        edges = _read_options(text, event.end())
        is_group = kind == "code-group"
        return Box(start, end, *named, event["mark"], is_group=is_group, edges=edges)
    if kind := event["alert"]:
        below = _BELOW_QUOTE.search(text, event.end())
        named = _name(kind, event["heading"])
        return Box(start, below.start() if below else end, *named, edges=[start])
    return _open_component(event, opened, end) if event["tag"] or event["short"] else None


def _read_options(text: str, start: int) -> list[int]:
    """The starts of the lines with options (`:class: wide`) below the line that ends at `start`."""
    found: list[int] = []
    while option := _OPTION.match(text, start):
        found.append(start + 1)
        start = option.end()
    return found


def _open_component(event: re.Match[str], opened: list[Box], end: int) -> Box | None:
    """The box of a component or shortcode; of one without content the code that it shows."""
    kind, values = event["tag"] or event["short"], event["values"] or event["given"] or ""
    given: dict[str, str] = {}
    at = event.start("values") if event["tag"] else 0
    for attribute in _ATTRIBUTE.finditer(values):
        given.setdefault(attribute[1], attribute[attribute.lastindex or 0])
        if event["tag"] and attribute[1] in _SHOWN and values.endswith("/"):
            span = attribute.span(attribute.lastindex or 0)
            return Box(at + span[0], at + span[1], is_code=True)
    if values.endswith("/"):
        return None
    kinds = (given.get(key, "") for key in _STYLES)
    title = next((given[key] for key in _TITLES if given.get(key)), "")
    if not title and opened and opened[-1].tabs and kind.lower().startswith("tab"):
        title = opened[-1].tabs.pop(0)
    if not title and kind in _NAMED and (quoted := _QUOTED.search(values)):
        title = quoted[1]
    title = title or given.get("value", "") if kind.startswith("Tab") else title
    style = next((it for it in (*kinds, kind) if it.lower() in KINDS), "")
    items = _ITEMS.search(values)
    tabs = [] if items is None else _QUOTED.findall(items[1] or items[2].replace(",", '","'))
    is_code = kind in _CODE and _begins_line(event)
    start = event.end() if is_code else event.start()
    return Box(start, end, *_name(style, title), kind, is_code, kind == "CodeGroup", tabs=tabs)


def _begins_line(event: re.Match[str]) -> bool:
    line = event.string.rfind("\n", 0, event.start()) + 1
    return not event.string[line : event.start()].strip()


def _name(kind: str, title: str = "") -> tuple[str, str]:
    """(the title of a box, or else its kind if that is one of an admonition; that kind)."""
    kind, title = kind.lower(), title.strip()
    own = kind if kind in KINDS else ""
    return ("" if kind in _UNTITLED else title) or own.capitalize(), own
