"""Reading order: smaller print does not stand between the halves of a sentence, and no picture
swallows the columns on it.
"""

from __future__ import annotations

import pytest

from rag_platform.loaders.pdf.layout import (
    drop_backgrounds,
    fit_to_text,
    index_regions,
    join_rows,
    keep_sentences_whole,
    split_at_columns,
    split_columns,
    split_texts,
    trim_overlapping,
)
from rag_platform.loaders.pdf.printed.runs import Char, Run
from rag_platform.loaders.pdf.regions import Region, assign_runs


def run(text: str, x: float, y: float, size: float) -> Run:
    return Run(
        tuple(Char(char, x + i * 5, y, x + (i + 1) * 5, y + size) for i, char in enumerate(text)),
        0,
        size,
        False,
        False,
        True,
    )


def order(*printed: tuple[str, float, str]) -> list[str]:
    """Texts of regions given as (text, size, label), in the order of reading."""
    runs = [run(text, 0, 20 * i, size) for i, (text, size, _) in enumerate(printed) if text]
    regions = [
        Region((0, 20 * i, 500, 20 * i + 15), label) for i, (_, _, label) in enumerate(printed)
    ]
    return [printed[int(region.bbox[1]) // 20][0] for region in keep_sentences_whole(regions, runs)]


def test_a_sentence_goes_on_before_the_smaller_print_that_cuts_it():
    printed = [
        ("shows that a", 9.0, "text"),
        ("Received 2003", 7.0, "section-header"),
        ("", 0.0, "picture"),
        ("company is.", 9.0, "text"),
    ]
    assert order(*printed) == ["shows that a", "company is.", "Received 2003", ""]


@pytest.mark.parametrize(
    "printed",
    [
        # nothing is cut
        [("A sentence.", 9.0, "text"), ("Received 2003", 7.0, "text"), ("lower case", 9.0, "text")],
        [
            ("this shows that a", 9.0, "text"),
            ("Received 2003", 7.0, "text"),
            ("Another one.", 9.0, "text"),
        ],
        # the same size between
        [
            ("this shows that a", 9.0, "text"),
            ("Method", 9.0, "section-header"),
            ("lower case", 9.0, "text"),
        ],
        [
            ("this shows that a", 9.0, "text"),
            ("Received 2003", 7.0, "text"),
            ("lower case", 12.0, "text"),
        ],
        [("1 2", 9.0, "table"), ("Note", 7.0, "text"), ("lower case", 9.0, "text")],
    ],
)
def test_otherwise_the_order_stays(printed):
    assert order(*printed) == [text for text, _, _ in printed]


def test_a_picture_behind_a_paragraph_is_no_region_and_one_with_labels_is():
    paragraph = run(
        "The card opens every door of the car from five metres away, while its lights flash twice"
        " and a beep sounds.",
        20,
        20,
        9.0,
    )
    labels = [
        run("door", 20, 220, 9.0),
        run("The card opens the door from five metres away.", 20, 240, 9.0),
    ]
    behind, figure = Region((0, 0, 600, 100), "picture"), Region((0, 200, 600, 300), "picture")
    text = Region((10, 15, 590, 35), "text")
    inside = [Region((10, 215, 590, 232), "text"), Region((10, 236, 590, 255), "text")]
    assert drop_backgrounds([behind, text, figure, *inside], [paragraph, *labels]) == [
        text,
        figure,
        *inside,
    ]
    heading = Region(text.bbox, "section-header")
    assert drop_backgrounds([behind, heading], [paragraph]) == [behind, heading]


def test_a_text_over_two_columns_of_prose_is_two():
    # lines of 150 points in 10 points size, 12 points apart
    left = [run("x" * 30, 60, 100 + 12 * i, 10.0) for i in range(5)]
    right = [run("y" * 30, 222, 106 + 12 * i, 10.0) for i in range(5)]
    mixed = [line for pair in zip(left, right, strict=True) for line in pair]
    whole = Region((50, 90, 400, 200), "text")
    assert [(region.bbox, region.label) for region in split_columns([whole], mixed)] == [
        ((60, 100, 210, 158), "text"),
        ((222, 106, 372, 164), "text"),
    ]
    # so are texts that overlap, with a line of each cut in two
    for parts in (
        [Region((50, 90, 400, 130), "text"), Region((150, 120, 400, 200), "text")],
        [Region((150, 90, 400, 150), "text"), Region((50, 100, 300, 200), "text")],
    ):
        assert [region.bbox for region in split_columns(parts, mixed)] == [
            (60, 100, 210, 158),
            (222, 106, 372, 164),
        ]
    apart = [Region((50, 90, 215, 200), "text"), Region((220, 90, 400, 200), "text")]
    assert split_columns(apart, mixed) == apart
    # a line across both, two lines only, short lines, another kind of region
    title = run("z" * 60, 60, 92, 10.0)
    names = [run("name", 60, 100 + 12 * i, 10.0) for i in range(5)]
    named = [line for pair in zip(names, right, strict=True) for line in pair]
    for lines, region in (
        ([title, *mixed], whole),
        (mixed[:4], whole),
        (named, whole),
        (mixed, Region(whole.bbox, "table")),
    ):
        assert split_columns([region], lines) == [region]


def test_short_lines_that_are_written_column_by_column_are_read_so() -> None:
    # a sender's address beside the dates of an invoice; 5 points a letter, 12 points a line
    dates = [run(text, 60, 100 + 12 * i, 10.0) for i, text in enumerate(("Date", "Jun 3", "No."))]
    sender = [run(text, 222, 100 + 12 * i, 10.0) for i, text in enumerate(("Demo", "23 Main"))]
    whole = Region((50, 90, 400, 150), "text")
    assert [region.bbox for region in split_columns([whole], [*dates, *sender])] == [
        (60, 100, 85, 134),
        (222, 100, 257, 122),
    ]
    # so is an index, whose lines stand beside each other
    index = [run(f"word, {i}", x, 100 + 12 * i, 10.0) for x in (60, 222) for i in range(9)]
    assert len(split_columns([Region((50, 90, 400, 250), "text")], index)) == 2
    # rows that are written as such, a column of one line, labels, words less than a letter apart,
    # labels without a colon and what was filled in beside them
    rows = [dates[0], sender[0], dates[1], sender[1], dates[2]]
    labels = [run(f"{text}:", 60, 100 + 12 * i, 10.0) for i, text in enumerate(("By", "To", "At"))]
    near = [run(text, 90, 100 + 12 * i, 10.0) for i, text in enumerate(("Demo", "23 Main"))]
    filled = [*dates[:2], *(run("x", 222, 101 + 12 * i, 10.0) for i in range(2))]
    prices = [
        run(text, x, 100 + 5 * i, 10.0)
        for x, text in ((60, "Tea"), (222, "4.50 EUR"), (300, "each"))
        for i in range(9)
    ]
    for lines in (rows, [*dates, sender[0]], [*labels, *sender], [*dates, *near], filled, prices):
        assert split_columns([whole], lines) == [whole]


def test_labels_and_keys_that_are_written_row_by_row_are_one_text() -> None:
    labels = [run(text, 60, 100 + 12 * i, 10.0) for i, text in enumerate(("Save", "Open", "Quit"))]
    keys = [run(text, 222, 100 + 12 * i, 10.0) for i, text in enumerate(("C-s", "C-o", "C-q"))]
    left, right = Region((60, 100, 80, 134), "text"), Region((222, 100, 237, 134), "text")
    above = Region((60, 40, 237, 60), "text")
    rows = [line for pair in zip(labels, keys, strict=True) for line in pair]
    whole = Region((60, 100, 237, 134), "text")
    assert join_rows([above, left, right], rows) == [above, whole]
    # the keys may be in two parts, of which one has a single line
    parts = [Region((222, 100, 237, 122), "text"), Region((222, 124, 237, 134), "text")]
    assert join_rows([left, *parts], rows) == [whole]
    # a third column
    menus = [run(text, 300, 100 + 12 * i, 10.0) for i, text in enumerate(("File", "File", "App"))]
    three = [line for row in zip(labels, keys, menus, strict=True) for line in row]
    assert join_rows([left, right, Region((300, 100, 330, 134), "text")], three) == [
        Region((60, 100, 330, 134), "text")
    ]
    more = [run("as it was", 222, 140 + 12 * i, 10.0) for i in range(3)]
    # written column by column, only two rows, another kind of region, more below, columns of prose
    prose = [run("x" * 30, x, 100 + 12 * i, 10.0) for i in range(3) for x in (60, 222)]
    columns = [Region((60, 100, 210, 134), "text"), Region((222, 100, 372, 134), "text")]
    for regions, lines in (
        ([left, right], [*labels, *keys]),
        ([left, right], rows[:4]),
        ([left, Region(right.bbox, "table")], rows),
        ([left, Region((222, 100, 270, 174), "text")], [*rows, *more]),
        (columns, prose),
    ):
        assert join_rows(regions, lines) == regions


def test_columns_of_an_index_are_read_one_after_the_other() -> None:
    def column(x: float, *names: str) -> list[Run]:
        return [run(f"{name} . . . . . {at}, 17", x, 20 * at, 10) for at, name in enumerate(names)]

    runs = [*column(10, "cat", "close", "count"), *column(250, "odbc", "open", "pipe")]
    runs.append(run("34", 200, 300, 10))
    table, footer = Region((0, 0, 500, 80), "table"), Region((190, 290, 300, 320), "page-footer")
    regions = index_regions([footer, table], runs)
    texts = [
        " ".join(run.text[:5].strip(" .") for run in owned)
        for owned in assign_runs(runs, [region.bbox for region in regions])[0]
    ]
    assert " ".join(texts) == "cat close count odbc open pipe 34" and regions[-1] == footer
    assert index_regions([table], runs[:3]) == []


def parts(*printed: tuple[str, float, float, int, float], rtl: bool = False) -> str:
    """The names of regions, given as (name, x, y, lines, width), as they are read: parts divided by
    `|`. A name in capitals is a heading's, `p...` that of a picture.
    """
    regions: dict[str, Region] = {}
    runs: list[Run] = []
    for name, x, y, lines, width in printed:
        label = "section-header" if name.isupper() else "picture" if name[0] == "p" else "text"
        regions[name] = Region((x, y, x + width, y + 12 * lines), label)
        if label != "picture":
            runs += [run("x" * int(width // 5), x, y + 12 * i, 10) for i in range(lines)]
    names = {region.bbox: name for name, region in regions.items()}
    read = split_at_columns(list(regions.values()), runs, rtl=rtl)
    return " | ".join(" ".join(names[region.bbox] for region in part) for part in read)


def test_columns_of_prose_are_read_one_after_the_other():
    """Though a heading, or the end of a column, has nothing beside it."""
    title, left, right = ("TITLE", 0, 0, 2, 480), ("a", 0, 70, 9, 230), ("B", 250, 50, 1, 90)
    rest = (("b", 250, 70, 4, 230), ("c", 0, 200, 3, 230), ("d", 0, 250, 3, 230))
    assert parts(title, left, right, *rest) == "TITLE | a c d | B b"
    assert parts(title, left, right, *rest, rtl=True) == "TITLE | B b | a c d"
    # what reaches over both columns divides them
    whole = ("e", 0, 190, 1, 480)
    assert parts(left, *rest, whole) == "a | b | e | c d"
    picture = ("p", 100, 185, 1, 280)
    assert parts(left, *rest, picture, ("f", 250, 210, 2, 230)) == "a | b | p | c d | f"


def test_cells_margins_and_short_lines_are_no_columns():
    text = ("a", 100, 0, 9, 380)
    assert parts(text, ("b", 0, 0, 9, 90)) == "a b"
    assert parts(("b", 0, 0, 9, 45), ("c", 60, 0, 9, 45)) == "b c"
    assert parts(("b", 0, 0, 1, 230), ("c", 250, 0, 1, 230)) == "b c"
    assert parts(text) == "a"


def titles(*lines: tuple[str, float, float], label: str = "text") -> list[tuple[str, str]]:
    """(label, words) of the regions made of one, whose lines are (words, y, size)."""
    runs = [run(text, 10, y, size) for text, y, size in lines]
    regions = split_texts([Region((0, 0, 500, 200), label)], runs)
    pieces, orphans = assign_runs(runs, [region.bbox for region in regions])
    assert not orphans
    return [
        (region.label, " ".join(piece.text for piece in owned))
        for region, owned in zip(regions, pieces, strict=True)
    ]


def test_a_first_line_in_much_larger_print_is_a_heading():
    body = (("压力过高", 40, 20), ("水温过低", 70, 20))
    split = [("section-header", "风险与对策"), ("text", "压力过高 水温过低")]
    assert titles(("风险与对策", 0, 32), *body) == split
    whole = [("text", "风险与对策 压力过高 水温过低")]
    assert titles(("风险与对策", 0, 24), *body) == whole
    assert titles(("风", 0, 32), *body) == [("text", "风 压力过高 水温过低")]  # an initial
    assert titles(("风险与对策", 0, 50), *body) == whole  # one that reaches down beside the text
    assert titles(("风险", 0, 32), *body, label="picture") == [
        ("picture", "风险 压力过高 水温过低")
    ]


def test_a_text_begins_anew_at_a_wider_gap_or_the_mark_of_an_entry():
    lines = (("It ends here.", 0, 10), ("All of it.", 14, 10), ("A new one begins.", 34, 10))
    assert titles(*lines) == [("text", "It ends here. All of it."), ("text", "A new one begins.")]
    going_on = (*lines[:2], ("a line with a fraction", 34, 10))
    assert titles(*going_on) == [("text", "It ends here. All of it. a line with a fraction")]
    clauses = (("现通知如下：", 0, 10), ("一、总体要求", 14, 10))
    assert titles(*clauses) == [("text", "现通知如下："), ("text", "一、总体要求")]


def test_each_term_of_a_list_begins_a_text_with_its_explanation() -> None:
    def split(*lines: tuple[tuple[str, float, bool], ...]) -> list[str]:
        runs = [
            run(text, x, 30 * at, 10)._replace(mono=mono)
            for at, line in enumerate(lines)
            for text, x, mono in line
        ]
        regions = split_texts([Region((0, 0, 200, 200), "text")], runs)
        pieces, _ = assign_runs(runs, [region.bbox for region in regions])
        return [" ".join(piece.text for piece in owned) for owned in pieces]

    real = (("float(p)", 10, True), ("a real number, often with a", 62, False))
    goes_on = (("precision", 62, True),)
    time = (("time", 10, True), ("time of day", 62, False))
    assert split(real, goes_on, time) == [
        "float(p) a real number, often with a precision",
        "time time of day",
    ]
    # a line of a paragraph whose wide spaces meet no column
    paragraph = (("it is read by the functions", 10, False),)
    assert split(paragraph, (("scan", 10, True), ("and others", 48, False))) == [
        "it is read by the functions scan and others"
    ]


def test_the_title_of_a_slide_and_of_its_column_are_two_headings():
    lines = (("Scope of the Work", 0, 28), ("Benefits", 40, 18))
    assert titles(*lines, label="section-header") == [
        ("section-header", "Scope of the Work"),
        ("section-header", "Benefits"),
    ]


def test_a_line_in_larger_print_on_top_of_a_table_heads_it():
    lines = (("Request for Leave", 0, 18), ("Name", 40, 10), ("Department", 60, 10))
    assert titles(*lines, label="table") == [
        ("section-header", "Request for Leave"),
        ("table", "Name Department"),
    ]


def test_a_region_around_others_is_cut_to_the_text_that_they_leave_it():
    runs = [run("before", 10, 0, 10), run("a heading", 10, 40, 10), run("behind", 10, 80, 10)]
    regions = [Region((0, 0, 60, 95), "text"), Region((5, 35, 60, 55), "section-header")]
    inner = [*regions, Region((8, 0, 42, 12), "text")]
    assert [region.bbox for region in fit_to_text(inner, runs)] == [
        (10, 80, 40, 90),
        *(region.bbox for region in inner[1:]),
    ]


def test_texts_are_cut_clear_of_others_and_pictures_are_not():
    runs = [run("signed in June", 10, 0, 10)]
    regions = [
        Region((0, 0, 300, 60), "text"),
        Region((0, 30, 90, 60), "text"),
        Region((50, 30, 90, 60), "picture"),
        Region((0, 70, 90, 80), "text"),
    ]
    assert trim_overlapping(regions, [Region((0, 30, 300, 60), "text")], runs) == [
        Region((10, 0, 80, 10), "text"),
        *regions[2:],
    ]
