"""Words of a document leave the logs in place, and nothing else does."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_platform.observability import faults, tracing
from rag_platform.observability.redaction import Names, erase, opaque, quoting
from rag_platform.observability.trace_reader import show
from rag_platform.observability.trace_store.queries import list_traces

CHUNK = "chk_0123456789abcdef0123"
OTHER = "chk_fedcba9876543210fedc"


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def write(folder: Path, name: str, *values: Any) -> Path:
    folder.mkdir(exist_ok=True)
    text = "".join(
        json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n" for value in values
    )
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


def test_what_quotes_it_is_overwritten_and_the_rest_stays(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    path = write(
        logs,
        "2026-01-01-7.jsonl",
        {
            "kind": "ingest.parse_summary",
            "payload": {
                "version_id": "default.gate-1@abc",
                "blocks": 3,
                "warnings": ["line 3: 密码 is 4711"],
            },
        },
        {
            "kind": "ingest.parse_summary",
            "payload": {"version_id": "default.dock-2@abc", "warnings": ["line 9: odd"]},
        },
        {
            "kind": "context.final",
            "payload": {"chunk_ids": [CHUNK], "citations": ["docs/gate.md#密码"]},
        },
        {
            "kind": "context.final",
            "payload": {"chunk_ids": [OTHER], "citations": ["docs/dock.md#Dock"]},
        },
        {"line": "log", "message": "gate-1 failed: 4711 is odd", "level": "INFO"},
    )
    size, torn = (
        path.stat().st_size,
        '{"line":"event","payload":{"version_id":"default.gate-1@abc","text":"47',
    )
    with open(path, "a", encoding="utf-8") as broken:
        broken.write(torn)
    names = Names(["gate-1", "docs/gate.md"], [CHUNK])
    assert quoting(logs, names) == 4 and erase(logs, names) == 4 and quoting(logs, names) == 0
    text = path.read_text(encoding="utf-8")
    assert path.stat().st_size == size + len(torn) and "密码" not in text and "4711" not in text
    kept = (
        lines(path)[:5]
        if text.endswith("\n")
        else [json.loads(line) for line in text.splitlines()[:5]]
    )
    assert kept[0]["payload"] == {
        "version_id": "default.gate-1@abc",
        "blocks": 3,
        "warnings": ["[deleted]"],
    }
    assert kept[1]["payload"]["warnings"] == ["line 9: odd"] and kept[3]["payload"][
        "citations"
    ] == ["docs/dock.md#Dock"]
    assert kept[2]["payload"] == {"chunk_ids": [CHUNK], "citations": ["[deleted]"]}
    assert kept[4] == {"line": "log", "message": "[deleted]", "level": "INFO"}


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("What does gate.md say?", True),
        ("What does GATE.MD say?", True),
        ("《gate.md》说什么", True),
        ("请看gate.md", True),
        ("docs/gate.md", True),
        ("first\ngate.md", True),
        ("my-gate.md", False),
        ("gate.mdx and agate.md", False),
        ("DOCS/Other.md", True),
        ("What does docs/other say?", False),
    ],
)
@pytest.mark.parametrize("ascii_", [False, True])
def test_a_file_name_names_a_document_unless_it_is_within_a_longer_one(
    text: str, named: bool, ascii_: bool
) -> None:
    line = json.dumps({"text": text}, ensure_ascii=ascii_).encode()
    assert Names(["docs/Other.md"], files=["Gate.md"]).occur_in(line) is named


def test_what_jobs_printed(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    path = tmp_path / "jobs" / "job_1.log"
    path.write_text(
        "started\ndocs/gate.md: facts failed: 4711 is odd\ndocs/dock.md: fine\n", encoding="utf-8"
    )
    assert erase(tmp_path, Names(["docs/gate.md"])) == 1
    assert [line.rstrip() for line in path.read_text(encoding="utf-8").splitlines()] == [
        "started",
        "[deleted]",
        "docs/dock.md: fine",
    ]
    assert erase(tmp_path, Names(["docs/gate.md"])) == 0


def test_what_was_rotated_and_packed(tmp_path: Path) -> None:
    quote = b'{"doc_id":"gate-1","message":"4711 is odd"}\n{"doc_id":"dock-2","message":"4712"}\n'
    (tmp_path / "2026-01-01-7.jsonl.1").write_bytes(quote)
    (tmp_path / "2026-01-02-7.jsonl.gz").write_bytes(gzip.compress(quote))
    (tmp_path / "2026-01-03-7.jsonl.zst").write_bytes(
        pa.compress(quote, codec="zstd", asbytes=True)
    )
    (tmp_path / "2026-01.parquet").write_bytes(b"PAR1")
    names = Names(["gate-1"])
    assert (quoting(tmp_path, names), erase(tmp_path, names), quoting(tmp_path, names)) == (3, 3, 0)
    after = [
        (tmp_path / "2026-01-01-7.jsonl.1").read_bytes(),
        gzip.decompress((tmp_path / "2026-01-02-7.jsonl.gz").read_bytes()),
        pa.CompressedInputStream(str(tmp_path / "2026-01-03-7.jsonl.zst"), "zstd").read(),
    ]
    assert all(b"4711" not in data and b"4712" in data for data in after)
    assert [path.name for path in opaque(tmp_path)] == ["2026-01.parquet"]


def test_a_question_goes_with_what_its_answer_was_made_of(tmp_path: Path) -> None:
    def trace(number: int, chunk: str) -> list[Any]:
        trace_id = f"trc_{number:032x}"
        asked = {
            "trace_id": trace_id,
            "kind": "query.normalized",
            "payload": {"query_norm": f"{number} opens when"},
        }
        shown = {
            "trace_id": trace_id,
            "kind": "context.final",
            "payload": {"chunk_ids": [chunk], "citations": ["docs/x.md"]},
        }
        return [
            asked,
            shown,
            {
                "trace_id": trace_id,
                "line": "trace.end",
                "attrs": {"request": {"text": f"{number} opens when?"}},
            },
        ]

    path = write(tmp_path, "2026-01-01-7.jsonl", *trace(4711, CHUNK), *trace(4712, OTHER))
    assert erase(tmp_path, Names([], [CHUNK])) == 3
    text = path.read_text(encoding="utf-8")
    assert "opens" in text and "4711 opens" not in text and text.count("4712 opens when") == 2


@pytest.mark.parametrize("kind", ["ingestion", "evaluation"])
def test_refusals_that_may_repeat_a_text_go_with_its_document(tmp_path: Path, kind: str) -> None:
    def ingest(number: int, doc: str) -> list[Any]:
        of_trace = {"trace_id": f"trc_{number:032x}", "trace_type": kind}
        refused = {"code": "bad_request", "message": f"cannot read: {number} opens"}
        return [
            {**of_trace, "kind": "model.call", "payload": {"texts": 2, "error": refused}},
            {**of_trace, "kind": "stage.error", "payload": {"message": f"a file; {number} shuts"}},
            {**of_trace, "kind": "document.ready", "payload": {"doc_id": doc}},
        ]

    path = write(tmp_path, "2026-01-01-7.jsonl", *ingest(4711, "gate-ab12"), *ingest(4712, "dock"))
    assert quoting(tmp_path, Names(["gate-ab12"])) == erase(tmp_path, Names(["gate-ab12"])) == 1
    text = path.read_text(encoding="utf-8")
    assert "4711 opens" not in text and text.count("bad_request") == 2
    assert all(kept in text for kept in ("4712 opens", "4711 shuts", "4712 shuts"))
    assert quoting(tmp_path, Names(["gate-ab12"])) == 0


def test_beside_a_process_that_appends(tmp_path: Path) -> None:
    path = write(tmp_path / "logs", "2026-01-01-7.jsonl", {"doc_id": "gate-1", "text": "4711 " * 9})
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
    assert erase(path.parent, Names(["gate-1"])) == 1
    os.write(descriptor, b'{"doc_id":"gate-1","n":1}\n')
    os.close(descriptor)
    assert lines(path) == [{"doc_id": "gate-1", "text": "[deleted]"}, {"doc_id": "gate-1", "n": 1}]


def test_a_trace_is_still_shown(tmp_path: Path) -> None:
    with (
        pytest.raises(ValueError, match="4711"),
        tracing.trace("ingestion", logs_dir=tmp_path) as trace,
        faults.about("default.gate-1@abc"),
        tracing.span("stage.loader", version_id="default.gate-1@abc"),
    ):
        raise ValueError("line 3: 4711 is odd")
    names = Names(["default.gate-1@abc"])
    (log,) = tmp_path.glob("20*.jsonl")
    # the log's line with the stack trace, event, span, the end's list of errors; its own error
    # names nothing
    assert log.read_text(encoding="utf-8").count("4711") >= 4 and quoting(tmp_path, names) == 4
    erase(tmp_path, names)
    envelope = show(tmp_path, trace.trace_id)
    assert [span["error"]["message"] for span in envelope["spans"]] == ["[deleted]"]
    assert list_traces(tmp_path)[0][0]["status"] == "error"
    assert not [path for path in tmp_path.iterdir() if "4711" in path.read_text(encoding="utf-8")]


KEYS = st.sampled_from(["text", "warnings", "error", "n", "id", "citations"]) | st.text(max_size=3)
LEAVES = st.none() | st.booleans() | st.floats(allow_nan=False) | st.integers() | st.text()


@given(st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner)))
def test_no_line_grows_or_breaks(tmp_path_factory: pytest.TempPathFactory, value: Any) -> None:
    folder = tmp_path_factory.mktemp("logs")
    path = folder / "2026-01-01-7.jsonl"
    line = json.dumps(
        {"doc_id": "gate-1", "payload": value}, ensure_ascii=False, separators=(",", ":")
    ).encode("utf-8", "backslashreplace")
    path.write_bytes(line + b"\n")
    erase(folder, Names(["gate-1"]))
    after = path.read_bytes()
    assert (
        len(after) == len(line) + 1
        and after.endswith(b"\n")
        and json.loads(after)["doc_id"] == "gate-1"
    )
    assert quoting(folder, Names(["gate-1"])) == 0
