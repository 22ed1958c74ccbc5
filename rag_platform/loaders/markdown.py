"""Markdown: the decoded file, unchanged, with the blocks, headings and images that markdown-it-py
finds (CommonMark and tables), and its front matter, in which nothing is executed or expanded.
"""

from __future__ import annotations

import functools
import itertools
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, ClassVar

from rag_platform.errors import DocumentError
from rag_platform.ir import Block, Facts, MediaRef
from rag_platform.loaders.decoding import byte_map, decode, looks_like_text
from rag_platform.loaders.languages import suffix_of
from rag_platform.loaders.manuals import is_manual
from rag_platform.loaders.markdown_images import Lines, find_images, hidden_spans, inline_parser
from rag_platform.loaders.parts import Engine, image_refs, make_facts
from rag_platform.loaders.restructured import is_restructured
from rag_platform.loaders.text import (
    first_line,
    line_starts,
    locate,
    paragraph_blocks,
    titles_section,
)
from rag_platform.text.markdown_blocks import html_headings
from rag_platform.traits import Traits

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

SUFFIXES = {".md", ".markdown", ".mdown", ".mkd", ".mkdn", ".mdx"}
_CLOSING = re.compile(r"\s+#+$")  # marks that close a heading before its attributes
ATTRIBUTES = re.compile(r"\s*(?<!\{)\{:?\s*(?:[#.][^{}]*|[\w-]+=[^{}]*|/\*[^{}]*\*/)\}\s*$")
_VERBATIM = re.compile(r"\s*<(?:[!?]|(?:pre|script|style|svg|textarea)\b)", re.IGNORECASE)
MARKDOWN_LINE = re.compile(
    r"(?m)^(?:#{1,6} \S|```|~~~|---\s*$|\+\+\+\s*$|[-*] \S|\d+\. \S|\|.*\|\s*$|>"
    r" \S|!?\[[^\]\n]+\]\(\S+\))|^\S[^\n]*\n(?:===+|---+)\s*$"
)
_MAY_HIDE = re.compile(
    r"<(?:!--|script\b|style\b)|\shidden\b|\bstyle\s*=|^%%|\s\^[a-z\d]",
    re.IGNORECASE | re.MULTILINE,
)
# in notes of Obsidian and pages of wikis, which are called by the name of their file
_WIKI_LINK = re.compile(r"(?<![\w\[`])\[\[(?!_?toc_?\])[^\W\d][^\[\]\n]*\]\](?![(\]`])", re.I)
_NOTE_KEYS = frozenset(("tags", "aliases", "cssclasses"))  # of Obsidian; pages have others, too
# limits of constructs that markdown-it does not parse in linear time; real documents stay far below
MAX_QUOTES = 100
MAX_LINE_INLINE = 20_000
KINDS = {"fence": "code", "code_block": "code", "html_block": "html", "table_open": "table"}


@dataclass(frozen=True)
class MarkdownLoader:
    """Reads Markdown, unchanged; `charset` is the encoding that a server declared."""

    charset: str = ""

    NAME: ClassVar[str] = "markdown"
    VERSION: ClassVar[str] = "9"
    traits: ClassVar[Traits] = Traits()

    def claims(self, filename: str, head: bytes) -> bool:
        """True for text with a Markdown suffix, or without a suffix but with a line of Markdown."""
        suffix = suffix_of(filename)
        if suffix not in SUFFIXES and suffix:
            return False
        if not looks_like_text(head):
            return False
        if suffix:
            return True
        text = head.decode("utf-8", "replace").replace("\r\n", "\n")
        other = is_manual(text) or is_restructured(text, suffix)
        return MARKDOWN_LINE.search(text) is not None and not other

    def load(self, path: Path, filename: str) -> Facts:
        """The facts of a Markdown file. Raises DocumentError: `empty_file`, `binary_content`."""
        from markdown_it import __version__ as engine_version

        raw = path.read_bytes()
        decoded = decode(raw, self.charset)
        text, bytes_of = decoded.text, byte_map(raw, decoded)
        head = front_matter(text)
        if not text[head.end :].strip():
            raise DocumentError(
                "the file holds front matter and no text; nothing to index", code="empty_file"
            )
        warnings = list(head.warnings)
        starts = line_starts(text)
        try:
            blocks, media, notes, hidden = parse(text, head.end, starts)
            blocks = [locate(block, bytes_of, starts) for block in blocks]
            warnings += notes
        except (RecursionError, _TooDeepError) as error:
            blocks = paragraph_blocks(text, bytes_of, head.end, ordinal=1 if head.end else 0)
            media, hidden = [], []
            warnings.append(
                f"too deeply nested to be parsed as Markdown ({error}); read as plain paragraphs"
            )
            if head.end:
                blocks.insert(0, locate(Block(0, "front_matter", 0, head.end), bytes_of, starts))
        visible = _text_outside(hidden, text, head.end)
        if not visible.strip():
            raise DocumentError(
                "the file holds comments and no text; nothing to index", code="empty_file"
            )
        pictures = [(r.start, r.end) for r in media if r.start is not None and r.end is not None]
        if media and not re.search(r"\w", _text_outside(pictures, text, head.end)):
            warnings.append("the file holds pictures and no text")
        title = head.metadata.get("title")
        if not isinstance(title, str) or not title.strip():
            is_note = _is_note(blocks, text, head.metadata)
            title = PurePosixPath(filename).stem if is_note else _find_title(blocks, text, visible)
        engine = Engine("markdown-it-py", engine_version, "commonmark+table")
        metadata = dict(head.metadata)
        return make_facts(
            self, engine, decoded, blocks, media, plain_line(title), metadata, warnings
        )


def _is_note(blocks: Sequence[Block], text: str, metadata: Mapping[str, Any]) -> bool:
    """True for a text that has no title of its own, but links or front matter as in a vault."""
    return not any(it.level == 1 for it in blocks) and (
        not _NOTE_KEYS.isdisjoint(metadata)
        or any(it.kind != "code" and _WIKI_LINK.search(text, it.start, it.end) for it in blocks)
    )


def _find_title(blocks: Sequence[Block], text: str, visible: str) -> str:
    """The first heading, or the first visible line if there is none."""
    headings = [block for block in blocks if block.title]
    return _title_of(headings, blocks, text) if headings else first_line(visible)


def _title_of(headings: Sequence[Block], blocks: Sequence[Block], text: str) -> str:
    """The first heading, "" if it titles only a section. A heading of HTML may be a slogan, or the
    name of a project above each of its pages: the next one is preferred if it is of a higher
    level, or titles no section and only a table of contents is between them.
    """
    html = [text[it.start : it.end].lstrip().startswith("<") for it in headings]
    number, last = 0, len(headings) - 1
    while number < last and html[number] and _prefers_next(headings[number:], blocks, text):
        number += 1
    rest = headings[number:]
    if titles_section(list(itertools.compress(rest, html[number:])) if html[number] else rest):
        return headings[number - 1].title if number else ""
    return rest[0].title


def _prefers_next(headings: Sequence[Block], blocks: Sequence[Block], text: str) -> bool:
    first, *below = headings
    between = blocks[first.ordinal + 1 : below[0].ordinal]
    return below[0].level < first.level or (
        not titles_section(below)
        and all(it.kind == "list" or text.startswith("**", it.start) for it in between)
    )


def _text_outside(spans: Iterable[tuple[int, int]], text: str, start: int) -> str:
    """The parts of text[start:] between the spans."""
    edges = [start, *itertools.chain(*spans), len(text)]
    return "".join(text[a:b] for a, b in zip(edges[::2], edges[1::2], strict=True))


class _TooDeepError(Exception):
    """A line is nested so deeply that parsing it would hang."""


def _read_blocks(text: str, start: int, starts: Sequence[int]) -> tuple[list[Token], Lines]:
    """(block tokens of text[start:], the offsets of their lines). Raises _TooDeepError."""
    marks = re.finditer(r"(?m)^[ \t>]*>", text)
    quotes = max((mark.group().count(">") for mark in marks), default=0)
    if quotes > MAX_QUOTES:
        raise _TooDeepError(f"{quotes} block quotes in one another")
    first_line_no = (
        next((i for i, offset in enumerate(starts) if offset >= start), len(starts)) if start else 0
    )
    lines = Lines(text, starts, first_line_no)
    return block_parser().parse(text[lines.start(0) :]), lines


def find_hidden(text: str, start: int) -> list[tuple[int, int]]:
    """The spans of invisible HTML in text[start:], in order."""
    if not _MAY_HIDE.search(text, start):
        return []
    try:
        return list(hidden_spans(text, *_read_blocks(text, start, line_starts(text))))
    except (RecursionError, _TooDeepError):
        return []


def parse(
    text: str, start: int, starts: Sequence[int]
) -> tuple[list[Block], list[MediaRef], list[str], list[tuple[int, int]]]:
    """(blocks without byte offsets, images, warnings, hidden spans) of text[start:]; `starts` are
    the line offsets of the text.

    Every character other than white space lies in exactly one block.
    """
    tokens, lines = _read_blocks(text, start, starts)
    references = tokens.pop().meta if tokens and tokens[-1].type == "references" else {}
    blocks: list[Block] = [Block(0, "front_matter", 0, start)] if start else []
    for kind, first, last, level, title in _merge_lists(tokens, lines):
        span = lines.span(first, last)
        if span is not None:
            blocks.append(Block(len(blocks), kind, *span, level=level, title=title))
    images, notes = find_images(text, tokens, lines, references)
    hidden = hidden_spans(text, tokens, lines) if _MAY_HIDE.search(text, start) else ()
    return blocks, list(image_refs(images, blocks)), notes, list(hidden)


@functools.cache
def block_parser() -> MarkdownIt:
    """The parser of block structure; inline text is parsed only on demand."""
    from markdown_it import MarkdownIt
    from markdown_it.rules_core import StateCore
    from markdown_it.token import Token as Leaf

    parser = MarkdownIt("commonmark", {"maxNesting": 24}).enable("table")
    parser.core.ruler.disable(["inline", "text_join"], True)

    def keep_references(state: StateCore) -> None:
        mark = Leaf("references", "", 0)
        mark.meta = dict(state.env.get("references", {}))
        state.tokens.append(mark)

    parser.core.ruler.push("keep_references", keep_references)
    return parser


def _merge_lists(tokens: Sequence[Token], lines: Lines) -> list[tuple[str, int, int, int, str]]:
    """(kind, first line, last line, level, title) of the blocks; a list is one block."""
    runs: list[tuple[str, int, int, int, str]] = []
    done, list_open = 0, 0
    for kind, first, last, level, title, group in _find_leaves(tokens):
        first = max(first, done)
        if last <= first:
            continue
        if lines.text[lines.start(done) : lines.start(first)].strip():
            runs.append(("paragraph", done, first, 0, ""))
            list_open = 0
        if kind == "list" and group == list_open:
            runs[-1] = ("list", runs[-1][1], last, 0, "")
        else:
            runs.append((kind, first, last, level, title))
        list_open = group if kind == "list" else 0
        done = last
    return [*runs, ("paragraph", done, lines.count(), 0, "")] if done < lines.count() else runs


def _find_leaves(tokens: Sequence[Token]) -> Iterator[tuple[str, int, int, int, str, int]]:
    """(kind, first line, last line, level, title, number of the outermost list) of each leaf."""
    inside, group, skip = 0, 0, 0
    for index, token in enumerate(tokens):
        if token.type in ("bullet_list_open", "ordered_list_open"):
            group += inside == 0
            inside += 1
        elif token.type in ("bullet_list_close", "ordered_list_close"):
            inside -= 1
        elif token.type == "table_close":
            skip -= 1
        if token.map is None or skip:
            continue
        first, last = token.map
        if token.type == "html_block" and token.level == 0:
            yield from ((*part, group) for part in _split_html(token.content, first, last))
        elif token.type in KINDS:
            yield KINDS[token.type], first, last, 0, "", group
            skip += token.type == "table_open"
        elif token.type == "heading_open" and token.level == 0:
            yield (
                "heading",
                first,
                last,
                int(token.tag[1]),
                heading_title(tokens[index + 1].content),
                group,
            )
        elif token.type in ("paragraph_open", "heading_open", "hr"):
            yield ("list" if inside else "paragraph"), first, last, 0, "", group


def _split_html(block: str, first: int, last: int) -> Iterator[tuple[str, int, int, int, str]]:
    """(kind, first line, last line, level, title) of the headings in an HTML block, and of what is
    around them.
    """
    base = first
    for match, words in () if _VERBATIM.match(block) else html_headings(block):
        low = base + block.count("\n", 0, match.start())
        high = low + match[0].count("\n") + 1
        if first < low:
            yield "html", first, low, 0, ""
        yield "heading", low, high, int(match["level"]), heading_title(words)
        first = high
    if first < last:
        yield "html", first, last, 0, ""


@functools.lru_cache(maxsize=4096)  # an answer asks for the headings above every sentence
def heading_title(content: str) -> str:
    """The text of a heading without markup, pictures and a trailing `{ #anchor }`; of pictures
    alone their descriptions.
    """
    bare = ATTRIBUTES.sub("", content)
    content = content if bare == content else _CLOSING.sub("", bare)
    if re.search(r"[\\`*_\[\]<>&!]", content) and len(content) < MAX_LINE_INLINE:
        children = inline_parser().parseInline(content, {})[0].children or []
        texts = [child for child in children if child.type != "image"]
        tries = ("".join(map(_token_text, part)) for part in (texts, children))
        content = next(filter(str.strip, tries), content).rstrip(" |·")
    return plain_line(content)


def plain_line(words: str) -> str:
    """The words on one line, without control and invisible characters, as for a title."""
    invisible = {char for char in words if unicodedata.category(char) in ("Cc", "Cf", "Co")}
    kept = (char for char in words if char.isspace() or char not in invisible)
    return " ".join("".join(kept).split())


def _token_text(token: Token) -> str:
    if token.type in ("softbreak", "hardbreak"):
        return " "
    if token.type == "html_inline":
        return ""
    return token.content


MAX_CHARS = 64 * 1024
MAX_DEPTH = 8
_OPENING = re.compile(r"(?:[ \t]*(?:\r\n?|\n))*(---|\+\+\+)[ \t]*(?:\r\n?|\n)")


@dataclass(frozen=True, slots=True)
class FrontMatter:
    """Front matter with the offset after its closing line, 0 without front matter."""

    end: int = 0
    metadata: dict[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


def front_matter(text: str) -> FrontMatter:
    """The YAML (`---`) or TOML (`+++`) mapping at the top, or a warning if it is broken.

    Values are strings, integers, booleans, lists and mappings: dates and versions stay strings.
    """
    opening = _OPENING.match(text)
    if opening is None:
        return FrontMatter()
    mark = opening.group(1)
    closing = re.compile(
        rf"(?:\A|(?<=[\r\n]))(?:{re.escape(mark)}|\.\.\.)[ \t]*(?=[\r\n]|\Z)"
    ).search(text, opening.end(), MAX_CHARS)
    if closing is None:
        if mark == "---" and not re.match(
            r"[^\r\n]*[\w-]+:(?: |\r|\n)", text[opening.end() : opening.end() + 200]
        ):
            return FrontMatter()  # a thematic break
        warning = (
            f"front matter opened by {mark} never closes within {MAX_CHARS} characters;"
            " read as text"
        )
        return FrontMatter(warnings=(warning,))
    source = text[opening.end() : closing.start()]
    if not source.strip():
        return FrontMatter()
    end = closing.end()
    try:
        metadata, notes = _parse_toml(source) if mark == "+++" else _parse_yaml(source)
    except _BrokenError as error:
        # text that does not begin as a mapping is no front matter: it is between thematic breaks
        if mark == "---" and not re.match(r"\s*(?:#[^\r\n]*\s+)*[\w.\"'-]+[ \t]*:(?:\s|$)", source):
            return FrontMatter(
                warnings=(f"the block between --- is not a mapping ({error}); read as text",)
            )
        return FrontMatter(end, {}, (f"front matter ignored: {error}",))
    return FrontMatter(end, metadata, tuple(notes))


class _BrokenError(Exception):
    """The front matter cannot be used."""


def _parse_toml(source: str) -> tuple[dict[str, Any], list[str]]:
    import tomllib

    try:
        return _to_plain(tomllib.loads(source.replace("\r\n", "\n").replace("\r", "\n"))), []
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        raise _BrokenError(f"not valid TOML: {error}") from error


def _to_plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _to_plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_to_plain(item) for item in value]
    return value if isinstance(value, str | bool | int) else str(value)


def _parse_yaml(source: str) -> tuple[dict[str, Any], list[str]]:
    """(the mapping, warnings) from the parser's events, so that aliases and tags can be refused.
    Tabs are read as spaces, as PyYAML rejects them next to values and comments.
    """
    import yaml

    notes: list[str] = []
    try:
        parsed = yaml.parse(source.replace("\t", " "), Loader=yaml.SafeLoader)
        kinds = (yaml.NodeEvent, yaml.CollectionEndEvent)
        events = (event for event in parsed if isinstance(event, kinds))
        roots = [_read_node(event, events, notes, 0) for event in events]
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise _BrokenError("not valid YAML: " + " ".join(str(error).split())[:200]) from error
    if roots and not isinstance(roots[0], dict):
        raise _BrokenError(f"it holds a {type(roots[0]).__name__}")
    return (roots[0] if roots else {}), notes


def _read_node(event: Any, events: Iterator[Any], notes: list[str], depth: int) -> Any:
    """The value that begins with an event. Duplicate keys of a mapping are dropped, because their
    value is ambiguous.
    """
    import yaml

    if isinstance(event, yaml.AliasEvent):
        raise _BrokenError(f"it uses the alias *{event.anchor}, which is not read")
    if event.tag:
        raise _BrokenError(f"it uses the tag {event.tag}, which is not read")
    if isinstance(event, yaml.ScalarEvent):
        return _parse_scalar(event.value, plain=event.implicit[0])
    if depth >= MAX_DEPTH:
        raise _BrokenError(f"it is nested deeper than {MAX_DEPTH}")
    items = []
    while not isinstance(inner := next(events), yaml.CollectionEndEvent):
        items.append(_read_node(inner, events, notes, depth + 1))
    if isinstance(event, yaml.SequenceStartEvent):
        return items
    keys = list(map(str, items[::2]))
    counts = Counter(keys)
    repeated = sorted(key for key, count in counts.items() if count > 1)
    notes += [f"front matter has the key {key!r} twice; it is ignored" for key in repeated]
    values = zip(keys, items[1::2], strict=True)
    return {key: value for key, value in values if counts[key] == 1}


def _parse_scalar(value: str, *, plain: bool) -> Any:
    if not plain:
        return value
    if value in ("true", "True", "false", "False"):
        return value in ("true", "True")
    return int(value) if re.fullmatch(r"-?(?:0|[1-9]\d{0,14})", value) else value
