"""Reports the progress of a call to its client, from the worker thread."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any

import anyio.from_thread
from mcp.server.mcpserver import Context

from rag_platform.server.library_tools.definition import OnProgress


def progress_of(context: Context[Any, Any]) -> OnProgress:
    """A callback that sends each new state of the work to the client of a call.

    The protocol requires a growing number, but counts restart with each stage: the number sent is
    that of states, and the message has the stage's progress.
    """
    states: list[tuple[float, float, str]] = []

    def report(done: float, total: float, message: str) -> None:
        state = (done, total, message)
        if states and states[-1] == state:
            return
        states.append(state)
        text = f"{message}: {done:.0f} of {total:.0f}" if total else message
        with suppress(Exception):  # the client is gone; the work goes on
            anyio.from_thread.run(partial(context.report_progress, float(len(states)), None, text))

    return report
