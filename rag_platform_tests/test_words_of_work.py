"""What people are told of work: exit codes, reasons with a remedy that helps, states and figures as
they are.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from rag_platform.errors import StorageError, full_disk
from rag_platform.ledger.schema import JobItem
from rag_platform.processes import jobs, launchers
from rag_platform.releases import building

GATE = "# Gate\n\nThe gate opens at 05:30.\n"
DOCK = "# Dock\n\nThe dock holds 12 trucks.\n"
BROKEN = b"%PDF-1.7\n1 0 obj\n<< /Type /Catalog >>\nendobj\n%%EOF\n"


# --- what could not be taken --------------------------------------------------------------------


@pytest.mark.integration
def test_a_folder_of_which_nothing_could_be_taken_is_nothing_done(desk: Any) -> None:
    for number in range(3):
        (desk.docs / f"picture{number}.heic").write_bytes(b"\x00\x01")
    told = desk.call("ingest", desk.docs)
    assert (told.exit_code, told.data["ignored"], told.data["release_id"]) == (1, 3, None)
    desk.write(gate=GATE)
    assert desk.call("ingest", desk.docs).exit_code == 0
    assert desk.call("ingest", desk.docs).exit_code == 0  # nothing new is no failure


@pytest.mark.integration
@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("ftp://host/a.pdf", "ftp:// is not read, only http:// and https:// are; download it"),
        (
            "file:///srv/a.pdf",
            "file:// is not read, only http:// and https:// are; give the path: /srv/a.pdf",
        ),
        ("nowhere/a.pdf", "no file or folder at nowhere/a.pdf"),
    ],
)
def test_what_is_no_file_is_told_as_what_it_is(desk: Any, given: str, words: str) -> None:
    told = desk.call("ingest", given)
    assert told.exit_code == 2 and words in told.error["message"]


def test_a_retry_is_promised_only_where_it_may_help() -> None:
    def item(code: str) -> JobItem:
        return JobItem("docs/a.pdf", "a", "default.a@1", "new", "failed", code)

    passing = jobs.describe_failures([item("timeout")], "job_1")
    lasting = jobs.describe_failures([item("encrypted"), item("empty_file")], "job_1")
    both = jobs.describe_failures([item("timeout"), item("encrypted")], "job_1")
    assert passing == "1 document failed; `rag jobs retry job_1` tries them again"
    assert (
        "jobs retry" not in lasting
        and "2 documents failed, and trying again changes nothing: mend or replace the file"
        in lasting
    )
    assert "`rag jobs retry job_1` tries 1 of them again" in both and "mend or replace" in both
    refused = jobs.describe_failures([item("address_refused"), item("http_refused")], "job_1")
    assert "jobs retry" not in refused and "change the setting that its reason names" in refused


# --- jobs ---------------------------------------------------------------------------------------


@pytest.mark.integration
def test_who_comes_a_moment_later_is_told_at_once(desk: Any) -> None:
    """A job that was launched and does not hold the lock yet is ahead all the same."""
    desk.write(gate=GATE)
    desk.call("ingest", desk.docs)
    with desk.ledger() as ledger:
        ahead = ledger.add_job("ingest", "default", {})
        began = time.monotonic()
        refused = desk.call("ingest", desk.docs, "--wait", "0.3")
        assert time.monotonic() - began >= 0.3
        assert (refused.exit_code, refused.error["code"]) == (
            1,
            "busy",
        ) and ahead.job_id in refused.error["message"]
        assert len(ledger.jobs("default")) == 2
        ledger.update_job(ahead.job_id, state="done")
    assert desk.call("ingest", desk.docs).exit_code == 0


@pytest.mark.integration
def test_the_list_of_jobs_says_of_what_and_knows_documents_that_were_given_up(desk: Any) -> None:
    desk.write(gate=GATE)
    desk.call("ingest", desk.docs)
    listed = desk.call("jobs", "list")
    assert (
        listed.data["namespace"] == "default"
        and "Of library 'default' alone; `rag jobs list --all`" in listed.data["markdown"]
    )
    everywhere = desk.call("jobs", "list", "--all").data
    assert everywhere["namespace"] is None and "alone" not in everywhere["markdown"]
    assert desk.call("jobs", "list", "--state", "dead").data["jobs"] == []
    with desk.ledger() as ledger:
        reading = {"documents": {"done": 1, "total": 9}, "pages": {"done": 7, "total": 60}}
        job = ledger.add_job("ingest", "default", {})
        progress = {"stage": "pages", **reading["pages"], "stages": reading}
        process = launchers.of_process(os.getpid())
        ledger.update_job(job.job_id, state="running", progress=progress, **process)
        running = desk.call("jobs", "list", "--state", "running").data["markdown"]
        assert "pages 7 of 60 known so far" in running
        ledger.update_job(job.job_id, state="done")
        job = ledger.add_job(
            "ingest",
            "default",
            {},
            [JobItem("docs/b.pdf", "b", "default.b@1", "dead", "dead", "broken_file", "no PDF")],
        )
        ledger.update_job(job.job_id, state="partly")
    assert [row["job_id"] for row in desk.call("jobs", "list", "--state", "dead").data["jobs"]] == [
        job.job_id
    ]


def test_a_full_disk_is_told_with_what_is_kept_free_and_the_job(tmp_path: Path) -> None:
    with pytest.raises(StorageError) as raised:
        building.require_space(tmp_path, 10**18 + building.RESERVE)
    assert (
        "33.6 MB are kept free for the ledger, logs and Dagster" in raised.value.message
        and "JOB" not in raised.value.message
    )
    assert jobs.add_retry(full_disk(tmp_path), "job_7").endswith(
        "what nothing needs); `rag jobs retry job_7` does the work then"
    )


# --- documents ----------------------------------------------------------------------------------


@pytest.mark.integration
def test_a_document_whose_newest_version_failed_says_so(desk: Any) -> None:
    desk.write(dock=DOCK)
    desk.publish()
    (desk.docs / "dock.md").write_bytes(b"")
    assert desk.call("ingest", desk.docs, "--sync").exit_code in (1, 3)
    asked = ("query", "How many trucks does the dock hold?", "--mode", "sparse")
    (warning,) = desk.call(*asked).envelope["warnings"]
    assert warning.startswith(
        "docs/dock.md: the newest version could not be read, and the one before is cited:"
        " [empty_file]"
    )
    (document,) = desk.call("docs", "list").data["groups"][0]["documents"]
    assert (document["status"], document["chunks"]) == ("active", 1) and document[
        "problem"
    ].startswith("[empty_file]")
    assert "its newest version failed: [empty_file]" in desk.call("docs", "list").data["markdown"]
    (status,) = desk.call("status").data["namespaces"]
    assert (status["documents"], status["failed"]) == (1, 1)
    (desk.docs / "dock.md").write_text(DOCK.replace("12", "14"), encoding="utf-8")
    desk.call("ingest", desk.docs, "--sync")
    assert desk.call("docs", "list").data["groups"][0]["documents"][0]["problem"] == ""
    assert desk.call(*asked).envelope["warnings"] == []


@pytest.mark.integration
def test_beside_what_is_not_found_stands_what_could_not_be_read(desk: Any) -> None:
    desk.write(dock=DOCK)
    (desk.docs / "lease.pdf").write_bytes(b"%PDF-1.4 broken")
    (desk.docs / "logo.md").write_bytes(b"")
    assert desk.call("ingest", desk.docs).exit_code == 3
    asked = ("query", "--mode", "sparse")
    missed = desk.call(*asked, "Which notice period does the lease stipulate?")
    assert missed.data["state"] != "answered" and missed.envelope["warnings"] == [
        "could not be read and may say more: docs/lease.pdf"
    ]
    assert desk.call(*asked, "How many trucks does the dock hold?").envelope["warnings"] == []
    for name in ("lease.pdf", "logo.md"):
        (desk.docs / name).unlink()
    desk.call("ingest", "--sync")
    missed = desk.call(*asked, "Which notice period does the lease stipulate?")
    assert missed.envelope["warnings"] == []


@pytest.mark.integration
def test_what_a_file_and_a_user_say_of_a_document_is_seen_and_filters(desk: Any) -> None:
    desk.write(gate="---\ntags: [harbour]\n---\n# Gate\n\nThe gate opens at 05:30.\n")
    desk.call("ingest", desk.docs, "--meta", "team=blue", "--meta", "year=2024")
    desk.write(dock=DOCK)
    desk.call("ingest", desk.docs / "dock.md", "--meta", "team=red")
    rows = {d["filename"]: d for d in desk.call("docs", "list").data["groups"][0]["documents"]}
    assert rows["gate.md"]["tags"] == ["harbour"] and rows["dock.md"]["tags"] == []
    assert [
        d["filename"]
        for d in desk.call("docs", "list", "--filter", "tags=harbour").data["groups"][0][
            "documents"
        ]
    ] == ["gate.md"]
    shown = desk.call("docs", "show", rows["gate.md"]["doc_id"]).data
    assert (
        shown["document"]["metadata"]["team"] == "blue"
        and "team: blue" in shown["markdown"]
        and "tags: " in shown["markdown"]
    )

    def found(*filters: str) -> set[str]:
        given = [part for condition in filters for part in ("--filter", condition)]
        results = desk.call("query", "gate dock", "--mode", "sparse", *given).data["results"]
        return {result["citation"]["source_uri"].rpartition("/")[2] for result in results}

    assert found("metadata.team=blue") == {"gate.md"} and found("metadata.team=red") == {"dock.md"}
    assert (
        found("metadata.year=2024") == {"gate.md"}
        and found('metadata.year={"$gte": 2025}') == set()
    )
    assert found('metadata.team={"$ne": "blue"}') == {"dock.md"} and found(
        'metadata.team={"$contains": "LU"}'
    ) == {"gate.md"}
    assert (
        desk.call("query", "gate", "--filter", "metadata.te'am=x").error["code"] == "unknown_filter"
    )


# --- figures ------------------------------------------------------------------------------------


def test_a_slow_stage_is_not_told_as_none_a_second() -> None:
    assert [jobs.pace(each) for each in (12.34, 1.0, 0.04, 0.0005)] == [
        "12.3 a second",
        "1.0 a second",
        "2.4 a minute",
        "1.8 an hour",
    ]


def test_time_left_counts_what_is_still_to_be_embedded(store: Any, ledger: Any) -> None:
    """4 of 10 documents are read after 8 s and 40 texts of them known, 20 of which are embedded: 80
    more texts at 2.5 a second.
    """
    job = ledger.add_job("ingest", "default", {})
    clock = {"since": "2026-01-01T00:00:00+00:00", "at": "2026-01-01T00:00:08+00:00"}
    stages = {
        "documents": {"done": 4, "total": 10, **clock},
        "embeddings": {"done": 20, "total": 40, **clock},
    }
    ledger.update_job(
        job.job_id,
        state="running",
        progress={"stage": "documents", **stages["documents"], "stages": stages},
    )
    assert jobs.seconds_left(ledger.job(job.job_id)) == pytest.approx(80 / 2.5)
    assert (
        "embeddings: 20 of 40 known so far"
        in jobs.report(ledger.job(job.job_id), [], store)["markdown"]
    )
