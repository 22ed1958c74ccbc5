"""Drift: whether chunks moved because the text changed, or under a text that did not; and how well
a document was cut: coverage, overlap, duplication and lengths of its chunks.

With equal facts, another section_hash is structure drift (look at the loader and the sectioner),
and another chunk_hash alone is length drift (look at the chunker). `rag docs diff` shows what
differs. Edits by hand are no drift: it is measured on chunks as they were cut.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Literal

from rag_platform.ir import Chunk, Json, StageOutcome, Version
from rag_platform.storage.records import from_json, to_json

Kind = Literal["none", "content", "structure", "length"]
# chunks moved although nobody changed what they say
MOVED: tuple[Kind, ...] = ("structure", "length")


@dataclass(frozen=True, slots=True)
class Build:
    """What cutting one version came to, and under which profiles."""

    md_sha256: str
    facts: str  # profile
    sections: str  # profile
    section_hash: str
    section_count: int
    chunks: str  # profile
    chunk_hash: str
    chunk_count: int


@dataclass(frozen=True, slots=True)
class Drift:
    """How a build differs from the one before it."""

    kind: Kind
    against: str  # version_id of the build before
    sections_moved: bool
    chunks_moved: bool
    before: Build
    after: Build

    def sentence(self) -> str:
        """What moved, with both profiles named; nothing moves of a text that changed."""
        if self.kind == "content":
            return "the text changed"
        one, two, text = self.before, self.after, "the text is the same"
        return "; ".join(
            (
                text,
                (
                    f"sections {_say_moved(self.sections_moved)}: {one.section_count} under"
                    f" {one.sections}, {two.section_count} under {two.sections}"
                ),
                (
                    f"chunks {_say_moved(self.chunks_moved)}: {one.chunk_count} under {one.chunks},"
                    f" {two.chunk_count} under {two.chunks}"
                ),
            )
        )


def _say_moved(moved: bool) -> str:
    return "moved" if moved else "stayed"


def compare(before: Build, after: Build, against: str) -> Drift:
    """The drift from one build to the next, `against` being the version of the former.

    >>> one = Build("text", "f1", "s1", "aa", 2, "c1", "bb", 5)
    >>> compare(one, Build("text", "f1", "s1", "aa", 2, "c2", "cc", 7), "v").kind
    'length'
    """
    sections_moved = before.section_hash != after.section_hash
    chunks_moved = before.chunk_hash != after.chunk_hash
    kind: Kind = "structure" if sections_moved else "length" if chunks_moved else "none"
    if before.md_sha256 != after.md_sha256:
        kind = "content"
    return Drift(kind, against, sections_moved, chunks_moved, before, after)


def measure_drift(
    version: Version, replaced: Version | None, outcomes: Sequence[StageOutcome]
) -> tuple[list[StageOutcome], Json]:
    """(outcomes, figures for the ledger): how chunks drifted from the former or live version.

    The outcome of the chunks gets `drift` and `drift_details` where there is something to compare.
    `figures` hold `built` and `drift`; the same build again keeps its known drift.
    """
    stages = {outcome.stage: outcome for outcome in outcomes}
    if not {"facts", "sections", "chunks"} <= stages.keys():
        return list(outcomes), {}
    facts, sections, chunks = stages["facts"], stages["sections"], stages["chunks"]
    built = Build(
        facts.sha256,
        facts.profile,
        sections.profile,
        sections.counts["section_hash"],
        sections.counts["section_count"],
        chunks.profile,
        chunks.counts["chunk_hash"],
        chunks.counts["chunk_count"],
    )
    figures: Json = {"built": to_json(built)}
    origin = version if "built" in version.counts else replaced
    if origin is None or "built" not in origin.counts:
        return list(outcomes), figures
    before = from_json(Build, origin.counts["built"])
    if before == built and origin is version:
        known = version.counts.get("drift")
        return list(outcomes), {**figures, **({"drift": known} if known else {})}
    drift = compare(before, built, origin.version_id)
    told = replace(
        chunks, counts={**chunks.counts, "drift": drift.kind, "drift_details": drift.sentence()}
    )
    figures["drift"] = {
        "kind": drift.kind,
        "against": drift.against,
        "sections_moved": drift.sections_moved,
        "chunks_moved": drift.chunks_moved,
        "sections": [before.sections, built.sections],
        "chunks": [before.chunks, built.chunks],
        "details": drift.sentence(),
    }
    return [told if outcome is chunks else outcome for outcome in outcomes], figures


@dataclass(frozen=True, slots=True)
class ChunkQuality:
    """Measures over the chunks that are indexed and hold text; shares are 0 to 1, lengths are
    characters.

    coverage     characters of the text, white space aside, that lie in some chunk, over all of
                 them; None for a text without any
    overlap      characters that stand in more than one chunk, each repetition counted, over the sum
                 of the chunks' lengths
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
        return {
            name: round(value, places.get(name, 4)) if isinstance(value, float) else value
            for name, value in asdict(self).items()
        }


def chunk_quality(text: str, chunks: Sequence[Chunk]) -> ChunkQuality:
    """The measures of the chunks of a normalised text; parents and image chunks do not count."""
    held = sorted(
        (
            chunk
            for chunk in chunks
            if chunk.chunk_type != "parent" and chunk.norm_end > chunk.norm_start
        ),
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
        duplication=(
            1 - len({chunk.chunk_fingerprint for chunk in held}) / len(held) if held else 0.0
        ),
        min_chars=min(lengths, default=0),
        max_chars=max(lengths, default=0),
        mean_chars=statistics.fmean(lengths) if lengths else 0.0,
        std_chars=statistics.pstdev(lengths) if lengths else 0.0,
        too_short=sum(chunk.too_short for chunk in held),
    )


def _ink(text: str) -> int:
    return sum(map(len, text.split()))
