"""Specifications in YAML or JSON, of interfaces (OpenAPI, Swagger) and of data (JSON Schema): the
blocks of a text, and the edits that turn it into Markdown.

The facts keep the file unchanged, so that a citation leads to its bytes; sections, chunks and
quotes use the Markdown. There operations, schemas and their fields are headings, and what is
between them is code.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import TYPE_CHECKING, NamedTuple

from rag_platform.ir import Block, Edit
from rag_platform.loaders.parts import ticks_around
from rag_platform.loaders.restructured import REWRITTEN, fill_gaps

if TYPE_CHECKING:
    import yaml

SPECIFICATION = "specification"  # parse profile of the facts
_MOST_KEYS = 6  # to a value in a part
_MAX_TITLE = 200  # characters
_MAX_DEPTH = 64  # of nested values; the parser takes quadratic time for brackets in brackets
_KEYS: dict[str, str | tuple[str, ...]] = {  # of the whole, and how its value begins
    "openapi": "3.",
    "swagger": "2.",
    "$schema": ("http://json-schema.org/", "https://json-schema.org/"),
}
_MARK = re.compile(
    r"""(?:^|[{,])[ \t]*["']?(?:openapi|swagger|\$schema)["']?[ \t]*:""", re.MULTILINE
)
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")  # half of a character that JSON escapes
_INDENT = re.compile(r"\n( *)(?=\S)")
_COMMENT = re.compile(r"(?:^|\s)#")
_METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace", "query")


@dataclass(slots=True)
class _Value:
    """A value, with its key in a mapping; marks are offsets."""

    keys: tuple[str, ...]  # to the value; only the last one in a list
    start: int  # of the key
    begin: int  # of the value
    end: int
    scalar: str = ""
    values: list[_Value] = field(default_factory=list)  # of a mapping

    def find(self, name: str) -> str:
        """The scalar below a key of the mapping, without line ends; empty without one."""
        found = (value.scalar for value in self.values if value.keys[-1] == name)
        return " ".join(next(found, "").split())


_EMPTY = _Value((), 0, 0, 0)


class _Part(NamedTuple):
    """A part of the text: code, below a heading unless `level` is 0."""

    start: int
    begin: int
    end: int
    level: int
    title: str


def specification_blocks(text: str) -> list[Block]:
    """The headings and code of an OpenAPI document or a JSON Schema, in order and without byte
    offsets; [] for other texts, and for those that are broken or describe nothing.
    """
    blocks: list[Block] = []
    for part in _find_parts(text):
        if part.level:
            span = part.start, part.begin - 1
            blocks.append(Block(0, "heading", *span, part.level, title=part.title))
        if part.end > part.begin:
            blocks.append(Block(0, "code", part.begin, part.end))
    return fill_gaps(text, blocks) if blocks else []


def specification_edits(text: str) -> list[Edit]:
    """The edits that turn a specification into Markdown, in order and without overlap."""
    edits: list[Edit] = []
    language = "json" if text.lstrip().startswith("{") else "yaml"
    at, close = 0, ""
    for part in _find_parts(text):
        if part.start > at:
            edits.append(_drop(text, at, part.start, f"{close}\n\n" if at else ""))
        code = text[part.begin : part.end]
        mark = ticks_around(code)
        opening = f"{mark}{language}\n" if code else ""
        if part.level:
            heading = f"{'#' * part.level} {part.title}"
            edits.append(Edit(part.start, part.begin - 1, heading, REWRITTEN))
            edits.append(Edit(part.begin - 1, part.begin, f"\n\n{opening}", REWRITTEN))
        elif code:
            edits.append(Edit(0, part.begin, opening, REWRITTEN))
        close = f"\n{mark}" if code else ""
        width = min((len(it[1]) for it in _INDENT.finditer(code)), default=0)
        if width:
            width = min(width, part.begin - 1 - text.rfind("\n", 0, part.begin))
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
    root = _parse(text) if _MARK.search(text) else _EMPTY
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
        level = _find_level(value.keys) or beside
        count, part = len(parts), parts[-1]
        end = value.begin + len(text[value.begin : value.end].rstrip())
        if level:
            title = _write_title(value)[:_MAX_TITLE]
            part = _Part(value.start, value.begin, value.begin, level, title)
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
            parts[-1] = part._replace(begin=begin if shown else end, end=end)
        else:
            begin = part.begin if part.end > part.begin else value.start
            parts[-1] = part._replace(begin=begin, end=end)
        beside = max(beside, level, 2) if level else 0


def _find_level(keys: Sequence[str]) -> int:
    """The level of the heading above a value; 0 for one that needs none."""
    match keys:
        case ["info" | "title"]:
            return 1
        case ["paths" | "webhooks", _, _] | ["properties", _]:
            return 2
        case ["paths" | "webhooks", _, method, *below] if method in _METHODS:
            match below:
                case ["parameters" | "requestBody" | "responses" | "callbacks"]:
                    return 3
                case ["responses", _]:
                    return 4
        case ["components", _, *below] | [
            "definitions" | "$defs" | "parameters" | "responses" | "securityDefinitions",
            *below,
        ]:
            match below:
                case [_]:
                    return 2
                case [_, "properties", _]:
                    return 3
    return 0


def _write_title(value: _Value) -> str:
    """The words of the heading above a value."""
    name = value.keys[-1]
    match value.keys:
        case ["info" | "title"]:
            return value.find("title") or " ".join(value.scalar.split()) or name
        case ["paths" | "webhooks", route, method] if method in _METHODS:
            operation = value.find("operationId")
            return f"{method.upper()} {route}" + (f": {operation}" if operation else "")
        case ["paths" | "webhooks", route, _]:
            return f"{route} {name}"
        case ["paths" | "webhooks", _, _, "responses", _]:
            return f"status {name}"
    return name


def _parse(text: str) -> _Value:
    """The mapping in a text, from the parser's events, so that aliases stay names. It is empty if
    the text is broken, no mapping, several documents or nested too deep.
    """
    import yaml

    # with the same offsets; between the tokens of JSON there may be tabs
    source = _SURROGATE.sub(r"\\uff", text.replace("\t", " "))
    try:
        events = yaml.parse(source, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        nodes = (event for event in events if isinstance(event, yaml.NodeEvent))
        first = next(nodes, None)
        if not isinstance(first, yaml.MappingStartEvent):
            return _EMPTY
        root = _read(first, events, (), 0)
        return _EMPTY if next(nodes, None) else root
    except (yaml.YAMLError, ValueError):
        return _EMPTY


def _read(
    event: yaml.Event, events: Iterator[yaml.Event], keys: tuple[str, ...], depth: int
) -> _Value:
    """The value that begins with an event."""
    import yaml

    if depth > _MAX_DEPTH:
        raise ValueError
    start, end = _span(event)
    if isinstance(event, yaml.ScalarEvent):
        return _Value(keys, start, start, end, event.value)
    value = _Value(keys, start, start, end)
    if not isinstance(event, yaml.CollectionStartEvent):
        return value
    is_mapping = isinstance(event, yaml.MappingStartEvent)
    while not isinstance(inner := next(events), yaml.CollectionEndEvent):
        child = _read(inner, events, (), depth + 1)
        if is_mapping:
            start, name = child.start, " ".join(child.scalar.split())
            child = _read(next(events), events, (*keys, name), depth + 1)
            child.start = start
            if depth < _MOST_KEYS:
                value.values.append(child)
        value.end = max(value.end, child.end)
    start, end = _span(inner)
    value.end = max(value.end, end if end > start else 0)  # brackets have a width
    return value


def _span(event: yaml.Event) -> tuple[int, int]:
    """The offsets of an event."""
    return event.start_mark.index, event.end_mark.index  # type: ignore[union-attr]
