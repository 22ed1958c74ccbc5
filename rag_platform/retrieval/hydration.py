"""Joins candidates with their catalog rows and selects the hits that are shown, without texts that
repeat a better hit.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from rag_platform.indexes.catalog import CatalogReader, HitRow
from rag_platform.ir import Candidate, Chunk, Hit, MediaText
from rag_platform.retrieval.fusion import min_max
from rag_platform.storage.records import parse_json, read_tuple
from rag_platform.text.passages import is_contents
from rag_platform.text.scripts import HANGUL, UNSPACED


def join_rows(
    candidates: Sequence[Candidate], rows: Mapping[str, HitRow], namespace: str = ""
) -> list[Hit]:
    """The hits of the candidates that have a row, in their order, ranks from 1."""
    known = [candidate for candidate in candidates if candidate.chunk_id in rows]
    return [
        hit_of(candidate, rows[candidate.chunk_id], rank=rank, namespace=namespace)
        for rank, candidate in enumerate(known, 1)
    ]


def with_picture_texts(hits: Sequence[Hit], catalog: CatalogReader) -> list[Hit]:
    """The hits with the recognised text and captions of their pictures."""
    return [
        replace(hit, picture_text=text) if (text := read_pictures(hit, catalog)) else hit
        for hit in hits
    ]


def read_pictures(hit: Hit | Chunk, catalog: CatalogReader) -> str:
    """The text recognised in the pictures of a hit or chunk, and their captions, in its order."""
    texts = list_media_texts(hit, catalog)
    return "\n".join(part for text in texts for part in (text.ocr_text, text.caption) if part)


def list_media_texts(hit: Hit | Chunk, catalog: CatalogReader) -> list[MediaText]:
    """What models read in each picture of a hit or chunk, empty texts where none has read it."""
    read = catalog.media_texts(hit.version_id, hit.asset_ids) if hit.asset_ids else ()
    texts = {text.asset_id: text for text in read}
    return [texts.get(asset_id, MediaText(asset_id)) for asset_id in hit.asset_ids]


def select_shown(
    hits: Sequence[Hit],
    top_k: int,
    *,
    dedupe: bool,
    max_per_document: int,
    dedupe_threshold: float = 0.0,
    mmr_lambda: float = 1.0,
) -> list[Hit]:
    """The first `top_k` hits without repeated texts and with at most `max_per_document` of each
    document (0: no limit). Ranks are unchanged.

    `dedupe` drops a text equal to a better one, and with a `dedupe_threshold` above 0 also one that
    shares that share of its word pairs with a better one. An `mmr_lambda` below 1 weighs relevance
    against novelty and needs the complete list of hits. Tables of contents and indexes come last.
    """
    shown: list[Hit] = []
    texts = defaultdict[tuple[str, ...], list[str]](list)  # of the shown hits, by first words
    documents: Counter[tuple[str, str]] = Counter()
    for hit in _contents_last(hits if mmr_lambda >= 1 else _novel_first(hits, mmr_lambda)):
        if len(shown) == top_k:
            break
        text = hit.chunk_text
        begins = tuple(text.split(None, _FIRST_WORDS)[:_FIRST_WORDS])
        document = (hit.namespace, hit.doc_id)
        if (dedupe and begins and _repeats(text, texts[begins])) or (
            max_per_document and documents[document] >= max_per_document
        ):
            continue
        if (dedupe and dedupe_threshold and begins) and any(
            adds_nothing(hit.chunk_text, other.chunk_text, dedupe_threshold) for other in shown
        ):
            continue
        texts[begins].append(text)
        documents[document] += 1
        shown.append(hit)
    return shown


def _repeats(text: str, others: Sequence[str]) -> bool:
    return any(normalise_blanks(other) == normalise_blanks(text) for other in others)


def _contents_last(hits: Iterable[Hit]) -> Iterator[Hit]:
    contents: list[Hit] = []
    for hit in hits:
        if is_contents(hit.chunk_text):
            contents.append(hit)
        else:
            yield hit
    yield from contents


def _novel_first(hits: Sequence[Hit], mmr_lambda: float) -> Iterator[Hit]:
    relevance = min_max([hit.score for hit in hits]) if hits else []
    order = diversify(
        relevance, lambda i, j: likeness(hits[i].chunk_text, hits[j].chunk_text), mmr_lambda
    )
    return (hits[i] for i in order)


def find_preferred(preferences: Sequence[str], rows: Mapping[str, HitRow]) -> dict[str, set[str]]:
    """Preference to the chunk ids that satisfy it: the newer half, a source or tag `official`, at
    least one image.
    """
    dates = sorted(row.doc_date for row in rows.values() if row.doc_date)
    middle = dates[len(dates) // 2] if dates and dates[0] != dates[-1] else "\U0010ffff"
    signals = {
        "prefer_recent": {chunk_id for chunk_id, row in rows.items() if row.doc_date >= middle},
        "prefer_official": {
            chunk_id
            for chunk_id, row in rows.items()
            if row.source == "official" or "official" in parse_json(row.tags)
        },
        "prefer_has_image": {chunk_id for chunk_id, row in rows.items() if row.asset_ids != "[]"},
    }
    return {name: signals[name] for name in preferences}


def hit_of(candidate: Candidate, row: HitRow, *, rank: int, namespace: str = "") -> Hit:
    return Hit(
        rank,
        candidate.chunk_id,
        candidate.score,
        candidate.source,
        *row[1:9],  # doc_id to chunk_text
        _range(row.page_start, row.page_end),
        _range(row.line_start, row.line_end),
        read_tuple(row.asset_ids),
        row.locator,
        edited_from=read_tuple(row.edited_from),
        namespace=namespace,
        parent_id=row.parent_id,
    )


def of_chunk(hit: Hit, chunk: Chunk, pictures: CatalogReader | None = None) -> Hit:
    """A hit of another chunk of the same version, with the rank, score and source of this hit, and
    what was read in its pictures where a catalog provides it.
    """
    return replace(
        hit,
        chunk_id=chunk.chunk_id,
        section_path=chunk.section_path,
        chunk_index=chunk.chunk_index,
        chunk_text=chunk.chunk_text,
        page_range=_range(chunk.page_start, chunk.page_end),
        line_range=_range(chunk.line_start, chunk.line_end),
        asset_ids=chunk.asset_ids,
        locator=chunk.locator,
        picture_text=read_pictures(chunk, pictures) if pictures is not None else "",
        edited_from=chunk.edited_from,
        parent_id=chunk.parent_id,
    )


def _range(start: int | None, end: int | None) -> tuple[int, int] | None:
    return None if start is None else (start, start if end is None else end)


# words of scripts with spaces, single characters of scripts without
_WORD = re.compile(rf"[^\W{UNSPACED}{HANGUL}]+|[{UNSPACED}{HANGUL}]")
_FIRST_WORDS = 8  # enough to tell most texts apart
_DIGITS = re.compile("[0-9][0-9]*")  # scanned faster than with `+`
_NEGATIONS = frozenset("no not never none without cannot nor 不 没 无 未 非 勿 别 否".split())


@functools.lru_cache(maxsize=512)
def normalise_blanks(text: str) -> str:
    """The text with single spaces between words."""
    return " ".join(text.split())


def adds_nothing(later: str, earlier: str, threshold: float) -> bool:
    """True when the earlier text has at least the share `threshold` of the later one's word pairs,
    and `says_no_less`.

    The share is taken of the later text, so that a long text is no repetition of a short one that
    it contains. Texts with different numbers, identifiers or negations always differ.
    """
    # cheap tests first, which decide for most texts
    if not _digits(later) <= _digits(earlier):
        return False
    (words, distinct), (_, others) = _words(later), _words(earlier)
    # each word but the last begins a pair of its own
    if len(distinct - others) - 1 > (1 - threshold) * len(words):
        return False
    new = shingles(later)
    return (
        bool(new)
        and len(new & shingles(earlier)) >= threshold * len(new)
        and says_no_less(later, earlier)
    )


def says_no_less(later: str, earlier: str) -> bool:
    """True when the earlier text has every number and identifier of the later one, and the same
    negations.
    """
    (exact, negations), (known, others) = _decisive_words(later), _decisive_words(earlier)
    return exact <= known and negations == others


def likeness(left: str, right: str) -> float:
    """The Jaccard index of the word pairs, 0 to 1."""
    one, other = shingles(left), shingles(right)
    shared = len(one & other)
    union = len(one) + len(other) - shared
    return shared / union if union else 0.0


@functools.lru_cache(maxsize=1024)
def overlap(left: str, right: str) -> float:
    """The share of the shorter text's word pairs that the other one has, 0 to 1."""
    one, other = shingles(left), shingles(right)
    return len(one & other) / (min(len(one), len(other)) or 1)


@functools.lru_cache(maxsize=2048)
def shingles(text: str) -> frozenset[tuple[str, str]]:
    """The pairs of adjacent words of a text (Broder, SEQUENCES 1997); for a single word, that word
    paired with "".
    """
    words, _ = _words(text)
    return frozenset(itertools.pairwise(words)) or frozenset((word, "") for word in words)


@functools.lru_cache(maxsize=2048)
def _words(text: str) -> tuple[list[str], frozenset[str]]:
    words = _WORD.findall(text.lower())
    return words, frozenset(words)


@functools.lru_cache(maxsize=2048)
def _digits(text: str) -> frozenset[str]:
    return frozenset(_DIGITS.findall(text))


@functools.lru_cache(maxsize=2048)
def _decisive_words(text: str) -> tuple[frozenset[str], frozenset[str]]:
    """The words whose change changes what a text says: (words with a digit or an underscore, as
    numbers, versions and identifiers; negations).
    """
    _, distinct = _words(text)
    return (
        frozenset(word for word in distinct if "_" in word or any(map(str.isdigit, word))),
        _NEGATIONS & distinct,
    )


def diversify(
    relevance: Sequence[float], alike: Callable[[int, int], float], weight: float
) -> Iterator[int]:
    """Positions by maximal marginal relevance (Carbonell & Goldstein, SIGIR 1998): weight x
    relevance - (1 - weight) x the greatest likeness to a position before it.

    `relevance` should lie between 0 and 1, as likeness does; ties keep the given order.
    """
    left = list(range(len(relevance)))
    nearest = [0.0] * len(relevance)
    while left:
        best = max(
            left, key=lambda i: (round(weight * relevance[i] - (1 - weight) * nearest[i], 12), -i)
        )
        left.remove(best)
        yield best
        for i in left:
            nearest[i] = max(nearest[i], alike(i, best))
