"""Jupyter notebooks: Markdown cells unchanged, code cells and their text outputs as code, images.

Locators are `cell=3` (a code cell; cells count from 1), `cell=3;lines=5-9` (lines of a Markdown
cell) and `cell=3;output=1`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from rag_platform.errors import DocumentError
from rag_platform.ir import Block, Facts, Json
from rag_platform.loaders.archives import describe_damage, reject_damaged
from rag_platform.loaders.decoding import decode, looks_like_text
from rag_platform.loaders.languages import suffix_of
from rag_platform.loaders.parts import (
    Engine,
    Image,
    Part,
    fence,
    join_parts,
    joined_facts,
)
from rag_platform.loaders.text import line_starts
from rag_platform.text.markdown_blocks import fence_body, open_fence
from rag_platform.traits import Traits

MAX_CELLS = 20_000
MAX_OUTPUT_CHARS = 50_000  # of one output; logs of a training run may have megabytes
_COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")


@dataclass(frozen=True)
class NotebookLoader:
    """Reads notebooks of version 3 and 4; nothing in them is run."""

    NAME: ClassVar[str] = "ipynb"
    VERSION: ClassVar[str] = "8"
    traits: ClassVar[Traits] = Traits(isolated=True)

    def claims(self, filename: str, head: bytes) -> bool:
        """True for text called .ipynb."""
        return suffix_of(filename) == ".ipynb" and looks_like_text(head)

    def load(self, path: Path, filename: str) -> Facts:
        """Raises `broken_file`, `too_large`, `empty_file`."""
        book = read_notebook(path)
        warnings: list[str] = []
        joined = join_parts(
            _read_parts(book, warnings), "all cells of the notebook are empty; nothing to index"
        )
        metadata: Json = {"language": book.language} if book.language else {}
        metadata["cells"] = len(book.cells)
        title = joined.choose_title(book.title, filename)
        return joined_facts(self, Engine("json", "1", "cells"), joined, title, metadata, warnings)

    def verify_blocks(self, path: Path, text: str, blocks: Sequence[Block]) -> dict[int, str]:
        """Ordinal to reason for each block that differs from its cell or output."""
        book = read_notebook(path)
        return {
            block.ordinal: reason
            for block in blocks
            if (reason := _find_problem(book, text[block.start : block.end], block))
        }


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell with its outputs, each a text, or the (type, base64) of an image."""

    kind: str  # markdown | code | raw
    source: str
    outputs: tuple[str | tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Notebook:
    """A parsed file."""

    cells: tuple[Cell, ...]
    language: str
    title: str


def read_notebook(path: Path) -> Notebook:
    """The cells of a file. Raises DocumentError: `broken_file`, `too_large`."""
    decoded = decode(path.read_bytes())
    try:
        data = json.loads(decoded.text)
    except (ValueError, RecursionError) as error:
        why = describe_damage(error)
        if isinstance(error, json.JSONDecodeError):
            why = f"line {error.lineno}: {error.msg}"
        raise DocumentError(
            f"the notebook is not JSON ({why}); open and save it in Jupyter", code="broken_file"
        ) from error
    with reject_damaged("the file is JSON but not a notebook", "export it from Jupyter again"):
        sheets = data.get("worksheets", [data])
        cells = [cell for sheet in sheets for cell in sheet["cells"]]
        if len(cells) > MAX_CELLS:
            raise DocumentError(
                f"{len(cells)} cells, above {MAX_CELLS}; split the notebook", code="too_large"
            )
        about = data.get("metadata", {})
        language = (
            about.get("language_info", {}).get("name")
            or about.get("kernelspec", {}).get("language")
            or ""
        )
        title = about.get("title") or ""
        return Notebook(
            tuple(map(_read_cell, cells)),
            re.sub(r"[^\w+#-]", "", str(language))[:30],
            " ".join(str(title).split())[:300],
        )


def _read_cell(cell: Any) -> Cell:
    kind, source = str(cell["cell_type"]), join_lines(cell.get("source", cell.get("input", "")))
    if kind == "heading":  # of version 3
        kind, source = "markdown", f"{'#' * int(cell.get('level', 1))} {source}"
    return Cell(
        kind,
        source,
        tuple(found for output in cell.get("outputs", ()) for found in _read_output(output)),
    )


def join_lines(text: Any) -> str:
    """The text of a field that is a string or a list of lines."""
    return "".join(map(str, text)) if isinstance(text, list) else str(text)


def _read_output(output: Any) -> Iterator[str | tuple[str, str]]:
    """The text of an output in its best format, and its images."""
    if output.get("output_type") in ("error", "pyerr"):
        trace = (
            "\n".join(map(str, output.get("traceback", ())))
            or f"{output.get('ename', '')}: {output.get('evalue', '')}"
        )
        yield _COLOURS.sub("", trace)
        return
    if output.get("output_type") == "stream":
        yield _COLOURS.sub("", join_lines(output.get("text", "")))
        return
    data = output.get("data") or {
        **output,
        "text/plain": output.get("text", ""),
        "image/png": output.get("png", ""),
    }
    images = [(kind, "".join(join_lines(data[kind]).split())) for kind in _IMAGES if data.get(kind)]
    for kind in ("text/markdown", "text/latex", "text/plain", "text/html"):
        # the plain text of an image is only the name of the Python object
        if data.get(kind) and not (kind == "text/plain" and images):
            yield (
                _visible_words(join_lines(data[kind]))
                if kind == "text/html"
                else _COLOURS.sub("", join_lines(data[kind]))
            )
            break
    yield from images


def _visible_words(page: str) -> str:
    from rag_platform.loaders.markup.html import parse_page
    from rag_platform.loaders.markup.html_inline import visible

    try:
        return " ".join(visible(parse_page(page)).split())
    except DocumentError:
        return ""


def _read_parts(book: Notebook, warnings: list[str]) -> Iterator[Part]:
    for number, cell in enumerate(book.cells, 1):
        if cell.kind == "markdown":
            yield from _read_markdown(cell.source, f"cell={number}")
        elif cell.source.strip():
            yield Part(
                "code",
                fence(cell.source.strip("\n"), book.language if cell.kind == "code" else ""),
                f"cell={number}",
            )
        for order, output in enumerate(cell.outputs, 1):
            place = f"cell={number};output={order}"
            if isinstance(output, tuple):
                shown = f"![](data:{output[0]})"
                yield Part(
                    "paragraph",
                    shown,
                    place,
                    images=(Image(0, len(shown), f"data:{output[0]};base64,{output[1]}", ""),),
                )
            elif output.strip():
                if len(output) > MAX_OUTPUT_CHARS:
                    warnings.append(
                        f"output {order} of cell {number} has {len(output)} characters; the first"
                        f" {MAX_OUTPUT_CHARS} were read"
                    )
                yield Part("code", fence(_clip_output(output)), place)


def _clip_output(output: str) -> str:
    return output[:MAX_OUTPUT_CHARS].strip("\r\n")


def _read_markdown(source: str, place: str) -> Iterator[Part]:
    """The blocks of a Markdown cell; a fence that it leaves open is closed."""
    from rag_platform.loaders.markdown import parse

    source = re.sub(r"\r\n?", "\n", source)
    if not source.strip():
        return
    try:
        blocks, media, *_ = parse(source, 0, line_starts(source))
    except (RecursionError, ValueError):
        blocks, media = [Block(0, "paragraph", 0, len(source))], []
    for block in blocks:
        text = source[block.start : block.end].rstrip("\n")
        first = source.count("\n", 0, block.start) + 1
        last = first + text.count("\n")
        images = [
            Image(ref.start - block.start, ref.end - block.start, ref.origin_ref, ref.context_hint)
            for ref in media
            if ref.start is not None
            and ref.end is not None
            and block.start <= ref.start < block.end
        ]
        locator = f"{place};lines={first}-{last}"
        part = Part(block.kind, text, locator, block.level, block.title, images)
        fenced = block.kind == "code" and text.lstrip(" \t").startswith(("```", "~~~"))
        if fenced and (mark := open_fence(text)):
            part = replace(part, text=f"{text}\n{mark}")
        yield part


def _find_problem(book: Notebook, text: str, block: Block) -> str:
    """How the text of a block differs from its cell or output, or ""."""
    match = re.fullmatch(r"cell=(\d+)(?:;lines=(\d+)-(\d+)|;output=(\d+))?", block.locator)
    if match is None or not 1 <= int(match[1]) <= len(book.cells):
        return f"no cell at {block.locator}"
    cell = book.cells[int(match[1]) - 1]
    if match[4]:
        if not 1 <= int(match[4]) <= len(cell.outputs):
            return f"no output at {block.locator}"
        output = cell.outputs[int(match[4]) - 1]
        same = (
            text == f"![](data:{output[0]})"
            if isinstance(output, tuple)
            else fence_body(text) == _clip_output(output)
        )
    elif match[2]:
        lines = re.sub(r"\r\n?", "\n", cell.source).split("\n")[int(match[2]) - 1 : int(match[3])]
        same = "\n".join(lines).strip() in (text.strip(), text.rpartition("\n")[0].strip())
    else:
        same = fence_body(text) == cell.source.strip("\n")
    return "" if same else f"the file has different text at {block.locator}"
