"""Signs that MuPDF has no letters for cost a page nothing."""

from __future__ import annotations

from pathlib import Path

import pymupdf
import pytest

from rag_platform.loaders.pdf.mupdf import PdfLoader
from rag_platform.loaders.pdf.printed.characters import text_flags
from rag_platform.loaders.pdf.printed.textpages import TextPage
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


@pytest.mark.parametrize("profile", ["layout", "fast"])
def test_a_gradient_that_nothing_bounds_costs_no_page(profile: str, tmp_path: Path):
    path = tmp_path / "gradient.pdf"
    with pymupdf.open() as document:
        page = document.new_page()
        page.insert_text((72, 100), "kept on a gradient")
        resources = document.xref_get_key(page.xref, "Resources")[1]
        document.xref_set_key(
            int(resources.split()[0]),
            "Shading",
            "<</S <</ShadingType 2 /ColorSpace /DeviceGray /Coords [0 0 0 842] /Extend [true true]"
            " /Function <</FunctionType 2 /Domain [0 1] /C0 [.6] /C1 [1] /N 1>>>>>>",
        )
        (text,) = page.get_contents()
        document.update_stream(text, b"q /S sh Q " + document.xref_stream(text))
        document.save(path)
    loaded = PdfLoader(profile=profile).load(path, "gradient.pdf")
    assert loaded.text == "kept on a gradient"
    assert loaded.summary.warnings == ()
