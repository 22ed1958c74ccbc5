from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_platform.chunkers.chunks import chunk_hash, cut
from rag_platform.chunkers.recursive import Recursive, WholeSection
from rag_platform.chunkers.source_locations import attach_images
from rag_platform.config.settings import Strategy
from rag_platform.errors import ConfigError
from rag_platform.ir import Block, Chunk, Facts, MediaLink, ParseSummary, Version
from rag_platform.loaders.markdown import MarkdownLoader
from rag_platform.normalisation.edits import normalise
from rag_platform.registry import make_provider
from rag_platform.sectioners.sections import MarkdownHeadings, headings_of
from rag_platform.text.cut_points import is_grapheme_boundary
from rag_platform.text.markdown_blocks import structure
from rag_platform.text.tokens import estimate_tokens

VERSION = Version(
    "default.d@abc",
    "default",
    "d",
    "files/d.md",
    "d.md",
    "0" * 64,
    1,
    "text/markdown",
    "markdown",
    "tiny",
)
SMALL = Recursive(chunk_size=40, chunk_overlap=0)


def pieces(text: str, chunker: Recursive | WholeSection = SMALL) -> list[str]:
    spans = chunker.spans(text)
    for start, end in spans:
        assert text[start:end] == text[start:end].strip() != ""
    return [text[start:end] for start, end in spans]


# --- structure ----------------------------------------------------------------------------------


def test_structure_of_fences_and_tables() -> None:
    text = (
        "a\n"
        "```py\n"
        "| x |\n"
        "```\n"
        "\n"
        "| h | i |\n"
        "|---|:-:|\n"
        "| 1 | 2 |\n"
        "| 3 | 4 |\n"
        "\n"
        "- ~~~\n"
        "  b\n"
        "  ~~~\n"
        "````\n"
        "open"
    )
    assert [(run.kind, text[run.start : run.end]) for run in structure(text)] == [
        ("fence", "```py\n| x |\n```\n"),
        ("row", "| h | i |\n|---|:-:|\n| 1 | 2 |\n"),
        ("row", "| 3 | 4 |\n"),
        ("fence", "- ~~~\n  b\n  ~~~\n"),
        ("fence", "````\nopen"),
    ]
    assert structure("inline ``` code ```\n\nx | y\n") == []


def test_a_table_ends_before_a_line_without_a_bar() -> None:
    text = "| a | b |\n|---|---|\n| 1 | 2 |\nIt drips.\n"
    assert [text[run.start : run.end] for run in structure(text)] == [text[: text.index("It")]]


def test_the_objects_of_a_component_are_cut_between_each_other() -> None:
    objects = "".join(f"    {{\n      name: 'pump {n}',\n    }},\n" for n in range(4))
    found = pieces(f"<Table\n  rows={{[\n{objects}  ]}}\n/>\n")
    assert len(found) > 1
    assert [piece.startswith("{\n") for piece in found[1:]] == [True] * len(found[1:])


def test_text_below_a_heading_that_is_underlined_by_tildes_is_no_fence() -> None:
    turns, opens = "It turns and turns. " * 10, "It opens and opens. " * 10
    text = f"Pump\n~~~~\n\n{turns}\n\nValve\n~~~~~\n\n{opens}"
    assert max(map(len, pieces(text))) <= SMALL.chunk_size


# --- spans --------------------------------------------------------------------------------------


def test_what_fits_is_one_chunk_and_blank_text_none() -> None:
    assert pieces("  short text \n") == ["short text"]
    assert SMALL.spans(" \n\t") == []


def test_cuts_at_paragraphs_then_lines_then_sentences_then_words() -> None:
    assert pieces("first paragraph of text\n\nsecond paragraph of text") == [
        "first paragraph of text",
        "second paragraph of text",
    ]
    assert pieces("first line of the text\nsecond line of the text") == [
        "first line of the text",
        "second line of the text",
    ]
    assert pieces("One sentence stands here. Another one follows it") == [
        "One sentence stands here.",
        "Another one follows it",
    ]
    assert pieces(
        "第一句话在这里就结束了，后面还有很多的字。第二句话也在这里结束了，后面还有很多字。"
    ) == [
        "第一句话在这里就结束了，后面还有很多的字。",
        "第二句话也在这里结束了，后面还有很多字。",
    ]
    assert pieces("wordsword " * 6) == [
        "wordsword wordsword wordsword",
        "wordsword wordsword wordsword",
    ]


def test_cuts_before_headings_and_never_behind_one() -> None:
    assert pieces("some text above it\n\nmore of it\n### Head\n\ntext below the heading") == [
        "some text above it\n\nmore of it",
        "### Head\n\ntext below the heading",
    ]


def test_cuts_before_lines_of_bold_words_and_never_behind_one() -> None:
    text = "**`speed` (`int`)**\n\nTen. By default.\n\n**`port`**\n\nIts default is 80."
    entries = ["**`speed` (`int`)**\n\nTen. By default.", "**`port`**\n\nIts default is 80."]
    assert pieces(text) == entries
    assert pieces(text, Recursive(chunk_size=40, chunk_overlap=20)) == entries
    # a bold sentence is no name
    words = "More words stand here, all of them"
    assert pieces(f"**Stop now.**\n\n{words}") == ["**Stop now.**", words]
    assert pieces(f"**Stop now**\n\n{words}")[0].startswith("**Stop now**\n\nMore")
    assert pieces("Sets it. It is 4.\n\n**--size**\n\nSets the size.") == [
        "Sets it. It is 4.",
        "**--size**\n\nSets the size.",
    ]


def test_a_list_of_bold_lines_is_cut_between_them() -> None:
    lines = [f"**第{n}条 有关数据保护的规定**" for n in range(9)]
    assert all(
        piece.startswith("**") and piece.endswith("**") for piece in pieces("\n".join(lines))
    )


def test_a_long_line_with_an_open_mark_is_cut_in_little_time() -> None:
    started = time.process_time()
    assert len(Recursive().spans("**" + "word " * 20_000)) == 147
    assert time.process_time() - started < 2


def test_an_introduction_stays_with_what_it_introduces() -> None:
    assert pieces("Words about all of it.\n\nSteps are these:\n\n- Open it.\n- Close it.") == [
        "Words about all of it.",
        "Steps are these:\n\n- Open it.\n- Close it.",
    ]
    assert pieces(
        "上面先说明了整个过程的很多细节与背景。\n\n**步骤如下：**\n\n1. 打开阀门。\n2. 关闭阀门。"
    )[1:] == ["**步骤如下：**\n\n1. 打开阀门。\n2. 关闭阀门。"]
    # a heading begins a chunk whatever stands before it
    assert pieces("Words about all of these:\n\n## Pumps\n\nWords about pumps.") == [
        "Words about all of these:",
        "## Pumps\n\nWords about pumps.",
    ]
    # nor does it keep a block that is too long together with itself
    assert pieces(f"Run this line now:\n\n```\n{'x' * 40}\n```")[0] == "Run this line now:"


def test_a_fence_that_fits_is_not_cut() -> None:
    fence = "```\nline one\n\nline two\n```"
    assert pieces(f"words words words\n\n{fence}\n\nwords words") == [
        "words words words",
        f"{fence}\n\nwords words",
    ]


def test_a_long_fence_stays_whole_up_to_a_bound_and_is_cut_at_line_ends_beyond() -> None:
    lines = [f"code line number {i}" for i in range(400)]
    long = "```\n" + "\n".join(lines[:200]) + "\n```"
    assert 40 < len(long) <= 6400
    assert pieces(f"words before\n\n{long}\n\nwords behind") == [
        "words before",
        long,
        "words behind",
    ]
    found = pieces("```\n" + "\n".join(lines) + "\n```")
    assert len(found) > 100
    assert "\n".join(found).split("\n") == ["```", *lines, "```"]


def test_table_rows_are_never_cut() -> None:
    rows = [f"| {i} | {'cell ' * 8}|" for i in range(3)]
    found = pieces("| a | b |\n|---|---|\n" + "\n".join(rows) + "\n")
    assert found == ["| a | b |\n|---|---|\n" + rows[0], rows[1], rows[2]]
    assert all(len(piece) > 40 for piece in found)


def test_overlap_starts_at_a_boundary_and_not_in_code() -> None:
    chunker = Recursive(chunk_size=60, chunk_overlap=20)
    words = "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron"
    assert pieces(words, chunker) == [
        "alpha beta gamma delta epsilon zeta eta theta iota",
        "zeta eta theta iota kappa lambda mu nu xi omicron",
    ]
    code = (
        "words words words words\n"
        "\n"
        "```\n"
        "a = 1\n"
        "b = 2\n"
        "```\n"
        "\n"
        "more words and more words and more words again"
    )
    assert [
        piece.count("```") for piece in pieces(code, Recursive(chunk_size=50, chunk_overlap=20))
    ] == [2, 0]


def test_nothing_is_repeated_before_a_heading() -> None:
    text = "some text above it and more\n\n### Head\n\nbelow the heading is some other text"
    assert pieces(text, Recursive(chunk_size=50, chunk_overlap=20))[1].startswith("### Head")


def test_one_long_word_is_cut_at_the_size() -> None:
    assert [len(piece) for piece in pieces("x" * 100)] == [40, 40, 20]


def test_clusters_stay_whole() -> None:
    family = "👨‍👩‍👧‍👦"
    found = pieces(family * 30)
    assert "".join(found) == family * 30
    assert all(len(piece) % len(family) == 0 for piece in found)


def test_the_token_budget_caps_a_chunk() -> None:
    found = Recursive(chunk_size=800, chunk_overlap=0, max_tokens=100).spans("检索增强生成。" * 60)
    assert max(end - start for start, end in found) == 112  # 16 sentences of 6 x 0.85 + 0.85 tokens


def test_token_sizes() -> None:
    text = "检索增强生成。" * 60
    found = Recursive(chunk_size=50, chunk_overlap=10, length_function="tokens").spans(text)
    assert all(estimate_tokens(text[start:end]) <= 50 for start, end in found)
    assert any(second[0] < first[1] for first, second in pairwise(found))


def test_whole_section_falls_back_when_too_long() -> None:
    assert pieces("para one\n\npara two", WholeSection(max_chars=100)) == ["para one\n\npara two"]
    assert len(pieces("some words " * 30, WholeSection(max_chars=100, chunk_overlap=0))) > 3


def test_options_are_checked() -> None:
    with pytest.raises(ConfigError, match="chunk_overlap 500"):
        Recursive(chunk_size=800, chunk_overlap=500)
    with pytest.raises(ConfigError, match="length_function"):
        make_provider("chunker", "recursive", {"length_function": "bytes"})


PARTS = [
    "word ",
    "中文字。",
    "\n",
    "\n\n",
    "```\n",
    "| a | b |\n",
    "|---|---|\n",
    "# H\n",
    "👩‍💻",
    "e\u0301",
    "x" * 30,
    "  ",
    "- item\n",
    "1. ",
]


@given(st.lists(st.sampled_from(PARTS), max_size=60), st.sampled_from([0, 10, 20]))
def test_spans_cover_everything_in_order(parts: Sequence[str], overlap: int) -> None:
    text = "".join(parts)
    spans = Recursive(chunk_size=40, chunk_overlap=overlap).spans(text)
    done = start_before = -1
    for start, end in spans:
        assert start > start_before and end > done
        assert not text[max(done, 0) : start].strip()
        assert done < 0 or start >= done - overlap or overlap == 0
        assert is_grapheme_boundary(text, start) and is_grapheme_boundary(text, end)
        start_before, done = start, end
    assert not text[max(done, 0) :].strip()


# --- chunks -------------------------------------------------------------------------------------


def chunks_of(
    tmp_path: Path, strategy: Strategy, raw: bytes, links: Sequence[MediaLink] = ()
) -> tuple[Facts, list[Chunk]]:
    (tmp_path / "file").write_bytes(raw)
    facts = MarkdownLoader().load(tmp_path / "file", "d.md")
    norm = normalise(facts, links, strategy.cleaning)
    sections = MarkdownHeadings(min_section_chars=0).sections(
        norm.text, headings_of(facts, norm), VERSION.doc_id
    )
    return facts, cut(VERSION, facts, norm, sections, Recursive(), strategy, links)


def test_chunks_know_their_bytes_lines_and_headings(tmp_path: Path, tiny: Strategy) -> None:
    raw = (
        "\ufeff---\r\n"
        "title: T\r\n"
        "---\r\n"
        "# 标题 { #a }\r\n"
        "\r\n"
        "中文 text  \r\n"
        "more\r\n"
        "\r\n"
        "## Two\r\n"
        "\r\n"
        "end".encode()
    )
    _, (first, second) = chunks_of(tmp_path, tiny, raw)
    assert first.chunk_text == "# 标题 { #a }\n\n中文 text\nmore"
    assert (
        raw[first.byte_start : first.byte_end].decode()
        == "# 标题 { #a }\r\n\r\n中文 text  \r\nmore"
    )
    assert (first.line_start, first.line_end, first.section_path, first.lang) == (
        4,
        7,
        "标题",
        "zh",
    )
    assert (
        second.line_start,
        second.line_end,
        second.section_path,
        second.h1_title,
        second.h2_title,
    ) == (
        9,
        11,
        "标题 / Two",
        "标题",
        "Two",
    )
    assert (second.chunk_index, second.text_len, second.too_short, second.page_start) == (
        1,
        11,
        True,
        None,
    )
    assert raw[second.byte_start : second.byte_end] == b"## Two\r\n\r\nend"


def test_the_path_names_what_a_chunk_goes_on_to_describe(tmp_path: Path, tiny: Strategy) -> None:
    more = "It takes off the lid. " * 60
    text = (
        f"# Jars\n\n**`Jar.open(by, **tools)`**\n\n{more}\n\n**`Jar.shut()`**\n\nShuts it."
        f"\n\n## Lids\n\n{more}\n\n**Note**\n\n{more}"
    )
    _, found = chunks_of(tmp_path, tiny, text.encode())
    paths = list(dict.fromkeys(chunk.section_path for chunk in found))
    assert paths == ["Jars", "Jars / Jar.open()", "Jars / Lids"]


def test_bytes_of_gbk_and_of_damaged_utf8(tmp_path: Path, tiny: Strategy) -> None:
    raw = "# 标题\n\n这是一个用于测试编码的段落，包含中文标点。\n".encode("gbk")
    _, (chunk,) = chunks_of(tmp_path, tiny, raw)
    assert raw[chunk.byte_start : chunk.byte_end].decode("gbk") == chunk.chunk_text
    raw = (
        "# 标题\n\n坏 ".encode() + b"\xff\xf0\x9f (" + " 好\n\n## 二\n\n".encode() + b"\xe4\xb8 end"
    )
    facts, (one, two) = chunks_of(tmp_path, tiny, raw)
    assert facts.summary.lossy
    assert (
        raw[one.byte_start : one.byte_end].decode("utf-8", "replace")
        == one.chunk_text
        == "# 标题\n\n坏 \ufffd\ufffd ( 好"
    )
    assert raw[two.byte_start : two.byte_end] == "## 二\n\n".encode() + b"\xe4\xb8 end"


def test_ids_depend_on_content_not_on_position(tmp_path: Path, tiny: Strategy) -> None:
    _, before = chunks_of(tmp_path, tiny, b"# A\n\ntext of a\n\n## B\n\ntext of b\n")
    _, after = chunks_of(
        tmp_path, tiny, b"# A\n\ntext of a\n\n## New\n\nnew text\n\n## B\r\n\r\ntext of b  \n"
    )
    assert {chunk.chunk_id for chunk in before} < {chunk.chunk_id for chunk in after}
    assert chunk_hash(before) != chunk_hash(after)
    assert all(chunk.chunk_id.startswith("chk_") and len(chunk.chunk_id) == 24 for chunk in after)


def test_equal_texts_of_a_section_have_ids_of_their_own(tmp_path: Path, tiny: Strategy) -> None:
    text = "# A\n\n" + ("same words again and again. " * 40 + "\n\n") * 3
    _, found = chunks_of(tmp_path, tiny, text.encode())
    assert len({chunk.chunk_id for chunk in found}) == len(found)


def test_images_belong_to_the_chunk_they_stand_in(tmp_path: Path, tiny: Strategy) -> None:
    text = "# A\n\n![x](a.png) words\n\n## B\n\nno picture\n"
    link = MediaLink("r", "f" * 64, "a.png", start=5, end=16)
    _, (first, second) = chunks_of(tmp_path, tiny, text.encode(), [link])
    assert first.chunk_text == f"# A\n\n![x](asset://{'f' * 64}) words"
    assert (first.asset_ids, second.asset_ids) == (("f" * 64,), ())
    assert (first.fact_start, first.fact_end) == (0, 22)


def paged(texts: Sequence[tuple[str, int, float]]) -> tuple[Facts, list[Chunk]]:
    """Facts with one block per (text, page, top of its box), and a chunk for each."""
    blocks, chunks, place = [], [], 0
    for number, (text, page, top) in enumerate(texts):
        end = place + len(text)
        blocks.append(
            Block(number, "paragraph", place, end, page=page, bbox=(0, top, 100, top + 20))
        )
        chunks.append(
            Chunk(
                f"c{number}",
                "s",
                "d",
                "v",
                number,
                text,
                "",
                place,
                end,
                place,
                end,
                "p",
                page_start=page,
                page_end=page,
            )
        )
        place = end + 2
    body = "\n\n".join(text for text, _, _ in texts)
    return (
        Facts(
            body,
            tuple(blocks),
            (),
            ParseSummary("pdf", "1", "e", "1", "p", "", len(body), pages_without_text=(4,)),
        ),
        chunks,
    )


def test_images_of_a_page_go_to_the_nearest_text() -> None:
    facts, chunks = paged([("one", 1, 100), ("two", 1, 500), ("three", 2, 100)])
    links = [
        MediaLink("a", "A", "", page=1, bbox=(0, 530, 9, 600), order=0),
        MediaLink("b", "B", "", page=1, order=1),
        MediaLink("c", "C", "", page=3, order=2),
        MediaLink("d", "", "", page=1, order=3, reason="broken"),
    ]
    assert [chunk.asset_ids for chunk in attach_images(chunks, links, facts.blocks)] == [
        ("B",),
        ("A",),
        ("C",),
    ]


def test_a_page_without_text_becomes_a_chunk_of_its_picture(tiny: Strategy) -> None:
    facts, _ = paged([("words of page one", 1, 100), ("words of page five", 5, 100)])
    labels = ("1", "2", "3", "iv", "5")
    facts = replace(facts, summary=replace(facts.summary, page_labels=labels))
    links = [
        MediaLink("a", "A", "", page=4, width=9, height=9),
        MediaLink("b", "B", "", page=4, width=90, height=90, order=1),
    ]
    norm = normalise(facts, links, tiny.cleaning)
    sections = MarkdownHeadings().sections(norm.text, [], "d")
    text, picture = cut(VERSION, facts, norm, sections, Recursive(), tiny, links)
    assert (text.page_start, text.page_end, text.byte_start, text.asset_ids) == (1, 5, None, ())
    assert (
        picture.chunk_text,
        picture.media_type,
        picture.asset_ids,
        picture.page_start,
        picture.locator,
        picture.section_id,
    ) == (
        "",
        "image",
        ("B", "A"),
        4,
        "page=4;char=0;printed=iv",
        sections[0].section_id,
    )
    only = Facts("", (), (), facts.summary)
    (alone,) = cut(
        VERSION, only, normalise(only, links, tiny.cleaning), [], Recursive(), tiny, links
    )
    assert (alone.section_path, alone.asset_ids) == ("__preamble__", ("B", "A"))


WRAPPED = """\
The borrow checker looks at every reference that a program makes, and refuses
those which outlive what they point at. Ownership is moved when a value is passed
to a function by value. In most programs that is what is meant. A lifetime names
how long a reference is valid; most of them are inferred by the compiler, which
tells where it cannot. Threads are held to the same rules as functions are.

借用检查器会查看程序里的每一个引用，并拒绝那些比其所指对象活得更久的引用，这一点在编译期
就能确定。所有权在按值传递时转移给被调用的函数。生命周期说明引用在多长时间内有效，大多数
由编译器推断得出。线程遵守与函数相同的规则。
"""


@pytest.mark.parametrize("size", [180, 220, 260, 300])
def test_chunks_of_wrapped_prose_begin_at_a_sentence(size: int) -> None:
    chunker = Recursive(chunk_size=size, chunk_overlap=size // 2)
    spans = chunker.spans(WRAPPED)
    begun = [WRAPPED[:start].rstrip()[-1:] for start, _ in spans[1:]]
    assert len(spans) > 2 and set(begun) <= {".", "。"}


def test_lines_that_are_no_prose_are_cut_at_their_ends() -> None:
    log = "".join(f"2026-01-{day:02} host{day} opened. Closed again\n" for day in range(1, 20))
    spans = Recursive(chunk_size=200, chunk_overlap=60).spans(log)
    assert all(log[start:].startswith("2026-") for start, _ in spans)
    verse = "Round the mast\nRun the men\nReady to go\nRest at last\n" * 6
    spans = Recursive(chunk_size=100, chunk_overlap=0).spans(verse)
    assert all(verse[start] == "R" and verse[end] == "\n" for start, end in spans)


def test_a_sentence_beyond_the_overlap_is_repeated_from_a_word() -> None:
    text = "alpha beta gamma delta " * 40
    first, second = Recursive(chunk_size=400, chunk_overlap=60).spans(text)[:2]
    assert first[1] - 60 <= second[0] < first[1] and text[second[0] - 1] == " "
    stopped = "Alpha beta gamma delta epsilon zeta eta theta iota kappa. " * 12
    spans = Recursive(chunk_size=200, chunk_overlap=20).spans(stopped)
    assert all(stopped[start:].startswith("Alpha") for start, _ in spans)
