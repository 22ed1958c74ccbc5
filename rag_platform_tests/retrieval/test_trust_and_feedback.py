"""How much the sparse retriever counts, and the second search of the dense one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rag_platform.answering.engine import answer
from rag_platform.ir import Candidate, QueryRequest
from rag_platform.observability import tracing
from rag_platform.observability.trace_reader import show
from rag_platform.processes.limits import Deadline
from rag_platform.query import analysis
from rag_platform.retrieval import retrievers
from rag_platform.retrieval.library import Library
from rag_platform.retrieval.search_context import SearchContext

DOCUMENTS = {
    "pumps": [
        (
            "Pumps",
            "The coolant pump of line four stops when the coolant level falls below the mark.",
        )
    ],
    "valves": [
        ("Valves", "A valve of line four closes at nine bar; the coolant flows back to the tank.")
    ],
    "leave": [("Leave", "Employees take fifteen days of paid leave each year.")],
    "lunch": [("Lunch", "The canteen opens at noon and closes at two.")],
}


def trust(library: Library, text: str) -> float:
    with library.lease("default") as lease:
        query = analysis.prepare(text, library.settings.limits)
        assert lease.release.lexical is not None
        return retrievers.measure_trust(
            lease.release.lexical, query, lease.release.lexical.search(text, 10)
        )


def test_words_are_trusted_as_far_as_the_texts_hold_them(publish: Any, library: Library) -> None:
    publish(DOCUMENTS)
    assert trust(library, "coolant level of the pump") == 1.0
    assert trust(library, "四号线冷却泵什么时候停机") == 0.0
    # one common word of nine
    assert (
        0.0
        < trust(
            library,
            "quarterly revenue forecast hedging amortisation subsidiaries dividend covenant four",
        )
        < 1.0
    )


def test_without_an_index_or_hits_nothing_is_trusted() -> None:
    assert retrievers.measure_trust(None, None, [Candidate("c", 1.0, "sparse")]) == 0.0  # type: ignore[arg-type]


@pytest.mark.parametrize("scope", ["all", "pool"])
def test_the_dense_leg_is_asked_again_nearer_to_what_was_found(
    publish: Any, library: Library, vary: Callable[..., str], scope: str
) -> None:
    lines = f"retrieval: {{feedback_hits: 1, feedback_weight: 2.0, feedback_scope: {scope}}}\n"
    publish(DOCUMENTS, strategy=vary("feeding", lines))
    result = answer(library, QueryRequest("coolant pump", answer=False))
    trace = show(library.store.logs_dir, result.trace_id)
    spans = [span["name"] for span in trace["spans"]]
    assert spans.count("stage.feedback") == 1 and spans.count("stage.fusion") == 2
    assert [hit.filename for hit in result.hits][:2] == ["pumps.md", "valves.md"]
    assert "feedback_failed" not in result.flags


def test_a_question_whose_words_the_texts_do_not_hold_is_not_fed_back(
    publish: Any, library: Library, vary: Callable[..., str]
) -> None:
    publish(DOCUMENTS, strategy=vary("feeding", "retrieval: {feedback_hits: 1}\n"))
    result = answer(library, QueryRequest("四号线冷却泵什么时候停机", answer=False))
    assert "stage.feedback" not in [
        span["name"] for span in show(library.store.logs_dir, result.trace_id)["spans"]
    ]


def test_a_sentence_in_a_language_of_no_text_is_trusted_half(
    publish: Any, library: Library
) -> None:
    people = {
        name: [("Staff", f"{name} runs line {n} and is called when the coolant falls.")]
        for n, name in enumerate(["Okonkwo", "Lindqvist"])
    }
    publish({name.lower(): sections for name, sections in people.items()})
    with library.lease("default") as lease:
        assert lease.release.catalog.languages() == {"en": 1.0}
        assert lease.holds_language("en") and not lease.holds_language("zh")

        def found(text: str) -> float:
            query = analysis.prepare(text, library.settings.limits)
            context = SearchContext(
                library,
                lease,
                library.query_strategy(lease),
                QueryRequest(text),
                tracing.Trace("query", None, {"trace_id": ""}),
                Deadline.after(60.0),
            )
            access = retrievers.Access()
            return retrievers.retrieve(context, query, "hybrid", access, 10).trust

        assert found("What does Lindqvist run?") == found("Lindqvist") == 1.0
        assert found("Lindqvist 什么？") == 0.5
