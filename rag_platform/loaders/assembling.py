"""Pieces of Markdown, each with its native place, put together to facts: for formats that are read part by part."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from rag_platform.ir import Block
from rag_platform.loaders.html_inline import Image


@dataclass(frozen=True, slots=True)
class Part:
    """One block of the facts."""

    kind: str  # as ir.Block.kind
    text: str
    locator: str
    level: int = 0
    title: str = ""
    images: Sequence[Image] = ()
    tight: bool = False  # follows the part before on the next line


def assembled(parts: Iterable[Part]) -> tuple[str, list[Block], list[tuple[int, int, str, str]]]:
    """(facts, blocks, images as `image_refs` takes them); parts stand a blank line apart."""
    texts: list[str] = []
    blocks: list[Block] = []
    found: list[tuple[int, int, str, str]] = []
    at = 0
    for part in parts:
        gap = "" if not texts else "\n" if part.tight else "\n\n"
        texts += (gap, part.text)
        start = at + len(gap)
        at = start + len(part.text)
        blocks.append(Block(len(blocks), part.kind, start, at, level=part.level, locator=part.locator, title=part.title))
        found += [(start + image.start, start + image.end, image.target, image.alt) for image in part.images]
    return "".join(texts) + ("\n" if texts else ""), blocks, found


def choose_title(said: str, blocks: Sequence[Block], filename: str) -> str:
    """What the file says it is called, else its first heading, else its name without the suffix."""
    return said or next((block.title for block in blocks if block.title), "") or PurePosixPath(filename).stem


def fenced(text: str, language: str = "") -> str:
    """The text as a block of code, in a fence longer than any in it."""
    longest = max((len(run) for run in "".join(char if char == "`" else " " for char in text).split()), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def unfenced(text: str) -> str:
    """What stands in a block of code."""
    return text.partition("\n")[2].rpartition("\n")[0]
