"""HTML: the main content of a page as Markdown, each block with the XPath of its element.

The blocks are made from the tree of the page, so that tables, code and nested lists stay whole and
every block can be verified. Facts depend only on the bytes: links and images keep their addresses
as written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from rag_platform.errors import DocumentError
from rag_platform.ir import VISIBLE_REASONS, Block, Facts, HiddenText, Json
from rag_platform.loaders.decoding import Decoded, decode, looks_like_text
from rag_platform.loaders.languages import LANGUAGES, suffix_of
from rag_platform.loaders.markup.html_blocks import Page
from rag_platform.loaders.markup.html_inline import show_closed_panels
from rag_platform.loaders.markup.html_main import begins_title, main_pieces
from rag_platform.loaders.markup.html_references import rewrite_references
from rag_platform.loaders.markup.html_styles import write_sheets_inline
from rag_platform.loaders.parts import PLACEHOLDER, Engine, join_parts, joined_facts
from rag_platform.loaders.text import PROSE, TEMPLATE_CODE, first_line
from rag_platform.text.scripts import letters
from rag_platform.traits import Traits

if TYPE_CHECKING:
    from lxml.etree import _Element


SUFFIXES = {".html", ".htm", ".xhtml", ".xht", ".shtml"}
START = re.compile(
    rb"(?:\xef\xbb\xbf)?\s*(?:<\?xml[^>]*>\s*)?(?:<!--.*?-->\s*)*<(?:!doctype\s+html|html)[\s>]",
    re.IGNORECASE | re.DOTALL,
)
# text after these tags still belongs to the body (HTML standard, 13.2.6.4.19), but not for lxml
_ENDS = re.compile(r"</(?:body|html)\s*>", re.IGNORECASE)
CHARSET = re.compile(rb"""<meta[^>]+charset\s*=\s*["']?\s*([\w.:-]+)""", re.IGNORECASE)
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
    VERSION: ClassVar[str] = "21"
    traits: ClassVar[Traits] = Traits(isolated=True)

    def __post_init__(self) -> None:
        if self.main_content not in ("auto", "whole"):
            raise ValueError(f"main_content is 'auto' or 'whole', not {self.main_content!r}")

    def claims(self, filename: str, head: bytes) -> bool:
        """True for an HTML suffix, and for HTML unless the suffix is one of text or source code."""
        suffix = suffix_of(filename)
        if suffix in SUFFIXES:
            return looks_like_text(head)
        return suffix not in PROSE | LANGUAGES.keys() and START.match(head) is not None

    def load(self, path: Path, filename: str) -> Facts:
        """The facts of a page. Raises `empty_file`, `binary_content`, `too_deep`."""
        import lxml.etree

        decoded = decode_page(path.read_bytes(), self.charset)
        page = Page.with_title(parse_page(decoded.text))
        if not page.pieces:
            raise DocumentError(
                "the page holds no text; where a script builds it, save it from the browser as a"
                " complete page, or as PDF",
                code="empty_file",
            )
        metadata = _read_metadata(page.root)
        titled = page_title(page.root)
        kept = main_pieces(page, titled) if self.main_content == "auto" else range(len(page.pieces))
        pieces = [page.pieces[number] for number in kept]
        title = next(
            (piece.title for piece in pieces if piece.level == 1 and begins_title(piece, titled)),
            titled,
        )
        count = sum(
            len(letters(item.text)) for item in page.hidden if item.reason not in VISIBLE_REASONS
        )
        warnings = [*page.notes, *([f"hidden text left out: {count} letters"] if count else [])]
        if not any(page.letters):
            warnings.append("the page holds pictures and no text")
        if any(page.letters) and not any(
            letters(TEMPLATE_CODE.sub("", page.source_texts[number])) for number in kept
        ):
            raise DocumentError(
                "the page is a template without text of its own; ingest the pages made from it",
                code="empty_file",
            )
        hidden = [*page.hidden, *note_left_out(page, kept, metadata)]
        joined = join_parts(page.parts(pieces), "the page holds no text; nothing to index")
        version = ".".join(map(str, lxml.etree.LXML_VERSION[:3]))
        engine = Engine("lxml", version, f"main_content={self.main_content}")
        title = title or first_line(joined.text)
        return joined_facts(self, engine, joined, title, metadata, warnings, decoded, hidden=hidden)

    def verify_blocks(self, path: Path, text: str, blocks: Sequence[Block]) -> dict[int, str]:
        """Ordinal to reason for each block that differs from the file, parsed again.

        The element at a block's locator must yield the same Markdown, and its letters, read from
        the tree without making Markdown, must occur in the block in the same order.
        """
        page = Page.with_title(parse_page(decode_page(path.read_bytes(), self.charset).text))
        return find_mismatched(lambda place: page, text, blocks)


def find_mismatched(
    read_page: Callable[[str], Page | None], text: str, blocks: Iterable[Block]
) -> dict[int, str]:
    """Ordinal to reason for each block that differs from the element at its locator; `read_page`
    gets the part of the locator before the XPath.
    """
    bad = {}
    for place, group in groupby(blocks, key=lambda block: block.locator.rpartition("xpath=")[0]):
        page = read_page(place)
        known = page.by_locator(place) if page else {}
        for block in group:
            piece, source = known.get(block.locator, (None, ""))
            if piece is None:
                bad[block.ordinal] = f"the page has no block at {block.locator}"
            elif piece.text != text[block.start : block.end]:
                bad[block.ordinal] = f"the file has different text at {block.locator}"
            elif not _occur_in_order(source, letters(piece.text)):
                bad[block.ordinal] = f"letters at {block.locator} are missing in the block"
    return bad


# --- bytes to tree ------------------------------------------------------------------------------


def decode_page(raw: bytes, charset: str = "") -> Decoded:
    """The text of a page, its encoding determined in the order of the HTML standard (13.2.3.2).

    UTF-8 is however tried before the declared encodings: text in another encoding is hardly ever
    valid UTF-8, unless the encoding consists of ASCII bytes.
    """
    found = CHARSET.search(raw[:4096])
    return decode(raw, charset, found.group(1).decode("ascii", "replace").lower() if found else "")


def parse_page(text: str) -> _Element:
    """The tree of a page, with the hiding rules of its style sheets copied into inline styles.
    Raises DocumentError `too_deep`, `empty_file`.
    """
    from lxml import etree, html

    # bytes, so that lxml ignores a declared encoding; a NUL would end the page
    parser = html.HTMLParser(encoding="utf-8", huge_tree=True, remove_pis=True)
    try:
        root = html.document_fromstring(
            _ENDS.sub("", text).replace("\x00", "\ufffd").encode("utf-8", "replace"), parser=parser
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
    rewrite_references(root)
    write_sheets_inline(root)
    show_closed_panels(root)
    return root


# --- metadata -----------------------------------------------------------------------------------


def note_left_out(page: Page, kept: Sequence[int], metadata: Json) -> list[HiddenText]:
    """The visible text that is not in the `kept` pieces; adds its length to the metadata."""
    known = frozenset(kept)
    texts = [
        HiddenText(0, "beside_main", " ".join(text.split()))
        for number, text in enumerate(page.source_texts)
        if number not in known and page.letters[number]
    ]
    if count := sum(len(letters(item.text)) for item in texts):
        metadata["left_out"] = f"{count} letters beside the main content"
    return texts


def _read_metadata(root: _Element) -> Json:
    """Author, dates, description, language, keywords and address from the page's head."""
    given: dict[str, str] = {}
    for meta in root.iter("meta"):
        keys = map(meta.get, ("property", "name", "itemprop", "http-equiv"))
        name = next(filter(None, keys), "").strip().lower()
        if name and (content := " ".join((meta.get("content") or "").split())[:1000]):
            given.setdefault(name, content)
    metadata: Json = {
        key: given[name]
        for key, names in _METADATA.items()
        if (name := next((n for n in names if n in given), ""))
    }
    if words := [word.strip() for word in given.get("keywords", "").split(",") if word.strip()]:
        metadata["keywords"] = words[:50]
    language = (
        root.get("lang")
        or root.get("{http://www.w3.org/XML/1998/namespace}lang")
        or given.get("content-language")
    )
    if language:
        metadata["language"] = language.strip()[:35]
    for link in root.iter("link"):
        if "canonical" in (link.get("rel") or "").lower().split() and link.get("href"):
            metadata.setdefault("canonical_url", link.get("href").strip()[:2000])
    if (base := root.find(".//base[@href]")) is not None:
        metadata["base_url"] = base.get("href").strip()[:2000]
    return metadata


def page_title(root: _Element) -> str:
    """The title in the page's head, on one line; "" without one, and for a placeholder."""
    title = " ".join((root.findtext(".//head/title") or "").split())[:300]
    return "" if PLACEHOLDER.fullmatch(title) else title


def _occur_in_order(wanted: str, text: str) -> bool:
    """True if the letters occur in the text in order."""
    rest = iter(text)
    return all(letter in rest for letter in wanted)
