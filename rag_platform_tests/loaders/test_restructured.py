from __future__ import annotations

import time
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_platform.config.ingestion import CleaningConfig
from rag_platform.loaders.markdown import MarkdownLoader
from rag_platform.loaders.restructured import (
    is_restructured,
    markdown_edits,
    restructured_blocks,
)
from rag_platform.loaders.text import TextLoader
from rag_platform.normalisation.edits import apply_edits, normalise


def read(text: str) -> str:
    """The Markdown of a text, without its last line end."""
    return apply_edits(text, markdown_edits(text)).text.rstrip("\n")


def headings(text: str) -> list[tuple[int, str]]:
    return [(b.level, b.title) for b in restructured_blocks(text) if b.kind == "heading"]


def test_titles_have_levels_by_the_order_of_their_styles() -> None:
    text = (
        "=====\nGuide\n=====\n\nWords.\n\nSetup\n=====\n\nOn Linux\n~~~~~~~~\n\nPorts\n=====\n"
        "\n第一章 安装\n===========\n"
    )
    assert headings(text) == [
        (1, "Guide"),
        (2, "Setup"),
        (3, "On Linux"),
        (2, "Ports"),
        (2, "第一章 安装"),
    ]
    assert read("Set :ref:`up <x>`\n-----------------\n\nRun.") == "# Set up\n\n\nRun."
    # a transition, a list and a line too short are no titles
    assert headings("One.\n\n----\n\nTwo.\n\n- a\n- b\n\nA long line\n---\n") == []


def test_blocks_lead_to_the_bytes_and_lines_of_the_file(tmp_path: Path) -> None:
    raw = "\ufeff端口\r\n====\r\n\r\nRun::\r\n\r\n    make 端\r\n\r\nIt ends.\r\n".encode()
    (tmp_path / "a.rst").write_bytes(raw)
    facts = TextLoader().load(tmp_path / "a.rst", "a.rst")
    blocks = [
        (b.kind, raw[b.byte_start : b.byte_end].decode(), b.line_start, b.line_end)
        for b in facts.blocks
    ]
    assert blocks == [
        ("heading", "端口\r\n====", 1, 2),
        ("paragraph", "Run::", 4, 4),
        ("code", "    make 端", 6, 6),
        ("paragraph", "It ends.", 8, 8),
    ]
    assert facts.summary.title == "端口"
    found = normalise(facts, (), CleaningConfig())
    assert found.text.strip() == "# 端口\n\nRun:\n\n```\nmake 端\n```\n\nIt ends."
    at = found.text.index("It ends")
    assert facts.text[slice(*found.span_to_facts(at, at + 8))] == "It ends."


def test_literal_blocks_and_code_are_fenced_where_they_stand() -> None:
    assert read("Run::\n\n    make\n\n      all\n\nThen.") == (
        "Run:\n\n```\nmake\n\n  all\n```\n\nThen."
    )
    assert read("..  code:: sh\n\n    run") == "```sh\nrun\n```"
    assert read("Run ::\n\n  make") == "Run\n\n```\nmake\n```"
    assert read("Run it.\n\n::\n\n  make") == "Run it.\n\n\n\n```\nmake\n```"
    code = ".. code-block:: python\n   :linenos:\n\n   f()\n\n   g(`` ``` ``)\n\nThen."
    assert read(code) == "````python\nf()\n\ng(`` ``` ``)\n````\n\nThen."
    assert read("1. Run::\n\n    make\n\n2. Stop.") == (
        "1. Run:\n\n   ```\n   make\n   ```\n\n2. Stop."
    )
    assert read(".. math:: E = mc^2\n\nThen.") == "```\nE = mc^2\n```\n\nThen."
    formula = "* So:\n\n  .. math:: a = b\n     :label: one\n\n     c = d"
    assert read(formula).split("\n") == [
        "* So:",
        "",
        "  ```",
        "  a = b",
        *["", ""],  # where the label was
        "  c = d",
        "  ```",
    ]
    assert read("* >>> 1\n  1\n\n* .. code::\n\n     run") == (
        "* ```pycon\n  >>> 1\n  1\n  ```\n\n* ```\n  run\n  ```"
    )
    assert read("So:\n\n>>> 1 + 1\n2\n\nThen.") == "So:\n\n```pycon\n>>> 1 + 1\n2\n```\n\nThen."


def test_boxes_are_read_as_text_and_what_they_describe_is_a_heading() -> None:
    assert read(".. note:: It\n   stops.\n\n   Later.\n\nNext.") == "It\nstops.\n\nLater.\n\nNext."
    assert read(".. warning::\n\n   It stops.") == "\n\nIt stops."
    assert read(".. versionadded:: 2.1\n   The port.") == "Added in version 2.1:\nThe port."
    assert read(".. deprecated:: 3.0") == "Deprecated since version 3.0."
    assert read(".. admonition:: Mind *it*\n\n   It stops.") == "**Mind *it***\n\nIt stops."
    described = "API\n===\n\n.. py:function:: run(port)\n   :async:\n\n   Runs it.\n"
    assert read(described) == "# API\n\n\n## `run(port)`\n\nRuns it."
    bare = ".. method:: Log.error(text)\n.. django-admin-option:: --quiet\n   :noindex:\n\nThen."
    assert read(bare) == "**`Log.error(text)`**\n**`--quiet`**\n\nThen."
    two = "* In C:\n\n  .. function:: open(path)\n                open(path, mode)\n     :noindex:"
    assert read(two) == "* In C:\n\n  **`open(path)`**\n  **`open(path, mode)`**"


@pytest.mark.parametrize(
    "hidden",
    [
        ".. a comment\n   of two lines",
        "..\n   a comment",
        ".. toctree::\n   :maxdepth: 2\n\n   intro\n   usage",
        ".. _label:",
        ".. _name: https://example.org",
        ".. |name| replace:: words",
        ".. image:: a.png\n   :alt: A valve",
        ".. autoclass:: a.Client\n   :members:",  # Sphinx takes its text from the code
        "__ https://example.org",
    ],
)
def test_what_no_reader_sees_is_left_out(hidden: str) -> None:
    assert read(f"One.\n\n{hidden}\n\nTwo.").split() == ["One.", "Two."]
    assert {edit.rule.partition(":")[0] for edit in markdown_edits(hidden)} == {"hidden_text"}


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("See :ref:`the list <a-b>`, :doc:`/usage`.", "See the list, /usage."),
        ("Call :meth:`~a.b.C.run` or :py:func:`a.f`.", "Call `run` or `a.f`."),
        ("By :pep:`8` and `its page <https://a.b/c>`_.", "By PEP 8 and [its page](https://a.b/c)."),
        ("`Its page`_ and there_ [1]_ say so.\n\n.. _there: x", "Its page and there say so."),
        ("|Name| has ``a`_`` and *b*.\n\n.. |Name| replace:: Rex", "Rex has ``a`_`` and *b*."),
        ("Two\\ s of snake_case_ and `x`.", "Twos of snake_case_ and `x`."),
        (":ref:`the\nlist <a>` goes on", "the\nlist goes on"),
    ],
)
def test_inline_markup_becomes_its_words(said: str, words: str) -> None:
    assert read(said).strip() == words


def test_lists_fields_and_terms_are_items() -> None:
    assert read("#. One\n   more\n#. Two\n\n   * in it") == "1. One\n   more\n1. Two\n\n   * in it"
    assert read(":orphan:\n\n:param port: The\n    port.") == "\n\n- param port: The\n  port."
    assert read("``--port``\n    The port.\n\n    More.") == "- ``--port``:\n  The port.\n\n  More."
    assert read("``port``\n\n    The port.") == "**``port``**\n\nThe port."
    assert read("It holds:\n\n    * one\n    * two") == "It holds:\n\n* one\n* two"
    assert read("| One\n| two") == "One\ntwo"
    assert read(".. [1] It\n   says so.") == "[1] It\nsays so."


TABLE = "| Port | Use |\n| --- | --- |\n| 80 | plain words |\n| 443 |  |"


@pytest.mark.parametrize(
    "table",
    [
        "+------+-------+\n| Port | Use   |\n+======+=======+\n| 80   | plain |\n|      | words |\n"
        "+------+-------+\n| 443  |       |\n+------+-------+",
        "====  =====\nPort  Use\n====  =====\n80    plain\n      words\n443\n====  =====",
        ".. list-table::\n   :header-rows: 1\n\n   * - Port\n     - Use\n   * - 80\n     - plain\n"
        "       words\n   * - 443",
        '.. csv-table::\n   :header: Port, Use\n\n   80, "plain\n   words"\n   443',
        ".. csv-table::\n   :header-rows: 1\n   :delim: ;\n\n   Port;Use\n   80;plain words\n"
        "   443;",
    ],
)
def test_tables_keep_their_rows_and_header(table: str) -> None:
    assert read(f"{table}\n\nThen.") == f"{TABLE}\n\nThen."
    assert [b.kind for b in restructured_blocks(table)] == ["table"]


def test_tables_without_a_header_wide_ones_and_merged_cells() -> None:
    assert read("==  ==\n80  a\n==  ==") == "|  |  |\n| --- | --- |\n| 80 | a |"
    wide = "====  ====\n端口  用途\n====  ====\n80    网页\n====  ===="
    assert read(wide) == "| 端口 | 用途 |\n| --- | --- |\n| 80 | 网页 |"
    merged = "+---+---+\n| both  |\n+===+===+\n| a | b |\n|   +---+\n| c | d |\n+---+---+"
    assert read(merged) == ("| both | both |\n| --- | --- |\n| a c | b |\n| a c | d |")
    torn = "+---+---+\n| a | b\n+---+---+"
    assert read(torn) == f"```\n{torn}\n```"


def test_a_table_keeps_its_caption() -> None:
    table = ".. csv-table:: Open `ports`\n\n   80, web"
    assert read(table) == "**Open `ports`**\n\n|  |  |\n| --- | --- |\n| 80 | web |"


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("a.rst", "Words.", True),
        ("a.txt", "Words.\n\n.. note:: It stops.", True),
        ("README", "Words.\n\n.. _label:\n\nMore.", True),
        ("a.txt", "Words ...\n\n.. and so on.\n\n---\n", False),
        ("a.txt", "Run::\n\n    make\n", True),
        ("a.txt", "By `Ann <https://a.org>`_.", True),
        ("a.txt", "Of std::\n\nand more.", False),
        ("a.log", ".. note:: x", False),
    ],
)
def test_it_is_told_by_its_suffix_or_its_marks(
    tmp_path: Path, name: str, text: str, found: bool
) -> None:
    (tmp_path / name).write_text(text)
    profile = TextLoader().load(tmp_path / name, name).summary.parse_profile
    assert (profile == "restructuredtext") is found


def test_a_file_without_a_suffix_is_left_to_the_loader_of_its_marks() -> None:
    text = "Guide\n=====\n\n- one\n"
    assert MarkdownLoader().claims("README", text.encode())
    assert is_restructured(f"{text}\n.. note:: It stops.\n", "")
    assert not MarkdownLoader().claims("README", f"{text}\n.. note:: It stops.\n".encode())


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("Notes\n=====\n\n* Fixed a crash of :func:`~os.walk`.\n", True),
        ("Notes\n=====\n\nSee :py:class:`dict`.\n", True),
        ("Notes\n=====\n\nRun `ls`, at 10:30:`now`.\n", False),
    ],
)
def test_a_role_tells_the_format_of_a_text_file(text: str, told: bool) -> None:
    assert is_restructured(text, ".txt") is told


def test_code_beside_other_text_stays_apart_from_it() -> None:
    assert read("Many :class:`QuerySet`\\s and ``dict``\\s.") == "Many `QuerySet`s and ``dict``s."
    assert read("Default: ``'``:class:`db.Auto`\\ ``'``") == "Default: ``'``db.Auto``'``"
    assert read(r"Save it in C:\Users.") == r"Save it in C:\Users."


@given(st.text(alphabet=" \n.:`*-=+|_ab[]<>1\\", max_size=80))
def test_edits_are_in_order_and_blocks_hold_every_character(text: str) -> None:
    edits, blocks = markdown_edits(text), restructured_blocks(text)
    assert all(one.end <= other.start for one, other in pairwise(edits))
    assert all(one.end <= other.start for one, other in pairwise(blocks))
    held = "".join(text[block.start : block.end] for block in blocks)
    assert "".join(held.split()) == "".join(text.split())
    apply_edits(text, edits)


@pytest.mark.parametrize(
    "text",
    [
        "- " * 20_000,
        "".join(" " * n + "a\n\n" for n in range(400)),
        "`" * 50_000,
        ":a:`" * 20_000,
        "|a" * 50_000,
        "=\n" * 20_000,
        "a\n" * 50_000,
        ".. a::\n" * 20_000,
        "+-+\n" * 20_000,
        "= =\n" * 20_000,
    ],
)
def test_odd_texts_take_little_time(text: str) -> None:
    begun = time.process_time()
    markdown_edits(text)
    restructured_blocks(text)
    assert time.process_time() - begun < 5
