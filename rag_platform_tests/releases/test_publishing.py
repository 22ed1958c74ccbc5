"""Releases of a namespace over time: back, forward, pinned, dropped; and what no crash and no
second writer may do to them.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any

import pytest

from rag_platform.answering.engine import answer
from rag_platform.config.settings import ReleasePolicy
from rag_platform.documents import provenance
from rag_platform.errors import BusyError, NotFoundError, ReleaseError
from rag_platform.ingestion.batches import ingest_versions
from rag_platform.intake.receiving import ReceiveOptions, receive
from rag_platform.ir import QueryRequest
from rag_platform.releases import building
from rag_platform.releases import release_store as releases
from rag_platform.releases.manifest import (
    VERSION_FIELDS,
    VERSIONS,
    read_manifest,
    write_versions,
)
from rag_platform.releases.publishing import (
    build_candidate,
    go_forward,
    history,
    is_behind_ledger,
    newest_candidate,
    pin_release,
    publish_candidate,
    roll_back,
)
from rag_platform_tests.broken_providers import Misreader
from rag_platform_tests.conftest import MISREADING

pytestmark = pytest.mark.integration


@pytest.fixture
def take(shelf: Any, tmp_path: Path) -> Callable[..., str]:
    """Publishes a release that holds these texts besides what was there; gives its id."""

    def publish(sync: bool = False, **texts: str) -> str:
        folder = tmp_path / "docs"
        folder.mkdir(exist_ok=True)
        for name, text in texts.items():
            (folder / f"{name}.md").write_text(text, encoding="utf-8")
        release_id: str = shelf.ingest(folder, sync=sync)
        return release_id

    return publish


@pytest.fixture
def misread(shelf: Any, tmp_path: Path, config_folder: Path) -> Any:
    """The workspace of a strategy that reads 12 in texts as 21, with a published document."""
    (config_folder / "strategies" / "misread.yaml").write_text(MISREADING, encoding="utf-8")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "dock.txt").write_text("The dock is yellow.\n", encoding="utf-8")
    shelf.ingest(tmp_path / "docs", strategy="misread")
    return shelf.workspace("misread")


def test_a_document_that_its_file_does_not_prove_holds_no_other_back(
    shelf: Any, misread: Any, tmp_path: Path
) -> None:
    docs, (before,) = tmp_path / "docs", shelf.ledger.live("default")
    (docs / "dock.txt").write_text("The dock holds 12 trucks.\n", encoding="utf-8")
    (docs / "gate.txt").write_text("The gate has 12 bars.\n", encoding="utf-8")
    (docs / "ramp.txt").write_text("The ramp is steep.\n", encoding="utf-8")
    received = receive((docs,), "default", misread, ReceiveOptions())
    job = shelf.ledger.add_job("ingest", "default", {}, received.items)
    ingest_versions([shelf.ledger.version(name) for name in received.to_process], misread)
    manifest, _ = build_candidate("default", misread)
    assert manifest.failures == []
    publish_candidate("default", manifest.release_id, misread)
    assert found(shelf, "dock gate ramp yellow trucks bars") == {"dock.txt", "ramp.txt"}
    assert before[1] in [version for _, version in shelf.ledger.live("default")]
    given_up = {item.source_uri: item for item in shelf.ledger.failed_job_items(job.job_id)}
    assert given_up.keys() == {"docs/dock.txt", "docs/gate.txt"}
    gate = given_up["docs/gate.txt"]
    assert (gate.state, gate.code) == ("dead", "not_proved") and "block_bytes" in gate.reason
    assert not behind(shelf)
    # until the file or the program changes
    assert not list(receive((docs,), "default", misread, ReceiveOptions()).to_process)


def test_a_full_build_gives_up_nothing_that_is_published(
    shelf: Any, misread: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though it takes the place of the published release, and so has another parent."""
    monkeypatch.setattr(
        provenance,
        "_find_bad_blocks",
        lambda found, name, blocks, limits: {block.ordinal: "block_bytes: ..." for block in blocks},
    )
    manifest, _ = build_candidate("default", misread, full=True)
    assert "replaces" in manifest.delta
    assert [check.name for check in manifest.failures] == ["provenance_proved"]
    assert len(shelf.ledger.live("default")) == 1


def test_a_published_document_is_not_given_up(
    shelf: Any, misread: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that reads it worse must not take it away."""
    monkeypatch.setattr(Misreader, "WRONG", "yellow")
    ((_, version),) = shelf.ledger.live("default")
    ingest_versions([version], misread, forced=[version.version_id])
    manifest, _ = build_candidate("default", misread)
    assert [check.name for check in manifest.failures] == ["provenance_proved"]
    assert found(shelf, "yellow dock") == {"dock.txt"}


def read(shelf: Any) -> str | None:
    return releases.current(shelf.store, "default")


def states(shelf: Any) -> dict[str, str]:
    return {row.release_id: row.state for row in shelf.ledger.releases("default")}


def behind(shelf: Any) -> bool:
    return is_behind_ledger("default", shelf.root)


def found(shelf: Any, question: str) -> set[str]:
    """The documents that answer a question now."""
    library = shelf.library()
    try:
        return {
            hit.filename
            for hit in answer(library, QueryRequest(question, mode="sparse", answer=False)).hits
        }
    finally:
        library.close()


def test_back_and_forward(shelf: Any, take: Any) -> None:
    """Nothing goes forward by itself: an unchanged folder leaves the release that somebody went
    back to.
    """
    first = take(a="# Gate\n\nOpens at five.\n")
    second = take(b="# Dock\n\nHolds trucks.\n")
    with pytest.raises(ReleaseError) as raised:
        go_forward("default", shelf.root)
    assert raised.value.code == "nothing_to_go_forward" and read(shelf) == second

    back = roll_back("default", None, shelf.root)
    assert (back.release_id, back.state, read(shelf)) == (first, "published", first)
    assert states(shelf) == {second: "retired", first: "published"} and not behind(shelf)
    assert found(shelf, "gate trucks") == {"a.md"}

    forward = go_forward("default", shelf.root)
    assert (forward.release_id, read(shelf)) == (second, second) and states(shelf) == {
        second: "published",
        first: "retired",
    }
    assert found(shelf, "gate trucks") == {"a.md", "b.md"}


def test_a_clock_that_was_put_back_does_not_make_a_new_release_an_old_one(
    shelf: Any, take: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Ahead(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Any:
            return datetime.now(tz) + timedelta(days=10)

    with monkeypatch.context() as patched:
        patched.setattr(building, "datetime", Ahead)
        first = take(a="# Gate\n\nOpens at five.\n")
    second = take(a="# Gate\n\nOpens at six.\n", b="# Dock\n\nHolds trucks.\n")
    assert states(shelf) == {second: "published", first: "retired"} and read(shelf) == second
    assert [row["release_id"] for row in history("default", shelf.root)] == [second, first]


def test_a_document_that_comes_back_needs_a_release_that_does_not_hide_it(
    shelf: Any, take: Any, tmp_path: Path
) -> None:
    """The release that was gone back to holds the very version, but from before its deletion."""
    first = take(a="# Gate\n\nOpens at five.\n", b="# Dock\n\nHolds trucks.\n")
    shelf.ledger.delete("default", shelf.ledger.live("default")[0][0].doc_id, None, "soft")
    shelf.ingest(tmp_path / "docs" / "b.md")
    roll_back("default", first, shelf.root)
    assert found(shelf, "gate trucks") == {"b.md"} and not behind(shelf)

    parts = shelf.workspace()
    again = receive([tmp_path / "docs" / "a.md"], "default", parts, ReceiveOptions())
    ingest_versions([shelf.ledger.version(name) for name in again.to_process], parts)
    assert found(shelf, "gate trucks") == {"b.md"} and behind(shelf)
    take()
    assert found(shelf, "gate trucks") == {"a.md", "b.md"} and not behind(shelf)


def test_going_back_from_a_strategy_holds_for_the_next_ingest(desk: Any) -> None:
    desk.write(ports="# Ports\n\nThe gateway listens on port 8080.\n", other="# Other\n\nWords.\n")
    desk.publish()
    text = (desk.folder / "config/strategies/tiny.yaml").read_text(encoding="utf-8")
    (desk.folder / "config/strategies/worse.yaml").write_text(
        text.replace("chunk_size: 400", "chunk_size: 20"), encoding="utf-8"
    )
    assert desk.call("rebuild", "--strategy", "worse").exit_code == 0
    assert desk.call("releases", "rollback").exit_code == 0
    desk.write(ports="# Ports\n\nThe gateway listens on port 9090.\n")
    desk.publish()
    with desk.ledger() as ledger:
        assert [row.strategy for row in ledger.releases("default")] == ["tiny", "worse", "tiny"]
        assert ledger.namespaces() == {"default": "tiny"}
        worse = ledger.releases("default")[1].release_id
    assert desk.call("releases", "rollback", worse).exit_code == 0
    with desk.ledger() as ledger:
        assert ledger.namespaces() == {"default": "worse"}


def test_an_edit_after_going_back_holds_everything_live(shelf: Any, take: Any) -> None:
    first = take(a="# Gate\n\nOpens at five.\n")
    second = take(b="# Dock\n\nHolds trucks.\n")
    roll_back("default", first, shelf.root)
    third = take(a="# Gate\n\nOpens at six.\n")
    manifest = read_manifest(shelf.store.release_dir("default", third))
    assert manifest.parent == first and len(manifest.versions) == 2 and read(shelf) == third
    assert found(shelf, "gate trucks") == {"a.md", "b.md"} and states(shelf)[second] == "retired"


def test_a_pinned_release_outlives_retention_and_the_others_are_dropped(
    shelf: Any, take: Any
) -> None:
    settings = shelf.settings.model_copy(update={"releases": ReleasePolicy(keep=2)})
    few = type(shelf)(settings, shelf.store, shelf.ledger)
    folder = shelf.store.home / "in"
    folder.mkdir()

    def publish(number: int) -> str:
        (folder / "a.md").write_text(f"# Gate\n\nOpens at {number}.\n", encoding="utf-8")
        release_id: str = few.ingest(folder)
        return release_id

    ids = [publish(0)]
    pin_release("default", ids[0], True, shelf.root)
    ids += [publish(number) for number in range(1, 5)]
    kept = {
        row["release_id"]: (row["state"], row["pinned"], row["bytes"] > 0)
        for row in history("default", shelf.root)
    }
    assert kept == {
        ids[4]: ("published", False, True),
        ids[3]: ("retired", False, True),
        ids[2]: ("dropped", False, False),
        ids[1]: ("dropped", False, False),
        ids[0]: ("retired", True, True),
    }
    assert roll_back("default", ids[0], shelf.root).pinned and found(shelf, "gate") == {"a.md"}
    go_forward("default", shelf.root)
    pin_release("default", ids[0], False, shelf.root)
    publish(5)
    assert (
        states(shelf)[ids[0]] == "dropped"
        and not shelf.store.release_dir("default", ids[0]).exists()
    )
    with pytest.raises(NotFoundError):
        pin_release("default", ids[0], True, shelf.root)


def test_a_candidate_is_not_published_over_another_release(shelf: Any, take: Any) -> None:
    """Somebody goes back between the build and the publication of a run in the UI: the candidate
    does not undo it.
    """
    first = take(a="# Gate\n\nOpens at five.\n")
    take(b="# Dock\n\nHolds trucks.\n")
    late, _ = build_candidate("default", shelf.workspace())
    roll_back("default", first, shelf.root)
    with pytest.raises(ReleaseError, match=f"{first} was published since") as raised:
        publish_candidate("default", late.release_id, shelf.root)
    assert raised.value.code == "outdated_candidate" and read(shelf) == first
    # on purpose it can be
    back = roll_back("default", late.release_id, shelf.root)
    assert back.release_id == read(shelf) == late.release_id


def test_a_candidate_older_than_a_release_that_was_public_is_history(shelf: Any, take: Any) -> None:
    first = take(a="# Gate\n\nOpens at five.\n")
    # and nobody published it
    build_candidate("default", shelf.workspace())
    take(b="# Dock\n\nHolds trucks.\n")
    roll_back("default", first, shelf.root)
    with pytest.raises(NotFoundError, match="no candidate"):
        newest_candidate("default", shelf.ledger)


def test_a_crash_between_the_pointer_and_the_ledger_is_mended(shelf: Any, take: Any) -> None:
    first = take(a="# Gate\n\nOpens at five.\n")
    take(b="# Dock\n\nHolds trucks.\n")
    roll_back("default", first, shelf.root)
    third, _ = build_candidate("default", shelf.workspace())
    releases.point_at(shelf.store, "default", third.release_id)  # and then the process died
    assert {row["release_id"]: row["state"] for row in history("default", shelf.root)}[
        third.release_id
    ] == "published"
    with pytest.raises(ReleaseError, match="no newer release"):
        go_forward("default", shelf.root)
    roll_back("default", first, shelf.root)
    assert states(shelf)[third.release_id] == "retired" and not behind(shelf)  # it was public once
    assert go_forward("default", shelf.root).release_id == third.release_id


def test_a_published_release_that_is_lost(shelf: Any, take: Any, tiny: Any) -> None:
    """Readers are told what can be done; naming a kept release mends it, and so does the next
    build.
    """
    first = take(a="# Gate\n\nOpens at five.\n")
    second = take(b="# Dock\n\nHolds trucks.\n")
    shutil.rmtree(shelf.store.release_dir("default", second))
    for ask in (lambda: found(shelf, "gate"), lambda: roll_back("default", None, shelf.root)):
        with pytest.raises(
            ReleaseError, match=f"gone from disk.*rag releases rollback.*kept: {first}"
        ) as raised:
            ask()
        assert raised.value.code == "release_lost"
    assert history("default", shelf.root)[0]["state"] == "lost" and behind(shelf)
    roll_back("default", first, shelf.root)
    assert found(shelf, "gate trucks") == {"a.md"} and behind(shelf)

    take(c="# Yard\n\nHolds crates.\n")
    shutil.rmtree(shelf.store.release_dir("default", str(read(shelf))))
    assert releases.full_build_reason(shelf.store, "default", tiny, read(shelf)).endswith(
        "is gone from disk"
    )
    take(a="# Gate\n\nOpens at seven.\n")
    assert (
        found(shelf, "gate trucks crates") == {"a.md", "b.md", "c.md"}
        and states(shelf)[second] == "dropped"
    )


def test_the_pointer_moves_only_for_who_holds_the_lock(
    shelf: Any, take: Any, elsewhere: Any
) -> None:
    first = take(a="# Gate\n\nOpens at five.\n")
    second = take(b="# Dock\n\nHolds trucks.\n")
    with elsewhere(shelf.store.writer("default", "ingest job_1")):
        for move in (
            lambda: roll_back("default", first, shelf.root),
            lambda: pin_release("default", first, True, shelf.root),
        ):
            with pytest.raises(BusyError, match="ingest job_1"):
                move()
    assert read(shelf) == second and not any(row.pinned for row in shelf.ledger.releases("default"))


def test_the_list_tells_sizes_and_what_changed(shelf: Any, take: Any) -> None:
    take(a="# Gate\n\nOpens at five.\n")
    take(a="# Gate\n\nOpens at six.\n", b="# Dock\n\nHolds trucks.\n")
    newest, oldest = history("default", shelf.root)
    assert (newest["documents"], newest["chunks"], newest["state"], oldest["state"]) == (
        2,
        2,
        "published",
        "retired",
    )
    assert (
        newest["delta"]["chunks_added"],
        newest["delta"]["chunks_removed"],
        oldest["delta"]["full_build"],
    ) == (2, 1, True)
    assert (
        0 < newest["bytes_alone"] <= newest["bytes"]
        and newest["published_at"] >= oldest["published_at"]
    )


def test_a_live_version_that_fails_when_it_is_run_again_is_released_as_it_was(
    take: Callable[..., str], shelf: Any, tmp_path: Path
) -> None:
    take(gate="# Gate\n\nThe gate opens at 05:30.\n")
    [again] = receive(
        [tmp_path / "docs"], "default", shelf.workspace(), ReceiveOptions(policy="new_version")
    ).to_process
    shelf.ledger.fail(again, "timeout", "the reader took too long")
    manifest, checks = build_candidate("default", shelf.workspace())
    assert not [check for check in checks if not check.passed]
    directory = shelf.store.release_dir("default", manifest.release_id)
    assert list(read_manifest(directory).versions) == [again]


# --- releases without a difference --------------------------------------------------------------


def publish_two(desk: Any) -> tuple[str, str]:
    """The release with the gate, then the one with the dock beside it."""
    desk.write(gate="# Gate\n\nThe gate opens at 05:30.\n")
    first = desk.publish()
    desk.write(dock="# Dock\n\nThe dock holds 12 trucks.\n")
    return first, desk.publish()


def test_a_broken_file_in_a_synced_folder_publishes_nothing_new(desk: Any) -> None:
    """Whatever is tried in vain leaves the release that one goes back to where it was."""
    first, second = publish_two(desk)
    (desk.docs / "broken.pdf").write_bytes(
        b"%PDF-1.7\n1 0 obj\n<< /Type /Catalog >>\nendobj\n%%EOF\n"
    )
    for code in (3, 0):  # told, then told before
        tried = desk.call("ingest", desk.docs, "--sync")
        assert (tried.exit_code, tried.data["failed"], tried.data["release_id"]) == (
            code,
            1,
            second,
        )
        assert "Nothing changed: release" in tried.data["markdown"]
    with desk.ledger() as ledger:
        assert [row.release_id for row in ledger.releases("default")] == [second, first]
    assert (
        desk.call("releases", "rollback").exit_code == 0
        and releases.current(desk.store, "default") == first
    )


def test_an_ingest_says_what_is_read_that_the_folder_no_longer_holds(desk: Any) -> None:
    first, second = publish_two(desk)
    assert not desk.call("status").data["problems"]
    (desk.docs / "gate.md").unlink()
    (desk.docs / "dock.md").write_bytes(b"\x7fELF\x02\x01\x01\x00" + bytes(range(256)))
    tried = desk.call("ingest", desk.docs).data
    assert "Of 1 failed file the version before is still read." in tried["markdown"]
    assert "kept: docs/gate.md: its file is gone; --sync retires such" in tried["markdown"]
    assert (tried["kept"], tried["still_read"], tried["gone_back"]) == (1, 1, False)
    desk.call("releases", "rollback")
    again = desk.call("ingest", desk.docs).data
    assert (again["release_id"], again["gone_back"]) == (first, True), "a failure undoes nothing"
    assert "which a rollback published" in again["markdown"]
    warning = f"default: since a rollback the earlier release {first} is read instead of {second};"
    assert warning in desk.call("status").data["markdown"]
    desk.call("releases", "forward")
    assert "since a rollback" not in desk.call("status").data["markdown"]
    assert not desk.call("ingest", desk.docs).data["gone_back"]


def test_equal_bytes_run_again_are_a_revision_and_no_release(desk: Any) -> None:
    first, second = publish_two(desk)
    for revision in (2, 3):
        again = desk.call("ingest", desk.docs, "--policy", "new_version")
        assert (again.data["new_versions"], again.data["release_id"]) == (2, second)
        assert f"Nothing changed: release {second}" in again.data["markdown"]
        with desk.ledger() as ledger:
            assert [version.revision for version in ledger.versions("default")] == [revision] * 2
    assert desk.call("verify", "--all").data["failed"] == 0
    assert (
        desk.call("releases", "rollback").exit_code == 0
        and releases.current(desk.store, "default") == first
    )


def test_outputs_that_differ_after_the_stages_ran_again_are_a_difference(desk: Any) -> None:
    """The release was made of outputs that nobody can make again: of a damaged file, say."""
    desk.write(gate="# Gate\n\nThe gate opens at 05:30.\n")
    first = desk.publish()
    directory = desk.store.release_dir("default", first)
    manifest = read_manifest(directory)
    told = {name: dict(getattr(manifest, name)) for name in VERSION_FIELDS}
    told["outputs"] = dict.fromkeys(told["outputs"], "0123456789abcdef")
    write_versions(directory / VERSIONS, told)
    assert desk.call("ingest", desk.docs, "--policy", "new_version").data["release_id"] != first


def test_a_release_that_is_built_whole_without_a_difference_takes_the_place_of_its_equal(
    desk: Any,
) -> None:
    desk.write(gate="# Gate\n\nThe gate opens at 05:30.\n")
    first = desk.publish()
    desk.write(dock="# Dock\n\nThe dock holds 12 trucks.\n")
    second = desk.publish()
    for _ in range(2):
        third = desk.call("rebuild", "--full").data["release_id"]
        assert third not in (first, second)
        assert [
            manifest.release_id for manifest in releases.list_releases(desk.store, "default")
        ] == [third, first]
    assert (
        desk.call("releases", "rollback").exit_code == 0
        and releases.current(desk.store, "default") == first
    )


def test_what_readers_do_not_see_alike_is_a_difference(desk: Any) -> None:
    """The same bytes, deleted and added again: the published release hides them for good."""
    desk.write(
        gate="# Gate\n\nThe gate opens at 05:30.\n", dock="# Dock\n\nThe dock holds 12 trucks.\n"
    )
    desk.publish()
    doc_id = next(
        d["doc_id"]
        for d in desk.call("docs", "list").data["groups"][0]["documents"]
        if d["filename"] == "dock.md"
    )
    published = releases.current(desk.store, "default")
    with desk.ledger() as ledger:
        ledger.delete("default", doc_id, None, "soft")
    assert releases.current(desk.store, "default") == published
    desk.call("ingest", desk.docs / "dock.md")
    assert (
        "12 trucks"
        in desk.call("query", "How many trucks?", "--mode", "sparse").data["answer_markdown"]
    )


# --- a damaged pointer --------------------------------------------------------------------------


@pytest.mark.parametrize("written", [b"", b"\n", b"\xff\xfe\x00", b"../../etc\n"])
def test_a_damaged_pointer_is_told_with_what_mends_it(desk: Any, written: bytes) -> None:
    desk.write(gate="# Gate\n\nThe gate opens at 05:30.\n")
    first = desk.publish()
    pointer = desk.store.current_path("default")
    pointer.write_bytes(written)
    for command in (
        ("query", "When does the gate open?", "--namespace", "default"),
        ("verify", "--all"),
        ("docs", "list", "--namespace", "default"),
        ("releases", "list"),
        ("rebuild", "--plan"),
    ):
        told = desk.call(*command)
        assert (told.exit_code, told.error["code"]) == (1, "pointer_damaged"), command
        assert told.error["message"].startswith("releases/default/CURRENT is damaged: it holds b'")
        assert "`rag releases forward --namespace default` makes it" in told.error["message"]
        assert "`rag releases rollback RELEASE_ID --namespace default`" in told.error["message"]
        assert f"(kept, the newest first: {first})" in told.error["message"]
    [seen] = desk.call("status").data["namespaces"]
    assert "releases/default/CURRENT is damaged" in seen["problem"]
    findings = desk.call("doctor").data["findings"]
    assert any("CURRENT is damaged" in it["message"] for it in findings if it["level"] == "error")
    assert desk.call("releases", "rollback", first).exit_code == 0
    assert pointer.read_text("utf-8") == f"{first}\n"


def damage_pointer(desk: Any) -> str:
    """Publish twice, go back and empty CURRENT; returns what it named."""
    desk.write(gate="# Gate\n\nThe gate opens at 05:30.\n")
    first = desk.publish()
    desk.write(dock="# Dock\n\nThe dock holds 12 trucks.\n")
    desk.publish()
    desk.call("releases", "rollback")
    desk.store.current_path("default").write_bytes(b"")
    return str(first)


def test_going_forward_mends_a_damaged_pointer(desk: Any) -> None:
    first = damage_pointer(desk)
    assert desk.call("releases", "forward").data["release"]["release_id"] == first
    assert releases.current(desk.store, "default") == first
    never = desk.store.current_path("other")
    never.parent.mkdir()
    never.write_bytes(b"")
    told = desk.call("releases", "forward", "--namespace", "other")
    assert (told.exit_code, told.error["code"]) == (1, "unknown_namespace")  # to the ledger


@pytest.mark.parametrize("name", ["manifest.json", "versions.json"])
def test_a_release_with_a_damaged_manifest_is_built_anew_as_it_says(desk: Any, name: str) -> None:
    desk.write(gate="# Gate\n\nThe gate opens at 05:30.\n")
    damaged = desk.store.release_dir("default", desk.publish())
    (damaged / name).write_bytes(b'{"torn')
    told = desk.call("verify", "--all").error
    assert (
        told["code"] == "manifest_damaged" and "rag rebuild --full --namespace" in told["message"]
    )
    assert desk.call("rebuild", "--full").exit_code == 0
    assert releases.current(desk.store, "default") != damaged.name and not damaged.exists()
    assert desk.call("verify", "--all").exit_code == 0
    assert desk.call("gc").exit_code == 0


def test_a_job_makes_a_damaged_pointer_name_what_the_ledger_says(desk: Any) -> None:
    first = damage_pointer(desk)
    assert desk.call("ingest", desk.docs).data["release_id"] == first
    assert releases.current(desk.store, "default") == first


@pytest.mark.parametrize("name", ["typo", "../../evil"])
def test_nothing_is_done_to_the_releases_of_an_unknown_library(shelf: Any, name: str) -> None:
    for change in (
        lambda: roll_back(name, None, shelf.root),
        lambda: go_forward(name, shelf.root),
        lambda: pin_release(name, "r1", True, shelf.root),
        lambda: publish_candidate(name, "r1", shelf.root, override="because"),
    ):
        with pytest.raises(NotFoundError, match="unknown library"):
            change()
    assert not list(shelf.store.home.parent.rglob("*.writer"))
