"""EPUB books: the chapters of the spine in reading order, read as HTML.

Locators are `part=OEBPS/ch1.xhtml;xpath=/html/body/p[3]`.
"""

from __future__ import annotations

import posixpath
import re
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar
from urllib.parse import unquote

from rag_platform.errors import DocumentError
from rag_platform.ir import Block, Facts, HiddenText, Json
from rag_platform.loaders.archives import ZipLoader, reject_damaged
from rag_platform.loaders.markup.html import decode_page, find_mismatched, parse_page
from rag_platform.loaders.markup.html_blocks import Page
from rag_platform.loaders.office.ooxml import parse_part
from rag_platform.loaders.parts import Engine, Part, join_parts, joined_facts
from rag_platform.loaders.text import escape_locator
from rag_platform.traits import Traits

MAX_CHAPTERS = 5_000
_PAGES = ("application/xhtml+xml", "text/html", "application/x-dtbook+xml")
# obfuscated fonts do not protect the text
_FONTS = ("http://www.idpf.org/2008/embedding", "http://ns.adobe.com/pdf/enc#RC")
_EMPTY = "no chapter of the book holds text; nothing to index"
_DECLARED = re.compile(rb"""^\s*<\?xml[^>]*encoding=["']([\w.:-]+)""")


@dataclass(frozen=True)
class EpubLoader(ZipLoader):
    """Reads books without copy protection."""

    SUFFIXES: ClassVar[tuple[str, ...]] = (".epub",)
    NAME: ClassVar[str] = "epub"
    VERSION: ClassVar[str] = "15"
    traits: ClassVar[Traits] = Traits(isolated=True)

    def load(self, path: Path, filename: str) -> Facts:
        """Raises `broken_file`, `encrypted`, `archive_bomb`, `too_large`, `empty_file`."""
        from lxml import etree

        self.require(path)
        warnings: list[str] = []
        hidden: list[HiddenText] = []
        with (
            reject_damaged("the book cannot be read", "download or export it again"),
            zipfile.ZipFile(path) as archive,
        ):
            book = _read_book(archive)
            joined = join_parts(_read_parts(archive, book, warnings, hidden), _EMPTY)
        title = joined.choose_title(str(book.metadata.pop("title", "")), filename)
        metadata = {**book.metadata, "chapters": len(book.chapters)}
        engine = Engine("lxml", etree.__version__, "spine")
        return joined_facts(self, engine, joined, title, metadata, warnings, hidden=hidden)

    def verify_blocks(self, path: Path, text: str, blocks: Sequence[Block]) -> dict[int, str]:
        """Ordinal to reason for each block that differs from its chapter, as for HTML."""
        self.require(path)
        with zipfile.ZipFile(path) as archive:
            known = {f"part={escape_locator(name)};": name for name in archive.namelist()}
            return find_mismatched(
                lambda place: _read_page(archive, known[place]) if place in known else None,
                text,
                blocks,
            )


@dataclass(frozen=True, slots=True)
class _Book:
    chapters: tuple[str, ...]  # names of parts
    metadata: Json


def _read_book(archive: zipfile.ZipFile) -> _Book:
    """The spine and metadata. Raises DocumentError `encrypted`, KeyError for a missing part."""
    package_files = parse_part(archive.read("META-INF/container.xml")).iter("{*}rootfile")
    if not (package := next((item.get("full-path") for item in package_files), None)):
        raise KeyError("rootfile")
    root = parse_part(archive.read(package))
    folder = posixpath.dirname(package)
    items = {item.get("id"): item for item in root.iter("{*}item")}
    chapters = []
    for reference in root.iter("{*}itemref"):
        item = items.get(reference.get("idref"))
        if item is not None and item.get("media-type") in _PAGES:
            name = posixpath.join(folder, unquote(item.get("href", "")))
            chapters.append(posixpath.normpath(name))
    if len(chapters) > MAX_CHAPTERS:
        raise DocumentError(
            f"{len(chapters)} chapters, above {MAX_CHAPTERS}; split the book", code="too_large"
        )
    if locked := _find_encrypted(archive).intersection(chapters):
        raise DocumentError(
            f"{len(locked)} chapters are encrypted (copy protection); use a copy without it",
            code="encrypted",
        )
    found: Json = {}
    for name in ("title", "creator", "language", "date", "publisher"):
        key = "author" if name == "creator" else name
        values = [
            words
            for item in root.iter(f"{{http://purl.org/dc/elements/1.1/}}{name}")
            if (words := " ".join((item.text or "").split()))
        ]
        if values:
            found[key] = ", ".join(values[:20])[:1000] if key == "author" else values[0][:1000]
    return _Book(tuple(chapters), found)


def _find_encrypted(archive: zipfile.ZipFile) -> set[str]:
    """The encrypted parts other than fonts."""
    if "META-INF/encryption.xml" not in archive.namelist():
        return set()
    found = set()
    for data in parse_part(archive.read("META-INF/encryption.xml")).iter("{*}EncryptedData"):
        method = next((item.get("Algorithm") for item in data.iter("{*}EncryptionMethod")), "")
        if method not in _FONTS:
            found |= {unquote(item.get("URI", "")) for item in data.iter("{*}CipherReference")}
    return found


def _read_page(archive: zipfile.ZipFile, part: str) -> Page:
    raw = archive.read(part)
    declared = _DECLARED.match(raw)
    text = decode_page(raw, declared[1].decode("ascii") if declared else "").text
    root = parse_page(re.sub(r"^\s*<\?xml[^>]*\?>", "", text))
    # a chapter has no page around it: its headers are titles, its asides are notes
    for body in root.iter("body"):
        body.set("role", "main")
    return Page(root)


def _read_parts(
    archive: zipfile.ZipFile, book: _Book, warnings: list[str], hidden: list[HiddenText]
) -> Iterator[Part]:
    names = set(archive.namelist())
    for chapter in book.chapters:
        if chapter not in names:
            warnings.append(f"the chapter {chapter} is missing in the file")
            continue
        try:
            page = _read_page(archive, chapter)
        except DocumentError as error:
            if error.code != "empty_file":
                warnings.append(f"the chapter {chapter} was not read: {error.message}")
            continue
        warnings += [f"{chapter}: {note}" for note in page.notes]
        hidden += page.hidden
        find = partial(_find_image, names, chapter)
        yield from page.parts(page.pieces, f"part={escape_locator(chapter)}", find)


def _find_image(names: set[str], chapter: str, target: str) -> str:
    """`part:NAME` for an image in the book, else the address as written."""
    name = posixpath.normpath(
        posixpath.join(posixpath.dirname(chapter), unquote(target.split("#")[0]))
    )
    return f"part:{name}" if name in names else target
