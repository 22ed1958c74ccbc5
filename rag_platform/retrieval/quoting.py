"""Evidence as a prompt quotes it: numbered blocks that no text inside them can end or forge."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rag_platform.ir import Hit
from rag_platform.retrieval.rendering import edited, place
from rag_platform.text.markdown_blocks import open_fence

FORMATS = ("markdown", "xml", "plain")
_TAG = re.compile(r"<(?=\s*/?\s*passage)", re.IGNORECASE)
_LEAST_OVERLAP = 16  # characters; shorter ones are chance


def rendered(hits: Sequence[Hit], format: str = "markdown") -> str:
    """The hits as blocks numbered 1, 2, 3, ...; what a chunk repeats of the one before it is left out of its block.

    markdown and plain: `[n] source, heading, place` and the text, every line of it behind `> ` or four blanks, so that a line that looks
    like the head of a block is none. xml: `<passage n= source= section= place=>`. In all of them a tag of that name inside is escaped,
    and a code fence that a text leaves open is closed.
    """
    return "\n\n".join(block(hit, n, format, since=overlap(hits[n - 2], hit) if n > 1 else 0) for n, hit in enumerate(hits, 1))


def block(hit: Hit, number: int, format: str = "markdown", *, since: int = 0) -> str:
    """The block of one hit, its text from the character `since` on."""
    text = _TAG.sub("&lt;", hit.chunk_text[since:].strip("\n"))
    if fence := open_fence(text):
        text = f"{text}\n{fence}"
    where = [hit.source_uri, hit.section_path, place(hit.page_range, hit.line_range, hit.locator), edited(hit.edited_from)]
    source, section, spot, note = (_TAG.sub("&lt;", " ".join(part.split())) for part in where)
    if format == "xml":
        named = {"source": source, "section": section, "place": spot, "note": note}
        attributes = "".join(f' {name}="{_attribute(value)}"' for name, value in named.items() if value)
        return f'<passage n="{number}"{attributes}>\n{text}\n</passage>'
    head = f"[{number}] {', '.join(part for part in (source, section, spot, note) if part)}".rstrip()
    margin = "> " if format == "markdown" else "    "
    return "\n".join([head, *(f"{margin}{line}".rstrip() for line in text.splitlines())])


def overlap(before: Hit, hit: Hit) -> int:
    """How many characters at the beginning of a hit are the end of the one before it, a chunk of the same section; 0 for others."""
    same = (before.namespace, before.version_id, before.section_path) == (hit.namespace, hit.version_id, hit.section_path)
    if not same or hit.chunk_index <= before.chunk_index:
        return 0
    opening = hit.chunk_text[:_LEAST_OVERLAP]
    at = before.chunk_text.find(opening) if len(opening) == _LEAST_OVERLAP else -1
    while at >= 0:
        shared = len(before.chunk_text) - at
        if hit.chunk_text.startswith(before.chunk_text[at:]):
            return shared if hit.chunk_text[shared:].strip() else 0
        at = before.chunk_text.find(opening, at + 1)
    return 0


def _attribute(value: str) -> str:
    return value.replace('"', "&quot;").replace("<", "&lt;").replace(">", "&gt;")
