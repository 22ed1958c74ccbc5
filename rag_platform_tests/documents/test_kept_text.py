"""A second reader's words are looked for in the chunks; what was dropped is listed with its place
and reason.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pymupdf
import pytest

from rag_platform.config.ingestion import CleaningConfig, NoiseRule
from rag_platform.config.settings import Limits, Settings, Strategy, TextKept
from rag_platform.documents import kept_text
from rag_platform.documents.kept_text import (
    Dropped,
    find_dropped,
    found_words,
    measure,
    tokens,
    verdict,
    word_counts,
)
from rag_platform.documents.versions import STAGES, VersionBuild, build_stage
from rag_platform.intake.receiving import ReceiveOptions, receive
from rag_platform.ir import HiddenText, PageKept
from rag_platform.ledger.ledger import Ledger
from rag_platform.normalisation.edits import apply_edits
from rag_platform.releases.checks import document_checks, is_severe
from rag_platform.storage.store import Store, read_records
from rag_platform.workspace import Workspace


@pytest.mark.parametrize(
    ("words", "text", "found"),
    [
        ("the cat sat", "The cat sat.", 3),
        ("a a a", "a a", 2),  # each as often as it is there
        ("exam ple word", "an example word", 3),  # cut apart by the reader
        ("helloworld", "hello world", 1),  # joined by the reader
        ("H E A D E R", "header", 6),  # letters set apart
        ("exam\ufffe\nple", "example", 1),  # PDFium's mark of a cut word
        ("检索增强", "检索 增强", 4),
        ("คู่ คู่ มือ", "คู่มือ", 4),  # PDFium reads syllables twice
        ("คู่มือ วันนี้", "คู่มือ", 3),  # ค ม อ, but no ว นน
        ("ﬁne ＡＢＣ", "fine abc", 2),
        ("Qualit¨at f¨ur più", "Qualität für pi`u", 3),  # accents apart from their letters
        ("lost words here", "nothing of it", 0),
    ],
)
def test_words_are_found_however_readers_cut_them_apart(words: str, text: str, found: int) -> None:
    assert found_words(list(tokens(words)), text) == found


@pytest.mark.parametrize(
    ("rows", "state", "said"),
    [
        ([PageKept(1, 100, 100, 0)], "kept", "100.0% of 100 words"),
        ([PageKept(1, 100, 95, 10)], "kept", "10 of them were set aside on purpose"),
        ([PageKept(1, 100, 94, 0)], "warned", "page 1: 94% of 100"),
        ([PageKept(1, 1000, 1000, 0), PageKept(2, 20, 0, 0)], "warned", "98.0% of 1020 words"),
        ([PageKept(1, 100, 49, 0)], "failed", "page 1: 49% of 100"),
        ([PageKept(1, 6, 5, 0)], "kept", "83.3%"),  # one word, cut apart
        ([PageKept(1, 2, 0, 0)], "failed", "0.0% of 2"),
        ([PageKept(1, 0, 0, 0)], "kept", "100.0% of 0"),
    ],
)
def test_a_document_is_judged_by_its_share_and_its_pages(
    rows: list[PageKept], state: str, said: str
) -> None:
    judged = verdict(rows, TextKept())
    assert judged["text_kept_state"] == state
    assert said in judged["text_kept_details"]


def test_nothing_is_judged_without_a_second_reader() -> None:
    assert verdict([], TextKept()) == {}


@pytest.fixture
def work(
    tmp_path: Path, settings: Settings, tiny: Strategy, store: Store, ledger: Ledger
) -> VersionBuild:
    """Four pages up to their chunks: header, a line of their own, page number; hidden words on the
    second.
    """
    with pymupdf.open() as document:
        for number, line in enumerate(
            (
                "alpha beta gamma delta",
                "one two three four",
                "red green blue white",
                "north east south west",
            ),
            1,
        ):
            page = document.new_page()
            page.insert_text((72, 40), "Annual report")
            page.insert_text((72, 300), line)
            page.insert_text((72, 800), f"Page {number} of 4")
            if number == 2:
                page.insert_text((72, 500), "hidden words", color=(1, 1, 1))
        document.save(source := tmp_path / "report.pdf")
    reception = receive(
        [source],
        "default",
        Workspace(strategy=tiny, settings=settings, store=store, ledger=ledger),
        ReceiveOptions(),
    )
    work = VersionBuild(ledger.version(reception.to_process[0]), tiny, settings, store, source)
    for stage in list(STAGES)[:5]:
        build_stage(stage, work)
    return work


def measured(work: VersionBuild, **changed: object) -> list[PageKept]:
    parts = {"facts": work.facts, "normalised": work.normalised, "chunks": work.chunks, **changed}
    return measure(work.store.raw_path(work.version.file_sha256), "pdf", limits=Limits(), **parts)  # type: ignore[arg-type]


def test_every_page_is_measured_and_what_was_set_aside_is_no_loss(work: VersionBuild) -> None:
    rows = read_records(work.path("kept"), PageKept)
    assert rows == [
        PageKept(1, 10, 10, 4),  # the first header stays
        PageKept(2, 12, 12, 8),
        PageKept(3, 10, 10, 6),
        PageKept(4, 10, 10, 6),
    ]
    assert rows == measured(work)


def test_what_was_dropped_is_listed_with_page_and_reason(work: VersionBuild) -> None:
    listed = find_dropped(work.facts, work.normalised, work.chunks)
    edges = [
        (n, reason, text)
        for n in (1, 2, 3, 4)
        for reason, text in (
            ("repeated_footer", f"Page {n} of 4"),
            ("repeated_header", "Annual report"),
        )
        if (n, reason) != (1, "repeated_header")  # the first, which nothing else says, stays
    ]
    assert sorted((item.page, item.reason, item.text) for item in listed) == sorted(
        [*edges, (2, "hidden_text: no_contrast", "hidden words")]
    )
    assert word_counts(listed) == {
        "hidden_text: no_contrast": 2,
        "repeated_footer": 16,
        "repeated_header": 6,
    }
    said = " ".join(chunk.chunk_text for chunk in work.chunks)
    assert [said.count(word) for word in ("hidden", "Annual", "Page")] == [0, 1, 0]


def test_what_a_page_shows_beside_its_content_is_not_called_hidden(work: VersionBuild) -> None:
    beside = (HiddenText(0, "beside_main", "Read next"), HiddenText(0, "tiny", "unseen"))
    facts = replace(work.facts, summary=replace(work.facts.summary, hidden=beside))
    assert find_dropped(facts, work.normalised, work.chunks)[:2] == [
        Dropped(0, 0, "beside_main", "Read next"),
        Dropped(0, 0, "hidden_text: tiny", "unseen"),
    ]


def test_a_page_that_gets_lost_is_named_and_a_lost_document_fails(work: VersionBuild) -> None:
    start = work.normalised.text.index("red")
    cut = [
        replace(chunk, norm_end=min(chunk.norm_end, start))
        for chunk in work.chunks
        if chunk.norm_start < start
    ]
    rows = measured(work, chunks=cut)
    assert [(row.page, row.found) for row in rows] == [(1, 10), (2, 12), (3, 6), (4, 6)]
    judged = verdict(rows, TextKept())
    assert judged["text_kept_state"] == "warned"
    assert "page 3: 60% of 10, page 4: 60% of 10" in judged["text_kept_details"]
    lost = [
        item
        for item in find_dropped(work.facts, work.normalised, cut)
        if item.reason == "not_chunked"
    ]
    assert [(item.page, " ".join(item.text.split())) for item in lost] == [
        (3, "red green blue white north east south west")
    ]
    edits = tuple(edit for edit in work.normalised.edits if edit.rule == "blank_lines")
    nothing = verdict(
        measured(work, chunks=[], normalised=apply_edits(work.facts.text, edits)), TextKept()
    )
    assert nothing["text_kept_state"] == "failed"


def test_the_check_warns_of_a_loss_and_fails_when_most_is_lost(work: VersionBuild) -> None:
    outcome = build_stage("chunks", replace(work))
    assert [(result.name, result.passed) for result in document_checks(outcome)] == [
        ("text_kept", True)
    ]
    for state in ("warned", "failed"):
        worse = replace(outcome, counts={**outcome.counts, "text_kept_state": state})
        (result,) = document_checks(worse)
        assert (result.passed, is_severe(worse, result)) == (False, state == "failed")


def test_a_warning_of_the_ingest_names_the_loss(work: VersionBuild) -> None:
    policy = TextKept(warn_below=1.0, fail_below=1.0)
    work.writes.records(path := work.path("kept"), PageKept, [PageKept(1, 10, 2, 0)])
    work.writes.commit()
    assert path.is_file()
    outcome = build_stage(
        "chunks", replace(work, settings=work.settings.model_copy(update={"text_kept": policy}))
    )
    assert outcome.counts["text_kept_state"] == "failed"
    assert outcome.warnings[-1].startswith(
        "text may be missing: 20.0% of 10 words that a second reader finds stand in the chunks;"
        " page 1: 20% of 10"
    )


def test_noise_and_front_matter_of_a_text_are_listed_by_line(
    tmp_path: Path, settings: Settings, tiny: Strategy, store: Store, ledger: Ledger
) -> None:
    source = tmp_path / "note.md"
    source.write_text(
        "---\ntitle: T\n---\n# T\n\nKeep this line.\n\nDRAFT ONLY\n\nMail me@example.org now.\n",
        encoding="utf-8",
    )
    cleaning = CleaningConfig(
        drop_emails=True, noise=(NoiseRule(pattern="DRAFT ONLY", scope="lines"),)
    )
    strategy = tiny.model_copy(update={"cleaning": cleaning})
    reception = receive(
        [source],
        "default",
        Workspace(strategy=strategy, settings=settings, store=store, ledger=ledger),
        ReceiveOptions(),
    )
    work = VersionBuild(ledger.version(reception.to_process[0]), strategy, settings, store, source)
    outcomes = {stage: build_stage(stage, work) for stage in list(STAGES)[:5]}
    listed = find_dropped(work.facts, work.normalised, work.chunks)
    assert listed[1:] == [
        Dropped(0, 8, "noise:0", "DRAFT ONLY"),
        Dropped(0, 10, "email", "me@example.org"),
    ]
    assert (listed[0].line, listed[0].reason) == (1, "front_matter")
    assert outcomes["chunks"].counts["text_kept"] == 1.0
    assert {
        key: value
        for key, value in outcomes["sections"].counts.items()
        if key.startswith("dropped_")
    } == {
        "dropped_email": 1,
        "dropped_front_matter": 4,
        "dropped_noise:0": 2,
    }


def test_the_thresholds_stand_in_one_place() -> None:
    assert (TextKept().warn_below, TextKept().fail_below) == (0.95, 0.5)
    assert "0.95" not in Path(kept_text.__file__).read_text(encoding="utf-8")
