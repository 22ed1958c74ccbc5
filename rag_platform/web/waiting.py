"""Runs work in a thread for a browser, and cancels it when the browser disconnects."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any, TypeVar

import anyio
from starlette.requests import Request
from starlette.responses import StreamingResponse

from rag_platform.errors import RagError
from rag_platform.observability import faults, tracing

T = TypeVar("T")
OnText = Callable[[str], None]
KEEP_ALIVE_SECONDS = 10.0  # a proxy may close connections that are silent for longer


async def work_for(request: Request, work: Callable[[threading.Event], T]) -> T:
    """The result of `work`; the event passed to it is set when the client disconnects."""
    cancelled = threading.Event()

    async def watch() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        cancelled.set()

    watching = asyncio.ensure_future(watch())
    try:
        return await anyio.to_thread.run_sync(work, cancelled)
    finally:
        cancelled.set()
        watching.cancel()


async def follow(work: Callable[[OnText, threading.Event], Any]) -> AsyncIterator[tuple[str, Any]]:
    """Run `work` and yield its events: (`stage`, name) when a stage of a question begins, (`text`,
    part) for each part of the answer, (`silent`, seconds) if nothing else came for a while, and at
    last (`done`, result) or (`failed`, exception). The event passed to `work` is set when the
    iteration is abandoned.
    """
    loop = asyncio.get_running_loop()
    events: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()
    cancelled = threading.Event()

    def put(kind: str, value: Any) -> None:
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(events.put_nowait, (kind, value))

    def put_stage(name: str) -> None:
        if name == "model.load" or name.startswith("stage."):
            put("stage", name)

    def run() -> None:
        try:
            with tracing.watching(put_stage):
                put("done", work(lambda part: put("text", part), cancelled))
        except Exception as error:  # noqa: BLE001 (yielded as `failed`)
            if not isinstance(error, RagError):
                faults.report(error, "web")
            put("failed", error)

    running = asyncio.ensure_future(anyio.to_thread.run_sync(run))
    try:
        while True:
            try:
                found = await asyncio.wait_for(events.get(), KEEP_ALIVE_SECONDS)
            except TimeoutError:
                found = ("silent", KEEP_ALIVE_SECONDS)
            yield found
            if found[0] in ("done", "failed"):
                await running
                return
    finally:
        cancelled.set()


def event_stream(events: AsyncIterator[str]) -> StreamingResponse:
    """A response that streams server-sent events."""
    return StreamingResponse(
        events, media_type="text/event-stream", headers={"x-accel-buffering": "no"}
    )


def sse(event: str, data: str) -> str:
    """One server-sent event."""
    lines = "".join(f"data: {line}\n" for line in data.split("\n"))
    return f"event: {event}\n{lines}\n"
