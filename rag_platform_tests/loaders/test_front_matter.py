from __future__ import annotations

import pytest

from rag_platform.loaders.markdown import FrontMatter, front_matter


def test_values_stay_as_written_but_whole_numbers_and_truth() -> None:
    lines = [
        'title: "A: b"',
        "version: 1.10",
        "date: 2026-13-45",
        "weight: 3",
        "draft: true",
        "yes: no",
        "tags: [x, y]",
        "ms: {a: 1}",
    ]
    found = front_matter("---\n" + "\n".join(lines) + "\n---\n# H\n")
    assert found.metadata == {
        "title": "A: b",
        "version": "1.10",
        "date": "2026-13-45",
        "weight": 3,
        "draft": True,
        "yes": "no",
        "tags": ["x", "y"],
        "ms": {"a": 1},
    }
    assert found.warnings == ()


def test_end_lies_behind_the_closing_line() -> None:
    assert front_matter("---\r\na: b\r\n---\r\n# H").end == len("---\r\na: b\r\n---")
    assert front_matter("+++\na = 'b'\n+++\nx") == FrontMatter(15, {"a": "b"})


def test_blank_lines_may_stand_above_and_tabs_within() -> None:
    text = "\r\n \n---\ntitle:\tA b\t# shown\nweight: 1\t\n---\n# H"
    assert front_matter(text) == FrontMatter(len(text) - 4, {"title": "A b", "weight": 1})


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        ("---\ntitle: [unclosed\nx: : :\n---\n# H\n", "front matter ignored: not valid YAML"),
        (
            "---\nx: !!python/object/apply:os.system ['touch /tmp/x']\n---\n",
            "front matter ignored: it uses the tag",
        ),
        ("---\na: &a [x]\nb: [*a, *a]\n---\n", "front matter ignored: it uses the alias *a"),
        ("---\na: " + "[" * 3000 + "\n---\n", "front matter ignored: it is nested deeper than 8"),
        ("+++\nbroken\n+++\n", "front matter ignored: not valid TOML"),
    ],
)
def test_a_broken_one_is_a_warning(text: str, warning: str) -> None:
    found = front_matter(text)
    assert found.metadata == {} and found.end > 0
    assert found.warnings[0].startswith(warning)


def test_keys_that_stand_twice_are_ignored() -> None:
    found = front_matter("---\nid: 1\nacl: [public]\nacl: [secret]\n---\n")
    assert found.metadata == {"id": 1}
    assert found.warnings == ("front matter has the key 'acl' twice; it is ignored",)


@pytest.mark.parametrize(
    "text",
    ["# H\n---\na: b\n---\n", "---\n\n# After a rule\n", "---x\na: b\n---\n", "---\n---\n", ""],
)
def test_what_is_no_front_matter(text: str) -> None:
    assert front_matter(text) == FrontMatter()


def test_text_between_rules_and_an_open_block_are_read_as_text() -> None:
    assert front_matter("---\n- a\n- b\n---\n").end == 0
    unclosed = front_matter("---\ntitle: never closed\n\n# H\n")
    assert unclosed.end == 0 and "never closes" in unclosed.warnings[0]
