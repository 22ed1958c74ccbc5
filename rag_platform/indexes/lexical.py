"""The word index of a release: what goes into it, and when a delta gives way to a full build."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from rag_platform.config import ProviderConfig, fingerprint
from rag_platform.ir import Chunk, LexicalRow, View
from rag_platform.protocols import LexicalIndex, LexicalReader
from rag_platform.providers import segmentation
from rag_platform.registry import build

# Deleted chunks stay in the statistics of an index until it is built anew. Very small libraries always are, which makes their scores
# independent of history; others when the deleted chunks reach a tenth of the live ones.
FULL_BUILD_ROWS = 300
STALE_SHARE = 0.1


def row_of(chunk: Chunk, view: View) -> LexicalRow | None:
    """What the word index holds of a chunk, None when its sparse text is blank."""
    if not view.sparse_text.strip():
        return None
    return LexicalRow(chunk.chunk_id, chunk.doc_id, view.sparse_text, chunk.section_path)


def row_hash(row: LexicalRow | None) -> str:
    """A fingerprint of what is indexed, empty for a chunk that is not; equal hashes need no update."""
    return "" if row is None else fingerprint(row.text, row.headings)


def needs_full_build(rows: int, stale: int) -> bool:
    """True when an index of `rows` live chunks with `stale` deleted ones still in its statistics should be built from nothing."""
    return rows <= FULL_BUILD_ROWS or stale > STALE_SHARE * rows


def update(config: ProviderConfig, directory: Path, *, removed: Collection[str], rows: Iterable[LexicalRow]) -> None:
    """Bring the index in `directory` up to date; rows go in by chunk_id, so that equal input gives an equal index."""
    index: LexicalIndex = build("lexical_index", config.provider, config.options)
    index.update(directory, removed=sorted(removed), rows=sorted(rows, key=lambda row: row.chunk_id))


def open_reader(config: ProviderConfig, directory: Path) -> LexicalReader:
    """A reader of a finished index."""
    index: LexicalIndex = build("lexical_index", config.provider, config.options)
    return index.open(directory)


def analyse(text: str) -> Sequence[str]:
    """The terms of a text before stemming, Chinese in characters and pairs; what counts as a shared word of question and answer."""
    return segmentation.terms(text)
