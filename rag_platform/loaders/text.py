"""Plain text and source code: the decoded file, unchanged, with one block per paragraph."""

from __future__ import annotations

import itertools
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import ClassVar

from rag_platform.ir import Block, Facts
from rag_platform.loaders.commented_settings import LANGUAGES as COMMENTED
from rag_platform.loaders.commented_settings import SETTINGS, comment_edits
from rag_platform.loaders.debian_changelogs import (
    DEBIAN_CHANGELOG,
    debian_changelog_blocks,
    is_debian_changelog,
)
from rag_platform.loaders.decoding import ByteMap, byte_map, decode, format_lengths, looks_like_text
from rag_platform.loaders.json_records import JSON_RECORDS, record_blocks
from rag_platform.loaders.languages import COMMENT_MARKS, LANGUAGES, find_language, suffix_of
from rag_platform.loaders.manuals import MANUAL, is_manual, manual_blocks
from rag_platform.loaders.markups import (
    NUMBERED,
    SUBTITLES,
    SUFFIXES,
    find_markup,
    list_numbered,
    markup_blocks,
)
from rag_platform.loaders.parts import Engine, make_facts
from rag_platform.loaders.restructured import RESTRUCTURED, is_restructured, restructured_blocks
from rag_platform.loaders.source_code import SOURCE_CODE, source_blocks
from rag_platform.loaders.specifications import SPECIFICATION, specification_blocks
from rag_platform.text.wording import pluralise
from rag_platform.traits import Traits

PROSE = {".txt", ".text", ".rst", ".rest", ".log", ".tex", *SUFFIXES}
# the markup of a document's title
_TITLES = {
    ".adoc": re.compile(r"^= +(\S.*)$", re.M),
    ".org": re.compile(r"^#\+title:[ \t]*(\S.*)$", re.M | re.I),
    ".tex": re.compile(r"\\title\s*\{((?:[^{}]|\{[^{}]*\})+)\}"),
}
# of Jinja, Liquid, Nunjucks, Twig, Django and Go templates
TEMPLATE_CODE = re.compile(r"\{\{[^\n]{0,400}?\}\}|\{%[^\n]{0,400}?%\}")
LINE_END = re.compile(r"\r\n?|\n")
BLANK_LINES = re.compile(r"(?:\r\n|\r(?!\n)|\n)(?:[^\S\r\n]*+(?:\r\n|\r(?!\n)|\n))+")


@dataclass(frozen=True)
class TextLoader:
    """Reads text and source code, unchanged; `charset` is the encoding that a server declared."""

    charset: str = ""

    NAME: ClassVar[str] = "text"
    VERSION: ClassVar[str] = "17"
    traits: ClassVar[Traits] = Traits()

    def claims(self, filename: str, head: bytes) -> bool:
        """True for text with a known suffix or with none."""
        return (
            (suffix := suffix_of(filename)) in PROSE | LANGUAGES.keys() | {""}
            and looks_like_text(head)
            and bool(head or suffix)
        )

    def load(self, path: Path, filename: str) -> Facts:
        """The facts of a text file. Raises DocumentError: `empty_file`, `binary_content`."""
        raw = path.read_bytes()
        decoded = decode(raw, self.charset)
        text, bytes_of, suffix = decoded.text, byte_map(raw, decoded), suffix_of(filename)
        language = find_language(filename)
        engine = Engine("python", "1")
        profile, found = _read_markup(text, suffix, language)
        if profile:
            engine = engine._replace(profile=profile)
        if found:
            starts = line_starts(text)
            blocks = [locate(it, bytes_of, starts) for it in found]
        else:
            blocks = paragraph_blocks(text, bytes_of, 0, "code" if language else "paragraph")
        headings = [block for block in blocks if block.title]
        if language:
            named = (block.title for block in headings if block.level == 1)
            title = next(named, PurePosixPath(filename).name)
        elif headings and profile != NUMBERED:
            title = "" if titles_section(headings) else headings[0].title
        else:
            is_named = profile == SUBTITLES
            title = PurePosixPath(filename).stem if is_named else _find_title(text, suffix)
        metadata: dict[str, object] = {"language": language} if language else {}
        warnings = _warn_of_broken(blocks) if profile == JSON_RECORDS else ()
        return make_facts(self, engine, decoded, blocks, (), title, metadata, warnings)


def _read_markup(text: str, suffix: str, language: str) -> tuple[str, list[Block]]:
    """The parse profile of the markup that the text is in, empty for plain text and code, and the
    blocks that the markup shows.
    """
    if language:
        if language in ("yaml", "json") and (blocks := specification_blocks(text)):
            return SPECIFICATION, blocks
        if language == "json" and (blocks := record_blocks(text)):
            return JSON_RECORDS, blocks
        if language in COMMENT_MARKS and (blocks := source_blocks(text, language)):
            return f"{SOURCE_CODE}:{language}", blocks
        return SETTINGS if language in COMMENTED and comment_edits(text) else "", []
    if is_manual(text):
        return MANUAL, manual_blocks(text)
    if is_debian_changelog(text):
        return DEBIAN_CHANGELOG, debian_changelog_blocks(text)
    if profile := find_markup(text, suffix):
        return profile, markup_blocks(text, profile)
    if is_restructured(text, suffix):
        return RESTRUCTURED, restructured_blocks(text)
    return (NUMBERED, markup_blocks(text, NUMBERED)) if list_numbered(text) else ("", [])


def _warn_of_broken(records: Sequence[Block]) -> tuple[str, ...]:
    """A warning about what cannot be read as JSON, which the records have as code."""
    lines = [block.line_start for block in records if block.kind == "code"]
    if not lines:
        return ()
    more = f", and {pluralise(len(lines) - 1, 'more such line')}" if len(lines) > 1 else ""
    return (f"line {lines[0]} is no record in JSON{more}; it is kept as it is written",)


def _find_title(text: str, suffix: str) -> str:
    """The title in the markup of a suffix, else the first line."""
    marked = _TITLES[suffix].search(text) if suffix in _TITLES else None
    return first_line(" ".join(marked[1].split()) if marked else text)


def line_starts(text: str) -> list[int]:
    """The offset of each line; lines end with LF, CR LF or CR, as in CommonMark."""
    return [0, *(match.end() for match in LINE_END.finditer(text))]


def first_line(text: str) -> str:
    """The first line that is not blank, at most 200 characters."""
    for match in re.finditer(r"[^\r\n]+", text):
        if line := match.group().strip("\ufeff \t\u3000"):
            return " ".join(line.split())[:200]
    return ""


def reads_as_title(line: str) -> bool:
    """True for words; False for a table row and for mostly numbers or symbols."""
    visible = [char for char in line if not char.isspace()]
    tokens = line.split()
    numbers = sum(
        any(map(str.isdigit, token)) and not any(map(str.isalpha, token)) for token in tokens
    )
    bars = line.startswith("|") or " | " in line
    row = (bars and line.count("|") >= 2) or (numbers > 3 and 2 * numbers > len(tokens))
    return not row and 2 * sum(map(str.isalnum, visible)) >= len(visible) > 0


def titles_section(headings: Sequence[Block]) -> bool:
    """True if the first heading titles a section and not the document: it is not of level 1, and
    there are others of its level.
    """
    level = headings[0].level if headings else 0
    return level > 1 and any(block.level == level for block in headings[1:])


def paragraph_blocks(
    text: str, bytes_of: ByteMap, start: int = 0, kind: str = "paragraph", ordinal: int = 0
) -> list[Block]:
    """One block per run of non-blank lines of text[start:], with its bytes and lines."""
    starts = line_starts(text)
    return [
        locate(Block(number, kind, *span), bytes_of, starts)
        for number, span in enumerate(paragraph_spans(text, start), ordinal)
    ]


def paragraph_spans(text: str, start: int = 0) -> Iterator[tuple[int, int]]:
    """The span of each run of non-blank lines of text[start:]."""
    gaps = (match.span() for match in BLANK_LINES.finditer(text, start))
    edges = [start, *itertools.chain(*gaps), len(text)]
    for begin, end in zip(edges[::2], edges[1::2], strict=True):
        while begin < end and text[begin] in "\r\n":
            begin += 1
        while end > begin and text[end - 1] in "\r\n":
            end -= 1
        if text[begin:end].strip():
            yield begin, end


def locate(block: Block, bytes_of: ByteMap, starts: Sequence[int]) -> Block:
    """The block with the byte and line numbers of its span; `starts` are the offsets of lines."""
    first, last = bytes_of.span(block.start, block.end)
    return replace(
        block,
        byte_start=first,
        byte_end=last,
        line_start=bisect_right(starts, block.start),
        line_end=bisect_right(starts, block.end - 1),
        locator=format_lengths(bytes_of, block.start, block.end),
    )


def format_range(first: int, last: int) -> str:
    """`3-9`, or `3` for a single number."""
    return str(first) if first == last else f"{first}-{last}"


def escape_locator(name: str) -> str:
    """The name of a sheet or chapter file, escaped for a locator."""
    return re.sub(r"[%;\x00-\x1f]", lambda match: f"%{ord(match.group()):02X}", name)
