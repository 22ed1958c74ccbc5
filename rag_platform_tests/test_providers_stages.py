"""What every fusion, reranker, answerer, language model, OCR engine and loader must do, run over
the whole registry.

Embedders and vector indexes: test_providers.py; word indexes: test_providers_words.py; sectioners
and chunkers: documents/test_cutting.py.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rag_platform.config.settings import Limits
from rag_platform.errors import ConfigError, DocumentError, ProviderError
from rag_platform.ir import Candidate, QueryIR
from rag_platform.protocols import LLM, Answerer, Fusion, Loader, Message, Ocr, Reranker
from rag_platform.query.analysis import prepare
from rag_platform.registry import EXTRAS, PROVIDERS, make_provider
from rag_platform_tests.chat_server import Reply, chat_server, said
from rag_platform_tests.conftest import PICTURE
from rag_platform_tests.providers.rerank_hits import hits_of, tiny_cross_encoder


def built(kind: str, name: str, options: dict[str, Any] | None = None) -> Any:
    """The provider; skips where its extra is not installed, and only then."""
    try:
        return make_provider(kind, name, options)
    except ConfigError as error:
        if name in EXTRAS and f"needs the extra `{EXTRAS[name]}`" in error.message:
            pytest.skip(error.message)
        raise


def asked(text: str = "What is the upload limit?") -> QueryIR:
    return prepare(text, Limits())


# --- fusions ------------------------------------------------------------------------------------


@pytest.fixture(params=sorted(PROVIDERS["fusion"]))
def fusion(request: pytest.FixtureRequest) -> Fusion:
    made: Fusion = make_provider("fusion", request.param)
    return made


def retriever(source: str, *found: tuple[str, float]) -> list[Candidate]:
    return [Candidate(chunk_id, score, source) for chunk_id, score in found]


def test_fusion_gives_every_candidate_once_best_first_with_its_origin(fusion: Fusion) -> None:
    dense, sparse = (
        retriever("dense", ("a", 0.9), ("b", 0.8), ("c", 0.1)),
        retriever("sparse", ("b", 12.0), ("d", 3.0)),
    )
    fused = fusion.fuse(dense, sparse)
    assert {item.chunk_id: item.source for item in fused} == {
        "a": "dense",
        "b": "hybrid",
        "c": "dense",
        "d": "sparse",
    }
    assert fused[0].chunk_id == "b" and all(math.isfinite(item.score) for item in fused)
    assert [item.score for item in fused] == sorted((item.score for item in fused), reverse=True)


def test_fusion_takes_empty_equal_and_huge_legs(fusion: Fusion) -> None:
    assert fusion.fuse([], []) == []
    assert [
        item.chunk_id for item in fusion.fuse([], retriever("sparse", ("z", 2.0), ("a", 1.0)))
    ] == [
        "z",
        "a",
    ]
    equal = retriever("dense", *((f"c{n:05}", 1.0) for n in range(2000)))
    assert [item.chunk_id for item in fusion.fuse(equal, [])] == [item.chunk_id for item in equal]
    assert (
        len(fusion.fuse(equal, retriever("sparse", *((f"s{n:05}", 1e6 - n) for n in range(2000)))))
        == 4000
    )


def test_fusion_breaks_ties_by_former_rank_then_chunk_id(fusion: Fusion) -> None:
    fused = fusion.fuse(retriever("dense", ("b", 1.0)), retriever("sparse", ("a", 1.0)))
    if fused[0].score == fused[1].score:
        assert [item.chunk_id for item in fused] == ["a", "b"]


# --- rerankers ----------------------------------------------------------------------------------


def judged(body: dict[str, Any], number: int) -> Reply:
    """Scores as both kinds of endpoint give them: 9 for what holds `limit`, else 1."""
    if "documents" in body:
        scores = [9.0 if "limit is" in text else 1.0 for text in body["documents"]]
        return (
            200,
            {"results": [{"index": n, "relevance_score": score} for n, score in enumerate(scores)]},
            {},
        )
    user = body["messages"][1]["content"]
    texts = json.loads(user[user.index("<passages>") + 10 : user.index("</passages>")])
    return said(
        json.dumps(
            {
                "grades": [
                    {"id": item["id"], "grade": 9 if "limit is" in item["text"] else 1}
                    for item in texts
                ]
            }
        )
    )


@pytest.fixture(params=sorted(PROVIDERS["reranker"]))
def reranker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Reranker]:
    with chat_server(judged) as server:
        address = {"model": "m", "base_url": server.url, "api_key_env": ""}
        model = make_provider("llm", "openai", {**address, "retries": 0})
        options: dict[str, Any] = {
            "http": {"url": f"{server.url}/rerank", "api_key_env": ""},
            "llm": {"model": model},
        }.get(request.param, {})
        if request.param == "cross_encoder":
            pytest.importorskip(
                "sentence_transformers",
                reason="needs the extra `models`: pip install 'rag-platform[models]'",
            )
            options = {"model": str(tiny_cross_encoder(tmp_path / "tiny-cross"))}
        yield built("reranker", request.param, options)


def test_reranker_gives_one_finite_number_a_hit(reranker: Reranker) -> None:
    hits = hits_of(
        "The upload limit is 50 MB.",
        "Something else altogether.",
        "限制",
        "a \ud800\0",
        "x" * 50_000,
    )
    scores = reranker.score(asked(), hits)
    assert len(scores) == 5 and all(math.isfinite(score) for score in scores)
    if type(reranker).__name__ != "CrossEncoderReranker":  # whose tiny weights were drawn by lot
        # nothing is better than what says it in the words of the question
        assert scores[0] >= max(scores[1:])
    assert reranker.score(asked(), hits) == scores
    assert list(reranker.score(asked(), [])) == []


# --- answerers ----------------------------------------------------------------------------------


@pytest.fixture(params=sorted(PROVIDERS["answerer"]))
def answerer(request: pytest.FixtureRequest) -> Iterator[Answerer]:
    with chat_server(lambda body, number: said("The upload limit is 50 MB [1].")) as server:
        llm = make_provider(
            "llm", "openai", {"model": "m", "base_url": server.url, "api_key_env": ""}
        )
        yield built("answerer", request.param, {"llm": llm} if request.param == "llm" else {})


def test_answerer_marks_point_at_the_evidence(answerer: Answerer) -> None:
    written = answerer.answer(asked(), hits_of("The upload limit is 50 MB.", "Something else."))
    assert "50 MB" in written.text and "[1]" in written.text and "[3]" not in written.text


def test_answerer_writes_nothing_without_evidence(answerer: Answerer) -> None:
    assert answerer.answer(asked(), []).text == ""


# --- language models ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(PROVIDERS["llm"]))
def test_llm_failures_have_a_structured_code(name: str) -> None:
    options: dict[str, Any] = (
        {}
        if name == "none"
        else {"model": "m", "base_url": "http://127.0.0.1:9/v1", "api_key_env": "", "retries": 0}
    )
    model: LLM = built("llm", name, options)
    with pytest.raises(ProviderError) as caught:
        model.generate([Message("user", "Are you there?")])
    assert caught.value.code == ("no_model" if name == "none" else "connection_failed")
    assert caught.value.retryable is (name != "none")


# --- OCR ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(PROVIDERS["ocr"]))
def test_ocr_reads_a_picture_without_text_and_refuses_what_is_none(name: str) -> None:
    engine: Ocr = built("ocr", name)
    text, confidence = engine.read(PICTURE)
    assert text == "" and confidence is None
    if name != "none":
        with pytest.raises(ProviderError):
            engine.read(b"no picture")


# --- loaders ------------------------------------------------------------------------------------

# of the others the name itself
SUFFIXES = {"markdown": "md", "text": "txt", "image": "png", "pdfium": "pdf"}
FILES = {name: f"a.{SUFFIXES.get(name, name)}" for name in PROVIDERS["loader"]}
HEADS: dict[str, bytes] = {
    "pdf": b"%PDF-1.7\n",
    "pdfium": b"%PDF-1.7\n",
    "image": PICTURE,
    "docx": b"PK\x03\x04",
    "xlsx": b"PK\x03\x04",
    "pptx": b"PK\x03\x04",
    "epub": b"PK\x03\x04",
}


@pytest.fixture(params=sorted(PROVIDERS["loader"]))
def loader(request: pytest.FixtureRequest) -> tuple[str, Loader]:
    return request.param, built("loader", request.param)


def test_loader_claims_its_own_format_and_no_program(loader: tuple[str, Loader]) -> None:
    name, made = loader
    assert made.claims(FILES[name], HEADS.get(name, b"words, and more\n"))
    assert not made.claims("a.exe", b"MZ\x90\x00\x03\x00\x00\x00")


def test_loader_gives_facts_or_a_reason_for_rubbish(
    loader: tuple[str, Loader], tmp_path: Path
) -> None:
    name, made = loader
    for number, data in enumerate((b"", HEADS.get(name, b"") + b"\x00\xff\xfe rubbish \x80" * 40)):
        path = tmp_path / f"{number}"
        path.write_bytes(data)
        try:
            facts = made.load(path, FILES[name])
        except DocumentError as error:
            assert error.message and error.code
        else:
            assert all(0 <= block.start <= block.end <= len(facts.text) for block in facts.blocks)
