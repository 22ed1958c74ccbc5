"""Measures spans of text in characters, and in tokens by an embedder's tokenizer or an estimate."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rag_platform import registry
from rag_platform.errors import ConfigError
from rag_platform.text.cut_points import is_grapheme_boundary
from rag_platform.text.tokens import token_sums

Span = tuple[int, int]
TokenCounts = Callable[[Sequence[str]], list[int]]

INK = re.compile(r"\S")
WORD = re.compile(r"\S+\s*|\s+")
_MAX_ROUNDS = 4  # of cutting with exact token counts


def require_sizes(chunk_size: int, chunk_overlap: int, max_tokens: int) -> None:
    """Raise ConfigError for sizes that cannot be used."""
    if chunk_size < 20 or max_tokens < 20 or not 0 <= chunk_overlap <= chunk_size // 2:
        raise ConfigError(
            f"chunk_size {chunk_size} and max_tokens {max_tokens} must be 20 or more, chunk_overlap"
            f" {chunk_overlap} at most half of chunk_size"
        )


def token_counter(embedder: str, options: Mapping[str, Any]) -> TokenCounts | None:
    """The embedder's `count_tokens`, without prefix and end tokens; None if it has none."""
    if not embedder:
        return None
    return getattr(registry.make_provider("embedder", embedder, options), "count_tokens", None)


class Ruler:
    """Measures spans of one text.

    `size` is in characters, or in tokens with `in_tokens`; a span that fits never has more than
    `max_tokens`. Tokens are counted by `counts` if given, word by word and spread over the word's
    characters, else estimated.
    """

    def __init__(
        self,
        text: str,
        size: int,
        max_tokens: int,
        *,
        in_tokens: bool = False,
        counts: TokenCounts | None = None,
    ) -> None:
        self.text = text
        self.size = size
        self.in_tokens = in_tokens
        self.counts = counts
        self.sums = token_sums(text) if counts is None else count_words(text, counts)
        self.characters = len(text) if in_tokens else size
        self.token_size = min(size, max_tokens) if in_tokens else max_tokens
        self.budget = 100 * self.token_size

    def fits(self, start: int, end: int) -> bool:
        """True when the span is within the size and the token limit."""
        return (
            end - start <= self.characters and int(self.sums[end] - self.sums[start]) <= self.budget
        )

    def furthest_end(self, start: int) -> int:
        """The furthest end of a span from `start` that fits, at least `start + 1`."""
        by_tokens = (
            int(np.searchsorted(self.sums, self.sums[start] + self.budget, side="right")) - 1
        )
        return max(start + 1, min(start + self.characters, by_tokens))

    def back(self, end: int, overlap: int) -> int:
        """The earliest start of a span up to `end` that is at most `overlap` long."""
        if not self.in_tokens:
            return max(0, end - overlap)
        return int(np.searchsorted(self.sums, self.sums[end] - 100 * overlap, side="left"))

    def cut_exactly(self, cut: Callable[[], list[Span]]) -> list[Span]:
        """The spans of `cut`, repeated with a smaller budget while the tokenizer counts more tokens
        for one than allowed, as it may for a run of characters compared with its parts.
        """
        found = cut()
        if self.counts is None:
            return found
        for _ in range(_MAX_ROUNDS):
            texts = [self.text[start:end] for start, end in found if self.fits(start, end)]
            most = max(self.counts(texts)) if texts else 0
            if most <= self.token_size:
                break
            self.budget = self.budget * self.token_size // (most + 1)
            found = cut()
        return found


def count_words(text: str, counts: TokenCounts) -> NDArray[np.int64]:
    """Cumulative cost in hundredths of a token: exact for words, spread inside them by estimate."""
    sums = token_sums(text)
    words = [(match.start(), match.end()) for match in WORD.finditer(text)]
    distinct = sorted({text[start:end].strip() for start, end in words} - {""})
    known = {"": 0, **dict(zip(distinct, counts(distinct), strict=True))}
    exact = np.empty_like(sums)
    exact[0] = done = 0
    for start, end in words:
        cost = 100 * known[text[start:end].strip()]
        estimate = int(sums[end] - sums[start])
        exact[start + 1 : end + 1] = done + (sums[start + 1 : end + 1] - sums[start]) * cost // max(
            1, estimate
        )
        done += cost
        exact[end] = done
    return exact


def skip_space(text: str, start: int) -> int:
    """The first offset from `start` that is not white space, without splitting a grapheme."""
    found = INK.search(text, start)
    if found is None:
        return start
    return (
        found.start()
        if is_grapheme_boundary(text, found.start())
        else max(start, found.start() - 1)
    )


def trim(text: str, start: int, end: int) -> Span | None:
    """The span without surrounding white space, graphemes kept whole; None if nothing is left."""
    while start < end and text[start].isspace() and is_grapheme_boundary(text, start + 1):
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    return (start, end) if start < end else None
