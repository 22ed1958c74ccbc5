"""Datasets that people keep in a spreadsheet."""

from __future__ import annotations

from pathlib import Path

import openpyxl
import pytest

from rag_platform.errors import InputError
from rag_platform.evaluation.cases import EvalCase, ExpectedText
from rag_platform.evaluation.sources import open_dataset

HEAD = "case_id,query,expected_text,expected_text,expected_files,tags,should_refuse\n"
ROWS = (
    'port,"Which port, then?",port 8080,TLS,ports.md; tls.md,net;en,\n'
    ",食堂几点开门？,,,,zh；misc,TRUE\n"
)
CASES = (
    EvalCase(
        case_id="port",
        query="Which port, then?",
        expected_text=(ExpectedText(text="port 8080"), ExpectedText(text="TLS")),
        expected_files=("ports.md", "tls.md"),
        tags=("net", "en"),
    ),
    EvalCase(case_id="asked-2", query="食堂几点开门？", tags=("zh", "misc"), should_refuse=True),
)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "gb18030", "utf-16"])
def test_a_csv_file_is_read_as_any_spreadsheet_saves_it(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "asked.csv"
    path.write_bytes((HEAD + ROWS).replace("\n", "\r\n").encode(encoding))
    assert open_dataset(str(path)).cases == CASES


def test_a_workbook_is_read_by_its_first_sheet(tmp_path: Path) -> None:
    book = openpyxl.Workbook()
    sheet = book.active
    assert sheet is not None
    for row in (
        ["问题", "文件", "应拒答", "标签"],
        ["年假有几天？", "handbook.md", None, None],
        [],
        ["食堂几点开门？", None, True, "zh"],
    ):
        sheet.append(row)
    book.create_sheet("Notes").append(["not", "read"])
    book.save(tmp_path / "asked.xlsx")
    assert open_dataset(str(tmp_path / "asked.xlsx")).cases == (
        EvalCase(case_id="asked-1", query="年假有几天？", expected_files=("handbook.md",)),
        EvalCase(case_id="asked-2", query="食堂几点开门？", tags=("zh",), should_refuse=True),
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "asked,file\nWhich port?,a.md\n",
            "a.csv, line 1: no column is called `query`: asked, file",
        ),
        ("query,file\nWhich port, then?,a.md\n", "a.csv, line 2: 'a.md' in column 3 has no header"),
        ('query,file\n"Which port?,a.md\n', "a.csv: a quote in line 2 is never closed"),
        (
            'query,should_refuse\n"Which\nport?",no\nWhy?,maybe\n',
            "a.csv, line 4, column 2 (should_refuse): true or false is wanted, not 'maybe'",
        ),
        ("query,doc_scope\nWhy?,tags\n", "line 2, column 2 (doc_scope): 'tags' is not JSON"),
        ("query,file\nWhy?,\n", "a.csv, line 2: case 'a-1' expects nothing"),
        ("query,query\nWhy?,How?\n", "a.csv, line 2: query is given twice"),
        ("query,file\n", "a.csv holds no cases"),
        ("", "a.csv: the file is empty"),
    ],
)
def test_what_cannot_be_read_is_named_with_line_and_column(
    tmp_path: Path, text: str, said: str
) -> None:
    path = tmp_path / "a.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as raised:
        open_dataset(str(path))
    assert said in str(raised.value) and raised.value.code == "invalid_dataset"
