"""What versions have on disk, identified by hashes and ids, without any text.

A deletion records it before anything is purged, garbage collection keeps what kept versions need,
and the proof of a deletion counts what is left.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from pathlib import Path

from rag_platform.config.settings import Strategy
from rag_platform.documents.descriptions import make_questions
from rag_platform.errors import NotFoundError, SchemaVersionError
from rag_platform.ir import Chunk, Version
from rag_platform.storage.blobs import fetch, open_blobs, open_for_writing
from rag_platform.storage.records import from_json, to_json
from rag_platform.storage.store import (
    Store,
    read_columns,
    read_json,
    read_records,
    write_json,
)

SCHEMA_VERSION = 1  # of deletion records


@dataclass(frozen=True, slots=True)
class Belongings:
    """Hashes and ids of what versions have on disk; only `chunk_ids` are never shared."""

    file_sha256s: frozenset[str] = frozenset()
    chunk_ids: frozenset[str] = frozenset()
    content_hashes: frozenset[str] = frozenset()
    asset_ids: frozenset[str] = frozenset()
    context_hashes: frozenset[str] = frozenset()  # of the text around captioned images
    description_keys: frozenset[str] = frozenset()

    def __or__(self, other: Belongings) -> Belongings:
        return Belongings(*(getattr(self, kind) | getattr(other, kind) for kind in KINDS))

    def __sub__(self, other: Belongings) -> Belongings:
        return Belongings(*(getattr(self, kind) - getattr(other, kind) for kind in KINDS))


@dataclass(frozen=True, slots=True)
class Record:
    """The record of a deletion on disk, from which a proof can count after the data is gone."""

    sequence: int
    namespace: str
    doc_id: str
    version_ids: tuple[str, ...]
    mode: str
    created_at: str
    belongings: Belongings = field(default_factory=Belongings)
    purged_at: str = ""  # when a hard deletion was finished


KINDS = tuple(f.name for f in fields(Belongings))
# kinds by the stage files that have them, and their columns there
_COLUMNS = {
    "views": {"chunk_ids": "chunk_id", "content_hashes": "content_hash"},
    "media": {"asset_ids": "asset_id"},
    "media_texts": {"context_hashes": "context_hash"},
}


def stage_files(
    store: Store, version: Version, kind: str, profiles: Collection[str] | None
) -> list[Path]:
    """A version's Parquet files of one kind, of all profiles or only these."""
    folder = store.version_path(version, kind, "any").parent
    found = sorted(path for path in folder.glob("*.parquet") if not path.name.startswith("."))
    return [path for path in found if profiles is None or profile_of(path) in profiles]


def profile_of(path: Path) -> str:
    return path.stem.partition("-")[0]


def edition_of(path: Path) -> str:
    """The edition in a stage file's name; "" for the unedited outputs."""
    return path.stem.partition("-")[2]


def of_versions(
    store: Store,
    versions: Iterable[Version],
    profiles: Collection[str] | None = None,
    strategies: Sequence[Strategy] = (),
    kinds: Collection[str] = KINDS,
) -> Belongings:
    """The belongings of versions according to their stage files, under all profiles or only these;
    only files needed for `kinds` are read. Description keys are those of `strategies`.
    """
    describing = [s for s in strategies if s.views.describe.provider != "none"]
    found: dict[str, set[str]] = {kind: set() for kind in KINDS}
    for version in versions:
        found["file_sha256s"].add(version.file_sha256)
        for stage, columns in _COLUMNS.items():
            needed = any(kind in kinds for kind in columns)
            for path in stage_files(store, version, stage, profiles) if needed else ():
                for row in read_columns(path, tuple(columns.values())):
                    for kind, value in zip(columns, row, strict=True):
                        found[kind].add(value)
        needed = bool(describing) and "description_keys" in kinds
        for path in stage_files(store, version, "chunks", profiles) if needed else ():
            chunks = read_records(path, Chunk)
            for strategy in describing:
                questions = make_questions(chunks, strategy.views.describe)
                found["description_keys"].update(questions.keys.values())
    return Belongings(**{name: frozenset(values - {""}) for name, values in found.items()})


def write_record(store: Store, record: Record) -> None:
    path = store.deletion_path(record.namespace, record.sequence)
    write_json(path, {**to_json(record), "schema_version": SCHEMA_VERSION})


def _record_key(namespace: str, sequence: int) -> str:
    return f"deletions/{namespace}/{sequence}.json"


def push_record(store: Store, record: Record) -> None:
    """Upload a deletion's record to the object store, if there is one, for other machines."""
    if store.remote is not None:
        open_for_writing(store).put_new(
            _record_key(record.namespace, record.sequence),
            store.deletion_path(record.namespace, record.sequence),
        )


def fetch_record(store: Store, namespace: str, sequence: int) -> Record | None:
    """Another machine's record of a deletion, fetched from the object store; None without one."""
    if store.remote is None:
        return None
    key = _record_key(namespace, sequence)
    with suppress(NotFoundError):
        fetch(open_blobs(store), key, store.deletion_path(namespace, sequence), "")
    return read_record(store, namespace, sequence)


def read_record(store: Store, namespace: str, sequence: int) -> Record | None:
    """The record of one deletion, None when there is none. Raises SchemaVersionError."""
    path = store.deletion_path(namespace, sequence)
    if not path.is_file():
        return None
    data = read_json(path)
    if (found := data.pop("schema_version", None)) != SCHEMA_VERSION:
        raise SchemaVersionError(
            f"{path.name} of the deletions has schema {found}, this program reads {SCHEMA_VERSION}:"
            " use the one that wrote it"
        )
    return from_json(Record, data)
