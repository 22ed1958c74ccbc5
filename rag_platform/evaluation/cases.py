"""Evaluation cases (a question with its expectations) and datasets of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from rag_platform.config.settings import fingerprint
from rag_platform.errors import InputError
from rag_platform.ir import Json

Unit = Literal["chunk", "document"]
K_VALUES = (1, 3, 5, 10)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedText:
    """Text that a retrieved chunk must contain, verbatim except for white space and Markdown."""

    text: str
    file: str = ""  # end of the document's source_uri; empty: any document
    section: str = ""  # part of the section's path


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalCase:
    """A question with at least one expectation.

    Expected texts and files stay valid when chunking changes; `expected_chunk_ids` do not. `match`:
    whether all expected texts are required, or any. `relevance_doc` and `relevance_chunk` grade
    documents (by file or doc_id) and chunks; 0 is known to be irrelevant.
    """

    case_id: str
    query: str
    tags: tuple[str, ...] = ()
    doc_scope: Mapping[str, Any] = field(default_factory=dict)  # a filter, as queries take it
    expected_answer: str = ""
    expected_citations: tuple[ExpectedText, ...] = ()
    expected_chunk_ids: tuple[str, ...] = ()
    expected_files: tuple[str, ...] = ()
    expected_tags: tuple[str, ...] = ()  # for each, any document with that tag
    expected_text: tuple[ExpectedText, ...] = ()
    match: Literal["any", "all"] = "all"
    should_refuse: bool | None = None  # None: no expectation
    relevance_doc: Mapping[str, int] = field(default_factory=dict)
    relevance_chunk: Mapping[str, int] = field(default_factory=dict)
    context_chunks: tuple[str, ...] = ()  # chunk ids that `generation_only` answers from
    notes: str = ""

    @property
    def unit(self) -> Unit:
        """What is ranked: chunks if any are expected, else documents."""
        return "chunk" if self._chunks else "document"

    @property
    def expected_documents(self) -> tuple[str, ...]:
        """The files that the case may quote."""
        files = (item.file for item in (*self.expected_text, *self.expected_citations))
        return tuple(dict.fromkeys(name for name in (*files, *self.expected_files) if name))

    @property
    def is_ranked(self) -> bool:
        """True if the case expects any hits."""
        return bool(self._chunks or self.expected_files or self.expected_tags or self.relevance_doc)

    @property
    def expects_something(self) -> bool:
        """False for a case that cannot fail."""
        return (
            self.is_ranked
            or bool(self.expected_answer or self.expected_citations)
            or self.should_refuse is not None
        )

    @property
    def _chunks(self) -> bool:
        return bool(self.expected_text or self.expected_chunk_ids or self.relevance_chunk)


@dataclass(frozen=True, slots=True, kw_only=True)
class SuppliedDocument:
    """A document that comes with a dataset: its file name and text, or a file to copy."""

    name: str
    text: str = ""
    path: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """Cases in a fixed order. `load_documents`, if set, yields the documents that the cases are
    about, which are published in a namespace of their own.
    """

    dataset_id: str
    version: str
    cases: tuple[EvalCase, ...]
    k_values: tuple[int, ...] = K_VALUES
    load_documents: Callable[[], Iterator[SuppliedDocument]] | None = field(
        default=None, repr=False, compare=False
    )
    # chunk profile that expected_chunk_ids refer to; empty: not recorded
    chunk_profile: str = ""

    def __post_init__(self) -> None:
        seen: set[str] = set()
        for case in self.cases:
            if case.case_id in seen:
                raise invalid_dataset(
                    f"dataset {self.dataset_id}", f"two cases are called {case.case_id!r}"
                )
            seen.add(case.case_id)

    @property
    def fingerprint(self) -> str:
        """Hash of the cases, independent of the order of their fields."""
        return fingerprint([case_data(case) for case in self.cases])


def case_data(case: EvalCase) -> Json:
    """The case as JSON, without empty and default fields."""
    found: Json = {}
    for item in fields(case):
        value = getattr(case, item.name)
        if item.name in ("expected_text", "expected_citations"):
            value = [
                {key: text for key in ("text", "file", "section") if (text := getattr(each, key))}
                for each in value
            ]
        elif isinstance(value, tuple):
            value = list(value)
        elif isinstance(value, Mapping):
            value = dict(value)
        if value not in ("", [], {}, None) and not (item.name == "match" and value == "all"):
            found[item.name] = value
    return found


# --- reading a case -----------------------------------------------------------------------------


def read_case(line: str, where: str) -> EvalCase:
    """The case of a JSON line. Raises what `parse_case` raises, also for invalid JSON."""
    try:
        data = json.loads(line)
    except ValueError as error:
        raise InputError(f"{where} is not JSON: {error}", code="invalid_dataset") from error
    return parse_case(data, where)


def parse_case(data: object, where: str) -> EvalCase:
    """The case of a JSON or YAML object. Raises InputError `invalid_dataset`, its message beginning
    with `where`, for an unknown or missing field, a wrong type and a case that expects nothing.
    """
    if not isinstance(data, Mapping):
        raise invalid_dataset(where, f"a case is an object, not {type(data).__name__}")
    if unknown := sorted(set(data) - _FIELDS):
        raise invalid_dataset(
            where, f"unknown field {unknown[0]!r}; known: {', '.join(sorted(_FIELDS))}"
        )
    found = {
        name: read(data[name], f"{where}, {name}")
        for name, read in _READERS.items()
        if name in data
    }
    if missing := [name for name in ("case_id", "query") if name not in found]:
        raise invalid_dataset(where, f"`{missing[0]}` is missing")
    case = EvalCase(**found)
    if not case.expects_something:
        raise invalid_dataset(
            where,
            f"case {case.case_id!r} expects nothing; give expected_text, expected_files,"
            " expected_chunk_ids, expected_answer or should_refuse",
        )
    return case


def invalid_dataset(where: str, message: str) -> InputError:
    """The error for a dataset that cannot be read, as `where: message`."""
    return InputError(f"{where}: {message}", code="invalid_dataset")


def _items(value: object) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (list, tuple)) else (value,)


def _texts(value: object, where: str) -> tuple[str, ...]:
    found = _items(value)
    if not all(isinstance(item, str) for item in found):
        raise invalid_dataset(where, f"a list of texts is wanted, not {value!r}")
    return found


def _read_expected(value: object, where: str) -> ExpectedText:
    if isinstance(value, str):
        value = {"text": value}
    if not isinstance(value, Mapping) or not isinstance(value.get("text"), str):
        raise invalid_dataset(where, f"a text, or an object with `text`, is wanted, not {value!r}")
    if not value["text"].strip():
        raise invalid_dataset(where, "an empty text stands everywhere")
    if unknown := sorted(set(value) - {"text", "file", "section"}):
        raise invalid_dataset(where, f"unknown field {unknown[0]!r}; known: text, file, section")
    return ExpectedText(**{key: str(item) for key, item in value.items()})


def _grades(value: object, where: str) -> dict[str, int]:
    if not isinstance(value, Mapping) or not all(
        isinstance(grade, int) and not isinstance(grade, bool) and grade >= 0
        for grade in value.values()
    ):
        raise invalid_dataset(where, f"grades are whole numbers from 0 on, by name, not {value!r}")
    return {str(name): grade for name, grade in value.items()}


def _require_filled(value: object, where: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise invalid_dataset(where, f"a text that is not empty is wanted, not {value!r}")
    return value


def _expected_texts(value: object, where: str) -> tuple[ExpectedText, ...]:
    return tuple(_read_expected(item, where) for item in _items(value))


def _scope(value: object, where: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise invalid_dataset(where, f"a filter is wanted, such as {{tags: api}}, not {value!r}")
    # imported late: releases without gates need no filters
    from rag_platform.indexes.catalog import FILTERABLE
    from rag_platform.query import filters

    try:
        filters.plan(value, FILTERABLE)
    except InputError as error:
        raise invalid_dataset(where, error.message) from error
    return dict(value)


def _match(value: object, where: str) -> str:
    if value not in ("any", "all"):
        raise invalid_dataset(where, f"any or all is wanted, not {value!r}")
    return str(value)


def _flag(value: object, where: str) -> bool:
    if not isinstance(value, bool):
        raise invalid_dataset(where, f"true or false is wanted, not {value!r}")
    return value


_READERS: Mapping[str, Callable[[Any, str], Any]] = {
    "case_id": _require_filled,
    "query": _require_filled,
    "tags": _texts,
    "doc_scope": _scope,
    "expected_answer": lambda value, where: str(value),
    "expected_citations": _expected_texts,
    "expected_chunk_ids": _texts,
    "expected_files": _texts,
    "expected_tags": _texts,
    "expected_text": _expected_texts,
    "match": _match,
    "should_refuse": _flag,
    "relevance_doc": _grades,
    "relevance_chunk": _grades,
    "context_chunks": _texts,
    "notes": lambda value, where: str(value),
}
_FIELDS = set(_READERS)
LISTS = {name for name, read in _READERS.items() if read is _texts}
MAPPINGS = {"doc_scope", "expected_citations", "relevance_doc", "relevance_chunk"}
