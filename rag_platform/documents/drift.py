"""Drift: whether chunks moved because the text changed, or under a text that did not (seed 000 §3.1.5).

With equal facts, another section_hash is structure drift (look at the loader and the sectioner), and another chunk_hash alone is length
drift (look at the chunker). The hashes only say that something differs; `rag docs diff` shows what. Edits by hand are no drift: it is told
of chunks as they were cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from rag_platform.ir import Json, StageOutcome, Version
from rag_platform.records import from_json, to_json

Kind = Literal["none", "content", "structure", "length"]
MOVED: tuple[Kind, ...] = ("structure", "length")  # chunks moved although nobody changed what they say


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
        """What moved, with both profiles named."""
        one, two = self.before, self.after
        text = "the text changed" if self.kind == "content" else "the text is the same"
        return "; ".join((
            text,
            f"sections {_moved(self.sections_moved)}: {one.section_count} under {one.sections}, {two.section_count} under {two.sections}",
            f"chunks {_moved(self.chunks_moved)}: {one.chunk_count} under {one.chunks}, {two.chunk_count} under {two.chunks}",
        ))  # fmt: skip


def _moved(moved: bool) -> str:
    return "moved" if moved else "stayed"


def compare(before: Build, after: Build, against: str) -> Drift:
    """The drift from one build to the next, `against` being the version of the former.

    >>> one = Build("text", "f1", "s1", "aa", 2, "c1", "bb", 5)
    >>> compare(one, Build("text", "f1", "s1", "aa", 2, "c2", "cc", 7), "v").kind
    'length'
    """
    sections_moved, chunks_moved = before.section_hash != after.section_hash, before.chunk_hash != after.chunk_hash
    kind: Kind = "structure" if sections_moved else "length" if chunks_moved else "none"
    if before.md_sha256 != after.md_sha256:
        kind = "content"
    return Drift(kind, against, sections_moved, chunks_moved, before, after)


def drifted(version: Version, replaced: Version | None, outcomes: Sequence[StageOutcome]) -> tuple[list[StageOutcome], Json]:
    """(outcomes, figures for the ledger): how a version's chunks drifted from its former build, else from the version that was live.

    The outcome of the chunks gets `drift` and `drift_details` where there is something to compare with. `figures` hold what the build came
    to (`built`) and its `drift`; the same build once more keeps the drift that is known of it.
    """
    stages = {outcome.stage: outcome for outcome in outcomes}
    if not {"facts", "sections", "chunks"} <= stages.keys():
        return list(outcomes), {}
    facts, sections, chunks = stages["facts"], stages["sections"], stages["chunks"]
    built = Build(facts.sha256, facts.profile, sections.profile, sections.counts["section_hash"],
                  sections.counts["section_count"], chunks.profile, chunks.counts["chunk_hash"], chunks.counts["chunk_count"])  # fmt: skip
    figures: Json = {"built": to_json(built)}
    origin = version if "built" in version.counts else replaced
    if origin is None or "built" not in origin.counts:
        return list(outcomes), figures
    before = from_json(Build, origin.counts["built"])
    if before == built and origin is version:
        known = version.counts.get("drift")
        return list(outcomes), {**figures, **({"drift": known} if known else {})}
    drift = compare(before, built, origin.version_id)
    told = replace(chunks, counts={**chunks.counts, "drift": drift.kind, "drift_details": drift.sentence()})
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
