"""One calling code, two strategies: the other providers are seen in the trace, and nothing else
changes.
"""

from __future__ import annotations

from typing import Any

from rag_platform.answering.engine import answer
from rag_platform.ir import QueryRequest
from rag_platform.observability import trace_reader
from rag_platform.retrieval.library import Library
from rag_platform.storage.store import Store


def providers(
    library: Library, store: Store, strategy: str | None
) -> tuple[dict[str, str], str, list[str]]:
    """(provider of each stage, strategy_config_id, names of the spans) of one question."""
    result = answer(library, QueryRequest("What is the maximum upload size?", strategy=strategy))
    assert result.hits[0].chunk_id == "guide-0"
    trace = trace_reader.show(store.logs_dir, result.trace_id)
    seen = {item["name"]: item["provider"]["provider_id"] for item in trace["spans"]}
    return seen, trace["strategy_config_id"], sorted(item["name"] for item in trace["spans"])


def test_a_strategy_swaps_providers_without_touching_the_caller(
    guide: Any, vary: Any, library: Library, store: Store
) -> None:
    vary(
        "swapped",
        "answerer: {provider: 'rag_platform.answering.extractive:Extractive', options: {max_quotes:"
        " 1}}\n",
        **{"provider: min_max": "provider: rrf", "options: {alpha: 0.3}": "options: {k: 10}"},
    )
    own, own_id, own_spans = providers(library, store, None)
    other, other_id, other_spans = providers(library, store, "swapped")
    assert own["stage.fusion"] == "fusion.min_max"
    assert other["stage.fusion"] == "fusion.rrf"
    assert (own["stage.generate"], other["stage.generate"]) == (
        "answerer.extractive",
        "answerer.rag_platform.answering.extractive:Extractive",
    )
    assert own["stage.rerank"] == other["stage.rerank"] == "reranker.none"  # off is not absent
    assert own_id != other_id
    assert own_spans == other_spans
