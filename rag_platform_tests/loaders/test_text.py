from __future__ import annotations

from pathlib import Path

import pytest

from rag_platform.errors import DocumentError
from rag_platform.loaders.text import TextLoader

LOADER = TextLoader()


def load(tmp_path: Path, name: str, raw: bytes):
    (tmp_path / "file").write_bytes(raw)
    return LOADER.load(tmp_path / "file", name)


def test_paragraphs_become_blocks_with_lines_and_bytes(tmp_path: Path) -> None:
    facts = load(tmp_path, "notes.txt", "\ufeff第一段\r\n  second line\r\n\r\n \t\r\nlast".encode())
    assert facts.text == "第一段\r\n  second line\r\n\r\n \t\r\nlast"
    assert [
        (b.kind, facts.text[b.start : b.end], b.line_start, b.line_end, b.byte_start, b.byte_end)
        for b in facts.blocks
    ] == [
        ("paragraph", "第一段\r\n  second line", 1, 2, 3, 27),
        ("paragraph", "last", 5, 5, 35, 39),
    ]
    assert (facts.summary.title, facts.summary.encoding, facts.summary.text_chars) == (
        "第一段",
        "utf-8",
        30,
    )


def test_source_code_keeps_its_language(tmp_path: Path) -> None:
    facts = load(tmp_path, "src/app.PY", b"import os\n\n\ndef f():\n    return 1\n")
    assert [b.kind for b in facts.blocks] == ["code", "heading", "code"]
    assert (facts.summary.metadata, facts.summary.title) == ({"language": "python"}, "app.PY")


def test_equal_bytes_give_equal_facts(tmp_path: Path) -> None:
    assert load(tmp_path, "a.txt", b"x\n\ny") == load(tmp_path, "a.txt", b"x\n\ny")


@pytest.mark.parametrize(
    ("name", "head", "claimed"),
    [
        ("a.txt", b"x", True),
        ("A.LOG", b"x", True),
        ("a.json", b"{}", True),
        ("LICENSE", b"words", True),
        ("a.txt", b"%PDF-1.4", False),
        ("a.txt", b"\x7fELF\x00", False),
        ("a.png", b"x", False),
        ("a.txt", b"", True),
        ("empty", b"", False),
        ("a.txt", "标题".encode("gbk"), True),
    ],
)
def test_claims(name: str, head: bytes, claimed: bool) -> None:
    assert LOADER.claims(name, head) is claimed


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DocumentError) as caught:
        load(tmp_path, "a.txt", b"\n\n")
    assert caught.value.code == "empty_file"


@pytest.mark.parametrize(
    ("name", "text", "title"),
    [
        ("a.rst", "==========\nPump guide\n==========\n\n:Author: B\n", "Pump guide"),
        ("a.rst", ".. note:: x\n\nPump guide\n----------\n", "Pump guide"),
        ("a.rst", "Only words.\n\n- item\n", "Only words."),
        ("a.org", "#+AUTHOR: R\n#+title: Expedition  plan\n* Buy\n", "Expedition plan"),
        (
            "a.tex",
            "\\documentclass{article}\n\\title{The \\emph{long}\n way}\n",
            "The \\emph{long} way",
        ),
        ("a.tex", "\\documentclass{article}\n", "\\documentclass{article}"),
        ("a.adoc", ":toc:\n\n= Handbook\n\n== Part\n", "Handbook"),
        ("a.txt", "= Handbook\n", "= Handbook"),
    ],
)
def test_the_title_is_what_the_markup_says(
    tmp_path: Path, name: str, text: str, title: str
) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    assert TextLoader().load(tmp_path / name, name).summary.title == title
