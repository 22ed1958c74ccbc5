"""Pinning a version, letting it go, editing what a document carries: as commands, with the releases
that follow.
"""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.integration

GATE = "# Gate\n\nThe gate opens at 05:30.\n"


def opens(desk: Any) -> str:
    """What the published release says of the gate."""
    return str(
        desk.call("query", "When does the gate open?", "--mode", "sparse").data["answer_markdown"]
    )


def short(desk: Any, place: int) -> str:
    """The hash of a version of the gate, newest first."""
    rows = desk.call("docs", "history", "gate.md").data["versions"]
    return str(rows[place]["version_id"]).rpartition("@")[2]


@pytest.fixture
def two_versions(desk: Any) -> None:
    for hour in ("05:30", "06:45"):
        desk.write(gate=GATE.replace("05:30", hour))
        desk.publish()


@pytest.mark.usefixtures("two_versions")
def test_a_pinned_version_stays_until_it_is_let_go(desk: Any) -> None:
    old = short(desk, 1)
    pinned = desk.call("docs", "live", "gate.md", old)
    assert (
        pinned.exit_code,
        pinned.data["pinned"],
        pinned.data["live_version"].rpartition("@")[2],
    ) == (0, True, old)
    assert "05:30" in opens(desk)

    desk.write(gate=GATE.replace("05:30", "08:00"))
    synced = desk.call("ingest", "--sync").data
    assert (synced["new_versions"], synced["notes"][0]["source_uri"]) == (1, "docs/gate.md")
    assert (
        f"pinned to {pinned.data['live_version']}" in synced["notes"][0]["reason"]
        and "- new version: docs/gate.md" in synced["markdown"]
    )
    assert "05:30" in opens(desk)
    again = desk.call("ingest", "--sync").data
    assert (again["skipped"], len(again["notes"])) == (1, 1)
    shown = desk.call("docs", "history", "gate.md").data
    assert [(row["pinned"], row["wanted"]) for row in shown["versions"]] == [
        (False, True),
        (False, False),
        (True, False),
    ]

    gone = desk.call("docs", "live", "gate.md", "--unpin")
    assert (gone.data["pinned"], gone.data["live_version"]) == (False, shown["wanted_version"])
    assert "08:00" in opens(desk)
    assert desk.call("docs", "live", "gate.md", "--unpin").error["code"] == "not_pinned"


@pytest.mark.usefixtures("two_versions")
def test_an_edit_after_a_rollback_says_that_it_ended_it(desk: Any) -> None:
    assert "rollback" not in desk.call("docs", "edit", "gate.md", "--tag", "a").data["markdown"]
    back = desk.call("releases", "rollback").data["release"]["release_id"]
    for command in (("edit", "gate.md", "--tag", "b"), ("live", "gate.md", short(desk, 1))):
        told = desk.call("docs", *command).data["markdown"]
        assert f"this ended the rollback to {back}:" in told
        back = desk.call("releases", "rollback").data["release"]["release_id"]


@pytest.mark.usefixtures("two_versions")
def test_a_version_of_another_config_is_built_before_it_is_pinned(desk: Any) -> None:
    strategy = desk.folder / "config" / "strategies" / "tiny.yaml"
    strategy.write_text(
        strategy.read_text(encoding="utf-8").replace("chunk_size: 400", "chunk_size: 300"),
        encoding="utf-8",
    )
    desk.call("rebuild")
    old = short(desk, 1)
    with desk.ledger() as ledger:
        (document,) = ledger.documents("default")
        raw = desk.store.raw_path(ledger.versions("default")[0].file_sha256)
    kept = raw.read_bytes()
    raw.unlink()
    failed = desk.call("docs", "live", "gate.md", old)
    assert (failed.exit_code, failed.error["code"]) == (
        1,
        "live_failed",
    ) and "nothing was pinned" in failed.error["message"]
    with desk.ledger() as ledger:
        assert ledger.document("default", document.doc_id).live_version == document.live_version
    raw.write_bytes(kept)
    assert desk.call("docs", "live", "gate.md", old).exit_code == 0
    assert "05:30" in opens(desk)


@pytest.mark.usefixtures("two_versions")
def test_what_was_deleted_cannot_be_pinned(desk: Any) -> None:
    old = short(desk, 1)
    with desk.ledger() as ledger:
        (document,) = ledger.documents("default")
        ledger.delete("default", document.doc_id, ledger.versions("default")[0].version_id, "soft")
    assert desk.call("docs", "live", "gate.md", old).error["code"] == "version_deleted"
    assert desk.call("docs", "live", "gate.md", "feed").error["code"] == "unknown_version"
    assert desk.call("docs", "live", "gate.md").exit_code == 2


def test_what_a_document_carries_is_edited_and_stays(desk: Any) -> None:
    desk.write(gate=GATE)
    desk.publish()
    edited = desk.call(
        "docs",
        "edit",
        "gate.md",
        "--title",
        "The gate",
        "--tag",
        "yard",
        "--category",
        "rules",
        "--meta",
        "owner=me",
    ).data
    assert (edited["title"], edited["tags"], edited["categories"]) == (
        "The gate",
        ["yard"],
        ["rules"],
    )
    assert edited["metadata"] == {"owner": "me", "title": "The gate"}
    asked = desk.call(
        "query",
        "gate",
        "--filter",
        "tags=yard",
        "--filter",
        "doc_title=The gate",
        "--mode",
        "sparse",
    ).data
    assert len(asked["results"]) == 1

    # a newer file changes the text, not what a person said of it
    desk.write(gate=GATE.replace("05:30", "06:45").replace("# Gate", "# Door"))
    desk.call("ingest", "--sync")
    (listed,) = desk.call("docs", "list").data["groups"][0]["documents"]
    assert (listed["title"], listed["tags"]) == ("The gate", ["yard"])

    same = desk.call("docs", "edit", "gate.md", "--tag", "yard")
    assert (same.exit_code, same.data["changed"], same.data["job_id"]) == (0, False, None)
    back = desk.call(
        "docs",
        "edit",
        "gate.md",
        "--title",
        "",
        "--untag",
        "yard",
        "--uncategory",
        "rules",
        "--unmeta",
        "owner",
    ).data
    assert (back["title"], back["tags"], back["categories"], back["metadata"]) == (
        "Door",
        [],
        [],
        {},
    )
    assert desk.call("docs", "edit", "gate.md", "--untag", "yard").error["code"] == "not_there"
    assert desk.call("docs", "edit", "gate.md").exit_code == 2
