"""A person's whole way through the pages in a real browser: files in, progress, a question, its
citation on the page and its proof, an edit, its publication, the first question replayed, a
deletion, and a question that is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pymupdf
import pytest

from rag_platform.messages import translate
from rag_platform.processes import jobs
from rag_platform.retrieval.library import Library
from rag_platform_tests.conftest import Desk
from rag_platform_tests.web.conftest import run_beside, served

pytestmark = pytest.mark.e2e
NOTES = {
    "休假.md": "# 休假制度\n\n员工每年有十五天带薪年假。\n",
    "notes.txt": "Version 2.4.1 fixes the crash on start.\n",
}
# language: font, heading and text of the PDF, the question, what is edited and into what
BELTS = {
    "en": (
        "helv",
        "Safety of belts",
        "The belt stops at once when the hatch opens. The console then names the open hatch.",
        "When does the belt stop?",
        "when the hatch opens",
        "when the red cord is pulled",
    ),
    "zh": (
        "china-s",
        "皮带安全",
        "舱门打开时皮带立即停止。控制台随后显示打开的是哪个舱门。",
        "皮带什么时候停止？",
        "舱门打开时",
        "拉动红绳时",
    ),
}
JOB_MS = 60_000


@pytest.fixture
def address(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Where the pages of an empty data root are shown."""
    monkeypatch.setattr(jobs, "launch", run_beside)
    with served(Library.open(desk.settings)) as shown:
        yield shown


@pytest.fixture
def page(chromium: Any, address: str, language: str) -> Iterator[Any]:
    """A tab of somebody who reads that language; what its scripts complain of fails the test."""
    problems: list[str] = []
    tab = chromium.new_page(
        base_url=address, locale={"en": "en-GB", "zh": "zh-CN"}[language], color_scheme="dark"
    )
    tab.on("pageerror", lambda error: problems.append(str(error)))
    tab.on("console", lambda line: line.type == "error" and problems.append(line.text))
    yield tab
    tab.close()
    assert problems == []


def write_files(folder: Path, language: str) -> list[Path]:
    """A PDF of two pages in the language, and notes."""
    font, heading, text, *_ = BELTS[language]
    with pymupdf.open() as document:
        document.new_page().insert_text((72, 90), "Sorting hall", fontsize=20)
        sheet = document.new_page()
        sheet.insert_text((72, 90), heading, fontsize=18, fontname=font)
        sheet.insert_textbox((72, 120, 420, 200), text, fontsize=11, fontname=font)
        document.save(folder / "belts.pdf")
    for name, written in NOTES.items():
        (folder / name).write_text(written, encoding="utf-8")
    return [folder / name for name in ("belts.pdf", *NOTES)]


@pytest.mark.parametrize("language", ["en", "zh"])
def test_from_files_to_an_answer_its_proof_an_edit_and_a_deletion(
    page: Any, language: str, tmp_path: Path
) -> None:
    from playwright.sync_api import expect

    expect.set_options(timeout=20_000)
    says = partial(translate, language=language)
    *_, question, before, after = BELTS[language]

    def press(name: str, role: str = "button") -> None:
        page.get_by_role(role, name=says(name), exact=True).first.click()

    def wait_for_the_job() -> None:
        """Wait until the job that the page shows and its documents are done, without a reload."""
        done = re.compile(f"^{says('completed')}$")
        page.locator("#progress > p > .badge", has_text=done).wait_for(timeout=JOB_MS)
        assert set(page.locator("#progress td .badge").all_inner_texts()) == {says("completed")}

    page.goto("/")
    page.get_by_role("link", name=says("Add documents")).click()
    page.set_input_files("input[type=file]", write_files(tmp_path, language))
    press("Preview")
    page.get_by_text("belts.pdf").click()
    page.locator("details[open]", has_text=before).wait_for()  # the preview came into the open part
    press("Ingest")
    wait_for_the_job()

    press("Ask a question", "link")
    page.wait_for_url("**/?namespace=default")
    page.wait_for_load_state()
    page.keyboard.press("/")
    page.keyboard.type(question)
    press("Ask")
    expect(page.locator(".answer .prose")).to_contain_text(before)
    asked, trace = page.url, page.locator(".answer .facts a").get_attribute("href")
    page.locator(".answer .prose a.mark").first.click()
    drawn = page.locator("#panel svg rect.cited").first
    drawn.wait_for()
    box, sheet = drawn.bounding_box(), page.locator("#panel svg").bounding_box()
    assert 0 < box["width"] < sheet["width"]
    assert sheet["y"] < box["y"] < sheet["y"] + sheet["height"] / 3  # under the heading
    expect(page.locator("[data-proof=proved]")).to_contain_text(
        says("Proved by the bytes of the file")
    )
    page.locator(".why summary").click()
    expect(page.locator(".order-table tbody tr").first).to_contain_text("belts.pdf")

    press("Edit this passage", "link")
    text = page.locator("details.chunk[open] textarea")
    text.fill(text.input_value().replace(before, after))
    press("Save the text")
    expect(page.locator("main")).to_contain_text(says("Edits: {n}", n=1))
    press("Publish")
    wait_for_the_job()

    page.goto(asked)
    expect(page.locator(".answer .prose")).to_contain_text(after)
    page.locator(".answer .prose a.mark").first.click()
    page.locator("[data-proof=edited]").wait_for()

    page.goto(trace)
    press("Replay")
    expect(page.locator("#replayed")).to_contain_text(says("The same ranking as then"))
    press("On what is published now")
    expect(page.locator("#replayed")).to_contain_text(says("Another ranking than then"))
    assert page.locator("#replayed .ranks .badge.good").count() == 1  # only now
    assert page.locator("#replayed .ranks .badge.bad").count() == 1  # only then

    page.goto("/browser?words=belts")
    page.locator("td a[href^='/documents/']").click()
    press("Delete…")
    press("Delete it")
    wait_for_the_job()
    page.goto(asked)
    page.locator(".answer").wait_for()
    assert not page.get_by_text(after).count()
    assert not page.get_by_text(says("Answered"), exact=True).count()
    page.goto("/browser")
    expect(page.locator("main")).to_contain_text(says("Documents: {n}", n=2))
