"""A person's walk through asking in real Chromium: question, citation, box on the page, proof, why
this order. Skips where playwright or Chromium is not installed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from rag_platform.web.site import Site
from rag_platform_tests.web.test_asking import listening, make_shelf

WORDS = {
    "en-US": {"ask": "Ask", "proved": "Proved by the bytes of the file", "why": "Why this order"},
    "zh-CN": {"ask": "提问", "proved": "已用文件字节验证", "why": "为何如此排序"},
}


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server of the pages of a library."""
    shelves = make_shelf(tmp_path_factory.mktemp("walk") / "hall")
    with listening(Site(next(shelves).settings)) as url:
        yield url
    next(shelves, None)


@pytest.mark.parametrize("language", ["en-US", "zh-CN"])
def test_from_a_question_to_the_box_on_the_page_and_its_proof(
    chromium: Any, address: str, language: str
) -> None:
    words = WORDS[language]
    context = chromium.new_context(locale=language, viewport={"width": 1200, "height": 900})
    page = context.new_page()
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda line: line.type == "error" and faults.append(line.text))
    page.goto(address)
    page.keyboard.press("/")
    page.keyboard.type("When does the belt stop?")
    page.get_by_role("button", name=words["ask"], exact=True).click()
    page.locator(".answer .sources a.mark").first.wait_for()
    assert "q=When+does+the+belt+stop" in page.url

    page.locator(".answer a.mark").first.click()
    drawn = page.locator("#panel svg rect.cited").first
    drawn.wait_for()
    box, sheet = drawn.bounding_box(), page.locator("#panel svg").bounding_box()
    assert 0 < box["width"] < sheet["width"]
    assert sheet["y"] < box["y"] < sheet["y"] + sheet["height"] / 3  # under the heading
    page.locator("[data-proof=proved]").wait_for()
    assert words["proved"] in page.locator(".proof").inner_text()

    page.get_by_text(words["why"]).first.click()
    page.locator(".order-table tbody tr").first.wait_for()
    assert "docs/belts.pdf" in page.locator(".order-table tbody tr").first.inner_text()
    assert not faults
    context.close()


def test_the_pages_fit_a_telephone(chromium: Any, address: str) -> None:
    context = chromium.new_context(viewport={"width": 390, "height": 800}, color_scheme="dark")
    page = context.new_page()
    for path in ("/", "/?q=BX-030", "/compare-answers?q=belt&left=strategy:tiny"):
        page.goto(address + path)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, path
    page.goto(address + "/?q=BX-030")
    page.locator(".sources a.mark").first.click()
    page.locator("#panel table.rows mark").first.wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    context.close()


def test_a_hostile_document_runs_nothing(chromium: Any, address: str) -> None:
    page = chromium.new_page()
    dialogs: list[str] = []
    page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
    page.goto(address + "/?q=Who+opens+the+gate,+the+quokka")
    page.locator(".sources a.mark").first.click()
    page.locator("#panel .text-of-file").wait_for()
    page.wait_for_timeout(200)
    assert not dialogs
    page.close()
