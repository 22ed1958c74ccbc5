"""Which hits the answerer gets to read: whole chunks within a token budget, no text twice, the order kept."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rag_platform.config_query import ContextConfig
from rag_platform.ir import Hit

_WIDE = re.compile(r"[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\ufe30-\ufe4f\uff00-\uffef\U00020000-\U0003ffff]")


@dataclass(frozen=True, slots=True)
class Evidence:
    """The hits of the context, their tokens, and what was left out or cut."""

    hits: tuple[Hit, ...]
    tokens: int
    repeated: int = 0  # hits whose text another hit already has
    dropped: int = 0  # hits that no longer fitted
    warnings: tuple[str, ...] = ()


def estimate_tokens(text: str) -> int:
    """About how many tokens a model counts in mixed Chinese and English text, meant to be a little too high.

    One for each CJK character (current vocabularies need 0.6 to 1.1), one for each started four characters of every other run
    between blanks (English averages 4 to 4.5 characters a token; a short word still costs one).
    """
    wide = 0
    if not text.isascii():
        text, wide = _WIDE.subn(" ", text)
    return wide + sum([(len(run) + 3) // 4 for run in text.split()])


def select(hits: Sequence[Hit], config: ContextConfig, count_tokens: Callable[[str], int] = estimate_tokens) -> Evidence:
    """The evidence within `config.max_tokens` and `config.max_chunks`, in the order of the hits.

    Chunks are taken whole; one that does not fit is left out and a later, shorter one may still come in. Only the first hit is
    cut when it alone exceeds the budget: at the last line end that fits, or, in one long line, at the last character.
    """
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
