"""Answers in real Chromium: on a telephone, and over a hostile document. Skips where playwright or
Chromium is not installed.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rag_platform.retrieval.library import Library
from rag_platform.web.tokens import Tokens
from rag_platform_tests.web.conftest import served
from rag_platform_tests.web.test_asking import make_shelf


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server of the pages of a library."""
    shelves = make_shelf(tmp_path_factory.mktemp("walk") / "hall")
    with served(Library.open(next(shelves).settings)) as url:
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


def test_a_question_that_the_server_does_not_receive_says_so(chromium: Any, address: str) -> None:
    context = chromium.new_context(locale="zh-CN")
    page = context.new_page()
    page.goto(address + "/?q=BX-030")
    context.set_offline(True)
    page.locator("input[type=search]").fill("quokka")
    page.locator("input[type=search]").press("Enter")
    again = page.locator("#answer [role=alert] a")
    again.wait_for()
    assert page.locator("#answer").inner_text() == "服务器没有响应。 重试"
    context.set_offline(False)
    again.click()
    page.wait_for_url("**/?q=quokka*")
    context.close()


def test_what_was_typed_comes_back_after_a_login_that_had_expired(
    chromium: Any, tmp_path: Path
) -> None:
    shelves = make_shelf(tmp_path / "guarded")
    shelf = next(shelves)
    tokens = Tokens(shelf.store)

    def log_in(name: str) -> None:
        page.fill("input[name=token]", tokens.create(name, "write")[1])
        page.press("input[name=token]", "Enter")

    tokens.create("first", "read")  # without any, nobody has to log in
    context = chromium.new_context()
    page = context.new_page()
    with served(Library.open(shelf.settings)) as url:
        page.goto(f"{url}/login?next=/ingestion?namespace=default")
        page.fill("input[name=token]", "rag_mistyped")
        page.press("input[name=token]", "Enter")
        page.wait_for_selector("[role=alert]")
        assert page.evaluate("sessionStorage.typed") is None  # browsers write it to the disk
        log_in("morning")
        form = page.locator("form[action='/ingestion/place']")
        form.locator("[name=place]").fill("/srv/notes/休假.md")
        form.locator("[name=tags]").fill("leave, hr")
        tokens.revoke("morning")
        form.locator("button").first.click()
        page.wait_for_url("**/login?next=/ingestion%3Fnamespace%3Ddefault")
        log_in("evening")
        page.wait_for_url("**/ingestion?namespace=default")
        assert form.locator("[name=place]").input_value() == "/srv/notes/休假.md"
        assert form.locator("[name=tags]").input_value() == "leave, hr"
        page.reload()
        assert form.locator("[name=place]").input_value() == ""
    context.close()
    next(shelves, None)


def test_wide_tables_and_lines_from_right_to_left_are_laid_out(
    chromium: Any, tmp_path: Path
) -> None:
    shelves = make_shelf(tmp_path / "yard")
    shelf = next(shelves)
    cells = [f"column_{n}" for n in range(30)]
    rows = [cells, ["---"] * 30, [f"ZX-{n}" for n in range(30)]]
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    (tmp_path / "wide.md").write_text(f"# Stock\n\n{table}\n", encoding="utf-8")
    (tmp_path / "arabic.md").write_text("المسؤول هو أحمد.\n", encoding="utf-8")
    shelf.ingest(tmp_path / "wide.md", tmp_path / "arabic.md")
    with served(Library.open(shelf.settings)) as url:
        page = chromium.new_page(viewport={"width": 390, "height": 800})
        page.goto(url + "/?q=ZX-3")
        page.locator("#answer .prose td").first.wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        page.goto(url + "/?q=المسؤول")
        box = "document.querySelector('.passage').firstElementChild.getBoundingClientRect().right"
        assert page.evaluate(f"{box} > innerWidth / 2"), "an Arabic line begins at the right"
        page.close()
    next(shelves, None)


def test_back_closes_the_source_where_it_was_opened(chromium: Any, address: str) -> None:
    page = chromium.new_page(viewport={"width": 390, "height": 600})
    asked: list[str] = []
    page.on("request", lambda it: asked.append(it.url) if it.is_navigation_request() else None)

    def ask(question: str) -> Any:
        page.locator("input[type=search]").fill(question)
        page.locator("input[type=search]").press("Enter")
        page.locator(f"#answer:has-text('{question}') .sources a.mark").first.wait_for()
        return page.locator(".sources a.mark").first

    page.goto(address)
    mark = ask("BX-030")
    mark.scroll_into_view_if_needed()
    before = page.evaluate("scrollY")
    mark.press("Enter")
    page.locator("#panel:focus table.rows mark").first.wait_for()
    page.go_back()
    page.locator("#panel:empty").wait_for(state="attached")
    page.wait_for_function(f"scrollY === {before}")
    assert mark.evaluate("it => it === document.activeElement")
    mark.press("Enter")
    page.locator("#panel table.rows mark").first.wait_for()
    ask("quokka")
    assert page.locator("#panel").inner_html() == ""
    page.locator("[name=theme]").select_option("dark")
    page.locator("html[data-theme=dark]").wait_for()
    assert page.locator("input[type=search]").input_value() == "quokka"
    assert [it.removeprefix(address) for it in asked if "q=BX" in it] == []
    page.close()


# lines of a question's source, the last of which is cited
LONG = "# Winch\n\n" + "".join(f"B{n}.\n\n" for n in range(50))


def test_a_long_source_is_shown_where_it_is_cited(chromium: Any, tmp_path: Path) -> None:
    shelves = make_shelf(tmp_path / "yard")
    shelf = next(shelves)
    (tmp_path / "winch.md").write_text(LONG + "The winch brake engages at 37 rpm.\n")
    shelf.ingest(tmp_path / "winch.md")
    with served(Library.open(shelf.settings)) as url:
        page = chromium.new_page(viewport={"width": 1280, "height": 500})
        page.goto(url + "/?q=When+does+the+winch+brake+engage")
        page.locator(".sources a.mark").first.press("Enter")
        # the page moves the focus and scrolls once the panel's new content has settled
        page.locator("#panel:focus mark").first.wait_for(timeout=10_000)
        inside = """(box) => {
          const outer = box.getBoundingClientRect();
          const inner = box.querySelector("mark").getBoundingClientRect();
          return [box.scrollTop > 0, outer.top <= inner.top && inner.bottom <= outer.bottom];
        }"""
        shown = [page.locator(box).first.evaluate(inside) for box in (".passage", "#panel")]
        page.close()
    next(shelves, None)
    assert shown == [[True, True]] * 2


# words without hyphen or slash that stand on more than one line
BROKEN_WORDS = """() => [...document.querySelectorAll(".scroll :is(td, th), .stages h3")].flatMap(
  (cell) => {
    const texts = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT), found = [];
    while (texts.nextNode()) {
      if (!texts.currentNode.parentElement.checkVisibility()) continue;
      for (const word of texts.currentNode.data.matchAll(/(?<!\\S)[\\w.]+(?!\\S)/g)) {
        const range = new Range();
        range.setStart(texts.currentNode, word.index);
        range.setEnd(texts.currentNode, word.index + word[0].length);
        const tops = new Set([...range.getClientRects()].map((box) => box.top));
        if (tops.size > 1) found.push(word[0]);
      }
    }
    return found;
  })"""


@pytest.mark.parametrize("width", [390, 1280])
def test_no_word_of_a_table_or_ranking_is_cut_apart(
    chromium: Any, address: str, width: int
) -> None:
    page = chromium.new_page(viewport={"width": width, "height": 800})
    page.goto(address + "/?q=BX-030")
    trace = page.locator(".answer .facts a").get_attribute("href")
    order = page.locator(".answer .why a").get_attribute("href")
    source = page.locator(".sources a.mark").first.get_attribute("href")
    for path in ("/browser", "/ingestion", "/releases", source, order, trace):
        page.goto(address + path)
        assert page.evaluate(BROKEN_WORDS) == [], path
    page.close()


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
