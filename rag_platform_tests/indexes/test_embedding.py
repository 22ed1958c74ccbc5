"""The cache, the division of work, and what happens to texts that cannot be embedded."""

from __future__ import annotations

import hashlib
import os
import sqlite3
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from rag_platform.config.ingestion import EmbeddingConfig
from rag_platform.errors import IntegrityError, ProviderError, SchemaVersionError
from rag_platform.indexes import embedding
from rag_platform.indexes.embedding import check_weights, embed_texts, estimate
from rag_platform.indexes.embedding_cache import EmbeddingCache
from rag_platform.indexes.embedding_pool import EmbeddingPool, EmbeddingWorker
from rag_platform.ir import EmbedderInfo
from rag_platform.protocols import Vectors
from rag_platform.providers.hashing import Hashing
from rag_platform.registry import make_provider

INFO = EmbedderInfo("some", "1", 2)


_lost: list[str] = []  # the texts at which this process lost its device


@dataclass(frozen=True)
class Troubled:
    """An embedder that stumbles over what its texts ask for; `journal` gets a line for every
    call.
    """

    VERSION: ClassVar[str] = "1"

    journal: str = ""
    device: str = "cpu"

    def info(self) -> EmbedderInfo:
        return EmbedderInfo("troubled", "1", 2)

    def embed(self, texts: Sequence[str], *, query: bool = False) -> Vectors:
        with open(self.journal, "a", encoding="utf-8") as journal:
            journal.write("|".join(texts) + "\n")
        if any("die" in text for text in texts):
            os._exit(7)
        _lost.extend(text for text in texts if text == "poison")
        if _lost:
            raise ProviderError("device-side assert triggered", code="device_lost")
        if any("refuse" in text for text in texts):
            raise ProviderError("one of the texts is refused")
        if (
            any("busy" in text for text in texts)
            and Path(self.journal).read_text(encoding="utf-8").count("busy") <= 2
        ):
            raise ProviderError("too many requests", code="rate_limited", retryable=True)
        if any("away" in text for text in texts):
            raise ProviderError("nobody answers", retryable=True)
        wrong = {"zero": (0.0, 0.0), "nan": (np.nan, 1.0), "long": (3.0, 4.0)}
        return np.array([wrong.get(text, (1.0, 0.0)) for text in texts], dtype=np.float32)


@pytest.fixture
def cache(tmp_path: Path) -> EmbeddingCache:
    return EmbeddingCache(tmp_path / "cache" / "embeddings.sqlite")


@pytest.fixture
def troubled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EmbeddingConfig:
    monkeypatch.setattr(embedding, "BACK_OFF_SECONDS", 0.001)
    return EmbeddingConfig(
        provider=f"{__name__}:Troubled",
        options={"journal": str(tmp_path / "journal")},
        batch_size=8,
    )


def run(
    texts: Sequence[str], config: EmbeddingConfig, cache: EmbeddingCache, processes: int = 1
) -> embedding.EmbeddingReport:
    return embed_texts(
        {text: text for text in texts}, config, cache, text_norm_profile="p", processes=processes
    )


def journal(config: EmbeddingConfig) -> list[str]:
    return Path(config.options["journal"]).read_text(encoding="utf-8").splitlines()


# --- cache --------------------------------------------------------------------------------------


def test_cache_returns_what_was_put_under_the_whole_key_only(cache: EmbeddingCache) -> None:
    cache.put({"h1": np.array([0.6, 0.8], dtype=np.float32)}, INFO, "p")
    assert cache.get(["h1", "h2"], INFO, "p")["h1"].tolist() == pytest.approx([0.6, 0.8])
    assert cache.hits(["h1", "h2"], INFO, "p") == {"h1"}
    for other in (EmbedderInfo("some", "2", 2), EmbedderInfo("other", "1", 2)):
        assert cache.hits(["h1"], other, "p") == set()
    assert cache.hits(["h1"], INFO, "q") == set()


def test_cache_survives_reopening_and_is_shared_between_threads(cache: EmbeddingCache) -> None:
    def put(number: int) -> None:
        cache.put(
            {f"h{number}-{n}": np.array([1.0, 0.0], dtype=np.float32) for n in range(50)}, INFO, "p"
        )

    threads = [threading.Thread(target=put, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    cache.close()
    with EmbeddingCache(cache.path) as again:
        assert len(again.get([f"h{a}-{b}" for a in range(4) for b in range(50)], INFO, "p")) == 200


def test_cache_of_another_program_version_is_refused(cache: EmbeddingCache) -> None:
    cache.close()
    with sqlite3.connect(cache.path) as db:
        db.execute("PRAGMA user_version=99")
    db.close()
    with pytest.raises(SchemaVersionError, match="schema 99"):
        EmbeddingCache(cache.path)


def test_cache_with_a_vector_of_another_length_is_an_error(cache: EmbeddingCache) -> None:
    cache.put({"h": np.ones(3, dtype=np.float32)}, INFO, "p")
    with pytest.raises(IntegrityError, match="expected 2"):
        cache.get(["h"], INFO, "p")


# --- embedding ----------------------------------------------------------------------------------


def test_only_misses_are_computed_and_counts_are_true(
    cache: EmbeddingCache, troubled: EmbeddingConfig
) -> None:
    first = run(["a", "b"], troubled, cache)
    assert (first.hits, first.misses, first.calls, dict(first.failed)) == (0, 2, 2, {})
    second = run(["a", "b", "c"], troubled, cache)
    assert (second.hits, second.misses, second.calls) == (2, 1, 1)
    third = run(["a", "b", "c"], troubled, cache)
    assert (third.hits, third.misses, third.calls) == (3, 0, 0)
    assert sorted("|".join(journal(troubled)).split("|")) == ["a", "b", "c"]


def test_a_refused_text_costs_no_other(cache: EmbeddingCache, troubled: EmbeddingConfig) -> None:
    texts = [f"text {number:02}" for number in range(30)] + ["refuse me"]
    report = run(texts, troubled, cache)
    assert dict(report.failed) == {"refuse me": "one of the texts is refused"}
    assert cache.hits(texts, Troubled().info(), "p") == set(texts[:-1])


def test_bad_vectors_are_failures_with_a_reason(
    cache: EmbeddingCache, troubled: EmbeddingConfig
) -> None:
    report = run(["good", "zero", "nan", "long"], troubled, cache)
    assert set(report.failed) == {"zero", "nan", "long"}
    assert "length 5, expected 1" in report.failed["long"]


def test_a_busy_embedder_is_asked_again(cache: EmbeddingCache, troubled: EmbeddingConfig) -> None:
    report = run(["busy"], troubled, cache)
    assert (report.calls, report.retries, report.rate_limited, dict(report.failed)) == (3, 2, 2, {})


def test_figures_go_by_the_names_of_spans(cache: EmbeddingCache, troubled: EmbeddingConfig) -> None:
    run(["known"], troubled, cache)
    priced = troubled.model_copy(update={"price_per_million_tokens": 2.0})
    figures = run(["known", "refuse", "nan", "x" * 400], priced, cache).figures()
    assert (
        figures["cache_hit"],
        figures["cache_miss"],
        figures["embed_failures"],
        figures["retries"],
    ) == (1, 3, 2, 0)
    assert figures["error_type"] == "bad_vector 1, provider_error 1"
    # 400, 6 and 3 letters: 128, 2 and 1
    assert (figures["estimated_tokens"], figures["estimated_cost"]) == (
        131,
        pytest.approx(0.000262),
    )
    assert figures["throughput_chunks_per_sec"] > 0
    assert figures["latency_ms_p95"] >= figures["latency_ms_p50"] >= 0


def test_an_embedder_that_stays_away_ends_the_run_and_keeps_what_is_done(
    cache: EmbeddingCache, troubled: EmbeddingConfig
) -> None:
    with pytest.raises(ProviderError, match="cannot be reached") as caught:
        run(
            ["a longer text that comes first", "away 1", "away 2", "away 3", "away 4"],
            troubled.model_copy(update={"batch_size": 1}),
            cache,
        )
    assert caught.value.retryable
    assert cache.hits(["a longer text that comes first"], Troubled().info(), "p")


def test_progress_counts_every_text(cache: EmbeddingCache) -> None:
    seen: list[tuple[int, int]] = []
    items = {f"h{n}": f"text {n}" for n in range(10)}
    config = EmbeddingConfig(provider="hashing", batch_size=4)
    embed_texts(
        items,
        config,
        cache,
        text_norm_profile="p",
        processes=1,
        on_progress=lambda done, total: seen.append((done, total)),
    )
    assert seen[-1] == (10, 10) and [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_an_error_of_the_listener_ends_the_run(cache: EmbeddingCache) -> None:
    def cancel(done: int, total: int) -> None:
        raise InterruptedError("cancelled")

    with pytest.raises(InterruptedError):
        embed_texts(
            {"h": "text"},
            EmbeddingConfig(provider="hashing"),
            cache,
            text_norm_profile="p",
            processes=1,
            on_progress=cancel,
        )
    assert cache.hits(["h"], EmbedderInfo("hashing-256", "1", 256), "p") == {"h"}


# --- child processes ----------------------------------------------------------------------------


@pytest.fixture
def always_parallel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedding, "_workers", lambda alone, config, processes, texts: 2)


@pytest.mark.integration
def test_child_processes_give_the_same_vectors(
    cache: EmbeddingCache, tmp_path: Path, always_parallel: None
) -> None:
    items = {f"h{n}": f"text number {n}" for n in range(40)}
    config = EmbeddingConfig(provider="hashing", batch_size=4)
    report = embed_texts(items, config, cache, text_norm_profile="p", processes=2)
    assert (report.processes, report.misses, dict(report.failed)) == (2, 40, {})
    stored = cache.get(items, Hashing().info(), "p")
    assert all(
        np.array_equal(stored[key], Hashing().embed([text])[0]) for key, text in items.items()
    )


@pytest.mark.integration
def test_a_pool_keeps_its_processes_for_small_runs_too(cache: EmbeddingCache) -> None:
    config = EmbeddingConfig(provider="hashing", batch_size=4)
    with EmbeddingPool("hashing", {}) as pool:
        alone = embed_texts(
            {"h": "one text"}, config, cache, text_norm_profile="p", processes=2, pool=pool
        )
        many = {f"h{n}": f"text number {n}" for n in range(40)}
        first = embed_texts(
            many, config, cache, text_norm_profile="p", processes=2, pool=pool, expected=10**9
        )
        later = embed_texts(
            {"i": "another text"}, config, cache, text_norm_profile="p", processes=2, pool=pool
        )
    assert (alone.processes, first.processes, later.processes) == (0, 2, 1)
    assert pool.size == 2


@pytest.mark.integration
def test_a_text_that_kills_its_process_costs_no_other(
    cache: EmbeddingCache, troubled: EmbeddingConfig, always_parallel: None
) -> None:
    texts = [f"text {number}" for number in range(6)] + ["die", "refuse me"]
    report = run(texts, troubled, cache, processes=2)
    assert set(report.failed) == {"die", "refuse me"}
    assert "exit status" in report.failed["die"]
    assert cache.hits(texts, Troubled().info(), "p") == set(texts[:6])


@pytest.mark.integration
def test_a_text_that_loses_the_device_of_its_process_costs_no_other(
    cache: EmbeddingCache, troubled: EmbeddingConfig
) -> None:
    config = troubled.model_copy(update={"options": {**troubled.options, "device": "cuda"}})
    texts = [f"text {number}" for number in range(30)] + ["poison"]
    report = run(texts, config, cache, processes=16)
    # one process, however many there may be: they would share the memory of the device
    assert (report.processes, dict(report.failed)) == (
        1,
        {"poison": "device-side assert triggered"},
    )
    assert cache.hits(texts, Troubled().info(), "p") == set(texts[:30])


@pytest.mark.integration
def test_a_worker_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    worker = EmbeddingWorker("hashing", {})
    with pytest.raises(ProviderError, match="took more than 0 s"):
        worker.embed(["text"], seconds=0.0)
    assert worker.embed(["text"], seconds=60.0).shape == (1, 256)
    worker.close()


# --- estimate, weights --------------------------------------------------------------------------


def test_estimate_grows_with_the_text_and_learns_from_runs(cache: EmbeddingCache) -> None:
    config = EmbeddingConfig(provider="hashing")
    # 400,000 bytes a second are declared
    assert estimate(4_000_000, config, cache, processes=1) == pytest.approx(10.0)
    cache.set_rate(EmbedderInfo("hashing-256", "1", 256), "p", 1_000_000.0)
    assert estimate(4_000_000, config, cache, processes=1) == pytest.approx(4.0)
    assert 2.0 <= estimate(4_000_000, config, cache, processes=2) < 4.0
    cache.set_rate(EmbedderInfo("hashing-256", "1", 256), "p", 25.0)  # of 0.1.0, for a short text
    assert estimate(4_000_000, config, cache, processes=1) == pytest.approx(1000.0)
    # a server may be slow
    options = {"model": "large", "dim": 8, "base_url": "http://127.0.0.1:9/v1"}
    remote = EmbeddingConfig(provider="openai", options=options)
    cache.set_rate(make_provider("embedder", "openai", options).info(), "p", 300.0)
    assert estimate(600_000, remote, cache, processes=1) == pytest.approx(2001.0)


@dataclass(frozen=True)
class Loading:
    """An embedder whose model is loaded at its first call."""

    VERSION: ClassVar[str] = "1"

    marker: str = ""

    def info(self) -> EmbedderInfo:
        return EmbedderInfo("loading", "1", 2)

    def embed(self, texts: Sequence[str], *, query: bool = False) -> Vectors:
        if not Path(self.marker).exists():
            Path(self.marker).touch()
            time.sleep(1.1)
        return np.ones((len(texts), 2), dtype=np.float32)


def test_the_time_that_loading_takes_is_no_rate(cache: EmbeddingCache, tmp_path: Path) -> None:
    """Two short texts in the second that a model takes to load are no 20 bytes a second, which
    would make of 1 MB 14 hours.
    """
    config = EmbeddingConfig(
        provider=f"{__name__}:Loading", options={"marker": str(tmp_path / "loaded")}, batch_size=8
    )
    run(["short one", "short two"], config, cache)
    assert cache.rate(EmbedderInfo("loading", "1", 2)) is None
    assert estimate(1_000_000, config, cache, processes=1) < 200  # as declared


def test_damaged_weights_are_named_and_good_ones_are_hashed_once(tmp_path: Path) -> None:
    weights = tmp_path / "weights.bin"
    weights.write_bytes(b"weights")

    @dataclass(frozen=True)
    class Weighty:
        expected: str

        def weights(self) -> list[tuple[Path, str]]:
            return [(weights, self.expected)]

    good = hashlib.sha256(b"weights").hexdigest()
    check_weights(Weighty(good), tmp_path / "marker.json")  # type: ignore[arg-type]
    stamp = (tmp_path / "marker.json").stat().st_mtime_ns
    check_weights(Weighty(good), tmp_path / "marker.json")  # type: ignore[arg-type]
    assert (tmp_path / "marker.json").stat().st_mtime_ns == stamp
    weights.write_bytes(b"weights!")
    with pytest.raises(IntegrityError, match=r"weights\.bin has sha256"):
        check_weights(Weighty(good), tmp_path / "marker.json")  # type: ignore[arg-type]


# --- joined embedders ---------------------------------------------------------------------------


def joined_of(*parts: EmbeddingConfig) -> EmbeddingConfig:
    listed = [
        {"provider": part.provider, "options": part.options, "weight": weight}
        for part, weight in zip(parts, (3.0, 4.0), strict=True)
    ]
    return EmbeddingConfig(provider="joined", options={"parts": listed}, batch_size=8)


def test_a_joined_embedder_computes_only_what_a_part_lacks(
    cache: EmbeddingCache, troubled: EmbeddingConfig
) -> None:
    both, texts = (
        joined_of(troubled, EmbeddingConfig(provider="hashing", options={"dim": 8})),
        {
            "a": "good a",
            "b": "good b",
        },
    )
    info = make_provider("embedder", both.provider, both.options).info()
    embed_texts({"a": "good a"}, troubled, cache, text_norm_profile="p", processes=1)
    seen: list[tuple[int, int]] = []
    first = embed_texts(
        texts,
        both,
        cache,
        text_norm_profile="p",
        processes=1,
        on_progress=lambda done, total: seen.append((done, total)),
    )
    again = embed_texts(texts, both, cache, text_norm_profile="p", processes=1)
    # the text that the other strategy had embedded is not embedded again
    assert journal(troubled) == ["good a", "good b"]
    assert (first.hits, first.misses, first.failed) == (0, 2, {})
    assert (again.hits, again.misses, again.calls) == (2, 0, 0)
    # three pieces of work, one with the first part and two with the second, on two texts
    assert seen == [(0, 2), (1, 2), (2, 2)]
    # joined vectors are not stored
    assert {space[0] for space, _, _ in cache.entries()} == {"troubled", "hashing-8"}
    found = cache.get(texts, info, "p")
    assert set(found) == cache.hits([*texts, "c"], info, "p") == {"a", "b"}
    assert np.allclose(
        found["b"],
        np.concatenate([0.6 * np.array([1.0, 0.0]), 0.8 * Hashing(8).embed(["good b"])[0]]),
    )


def test_closing_waits_for_what_another_thread_asks(tmp_path: Path) -> None:
    """A run that is told to stop closes the cache under its embedding thread; without the lock that
    ended the process.
    """
    for number in range(15):
        cache, begun, ended = EmbeddingCache(tmp_path / f"{number}.sqlite"), threading.Event(), []

        def ask(
            cache: EmbeddingCache = cache, begun: threading.Event = begun, ended: list[str] = ended
        ) -> None:
            with pytest.raises(sqlite3.ProgrammingError, match="closed database"):
                while True:
                    cache.hits(["h"], INFO, "p")
                    begun.set()
            ended.append("told")

        thread = threading.Thread(target=ask)
        thread.start()
        assert begun.wait(60)
        cache.close()
        thread.join()
        assert ended == ["told"]


def test_a_text_that_one_part_refuses_fails_as_a_whole(
    cache: EmbeddingCache, troubled: EmbeddingConfig
) -> None:
    both = joined_of(troubled, EmbeddingConfig(provider="hashing"))
    report = embed_texts(
        {"g": "good", "r": "refuse"}, both, cache, text_norm_profile="p", processes=1
    )
    assert report.failed == {"r": "one of the texts is refused"} and report.error_types == {
        "provider_error": 1
    }
    assert cache.hits(
        ["g", "r"], make_provider("embedder", both.provider, both.options).info(), "p"
    ) == {"g"}


def test_an_estimate_of_a_joined_embedder_adds_up_what_each_part_lacks(
    cache: EmbeddingCache,
) -> None:
    small, large = (
        EmbeddingConfig(provider="hashing", options={"dim": 8}),
        EmbeddingConfig(provider="hashing", options={"dim": 16}),
    )
    texts = {"h": "x" * 4_000_000}
    assert estimate(4_000_000, joined_of(small, large), cache, processes=1) == pytest.approx(20.0)
    cache.put({"h": np.ones(8, dtype=np.float32)}, Hashing(8).info(), "p")
    assert estimate(
        0, joined_of(small, large), cache, processes=1, texts=texts, text_norm_profile="p"
    ) == pytest.approx(10.0)


def test_the_pool_of_a_joined_embedder_has_processes_for_each_part(cache: EmbeddingCache) -> None:
    both = joined_of(
        EmbeddingConfig(provider="hashing", options={"dim": 8}),
        EmbeddingConfig(provider="hashing", options={"dim": 16}),
    )
    items = {str(number): f"text {number}" for number in range(20)}
    with EmbeddingPool(both.provider, both.options) as pool:
        report = embed_texts(
            items, both, cache, text_norm_profile="p", processes=2, pool=pool, expected=10**9
        )
        parts = [
            pool.of(EmbeddingConfig(provider="hashing", options={"dim": dim})) for dim in (8, 16)
        ]
        assert (report.processes, pool.size, [part.size for part in parts]) == (2, 0, [2, 2])
    assert all(part.closed for part in parts)
    assert (
        len(cache.get(items, make_provider("embedder", both.provider, both.options).info(), "p"))
        == 20
    )
