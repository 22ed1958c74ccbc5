"""Converts records (dataclasses) to and from JSON values, Parquet bytes and SQLite rows, by their
annotations.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import operator
import types
import typing
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar, cast

import orjson

from rag_platform.errors import SchemaVersionError, damaged_file

SCHEMA_VERSION = 1
RecordT = TypeVar("RecordT")
# the remedy for damaged outputs; a rebuild would only run the stages that the config made stale
REINGEST_REMEDY = "`rag ingest FILE --policy new_version` makes it anew"
CACHE_REMEDY = "remove it: it is made again where it is needed"
_PLAIN = frozenset({str, int, float, bool, type(None)})


def to_json(value: Any) -> Any:
    """JSON values of records, tuples, sets (sorted), paths and mappings."""
    if type(value) in _PLAIN:  # the common case
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_json(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json(item) for item in value]
    if isinstance(value, frozenset):
        return sorted(value)
    return str(value) if isinstance(value, Path) else value


def parse_json(text: str | bytes) -> Any:
    """The value of a JSON text. orjson is five times as fast as `json`, which matters for the tens
    of thousands of texts in a library; `json` also reads NaN, Infinity and numbers beyond 64 bits.
    """
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return json.loads(text)


def from_json(record: type[RecordT], data: dict[str, Any]) -> RecordT:
    """The record with the fields in `data`; lists become tuples, objects records, as annotated."""
    fields = field_types(cast(Any, record))
    return record(**{key: _restore(fields[key], item) for key, item in data.items()})


def parquet_bytes(record: type[Any], rows: Sequence[Any]) -> bytes:
    """Records of one type as the bytes of a Parquet file that names the type and schema version."""
    return _encode(record, rows) if rows else _encode_empty(cast(Any, record))


@functools.cache
def _encode_empty(record: Any) -> bytes:
    return _encode(record, ())  # cached, because most documents have no images and no edits


def _encode(record: Any, rows: Sequence[Any]) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    marks = {"record": record.__name__, "schema_version": str(SCHEMA_VERSION)}
    values = [
        tuple(map(_to_cell, row)) if _has_objects(record) else row
        for row in map(getter(record), rows)
    ]
    # All columns at once: a call per column costs three times as much for a document's few rows.
    batch = pa.RecordBatch.from_struct_array(pa.array(values, type=_arrow_struct(record)))
    target = pa.BufferOutputStream()
    # A file holds the rows of one document and is read as a whole. Dictionaries and statistics
    # would take a third of the writing time; zstd takes twice as long as snappy for reading and
    # writing, and its files are only a tenth smaller.
    schema = arrow_schema(record).with_metadata(marks)
    with pq.ParquetWriter(
        target, schema, compression="snappy", use_dictionary=False, write_statistics=False
    ) as writer:
        writer.write_batch(batch)
    data: bytes = target.getvalue().to_pybytes()
    return data


def parquet_records(
    data: bytes, record: type[RecordT], path: Path, remedy: str = REINGEST_REMEDY
) -> list[RecordT]:
    """The records in the bytes of a Parquet file. Raises SchemaVersionError for another type or
    schema version, IntegrityError `damaged_file` with the `remedy` for an invalid file.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    # Stage outputs are small: starting threads and read-ahead takes longer than reading one.
    with _naming_damage(path, remedy):
        file = pq.ParquetFile(pa.BufferReader(data), pre_buffer=False)
    marks = {key.decode(): value.decode() for key, value in (file.metadata.metadata or {}).items()}
    if marks.get("schema_version") != str(SCHEMA_VERSION) or marks.get("record") != record.__name__:
        raise SchemaVersionError(
            f"{path} holds {marks.get('record')} of schema {marks.get('schema_version')}; this"
            f" program reads {record.__name__} of schema {SCHEMA_VERSION}. Upgrade, or rebuild the"
            " stage."
        )
    if not file.metadata.num_rows:
        return []
    with _naming_damage(path, remedy):
        table = file.read(use_threads=False)
    hints, columns = field_types(cast(Any, record)), {}
    for name in table.column_names:
        values = table.column(name).to_pylist()
        if (restore := _restorer(hints.get(name))) is not None:
            values = [None if value is None else restore(value) for value in values]
        columns[name] = values
    return [
        record(**dict(zip(columns, values, strict=True)))
        for values in zip(*columns.values(), strict=True)
    ]


def parquet_columns(data: bytes, names: Sequence[str], path: Path) -> list[tuple[Any, ...]]:
    """Rows of some columns of a Parquet file's bytes. Raises IntegrityError `damaged_file`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with _naming_damage(path, REINGEST_REMEDY):
        table = pq.ParquetFile(pa.BufferReader(data), pre_buffer=False).read(
            columns=list(names), use_threads=False
        )
    return list(zip(*(table.column(name).to_pylist() for name in names), strict=True))


@contextmanager
def _naming_damage(path: Path, remedy: str) -> Iterator[None]:
    """Turn Arrow's errors about a file into IntegrityError `damaged_file`."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise damaged_file(path, error, remedy) from error


# --- rows of SQLite -----------------------------------------------------------------------------


def columns(record: type[Any], alias: str = "") -> str:
    """The quoted columns of a record in field order, for a SELECT that `from_row` reads."""
    prefix = f"{alias}." if alias else ""
    return ", ".join(f'{prefix}"{name}"' for name in field_types(cast(Any, record)))


def from_row(record: type[RecordT], row: Sequence[Any]) -> RecordT:
    """The record in the first columns of a row, where tuples and mappings are JSON text."""
    decoders, width = row_decoders(cast(Any, record))
    values = list(row[:width])
    for position, decode in decoders:
        if values[position] is not None:
            values[position] = decode(values[position])
    return record(*values)


@functools.cache
def row_decoders(record: Hashable) -> tuple[list[tuple[int, Callable[[Any], Any]]], int]:
    """((position, decoder) of the fields that need decoding, number of fields)."""
    hints = [_plain(hint) for hint in field_types(record).values()]
    decoders: dict[Any, Callable[[Any], Any]] = {tuple: read_tuple, dict: _read_dict, bool: bool}
    kinds = [decoders.get(typing.get_origin(hint) or hint) for hint in hints]
    return [(n, decode) for n, decode in enumerate(kinds) if decode is not None], len(hints)


def read_tuple(text: str) -> tuple[Any, ...]:
    return () if text == "[]" else tuple(parse_json(text))  # most are empty


def _read_dict(text: str) -> dict[str, Any]:
    return {} if text == "{}" else parse_json(text)


# --- Arrow --------------------------------------------------------------------------------------


@functools.cache
def arrow_schema(record: Hashable) -> Any:
    """The Arrow schema derived from a record's annotations; Json fields are stored as text."""
    import pyarrow as pa

    return pa.schema([(name, _arrow_type(pa, hint)) for name, hint in field_types(record).items()])


@functools.cache
def _arrow_struct(record: Hashable) -> Any:
    import pyarrow as pa

    return pa.struct(list(arrow_schema(record)))


@functools.cache
def field_types(record: Any) -> dict[str, Any]:
    """Field to its evaluated annotation, in field order."""
    hints = typing.get_type_hints(record)
    return {f.name: hints[f.name] for f in dataclasses.fields(record)}


def _plain(hint: Any) -> Any:
    if isinstance(hint, types.UnionType):
        return next(item for item in typing.get_args(hint) if item is not type(None))
    return hint


def _arrow_type(pa: Any, hint: Any) -> Any:
    hint = _plain(hint)
    if typing.get_origin(hint) is tuple:
        return pa.list_(_arrow_type(pa, typing.get_args(hint)[0]))
    simple = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}
    return simple.get(hint, pa.string())


@functools.cache
def getter(record: Any) -> Callable[[Any], tuple[Any, ...]]:
    """A function from a record to the tuple of its values; records have more than one field."""
    return operator.attrgetter(*field_types(record))


@functools.cache
def _has_objects(record: Any) -> bool:
    """True when some field holds JSON objects, which are stored as text."""
    return any(typing.get_origin(_plain(hint)) is dict for hint in field_types(record).values())


def _to_cell(value: Any) -> Any:
    return (
        json.dumps(value, ensure_ascii=False, sort_keys=True) if isinstance(value, dict) else value
    )


def _restore(hint: Any, value: Any) -> Any:
    restore = _restorer(hint)
    return value if restore is None or value is None else restore(value)


@functools.cache
def _restorer(hint: Any) -> Callable[[Any], Any] | None:
    """A function from a stored value to the field's value; None if they are the same."""
    plain = _plain(hint)
    if dataclasses.is_dataclass(plain):
        return functools.partial(from_json, cast(Any, plain))
    origin = typing.get_origin(plain)
    if origin is tuple:
        item = typing.get_args(plain)[0]
        return functools.partial(_records, item) if dataclasses.is_dataclass(item) else tuple
    if origin is frozenset:
        return frozenset
    return _object if origin is dict else None


def _records(record: Any, values: Any) -> tuple[Any, ...]:
    return tuple(from_json(record, value) for value in values)


def _object(value: Any) -> Any:
    return parse_json(value) if isinstance(value, str) else value
