"""The target inside an image construct: which characters to replace so that it points elsewhere."""

from __future__ import annotations

import re

from rag_platform.loaders.markdown_images import SRC


def target_edit(text: str, start: int, end: int, target: str) -> tuple[int, int, str] | None:
    """(start, end, replacement) that makes the image construct text[start:end] point at `target`; None when it has no target.

    `![alt](old "title")` and `<img src="old">` have their target replaced; `![alt][label]` and `![label]` become inline images.
    """
    construct = text[start:end]
    if construct.startswith("<"):
        found = SRC.search(construct)
        if found is None:
            return None
        group = next(i for i in (1, 2, 3) if found.group(i) is not None)
        return start + found.start(group), start + found.end(group), target
    if construct.endswith(")"):
        span = _inline_target(construct)
        return None if span is None else (start + span[0], start + span[1], target)
    label = _label_end(construct)
    if label is None or not construct.endswith("]"):
        return None
    return (start + label + 1, end, f"({target})") if label + 1 < len(construct) else (end - 1, end, f"]({target})")


def _inline_target(construct: str) -> tuple[int, int] | None:
    """The span of the target in `![alt](target "title")`."""
    from markdown_it.helpers import parseLinkDestination, parseLinkTitle

    for opening in re.finditer(r"\]\(\s*", construct):
        at, limit = opening.end(), len(construct)
        if construct[at:] == ")":
            return at, at
        found = parseLinkDestination(construct, at, limit)
        if not found.ok:
            continue
        rest = found.pos
        while rest < limit and construct[rest].isspace():
            rest += 1
        if rest > found.pos and construct[rest] != ")":
            title = parseLinkTitle(construct, rest, limit, None)
            rest = title.pos if title.ok else rest
        if construct[rest:].strip() == ")":
            return at, found.pos
    return None


def _label_end(construct: str) -> int | None:
    """The offset of the `]` that closes the first bracket."""
    depth, index = 0, 1
    while index < len(construct):
        if construct[index] == "\\":
            index += 1
        elif construct[index] == "[":
            depth += 1
        elif construct[index] == "]":
            depth -= 1
            if depth == 0:
                return index
        index += 1
    return None
