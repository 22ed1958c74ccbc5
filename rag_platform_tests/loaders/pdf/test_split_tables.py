"""Tables whose header and rows the engine found in blocks of their own."""

from __future__ import annotations

from rag_platform.loaders.pdf.printed.runs import Char, Run
from rag_platform.loaders.pdf.split_tables import Piece, join_table_parts

Line = tuple[float, str]  # height, and `text@left` for each of its cells


def piece(*lines: Line, label: str = "text", size: float = 10) -> Piece:
    """A piece of lines with characters of half an em."""
    return label, [
        Run(
            tuple(
                Char(
                    char,
                    float(left) + size / 2 * at,
                    y,
                    float(left) + size / 2 * (at + 1),
                    y + size,
                )
                for at, char in enumerate(text)
            ),
            0,
            size,
            False,
            False,
            True,
        )
        for y, line in lines
        for text, left in (cell.split("@") for cell in line.split(" | "))
    ]


def texts(*pieces: Piece) -> list[tuple[str, str]]:
    """(label, text) of the joined pieces, from the top."""
    return [
        (
            label,
            " ".join(run.text for run in sorted(group, key=lambda run: (run.box[1], run.box[0]))),
        )
        for label, group in join_table_parts(pieces)
    ]


ROWS = piece((100, "Sold@0 | 120@200 | 130@300"), (112, "Cost@0 | (80)@200 | 90@300"))
JOINED = "Sold 120 130 Cost (80) 90"


def test_a_header_above_its_columns_is_part_of_the_table() -> None:
    weeks = piece((70, "13 Weeks Ended@205"), label="section-header")
    dates = piece((85, "in millions@0 | May 2023@190 | May 2022@290"), size=9)
    assert texts(weeks, dates, ROWS) == [
        ("text", f"13 Weeks Ended in millions May 2023 May 2022 {JOINED}")
    ]


def test_what_stands_above_the_columns_by_chance_is_no_header() -> None:
    for above in (
        piece((85, "The amounts of both years are as follows in millions:@0")),  # a sentence
        piece((85, "Statement@136"), label="section-header"),  # a title in the middle
        piece((60, "May 2023@190 | May 2022@290")),  # too far away
        piece((85, "2023@190 | 2022@290"), size=14),  # in larger letters
    ):
        assert texts(above, ROWS) == [
            (above[0], " ".join(r.text for r in above[1])),
            ("text", JOINED),
        ]


def test_rows_below_a_gap_belong_to_the_table_with_the_labels_between() -> None:
    label = piece((135, "Taxes@0"), label="section-header")
    tax = piece((150, "Federal@10 | 7@200 | n/a@295"))
    total = piece((170, "100%@200 | 100%@300"))
    assert texts(ROWS, label, tax, total) == [("text", f"{JOINED} Taxes Federal 7 n/a 100% 100%")]


def test_the_next_table_and_heading_stay_apart() -> None:
    for below in (
        [piece((135, "8. Taxes@0"), label="section-header"), piece((150, "Federal@0 | 7@200"))],
        [piece((135, "2023@200 | 2022@300")), piece((150, "Federal@0 | 7@200"))],
        [piece((150, "Federal@0 | 7@200"))],  # too far away
        [piece((125, "Federal@0 | 7@250"))],  # between the columns
    ):
        assert texts(ROWS, *below)[0] == ("text", JOINED)


def test_a_table_keeps_its_rows_or_is_joined_whole() -> None:
    torn = piece((125, "Tax@0 | 7@200"), (137, "Fees@0 | 5@250"), (149, "Left@0 | 3@250"))
    assert texts(ROWS, torn) == [("text", JOINED), ("text", "Tax 7 Fees 5 Left 3")]


def test_text_within_the_joined_rectangle_keeps_the_parts_apart() -> None:
    note = piece((106, "see note@240"))
    below = piece((135, "Tax@0 | 7@200 | 8@300"))
    assert texts(ROWS, below) == [("text", f"{JOINED} Tax 7 8")]
    assert texts(ROWS, note, below)[0] == ("text", JOINED)


def test_paragraphs_in_the_block_of_a_table_are_cut_off() -> None:
    before = "The amounts of both years are stated in millions of euros"
    after = "The next table states the same by segment of the firm alone"
    _, left = piece((124, "Left@0 | 1@200 | 2@300"))
    _, prose = piece((88, f"{before}@0"), (136, f"{after}@0"), (148, "and by year:@0"))
    assert texts(("text", [*ROWS[1], *left, *prose])) == [
        ("text", before),
        ("text", f"{JOINED} Left 1 2"),
        ("text", f"{after} and by year:"),
    ]


def test_entries_of_a_numbered_list_with_figures_are_read() -> None:
    rows = piece(
        (100, "1. Sold@0 | 120@200"), (112, "2. Cost@0 | 80@200"), (124, "3. Left@0 | 40@200")
    )
    assert texts(rows) == [("text", "1. Sold 120 2. Cost 80 3. Left 40")]


def test_other_text_is_returned_as_it_is() -> None:
    prose = piece((100, "A line of words.@0"), (112, "Another line of them.@0"))
    code = ("text", [run._replace(mono=True) for run in ROWS[1]])
    assert join_table_parts([prose, code]) == [prose, code]
    assert join_table_parts([]) == []
