"""What two parties sign side by side is read party by party, whichever way it was typed."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pymupdf
import pytest

from rag_platform.loaders.pdf.mupdf import PdfLoader

PARTIES = (
    ("ACME CORPORATION", "By: ________", "Name: John Smith", "Date: 3 May 2021"),
    ("BETA HOLDINGS LLC", "By: ________", "Name: Mary Jones", "Date: 4 May 2021"),
)
甲乙 = (
    ("甲方（盖章）：云海公司", "代表：李雷", "电话：010-12345678"),
    ("乙方（盖章）：星河公司", "代表：韩梅梅", "电话：021-87654321"),
)


def _read(path: Path, page_lines: list[tuple[float, float, str]], profile: str) -> list[str]:
    with pymupdf.open() as document:
        page = document.new_page()
        for x, y, text in page_lines:
            font = "china-s" if text[0] > "\u2e80" else "helv"
            page.insert_text((x, y), text, fontname=font, fontsize=11)
        document.save(path)
    loader = PdfLoader(profile=profile)
    facts = loader.load(path, path.name)
    assert loader.verify_blocks(path, facts.text, facts.blocks) == {}
    return [facts.text[block.start : block.end].replace("\\", "") for block in facts.blocks]


@pytest.mark.parametrize("profile", ["fast", "layout"])
@pytest.mark.parametrize("typed", ["by rows", "by columns", "with spaces"])
@pytest.mark.parametrize("parties", [PARTIES, 甲乙])
def test_signatures_side_by_side_are_read_party_by_party(
    tmp_path: Path, parties: tuple[tuple[str, ...], ...], typed: str, profile: str
) -> None:
    above = "The parties have signed this agreement on the dates that stand below their names."
    lines = [(72.0, 100.0, above)]
    if typed == "with spaces":
        for row, (one, other) in enumerate(zip(*parties, strict=True)):
            wide = pymupdf.get_text_length(one, "china-s" if one[0] > "\u2e80" else "helv", 11)
            space = 11.0 if one[0] > "\u2e80" else 0.278 * 11
            blanks = " " * round((230 - wide) / space)
            lines.append((72.0, 150.0 + 20 * row, one + blanks + other))
    else:
        cells = [
            (72 + 230 * column, 150.0 + 20 * row, text)
            for column, party in enumerate(parties)
            for row, text in enumerate(party)
        ]
        lines += sorted(cells, key=lambda cell: cell[1]) if typed == "by rows" else cells
    texts = _read(tmp_path / "contract.pdf", lines, profile)
    assert texts[0] == above
    assert " ".join(texts[1:]) == " ".join(text for party in parties for text in party)


@pytest.mark.parametrize("profile", ["fast", "layout"])
def test_rows_without_the_same_labels_are_read_across(tmp_path: Path, profile: str) -> None:
    rows = (("Pump", "P-101", "North hall"), ("Note:", "spare", "Note:"), ("Valve", "V-7", "Yard"))
    lines = [
        (72.0 + 130 * column, 100.0 + 14 * row, text)
        for row, cells in enumerate(rows)
        for column, text in enumerate(cells)
    ]
    said = " ".join(_read(tmp_path / "rows.pdf", lines, profile))
    places = [said.index(text) for text in ("Pump", "P-101", "North hall", "spare", "Valve", "V-7")]
    assert all(one < other for one, other in pairwise(places))


@pytest.mark.parametrize("profile", ["fast", "layout"])
def test_a_label_with_a_colon_begins_a_paragraph(tmp_path: Path, profile: str) -> None:
    fields = (
        "联系人：张三",
        "电话：010-88886666",
        "地址：北京市海淀区中关村大街一号",
        "邮编：100080",
    )
    lines = [(72.0, 100.0 + 14 * row, text) for row, text in enumerate(fields)]
    prose = (
        "a line that goes on to what the contract calls the",
        "Seller: whoever sends the goods",
    )
    lines += [(72.0, 200.0 + 14 * row, text) for row, text in enumerate(prose)]
    assert _read(tmp_path / "fields.pdf", lines, profile) == [*fields, " ".join(prose)]
