"""Expectations: cases that users pin for a library, as developers pin behaviour by unit tests.

They are stored per namespace in `expectations/<namespace>.jsonl` under the data root; every change
rewrites the file.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rag_platform.config.settings import fingerprint
from rag_platform.documents.lookup import unknown_document
from rag_platform.errors import InputError, NotFoundError, read_only
from rag_platform.evaluation.cases import (
    Dataset,
    EvalCase,
    ExpectedText,
    case_data,
    parse_case,
    read_json_lines,
)
from rag_platform.evaluation.labels import LabelReader, is_of_file
from rag_platform.indexes.catalog import CatalogReader
from rag_platform.indexes.catalog_tables import CATALOG
from rag_platform.releases.release_store import current
from rag_platform.storage.sqlite_files import REFUSED
from rag_platform.storage.store import Store, write_text

if TYPE_CHECKING:
    from rag_platform.evaluation.results import CaseResult
    from rag_platform.retrieval.library import Library

TOP = 3  # the expected hit must be among that many
VERSION = "1"


@dataclass(frozen=True, slots=True)
class Outcome:
    """Whether an expectation is met, and if not, why."""

    case_id: str
    query: str
    met: bool
    reason: str
    trace_id: str


def expectation(
    query: str, *, file: str = "", section: str = "", text: str = "", refuse: bool = False
) -> EvalCase:
    """The case for an expectation; its case_id is a hash of it. Raises InputError `usage` if
    nothing, or both a passage and a refusal, is expected, and `empty_query`.
    """
    if not query.strip():
        raise InputError("the question is empty; give at least one word", code="empty_query")
    if refuse == bool(file or section or text):
        raise InputError(
            "say what is expected: either --file, --text or both, or --refuse", code="usage"
        )
    if section and not text:
        raise InputError("--section says where a --text must stand; give both", code="usage")
    case = EvalCase(
        case_id="",
        query=query,
        expected_text=(ExpectedText(text=text, file=file, section=section),) if text else (),
        expected_files=(file,) if file and not text else (),
        should_refuse=refuse or None,
    )
    return replace(case, case_id=f"exp_{fingerprint(case_data(case), length=8)}")


def read_expectations(store: Store, namespace: str) -> Dataset:
    """The expectations of a namespace, in the order they were added."""
    path = _path(store, namespace)
    lines = path.read_text(encoding="utf-8").split("\n") if path.is_file() else []
    cases = tuple(parse_case(*found) for found in read_json_lines(lines, path))
    return Dataset(
        dataset_id=f"expectations-{namespace}", version=VERSION, cases=cases, k_values=(TOP,)
    )


def add_expectation(store: Store, namespace: str, case: EvalCase) -> bool:
    """Pin a case; False if it is pinned already. Raises NotFoundError `unknown_document` if the
    published release has no such document, as the case would block every release.
    """
    with store.expecting(namespace):
        cases = read_expectations(store, namespace).cases
        if any(known.case_id == case.case_id for known in cases):
            return False
        _require_document(store, namespace, case)
        _write(store, namespace, (*cases, case))
    return True


def pin_expectation(library: Library, namespace: str, case: EvalCase) -> tuple[bool, str]:
    """Pin a case: (False if it is pinned already, a warning if the published release does not meet
    it; empty if it does, or if there is none). Raises as `add_expectation`.
    """
    # imported late: listing expectations needs no query engine
    from rag_platform.evaluation.measuring import CHEAP_METRIC_SETS
    from rag_platform.evaluation.results import ResultStore
    from rag_platform.evaluation.runs import RunOptions, evaluate

    new = add_expectation(library.store, namespace, case)
    if current(library.store, namespace) is None:
        return new, ""
    dataset = Dataset(dataset_id="expectation", version=VERSION, cases=(case,), k_values=(TOP,))
    options = RunOptions(namespace=namespace, metric_sets=CHEAP_METRIC_SETS)
    with closing(ResultStore(None)) as results:
        run = evaluate(library, dataset, options, results)
        (outcome,) = map(judge, results.cases(run.run_id))
    if outcome.met:
        return new, ""
    return new, (
        f"the published release does not meet it: {outcome.reason}. No release is published until"
        " one meets it"
    )


def _require_document(store: Store, namespace: str, case: EvalCase) -> None:
    release_id = current(store, namespace)
    files = [*case.expected_files, *(item.file for item in case.expected_text if item.file)]
    if release_id is None or not files:
        return
    path = store.release_dir(namespace, release_id) / CATALOG
    if not path.is_file():
        return
    with closing(CatalogReader(path)) as catalog:
        dataset = Dataset(dataset_id="", version=VERSION, cases=(case,))
        labels = LabelReader(catalog, dataset, chunk_profile="").read(case)
        if any(label.reason == "document_gone" for label in labels.stale):
            uris = [version.source_uri for version in catalog.versions().values()]
            raise unknown_document(namespace, files[0], uris)


def remove_expectation(store: Store, namespace: str, case_id: str) -> EvalCase:
    """Remove and return a case. Raises NotFoundError `unknown_expectation`."""
    for case in _drop(store, namespace, lambda case: case.case_id == case_id):
        return case
    raise NotFoundError(
        f"library {namespace!r} has no expectation {case_id!r}; see `rag expect list --namespace"
        f" {namespace}`",
        code="unknown_expectation",
    )


def drop_for_document(store: Store, namespace: str, source_uri: str) -> list[EvalCase]:
    """Remove and return the cases that name only this deleted document, as they may quote it."""
    return _drop(store, namespace, lambda case: _is_about(case, source_uri))


def _drop(store: Store, namespace: str, is_meant: Callable[[EvalCase], bool]) -> list[EvalCase]:
    """Remove and return the cases that are meant; without any, nothing is locked or written."""
    if not any(map(is_meant, read_expectations(store, namespace).cases)):
        return []
    with store.expecting(namespace):
        cases = read_expectations(store, namespace).cases
        dropped = [case for case in cases if is_meant(case)]
        _write(store, namespace, tuple(case for case in cases if case not in dropped))
    return dropped


def _is_about(case: EvalCase, source_uri: str) -> bool:
    files = [*case.expected_files, *(expected.file for expected in case.expected_text)]
    return bool(files) and all(file and is_of_file(source_uri, file) for file in files)


def judge(result: CaseResult) -> Outcome:
    """Whether a result meets its case: the expected hit is among the first TOP, or a refusal was
    expected and given. A case with a stale label is not met.
    """
    hit = result.metrics.get(f"retrieval.hit_rate@{TOP}")
    if result.error:
        reason = result.error
    elif result.stale:
        reason = "; ".join(_MISSING[label["reason"]] for label in result.stale)
    elif hit is not None and hit < 1.0:
        reason = f"not among the first {TOP} hits"
    elif hit is None and result.metrics.get("refusal.right", 1.0) < 1.0:
        reason = "answered, where a refusal is expected"
    else:
        reason = ""
    return Outcome(result.case_id, result.query, not reason, reason, result.trace_id)


# the release does not tell whether they were there before
_MISSING = {
    "document_gone": "no such document is there",
    "text_gone": "the text is not there",
    "chunk_gone": "no such chunk is there",
}


def _path(store: Store, namespace: str) -> Path:
    return store.home / "expectations" / f"{namespace}.jsonl"


def _write(store: Store, namespace: str, cases: tuple[EvalCase, ...]) -> None:
    lines = [json.dumps(case_data(case), ensure_ascii=False) for case in cases]
    try:
        write_text(_path(store, namespace), "".join(f"{line}\n" for line in lines))
    except OSError as error:
        if error.errno not in REFUSED:
            raise
        raise read_only(store.home) from error
