"""Signs that MuPDF has no letters for cost a page nothing."""

from __future__ import annotations

from pathlib import Path

import pymupdf
import pytest

from rag_platform.loaders.pdf.characters import text_flags
from rag_platform.loaders.pdf.mupdf import PdfLoader
from rag_platform.loaders.pdf.textpages import TextPage
from rag_platform_tests.glyphs import seen, write_glyphs

# an ornate bracket of the Koran, the basmala as one sign, a Yiddish point, a mark over a letter
SIGNS = ["\ufd3f", "\ufdfd", "\ufb1e", "\ufbb2"]


def written(path: Path) -> list[tuple[str, float, float]]:
    with pymupdf.open(path) as document:
        blocks = TextPage(document[0], text_flags()).blocks()
    return [
        (char["c"], round(char["bbox"][0]), round(char["bbox"][2]))
        for block in blocks
        for line in block["lines"]
        for span in line["spans"]
        for char in span["chars"]
    ]


@pytest.mark.parametrize("sign", SIGNS)
@pytest.mark.parametrize("profile", ["layout", "fast"])
def test_a_page_with_such_a_sign_is_read(sign: str, profile: str, tmp_path: Path):
    path = write_glyphs(tmp_path / "signs.pdf", [*seen("kept "), (sign, 140, 6)])
    loaded = PdfLoader(profile=profile).load(path, "signs.pdf")
    assert "kept" in loaded.text
    assert loaded.summary.warnings == ()


def test_latin_ligatures_beside_such_a_sign_are_taken_apart_as_everywhere(tmp_path: Path):
    line = [*seen("e"), ("\ufb03", 106, 9), *seen("x", 115)]
    apart = [("e", 100, 106), ("f", 106, 115), ("f", 115, 115), ("i", 115, 115), ("x", 115, 121)]
    assert written(write_glyphs(tmp_path / "plain.pdf", line)) == apart
    beside = write_glyphs(tmp_path / "beside.pdf", [*line, ("\ufd3f", 140, 6)])
    assert written(beside)[:5] == apart
