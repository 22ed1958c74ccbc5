"""What commands and traces say of themselves is so: counters, requests, providers, drift, kept
configurations, options of a question.
"""

from __future__ import annotations

import json
from typing import Any

import click
import pytest
from click.testing import CliRunner

from rag_platform.answering.engine import answer
from rag_platform.ir import QueryRequest
from rag_platform.observability.trace_reader import show
from rag_platform.observability.trace_store.queries import TraceFilter, list_traces

GUIDE = (
    "# Limits\n"
    "\n"
    "The largest upload is 50 MB.\n"
    "\n"
    "# Errors\n"
    "\n"
    "Error PPR-9087 means that the licence server is away.\n"
)

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def filled(shared_desk: Any) -> Any:
    """A desk with a published document, ingested twice with a change between."""
    (shared_desk.docs / "deep").mkdir()
    path = shared_desk.docs / "deep" / "guide.md"
    for text in (GUIDE, GUIDE.replace("50 MB", "80 MB")):
        path.write_text(text, encoding="utf-8")
        shared_desk.call("ingest", shared_desk.docs)
    return shared_desk


def traces_of(desk: Any, kind: str) -> list[dict[str, Any]]:
    """Whole traces of a type, newest first."""
    return [
        show(desk.store.logs_dir, row["trace_id"])
        for row in list_traces(desk.store.logs_dir, TraceFilter(kinds=[kind]), limit=100)[0]
    ]


def test_an_ingest_counts_what_it_did(filled: Any) -> None:
    counted = [
        trace["aggregates"]["counters"]
        for trace in traces_of(filled, "ingestion")
        if "documents" in trace["aggregates"]["counters"]
    ]
    assert [
        (c["documents"], c["documents_failed"], c["chunks"], c["embeddings_computed"])
        for c in counted
    ] == [(1, 0, 2, 1), (1, 0, 2, 2)]
    # by the names that every trace of an ingest has; of the second two chunks one was known
    assert [
        (c["sections_total"], c["chunks_total"], c["assets_total"], c["cache_hit"], c["cache_miss"])
        for c in counted
    ] == [(2, 2, 0, 1, 1), (2, 2, 0, 0, 2)]


def test_the_traces_of_a_job_are_linked(filled: Any) -> None:
    """Receiving begins the job, the ingest follows from it, and its release from that."""
    traces = {trace["trace_id"]: trace for trace in traces_of(filled, "ingestion")}
    releases = [t for t in traces.values() if "upserted_rows" in t["aggregates"]["counters"]]
    assert len(releases) == 2
    for release in releases:
        ingest = traces[release["links"]["parent_trace_id"]]
        receiving = traces[ingest["links"]["parent_trace_id"]]
        assert receiving["links"]["parent_trace_id"] is None
        assert receiving["client"]["door"] == "cli" and receiving["client"]["tool"] == "ingest"
        jobs = {trace["links"]["job_id"] for trace in (release, ingest, receiving)}
        assert len(jobs) == 1 and None not in jobs
        (decision,) = (e["payload"] for e in receiving["events"])
        assert decision["decision"] in ("new", "new_version")
        dedup = next(span["attrs"] for span in ingest["spans"] if span["name"] == "stage.dedup")
        assert dedup["dedup_decision"] == decision["decision"]
        assert decision["version_id"].endswith(dedup["file_sha256"][:12])


def test_publishing_stands_in_a_trace(filled: Any) -> None:
    published = [
        event["payload"]["release_id"]
        for trace in traces_of(filled, "ingestion")
        for event in trace["events"]
        if event["kind"] == "release.published"
    ]
    assert (
        len(set(published)) == 2
        and published[0] == filled.store.current_path("default").read_text(encoding="utf-8").strip()
    )


def test_every_span_with_a_provider_has_its_version_and_profile(filled: Any) -> None:
    asked = filled.call("query", "What is the largest upload?")
    spans = show(filled.store.logs_dir, asked.envelope["trace_id"])["spans"]
    bare = {
        span["name"]
        for span in spans
        if not all(span["provider"][key] for key in ("provider_version", "profile_id"))
    }
    assert len(spans) > 8 and bare == set()


def test_a_module_has_one_version_and_profile_in_a_trace(filled: Any) -> None:
    asked = filled.call("query", "What is the largest upload?", "--no-rerank")
    trace = show(filled.store.logs_dir, asked.envelope["trace_id"])
    modules = {
        found["provider_id"]: (found["version"], found["profile_id"])
        for found in trace["providers"].values()
    }
    spans = [span["provider"] for span in trace["spans"]]
    seen = {
        span["provider_id"]: (span["provider_version"], span["profile_id"])
        for span in spans
        if span["provider_id"] in modules
    }
    assert {name.partition(".")[0] for name in seen} >= {"fusion", "reranker", "answerer"}
    assert seen == {name: modules[name] for name in seen}


def test_a_tool_call_names_its_request(filled: Any) -> None:
    from rag_platform.observability import tracing

    with tracing.for_request("req_7"):
        found = answer(filled_library(filled), QueryRequest("What is the largest upload?"))
    assert show(filled.store.logs_dir, found.trace_id)["links"]["request_id"] == "req_7"


def filled_library(desk: Any) -> Any:
    from rag_platform.retrieval.library import Library

    return Library(desk.settings, desk.store)


def test_a_trace_can_be_repeated_when_its_strategy_is_gone(filled: Any) -> None:
    folder = filled.folder / "config" / "strategies"
    text = (folder / "tiny.yaml").read_text(encoding="utf-8")
    (folder / "other.yaml").write_text(text + "retrieval: {top_k: 1}\n", encoding="utf-8")
    asked = filled.call("query", "What is the largest upload?", "--strategy", "other")
    (folder / "other.yaml").rename(folder / "renamed.yaml")
    config_id = show(filled.store.logs_dir, asked.envelope["trace_id"])["strategy_config_id"]
    kept = json.loads(filled.store.config_path(config_id).read_text(encoding="utf-8"))
    assert (kept["name"], kept["retrieval"]["top_k"]) == ("other", 1)
    again = filled.call("query", "What is the largest upload?", "--strategy", config_id)
    assert [hit["chunk_id"] for hit in again.data["results"]] == [
        hit["chunk_id"] for hit in asked.data["results"]
    ]
    assert (
        show(filled.store.logs_dir, again.envelope["trace_id"])["strategy_config_id"] == config_id
    )
    unknown = filled.call("query", "What?", "--strategy", "scfg_0123456789abcdef")
    assert unknown.envelope["error"]["code"] == "unknown_strategy"


@pytest.mark.parametrize(("option", "results"), [((), 2), (("--max-per-document", "1"), 1)])
def test_options_of_a_question(option: tuple[str, ...], results: int, filled: Any) -> None:
    data = filled.call("query", "What is the largest upload? PPR-9087", "--no-answer", *option).data
    assert len(data["results"]) == results and data["answer_markdown"] == ""


def test_a_threshold_leaves_out_what_scores_less(filled: Any) -> None:
    best, other = filled.call("query", "What is the largest upload? PPR-9087").data["results"]
    assert best["score"] > other["score"]
    kept = filled.call(
        "query", "What is the largest upload? PPR-9087", "--score-threshold", best["score"] - 1e-9
    ).data["results"]
    assert [result["chunk_id"] for result in kept] == [best["chunk_id"]]


@pytest.mark.parametrize("kind", ["query", "ingestion", "command", "tool"])
def test_every_type_of_trace_can_be_listed(kind: str, filled: Any) -> None:
    filled.call("status")  # a command
    rows = filled.call("trace", "list", "--type", kind).data["traces"]
    assert {row["trace_type"] for row in rows} <= {kind}
    assert rows or kind == "tool"


def test_history_shows_the_drift_that_its_data_have(filled: Any) -> None:
    data = filled.call("docs", "history", "guide").data
    drift = data["versions"][0]["drift"]
    assert (
        drift["kind"] == "content"
        and "drift content against" in data["markdown"]
        and drift["details"] in data["markdown"]
    )


@pytest.mark.parametrize(
    "name", ["guide", "deep/guide", "deep/guide.md", "docs/deep/guide", "docs/deep/guide.md"]
)
def test_a_document_is_known_by_the_end_of_its_path(name: str, filled: Any) -> None:
    assert filled.call("docs", "diff", name).data["source_uri"] == "docs/deep/guide.md"


def test_a_warning_that_the_text_holds_is_not_printed_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    from rag_platform.cli.output import print_envelope

    print_envelope(
        {
            "ok": True,
            "data": {"markdown": "An answer.\n\nNote: one retriever failed"},
            "warnings": ["one retriever failed", "another thing"],
        },
        False,
    )
    said = capsys.readouterr()
    assert said.out.count("one retriever failed") == 1 and said.err == "warning: another thing\n"


def test_warnings_come_first_in_the_readers_language(monkeypatch: pytest.MonkeyPatch) -> None:
    """What to do next is the last line; the name of a document hides no warning behind it."""
    from rag_platform.cli.output import print_envelope

    monkeypatch.setenv("RAG_LANG", "zh")

    @click.command()
    def ingest() -> None:
        warning = "docs/a.pdf: page 1: neither text nor pictures"
        data = {"markdown": "1 new.\n\nNext: rag query YOUR QUESTION --namespace default"}
        print_envelope({"ok": True, "data": data, "warnings": [warning]}, False, reports=True)

    lines = CliRunner().invoke(ingest).output.splitlines()
    assert lines[0] == "警告：docs/a.pdf: 第 1 页：既无文字也无图片"
    assert lines[-1] == "下一步：rag query 你的问题 --namespace default"
