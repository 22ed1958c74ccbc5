"""Drift: which of text, structure and lengths moved, by hand-made builds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rag_platform.documents.drift import Build, compare, measure_drift
from rag_platform.ir import Json, StageOutcome, Version
from rag_platform.storage.records import to_json

BUILD = Build("text", "f1", "s1", "sections", 2, "c1", "chunks", 5)
VERSION = Version(
    "lib.a@1", "lib", "a", "docs/a.md", "a.md", "1" * 64, 10, "text/markdown", "markdown", "tiny"
)


@pytest.mark.parametrize(
    ("after", "kind"),
    [
        (BUILD, "none"),
        (replace(BUILD, chunks="c2"), "none"),  # another profile that cuts the same
        (replace(BUILD, chunks="c2", chunk_hash="other", chunk_count=7), "length"),
        (
            replace(BUILD, sections="s2", section_hash="other", chunks="c2", chunk_hash="other"),
            "structure",
        ),
        (replace(BUILD, sections="s2", section_hash="other"), "structure"),
        (replace(BUILD, md_sha256="other", section_hash="other", chunk_hash="other"), "content"),
        (replace(BUILD, md_sha256="other"), "content"),
    ],
)
def test_the_kind_names_what_moved_first(after: Build, kind: str) -> None:
    assert compare(BUILD, after, "v").kind == kind


def test_the_sentence_names_both_profiles_and_says_what_stayed() -> None:
    drift = compare(BUILD, replace(BUILD, chunks="c2", chunk_hash="other", chunk_count=7), "v")
    assert (
        drift.details
        == "the text is the same; sections stayed: 2 under s1, 2 under s1; chunks moved: 5 under"
        " c1, 7 under c2"
    )
    changed = compare(BUILD, replace(BUILD, md_sha256="other", chunk_hash="other"), "v")
    assert changed.details == "the text changed"


def outcomes(build: Build) -> list[StageOutcome]:
    return [
        StageOutcome("raw_document", "r", True, 0.0),
        StageOutcome("facts", build.facts, False, 0.0, sha256=build.md_sha256),
        StageOutcome(
            "sections",
            build.sections,
            False,
            0.0,
            counts={"section_hash": build.section_hash, "section_count": build.section_count},
        ),
        StageOutcome(
            "chunks",
            build.chunks,
            False,
            0.0,
            counts={"chunk_hash": build.chunk_hash, "chunk_count": build.chunk_count},
        ),
    ]


def counts(build: Build, **more: Json) -> Json:
    return {"built": to_json(build), **more}


def test_a_first_build_is_recorded_and_has_nothing_to_be_compared_with() -> None:
    told, figures = measure_drift(VERSION, None, outcomes(BUILD))
    assert (told, figures) == (outcomes(BUILD), {"built": to_json(BUILD)})


def test_a_rebuild_is_compared_with_the_versions_own_former_build() -> None:
    live = replace(VERSION, version_id="lib.a@0", counts=counts(replace(BUILD, md_sha256="old")))
    own = replace(VERSION, counts=counts(BUILD))
    longer = replace(BUILD, chunks="c2", chunk_hash="other", chunk_count=2)
    told, figures = measure_drift(own, live, outcomes(longer))
    assert (
        told[-1].counts["drift"] == "length"
        and "5 under c1, 2 under c2" in told[-1].counts["drift_details"]
    )
    assert (figures["drift"]["against"], figures["drift"]["chunks"]) == ("lib.a@1", ["c1", "c2"])
    assert figures["built"] == to_json(longer)


def test_a_first_build_is_compared_with_the_version_it_replaces() -> None:
    live = replace(VERSION, version_id="lib.a@0", counts=counts(BUILD))
    told, figures = measure_drift(
        VERSION, live, outcomes(replace(BUILD, md_sha256="new", chunk_hash="other"))
    )
    assert (told[-1].counts["drift"], figures["drift"]["against"]) == ("content", "lib.a@0")


def test_the_same_build_once_more_keeps_what_is_known() -> None:
    known: Json = {"kind": "length"}
    told, figures = measure_drift(
        replace(VERSION, counts=counts(BUILD, drift=known)), None, outcomes(BUILD)
    )
    assert (told, figures["drift"]) == (outcomes(BUILD), known)


def test_a_run_of_some_stages_says_nothing() -> None:
    assert measure_drift(VERSION, None, outcomes(BUILD)[:2]) == (outcomes(BUILD)[:2], {})
