"""The matrix of a release, its exact scan, and when the approximate index is asked."""

from __future__ import annotations

import tracemalloc
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rag_platform.config.query import ProviderConfig, RetrievalConfig
from rag_platform.errors import IntegrityError, ProviderError
from rag_platform.indexes import dense, dense_files
from rag_platform.indexes.delta import link_parent
from rag_platform.indexes.dense import DenseVectors
from rag_platform.indexes.dense_files import is_among, read_matrix
from rag_platform.retrieval.retrievers import prefers_approximate
from rag_platform_tests.matrices import write_matrix

CHROMA = ProviderConfig(provider="chroma")
ALWAYS = RetrievalConfig(exact_scan_rows=0)  # the approximate index is asked at every size
AXES = np.eye(4, dtype=np.float32)


def stack(vectors: Mapping[str, np.ndarray], dim: int) -> np.ndarray:
    rows = [vectors[name] for name in sorted(vectors)]
    return np.array(rows, dtype=np.float32).reshape(len(rows), dim)


def update(
    config: ProviderConfig, directory: Path, *, dim: int, added: Mapping, **rest: Any
) -> None:
    """`dense.update` with rows in another order than that of their ids."""
    ids = sorted(added)[::-1]
    dense.update(config, directory, dim=dim, ids=ids, vectors=stack(added, dim)[::-1], **rest)


def ids_of(found: tuple[list, str]) -> tuple[list[str], str]:
    return [hit.chunk_id for hit in found[0]], found[1]


@pytest.fixture
def vectors(tmp_path: Path) -> DenseVectors:
    """a = x, b = y, c between x and y, d = e = z."""
    between = np.array([0.6, 0.8, 0, 0], dtype=np.float32)
    write_matrix(
        tmp_path,
        dim=4,
        removed=(),
        ids=["a", "b", "c", "d", "e"],
        vectors=np.stack([AXES[0], AXES[1], between, AXES[2], AXES[2]]),
    )
    return DenseVectors(tmp_path, CHROMA)


def test_scan_orders_by_cosine_then_id(vectors: DenseVectors) -> None:
    found, plan = vectors.search(AXES[0], 3)
    assert plan == "exact"
    assert [(hit.chunk_id, hit.score, hit.source) for hit in found] == [
        ("a", 1.0, "dense"),
        ("c", 0.6, "dense"),
        ("b", 0.0, "dense"),
    ]
    assert ids_of(vectors.search(AXES[2], 1)) == (["d"], "exact")
    assert ids_of(vectors.search(AXES[2], 9)) == (["d", "e", "a", "b", "c"], "exact")


def test_filter_restricts_and_ignores_unknown_ids(vectors: DenseVectors) -> None:
    assert ids_of(vectors.search(AXES[0], 2, chunk_ids={"b", "c", "gone"}, approximate=True)) == (
        ["c", "b"],
        "exact",
    )
    assert ids_of(vectors.search(AXES[0], 2, chunk_ids={"a", "b", "c", "d"})) == (
        ["a", "c"],
        "exact",
    )
    assert ids_of(vectors.search(AXES[0], 2, chunk_ids=[])) == ([], "exact")


@pytest.mark.parametrize(
    "bad", [np.ones(3, dtype=np.float32), np.array([np.nan, 0, 0, 0], dtype=np.float32)]
)
def test_unusable_query_vector_is_an_error(vectors: DenseVectors, bad: np.ndarray) -> None:
    with pytest.raises(ProviderError, match="query vector"):
        vectors.search(bad, 3)


def test_a_broken_approximate_index_falls_back_visibly(
    vectors: DenseVectors, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # none was built
    assert (
        ids_of(vectors.search(AXES[0], 1, approximate=True)) == (["a"], "exact") and not caplog.text
    )
    (tmp_path / "ann").mkdir()
    vectors = DenseVectors(tmp_path, CHROMA)
    assert ids_of(vectors.search(AXES[0], 1, approximate=True)) == (["a"], "exact_after_ann_error")
    assert "no vector index" in caplog.text


@pytest.mark.integration
def test_approximate_index_proposes_and_the_matrix_scores(tmp_path: Path) -> None:
    rows = np.random.default_rng(1).normal(size=(500, 8)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    update(
        CHROMA,
        tmp_path,
        dim=8,
        removed=(),
        added={f"c{n:03}": row for n, row in enumerate(rows)},
        retrieval=ALWAYS,
    )
    update(
        CHROMA, tmp_path, dim=8, removed=["c000", "c001"], added={"c001": rows[0]}, retrieval=ALWAYS
    )
    reader = DenseVectors(tmp_path, CHROMA)
    assert reader.count() == 499 and reader.ids()[0] == "c001"
    exact, _ = reader.search(rows[5], 10)
    approximate, plan = reader.search(rows[5], 10, approximate=True)
    assert plan == "ann"
    assert [hit.chunk_id for hit in approximate] == [hit.chunk_id for hit in exact]
    assert [hit.score for hit in approximate] == pytest.approx(
        [hit.score for hit in exact], abs=2e-6
    )
    assert reader.search(rows[0], 1, approximate=True)[0][0].chunk_id == "c001"
    reader.close()


def test_empty_matrix_can_be_written_read_and_searched(tmp_path: Path) -> None:
    write_matrix(tmp_path, dim=4, removed=(), ids=[], vectors=np.zeros((0, 4), dtype=np.float32))
    assert DenseVectors(tmp_path, CHROMA).search(AXES[0], 3) == ([], "exact")


def test_matrix_refuses_two_vectors_for_a_chunk_and_another_dimension(tmp_path: Path) -> None:
    given: dict[str, Any] = {"removed": (), "retrieval": RetrievalConfig()}
    update(CHROMA, tmp_path, dim=4, added={"a": AXES[0]}, **given)
    with pytest.raises(IntegrityError, match="a would have two vectors"):
        update(CHROMA, tmp_path, dim=4, added={"a": AXES[0]}, **given)
    with pytest.raises(IntegrityError, match="do not fit"):
        update(CHROMA, tmp_path, dim=3, added={"b": np.ones(3, dtype=np.float32)}, **given)


def test_ids_and_matrix_that_do_not_belong_together_are_an_error(tmp_path: Path) -> None:
    write_matrix(tmp_path, dim=4, removed=(), ids=["a", "b"], vectors=AXES[:2])
    np.save(tmp_path / "ids.npy", np.array([b"a"]))
    with pytest.raises(IntegrityError, match="1 ids for a matrix"):
        read_matrix(tmp_path)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.sets(st.integers(0, 30)), st.sets(st.integers(0, 30))), max_size=5))
def test_matrix_does_not_depend_on_its_history(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[set[int], set[int]]]
) -> None:
    folder = tmp_path_factory.mktemp("matrix")
    held: set[int] = set()
    for remove, add in steps:
        new = sorted(f"c{n}" for n in add - (held - remove))
        vectors = np.array([[int(name[1:]), 1.0] for name in new], dtype=np.float32).reshape(
            len(new), 2
        )
        write_matrix(
            folder / "grown", dim=2, removed=[f"c{n}" for n in remove], ids=new, vectors=vectors
        )
        held = (held - remove) | add
    names = sorted(f"c{n}" for n in held)
    whole = np.array([[int(name[1:]), 1.0] for name in names], dtype=np.float32).reshape(
        len(names), 2
    )
    write_matrix(folder / "built", dim=2, removed=(), ids=names, vectors=whole)
    if steps:
        for name in ("vectors.npy", "ids.npy"):
            assert (folder / "grown" / name).read_bytes() == (folder / "built" / name).read_bytes()


# --- the base and what differs from it ----------------------------------------------------------


def circle(count: int) -> dict[str, np.ndarray]:
    angles = np.arange(count) * (2 * np.pi / count)
    rows = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    return {f"c{n:03}": row for n, row in enumerate(rows)}


def everything(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }


@pytest.mark.integration
def test_a_small_change_leaves_the_base_alone_until_it_grows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dense_files, "FRESH_ROWS", 4)
    vectors = circle(40)
    update(CHROMA, tmp_path, dim=2, removed=(), added=vectors, retrieval=ALWAYS)
    before = everything(tmp_path)
    added = {"n1": vectors["c010"], "c002": vectors["c020"]}
    update(CHROMA, tmp_path, dim=2, removed=["c001", "c002"], added=added, retrieval=ALWAYS)
    assert {name: data for name, data in everything(tmp_path).items() if name in before} == before
    assert (tmp_path / "gone.txt").read_text().split() == ["c001", "c002"]
    assert (tmp_path / "fresh.txt").read_text().split() == ["c002", "n1"]
    reader = DenseVectors(tmp_path, CHROMA)
    assert reader.count() == 40 and reader.ids() == sorted({*vectors, "n1"} - {"c001"})
    near = [(hit.chunk_id, hit.score) for hit in reader.search(vectors["c010"], 2)[0]]
    assert near == [("c010", 1.0), ("n1", 1.0)]
    assert ids_of(reader.search(vectors["c010"], 2, approximate=True)) == (["c010", "n1"], "ann")
    assert ids_of(reader.search(vectors["c020"], 2, chunk_ids=["c002", "c001", "c021"])) == (
        ["c002", "c021"],
        "exact",
    )
    assert ids_of(reader.search(vectors["c001"], 2, approximate=True)) == (["c000", "c003"], "ann")
    reader.close()
    # a new base, and a new approximate index over it
    update(CHROMA, tmp_path, dim=2, removed=["c003"], added={}, retrieval=ALWAYS)
    assert not list(tmp_path.glob("fresh*")) and not (tmp_path / "gone.txt").exists()
    ids, matrix = read_matrix(tmp_path)
    assert ids == sorted({*vectors, "n1"} - {"c001", "c003"}) and np.array_equal(
        matrix[ids.index("c002")], vectors["c020"]
    )
    reader = DenseVectors(tmp_path, CHROMA)
    assert reader.has_ann and ids_of(reader.search(vectors["c001"], 2, approximate=True)) == (
        ["c000", "c039"],
        "ann",
    )
    reader.close()


def test_a_changed_matrix_is_read_in_parts_of_which_none_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dense_files, "_ROWS_AT_ONCE", 1_000)
    ids = [f"c{n:05}" for n in range(40_000)]
    rows = np.arange(40_000 * 256, dtype=np.float32).reshape(-1, 256)
    write_matrix(tmp_path, dim=256, removed=(), ids=ids, vectors=rows)
    dense_files.write_change(
        tmp_path, dense_files.read_parts(tmp_path), ["c00001"], ["z", "a"], rows[[9, 7]]
    )
    expected = ["a", *(ids[:1] + ids[2:]), "z"]
    seen: list[str] = []
    tracemalloc.start()
    for names, part in dense_files.split_rows(dense_files.read_parts(tmp_path)):
        seen += names
        assert len(names) == len(part) <= 1_000
        last = part[-1].tolist()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert seen == expected and last == rows[9].tolist()
    assert peak < rows.nbytes / 2, f"{peak:,} bytes for {rows.nbytes:,} of vectors"


@pytest.mark.integration
def test_the_approximate_index_is_asked_for_more_where_it_proposes_what_is_gone(
    tmp_path: Path,
) -> None:
    vectors = circle(400)
    update(CHROMA, tmp_path, dim=2, removed=(), added=vectors, retrieval=ALWAYS)
    gone = [f"c{n:03}" for n in range(60)]
    update(CHROMA, tmp_path, dim=2, removed=gone, added={}, retrieval=ALWAYS)
    reader = DenseVectors(tmp_path, CHROMA)
    assert ids_of(reader.search(vectors["c030"], 3, approximate=True)) == (
        ["c060", "c061", "c399"],
        "ann",
    )
    assert dense_files.stored_ids(tmp_path, [*vectors, "x"]) == set(vectors)
    reader.close()


@pytest.mark.integration
def test_what_is_linked_elsewhere_is_never_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dense_files, "FRESH_ROWS", 2)
    vectors = circle(30)
    update(CHROMA, tmp_path / "old", dim=2, removed=(), added=vectors, retrieval=ALWAYS)
    link_parent(tmp_path / "old", tmp_path / "new", without="")
    linked = {
        name
        for name in everything(tmp_path / "old")
        if (tmp_path / "old" / name).samefile(tmp_path / "new" / name)
    }
    assert {Path(name).name for name in linked} == {
        "vectors.npy",
        "ids.npy",
        "data_level0.bin",
        "header.bin",
        "length.bin",
        "link_lists.bin",
        "index_metadata.pickle",
        "chroma.sqlite3",
    }
    before = everything(tmp_path / "old")
    # readers of both names write nothing that the other would see
    reader = DenseVectors(tmp_path / "new", CHROMA)
    assert reader.search(vectors["c007"], 1, approximate=True)[0][0].chunk_id == "c007"
    reader.close()
    assert everything(tmp_path / "old") == before
    update(
        CHROMA,
        tmp_path / "new",
        dim=2,
        removed=["c007"],
        added={f"n{n}": vectors[f"c{n:03}"] for n in range(4)},
        retrieval=ALWAYS,
    )
    assert not (tmp_path / "new" / "fresh.npy").exists()
    assert everything(tmp_path / "old") == before
    old = DenseVectors(tmp_path / "old", CHROMA)
    assert old.search(vectors["c007"], 1, approximate=True)[0][0].chunk_id == "c007"
    old.close()


@pytest.mark.integration
@settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.lists(
        st.tuples(
            st.sets(st.integers(0, 30), max_size=6),
            st.dictionaries(st.integers(0, 30), st.integers(0, 59), max_size=6),
        ),
        max_size=5,
    )
)
def test_answers_do_not_depend_on_the_history(
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    steps: list[tuple[set[int], dict[int, int]]],
) -> None:
    monkeypatch.setattr(dense_files, "FRESH_ROWS", 5)
    folder, directions = tmp_path_factory.mktemp("vectors"), list(circle(60).values())
    held: dict[str, np.ndarray] = {}
    for remove, add in [(set[int](), {n: n for n in range(20)}), *steps]:
        added = {f"c{n}": directions[angle] for n, angle in add.items()}
        removed = {name for name in held if name in added or int(name[1:]) in remove}
        update(CHROMA, folder / "grown", dim=2, removed=removed, added=added, retrieval=ALWAYS)
        held = {name: row for name, row in held.items() if name not in removed} | added
    names = sorted(held)
    write_matrix(folder / "built", dim=2, removed=(), ids=names, vectors=stack(held, 2))
    grown, built = DenseVectors(folder / "grown", CHROMA), DenseVectors(folder / "built", CHROMA)
    assert grown.ids() == built.ids() == names and grown.count() == len(names)
    assert [np.array(part).tolist() for part in read_matrix(folder / "grown")] == [
        np.array(part).tolist() for part in read_matrix(folder / "built")
    ]
    for query in directions[::7]:
        assert grown.search(query, 6) == built.search(query, 6)
        assert grown.search(query, 3, chunk_ids=names[::2]) == built.search(
            query, 3, chunk_ids=names[::2]
        )


# --- scans narrowed by bounds -------------------------------------------------------------------


@pytest.mark.parametrize("spread", [0.3, 3.0])
def test_a_narrowed_scan_finds_what_a_scan_of_everything_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spread: float
) -> None:
    monkeypatch.setattr(dense_files, "NARROWED", 500)
    monkeypatch.setattr(dense_files, "FRESH_ROWS", 200)
    rng = np.random.default_rng(5)
    centres = rng.normal(size=(20, 320)).astype(np.float32)
    rows = centres[rng.integers(20, size=3000)] + spread * rng.normal(size=(3000, 320)).astype(
        np.float32
    )
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    rows[2000:2100] = rows[7]  # as good as each other
    named = {f"c{number:04}": row for number, row in enumerate(rows)}
    update(
        CHROMA,
        tmp_path,
        dim=320,
        removed=(),
        added=dict(list(named.items())[:2900]),
        retrieval=RetrievalConfig(),
    )
    update(
        CHROMA,
        tmp_path,
        dim=320,
        removed=["c0003", "c2050"],
        added=dict(list(named.items())[2900:]),
        retrieval=RetrievalConfig(),
    )
    narrowed, plain = DenseVectors(tmp_path, CHROMA), DenseVectors(tmp_path, CHROMA)
    narrowed.prepare()
    plain._rounded = None  # as beside a base of an older program
    half = frozenset(list(named)[::2])
    for query in (rows[3], rows[7], rows[2950], -rows[11], centres[0] / np.linalg.norm(centres[0])):
        for k in (1, 50, 3000):
            assert narrowed.search(query, k) == plain.search(query, k)
            assert narrowed.search(query, k, chunk_ids=half) == plain.search(
                query, k, chunk_ids=half
            )
    assert narrowed._rounded is not None


def test_rows_of_a_filter_are_looked_up_once_and_never_confused(vectors: DenseVectors) -> None:
    for allowed in (
        frozenset({"a"}),
        frozenset({"b"}),
        {"c"},
        frozenset({"a"}),
        *(frozenset({"d", str(n)}) for n in range(40)),
    ):
        assert {
            hit.chunk_id for hit in vectors.search(AXES[0], 9, chunk_ids=allowed)[0]
        } == allowed & {"a", "b", "c", "d"}


def test_stored_rows_are_given_by_id(vectors: DenseVectors) -> None:
    assert vectors.vectors_of(["d", "a"]).tolist() == [[0, 0, 1, 0], [1, 0, 0, 0]]
    assert vectors.vectors_of([]).shape == (0, 4)
    assert vectors.first_vectors(["x", "d", "a", "b"], 2).tolist() == [[0, 0, 1, 0], [1, 0, 0, 0]]
    assert vectors.first_vectors(["x"], 2).shape == (0, 4)
    with pytest.raises(ProviderError, match="chunk x has no vector"):
        vectors.vectors_of(["x"])


@pytest.mark.parametrize(
    ("rows", "dim", "config", "needed"),
    [
        (1_000_000, 384, {}, False),  # 28.8 ms
        (1_388_000, 384, {}, False),
        (1_389_000, 384, {}, True),  # 40.003 ms
        (49_999, 12_288, {}, False),
        (50_000, 12_288, {}, True),
        (10, 2, {"exact_scan_rows": 9}, True),
        (2_000_000, 384, {"exact_scan_rows": 2_000_000}, False),
    ],
)
def test_an_approximate_index_is_needed_where_a_question_may_ask_it(
    rows: int, dim: int, config: dict[str, int], needed: bool
) -> None:
    retrieval = RetrievalConfig(**config)
    assert dense.needs_ann(rows, dim, retrieval) is needed
    assert prefers_approximate(rows, dim, 1.0, retrieval) is needed


@pytest.mark.integration
def test_an_approximate_index_comes_with_the_base_that_needs_one_and_goes_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dense_files, "FRESH_ROWS", 4)
    vectors, retrieval = circle(60), RetrievalConfig(exact_scan_rows=50)
    named = list(vectors.items())
    parts = {"dim": 2, "retrieval": retrieval}
    update(CHROMA, tmp_path, removed=(), added=dict(named[:40]), **parts)
    assert not dense.has_ann(tmp_path)
    update(CHROMA, tmp_path, removed=(), added=dict(named[40:]), **parts)
    reader = DenseVectors(tmp_path, CHROMA)
    assert reader.has_ann and ids_of(reader.search(vectors["c055"], 1, approximate=True)) == (
        ["c055"],
        "ann",
    )
    assert ids_of(reader.search(vectors["c005"], 1, approximate=True)) == (["c005"], "ann")
    reader.close()
    update(CHROMA, tmp_path, removed=[name for name, _ in named[:20]], added={}, **parts)
    reader = DenseVectors(tmp_path, CHROMA)
    assert not reader.has_ann and reader.count() == 40
    assert ids_of(reader.search(vectors["c055"], 1, approximate=True)) == (["c055"], "exact")


@pytest.mark.integration
def test_recall_of_the_approximate_index_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    update(CHROMA, tmp_path, dim=2, removed=(), added=circle(400), retrieval=ALWAYS)
    assert dense.measure_recall(CHROMA, tmp_path) == 1.0
    # an index that finds next to nothing
    monkeypatch.setattr(DenseVectors, "_propose", lambda self, query, wanted: [0, 1])
    assert dense.measure_recall(CHROMA, tmp_path) == pytest.approx(0.006, abs=0.006)


def test_a_base_of_an_older_program_answers_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its ids are lines of text, and nothing beside it is rounded."""
    monkeypatch.setattr(dense_files, "NARROWED", 30)
    vectors = circle(90)
    for name in ("old", "new"):
        update(
            CHROMA,
            tmp_path / name,
            dim=2,
            removed=(),
            added=vectors,
            retrieval=RetrievalConfig(),
        )
    (tmp_path / "old" / "ids.txt").write_text("".join(f"{name}\n" for name in vectors))
    for name in ("ids.npy", "rounded.npy", "scales.npy"):
        (tmp_path / "old" / name).unlink()

    def answers(name: str) -> list:
        reader = DenseVectors(tmp_path / name, CHROMA)
        some = ["c010", "c011", "nobody", "a much longer name than any other"]
        return [
            reader.ids(),
            reader.keep_embedded(some),
            *(reader.search(vectors[query], 7) for query in ("c003", "c044")),
            reader.search(vectors["c003"], 7, chunk_ids=some),
        ]

    assert answers("old") == answers("new")


def test_rounded_rows_that_do_not_belong_to_the_base_are_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dense_files, "NARROWED", 30)
    update(CHROMA, tmp_path, dim=2, removed=(), added=circle(40), retrieval=RetrievalConfig())
    np.save(tmp_path / "rounded.npy", np.zeros((39, 2), dtype=np.int8))
    with pytest.raises(IntegrityError, match=r"rounded vectors \(39, 2\)"):
        DenseVectors(tmp_path, CHROMA)


def test_rows_that_lie_among_others_are_told() -> None:
    ascending = np.array([2, 5, 9])
    found = is_among(np.array([-1, 2, 3, 9, 10]), ascending)
    assert found.tolist() == [False, True, False, True, False]


@pytest.mark.parametrize(
    ("changed", "base", "new"),
    [
        (1_000, 10, False),  # however small the library
        (1_001, 10, True),
        (5_000, 100_000, False),  # a twentieth
        (5_001, 100_000, True),
        (10_000, 1_000_000, False),  # every small change writes them again
        (10_001, 1_000_000, True),
    ],
)
def test_a_base_is_outgrown(changed: int, base: int, new: bool) -> None:
    assert dense_files.outgrows(changed, base) is new
