"""Work in a thread for a browser that may go away before it is done."""

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
_ALIVE_SECONDS = 10.0  # a proxy may close what is silent for longer


async def work_for(request: Request, work: Callable[[threading.Event], T]) -> T:
    """What `work` returns; the event that it gets is set once nobody waits for it."""
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
    """(`stage`, name) as a stage of a question begins, (`text`, part) as parts come, at last
    (`done`, what `work` returns) or (`failed`, its exception); (`silent`, seconds) where nothing
    came for a while. The work's event is set once nobody follows it.
    """
    loop = asyncio.get_running_loop()
    events: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()
    cancelled = threading.Event()

    def tell(kind: str, value: Any) -> None:
        with suppress(RuntimeError):  # the loop has ended: nobody listens
            loop.call_soon_threadsafe(events.put_nowait, (kind, value))

    def tell_stage(name: str) -> None:
        if name == "model.load" or name.startswith("stage."):
            tell("stage", name)

    def run() -> None:
        try:
            with tracing.watching(tell_stage):
                tell("done", work(lambda part: tell("text", part), cancelled))
        except Exception as error:  # noqa: BLE001 (told to whoever follows)
            if not isinstance(error, RagError):
                faults.report(error, "web")
            tell("failed", error)

    running = asyncio.ensure_future(anyio.to_thread.run_sync(run))
    try:
        while True:
            try:
                found = await asyncio.wait_for(events.get(), _ALIVE_SECONDS)
            except TimeoutError:
                found = ("silent", _ALIVE_SECONDS)
            yield found
            if found[0] in ("done", "failed"):
                await running
                return
    finally:
        cancelled.set()


def event_stream(events: AsyncIterator[str]) -> StreamingResponse:
    """The response that sends server-sent events."""
    return StreamingResponse(
        events, media_type="text/event-stream", headers={"x-accel-buffering": "no"}
    )


def sse(event: str, data: str) -> str:
    """One server-sent event."""
    lines = "".join(f"data: {line}\n" for line in data.split("\n"))
    return f"event: {event}\n{lines}\n"
