from __future__ import annotations

import hashlib
import sys
import unicodedata
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_platform.config.ingestion import CleaningConfig, NoiseRule
from rag_platform.ir import Block, Edit, Facts, MediaLink, ParseSummary
from rag_platform.normalisation.edits import (
    INVISIBLE,
    apply_edits,
    canonical,
    fingerprint_text,
    normalise,
    target_edit,
)

CLEANING = CleaningConfig()
MIXED = st.text(
    alphabet=st.sampled_from(
        list(
            "ab \t\n"
            "\r\u00a0\u200b\u200d\ufeff\x00\x0c\u0301e中文，。ﬁＡ①\u1100\u1161👩💻\u0085\u2028"
        )
    ),
    max_size=60,
)


def facts_of(text: str, *blocks: Block) -> Facts:
    blocks = blocks or (Block(0, "paragraph", 0, len(text)),)
    return Facts(
        text,
        blocks,
        (),
        ParseSummary("t", "1", "e", "1", "p", hashlib.sha256(text.encode()).hexdigest(), len(text)),
    )


def cleaned(text: str, *blocks: Block, links: tuple[MediaLink, ...] = ()) -> str:
    return normalise(facts_of(text, *blocks), links, CLEANING).text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ＦＵＬＬ ﬁ ①", "FULL fi 1"),
        ("a\r\nb\rc", "a\nb\nc"),
        ("\ufeffa\u200bb\x07c\td", "abc\td"),
        ("  a \n b\t\n", "a\n b"),
        ("a\n\n\n\nb", "a\n\nb"),
        ("e\u200b\u0301", "é"),
        ("\x0c \n", ""),
    ],
)
def test_canonical(text: str, expected: str) -> None:
    assert canonical(text, CLEANING) == expected


def test_what_html_hides_in_markdown_is_removed_and_in_plain_text_stays() -> None:
    facts = facts_of("Run it. <!-- TODO -->\n")
    assert normalise(facts, (), CLEANING).text == facts.text
    markdown = replace(facts, summary=replace(facts.summary, loader_name="markdown"))
    done = normalise(markdown, (), CLEANING)
    assert done.text == "Run it.\n" and done.edits == (
        Edit(7, 21, "", "hidden_text: not_displayed"),
    )


def test_canonical_keeps_as_many_blank_lines_as_configured() -> None:
    assert canonical("a\n\n\n\nb", CleaningConfig(max_blank_lines=2)) == "a\n\n\nb"
    assert canonical("a\n\n\n\nb", CleaningConfig(max_blank_lines=0)) == "a\nb"
    assert canonical("ﬁ", CleaningConfig(unicode_form="NFC")) == "ﬁ"


@given(st.one_of(MIXED, st.text(max_size=60)))
def test_canonical_is_idempotent(text: str) -> None:
    once = canonical(text, CLEANING)
    assert canonical(once, CLEANING) == once


def test_invisible_holds_every_control_and_format_character_this_python_knows() -> None:
    known = {
        chr(i) for i in range(sys.maxunicode + 1) if unicodedata.category(chr(i)) in ("Cc", "Cf")
    } - {"\n", "\t"}
    assert {char for char in known if not INVISIBLE.match(char)} == set()


def test_fingerprint_is_the_hash_of_the_canonical_text() -> None:
    assert fingerprint_text(" Ａ\r\n", CLEANING) == hashlib.sha256(b"A").hexdigest()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\r\nb\rc", "a\nb\nc"),
        ("\ufeffa\u200bb\u202ec\xadd", "abcd"),
        ("a \t\u3000\nb  ", "a\nb"),
        ("a\n \n\t\n\nb", "a\n\nb"),
        ("a\x0cb \x0c\nc", "a b\nc"),
        ("\x1b[31mred\x1b[0m A\x08B", "red AB"),
        ("👩\u200d💻 क्\u200dष a\u200db\u200d", "👩\u200d💻 क्\u200dष ab"),
        ("a\x00b", "ab"),
        ("![d](data:image/png;base64," + "A" * 80 + ")", "![d](data:image/png;base64,)"),
    ],
)
def test_normalise_text(text: str, expected: str) -> None:
    assert cleaned(text) == expected


def test_code_keeps_everything_but_carriage_returns_and_nul() -> None:
    text = "a  \r\n```\r\nx \u200b\x0c \r\n\r\n\r\n\r\n\x00y\r\n```"
    code = Block(1, "code", 5, len(text))
    assert cleaned(text, Block(0, "paragraph", 0, 3), code) == "a\n```\nx \u200b\x0c \n\n\n\ny\n```"


def test_front_matter_and_page_headers_are_removed() -> None:
    text = "---\na: b\n---\n# H\n\npage head\n\nbody\n\n7"
    blocks = (
        Block(0, "front_matter", 0, 12),
        Block(1, "heading", 13, 16, level=1),
        Block(2, "header", 18, 27, page=1, repeated=True),
        Block(3, "paragraph", 29, 33, page=1),
        Block(4, "footer", 35, 36, page=1, repeated=True),
    )
    assert cleaned(text, *blocks) == "\n# H\n\nbody\n\n"
    kept = normalise(facts_of(text, *blocks), (), CleaningConfig(drop_page_headers=False))
    assert kept.text == "\n# H\n\npage head\n\nbody\n\n7"


def test_chinese_lines_of_a_page_are_joined_and_nothing_else() -> None:
    text = "检索 增强\n生成，\n模型 uses\n中文"
    page = Block(0, "paragraph", 0, len(text), page=1)
    assert cleaned(text, page) == "检索增强生成，模型 uses\n中文"
    assert cleaned(text) == text
    assert cleaned(text, Block(0, "heading", 0, len(text), level=1, page=1)) == text
    assert normalise(facts_of(text, page), (), CleaningConfig(join_cjk_lines=False)).text == text


@pytest.mark.parametrize(
    ("construct", "expected"),
    [
        ("![a](b.png)", "![a](asset://x)"),
        ('![a [n]](<b c.png> "t)")', '![a [n]](asset://x "t)")'),
        ("![a](  b_(1).png\n'q')", "![a](  asset://x\n'q')"),
        ("![a]()", "![a](asset://x)"),
        ("![a][ref]", "![a](asset://x)"),
        ("![ref][]", "![ref](asset://x)"),
        ("![ref]", "![ref](asset://x)"),
        ('<img alt="src" src="b.png">', '<img alt="src" src="asset://x">'),
        ("<img src=b.png>", "<img src=asset://x>"),
    ],
)
def test_image_targets_become_assets(construct: str, expected: str) -> None:
    text = f"see {construct} here"
    edit = target_edit(text, 4, 4 + len(construct), "asset://x")
    assert edit is not None
    assert text[: edit[0]] + edit[2] + text[edit[1] :] == f"see {expected} here"
    link = MediaLink("r", "x", "b.png", start=4, end=4 + len(construct))
    assert cleaned(text, links=(link,)) == f"see {expected} here"


def test_an_image_that_was_not_found_keeps_its_target() -> None:
    assert (
        cleaned(
            "![a](b.png)", links=(MediaLink("r", "", "b.png", start=0, end=11, reason="missing"),)
        )
        == "![a](b.png)"
    )


def test_maps_of_literal_edits() -> None:
    edits = [Edit(1, 3, "", "x"), Edit(4, 6, "LONG", "y")]
    norm = apply_edits("abcdefg", edits)
    assert norm.text == "adLONGg"
    assert [norm.to_facts(i) for i in range(8)] == [0, 3, 4, 4, 4, 4, 6, 7]
    assert [norm.to_norm(i) for i in range(8)] == [0, 1, 1, 1, 2, 2, 6, 7]
    assert norm.span_to_facts(0, 2) == (0, 4)
    assert norm.span_to_facts(0, 1) == (0, 1)
    assert norm.span_to_facts(3, 5) == (4, 6)
    assert norm.span_to_norm(0, 3) == (0, 1)
    assert norm.span_to_norm(1, 3) == (1, 1)
    assert norm.span_to_norm(3, 5) == (1, 6)


NOISY = st.lists(
    st.sampled_from(
        [
            *"ab \n\r中，",
            "https://a.b/c",
            "[w](https://a.b)",
            "x@y.zz",
            "Page 1 of 9",
            "![i](p.png)",
            "\u200b",
            "  ",
        ]
    ),
    max_size=30,
).map("".join)
RULES = CleaningConfig(
    drop_urls=True,
    drop_emails=True,
    noise=(
        NoiseRule(pattern=r"Page \d+ of \d+", scope="lines"),
        NoiseRule(pattern="[ab]{2,}", replacement="LONGER"),
        NoiseRule(pattern="中+", replacement="", scope="everywhere"),
    ),
)


@given(
    st.one_of(MIXED, NOISY),
    st.integers(0, 60),
    st.integers(0, 60),
    st.sampled_from(["code", "header", "paragraph", "front_matter"]),
    st.sampled_from([CLEANING, RULES]),
)
def test_offsets_map_there_and_back(
    text: str, first: int, second: int, kind: str, rules: CleaningConfig
) -> None:
    low, high = sorted((min(first, len(text)), min(second, len(text))))
    spans = [("paragraph", 0, low), (kind, low, high), ("paragraph", high, len(text))]
    blocks = [Block(i, name, a, b, page=1) for i, (name, a, b) in enumerate(spans) if a < b]
    norm = normalise(facts_of(text, *blocks), (), rules)
    assert all(a.end <= b.start for a, b in zip(norm.edits, norm.edits[1:], strict=False))
    assert apply_edits(text, norm.edits) == norm
    replaced = {
        i for a, b in zip(norm.norm_starts, norm.norm_ends, strict=True) for i in range(a, b)
    }
    for offset in range(len(norm.text)):
        back = norm.to_facts(offset)
        if offset not in replaced:
            assert text[back] == norm.text[offset]
            assert norm.to_norm(back) == offset
        start, end = norm.span_to_facts(offset, len(norm.text))
        inside = [
            Edit(e.start - start, e.end - start, e.replacement, "")
            for e in norm.edits
            if start <= e.start and e.end <= end
        ]
        assert apply_edits(text[start:end], inside).text == norm.text[norm.to_norm(start) :]
