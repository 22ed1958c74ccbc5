"""What a question's tool answers, in the server itself or in one of the processes that it shares its questions with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rag_platform.children import serve
from rag_platform.config import Settings
from rag_platform.ir import Json, QueryRequest
from rag_platform.observability import tracing
from rag_platform.observability.logs import setup_logging
from rag_platform.retrieval.engine import answer
from rag_platform.retrieval.library import Library
from rag_platform.retrieval.reading import hidden_by_ledger
from rag_platform.retrieval.responses import fit_query, public
from rag_platform.retrieval.warming import warm
from rag_platform.store import Store

Answer = tuple[Any, str, list[str]]  # data, trace_id of the work or empty, warnings


@dataclass(frozen=True, slots=True)
class Start:
    """What a process is told first: which library, and the namespace to open at once."""

    settings: Settings
    namespace: str


@dataclass(frozen=True, slots=True)
class Asked:
    """A question for another process; `running` counts the questions of the whole server, this one included."""

    request: QueryRequest
    detail: str
    running: int
    request_id: str | None = None  # of the client's call


@dataclass(frozen=True, slots=True)
class Responded:
    """Its answer, and what the caches of that process came to."""

    answer: Answer
    caches: Json


def respond(library: Library, request: QueryRequest, detail: str) -> Answer:
    """The answer to a question within the server's result budget. Raises what `engine.answer` raises."""
    result = public(answer(library, request))
    data, warnings = fit_query(result, detail, library.settings.server.result_tokens)
    return data, result.trace_id, warnings


def main() -> None:
    """Answer the questions that the server hands on."""
    serve(_responding)


def _responding(start: Start) -> Callable[[Asked | None], object]:
    """The function that answers; None asks whether it is ready."""
    store = Store(start.settings.home)
    setup_logging(store.logs_dir)
    library = Library(start.settings, store, hidden_by_ledger(store))

    def responding(asked: Asked | None) -> object:
        if asked is None:
            warm(library, start.namespace, at_once=True)
            return True
        with library.load.beside(asked.running - 1), tracing.requested(asked.request_id):
            return Responded(respond(library, asked.request, asked.detail), library.cache_figures())

    return responding
