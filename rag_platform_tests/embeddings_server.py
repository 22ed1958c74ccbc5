"""A local endpoint that speaks `/embeddings`, for tests: vectors by feature hashing, given in an
order of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rag_platform.providers.hashing import Hashing
from rag_platform_tests.chat_server import ChatServer, Reply, chat_server


def embedded(body: dict[str, Any], dim: int = 256) -> Reply:
    """The vectors of a request's texts, three times too long and the last one first, 7 tokens a
    text.
    """
    vectors = 3 * Hashing(dim).embed(body["input"])
    data = [
        {"object": "embedding", "index": n, "embedding": [float(x) for x in row]}
        for n, row in enumerate(vectors)
    ]
    tokens = 7 * len(data)
    return (
        200,
        {
            "object": "list",
            "model": "m-2026",
            "data": data[::-1],
            "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
        },
        {},
    )


@contextmanager
def embeddings_server(
    answer: Callable[[dict[str, Any], int], Reply] = lambda body, number: embedded(body),
) -> Iterator[ChatServer]:
    """The running server; `url` is the base_url for clients."""
    with chat_server(answer) as server:
        yield server
