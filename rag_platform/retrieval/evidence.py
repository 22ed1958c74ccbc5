"""What the answerer gets to read: the hits, their parents or neighbours, no text twice, within a budget of tokens.

Every piece of evidence is a chunk of its own with its own provenance, so that whatever an answer takes from it can be cited and proved.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType

from rag_platform.config_query import ContextConfig
from rag_platform.indexes.catalog import CatalogReader
from rag_platform.ir import Chunk, Hit
from rag_platform.protocols import Vectors
from rag_platform.retrieval import duplicates
from rag_platform.retrieval.cutting import beginning
from rag_platform.retrieval.fusion import min_max
from rag_platform.retrieval.hits import of_chunk
from rag_platform.retrieval.quoting import block, overlap, rendered
from rag_platform.text.scripts import is_wide
from rag_platform.text.tokens import counter, estimate_tokens

Catalogs = Mapping[str, CatalogReader]
_NONE: Catalogs = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Evidence:
    """The hits of the context in the order of their numbers, the tokens of it as a prompt shows it, and what was left out or cut."""

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
    """The evidence within `config.max_tokens` and `config.max_chunks`; catalogs by namespace lend parents and neighbours.

    Hits are taken best first: a child as its parent where that fits, else as itself; one that does not fit is left out and a later, shorter
    one may still come in. Only where nothing was taken yet a hit too long for the budget is cut, see `cutting.beginning`. Neighbours come
    from the same section, nearest first, with the tokens that are left. Tokens are those of `quoting.rendered`, numbers and headings
    included, counted by `count` or `config.tokenizer`. `vectors` gives unit rows; where it is given, likeness is told by them as well.

    The numbers follow the order of the hits, or with `order: document` that of the documents; `group_by` keeps what belongs together side
    by side, the group with the best hit first.
    """
    counted = count or counter(config.tokenizer)

    @cache
    def size(hit: Hit, number: int, since: int) -> int:
        return counted(block(hit, number, config.format, since=since) + "\n\n")

    def whole(hits: Sequence[Hit]) -> int:
        if counted is estimate_tokens:  # adds up over blanks, so that no text is counted twice
            return sum([size(hit, n, overlap(hits[n - 2], hit) if n > 1 else 0) for n, hit in enumerate(hits, 1)])
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
    while ordered and tokens > config.max_tokens:  # a tokenizer may count more for the whole than for its parts
        ordered.remove(max(ordered, key=lambda place: (place.anchor, place.hit.chunk_index)))
        context.dropped += 1
        tokens = whole([place.hit for place in ordered])
    found = tuple(place.hit for place in ordered)
    return Evidence(found, tokens if found else 0, context.repeated, context.dropped, tuple(context.warnings))


def _order(hits: Sequence[Hit], rows: Vectors | None, mmr_lambda: float) -> Iterable[int]:
    if mmr_lambda >= 1 or not hits:
        return range(len(hits))

    def alike(i: int, j: int) -> float:
        return duplicates.likeness(hits[i].chunk_text, hits[j].chunk_text) if rows is None else float(rows[i] @ rows[j])

    return duplicates.diversified(min_max([hit.score for hit in hits]), alike, mmr_lambda)


def _parents(hits: Sequence[Hit], catalogs: Catalogs) -> dict[str, Hit]:
    """Child chunk_id to its parent as a hit, where the parent's text holds that of the child: an edited child stands for itself."""
    found: dict[str, Hit] = {}
    for namespace in {hit.namespace for hit in hits if hit.parent_id and hit.namespace in catalogs}:
        children = [hit for hit in hits if hit.parent_id and hit.namespace == namespace]
        chunks = catalogs[namespace].chunks(dict.fromkeys(hit.parent_id for hit in children))
        for hit in children:
            chunk = chunks.get(hit.parent_id)
            if chunk is not None and hit.chunk_text in chunk.chunk_text:
                found[hit.chunk_id] = of_chunk(hit, chunk)
    return found


# --- taking --------------------------------------------------------------------------------------------------------------


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
        same_document = sum(place.hit.namespace == hit.namespace and place.hit.doc_id == hit.doc_id for place in self.places)
        if any(self._repeats(option, row) for option in (parent, hit) if option is not None):
            self.repeated += 1
            return
        full = len(self.places) >= self.config.max_chunks or 0 < self.config.max_per_document <= same_document
        taken = not full and ((parent is not None and self._fits(parent, row)) or self._fits(hit, row))
        if not (taken or (not full and not self.places and self._cut(hit, row))):
            self.dropped += 1

    def surround(self, centre: _Place, catalogs: Catalogs) -> None:
        """Add the neighbours of a hit within its section, the nearest first."""
        catalog = catalogs.get(centre.hit.namespace)
        if catalog is None:
            return
        width = self.config.neighbours
        around = catalog.neighbours(centre.hit.chunk_id, width, width)
        section = next(chunk.section_id for chunk in around if chunk.chunk_id == centre.hit.chunk_id)
        for chunk in sorted(around, key=lambda chunk: (abs(chunk.chunk_index - centre.hit.chunk_index), chunk.chunk_index)):
            neighbour = of_chunk(centre.hit, chunk)
            if _lends(chunk, section) and not self._repeats(neighbour, None):
                self._fits(neighbour, None, centre.anchor)

    def _repeats(self, hit: Hit, row: Vectors | None) -> bool:
        if duplicates.normalized(hit.chunk_text) in self.texts or any(hit.chunk_id == place.hit.chunk_id for place in self.places):
            return True
        return any(self._alike(hit, row, place) for place in self.places)

    def _alike(self, hit: Hit, row: Vectors | None, place: _Place) -> bool:
        threshold = self.config.dedupe_threshold
        if threshold and duplicates.adds_nothing(hit.chunk_text, place.hit.chunk_text, threshold):
            return True
        if row is None or place.row is None or not self.config.dedupe_cosine or float(row @ place.row) < self.config.dedupe_cosine:
            return False
        if is_wide(hit.chunk_text) != is_wide(place.hit.chunk_text):  # a translation says the same to other readers
            return False
        return duplicates.says_no_less(hit.chunk_text, place.hit.chunk_text)

    def _fits(self, hit: Hit, row: Vectors | None, anchor: int | None = None) -> bool:
        size = self.size(hit, len(self.places) + 1, 0)
        if self.tokens + size > self.config.max_tokens:
            return False
        self.places.append(_Place(hit, len(self.places) if anchor is None else anchor, row))
        self.texts.add(duplicates.normalized(hit.chunk_text))
        self.tokens += size
        return True

    def _cut(self, hit: Hit, row: Vectors | None) -> bool:
        whole = self.size(hit, 1, 0)
        kept = beginning(hit.chunk_text, lambda text: self.size(dataclasses.replace(hit, chunk_text=text), 1, 0) <= self.config.max_tokens)
        told = f"from {whole} to at most {self.config.max_tokens} tokens (context.max_tokens)"
        if not kept.strip():
            self.warnings.append(
                f"{hit.chunk_id} was left out: nothing of it could be cut {told} without cutting a table row or code fence"
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
            group = {"none": 0, "document": of_document, "section": of_section}[self.config.group_by]
            within = of_document if self.config.order == "document" else place.anchor
            return group, within, place.hit.chunk_index, place.hit.chunk_id

        return sorted(self.places, key=order)

    def _join_runs(self) -> None:
        """Neighbours that follow each other without a gap are read from first to last, at the place of the best hit among them."""
        if self.config.mode != "neighbours":
            return
        runs: list[list[_Place]] = []
        for place in sorted(self.places, key=lambda place: (*_section(place.hit), place.hit.chunk_index)):
            last = runs[-1][-1].hit if runs else None
            if last and _section(last) == _section(place.hit) and place.hit.chunk_index - last.chunk_index <= 1:
                runs[-1].append(place)
            else:
                runs.append([place])
        for run in runs:
            anchor = min(place.anchor for place in run)
            for place in run:
                place.anchor = anchor


def _lends(chunk: Chunk, section_id: str) -> bool:
    return chunk.section_id == section_id and chunk.chunk_type != "parent" and bool(chunk.chunk_text.strip())


def _document(hit: Hit) -> tuple[str, ...]:
    return hit.namespace, hit.doc_id


def _section(hit: Hit) -> tuple[str, ...]:
    return hit.namespace, hit.doc_id, hit.section_path
