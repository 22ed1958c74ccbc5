"""Standard input and output: every line is answered, and traces name the client."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp_types import JSONRPCError, jsonrpc_message_adapter
from pydantic import ValidationError

from rag_platform.server.app import reparse


def read(line: str) -> Any:
    with pytest.raises(ValidationError) as found:
        jsonrpc_message_adapter.validate_json(line, by_name=False)
    return reparse(found.value)


def test_half_a_surrogate_pair_is_dropped() -> None:
    made = read('{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"a\\ud83d"}}')
    assert (made.message.id, made.message.params) == (5, {"name": "a"})


@pytest.mark.parametrize(
    ("line", "number"),
    [
        ("{broken", None),
        ("", None),
        ("7", None),
        ('{"jsonrpc":"2.0","id":"x","method":7}', "x"),
        ('{"jsonrpc":"1.0","id":3,"method":"ping"}', 3),
        ('{"id":4,"x":' + "[" * 100_000 + "]" * 100_000 + "}", None),
    ],
)
def test_what_is_no_message_is_answered(line: str, number: Any) -> None:
    answer = read(line)
    assert isinstance(answer, JSONRPCError)
    assert (answer.id, answer.error.code) == (number, -32700)


@pytest.mark.e2e
def test_a_host_that_sends_rubbish_goes_on(read_only_shelf: Any, tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "RAG_HOME": str(read_only_shelf.settings.home),
        "RAG_CONFIG": str(read_only_shelf.settings.strategies_dir.parent),
    }
    hello = {
        "protocolVersion": "2024-11-05",
        "capabilities": {},
        "clientInfo": {"name": "old host", "version": "0.9"},
    }
    question = {"query": "gateway port \ud83d", "collections": "default"}
    lines = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        "rubbish",
        {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
    ]
    command = [sys.executable, "-m", "rag_platform.cli.main", "serve"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    ) as process:
        assert process.stdin is not None and process.stdout is not None

        def send(*messages: Any) -> None:
            process.stdin.write(b"".join(json.dumps(m).encode() + b"\n" for m in messages))
            process.stdin.flush()

        def receive() -> Any:
            return json.loads(process.stdout.readline())

        send(*lines)
        assert receive()["result"]["protocolVersion"] == "2024-11-05"
        answers = [receive(), receive()]
        (refused,) = (answer for answer in answers if "error" in answer)
        assert (refused["id"], refused["error"]["code"]) == (None, -32700)
        (listed,) = (answer for answer in answers if "result" in answer)
        names = [tool["name"] for tool in listed["result"]["tools"]]
        query = next(name for name in names if name.endswith("query"))
        call = {"name": query, "arguments": question}
        send({"jsonrpc": "2.0", "id": "q7", "method": "tools/call", "params": call})
        answered = receive()
        process.stdin.close()
    assert answered["id"] == "q7" and "8080" in answered["result"]["content"][0]["text"]
    logs = read_only_shelf.store.logs_dir.glob(f"*-{process.pid}.jsonl")
    written = [json.loads(line) for path in logs for line in path.read_text("utf-8").splitlines()]
    (ended,) = (
        line
        for line in written
        if line["line"] == "trace.end" and line["links"]["request_id"] == "q7"
    )
    assert ended["client"] == {
        "door": "stdio",
        "name": "old host",
        "version": "0.9",
        "client_level": "L0",
        "tool": query,
        "token_id": "",
    }
