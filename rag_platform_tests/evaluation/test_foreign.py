"""RAGAS and DeepEval on a local endpoint, where they are installed; else what is missing."""

from __future__ import annotations

import importlib.util
import json
import math
from typing import Any

import pytest

from rag_platform.errors import ConfigError, InputError
from rag_platform.evaluation.cases import EvalCase
from rag_platform.evaluation.labels import Labels
from rag_platform.evaluation.measuring import AskedCase
from rag_platform.evaluation.metric_sets.foreign import measure
from rag_platform.ir import Hit, QueryResult
from rag_platform.registry import make_provider
from rag_platform_tests.chat_server import Reply, chat_server, said
from rag_platform_tests.conftest import needs

SETS = ("ragas", "deepeval")
HIT = Hit(
    rank=1, chunk_id="c", score=1.0, source="hybrid", doc_id="d", version_id="v", source_uri="u",
    filename="f", doc_title="", section_path="", chunk_index=0,
    chunk_text="The gateway listens on port 8080.",
)  # fmt: skip
RESULT = QueryResult(
    "It listens on port 8080.", (), (HIT,), 0.9, "hybrid", {}, None, "r", "t", answered=True
)
ITEM = AskedCase(
    EvalCase(case_id="a", query="Which port?", expected_answer="8080"), Labels("document"), RESULT
)


def test_a_score_that_the_package_could_not_compute_counts_as_unjudged() -> None:
    """RAGAS gives NaN if the model finds no statement in an answer."""
    found = measure({"a": lambda: math.nan, "b": lambda: 0.5, "c": lambda: None})
    assert math.isnan(found.pop("a")) and found == {"b": 0.5}


@pytest.mark.parametrize("name", SETS)
def test_without_the_package_the_error_names_the_extra(name: str) -> None:
    if importlib.util.find_spec(name) is not None:
        pytest.skip(f"{name} is installed")
    with pytest.raises(ConfigError, match=r"rag-platform\[eval\]"):
        make_provider("metric_set", name)


def filled(schema: dict[str, Any], root: dict[str, Any]) -> Any:
    """The first value that fits a JSON schema: numbers are 1, answers yes, ratings the best."""
    if "$ref" in schema:
        return filled(root["$defs"][schema["$ref"].rsplit("/", 1)[-1]], root)
    if "anyOf" in schema:
        return filled(schema["anyOf"][0], root)
    if "enum" in schema:
        return schema["enum"][0]
    if "properties" in schema:
        fields = schema["properties"].items()
        return {name: 4 if name == "rating" else filled(item, root) for name, item in fields}
    if schema.get("type") == "array":
        return [filled(schema["items"], root)]
    return {"integer": 1, "number": 1, "boolean": True}.get(schema.get("type", ""), "yes")


def agree(body: dict[str, Any], number: int) -> Reply:
    schema = body["response_format"]["json_schema"]["schema"]
    return said(json.dumps(filled(schema, schema)))


@pytest.mark.parametrize("name", [pytest.param(name, marks=needs(name, "eval")) for name in SETS])
@pytest.mark.filterwarnings("default")
def test_their_metrics_come_from_the_model_of_the_judge(name: str) -> None:
    with chat_server(agree) as server:
        options = {"model": "m", "base_url": server.url, "api_key_env": ""}
        judge = make_provider("judge", "llm", {"llm": {"provider": "openai", "options": options}})
        found = make_provider("metric_set", name).compute([ITEM], (1,), judge)
    second = {"ragas": "ragas.answer_accuracy", "deepeval": "deepeval.answer_relevancy"}[name]
    assert found == {"a": {f"{name}.faithfulness": 1.0, second: 1.0}}
    assert server.requests and all(body["temperature"] == 0 for body in server.requests)
    with pytest.raises(InputError, match="--judge llm"):
        make_provider("metric_set", name).compute([ITEM], (1,), make_provider("judge", "rules"))


@pytest.mark.parametrize("name", [pytest.param(name, marks=needs(name, "eval")) for name in SETS])
@pytest.mark.filterwarnings("default")
def test_a_model_that_does_not_reply_in_form_leaves_the_answer_unjudged(name: str) -> None:
    with chat_server(lambda body, number: said("I would say: yes")) as server:
        options = {"model": "m", "base_url": server.url, "api_key_env": ""}
        judge = make_provider("judge", "llm", {"llm": {"provider": "openai", "options": options}})
        assert make_provider("metric_set", name).compute([ITEM], (1,), judge) == {"a": {}}
