"""Datasets in text files: cases as JSON lines or YAML, or a JSON object with its own documents."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import yaml

from rag_platform.config.yaml_files import YAML_LOADER
from rag_platform.errors import InputError
from rag_platform.evaluation.cases import (
    K_VALUES,
    Dataset,
    EvalCase,
    SuppliedDocument,
    invalid_dataset,
    parse_case,
    read_json,
    read_json_lines,
)


@dataclass(frozen=True)
class JsonLines:
    """One case per line; the file's stem is the dataset_id."""

    VERSION: ClassVar[str] = "1"

    def load(self, source: Path) -> Dataset:
        """Raises InputError `invalid_dataset` with the line."""
        lines = source.read_text(encoding="utf-8-sig").split("\n")
        cases = [parse_case(*found) for found in read_json_lines(lines, source.name)]
        return Dataset(
            dataset_id=source.stem, version=self.VERSION, cases=require_cases(cases, source.name)
        )


@dataclass(frozen=True)
class Yaml:
    """A list of cases, or an object with `dataset_id`, `version`, `k_values` and `cases`. A case
    may use the short form `expected: {doc_id: ..., tag: ..., keyword: ...}`, each a text or a list;
    without case_id it is named by its position.
    """

    VERSION: ClassVar[str] = "1"

    def load(self, source: Path) -> Dataset:
        """Raises InputError `invalid_dataset` with the line."""
        loader = YAML_LOADER(source.read_text(encoding="utf-8-sig"))
        try:
            root = loader.get_single_node()
            data = None if root is None else loader.construct_document(root)
        except yaml.YAMLError as error:
            raise InputError(
                f"{source.name} is not YAML: {error}", code="invalid_dataset"
            ) from error
        head: Mapping[str, Any] = data if isinstance(data, Mapping) else {"cases": data}
        known = {"dataset_id", "version", "k_values", "cases", "description"}
        if unknown := sorted(set(head) - known):
            raise invalid_dataset(
                source.name, f"unknown field {unknown[0]!r}; known: {', '.join(sorted(known))}"
            )
        listed = head.get("cases")
        if not isinstance(listed, list):
            raise invalid_dataset(source.name, "`cases` must be a list of cases")
        cases = [
            parse_case(_expand_short_form(item, f"{source.stem}-{number}", where), where)
            for number, (item, line) in enumerate(
                zip(listed, _lines_of_cases(root), strict=True), 1
            )
            for where in [f"{source.name}, line {line}"]
        ]
        return Dataset(
            dataset_id=str(head.get("dataset_id") or source.stem),
            version=str(head.get("version") or self.VERSION),
            cases=require_cases(cases, source.name),
            k_values=parse_k_values(head.get("k_values", K_VALUES), source.name),
        )


_SHORT = {"doc_id": "expected_files", "tag": "expected_tags", "keyword": "expected_text"}


def _expand_short_form(item: object, case_id: str, where: str) -> object:
    """The case with its short form replaced by the full fields. Raises InputError
    `invalid_dataset`.
    """
    if not isinstance(item, Mapping):
        return item  # `parse_case` reports the error
    found = {"case_id": case_id, **item}
    short = found.pop("expected", {})
    if not isinstance(short, Mapping) or set(short) - set(_SHORT):
        raise invalid_dataset(
            where, f"`expected` is an object with {', '.join(_SHORT)}, not {short!r}"
        )
    if twice := sorted(_SHORT[name] for name in short if _SHORT[name] in found):
        raise invalid_dataset(
            where, f"`expected` and `{twice[0]}` say the same thing; keep one of them"
        )
    return found | {_SHORT[name]: value for name, value in short.items()}


def _lines_of_cases(root: Any) -> list[int]:
    """The lines on which the cases of a parsed YAML file begin."""
    if isinstance(root, yaml.MappingNode):
        root = next(value for key, value in root.value if key.value == "cases")
    return [item.start_mark.line + 1 for item in root.value]


def parse_k_values(value: object, where: str) -> tuple[int, ...]:
    """The sorted cutoffs of a dataset. Raises InputError unless `value` is a list of numbers from 1
    on.
    """
    if (
        not isinstance(value, (list, tuple))
        or not value
        or not all(isinstance(k, int) and k > 0 for k in value)
    ):
        raise invalid_dataset(
            where, f"`k_values` must be a list of numbers from 1 on, not {value!r}"
        )
    return tuple(sorted(set(value)))


def require_cases(cases: list[EvalCase], name: str) -> tuple[EvalCase, ...]:
    """The cases as a tuple. Raises InputError if there are none."""
    if not cases:
        raise InputError(f"{name} holds no cases", code="invalid_dataset")
    return tuple(cases)


# --- cases with documents -----------------------------------------------------------------------

_SAFE = re.compile(r"[\w-][\w.-]{0,120}")


@dataclass(frozen=True)
class KnowledgeJson:
    """`{evalset_id, documents[], queries[], k_values[]}`. Documents have `doc_id`, `source_id`,
    `text`, `title` and `metadata`; queries `query_id`, `query`, `expected_doc_ids`,
    `expected_chunk_ids` (`doc_id:idx`, the idx-th chunk of the document), `relevance_doc` and
    `relevance_chunk`. `chunk_profile` may name the chunk profile that `idx` counts under.
    """

    VERSION: ClassVar[str] = "1"

    def load(self, source: Path) -> Dataset:
        """Raises InputError `invalid_dataset`, also if a query expects a document that is not in
        the file.
        """
        data = read_json(source.read_text(encoding="utf-8-sig"), source.name)
        if not isinstance(data, Mapping) or not all(
            isinstance(data.get(name), list) and data[name] for name in ("documents", "queries")
        ):
            raise InputError(
                f"{source.name} must be an object with lists of `documents` and `queries`",
                code="invalid_dataset",
            )
        documents = _documents(data["documents"], source.name)
        return Dataset(
            dataset_id=str(data.get("evalset_id") or source.stem),
            version=self.VERSION,
            cases=tuple(
                parse_case(_case(query, set(documents), where), where)
                for number, query in enumerate(data["queries"], 1)
                for where in [f"{source.name}, query {number}"]
            ),
            k_values=parse_k_values(data.get("k_values", K_VALUES), source.name),
            load_documents=lambda: iter(documents.values()),
            chunk_profile=str(data.get("chunk_profile") or ""),
        )


def _documents(listed: list[Any], where: str) -> dict[str, SuppliedDocument]:
    found: dict[str, SuppliedDocument] = {}
    for number, item in enumerate(listed, 1):
        doc_id = item.get("doc_id") if isinstance(item, Mapping) else None
        if not isinstance(doc_id, str) or not isinstance(item.get("text"), str):
            raise invalid_dataset(
                f"{where}, document {number}", "`doc_id` and `text` must be texts"
            )
        if not _SAFE.fullmatch(doc_id) or doc_id in found:
            raise invalid_dataset(
                f"{where}, document {number}",
                f"doc_id {doc_id!r} must be unique and hold letters, digits, `_`, `-` and `.`"
                " alone",
            )
        title = str(item.get("title") or "")
        found[doc_id] = SuppliedDocument.titled(f"{doc_id}.md", title, item["text"])
    return found


def _case(query: object, documents: set[str], where: str) -> dict[str, Any]:
    if not isinstance(query, Mapping):
        raise invalid_dataset(where, f"a query is an object, not {query!r}")
    same = ("expected_chunk_ids", "relevance_doc", "relevance_chunk")
    known = {"query_id", "query", "expected_doc_ids", *same}
    if unknown := sorted(set(query) - known):
        raise invalid_dataset(
            where, f"unknown field {unknown[0]!r}; known: {', '.join(sorted(known))}"
        )
    named = [*query.get("expected_doc_ids", ()), *query.get("relevance_doc", {})]
    if stray := sorted({name for name in named if name not in documents}):
        raise InputError(
            f"{where} expects document {stray[0]!r}, which is not among `documents`",
            code="invalid_dataset",
        )
    return {
        "case_id": query.get("query_id"),
        "query": query.get("query"),
        "expected_files": list(query.get("expected_doc_ids", ())),
        **{name: query[name] for name in same if query.get(name)},
    }
