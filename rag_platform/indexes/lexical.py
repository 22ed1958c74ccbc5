"""The word index of a release: what goes into it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

from rag_platform.config.query import ProviderConfig
from rag_platform.config.settings import fingerprint
from rag_platform.ir import Chunk, LexicalRow, View
from rag_platform.protocols import LexicalIndex, LexicalReader
from rag_platform.registry import build, traits_of
from rag_platform.storage.store import own_copies

_NAME_PARTS = re.compile(r"[\s_.\-]+")


def row_of(chunk: Chunk, view: View, filename: str = "") -> LexicalRow | None:
    """What the word index holds of a chunk, None when its sparse text is blank.

    The name of the file stands with the headings: people ask for "the Adobe report", and few of its
    chunks say whose it is. It belongs to the identity of the document, so it never changes under a
    chunk.
    """
    if not view.sparse_text.strip():
        return None
    name = " ".join(_NAME_PARTS.split(PurePosixPath(filename).stem)).strip()
    return LexicalRow(
        chunk.chunk_id, chunk.doc_id, view.sparse_text, f"{chunk.section_path}\n{name}".strip()
    )


def row_hash(row: LexicalRow | None) -> str:
    """A fingerprint of what is indexed, empty for a chunk that is not."""
    return "" if row is None else fingerprint(row.text, row.headings)


def update(
    config: ProviderConfig,
    directory: Path,
    *,
    removed: Mapping[str, str],
    rows: Iterable[LexicalRow],
) -> None:
    """Delete `removed` (chunk id: doc id) from the index in `directory`, then add `rows`."""
    index: LexicalIndex = build("lexical_index", config.provider, config.options)
    if not traits_of(index).replaces_files:
        own_copies(directory)
    index.update(directory, removed=removed, rows=rows)


def open_reader(config: ProviderConfig, directory: Path) -> LexicalReader:
    """A reader of a finished index."""
    index: LexicalIndex = build("lexical_index", config.provider, config.options)
    return index.open(directory)
