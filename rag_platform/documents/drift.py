"""Measures drift, i.e. chunk boundaries that moved although the text did not change, and the
quality of a document's chunks: coverage, overlap, duplication and lengths.

With equal facts, a different section_hash is structure drift (caused by the loader or sectioner),
and a different chunk_hash alone is length drift (caused by the chunker). `rag docs diff` shows the
differences. Manual edits are not drift, because it is measured on chunks as they were cut.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Literal

from rag_platform.ir import Chunk, Json, StageOutcome, Version
from rag_platform.storage.records import from_json, to_json

Kind = Literal["none", "content", "structure", "length"]
# kinds in which chunks moved although the text is the same
MOVED: tuple[Kind, ...] = ("structure", "length")


@dataclass(frozen=True, slots=True)
class Build:
    """The hashes and counts of a version's sections and chunks, and the profiles behind them."""

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
    sections: tuple[str, str]  # profiles before and after
    chunks: tuple[str, str]
    details: str  # what moved, in words; a changed text is reported only as such


def _say_moved(moved: bool) -> str:
    return "moved" if moved else "stayed"


def compare(before: Build, after: Build, against: str) -> Drift:
    """The drift from one build to the next; `against` is the version_id of the former.

    >>> one = Build("text", "f1", "s1", "aa", 2, "c1", "bb", 5)
    >>> compare(one, Build("text", "f1", "s1", "aa", 2, "c2", "cc", 7), "v").kind
    'length'
    """
    sections_moved = before.section_hash != after.section_hash
    chunks_moved = before.chunk_hash != after.chunk_hash
    kind: Kind = "structure" if sections_moved else "length" if chunks_moved else "none"
    said = (
        "the text is the same",
        f"sections {_say_moved(sections_moved)}: {before.section_count} under {before.sections},"
        f" {after.section_count} under {after.sections}",
        f"chunks {_say_moved(chunks_moved)}: {before.chunk_count} under {before.chunks},"
        f" {after.chunk_count} under {after.chunks}",
    )
    details = "; ".join(said)
    if before.md_sha256 != after.md_sha256:
        kind, details = "content", "the text changed"
    sections, chunks = (before.sections, after.sections), (before.chunks, after.chunks)
    return Drift(kind, against, sections_moved, chunks_moved, sections, chunks, details)


def measure_drift(
    version: Version, replaced: Version | None, outcomes: Sequence[StageOutcome]
) -> tuple[list[StageOutcome], Json]:
    """(outcomes, figures for the ledger): the drift from the last build of the version, or from the
    version that it replaces.

    The chunks outcome gets the counts `drift` and `drift_details` if there is a build to compare
    with. The figures hold `built` and `drift`; an identical build keeps its known drift.
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
    with_drift = replace(
        chunks, counts={**chunks.counts, "drift": drift.kind, "drift_details": drift.details}
    )
    figures["drift"] = to_json(drift)
    return [with_drift if outcome is chunks else outcome for outcome in outcomes], figures


@dataclass(frozen=True, slots=True)
class ChunkQuality:
    """Measures over the indexed chunks with text; shares are 0 to 1, lengths in characters.

    coverage     share of the text's characters, without white space, that are in some chunk; None
                 for an empty text
    overlap      repeated characters (each repetition of a character in a further chunk counts) over
                 the sum of the chunks' lengths
    duplication  share of chunks whose fingerprint an earlier chunk has
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
        """The measures by name; shares rounded to four places, mean and deviation to one."""
        places = {"mean_chars": 1, "std_chars": 1}
        return {
            name: round(value, places.get(name, 4)) if isinstance(value, float) else value
            for name, value in asdict(self).items()
        }


def chunk_quality(text: str, chunks: Sequence[Chunk]) -> ChunkQuality:
    """The measures of a normalised text's chunks, except parents and image chunks."""
    children = (chunk for chunk in chunks if chunk.chunk_type != "parent")
    measured = [chunk for chunk in children if chunk.norm_end > chunk.norm_start]
    measured.sort(key=lambda chunk: chunk.norm_start)
    lengths = [chunk.norm_end - chunk.norm_start for chunk in measured]
    covered = total = done = 0
    for chunk in measured:
        start = max(done, chunk.norm_start)
        if chunk.norm_end > start:
            covered += _ink(text[start : chunk.norm_end])
            total += chunk.norm_end - start
            done = chunk.norm_end
    ink = _ink(text)
    return ChunkQuality(
        chunks=len(measured),
        coverage=covered / ink if ink else None,
        overlap=1 - total / sum(lengths) if lengths else 0.0,
        duplication=(
            1 - len({chunk.chunk_fingerprint for chunk in measured}) / len(measured)
            if measured
            else 0.0
        ),
        min_chars=min(lengths, default=0),
        max_chars=max(lengths, default=0),
        mean_chars=statistics.fmean(lengths) if lengths else 0.0,
        std_chars=statistics.pstdev(lengths) if lengths else 0.0,
        too_short=sum(chunk.too_short for chunk in measured),
    )


def _ink(text: str) -> int:
    return sum(map(len, text.split()))
