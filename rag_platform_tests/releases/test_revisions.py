"""What differs between two versions, by hand-made sections and chunks, and by random edits of a
real cut.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rag_platform.ir import Chunk, Section
from rag_platform.releases.version_history import Parts, revise


def parts(*sections: tuple[str, tuple[str, ...]]) -> Parts:
    """Sections of chunks; a chunk's id is that of its section and its text, as the real ones
    are.
    """
    text, rows, chunks = "", [], []
    for path, texts in sections:
        start = len(text)
        for chunk_text in texts:
            chunk_id = f"{path}/{chunk_text}"
            chunks.append(
                Chunk(
                    chunk_id,
                    path,
                    "d",
                    "v",
                    len(chunks),
                    chunk_text,
                    "",
                    len(text),
                    len(text) + len(chunk_text),
                    0,
                    0,
                    path,
                )
            )
            text += chunk_text + "\n"
        rows.append(Section(path, path, 1, 0, start, len(text)))
    return Parts(text, rows, chunks)


BEFORE = parts(("Intro", ("one", "two", "three")), ("Old", ("gone",)))
AFTER = parts(("Intro", ("one", "2", "three", "four")), ("New", ("come",)))


def ids(chunks: tuple[Chunk, ...]) -> list[str]:
    return [chunk.chunk_id for chunk in chunks]


def test_sections_and_chunks_are_added_removed_changed_or_unchanged() -> None:
    found = revise(BEFORE, AFTER)
    assert (
        [s.section_path for s in found.sections.added],
        [s.section_path for s in found.sections.removed],
    ) == (["New"], ["Old"])
    assert ([s.section_path for _, s in found.sections.changed], found.sections.unchanged) == (
        ["Intro"],
        0,
    )
    assert (ids(found.chunks.added), ids(found.chunks.removed)) == (
        ["Intro/four", "New/come"],
        ["Old/gone"],
    )
    assert [(one.chunk_id, two.chunk_id) for one, two in found.chunks.changed] == [
        ("Intro/two", "Intro/2")
    ]
    assert found.chunks.unchanged == 2


def test_a_chunk_that_only_moved_is_unchanged() -> None:
    found = revise(parts(("A", ("one", "two"))), parts(("A", ("two", "one"))))
    assert (
        found.chunks.unchanged,
        found.chunks.added,
        found.chunks.removed,
        found.chunks.changed,
    ) == (2, [], [], [])
    assert [s.section_path for _, s in found.sections.changed] == ["A"]


def test_the_markdown_counts_and_shows_the_words() -> None:
    text = revise(BEFORE, AFTER).markdown(shown=20)
    assert "- sections: 1 added, 1 removed, 1 changed, 0 unchanged" in text
    assert "- chunks: 2 added, 1 removed, 1 changed, 2 unchanged" in text
    assert "**Intro**, chunk 1, changed:\n\n```diff\n-two\n+2\n```" in text
    assert "**Old**, chunk 3, removed:\n\n```diff\n-gone\n```" in text
    assert "3 more chunks; --json has them all" in revise(BEFORE, AFTER).markdown(shown=1)


def test_a_fence_in_the_text_does_not_end_the_diff() -> None:
    text = revise(parts(("A", ("x",))), parts(("A", ("````\ncode\n````",)))).markdown(shown=5)
    assert "`````diff\n-x\n+````\n+code\n+````\n`````" in text


def test_the_data_has_every_text() -> None:
    data = revise(BEFORE, AFTER).data()
    assert data["chunks"]["changed"][0]["before"]["text"] == "two"
    assert [row["section_path"] for row in data["chunks"]["added"]] == ["Intro", "New"]
    assert data["chunks"]["unchanged"] == 2


TEXTS = st.lists(st.sampled_from("abcdef"), unique=True, max_size=6).map(tuple)


@given(TEXTS, TEXTS, TEXTS, TEXTS)
def test_every_chunk_is_told_once(
    one: tuple[str, ...], two: tuple[str, ...], three: tuple[str, ...], four: tuple[str, ...]
) -> None:
    before, after = parts(("A", one), ("B", two)), parts(("A", three), ("B", four))
    found = revise(before, after)
    left = ids(found.chunks.removed) + [chunk.chunk_id for chunk, _ in found.chunks.changed]
    came = ids(found.chunks.added) + [chunk.chunk_id for _, chunk in found.chunks.changed]
    had, has = ({chunk.chunk_id for chunk in side.chunks} for side in (before, after))
    assert (sorted(left), sorted(came), found.chunks.unchanged) == (
        sorted(had - has),
        sorted(has - had),
        len(had & has),
    )
