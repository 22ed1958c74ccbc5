"""Embeds each text at most once: a content-addressed cache in front of a pool of child processes,
so that a crash costs one batch and all processors are used.

Vectors are cached by content hash, embedder and text normalisation, so equal text in another
document, version, namespace or release is not embedded again.
"""

from __future__ import annotations

import functools
import math
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from rag_platform.config.ingestion import CleaningConfig, EmbeddingConfig
from rag_platform.errors import (
    ConfigError,
    IntegrityError,
    ProviderError,
    RagError,
    StorageError,
)
from rag_platform.indexes import embedding_cache
from rag_platform.indexes.embedding_cache import EmbeddingCache
from rag_platform.indexes.embedding_pool import (
    EmbeddingPool,
    EmbeddingWorker,
    guard,
    parts,
)
from rag_platform.ir import EmbedderInfo, Json, View
from rag_platform.normalisation.edits import canonical
from rag_platform.observability import tracing
from rag_platform.processes.processors import usable_processors
from rag_platform.protocols import Embedder, Vectors
from rag_platform.registry import make_provider, traits, traits_of, with_cache_folder
from rag_platform.retrying import pause
from rag_platform.storage.store import read_json, sha256_file, write_json
from rag_platform.text.tokens import estimate_tokens

ATTEMPTS = 4
BACK_OFF_SECONDS = 0.5
_START_SECONDS = 0.4  # of a fresh interpreter with numpy
# duration of a run from which an embedder may first tune itself: e5_onnx takes 2 s and may save two
# fifths of the rest, which pays from 12 s on two cores
_LONG_SECONDS = 20.0
_BATCH_SECONDS = 2.0  # of one batch, which a crash loses and a progress line waits for

OnProgress = Callable[[int, int], None]  # texts done, texts to compute
Call = Callable[[Sequence[str]], Vectors]


@dataclass(slots=True)
class EmbeddingReport:
    """The figures of one run of `embed_texts`."""

    hits: int = 0
    misses: int = 0
    calls: int = 0
    batch_size: int = 0  # texts of the largest batch
    retries: int = 0
    rate_limited: int = 0  # calls rejected by a rate limit
    failed: dict[str, str] = field(default_factory=dict)  # content_hash to reason
    # content_hashes of failed texts that may succeed later
    passing: set[str] = field(default_factory=set)
    # error code to the number of texts that failed with it
    error_types: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    processes: int = 0
    batch_seconds_p50: float = 0.0
    batch_seconds_p95: float = 0.0
    texts_per_second: float = 0.0
    estimated_tokens: int = 0
    estimated_cost: float | None = None  # None without a price

    def figures(self) -> Json:
        """The figures by their names in spans and metadata."""
        return {
            "cache_hit": self.hits,
            "cache_miss": self.misses,
            "embed_calls": self.calls,
            "batch_size": self.batch_size,
            "embed_failures": len(self.failed),
            "retries": self.retries,
            "rate_limited": self.rate_limited,
            "error_type": ", ".join(
                f"{code} {count}" for code, count in sorted(self.error_types.items())
            ),
            "cache_hit_rate": round(self.hits / max(self.hits + self.misses, 1), 4),
            "throughput_chunks_per_sec": round(self.texts_per_second, 3),
            "latency_ms_p50": round(1000 * self.batch_seconds_p50, 3),
            "latency_ms_p95": round(1000 * self.batch_seconds_p95, 3),
            "estimated_tokens": self.estimated_tokens,
            "estimated_cost": self.estimated_cost,
            "processes": self.processes,
        }


@dataclass
class _Run:
    """The state that the threads of one run share."""

    info: EmbedderInfo
    cache: EmbeddingCache
    profile: str
    total: int
    on_progress: OnProgress | None
    report: EmbeddingReport
    lock: threading.Lock = field(default_factory=threading.Lock)
    done: int = 0
    down: int = 0  # consecutive batches that failed despite retries
    latencies: list[float] = field(default_factory=list)
    # (bytes, seconds) of calls to a loaded embedder
    measured: list[tuple[int, float]] = field(default_factory=list)
    error: BaseException | None = None
    stopped: bool = False


class _Stopped(Exception):
    """The run was stopped; unwinds a thread without recording failures."""


def embed_texts(
    items: Mapping[str, str],
    embedding: EmbeddingConfig,
    cache: EmbeddingCache,
    *,
    text_norm_profile: str,
    processes: int = 0,
    pool: EmbeddingPool | None = None,
    expected: int = 0,
    on_progress: OnProgress | None = None,
) -> EmbeddingReport:
    """Embed texts (content_hash to canonical text); afterwards each has its vector in the cache or
    its reason in `failed` of the report.

    Misses are computed in batches and committed batch by batch, in `processes` child processes (0:
    one per core) if that saves more time than starting them takes. A `pool` keeps its processes for
    later runs, and concurrent runs share them; `expected` is the number of bytes of later runs, so
    that a small first run may already start them. A failing batch is halved until the bad text is
    isolated; timeouts and rate limits are retried with back-off. Raises ProviderError when the
    embedder stays unreachable, ConfigError when it cannot be built.
    """
    started = time.perf_counter()
    folder = cache.path.parent
    options = with_cache_folder(embedding.provider, embedding.call_options, folder)
    embedder: Embedder = make_provider("embedder", embedding.provider, options)
    info = embedder.info()
    if info.parts:
        lacking = [
            items.keys() - cache.hits(items, part, text_norm_profile)
            for part in embedding_cache.parts_of(info)
        ]
        embed = functools.partial(
            embed_texts,
            cache=cache,
            text_norm_profile=text_norm_profile,
            processes=processes,
            expected=expected,
        )
        return _embed_by_part(items, embedding, lacking, embed, pool, on_progress)
    known = cache.hits(items, info, text_norm_profile)
    missing = [(key, text) for key, text in items.items() if key not in known]
    if not missing:
        return EmbeddingReport(hits=len(known), seconds=time.perf_counter() - started)
    check_weights(embedder, folder / "weights.json")
    size = _count_bytes(text for _, text in missing)
    rate = _rate(embedding, cache, info)
    # processes of the pool that already run are used, however few texts there are
    workers = max(
        min(pool.size, len(missing)) if pool else 0,
        _workers((size + expected) / rate, embedding, processes, len(missing)),
    )
    report = EmbeddingReport(len(known), len(missing), processes=workers)
    run = _Run(info, cache, text_norm_profile, len(missing), on_progress, report)
    batches = _batches(
        missing, size, rate, embedding.batch_size, max(1, workers), whole=traits_of(embedder).remote
    )
    report.batch_size = len(batches[0])
    computing = time.perf_counter()
    if workers:
        with (
            nullcontext(pool)
            if pool is not None
            else EmbeddingPool(embedding.provider, embedding.options, folder)
        ) as shared:
            shared.wait()
            prepare = getattr(embedder, "prepare", None)
            if prepare is not None and (size + expected) / rate >= _LONG_SECONDS:
                prepare()
            shared.grow(workers)
            _in_processes(batches, run, shared, workers, rate)
    else:
        for number, batch in enumerate(batches):
            began = time.perf_counter()
            _embed_batch(
                batch, run, lambda texts: guard(embedding.provider, lambda: embedder.embed(texts))
            )
            # not measured for the first call, which may have loaded the model
            if number:
                size_of_batch = _count_bytes(text for _, text in batch)
                run.measured.append((size_of_batch, time.perf_counter() - began))
    busy = time.perf_counter() - computing
    computed = len(missing) - len(report.failed)
    measured = sum(seconds for _, seconds in run.measured)
    if computed and measured > 1.0:
        cache.set_rate(info, text_norm_profile, sum(count for count, _ in run.measured) / measured)
    if run.latencies:
        p50, p95 = np.percentile(run.latencies, (50, 95))
        report.batch_seconds_p50, report.batch_seconds_p95 = float(p50), float(p95)
    report.texts_per_second = computed / max(busy, 1e-9)
    report.estimated_tokens = sum(estimate_tokens(text) for _, text in missing)
    price = embedding.call_options.get("price_input", embedding.price_per_million_tokens)
    if price is not None:
        report.estimated_cost = report.estimated_tokens * price / 1_000_000
    report.seconds = time.perf_counter() - started
    return report


def estimate(
    size: int,
    embedding: EmbeddingConfig,
    cache: EmbeddingCache | None = None,
    *,
    processes: int = 0,
    texts: Mapping[str, str] | None = None,
    text_norm_profile: str = "",
) -> float:
    """The estimated seconds for embedding `size` UTF-8 bytes of text and those of `texts`
    (content_hash to canonical text) that lack a vector; for a joined embedder, the sum over its
    parts. By the last measured rate, else the provider's declared one.
    """
    found = 0.0
    infos = embedding_cache.parts_of(
        make_provider("embedder", embedding.provider, embedding.options).info()
    )
    for part, info in zip(parts(embedding), infos, strict=True):
        known = cache.hits(texts, info, text_norm_profile) if cache is not None and texts else set()
        lacking = (text for key, text in (texts or {}).items() if key not in known)
        part_size = size + _count_bytes(lacking)
        if part_size:
            alone = part_size / _rate(part, cache, info)
            workers = _workers(alone, part, processes, part_size)
            start = traits("embedder", part.provider).load_seconds + bool(workers) * _START_SECONDS
            found += alone / max(workers, 1) + start
    return found


def dense_texts(views: Iterable[View], cleaning: CleaningConfig) -> dict[str, str]:
    """content_hash, the key of the embedding cache, to canonical text, of views that have text."""
    with_text = (view for view in views if view.dense_text.strip())
    return {view.content_hash: canonical(view.dense_text, cleaning) for view in with_text}


def _count_bytes(texts: Iterable[str]) -> int:
    """The size of texts in UTF-8."""
    return sum(len(text.encode("utf-8", "replace")) for text in texts)


def check_weights(embedder: Embedder, marker: Path) -> None:
    """Raises IntegrityError unless the embedder's weight files have their known sha256.

    The file `marker` lists the checked files by path, size and modification time, so that each is
    hashed once per machine.
    """
    listed: Callable[[], list[tuple[Path, str]]] | None = getattr(embedder, "weights", None)
    if listed is None:
        return
    checked: dict[str, str] = {}
    if marker.is_file():
        with suppress(IntegrityError, ValueError):  # a damaged marker only means hashing again
            checked = dict(read_json(marker))
    fresh = dict(checked)
    for path, expected in listed():
        stat = path.stat()
        key = f"{path}:{stat.st_size}:{stat.st_mtime_ns}"
        found = checked.get(key) or sha256_file(path)
        if found != expected:
            raise IntegrityError(
                f"{path.name} has sha256 {found[:16]}, expected {expected[:16]}: another version of"
                " the package, or a damaged one; reinstall rag-platform's dependencies with the"
                " pinned versions",
                code="weights_changed",
            )
        fresh[key] = found
    if fresh != checked:
        write_json(marker, fresh)


# --- joined embedders ---------------------------------------------------------------------------


def _embed_by_part(
    items: Mapping[str, str],
    embedding: EmbeddingConfig,
    lacking: Sequence[set[str]],
    embed: Callable[..., EmbeddingReport],
    pool: EmbeddingPool | None,
    on_progress: OnProgress | None,
) -> EmbeddingReport:
    """Run the parts of a joined embedder one after the other, each for the texts that it is
    `lacking`.

    In the report, a hit is a text with a vector of every part, and the figures of batches are those
    of the slowest part. A text that fails with one part is not passed to the next.
    """
    started = time.perf_counter()
    missing, total, done = set().union(*lacking), sum(map(len, lacking)), 0
    failed: dict[str, str] = {}
    reports: list[EmbeddingReport] = []

    def report_part(before: int, done: int, _: int) -> None:
        if on_progress is not None:  # each text counts once, whatever the number of parts
            on_progress((before + done) * len(missing) // total, len(missing))

    for part, lacks in zip(parts(embedding), lacking, strict=True):
        before = done + len(lacks & failed.keys())
        report = embed(
            {key: items[key] for key in items if key in lacks and key not in failed},
            part,
            pool=None if pool is None else pool.of(part),
            on_progress=on_progress and functools.partial(report_part, before),
        )
        reports.append(report)
        failed.update(report.failed)
        done += len(lacks)
    costs = [report.estimated_cost for report in reports if report.estimated_cost is not None]
    seconds = time.perf_counter() - started
    return EmbeddingReport(
        hits=len(items) - len(missing),
        misses=len(missing),
        calls=sum(report.calls for report in reports),
        batch_size=max(report.batch_size for report in reports),
        retries=sum(report.retries for report in reports),
        rate_limited=sum(report.rate_limited for report in reports),
        failed=failed,
        passing=set().union(*(report.passing for report in reports)),
        error_types=sum((report.error_types for report in reports), Counter()),
        seconds=seconds,
        processes=max(report.processes for report in reports),
        batch_seconds_p50=max(report.batch_seconds_p50 for report in reports),
        batch_seconds_p95=max(report.batch_seconds_p95 for report in reports),
        texts_per_second=(len(missing) - len(failed)) / seconds,
        estimated_tokens=sum(report.estimated_tokens for report in reports),
        estimated_cost=sum(costs) if costs else None,
    )


# --- how the work is divided --------------------------------------------------------------------


def _rate(embedding: EmbeddingConfig, cache: EmbeddingCache | None, info: EmbedderInfo) -> float:
    """The measured bytes per second, else the declared ones; of a model that is loaded here, at
    least a hundredth of these, as 0.1.0 also counted the loading, which left 25 for short texts.
    """
    known = traits("embedder", embedding.provider)
    measured = cache.rate(info) if cache is not None else None
    least = 0.0 if known.remote else known.bytes_per_second / 100
    return max(measured or known.bytes_per_second, least)


def _workers(alone: float, embedding: EmbeddingConfig, processes: int, texts: int) -> int:
    """The number of child processes; 0 when starting them takes longer than they save. One on a
    GPU, since each would load the model into the same memory; a child can be restarted on failure.
    """
    if embedding.options.get("device", "cpu") != "cpu":
        return 1
    count = min(processes or usable_processors(), texts)
    start = _START_SECONDS + traits("embedder", embedding.provider).load_seconds
    return count if count > 1 and alone - alone / count > start else 0


def _batches(
    items: list[tuple[str, str]],
    size: int,
    rate: float,
    largest: int,
    workers: int,
    *,
    whole: bool = False,
) -> list[list[tuple[str, str]]]:
    """Batches of texts of similar length, longest first, so that the last ones to finish are short.

    `whole` makes them as large as possible, up to an equal share for each worker: for a remote
    embedder every batch is a request, which costs and counts towards rate limits.
    """
    by_length = sorted(items, key=lambda item: (-len(item[1]), item[0]))
    seconds_each = size / len(items) / rate
    count = max(
        1,
        min(
            largest,
            int(_BATCH_SECONDS / max(seconds_each, 1e-9)),
            math.ceil(len(items) / (4 * workers)),
        ),
    )
    if whole:
        count = min(largest, math.ceil(len(items) / workers))
    return [by_length[start : start + count] for start in range(0, len(by_length), count)]


def _in_processes(
    batches: list[list[tuple[str, str]]], run: _Run, pool: EmbeddingPool, count: int, rate: float
) -> None:
    waiting: queue.SimpleQueue[list[tuple[str, str]]] = queue.SimpleQueue()
    for batch in batches:
        waiting.put(batch)
    threads = [
        threading.Thread(target=tracing.carry(_drain), args=(waiting, run, pool, rate), daemon=True)
        for _ in range(count)
    ]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        # after an interrupt, threads still waiting for their child must not start another
        run.stopped = True
    if run.error is not None:
        raise run.error


def _drain(
    waiting: queue.SimpleQueue[list[tuple[str, str]]], run: _Run, pool: EmbeddingPool, rate: float
) -> None:
    try:
        while run.error is None:
            with pool.worker() as worker:
                _embed_batch(waiting.get_nowait(), run, _time_calls(worker, run, pool, rate))
    except (queue.Empty, _Stopped):
        return
    except BaseException as error:  # noqa: BLE001 (raised again by the thread that waits)
        run.error = run.error or error


def _time_calls(worker: EmbeddingWorker, run: _Run, pool: EmbeddingPool, rate: float) -> Call:
    def call(texts: Sequence[str]) -> Vectors:
        if pool.closed:
            raise _Stopped
        size, loaded = _count_bytes(texts), worker.loaded
        started = time.perf_counter()
        vectors = worker.embed(texts, seconds=120.0 + 20.0 * size / rate)
        if loaded:
            run.measured.append((size, time.perf_counter() - started))
        return vectors

    return call


def _embed_batch(batch: list[tuple[str, str]], run: _Run, call: Call) -> None:
    """Embed a batch into the cache; texts that cannot be embedded are recorded with the reason."""
    try:
        vectors = _with_retries([text for _, text in batch], run, call)
    except (ConfigError, StorageError):
        raise  # not the fault of a text
    except RagError as error:
        if isinstance(error, ProviderError) and error.retryable:
            with run.lock:
                run.down += 1
                run.report.passing.update(key for key, _ in batch)
            if run.down >= 3:
                raise ProviderError(
                    f"the embedder cannot be reached: {error.message}; embedded texts are kept,"
                    " run again later",
                    retryable=True,
                ) from error
        elif len(batch) > 1:
            for part in _halves(batch, error):
                _embed_batch(part, run, call)
            return
        _settle(run, {}, dict.fromkeys((key for key, _ in batch), error.message), error.code)
        return
    norms = np.linalg.norm(vectors, axis=1)
    good: dict[str, Vectors] = {}
    bad: dict[str, str] = {}
    for (key, _), vector, norm in zip(batch, vectors, norms, strict=True):
        if abs(float(norm) - 1.0) <= 1e-3:  # False for NaN
            good[key] = vector
        else:
            bad[key] = f"the embedder returned a vector of length {float(norm):.3g}, expected 1"
    run.down = 0
    _settle(run, good, bad)


def _halves(batch: list[tuple[str, str]], error: RagError) -> list[list[tuple[str, str]]]:
    position = error.details.get("position")
    if isinstance(position, int) and 0 <= position < len(batch):
        return [[batch[position]], batch[:position] + batch[position + 1 :]]
    middle = len(batch) // 2
    return [batch[:middle], batch[middle:]]


def _with_retries(texts: list[str], run: _Run, call: Call) -> Vectors:
    for attempt in range(ATTEMPTS):
        if run.stopped:
            raise _Stopped
        started = time.perf_counter()
        with run.lock:
            run.report.calls += 1
        try:
            vectors = call(texts)
        except ProviderError as error:
            with run.lock:
                run.report.rate_limited += error.code == "rate_limited"
            if not error.retryable or attempt == ATTEMPTS - 1 or run.error is not None:
                raise
            with run.lock:
                run.report.retries += 1
            # `pause` respects the endpoint's Retry-After within limits
            time.sleep(pause(attempt, BACK_OFF_SECONDS, asked=error.details.get("wait")))
            continue
        run.latencies.append(time.perf_counter() - started)
        if vectors.shape != (len(texts), run.info.dim):
            raise ProviderError(
                f"the embedder returned an array {vectors.shape} for {len(texts)} texts of"
                f" dimension {run.info.dim}"
            )
        return np.asarray(vectors, dtype=np.float32)
    raise AssertionError("unreachable: the last attempt returns or raises")


def _settle(
    run: _Run, good: Mapping[str, Vectors], bad: Mapping[str, str], code: str = "bad_vector"
) -> None:
    if good:
        run.cache.put(good, run.info, run.profile)
    with run.lock:
        run.report.failed.update(bad)
        run.report.error_types.update({code: len(bad)} if bad else {})
        run.done += len(good) + len(bad)
        if run.on_progress is not None:
            run.on_progress(run.done, run.total)
