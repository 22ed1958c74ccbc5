"""How well a document was cut: coverage, overlap, duplication and lengths of its chunks (seed 002, measures of chunking)."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from rag_platform.ir import Chunk, Json


@dataclass(frozen=True, slots=True)
class ChunkQuality:
    """Measures over the chunks that are indexed and hold text; shares are 0 to 1, lengths are characters.

    coverage     characters of the text, white space aside, that lie in some chunk, over all of them; None for a text without any
    overlap      characters that stand in more than one chunk, each repetition counted, over the sum of the chunks' lengths
    duplication  chunks whose fingerprint another chunk before them has, over all chunks
    """

    chunks: int
    coverage: float | None
    overlap: float
    duplication: float
    min_chars: int
    max_chars: int
    mean_chars: float
    std_chars: float  # of the population
    too_short: int

    def counts(self) -> Json:
        """The measures by name, shares rounded to four places and means to one."""
        places = {"mean_chars": 1, "std_chars": 1}
        return {name: round(value, places.get(name, 4)) if isinstance(value, float) else value for name, value in asdict(self).items()}


def chunk_quality(text: str, chunks: Sequence[Chunk]) -> ChunkQuality:
    """The measures of the chunks of a normalised text; parents, and chunks of pictures, do not count."""
    held = sorted(
        (chunk for chunk in chunks if chunk.chunk_type != "parent" and chunk.norm_end > chunk.norm_start),
        key=lambda chunk: chunk.norm_start,
    )
    lengths = [chunk.norm_end - chunk.norm_start for chunk in held]
    covered = total = done = 0
    for chunk in held:
        start = max(done, chunk.norm_start)
        if chunk.norm_end > start:
            covered += _ink(text[start : chunk.norm_end])
            total += chunk.norm_end - start
            done = chunk.norm_end
    ink = _ink(text)
    return ChunkQuality(
        chunks=len(held),
        coverage=covered / ink if ink else None,
        overlap=1 - total / sum(lengths) if lengths else 0.0,
        duplication=1 - len({chunk.chunk_fingerprint for chunk in held}) / len(held) if held else 0.0,
        min_chars=min(lengths, default=0),
        max_chars=max(lengths, default=0),
        mean_chars=statistics.fmean(lengths) if lengths else 0.0,
        std_chars=statistics.pstdev(lengths) if lengths else 0.0,
        too_short=sum(chunk.too_short for chunk in held),
    )


def _ink(text: str) -> int:
    return sum(map(len, text.split()))
