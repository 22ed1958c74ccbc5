from __future__ import annotations

import hashlib
import html
import json
from html.parser import HTMLParser
from pathlib import Path

import pytest

from rag_platform.errors import DocumentError
from rag_platform.ir import Facts
from rag_platform.loaders.markdown import MarkdownLoader, find_hidden, heading_title

LOADER = MarkdownLoader()


def load(tmp_path: Path, text: str | bytes, name: str = "doc.md") -> Facts:
    raw = text.encode() if isinstance(text, str) else text
    (tmp_path / "file").write_bytes(raw)
    facts = LOADER.load(tmp_path / "file", name)
    check(facts, raw)
    return facts


def check(facts: Facts, raw: bytes) -> None:
    """Blocks are in order, cover everything but white space once, and their bytes decode to
    them.
    """
    done = 0
    for number, block in enumerate(facts.blocks):
        assert block.ordinal == number
        assert not facts.text[done : block.start].strip()
        assert block.start < block.end
        read = raw[block.byte_start : block.byte_end].decode(
            facts.summary.encoding, "replace" if facts.summary.lossy else "strict"
        )
        assert read == facts.text[block.start : block.end]
        done = block.end
    assert not facts.text[done:].strip()
    for ref in facts.media:
        assert facts.text[ref.start] in "!<" and facts.text[ref.end - 1] in ")]>"


def kinds(facts: Facts) -> list[tuple[str, int, str]]:
    return [(b.kind, b.level, facts.text[b.start : b.end]) for b in facts.blocks]


def test_blocks_of_every_kind(tmp_path: Path) -> None:
    facts = load(
        tmp_path,
        "---\n"
        "title: T\n"
        "---\n"
        "# One\n"
        "\n"
        "text\n"
        "more\n"
        "\n"
        "- a\n"
        "\n"
        "- b\n"
        "  c\n"
        "\n"
        "```py\n"
        "# x\n"
        "\n"
        "y\n"
        "```\n"
        "\n"
        "| a | b |\n"
        "|---|---|\n"
        "| 1 | 2 |\n"
        "\n"
        "<div>\n"
        "x\n"
        "</div>\n"
        "\n"
        "Two\n"
        "===\n"
        "\n"
        "> quote\n"
        "\n"
        "[ref]: /url\n",
    )
    assert kinds(facts) == [
        ("front_matter", 0, "---\ntitle: T\n---"),
        ("heading", 1, "# One"),
        ("paragraph", 0, "text\nmore"),
        ("list", 0, "- a\n\n- b\n  c"),
        ("code", 0, "```py\n# x\n\ny\n```"),
        ("table", 0, "| a | b |\n|---|---|\n| 1 | 2 |"),
        ("html", 0, "<div>\nx\n</div>"),
        ("heading", 1, "Two\n==="),
        ("paragraph", 0, "> quote"),
        ("paragraph", 0, "[ref]: /url"),
    ]
    assert [(b.line_start, b.line_end) for b in facts.blocks][:4] == [
        (1, 3),
        (4, 4),
        (6, 7),
        (9, 12),
    ]
    assert facts.summary.md_sha256 == hashlib.sha256(facts.text.encode()).hexdigest()
    assert (facts.summary.title, facts.summary.metadata) == ("T", {"title": "T"})


def test_code_inside_a_list_is_code(tmp_path: Path) -> None:
    facts = load(tmp_path, "- a\n\n  ```\n  # no heading\n  ```\n- b\n")
    assert [(kind, text) for kind, _, text in kinds(facts)] == [
        ("list", "- a"),
        ("code", "  ```\n  # no heading\n  ```"),
        ("list", "- b"),
    ]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_line_ends_do_not_change_the_structure(tmp_path: Path, end: str) -> None:
    lines = [
        "# Head",
        "",
        "## Sub",
        "",
        "para",
        "",
        "```",
        "code",
        "```",
        "",
        "| a | b |",
        "|---|---|",
        "| 1 | 2 |",
        "",
    ]
    facts = load(tmp_path, end.join(lines))
    assert [(b.kind, b.level, b.line_start, b.line_end) for b in facts.blocks] == [
        ("heading", 1, 1, 1),
        ("heading", 2, 3, 3),
        ("paragraph", 0, 5, 5),
        ("code", 0, 7, 9),
        ("table", 0, 11, 13),
    ]


def test_headings_only_where_they_are(tmp_path: Path) -> None:
    facts = load(
        tmp_path,
        "# Real\n"
        "\n"
        "    # indented\n"
        "\n"
        "#no space\n"
        "\n"
        "####### seven\n"
        "\n"
        "> # quoted\n"
        "\n"
        "- # in a list\n"
        "\n"
        "Set\n"
        "ext\n"
        "---\n"
        "\n"
        "## Closing ##\n",
    )
    assert [(b.level, b.title) for b in facts.blocks if b.kind == "heading"] == [
        (1, "Real"),
        (2, "Set ext"),
        (2, "Closing"),
    ]


@pytest.mark.parametrize(
    ("content", "title"),
    [
        ("Use `StaticFiles` { #use-it }", "Use StaticFiles"),
        ("**bold** [link](x) 中文 😀", "bold link 中文 😀"),
        ("Jinja {{ name }}", "Jinja {{ name }}"),
        ("{ #only }", ""),
        ("Ids {/* #mdx-id */}", "Ids"),
        ("[1.16](x) - 2026 ## {: #v116 }", "1.16 - 2026"),
        ("a &amp; b \\* c", "a & b * c"),
        ("A\x08B \u202etxt", "AB txt"),
    ],
)
def test_heading_title(content: str, title: str) -> None:
    assert heading_title(content) == title


def test_images_of_every_form(tmp_path: Path) -> None:
    text = (
        "# A\n"
        "\n"
        '![one](a.png) and [![two](<b c.png> "t")](link)\n'
        "\n"
        "## B\n"
        "\n"
        "> quoted ![three][r] ![r]\n"
        "\n"
        "| x ![four](d.png) |\n"
        "|---|\n"
        "| y |\n"
        "\n"
        '<p><img alt="five" src="e.png"></p>\n'
        "\n"
        "inline <IMG src=f.png> `![no](x)` <!-- <img src=no.png> -->\n"
        "\n"
        "```\n"
        "![no](y)\n"
        "```\n"
        "\n"
        '[r]: r%20.png "t"\n'
    )
    facts = load(tmp_path, text)
    assert [
        (m.origin_ref, m.context_hint, facts.text[m.start : m.end], m.heading_path)
        for m in facts.media
    ] == [
        ("a.png", "one", "![one](a.png)", "A"),
        ("b c.png", "two", '![two](<b c.png> "t")', "A"),
        ("r%20.png", "three", "![three][r]", "A / B"),
        ("r%20.png", "r", "![r]", "A / B"),
        ("d.png", "four", "![four](d.png)", "A / B"),
        ("e.png", "five", '<img alt="five" src="e.png">', "A / B"),
        ("f.png", "", "<IMG src=f.png>", "A / B"),
    ]
    assert [m.order for m in facts.media] == list(range(7)) and facts.summary.images == 7


def test_targets_are_kept_as_written_whatever_their_scheme(tmp_path: Path) -> None:
    facts = load(
        tmp_path,
        "![a](file:///etc/passwd) ![b](图.png) ![c](data:image/png;base64,AAAA)"
        " ![d](javascript:x)\n",
    )
    assert [m.origin_ref for m in facts.media] == [
        "file:///etc/passwd",
        "图.png",
        "data:image/png;base64,AAAA",
        "javascript:x",
    ]


def test_bytes_of_other_encodings(tmp_path: Path) -> None:
    facts = load(tmp_path, "\ufeff# 标题\r\n\r\n段落 a\r\n".encode("utf-16-le"))
    assert [(b.byte_start, b.byte_end) for b in facts.blocks] == [(2, 10), (18, 26)]
    load(tmp_path, "# 标题\n\n这是一个用于测试编码的段落，包含中文标点。\n".encode("gbk"))
    load(tmp_path, b"# Title\n\nbad \xff\xfe\xc3( bytes \xed\xa0\x80 end\n\nnext \xf0(\x8c(\n")


def test_title_falls_back_to_heading_then_to_the_first_line(tmp_path: Path) -> None:
    assert load(tmp_path, "intro\n\n## The *title* { #x }\n").summary.title == "The title"
    assert load(tmp_path, "\n\n  first line\nsecond\n").summary.title == "first line"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Run it. <!-- TODO -->\n<!-- a\n\nb --> Stop.", "Run it.\n Stop."),
        ("Get 3 <!-- a -->times<!-- b -->, then <!-- c --> go.", "Get 3 times, then go."),
        ("- one <!-- a -->\n- two", "- one\n- two"),
        ("| a <!-- x --> | b |\n| - | - |\n| 1 | 2 |", "| a | b |\n| - | - |\n| 1 | 2 |"),
        ("a\n\n<script>\nx = 1\n\ny()\n</script>\n\n<STYLE>p{}</STYLE>\nb", "a\n\n\n\n\nb"),
        ("<div hidden>\n\n*a* <div>b</div> `c`\n\n</div>\n\nd", "\n\nd"),
        ("<p style='display: none'>a</p>\n\nb <b hidden=''>c</b>", "\n\nb"),
        ("%% why? %%\nRun it. ^run-2\n\n%%\nask\n%%\n\n- b\n  ^a1b2c3", "\nRun it.\n\n\n\n- b\n "),
        ("a\n\n%%\nb\n\n## c\n\n- d\n\ne\n%%\n\nf\n%%\n\ng\n\n%%\nh", "a\n\n\n\nf\n\nh"),
        ("a\r\n\r\n%%\r\n\r\nb\r\n\r\n%%\r\n\r\nc", "a\r\n\r\n\r\n\r\nc"),
        # what only looks like it
        ("a\n\n%%\nb\n\nc", None),
        ("a\n\n%%\n\nb\n\n<!-- c -->\n\nd", "a\n\n%%\n\nb\n\n\n\nd"),
        ("%% and %% are `%% a %%`\n\nx ^2\nx ^abc d\nx ^max\n\n    %% a %%\n    b ^abc", None),
        ("`<!-- a -->` ``x ` <!-- b -->`` \\<!-- c --> <!-- d", None),
        ("```html\n<!-- a -->\n```\n\n- b\n\n      <!-- c -->\n\n  ~~~\n  <!-- d -->\n  ~~~", None),
        ("<div hidden={no}>a</div> <input hidden> b <i data-hidden>c</i> <b hidden>d", None),
    ],
)
def test_what_html_hides_is_found(text: str, shown: str | None) -> None:
    head = "---\na: <!-- b -->\n---\n"
    rest = text
    for start, end in reversed(find_hidden(head + text, len(head))):
        rest = rest[: start - len(head)] + rest[end - len(head) :]
    assert rest == (text if shown is None else shown)


def test_a_note_of_a_wiki_is_called_by_its_file(tmp_path: Path) -> None:
    def title(text: str) -> str:
        path = tmp_path / "Pump room.md"
        path.write_text(text)
        return MarkdownLoader().load(path, path.name).summary.title

    assert title("It hums, see [[Valves#Open|valves]].\n\n## Doors\n\nShut.\n") == "Pump room"
    assert title("![[plan.png]]\n") == "Pump room"
    assert title("---\ntags: [a]\n---\nIt hums.\n\n## Doors\n\nShut.\n") == "Pump room"
    assert title("---\ntitle: Pumps\n---\nSee [[Valves]].\n") == "Pumps"
    assert title("---\nlayout: page\ndate: 2026-01-05\n---\n## Pumps\n\nIt hums.\n") == "Pumps"
    assert title("# Pumps\n\nSee [[Valves]].\n") == "Pumps"
    assert title("[[toc]]\n\n## Doors\n\n[[a](b.md)] x[[y]]\n\n```\n[[bin]]\n```\n") == "Doors"


def test_a_comment_is_no_title(tmp_path: Path) -> None:
    assert load(tmp_path, "<!-- prettier-ignore -->\nThe harbour\n").summary.title == "The harbour"


def test_the_first_of_several_sections_is_no_title(tmp_path: Path) -> None:
    assert load(tmp_path, "## 1.2\n\n* Mend.\n\n## 1.1\n\n* Begin.\n").summary.title == ""
    assert load(tmp_path, "## Guide\n\nText.\n\n### A\n\n### B\n").summary.title == "Guide"
    assert load(tmp_path, "# One\n\n# Two\n").summary.title == "One"
    banner = (
        '<p align="center">\n<img src="a.svg">\n<h1 align="center"><b>Zod</b> &amp; co</h1>\n</p>\n'
    )
    assert load(tmp_path, banner + "\n## Use\n\n## Test\n").summary.title == "Zod & co"
    assert load(tmp_path, "## Use\n\n<h1>Zod</h1>\n\n## Test\n").summary.title == ""


@pytest.mark.parametrize(
    ("text", "title"),
    [
        (
            '<h1 align="center">\n\t<img src="a.svg" alt="Chalk">\n</h1>\n\n## Use\n\n## Test\n',
            "Chalk",
        ),
        # the project's name above each of its pages, with and without a table of contents
        ("<h1>Fastify</h1>\n\n## Hooks\n\n### Request\n", "Hooks"),
        ("<h1>Fastify</h1>\n\n**Contents**\n- [A](#a)\n\n## Hooks\n\n### A\n", "Hooks"),
        ("<h1>Vant</h1>\n\nMobile parts.\n\n## Use\n\n### Test\n", "Vant"),
        ("<h3>A slogan</h3>\n\n# Zod\n\n## Use\n", "Zod"),
        ("<h2>Links</h2>\n\nAll.\n\n<h2>Backers</h2>\n\nThanks.\n", ""),
        # badges are no part of it, and a row of links is no heading
        ("# braces [![NPM version](https://a.org/b.svg)](https://a.org)\n", "braces"),
        ('<h4>\n<a href="b">English</a> |\n<a href="c">中文</a>\n</h4>\n\n# Hub\n', "Hub"),
    ],
)
def test_the_title_of_a_readme(tmp_path: Path, text: str, title: str) -> None:
    assert load(tmp_path, text).summary.title == title


def test_many_headings_in_html_have_a_title(tmp_path: Path) -> None:
    assert load(tmp_path, "<h1>Zod</h1>\n\n" * 1500).summary.title == "Zod"


def test_headings_of_html_are_headings(tmp_path: Path) -> None:
    text = (
        '<div align="center">\n  <h1>Zod &amp; co</h1>\n  <p>Checks.</p>\n</div>\n\n'
        "<h2 align=center>\n<b>Sponsors</b>\n</h2>\n\nThanks.\n\n"
        "<pre>\n<h2>code</h2>\n</pre>\n\n> <h2>quoted</h2>\n"
    )
    facts = load(tmp_path, text)
    assert [(b.level, b.title) for b in facts.blocks if b.title] == [
        (1, "Zod & co"),
        (2, "Sponsors"),
    ]
    assert kinds(facts)[:5] == [
        ("html", 0, '<div align="center">'),
        ("heading", 1, "  <h1>Zod &amp; co</h1>"),
        ("html", 0, "  <p>Checks.</p>\n</div>"),
        ("heading", 2, "<h2 align=center>\n<b>Sponsors</b>\n</h2>"),
        ("paragraph", 0, "Thanks."),
    ]


def test_nothing_but_front_matter_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DocumentError) as caught:
        load(tmp_path, "---\ntitle: x\n---\n")
    assert caught.value.code == "empty_file"


@pytest.mark.parametrize(
    ("name", "head", "claimed"),
    [
        ("a.md", b"x", True),
        ("UPPER.MD", b"x", True),
        ("doc.pdf.md", b"x", True),
        ("a.markdown", b"x", True),
        ("a.md", b"%PDF-1.4\n", False),
        ("a.md", b"\x7fELF\x02", False),
        ("no-extension", b"# Heading\n\ntext\n", True),
        ("LICENSE", b"MIT License\n\nCopyright", False),
        ("a.txt", b"# Heading\n", False),
    ],
)
def test_claims(name: str, head: bytes, claimed: bool) -> None:
    assert LOADER.claims(name, head) is claimed


@pytest.mark.parametrize(
    "text",
    [
        ">" * 50_000,
        "[" * 50_000,
        "![" * 25_000,
        "![](" * 12_000,
        "*a **a " * 7_000,
        "".join("  " * i + "- a\n" for i in range(200)),
        "<!-- " * 10_000,
        '<img src="a ' * 4_000,
        "`" * 50_000,
        " " * 50_000 + "x",
        "[a]: " * 10_000,
        "|" + "a|" * 20_000 + "\n|" + "-|" * 20_000,
    ],
)
def test_pathological_text_is_read_without_hanging(tmp_path: Path, text: str) -> None:
    assert load(tmp_path, text).text == text


def test_deep_nesting_falls_back_to_paragraphs(tmp_path: Path) -> None:
    facts = load(tmp_path, "---\na: b\n---\n" + ">" * 3000 + " x\n\nnext\n")
    assert [b.kind for b in facts.blocks] == ["front_matter", "paragraph", "paragraph"]
    assert "read as plain paragraphs" in facts.summary.warnings[0]


def test_every_commonmark_example_is_covered_by_blocks(tmp_path: Path, material: Path) -> None:
    examples = json.loads((material / "commonmark" / "examples.json").read_text(encoding="utf-8"))
    for example in examples:
        if example["markdown"].strip():
            load(tmp_path, example["markdown"])
    assert len(examples) > 300


class ShownText(HTMLParser):
    """Collects what a browser shows of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []

    def handle_data(self, data: str) -> None:
        self.parts.append(data)


def test_facts_keep_the_text_of_every_commonmark_example(tmp_path: Path, material: Path) -> None:
    examples = json.loads((material / "commonmark" / "examples.json").read_text(encoding="utf-8"))
    for example in examples:
        page = ShownText()
        page.feed(example["html"])
        page.close()
        text = load(tmp_path, example["markdown"]).text
        assert any(
            in_order("".join("".join(page.parts).split()), form)
            for form in (text, html.unescape(text))
        ), example["example"]


def in_order(wanted: str, text: str) -> bool:
    """True when the characters stand in the text in this order."""
    rest = iter(text)
    return all(char in rest for char in wanted)


@pytest.mark.parametrize(
    "text", ["<!-- nothing -->\n", "---\na: 1\n---\n\n<!-- one -->\n\n<!-- two\n\nlines -->\n"]
)
def test_a_file_of_comments_says_that_it_holds_no_text(tmp_path: Path, text: str) -> None:
    path = tmp_path / "comments.md"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DocumentError, match="comments and no text") as caught:
        MarkdownLoader().load(path, path.name)
    assert caught.value.code == "empty_file"


@pytest.mark.parametrize(
    ("text", "alone"),
    [
        ("![](a.png)\n\n![Figure 1](b.png)\n", True),
        ("![](a.png)\n\nword\n", False),
        ("<!-- note -->\n\n![](a.png)", False),
        ("```\n<!-- shown -->\n```\n", False),
    ],
)
def test_a_file_of_pictures_alone_is_warned_of(tmp_path: Path, text: str, alone: bool) -> None:
    path = tmp_path / "pictures.md"
    path.write_text(text, encoding="utf-8")
    assert (
        "the file holds pictures and no text"
        in MarkdownLoader().load(path, path.name).summary.warnings
    ) is alone
