"""Jobs that start from the command line and what a retry takes up: the documents left undone, from
where they were, and nothing else.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from rag_platform.ingestion.job_start import _inputs, _list_undone, ingest_data, start_ingest
from rag_platform.intake.receiving import ReceiveOptions
from rag_platform.ir import Document, Version
from rag_platform.ledger.schema import Job, JobItem, Source
from rag_platform.processes import jobs
from rag_platform.workspace import DataRoot
from rag_platform_tests.jobs_here import run_here

GATE = "# Gate\n\nThe gate opens at 05:30.\n"
DOCK = "# Dock\n\nThe dock holds 12 trucks.\n"


def put(
    ledger: Any, name: str, status: str = "failed", counts: dict[str, Any] | None = None
) -> str:
    """The version_id of a document in the ledger."""
    version = Version(
        f"default.{name}@1",
        "default",
        name,
        f"docs/{name}.md",
        f"{name}.md",
        "0" * 64,
        1,
        "text/markdown",
        "markdown",
        "tiny",
    )
    document = Document("default", name, "docs", f"docs/{name}.md", f"{name}.md")
    ledger.receive([(document, version)])
    if status == "ready":
        ledger.complete(version.version_id, title=name, counts=counts or {})
    if status in ("failed", "dead"):
        ledger.fail(
            version.version_id, "broken", "it is broken", max_attempts=1 if status == "dead" else 0
        )
    return version.version_id


def item(name: str, state: str, version: str = "1") -> JobItem:
    return JobItem(
        f"docs/{name}.md", name, f"default.{name}@{version}" if version else "", "new", state
    )


def test_what_a_job_left_undone(ledger: Any) -> None:
    """Failed, given up, cancelled and unprocessed ones; not what was done since, replaced, deleted
    or retired.
    """
    for name in ("failed", "cancelled", "queued", "replaced", "deleted", "retired"):
        put(ledger, name)
    put(ledger, "dead", "dead")
    put(ledger, "done", "ready", {"profile": "p"})
    put(ledger, "stale", "ready", {"profile": "old"})
    put(ledger, "crashed", "received")  # the job's process died between two rows of the ledger
    ledger.delete("default", "deleted", None, "soft")
    ledger.retire("default", ["retired"])
    items = [
        item(name, "failed")
        for name in ("failed", "dead", "done", "stale", "deleted", "retired", "purged")
    ]
    items += [
        item("cancelled", "cancelled"),
        item("queued", "queued"),
        item("crashed", "done"),
        item("replaced", "failed", "0"),
    ]
    items += [item("missing", "failed", "")]
    undone = _list_undone(items, "default", "p", ledger)
    assert [one.doc_id for one in undone] == [
        "failed",
        "dead",
        "stale",
        "cancelled",
        "queued",
        "crashed",
    ]
    assert {(one.state, one.decision, one.code) for one in undone} == {("queued", "continue", "")}


def test_where_refused_files_are_read_from(ledger: Any, tmp_path: Path) -> None:
    ledger.put_source(Source("default", "docs", "folder", str(tmp_path / "docs")))
    job = Job(
        "job_1",
        "ingest",
        "default",
        args={"places": {"files/a/x.md": "/elsewhere/a/x.md", "lost.md": "/elsewhere/lost.md"}},
    )
    refused = [
        JobItem(uri, "", "", "refused", "failed")
        for uri in (
            "https://example.org/a",
            "files/a/x.md",
            "lost.md",
            "docs/sub/y.md",
            "inline/z.md",
        )
    ]
    ignored = JobItem("docs/no.bin", "", "", "ignored", "skipped")
    assert _inputs([*refused, ignored], job, ledger) == [
        "https://example.org/a",
        Path("/elsewhere/a/x.md"),
        Path("/elsewhere/lost.md"),
        tmp_path / "docs/sub/y.md",
    ]


def test_the_payload_counts_what_landed_and_what_did_not(
    settings: Any, store: Any, ledger: Any
) -> None:
    states = {"a": "done", "b": "failed", "c": "dead", "d": "queued", "e": "cancelled"}
    job = ledger.add_job(
        "ingest", "default", {}, [item(name, state) for name, state in states.items()]
    )
    data = ingest_data(job, DataRoot(settings=settings, store=store, ledger=ledger), 2.0)
    assert (data["new"], data["failed"], data["unprocessed"]) == (1, 2, 2)
    assert [one["doc_id"] for one in data["documents"]] == ["a"] and len(data["failures"]) == 2
    assert "1 new, 2 failed, 2 unprocessed" in data["markdown"]


@pytest.mark.integration
def test_only_what_failed_is_tried_again(desk: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that was not there is received from where it was looked for; the others are not
    touched.
    """
    monkeypatch.setattr(jobs, "launch", run_here)
    desk.write(gate=GATE, dock=DOCK)
    missing = desk.folder / "late.md"
    with desk.ledger() as ledger:
        root = DataRoot(settings=desk.settings, store=desk.store, ledger=ledger)
        workspace = root.workspace("default")
        options = ReceiveOptions(tags=("night",))
        started = start_ingest([desk.docs, missing], "default", workspace, options)
        started.process.wait(120)
        job = ledger.job(started.job.job_id)
        first = ingest_data(job, root, 0.0)
        assert (first["failed"], first["failures"][0]["code"]) == (1, "missing_path")
        assert job.state == "partly" and job.args["places"] == {"late.md": str(missing)}

        missing.write_text("# Late\n\nIt came later.\n", encoding="utf-8")
        retried = desk.call("jobs", "retry", job.job_id)
        assert retried.exit_code == 0
        assert [(one["source_uri"], one["decision"]) for one in retried.data["documents"]] == [
            ("files/late.md", "new")
        ]
        assert retried.data["embeddings_computed"] == 1
        (late,) = [
            document for document, _ in ledger.live("default") if document.filename == "late.md"
        ]
        assert late.tags == ("night",)  # taken as it was asked for
        assert ledger.job(retried.data["job_id"]).args["retry_of"] == job.job_id

        nothing = desk.call("jobs", "retry", retried.data["job_id"])
        assert (nothing.exit_code, nothing.error["code"]) == (1, "nothing_to_retry")


@pytest.mark.integration
def test_a_sync_tells_a_lasting_failure_again_but_alarms_only_once(desk: Any) -> None:
    """By the exit code: 3 for bytes that no sync before has met, 0 for those that have not changed
    since it told them.
    """

    def sync() -> tuple[int, int, int, list[str]]:
        found = desk.call("ingest", desk.docs, "--sync")
        failures = [failure["source_uri"] for failure in found.data["failures"]]
        return found.exit_code, found.data["failed"], found.data["failed_before"], failures

    desk.write(gate=GATE)
    empty, odd = desk.docs / "empty.md", desk.docs / "odd.md"
    empty.write_bytes(b"")
    assert sync() == (3, 1, 0, ["docs/empty.md"])
    assert sync() == (0, 1, 1, ["docs/empty.md"])
    with desk.ledger() as ledger:  # it is not tried again, and nothing is wrong with the job
        (second, first) = ledger.jobs()
        assert (first.state, second.state) == ("partly", "done")
        assert second.reason == "1 document failed as before" and second.args["version_ids"] == []
    assert "- failed as before: docs/empty.md" in desk.call("ingest", desk.docs, "--sync").said
    odd.write_bytes(b"\n")
    assert sync() == (3, 2, 1, ["docs/odd.md", "docs/empty.md"])
    odd.write_bytes(b" \n")
    assert sync() == (3, 2, 1, ["docs/odd.md", "docs/empty.md"])
    empty.write_text("# Mended", encoding="utf-8")
    assert sync() == (0, 1, 1, ["docs/odd.md"])
    empty.write_bytes(b"")  # as it was long ago
    assert sync() == (3, 2, 1, ["docs/empty.md", "docs/odd.md"])
    assert desk.call("ingest", desk.docs).exit_code == 3  # nobody asked for news alone
    (desk.docs / "new.md").write_bytes(b"")
    assert desk.call("ingest", desk.docs).exit_code == 3  # maybe in a page, and told nobody else
    assert sync() == (3, 3, 2, ["docs/new.md", "docs/empty.md", "docs/odd.md"])
    assert sync()[:3] == (0, 3, 3)


@pytest.mark.integration
def test_a_file_that_was_given_up_waits_for_a_person(desk: Any) -> None:
    settings = desk.folder / "config" / "settings.yaml"
    settings.write_text(
        settings.read_text(encoding="utf-8").replace("jobs: {", "jobs: {max_attempts: 2, "),
        encoding="utf-8",
    )
    desk.write(gate=GATE)
    (desk.docs / "empty.md").write_bytes(b"")
    assert desk.call("ingest", desk.docs).exit_code == 3
    second = desk.call("ingest", desk.docs)
    assert (second.exit_code, second.data["failed"]) == (3, 1)
    with desk.ledger() as ledger:
        assert [i.state for i in ledger.job_items(second.data["job_id"])] == ["dead", "skipped"]
        release = second.data["release_id"]
        third = desk.call("ingest", "--sync")
        assert (
            third.exit_code,
            third.data["failed"],
            third.data["skipped"],
            third.data["release_id"],
        ) == (3, 1, 1, release)
        assert third.data["failures"][0]["reason"] == "the file is empty, 0 bytes; nothing to index"
        job = ledger.job(third.data["job_id"])
        # nothing was started
        assert job.state == "partly" and job.args["version_ids"] == [] and job.pid == 0

        assert desk.call("jobs", "retry", third.data["job_id"]).error["code"] == "nothing_to_retry"
        tried = desk.call("jobs", "retry", "--all")
        assert tried.data["failed"] == 1 and "given up" not in tried.data["failures"][0]["reason"]
        (empty,) = [
            version for version in ledger.versions("default") if version.filename == "empty.md"
        ]
        assert (empty.status, empty.attempts) == ("failed", 1)
        assert desk.call("jobs", "retry", "--all").data["failed"] == 1
    (desk.docs / "empty.md").unlink()
    assert desk.call("ingest", "--sync").exit_code == 0
    nothing = desk.call("jobs", "retry", "--all")
    assert (nothing.exit_code, nothing.error["code"]) == (1, "nothing_to_retry")


@pytest.mark.integration
def test_a_job_of_broken_files_and_an_odd_name_promises_and_counts_the_same(desk: Any) -> None:
    """Retries leave alone what fails again as it is, and the status tells of every failure until a
    newer look at the folder.
    """
    desk.write(gate=GATE, dock=DOCK)
    (desk.docs / "empty.md").write_bytes(b"")
    (desk.docs / "nul.md").write_bytes(b"\0\1\2\0" * 50)
    odd = Path(os.fsdecode(os.fsencode(desk.docs) + b"/caf\xe9.md"))
    odd.write_text(DOCK, encoding="utf-8")

    def failed() -> tuple[int, list[str]]:
        (row,) = desk.call("status").data["namespaces"]
        return row["failed"], [one["source_uri"] for one in row["failures"]]

    first = desk.call("ingest", desk.docs)
    three = ["docs/caf\\xe9.md", "docs/empty.md", "docs/nul.md"]
    assert (first.exit_code, first.data["failed"], failed()) == (3, 3, (3, three))
    job_id = first.data["job_id"]
    refused = desk.call("jobs", "retry", job_id)
    assert (refused.exit_code, refused.error["code"]) == (1, "nothing_to_retry")
    assert "mend or replace a file or address that failed" in refused.error["message"]

    with desk.ledger() as ledger:  # one of them is said to be worth another try
        (nul,) = [one for one in ledger.versions("default") if one.filename == "nul.md"]
        ledger.update_job_item(job_id, nul.version_id, "failed", "timeout", "it took too long")
        # and a release is due
        ledger.retire("default", [d.doc_id for d, _ in ledger.live("default") if d.title == "Dock"])
    retried = desk.call("jobs", "retry", job_id)
    assert [one["source_uri"] for one in retried.data["failures"]] == ["docs/nul.md"]
    assert retried.data["release_id"] != first.data["release_id"]
    assert (retried.exit_code, failed()) == (3, (3, three))

    alone = desk.folder / "alone.md"
    alone.write_text(DOCK, encoding="utf-8")
    desk.call("ingest", alone)
    assert failed() == (3, three)
    odd.rename(desk.docs / "cafe.md")
    assert desk.call("ingest", desk.docs).data["new"] == 1
    assert failed() == (2, three[1:])


def test_a_retry_names_a_job_or_all(desk: Any) -> None:
    for arguments in ((), ("job_1", "--all")):
        answer = desk.call("jobs", "retry", *arguments)
        assert (answer.exit_code, answer.error["code"]) == (2, "usage")
    assert desk.call("jobs", "retry", "job_1").error["code"] == "unknown_job"
    assert desk.call("jobs", "retry", "--all").error["code"] == "unknown_namespace"
    with desk.ledger() as ledger:
        job = ledger.add_job("ingest", "default", {})
        assert desk.call("jobs", "retry", job.job_id).error["code"] == "job_not_over"
        done = ledger.add_job("gc", "default", {})
        ledger.update_job(done.job_id, state="done")
        assert desk.call("jobs", "retry", done.job_id).error["code"] == "nothing_to_retry"


def test_an_empty_folder_is_said_to_be_empty_and_leaves_no_library(desk: Any) -> None:
    ended = desk.call("ingest", desk.docs)
    assert ended.data["markdown"].startswith("no file was found, in ") and ended.exit_code == 1
    with desk.ledger() as ledger:
        assert ledger.namespaces() == {}


def test_a_library_of_a_broken_file_alone_says_so_and_goes_with_the_file(desk: Any) -> None:
    (desk.docs / "empty.md").write_bytes(b"")
    assert desk.call("ingest", desk.docs).exit_code == 1
    listed = desk.call("namespaces", "list").data
    assert listed["markdown"] == ("default  nothing published yet: 0 not yet published, 1 failed")
    assert desk.call("query", "anything").error["message"] == (
        "nothing of library 'default' is published: 1 document failed; `rag status` says why"
    )
    with desk.ledger() as ledger:
        job_id = ledger.add_job("ingest", "default", {}).job_id
        assert desk.call("query", "anything").error["message"] == (
            f"nothing of library 'default' is published: {job_id} is at work; `rag jobs show"
            f" {job_id}` says how far it is"
        )
        ledger.update_job(job_id, state="done")
    (desk.docs / "empty.md").unlink()
    desk.call("ingest", "--sync")
    assert desk.call("namespaces", "list").data["namespaces"] == []
