"""A local endpoint that speaks chat completions, for tests of language models; answers are given,
requests are kept.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Reply = tuple[int, Any, dict[str, str]]  # status, JSON value or raw text, headers


@dataclass
class ChatServer:
    """Answers with what `answer(request body, number of the call from 0)` returns."""

    answer: Callable[[dict[str, Any], int], Reply]
    url: str = ""
    requests: list[dict[str, Any]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)


def said(text: str, **more: Any) -> Reply:
    """A completion with this text, 10 tokens in and 5 out."""
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": text},
        "finish_reason": "stop",
        **more,
    }
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    return (
        200,
        {
            "id": "1",
            "object": "chat.completion",
            "created": 1,
            "model": "seeing-1.5",
            "choices": [choice],
            "usage": usage,
        },
        {},
    )


def refused(status: int, message: str, **headers: str) -> Reply:
    """An error as such endpoints write it."""
    return (
        status,
        {"error": {"message": message, "type": "error", "code": None, "param": None}},
        headers,
    )


def streamed(
    parts: list[str], *, usage: bool = True, finish: str | None = "stop", broken: str = ""
) -> Reply:
    """A completion that comes in parts; without `finish` the stream just ends, `broken` is sent in
    place of its end.
    """
    head = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "seeing-1.5"}
    lines = [
        {**head, "choices": [{"index": 0, "delta": {"content": part}, "finish_reason": None}]}
        for part in parts
    ]
    if finish and not broken:
        lines.append({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    if usage and not broken:
        lines.append(
            {
                **head,
                "choices": [],
                "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
            }
        )
    sent = "".join(f"data: {json.dumps(line, ensure_ascii=False)}\n\n" for line in lines)
    return (
        200,
        sent + (broken or ("data: [DONE]\n\n" if finish else "")),
        {"Content-Type": "text/event-stream"},
    )


def message(text: str, *, stop_reason: str = "end_turn", **more: Any) -> Reply:
    """A reply of the messages API, 10 tokens in and 5 out."""
    usage = {"input_tokens": 10, "output_tokens": 5}
    return (
        200,
        {
            "id": "1",
            "type": "message",
            "role": "assistant",
            "model": "wise-2",
            "content": [{"type": "text", "text": text}],
            "stop_reason": stop_reason,
            "stop_sequence": None,
            "usage": usage,
            **more,
        },
        {},
    )


def message_streamed(
    parts: list[str], *, stop_reason: str = "end_turn", ends: bool = True, broken: str = ""
) -> Reply:
    """A reply of the messages API as its events; `broken` is sent in place of the last ones."""
    start = message("")[1] | {
        "content": [],
        "stop_reason": None,
        "usage": {"input_tokens": 10, "output_tokens": 1},
    }
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": start},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "ping"},
        *(
            {
                "type": "content_block_delta",
                "index": 0,
                "delta": {"type": "text_delta", "text": part},
            }
            for part in parts
        ),
    ]
    if ends and not broken:
        events += [
            {"type": "content_block_stop", "index": 0},
            {
                "type": "message_delta",
                "delta": {"stop_reason": stop_reason, "stop_sequence": None},
                "usage": {"output_tokens": 5},
            },
            {"type": "message_stop"},
        ]
    sent = "".join(
        f"event: {event['type']}\ndata: {json.dumps(event, ensure_ascii=False)}\n\n"
        for event in events
    )
    return 200, sent + broken, {"Content-Type": "text/event-stream"}


@contextmanager
def chat_server(answer: Callable[[dict[str, Any], int], Reply]) -> Iterator[ChatServer]:
    """The running server; `url` is the base_url for clients."""
    server = ChatServer(answer)
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                number = len(server.requests)
                server.requests.append(body)
                server.paths.append(self.path)
                server.headers.append({key.lower(): value for key, value in self.headers.items()})
            status, value, headers = server.answer(body, number)
            data = value.encode() if isinstance(value, str) else json.dumps(value).encode()
            try:
                self.send_response(status)
                # the connection is closed with so many bytes still promised
                cut = headers.pop("cut", "")
                for key, item in {
                    "Content-Type": "application/json",
                    "Content-Length": str(len(data) + int(cut or 0)),
                    **headers,
                }.items():
                    self.send_header(key, item)
                self.end_headers()
                self.wfile.write(data)
                self.close_connection = self.close_connection or bool(cut)
            except (BrokenPipeError, ConnectionResetError):  # a client that did not wait
                self.close_connection = True

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing on stderr."""

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http.daemon_threads = True
    thread = threading.Thread(target=http.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    server.url = f"http://127.0.0.1:{http.server_port}/v1"
    try:
        yield server
    finally:
        http.shutdown()
        http.server_close()
        thread.join()
