from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rag_platform.config.folders import SHIPPED
from rag_platform.errors import ConfigError, InputError, NotFoundError
from rag_platform.observability import context, logs, trace_reader, tracing
from rag_platform.observability.trace_store.queries import TraceFilter, list_traces


def lines(logs_dir: Path) -> list[dict]:
    return [
        json.loads(line)
        for path in sorted(logs_dir.glob("*.jsonl"))
        for line in path.read_text(encoding="utf-8").splitlines()
    ]


def test_every_kind_of_event_that_the_program_writes_is_known() -> None:
    sources = Path(tracing.__file__).parents[1].rglob("*.py")
    written = {
        kind
        for path in sources
        for kind in re.findall(
            r"tracing\.event\(\s*[\"']([^\"']+)", path.read_text(encoding="utf-8")
        )
    }
    assert "retrieval.named" in written
    everything = "".join(
        path.read_text(encoding="utf-8")
        for path in Path(tracing.__file__).parents[1].rglob("*.py")
        if path.name != "tracing.py"
    )
    assert written - tracing.EVENT_KINDS == set()
    # none that nobody writes
    assert {
        kind for kind in tracing.EVENT_KINDS - {"stage.error"} if f'"{kind}"' not in everything
    } == set()


def test_one_line_for_each_span_event_and_trace(tmp_path: Path) -> None:
    with tracing.trace("query", logs_dir=tmp_path, namespace="n", job_id="job_1") as running:
        running.describe("scfg_1", {})
        with tracing.span(
            "stage.fusion",
            provider_type="fusion",
            provider_id="rrf",
            provider_version="1",
            profile_id="p",
        ) as stage:
            stage.set(k_out=3)
            tracing.event("fusion.ranked", {"ranked": [{"chunk_id": "a"}]})
        running.count(candidates_dense=2)
        running.count(candidates_dense=3)
    event, span, end = lines(tmp_path)
    assert [event["line"], span["line"], end["line"]] == ["event", "span.end", "trace.end"]
    assert len(running.trace_id) == 36
    assert running.trace_id.startswith("trc_")
    assert {event["trace_id"], span["trace_id"], end["trace_id"]} == {running.trace_id}
    assert event["span_id"] == span["span_id"]
    assert span["span_id"].startswith("spn_")
    assert len(span["span_id"]) == 20
    assert event["event_id"].startswith("evt_")
    assert span["provider"] == {
        "provider_type": "fusion",
        "provider_id": "fusion.rrf",
        "provider_version": "1",
        "profile_id": "p",
    }
    assert span["attrs"] == {"k_out": 3}
    assert (end["status"], end["namespace"], end["strategy_config_id"], end["links"]["job_id"]) == (
        "ok",
        "n",
        "scfg_1",
        "job_1",
    )
    assert end["aggregates"]["counters"] == {"candidates_dense": 5}
    assert list(end["aggregates"]["stage_latency_ms"]) == ["stage.fusion"]


def test_outside_a_trace_nothing_happens() -> None:
    with tracing.span("stage.x") as stage:
        stage.set(a=1)
        stage.fail("broken")
        tracing.event("fusion.ranked", {})
    tracing.count(a=1)
    assert context.current_trace_id() == ""


def test_an_exception_closes_the_span_leaves_an_event_and_rises(tmp_path: Path) -> None:
    with (
        pytest.raises(InputError),
        tracing.trace("query", logs_dir=tmp_path),
        tracing.span("stage.query_norm"),
    ):
        raise InputError("no text; give some", code="empty_query")
    event, span, end = lines(tmp_path)
    assert (event["kind"], event["payload"]["code"]) == ("stage.error", "empty_query")
    assert (span["status"], span["error"]) == (
        "error",
        {"code": "empty_query", "message": "no text; give some"},
    )
    assert (end["status"], end["error"]["code"]) == ("error", "empty_query")
    assert end["aggregates"]["errors"] == [
        {"stage": "stage.query_norm", "code": "empty_query", "message": "no text; give some"}
    ]


def test_a_handled_failure_marks_the_span_but_not_the_trace(tmp_path: Path) -> None:
    with tracing.trace("query", logs_dir=tmp_path), tracing.span("stage.retrieve_dense") as stage:
        stage.fail(ValueError("down"))
    *_, span, end = (
        line for line in lines(tmp_path) if line.get("line") in ("span.end", "trace.end")
    )
    assert span["error"] == {"code": "ValueError", "message": "down"}
    assert (end["status"], end["aggregates"]["error_count"]) == ("ok", 1)


def test_an_unknown_event_kind_is_kept_under_event_unknown(tmp_path: Path) -> None:
    with tracing.trace("query", logs_dir=tmp_path):
        tracing.event("my.own", {"a": 1})
    assert (lines(tmp_path)[0]["kind"], lines(tmp_path)[0]["payload"]) == (
        "event.unknown",
        {"original_kind": "my.own", "a": 1},
    )


def test_carry_takes_trace_and_span_into_a_thread(tmp_path: Path) -> None:
    def work(name: str) -> str:
        with tracing.span(name):
            return context.current_trace_id()

    with (
        tracing.trace("query", logs_dir=tmp_path) as running,
        tracing.span("stage.outer") as outer,
        ThreadPoolExecutor(2) as pool,
    ):
        found = [pool.submit(tracing.carry(work), f"stage.{n}").result() for n in "ab"]
        assert pool.submit(work, "stage.lost").result() == ""
    assert found == [running.trace_id] * 2
    spans = {line["name"]: line for line in lines(tmp_path) if line["line"] == "span.end"}
    assert set(spans) == {"stage.a", "stage.b", "stage.outer"}
    assert spans["stage.a"]["parent_span_id"] == outer.span_id


def test_a_trace_inside_a_trace_links_to_it(tmp_path: Path) -> None:
    with tracing.trace("release", logs_dir=tmp_path) as outer:
        with tracing.trace("query", logs_dir=tmp_path) as inner:
            pass
        assert context.current_trace_id() == outer.trace_id
    end = next(line for line in lines(tmp_path) if line["trace_id"] == inner.trace_id)
    assert end["links"]["parent_trace_id"] == outer.trace_id


def test_secrets_never_reach_the_file(tmp_path: Path) -> None:
    payload = {
        "OPENAI_API_KEY": "abc-123",
        "max_tokens": 7,
        "nested": [{"password": "hunter2", "note": "Bearer abcdefghijklmnop"}],
        "url": "https://me:pw@host/x",
        "message": "key sk-ABCDEFGHIJKLMNOPQRST was refused",
        "text": 'say "token": no',
    }
    with tracing.trace("query", logs_dir=tmp_path):
        tracing.event("model.call", payload)
    kept = lines(tmp_path)[0]["payload"]
    assert kept["OPENAI_API_KEY"] == kept["nested"][0]["password"] == "[redacted]"
    assert (kept["max_tokens"], kept["text"]) == (7, 'say "token": no')
    text = json.dumps(kept)
    assert not any(
        secret in text for secret in ("abc-123", "hunter2", "abcdefghijklmnop", "me:pw", "sk-ABC")
    )


def test_ids_that_look_like_keys_are_kept(tmp_path: Path) -> None:
    payload = {
        "doc_id": "disk-space-lib-57d3dbf4f1",
        "version_id": "w.kiosk-files-3be9a0d4c1@86b4f6a4b413",
        "source_uri": "docs/Flask-installation-guide-sk-translation.md",
        "message": "refused:\nsk-abcdefghijklmnopqrst",
        "filename": "task-internationalisation-2026.md",
        "command": "-Hsk-proj-A1b2C3d4E5f6G7h8I9j0 %3dsk-0123456789abcdef0123456789abcdef",
    }
    with tracing.trace("query", logs_dir=tmp_path):
        tracing.event("document.deleted", payload)
    kept = lines(tmp_path)[0]["payload"]
    assert kept == payload | {
        "message": "refused:\n[redacted]",
        "command": "-H[redacted] %3d[redacted]",
    }


def test_a_failing_write_never_fails_the_work(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    with tracing.trace("query", logs_dir=blocked), tracing.span("stage.x"):
        done = True
    assert done
    assert not logs.append(blocked, {"event": "x"})


def test_a_huge_payload_is_cut_and_marked(tmp_path: Path) -> None:
    with tracing.trace("query", logs_dir=tmp_path):
        tracing.event("model.call", {"text": "x" * 400_000})
    first = lines(tmp_path)[0]
    assert first["truncated"] is True
    assert "payload" not in first
    assert trace_reader.show(tmp_path, first["trace_id"])["events"][0]["payload"][
        "truncated"
    ].startswith("{")


def test_threads_never_tear_each_others_lines(tmp_path: Path) -> None:
    def work(n: int) -> None:
        with tracing.trace("query", logs_dir=tmp_path):
            tracing.event("model.call", {"n": n, "pad": "y" * 20_000})

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(64)))
    assert len(lines(tmp_path)) == 128


def test_the_program_log_is_joined_by_trace_id(tmp_path: Path) -> None:
    logger = logging.getLogger("rag_platform")
    level = logger.level
    logs.setup_logging(tmp_path)
    logs.setup_logging(tmp_path)
    try:
        with tracing.trace("query", logs_dir=tmp_path) as running:
            logging.getLogger("rag_platform.answering.engine").warning("slow: %d", 3)
    finally:
        for handler in [item for item in logger.handlers if isinstance(item, logs.JsonlHandler)]:
            logger.removeHandler(handler)
        logger.setLevel(level)
    (line,) = [item for item in lines(tmp_path) if item["line"] == "log"]
    assert (line["message"], line["level"], line["trace_id"]) == (
        "slow: 3",
        "WARNING",
        running.trace_id,
    )
    assert trace_reader.show(tmp_path, running.trace_id)["logs"][0]["message"] == "slow: 3"


def test_importing_tracing_loads_no_engine() -> None:
    heavy = ("opentelemetry", "pydantic", "yaml", "numpy")
    code = (
        f"import sys, rag_platform.observability.tracing; print([m for m in {heavy} if m in"
        " sys.modules])"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.strip()
        == "[]"
    )


def test_the_shipped_logging_config_loads_and_equals_the_defaults(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("RAG_ENV", raising=False)
    monkeypatch.setenv("RAG_CONFIG", str(SHIPPED))
    assert logs.load_log_config() == logs.LogConfig()


@pytest.mark.parametrize(
    ("content", "names"),
    [
        ("levle: INFO", "levle"),
        ("level: LOUD", "LOUD"),
        ("redact: {patterns: ['(']}", "redact.patterns"),
        ("[1]", "mapping"),
    ],
)
def test_a_bad_logging_config_names_file_and_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str, names: str
) -> None:
    monkeypatch.setenv("RAG_CONFIG", str(tmp_path))
    path = tmp_path / "logging.yaml"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ConfigError, match=names) as raised:
        logs.load_log_config()
    assert str(path) in raised.value.message


def test_traces_are_listed_newest_first_and_by_type(tmp_path: Path) -> None:
    ids = []
    for kind in ("query", "ingestion", "query"):
        with (
            tracing.trace(kind, logs_dir=tmp_path, namespace="n") as running,
            tracing.span("stage.x"),
        ):
            ids.append(running.trace_id)
    listed = list_traces(tmp_path)[0]
    assert {item["trace_id"] for item in listed} == set(ids)
    assert [item["started_at"] for item in listed] == sorted(
        (item["started_at"] for item in listed), reverse=True
    )
    assert {
        item["trace_id"] for item in list_traces(tmp_path, TraceFilter(kinds=["query"]))[0]
    } == {
        ids[0],
        ids[2],
    }
    assert len(list_traces(tmp_path, limit=1)[0]) == 1
    assert listed[0]["stages"].keys() == {"stage.x"}
    assert list_traces(tmp_path / "absent") == ([], ())


def test_an_envelope_is_rebuilt_from_its_lines(tmp_path: Path) -> None:
    with tracing.trace("query", logs_dir=tmp_path, namespace="n") as running:
        running.set(release_id="r1")
        with tracing.span("stage.outer"), tracing.span("stage.inner"):
            tracing.event("model.call", {"a": 1})
    envelope = trace_reader.show(tmp_path, running.trace_id)
    assert [item["name"] for item in envelope["spans"]] == ["stage.outer", "stage.inner"]
    assert envelope["events"][0]["payload"] == {"a": 1}
    assert envelope["attrs"] == {"release_id": "r1"}
    assert trace_reader.show(tmp_path, running.trace_id[4:16]) == envelope
    text = trace_reader.waterfall(envelope)
    assert "stage.outer" in text
    assert "  stage.inner" in text
    assert "model.call" in text
    assert "release_id=r1" in text


def test_a_torn_last_line_and_a_missing_end_are_tolerated(tmp_path: Path) -> None:
    with tracing.trace("query", logs_dir=tmp_path) as running, tracing.span("stage.x"):
        pass
    (path,) = tmp_path.glob("*.jsonl")
    span_line = path.read_bytes().split(b"\n")[0]
    path.unlink()
    # above the largest pid that Linux gives by default
    dead = tmp_path / "2020-01-01-4194303.jsonl"
    dead.write_bytes(span_line + b'\n{"schema_version":1,"line":"tra')
    envelope = trace_reader.show(tmp_path, running.trace_id)
    assert (envelope["status"], [item["name"] for item in envelope["spans"]]) == (
        "unfinished",
        ["stage.x"],
    )
    assert list_traces(tmp_path)[0][0]["status"] == "unfinished"
    assert "stage.x" in trace_reader.waterfall(envelope)


def test_an_unknown_an_ambiguous_and_a_malformed_id_are_errors(tmp_path: Path) -> None:
    for _ in range(40):
        with tracing.trace("query", logs_dir=tmp_path):
            pass
    with pytest.raises(NotFoundError):
        trace_reader.show(tmp_path, "trc_" + "0" * 32)
    # 40 ids over 16 first digits: two share one
    with pytest.raises(InputError, match="give more digits"):
        for digit in "0123456789abcdef":
            try:
                trace_reader.show(tmp_path, digit)
            except NotFoundError:
                continue
    with pytest.raises(InputError, match="no trace id"):
        trace_reader.show(tmp_path, "../etc")


def test_lines_of_a_query_are_written_together_in_their_order_and_late_ones_at_once(
    tmp_path: Path,
) -> None:
    def written() -> list[tuple[str, str]]:
        lines = [
            json.loads(line)
            for path in tmp_path.glob("*.jsonl")
            for line in path.read_text(encoding="utf-8").splitlines()
        ]
        return [(line["line"], line.get("name") or line.get("kind", "")) for line in lines]

    with tracing.trace("query", logs_dir=tmp_path) as trace:
        with tracing.span("stage.fusion") as span:
            tracing.event(
                "fusion.ranked", {"authorization": "Bearer abcdefghijklmnop", "ranked": []}
            )
            span.set(k_out=0)
        assert written() == []
        late = tracing.carry(lambda: tracing.event("retrieval.candidates"))
    assert written() == [
        ("event", "fusion.ranked"),
        ("span.end", "stage.fusion"),
        ("trace.end", ""),
    ]
    assert "abcdefghijklmnop" not in "".join(
        path.read_text(encoding="utf-8") for path in tmp_path.glob("*.jsonl")
    )
    late()  # of a retriever that ran past its deadline
    assert written()[-1] == ("event", "retrieval.candidates")
    with tracing.trace("query", logs_dir=tmp_path) as trace:
        trace.started -= 1  # a query that takes long shows what it has done
        tracing.event("query.normalized")
        assert written()[-1] == ("event", "query.normalized")
