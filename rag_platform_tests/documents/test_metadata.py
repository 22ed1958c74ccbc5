from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_platform.documents.metadata import (
    MAX_METADATA_CHARS,
    document_title,
    file_metadata,
    with_file_metadata,
)
from rag_platform.ir import Block, Document, Facts, ParseSummary, Version


def test_the_values_of_a_markdown_page() -> None:
    said = {
        "title": "T",
        "keywords": "wsl, Linux , wsl",
        "tags": ["ops", 7],
        "category": "guides",
        "ms.date": "09/01/2021",
        "weight": 3,
    }
    assert file_metadata(said, 0.0) == {
        "tags": ["ops", "7", "wsl", "Linux", "guides"],
        "categories": ["guides"],
        "modified": "2021-09-01",
        "title": "T",
        "ms.date": "09/01/2021",
        "weight": 3,
    }


@pytest.mark.parametrize("moment", [0.0, 315_532_800.0, 499_162_500.0])  # epoch, zip, npm
def test_the_fixed_mtimes_of_packages_are_no_dates(moment: float) -> None:
    assert file_metadata({}, moment) == {}


def test_the_values_of_a_pdf_and_of_a_file_that_says_nothing() -> None:
    said = {
        "creationDate": "D:20200102030405Z",
        "modDate": "D:20210102",
        "keywords": "budget；审计",
        "producer": "",
    }
    assert file_metadata(said) == {
        "tags": ["budget", "审计"],
        "created": "2020-01-02T03:04:05Z",
        "modified": "2021-01-02",
        "creationDate": "D:20200102030405Z",
        "modDate": "D:20210102",
    }
    assert file_metadata({}, 1_000_000_000.0) == {"modified": "2001-09-09T01:46:40Z"}
    assert file_metadata({"date": "soon"}) == {"date": "soon"}


def test_what_is_too_long_is_left_out() -> None:
    found = file_metadata({"a": "x" * MAX_METADATA_CHARS, "b": "y", "tags": ["t" * 61, "short"]})
    assert found == {"tags": ["short"], "b": "y"}


@pytest.mark.parametrize(
    ("found", "text", "title"),
    [
        ("Given", "# Head", "Given"),
        ("", "# Head\n\npara", "Head"),
        ("## Second", "", "Second"),
        (
            "",
            "**Just** a [paragraph](x.md), `code` and \\*stars\\*\nmore",
            "Just a paragraph, code and *stars*",
        ),
        ("", "![](a.png)\n\n- item _one_", "item one"),
        ("", "> <b>quoted</b> words", "quoted words"),
        ("__init__.py", "", "__init__.py"),
        ("2 * 3 * 4", "", "2 * 3 * 4"),
        ("x" * 300, "", "x" * 200),
        (" ", "", "a.md"),
        ("[" * 200, "", "a.md"),
        ("| a | b | c |", "| a | b | c |\n\nWords of a paragraph", "Words of a paragraph"),
        ("音乐|deepin-music|", "", "音乐|deepin-music|"),
        ("", "# 12 7 9 31 14\n\nYields by year", "Yields by year"),
        ("2023 年 12 月 31 日", "", "2023 年 12 月 31 日"),
        ('{% block title %}{{ config.title|d("Book") }}{% endblock %}', "", "a.md"),
        ("{{ page.title }} | Handbook", "", "Handbook"),
        ("{% block title %}Site admin{% endblock %}", "", "Site admin"),
        ("", "# Why `{{ x }}` fails", "Why {{ x }} fails"),
    ],
)
def test_a_document_has_a_readable_title(found: str, text: str, title: str) -> None:
    blocks = []
    for part in filter(None, text.split("\n\n")):
        kind = "heading" if part.startswith("#") else "paragraph"
        blocks.append(Block(len(blocks), kind, start := text.index(part), start + len(part)))
    summary = ParseSummary("markdown", "1", "e", "1", "p", "", len(text), title=found)
    assert document_title(Facts(text, tuple(blocks), (), summary), "a.md", "s/a.md") == title


def test_a_heading_of_a_section_is_no_title_of_the_document() -> None:
    text = "## One\n\nSome words\n\n## Two"
    spans = [("heading", 0, 6), ("paragraph", 8, 18), ("heading", 20, 26)]
    blocks = tuple(
        Block(n, kind, start, end, level=2 if kind == "heading" else 0)
        for n, (kind, start, end) in enumerate(spans)
    )
    summary = ParseSummary("markdown", "1", "e", "1", "p", "", len(text), title="")
    assert document_title(Facts(text, blocks, (), summary), "a.md", "s/a.md") == "a.md"
    assert document_title(Facts(text, blocks[:2], (), summary), "a.md", "s/a.md") == "One"


@pytest.mark.parametrize(
    ("found", "text", "filename", "uri", "title"),
    [
        ("", "", "docs.md", "antd/popover/docs.md", "popover/docs.md"),
        ("__init__.py", "", "__init__.py", "s/a/b/__init__.py", "b/__init__.py"),
        ("sales", "", "sales.csv", "s/2024/sales.csv", "2024/sales"),
        ("", "", "index.html", "https://a.example/guide/", "guide/index.html"),
        ("", "", "readme.md", "https://a.example/readme.md", "readme.md"),
        ("Popover", "# Popover", "Popover.md", "s/components/Popover.md", "Popover"),
    ],
)
def test_the_folder_tells_files_without_a_title_apart(
    found: str, text: str, filename: str, uri: str, title: str
) -> None:
    blocks = (Block(0, "heading", 0, len(text), level=1),) if text else ()
    summary = ParseSummary("markdown", "1", "e", "1", "p", "", len(text), title=found)
    assert document_title(Facts(text, blocks, (), summary), filename, uri) == title


def document(**changes: object) -> Document:
    fields = {"tags": ("mine",), "metadata": {"created": "1999"}, **changes}
    return Document("n", "d", "s", "s/a.md", "a.md", **fields)  # type: ignore[arg-type]


def version(metadata: dict[str, object]) -> Version:
    return Version(
        "n.d@1",
        "n",
        "d",
        "s/a.md",
        "a.md",
        "00",
        1,
        "text/markdown",
        "markdown",
        "tiny",
        counts={"metadata": metadata},
    )


def test_the_users_own_come_first_and_win() -> None:
    said = {
        "tags": ["ops", "mine"],
        "categories": ["guides"],
        "created": "2024",
        "modified": "2025",
    }
    shown = with_file_metadata(document(), version(said))
    assert (shown.tags, shown.categories, shown.metadata) == (
        ("mine", "ops"),
        ("guides",),
        {"created": "1999", "modified": "2025"},
    )
    # the next version's file says something else
    assert with_file_metadata(document(), version({"tags": ["other"]})).tags == ("mine", "other")
    assert (
        with_file_metadata(document(), Version("v", "n", "d", "u", "f", "0", 1, "m", "l", "s"))
        == document()
    )


@given(
    st.dictionaries(
        st.text(max_size=20),
        st.text(max_size=50) | st.integers() | st.booleans() | st.lists(st.text(max_size=20)),
    )
)
def test_any_metadata_is_plain_json_of_bounded_size(said: dict[str, object]) -> None:
    assert len(json.dumps(file_metadata(said), ensure_ascii=False)) < 2 * MAX_METADATA_CHARS
