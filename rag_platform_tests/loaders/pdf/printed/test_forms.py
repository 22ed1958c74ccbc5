"""What stands in a form field with a cell for each character is a word, a password is no text,
and boxes are ticked or empty.
"""

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
        values = (
            ("Postcode", "90210", 100),
            ("Tax number", "48 815", 140),
            ("Bank", "DE0212", 180),
        )
        for label, value, top in values:
            page.insert_text((60, top), label)
            field = pymupdf.Widget()
            field.field_name, field.field_value = label, value
            field.field_type, field.field_flags = pymupdf.PDF_WIDGET_TYPE_TEXT, flags
            field.text_maxlen, field.text_fontsize = len(value), 11
            field.border_width, field.border_color = 1, (0, 0, 0)
            field.rect = pymupdf.Rect(150, top - 12, 150 + cells * len(value), top + 6)
            page.add_widget(field)
        page.set_rotation(turn)
        document.save(path)


@pytest.mark.parametrize("turn", [0, 90])
@pytest.mark.parametrize("cells", [10, 20, 40])
@pytest.mark.parametrize("profile", ["fast", "layout"])
def test_a_value_with_a_cell_for_each_character_is_one_word(
    tmp_path: Path, profile: str, cells: float, turn: int
) -> None:
    write(tmp_path / "form.pdf", cells, turn)
    facts = PdfLoader(profile=profile).load(tmp_path / "form.pdf", "form.pdf")
    assert {"90210", "48", "815", "DE0212"} <= set(facts.text.split())
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
    assert {"Postcode", "*****", "******"} <= set(said)
    assert not {"90210", "48", "815"} & set(said)
    assert facts.summary.hidden == ()
    assert PdfLoader().verify_blocks(tmp_path / "form.pdf", facts.text, facts.blocks) == {}


@pytest.mark.parametrize("profile", ["fast", "layout"])
def test_boxes_that_are_drawn_are_ticked_or_empty(tmp_path: Path, profile: str) -> None:
    with pymupdf.open() as document:
        page = document.new_page()
        page.insert_text((72, 60), "Where do you live?", fontname="hebo", fontsize=14)
        for row, place in enumerate(("Hull", "York", "Leeds", "Ripon")):
            top = 100 + 40 * row
            page.insert_text((92, top), place)
            box = pymupdf.Rect(72, top - 9, 82, top + 1)
            if place == "Ripon":
                page.draw_oval(box, fill=(1, 1, 1))
            else:
                page.draw_rect(box)
            if place == "York":
                page.draw_line(box.tl, box.br)
                page.draw_line(box.tr, box.bl)
            if place == "Leeds":
                page.draw_polyline([(74, top - 4), (76, top - 1), (81, top - 8)])
        document.save(tmp_path / "form.pdf")
    facts = PdfLoader(profile=profile).load(tmp_path / "form.pdf", "form.pdf")
    said = facts.text.split("?")[1].split()
    assert said == "☐ Hull ☑ York ☑ Leeds ☐ Ripon".split()
    assert PdfLoader().verify_blocks(tmp_path / "form.pdf", facts.text, facts.blocks) == {}


@pytest.mark.parametrize("fill", [(0, 0, 1), (1, 1, 1)])
def test_keys_of_charts_and_cells_of_grids_are_no_boxes(tmp_path: Path, fill) -> None:
    """Filled with colours, or side by side."""
    with pymupdf.open() as document:
        page = document.new_page()
        for row, name in enumerate(("Sales", "Costs")):
            page.insert_text((92, 100 + 40 * row), name)
            for left in (72,) if fill == (0, 0, 1) else (62, 72):
                page.draw_rect((left, 91 + 40 * row, left + 10, 101 + 40 * row), fill=fill)
        document.save(tmp_path / "chart.pdf")
    facts = PdfLoader(profile="fast").load(tmp_path / "chart.pdf", "chart.pdf")
    assert facts.text.split() == ["Sales", "Costs"]


@pytest.mark.parametrize("profile", ["fast", "layout"])
def test_bullets_that_are_drawn_begin_entries_of_a_list(tmp_path: Path, profile: str) -> None:
    """Browsers draw them as paths; the point in a ring is a button that is chosen."""
    with pymupdf.open() as document:
        page = document.new_page()
        page.insert_text((72, 60), "What we did in May", fontname="hebo", fontsize=14)
        for row, text in enumerate(("Opened two depots", "Closed the shop in Hull", "Paid")):
            page.insert_text((92, 100 + 14 * row), text)
            middle = (80, 96 + 14 * row)
            page.draw_circle(middle, 1.5, color=None, fill=(0, 0, 0))
            if text == "Paid":
                page.draw_circle(middle, 5)
        document.save(tmp_path / "list.pdf")
    facts = PdfLoader(profile=profile).load(tmp_path / "list.pdf", "list.pdf")
    assert "\n- Opened two depots\n- Closed the shop in Hull" in facts.text
    assert "- Paid" not in facts.text
    assert PdfLoader().verify_blocks(tmp_path / "list.pdf", facts.text, facts.blocks) == {}


def test_a_box_that_text_ends_at_has_no_label(tmp_path: Path) -> None:
    """The last letter reaches over the box, as one that was typed into it."""
    with pymupdf.open() as document:
        page = document.new_page()
        page.insert_text((72, 100), "Size MMM")
        for row in range(2):
            page.draw_rect((112, 91 + 40 * row, 122, 101 + 40 * row))
        document.save(tmp_path / "form.pdf")
    facts = PdfLoader(profile="fast").load(tmp_path / "form.pdf", "form.pdf")
    assert (facts.text, facts.summary.warnings) == ("Size MMM", ())


@pytest.mark.parametrize("profile", ["fast", "layout"])
def test_boxes_right_of_their_labels_are_theirs(tmp_path: Path, profile: str) -> None:
    with pymupdf.open() as document:
        page = document.new_page()
        for row, label in enumerate(("Annual leave", "Unpaid leave", "Study leave")):
            y = 100 + 24 * row
            page.insert_text((72, y), label, fontsize=11)
            page.draw_rect((200, y - 10, 212, y + 2), width=1)
        page.draw_line((202, 92), (210, 100), width=1.5)
        document.save(tmp_path / "form.pdf")
    facts = PdfLoader(profile=profile).load(tmp_path / "form.pdf", "form.pdf")
    said = facts.text.replace("|", " ").split()
    assert [said[said.index(label) + 2] for label in ("Annual", "Unpaid", "Study")] == list("☑☐☐")
    assert PdfLoader().verify_blocks(tmp_path / "form.pdf", facts.text, facts.blocks) == {}
