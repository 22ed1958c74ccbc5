"""Table regions as pipe tables: whole words, columns the grid missed, header cells spelled out, and
their proof.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_platform.loaders.pdf import tables
from rag_platform.loaders.pdf.printed.runs import Char, Run
from rag_platform.loaders.pdf.regions import Region, matches_print, region_letters


def run(text: str, x: float, y: float, width: float = 5.0) -> Run:
    """A line of 10-point text whose characters are all as wide."""
    chars = tuple(
        Char(char, x + i * width, y, x + (i + 1) * width, y + 10) for i, char in enumerate(text)
    )
    return Run(chars, 0, 10, False, False, True)


def centred(text: str, middle: float, y: float) -> Run:
    return run(text, middle - 2.5 * len(text), y)


def table(runs: list[Run], columns: tuple[float, ...], rows: tuple[float, ...]) -> list[list[str]]:
    """The cells of the pipe table, proved against the printed letters."""
    text = tables.table_text(runs, Region((0, 0, 400, 200), "table", (columns, rows)), frozenset())
    assert matches_print("table", text, region_letters(runs))
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text.split("\n")
        if "---" not in line
    ]


def test_cells_are_found_by_the_centre_of_each_phrase_and_pipes_are_escaped():
    text = tables.table_text(
        [run("ab|", 0, 0), run("cd", 60, 0), run("ef", 0, 22), run("gh", 60, 22)],
        Region((0, 0, 100, 40), "table", ((50.0,), (20.0,))),
        frozenset(),
    )
    assert text == "| ab\\| | cd |\n| --- | --- |\n| ef | gh |"


def test_a_border_through_a_word_or_a_phrase_cuts_neither():
    runs = [run("Show Schedule", 0, 0, 4), run("ab", 0, 20), run("cd", 50, 20)]
    assert table(runs, (30.0,), (15.0,)) == [["Show Schedule", ""], ["ab", "cd"]]


def test_figures_a_space_apart_are_cells_of_their_own():
    runs = [run("x", 0, 0), run("y", 60, 0), run("1,040 1,120", 20, 20, 4)]
    assert table(runs, (42.0,), (15.0,)) == [["x", "y"], ["1,040", "1,120"]]


def test_a_line_with_a_label_and_a_figure_below_others_is_a_row_of_its_own() -> None:
    runs = [
        *(run("State", 0, 0), run("2023", 100, 0), run("2024", 200, 0)),
        *(run("Utah", 0, 20), run("30,252", 100, 20), run("30,253", 200, 20)),
        *(run("Ohio", 0, 32), run("61,274", 100, 32), run("61,094", 200, 32)),
        *(run("Sum", 100, 44), run("9.00", 200, 44)),
    ]
    assert table(runs, (80.0, 180.0), (15.0,)) == [
        ["State", "2023", "2024"],
        ["Utah", "30,252", "30,253"],
        ["Ohio", "61,274", "61,094"],
        ["", "Sum", "9.00"],
    ]
    # a figure in brackets belongs to the one above it, and so does what is centred beside two lines
    stacked = [*runs[:6], run("per head", 0, 32), run("(1.2)", 100, 32), run("(0.9)", 200, 32)]
    assert table(stacked, (80.0, 180.0), (15.0,)) == [
        ["State", "2023", "2024"],
        ["Utah per head", "30,252 (1.2)", "30,253 (0.9)"],
    ]
    several = [*runs[:3], run("One", 0, 20), run("a b c", 100, 20), run("64, 65,", 200, 20)]
    several += [run("more", 0, 32), run("d e", 100, 32), run("66", 200, 32)]
    assert table(several, (80.0, 180.0), (15.0,))[1] == ["One more", "a b c d e", "64, 65, 66"]
    centred = [
        *runs[:3],
        *(run("1", 0, 26), run("a pump", 100, 20), run("of steel", 100, 32), run("7", 200, 26)),
        *(run("2", 0, 50), run("a tank", 100, 44), run("of wood", 100, 56), run("8", 200, 50)),
    ]
    assert len(table(centred, (80.0, 180.0), (15.0,))) == 2


def test_a_line_for_which_the_cell_above_had_no_room_is_no_row_of_its_own() -> None:
    runs = [
        *(run("File", 0, 0), run("Purpose", 100, 0)),
        *(run("main.tex", 0, 20), run("what is typeset", 100, 20)),
        run("in the end", 100, 32),
        *(run("cover", 0, 44), run("a page", 100, 44)),
        run("or two", 100, 56),
    ]
    assert table(runs, (80.0,), (15.0, 31.0, 43.0, 55.0)) == [
        ["File", "Purpose"],
        ["main.tex", "what is typeset in the end"],
        ["cover", "a page"],
        ["", "or two"],  # would have fitted behind "a page"
    ]
    centred = [*runs[:5], run("a picture", 100, 44), run("cover", 0, 50), run("of it", 100, 56)]
    assert table(centred, (80.0,), (15.0, 31.0, 43.0))[2:] == [["cover", "a picture of it"]]
    words = [
        chinese(0, ("文件", 0), ("说明", 100)),
        *(chinese(20, ("封面", 0), ("论文的封面与题名", 100)), chinese(38, ("页", 100))),
    ]
    assert table(words, (80.0,), (15.0, 35.0))[1:] == [["封面", "论文的封面与题名页"]]


def test_a_caption_in_a_table_hides_no_column() -> None:
    rows = [("A", "1.2", "3.4"), ("B", "1.3", "3.5"), ("C", "1.4", "3.6"), ("D", "1.5", "3.7")]
    runs = [run("Table 1: Mean flow by site and year", 60, 0, 4)]
    for at, (site, mean, deviation) in enumerate(rows, start=1):
        y = 20.0 * at
        runs += [run(site, 0, y), run(mean, 100, y), run(deviation, 160, y)]
    found = table(runs, (60.0,), (15.0, 35.0, 55.0, 75.0))
    assert found[1:] == [list(row) for row in rows]


def chinese(y: float, *words: tuple[str, float]) -> Run:
    """A line of 10-point text without a space; each word from its x on, 10 a character."""
    chars = [
        Char(char, x + i * 10, y, x + (i + 1) * 10, y + 10)
        for word, x in words
        for i, char in enumerate(word)
    ]
    return Run(tuple(chars), 0, 10, False, False, True)


def test_chinese_is_cut_where_a_border_stands_in_a_gap_and_at_no_other_gap():
    runs = [
        chinese(0, ("姓名", 0), ("职务", 44), ("电话", 98)),
        chinese(20, ("欧阳娜娜", 0), ("高级工程师", 44), ("139000", 98)),
        chinese(40, ("王", 0), ("小二", 13), ("会计", 44), ("137000", 98)),
    ]
    assert table(runs, (42.0, 96.0), (15.0, 35.0)) == [
        ["姓名", "职务", "电话"],
        ["欧阳娜娜", "高级工程师", "139000"],
        ["王小二", "会计", "137000"],
    ]


def test_words_a_space_apart_are_two_cells_where_a_line_is_drawn_between_them():
    runs = [run("bolt M8 Wurth", 0, 0, 4), run("nut", 0, 20), run("Keller", 40, 20)]
    grid = (31.0,), (15.0,)
    one, two = (
        tables.table_text(runs, Region((0, 0, 99, 40), "table", grid, rules), frozenset())
        for rules in ((), ((30.5, 0.0, 15.0),))
    )
    assert one.startswith("| bolt M8 Wurth |  |")
    assert two == "| bolt M8 | Wurth |\n| --- | --- |\n| nut | Keller |"


def test_chinese_that_nearly_touches_is_cut_where_a_line_is_drawn():
    runs = [
        chinese(0, ("类别", 0), ("区域", 50)),
        chinese(20, ("易燃液体", 8), ("东库", 50)),
        chinese(40, ("包装材料", 8), ("西库", 50)),
    ]
    grid, rules = ((49.0,), (15.0, 35.0)), ((49.5, 0.0, 55.0),)
    one, two = (
        tables.table_text(runs, Region((0, 0, 99, 55), "table", grid, found), frozenset())
        for found in ((), rules)
    )
    assert one.endswith("| 易燃液体东库 |  |\n| 包装材料西库 |  |")
    assert two.endswith("| 易燃液体 | 东库 |\n| 包装材料 | 西库 |")


def test_a_centred_header_is_one_column_with_the_cells_at_the_left_of_it():
    runs = [run("Item", 0, 0), run("Place", 120, 0)]
    runs += [run("nut", 0, 20), run("Hall A", 60, 20)]
    runs += [run("bolt", 0, 40), run("Hall B", 60, 40)]
    grid = (40.0, 100.0), (15.0, 35.0)
    joined = [["Item", "Place"], ["nut", "Hall A"], ["bolt", "Hall B"]]
    assert table(runs, *grid) == joined
    both = [*runs, run("old", 120, 40)]
    assert table(both, *grid) == [
        ["Item", "", "Place"],
        ["nut", "Hall A", ""],
        ["bolt", "Hall B", "old"],
    ]
    named = [*runs, run("Hall", 60, 0)]
    assert table(named, *grid)[0] == ["Item", "Hall", "Place"]


def test_two_columns_in_one_of_the_grid_are_told_apart_by_the_gap_their_rows_share():
    rows = [("Code", "Sum"), ("A1", "10"), ("B22", "2,000"), ("C3", "37")]
    runs = [
        piece
        for i, (one, two) in enumerate(rows)
        for piece in (run("r", 0, 20 * i), run(one, 40, 20 * i), run(two, 90, 20 * i))
    ]
    assert table(runs, (30.0,), (15.0, 35.0, 55.0)) == [["r", *row] for row in rows]


def test_running_text_in_a_cell_is_no_reason_to_split_its_column():
    runs = [
        run("a", 0, 0),
        run("one or two words", 40, 0),
        run("b", 0, 20),
        run("some other words", 40, 20),
        run("c", 0, 40),
    ]
    assert table(runs, (30.0,), (15.0, 35.0)) == [
        ["a", "one or two words"],
        ["b", "some other words"],
        ["c", ""],
    ]


def test_a_header_over_several_columns_stands_over_each_of_them():
    runs = [
        centred("Year", 150, 0),
        run("Item", 0, 20),
        centred("2023", 100, 20),
        centred("2024", 150, 20),
        centred("2025", 200, 20),
    ]
    runs += [
        run("Sales", 0, 40),
        centred("1.5", 100, 40),
        centred("2.5", 150, 40),
        centred("3.5", 200, 40),
    ]
    assert table(runs, (75.0, 125.0, 175.0), (15.0, 35.0)) == [
        ["", "Year", "Year", "Year"],
        ["Item", "2023", "2024", "2025"],
        ["Sales", "1.5", "2.5", "3.5"],
    ]


@pytest.mark.parametrize(
    ("text", "printed", "proved"),
    [
        ("| a | a |\n| --- | --- |\n| b | c |", "abc", True),  # the header cell is spelled out
        ("| a | a |\n| --- | --- |\n| b | c |", "aabc", True),  # two cells that are equal
        # not in the body
        (
            "| a | x |\n| --- | --- |\n| b | b |\n" + "| d | e |\n" * 5 + "| f | f |",
            "axb" + "de" * 5 + "f",
            False,
        ),
        ("| a | b |\n| --- | --- |\n| b | c |", "abc", False),  # no repetition of its neighbour
        ("| a | a |\n| --- | --- |\n| b | c |", "abcd", False),  # a letter is missing
        ("| a | a |\n| --- | --- |\n| b | c |", "abd", False),
    ],
)
def test_a_repeated_header_cell_is_proved_by_the_one_it_repeats(text, printed, proved):
    assert matches_print("table", text, printed) is proved


def test_a_region_of_one_column_or_one_row_is_no_table():
    region = Region((0, 0, 100, 40), "table", ((50.0,), (20.0,)))
    assert tables.table_text([run("ab", 0, 0), run("cd", 0, 22)], region, frozenset()) == ""
    assert tables.table_text([run("ab", 0, 0), run("cd", 60, 0)], region, frozenset()) == ""
    assert tables.table_text([run("ab", 0, 0)], Region((0, 0, 9, 9), "table"), frozenset()) == ""


places = st.tuples(
    st.text("abc123 .$", min_size=1, max_size=9), st.integers(0, 200), st.integers(0, 150)
)
borders = st.lists(st.integers(1, 200).map(float), max_size=5, unique=True).map(
    lambda found: tuple(sorted(found))
)


@given(st.lists(places, max_size=20), borders, borders)
def test_no_letter_is_lost_or_added_whatever_the_grid(printed, columns, rows):
    runs = [run(text, x, y) for text, x, y in printed if not text.isspace()]
    text = tables.table_text(runs, Region((0, 0, 400, 200), "table", (columns, rows)), frozenset())
    assert text == "" or matches_print("table", text, region_letters(runs))


def test_a_cell_of_several_lines_stands_between_the_lines_drawn_around_its_row() -> None:
    runs = [
        *(run(text, x, 0) for text, x in (("value", 0), ("name", 60), ("action", 120))),
        *(run(text, x, 30) for text, x in (("15", 0), ("SIGTERM", 60))),
        *(run("terminate", 120, 22), run("the process", 120, 36)),
        *(run(text, x, 60) for text, x in (("9", 0), ("SIGKILL", 60), ("kill", 120))),
    ]
    lines = ((50.0, 110.0), (15.0, 50.0))
    region = Region((0, 0, 400, 200), "table", ((50, 110), (15, 31, 50)), lines=lines)
    rows = tables.table_text(runs, region, frozenset()).split("\n")
    assert rows[2:] == ["| 15 | SIGTERM | terminate the process |", "| 9 | SIGKILL | kill |"]
    # a header in two lines
    runs[:3] = [run("signal", 60, -2), run("what it", 120, -2)]
    runs += [run("value", 0, 5), run("name", 60, 9), run("does", 120, 9)]
    split = replace(region, grid=((50, 110), (9, 15, 31, 50)))
    header = tables.table_text(runs, split, frozenset()).split("\n")[0]
    assert header == "| value | signal name | what it does |"
    # two rows that fill the same cells are two, also where no line is drawn between them
    apart = replace(region, lines=((50.0, 110.0), (15.0, 90.0)))
    assert len(tables.table_text(runs, apart, frozenset()).split("\n")) == 5


def test_a_table_that_lies_on_its_side_has_no_grid_that_would_cut_words() -> None:
    turned = [
        Run(
            tuple(Char(char, x, y - 5 * i, x + 10, y - 5 * i + 5) for i, char in enumerate(text)),
            0,
            10,
            False,
            False,
            False,
        )
        for x, row in enumerate((("spindle", "36"), ("bearing", "12")))
        for x, y, text in ((20 * x, 100, row[0]), (20 * x, 40, row[1]))
    ]
    region = Region((0, 0, 60, 120), "table", ((15.0,), (50.0, 80.0)))
    assert tables.table_text(turned, region, frozenset()) == ""


def aligned(*rows: tuple[tuple[str, float], ...]) -> str:
    """The pipe table of lines of (text, left edge), 12 points apart."""
    printed = [[run(text, x, 12 * at) for text, x in row] for at, row in enumerate(rows)]
    return tables.aligned_text(printed, Region((0, 0, 400, 200), "text"), frozenset())


def test_rows_of_aligned_cells_are_a_table_without_a_header() -> None:
    keys = (("Save", "C-s"), ("Finding it", "C-x C-f"), ("Quit", "C-q"), ("unconditionally", ""))
    card = [tuple((text, x) for text, x in zip(row, (0, 90), strict=True) if text) for row in keys]
    assert aligned(*card) == (
        "|  |  |\n| --- | --- |\n| Save | C-s |\n| Finding it | C-x C-f |\n| Quit | C-q |"
        "\n| unconditionally |  |"
    )


def test_a_currency_sign_at_the_edge_of_a_cell_belongs_to_the_amount_behind_it() -> None:
    sold = (("Sold", 0), ("$", 60), ("120 $", 110), ("(7)", 190))
    cost = (("Cost in $ terms", 0), ("(80)", 110), ("12", 195))
    left = (("Left", 0), ("$", 60), ("30 $", 115), ("-", 200))
    assert aligned(sold, cost, left) == (
        "|  |  |  |\n| --- | --- | --- |\n| Sold | $ 120 | $ (7) |"
        "\n| Cost in $ terms | (80) | 12 |\n| Left | $ 30 | $ - |"
    )


def test_currency_signs_behind_their_amounts_stay_there() -> None:
    rows = (("Sold", "120", "7"), ("Cost", "80", "12"), ("Left", "30", "9"))
    one_run = [((label, 0), (f"{one} €", 110), (f"{two} €", 190)) for label, one, two in rows]
    apart = [
        ((label, 0), (one, 110), ("€", 135), (two, 190), ("€", 205)) for label, one, two in rows
    ]
    body = "\n".join(f"| {label} | {one} € | {two} € |" for label, one, two in rows)
    for table in (one_run, apart):
        assert aligned(*table) == f"|  |  |  |\n| --- | --- | --- |\n{body}"


def test_a_header_centred_over_signs_and_amounts_is_one_cell() -> None:
    dates = (("July 29, 2023", 85), ("July 30, 2022", 185))
    rows = [
        tuple((text, x) for text, x in zip(row, (0, 80, 130, 180, 230), strict=True) if text)
        for row in (
            ("Revenue", "$", "8,890", "$", "9,569"),
            ("Cost", "", "6,838", "", "7,460"),
            ("Profit", "$", "2,052", "$", "2,109"),
        )
    ]
    assert aligned(dates, *rows) == (
        "|  | July 29, 2023 | July 30, 2022 |\n| --- | --- | --- |\n| Revenue | $ 8,890 | $ 9,569 |"
        "\n| Cost | 6,838 | 7,460 |\n| Profit | $ 2,052 | $ 2,109 |"
    )


@pytest.mark.parametrize(
    ("rows", "left"),
    [
        ((("Sold", "120"), ("Cost", "(80)"), ("Tax", "(10)"), ("Left", "(30)")), 90.0),
        (
            (
                ("Save the buffer to its own file", "C-x C-s"),
                ("Save the buffer to another file", "C-x C-w"),
                ("Read a file into the buffer here", "C-x C-f"),
            ),
            300.0,
        ),
        ((("save", "C-s"), ("open", "C-o"), ("quit", "C-q"), ("find", "C-f")), 90.0),
    ],
)
def test_what_looks_like_equations_or_prose_may_be_cells(
    rows: tuple[tuple[str, str], ...], left: float
) -> None:
    """Figures in brackets, many words, and words that are all as long."""
    shown = aligned(*[((label, 0.0), (value, left)) for label, value in rows])
    assert shown.split("\n")[2:] == [f"| {label} | {value} |" for label, value in rows]


def test_rows_are_headed_only_by_a_row_that_names_each_column_of_figures() -> None:
    def columns(*rows: str) -> str:
        return aligned(*[tuple((c, 90 * i) for i, c in enumerate(row.split())) for row in rows])

    figures = columns("Year Sold", "2020 5", "2021 7")
    assert figures == "| Year | Sold |\n| --- | --- |\n| 2020 | 5 |\n| 2021 | 7 |"
    for rows in (
        ("Name Bob", "Age 42", "City Bonn"),  # labels and their values
        ("2015 2016", "Sold 5 7", "Lost 2 3", "Kept 3 4"),  # no name above the last column
        ("Quarter Quarter", "First Second", "5 7", "8 9"),  # a header of two rows
    ):
        body = columns(*rows).split("\n")
        assert set(body[0]) == {"|", " "} and rows[0].split()[0] in body[2]


def test_a_header_of_several_rows_is_one_of_names_and_repeats_those_over_several_columns() -> None:
    weeks, dates = (("13 Weeks", 105),), (("May 28,", 85), ("May 29,", 165))
    years = (("Sales in", 0), ("2023", 85), ("2022", 165))
    rows = [
        (("Bonn", 0), ("8,890", 80), ("9,569", 160)),
        (("Rome", 0), ("6,838", 80), ("7,460", 160)),
        (("Kiel", 0), ("2,052", 80), ("2,109", 160)),
    ]
    body = "| Bonn | 8,890 | 9,569 |\n| Rome | 6,838 | 7,460 |\n| Kiel | 2,052 | 2,109 |"
    names = "| Sales in | May 28, 2023 | May 29, 2022 |"
    assert aligned(dates, years, *rows) == f"{names}\n| --- | --- | --- |\n{body}"
    assert aligned(weeks, dates, years, *rows) == (
        f"|  | 13 Weeks | 13 Weeks |\n| --- | --- | --- |\n{names}\n{body}"
    )


PROSE = ("Since", "while", "where", "until")  # first words of the lines of a paragraph


def test_other_text_is_no_table() -> None:
    key = ("C-s", 90.0)
    for rows in (
        [(("Save", 0.0), key), (("Quit", 0.0), key)],  # two rows
        [(("Save", 0.0), ("C-s", 24.0))] * 4,  # words of a sentence
        [(("Save", 0.0), key)] * 3 + [(("Save it", 0.0),)] * 2,  # few rows among other lines
        [((f"{at}.1", 0.0), ("Setup . . . . . . . 9", 40.0)) for at in range(5)],  # of contents
        [(("x" * (4 + 6 * at), 0.0), ("C-s", 35.0 + 30 * at)) for at in range(6)],  # not aligned
        [((f"x = {at}", 0.0), (f"(1-{at})", 200.0)) for at in range(4)],  # equations
        [tuple((w, 40.0 * i) for i, w in enumerate("it is as far as it was".split()))] * 3,
        [(("note", 0.0), (f"{word} the package has four options", 60.0)) for word in PROSE],
        [((f"{word} the package has four options", 0.0), ("2R", 300.0)) for word in PROSE],
        # the number of a line in the margin
        [
            ((f"{number}{word} the package has four options", 0 - 5 * len(number)), ("2R", 300))
            for number, word in zip(("", "", "85 ", ""), PROSE, strict=True)
        ],
    ):
        assert aligned(*rows) == ""
