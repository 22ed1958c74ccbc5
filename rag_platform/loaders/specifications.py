"""Specifications in YAML or JSON, of interfaces (OpenAPI, Swagger) and of data (JSON Schema): the
blocks of a text, and the edits that turn it into Markdown.

The facts keep the file unchanged, so that a citation leads to its bytes; sections, chunks and
quotes use the Markdown. There operations, schemas and their fields are headings, and what is
between them is code.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import TYPE_CHECKING

from rag_platform.ir import Block, Edit
from rag_platform.loaders.parts import longest_ticks
from rag_platform.loaders.restructured import REWRITTEN, fill_gaps

if TYPE_CHECKING:
    import yaml

PROFILE = "specification"  # parse profile of the facts
_MOST_KEYS = 6  # to a value in a part
_MAX_DEPTH = 64  # of nested values; the parser takes quadratic time for brackets in brackets
_KEYS: dict[str, str | tuple[str, ...]] = {  # of the whole, and how its value begins
    "openapi": "3.",
    "swagger": "2.",
    "$schema": ("http://json-schema.org/", "https://json-schema.org/"),
}
_MARK = re.compile(r"""(?:^|[{,])\s*["']?(?:openapi|swagger|\$schema)["']?[ \t]*:""", re.MULTILINE)
_INDENT = re.compile(r"\n( *)(?=\S)")
_COMMENT = re.compile(r"(?:^|\s)#")
_METHOD = r"(?:get|put|post|delete|options|head|patch|trace|query)"
_ROUTE = r"(?:paths|webhooks)\n(?P<route>[^\n]+)\n"
_OPERATION = re.compile(rf"{_ROUTE}[^\n]+")
_STATUS = re.compile(rf"{_ROUTE}{_METHOD}\nresponses\n(\w+)")
_GROUP = r"(?:components\n[^\n]+|definitions|\$defs|parameters|responses|securityDefinitions)\n"
# of the keys to a value, one a line: the level of its heading
_LEVELS = {
    re.compile(pattern): level
    for pattern, level in {
        r"info|title": 1,
        rf"{_ROUTE}[^\n]+|{_GROUP}[^\n]+|properties\n[^\n]+": 2,
        rf"{_ROUTE}{_METHOD}\n(?:parameters|requestBody|responses|callbacks)": 3,
        rf"{_GROUP}[^\n]+\nproperties\n[^\n]+": 3,
        rf"{_ROUTE}{_METHOD}\nresponses\n[^\n]+": 4,
    }.items()
}


@dataclass(slots=True)
class _Value:
    """A value, with its key in a mapping; marks are offsets."""

    keys: str  # to the value, one a line
    start: int  # of the key
    begin: int  # of the value
    end: int
    scalar: str = ""
    values: list[_Value] = field(default_factory=list)  # of a mapping

    @property
    def name(self) -> str:
        """The key."""
        return self.keys.rpartition("\n")[2]

    def find(self, name: str) -> str:
        """The scalar below a key of the mapping, without line ends; empty without one."""
        found = (value.scalar for value in self.values if value.name == name)
        return " ".join(next(found, "").split())


@dataclass(slots=True)
class _Part:
    """A part of the text: code, below a heading unless `level` is 0."""

    start: int
    begin: int
    end: int
    level: int
    title: str


def is_specification(text: str) -> bool:
    """True for an OpenAPI document or a JSON Schema that is well formed and describes something."""
    return _MARK.search(text) is not None and bool(_find_parts(text))


def specification_blocks(text: str) -> list[Block]:
    """The headings and code of a specification, in order and without byte offsets."""
    blocks: list[Block] = []
    for part in _find_parts(text):
        if part.level:
            found = Block(0, "heading", part.start, part.begin - 1, part.level)
            blocks.append(replace(found, title=part.title))
        if part.end > part.begin:
            blocks.append(Block(0, "code", part.begin, part.end))
    return fill_gaps(text, blocks)


def specification_edits(text: str) -> list[Edit]:
    """The edits that turn a specification into Markdown, in order and without overlap."""
    edits: list[Edit] = []
    language = "json" if text.lstrip("\ufeff \t\r\n").startswith("{") else "yaml"
    at, close = 0, ""
    for part in _find_parts(text):
        if part.start > at:
            edits.append(_drop(text, at, part.start, f"{close}\n\n" if at else ""))
        code = text[part.begin : part.end]
        mark = "`" * max(3, 1 + longest_ticks(code))
        opening = f"{mark}{language}\n" if code else ""
        if part.level:
            heading = f"{'#' * part.level} {part.title}"
            edits.append(Edit(part.start, part.begin - 1, heading, REWRITTEN))
            edits.append(Edit(part.begin - 1, part.begin, f"\n\n{opening}", REWRITTEN))
        elif code:
            edits.append(Edit(0, part.begin, opening, REWRITTEN))
        close = f"\n{mark}" if code else ""
        column = part.begin - 1 - text.rfind("\n", 0, part.begin)
        width = min((len(it[1]) for it in _INDENT.finditer(code)), default=0)
        width = min(width, column)
        for line in re.finditer(rf"(?<=\n) {{{width}}}", code) if width else ():
            span = part.begin + line.start(), part.begin + line.end()
            edits.append(Edit(*span, "", REWRITTEN))
        at = part.end
    if at < len(text):
        edits.append(_drop(text, at, len(text), f"{close}\n"))
    return edits


def _drop(text: str, start: int, end: int, replacement: str) -> Edit:
    """The edit that replaces brackets and keys between two parts; a comment is not shown."""
    rule = "hidden_text: comment" if _COMMENT.search(text, start, end) else REWRITTEN
    return Edit(start, end, replacement, rule)


def _find_parts(text: str) -> list[_Part]:
    """The parts of a specification; none if it is broken or has no headings of level 2."""
    root = _parse(text)
    if not any(root.find(name).startswith(begin) for name, begin in _KEYS.items()):
        return []
    parts = [_Part(0, 0, 0, 0, "")]
    _collect(root, parts, text)
    # a heading with nothing below it groups those that follow
    shown = [
        part
        for part, below in zip_longest(parts, parts[1:])
        if part.end > part.begin or part.level < (below.level if below else 2)
    ]
    return shown if any(part.level > 1 for part in shown) else []


def _collect(parent: _Value, parts: list[_Part], text: str) -> None:
    """Add the parts of a mapping. What has no heading belongs to the part above, but where that is
    one beside it, to a part of its own.
    """
    beside = 0
    for value in parent.values:
        levels = (level for pattern, level in _LEVELS.items() if pattern.fullmatch(value.keys))
        level = next(levels, beside)
        count, part = len(parts), replace(parts[-1])
        end = value.begin + len(text[value.begin : value.end].rstrip())
        if level:
            part = _Part(value.start, value.begin, value.begin, level, _write_title(value))
            parts.append(part)
            count += 1
        _collect(value, parts, text)
        if len(parts) > count:  # only the first values below it are its own
            level = level or parts[count].level
        elif level:
            begin = value.values[0].start if value.values else value.begin
            end = value.values[-1].end if value.values else end
            end = begin + len(text[begin:end].rstrip())
            shown = level > 1 or bool(value.values)
            parts[-1] = replace(part, begin=begin if shown else end, end=end)
        else:
            begin = part.begin if part.end > part.begin else value.start
            parts[-1] = replace(part, begin=begin, end=end)
        beside = max(beside, level, 2) if level else 0


def _write_title(value: _Value) -> str:
    """The words of the heading above a value."""
    name = value.name
    if value.keys in ("info", "title"):
        return value.find("title") or " ".join(value.scalar.split()) or name
    if _STATUS.fullmatch(value.keys):
        return f"status {name}"
    route = _OPERATION.fullmatch(value.keys)
    if route is None:
        return name
    if not re.fullmatch(_METHOD, name):
        return f"{route['route']} {name}"
    operation = value.find("operationId")
    return f"{name.upper()} {route['route']}" + (f": {operation}" if operation else "")


def _parse(text: str) -> _Value:
    """The mapping in a text, from the parser's events, so that aliases stay names. It is empty if
    the text is broken, no mapping or nested too deep.
    """
    import yaml

    root = _Value("", 0, 0, 0)
    # with the same offsets; between the tokens of JSON there may be tabs
    source = text.replace("\ufeff", "\n", 1).replace("\t", " ")
    try:
        events = yaml.parse(source, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        first = next((event for event in events if isinstance(event, yaml.NodeEvent)), None)
        if isinstance(first, yaml.MappingStartEvent):
            _read(first, events, root, 0)
    except (yaml.YAMLError, ValueError):
        return _Value("", 0, 0, 0)
    return root


def _read(event: yaml.Event, events: Iterator[yaml.Event], into: _Value, depth: int) -> None:
    """Read the value that begins with an event."""
    import yaml

    if depth > _MAX_DEPTH:
        raise ValueError
    into.begin, into.end = _span(event)
    if isinstance(event, yaml.ScalarEvent):
        into.scalar = event.value
    if not isinstance(event, yaml.CollectionStartEvent):
        return
    inner = next(events)
    while not isinstance(inner, yaml.CollectionEndEvent):
        start, keys = _span(inner)[0], into.keys
        if isinstance(event, yaml.MappingStartEvent):
            key = _Value("", start, start, start)
            _read(inner, events, key, depth + 1)
            name = " ".join(key.scalar.split())
            keys = f"{keys}\n{name}" if keys else name
            inner = next(events)
        value = _Value(keys, start, start, start)
        _read(inner, events, value, depth + 1)
        into.end = max(into.end, value.end)
        if isinstance(event, yaml.MappingStartEvent) and depth < _MOST_KEYS:
            into.values.append(value)
        inner = next(events)
    start, end = _span(inner)
    into.end = max(into.end, end if end > start else 0)  # brackets have a width


def _span(event: yaml.Event) -> tuple[int, int]:
    """The offsets of an event."""
    return event.start_mark.index, event.end_mark.index  # type: ignore[union-attr]
