"""A real ingest and a real question leave traces of the shape that readers rely on.

What differs from run to run is masked. After a change that is meant, write the files anew with
`make golden` and read the difference; a field that goes or changes its meaning needs another
version of the schema.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from rag_platform.api.traces import get_trace, list_traces
from rag_platform.config.folders import SHIPPED
from rag_platform.observability.trace_store.queries import TraceFilter
from rag_platform.observability.tracing import EVENT_KINDS, UNKNOWN_EVENT
from rag_platform_tests.conftest import PICTURE

GOLDEN = Path(__file__).parent / "golden"
ENVELOPE = json.loads((SHIPPED / "schemas" / "trace_envelope.v1.json").read_text(encoding="utf-8"))
GUIDE = (
    "# Limits\n\nThe largest upload is 50 MB.\n\n![A plug](plug.png)\n\n"
    "# Errors\n\nError PPR-9087 means that the licence server is away.\n"
)
# of one run: ids, times, what the machine is, and what versions of libraries decide
_MASKS = (
    (re.compile(r"(trc|spn|evt|job|lease)_[0-9a-f]{8,}"), r"\1_*"),
    (re.compile(r"\d{8}T\d{6}-[0-9a-f]{6}"), "<release>"),
    (re.compile(r"chk_[0-9a-f]{20}"), "chk_*"),
    (re.compile(r"[\w.-]+@[0-9a-f]{12}"), "<version>"),
    (re.compile(r"20\d\d-\d\d-\d\dT[\d:.]+(Z|\+00:00)"), "<time>"),
)
_MASKED = frozenset(
    "host pid env git_sha app_version version provider_version engine_version profile_id started_at"
    " start_ms end_ms duration_ms ts_ms latency_ms stage_latency_ms strategy_config_id seconds"
    " processes engine index_profile movement doc_id".split()
)
_ENDINGS = ("_latency_ms", "_profile_id", "_hash", "_p50", "_p95", "_per_sec", "_ms")

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def traces(shared_desk: Any) -> dict[str, Any]:
    """The whole traces of one ingest, its release and one question, by name."""
    (shared_desk.docs / "plug.png").write_bytes(PICTURE)
    shared_desk.write(guide=GUIDE)
    shared_desk.call("ingest", shared_desk.docs / "guide.md")
    asked = shared_desk.call("query", "What is the largest upload?")
    store = shared_desk.store
    # canaries ask of a release by its id before it is published
    rows = list_traces(store, TraceFilter(kinds=["ingestion"]), limit=100)["traces"]
    named = {
        "receive": next(row for row in rows if row["door"] == "cli"),
        "ingest": next(row for row in rows if "documents" in row["counters"]),
        "release": next(row for row in rows if "upserted_rows" in row["counters"]),
        "query": {"trace_id": asked.envelope["trace_id"]},
    }
    return {name: get_trace(store, row["trace_id"])["trace"] for name, row in named.items()}


def mask(value: Any, key: str = "") -> Any:
    """The value without what differs from run to run; numbers that are not whole keep their type
    alone.
    """
    if (value or key == "git_sha") and (key in _MASKED or key.endswith(_ENDINGS)):
        return {name: "*" for name in sorted(value)} if isinstance(value, dict) else "*"
    if isinstance(value, dict):
        return {name: mask(item, name) for name, item in sorted(value.items())}
    if isinstance(value, list):
        return [mask(item) for item in value]
    if isinstance(value, float):
        return "<number>"
    if isinstance(value, str):
        for pattern, instead in _MASKS:
            value = pattern.sub(instead, value)
    return value


@pytest.mark.parametrize("name", ["receive", "ingest", "release", "query"])
def test_a_trace_is_the_golden_one(traces: dict[str, Any], name: str) -> None:
    masked = mask(traces[name])
    # stages that run beside each other end in either order
    masked["events"].sort(key=lambda event: json.dumps(event, sort_keys=True))
    masked["spans"].sort(key=lambda span: (span["name"], json.dumps(span, sort_keys=True)))
    text = json.dumps(masked, ensure_ascii=False, indent=1) + "\n"
    path = GOLDEN / f"{name}.json"
    if os.environ.get("RAG_WRITE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def test_every_trace_is_what_the_schema_says(traces: dict[str, Any]) -> None:
    validator = Draft202012Validator(ENVELOPE)
    for envelope in traces.values():
        validator.validate(envelope)


def test_the_schema_refuses_what_is_no_trace(traces: dict[str, Any]) -> None:
    validator = Draft202012Validator(ENVELOPE)
    good = traces["query"]
    assert validator.is_valid(good)
    for change in (
        {"trace_id": "trc_1"},
        {"spans": [{**good["spans"][0], "provider": {}}]},
        {"events": [{**good["events"][0], "kind": "no.such.kind"}]},
        {"events": [{**good["events"][0], "kind": "rerank.ranked", "payload": {}}]},
        {"providers": {"loader": good["providers"]["loader"]}},
        {"aggregates": {}},
        {"extra": 1},
        {"schema_version": 2},
    ):
        assert not validator.is_valid({**good, **change}), change
    for key in ("spans", "events", "aggregates", "strategy_config_id"):
        assert not validator.is_valid({name: good[name] for name in good if name != key})


def test_the_schema_knows_every_kind_of_event() -> None:
    kinds = ENVELOPE["$defs"]["event"]["properties"]["kind"]["enum"]
    assert set(kinds) == {*EVENT_KINDS, UNKNOWN_EVENT}


def test_stages_come_in_the_order_of_the_pipeline(traces: dict[str, Any]) -> None:
    for name, stages in {
        "ingest": "dedup loader asset_normalize transform_pre sectioner chunker transform_post"
        " embedding",
        "release": "upsert",
        "query": "query_norm retrieve_dense fusion rerank context_build generate format_response",
    }.items():
        spans = sorted(traces[name]["spans"], key=lambda span: span["start_ms"])
        wanted = [f"stage.{stage}" for stage in stages.split()]
        found = [span["name"] for span in spans if span["name"] in wanted]
        assert list(dict.fromkeys(found)) == wanted


def test_no_span_lacks_its_version_anchors(traces: dict[str, Any]) -> None:
    bare = [
        (name, span["name"])
        for name, trace in traces.items()
        for span in trace["spans"]
        if span["provider"]["provider_type"] and not all(span["provider"].values())
    ]
    assert bare == []
    for trace in traces.values():
        assert len(trace["providers"]) == 19
        assert all(all(found.values()) for found in trace["providers"].values())
