"""The metadata at the top of a Markdown file, read without ever running or expanding anything."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

MAX_CHARS = 64 * 1024
MAX_DEPTH = 8
FENCE = re.compile(r"(---|\+\+\+)[ \t]*(?:\r\n?|\n)")


@dataclass(frozen=True, slots=True)
class FrontMatter:
    """`end` is the offset behind the closing line's text, 0 where there is none; what was wrong stands in `warnings`."""

    end: int = 0
    metadata: dict[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


def front_matter(text: str) -> FrontMatter:
    """The front matter of the text: a YAML (`---`) or TOML (`+++`) mapping that closes. Values are text, whole numbers, true/false, lists
    and mappings: dates and version numbers stay as they are written. A broken one is a warning, not a failure."""
    opening = FENCE.match(text)
    if opening is None:
        return FrontMatter()
    mark = opening.group(1)
    closing = re.compile(rf"(?:\A|(?<=[\r\n]))(?:{re.escape(mark)}|\.\.\.)[ \t]*(?=[\r\n]|\Z)").search(text, opening.end(), MAX_CHARS)
    if closing is None:
        if mark == "---" and not re.match(r"[^\r\n]*[\w-]+:(?: |\r|\n)", text[opening.end() : opening.end() + 200]):
            return FrontMatter()  # a thematic break
        return FrontMatter(warnings=(f"front matter opened by {mark} never closes within {MAX_CHARS} characters; read as text",))
    source = text[opening.end() : closing.start()]
    if not source.strip():
        return FrontMatter()
    end = closing.end()
    try:
        metadata, notes = _toml(source) if mark == "+++" else _yaml(source)
    except _BrokenError as error:
        # Text between two thematic breaks is text; only what begins as a mapping is broken front matter.
        if mark == "---" and not re.match(r"\s*(?:#[^\r\n]*\s+)*[\w.\"'-]+[ \t]*:(?:\s|$)", source):
            return FrontMatter(warnings=(f"the block between --- is not a mapping ({error}); read as text",))
        return FrontMatter(end, {}, (f"front matter ignored: {error}",))
    return FrontMatter(end, metadata, tuple(notes))


class _BrokenError(Exception):
    """The front matter cannot be used."""


def _toml(source: str) -> tuple[dict[str, Any], list[str]]:
    import tomllib

    try:
        return _plain(tomllib.loads(source.replace("\r\n", "\n").replace("\r", "\n"))), []
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        raise _BrokenError(f"not valid TOML: {error}") from error


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value if isinstance(value, str | bool | int) else str(value)


def _yaml(source: str) -> tuple[dict[str, Any], list[str]]:
    """The mapping built from the parser's events: no aliases, no tags, no types but the harmless ones."""
    import yaml

    notes: list[str] = []
    root: list[Any] = []
    stack: list[_Open] = []
    try:
        for event in yaml.parse(source, Loader=yaml.SafeLoader):
            if isinstance(event, yaml.AliasEvent):
                raise _BrokenError(f"it uses the alias *{event.anchor}, which is not read")
            if tag := getattr(event, "tag", None):
                raise _BrokenError(f"it uses the tag {tag}, which is not read")
            if isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
                if len(stack) >= MAX_DEPTH:
                    raise _BrokenError(f"it is nested deeper than {MAX_DEPTH}")
                stack.append(_Open([], isinstance(event, yaml.MappingStartEvent)))
            elif isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
                (stack[-2].items if len(stack) > 1 else root).append(stack[-1].closed(notes))
                stack.pop()
            elif isinstance(event, yaml.ScalarEvent):
                (stack[-1].items if stack else root).append(_scalar(event.value, plain=event.implicit[0]))
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise _BrokenError("not valid YAML: " + " ".join(str(error).split())[:200]) from error
    if root and not isinstance(root[0], dict):
        raise _BrokenError(f"it holds a {type(root[0]).__name__}")
    return (root[0] if root else {}), notes


@dataclass(slots=True)
class _Open:
    """A mapping or sequence whose end has not been read."""

    items: list[Any]
    mapping: bool

    def closed(self, notes: list[str]) -> Any:
        """The list, or the mapping without the keys that stand in it twice: which value is meant cannot be known."""
        if not self.mapping:
            return self.items
        found: dict[str, Any] = {}
        twice: set[str] = set()
        for key, value in zip(self.items[::2], self.items[1::2], strict=True):
            name = str(key)
            (twice.add(name) if name in found else found.update({name: value}))
        for name in sorted(twice):
            notes.append(f"front matter has the key {name!r} twice; it is ignored")
            del found[name]
        return found


def _scalar(value: str, *, plain: bool) -> Any:
    if not plain:
        return value
    if value in ("true", "True", "false", "False"):
        return value in ("true", "True")
    return int(value) if re.fullmatch(r"-?(?:0|[1-9]\d{0,14})", value) else value
