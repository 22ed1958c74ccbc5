from __future__ import annotations

import hashlib
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rag_platform.chunkers.chunks import cut
from rag_platform.chunkers.recursive import ParentChild, Recursive
from rag_platform.chunkers.source_locations import Places
from rag_platform.config.ingestion import CleaningConfig
from rag_platform.config.settings import Strategy
from rag_platform.drafts.operations import OPERATIONS, Base, Edited, apply, extend
from rag_platform.errors import InputError
from rag_platform.ir import MediaLink, Version
from rag_platform.loaders.markdown import MarkdownLoader
from rag_platform.normalisation.edits import normalise
from rag_platform.protocols import Chunker
from rag_platform.sectioners.sections import MarkdownHeadings, headings_of

TEXT = """\
# Ports

The gateway listens on port 8080.

It answers within a second.

## Limits

Free users may ask sixty times.

![plan](plan.png) Others may ask more.

## 限制

每分钟最多六十次请求。
"""
STRATEGY = Strategy.model_validate(
    {
        "name": "t",
        "loading": {"loaders": [{"provider": "markdown"}]},
        "embedding": {"provider": "hashing"},
    }
)


def base_over(folder: Path, text: str = TEXT, chunker: Chunker | None = None) -> Base:
    """A base over a Markdown text, by default one chunk a paragraph."""
    path = folder / "d.md"
    path.write_text(text, encoding="utf-8")
    facts = MarkdownLoader().load(path, "d.md")
    sha = hashlib.sha256(path.read_bytes()).hexdigest()
    version = Version(
        f"n.d@{sha[:12]}",
        "n",
        "d",
        "files/d.md",
        "d.md",
        sha,
        len(text),
        "text/markdown",
        "markdown",
        "t",
    )
    links = [
        MediaLink(m.ref_id, "img1", m.origin_ref, start=m.start, end=m.end) for m in facts.media
    ]
    norm = normalise(facts, links, CleaningConfig())
    sections = MarkdownHeadings(min_section_chars=0).sections(
        norm.text, headings_of(facts, norm), "d"
    )
    chunks = cut(
        version,
        facts,
        norm,
        sections,
        chunker or Recursive(chunk_size=48, chunk_overlap=0),
        STRATEGY,
        links,
    )
    return Base("default", "d", chunks, norm, Places(facts, norm), links, CleaningConfig())


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Base:
    """The chunks of TEXT, a paragraph each."""
    return base_over(tmp_path_factory.mktemp("drafting"))


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> Base:
    """Parents of about 100 characters with children of about 40."""
    chunker = ParentChild(parent={"chunk_size": 80}, child={"chunk_size": 36, "chunk_overlap": 0})
    text = (
        "# T\n\n" + "\n\n".join(f"Sentence number {n} of the family." for n in range(1, 7)) + "\n"
    )
    return base_over(tmp_path_factory.mktemp("family"), text, chunker)


def ids(edited: Edited) -> list[str]:
    return [piece.chunk.chunk_id for piece in edited.pieces]


def texts(edited: Edited) -> list[str]:
    return [chunk.chunk_text for chunk in edited.chunks]


def does(base: Base, *operations: dict[str, Any]) -> Edited:
    """The draft after operations that all apply."""
    edited = apply(base, operations)
    assert edited.problems == ()
    return edited


def refusal(base: Base, operation: dict[str, Any], edited: Edited | None = None) -> InputError:
    with pytest.raises(InputError) as caught:
        extend(base, edited or apply(base, []), operation)
    return caught.value


def holding(base: Base, words: str) -> str:
    """The id of the base chunk that holds these words."""
    (found,) = [
        c.chunk_id for c in base.chunks if words in c.chunk_text and c.chunk_type == "child"
    ]
    return found


def test_nothing_done_is_the_base(base: Base) -> None:
    assert does(base).chunks == list(base.chunks)
    assert [c.chunk_text for c in base.chunks] == [
        "# Ports\n\nThe gateway listens on port 8080.",
        "It answers within a second.",
        "## Limits\n\nFree users may ask sixty times.",
        "![plan](asset://img1) Others may ask more.",
        "## 限制\n\n每分钟最多六十次请求。",
    ]


def test_edited_text_keeps_its_place_and_names_its_origin(base: Base) -> None:
    origin = holding(base, "within a second")
    own = next(c for c in base.chunks if c.chunk_id == origin)
    edited = does(
        base, {"op": "edit_text", "chunk_id": origin, "text": "It answers at once.\r\nAlways."}
    )
    (chunk,) = [c for c in edited.chunks if c.edited_from]
    assert chunk.chunk_text == "It answers at once.\nAlways." and chunk.text_len == 27
    assert chunk.edited_from == (origin,) and chunk.chunk_id != origin
    assert (chunk.line_start, chunk.line_end, chunk.byte_start, chunk.byte_end) == (
        5,
        5,
        own.byte_start,
        own.byte_end,
    )
    assert [i for i in ids(edited) if i != chunk.chunk_id] == [
        c.chunk_id for c in base.chunks if c.chunk_id != origin
    ]
    again = extend(
        base, edited, {"op": "edit_text", "chunk_id": chunk.chunk_id, "text": own.chunk_text}
    )
    assert again.chunks == list(base.chunks)  # the file's own words again: a quote, with its own id


def test_a_split_gives_quotes_with_their_own_places(base: Base) -> None:
    whole = holding(base, "port 8080")
    text = next(c.chunk_text for c in base.chunks if c.chunk_id == whole)
    edited = does(base, {"op": "split_at", "chunk_id": whole, "offset": text.index("on port")})
    first, second = [
        c for c in edited.chunks if c.chunk_id not in {x.chunk_id for x in base.chunks}
    ]
    assert (first.chunk_text, second.chunk_text) == (
        text[: text.index(" on port")],
        "on port 8080.",
    )
    assert first.edited_from == second.edited_from == ()
    assert TEXT.encode()[second.byte_start : second.byte_end] == b"on port 8080."
    assert second.line_start == second.line_end == 3
    merged = extend(base, edited, {"op": "merge_with_next", "chunk_id": first.chunk_id})
    assert merged.chunks == list(base.chunks)
    assert merged.operations[-1]["next"] == second.chunk_id


def test_merged_neighbours_are_one_slice(base: Base) -> None:
    first, second = base.chunks[0], base.chunks[1]
    merged = does(base, {"op": "merge_with_next", "chunk_id": first.chunk_id}).chunks[0]
    assert (
        merged.chunk_text == base.normalised.text[first.norm_start : second.norm_end]
        and merged.edited_from == ()
    )
    assert (merged.byte_start, merged.byte_end) == (first.byte_start, second.byte_end)


def test_merging_what_does_not_stand_together_is_an_edit(base: Base) -> None:
    first, last = base.chunks[0].chunk_id, base.chunks[-1].chunk_id
    operations = [
        {"op": "move_after", "chunk_id": last, "target": first},
        {"op": "merge_with_next", "chunk_id": first},
    ]
    chunk = does(base, *operations).chunks[0]
    assert chunk.edited_from == (first, last)
    assert chunk.chunk_text == base.chunks[0].chunk_text + "\n\n" + base.chunks[-1].chunk_text
    assert (chunk.byte_start, chunk.byte_end) == (
        base.chunks[0].byte_start,
        base.chunks[-1].byte_end,
    )


def test_merging_what_overlaps_repeats_nothing(tmp_path: Path) -> None:
    text = "# T\n\n" + " ".join(f"word{n}" for n in range(40)) + "\n"
    base = base_over(tmp_path, text, Recursive(chunk_size=100, chunk_overlap=40))
    first, second = base.chunks[0], base.chunks[1]
    assert second.norm_start < first.norm_end
    halves = does(
        base, {"op": "split_at", "chunk_id": first.chunk_id, "offset": first.text_len - 4}
    )
    merged = extend(
        base, halves, {"op": "merge_with_next", "chunk_id": halves.chunks[1].chunk_id}
    ).chunks[1]
    assert merged.edited_from == () and (merged.norm_start, merged.norm_end) == (
        second.norm_start,
        second.norm_end,
    )
    assert merged.chunk_id == second.chunk_id


def test_a_merge_joins_what_was_edited(base: Base) -> None:
    first, second = base.chunks[0].chunk_id, base.chunks[1].chunk_id
    edited = does(base, {"op": "edit_text", "chunk_id": second, "text": "New."})
    chunk = extend(base, edited, {"op": "merge_with_next", "chunk_id": first}).chunks[0]
    assert chunk.chunk_text == base.chunks[0].chunk_text + "\n\nNew." and chunk.edited_from == (
        first,
        second,
    )


def test_an_edited_part_of_a_merged_chunk_comes_from_what_it_holds(base: Base) -> None:
    first, second = base.chunks[0], base.chunks[1]
    edited = does(base, {"op": "merge_with_next", "chunk_id": first.chunk_id})
    edited = extend(
        base, edited, {"op": "split_at", "chunk_id": edited.chunks[0].chunk_id, "offset": 9}
    )
    edited = extend(
        base, edited, {"op": "edit_text", "chunk_id": edited.chunks[0].chunk_id, "text": "# Doors"}
    )
    edited = extend(
        base,
        edited,
        {"op": "edit_text", "chunk_id": edited.chunks[1].chunk_id, "text": "It is slow."},
    )
    assert [c.edited_from for c in edited.chunks[:2]] == [
        (first.chunk_id,),
        (first.chunk_id, second.chunk_id),
    ]


def test_halves_of_an_edited_chunk_come_from_the_same_origin(base: Base) -> None:
    origin = base.chunks[0].chunk_id
    edited = does(base, {"op": "edit_text", "chunk_id": origin, "text": "One two. Three four."})
    halves = extend(
        base, edited, {"op": "split_at", "chunk_id": edited.chunks[0].chunk_id, "offset": 9}
    ).chunks[:2]
    assert [(c.chunk_text, c.edited_from) for c in halves] == [
        ("One two.", (origin,)),
        ("Three four.", (origin,)),
    ]


def test_moves_change_the_order_alone(base: Base) -> None:
    order = [c.chunk_id for c in base.chunks]
    edited = does(base, {"op": "move_before", "chunk_id": order[-1], "target": order[0]})
    assert ids(edited) == [order[-1], *order[:-1]]
    assert [c.chunk_index for c in edited.chunks] == list(range(len(order)))
    assert (
        ids(extend(base, edited, {"op": "move_after", "chunk_id": order[-1], "target": order[-2]}))
        == order
    )


def test_disabled_chunks_stay_in_the_draft(base: Base) -> None:
    gone = base.chunks[1].chunk_id
    edited = does(base, {"op": "disable", "chunk_id": gone})
    assert gone in ids(edited) and gone not in [c.chunk_id for c in edited.chunks]
    assert [c.chunk_index for c in edited.chunks] == list(range(len(base.chunks) - 1))
    assert (
        refusal(base, {"op": "merge_with_next", "chunk_id": base.chunks[0].chunk_id}, edited).code
        == "disabled_chunk"
    )
    assert extend(base, edited, {"op": "enable", "chunk_id": gone}).chunks == list(base.chunks)


def test_equal_texts_of_a_section_get_ids_of_their_own(base: Base) -> None:
    first, second = base.chunks[0], base.chunks[1]
    assert first.section_id == second.section_id
    edited = does(
        base,
        *({"op": "edit_text", "chunk_id": c.chunk_id, "text": "Same."} for c in (first, second)),
    )
    assert len(set(ids(edited))) == len(base.chunks)


def test_images_go_with_the_half_they_stand_in(base: Base) -> None:
    whole = holding(base, "asset://")
    chunk = next(c for c in base.chunks if c.chunk_id == whole)
    assert chunk.asset_ids == ("img1",)
    left, right = [
        c
        for c in does(
            base, {"op": "split_at", "chunk_id": whole, "offset": chunk.chunk_text.index("Others")}
        ).chunks
        if c.norm_start >= chunk.norm_start and c.norm_end <= chunk.norm_end
    ]
    assert (left.asset_ids, right.asset_ids, right.chunk_text) == (
        ("img1",),
        (),
        "Others may ask more.",
    )


# --- parents ------------------------------------------------------------------------------------


def test_a_parent_moves_with_its_children(family: Base) -> None:
    parents = [c.chunk_id for c in family.chunks if c.chunk_type == "parent"]
    edited = does(family, {"op": "move_before", "chunk_id": parents[1], "target": parents[0]})
    own = [
        c.chunk_id for c in family.chunks if c.chunk_id == parents[1] or c.parent_id == parents[1]
    ]
    assert ids(edited)[: len(own)] == own and len(own) > 1
    assert (
        refusal(family, {"op": "move_after", "chunk_id": parents[1], "target": own[1]}).code
        == "own_family"
    )


def test_a_child_may_change_parents(family: Base) -> None:
    parents = [c.chunk_id for c in family.chunks if c.chunk_type == "parent"]
    child = next(c.chunk_id for c in family.chunks if c.parent_id == parents[0])
    edited = does(family, {"op": "reparent", "chunk_id": child, "parent_id": parents[1]})
    assert next(c.parent_id for c in edited.chunks if c.chunk_id == child) == parents[1]
    assert (
        refusal(family, {"op": "reparent", "chunk_id": parents[0], "parent_id": parents[1]}).code
        == "not_a_child"
    )
    assert (
        refusal(family, {"op": "reparent", "chunk_id": child, "parent_id": child}).code
        == "not_a_parent"
    )


def test_children_follow_a_parent_that_is_cut_joined_or_left_out(family: Base) -> None:
    parents = [c for c in family.chunks if c.chunk_type == "parent"]
    children = [c for c in family.chunks if c.parent_id == parents[0].chunk_id]
    offset = children[1].norm_start - parents[0].norm_start
    edited = does(family, {"op": "split_at", "chunk_id": parents[0].chunk_id, "offset": offset})
    halves = [c.chunk_id for c in edited.chunks if c.chunk_type == "parent"][:2]
    by_id = {c.chunk_id: c for c in edited.chunks}
    assert [by_id[c.chunk_id].parent_id for c in children[:2]] == halves
    joined = does(family, {"op": "merge_with_next", "chunk_id": parents[0].chunk_id})
    assert {c.parent_id for c in joined.chunks if c.parent_id} == {
        joined.chunks[0].chunk_id,
        *(p.chunk_id for p in parents[2:]),
    }
    left_out = does(family, {"op": "disable", "chunk_id": parents[0].chunk_id})
    assert [c.parent_id for c in left_out.chunks if c.chunk_id == children[0].chunk_id] == [""]


# --- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operation", "code"),
    [
        ({"op": "rename", "chunk_id": "0"}, "unknown_operation"),
        ({"op": "edit_text", "chunk_id": "0"}, "bad_operation"),
        ({"op": "edit_text", "chunk_id": "0", "text": 1}, "bad_operation"),
        ({"op": "disable", "chunk_id": "0", "text": "x"}, "bad_operation"),
        ({"op": "split_at", "chunk_id": "0", "offset": True}, "bad_operation"),
        ({"op": "edit_text", "chunk_id": "chk_of_another", "text": "x"}, "unknown_chunk"),
        ({"op": "edit_text", "chunk_id": "0", "text": " \n"}, "blank_text"),
        ({"op": "edit_text", "chunk_id": "0", "text": "a\ud800"}, "bad_text"),
        ({"op": "edit_text", "chunk_id": "0", "text": "a" * 100_001}, "text_too_long"),
        ({"op": "split_at", "chunk_id": "0", "offset": 0}, "bad_offset"),
        ({"op": "split_at", "chunk_id": "0", "offset": -3}, "bad_offset"),
        ({"op": "split_at", "chunk_id": "0", "offset": 9999}, "bad_offset"),
        ({"op": "merge_with_next", "chunk_id": "-1"}, "no_next"),
        ({"op": "merge_with_next", "chunk_id": "0", "next": "chk_other"}, "other_next"),
        ({"op": "move_before", "chunk_id": "0", "target": "chk_of_another"}, "unknown_chunk"),
        ({"op": "move_before", "chunk_id": "0", "target": "0"}, "own_family"),
        ({"op": "reparent", "chunk_id": "0", "parent_id": "1"}, "not_a_parent"),
    ],
)
def test_what_cannot_be_done_says_why(base: Base, operation: dict[str, Any], code: str) -> None:
    named = {
        k: base.chunks[int(v)].chunk_id if v in ("0", "1", "-1") else v
        for k, v in operation.items()
    }
    assert refusal(base, named).code == code


def test_operations_on_what_is_gone_are_problems_and_the_others_stand(base: Base) -> None:
    first, last = base.chunks[0].chunk_id, base.chunks[-1].chunk_id
    operations = [
        {"op": "edit_text", "chunk_id": first, "text": "A."},
        {"op": "disable", "chunk_id": first},
        {"op": "disable", "chunk_id": last},
    ]
    edited = apply(base, operations)
    assert [(p.index, p.code, p.operation) for p in edited.problems] == [
        (1, "unknown_chunk", operations[1])
    ]
    assert edited.operations == (operations[0], operations[2])


# --- any sequence -------------------------------------------------------------------------------


@st.composite
def steps(draw: st.DrawFn) -> list[tuple[str, int, int, str]]:
    step = st.tuples(
        st.sampled_from(sorted(OPERATIONS)),
        st.integers(0, 40),
        st.integers(0, 90),
        st.sampled_from(["A.", "B c.", "每分钟"]),
    )
    return draw(st.lists(step, max_size=12))


@pytest.mark.parametrize("which", ["base", "family"])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(planned=steps())
def test_invariants_hold_after_any_operations(
    request: pytest.FixtureRequest, which: str, planned: list[tuple[str, int, int, str]]
) -> None:
    base: Base = request.getfixturevalue(which)
    own = {chunk.chunk_id for chunk in base.chunks}
    edited = apply(base, [])
    for name, a, b, text in planned:
        chunk_id, other = (ids(edited)[n % len(edited.pieces)] for n in (a, b))
        values = {"text": text, "offset": b, "target": other, "parent_id": other}
        operation = {
            "op": name,
            "chunk_id": chunk_id,
            **{key: values[key] for key in OPERATIONS[name][0]},
        }
        before = edited
        try:
            edited = extend(base, edited, operation)
        except InputError:
            continue
        assert apply(base, edited.operations[:-1]).pieces == before.pieces  # undone
    assert apply(base, edited.operations) == edited
    assert len(set(ids(edited))) == len(edited.pieces)
    assert [chunk.chunk_index for chunk in edited.chunks] == list(range(len(edited.chunks)))
    parents = {chunk.chunk_id for chunk in edited.chunks if chunk.chunk_type == "parent"}
    assert all(chunk.parent_id in parents | {""} for chunk in edited.chunks)
    for kind in ("parent", "child"):
        quotes = [
            p.chunk for p in edited.pieces if not p.chunk.edited_from and p.chunk.chunk_type == kind
        ]
        spans = sorted((c.norm_start, c.norm_end) for c in quotes)
        assert all(end <= start for (_, end), (start, _) in pairwise(spans))  # no character twice
    for piece in edited.pieces:
        chunk = piece.chunk
        assert {*chunk.edited_from, *piece.origins} <= own and chunk.chunk_text.strip()
        said = base.normalised.text[chunk.norm_start : chunk.norm_end]
        assert bool(chunk.edited_from) == (chunk.chunk_text != said)
        assert (chunk.fact_start, chunk.fact_end) == base.normalised.span_to_facts(
            chunk.norm_start, chunk.norm_end
        )
