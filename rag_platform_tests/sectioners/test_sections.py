from __future__ import annotations

import re

import pytest

from rag_platform.errors import ConfigError
from rag_platform.ir import Section
from rag_platform.sectioners.sections import (
    MarkdownHeadings,
    WholeDoc,
    extend_path,
    join_sections,
    section_hash,
    section_id,
)

LONG = "word " * 50


def headings(text: str) -> list[tuple[int, int, str]]:
    return [(m.start(), len(m.group(1)), m.group(2)) for m in re.finditer(r"(?m)^(#+) (.*)$", text)]


def sections_of(text: str, **options: object) -> list[Section]:
    return MarkdownHeadings(**{"min_section_chars": 0, **options}).sections(
        text, headings(text), "doc"
    )


def cut(text: str, **options: object) -> list[tuple[str, str]]:
    found = join_sections(sections_of(text, **options))
    done = 0
    for section in found:
        assert done <= section.norm_start < section.norm_end
        done = section.norm_end
    assert len({section.section_id for section in found}) == len(found)
    return [
        (section.section_path, text[section.norm_start : section.norm_end]) for section in found
    ]


def test_h1_and_h2_open_sections_and_h3_does_not() -> None:
    text = "intro\n\n# A\n\nunder a\n\n## B\n\nb\n\n### C\n\nc\n\n## D\n\nd\n\n# E\n\ne\n"
    assert cut(text) == [
        ("__preamble__", "intro\n\n"),
        ("A", "# A\n\nunder a\n\n"),
        ("A / B", "## B\n\nb\n\n### C\n\nc\n\n"),
        ("A / D", "## D\n\nd\n\n"),
        ("E", "# E\n\ne\n"),
    ]


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("# A\n\n## B\n\n### C\n\nc\n\n### D\n\n#### E\n\nX", "A / B / D / E"),
        ("# A\n\n## B\n\n#### C\n\nc\n\n##### D\n\nX", "A / B"),  # nothing at level 3
        ("# A\n\n## B\n\n### C / D\n\n#### E\n\nX", "A / B"),
        ("## B\n\n### C\n\nX", "B"),  # B is no title
        ("# A\n\n### C\n\nX", "A"),
        ("A\n\nX", "__preamble__"),
        ("# A\n\n## B\n\n### C\n\nc\n\n### X", "A / B"),  # a chunk that begins with its own heading
        ("# A\n\n## B\n\n### C\n\nc\n\n### D / E\n\nX", "A / B"),  # neither C nor a false level
    ],
)
def test_a_path_is_extended_by_the_headings_above_a_position(text: str, path: str) -> None:
    section = sections_of(text)[-1]
    position = text.index("X") - 4 * text.endswith("### X")
    assert extend_path(section, headings(text), position) == path


def test_a_path_within_joined_sections_names_the_one_that_it_is_in() -> None:
    text = f"# A\n\n## B\n\n{LONG}\n\n## C\n\n### D\n\nX\n"
    (*_, section) = join_sections(sections_of(text, min_section_chars=100))
    assert section.section_path == "A / B"
    assert extend_path(section, headings(text), text.index("X")) == "A / C / D"


def test_levels_that_skip_and_a_deeper_limit() -> None:
    text = "### Start\n\na\n\n# One\n\nb\n\n### Three\n\nc\n\n## Two\n\nd\n"
    assert [path for path, _ in cut(text)] == ["__preamble__", "One", "One / Two"]
    assert [path for path, _ in cut(text, max_section_level=3)] == [
        "Start",
        "One",
        "One / Three",
        "One / Two",
    ]


def test_the_outermost_headings_of_a_document_open_sections() -> None:
    text = f"Read this.\n\n#### Body\n\n{LONG}\n\n##### Form\n\nOne.\n\n#### URL\n\n{LONG}"
    assert [path for path, _ in cut(text)] == ["__preamble__", "Body", "URL"]
    assert [path for path, _ in cut(f"# Guide\n\n{text}")] == ["Guide"]


def test_titles_by_level() -> None:
    text = "# A\n\nx\n\n## B\n\ny\n"
    first, second = MarkdownHeadings(min_section_chars=0).sections(text, headings(text), "doc")
    assert (first.title, first.h1_title, first.h2_title) == ("A", "A", "")
    assert (second.title, second.h1_title, second.h2_title, second.heading_level) == (
        "B",
        "A",
        "B",
        2,
    )


def test_preamble_modes() -> None:
    text = "intro\n\n# A\n\na\n"
    assert cut(text, doc_preamble_mode="merge_into_first") == [("A", text)]
    assert cut(text, doc_preamble_mode="drop") == [("A", "# A\n\na\n")]
    assert cut("only text\n", doc_preamble_mode="merge_into_first") == [
        ("__preamble__", "only text\n")
    ]
    assert cut("\n\n# A\n\na\n") == [("A", "# A\n\na\n")]


def test_headings_can_be_left_out() -> None:
    text = "# A\n\na\n\nSet\n===\n\nb\n<h2>\nC\n</h2>\n<p>c</p>\n---\n"
    found = MarkdownHeadings(min_section_chars=0, include_heading=False).sections(
        text, [(0, 1, "A"), (8, 1, "Set"), (19, 2, "C")], "doc"
    )
    bodies = [text[s.norm_start : s.norm_end] for s in found]
    assert bodies == ["\na\n\n", "\nb\n", "<p>c</p>\n---\n"]


def test_equal_paths_are_counted() -> None:
    text = "".join(f"# API\n\n## Options\n\nvalue {i}\n\n" for i in range(3))
    found = MarkdownHeadings().sections(text, headings(text), "doc")
    assert [(s.section_path, s.ordinal, text[s.norm_start : s.norm_end]) for s in found] == [
        ("API / Options", i, f"# API\n\n## Options\n\nvalue {i}\n\n") for i in range(3)
    ]
    assert found[1].section_id == section_id("doc", "API / Options", 1)
    assert re.fullmatch("sec_[0-9a-f]{20}", found[0].section_id)


def test_short_sections_join_their_sibling_or_their_parents_text() -> None:
    assert cut(
        f"# T\n\n{LONG}\n\n## A\n\nshort\n\n## B\n\n{LONG}\n\n## C\n\nshort\n",
        min_section_chars=200,
    ) == [
        ("T", f"# T\n\n{LONG}\n\n## A\n\nshort\n\n"),
        ("T / B", f"## B\n\n{LONG}\n\n## C\n\nshort\n"),
    ]


def test_a_section_that_joined_another_keeps_its_path_and_its_own_text() -> None:
    text = f"# T\n\n{LONG}\n\n## A\n\nshort\n\n## B\n\n{LONG}\n\n## C\n\nshort\n"
    found = sections_of(text, min_section_chars=200)
    path_of = {section.section_id: section.section_path for section in found}
    assert [
        (s.section_path, text[s.norm_start : s.norm_end], path_of.get(s.joined_to)) for s in found
    ] == [
        ("T", f"# T\n\n{LONG}\n\n", None),
        ("T / A", "## A\n\nshort\n\n", "T"),
        ("T / B", f"## B\n\n{LONG}\n\n", None),
        ("T / C", "## C\n\nshort\n", "T / B"),
    ]


def test_a_section_whose_heading_was_left_out_still_holds_those_that_joined_it() -> None:
    text = "# T\n\nwords\n\n## Alpha\n\n## B\n"
    found = sections_of(text, min_section_chars=5, include_heading=False)
    assert [(s.section_path, text[s.norm_start : s.norm_end]) for s in join_sections(found)] == [
        ("T", "\nwords\n\n"),
        ("T / Alpha", "\n## B\n"),
    ]


def test_text_under_an_h1_stays_with_it_however_short() -> None:
    assert [
        path
        for path, _ in cut(
            f"# T\n\nshort\n\n## A\n\n{LONG}\n\n# U\n\nshort\n", min_section_chars=200
        )
    ] == ["T", "T / A", "U"]


@pytest.mark.parametrize("below", ["", "-----\n\n"])
def test_a_heading_without_text_joins_its_first_child_and_is_not_lost_at_the_end(
    below: str,
) -> None:
    assert cut(f"# T\n\n{below}## A\n\n{LONG}\n\n# U\n", min_section_chars=200) == [
        ("T / A", f"# T\n\n{below}## A\n\n{LONG}\n\n"),
        ("U", "# U\n"),
    ]


@pytest.mark.parametrize(
    ("heading", "paths"),
    [
        ("Chapter 2", ["T / Wells"]),
        ("第二章", ["T / Wells"]),
        ("1.2.3 (2024-01-02)", ["T / Wells"]),
        ("Aims", ["T / Aims", "T / Wells"]),
    ],
)
def test_a_heading_that_only_numbers_a_part_joins_its_title(heading: str, paths: list[str]) -> None:
    text = f"# T\n\n## {heading}\n\n## Wells\n\n{LONG}\n"
    assert [path for path, _ in cut(text, min_section_chars=200)] == paths


def test_a_list_of_short_siblings_becomes_several_sections() -> None:
    text = (
        f"# T\n\n{LONG}\n\n"
        + "".join(f"## S{i}\n\n{'x' * 80}\n\n" for i in range(6))
        + f"## Z\n\n{LONG}\n"
    )
    assert [path for path, _ in cut(text, min_section_chars=200)] == [
        "T",
        "T / S2",
        "T / S5",
        "T / Z",
    ]


def test_an_edit_leaves_the_ids_of_other_sections() -> None:
    before = f"# T\n\n{LONG}\n\n## A\n\n{LONG}\n\n## B\n\n{LONG}\n"
    after = before.replace("## A", "## New\n\nsome text\n\n## A")
    ids = {s.section_id for s in MarkdownHeadings().sections(before, headings(before), "doc")}
    assert ids <= {s.section_id for s in MarkdownHeadings().sections(after, headings(after), "doc")}


def test_section_hash_changes_with_paths_and_texts() -> None:
    text = "# A\n\na\n"
    found = MarkdownHeadings().sections(text, headings(text), "doc")
    other = text.replace("a\n", "b\n")
    assert section_hash(found, text) == section_hash(found, text) != section_hash(found, other)


def test_whole_doc_is_one_section() -> None:
    (found,) = WholeDoc().sections("x # A\n", [(2, 1, "A")], "doc")
    assert (found.section_path, found.norm_start, found.norm_end, found.h1_title) == (
        "__document__",
        0,
        6,
        "A",
    )
    assert WholeDoc().sections(" \n", [], "doc") == []


def test_unknown_options_are_refused() -> None:
    with pytest.raises(ConfigError, match="doc_preamble_mode"):
        MarkdownHeadings(doc_preamble_mode="maybe")  # type: ignore[arg-type]
