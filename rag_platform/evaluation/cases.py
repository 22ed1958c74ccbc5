"""Evaluation cases (a question with its expectations) and datasets of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field, TypeAdapter, ValidationError

from rag_platform.config.settings import fingerprint
from rag_platform.errors import InputError
from rag_platform.ir import Json
from rag_platform.storage.records import to_json

Unit = Literal["chunk", "document"]
K_VALUES = (1, 3, 5, 10)


def _as_items(value: object) -> object:
    return value if isinstance(value, (list, tuple)) else (value,)


def _as_expected(value: object) -> object:
    return {"text": value} if isinstance(value, str) else value


def _require_filled(text: str) -> str:
    if not text.strip():
        raise ValueError("a text that is not empty is wanted")
    return text


def _require_filter(value: Mapping[str, Any]) -> Mapping[str, Any]:
    # imported late: releases without gates need no filters
    from rag_platform.query import filters

    try:
        filters.plan(value)
    except InputError as error:
        raise ValueError(error.message) from error
    return value


Filled = Annotated[str, AfterValidator(_require_filled)]
AnyText = Annotated[str, BeforeValidator(str)]
Texts = Annotated[tuple[str, ...], BeforeValidator(_as_items)]
Grades = Mapping[AnyText, Annotated[int, Field(strict=True, ge=0)]]
# fields of a case that are lists of texts, or that are written as JSON in a spreadsheet
LISTS = {"tags", "expected_chunk_ids", "expected_files", "expected_tags", "context_chunks"}
MAPPINGS = {"doc_scope", "expected_citations", "relevance_doc", "relevance_chunk"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedText:
    """Text that a retrieved chunk must contain, verbatim except for white space and Markdown."""

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}
    text: Filled
    file: AnyText = ""  # end of the document's source_uri; empty: any document
    section: AnyText = ""  # part of the section's path


ExpectedTexts = Annotated[
    tuple[Annotated[ExpectedText, BeforeValidator(_as_expected)], ...], BeforeValidator(_as_items)
]


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalCase:
    """A question with at least one expectation.

    Expected texts and files stay valid when chunking changes; `expected_chunk_ids` do not. `match`:
    whether all expected texts are required, or any. `relevance_doc` and `relevance_chunk` grade
    documents (by file or doc_id) and chunks; 0 is known to be irrelevant.
    """

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}
    case_id: Filled
    query: Filled
    tags: Texts = ()
    # a filter, as queries take it
    doc_scope: Annotated[Mapping[str, Any], AfterValidator(_require_filter)] = field(
        default_factory=dict
    )
    expected_answer: AnyText = ""
    expected_citations: ExpectedTexts = ()
    expected_chunk_ids: Texts = ()
    expected_files: Texts = ()
    expected_tags: Texts = ()  # for each, any document with that tag
    expected_text: ExpectedTexts = ()
    match: Literal["any", "all"] = "all"
    should_refuse: Annotated[bool, Field(strict=True)] | None = None  # None: no expectation
    relevance_doc: Grades = field(default_factory=dict)
    relevance_chunk: Grades = field(default_factory=dict)
    context_chunks: Texts = ()  # chunk ids that `generation_only` answers from
    notes: AnyText = ""

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

    @classmethod
    def titled(cls, name: str, title: str, text: str) -> SuppliedDocument:
        """Markdown under its title, which is not repeated where it is the text's first line or
        sentence.
        """
        title, text = " ".join(title.split()), text.strip()
        if not title:
            return cls(name=name, text=f"{text}\n")
        first, _, rest = text.partition("\n")
        if title in (first.strip(), first.lstrip("# ").rstrip()):
            text = rest.strip()
        elif title[-1] in ".!?。！？" and text.startswith(title):
            text = text[len(title) :].strip()
        return cls(name=name, text=f"# {title}\n\n{text}\n")


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

    def sample(self, count: int) -> Dataset:
        """The dataset with `count` cases, the first by the hash of their ids."""
        ordered = sorted(self.cases, key=lambda it: hashlib.sha256(it.case_id.encode()).digest())
        return replace(self, cases=tuple(ordered[:count]))

    @property
    def fingerprint(self) -> str:
        """Hash of the cases, independent of the order of their fields."""
        return fingerprint([case_data(case) for case in self.cases])


def case_data(case: EvalCase) -> Json:
    """The case as JSON, without empty and default fields."""
    found = _drop_empty(to_json(case))
    if case.match == "all":
        del found["match"]
    for name in ("expected_text", "expected_citations"):
        if name in found:
            found[name] = [_drop_empty(item) for item in found[name]]
    return found


def _drop_empty(data: Json) -> Json:
    return {key: value for key, value in data.items() if value not in ("", [], {}, None)}


# --- reading a case -----------------------------------------------------------------------------


def read_json_lines(lines: Iterable[str], file: object) -> Iterator[tuple[Any, str]]:
    """(value, place) of each JSON line that is not blank. Raises what `read_json` raises."""
    for number, line in enumerate(lines, 1):
        if line.strip():
            where = f"{file}, line {number}"
            yield read_json(line, where), where


def read_json(text: str, where: str) -> Any:
    """The value of a JSON text. Raises InputError `invalid_dataset`."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise InputError(f"{where} is not JSON: {error}", code="invalid_dataset") from error


def parse_case(data: object, where: str) -> EvalCase:
    """The case of a JSON or YAML object. Raises InputError `invalid_dataset`, its message beginning
    with `where`, for an unknown or missing field, a wrong type and a case that expects nothing.
    """
    if not isinstance(data, Mapping):
        raise invalid_dataset(where, f"a case is an object, not {type(data).__name__}")
    try:
        case = _adapter().validate_python(dict(data))
    except ValidationError as error:
        raise _explain(error, where) from error
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


def _explain(error: ValidationError, where: str) -> InputError:
    """The error about the first thing that is wrong with a case, unknown fields before others."""
    errors = error.errors()
    first = next((item for item in errors if item["type"] == _UNKNOWN), errors[0])
    *above, name = first["loc"]
    if first["type"] == _UNKNOWN:
        known = ", ".join(item.name for item in fields(ExpectedText if above else EvalCase))
        return invalid_dataset(where, f"unknown field {name!r}; known: {known}")
    if first["type"] == "missing":
        return invalid_dataset(where, f"`{name}` is missing")
    message = first["msg"].removeprefix("Value error, ")
    given = "" if first["type"] == "value_error" else f", not {first['input']!r}"
    return invalid_dataset(f"{where}, {'.'.join(map(str, first['loc']))}", f"{message}{given}")


_UNKNOWN = "unexpected_keyword_argument"  # pydantic's type of error


@cache
def _adapter() -> TypeAdapter[EvalCase]:
    return TypeAdapter(EvalCase)
