"""Cases of a run with expectations and hits, for `/api/eval` and the web pages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from rag_platform.api.cursors import make_cursor, read_cursor
from rag_platform.api.envelopes import fill_shape
from rag_platform.contract.evaluation_shapes import (
    EvalCaseData,
    EvalCasePart,
    EvalCasesData,
    ExpectedPart,
    RankedPart,
)
from rag_platform.contract.markdown_views import snippet
from rag_platform.errors import NotFoundError
from rag_platform.evaluation.cases import EvalCase
from rag_platform.evaluation.reporting.run_views import find_run, results_of, run_part
from rag_platform.evaluation.results import CaseFilter, CaseResult, EvalRun
from rag_platform.evaluation.run_requests import find_dataset
from rag_platform.indexes.catalog import ChunkRow
from rag_platform.ir import Json
from rag_platform.retrieval.library import Library

_SNIPPET_CHARS = 400


def list_eval_cases(
    home: Path, run_id: str, wanted: CaseFilter, *, limit: int = 50, cursor: str = ""
) -> EvalCasesData:
    """Cases of a run. Raises NotFoundError `unknown_run`, InputError `bad_cursor`."""
    skip = max(0, read_cursor(cursor, (int,))[0]) if cursor else 0
    with results_of(home) as store:
        run = find_run(store, run_id)
        found, count = store.find_cases(run.run_id, wanted, limit=limit, skip=min(skip, 2**60))
    data: EvalCasesData = {
        "run_id": run.run_id,
        "count": count,
        "cases": [case_part(result) for result in found],
    }
    if skip + len(found) < count:
        data["next_cursor"] = make_cursor(skip + len(found))
    return data


def case_part(result: CaseResult) -> EvalCasePart:
    """The result of a case without its hits."""
    artifacts = result.artifacts
    return fill_shape(
        EvalCasePart,
        result,
        latency_ms=artifacts.get("latency_ms", {}).get("total"),
        answered=artifacts.get("answered"),
        confidence=artifacts.get("confidence"),
    )


def get_eval_case(library: Library, home: Path, run_id: str, case_id: str) -> EvalCaseData:
    """One case with its hits, whose texts are missing if the release is gone or the document was
    deleted. Raises NotFoundError `unknown_run`, `unknown_case`.
    """
    with results_of(home) as store:
        run = find_run(store, run_id)
        result = store.case(run.run_id, case_id)
    artifacts = result.artifacts
    separate = artifacts.get("before_fusion", {})
    found = artifacts.get("retrieved", [])
    stages = {
        "dense": separate.get("dense", []),
        "sparse": separate.get("sparse", []),
        "fusion": artifacts.get("after_fusion", []),
        "rerank": artifacts.get("after_rerank", []),
    }
    listed = (item["chunk_id"] for items in (found, *stages.values()) for item in items)
    rows = _read_rows(library, run, set(listed))
    cited, context = artifacts.get("citations", []), set(artifacts.get("context_chunks", ()))

    def parts(items: Sequence[Json]) -> list[RankedPart]:
        return [
            _ranked_part(rank, item, rows.get(item["chunk_id"]), cited, context)
            for rank, item in enumerate(items, 1)
        ]

    expected, note = _describe_expected(home, run, result)
    return {
        "run": run_part(run),
        "case": case_part(result),
        "expected": expected,
        "expected_note": note,
        "found": parts(found),
        "stages": {name: parts(items) for name, items in stages.items() if items},
        "latency_ms": {
            name: value
            for name, value in artifacts.get("latency_ms", {}).items()
            if isinstance(value, (int, float))
        },
        "usage": dict(artifacts.get("usage", {})),
        "flags": list(artifacts.get("flags", ())),
        "citations": list(cited),
    }


def _read_rows(library: Library, run: EvalRun, chunk_ids: set[str]) -> dict[str, ChunkRow]:
    try:
        with library.lease(run.namespace, run.release_id) as lease:
            hidden = library.hidden_chunks(lease)
            return lease.release.catalog.rows(sorted(chunk_ids - hidden))
    except NotFoundError:  # the release is no longer kept
        return {}


def _ranked_part(
    rank: int, item: Json, row: ChunkRow | None, cited: Sequence[str], context: set[str]
) -> RankedPart:
    return {
        "rank": rank,
        "chunk_id": item["chunk_id"],
        "score": float(item["score"]),
        "source": item["source"],
        "source_uri": row.source_uri if row else "",
        "section_path": row.chunk.section_path if row else "",
        "text": snippet(row.chunk.chunk_text, _SNIPPET_CHARS) if row else "",
        "cited": item["chunk_id"] in cited,
        "in_context": item["chunk_id"] in context,
    }


def _describe_expected(
    home: Path, run: EvalRun, result: CaseResult
) -> tuple[list[ExpectedPart], str]:
    """(the expectations of the case, why they are unknown or may have changed)."""
    dataset = find_dataset(home, run.dataset_id, run.namespace)
    if dataset is None:
        return [], f"{run.dataset_id} is no dataset of the config folder"
    case = next((case for case in dataset.cases if case.case_id == result.case_id), None)
    if case is None or case.query != result.query:
        return [], f"{run.dataset_id} has changed since, and no longer holds this case"
    note = (
        ""
        if dataset.fingerprint == run.dataset_fingerprint
        else f"{run.dataset_id} has changed since; this is what it expects now"
    )
    return list(_expected_parts(case)), note


def _expected_parts(case: EvalCase) -> Iterator[ExpectedPart]:
    def part(kind: str, value: str, file: str = "", section: str = "") -> ExpectedPart:
        return {"kind": kind, "value": value, "file": file, "section": section}

    if case.should_refuse is not None:
        yield part("refusal", "yes" if case.should_refuse else "no")
    if case.expected_answer:
        yield part("answer", case.expected_answer)
    for kind, texts in (("text", case.expected_text), ("citation", case.expected_citations)):
        for item in texts:
            yield part(kind, item.text, item.file, item.section)
    for kind, names in (
        ("file", case.expected_files),
        ("tag", case.expected_tags),
        ("chunk", case.expected_chunk_ids),
    ):
        for name in names:
            yield part(kind, name)
    for kind, grades in (("document", case.relevance_doc), ("chunk", case.relevance_chunk)):
        for name, grade in grades.items():
            yield part(kind, f"{name} ({grade})")
