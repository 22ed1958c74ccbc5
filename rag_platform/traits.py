"""What a provider declares of itself beside its options: `traits: ClassVar[Traits] = Traits(...)` of its class."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """How the platform may use a provider; the defaults hold for one that declares nothing."""

    # embedders, rerankers, answerers
    remote: bool = False  # calls another machine: so many of its calls run at once as `load.provider_calls` says
    quick: bool = False  # takes some milliseconds whatever it is given: no thread waits for it
    uses_llm: bool = False  # asks a language model: a reranker gets it as its option `model`, an answerer as its field `llm`

    # loaders
    isolated: bool = False  # its parser may crash, hang or grow: it is run in a child process under limits
    engine: str = ""  # the library that reads the pages of its files, in children that speak it alone; empty for formats without pages

    # embedders
    window: int | None = None  # tokens read at once; None where it depends on the model's files
    reads_all: bool = False  # what lies beyond the window moves the vector as well
    large: bool = False  # the model takes a lot of memory: a server answers its questions in one process
    bytes_per_second: float = 10_000.0  # UTF-8 embedded by one core, until it is measured
    load_seconds: float = 1.0  # until a process can embed

    # indexes
    replaces_files: bool = False  # no file is ever changed in place, so none needs bytes of its own before an update
    rewritten_on_open: tuple[str, ...] = ()  # files that even readers write: releases do not share them

    # rerankers
    applies: bool = True  # False for the one that leaves the order alone
    pointwise: bool = False  # judges every hit by itself: it is asked in batches

    # readers of printed text
    package: str = ""  # distribution whose version decides what is read
