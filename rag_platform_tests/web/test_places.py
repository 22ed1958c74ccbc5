"""How places and numbers read."""

from __future__ import annotations

import pytest

from rag_platform.contract.markdown_views import format_locator, format_place
from rag_platform.messages import translate


@pytest.mark.parametrize(
    ("locator", "english", "chinese"),
    [
        ("body/p[1]", "paragraph 1", "第 1 段"),
        ("body/p[3-9]", "paragraphs 3-9", "第 3-9 段"),
        (
            "body/p[3] to body/tbl[1]/tr[2]",
            "paragraph 3 to table 1, row 2",
            "第 3 段至表 1，第 2 行",
        ),
        ("footnotes/2", "footnote 2", "脚注 2"),
        ("header1/p[1]", "header 1, paragraph 1", "页眉 1，第 1 段"),
        ("sheet=Jan to Mar;rows=2-4;head=1", "sheet Jan to Mar, rows 2-4", None),
        ("sheet=Q1;rows=4, sheet=Q2;rows=1", "sheet Q1, row 4; sheet Q2, row 1", None),
        ("slide=1;shape=5", "slide 1", "第 1 张幻灯片"),
        ("/html/body/p[3]", "/html/body/p[3]", "/html/body/p[3]"),
        ("part=1.2;lines=3-9", "part 1.2, lines 3-9", "部分 1.2，第 3-9 行"),
        ("xpath=/html/body/div[2]/p[3-4]", "", ""),
        ("xpath=/html/body/p[3] to xpath=/html/body;nodes=2-3", "", ""),
        ("part=OEBPS/ch%201.xhtml;xpath=/html/body/ul", "part OEBPS/ch 1.xhtml", None),
        (
            "part=a.xhtml;xpath=/html/p to part=b.xhtml;xpath=/html/p",
            "part a.xhtml to part b.xhtml",
            None,
        ),
        (
            "header=subject to part=1;lines=7-7",
            "mail header to part 1, line 7",
            "邮件头至部分 1，第 7 行",
        ),
        ("cell=1;lines=1-1", "cell 1, line 1", "第 1 格，第 1 行"),
        ("", "", ""),
    ],
)
def test_a_locator_in_words(locator: str, english: str, chinese: str | None) -> None:
    assert format_locator(locator) == english
    assert chinese is None or format_locator(locator, "zh") == chinese


def test_pages_and_lines_go_before_the_locator() -> None:
    assert format_place([3, 4], None, "body/p[1]") == "pages 3-4"
    assert format_place(None, [7, 7], language="zh") == "第 7 行"


def test_a_noun_agrees_with_a_one() -> None:
    text = "{hits} hits, {misses} misses, {n} retries in {n} s"
    assert translate(text, "en", hits=1, misses=1, n=1) == "1 hit, 1 miss, 1 retry in 1 s"
    assert translate(text, "en", hits=0, misses="21", n=2) == "0 hits, 21 misses, 2 retries in 2 s"
