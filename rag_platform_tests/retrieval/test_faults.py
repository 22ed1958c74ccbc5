"""A bug planted in each stage of a question in turn: the answer falls back, the flag names the stage, the log has the stack trace."""

from __future__ import annotations

import importlib
import json
from typing import Any

import pytest

from rag_platform.config import Settings
from rag_platform.doctor import examine
from rag_platform.errors import ProviderError
from rag_platform.ir import QueryRequest
from rag_platform.observability import traces
from rag_platform.retrieval.engine import answer
from rag_platform.retrieval.library import Library
from rag_platform.retrieval.status import status
from rag_platform.store import Store

GUIDE = [("Limits", "The maximum upload size is 50 MB."), ("Errors", "Error PPR-9087 means that the licence server cannot be reached.")]
QUESTION = "What is the maximum upload size?"

# stage: where the bug is planted, what the strategy says for it, what is asked
REWRITING = (
    "query: {rewrite: {enabled: true}}\nllm: {provider: openai, options: {model: m, base_url: 'http://127.0.0.1:9/', api_key_env: ''}}\n"
)
STAGES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "query_norm": ("rag_platform.retrieval.queries:found_keyphrases", "", {}),
    "rewrite": ("rag_platform.retrieval.rewriting:rewritten", REWRITING, {}),
    "plan": ("rag_platform.retrieval.access:plan", "", {}),
    "dense": ("rag_platform.indexes.dense:DenseVectors.search", "", {}),
    "sparse": ("rag_platform.providers.tantivy:TantivyReader.search", "", {}),
    "trust": ("rag_platform.providers.tantivy:TantivyReader.reach", "", {}),
    "naming": ("rag_platform.retrieval.naming:Names.named", "", {}),
    "fusion": ("rag_platform.retrieval.fusion:MinMax.fuse", "", {}),
    "feedback": ("rag_platform.retrieval.legs:asked_again", "retrieval: {feedback_hits: 2}\n", {}),
    "filter": ("rag_platform.retrieval.filters:to_drop", "", {"filters": {"image_caption": {"$contains": "upload"}}}),
    "rerank": ("rag_platform.retrieval.features:Features.score", "reranker: {provider: features}\n", {}),
    "context": ("rag_platform.retrieval.evidence:select", "", {}),
    "generation": ("rag_platform.retrieval.answering:Extractive.answer", "", {}),
}  # fmt: skip


def plant(patch: pytest.MonkeyPatch, place: str) -> None:
    """Let that function raise AttributeError, as a bug of ours or of a library would."""
    module, _, name = place.partition(":")
    owner: Any = importlib.import_module(module)
    *path, last = name.split(".")
    for part in path:
        owner = getattr(owner, part)
    getattr(owner, last)  # what is planted must be there

    def broken(*_: Any, **__: Any) -> Any:
        raise AttributeError(f"planted in {last}")

    patch.setattr(owner, last, broken)


def logged(store: Store) -> list[dict[str, Any]]:
    """The program's log."""
    lines = [json.loads(line) for path in store.logs_dir.glob("20*.jsonl") for line in path.read_text(encoding="utf-8").splitlines()]
    return [line for line in lines if line["line"] == "log"]


@pytest.mark.parametrize("stage", STAGES)
def test_a_bug_in_a_stage_is_seen_and_the_question_answered(
    stage: str, publish: Any, vary: Any, library: Library, store: Store, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    place, lines, asked = STAGES[stage]
    publish({"guide": GUIDE})
    plant(monkeypatch, place)
    result = answer(library, QueryRequest(QUESTION, strategy=vary("varied", lines), **asked))
    assert {name for name in result.flags if name.endswith("_failed")} == {f"{stage}_failed"}
    assert result.hits[0].chunk_id == "guide-0" and "50 MB" in result.answer_markdown
    assert any("internal error: AttributeError: planted" in warning for warning in result.warnings), result.warnings
    (line,) = logged(store)
    assert line["level"] == "ERROR" and line["trace_id"] == result.trace_id
    assert "Traceback (most recent call last)" in line["exception"] and "in broken" in line["exception"]
    assert "in broken" in traces.show(store.logs_dir, result.trace_id)["logs"][0]["exception"]
    data = status(library)
    assert data["unexpected_errors"]["count"] == 1 and data["unexpected_errors"]["latest"]["trace_id"] == result.trace_id
    assert "1 unexpected error since" in data["markdown"] and result.trace_id in data["markdown"]
    (finding,) = [found for found in examine(settings) if found.subject == "errors"]
    assert finding.level == "warning" and "the latest AttributeError in stage." in finding.message


def test_namespaces_take_turns_where_their_hits_cannot_be_weighed(
    publish: Any, library: Library, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish({"guide": GUIDE}, namespace="one")
    publish({"notes": [("Upload", "Uploads are kept for 30 days.")]}, namespace="two")
    plant(monkeypatch, "rag_platform.retrieval.merging:by_namespace")
    result = answer(library, QueryRequest(QUESTION, namespaces=("one", "two")))
    assert result.flags["merge_failed"] is True
    assert [hit.namespace for hit in result.hits[:2]] == ["one", "two"] and [hit.rank for hit in result.hits] == [1, 2, 3]
    assert "in broken" in logged(store)[0]["exception"]


def test_a_bug_in_a_hard_filter_still_searches_nothing(
    publish: Any, library: Library, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish({"guide": GUIDE})
    plant(monkeypatch, "rag_platform.indexes.catalog:CatalogReader.select_ids")
    with pytest.raises(ProviderError, match="nothing was searched"):
        answer(library, QueryRequest(QUESTION, filters={"doc_id": "guide"}))
    assert "in broken" in logged(store)[0]["exception"]


def test_a_bug_before_every_stage_ends_the_question_and_is_seen(
    publish: Any, library: Library, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish({"guide": GUIDE})
    plant(monkeypatch, "rag_platform.retrieval.engine:_format_response")
    with pytest.raises(AttributeError):
        answer(library, QueryRequest(QUESTION))
    assert status(library)["unexpected_errors"]["count"] == 1
    assert "in broken" in logged(store)[0]["exception"]


def test_what_was_foreseen_is_not_counted(publish: Any, vary: Any, library: Library, store: Store) -> None:
    publish({"guide": GUIDE})
    result = answer(library, QueryRequest(QUESTION, strategy=vary("rewriting", "query: {rewrite: {enabled: true}}\n")))
    assert result.flags["rewrite_failed"] is True
    assert logged(store) == [] and "unexpected_errors" not in status(library)
