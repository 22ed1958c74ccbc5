"""Renders answers on a terminal: formatted Markdown, and each cited passage with its place, the
quoted spans and the words of the question highlighted.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rag_platform.ir import Json
from rag_platform.messages import LANGUAGES, translate

if TYPE_CHECKING:
    from rich.console import Console

_WORD = re.compile(r"[A-Za-z0-9][\w.-]{3,}|[\u4e00-\u9fff]{2}")


def render_answer(data: Json, question: str, console: Console) -> None:
    """Print an answer: its text, each source with its passage, then the notes."""
    from rich.markdown import Markdown
    from rich.padding import Padding
    from rich.text import Text

    from rag_platform.contract.markdown_views import quote_of

    head, tail, language = _split(str(data["markdown"]))
    console.print(Markdown(head))
    words = {word.lower() for word in _WORD.findall(question)}
    for citation in map(quote_of, data["citations"] if tail else ()):
        line = Text()
        line.append(f"[{citation['id']}] ", style="bold")
        line.append(str(citation["source_uri"]), style="cyan")
        for part, style in (
            (citation["section_path"], "default"),
            (_place(citation, language), "green"),
        ):
            if part:
                line.append(f", {part}", style=style)
        console.print()
        console.print(line)
        passage = Text(str(citation["text"]), style="dim")
        for start, end in citation.get("spans") or [[0, len(passage)]]:
            passage.stylize("not dim", start, end)
        for word in words:
            passage.highlight_regex(f"(?i){re.escape(word)}", style="bold yellow")
        console.print(Padding(passage, (0, 0, 0, 4)))
    for note in (tail or "").split("\n\n")[1:]:
        console.print()
        console.print(Text(note.strip("*"), style="dim" if note.startswith("*") else "yellow"))


def _split(markdown: str) -> tuple[str, str, str]:
    """(the answer, the text below the heading of the sources, the language)."""
    from rag_platform.contract.markdown_views import SOURCES

    for language in LANGUAGES:
        head, heading, tail = markdown.partition(f"\n\n**{translate(SOURCES, language)}**\n\n")
        if heading:
            return head, tail, language
    return markdown, "", "en"


def _place(citation: Json, language: str) -> str:
    from rag_platform.contract.place_names import format_place

    return format_place(
        citation.get("page_range"),
        citation.get("line_range"),
        citation.get("locator") or "",
        language,
    )
