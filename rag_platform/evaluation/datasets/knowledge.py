"""Datasets in one JSON object with their own documents."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from rag_platform.errors import InputError
from rag_platform.evaluation.cases import (
    K_VALUES,
    Dataset,
    SuppliedDocument,
    invalid_dataset,
    parse_case,
)
from rag_platform.evaluation.datasets.files import parse_k_values

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
        text = source.read_text(encoding="utf-8-sig")
        try:
            data = json.loads(text)
        except ValueError as error:
            raise InputError(
                f"{source.name} is not JSON: {error}", code="invalid_dataset"
            ) from error
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
        heading = f"# {title}\n\n" if title else ""
        found[doc_id] = SuppliedDocument(name=f"{doc_id}.md", text=f"{heading}{item['text']}\n")
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
