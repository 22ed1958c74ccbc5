"""Odd PDFs from their bytes to chunks: every word arrives on its page, none that nobody sees.
bench/odd_pdfs.py runs all of them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from rag_platform.config.ingestion import LoadingConfig
from rag_platform.config.query import ProviderConfig
from rag_platform.config.settings import load_settings
from rag_platform.config.strategies import load_strategy
from rag_platform.documents.previewing import preview
from rag_platform_tests.odd_pdfs import KINDS, odd_pdf, problems

SETTINGS = load_settings()
BY_LAYOUT = (4, 8, 33)  # one-liners, hidden words and a form: the model takes half a second a page


@pytest.mark.parametrize(
    ("number", "profile"),
    [
        *((number, "fast") for number in range(4 * len(KINDS))),
        *((number, "layout") for number in BY_LAYOUT),
    ],
)
def test_words_arrive_on_their_pages_and_hidden_ones_do_not(
    tmp_path: Path, number: int, profile: str
) -> None:
    strategy = load_strategy(SETTINGS, "fast")
    pdf_only = LoadingConfig(
        loaders=(ProviderConfig(provider="pdf", options={"profile": profile}),)
    )
    made = odd_pdf(tmp_path, number)
    found = preview(made.path, strategy.model_copy(update={"loading": pdf_only}), SETTINGS)
    said: dict[int, str] = {}
    for chunk in found.work.chunks:
        for page in range(chunk.page_start or 0, (chunk.page_end or 0) + 1):
            said[page] = f"{said.get(page, '')} {chunk.chunk_text}"
    assert problems(made, said, found.work.summary.title) == []
