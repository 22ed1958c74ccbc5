"""What every chunker and sectioner must do, run over the whole registry: a new entry is tested by
being registered.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_platform.protocols import Chunker, Sectioner
from rag_platform.registry import PROVIDERS, make_provider
from rag_platform.sectioners.sections import Heading
from rag_platform.text.cut_points import WHOLE_CHARS, is_grapheme_boundary
from rag_platform.text.markdown_blocks import Guarded, structure

HASHING = {"embedder": "hashing"}
# Small sizes, so that short texts are cut often; the longest span without a fence or a row in
# characters.
CHUNKERS: dict[str, tuple[dict[str, Any], int]] = {
    "recursive": ({"chunk_size": 60, "chunk_overlap": 20}, 60),
    "whole_section": ({"max_chars": 60, "chunk_overlap": 20}, 60),
    "token": ({"chunk_size": 24, "chunk_overlap": 8, **HASHING}, 24 * 13),
    "sentence_window": ({"chunk_size": 60, "overlap_sentences": 1}, 60),
    "semantic": ({"chunk_size": 60, "min_chars": 20, **HASHING}, 60),
    "parent_child": (
        {"parent": {"chunk_size": 120}, "child": {"chunk_size": 50, "chunk_overlap": 10}},
        50,
    ),
    "qa": ({"max_chars": 80, "chunk_size": 60, "chunk_overlap": 20}, 80),
}
SECTIONERS: dict[str, dict[str, Any]] = {
    "markdown_headings": {"min_section_chars": 30},
    "whole_doc": {},
    "ast_markdown": {"max_section_chars": 200, "min_section_chars": 30},
    "rule_based": {"template": "contract"},
}
FENCE = "```py\n" + "value = 1\n" * 30 + "```\n"
ROWS = "| a | b |\n|---|---|\n" + "".join(f"| {i} | {'cell ' * 30}|\n" for i in range(4))
PARTS = [
    "word ",
    "Some sentence ends. ",
    "中文句子在这里。",
    "第一条 甲方应当付款。\n",
    "\n",
    "\n\n",
    "```\n",
    "| a | b |\n",
    "|---|---|\n",
    "| 1 | 2 |\n",
    "# H\n",
    "## What is it?\n",
    "Q: why?\n",
    "A: because.\n",
    "问：为什么？\n答：因为。\n",
    "\U0001f469\u200d\U0001f4bb",
    "e\u0301",
    "x" * 70,
    "  ",
    "- item\n",
    "1. ",
    "> quote\n",
    "~~~\n",
    FENCE,
    ROWS,
]
TEXTS = st.lists(st.sampled_from(PARTS), max_size=40).map("".join)


@pytest.fixture(params=sorted(PROVIDERS["chunker"]))
def named(request: pytest.FixtureRequest) -> tuple[Chunker, int]:
    options, longest = CHUNKERS[request.param]
    return make_provider("chunker", request.param, options), longest


@pytest.fixture(params=sorted(PROVIDERS["sectioner"]))
def sectioner(request: pytest.FixtureRequest) -> Sectioner:
    built: Sectioner = make_provider("sectioner", request.param, SECTIONERS[request.param])
    return built


def held(run: Guarded, text: str) -> tuple[int, int]:
    """The run without white space around it."""
    part = text[run.start : run.end]
    return run.end - len(part.lstrip()), run.start + len(part.rstrip())


def check(text: str, spans: Sequence[tuple[int, int]], longest: int) -> None:
    runs = [run for run in structure(text) if run.end - run.start <= WHOLE_CHARS]
    done = before = -1
    for start, end in spans:
        assert start > before and end > done, "in order, each with something new"
        assert text[start:end] == text[start:end].strip() != ""
        assert not text[max(done, 0) : start].strip(), "all that is not white space lies in a span"
        assert is_grapheme_boundary(text, start) and is_grapheme_boundary(text, end)
        for run in runs:
            low, high = held(run, text)
            assert not low < end < high, f"ends inside a {run.kind}"
            assert not low < start < high, f"starts inside a {run.kind}"
        if not any(run.start < end and start < run.end for run in runs):
            assert end - start <= longest
        before, done = start, end
    assert not text[max(done, 0) :].strip()


@given(text=TEXTS)
@pytest.mark.parametrize("name", sorted(PROVIDERS["chunker"]))
def test_spans_are_ordered_trimmed_complete_and_split_nothing(name: str, text: str) -> None:
    options, longest = CHUNKERS[name]
    chunker: Chunker = make_provider("chunker", name, options)
    spans = chunker.spans(text)
    check(text, spans, longest)
    assert make_provider("chunker", name, options).spans(text) == spans


def test_no_text_has_no_span_and_little_text_one(named: tuple[Chunker, int]) -> None:
    chunker, _ = named
    assert chunker.spans("") == chunker.spans(" \n\t\n") == []
    assert chunker.spans("  a word \n") == [(2, 8)]


def test_a_text_without_any_boundary_is_cut_all_the_same(named: tuple[Chunker, int]) -> None:
    chunker, longest = named
    for text in ("x" * 20_000, "字" * 5_000, "👨‍👩‍👧‍👦" * 500):
        check(text, chunker.spans(text), longest)


def test_a_large_text_is_cut_in_time_that_grows_with_it(named: tuple[Chunker, int]) -> None:
    chunker, longest = named
    text = ("One sentence of many words stands here. 另一句话在这里。\n\n" + ROWS) * 60
    check(text, chunker.spans(text), longest)


def test_a_fence_beyond_the_bound_is_cut_at_line_ends(named: tuple[Chunker, int]) -> None:
    chunker, _ = named
    text = (
        "words\n\n```\n"
        + "".join(f"line number {i:04} of the code\n" for i in range(400))
        + "```\n"
    )
    spans = chunker.spans(text)
    assert len(spans) > 5
    assert all(text[end : end + 1] in ("\n", "") for _, end in spans)


def test_every_chunker_and_sectioner_of_the_registry_is_here() -> None:
    assert set(CHUNKERS) == set(PROVIDERS["chunker"])
    assert set(SECTIONERS) == set(PROVIDERS["sectioner"])


# --- sectioners ---------------------------------------------------------------------------------


def headings(text: str) -> list[Heading]:
    return [(m.start(), len(m.group(1)), m.group(2)) for m in re.finditer(r"(?m)^(#+) (.*)$", text)]


@given(text=TEXTS)
@pytest.mark.parametrize("name", sorted(PROVIDERS["sectioner"]))
def test_sections_cover_the_text_in_order_under_ids_of_their_own(name: str, text: str) -> None:
    built: Sectioner = make_provider("sectioner", name, SECTIONERS[name])
    found = built.sections(text, headings(text), "doc")
    done = 0
    for section in found:
        assert done <= section.norm_start < section.norm_end <= len(text)
        assert not text[done : section.norm_start].strip()
        assert text[section.norm_start : section.norm_end].strip() and section.section_path
        done = section.norm_end
    assert not text[done:].strip()
    assert len({section.section_id for section in found}) == len(found)
    assert built.sections(text, headings(text), "doc") == found


def test_blank_text_has_no_section_and_the_document_is_part_of_the_id(sectioner: Sectioner) -> None:
    assert sectioner.sections("", [], "doc") == sectioner.sections(" \n\n", [], "doc") == []
    (one,), (other,) = (
        sectioner.sections("only text\n", [], "doc"),
        sectioner.sections("only text\n", [], "other"),
    )
    assert one.section_id != other.section_id


def test_an_edit_at_the_end_leaves_earlier_sections_alone(sectioner: Sectioner) -> None:
    before = (
        "# A\n\n"
        + "Words of A. " * 20
        + "\n\n第一条 甲方\n\n"
        + "付款。" * 60
        + "\n\n# B\n\n"
        + "Words of B. " * 20
        + "\n"
    )
    after = before + "\n# C\n\n第九条 其他\n\n" + "More words. " * 20
    first = [section.section_id for section in sectioner.sections(before, headings(before), "doc")]
    second = [section.section_id for section in sectioner.sections(after, headings(after), "doc")]
    assert second[: len(first)] == first


def test_a_fence_ends_the_head_of_a_table() -> None:
    text = "| a | b |\n|---|---|\n```\nx\n```\n"
    assert structure(text) == [Guarded(0, 20, "row"), Guarded(20, 30, "fence")]
