"""The context of an answer: selects the passages that the answerer reads, cuts one that exceeds the
token budget, and renders them for a prompt.

Every passage is a chunk with its own provenance, so every statement of an answer can be cited and
verified.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from types import MappingProxyType

from rag_platform.answering.constants import (
    MAX_TABLE_CHUNKS,
    MIN_CUT_SHARE,
    MIN_OVERLAP_CHARS,
    NEAR_CHUNKS,
)
from rag_platform.answering.quotable import SECTION_LEVELS
from rag_platform.config.query import ContextConfig
from rag_platform.contract.markdown_views import format_edited, format_place, show_picture
from rag_platform.indexes.catalog import CatalogReader
from rag_platform.ir import Hit, format_section, split_path
from rag_platform.observability import faults
from rag_platform.protocols import Vectors
from rag_platform.providers.model_replies import escape_tags
from rag_platform.retrieval import hydration
from rag_platform.retrieval.fusion import min_max
from rag_platform.retrieval.hydration import of_chunk
from rag_platform.text.cut_points import is_grapheme_boundary
from rag_platform.text.markdown_blocks import (
    HEADING,
    Guarded,
    cells,
    format_rule,
    open_fence,
    structure,
    table_heads,
)
from rag_platform.text.scripts import is_wide
from rag_platform.text.sentences import sentence_ends
from rag_platform.text.tokens import counter, estimate_tokens

Catalogs = Mapping[str, CatalogReader]
_NO_CATALOGS: Catalogs = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Evidence:
    """The hits of the context in the order of their numbers, and how many others were left out."""

    hits: tuple[Hit, ...]
    tokens: int  # as `render_passages` shows them
    repeated: int = 0  # hits without a text of their own
    dropped: int = 0  # hits that did not fit or exceeded `max_per_document`
    warnings: tuple[str, ...] = ()


def select(
    hits: Sequence[Hit],
    config: ContextConfig,
    catalogs: Catalogs = _NO_CATALOGS,
    vectors: Callable[[Sequence[Hit]], Vectors] | None = None,
    *,
    count: Callable[[str], int] | None = None,
    pictures: bool = True,
) -> Evidence:
    """The evidence within `config.max_tokens` and `config.max_chunks`; `catalogs`, by namespace,
    provide parents and neighbours. Without `pictures`, for answerers that only quote, what models
    read in pictures is left out.

    Hits are taken best first, a child as its parent where that fits. A hit that does not fit is
    skipped, and later, shorter ones may still be taken; only the first one taken may be cut
    (`cut_to_fit`). The tokens left over go to neighbours from the same section, nearest first.
    Tokens are those of `render_passages`, counted by `count` or `config.tokenizer`. `vectors`
    returns unit vectors of hits as rows, which also detect similar hits.

    Hits are numbered in the order of their ranks, or with `order: document` of the documents;
    `group_by` keeps the hits of a group together, the group with the best hit first.
    """
    counted = count or counter(config.tokenizer)

    @cache
    def size(hit: Hit, number: int, since: int) -> int:
        return counted(render_block(hit, number, config.format, since=since) + "\n\n")

    def total(places: Sequence[_Place]) -> int:
        hits = [place.hit for place in places]
        if counted is estimate_tokens:  # additive over blocks, and `size` is cached
            return sum(size(hit, n, _overlap_before(hits, n)) for n, hit in enumerate(hits, 1))
        return counted(render_passages(hits, config.format))

    if not pictures:
        hits = list(map(_without_pictures, hits))
    context = _Context(config, size, pictures)
    texts = [_complete_table(hit, catalogs) for hit in hits if hit.readable.strip()]
    context.repeated = len(hits) - len(texts)
    rows = vectors(texts) if vectors is not None and texts else None
    parents = _parents(texts, catalogs, pictures=pictures) if config.mode == "parent" else {}
    for i in _order(texts, rows, config.mmr_lambda):
        context.take(texts[i], parents.get(texts[i].chunk_id), None if rows is None else rows[i])
    if config.mode == "neighbours":
        for place in list(context.places):
            context.surround(place, catalogs)
    places = context.sort_places()
    # a tokenizer may count more tokens for the whole than for its blocks
    while (tokens := total(places)) > config.max_tokens and places:
        places.remove(max(places, key=lambda place: (place.anchor, place.hit.chunk_index)))
        context.dropped += 1
    return Evidence(
        tuple(place.hit for place in places),
        tokens if places else 0,
        context.repeated,
        context.dropped,
        tuple(context.warnings),
    )


def select_plainly(
    hits: Sequence[Hit], config: ContextConfig, *, pictures: bool = True
) -> Evidence:
    """The fallback of `select`, without parents, neighbours and tokenizer; the first hits unchanged
    where that fails as well.
    """
    with faults.Attempt("stage.context"):
        plain = config.model_copy(update={"mode": "chunk", "tokenizer": "estimate"})
        return select(hits, plain, pictures=pictures)
    chosen: list[Hit] = []
    tokens = 0
    for hit in hits[: config.max_chunks]:
        tokens += estimate_tokens(hit.readable)
        if chosen and tokens > config.max_tokens:
            break
        chosen.append(hit)
    return Evidence(tuple(chosen), tokens)


def _order(hits: Sequence[Hit], rows: Vectors | None, mmr_lambda: float) -> Iterable[int]:
    """The positions of the hits in the order of maximal marginal relevance."""
    if mmr_lambda >= 1 or not hits:
        return range(len(hits))

    def alike(i: int, j: int) -> float:
        return (
            hydration.likeness(hits[i].readable, hits[j].readable)
            if rows is None
            else float(rows[i] @ rows[j])
        )

    return hydration.diversify(min_max([hit.score for hit in hits]), alike, mmr_lambda)


def _parents(hits: Sequence[Hit], catalogs: Catalogs, *, pictures: bool) -> dict[str, Hit]:
    """Child chunk_id to its parent as a hit, for children whose text is part of their parent's;
    that of an edited child is not.
    """
    found: dict[str, Hit] = {}
    for namespace in {hit.namespace for hit in hits if hit.parent_id and hit.namespace in catalogs}:
        children = [hit for hit in hits if hit.parent_id and hit.namespace == namespace]
        catalog = catalogs[namespace]
        chunks = catalog.chunks(dict.fromkeys(hit.parent_id for hit in children))
        for hit in children:
            chunk = chunks.get(hit.parent_id)
            if chunk is not None and hit.chunk_text and hit.chunk_text in chunk.chunk_text:
                parent = of_chunk(hit, chunk, catalog if pictures else None)
                found[hit.chunk_id] = _complete_table(parent, catalogs)
    return found


def _complete_table(hit: Hit, catalogs: Catalogs) -> Hit:
    """The hit with the header of the table in which it begins, if it begins within one, and whether
    the table at its end continues in the next chunk.
    """
    catalog, lines = catalogs.get(hit.namespace), hit.chunk_text.split("\n")
    if catalog is None or "|" not in lines[0] + lines[-1]:
        return hit
    head, goes_on = "", False
    for width in (NEAR_CHUNKS, MAX_TABLE_CHUNKS):
        chunks = catalog.neighbours(hit.chunk_id, width if "|" in lines[0] else 0, 1)
        at = next(n for n, chunk in enumerate(chunks) if chunk.chunk_id == hit.chunk_id)
        heads = table_heads(it for it in chunks if it.chunk_type == chunks[at].chunk_type)
        head = heads.get(hit.chunk_id, "")
        goes_on = any(chunk.chunk_id in heads for chunk in chunks[at + 1 :])
        if head or at < width or "|" not in chunks[at - 1].chunk_text.rpartition("\n")[2]:
            break
    return replace(hit, table_head=head, table_goes_on=goes_on)


# --- taking -------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Place:
    """A passage of the context; `anchor` is the rank of the hit that brought it in."""

    hit: Hit
    anchor: int
    row: Vectors | None = None


@dataclass(slots=True)
class _Context:
    """The context while it is filled."""

    config: ContextConfig
    size: Callable[[Hit, int, int], int]  # tokens of a block: hit, number, first character shown
    pictures: bool
    places: list[_Place] = field(default_factory=list)
    texts: set[tuple[bool, str]] = field(default_factory=set)  # as of `_text_of`
    tokens: int = 0
    repeated: int = 0
    dropped: int = 0
    warnings: list[str] = field(default_factory=list)

    def take(self, hit: Hit, parent: Hit | None, row: Vectors | None) -> None:
        """Add the parent, else the hit, unless it repeats a passage or does not fit."""
        same_document = sum(
            place.hit.namespace == hit.namespace and place.hit.doc_id == hit.doc_id
            for place in self.places
        )
        if any(self._repeats(option, row) for option in (parent, hit) if option is not None):
            self.repeated += 1
            return
        full = (
            len(self.places) >= self.config.max_chunks
            or 0 < self.config.max_per_document <= same_document
        )
        taken = not full and (
            (parent is not None and self._add(parent, row))
            or self._add(hit, row)
            or (bool(self.places and hit.chunk_text) and self._add(_without_pictures(hit), row))
        )
        if not (taken or (not full and not self.places and self._add_cut(hit, row))):
            self.dropped += 1

    def surround(self, centre: _Place, catalogs: Catalogs) -> None:
        """Add the neighbours of a passage within its section, the nearest first."""
        catalog = catalogs.get(centre.hit.namespace)
        if catalog is None:
            return
        width = self.config.neighbours
        chunks = catalog.neighbours(centre.hit.chunk_id, width, width)
        section = next(
            chunk.section_id for chunk in chunks if chunk.chunk_id == centre.hit.chunk_id
        )
        for chunk in sorted(
            chunks,
            key=lambda chunk: (abs(chunk.chunk_index - centre.hit.chunk_index), chunk.chunk_index),
        ):
            neighbour = of_chunk(centre.hit, chunk, catalog if self.pictures else None)
            if (
                chunk.section_id == section
                and chunk.chunk_type != "parent"
                and neighbour.readable.strip()
                and not self._repeats(neighbour, None)
            ):
                self._add(_complete_table(neighbour, catalogs), None, centre.anchor)

    def _repeats(self, hit: Hit, row: Vectors | None) -> bool:
        if _text_of(hit) in self.texts or any(
            hit.chunk_id == place.hit.chunk_id for place in self.places
        ):
            return True
        return any(self._is_similar(hit, row, place) for place in self.places)

    def _is_similar(self, hit: Hit, row: Vectors | None, place: _Place) -> bool:
        threshold = self.config.dedupe_threshold
        # a text is no repetition of what was read in a picture, which cannot be quoted
        other = place.hit.chunk_text if hit.chunk_text else place.hit.readable
        if not other:
            return False
        if threshold and hydration.adds_nothing(hit.readable, other, threshold):
            return True
        if (
            row is None
            or place.row is None
            or not self.config.dedupe_cosine
            or float(row @ place.row) < self.config.dedupe_cosine
        ):
            return False
        # keep a translation, which serves other readers
        if is_wide(hit.readable) != is_wide(other):
            return False
        return hydration.says_no_less(hit.readable, other)

    def _add(self, hit: Hit, row: Vectors | None, anchor: int | None = None) -> bool:
        """Add a passage; False where it does not fit."""
        size = self.size(hit, len(self.places) + 1, 0)
        if self.tokens + size > self.config.max_tokens:
            return False
        self.places.append(_Place(hit, len(self.places) if anchor is None else anchor, row))
        self.texts.add(_text_of(hit))
        self.tokens += size
        return True

    def _add_cut(self, hit: Hit, row: Vectors | None) -> bool:
        """Add a passage cut to the budget, first what was read in its pictures; False where nothing
        of it fits.
        """

        def fits(hit: Hit) -> bool:
            return self.size(hit, 1, 0) <= self.config.max_tokens

        def cut(text: str) -> Hit:
            if in_picture:
                return replace(hit, picture_text=text)
            return replace(hit, chunk_text=text, picture_text="")

        whole = self.size(hit, 1, 0)
        in_picture = not hit.chunk_text or fits(_without_pictures(hit))
        kept = cut_to_fit(
            hit.picture_text if in_picture else hit.chunk_text, lambda text: fits(cut(text))
        )
        change = f"from {whole} to at most {self.config.max_tokens} tokens (context.max_tokens)"
        if not cut(kept).readable.strip():
            self.warnings.append(
                f"{hit.chunk_id} was left out: nothing of it could be cut {change} without cutting"
                " a table row or code fence"
            )
            return False
        self.warnings.append(f"{hit.chunk_id} was cut {change}")
        return self._add(cut(kept), row)

    # --- order

    def sort_places(self) -> list[_Place]:
        """The places in the order of their numbers."""
        self._join_runs()
        document: dict[tuple[str, ...], int] = {}
        section: dict[tuple[str, ...], int] = {}
        for place in self.places:
            for best, name in ((document, _document(place.hit)), (section, _section(place.hit))):
                best[name] = min(place.anchor, best.get(name, place.anchor))

        def order(place: _Place) -> tuple[int, int, int, str]:
            of_document, of_section = document[_document(place.hit)], section[_section(place.hit)]
            groups = {"none": 0, "document": of_document, "section": of_section}
            within = of_document if self.config.order == "document" else place.anchor
            return (
                groups[self.config.group_by],
                within,
                place.hit.chunk_index,
                place.hit.chunk_id,
            )

        return sorted(self.places, key=order)

    def _join_runs(self) -> None:
        """Give consecutive chunks the anchor of the best of them, so that they stay in order."""
        if self.config.mode != "neighbours":
            return
        runs: list[list[_Place]] = []
        for place in sorted(
            self.places, key=lambda place: (*_section(place.hit), place.hit.chunk_index)
        ):
            last = runs[-1][-1].hit if runs else None
            if (
                last
                and _section(last) == _section(place.hit)
                and place.hit.chunk_index - last.chunk_index <= 1
            ):
                runs[-1].append(place)
            else:
                runs.append([place])
        for run in runs:
            anchor = min(place.anchor for place in run)
            for place in run:
                place.anchor = anchor


def _without_pictures(hit: Hit) -> Hit:
    return replace(hit, picture_text="") if hit.picture_text else hit


def _text_of(hit: Hit) -> tuple[bool, str]:
    """Whether it has a text that can be quoted, and all that it says."""
    return bool(hit.chunk_text), hydration.normalise_blanks(hit.readable)


def _document(hit: Hit) -> tuple[str, ...]:
    return hit.namespace, hit.doc_id


def _section(hit: Hit) -> tuple[str, ...]:
    """The section without the deeper headings above the passage."""
    return hit.namespace, hit.doc_id, *split_path(hit.section_path)[:SECTION_LEVELS]


# --- cutting ------------------------------------------------------------------------------------

Fits = Callable[[str], bool]
_BLANK = re.compile(r"\s+")


def cut_to_fit(text: str, fits: Fits) -> str:
    """The longest prefix of the text that fits; may be empty.

    It ends at a line; if that keeps less than half of what would fit, at a sentence, else a word,
    else a character. A table is cut between rows and keeps its header; a row too long to fit is
    left out. A fence is kept whole or left out, except one preceded only by headings: it is cut at
    a line end, since otherwise nothing would be left.
    """
    if fits(text):
        return text
    runs = structure(text)
    most = bisect_right(range(1, len(text)), 0, key=lambda end: 0 if fits(text[:end]) else 1)
    lines, blanks = list(_line_ends(text)), [match.start() for match in _BLANK.finditer(text)]
    best = 0
    for ends in (lines, [*lines, *sentence_ends(text)], blanks, range(1, len(text))):
        falling = (end for end in sorted(set(ends), reverse=True) if best < end <= most)
        best = next(
            (end for end in falling if _may_end(text, end, runs) and fits(text[:end])), best
        )
        # in front of a row or a fence a finer cut gains nothing
        if best >= most * MIN_CUT_SHARE or _inside(runs, most):
            break
    return text[:best].rstrip() or _cut_fence(text, runs, fits)


def _may_end(text: str, end: int, runs: list[Guarded]) -> bool:
    """True when a cut splits no row, fence or grapheme, and does not end with a heading."""
    last_line = text.rfind("\n", 0, len(text[:end].rstrip())) + 1
    return (
        not _inside(runs, end)
        and is_grapheme_boundary(text, end)
        and HEADING.match(text, last_line) is None
    )


def _inside(runs: list[Guarded], position: int) -> bool:
    at = bisect_right(runs, position, key=lambda run: run.start) - 1
    return at >= 0 and runs[at].start < position < runs[at].end


def _headings_only(text: str) -> bool:
    return all(not line.strip() or HEADING.match(line) for line in text.splitlines())


def _cut_fence(text: str, runs: list[Guarded], fits: Fits) -> str:
    """The start of a fence that begins the text, cut after a line of code; empty without one."""
    first = runs[0] if runs else None
    if first is None or first.kind != "fence" or not _headings_only(text[: first.start]):
        return ""
    ends = [end for end in _line_ends(text) if first.start < end < first.end]
    return next((text[:end].rstrip() for end in reversed(ends[1:]) if fits(text[:end])), "")


def _line_ends(text: str) -> Iterator[int]:
    at = text.find("\n")
    while at >= 0:
        yield at + 1
        at = text.find("\n", at + 1)


# --- rendering ----------------------------------------------------------------------------------


def render_passages(hits: Sequence[Hit], format: str = "markdown") -> str:
    """The hits as blocks numbered 1, 2, 3, ..., each without its overlap with the block before.

    markdown and plain: `[n] source, heading, place`, then the text with `> ` or four spaces before
    every line, so that no line looks like the head of a block. xml: `<passage n= source= section=
    place=>`. All formats escape `passage` tags inside a text and close a fence that it leaves open.
    """
    return "\n\n".join(
        render_block(hit, n, format, since=_overlap_before(hits, n))
        for n, hit in enumerate(hits, 1)
    )


def render_block(hit: Hit, number: int, format: str = "markdown", *, since: int = 0) -> str:
    """The block of one hit, with its text from character `since` on."""
    pictures = show_picture(hit.asset_ids, hit.picture_text) if hit.picture_text else ""
    text = hit.chunk_text[since:].strip("\n")
    if hit.table_head and not since:
        text = f"{hit.table_head}\n{format_rule(len(cells(hit.table_head)))}\n{text}"
    text = "\n\n".join(_close_fence(part) for part in (text, pictures) if part)
    text = escape_tags(text, "passage")
    fields = {
        "source": hit.source_uri,
        "section": format_section(hit.section_path),
        "place": format_place(hit.page_range, hit.line_range, hit.locator),
        "note": format_edited(hit.edited_from),
    }
    shown = {
        name: line
        for name, value in fields.items()
        if (line := escape_tags(" ".join(value.split()), "passage"))
    }
    if format == "xml":
        attributes = "".join(f' {name}="{_attribute(value)}"' for name, value in shown.items())
        return f'<passage n="{number}"{attributes}>\n{text}\n</passage>'
    head = f"[{number}] {', '.join(shown.values())}".rstrip()
    margin = "> " if format == "markdown" else "    "
    return "\n".join([head, *(f"{margin}{line}".rstrip() for line in text.splitlines())])


def _close_fence(text: str) -> str:
    return f"{text}\n{fence}" if (fence := open_fence(text)) else text


def _overlap_before(hits: Sequence[Hit], number: int) -> int:
    """The overlap of hit `number`, counted from 1, with the hit before it."""
    return overlap(hits[number - 2], hits[number - 1]) if number > 1 else 0


def overlap(before: Hit, hit: Hit) -> int:
    """How many characters at the start of a hit repeat the end of the hit before it; 0 unless both
    are of one section, in order.
    """
    same = (before.version_id, _section(before)) == (hit.version_id, _section(hit))
    if not same or hit.chunk_index <= before.chunk_index:
        return 0
    opening = hit.chunk_text[:MIN_OVERLAP_CHARS]
    at = before.chunk_text.find(opening) if len(opening) == MIN_OVERLAP_CHARS else -1
    while at >= 0:
        shared = len(before.chunk_text) - at
        if hit.chunk_text.startswith(before.chunk_text[at:]):
            return shared if hit.chunk_text[shared:].strip() else 0
        at = before.chunk_text.find(opening, at + 1)
    return 0


def _attribute(value: str) -> str:
    return value.replace('"', "&quot;").replace("<", "&lt;").replace(">", "&gt;")
