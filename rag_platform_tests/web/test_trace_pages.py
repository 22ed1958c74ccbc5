"""The pages and routes of traces, over traces that were really written."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from rag_platform.api import trace_details
from rag_platform.api.trace_details import cut, cut_event, order_events
from rag_platform.errors import InputError
from rag_platform.observability import tracing
from rag_platform.retrieval.library import Library
from rag_platform.web.app import create_app
from rag_platform.web.tokens import Tokens
from rag_platform_tests.conftest import Shelf

HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def library(read_only_shelf: Shelf, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Library]:
    """A data root of its own with three published documents, without traces."""
    home = tmp_path_factory.mktemp("traced") / "home"
    shutil.copytree(
        read_only_shelf.settings.home,
        home,
        ignore=shutil.ignore_patterns("logs", "traces", "*.sqlite-*"),
    )
    made = Library.open(read_only_shelf.settings.model_copy(update={"home": home}))
    yield made
    made.close()


@pytest.fixture(scope="module")
def browser(library: Library) -> Iterator[TestClient]:
    """A client that has asked three questions."""
    client = TestClient(create_app(library), base_url="http://127.0.0.1")
    for question in ("Which port does the gateway use?", "病假需要什么？", HOSTILE):
        assert client.get("/", params={"q": question}).status_code == 200
    yield client
    client.close()


def get(browser: TestClient, path: str, **params: Any) -> Any:
    answered = browser.get(path, params=params)
    assert answered.status_code == 200, answered.text
    return answered.json()


def newest(browser: TestClient, words: str) -> str:
    return str(get(browser, "/api/traces", words=words)["traces"][0]["trace_id"])


def write_trace(logs_dir: Path, spans: int, events: int) -> str:
    """An ingestion trace with so many spans and events, of which one failed."""
    with tracing.trace("ingestion", logs_dir=logs_dir, namespace="default") as trace:
        for number in range(spans):
            with tracing.span("stage.loader", provider_type="loader", provider_id="loader.x"):
                tracing.ext("loader.x", note=HOSTILE, number=number)
                for _ in range(events // spans):
                    tracing.event("ingest.parse_summary", {"text": HOSTILE, "number": number})
        tracing.event("ingest.document_failed", {"code": "broken", "path": "/srv/secret/a.pdf"})
    return trace.trace_id


def test_questions_are_listed_filtered_and_paged(browser: TestClient) -> None:
    page = browser.get("/query-traces").text
    assert "Which port does the gateway use?" in page
    assert HOSTILE not in page
    first = get(browser, "/api/traces", kind="query", limit=2)
    rest = get(browser, "/api/traces", kind="query", limit=2, cursor=first["next_cursor"])
    listed = [row["question"] for row in (*first["traces"], *rest["traces"])]
    assert listed == [HOSTILE, "病假需要什么？", "Which port does the gateway use?"]
    (found,) = get(browser, "/api/traces", words="病假")["traces"]
    assert (found["door"], found["client_level"], found["namespace"]) == ("web", "L2", "default")
    assert get(browser, "/api/traces", kind="query", max_confidence=0)["traces"] == []
    assert get(browser, "/api/traces", kind="query", namespace="other")["traces"] == []
    empty = "/query-traces?min_latency_ms=&max_confidence=&status=&words=&client="
    assert "Which port does the gateway use?" in browser.get(empty).text
    for wrong in ("kind=x", "limit=0", "cursor=x", "min_latency_ms=nan", "since=x"):
        assert browser.get(f"/api/traces?{wrong}").status_code == 400, wrong


def test_figures_over_traces(browser: TestClient) -> None:
    (kind,) = get(browser, "/api/traces/stats", kind="query")["kinds"]
    assert (kind["trace_type"], kind["count"], kind["failed"]) == ("query", 3, 0)
    part = browser.get("/query-traces", headers={"HX-Request": "true"}).text
    assert "<html" not in part
    assert "stage.rerank" in part


def test_a_question_shows_its_stages_and_candidates(browser: TestClient) -> None:
    trace_id = newest(browser, "gateway")
    data = get(browser, f"/api/traces/{trace_id}")
    names = [stage["span"]["name"] for stage in data["stages"]]
    assert {"stage.retrieve_dense", "stage.retrieve_sparse", "stage.fusion"} <= set(names)
    for stage in data["stages"]:
        assert 0 <= stage["left"] <= 998
        assert 2 <= stage["width"] <= 1000 - stage["left"] + 0.1
    kinds = [(item["kind"], item["facts"].get("source")) for item in data["rankings"]]
    assert ("retrieval.candidates", "dense") in kinds
    assert ("retrieval.candidates", "sparse") in kinds
    assert {"fusion.ranked", "rerank.ranked"} <= {kind for kind, _ in kinds}
    best = data["rankings"][0]["rows"][0]
    assert best["source_uri"].endswith("ports.md")
    assert "port 8080" in " ".join(row["text"] for row in data["rankings"][0]["rows"])
    page = browser.get(f"/traces/{trace_id}").text
    assert "stage.rerank" in page
    assert "stage.generate" in page
    assert "<svg" in page


def test_a_long_trace_is_shown_in_parts(browser: TestClient, library: Library) -> None:
    trace_id = write_trace(library.store.logs_dir, spans=1000, events=5000)
    data = get(browser, f"/api/traces/{trace_id}")
    assert (data["stages_total"], len(data["stages"])) == (1000, 100)
    assert (data["events_total"], len(data["events"])) == (5001, 50)
    assert data["events"][0]["kind"] == "ingest.document_failed"
    assert data["stages"][0]["ext"] == {"loader.x": {"note": HOSTILE, "number": 0}}
    later = get(browser, f"/api/traces/{trace_id}", skip=5000, kind="ingest.parse_summary")
    assert (later["events_total"], later["events"]) == (5000, [])
    page = browser.get(f"/traces/{trace_id}").text
    assert HOSTILE not in page
    assert len(page) < 1_500_000
    assert "/srv/secret" not in page
    part = browser.get(
        f"/traces/{trace_id}?kind=ingest.document_failed", headers={"HX-Request": "true"}
    ).text
    assert "<html" not in part
    assert "broken" in part
    ingests = browser.get("/ingestion-traces").text
    assert f"/traces/{trace_id}" in ingests


def test_what_is_long_is_cut_and_says_so() -> None:
    assert cut("x" * 2000) == "x" * 2000
    assert cut("x" * 2003) == "x" * 2000 + "… (3 more characters)"
    assert cut(list(range(5)), items=3) == [0, 1, 2, "… (2 more)"]
    assert cut({"a": 1, "b": 2, "c": 3}, items=2) == {"a": 1, "b": 2, "…": "1 more"}
    assert cut({"a": {"b": {"c": 1}}}, depth=2) == {"a": {"b": "… (1 fields)"}}
    assert cut("see /srv/secret/a.pdf") == "see a.pdf"
    event: Any = {
        "ts": "",
        "event_id": "evt_1",
        "ts_ms": 0.0,
        "span_id": None,
        "kind": "event.unknown",
        "payload": {"rows": [{"text": "y" * 1000}] * 100},
    }
    short = cut_event(event)["payload"]
    assert set(short) == {"truncated", "characters"}
    assert len(short["truncated"]) == trace_details.TEXT_CHARS
    assert len(json.dumps(short)) < trace_details.PAYLOAD_CHARS


def test_failures_come_first_and_the_order_is_stable() -> None:
    def event(number: int, kind: str, span_id: str | None = None) -> Any:
        return {"event_id": f"evt_{number}", "ts_ms": 1.0, "kind": kind, "span_id": span_id}

    spans: Any = [{"span_id": "spn_1", "status": "error"}, {"span_id": "spn_2", "status": "ok"}]
    events = [
        event(1, "query.normalized", "spn_2"),
        event(3, "retrieval.plan", "spn_1"),
        event(2, "query.fallback"),
    ]
    ordered = [item["event_id"] for item in order_events(events, spans)]
    assert ordered == ["evt_2", "evt_3", "evt_1"]
    assert ordered == [item["event_id"] for item in order_events(events[::-1], spans)]


def test_a_trace_of_another_library_is_not_shown(browser: TestClient, library: Library) -> None:
    trace_id = newest(browser, "gateway")
    _, secret = Tokens(library.store).create("elsewhere", namespaces=["other"])
    own = {"Authorization": f"Bearer {secret}"}
    assert browser.get(f"/api/traces/{trace_id}", headers=own).status_code == 404
    assert browser.get("/api/traces", headers=own).json()["traces"] == []
    # one that does not exist has the same answer
    for wanted in (trace_id, f"trc_{'0' * 32}"):
        hidden = browser.get(f"/api/ask/{wanted}/replay", headers=own)
        assert hidden.status_code == 404
        assert "`rag trace list` shows the known ones" in hidden.text
    Tokens(library.store).revoke("elsewhere")


def test_libraries_errors_and_documents_are_named(library: Library, tmp_path: Path) -> None:
    own = Library.open(library.settings.model_copy(update={"home": tmp_path}))
    logs = own.store.logs_dir
    with tracing.trace("query", logs_dir=logs, namespace="default") as trace:
        trace.set(request={"text": "Who signs?", "namespaces": ["default", "other"]})
    with tracing.trace("ingestion", logs_dir=logs, namespace="default") as ingest:
        for number in (1, 2):
            with (
                pytest.raises(InputError),
                tracing.span("stage.loader", version_id=f"default.menu-{number}@0a1b"),
                tracing.span("stage.inner", version_id=f"default.menu-{number}@0a1b"),
            ):
                raise InputError("no PDF", code="broken_file")
    with TestClient(create_app(own), base_url="http://127.0.0.1") as client:
        assert "<td>default, other</td>" in client.get("/query-traces").text
        assert '<small class="bad nowrap">errors: 4</small>' in client.get("/ingestion-traces").text
        page = client.get(f"/traces/{ingest.trace_id}").text
        said = get(client, "/api/traces")["markdown"]
    # both failures of a document name it, and once it stands above all of its stages
    assert page.count('<a href="/documents/default/menu-2">menu-2</a>: no PDF') == 2
    assert page.count("menu-2</a>") == 3
    assert "  query  ok  default, other  Who signs?" in said
    assert "  ingestion  ok  default  4 errors" in said


def test_an_empty_home_has_no_traces(library: Library, tmp_path: Path) -> None:
    empty = Library.open(library.settings.model_copy(update={"home": tmp_path}))
    with TestClient(create_app(empty), base_url="http://127.0.0.1") as client:
        for path in ("/query-traces", "/ingestion-traces"):
            assert "No trace matches." in client.get(path).text
        assert client.get("/api/traces/trc_00").status_code == 404
        assert client.get("/api/traces/nothing").status_code == 400
