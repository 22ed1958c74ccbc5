"""What a cold process loads for its first question is no part of the question's time."""

from __future__ import annotations

from typing import Any

import pytest

from rag_platform.answering.engine import answer
from rag_platform.ir import QueryRequest
from rag_platform.observability import trace_reader
from rag_platform.retrieval.library import Library
from rag_platform.storage.store import Store
from rag_platform_tests.slow_to_load import LOADED, SECONDS

GUIDE = [
    ("Limits", "The maximum upload size is 50 MB."),
    ("Errors", "Error PPR-9087 means that the licence server cannot be reached."),
]
HURRIED = "retrieval: {stage_seconds: 0.3, query_seconds: 0.6}\n"


@pytest.fixture
def slow(vary: Any) -> str:
    """A strategy whose embedder loads longer than a question may take."""
    return str(
        vary(
            "slow",
            HURRIED,
            **{"provider: hashing": "provider: 'rag_platform_tests.slow_to_load:SlowToLoad'"},
        )
    )


@pytest.mark.parametrize("namespaces", [("default",), ("default", "other")])
def test_loading_the_embedder_costs_the_first_question_no_leg(
    namespaces: tuple[str, ...], publish: Any, slow: str, library: Library, store: Store
) -> None:
    for namespace in namespaces:
        publish({"guide": GUIDE}, strategy=slow, namespace=namespace)
    LOADED.clear()
    result = answer(
        library, QueryRequest("What is the maximum upload size?", namespaces=namespaces)
    )
    assert (result.effective_mode, result.warnings) == ("hybrid", ())
    spans = trace_reader.show(store.logs_dir, result.trace_id)["spans"]
    (loading,) = [span for span in spans if span["name"] == "model.load"]
    assert (
        loading["duration_ms"] >= 1000 * SECONDS
        and loading["provider"]["provider_type"] == "embedder"
    )
    again = answer(library, QueryRequest("What is error PPR-9087?", namespaces=namespaces))
    assert "model.load" not in {
        span["name"] for span in trace_reader.show(store.logs_dir, again.trace_id)["spans"]
    }


def test_nothing_is_loaded_for_a_question_to_the_words_alone(
    publish: Any, slow: str, library: Library, store: Store
) -> None:
    publish({"guide": GUIDE}, strategy=slow)
    LOADED.clear()
    result = answer(library, QueryRequest("What is the maximum upload size?", mode="sparse"))
    assert result.effective_mode == "sparse" and not LOADED.is_set()


def test_a_model_that_cannot_be_loaded_is_told_by_its_stage(
    publish: Any, vary: Any, library: Library
) -> None:
    publish({"guide": GUIDE})
    lines = (
        "query: {rewrite: {enabled: true}}\n"
        "llm: {provider: openai, options: {model: m, api_key_env: RAG_TEST_NO_KEY}}\n"
    )
    result = answer(
        library, QueryRequest("What is the maximum upload size?", strategy=vary("keyless", lines))
    )
    assert result.flags["rewrite_failed"] is True and any(
        "RAG_TEST_NO_KEY" in warning for warning in result.warnings
    )
