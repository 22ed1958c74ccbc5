"""Traces are listed, measured, kept and erased alike, whether their lines are in the logs alone or
compacted.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.json
import pyarrow.parquet as pq
import pytest

from rag_platform import access
from rag_platform.api.traces import get_trace, list_traces, trace_stats
from rag_platform.config.services import TraceRetention
from rag_platform.errors import InputError, NotFoundError, SchemaVersionError
from rag_platform.observability import trace_reader, tracing
from rag_platform.observability.redaction import Names
from rag_platform.observability.trace_store import compaction, erasing
from rag_platform.observability.trace_store.parts import read_manifest, remove_unnamed, traces_dir
from rag_platform.observability.trace_store.queries import TraceFilter, export
from rag_platform.storage.store import Store

EVERY = TraceFilter()
START = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    (tmp_path / "logs").mkdir()
    return Store(tmp_path)


def stamp(minutes: float) -> str:
    time = START + timedelta(minutes=minutes)
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def trace_id(number: int) -> str:
    return f"trc_{number:032x}"


def line(line_: str, number: int, minutes: float, **fields: Any) -> bytes:
    head = {
        "schema_version": 1,
        "line": line_,
        "trace_id": trace_id(number),
        "trace_type": fields.pop("trace_type", "query"),
        "ts": stamp(minutes),
    }
    return (
        json.dumps({**head, **fields}, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
    )


def span(number: int, minutes: float, name: str, ms: float, **fields: Any) -> bytes:
    return line(
        "span.end",
        number,
        minutes,
        **{
            "span_id": f"spn_{number:08x}{int(ms):08x}",
            "parent_span_id": None,
            "name": name,
            "status": "ok",
            "start_ms": 0.0,
            "end_ms": ms,
            "duration_ms": ms,
            "provider": {},
            "attrs": {},
            **fields,
        },
    )


def end(number: int, minutes: float, ms: float = 10.0, **fields: Any) -> bytes:
    attrs = fields.pop("attrs", {})
    links = fields.pop("links", {})
    return line(
        "trace.end",
        number,
        minutes,
        **{
            "started_at": stamp(minutes),
            "ended_at": stamp(minutes),
            "status": "ok",
            "namespace": "default",
            "strategy_config_id": "scfg_a",
            "build": {},
            "runtime": {"pid": 7},
            "links": {"parent_trace_id": None, "job_id": None, "request_id": None, **links},
            "attrs": attrs,
            "aggregates": {
                "latency_ms": ms,
                "stage_latency_ms": {},
                "counters": fields.pop("counters", {}),
                "errors": [],
                "error_count": 0,
            },
            **fields,
        },
    )


def write(store: Store, *lines: bytes, name: str = "2026-11-20-7.jsonl") -> None:
    with open(store.logs_dir / name, "ab") as target:
        target.write(b"".join(lines))


def ids(store: Store, where: TraceFilter = EVERY, **options: Any) -> list[int]:
    found = list_traces(store, where, limit=100, **options)["traces"]
    return [int(row["trace_id"][4:], 16) for row in found]


def question(text: str, confidence: float, **request: Any) -> dict[str, Any]:
    return {"request": {"text": text, **request}, "confidence": confidence}


@pytest.fixture(params=["in the logs", "compacted", "in part"])
def filled(request: pytest.FixtureRequest, store: Store) -> Store:
    """Six traces: 1 to 3 questions, 4 an ingest, 5 another namespace's question, 6 not ended."""
    write(
        store,
        span(1, 1, "stage.rerank", 30.0),
        end(1, 1, 100.0, attrs=question("How long is the warranty?", 0.9)),
        span(2, 2, "stage.rerank", 50.0, status="error", error={"code": "down", "message": "x"}),
        end(
            2,
            2,
            300.0,
            status="error",
            error={"code": "overloaded", "message": "too many"},
            attrs=question("保修期多长", 0.2, release_id="r1"),
            client={"door": "http", "name": "Claude", "tool": "query"},
            strategy_config_id="scfg_b",
        ),
    )
    if request.param == "in part":
        compaction.compact(store.logs_dir)
    write(
        store,
        span(3, 3, "stage.rerank", 40.0),
        end(3, 3, 200.0, attrs=question("Which warranty covers the pump?", 0.5)),
        span(4, 4, "stage.loader", 900.0, trace_type="ingestion"),
        end(
            4,
            4,
            1000.0,
            trace_type="ingestion",
            links={"job_id": "job_1"},
            counters={"documents": 3, "cache_hit": 1, "cache_miss": 3},
        ),
        end(5, 5, namespace="secret", attrs=question("warranty of secrets", 0.5)),
        span(6, 6, "stage.loader", 1.0, trace_type="ingestion"),
    )
    if request.param == "compacted":
        compaction.compact(store.logs_dir)
    return store


CASES: list[tuple[TraceFilter, list[int]]] = [
    (TraceFilter(), [6, 5, 4, 3, 2, 1]),
    (TraceFilter(kinds=["query"]), [5, 3, 2, 1]),
    (TraceFilter(kinds=["query", "ingestion"], statuses=["ok"]), [5, 4, 3, 1]),
    (TraceFilter(statuses=["error"]), [2]),
    (TraceFilter(statuses=["running", "unfinished"]), [6]),
    (TraceFilter(namespace="secret"), [5]),
    (TraceFilter(strategy_config_id="scfg_b"), [2]),
    (TraceFilter(client="claude"), [2]),
    (TraceFilter(client="http"), [2]),
    (TraceFilter(words="WARRANTY the"), [3, 1]),
    (TraceFilter(words="保修"), [2]),
    (TraceFilter(min_latency_ms=200, max_latency_ms=300), [3, 2]),
    (TraceFilter(min_confidence=0.5, max_confidence=0.6), [5, 3]),
    (TraceFilter(job_id="job_1"), [4]),
    (TraceFilter(kinds=["query"], published=True), [5, 3, 1]),
    (TraceFilter(since=START + timedelta(minutes=3)), [6, 5, 4, 3]),
    (TraceFilter(until=START + timedelta(minutes=3)), [2, 1]),
    (TraceFilter(words="nobody' OR 1=1 --"), []),
]


def test_a_filter_keeps_what_it_says(filled: Store) -> None:
    assert [(where, ids(filled, where)) for where, _ in CASES] == CASES


def test_pages_follow_each_other_without_gap(filled: Store) -> None:
    seen: list[str] = []
    cursor = None
    for _ in range(3):
        page = list_traces(filled, limit=2, cursor=cursor)
        seen += [row["trace_id"] for row in page["traces"]]
        cursor = page["next_cursor"]
    assert seen == [trace_id(number) for number in (6, 5, 4, 3, 2, 1)] and cursor is None
    with pytest.raises(InputError, match="was not given out here"):
        list_traces(filled, cursor="bm9uc2Vuc2U=")


def test_a_caller_sees_only_what_happened_in_namespaces_of_theirs(filled: Store) -> None:
    write(filled, end(7, 7, attrs=question("both", 0.5, namespaces=["default", "secret"])))
    with access.acting_for(access.Caller("tok", "read", frozenset({"default"}))):
        assert ids(filled) == [4, 3, 2, 1]
        assert trace_stats(filled)["kinds"][1]["count"] == 3
        for hidden in (5, 6, 7):
            with pytest.raises(NotFoundError, match="no trace"):
                get_trace(filled, trace_id(hidden))
    with access.acting_for(access.Caller("tok", "read", frozenset({"default", "secret"}))):
        assert ids(filled) == [7, 5, 4, 3, 2, 1]


def test_figures_are_those_of_the_lines(filled: Store) -> None:
    stats = trace_stats(filled, TraceFilter(namespace="default"))
    kinds = {row["trace_type"]: row for row in stats["kinds"]}
    assert kinds["query"]["count"] == 3 and kinds["query"]["failed"] == 1
    assert kinds["query"]["p50_ms"] == 200.0 and kinds["query"]["failed_share"] == 0.3333
    (rerank,) = (row for row in stats["stages"] if row["stage"] == "stage.rerank")
    # of 30, 40, 50: the middle one, and 9 tenths of the way from there to the last
    assert (rerank["p50_ms"], rerank["p95_ms"], rerank["mean_ms"]) == (40.0, 49.0, 40.0)
    assert (rerank["count"], rerank["failed"]) == (3, 1)
    assert stats["caches"] == []
    assert stats["last_24h"]["counts"] == {}


def test_caches_model_calls_and_the_last_day(store: Store) -> None:
    now = (datetime.now(UTC) - START) / timedelta(minutes=1)
    call = {
        "provider": "openai",
        "model": "m",
        "usage": {"input_tokens": 100, "output_tokens": 10},
        "cost": 0.5,
        "retries": 1,
    }
    write(
        store,
        span(1, now, "stage.embedding", 1.0, attrs={"cache_hit": 3, "cache_miss": 1}),
        span(1, now, "model.embed", 2.0, attrs={"cache_hit": True}),
        span(1, now, "model.embed", 3.0, attrs={"cache_hit": False}),
        line("event", 1, now, event_id="evt_1", ts_ms=1.0, kind="model.call", payload=call),
        line(
            "event",
            1,
            now,
            event_id="evt_2",
            ts_ms=1.0,
            kind="model.call",
            payload={**call, "usage": {}, "cost": None, "error": {"code": "timeout"}},
        ),
        end(1, now, trace_type="ingestion", counters={"documents": 3}),
        end(2, now, trace_type="ingestion", counters={"documents": 4}),
    )
    stats = trace_stats(store)
    assert stats["caches"] == [
        {"cache": "model.embed", "hits": 1, "misses": 1, "hit_rate": 0.5},
        {"cache": "stage.embedding", "hits": 3, "misses": 1, "hit_rate": 0.75},
    ]
    (model,) = stats["model_calls"]
    assert (model["calls"], model["failed"], model["retries"]) == (2, 1, 2)
    assert (model["input_tokens"], model["output_tokens"], model["cost"]) == (100, 10, 0.5)
    assert stats["last_24h"]["counts"] == {"ingestion": 2}
    assert stats["last_24h"]["counters"] == {"documents": 7}


def test_a_trace_comes_with_its_tree_its_parent_its_children_and_its_job(store: Store) -> None:
    write(
        store,
        span(1, 1, "b", 5.0, start_ms=2.0, end_ms=4.0, span_id="s2", parent_span_id="s1"),
        span(1, 1, "c", 5.0, start_ms=6.0, end_ms=8.0, span_id="s3"),
        span(1, 1, "a", 5.0, start_ms=0.0, end_ms=5.0, span_id="s1"),
        end(1, 1, links={"job_id": "job_1", "parent_trace_id": trace_id(9)}),
        end(2, 2, links={"job_id": "job_1", "parent_trace_id": trace_id(1)}),
        end(9, 0),
        line("trace.eval", 1, 3, eval={"case_id": "q1"}),
    )
    before = get_trace(store, trace_id(1))
    assert [(item["name"], item["depth"]) for item in before["trace"]["spans"]] == [
        ("a", 0),
        ("b", 1),
        ("c", 0),
    ]
    assert before["parent"] is not None and before["parent"]["trace_id"] == trace_id(9)
    assert [row["trace_id"] for row in before["children"]] == [trace_id(2)]
    assert [row["trace_id"] for row in before["job"]] == [trace_id(2)]
    shown = before["markdown"].split("related traces:\n")[1].splitlines()
    assert [row.split()[0] for row in shown] == [trace_id(9), trace_id(2)]
    assert before["trace"]["eval"] == {"case_id": "q1"}
    compaction.compact(store.logs_dir)
    assert get_trace(store, trace_id(1)) == before


# --- compaction ---------------------------------------------------------------------------------


def test_a_last_line_without_its_end_is_taken_when_it_has_one(store: Store) -> None:
    whole = end(1, 1, attrs=question("a", 0.1))
    write(store, whole[:50])
    assert compaction.compact(store.logs_dir) == 0 and ids(store) == []
    write(store, whole[50:])
    assert ids(store) == [1]
    assert compaction.compact(store.logs_dir) == 1 and ids(store) == [1]
    assert compaction.compact(store.logs_dir) == 0 and ids(store) == [1]


def test_a_torn_line_costs_no_other(store: Store) -> None:
    write(store, end(1, 1), b'{"schema_version":1,"line":"tra\n', b"\xff\xfe\n", end(2, 2))
    assert compaction.compact(store.logs_dir) == 2 and ids(store) == [2, 1]


def test_lines_of_a_later_program_wait_for_it_and_are_told_of(store: Store) -> None:
    later = end(2, 2).replace(b'"schema_version":1', b'"schema_version":2')
    write(store, end(1, 1), later, end(3, 3))
    compaction.compact(store.logs_dir)
    assert ids(store) == [1]
    page = list_traces(store)
    assert page["warnings"] == [
        "logs/2026-11-20-7.jsonl has lines of a later program: they are left out; upgrade to read"
        " them"
    ]
    assert read_manifest(traces_dir(store.logs_dir)).marks == {"2026-11-20-7.jsonl": len(end(1, 1))}


def test_a_manifest_of_another_schema_is_told_and_not_overwritten(store: Store) -> None:
    write(store, end(1, 1))
    compaction.compact(store.logs_dir)
    path = traces_dir(store.logs_dir) / "manifest.json"
    other = json.dumps({**json.loads(path.read_text()), "schema_version": 0})
    path.write_text(other)
    for act in (lambda: ids(store), lambda: compaction.compact(store.logs_dir)):
        with pytest.raises(SchemaVersionError, match="has schema 0; this program reads 1"):
            act()
    assert path.read_text() == other


def test_columns_that_older_parts_lack_are_empty_there(store: Store) -> None:
    write(store, end(1, 1))
    compaction.compact(store.logs_dir)
    (part,) = read_manifest(traces_dir(store.logs_dir)).parts
    path = traces_dir(store.logs_dir) / part.name / "traces.parquet"
    pq.write_table(pq.read_table(path).drop_columns(["state", "tool"]), path)
    write(store, end(2, 2, attrs={"flags": {"state": "answered"}}))
    assert [row["state"] for row in list_traces(store)["traces"]] == ["answered", None]


def test_many_compactions_leave_few_parts_and_every_trace(store: Store) -> None:
    for number in range(1, 41):
        write(store, end(number, number), name=f"2026-11-20-{number}.jsonl")
        compaction.compact(store.logs_dir)
    folder = traces_dir(store.logs_dir)
    manifest = read_manifest(folder)
    remove_unnamed(folder, manifest, seconds=0)
    parts = manifest.parts
    assert len(parts) < 8 and {path.name for path in folder.iterdir() if path.is_dir()} == {
        part.name for part in parts
    }
    assert ids(store) == list(range(40, 0, -1))


def test_a_crash_between_the_part_and_the_manifest_counts_nothing_twice(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(store, end(1, 1))

    def fail(*args: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(compaction, "write_manifest", fail)
        with pytest.raises(KeyboardInterrupt):
            compaction.compact(store.logs_dir)
    assert ids(store) == [1]
    compaction.compact(store.logs_dir)
    assert ids(store) == [1]


def test_writers_readers_and_compactors_at_once_lose_and_double_nothing(store: Store) -> None:
    stop, failures = threading.Event(), []

    def attempt(act: Callable[[], object]) -> Callable[[], None]:
        def run() -> None:
            while not stop.is_set():
                try:
                    act()
                except Exception as error:
                    failures.append(error)
                    return

        return run

    def read() -> None:
        found = ids(store)
        assert len(found) == len(set(found))

    threads = [
        threading.Thread(target=attempt(lambda: compaction.compact(store.logs_dir))),
        threading.Thread(target=attempt(lambda: compaction.compact(store.logs_dir))),
        threading.Thread(target=attempt(read)),
    ]
    for thread in threads:
        thread.start()
    for number in range(1, 61):
        write(store, span(number, number, "stage.x", 1.0), end(number, number))
    stop.set()
    for thread in threads:
        thread.join()
    assert failures == []
    assert ids(store) == list(range(60, 0, -1))


def test_a_call_that_writes_after_the_end_does_not_reopen_its_trace(store: Store) -> None:
    write(store, span(1, 1, "a", 1.0), end(1, 1))
    compaction.compact(store.logs_dir)
    write(store, span(1, 2, "late", 1.0))
    for _ in range(2):
        assert [row["status"] for row in list_traces(store)["traces"]] == ["ok"]
        compaction.compact(store.logs_dir)
    assert read_manifest(traces_dir(store.logs_dir)).open == {}
    assert [item["name"] for item in get_trace(store, trace_id(1))["trace"]["spans"]] == [
        "a",
        "late",
    ]


def test_an_unfinished_trace_is_known_after_its_lines_are_compacted(store: Store) -> None:
    # above the largest pid that Linux gives by default
    write(store, span(1, 1, "a", 1.0), name="2026-11-20-4194303.jsonl")
    compaction.compact(store.logs_dir)
    (row,) = list_traces(store)["traces"]
    assert (row["status"], row["started_at"]) == ("unfinished", stamp(1))
    assert get_trace(store, trace_id(1))["trace"]["status"] == "unfinished"


# --- retention and deletion ---------------------------------------------------------------------


def test_what_is_older_than_kept_goes_with_its_logs(store: Store) -> None:
    day = 24 * 60
    write(store, span(1, 0, "a", 1.0), end(1, 0), name="2026-11-20-7.jsonl")
    write(store, span(2, 5 * day, "a", 1.0), end(2, 5 * day), name="2026-11-25-7.jsonl")
    compaction.compact(store.logs_dir)
    write(store, end(3, 5 * day + 1), name="2026-11-25-7.jsonl")
    keep = TraceRetention(keep_days=4, log_days=4)
    dropped = compaction.drop_old(store.logs_dir, keep, START + timedelta(days=6))
    assert (dropped["rows"], dropped["logs"]) == (2, 1) and dropped["bytes"] > 0
    assert ids(store) == [3, 2]
    assert [path.name for path in store.logs_dir.iterdir()] == ["2026-11-25-7.jsonl"]
    with pytest.raises(NotFoundError):
        get_trace(store, trace_id(1))


def test_a_log_is_kept_while_the_store_has_not_all_of_it(store: Store) -> None:
    write(store, end(1, 0))
    keep = TraceRetention(log_days=1)
    assert compaction.drop_old(store.logs_dir, keep, START + timedelta(days=9))["logs"] == 0
    assert ids(store) == [1]


def test_the_oldest_parts_go_while_all_are_too_large(store: Store) -> None:
    for number in (1, 2, 3):
        write(store, end(number, number))
        compaction.compact(store.logs_dir)
    sizes = [part.bytes for part in read_manifest(traces_dir(store.logs_dir)).parts]
    keep = TraceRetention().model_copy(update={"max_bytes": sizes[1] + sizes[2]})
    compaction.drop_old(store.logs_dir, keep, START)
    assert ids(store) == [3, 2]


def test_the_words_of_a_deleted_document_leave_the_parts(store: Store) -> None:
    chunk = "chk_0123456789abcdef0123"
    context = {"chunk_ids": [chunk], "citations": ["gate.md#密码"]}
    write(
        store,
        line("event", 1, 1, event_id="e", ts_ms=1.0, kind="context.final", payload=context),
        end(1, 1, attrs=question("Is the password 4711?", 0.9)),
        end(2, 2, attrs=question("What else?", 0.3)),
    )
    compaction.compact(store.logs_dir)
    names = Names(["gate-1", "gate.md"], [chunk])
    # the event and the question, in the log and in the part
    assert erasing.quoting(store.logs_dir, names) == 4
    assert erasing.erase(store.logs_dir, names) == 4
    assert erasing.quoting(store.logs_dir, names) == 0
    rows = list_traces(store)["traces"]
    assert [row["question"] for row in rows] == ["What else?", "[deleted]"]
    assert [row["confidence"] for row in rows] == [0.3, 0.9]
    assert ids(store, TraceFilter(words="4711")) == []
    for part in traces_dir(store.logs_dir).glob("*/*.parquet"):
        text = str(pq.read_table(part).to_pylist())
        assert "4711" not in text and "密码" not in text


def test_what_is_exported_is_what_was_meant(filled: Store, tmp_path: Path) -> None:
    for form, read in (("parquet", pq.read_table), ("jsonl", pyarrow.json.read_json)):
        where = TraceFilter(kinds=["query"], namespace="default")
        counts = export(filled.logs_dir, where, tmp_path / form, form)
        assert counts == {
            f"traces.{form}": 3,
            f"spans.{form}": 3,
            f"events.{form}": 0,
            f"model_calls.{form}": 0,
        }
        traces = read(tmp_path / form / f"traces.{form}").to_pydict()
        assert traces["latency_ms"] == [100.0, 300.0, 200.0]
        assert traces["question"][1] == "保修期多长"
        spans = read(tmp_path / form / f"spans.{form}").to_pydict()
        assert spans["duration_ms"] == [30.0, 50.0, 40.0] and "attrs" in spans
    with pytest.raises(InputError, match="is there already"):
        export(filled.logs_dir, TraceFilter(), tmp_path / "jsonl", "jsonl")


def test_a_real_trace_reads_alike_before_and_after(store: Store) -> None:
    client = tracing.Client("cli", name="rag")
    with (
        tracing.for_client(client),
        tracing.trace("query", logs_dir=store.logs_dir, namespace="default") as running,
        tracing.span("stage.fusion", provider_type="fusion", provider_id="rrf"),
    ):
        tracing.event("fusion.ranked", {"ranked": [{"chunk_id": "c", "score": 0.5}]})
    before = trace_reader.show(store.logs_dir, running.trace_id)
    row = list_traces(store)["traces"]
    compaction.compact(store.logs_dir)
    assert trace_reader.show(store.logs_dir, running.trace_id) == before
    assert list_traces(store)["traces"] == row and row[0]["door"] == "cli"


def test_where_nothing_may_be_written_the_logs_are_read(store: Store) -> None:
    filler = {"attrs": {"x": "y" * 1000}}
    write(store, *(end(number, number, **filler) for number in range(1, 1001)))
    traces_dir(store.logs_dir).write_text("a file stands where the folder should be")
    assert len(ids(store)) == 100
