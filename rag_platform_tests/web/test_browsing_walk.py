"""A person's way through the pages in a real browser: files in, progress, an edit, a deletion."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rag_platform.processes import jobs
from rag_platform_tests.conftest import Desk
from rag_platform_tests.web.conftest import run_beside, served

pytestmark = pytest.mark.e2e
FILES = {
    "harbour.md": "# Harbour\n\nThe harbour master answers on channel 12.\n\n# Tides\n\nHigh water"
    " comes twice a day.\n",
    "休假.md": "# 休假制度\n\n员工每年有十五天带薪年假。\n",
    "notes.txt": "Version 2.4.1 fixes the crash on start.\n",
}
JOB_MS = 60_000


@pytest.fixture
def address(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Where the pages of an empty data root are shown."""
    monkeypatch.setattr(jobs, "launch", run_beside)
    with served(desk.settings) as shown:
        yield shown


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
