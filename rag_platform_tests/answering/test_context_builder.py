from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_platform.answering.context_builder import Evidence, render_block, render_passages, select
from rag_platform.answering.engine import answer
from rag_platform.config.query import ContextConfig
from rag_platform.indexes.catalog import CatalogReader
from rag_platform.indexes.catalog_tables import CatalogWriter, Entry
from rag_platform.ir import Chunk, Document, Hit, MediaText, QueryRequest, Version
from rag_platform.observability import trace_reader
from rag_platform.protocols import Vectors
from rag_platform.retrieval.library import Library
from rag_platform.storage.store import Store
from rag_platform.text.markdown_blocks import structure


def hit(
    n: int,
    text: str,
    score: float = 0.0,
    *,
    doc: str = "d",
    index: int | None = None,
    section: str = "",
    parent: str = "",
) -> Hit:
    return Hit(
        n,
        f"c{n}",
        score or 1 / n,
        "hybrid",
        doc,
        f"{doc}@1",
        f"docs/{doc}.md",
        f"{doc}.md",
        doc,
        section,
        n if index is None else index,
        text,
        parent_id=parent,
    )


def words(text: str) -> int:
    return len(text.split())


def ids(found: Evidence) -> list[str]:
    return [chosen.chunk_id for chosen in found.hits]


PLAIN = ContextConfig(format="plain")  # a block costs two words more than its text: `[1] docs/d.md`


# --- pictures -----------------------------------------------------------------------------------


def read(n: int, picture: str, text: str = "") -> Hit:
    return dataclasses.replace(hit(n, text), picture_text=picture, asset_ids=("p",))


def test_a_text_is_no_repetition_of_a_picture() -> None:
    for picture in (read(1, LONG), read(1, LONG, "See the picture.")):
        assert ids(select([picture, hit(2, LONG)], PLAIN)) == ["c1", "c2"]
    alike = select([read(1, LONG), hit(2, LONG)], PLAIN, vectors=lambda hits: np.ones((2, 1)))
    assert ids(alike) == ["c1", "c2"]
    assert ids(select([hit(1, LONG), read(2, LONG)], PLAIN)) == ["c1"]
    assert ids(select([read(1, LONG), read(2, LONG)], PLAIN)) == ["c1"]
    assert ids(select([read(1, LONG), hit(2, LONG)], PLAIN, pictures=False)) == ["c2"]


def test_what_was_read_in_a_picture_is_cut_before_the_text() -> None:
    first = read(1, "One two. Three four. Five six.", "Look here.")
    config = ContextConfig(format="plain", max_tokens=13)
    found = select([first], config, count=words)
    (chosen,) = found.hits
    assert (chosen.chunk_text, chosen.picture_text) == ("Look here.", "One two.")
    assert found.warnings == ("c1 was cut from 16 to at most 13 tokens (context.max_tokens)",)
    tight = ContextConfig(format="plain", max_tokens=9)
    assert select([first], tight, count=words).hits[0].readable == "Look here."
    later = select([hit(2, "One two three."), first], tight, count=words)
    assert [it.readable for it in later.hits] == ["One two three.", "Look here."]


def test_a_picture_stands_outside_of_a_fence_that_its_text_leaves_open() -> None:
    block = render_block(read(1, "Port 80", "```\nlisten"), 1, "plain")
    assert block.splitlines()[1:] == [
        "    ```",
        "    listen",
        "    ```",
        "",
        "    (picture asset://p) read by a model: Port 80",
    ]


# --- budget -------------------------------------------------------------------------------------


def test_chunks_are_taken_whole_in_order_within_the_budget() -> None:
    hits = [hit(1, "a b c"), hit(2, "d e f g"), hit(3, "h i")]
    chosen = select(hits, ContextConfig(format="plain", max_tokens=10), count=words)
    assert ids(chosen) == ["c1", "c3"]
    assert (chosen.tokens, chosen.dropped, chosen.warnings) == (9, 1, ())


def test_at_most_max_chunks() -> None:
    assert ids(
        select([hit(n, f"t{n}") for n in range(1, 9)], ContextConfig(max_chunks=3), count=words)
    ) == ["c1", "c2", "c3"]


def test_at_most_max_per_document() -> None:
    hits = [hit(1, "one"), hit(2, "two"), hit(3, "three", doc="e"), hit(4, "four")]
    found = select(hits, ContextConfig(max_per_document=1))
    assert ids(found) == ["c1", "c3"]
    assert found.dropped == 2


def test_nothing_gives_nothing() -> None:
    assert select([], ContextConfig()) == Evidence((), 0)


def test_a_first_chunk_above_the_budget_is_cut_at_a_line_end_with_a_warning() -> None:
    chosen = select(
        [hit(1, "one two\nthree four\nfive six seven eight"), hit(2, "x")],
        ContextConfig(format="plain", max_tokens=9),
        count=words,
    )
    assert [h.chunk_text for h in chosen.hits] == ["one two\nthree four", "x"]
    assert chosen.tokens == 9
    assert chosen.warnings == ("c1 was cut from 10 to at most 9 tokens (context.max_tokens)",)


def test_a_row_that_does_not_fit_is_left_out_and_the_next_hit_comes_in() -> None:
    row = "| a | b |\n|---|---|\n| " + "word " * 30 + "| x |\n"
    found = select(
        [hit(1, row), hit(2, "short text")],
        ContextConfig(format="plain", max_tokens=12),
        count=words,
    )
    assert ids(found) == ["c2"]
    assert "c1 was left out" in found.warnings[0]


# --- repetition ---------------------------------------------------------------------------------


def test_equal_texts_count_once_and_blank_ones_never() -> None:
    hits = [hit(1, "same  text"), hit(2, " same text\n"), hit(3, "other"), hit(4, " ")]
    chosen = select(hits, ContextConfig())
    assert ids(chosen) == ["c1", "c3"]
    assert chosen.repeated == 2


LONG = (
    "the server refuses uploads above the limit and writes a line into its log so that the owner"
    " can see who tried it"
)


def test_nearly_equal_texts_are_one_unless_a_number_or_a_negation_differs() -> None:
    hits = [
        hit(1, LONG + " of 50 MB"),
        hit(2, LONG + " of  50 MB."),
        hit(3, LONG + " of 60 MB"),
        hit(4, LONG.replace("can see", "cannot see") + " of 50 MB"),
    ]
    assert ids(select(hits, ContextConfig())) == ["c1", "c3", "c4"]
    assert ids(select(hits, ContextConfig(dedupe_threshold=0))) == ["c1", "c2", "c3", "c4"]


def test_a_longer_text_is_never_taken_for_the_short_one_it_contains() -> None:
    assert ids(
        select(
            [
                hit(1, LONG),
                hit(2, f"{LONG}. Administrators raise it in the settings page of the console."),
            ],
            PLAIN,
        )
    ) == [
        "c1",
        "c2",
    ]
    assert ids(
        select([hit(1, f"{LONG}. Administrators raise it in the settings."), hit(2, LONG)], PLAIN)
    ) == ["c1"]


def test_vectors_tell_paraphrases() -> None:
    rows = {"c1": [1.0, 0.0], "c2": [0.99, 0.1411], "c3": [0.0, 1.0], "c4": [1.0, 0.0]}

    def vectors(hits: object) -> Vectors:
        return np.array([rows[h.chunk_id] for h in hits], dtype=np.float32)  # type: ignore[attr-defined]

    hits = [hit(1, "a car"), hit(2, "an automobile"), hit(3, "a tree"), hit(4, "car number 7")]
    # a number more says more
    assert ids(select(hits, ContextConfig(), vectors=vectors)) == ["c1", "c3", "c4"]
    assert ids(select(hits, ContextConfig(dedupe_cosine=0.995), vectors=vectors)) == [
        "c1",
        "c2",
        "c3",
        "c4",
    ]


def test_novelty_may_come_before_relevance() -> None:
    hits = [
        hit(1, "red apples grow here in autumn", 1.0),
        hit(2, "red apples grow here in summer", 0.9),
        hit(3, "the tractor is blue", 0.8),
    ]
    few = {"max_chunks": 2, "dedupe_threshold": 0.0}
    assert ids(select(hits, ContextConfig(**few))) == ["c1", "c2"]
    assert ids(select(hits, ContextConfig(**few, mmr_lambda=0.3))) == ["c1", "c3"]


# --- parents and neighbours ---------------------------------------------------------------------


def chunk(n: int, text: str, section: str, kind: str = "child", parent: str = "") -> Chunk:
    return Chunk(
        chunk_id=f"c{n}",
        section_id=f"d-{section}",
        doc_id="d",
        version_id="d@1",
        chunk_index=n,
        chunk_text=text,
        chunk_fingerprint="",
        norm_start=0,
        norm_end=0,
        fact_start=0,
        fact_end=0,
        section_path=section,
        chunk_type=kind,
        parent_id=parent,
        line_start=n * 10,
        line_end=n * 10 + 5,
    )


@pytest.fixture
def catalog(tmp_path: Path) -> CatalogReader:
    """Section A: a parent (1) with the children 2 and 3; section B: 4, 5, 6, which overlap; section
    C: 7.
    """
    chunks = [
        chunk(1, "First half of it. Second half of it.", "A", "parent"),
        chunk(2, "First half of it.", "A", parent="c1"),
        chunk(3, "Second half of it.", "A", parent="c1"),
        chunk(4, "The valve opens at noon. The pump then starts slowly.", "B"),
        chunk(5, "The pump then starts slowly. It stops in the evening.", "B"),
        chunk(6, "It stops in the evening. Nobody works at night.", "B"),
        chunk(7, "Something else entirely.", "C"),
    ]
    return write_catalog(tmp_path, chunks)


def write_catalog(
    tmp_path: Path, chunks: list[Chunk], texts: tuple[MediaText, ...] = ()
) -> CatalogReader:
    with CatalogWriter(tmp_path / "catalog.sqlite") as writer:
        writer.replace_documents(
            [Document("default", "d", "docs", "docs/d.md", "d.md", live_version="d@1")]
        )
        version = Version(
            "d@1",
            "default",
            "d",
            "docs/d.md",
            "d.md",
            "0" * 64,
            1,
            "text/markdown",
            "markdown",
            "tiny",
        )
        entries = [Entry(item, "h", "h", "ready") for item in chunks]
        writer.add_version(version, [], entries, [], texts)
    return CatalogReader(tmp_path / "catalog.sqlite")


def found_in(catalog: CatalogReader, *numbers: int) -> list[Hit]:
    chunks = catalog.chunks([f"c{n}" for n in numbers])
    return [
        dataclasses.replace(
            hit(rank, chunks[f"c{n}"].chunk_text, index=n, section=chunks[f"c{n}"].section_path),
            chunk_id=f"c{n}",
            parent_id=chunks[f"c{n}"].parent_id,
            namespace="default",
        )
        for rank, n in enumerate(numbers, 1)
    ]


def test_parents_and_neighbours_come_with_what_was_read_in_their_pictures(tmp_path: Path) -> None:
    both = ("b", "a")  # the order of the text
    chunks = [
        dataclasses.replace(chunk(1, "First. Second.", "A", "parent"), asset_ids=both),
        dataclasses.replace(chunk(2, "First.", "A", parent="c1"), asset_ids=("b",)),
        dataclasses.replace(chunk(3, "Second.", "A", parent="c1"), asset_ids=("a",)),
        chunk(4, "Beside a page.", "B"),
        dataclasses.replace(chunk(5, "", "B"), asset_ids=("c",)),
    ]
    texts = tuple(MediaText(name, ocr_text=f"Read in {name}.") for name in "abc")
    catalogs = {"default": write_catalog(tmp_path, chunks, texts)}
    (parent,) = select(found_in(catalogs["default"], 3), ContextConfig(), catalogs).hits
    assert (parent.chunk_id, parent.picture_text) == ("c1", "Read in b.\nRead in a.")
    around = ContextConfig(mode="neighbours")
    beside = found_in(catalogs["default"], 4)
    assert [it.readable for it in select(beside, around, catalogs).hits] == [
        "Beside a page.",
        "Read in c.",
    ]
    assert ids(select(beside, around, catalogs, pictures=False)) == ["c4"]


def test_two_children_are_their_parent_once(catalog: CatalogReader) -> None:
    found = select(found_in(catalog, 3, 7, 2), ContextConfig(), {"default": catalog})
    assert [(h.chunk_id, h.chunk_text, h.rank, h.line_range) for h in found.hits] == [
        ("c1", "First half of it. Second half of it.", 1, (10, 15)),
        ("c7", "Something else entirely.", 2, None),
    ]
    assert found.repeated == 1


def test_without_room_for_the_parent_the_children_stand_for_themselves(
    catalog: CatalogReader,
) -> None:
    tight = ContextConfig(format="plain", max_tokens=12)  # the parent costs 13 words, a child 7
    assert ids(select(found_in(catalog, 3, 2), tight, {"default": catalog}, count=words)) == ["c3"]
    assert ids(
        select(found_in(catalog, 3, 2), ContextConfig(mode="chunk"), {"default": catalog})
    ) == ["c3", "c2"]
    # no catalog, no parents
    assert ids(select(found_in(catalog, 3, 2), ContextConfig())) == ["c3", "c2"]


def test_a_child_that_was_edited_is_not_replaced_by_its_parent(catalog: CatalogReader) -> None:
    (child,) = found_in(catalog, 3)
    edited = dataclasses.replace(
        child, chunk_text="The second half, corrected.", edited_from=("c3",)
    )
    assert select([edited], ContextConfig(), {"default": catalog}).hits == (edited,)


def test_neighbours_of_the_section_are_chunks_of_their_own_and_overlaps_are_shown_once(
    catalog: CatalogReader,
) -> None:
    found = select(
        found_in(catalog, 7, 5),
        ContextConfig(mode="neighbours", format="plain"),
        {"default": catalog},
    )
    assert ids(found) == ["c7", "c4", "c5", "c6"]
    assert found.hits[2].chunk_text == "The pump then starts slowly. It stops in the evening."
    assert render_passages(found.hits, "plain").splitlines() == [
        "[1] docs/d.md, C",
        "    Something else entirely.",
        "",
        "[2] docs/d.md, B, lines 40-45",
        "    The valve opens at noon. The pump then starts slowly.",
        "",
        "[3] docs/d.md, B",
        "     It stops in the evening.",
        "",
        "[4] docs/d.md, B, lines 60-65",
        "     Nobody works at night.",
    ]


def test_neighbours_come_with_what_is_left_of_the_budget(catalog: CatalogReader) -> None:
    few = ContextConfig(mode="neighbours", format="plain", max_tokens=30)
    found = select(found_in(catalog, 5, 7), few, {"default": catalog}, count=words)
    assert ids(found) == ["c5", "c7"]
    assert found.dropped == 0  # a neighbour that does not fit was never promised


# --- order --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("order", "group_by", "expected"),
    [
        ("rank", "none", ["c1", "c2", "c3", "c4", "c5"]),
        ("document", "none", ["c3", "c1", "c5", "c4", "c2"]),
        ("rank", "document", ["c1", "c3", "c5", "c2", "c4"]),
        ("document", "document", ["c3", "c1", "c5", "c4", "c2"]),
        ("rank", "section", ["c1", "c5", "c2", "c4", "c3"]),
        ("document", "section", ["c1", "c5", "c4", "c2", "c3"]),
    ],
)
def test_order_and_grouping(order: str, group_by: str, expected: list[str]) -> None:
    hits = [
        hit(1, "one", doc="a", index=5, section="S"),
        hit(2, "two", doc="b", index=9, section="T"),
        hit(3, "three", doc="a", index=2, section="R"),
        hit(4, "four", doc="b", index=1, section="T"),
        hit(5, "five", doc="a", index=6, section="S"),
    ]
    config = ContextConfig.model_validate({"order": order, "group_by": group_by})
    assert ids(select(hits, config)) == expected


# --- for every input ----------------------------------------------------------------------------

PARAGRAPH = st.lists(
    st.sampled_from(["alpha", "beta", "第一", "7", "gamma."]), min_size=1, max_size=12
).map(" ".join)
TABLE = st.integers(1, 6).map(
    lambda n: "| k | v |\n|---|---|\n" + "".join(f"| row {i} | value {i} |\n" for i in range(n))
)
FENCED = st.integers(1, 8).map(
    lambda n: "```python\n" + "".join(f"line_{i} = {i}\n" for i in range(n)) + "```\n"
)
TEXTS = st.lists(
    st.one_of(PARAGRAPH, PARAGRAPH.map(lambda text: f"# {text}"), TABLE, FENCED),
    min_size=1,
    max_size=4,
).map("\n\n".join)
CONFIGS = st.builds(
    lambda tokens, chunks, shape, order, group, weight: ContextConfig.model_validate(
        {
            "max_tokens": tokens,
            "max_chunks": chunks,
            "format": shape,
            "order": order,
            "group_by": group,
            "mmr_lambda": weight,
        }
    ),
    st.integers(1, 120),
    st.integers(1, 6),
    st.sampled_from(["markdown", "xml", "plain"]),
    st.sampled_from(["rank", "document"]),
    st.sampled_from(["none", "document", "section"]),
    st.sampled_from([1.0, 0.5]),
)


@given(st.lists(st.tuples(TEXTS, st.sampled_from("ab")), max_size=6), CONFIGS)
def test_whatever_comes_the_budget_holds_and_nothing_is_torn(
    texts: list[tuple[str, str]], config: ContextConfig
) -> None:
    hits = [hit(n, text, doc=doc) for n, (text, doc) in enumerate(texts, 1)]
    found = select(hits, config)
    assert found == select(hits, config)  # deterministic
    assert found.tokens <= config.max_tokens
    assert len(found.hits) <= config.max_chunks
    assert len(found.hits) + found.repeated + found.dropped == len(hits)
    known = {h.chunk_id: h.chunk_text for h in hits}
    assert len({h.chunk_id for h in found.hits}) == len(found.hits)
    for chosen in found.hits:
        whole = known[chosen.chunk_id]
        assert whole.startswith(chosen.chunk_text)
        rest = whole[len(chosen.chunk_text) :]
        if rest.strip():
            at = len(chosen.chunk_text) + (len(rest) - len(rest.lstrip("\n")))
            torn = [run for run in structure(whole) if run.start < at < run.end]
            # only a fence that nothing but headings precedes may be cut, at a line end
            before = [
                line for run in torn for line in whole[: run.start].split("\n") if line.strip()
            ]
            assert all(run.kind == "fence" for run in torn)
            assert all(line.startswith("#") for line in before)
            assert not torn or whole[len(chosen.chunk_text)] == "\n"
    if config.order == "rank" and config.group_by == "none" and config.mmr_lambda == 1:
        assert [h.rank for h in found.hits] == sorted(h.rank for h in found.hits)


def test_a_translation_is_no_repetition() -> None:
    hits = [
        hit(1, "The pool holds connections for later questions."),
        hit(2, "连接池为以后的问题保留连接。"),
        hit(3, "Connections are kept."),
    ]
    rows = np.ones((3, 1), dtype=np.float32)
    assert ids(select(hits, ContextConfig(), vectors=lambda _: rows)) == ["c1", "c2"]


def test_the_engine_tells_paraphrases_by_the_stored_vectors(
    publish: Any, vary: Any, library: Library, store: Store
) -> None:
    text = (
        "The pump starts at noon when the valve opens, and it stops again at midnight when the tank"
        " is full."
    )
    other = (
        "When the valve opens, the pump starts at noon, and when the tank is full it stops again at"
        " midnight."
    )
    answers = {}
    for threshold in (0.94, 0.99):  # their vectors have .95
        name = vary(f"alike{threshold}", f"context: {{dedupe_cosine: {threshold}}}\n")
        publish(
            {"a": [("Care", text)], "b": [("Care", other)]},
            strategy=name,
            release_id=f"r{threshold}",
        )
        result = answer(library, QueryRequest("When does the pump start?"))
        [span] = [
            item
            for item in trace_reader.show(store.logs_dir, result.trace_id)["spans"]
            if item["name"] == "stage.context_build"
        ]
        answers[threshold] = (span["attrs"]["context_k"], span["attrs"]["repeated"])
    assert answers == {0.94: (1, 1), 0.99: (2, 0)}


# --- tables over several chunks -----------------------------------------------------------------


@pytest.fixture
def tables(tmp_path: Path) -> dict[str, CatalogReader]:
    """Section A: a table in the chunks 1, 2 and 3; section B: rows (4) without a header."""
    chunks = [
        chunk(1, "Motors:\n\n| Model | Power |\n| --- | --- |\n| AX | 3 kW |", "A"),
        chunk(2, "| BX | 5 kW |\n| CX | 7 kW |", "A"),
        chunk(3, "| DX | 9 kW |\n\nAll of them turn.", "A"),
        chunk(4, "| EX | 11 kW |", "B"),
    ]
    return {"default": write_catalog(tmp_path, chunks)}


def test_a_passage_within_a_table_comes_with_its_header(tables: dict[str, CatalogReader]) -> None:
    hits = select(found_in(tables["default"], 1, 2, 3, 4), ContextConfig(), tables).hits
    assert [(hit.table_head, hit.table_goes_on) for hit in hits] == [
        ("", True),
        ("| Model | Power |", True),
        ("| Model | Power |", False),
        ("", False),
    ]
    assert render_block(hits[2], 3) == (
        "[3] docs/d.md, A\n> | Model | Power |\n> | --- | --- |\n> | DX | 9 kW |\n>\n"
        "> All of them turn."
    )


def test_the_header_of_a_long_table_is_found_far_above(tmp_path: Path) -> None:
    rows = [f"| AX-{n} | {n} kW |" for n in range(2, 40)]
    head = "| Model | Power |\n|---|---|\n| AX-1 | 1 kW |"
    chunks = [chunk(n, text, "A") for n, text in enumerate([head, *rows])]
    catalog = write_catalog(tmp_path, chunks)
    (hit,) = select(found_in(catalog, 38), ContextConfig(), {"default": catalog}).hits
    assert (hit.table_head, hit.table_goes_on) == ("| Model | Power |", False)
