"""Facts assembled from parts: pieces of Markdown, each with its locator in the file."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import ClassVar, NamedTuple, Protocol

from rag_platform.errors import DocumentError
from rag_platform.ir import JOINT, Block, Facts, HiddenText, MediaRef, ParseSummary
from rag_platform.loaders.decoding import Decoded

# titles that programs give to documents without one
PLACEHOLDER = re.compile(
    r"about:blank|(?:untitled(?: document| page)?|new document)[ -]?\d{0,3}"
    r"|(?:未命名|无标题|無標題|新建)(?:文[档檔件]|网页|網頁|页面|頁面)?[ -]?\d{0,3}"
    r"|(?:document|文[档檔]|slide|幻灯片|投影片|presentation|演示文稿|工作簿) ?\d{1,3}"
    r"|microsoft (?:office )?(?:word|excel|powerpoint)(?: - .*)?"
    r"|powerpoint (?:presentation|演示文稿|簡報)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Image:
    """An image's place in a piece of Markdown."""

    start: int
    end: int
    target: str  # as written in the file
    alt: str

    def move(self, by: int) -> Image:
        """The image shifted by a number of characters."""
        return replace(self, start=self.start + by, end=self.end + by)


@dataclass(frozen=True, slots=True)
class Part:
    """One block of the facts."""

    kind: str  # as ir.Block.kind
    text: str
    locator: str
    level: int = 0
    title: str = ""
    images: Sequence[Image] = ()
    tight: bool = False  # separated from the previous part by one line end, not by a blank line
    lines: tuple[int, int] | None = None  # first and last, in a text file


class Loader(Protocol):
    """What the summary of the facts records about a loader."""

    NAME: ClassVar[str]
    VERSION: ClassVar[str]


class Engine(NamedTuple):
    """The library that read a file, as the summary records it."""

    name: str
    version: str
    profile: str = "verbatim"


class Joined(NamedTuple):
    """Parts joined to one text, with its blocks and images."""

    text: str
    blocks: list[Block]
    images: list[Image]

    def choose_title(self, own: str, filename: str) -> str:
        """The title in the file, else its first heading, else the file name without suffix."""
        headings = (block.title for block in self.blocks if block.title)
        own = "" if PLACEHOLDER.fullmatch(own.strip()) else own
        return own or next(headings, "") or PurePosixPath(filename).stem


def join_parts(parts: Iterable[Part], empty: str) -> Joined:
    """The parts separated by blank lines. Raises `empty_file` with the message `empty` for none."""
    texts: list[str] = []
    blocks: list[Block] = []
    images: list[Image] = []
    at = 0
    for part in parts:
        gap = "" if not texts else "\n" if part.tight else "\n\n"
        texts += (gap, part.text)
        start = at + len(gap)
        at = start + len(part.text)
        first, last = part.lines or (None, None)
        blocks.append(
            Block(
                len(blocks),
                part.kind,
                start,
                at,
                part.level,
                line_start=first,
                line_end=last,
                locator=part.locator,
                title=part.title,
            )
        )
        images += [image.move(start) for image in part.images]
    if not blocks:
        raise DocumentError(empty, code="empty_file")
    return Joined("".join(texts) + "\n", blocks, images)


def image_refs(
    images: Sequence[Image], blocks: Sequence[Block], source_type: str = "markdown"
) -> Iterator[MediaRef]:
    """A reference to each image, with the headings above it; both sequences are in text order."""
    headings = [block for block in blocks if block.kind == "heading"]
    path: list[tuple[int, str]] = []
    next_heading = 0
    for order, image in enumerate(images):
        while next_heading < len(headings) and headings[next_heading].start <= image.start:
            level, title = headings[next_heading].level, headings[next_heading].title
            path = [*(item for item in path if item[0] < level), (level, title)]
            next_heading += 1
        yield MediaRef(
            f"img-{order + 1:04d}",
            source_type,
            image.target,
            image.start,
            image.end,
            order=order,
            heading_path=JOINT.join(title for _, title in path),
            context_hint=" ".join(image.alt.split())[:200],
        )


def joined_facts(
    loader: Loader,
    engine: Engine,
    joined: Joined,
    title: str,
    metadata: dict[str, object],
    warnings: Sequence[str] = (),
    decoded: Decoded | None = None,
    *,
    hidden: Sequence[HiddenText] = (),
) -> Facts:
    """The facts of joined parts; `decoded` is for text files only, `hidden` is invisible text."""
    decoded = replace(decoded, text=joined.text) if decoded else Decoded(joined.text, "")
    media = image_refs(joined.images, joined.blocks, loader.NAME)
    facts = make_facts(loader, engine, decoded, joined.blocks, media, title, metadata, warnings)
    return replace(facts, summary=replace(facts.summary, hidden=tuple(hidden))) if hidden else facts


def make_facts(
    loader: Loader,
    engine: Engine,
    decoded: Decoded,
    blocks: Sequence[Block],
    media: Iterable[MediaRef],
    title: str,
    metadata: dict[str, object],
    warnings: Sequence[str] = (),
) -> Facts:
    """The facts of a decoded text whose loader found these blocks and images."""
    media = tuple(media)
    summary = ParseSummary(
        loader_name=loader.NAME,
        loader_version=loader.VERSION,
        parser_engine=engine.name,
        engine_version=engine.version,
        parse_profile=engine.profile,
        md_sha256=hashlib.sha256(decoded.text.encode()).hexdigest(),
        text_chars=len(decoded.text),
        paragraphs=sum(
            block.kind in ("paragraph", "list", "code", "table", "html") for block in blocks
        ),
        images=len(media),
        encoding=decoded.encoding,
        lossy=decoded.lossy,
        title=title,
        metadata=metadata,
        warnings=(*decoded.warnings, *warnings),
    )
    return Facts(decoded.text, tuple(blocks), media, summary)


def fence(text: str, language: str = "") -> str:
    """The text as a fenced code block, with a fence longer than any in the text."""
    mark = ticks_around(text)
    return f"{mark}{language}\n{text}\n{mark}"


def ticks_around(text: str, least: int = 3) -> str:
    """The backticks that enclose a text as code, more than any in it, and `least` of them."""
    return "`" * max(least, 1 + max(map(len, re.findall("`+", text)), default=0))


def list_mark(number: str) -> str:
    """The Markdown marker of a list item; Markdown has only `1.` and `1)` for numbers."""
    if re.fullmatch(r"\d{1,9}[.)]", number, re.ASCII):
        return number
    return f"- {number}" if number else "-"
