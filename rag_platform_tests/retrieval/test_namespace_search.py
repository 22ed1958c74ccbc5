"""What a search of one namespace says of filters by patchy fields, of damaged indexes, and of
itself in the trace.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from rag_platform.answering.engine import answer
from rag_platform.ir import QueryRequest
from rag_platform.observability import trace_reader
from rag_platform.retrieval.library import Library

DOCS = {
    "pool.md": (
        "# Connection pool\n"
        "\n"
        "The connection pool holds a hundred connections. A connection pool"
        " queues further requests.\n"
    ),
    "logs.md": (
        "# Log files\n\nLog files are kept for thirty days. Old log files are removed at night.\n"
    ),
}


@pytest.fixture
def filled(shelf: Any, tmp_path: Path) -> Any:
    for name, text in DOCS.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    shelf.ingest(*(tmp_path / name for name in DOCS))
    return shelf


def test_a_filter_by_keyphrases_says_how_many_it_left(filled: Any) -> None:
    library = filled.library()
    held = answer(
        library,
        QueryRequest("connection pool", filters={"keyphrases": {"$contains": "connection pool"}}),
    )
    assert [hit.filename for hit in held.hits] == ["pool.md"] and held.matched_count == 1
    missed = answer(
        library,
        QueryRequest(
            "connection pool", filters={"keyphrases": {"$contains": "nothing of the kind"}}
        ),
    )
    assert (missed.hits, missed.matched_count, missed.answered) == ((), 0, False)


def test_what_a_filter_drops_says_nothing_about_confidence(filled: Any) -> None:
    kept = {"keyphrases": {"$contains": "log files"}}
    result = answer(filled.library(), QueryRequest("connection pool", filters=kept))
    assert [hit.filename for hit in result.hits] == ["logs.md"]
    signals = trace_reader.show(filled.store.logs_dir, result.trace_id)["attrs"]["signals"]
    assert (signals["sparse_reach"], signals["sparse_margin"]) == (0.0, 0.0)


def test_an_identifier_alone_is_looked_for_by_words(filled: Any, tmp_path: Path) -> None:
    (tmp_path / "days.md").write_text("# Days\n\nKEEP_DAYS is thirty.\n", encoding="utf-8")
    filled.ingest(*(tmp_path / name for name in (*DOCS, "days.md")))
    library = filled.library()

    def found(question: str) -> set[str]:
        return {hit.filename for hit in answer(library, QueryRequest(question)).hits}

    assert found("KEEP_DAYS") == {"days.md", "logs.md"}  # the log files have `kept` and `days`
    assert found("what is KEEP_DAYS") == found("NO_SUCH_THING") == {"days.md", *DOCS}


def test_a_told_keyphrase_that_nothing_has_is_relaxed_once_where_configured(
    filled: Any, config_folder: Path
) -> None:
    question = QueryRequest("关键词:不存在词 connection pool")
    library = filled.library()
    assert answer(library, question).matched_count == 0
    with (config_folder / "strategies" / "tiny.yaml").open("a", encoding="utf-8") as strategy:
        strategy.write("query: {inference: {relax_once: true}}\n")
    result = answer(library, question)
    assert (result.hits[0].filename, result.flags["filter_relaxed"], result.applied_filters) == (
        "pool.md",
        True,
        {},
    )


def test_a_lost_word_index_is_told_once(filled: Any) -> None:
    release = filled.store.current_path("default").read_text(encoding="utf-8").strip()
    shutil.rmtree(filled.store.release_dir("default", release) / "lexical")
    result = answer(filled.library(), QueryRequest("connection pool in pool.md"))
    assert (
        result.hits
        and result.flags["sparse_failed"] is True
        and "naming_failed" not in result.flags
    )
    assert len(result.warnings) == 1 and "sparse retriever failed" in result.warnings[0]


def test_the_trace_tells_the_namespaces_apart(filled: Any, tmp_path: Path) -> None:
    filled.ingest(tmp_path / "logs.md", namespace="logs")
    result = answer(
        filled.library(), QueryRequest("connection pool", namespaces=("default", "logs"))
    )
    told = trace_reader.show(filled.store.logs_dir, result.trace_id)["attrs"]
    assert told["candidate_count_before_after_filter.default"] == [2, 2]
    assert told["candidate_count_before_after_filter.logs"] == [1, 1]
    assert {"dense_topk_overlap_sparse.default", "dense_topk_overlap_sparse.logs"} <= told.keys()
    assert "candidate_count_before_after_filter" not in told


def test_each_part_of_a_question_has_a_place(publish: Any, library: Library) -> None:
    errors = [("Errors", f"Error code {n} means a refusal for today.") for n in range(6)]
    papers = [("Papers", f"The paper size A{n} is a size of the norm.") for n in range(6)]
    publish({"guide": [("Limits", "The upload size is 50 MB."), *errors, *papers]})
    question = "What is the upload size, and which error code means a refusal for today?"
    result = answer(library, QueryRequest(question, top_k=3))
    # by all of its words the six errors come first
    assert {hit.section_path for hit in result.hits} == {"Errors", "Limits"}
    assert {hit.found_by for hit in result.hits} == {()}
