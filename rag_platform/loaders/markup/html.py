"""HTML: the main content of a page as Markdown, each block with the XPath of its element.

trafilatura finds what the main content is; the blocks are made here from the page's own tree, so
that tables, code and nested lists stay whole and every block can be proved. Facts depend on the
bytes alone: links and images keep their addresses as written.
"""

from __future__ import annotations

import copy
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from rag_platform.errors import DocumentError
from rag_platform.ir import Block, Facts, HiddenText, Json
from rag_platform.loaders.archives import Reading
from rag_platform.loaders.decoding import Decoded, decode, looks_like_text
from rag_platform.loaders.markup.html_blocks import Page, Piece, letters, source_text
from rag_platform.loaders.markup.html_inline import links
from rag_platform.loaders.markup.html_styles import write_sheets_inline
from rag_platform.loaders.parts import Engine, join_parts, joined_facts
from rag_platform.loaders.text import LANGUAGES, PROSE, first_line, suffix_of
from rag_platform.traits import Traits

if TYPE_CHECKING:
    from lxml.etree import _Element


SUFFIXES = {".html", ".htm", ".xhtml", ".xht", ".shtml"}
START = re.compile(
    rb"(?:\xef\xbb\xbf)?\s*(?:<\?xml[^>]*>\s*)?(?:<!--.*?-->\s*)*<(?:!doctype\s+html|html)[\s>]",
    re.IGNORECASE | re.DOTALL,
)
CHARSET = re.compile(rb"""<meta[^>]+charset\s*=\s*["']?\s*([\w.:-]+)""", re.IGNORECASE)
MAX_GUIDED_BLOCKS = 20_000  # of a page above which trafilatura is not asked for its main content
MAX_GUIDED_LETTERS = 4_000_000
MIN_MAIN = 100  # letters that the main content must have
MIN_MAIN_SHARE = 0.1  # of the page's letters; with less the whole page is taken
MIN_MARK = 20  # letters of a block that can be recognised in the extracted text
MARK_LETTERS = 400  # of them that are compared
CONTAINED = 0.9  # share of the recognised text that the main element must hold
# of a block's letters that stand in links, from which it is navigation at the content's edges
LINK_SHARE = 0.7
_ANSWERS = re.compile(r"question|answer|repl(?:y|ies)\b", re.I)
# classes that say where an element stands and not what it holds
_LAYOUT = re.compile(r"row|col|container|wrap|grid|box|inner|block|module|widget|clear", re.I)
_METADATA = {
    "author": "author article:author dc.creator dcterms.creator".split(),
    "date": (
        "article:published_time date dc.date dcterms.date dcterms.created datepublished pubdate"
    ).split(),
    "modified": (
        "article:modified_time og:updated_time last-modified dcterms.modified datemodified"
    ).split(),
    "description": "description og:description dc.description".split(),
    "site_name": "og:site_name application-name".split(),
}


@dataclass(frozen=True)
class HtmlLoader:
    """Reads HTML; `main_content: whole` drops only navigation, scripts, header and footer.

    `charset` is the encoding that a server declared.
    """

    main_content: Literal["auto", "whole"] = "auto"
    charset: str = ""

    NAME: ClassVar[str] = "html"
    VERSION: ClassVar[str] = "5"
    traits: ClassVar[Traits] = Traits(isolated=True)

    def __post_init__(self) -> None:
        if self.main_content not in ("auto", "whole"):
            raise ValueError(f"main_content is 'auto' or 'whole', not {self.main_content!r}")

    def claims(self, filename: str, head: bytes) -> bool:
        """True for files named HTML, and for HTML unless its name says text or source code."""
        suffix = suffix_of(filename)
        if suffix in SUFFIXES:
            return looks_like_text(head)
        return suffix not in PROSE | LANGUAGES.keys() and START.match(head) is not None

    def load(self, path: Path, filename: str) -> Facts:
        """The facts of a page. Raises `empty_file`, `binary_content`, `too_deep`."""
        import lxml.etree
        import trafilatura

        decoded = decode_page(path.read_bytes(), self.charset)
        page = Page(parse_page(decoded.text))
        if not page.pieces:
            raise DocumentError(
                "the page holds no text; where a script builds it, save it from the browser as a"
                " complete page, or as PDF",
                code="empty_file",
            )
        metadata = _metadata(page.root)
        titled = _page_title(page.root)
        kept = main_pieces(page, titled) if self.main_content == "auto" else range(len(page.pieces))
        pieces = [page.pieces[number] for number in kept]
        title = next(
            (piece.title for piece in pieces if piece.level == 1 and _begins_title(piece, titled)),
            titled,
        )
        unseen = sum(len(letters(item.text)) for item in page.hidden)
        warnings = [*page.notes, *([f"hidden text left out: {unseen} letters"] if unseen else [])]
        if not any(page.letters):
            warnings.append("the page holds pictures and no text")
        beside = find_beside(page, kept)
        metadata |= count_beside(beside)
        joined = join_parts(page.parts(pieces), "the page holds no text; nothing to index")
        version = (
            f"{'.'.join(map(str, lxml.etree.LXML_VERSION[:3]))} + trafilatura"
            f" {trafilatura.__version__}"
        )
        engine = Engine("lxml", version, f"main_content={self.main_content}")
        title = title or first_line(joined.text)
        return joined_facts(
            self,
            engine,
            joined,
            title,
            metadata,
            warnings,
            decoded,
            hidden=page.hidden + page.frame + page.filled_in + beside,
        )

    def verify_blocks(self, path: Path, text: str, blocks: Sequence[Block]) -> dict[int, str]:
        """Ordinal to reason for each block that the file, parsed again, does not prove.

        The element at a block's locator must make the same Markdown, and its letters, read without
        Markdown, must stand in the block in order.
        """
        return find_unproved(
            Page(parse_page(decode_page(path.read_bytes(), self.charset).text)), text, blocks
        )


def find_unproved(
    page: Page, text: str, blocks: Iterable[Block], prefix: str = ""
) -> dict[int, str]:
    """Ordinal to reason for each block that the parsed page does not hold at its locator.

    `prefix` stands before the XPath.
    """
    known = {prefix + page.locator(piece): piece for piece in page.pieces}
    bad = {}
    for block in blocks:
        piece = known.get(block.locator)
        if piece is None:
            bad[block.ordinal] = f"the page has no block at {block.locator}"
        elif piece.text != text[block.start : block.end]:
            bad[block.ordinal] = f"what stands at {block.locator} reads otherwise"
        elif not _in_order(letters(source_text(piece)), letters(piece.text)):
            bad[block.ordinal] = f"letters at {block.locator} are missing in the block"
    return bad


# --- bytes to tree ------------------------------------------------------------------------------


def decode_page(raw: bytes, charset: str = "") -> Decoded:
    """The text of a page, its encoding found in the order of the HTML standard (13.2.3.2).

    Only UTF-8 goes before the declared ones, because nothing else is valid UTF-8 by chance.
    """
    found = CHARSET.search(raw[:4096])
    return decode(raw, charset, found.group(1).decode("ascii", "replace").lower() if found else "")


def parse_page(text: str) -> _Element:
    """The tree of a page, with what its sheets hide in the styles of the elements. Raises
    DocumentError `too_deep`, `empty_file`.
    """
    from lxml import etree, html

    # bytes, because a declared encoding must not be obeyed a second time; NUL would end the page
    parser = html.HTMLParser(encoding="utf-8", huge_tree=True, remove_pis=True)
    try:
        root = html.document_fromstring(
            text.replace("\x00", "\ufffd").encode("utf-8", "replace"), parser=parser
        )
    except etree.ParserError as error:
        raise DocumentError(
            f"the page holds no element ({error}); nothing to index", code="empty_file"
        ) from error
    for entry in parser.error_log:
        if entry.level_name == "FATAL" and "LIMIT" in entry.type_name:
            raise DocumentError(
                f"the parser gave up in line {entry.line}: {entry.message[:120]}; the page is"
                " damaged, or made to break parsers",
                code="too_deep",
            )
    write_sheets_inline(root)
    return root


# --- what the page says of itself ---------------------------------------------------------------


def _metadata(root: _Element) -> Json:
    """What the page's head says: author, dates, description, language, keywords, address."""
    said: dict[str, str] = {}
    for meta in root.iter("meta"):
        keys = map(meta.get, ("property", "name", "itemprop", "http-equiv"))
        name = next(filter(None, keys), "").strip().lower()
        if name and (content := " ".join((meta.get("content") or "").split())[:1000]):
            said.setdefault(name, content)
    metadata: Json = {
        key: said[name]
        for key, names in _METADATA.items()
        if (name := next((n for n in names if n in said), ""))
    }
    if words := [word.strip() for word in said.get("keywords", "").split(",") if word.strip()]:
        metadata["keywords"] = words[:50]
    language = (
        root.get("lang")
        or root.get("{http://www.w3.org/XML/1998/namespace}lang")
        or said.get("content-language")
    )
    if language:
        metadata["language"] = language.strip()[:35]
    for link in root.iter("link"):
        if "canonical" in (link.get("rel") or "").lower().split() and link.get("href"):
            metadata.setdefault("canonical_url", link.get("href").strip()[:2000])
    if (base := root.find(".//base[@href]")) is not None:
        metadata["base_url"] = base.get("href").strip()[:2000]
    return metadata


def _page_title(root: _Element) -> str:
    element = root.find(".//head/title")
    return " ".join((element.text or "").split())[:300] if element is not None else ""


def _begins_title(piece: Piece, title: str) -> bool:
    """True for a heading that begins the page's title; for any where there is no title."""
    return bool(piece.title) and letters(title).startswith(letters(piece.title) if title else "")


# --- main content -------------------------------------------------------------------------------


def main_pieces(page: Page, title: str) -> Sequence[int]:
    """Numbers of the pieces of the main content; all of them where it is unclear.

    It is the element around what trafilatura extracts, widened to the `main` around it, or else to
    others of its kind beside it; or the only `main` or `article`.
    """
    pieces, sizes = page.pieces, list(map(len, page.letters))
    marked = [
        number
        for number in _find_extracted(page)
        if not _is_navigation(pieces[number], sizes[number])
    ]
    weight = sum(sizes[number] for number in marked)
    if weight >= max(MIN_MAIN, MIN_MAIN_SHARE * sum(sizes)):
        held: dict[Any, int] = defaultdict(int)
        for number in marked:
            for element in (pieces[number].element, *pieces[number].element.iterancestors()):
                held[element] += sizes[number]
        main = page.root
        while (
            child := next((item for item in main if held.get(item, 0) >= CONTAINED * weight), None)
        ) is not None:
            main = child
        main = next((above for above in main.iterancestors() if _is_main(above)), None) or _widen(
            main, page
        )
    else:
        named = [item for item in page.root.iter("*") if _is_main(item)] or page.root.findall(
            ".//article"
        )
        if len(named) != 1:
            return range(len(pieces))
        main = named[0]
    inside = [
        number
        for number, piece in enumerate(pieces)
        if piece.element is main or main in piece.element.iterancestors()
    ]
    if sum(sizes[number] for number in inside) < max(MIN_MAIN, MIN_MAIN_SHARE * sum(sizes)):
        return range(len(pieces))
    first, last = (marked[0], marked[-1]) if marked and not _is_main(main) else (0, len(pieces))
    kept = [
        number
        for number in inside
        if first <= number <= last or not _is_navigation(pieces[number], sizes[number])
    ]
    # the headline, and an introduction below it, often stand above the text's element
    above = [number for number in range(kept[0]) if _is_headline(pieces[number], title)]
    said = [
        number
        for number in range(above[-1] if above else kept[0], kept[0])
        if not _is_navigation(pieces[number], sizes[number])
    ]
    apart = [number for number in marked if sizes[number] >= MIN_MAIN]  # no line of a site's head
    return sorted({*said, *kept, *apart})


def _widen(main: _Element, page: Page) -> _Element:
    """The element around all that is of one kind with `main`, or with what `main` lies in: articles
    of a blog, answers to a question, parts of a manual.
    """
    said: dict[Any, int] = defaultdict(int)
    for piece, size in zip(page.pieces, map(len, page.letters), strict=True):
        around = [piece.element, *piece.element.iterancestors()]
        linked = any(element.tag == "a" for element in around)
        if piece.kind != "heading" and not linked and not _is_navigation(piece, size):
            for element in around:
                said[element] += size
    for element in (main, *main.iterancestors()):
        parent = element.getparent()
        if parent is not None and any(
            item is not element and said[item] >= MIN_MAIN and _is_alike(item, element)
            for item in parent
        ):
            main = parent
    return main


def _is_alike(one: _Element, other: _Element) -> bool:
    """True for two articles or sections, two of one tag and first class that names content, and a
    question and its answers.
    """
    if not isinstance(one.tag, str) or one.tag != other.tag:
        return False
    named, others = (item.get("class", "").split()[:1] for item in (one, other))
    return (
        one.tag in ("article", "section")
        or (bool(named) and named == others and not _LAYOUT.match(named[0]))
        or _ANSWERS.search(f"{one.get('id')} {one.get('class')}") is not None
    )


def find_beside(page: Page, kept: Sequence[int]) -> tuple[HiddenText, ...]:
    """The text of the pieces that are not kept, in order."""
    numbers = set(kept)
    return tuple(
        HiddenText(0, "beside_main", " ".join(source_text(piece).split()))
        for number, piece in enumerate(page.pieces)
        if number not in numbers and page.letters[number]
    )


def count_beside(beside: Sequence[HiddenText]) -> Json:
    """The entry of the metadata that says how much stands beside the main content, if anything."""
    size = sum(len(letters(item.text)) for item in beside)
    return {"left_out": f"{size} letters beside the main content"} if size else {}


def _is_headline(piece: Piece, title: str) -> bool:
    """True for a heading that says the page's title, perhaps behind a number, or begins it; of one
    without a title, for one of the first level.
    """
    if not letters(title):
        return piece.level == 1 and bool(piece.title)
    return _begins_title(piece, title) or (
        bool(piece.title) and letters(piece.title).lstrip("0123456789") == letters(title)
    )


def _is_main(element: _Element) -> bool:
    return "main" in (element.tag, element.get("role"))


def _find_extracted(page: Page) -> list[int]:
    """Numbers of the pieces that trafilatura extracts; none for a page that would take minutes."""
    import trafilatura

    if len(page.pieces) > MAX_GUIDED_BLOCKS or sum(map(len, page.letters)) > MAX_GUIDED_LETTERS:
        return []
    copied = copy.deepcopy(page.root)  # it takes out of the tree what it does not want
    for cell in copied.iter("td", "th"):
        for name in ("rowspan", "colspan"):  # a few can make it write millions of cells
            cell.attrib.pop(name, None)
    # its rules fail in many ways on odd trees; the page is read without their advice
    with Reading("stage.loader") as reading:
        extracted = letters(
            trafilatura.extract(copied, include_comments=False, include_tables=True, fast=True)
            or ""
        )
    if reading.error is not None:
        page.note("the main content was not looked for: its rules failed")
        return []
    return [
        number
        for number, own in enumerate(page.letters)
        if len(own) >= MIN_MARK and own[:MARK_LETTERS] in extracted
    ]


def _is_navigation(piece: Piece, size: int) -> bool:
    """True for a block that is nearly all links."""
    return (
        piece.kind != "heading"
        and sum(len(letters(words)) for words in links(piece.element)) > LINK_SHARE * size
    )


def _in_order(wanted: str, text: str) -> bool:
    """True when every letter stands in the text, in order."""
    rest = iter(text)
    return all(letter in rest for letter in wanted)
