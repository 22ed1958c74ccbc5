"""What stands in a form field with a cell for each character is a word, a password is no text."""

from __future__ import annotations

from pathlib import Path

import pymupdf
import pytest

from rag_platform.loaders.pdf.mupdf import PdfLoader

COMB = 1 << 24


def write(path: Path, cells: float, turn: int = 0, flags: int = COMB) -> None:
    """A form whose fields have cells of so many points."""
    with pymupdf.open() as document:
        page = document.new_page()
        for label, value, top in (("Postcode", "90210", 100), ("Tax number", "48 815", 140)):
            page.insert_text((60, top), label)
            field = pymupdf.Widget()
            field.field_name, field.field_value = label, value
            field.field_type, field.field_flags = pymupdf.PDF_WIDGET_TYPE_TEXT, flags
            field.text_maxlen, field.text_fontsize = len(value), 11
            field.rect = pymupdf.Rect(150, top - 12, 150 + cells * len(value), top + 6)
            page.add_widget(field)
        page.set_rotation(turn)
        document.save(path)


@pytest.mark.parametrize("turn", [0, 90])
@pytest.mark.parametrize("cells", [10, 20])
@pytest.mark.parametrize("profile", ["fast", "layout"])
def test_a_value_with_a_cell_for_each_character_is_one_word(
    tmp_path: Path, profile: str, cells: float, turn: int
) -> None:
    write(tmp_path / "form.pdf", cells, turn)
    facts = PdfLoader(profile=profile).load(tmp_path / "form.pdf", "form.pdf")
    assert {"90210", "48", "815"} <= set(facts.text.split())
    assert PdfLoader().verify_blocks(tmp_path / "form.pdf", facts.text, facts.blocks) == {}


def test_other_fields_are_read_as_they_are_printed(tmp_path: Path) -> None:
    write(tmp_path / "form.pdf", 20, flags=0)
    facts = PdfLoader(profile="fast").load(tmp_path / "form.pdf", "form.pdf")
    assert {"90210", "48", "815"} <= set(facts.text.split())


@pytest.mark.parametrize("profile", ["fast", "layout"])
def test_a_password_is_read_as_the_asterisks_that_a_viewer_shows(
    tmp_path: Path, profile: str
) -> None:
    write(tmp_path / "form.pdf", 20, flags=1 << 13)
    facts = PdfLoader(profile=profile).load(tmp_path / "form.pdf", "form.pdf")
    said = facts.text.split()
    assert {"Postcode", "*****", "**", "***"} <= set(said)
    assert not {"90210", "48", "815"} & set(said)
    assert facts.summary.hidden == ()
    assert PdfLoader().verify_blocks(tmp_path / "form.pdf", facts.text, facts.blocks) == {}
