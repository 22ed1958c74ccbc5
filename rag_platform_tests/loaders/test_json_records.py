"""Records in JSON become sections, with their characters written out."""

from __future__ import annotations

from pathlib import Path

import pytest

from rag_platform.config.ingestion import CleaningConfig
from rag_platform.loaders.json_records import record_blocks
from rag_platform.loaders.text import TextLoader
from rag_platform.normalisation.edits import normalise

FIRST = r'{"id": 7, "question": "How do I \"open\" it?", "answer": "Turn it.\nThen pull."'
SECOND = r'{"id": 8, "question": "\u5982\u4f55\u5173\u95ed\uff1f", "answer": "\u63a8 \ud83d\ude00"'
LINES = f"""{FIRST}, "tags": ["a", "b"]}}
{SECOND}, "by": {{"name": "\\u674e"}}, "at": null}}
"""
MARKDOWN = """## How do I "open" it?

- id: 7

Turn it.
Then pull.

- tags: a, b

## 如何关闭？

- id: 8

推 😀

- by: {"name": "李"}
"""


def _read(path: Path, text: str) -> str:
    path.write_text(text)
    facts = TextLoader().load(path, path.name)
    assert facts.text == text
    return normalise(facts, (), CleaningConfig()).text


@pytest.mark.parametrize("name", ["faq.jsonl", "faq.ndjson", "faq.json"])
def test_each_record_is_below_its_title(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    assert TextLoader().claims(name, LINES.encode())
    assert _read(path, LINES) == MARKDOWN
    blocks = TextLoader().load(path, name).blocks
    assert [(it.title, it.level, it.line_start) for it in blocks if it.title] == [
        ('How do I "open" it?', 2, 1),
        ("如何关闭？", 2, 2),
    ]


def test_records_may_be_in_a_list_or_in_the_list_of_an_object(tmp_path: Path) -> None:
    listed = "[\n  " + LINES.strip().replace("\n", ",\n  ") + "\n]\n"
    assert _read(tmp_path / "a.json", listed) == MARKDOWN
    inside = f'{{"version": "1.2", "data": {listed}, "complete": true}}'
    assert _read(tmp_path / "b.json", inside) == f"- version: 1.2\n\n{MARKDOWN}\n- complete: true\n"


def test_a_record_may_be_a_title_alone(tmp_path: Path) -> None:
    text = '[{"id": null, "name": "a"}, {"name": "b"}]'
    assert _read(tmp_path / "a.json", text) == "## a\n\n## b\n"


def test_nothing_of_a_record_is_lost_or_written_otherwise(tmp_path: Path) -> None:
    """Keys may be there twice; numbers keep their digits."""
    text = r"""[{"name": "a", "x": 1, "x": 2.50, "p": [2.50, true, null, "\u4e2d"]},
 {"name": "a", "name": "b", "q": {"n": 12345678901234567.890,
  "n": ["\u4e2d, \"x\": 1e400"]}}]"""
    assert _read(tmp_path / "a.json", text) == (
        "## a\n\n- x: 1\n- x: 2.50\n- p: 2.50, true, null, 中\n\n"
        '## b\n\n- name: a\n- q: {"n": 12345678901234567.890, "n": ["中, \\"x\\": 1e400"]}\n'
    )


def test_records_without_a_title_are_paragraphs(tmp_path: Path) -> None:
    text = '[{"user": "U1", "text": "It failed."}, {"user": "U2", "text": "Renew it."}]'
    assert _read(tmp_path / "chat.json", text) == (
        "- user: U1\n\nIt failed.\n\n- user: U2\n\nRenew it.\n"
    )


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "pump", "scripts": {"start": "pump"}}',  # a configuration
        '[{"x": 1, "y": 2}, {"x": 3, "y": 4}]',  # numbers
        # broken
        '[{"name": "a"}, {"name": b}]',
        '{"name": "a"} {"name" "b"}',
        '[{"name": "a"}, 3]',
        '{"parts": [{"name": "a"}, {"name": "b"}], "rules": {"first": [1, 2, 3, 4, 5, 6, 7, 8]}}',
        "[" * 100_000,
        '[{"a":' * 5_000 + "1" + "}]" * 5_000,
    ],
)
def test_other_json_stays_code(tmp_path: Path, text: str) -> None:
    assert _read(tmp_path / "a.json", text) == text


def test_hostile_strings_are_read_in_linear_time(tmp_path: Path) -> None:
    """Half of a character in UTF-16 and control characters have no text."""
    escapes = r"\u0041" * 100_000
    text = f'{{"text": "{escapes}"}}{{"text": "\\ud800 \\u0000b"}}' + " " * 100_000
    assert _read(tmp_path / "a.json", text).split() == ["A" * 100_000, "b"]


def test_a_broken_line_stays_as_it_is_and_the_others_are_records(tmp_path: Path) -> None:
    first, second = LINES.splitlines()
    cut = '{"id": 9, "question": "What does it co'
    path = tmp_path / "faq.jsonl"
    text = f"{first}\n{cut}\n\ufeff{second}\n{{'id': 10}}\n"
    first_part, second_part = MARKDOWN.split("\n\n## 如何")
    assert _read(path, text) == (
        f"{first_part}\n\n```\n{cut}\n```\n\n## 如何{second_part}\n```\n{{'id': 10}}\n```\n"
    )
    summary = TextLoader().load(path, path.name).summary
    assert summary.warnings == (
        "line 2 is no record in JSON, and 1 more such line; it is kept as it is written",
    )


def test_records_begin_again_at_the_indentation_of_the_first(tmp_path: Path) -> None:
    """Not at that of the objects inside it."""
    inner = '"by": [\n      {"x": 1}\n    ]'
    text = f"""[
  {{
    "name": "a", {inner}
  }},
  {{
    "name": "b" and {inner}
  }},
  {{
    "name": "c"
  }}
]"""
    path = tmp_path / "a.json"
    path.write_text(text)
    blocks = TextLoader().load(path, path.name).blocks
    assert [it.title for it in blocks if it.title or it.kind == "code"] == ["a", "", "c"]


def test_the_rest_is_not_read_again_and_again_where_each_record_breaks_at_its_end() -> None:
    text = '{"name": "a"}\n' * 90 + '{"a": [\n' * 80 + '{"q": 1},\n' * 900
    broken = [it for it in record_blocks(text) if it.kind == "code"]
    assert 1 < len(broken) < 20
    assert text[broken[-1].start : broken[-1].end].endswith('{"q": 1},')


def test_comments_and_what_follows_a_list_are_kept(tmp_path: Path) -> None:
    text = '[\n{"name": "a"},\n// of 2024\n{"name": "b\tc"},\n]\nend\n'
    assert _read(tmp_path / "a.json", text) == (
        "## a\n\n```\n// of 2024\n```\n\n## b c\n\n```\nend\n```\n"
    )


def test_a_list_without_an_end_is_read(tmp_path: Path) -> None:
    assert _read(tmp_path / "a.json", '[{"name": "a"}, {"name": "b"}') == "## a\n\n## b\n"
