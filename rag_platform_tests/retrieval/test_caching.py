from __future__ import annotations

import threading
from typing import Any

import pytest

from rag_platform.answering.engine import answer
from rag_platform.api.status import status
from rag_platform.caching import Cache
from rag_platform.config.settings import Settings, load_settings
from rag_platform.ir import QueryRequest
from rag_platform.observability import trace_reader
from rag_platform.retrieval.library import Library
from rag_platform.storage.store import Store
from rag_platform_tests.chat_server import chat_server, said
from rag_platform_tests.published import Hiding

GUIDE = [
    ("Limits", "The maximum upload size is 50 MB."),
    ("Errors", "Error PPR-9087 means that the licence server cannot be reached."),
]


# --- the cache ----------------------------------------------------------------------------------


def test_the_least_recently_used_goes_first() -> None:
    cache: Cache[int] = Cache(2, 60)
    cache.put("a", 1)
    cache.put("b", 2)
    assert cache.get("a") == 1
    cache.put("c", 3)
    assert (cache.get("a"), cache.get("b"), cache.get("c")) == (1, None, 3)
    assert cache.figures() == {"size": 2, "entries": 2, "hits": 3, "misses": 1, "hit_rate": 0.75}


def test_an_entry_lives_its_seconds() -> None:
    now = [0.0]
    cache: Cache[int] = Cache(2, 10, clock=lambda: now[0])
    cache.put("a", 1)
    now[0] = 10.0
    assert cache.get("a") == 1
    now[0] = 10.1
    assert cache.get("a") is None
    assert len(cache) == 0


def test_a_size_of_nothing_remembers_nothing() -> None:
    cache: Cache[int] = Cache(0, 60)
    cache.put("a", 1)
    assert cache.get("a") is None
    assert not cache
    assert cache.figures()["misses"] == 0


def test_many_threads_keep_it_within_its_size() -> None:
    cache: Cache[int] = Cache(50, 60)

    def work(seed: int) -> None:
        for number in range(2000):
            key = (seed * 31 + number * 17) % 200
            if cache.get(key) not in (None, key):
                raise AssertionError("another key's value")
            cache.put(key, key)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    figures = cache.figures()
    assert figures["entries"] == 50
    assert figures["hits"] + figures["misses"] == 8000


# --- what was found is remembered ---------------------------------------------------------------


def hit_in_cache(store: Store, trace_id: str) -> bool:
    return bool(trace_reader.show(store.logs_dir, trace_id)["attrs"].get("cache_hit"))


def test_the_same_question_is_searched_once(publish: Any, library: Library, store: Store) -> None:
    publish({"guide": GUIDE})
    first = answer(library, QueryRequest("maximum upload size"))
    again = answer(library, QueryRequest("maximum upload size"))
    assert (first.hits, first.answer_markdown, first.confidence) == (
        again.hits,
        again.answer_markdown,
        again.confidence,
    )
    assert first.flags == again.flags
    assert first.trace_id != again.trace_id
    assert (hit_in_cache(store, first.trace_id), hit_in_cache(store, again.trace_id)) == (
        False,
        True,
    )
    names = {span["name"] for span in trace_reader.show(store.logs_dir, again.trace_id)["spans"]}
    assert "stage.retrieve_sparse" not in names and "stage.query_norm" in names
    assert trace_reader.show(store.logs_dir, again.trace_id)["attrs"]["ranked_chunk_ids"] == [
        hit.chunk_id for hit in again.hits
    ]
    assert status(library)["caches"]["retrievals"] == {
        "size": 256,
        "entries": 1,
        "hits": 1,
        "misses": 1,
        "hit_rate": 0.5,
    }
    assert "retrievals 50% of 2" in status(library)["markdown"]


@pytest.mark.parametrize(
    "other",
    [
        {"top_k": 1},
        {"mode": "sparse"},
        {"filters": {"lang": "en"}},
        {"rerank": False},
        {"max_per_document": 1},
        {"score_threshold": 0.1},
        {"text": "Maximum upload size"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_whatever_is_asked_otherwise_is_searched(
    publish: Any, library: Library, store: Store, other: dict[str, Any]
) -> None:
    publish({"guide": GUIDE})
    answer(library, QueryRequest("maximum upload size"))
    assert not hit_in_cache(
        store, answer(library, QueryRequest(**{"text": "maximum upload size", **other})).trace_id
    )


def test_a_publication_and_a_deletion_are_seen_at_once(
    publish: Any, settings: Settings, store: Store
) -> None:
    hidden: set[str] = set()
    library = Library(settings, store, Hiding(hidden))
    publish({"guide": GUIDE, "other": [("S", "An upload of any size.")]}, release_id="r1")
    request = QueryRequest("maximum upload size")
    assert {hit.doc_id for hit in answer(library, request).hits} == {"guide", "other"}
    hidden.add("guide")
    assert {hit.doc_id for hit in answer(library, request).hits} == {"other"}
    hidden.clear()
    assert {hit.doc_id for hit in answer(library, request).hits} == {"guide", "other"}
    publish({"third": [("S", "The maximum upload size is 70 MB.")]}, release_id="r2")
    assert {hit.doc_id for hit in answer(library, request).hits} == {"third"}
    library.close()


def test_a_degraded_search_is_not_remembered(publish: Any, library: Library, store: Store) -> None:
    publish({"guide": GUIDE})
    words = store.release_dir("default", "r1") / "lexical"
    words.rename(words.with_name("away"))
    assert answer(library, QueryRequest("maximum upload size")).flags["sparse_failed"]
    library.close()
    words.with_name("away").rename(words)
    result = answer(library, QueryRequest("maximum upload size"))
    assert (result.effective_mode, "sparse_failed" in result.flags) == ("hybrid", False)


# --- answers, where they are --------------------------------------------------------------------


def test_answers_are_remembered_only_where_configured(
    publish: Any, vary: Any, settings: Settings, store: Store, library: Library
) -> None:
    publish({"guide": GUIDE})
    with chat_server(
        lambda body, number: said(f"The maximum upload size is 50 MB. [1] ({number})")
    ) as server:
        name = vary(
            "written",
            "answerer: {provider: llm}\nquery: {rewrite: {enabled: false}}\n"
            "llm: {provider: openai, options: {model: m, base_url:"
            f" '{server.url}', api_key_env: '', price_input: 2.0, price_output: 4.0}}}}\n".replace(
                "}}\n", "}}\n"
            ),
        )
        request = QueryRequest("What is the maximum upload size?", strategy=name)
        first, again = answer(library, request), answer(library, request)
        assert len(server.requests) == 2
        assert first.usage == {"calls": 1, "input_tokens": 10, "output_tokens": 5, "cost": 0.00004}
        remembering = Library(load_settings({"caches": {"responses": 4}}), store)
        first, again = answer(remembering, request), answer(remembering, request)
        assert len(server.requests) == 3
        assert (first.answer_markdown, first.citations) == (again.answer_markdown, again.citations)
        assert again.usage == {}
        assert remembering.cache_figures()["responses"]["hits"] == 1
        heard: list[str] = []
        assert answer(remembering, request, on_text=heard.append).answer_markdown == "".join(heard)
        remembering.close()


def test_an_answer_written_under_load_is_not_remembered(
    publish: Any, settings: Settings, store: Store
) -> None:
    publish({"guide": GUIDE})
    library = Library(
        load_settings({"caches": {"responses": 4}, "load": {"skip_rerank_at": 2}}), store
    )
    request = QueryRequest("What is the maximum upload size?")
    with library.load.question():
        assert answer(library, request).signals["quotes_near"] is None
    assert answer(library, request).signals["quotes_near"] > 0
    library.close()
