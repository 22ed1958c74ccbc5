"""A model of sentence-transformers as an embedder: what its files tell, what it computes, and what
it refuses to do.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rag_platform.answering.engine import answer
from rag_platform.errors import ConfigError, ProviderError
from rag_platform.ir import EmbedderInfo, QueryRequest
from rag_platform.protocols import Embedder, Vectors
from rag_platform.registry import make_provider
from rag_platform_tests.conftest import needs

pytestmark = needs("sentence_transformers", "models")

GUIDE = """\
# Gateway

The gateway listens on port 8080.

## Limits

The free tier has 60 requests per minute.
"""
HOLIDAYS = """\
# 休假制度

员工每年有十五天带薪年假。
"""


def embedder(folder: Path | str, **options: Any) -> Embedder:
    built: Embedder = make_provider(
        "embedder", "sentence_transformers", {"model": str(folder), **options}
    )
    return built


@pytest.fixture
def copy(tiny_model: Path, tmp_path: Path) -> Path:
    """A copy of the tiny model that a test may change."""
    return Path(shutil.copytree(tiny_model, tmp_path / "model"))


def edit(path: Path, **values: Any) -> None:
    """Set keys of a JSON file."""
    path.write_text(
        json.dumps({**json.loads(path.read_text(encoding="utf-8")), **values}), encoding="utf-8"
    )


def unit(rows: Any) -> Vectors:
    array = np.asarray(rows, dtype=np.float32)
    return array / np.linalg.norm(array, axis=1, keepdims=True)


# --- what it computes ---------------------------------------------------------------------------


def test_vectors_are_those_of_the_package(tiny_model: Path) -> None:
    from sentence_transformers import SentenceTransformer

    bare = SentenceTransformer(str(tiny_model), device="cpu", local_files_only=True)
    texts = ["the gateway", "员工每年有十五天", "a"]
    wrapped = embedder(tiny_model, query_prefix="query: ", passage_prefix="passage: ")
    assert np.allclose(
        wrapped.embed(texts), unit(bare.encode([f"passage: {text}" for text in texts])), atol=1e-6
    )
    assert np.allclose(
        wrapped.embed(texts, query=True),
        unit(bare.encode([f"query: {text}" for text in texts])),
        atol=1e-6,
    )
    assert np.allclose(embedder(tiny_model).embed(texts), unit(bare.encode(texts)), atol=1e-6)
    assert (
        (wrapped.info().dim, wrapped.info().max_tokens)
        == (bare.get_embedding_dimension(), bare.get_max_seq_length())
        == (32, 64)
    )


def test_prefixes_left_out_are_the_prompts_of_the_model(copy: Path) -> None:
    edit(
        copy / "config_sentence_transformers.json",
        prompts={"query": "q: ", "passage": "p: "},
        default_prompt_name="query",
    )
    own, plain = embedder(copy), embedder(copy, query_prefix="", passage_prefix="")
    assert np.allclose(own.embed(["a"], query=True), plain.embed(["q: a"], query=True), atol=1e-6)
    assert np.allclose(own.embed(["a"]), plain.embed(["p: a"]), atol=1e-6)
    assert not np.allclose(own.embed(["a"]), plain.embed(["a"]), atol=1e-3)
    assert own.info() != plain.info()


def test_dim_keeps_the_leading_numbers(tiny_model: Path) -> None:
    short, whole = embedder(tiny_model, dim=8), embedder(tiny_model)
    assert short.info().dim == 8
    assert np.allclose(
        short.embed(["the gateway"]), unit(whole.embed(["the gateway"])[:, :8]), atol=1e-6
    )
    assert (
        embedder(tiny_model, dim=99).info().dim
        == embedder(tiny_model, dim=99).embed(["a"]).shape[1]
        == 32
    )


def test_text_beyond_the_window_does_not_move_the_vector(tiny_model: Path) -> None:
    # two tokens are marks
    for given, letters in ((embedder(tiny_model), 62), (embedder(tiny_model, max_tokens=16), 14)):
        head, longer = given.embed(["a " * letters]), given.embed(["a " * letters + "b " * 500])
        assert np.allclose(head, longer, atol=1e-6)
        assert not np.allclose(head, given.embed(["a " * (letters - 1) + "b"]), atol=1e-3)
    assert embedder(tiny_model, max_tokens=16).info().max_tokens == 16
    assert embedder(tiny_model, max_tokens=999).info().max_tokens == 64


def test_replaced_files_are_a_new_version_also_for_a_running_process(copy: Path) -> None:
    from safetensors.numpy import load_file, save_file

    given = embedder(copy)
    before, vector = given.info(), given.embed(["the gateway"])
    weights = load_file(copy / "model.safetensors")
    words = "embeddings.word_embeddings.weight"
    save_file(
        {**weights, words: np.roll(weights[words], 1, axis=0)},
        copy / "new",
        metadata={"format": "pt"},
    )
    (copy / "new").replace(copy / "model.safetensors")
    assert given.info().version != before.version
    assert not np.allclose(given.embed(["the gateway"]), vector, atol=1e-3)


def test_a_text_without_a_vector_is_named_by_its_position(tmp_path: Path) -> None:
    static_model(tmp_path / "static")
    given = embedder(tmp_path / "static")
    assert given.info() == EmbedderInfo(
        "sentence_transformers:static", given.info().version, 3, 1_000_000
    )
    assert np.allclose(given.embed(["red", "red green"]), [[1, 0, 0], [0.70710678, 0.70710678, 0]])
    with pytest.raises(ProviderError, match="text 1 of 2") as caught:
        given.embed(["red", "violet"])
    assert (caught.value.code, caught.value.details["position"]) == ("no_vector", 1)


def static_model(folder: Path) -> None:
    """Save a model of one vector per word: red, green and blue are the axes, any other word is
    nothing.
    """
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace

    tokenizer = Tokenizer(
        WordLevel({"[UNK]": 0, "red": 1, "green": 2, "blue": 3}, unk_token="[UNK]")
    )
    tokenizer.pre_tokenizer = Whitespace()
    axes = np.vstack([np.zeros(3), np.eye(3)]).astype(np.float32)
    SentenceTransformer(
        modules=[StaticEmbedding(tokenizer, embedding_weights=axes)], device="cpu"
    ).save(str(folder))


# --- its fingerprint ----------------------------------------------------------------------------


def test_fingerprint_needs_no_torch_and_no_path(tiny_model: Path) -> None:
    code = (
        "import sys\n"
        "from rag_platform.registry import make_provider\n"
        "info = make_provider('embedder',"
        f" 'sentence_transformers', {{'model': {str(tiny_model)!r}}}).info()\n"
        f"assert not {{'torch', 'transformers', 'sentence_transformers'}} & set(sys.modules)\n"
        "sys.stdout.write(info.embedder_id + ' ' + info.version)"
    )
    said = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout.split()
    assert said == ["sentence_transformers:tiny-bert", embedder(tiny_model).info().version]


def test_version_follows_what_decides_a_vector_and_nothing_else(copy: Path) -> None:
    version = embedder(copy).info().version
    assert embedder(copy, batch_size=1, device="cuda", threads=2).info().version == version
    (copy / "README.md").write_text("another card", encoding="utf-8")
    assert embedder(copy).info().version == version
    changed = [
        embedder(copy, **{key: value}).info().version
        for key, value in (
            ("query_prefix", "q: "),
            ("passage_prefix", "q: "),
            ("dim", 8),
            ("max_tokens", 8),
            ("max_chars", 100),
        )
    ]
    edit(copy / "1_Pooling" / "config.json", pooling_mode="cls")
    changed.append(embedder(copy).info().version)
    data = bytearray((copy / "model.safetensors").read_bytes())
    data[-1] ^= 1
    (copy / "model.safetensors").write_bytes(data)
    changed.append(embedder(copy).info().version)
    assert len({version, *changed}) == 8


@pytest.mark.parametrize(
    ("modules", "dim"),
    [
        (
            [
                "Transformer",
                ("Pooling", {"word_embedding_dimension": 384, "pooling_mode_cls_token": True}),
            ],
            384,
        ),
        (
            [
                "Transformer",
                (
                    "Pooling",
                    {
                        "word_embedding_dimension": 10,
                        "pooling_mode_cls_token": True,
                        "pooling_mode_max_tokens": True,
                    },
                ),
            ],
            20,
        ),
        (
            [
                "Transformer",
                ("Pooling", {"embedding_dimension": 10, "pooling_mode": ["cls", "max", "mean"]}),
            ],
            30,
        ),
        (
            [
                "Transformer",
                ("Pooling", {"embedding_dimension": 10, "pooling_mode": "cls"}),
                "Normalize",
            ],
            10,
        ),
        (
            [
                "Transformer",
                ("Pooling", {"embedding_dimension": 10}),
                ("Dense", {"in_features": 10, "out_features": 4}),
                "Normalize",
            ],
            4,
        ),
    ],
)
def test_dimension_as_the_modules_tell_it(tmp_path: Path, modules: list[Any], dim: int) -> None:
    write_model(tmp_path, modules)
    assert embedder(tmp_path).info().dim == dim


def test_a_dimension_that_no_module_tells_is_an_option(tmp_path: Path) -> None:
    write_model(tmp_path, ["Transformer", "CLIPModel"])
    with pytest.raises(ConfigError, match="set the option `dim`"):
        embedder(tmp_path).info()
    assert embedder(tmp_path, dim=512).info().dim == 512


@pytest.mark.parametrize(
    ("files", "window"),
    [
        (
            {
                "sentence_bert_config.json": {"max_seq_length": 256},
                "tokenizer_config.json": {"model_max_length": 512},
            },
            256,
        ),
        ({"sentence_xlm-roberta_config.json": {"max_seq_length": 128}}, 128),
        (
            {"sentence_bert_config.json": {}, "tokenizer_config.json": {"model_max_length": 512}},
            512,
        ),
        (
            {
                "tokenizer_config.json": {"model_max_length": 512},
                "config.json": {"max_position_embeddings": 514},
            },
            512,
        ),
        (
            {
                "tokenizer_config.json": {"model_max_length": 10**30},
                "config.json": {"max_position_embeddings": 8192},
            },
            8192,
        ),
        ({"config.json": {"max_position_embeddings": -1}}, 1_000_000),
        ({}, 1_000_000),
    ],
)
def test_window_as_the_files_tell_it(
    tmp_path: Path, files: dict[str, dict[str, int]], window: int
) -> None:
    write_model(tmp_path, ["Transformer", ("Pooling", {"embedding_dimension": 8})])
    for name, values in files.items():
        (tmp_path / name).write_text(json.dumps(values), encoding="utf-8")
    assert embedder(tmp_path).info().max_tokens == window


def write_model(folder: Path, modules: list[Any]) -> None:
    """Write the config files of a model with these modules, the first at the top, and empty
    weights.
    """
    listed = []
    for number, module in enumerate(modules):
        kind, settings = module if isinstance(module, tuple) else (module, {})
        path = f"{number}_{kind}" if number else ""
        listed.append(
            {
                "idx": number,
                "name": str(number),
                "path": path,
                "type": f"sentence_transformers.models.{kind}",
            }
        )
        if settings:
            (folder / path).mkdir()
            (folder / path / "config.json").write_text(json.dumps(settings), encoding="utf-8")
    (folder / "modules.json").write_text(json.dumps(listed), encoding="utf-8")
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", 2) + b"{}")


# --- where the model comes from, and what is refused --------------------------------------------


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("/no/such/model", "absolute path of a folder that holds modules.json"),
        ("./model", "absolute path of a folder that holds modules.json"),
        (
            "no-such/model",
            "fetch it once with `hf download no-such/model`, or set allow_download: true",
        ),
    ],
)
def test_a_missing_model_is_told_with_the_remedy(
    model: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for call in (lambda: embedder(model).info(), lambda: embedder(model).embed(["a"])):
        with pytest.raises(ConfigError) as caught:
            call()
        assert (
            caught.value.code == "model_not_found"
            and model in caught.value.message
            and said in caught.value.message
        )


def test_unusable_folders_are_told_apart(copy: Path) -> None:
    def told(match: str, **options: Any) -> None:
        with pytest.raises(ConfigError, match=match) as caught:
            embedder(copy, **options).embed(["a"])
        assert caught.value.code == "model_unusable"

    told("cannot be loaded on 'warp'", device="warp")
    weights = (copy / "model.safetensors").read_bytes()
    (copy / "model.safetensors").write_bytes(weights[:5000])
    told("cannot be loaded on 'cpu'.*get its files again")
    (copy / "model.safetensors").rename(copy / "pytorch_model.bin")
    told("no weights as safetensors")
    (copy / "model.safetensors").write_bytes(weights)
    modules = json.loads((copy / "modules.json").read_text(encoding="utf-8"))
    modules[0]["type"] = "os.path.Transformer"
    (copy / "modules.json").write_text(json.dumps(modules), encoding="utf-8")
    told("trust_remote_code")
    (copy / "modules.json").write_text("[", encoding="utf-8")
    told("no JSON")
    (copy / "modules.json").unlink()
    told("no modules.json")


def test_options_out_of_range_are_refused(tiny_model: Path) -> None:
    for options, said in (
        ({"model": ""}, "`model` must name a folder or a hub model"),
        ({"dim": -1}, "dim must be at least 0, not -1"),
        ({"batch_size": 0}, "batch_size must be at least 1, not 0"),
    ):
        with pytest.raises(ConfigError, match=said):
            make_provider(
                "embedder", "sentence_transformers", {"model": str(tiny_model), **options}
            )


def test_nothing_is_asked_of_the_network(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a connection was tried")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    assert embedder(copy).embed(["a"]).shape == (1, 32)
    with pytest.raises(ConfigError, match="hf download"):
        embedder("no-such/model").info()


@pytest.mark.integration
def test_a_hub_name_is_found_in_the_local_cache(tiny_model: Path, tmp_path: Path) -> None:
    commit = "0123456789abcdef0123456789abcdef01234567"
    stored = tmp_path / "hub" / "models--somebody--tiny-bert"
    shutil.copytree(tiny_model, stored / "snapshots" / commit)
    (stored / "refs").mkdir()
    (stored / "refs" / "main").write_text(commit, encoding="utf-8")
    code = (
        "import sys, json\n"
        "from rag_platform.errors import ConfigError\n"
        "from rag_platform.registry import make_provider\n"
        "def given(**more): return make_provider('embedder', 'sentence_transformers',"
        " {'model': 'somebody/tiny-bert', **more})\n"
        "info = given().info()\n"
        "assert 'torch' not in sys.modules\n"
        "assert given(revision=sys.argv[1]).info() == info\n"
        "try: given(revision='v2').info()\n"
        "except ConfigError as error: missing = error.message\n"
        "json.dump([info.embedder_id, info.version, given().embed(['a']).shape,"
        " missing], sys.stdout)"
    )
    environment = {**os.environ, "HF_HUB_CACHE": str(tmp_path / "hub")}
    said = subprocess.run(
        [sys.executable, "-c", code, commit],
        check=True,
        capture_output=True,
        text=True,
        env=environment,
    ).stdout
    assert json.loads(said)[:3] == [
        "sentence_transformers:somebody/tiny-bert",
        embedder(tiny_model).info().version,
        [1, 32],
    ]
    assert "hf download somebody/tiny-bert --revision v2" in json.loads(said)[3]


# --- end to end ---------------------------------------------------------------------------------


@pytest.fixture
def strategy(config_folder: Path) -> Any:
    """Writes the strategy `models`: tiny, but with the given model."""

    def write(folder: Path) -> str:
        tiny = (config_folder / "strategies" / "tiny.yaml").read_text(encoding="utf-8")
        own = (
            f"provider: sentence_transformers\n"
            f"  options: {{model: {folder}, query_prefix: 'query: ', passage_prefix: 'passage: '}}"
        )
        (config_folder / "strategies" / "models.yaml").write_text(
            tiny.replace("provider: hashing", own), encoding="utf-8"
        )
        return "models"

    return write


@pytest.mark.integration
def test_documents_are_ingested_and_answered_with_it(
    shelf: Any, strategy: Any, tiny_model: Path, tmp_path: Path
) -> None:
    (tmp_path / "guide.md").write_text(GUIDE, encoding="utf-8")
    (tmp_path / "休假.md").write_text(HOLIDAYS, encoding="utf-8")
    shelf.ingest(tmp_path / "guide.md", tmp_path / "休假.md", strategy=strategy(tiny_model))
    library = shelf.library()
    with library.lease("default") as lease:
        assert (
            lease.release.manifest.embedder
            == embedder(tiny_model, query_prefix="query: ", passage_prefix="passage: ").info()
        )
        assert lease.release.manifest.counts["dense"] == lease.release.manifest.counts["chunks"]
    for question, expected in (
        ("Which port does the gateway listen on?", "8080"),
        ("员工每年有几天年假？", "十五天"),
    ):
        result = answer(library, QueryRequest(question))
        assert expected in result.hits[0].chunk_text
        assert result.effective_mode == "hybrid" and not result.warnings


@pytest.mark.integration
def test_a_model_that_cannot_be_loaded_stops_the_run_and_costs_no_document(
    shelf: Any, strategy: Any, tiny_model: Path, copy: Path, tmp_path: Path
) -> None:
    (tmp_path / "guide.md").write_text(GUIDE, encoding="utf-8")
    (copy / "model.safetensors").write_bytes((copy / "model.safetensors").read_bytes()[:5000])
    with pytest.raises(ConfigError, match="cannot be loaded"):
        shelf.ingest(tmp_path / "guide.md", strategy=strategy(copy))
    assert [version.status for version in shelf.ledger.versions("default")] == ["received"]
    shutil.copy(tiny_model / "model.safetensors", copy)
    shelf.ingest(tmp_path / "guide.md", strategy="models")
    assert answer(shelf.library(), QueryRequest("gateway port")).hits
