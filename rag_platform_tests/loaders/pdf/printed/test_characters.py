"""Printed lines: raised and lowered signs stay at the sign they belong to, fractions in their line,
a drop cap at its word.
"""

from __future__ import annotations

from pathlib import Path

import pymupdf
import pytest

from rag_platform.ir import Block
from rag_platform.loaders.pdf.mupdf import PdfLoader
from rag_platform.loaders.pdf.printed.characters import MONOSPACED
from rag_platform.loaders.pdf.printed.lines import (
    code_text,
    flow_lines,
    line_text,
    mark_bullets,
    page_words,
    visual_lines,
)
from rag_platform.loaders.pdf.printed.runs import Char, Run
from rag_platform.loaders.pdf.regions import assign_runs, find_mismatched
from rag_platform.loaders.pdf.second_reading import reread
from rag_platform_tests.glyphs import Glyph, name_glyphs, write_glyphs


def run(text: str, x: float, y: float, size: float = 10.0, height: float = 7.0) -> Run:
    chars = tuple(
        Char(char, x + i * size / 2, y, x + (i + 1) * size / 2, y + height)
        for i, char in enumerate(text)
    )
    return Run(chars, 0, size, False, False, True)


def lines(*runs: Run) -> list[str]:
    return [line_text(line) for line in visual_lines(runs)]


def test_a_raised_sign_stands_at_the_sign_it_belongs_to_also_inside_of_a_run():
    # "a   + b" with gaps in which raised twos stand; their centres are a line of their own
    assert lines(run("a + b  = c", 0, 20), run("2", 5, 15, 6, 6), run("2", 25.5, 15, 6, 6)) == [
        "a2 + b2 = c"
    ]


def test_a_flat_sign_is_of_the_line_around_it():
    assert lines(
        run("e", 0, 22, height=5), run("=", 10, 23, height=1.5), run("1", 20, 19, height=8)
    ) == ["e = 1"]


def test_small_print_elsewhere_is_a_line_of_its_own():
    assert lines(run("the body of a text", 0, 0), run("and a note", 0, 12, 6, 5)) == [
        "the body of a text",
        "and a note",
    ]


def test_a_drop_cap_is_the_first_letter_of_its_word():
    assert lines(run("O", 0, 0, 30, 25), run("ver the past", 17, 1)) == ["Over the past"]
    assert lines(run("A", 0, 0), run("word", 9, 0)) == ["A word"]
    # one that hangs below its line, as browsers set it
    assert lines(
        run("W", 0, 8, 40, 30), run("henever it", 21, 0), run("rained,", 21, 12), run("Next", 0, 60)
    ) == ["Whenever it", "rained,", "Next"]
    # beside a single line it may be the number of a chapter
    assert lines(run("A", 0, 8, 40, 30), run("note", 21, 0)) == ["note", "A"]


def test_a_fraction_is_read_in_its_line_and_limits_from_the_lower_to_the_upper():
    assert lines(run("dx", 22, 10), run("v =", 0, 20), run("dt", 22, 30), run("+ a", 36, 20)) == [
        "v = dx dt + a"
    ]
    assert lines(run("dx", 0, 10), run("= v", 14, 20), run("dt", 0, 30)) == ["dx dt = v"]
    assert lines(
        run("b", 7, 10, 6, 6), run("∫", 0, 20), run("a", 6, 30, 6, 6), run("f(x) = 1", 14, 20)
    ) == ["∫ a b f(x) = 1"]


def test_short_lines_around_a_line_without_a_formula_or_with_no_gap_stay_where_they_are():
    assert lines(run("dx", 22, 10), run("see", 0, 20), run("dt", 22, 30), run("here", 36, 20)) == [
        "dx",
        "see here",
        "dt",
    ]
    assert lines(run("Let", 0, 10), run("x = 1", 0, 20), run("then", 0, 30)) == [
        "Let",
        "x = 1",
        "then",
    ]
    assert lines(run("one", 200, 10), run("x = 1", 0, 20), run("two", 200, 30)) == [
        "one",
        "x = 1",
        "two",
    ]


def test_a_compound_cut_at_its_hyphen_is_whole_again_and_a_dash_stays_apart():
    assert (
        flow_lines(["TABLE-", "FORMER reads Anglo-", "American tables of COVID-", "19"])
        == "TABLE-FORMER reads Anglo-American tables of COVID-19"
    )
    assert (
        flow_lines(["two parts -", "One of them", "is short –", "The other"])
        == "two parts - One of them is short – The other"
    )
    assert flow_lines(["docu-", "ments"]) == "documents"
    assert (
        flow_lines(
            ["set TEST_MC_", "CORES (see http://www.", "gnumeric.org or ?a=", "1) to _", "x"]
        )
        == "set TEST_MC_CORES (see http://www.gnumeric.org or ?a= 1) to _ x"
    )


def test_a_url_cut_at_a_line_end_is_whole_again():
    lines = [
        "RODBC (https://",
        "CRAN.",
        "R-project.org/package=RODBC) or (https://www.",
        "ibm.com);",
    ]
    assert (
        flow_lines(lines)
        == "RODBC (https://CRAN.R-project.org/package=RODBC) or (https://www.ibm.com);"
    )
    assert flow_lines(["https://a.org/x", "/y-", "z is"]) == "https://a.org/x/y-z is"
    assert flow_lines(["参见 https:", "//a.org/x 页"]) == "参见 https://a.org/x 页"
    # what follows is a sentence of its own
    assert flow_lines(["see http://x.org/", "i.e. the page"]) == "see http://x.org/ i.e. the page"
    apart = ["see https://a.org/", "and https://b.org.", "The site (https://c.org)", "(new)"]
    assert flow_lines(apart) == " ".join(apart)
    assert flow_lines(["下载 https://a.org/", "然后看。https://b.org/"]) == (
        "下载 https://a.org/ 然后看。https://b.org/"
    )


def test_a_hyphen_behind_capitals_or_a_digit_stays():
    assert flow_lines(["DBMS-", "specific, 64-", "bit and 3-", "540"]) == (
        "DBMS-specific, 64-bit and 3-540"
    )
    assert flow_lines(["dpkg [--compare-", "versions]"]) == "dpkg [--compare-versions]"
    assert flow_lines(["it--or no docu-", "ments"]) == "it--or no documents"
    assert flow_lines(["on 32-", "and 64-bit"]) == "on 32- and 64-bit"


def test_a_soft_hyphen_that_is_drawn_is_a_hyphen() -> None:
    order = run("PRJ\u00ad000 is well\u00adknown", 0, 10)
    assert line_text([order]) == "PRJ-000 is well-known"
    assert flow_lines(
        ["a well\u00ad", "known con\u00ad", "tract PRJ\u00ad", "7"], page_words([order])
    ) == ("a well-known contract PRJ-7")
    # a browser's, where the word is not cut: the next letter stands in its place
    first, last, mark = run("on\u00ad", 0, 10).chars
    unseen = order._replace(chars=(first, mark._replace(x0=last.x0, x1=last.x1), last))
    assert line_text([unseen]) == "o\u00adn"


def test_chinese_beside_figures_is_joined_as_its_lines_print_it() -> None:
    assert flow_lines(["第3号系统，部署第", "21", "号设备"]) == "第3号系统，部署第21号设备"
    assert flow_lines(["第 3 号系统，部署第", "21 号设备"]) == "第 3 号系统，部署第 21 号设备"
    assert flow_lines(["部署第", "21", "号设备"]) == "部署第 21 号设备"
    assert (
        flow_lines(["在 macOS", "（13 版）", "OS 下用", "“编译”"])
        == "在 macOS（13 版）OS 下用“编译”"
    )
    assert flow_lines(["The word", "“and”", "is short…"]) == "The word “and” is short…"


def test_a_small_o_of_a_typewriter_before_text_is_a_bullet() -> None:
    bullet, text = run("o", 0, 10)._replace(mono=True), run("an entry", 18, 10)
    assert [found.text for found in mark_bullets([bullet, text])] == ["◦", "an entry"]
    for others in ([bullet, text._replace(mono=True)], [run("o", 0, 10), text]):
        assert mark_bullets(others) == others
    far = [bullet, run("output file", 90, 10)]  # a cell of a table
    assert mark_bullets(far) == far


def test_who_signs_is_no_part_of_the_rule_above_the_name() -> None:
    assert flow_lines(["________", "Director"]) == "________ Director"
    assert flow_lines(["Tenant_____", "Landlord"]) == "Tenant_____ Landlord"


@pytest.mark.parametrize(
    ("font", "mono"),
    [
        ("LiberationMono", True),
        ("ABCDEF+CMTT10", True),
        ("CourierNewPSMT", True),
        ("MonotypeCorsiva", False),
        ("LiberationSerif", False),
    ],
)
def test_fonts_of_code_are_known_by_name(font: str, mono: bool) -> None:
    assert bool(MONOSPACED.search(font)) == mono


@pytest.mark.parametrize(
    ("kind", "box", "proved"),
    [
        ("paragraph", (100, 200, 150, 207), True),
        ("paragraph", (0, 200, 150, 207), True),  # one side may belong to a text that lies in it
        ("paragraph", (65, 165, 150, 207), True),  # 35 points
        ("paragraph", (96, 196, 154, 211), True),  # 4 points on all sides
        ("paragraph", (90, 190, 160, 217), False),  # 10 points
        ("table", (90, 190, 160, 217), False),
        ("paragraph", (63, 163, 150, 207), False),  # 37 points
        ("table", (0, 0, 595, 842), False),
        ("picture", (0, 0, 595, 842), True),
    ],
)
def test_a_rectangle_that_reaches_beyond_its_text_is_noticed(
    kind: str, box: tuple[int, int, int, int], proved: bool
):
    block = Block(0, kind, 0, 10, page=1, bbox=tuple(map(float, box)))
    printed = [run("ten points", 100, 200)]  # 50 wide and 7 high
    found = find_mismatched(1, printed, "ten points", [block])
    assert found == (
        {} if proved else {0: "page 1: the rectangle reaches beyond the text that is printed in it"}
    )


def test_a_line_where_two_rectangles_overlap_stays_whole():
    # tall letters have their centre above the edge of the lower rectangle, low ones below it
    tall = [Char(char, 10 + i, 0, 11 + i, 10) for i, char in enumerate("til")]
    low = [Char(char, 13 + i, 4, 14 + i, 10) for i, char in enumerate("vo")]
    line = Run((*tall, *low), 0, 10.0, False, False, True)
    pieces, orphans = assign_runs([line], [(0, -20, 100, 8), (0, 6, 100, 30)])
    assert [[run.text for run in piece] for piece in pieces] == [["tilvo"], []]
    assert not orphans


@pytest.mark.parametrize(
    ("glyphs", "named", "text"),
    [
        # a letter that the font does not name
        ([("a", 100, 6), ("\ufffd", 106, 6), ("c", 112, 6)], (1, 1, "b"), "abc"),
        # a syllable in the order in which it is drawn, its last glyph without a meaning
        (
            [
                ("क", 100, 6),
                ("त", 106, 6),
                ("ा", 112, 3),
                ("\ufffd", 113, 0.01),
                (" ", 115, 4),
                ("है", 119, 9),
            ],
            (1, 3, "र्ता"),
            "कर्ता है",
        ),
        # a sign of the syllable once more, as a glyph by itself
        ([("क", 100, 6), ("ा", 106, 3), ("म", 109, 6)], (0, 0, "का"), "काम"),
        # Latin letters are what their font says, whatever the page says
        ([("a", 100, 6), ("b", 106, 6)], (1, 1, "x"), "ab"),
    ],
)
def test_what_the_page_says_beside_glyphs_is_read_where_they_say_too_little(
    tmp_path: Path, glyphs: list[Glyph], named: tuple[int, int, str], text: str
) -> None:
    path = write_glyphs(tmp_path / "x.pdf", glyphs)
    name_glyphs(path, *named)
    facts = PdfLoader(profile="fast").load(path, "x.pdf")
    assert facts.text == text
    assert PdfLoader().verify_blocks(path, facts.text, facts.blocks) == {}
    assert reread(path, "pdf", facts.text, facts.blocks)[0] == {}


def test_an_underscore_that_tex_draws_as_a_line_is_read_but_an_underline_is_not(
    tmp_path: Path,
) -> None:
    with pymupdf.open() as document:
        page = document.new_page()
        for y, depth in ((100, -0.5), (140, 1.5)):
            x = 72.0
            for word in ("Set", "max", "keys."):
                page.insert_text((x, y), word, fontsize=11)
                x += pymupdf.get_text_length(word, fontsize=11)
                if word != "keys.":
                    page.draw_line((x, y + depth), (x + 4, y + depth), width=0.6)
                x += 4
        document.save(tmp_path / "rules.pdf")
    for profile in ("fast", "layout"):
        facts = PdfLoader(profile=profile).load(tmp_path / "rules.pdf", "rules.pdf")
        assert facts.text.split() == ["Set_max_keys.", "Set", "max", "keys."]


def test_code_keeps_its_columns() -> None:
    def mono(text: str, column: int) -> Run:
        return run(text, 72 + 5 * column, 0.0)._replace(mono=True)

    assert code_text(
        [[mono("a", 4), mono("b = 1", 12)], [mono("for x:", 0), mono("# each", 12)]]
    ) == ("    a       b = 1\nfor x:      # each")
