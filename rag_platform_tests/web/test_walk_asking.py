"""Answers in real Chromium: on a telephone, and over a hostile document. Skips where playwright or
Chromium is not installed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from rag_platform.web.site import Site
from rag_platform_tests.web.test_asking import listening, make_shelf


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server of the pages of a library."""
    shelves = make_shelf(tmp_path_factory.mktemp("walk") / "hall")
    with listening(Site(next(shelves).settings)) as url:
        yield url
    next(shelves, None)


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
