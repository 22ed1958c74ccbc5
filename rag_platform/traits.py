"""What a provider's class declares besides its options, as `traits: ClassVar[Traits] =
Traits(...)`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """How the platform may use a provider; the defaults hold for one that declares nothing."""

    # embedders, rerankers, answerers
    # calls another machine; concurrent calls are limited by `load.provider_calls`
    remote: bool = False
    # takes milliseconds, for the longest questions a few dozen: called without a thread
    quick: bool = False
    # uses a language model, which a reranker gets as its option `model`, an answerer as its field
    # `llm`
    uses_llm: bool = False

    # loaders
    # its parser may crash, hang or use much memory, so it runs in a child process with limits
    isolated: bool = False
    # the library that reads pages, each in child processes of its own; empty for formats without
    # pages
    engine: str = ""

    # embedders
    window: int | None = None  # maximum tokens; None if it depends on the model's files
    reads_all: bool = False  # text beyond the window affects the vector too
    # the model takes a lot of memory, so a server answers questions in one process only
    large: bool = False
    bytes_per_second: float = 10_000.0  # of UTF-8 embedded per core, until it is measured
    load_seconds: float = 1.0  # until a process can embed

    # lexical indexes
    # files are never changed in place, so they need not be copied before an update
    replaces_files: bool = False

    # rerankers
    applies: bool = True  # False for the one that keeps the order
    pointwise: bool = False  # scores each hit independently, so it can be called in batches

    # OCR
    package: str = ""  # distribution whose version determines the output
