"""What the answerer gets to read: the hits, their parents or neighbours, no text twice, within a
budget of tokens.

Every piece of evidence is a chunk of its own with its own provenance, so that whatever an answer
takes from it can be cited and proved.


The longest beginning of a text that fits, ended where a reader would end it; table rows and code
fences are not cut.

Evidence as a prompt quotes it: numbered blocks that no text inside them can end or forge.
"""

from __future__ import annotations

import dataclasses
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType

from rag_platform.config.query import ContextConfig
from rag_platform.contract.markdown_views import edited, format_place
from rag_platform.indexes.catalog import CatalogReader
from rag_platform.ir import Chunk, Hit
from rag_platform.protocols import Vectors
from rag_platform.retrieval import hydration
from rag_platform.retrieval.fusion import min_max
from rag_platform.retrieval.hydration import of_chunk
from rag_platform.text.graphemes import is_grapheme_boundary
from rag_platform.text.markdown_blocks import HEADING, Guarded, open_fence, structure
from rag_platform.text.scripts import is_wide
from rag_platform.text.sentences import sentence_ends
from rag_platform.text.tokens import counter, estimate_tokens

Catalogs = Mapping[str, CatalogReader]
_NONE: Catalogs = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Evidence:
    """The hits of the context in the order of their numbers, the tokens of it as a prompt shows it,
    and what was left out or cut.
    """

    hits: tuple[Hit, ...]
    tokens: int
    repeated: int = 0  # hits whose text another hit already has
    dropped: int = 0  # hits that no longer fitted, or of which their document has enough
    warnings: tuple[str, ...] = ()


def select(
    hits: Sequence[Hit],
    config: ContextConfig,
    catalogs: Catalogs = _NONE,
    vectors: Callable[[Sequence[Hit]], Vectors] | None = None,
    *,
    count: Callable[[str], int] | None = None,
) -> Evidence:
    """The evidence within `config.max_tokens` and `config.max_chunks`; catalogs by namespace lend
    parents and neighbours.

    Hits are taken best first: a child as its parent where that fits, else as itself; one that does
    not fit is left out and a later, shorter one may still come in. Only where nothing was taken yet
    a hit too long for the budget is cut, see `cutting.beginning`. Neighbours come from the same
    section, nearest first, with the tokens that are left. Tokens are those of `rendered`,
    numbers and headings included, counted by `count` or `config.tokenizer`. `vectors` gives unit
    rows; where it is given, likeness is told by them as well.

    The numbers follow the order of the hits, or with `order: document` that of the documents;
    `group_by` keeps what belongs together side by side, the group with the best hit first.
    """
    counted = count or counter(config.tokenizer)

    @cache
    def size(hit: Hit, number: int, since: int) -> int:
        return counted(block(hit, number, config.format, since=since) + "\n\n")

    def whole(hits: Sequence[Hit]) -> int:
        if counted is estimate_tokens:  # adds up over blanks, so that no text is counted twice
            return sum(
                [
                    size(hit, n, overlap(hits[n - 2], hit) if n > 1 else 0)
                    for n, hit in enumerate(hits, 1)
                ]
            )
        return counted(rendered(hits, config.format))

    context = _Context(config, size)
    texts = [hit for hit in hits if hit.chunk_text.strip()]
    context.repeated = len(hits) - len(texts)
    rows = vectors(texts) if vectors is not None and texts else None
    parents = _parents(texts, catalogs) if config.mode == "parent" else {}
    for i in _order(texts, rows, config.mmr_lambda):
        context.take(texts[i], parents.get(texts[i].chunk_id), None if rows is None else rows[i])
    if config.mode == "neighbours":
        for place in list(context.places):
            context.surround(place, catalogs)
    ordered = context.ordered()
    tokens = whole([place.hit for place in ordered])
    # a tokenizer may count more for the whole than for its parts
    while ordered and tokens > config.max_tokens:
        ordered.remove(max(ordered, key=lambda place: (place.anchor, place.hit.chunk_index)))
        context.dropped += 1
        tokens = whole([place.hit for place in ordered])
    found = tuple(place.hit for place in ordered)
    return Evidence(
        found, tokens if found else 0, context.repeated, context.dropped, tuple(context.warnings)
    )


def _order(hits: Sequence[Hit], rows: Vectors | None, mmr_lambda: float) -> Iterable[int]:
    if mmr_lambda >= 1 or not hits:
        return range(len(hits))

    def alike(i: int, j: int) -> float:
        return (
            hydration.likeness(hits[i].chunk_text, hits[j].chunk_text)
            if rows is None
            else float(rows[i] @ rows[j])
        )

    return hydration.diversify(min_max([hit.score for hit in hits]), alike, mmr_lambda)


def _parents(hits: Sequence[Hit], catalogs: Catalogs) -> dict[str, Hit]:
    """Child chunk_id to its parent as a hit, where the parent's text holds that of the child: an
    edited child stands for itself.
    """
    found: dict[str, Hit] = {}
    for namespace in {hit.namespace for hit in hits if hit.parent_id and hit.namespace in catalogs}:
        children = [hit for hit in hits if hit.parent_id and hit.namespace == namespace]
        chunks = catalogs[namespace].chunks(dict.fromkeys(hit.parent_id for hit in children))
        for hit in children:
            chunk = chunks.get(hit.parent_id)
            if chunk is not None and hit.chunk_text in chunk.chunk_text:
                found[hit.chunk_id] = of_chunk(hit, chunk)
    return found


# --- taking -------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Place:
    """A piece of evidence; `anchor` is the position of the hit that it came with."""

    hit: Hit
    anchor: int
    row: Vectors | None = None


@dataclass(slots=True)
class _Context:
    """What was taken so far."""

    config: ContextConfig
    size: Callable[[Hit, int, int], int]  # as a block of that number, from that character on
    places: list[_Place] = field(default_factory=list)
    texts: set[str] = field(default_factory=set)
    tokens: int = 0
    repeated: int = 0
    dropped: int = 0
    warnings: list[str] = field(default_factory=list)

    def take(self, hit: Hit, parent: Hit | None, row: Vectors | None) -> None:
        """Add the parent or the hit, unless it says nothing new or does not fit."""
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
            (parent is not None and self._fits(parent, row)) or self._fits(hit, row)
        )
        if not (taken or (not full and not self.places and self._cut(hit, row))):
            self.dropped += 1

    def surround(self, centre: _Place, catalogs: Catalogs) -> None:
        """Add the neighbours of a hit within its section, the nearest first."""
        catalog = catalogs.get(centre.hit.namespace)
        if catalog is None:
            return
        width = self.config.neighbours
        around = catalog.neighbours(centre.hit.chunk_id, width, width)
        section = next(
            chunk.section_id for chunk in around if chunk.chunk_id == centre.hit.chunk_id
        )
        for chunk in sorted(
            around,
            key=lambda chunk: (abs(chunk.chunk_index - centre.hit.chunk_index), chunk.chunk_index),
        ):
            neighbour = of_chunk(centre.hit, chunk)
            if _lends(chunk, section) and not self._repeats(neighbour, None):
                self._fits(neighbour, None, centre.anchor)

    def _repeats(self, hit: Hit, row: Vectors | None) -> bool:
        if hydration.normalise_blanks(hit.chunk_text) in self.texts or any(
            hit.chunk_id == place.hit.chunk_id for place in self.places
        ):
            return True
        return any(self._alike(hit, row, place) for place in self.places)

    def _alike(self, hit: Hit, row: Vectors | None, place: _Place) -> bool:
        threshold = self.config.dedupe_threshold
        if threshold and hydration.adds_nothing(hit.chunk_text, place.hit.chunk_text, threshold):
            return True
        if (
            row is None
            or place.row is None
            or not self.config.dedupe_cosine
            or float(row @ place.row) < self.config.dedupe_cosine
        ):
            return False
        # a translation says the same to other readers
        if is_wide(hit.chunk_text) != is_wide(place.hit.chunk_text):
            return False
        return hydration.says_no_less(hit.chunk_text, place.hit.chunk_text)

    def _fits(self, hit: Hit, row: Vectors | None, anchor: int | None = None) -> bool:
        size = self.size(hit, len(self.places) + 1, 0)
        if self.tokens + size > self.config.max_tokens:
            return False
        self.places.append(_Place(hit, len(self.places) if anchor is None else anchor, row))
        self.texts.add(hydration.normalise_blanks(hit.chunk_text))
        self.tokens += size
        return True

    def _cut(self, hit: Hit, row: Vectors | None) -> bool:
        whole = self.size(hit, 1, 0)
        kept = beginning(
            hit.chunk_text,
            lambda text: (
                self.size(dataclasses.replace(hit, chunk_text=text), 1, 0) <= self.config.max_tokens
            ),
        )
        told = f"from {whole} to at most {self.config.max_tokens} tokens (context.max_tokens)"
        if not kept.strip():
            self.warnings.append(
                f"{hit.chunk_id} was left out: nothing of it could be cut {told} without cutting a"
                " table row or code fence"
            )
            return False
        self.warnings.append(f"{hit.chunk_id} was cut {told}")
        return self._fits(dataclasses.replace(hit, chunk_text=kept), row)

    # --- order

    def ordered(self) -> list[_Place]:
        """The places in the order of their numbers."""
        self._join_runs()
        document: dict[tuple[str, ...], int] = {}
        section: dict[tuple[str, ...], int] = {}
        for place in self.places:
            for best, name in ((document, _document(place.hit)), (section, _section(place.hit))):
                best[name] = min(place.anchor, best.get(name, place.anchor))

        def order(place: _Place) -> tuple[int, int, int, str]:
            of_document, of_section = document[_document(place.hit)], section[_section(place.hit)]
            group = {"none": 0, "document": of_document, "section": of_section}[
                self.config.group_by
            ]
            within = of_document if self.config.order == "document" else place.anchor
            return group, within, place.hit.chunk_index, place.hit.chunk_id

        return sorted(self.places, key=order)

    def _join_runs(self) -> None:
        """Neighbours that follow each other without a gap are read from first to last, at the place
        of the best hit among them.
        """
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


def _lends(chunk: Chunk, section_id: str) -> bool:
    return (
        chunk.section_id == section_id
        and chunk.chunk_type != "parent"
        and bool(chunk.chunk_text.strip())
    )


def _document(hit: Hit) -> tuple[str, ...]:
    return hit.namespace, hit.doc_id


def _section(hit: Hit) -> tuple[str, ...]:
    return hit.namespace, hit.doc_id, hit.section_path


Fits = Callable[[str], bool]
_BLANK = re.compile(r"\s+")


def beginning(text: str, fits: Fits) -> str:
    """The longest verbatim beginning that fits, empty when there is none.

    It ends at a line end, else at a sentence end, else between words, else between characters: at
    the first of these that keeps half of what would fit. A table is cut behind a row, so its header
    stays. A fence is kept whole or left out; one that nothing but headings precedes is cut at a
    line end, for else nothing would be left. A row that does not fit is left out.
    """
    if fits(text):
        return text
    runs = structure(text)
    most = bisect_right(range(1, len(text)), 0, key=lambda end: 0 if fits(text[:end]) else 1)
    best = 0
    for ends in (_line_ends(text), _sentence_ends(text), _word_ends(text), range(1, len(text))):
        falling = (end for end in sorted(set(ends), reverse=True) if best < end <= most)
        best = next(
            (end for end in falling if _may_end(text, end, runs) and fits(text[:end])), best
        )
        # where a row or a fence comes next, no finer cut gets nearer to it
        if best * 2 >= most or _inside(runs, most):
            break
    return text[:best].rstrip() or _opened(text, runs, fits)


def _may_end(text: str, end: int, runs: list[Guarded]) -> bool:
    """True when a cut tears no run and no character, and leaves no heading, or a part of one,
    behind.
    """
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


def _opened(text: str, runs: list[Guarded], fits: Fits) -> str:
    """The beginning of a fence that starts the text, cut at a line end; at least one line of
    code.
    """
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


def _sentence_ends(text: str) -> Iterator[int]:
    yield from _line_ends(text)
    yield from sentence_ends(text)


def _word_ends(text: str) -> Iterator[int]:
    yield from (match.start() for match in _BLANK.finditer(text) if match.start())


FORMATS = ("markdown", "xml", "plain")
_TAG = re.compile(r"<(?=\s*/?\s*passage)", re.IGNORECASE)
_LEAST_OVERLAP = 16  # characters; shorter ones are chance


def rendered(hits: Sequence[Hit], format: str = "markdown") -> str:
    """The hits as blocks numbered 1, 2, 3, ...; what a chunk repeats of the one before it is left
    out of its block.

    markdown and plain: `[n] source, heading, place` and the text, every line of it behind `> ` or
    four blanks, so that a line that looks like the head of a block is none. xml: `<passage n=
    source= section= place=>`. In all of them a tag of that name inside is escaped, and a code fence
    that a text leaves open is closed.
    """
    return "\n\n".join(
        block(hit, n, format, since=overlap(hits[n - 2], hit) if n > 1 else 0)
        for n, hit in enumerate(hits, 1)
    )


def block(hit: Hit, number: int, format: str = "markdown", *, since: int = 0) -> str:
    """The block of one hit, its text from the character `since` on."""
    text = _TAG.sub("&lt;", hit.chunk_text[since:].strip("\n"))
    if fence := open_fence(text):
        text = f"{text}\n{fence}"
    where = [
        hit.source_uri,
        hit.section_path,
        format_place(hit.page_range, hit.line_range, hit.locator),
        edited(hit.edited_from),
    ]
    source, section, spot, note = (_TAG.sub("&lt;", " ".join(part.split())) for part in where)
    if format == "xml":
        named = {"source": source, "section": section, "place": spot, "note": note}
        attributes = "".join(
            f' {name}="{_attribute(value)}"' for name, value in named.items() if value
        )
        return f'<passage n="{number}"{attributes}>\n{text}\n</passage>'
    head = (
        f"[{number}] {', '.join(part for part in (source, section, spot, note) if part)}".rstrip()
    )
    margin = "> " if format == "markdown" else "    "
    return "\n".join([head, *(f"{margin}{line}".rstrip() for line in text.splitlines())])


def overlap(before: Hit, hit: Hit) -> int:
    """How many characters at the beginning of a hit are the end of the one before it, a chunk of
    the same section; 0 for others.
    """
    same = (before.namespace, before.version_id, before.section_path) == (
        hit.namespace,
        hit.version_id,
        hit.section_path,
    )
    if not same or hit.chunk_index <= before.chunk_index:
        return 0
    opening = hit.chunk_text[:_LEAST_OVERLAP]
    at = before.chunk_text.find(opening) if len(opening) == _LEAST_OVERLAP else -1
    while at >= 0:
        shared = len(before.chunk_text) - at
        if hit.chunk_text.startswith(before.chunk_text[at:]):
            return shared if hit.chunk_text[shared:].strip() else 0
        at = before.chunk_text.find(opening, at + 1)
    return 0


def _attribute(value: str) -> str:
    return value.replace('"', "&quot;").replace("<", "&lt;").replace(">", "&gt;")
