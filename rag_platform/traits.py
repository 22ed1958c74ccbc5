"""What a provider declares of itself beside its options: `traits: ClassVar[Traits] = Traits(...)`
of its class.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """How the platform may use a provider; the defaults hold for one that declares nothing."""

    # embedders, rerankers, answerers
    # calls another machine: so many of its calls run at once as `load.provider_calls` says
    remote: bool = False
    # takes some milliseconds, with the longest question some dozen: no thread waits for it
    quick: bool = False
    # asks a language model: a reranker gets it as its option `model`, an answerer as its field
    # `llm`
    uses_llm: bool = False

    # loaders
    # its parser may crash, hang or grow: it is run in a child process under limits
    isolated: bool = False
    # the library that reads the pages of its files, in children that speak it alone; empty for
    # formats without pages
    engine: str = ""

    # embedders
    window: int | None = None  # tokens read at once; None where it depends on the model's files
    reads_all: bool = False  # what lies beyond the window moves the vector as well
    # the model takes a lot of memory: a server answers its questions in one process
    large: bool = False
    bytes_per_second: float = 10_000.0  # UTF-8 embedded by one core, until it is measured
    load_seconds: float = 1.0  # until a process can embed

    # word indexes
    # no file is ever changed in place, so none needs bytes of its own before an update
    replaces_files: bool = False

    # rerankers
    applies: bool = True  # False for the one that leaves the order alone
    pointwise: bool = False  # judges every hit by itself: it is asked in batches

    # readers of printed text
    package: str = ""  # distribution whose version decides what is read
