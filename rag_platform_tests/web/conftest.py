"""The browser of the walks through the pages."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

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
