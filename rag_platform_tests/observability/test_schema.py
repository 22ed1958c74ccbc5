"""Every line that tracing writes is what defaults/schemas/trace_line.v1.json says."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from rag_platform.config.folders import SHIPPED
from rag_platform.errors import ProviderError
from rag_platform.observability import tracing

SCHEMA = SHIPPED / "schemas" / "trace_line.v1.json"


def test_lines_of_a_good_and_a_failed_trace(tmp_path: Path) -> None:
    with (
        tracing.trace("query", logs_dir=tmp_path, namespace="lib"),
        tracing.span("stage.fusion", provider_type="fusion", provider_id="rrf"),
    ):
        tracing.event("fusion.ranked", {"ranked": []})
        tracing.event("no.such.kind", {"x": 1})
    with (
        pytest.raises(ProviderError),
        tracing.trace("query", logs_dir=tmp_path),
        tracing.span("stage.rerank"),
    ):
        raise ProviderError("the reranker is away", code="away")
    validator = Draft202012Validator(json.loads(SCHEMA.read_text(encoding="utf-8")))
    lines = [
        json.loads(line)
        for path in tmp_path.glob("*.jsonl")
        for line in path.read_text(encoding="utf-8").splitlines()
    ]
    kinds = Counter(line["line"] for line in lines)
    # the third event is the failed span's stage.error
    assert (kinds["event"], kinds["span.end"], kinds["trace.end"]) == (3, 2, 2)
    for line in lines:
        validator.validate(line)


def test_a_wrong_line_is_refused() -> None:
    validator = Draft202012Validator(json.loads(SCHEMA.read_text(encoding="utf-8")))
    assert not validator.is_valid(
        {"schema_version": 1, "line": "event", "ts": "2026-01-01T00:00:00Z", "trace_id": "trc_1"}
    )
    assert not validator.is_valid(
        {"schema_version": 2, "line": "log", "ts": "2026-01-01T00:00:00Z"}
    )
