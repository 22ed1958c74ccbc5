"""A person's way through the pages in a real browser: from a question to its trace, and from a
started evaluation to one of its cases.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rag_platform.evaluation.expectations import add_expectation, expectation
from rag_platform.processes import jobs
from rag_platform.retrieval.library import Library
from rag_platform_tests.conftest import HOLIDAYS, PORTS, Desk
from rag_platform_tests.web.conftest import run_beside, served

# what a page writes on its charts
RECORD_LABELS = """window.labels = [];
const write = CanvasRenderingContext2D.prototype.fillText;
CanvasRenderingContext2D.prototype.fillText = function (text, ...place) {
  labels.push(...String(text).split("\\n"));
  return write.call(this, text, ...place);
};"""


@pytest.fixture
def address(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Where the pages of a small library answer."""
    desk.write(ports=PORTS, holidays=HOLIDAYS)
    desk.publish(desk.docs / "ports.md", desk.docs / "holidays.md")
    question = "Which port does the gateway listen on?"
    assert add_expectation(desk.store, "default", expectation(question, file="ports.md"))
    monkeypatch.setattr(jobs, "launch", run_beside)
    with served(Library.open(desk.settings)) as shown:
        yield shown


@pytest.fixture
def page(chromium: Any, address: str) -> Iterator[Any]:
    """A tab in which no script fails."""
    problems: list[str] = []
    tab = chromium.new_page(base_url=address, locale="en-GB", timezone_id="Asia/Shanghai")
    tab.on("pageerror", lambda error: problems.append(str(error)))
    tab.on(
        "response",
        lambda got: problems.append(f"{got.status} {got.url}") if got.status >= 400 else None,
    )
    yield tab
    tab.close()
    assert problems == []


def test_from_a_question_to_its_trace_and_from_a_run_to_its_case(page: Any) -> None:
    from playwright.sync_api import expect

    page.goto("/?q=病假需要什么")
    page.get_by_role("link", name="Query traces").click()
    page.get_by_role("row", name="病假需要什么").get_by_role("link").first.click()
    expect(page.locator(".waterfall")).to_contain_text("stage.rerank")
    expect(page.get_by_role("region", name="Candidates")).to_contain_text("holidays.md")
    page.locator(".waterfall summary", has_text="stage.fusion").first.click()
    expect(page.locator(".waterfall details[open]")).to_contain_text("fusion_id")
    page.get_by_role("link", name="rerank.ranked").click()
    expect(page.locator("#events .feed > li")).to_have_count(1)

    page.get_by_role("link", name="Evaluation", exact=True).click()
    page.get_by_label("Dataset").last.select_option("expectations:default")
    page.get_by_role("button", name="Start", exact=True).click()
    page.get_by_role("button", name="Show the result").click(timeout=20_000)
    expect(page.get_by_role("heading", level=1)).to_contain_text("expectations-default")
    expect(page.get_by_role("row", name="retrieval.hit_rate@3")).to_contain_text("1.000")
    page.get_by_role("link", name="Which port does the gateway listen on?").click()
    expect(page.get_by_role("heading", name="Expected")).to_be_visible()
    expect(page.locator(".ranked").first).to_contain_text("ports.md")
    page.get_by_role("button", name="Trace of this question").click()
    expect(page.locator(".waterfall")).to_contain_text("stage.retrieve_sparse")
    expect(page.get_by_role("link", name="eval_")).to_be_visible()

    page.get_by_role("link", name="Overview").click()
    expect(page.locator(".totals")).to_contain_text("2 documents")
    published = page.locator(".totals time")
    moment = datetime.fromisoformat(published.get_attribute("datetime"))
    expect(published).to_have_text(f"{moment.replace(tzinfo=None) + timedelta(hours=8):%F %T}")
    expect(page.get_by_text("Times are in Asia/Shanghai.")).to_be_visible()
    page.add_init_script(RECORD_LABELS)
    for path in ("/overview", "/evaluation", "/query-traces"):
        page.set_viewport_size({"width": 390, "height": 800})
        page.goto(path)
        wider = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
        assert not page.evaluate(wider), path
        if path == "/evaluation":  # one run, so all of the chart is within hours of it
            page.wait_for_function("window.labels.length > 0")
            ahead = {str(datetime.now(UTC).year + years) for years in (2, 3)}
            assert ahead.isdisjoint(page.evaluate("window.labels"))
