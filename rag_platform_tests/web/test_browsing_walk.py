"""A person's way through the pages in a real browser: files in, progress, an edit, a deletion."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rag_platform_tests.conftest import write_config

pytestmark = pytest.mark.e2e
SERVE = """
from rag_platform.config.settings import load_settings, with_http
from rag_platform.web.serving import serve_pages
serve_pages(with_http(load_settings(), {"port": 0}))
"""
FILES = {
    "harbour.md": "# Harbour\n\nThe harbour master answers on channel 12.\n\n# Tides\n\nHigh water"
    " comes twice a day.\n",
    "休假.md": "# 休假制度\n\n员工每年有十五天带薪年假。\n",
    "notes.txt": "Version 2.4.1 fixes the crash on start.\n",
}
JOB_MS = 60_000


@pytest.fixture
def address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Where the pages of an empty data root are shown."""
    environment = {
        **os.environ,
        "RAG_CONFIG": str(write_config(tmp_path / "config")),
        "RAG_HOME": str(tmp_path / "home"),
    }
    server = subprocess.Popen(
        [sys.executable, "-c", SERVE], stderr=subprocess.PIPE, text=True, env=environment
    )
    assert server.stderr is not None
    found = re.search(r"http://\S+", server.stderr.readline())
    assert found is not None
    yield found[0].rstrip("/")
    server.terminate()
    server.wait(30)
    server.stderr.close()


@pytest.fixture
def page(chromium: Any) -> Iterator[Any]:
    """A page in Chromium; what its scripts complain of fails the test."""
    problems: list[str] = []
    page = chromium.new_page(locale="en-GB")
    page.on("pageerror", lambda error: problems.append(str(error)))
    yield page
    page.close()
    assert problems == []


def done(page: Any) -> None:
    """Wait until the job that the page shows is done; its progress comes by itself."""
    page.locator("#progress > p > .badge", has_text=re.compile("^completed$")).wait_for(
        timeout=JOB_MS
    )


def test_files_come_in_are_edited_published_and_deleted(
    page: Any, address: str, tmp_path: Path
) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")

    page.goto(f"{address}/ingestion")
    page.set_input_files("input[type=file]", [tmp_path / name for name in FILES])
    page.get_by_role("button", name="Look at them").click()
    page.get_by_text("harbour.md").click()
    page.get_by_text("channel 12").first.wait_for()  # the preview came into the open part
    page.get_by_role("button", name="Ingest").click()
    done(page)

    page.get_by_role("link", name="Browse").first.click()
    page.get_by_label("Words in title or name").fill("harbour")
    page.get_by_role("button", name="Show").click()
    page.get_by_role("link", name="Harbour").click()
    page.get_by_role("button", name="Edit chunks").click()

    page.locator("details.chunk summary").first.click()
    text = page.get_by_label("Text").first
    text.fill(text.input_value().replace("channel 12", "channel 16"))
    page.get_by_role("button", name="Save the text").first.click()
    page.get_by_text("Edits: 1").wait_for()
    page.get_by_role("button", name="Publish").click()
    done(page)

    page.goto(f"{address}/browser?words=harbour")
    page.get_by_role("link", name="Harbour").click()
    page.get_by_text("channel 16").wait_for()

    page.get_by_role("button", name="Delete…").click()
    page.get_by_role("button", name="Delete it").click()
    done(page)
    page.goto(f"{address}/browser")
    assert page.get_by_text("Documents: 2").is_visible()
    assert not page.get_by_role("link", name="Harbour").count()
