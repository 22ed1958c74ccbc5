"""Which hits the answerer gets to read: whole chunks within a token budget, no text twice, the order kept."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from rag_platform.config_query import ContextConfig
from rag_platform.indexes.catalog import CatalogReader
from rag_platform.ir import Hit
from rag_platform.protocols import Vectors
from rag_platform.retrieval.tokens import counter


@dataclass(frozen=True, slots=True)
class Evidence:
    """The hits of the context, their tokens, and what was left out or cut."""

    hits: tuple[Hit, ...]
    tokens: int
    repeated: int = 0  # hits whose text another hit already has
    dropped: int = 0  # hits that no longer fitted
    warnings: tuple[str, ...] = ()


def select(
    hits: Sequence[Hit],
    config: ContextConfig,
    catalogs: Mapping[str, CatalogReader] = MappingProxyType({}),
    vectors: Callable[[Sequence[Hit]], Vectors] | None = None,
    *,
    count: Callable[[str], int] | None = None,
) -> Evidence:
    """The evidence within `config.max_tokens` and `config.max_chunks`, in the order of the hits.

    Chunks are taken whole; one that does not fit is left out and a later, shorter one may still come in. Only the first hit is
    cut when it alone exceeds the budget: at the last line end that fits, or, in one long line, at the last character.
    """
    count_tokens = count or counter(config.tokenizer)
    chosen: list[Hit] = []
    seen: set[str] = set()
    warnings: list[str] = []
    tokens = repeated = dropped = 0
    for hit in hits:
        text = " ".join(hit.chunk_text.split())
        if not text or text in seen:
            repeated += 1
            continue
        size = count_tokens(hit.chunk_text)
        if not chosen and size > config.max_tokens:
            cut = _cut(hit.chunk_text, config.max_tokens, count_tokens)
            warnings.append(f"evidence 1 was cut from {size} to {config.max_tokens} tokens (context.max_tokens)")
            hit, size = dataclasses.replace(hit, chunk_text=cut), count_tokens(cut)
        elif len(chosen) >= config.max_chunks or tokens + size > config.max_tokens:
            dropped += 1
            continue
        seen.add(text)
        chosen.append(hit)
        tokens += size
    return Evidence(tuple(chosen), tokens, repeated, dropped, tuple(warnings))


def _cut(text: str, budget: int, count_tokens: Callable[[str], int]) -> str:
    """The longest beginning of `text` within the budget, ended at a line end where there is one."""
    low, high = 0, len(text)
    while low < high:  # token counts grow with the length, so halving finds the longest beginning
        middle = (low + high + 1) // 2
        low, high = (middle, high) if count_tokens(text[:middle]) <= budget else (low, middle - 1)
    line_end = text.rfind("\n", 0, low)
    return text[:line_end] if line_end > 0 else text[:low]


def rendered(hits: Sequence[Hit], format: str = "markdown") -> str:
    """The evidence as a prompt quotes it, numbered [1], [2], ... in the order of the hits."""
    return "\n\n".join(f"[{n}] {hit.source_uri}\n{hit.chunk_text}" for n, hit in enumerate(hits, 1))
