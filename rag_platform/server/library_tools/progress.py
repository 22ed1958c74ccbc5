"""Tells a client how far a call is, from the thread that does its work."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any

import anyio.from_thread
from mcp.server.mcpserver import Context

from rag_platform.server.library_tools.definition import OnProgress


def progress_of(context: Context[Any, Any]) -> OnProgress:
    """A function that tells the client of a call each new state of its work.

    The protocol wants a number that grows, and stages begin anew: it counts the states, the message
    says how far the stage is.
    """
    states: list[tuple[float, float, str]] = []

    def tell(done: float, total: float, message: str) -> None:
        state = (done, total, message)
        if states and states[-1] == state:
            return
        states.append(state)
        text = f"{message}: {done:.0f} of {total:.0f}" if total else message
        with suppress(Exception):  # nobody listens any more; the work goes on
            anyio.from_thread.run(partial(context.report_progress, float(len(states)), None, text))

    return tell
