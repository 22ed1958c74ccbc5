"""Slides, notebooks, books, mails and saved pages from file to proved chunks, through the parsing
children.
"""

from __future__ import annotations

import json
from pathlib import Path

import pptx
import pytest

from rag_platform.config.profiles import stage_profiles
from rag_platform.config.settings import Settings
from rag_platform.config.strategies import load_strategy
from rag_platform.documents.provenance import verify_version
from rag_platform.ingestion.batches import ingest_versions
from rag_platform.intake import isolation
from rag_platform.intake.receiving import ReceiveOptions, receive
from rag_platform.ir import Chunk, MediaLink
from rag_platform.ledger.ledger import open_ledger
from rag_platform.storage.store import Store, read_records
from rag_platform.workspace import Workspace
from rag_platform_tests.loaders.markup.test_books import book
from rag_platform_tests.loaders.markup.test_mail import mail
from rag_platform_tests.loaders.markup.test_notebooks import BOOK


@pytest.fixture(autouse=True, scope="module")
def _end_children():
    yield
    isolation.pool().close()


@pytest.mark.integration
def test_each_format_lands_with_chunks_that_are_proved(settings: Settings, tmp_path: Path) -> None:
    folder = tmp_path / "mixed"
    folder.mkdir()
    book(folder / "a.epub")
    (folder / "a.ipynb").write_text(json.dumps(BOOK), encoding="utf-8")
    (folder / "a.eml").write_bytes(mail("Budget", "The budget is 42 EUR.").as_bytes())
    page = mail("Page", "")
    page.set_content("<h1>Ports</h1><p>The gateway listens on port 8080.</p>", subtype="html")
    (folder / "a.mhtml").write_bytes(page.as_bytes())
    show = pptx.Presentation()
    show.slides.add_slide(show.slide_layouts[0]).shapes.title.text = "Plan of the year"
    show.save(str(folder / "a.pptx"))
    default, tiny = load_strategy(settings, "tiny"), load_strategy(settings, "tiny")
    names = ("pptx", "epub", "mhtml", "eml", "ipynb", "text")
    strategy = tiny.model_copy(
        update={
            "loading": default.loading.model_validate(
                {"loaders": [{"provider": name} for name in names]}
            )
        }
    )
    store, ledger = Store(settings.home), open_ledger(Store.of(settings))
    parts = {"settings": settings, "strategy": strategy, "store": store, "ledger": ledger}
    reception = receive([folder], "lib", Workspace(**parts), ReceiveOptions())
    totals = ingest_versions(
        [ledger.version(item) for item in reception.to_process], Workspace(**parts)
    )
    assert (totals.documents, totals.failures) == (5, [])
    profiles = stage_profiles(strategy)
    shown = {}
    for item in reception.to_process:
        version = ledger.version(item)
        chunks = read_records(store.version_path(version, "chunks", profiles["chunks"]), Chunk)
        assert chunks and verify_version(store, version, profiles, chunks) == []
        links = read_records(store.version_path(version, "media", profiles["media"]), MediaLink)
        shown[version.loader] = [link.reason for link in links if not link.asset_id] + [
            link.mime for link in links if link.asset_id
        ]
    assert shown == {
        "pptx": [],
        "epub": ["image/png"],
        "mhtml": [],
        "eml": [],
        "ipynb": ["image/png"],
    }
    ledger.close()
