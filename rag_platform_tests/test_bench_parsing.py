"""The measures of bench/parsing.py on texts small enough to count by hand."""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
from collections import Counter
from pathlib import Path

import pymupdf
import pytest

SOURCE = Path(__file__).resolve().parent.parent / "bench" / "parsing_measures.py"


@pytest.fixture(scope="module")
def measures():
    spec = importlib.util.spec_from_file_location("parsing_measures", SOURCE)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_a_file_without_a_truth_is_left_out_and_counted(tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(SOURCE.parent))
    parsing = importlib.import_module("parsing")
    with pymupdf.open() as document:
        document.new_page().insert_text((72, 200), "Four words stand here")
        document.save(tmp_path / "a.pdf")
    (tmp_path / "a.txt").write_text("Four words stand here", encoding="utf-8")
    entries = [{"pdf": "a.pdf", "truth": "a.txt"}, {"pdf": "b.pdf", "truth": None}]
    lines = [json.dumps({"kind": "text", "human_made": True, **entry}) for entry in entries]
    (tmp_path / "index.jsonl").write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "olmocr-tests.jsonl").write_text("", encoding="utf-8")
    rows = {
        name: {"text": "Four words stand here", "body": "Four words stand here", "error": ""}
        for name in ("a.pdf", "b.pdf")
    }
    figures = parsing.truth_figures(tmp_path, rows)
    assert (list(figures["files"]), figures["words"], figures["without_truth"]) == (
        ["a.pdf"],
        1.0,
        1,
    )
    speed = dict.fromkeys(
        ("pages", "pages_per_processor_second", "pages_per_second", "peak_mb"), 1.0
    ) | {"failed": {}, "notes": {}}
    parsing._report({"fast": {"truth": figures, "speed": speed}}, "truth")
    assert "(1 without a truth left out)" in capsys.readouterr().out


def test_words_lose_their_markup_and_ideographs_stand_alone(measures):
    text = (
        "## The **word**\n"
        "\n"
        "| a | b<br>c |\n"
        "| --- | --- |\n"
        "![x](y.png) [link](http://x.y/z) 中文 وpython"
    )
    assert measures.words(text) == ["the", "word", "a", "b", "c", "link", "中", "文", "و", "python"]


def test_a_moved_run_of_words_costs_its_own_share_of_the_order(measures):
    words = [f"w{i}" for i in range(20)]
    assert measures.order_share(" ".join(words), " ".join(words)) == 1.0
    # 14 of 17 runs survive, the longer half of them in order
    moved = " ".join([*words[10:], *words[:10]])
    assert measures.order_share(moved, " ".join(words)) == 7 / 14


def test_a_spanning_cell_has_a_neighbour_in_each_column_and_empty_cells_are_passed_over(measures):
    html = (
        "<table><tr><td"
        " colspan=2>Y</td><td>Z</td></tr><tr><td>a</td><td></td><td>c</td></tr></table>"
    )
    (cells,) = measures.tables(html)
    assert measures.relations(cells) == Counter(
        [("y", "z", "right"), ("a", "c", "right"), ("y", "a", "down"), ("z", "c", "down")]
    )
    assert ("a", "c", "right") not in measures.relations(cells, strict=True)


def test_pipe_tables_are_read_with_escaped_pipes(measures):
    (cells,) = measures.tables("text\n\n| a\\|b | 1 |\n| --- | --- |\n|  | **2** |\n")
    assert [(cell.row, cell.col, cell.text) for cell in cells] == [
        (0, 0, "a|b"),
        (0, 1, "1"),
        (1, 1, "2"),
    ]


def test_an_excerpt_is_compared_with_its_part_of_the_truth(measures):
    truth = "one two three\nfour five six\nseven eight nine\nten eleven twelve\n"
    assert (
        measures.covered(truth, "four five six seven eight nine")
        == "four five six\nseven eight nine\n"
    )
    assert measures.covered(truth, "one two three four five six seven eight") == truth


@pytest.mark.parametrize(
    ("test", "passed"),
    [
        ({"type": "present", "text": "a “quoted” word"}, True),
        ({"type": "present", "text": "A quoted"}, False),
        ({"type": "present", "text": "a 'quoten' word", "max_diffs": 3}, True),
        ({"type": "absent", "text": "footer"}, True),
        ({"type": "order", "before": "a ", "after": "end"}, True),
        ({"type": "order", "before": "end", "after": "quoted"}, False),
        ({"type": "table", "cell": "1", "up": "h", "left_heading": "r"}, True),
        ({"type": "table", "cell": "1", "up": "r"}, False),
        ({"type": "math", "math": "e^{i \\pi}+1=0"}, True),
    ],
)
def test_checks_in_the_manner_of_olmocr(measures, test, passed):
    markdown = "**a** ''quoted'' word\n\n| x | h |\n| --- | --- |\n| r | 1 |\n\neiπ + 1 = 0\n\nend"
    assert measures.passes(test, markdown) is passed
