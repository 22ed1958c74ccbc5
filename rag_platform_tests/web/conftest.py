"""The browser of the walks through the pages."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import uvicorn

from rag_platform.ledger.schema import Job
from rag_platform.processes import jobs
from rag_platform.retrieval.library import Library
from rag_platform.web.app import create_app

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """The browser; walks are skipped where playwright or Chromium is not installed."""
    api = pytest.importorskip(
        "playwright.sync_api", reason="a walk needs playwright: pip install 'rag-platform[dev]'"
    )
    if CHROMIUM is None:
        pytest.skip("a walk needs Chromium: apt-get install chromium")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


def run_beside(job: Job, *_: Any) -> Any:
    """The job in a thread of this process, where another process would take seconds to start."""
    from rag_platform.assets.launch import run_job

    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(run_job(job.job_id)))
    thread.start()
    process: Any = SimpleNamespace(
        pid=0, poll=lambda: codes[0] if codes else None, returncode=0, thread=thread
    )
    return jobs.Started(job, process)


@contextmanager
def served(library: Library) -> Iterator[str]:
    """The address at which a thread answers with the pages."""
    app = create_app(library)
    config = uvicorn.Config(
        app, port=0, log_config=None, loop="asyncio", ws="none", timeout_keep_alive=1
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.02)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:  # a thread left running would keep the process from ending
        server.should_exit = True
        thread.join()
