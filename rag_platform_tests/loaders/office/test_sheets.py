"""CSV and XLSX: rows under their header, locators that are proved, nothing cut silently."""

from __future__ import annotations

import datetime
import zipfile
from dataclasses import replace
from pathlib import Path

import openpyxl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from openpyxl.comments import Comment

from rag_platform.chunkers.source_locations import merge_locators
from rag_platform.contract.markdown_views import format_locator
from rag_platform.errors import DocumentError
from rag_platform.loaders.office.ooxml import A
from rag_platform.loaders.office.sheet_tables import (
    Row,
    Size,
    column_letters,
    find_problem,
    group_rows,
    sheet_parts,
)
from rag_platform.loaders.office.sheets import CsvLoader, XlsxLoader, format_value, sniff_delimiter
from rag_platform.loaders.parts import join_parts

SMALL = Size(chars=120, tokens=200, cells=2000)


def rows(*lines: tuple[str, ...]) -> list[Row]:
    return [Row(number, cells) for number, cells in enumerate(lines, 1)]


def texts(*lines: tuple[str, ...], size: Size = SMALL) -> list[tuple[str, str]]:
    return [(group.locator("S"), group.text) for group in group_rows(rows(*lines), size)]


def csv_file(folder: Path, text: str, encoding: str = "utf-8") -> Path:
    path = folder / "a.csv"
    path.write_bytes(text.encode(encoding))
    return path


def book(folder: Path, **sheets: list[list[object]]) -> Path:
    made = openpyxl.Workbook()
    made.remove(made.active)
    for name, lines in sheets.items():
        sheet = made.create_sheet(name)
        for line in lines:
            sheet.append(line)
    made.save(folder / "a.xlsx")
    return folder / "a.xlsx"


def rewritten(path: Path, target: Path, old: bytes, new: bytes) -> Path:
    """The container with `old` replaced by `new` in its parts, which must hold it."""
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(target, "w") as changed:
        parts = {name: source.read(name) for name in source.namelist()}
        assert any(old in data for data in parts.values())
        for name, data in parts.items():
            changed.writestr(name, data.replace(old, new))
    return target


# --- rows to groups -----------------------------------------------------------------------------


def test_each_group_repeats_the_header_and_names_its_rows():
    lines = [("name", "amount"), *((f"item {number}", str(number)) for number in range(1, 13))]
    found = texts(*lines)
    assert found[0] == (
        "sheet=S;rows=2-6;head=1",
        "| name | amount |\n| --- | --- |\n"
        + "\n".join(f"| item {n} | {n} |" for n in range(1, 6)),
    )
    assert [locator for locator, _ in found] == [
        "sheet=S;rows=2-6;head=1",
        "sheet=S;rows=7-11;head=1",
        "sheet=S;rows=12-13;head=1",
    ]
    assert all(text.startswith("| name | amount |\n| --- | --- |\n") for _, text in found)


def test_titles_stand_above_the_table_and_numbers_need_no_header():
    found = texts(("Report", ""), ("", ""), ("1", "2"), ("3", "4"))
    assert found == [
        ("sheet=S;rows=1", "Report"),
        ("sheet=S;rows=3-4", "| A | B |\n| --- | --- |\n| 1 | 2 |\n| 3 | 4 |"),
    ]


def test_a_region_behind_a_blank_row_goes_on_under_its_header_or_opens_its_own():
    same = texts(("name", "town"), ("Ann", "Bonn"), ("", ""), ("Bob", "Rome"))
    assert [text.splitlines()[0] for _, text in same] == ["| name | town |", "| name | town |"]
    other = texts(("name", "size"), ("Ann", "3"), ("", ""), ("city", "mayor"), ("Rome", "Bob"))
    assert [text.splitlines()[0] for _, text in other] == ["| name | size |", "| city | mayor |"]


def test_a_header_of_two_rows_is_joined_column_by_column():
    found = texts(("Region", "Sales", "Sales"), ("Region", "2022", "2023"), ("North", "1", "2"))
    assert found == [
        (
            "sheet=S;rows=3;head=1-2",
            "| Region | Sales / 2022 | Sales / 2023 |\n| --- | --- | --- |\n| North | 1 | 2 |",
        )
    ]


def test_a_wide_header_never_makes_a_group_longer_than_twice_its_rows():
    header = tuple(f"a long name of column {n}" for n in range(9))
    found = list(group_rows(rows(header, *(tuple("xy" for _ in header) for _ in range(40))), SMALL))
    for group in found[:-1]:
        head, _, *body = group.text.split("\n")
        assert sum(map(len, body)) >= len(head)


def test_columns_have_the_names_of_a_spreadsheet():
    assert [column_letters(index) for index in (0, 25, 26, 701, 702)] == [
        "A",
        "Z",
        "AA",
        "ZZ",
        "AAA",
    ]


cell = st.text(st.sampled_from("ab1| \\\n-#é中`"), max_size=6)


@given(st.lists(st.lists(cell, max_size=4).map(tuple), max_size=12))
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_every_group_is_proved_and_no_cell_is_lost(lines):
    given_rows = [Row(number, cells) for number, cells in enumerate(lines, 1)]
    text, blocks, _ = join_parts(sheet_parts([("S", group_rows(given_rows, SMALL))]), "empty")
    numbered = {row.number: row for row in given_rows}
    assert {
        block.locator: find_problem(text, block, numbered)
        for block in blocks
        if block.kind != "heading"
    } == {block.locator: "" for block in blocks if block.kind != "heading"}
    for char in "ab1é中":
        assert (char in "".join("".join(cells) for cells in lines)) <= (char in text)


# --- CSV ----------------------------------------------------------------------------------------


def test_a_csv_file_has_lines_rows_and_its_delimiter(tmp_path):
    path = csv_file(
        tmp_path, 'Name;Amount;Note\r\nAnn;1,5;"two\r\nlines | pipe"\r\n\r\nBob;2;=1+1\r\n'
    )
    facts = CsvLoader().load(path, "sales.csv")
    assert (
        facts.text
        == "| Name | Amount | Note |\n| --- | --- | --- |\n| Ann | 1,5 | two lines \\| pipe |\n\n"
        "| Name | Amount | Note |\n| --- | --- | --- |\n| Bob | 2 | =1+1 |\n"
    )
    assert [(block.locator, block.line_start, block.line_end) for block in facts.blocks] == [
        ("rows=2;head=1", 2, 3),
        ("rows=4;head=1", 5, 5),
    ]
    assert (facts.summary.title, facts.summary.metadata, facts.summary.encoding) == (
        "sales",
        {"delimiter": ";", "records": 3},
        "utf-8",
    )
    assert CsvLoader().verify_blocks(path, facts.text, facts.blocks) == {}


@pytest.mark.parametrize(
    "text",
    [
        "| Name | Amount |\n| --- | --- |\n| Ann | 2 |",
        "| Nome | Amount |\n| --- | --- |\n| Ann | 1 |",
    ],
)
def test_a_changed_cell_or_header_is_not_proved(tmp_path, text):
    path = csv_file(tmp_path, "Name,Amount\nAnn,1\n")
    block = replace(CsvLoader().load(path, "a.csv").blocks[0], end=len(text))
    assert list(CsvLoader().verify_blocks(path, text, [block])) == [0]


@pytest.mark.parametrize(
    ("text", "delimiter"),
    [
        ("a,b\n1,2", ","),
        ("a;b\n1,5;2,5", ";"),
        ("a\tb\nc\td", "\t"),
        ("a|b\nc|d", "|"),
        ("words", ","),
    ],
)
def test_the_delimiter_is_found(text, delimiter):
    assert sniff_delimiter(text) == delimiter


def test_the_line_that_names_the_delimiter_is_no_record(tmp_path):
    facts = CsvLoader().load(csv_file(tmp_path, "sep=|\na|b\n1|2\n"), "a.csv")
    assert facts.text == "| a | b |\n| --- | --- |\n| 1 | 2 |\n"


def test_a_chinese_file_in_its_old_encoding_is_read(tmp_path):
    facts = CsvLoader().load(
        csv_file(tmp_path, "姓名,部门\n张三,财务部门\n李四,技术部门\n", "gbk"), "a.csv"
    )
    assert "| 张三 | 财务部门 |" in facts.text and facts.summary.encoding == "gb18030"


def test_an_open_quote_swallows_nothing(tmp_path):
    facts = CsvLoader().load(csv_file(tmp_path, 'a,b\n"open,1\n' + "x,2\n" * 60_000), "a.csv")
    assert '"open' in facts.text and facts.text.count("| x | 2 |") == 60_000
    assert facts.summary.warnings == (
        "a quote in line 2 is never closed; quotes there were read as text",
    )


@pytest.mark.parametrize(
    ("text", "options", "code"),
    [
        (" , \n,\n", {}, "empty_file"),
        ("a,b\n1,2\n", {"max_cells": 3}, "too_large"),
        # 40 names over 40 single cells: 80 cells make a table of 1,640
        (",".join(f"n{i}" for i in range(40)) + "\n1" * 40, {"max_cells": 1000}, "too_large"),
    ],
)
def test_what_is_no_table_is_refused(tmp_path, text, options, code):
    with pytest.raises(DocumentError) as caught:
        CsvLoader(**options).load(csv_file(tmp_path, text), "a.csv")
    assert caught.value.code == code


def test_short_rows_below_a_wide_header_are_filled(tmp_path):
    text = "a,b,c,d\n" + "1\n" * 300  # 304 cells make a table of 1,204
    facts = CsvLoader(max_cells=1000).load(csv_file(tmp_path, text), "a.csv")
    assert facts.text.count("| 1 |  |  |  |") == 300


# --- XLSX ---------------------------------------------------------------------------------------


def test_each_sheet_has_a_heading_its_rows_and_a_proof(tmp_path):
    path = book(
        tmp_path,
        **{
            "Q1; 50%": [["name", "day"], ["Ann", datetime.datetime(2023, 5, 1, 12, 30)]],
            "Empty": [],
            "Notes": [["Only words"]],
        },
    )
    facts = XlsxLoader().load(path, "plan.xlsx")
    assert (
        facts.text == "# Q1; 50%\n\n| name | day |\n| --- | --- |\n| Ann | 2023-05-01 12:30 |\n\n#"
        " Notes\n\nOnly words\n"
    )
    assert [(block.kind, block.locator) for block in facts.blocks] == [
        ("heading", "sheet=Q1%3B 50%25"),
        ("table", "sheet=Q1%3B 50%25;rows=2;head=1"),
        ("heading", "sheet=Notes"),
        ("paragraph", "sheet=Notes;rows=1"),
    ]
    assert XlsxLoader().verify_blocks(path, facts.text, facts.blocks) == {}
    assert list(
        XlsxLoader().verify_blocks(path, facts.text.replace("Ann", "Ana"), facts.blocks)
    ) == [1]
    assert (
        facts.summary.metadata["sheets"] == ["Q1; 50%", "Notes"] and facts.summary.title == "plan"
    )


def test_merged_cells_links_formulas_and_hidden_sheets(tmp_path):
    made = openpyxl.Workbook()
    sheet = made.active
    for line in (["Group", None, "Total"], ["a", "b", None], ["x", 1, "=A1+1"], [None, 2, 3]):
        sheet.append(line)
    sheet.merge_cells("A1:B1")
    sheet.merge_cells("C1:C2")
    sheet.merge_cells("A3:A4")
    sheet["A3"].hyperlink = "https://example.com/x"
    made.create_sheet("secret").append(["s"])
    made["secret"].sheet_state = "hidden"
    made.save(tmp_path / "a.xlsx")
    facts = XlsxLoader().load(tmp_path / "a.xlsx", "a.xlsx")
    assert facts.text.splitlines()[2:] == [
        "| Group / a | Group / b | Total |",
        "| --- | --- | --- |",
        "| [x](https://example.com/x) | 1 | =A1+1 |",
        "| [x](https://example.com/x) | 2 | 3 |",
    ]
    assert any("shown as formulas: 1; open" in warning for warning in facts.summary.warnings)
    assert any(
        "hidden sheets were not read: secret" in warning for warning in facts.summary.warnings
    )
    assert "# secret" in XlsxLoader(hidden_sheets=True).load(tmp_path / "a.xlsx", "a.xlsx").text


def test_hidden_rows_and_columns_are_told(tmp_path):
    made = openpyxl.load_workbook(book(tmp_path, S=[["name", "pay"], ["Ann", 12], ["Bob", 14]]))
    made.active.row_dimensions[2].hidden = True
    made.active.column_dimensions["B"].hidden = True
    made.save(tmp_path / "a.xlsx")
    facts = XlsxLoader().load(tmp_path / "a.xlsx", "a.xlsx")
    assert "| Ann | 12 |" in facts.text
    assert facts.summary.warnings == ("sheet 'S': hidden columns and rows were read too",)


def test_comments_and_text_boxes_stand_behind_the_rows_of_their_sheet(tmp_path):
    made = openpyxl.load_workbook(book(tmp_path, S=[["name", "pay"], ["Ann", 12], ["Bob", 14]]))
    for place, said in (("B3", "with\nbonus"), ("A2", "[Threaded comment]"), ("D9", "later")):
        made.active[place].comment = Comment(said, "Eve")
    made.save(tmp_path / "a.xlsx")
    related, ns = (
        b'<Relationship Id="%s" Type="x/%s" Target="../drawings/%s.xml"/>',
        b"xmlns:a='%s'",
    )
    path = rewritten(
        tmp_path / "a.xlsx",
        tmp_path / "b.xlsx",
        b"</Relationships>",
        related % (b"t", b"threadedComment", b"t")
        + related % (b"d", b"drawing", b"d")
        + b"</Relationships>",
    )
    box = b"<x><from><col>0</col><row>4</row></from><a:p><a:r><a:t>%s</a:t></a:r></a:p></x>"
    with zipfile.ZipFile(path, "a") as package:
        package.writestr("xl/drawings/t.xml", '<t><c ref="A2"><text>on leave</text></c></t>')
        drawn = box % b"Paid monthly." + box % b" "
        package.writestr("xl/drawings/d.xml", b"<d %s>%s</d>" % (ns % A[1:-1].encode(), drawn))
    facts = XlsxLoader().load(path, "b.xlsx")
    assert facts.summary.warnings == ()
    assert facts.text.split("\n\n")[2:] == [
        "A2 (Ann): on leave",
        "B3 (Bob, 14): with bonus",
        "Paid monthly.",
        "D9: later\n",
    ]
    assert facts.blocks[3].locator == "sheet=S;rows=3;note=2"
    assert XlsxLoader().verify_blocks(path, facts.text, facts.blocks) == {}
    other = facts.text.replace("14): with", "14): sans")
    assert list(XlsxLoader().verify_blocks(path, other, facts.blocks)) == [3]


def test_a_lying_dimension_loses_no_row(tmp_path):
    path = book(tmp_path, S=[["name", "n"], *([f"row {n}", n] for n in range(50))])
    lying = rewritten(path, tmp_path / "b.xlsx", b'ref="A1:B51"', b'ref="A1"')
    assert "row 49" in XlsxLoader().load(lying, "b.xlsx").text


@pytest.mark.parametrize(
    ("value", "form", "text"),
    [
        (0.256, "0%", "26%"),
        (0.256, "0.0%", "25.6%"),
        (1234.5, "#,##0.00", "1,234.50"),
        (-3.0, '"$"#,##0.00_-', "-$3.00"),
        (7, "000-00", "000-07"),
        (1234567.891, '#,##0.00 "EUR"', "1,234,567.89 EUR"),
        (123, "00000", "00123"),
        (-1234.5, "#,##0.00_);[Red](#,##0.00)", "(1,234.50)"),
        (0, '_(* #,##0_);_(* (#,##0);_(* "-"_);_(@_)', "-"),
        (1234.5, "#,##0.00\\ [$€-407]", "1,234.50 €"),
        (0.00001234, "0.00E+00", "1.23E-05"),
        (1.5, "# ?/?", "1 1/2"),
        (-0.375, "# ?/?", "-3/8"),
        (0.1, "0 ?/?", "0 1/9"),
        (2, "# ??/??", "2"),
        (5.3125, "#\\ ??/??", "5 5/16"),
        (1.25, "?/?", "5/4"),
        (2.3, "# ?/4", "2 1/4"),
        (0.997, "# ?/100", "1"),
        (0.5, '# ?/?" in"', "1/2 in"),
        (0.5, "0.0/0", "0.5"),
        (2500000, '[>=1000000]0.0,,"M";0', "2.5M"),
        (-5, "[>=1000]0.0;[>=10]0;0", "-5"),
        (5551234567, "(###) ###-####", "(555) 123-4567"),
        (2.675, "0.00", "2.68"),
        (1e19, "0.0000000000%", "1" + "0" * 21 + "." + "0" * 10 + "%"),
        (3, '0" kg"', "3 kg"),
        (7, ";;;", "7"),
        (2, "#.##", "2"),
        (45000, "no such format", "45000"),
        (datetime.datetime(2024, 12, 1), "mmm-yy", "Dec-24"),
        (datetime.datetime(2024, 12, 1), 'yyyy"年"m"月"', "2024年12月"),
        (datetime.datetime(2024, 12, 31), "dd.mm.yyyy", "2024-12-31"),
        (0.1 + 0.2, "General", "0.3"),
        (1e21, "General", "1e+21"),
        (5.0, "General", "5"),
        (True, "General", "TRUE"),
        ("#N/A", "General", "#N/A"),
        ("one_x000D_\ntwo_x0009_three_x001F_", "General", "one\r\ntwo\tthree"),
        ("part_x00A0_9", "General", "part_x00A0_9"),
        (datetime.datetime(2023, 1, 2), "yyyy-mm-dd", "2023-01-02"),
        (datetime.datetime(2023, 1, 2), "d/m/yy h:mm", "2023-01-02 00:00"),
        (datetime.time(9, 5), "h:mm", "09:05"),
        (datetime.time(0, 5), "h:mm AM/PM", "12:05 AM"),
        (datetime.time(14, 30, 9), "hh:mm:ss am/pm", "2:30:09 PM"),
        (datetime.timedelta(hours=30, minutes=1), "[h]:mm", "30:01"),
        (datetime.timedelta(hours=30, minutes=1), "[h]:mm:ss", "30:01:00"),
        (datetime.timedelta(hours=30, seconds=7), "[h]:mm", "30:00:07"),
        (2.5, "[Red]0.0;-0.0", "2.5"),
    ],
)
def test_values_read_as_the_sheet_shows_them(value, form, text):
    assert format_value(value, form) == text


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"PK\x03\x04 cut off", "broken_file"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + "EncryptedPackage".encode("utf-16-le"), "encrypted"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1 Workbook", "unsupported_type"),
        (b"<html></html>", "unsupported_type"),
    ],
)
def test_what_is_no_workbook_is_refused(tmp_path, content, code):
    path = tmp_path / "a.xlsx"
    path.write_bytes(content)
    with pytest.raises(DocumentError) as caught:
        XlsxLoader().load(path, "a.xlsx")
    assert caught.value.code == code


def test_a_strict_workbook_is_read(tmp_path):
    strict = book(tmp_path, Q1=[["city", "day"], ["Bern", datetime.date(2026, 5, 1)]])
    text = XlsxLoader().load(strict, "a.xlsx").text
    for name in (b"officeDocument", b"spreadsheetml"):
        usual = b"http://schemas.openxmlformats.org/%s/2006/" % name
        target = tmp_path / f"{name}.xlsx"
        strict = rewritten(strict, target, usual, b"http://purl.oclc.org/ooxml/%s/" % name)
    facts = XlsxLoader().load(strict, "a.xlsx")
    assert facts.text == text and "| Bern | 2026-05-01 |" in text
    assert XlsxLoader().verify_blocks(strict, facts.text, facts.blocks) == {}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'<cellStyle name="Normal"', b"<cellStyle"),
        (b"<cellXfs ", b'<cellXfs tool="7" '),
        # Hancom's
        (
            b'<xf numFmtId="164" fontId="0" fillId="0" borderId="0" pivotButton="0" quotePrefix="0"'
            b' xfId="0"/></cellXfs>',
            b'<m:AlternateContent xmlns:m="http://schemas.openxmlformats.org/'
            b'markup-compatibility/2006"><m:Choice><xf numFmtId="14"/></m:Choice><m:Fallback>'
            b'<xf numFmtId="14"/></m:Fallback></m:AlternateContent></cellXfs>',
        ),
    ],
)
def test_styles_of_other_programs_cost_no_workbook(tmp_path, old, new):
    path = book(tmp_path, Q1=[["city", "day"], ["Bern", datetime.date(2026, 5, 1)]])
    facts = XlsxLoader().load(rewritten(path, tmp_path / "b.xlsx", old, new), "a.xlsx")
    assert "| Bern | 2026-05-01 |" in facts.text


def test_too_many_cells_are_refused_not_cut(tmp_path):
    path = book(tmp_path, A=[[1, 2], [3, 4]], B=[[5, 6]])
    with pytest.raises(DocumentError, match=r"above limits\.max_cells = 5") as caught:
        XlsxLoader(max_cells=5).load(path, "a.xlsx")
    assert caught.value.code == "too_large"


def test_merged_areas_over_everything_are_refused(tmp_path):
    path = book(tmp_path, S=[["x"] * 50, *([[]] * 38), ["end"]])
    merged = rewritten(
        path,
        tmp_path / "b.xlsx",
        b"</sheetData>",
        b'</sheetData><mergeCells count="1"><mergeCell ref="A1:XFD1048576"/></mergeCells>',
    )
    with pytest.raises(DocumentError, match="max_cells"):
        XlsxLoader(max_cells=1000).load(merged, "b.xlsx")


def test_a_cell_beyond_all_measure_is_refused(tmp_path):
    with pytest.raises(DocumentError, match="line 2 has more than 200000"):
        CsvLoader().load(csv_file(tmp_path, "a,b\n1," + "x" * 300_000 + "\n2,y\n"), "a.csv")


def test_rows_without_a_header_get_no_invented_one(tmp_path):
    path = csv_file(tmp_path, "1,2\n3,4\n")
    facts = CsvLoader().load(path, "a.csv")
    assert facts.text == "|  |  |\n| --- | --- |\n| 1 | 2 |\n| 3 | 4 |\n"
    assert CsvLoader().verify_blocks(path, facts.text, facts.blocks) == {}
    forged = facts.text.replace("|  |  |", "| EUR |  |", 1)
    block = replace(facts.blocks[0], end=facts.blocks[0].end + 3)
    assert list(CsvLoader().verify_blocks(path, forged, [block])) == [0]


@pytest.mark.parametrize(
    ("text", "rows", "line"),
    [
        # the next quote would end it
        (
            'a,b\n1,"abc,x\n2,"d,e"\n3,z\n',
            ['| 1 | "abc | x |', "| 2 | d,e |  |", "| 3 | z |  |"],
            2,
        ),
        (
            'a,b\n1,"two\nlines"\n2,"open\n3,4\n',
            ["| 1 | two lines |", '| 2 | "open |', "| 3 | 4 |"],
            4,
        ),
        ('a,b\n1,x\n2,"open', ["| 1 | x |", '| 2 | "open |'], 3),
        ('a,b\n2,"5"" pipe"\n1,"x" y\n', ['| 2 | 5" pipe |', "| 1 | x y |"], 0),
    ],
)
def test_a_quote_that_is_never_closed_merges_no_rows(tmp_path, text, rows, line):
    path = csv_file(tmp_path, text)
    facts = CsvLoader().load(path, "a.csv")
    assert facts.text.splitlines()[2:] == rows
    assert [f"line {line} " in warning for warning in facts.summary.warnings] == [True] * bool(line)
    assert CsvLoader().verify_blocks(path, facts.text, facts.blocks) == {}


SIDE_BY_SIDE = [
    ["Staff", "", "", "Rooms"],
    ["Name", "Grade", "", "Room", "Seats"],
    ["Ines", "B2", "", "Oak", 12],
    ["Jon", "C1", "", "Elm", 30],
    ["Mara", "A3"],
    ["Piet", "B1", "", "Lift", "Persons"],
    ["Rosa", "B4", "", "East", 8],
]


def test_tables_side_by_side_are_read_apart(tmp_path):
    path = book(tmp_path, S=SIDE_BY_SIDE)
    facts = XlsxLoader().load(path, "a.xlsx")
    assert [(block.locator, facts.text[block.start : block.end]) for block in facts.blocks][1:] == [
        ("sheet=S;columns=A-B;rows=1", "Staff"),
        (
            "sheet=S;columns=A-B;rows=3-7;head=2",
            "| Name | Grade |\n| --- | --- |\n| Ines | B2 |\n| Jon | C1 |\n| Mara | A3 |\n"
            "| Piet | B1 |\n| Rosa | B4 |",
        ),
        ("sheet=S;columns=D-E;rows=1", "Rooms"),
        (
            "sheet=S;columns=D-E;rows=3-4;head=2",
            "| Room | Seats |\n| --- | --- |\n| Oak | 12 |\n| Elm | 30 |",
        ),
        (
            "sheet=S;columns=D-E;rows=7;head=6",
            "| Lift | Persons |\n| --- | --- |\n| East | 8 |",
        ),
    ]
    assert XlsxLoader().verify_blocks(path, facts.text, facts.blocks) == {}
    other = [replace(block, locator=block.locator.replace("D-E", "A-B")) for block in facts.blocks]
    assert set(XlsxLoader().verify_blocks(path, facts.text, other)) == {3, 4, 5}
    assert format_locator(facts.blocks[2].locator) == "sheet S, columns A-B, rows 3-7"
    assert merge_locators([block.locator for block in facts.blocks]) == (
        "sheet=S;columns=A-B;rows=1-7, sheet=S;columns=D-E;rows=1-7"
    )


@pytest.mark.parametrize(("tables", "apart"), [(50, True), (51, False)])
def test_very_many_tables_side_by_side_are_read_as_one(tmp_path, tables, apart):
    path = book(tmp_path, S=[["Name", "Grade", ""] * tables, ["Ines", "B", ""] * tables])
    locators = {block.locator for block in XlsxLoader().load(path, "a.xlsx").blocks}
    assert any("columns=" in locator for locator in locators) == apart


@pytest.mark.parametrize(
    ("lines", "apart"),
    [
        # an own column of dates, under the name of the first table's
        ([("Day", "Out", "", "Day", "In"), ("2024-03-01", "9", "", "2024-03-02", "7")], True),
        # figures of the same rows, repeated texts, and labels of a form are one table
        ([("Land", "City", "", "Guests", "Nights"), ("Italy", "Bari", "", "51", "120")], False),
        (
            [
                ("Name", "Tel", "", "City", "Zip"),
                ("A", "1", "", "Graz", "8"),
                ("B", "2", "", "Graz", "9"),
            ],
            False,
        ),
        ([("Client:", "Moss", "", "Order:", "A7"), ("Site:", "Hull", "", "Agent:", "Orr")], False),
    ],
)
def test_columns_behind_a_gap_are_a_table_of_their_own_only_with_own_keys(lines, apart):
    assert any("columns=" in place for place, _ in texts(*lines)) is apart


def test_a_workbook_without_properties_has_no_dates(tmp_path: Path):
    """openpyxl would give it the time at which it is read."""
    source = book(tmp_path, S=[["a", "b"], [1, 2]])
    assert {"created", "modified"} <= XlsxLoader().load(source, "a.xlsx").summary.metadata.keys()
    bare = rewritten(source, tmp_path / "bare.xlsx", b"core-properties", b"other-properties")
    assert XlsxLoader().load(bare, "a.xlsx").summary.metadata == {
        "sheets": ["S"],
        "hidden_sheets": [],
    }
