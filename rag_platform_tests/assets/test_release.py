"""The release assets: a candidate with a failed check is never published, by Dagster or around
it.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import dagster as dg
import pymupdf
import pytest

from rag_platform.answering.engine import answer
from rag_platform.assets.partitions import namespaces
from rag_platform.config.strategies import load_strategy
from rag_platform.definitions import defs
from rag_platform.drafts.lifecycle import Drafts
from rag_platform.errors import BusyError, ConfigError, NotFoundError, ReleaseError
from rag_platform.evaluation.comparing import eval_trends
from rag_platform.evaluation.expectations import add_expectation, expectation
from rag_platform.evaluation.gating import apply_gates
from rag_platform.evaluation.results import ResultStore
from rag_platform.ingestion.batches import ingest_versions
from rag_platform.intake.receiving import ReceiveOptions, receive
from rag_platform.ir import QueryRequest
from rag_platform.observability import trace_reader
from rag_platform.releases import release_store as releases
from rag_platform.releases.checks import CHECKS
from rag_platform.releases.manifest import (
    QUALITY_GATE,
    CheckResult,
    Manifest,
    lacks_verdict,
    read_manifest,
    write_manifest,
)
from rag_platform.releases.publishing import (
    build_candidate,
    is_behind_ledger,
    newest_candidate,
    publish_candidate,
    roll_back,
)
from rag_platform.workspace import Workspace
from rag_platform_tests.conftest import MISREADING

pytestmark = pytest.mark.integration


@pytest.fixture
def instance(home: Path) -> Iterator[dg.DagsterInstance]:
    """A Dagster instance that ends with the test, the namespace's partition in it."""
    with dg.DagsterInstance.ephemeral() as made:
        made.add_dynamic_partitions(namespaces.name or "", ["default"])
        yield made


@pytest.fixture
def take(shelf: Any, tmp_path: Path) -> Callable[..., list[str]]:
    """Brings texts to the end of ingestion, by file name; nothing is released. Gives the
    version_ids.
    """

    def bring(**texts: str) -> list[str]:
        folder = tmp_path / "docs"
        folder.mkdir(exist_ok=True)
        for name, text in texts.items():
            (folder / f"{name}.md").write_text(text, encoding="utf-8")
        keys = receive([folder], "default", shelf.workspace(), ReceiveOptions()).to_process
        ingest_versions([shelf.ledger.version(key) for key in keys], shelf.workspace())
        return list(keys)

    return bring


def run(instance: dg.DagsterInstance, stages: tuple[str, ...] | None = None) -> Any:
    """The result of the release run of `default`."""
    chosen = [dg.AssetKey(name) for name in stages] if stages else None
    return defs.resolve_job_def("release").execute_in_process(
        instance=instance, partition_key="default", asset_selection=chosen, raise_on_error=False
    )


def said(shelf: Any, question: str) -> str:
    library = shelf.library()
    try:
        return answer(library, QueryRequest(question, mode="sparse")).answer_markdown
    finally:
        library.close()


def latest_metadata(instance: dg.DagsterInstance, name: str) -> dict[str, Any]:
    (record,) = instance.fetch_materializations(dg.AssetKey(name), limit=1).records
    return dict(record.asset_materialization.metadata)


def test_a_release_run_builds_checks_and_publishes(
    instance: dg.DagsterInstance, take: Any, shelf: Any
) -> None:
    take(gate="# Gate\n\nThe gate opens at 05:30.\n")
    result = run(instance)
    assert result.success and "05:30" in said(shelf, "When does the gate open?")
    checks = {e.check_name: e.passed for e in result.get_asset_check_evaluations()}
    assert checks == dict.fromkeys([*CHECKS, QUALITY_GATE, "canaries"], True)
    published = releases.current(shelf.store, "default")
    for name in ("catalog", "lexical_index", "dense_index", "published_release"):
        (record,) = instance.fetch_materializations(dg.AssetKey(name), limit=5).records
        assert (
            record.partition_key,
            record.asset_materialization.metadata["release_id"].value,
        ) == ("default", published)
    assert [row.state for row in shelf.ledger.releases("default")] == ["published"]
    catalog = latest_metadata(instance, "catalog")
    assert catalog["dagster/row_count"].value == 1 and catalog["bytes"].value > 0
    assert (catalog["chunks_added"].value, catalog["versions_added"].value) == (1, 1)
    assert latest_metadata(instance, "published_release")["documents_failed"].value == 0
    figures = {e.check_name: e.metadata for e in result.get_asset_check_evaluations()}
    assert figures["versions_complete"]["versions"].value == 1
    assert "no release before" in figures["canaries"]["details"].value
    assert figures["provenance_proved"]["not_proved"].value == 0

    first = published
    take(dock="# Dock\n\nThe dock holds 12 trucks.\n")
    assert run(instance).success
    manifest = read_manifest(
        shelf.store.release_dir("default", releases.current(shelf.store, "default"))
    )
    assert (
        manifest.parent == first and len(manifest.versions) == 2 and manifest.counts["chunks"] == 2
    )
    take(gate="# Gate\n\nThe gate opens at 06:30.\n")
    figures = {e.check_name: e.metadata for e in run(instance).get_asset_check_evaluations()}
    assert "were asked of" in figures["canaries"]["report"].value


@pytest.mark.parametrize("stage", ["catalog", "published_release"])
@pytest.mark.parametrize("typed", ["typo", "../../../elsewhere"])
def test_a_partition_of_no_library_makes_none(
    instance: dg.DagsterInstance, shelf: Any, stage: str, typed: str
) -> None:
    """The UI adds any key that is typed into it."""
    instance.add_dynamic_partitions("namespaces", [typed])
    stores = ("catalog", "lexical_index", "dense_index")
    result = defs.resolve_job_def("release").execute_in_process(
        instance=instance,
        partition_key=typed,
        asset_selection=[dg.AssetKey(name) for name in (stores if stage == "catalog" else [stage])],
        raise_on_error=False,
    )
    (failed,) = result.get_step_failure_events()
    told = failed.step_failure_data.user_failure_data
    assert told is not None and told.description == (
        f"no library {typed!r} in the ledger; delete this partition"
    )
    assert not (shelf.store.home / "releases" / typed).exists()
    assert shelf.ledger.jobs() == []


def test_the_job_of_a_run_from_the_ui_says_how_far_it_came_and_where_its_trace_is(
    instance: dg.DagsterInstance, take: Any, shelf: Any
) -> None:
    """Also of one that publishes nothing, of which no release is to be seen."""

    def newest() -> tuple[str, int, int, str]:
        (job, *_) = shelf.ledger.jobs("default")
        assert trace_reader.show(shelf.store.logs_dir, job.trace_id)
        return job.state, job.progress["done"], job.progress["total"], job.reason

    take(gate="# Gate\n\nThe gate opens at 05:30.\n")
    assert run(instance).success
    assert newest() == ("done", 1, 1, "")
    published = releases.current(shelf.store, "default")
    assert run(instance).success  # which changes nothing
    assert newest() == ("done", 1, 1, "")
    take(dock="# Dock\n\nThe dock holds 12 trucks.\n")
    stores = ("catalog", "lexical_index", "dense_index")
    assert run(instance, stores).success
    made = newest_candidate("default", shelf.ledger)
    said = f"release {made} is built and checked; this run publishes nothing"
    assert newest() == ("done", 1, 1, said)
    assert releases.current(shelf.store, "default") == published
    assert run(instance, ("published_release",)).success
    assert newest() == ("done", 1, 1, "")
    assert releases.current(shelf.store, "default") == made


def test_partitions_are_those_of_what_is_live_or_on_its_way(
    instance: dg.DagsterInstance, take: Any, shelf: Any
) -> None:
    def keys() -> set[str]:
        return set(instance.get_dynamic_partitions("document_versions"))

    (gate,) = take(gate="# Gate\n\nThe gate opens at 05:30.\n")
    (dock,) = take(dock="# Dock\n\nThe dock is painted yellow.\n")
    instance.add_dynamic_partitions("document_versions", [gate, dock, "other.gate@1"])
    assert run(instance).success and keys() == {gate, dock, "other.gate@1"}
    assert latest_metadata(instance, "published_release")["dagster/row_count"].value == 2
    (later,) = take(gate="# Gate\n\nThe gate opens at 06:00.\n")
    assert run(instance).success and keys() == {later, dock, "other.gate@1"}
    shelf.ledger.delete("default", shelf.ledger.version(dock).doc_id, None, "soft")
    assert run(instance).success and keys() == {later, "other.gate@1"}
    shelf.ledger.pin("default", shelf.ledger.version(gate).doc_id, gate)
    # what its source holds stays wanted
    assert run(instance).success and keys() == {gate, later, "other.gate@1"}


def test_a_document_that_its_file_does_not_prove_fails_its_own_check(
    instance: dg.DagsterInstance, shelf: Any, tmp_path: Path, config_folder: Path
) -> None:
    (config_folder / "strategies" / "tiny.yaml").write_text(MISREADING, encoding="utf-8")
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "dock.txt").write_text("The dock is yellow.\n", encoding="utf-8")
    (folder / "gate.txt").write_text("The gate has 12 bars.\n", encoding="utf-8")
    keys = receive([folder], "default", shelf.workspace(), ReceiveOptions()).to_process
    ingest_versions([shelf.ledger.version(key) for key in keys], shelf.workspace())
    result = run(instance)
    assert result.success and "yellow" in said(shelf, "Which colour is the dock?")
    (check,) = [e for e in result.get_asset_check_evaluations() if e.check_name == "processed"]
    assert not check.passed and ".gate-" in check.partition
    assert check.metadata["code"].value == "not_proved"


def test_a_candidate_that_cannot_prove_a_quote_is_not_published(
    instance: dg.DagsterInstance, take: Any, shelf: Any
) -> None:
    take(gate="# Gate\n\nThe gate opens at 05:30.\n")
    assert run(instance).success
    first = releases.current(shelf.store, "default")
    (key,) = take(dock="# Dock\n\nThe dock holds 12 trucks.\n")
    raw = shelf.store.raw_path(shelf.ledger.version(key).file_sha256)
    kept = raw.read_bytes()
    raw.write_bytes(kept.replace(b"12", b"21"))

    result = run(instance)
    assert not result.success
    failed = [e.check_name for e in result.get_asset_check_evaluations() if not e.passed]
    assert failed == ["provenance_proved"]
    assert not [
        e for e in result.all_events if e.is_step_success and e.step_key == "published_release"
    ]
    assert releases.current(shelf.store, "default") == first
    assert "05:30" in said(shelf, "When does the gate open?") and "trucks" not in said(
        shelf, "How many trucks?"
    )
    rejected = shelf.ledger.releases("default")[0]
    assert (
        rejected.state == "rejected" and "provenance_proved: 1 chunk not proved" in rejected.reason
    )
    with pytest.raises(ReleaseError, match="provenance_proved") as refused:
        publish_candidate(
            "default",
            rejected.release_id,
            shelf.root,
        )
    assert refused.value.code == "checks_failed"
    assert is_behind_ledger("default", shelf.root)

    # the way around: only the last asset, which finds no candidate of its own to publish
    assert not run(instance, ("published_release",)).success
    assert releases.current(shelf.store, "default") == first

    raw.write_bytes(kept)
    assert run(instance).success
    assert "12 trucks" in said(shelf, "How many trucks?")
    assert [row.state for row in shelf.ledger.releases("default")] == [
        "published",
        "rejected",
        "retired",
    ]


def test_files_are_read_again_within_the_configured_limits(shelf: Any, tmp_path: Path) -> None:
    """So a document that needs more than the defaults is proved by the same limits."""
    with pymupdf.open() as document:
        for number in range(40):
            lines = [
                f"Gate {number}.{line} opens at 05:30 and closes at nine." for line in range(60)
            ]
            document.new_page().insert_text((72, 40), lines)
        document.save(tmp_path / "gates.pdf")
    [key] = receive(
        [tmp_path / "gates.pdf"], "default", shelf.workspace(), ReceiveOptions()
    ).to_process
    ingest_versions([shelf.ledger.version(key)], shelf.workspace())
    _, checks = build_candidate("default", shelf.workspace())
    assert all(check.passed for check in checks)
    # over before it begins, also for a child that has to start
    limits = shelf.settings.limits.model_copy(update={"parse_seconds": -1000.0})
    settings = shelf.settings.model_copy(update={"limits": limits})
    workspace = dataclasses.replace(shelf.workspace(), settings=settings)
    _, checks = build_candidate("default", workspace, full=True)
    details = {it.name: it.details for it in checks if not it.passed}
    assert "raise limits.parse_seconds" in details["provenance_proved"]


def test_publish_reads_the_verdicts_again(take: Any, shelf: Any) -> None:
    """A verdict that turns bad after the build counts as much as one of the build."""
    take(gate="# Gate\n\nThe gate opens at 05:30.\n")
    manifest, checks = build_candidate("default", shelf.workspace())
    assert all(check.passed for check in checks)
    directory = shelf.store.release_dir("default", manifest.release_id)
    write_manifest(
        directory,
        dataclasses.replace(
            manifest, checks=(*manifest.checks, CheckResult("gate.mrr", False, "0.41 < 0.60"))
        ),
    )
    with pytest.raises(ReleaseError, match=r"gate\.mrr: 0\.41 < 0\.60"):
        publish_candidate("default", manifest.release_id, shelf.root)
    assert releases.current(shelf.store, "default") is None

    write_manifest(directory, manifest)
    (directory / "catalog.sqlite").unlink()
    with pytest.raises(ReleaseError, match=r"lost catalog\.sqlite"):
        publish_candidate("default", manifest.release_id, shelf.root)
    (directory / "manifest.json").unlink()
    with pytest.raises(NotFoundError):
        publish_candidate("default", manifest.release_id, shelf.root)
    assert releases.current(shelf.store, "default") is None


def test_an_older_candidate_is_not_published_by_mistake(take: Any, shelf: Any) -> None:
    """A candidate that was never published is history once a newer release is: publishing it would
    silently go back.
    """
    take(gate="# Gate\n\nThe gate opens at 05:30.\n")
    old, _ = build_candidate("default", shelf.workspace())
    new, _ = build_candidate("default", shelf.workspace())
    assert newest_candidate("default", shelf.ledger) == new.release_id
    publish_candidate("default", new.release_id, shelf.root)
    assert [(row.release_id, row.state) for row in shelf.ledger.releases("default")] == [
        (new.release_id, "published"),
        (old.release_id, "dropped"),
    ]
    with pytest.raises(NotFoundError, match="no candidate"):
        newest_candidate("default", shelf.ledger)


def test_one_writer_at_a_time(
    instance: dg.DagsterInstance, take: Any, shelf: Any, elsewhere: Any
) -> None:
    take(gate="# Gate\n\nThe gate opens at 05:30.\n")
    with elsewhere(shelf.store.writer("default", "another run")):
        result = run(instance)
        with pytest.raises(BusyError, match="another run"), shelf.store.writer("default", "me"):
            pass
    assert not result.success and releases.current(shelf.store, "default") is None
    assert run(instance).success


def test_a_pointer_moved_in_a_crash_is_what_counts(take: Any, shelf: Any) -> None:
    """The pointer moves before the ledger says so; what is read is what the pointer names, and the
    next publication mends the ledger.
    """
    take(gate="# Gate\n\nThe gate opens at 05:30.\n")
    first, _ = build_candidate("default", shelf.workspace())
    publish_candidate("default", first.release_id, shelf.root)
    take(dock="# Dock\n\nThe dock holds 12 trucks.\n")
    second, _ = build_candidate("default", shelf.workspace())
    releases.point_at(shelf.store, "default", second.release_id)  # and then the process died
    assert "12 trucks" in said(shelf, "How many trucks?")
    assert not is_behind_ledger("default", shelf.root)
    assert newest_candidate("default", shelf.ledger) == second.release_id
    publish_candidate("default", second.release_id, shelf.root)
    assert [row.state for row in shelf.ledger.releases("default")] == ["published", "retired"]
    roll_back("default", None, shelf.root)
    assert [row.state for row in shelf.ledger.releases("default")] == ["retired", "published"]
    assert "trucks" not in said(shelf, "How many trucks?")


def test_a_release_that_answers_worse_is_held_back_until_somebody_overrides(
    instance: dg.DagsterInstance, take: Any, shelf: Any
) -> None:
    take(gate="# Gate\n\nThe gate opens at 05:30.\n")
    assert run(instance).success
    first = releases.current(shelf.store, "default")
    add_expectation(
        shelf.store,
        "default",
        expectation("When does the gate open?", file="gate.md", text="opens at 05:30"),
    )
    take(gate="# Gate\n\nNobody knows when it opens.\n")
    result = run(instance)
    assert not result.success
    checks = {e.check_name: e.passed for e in result.get_asset_check_evaluations()}
    assert checks[QUALITY_GATE] is False and checks["counts_agree"] is True
    # those of the published release stand as they were: what is not published is not asked
    canaries = dg.AssetCheckKey(dg.AssetKey("published_release"), "canaries")
    history = instance.event_log_storage.get_asset_check_execution_history(canaries, limit=9)
    assert [record.status.value for record in history] == ["SUCCEEDED"]
    assert releases.current(shelf.store, "default") == first
    assert "05:30" in said(shelf, "When does the gate open?")
    newest = shelf.ledger.releases("default")[0]
    assert newest.state == "rejected"
    logs = instance.all_logs(result.run_id)
    said_in_log = [log.user_message for log in logs if log.level == logging.ERROR]
    assert any(text.startswith("release ") and "is not there" in text for text in said_in_log)
    assert "1 of 1 expectation not met" in newest.reason
    assert "the text is not there" in newest.reason
    with closing(ResultStore(shelf.store.home)) as results:
        asked = {it.release_id: it.status for it in results.runs(namespace="default")}
        assert asked == {first: "done", newest.release_id: "rejected"}
        points = eval_trends(results.runs(namespace="default"), "retrieval.mrr@10", days=1)
        assert {point["release_id"] for point in points} == {first}
    with pytest.raises(ReleaseError, match="quality_gate"):
        publish_candidate("default", newest.release_id, shelf.root)
    row = publish_candidate("default", newest.release_id, shelf.root, override="it moved")
    assert releases.current(shelf.store, "default") == row.release_id == newest.release_id
    assert shelf.ledger.releases("default")[0].reason == "published over the quality gate: it moved"


@pytest.mark.parametrize("judged_before", [False, True])
def test_a_candidate_that_no_gate_judged_is_not_published(
    take: Any, shelf: Any, config_folder: Path, judged_before: bool
) -> None:
    take(gate="# Gate\n\nThe gate opens at 05:30.\n")
    if judged_before:
        case = expectation("When does the gate open?", file="gate.md")
        add_expectation(shelf.store, "default", case)
    strategy = load_strategy(shelf.settings, "tiny")
    workspace = Workspace(**vars(shelf.root), strategy=strategy)
    manifest, _ = build_candidate("default", workspace)
    if judged_before:
        manifest = apply_gates(manifest, workspace)
        assert manifest.is_judged and not manifest.failures
    (config_folder / "gates.yaml").write_text("default: [{dataset: golden}]\n", encoding="utf-8")
    with pytest.raises(ReleaseError, match="was not judged"):
        publish_candidate("default", manifest.release_id, shelf.root)


def test_a_deletion_publishes_nothing_that_the_gate_rejected(
    instance: dg.DagsterInstance, take: Any, shelf: Any
) -> None:
    dock, _ = take(gate="# Gate\n\nThe gate opens at 05:30.\n", dock="# Dock\n\nIt is wet.\n")
    assert run(instance).success
    case = expectation("When does the gate open?", file="gate.md", text="opens at 05:30")
    add_expectation(shelf.store, "default", case)
    take(gate="# Gate\n\nNobody knows when it opens.\n")
    assert not run(instance).success
    document = shelf.ledger.version(dock).doc_id
    shelf.ledger.delete("default", document, None, "soft")
    manifest, _ = build_candidate("default", shelf.workspace(), deletes=True)
    manifest = apply_gates(manifest, shelf.workspace(), deletes=True)
    publish_candidate("default", manifest.release_id, shelf.root)
    assert "05:30" in said(shelf, "When does the gate open?")
    assert manifest.counts["documents"] == 1 and manifest.delta["chunks_added"] == 0
    # what was rejected still waits, and is asked about again
    assert is_behind_ledger("default", shelf.root)
    assert not run(instance).success
    # files that lack what was deleted hard are made anew of the same versions
    whole, _ = build_candidate("default", shelf.workspace(), deletes=True, full=True)
    assert not whole.failures and whole.delta["full_build"]
    held = [
        read_manifest(shelf.store.release_dir("default", made.release_id)).versions
        for made in (whole, manifest)
    ]
    assert held[0] == held[1] and len(held[0]) == 1


@pytest.mark.parametrize("judged_before", [False, True])
def test_gates_that_are_set_later_are_asked_though_nothing_changed(
    instance: dg.DagsterInstance, take: Any, shelf: Any, config_folder: Path, judged_before: bool
) -> None:
    if judged_before:
        case = expectation("When does the gate open?", file="gate.md")
        add_expectation(shelf.store, "default", case)
    take(gate="# Gate\n\nThe gate opens at 05:30.\n")
    assert run(instance).success
    first = releases.current(shelf.store, "default")
    (config_folder / "gates.yaml").write_text("default: [{dataset: golden}]\n", encoding="utf-8")
    result = run(instance)
    assert not result.success and releases.current(shelf.store, "default") == first
    (check,) = (e for e in result.get_asset_check_evaluations() if e.check_name == QUALITY_GATE)
    assert not check.passed and "golden names nothing to be found" in str(check.description)
    assert "or publish all the same (`rag releases publish" in str(check.description)
    (job,) = shelf.ledger.jobs(state="failed", limit=9)
    assert "rag releases publish" in job.reason  # what to do, as where `rag ingest` failed


def test_a_dataset_that_changed_is_asked_though_nothing_else_did(
    instance: dg.DagsterInstance, take: Any, shelf: Any, config_folder: Path
) -> None:
    take(gate="# Gate\n\nThe gate opens at 05:30.\n")
    (config_folder / "gates.yaml").write_text("default: [{dataset: hours}]\n", encoding="utf-8")
    asked = config_folder / "datasets" / "hours.yaml"
    asked.parent.mkdir(exist_ok=True)
    case = "- {case_id: open, query: When does the gate open?, expected_files: [%s]}\n"
    asked.write_text(case % "gate.md", encoding="utf-8")
    assert run(instance).success
    first = releases.current(shelf.store, "default")
    assert not lacks_verdict(releases.manifest_of(shelf.store, "default", first))
    asked.write_text(case % "hours.md", encoding="utf-8")
    assert lacks_verdict(releases.manifest_of(shelf.store, "default", first))
    assert not run(instance).success and releases.current(shelf.store, "default") == first
    asked.unlink()  # what cannot be read is reported by other means
    assert not lacks_verdict(releases.manifest_of(shelf.store, "default", first))


def test_a_gate_that_was_not_asked_does_not_pass_and_blocks_nothing(
    instance: dg.DagsterInstance, take: Any, shelf: Any
) -> None:
    take(gate="# Gate\n\nThe gate opens at 05:30.\n")
    assert run(instance).success
    add_expectation(shelf.store, "default", expectation("Who opens?", file="gate.md"))
    result = run(instance)
    (check,) = (e for e in result.get_asset_check_evaluations() if e.check_name == QUALITY_GATE)
    assert result.success and not check.passed and check.severity == dg.AssetCheckSeverity.WARN
    assert str(check.description).startswith("not asked: the release is older")


def test_a_deletion_is_never_held_back(take: Any, shelf: Any) -> None:
    add_expectation(shelf.store, "default", expectation("Who opens?", file="nobody.md"))
    take(gate="# Gate\n\nThe gate opens at 05:30.\n")
    manifest, _ = build_candidate("default", shelf.workspace())
    judged = apply_gates(manifest, shelf.workspace(), deletes=True)
    assert not judged.failures and judged.checks[-1].name == QUALITY_GATE
    assert apply_gates(manifest, shelf.workspace()).failures


def test_taking_back_an_edit_is_never_held_back(
    instance: dg.DagsterInstance, take: Any, shelf: Any
) -> None:
    workspace = shelf.workspace()

    def publish(operations: list[dict[str, str]]) -> Manifest:
        (live,) = [version for _, version in shelf.ledger.live("default")]
        ingest_versions([live], workspace, drafted={live.version_id: operations})
        manifest, _ = build_candidate("default", workspace)
        manifest = apply_gates(manifest, workspace)
        if not manifest.failures:
            publish_candidate("default", manifest.release_id, shelf.root)
        return manifest

    take(gate="# Gate\n\nThe gate opens at 05:30.\n")
    publish([])
    drafts = Drafts("default", workspace)
    document = shelf.ledger.documents("default")[0].doc_id
    chunk = drafts.open(document).base.chunks[0].chunk_id
    edit = {"op": "edit_text", "chunk_id": chunk, "text": "The gate opens at 06:15."}
    assert not publish([edit]).failures
    case = expectation("When does the gate open?", file="gate.md", text="opens at 06:15")
    add_expectation(shelf.store, "default", case)
    worse = {**edit, "text": "Nobody knows when the gate opens."}
    assert publish([worse]).failures and "06:15" in said(shelf, "When does the gate open?")
    manifest = publish([])
    assert "05:30" in said(shelf, "When does the gate open?")
    assert manifest.failed_gates.startswith("published all the same, for taking back an edit")
    assert manifest.failed_gates.endswith("`rag expect remove CASE --namespace default`")
    result = run(instance)  # which shows the verdict again, and goes on
    shown = next(e for e in result.get_asset_check_evaluations() if e.check_name == QUALITY_GATE)
    assert result.success and (shown.passed, shown.severity) == (False, dg.AssetCheckSeverity.WARN)
    # with anything else beside it, the gate decides
    assert not publish([edit]).failures
    [titled] = shelf.ledger.documents("default")
    shelf.ledger.put_document(dataclasses.replace(titled, metadata={"title": "Quay"}))
    assert publish([]).failures
    shelf.ledger.put_document(titled)
    assert not publish([edit]).failures
    take(dock="# Dock\n\nThe dock is wet.\n")
    document, live = next(it for it in shelf.ledger.live("default") if it[1].edition)
    ingest_versions([live], workspace, drafted={live.version_id: []})
    manifest, _ = build_candidate("default", workspace)
    assert apply_gates(manifest, workspace).failures


@pytest.mark.parametrize("judged_before", [False, True])
def test_gates_that_are_set_before_a_deletion_are_still_to_be_asked(
    instance: dg.DagsterInstance, take: Any, shelf: Any, config_folder: Path, judged_before: bool
) -> None:
    if judged_before:
        case = expectation("When does the gate open?", file="gate.md")
        add_expectation(shelf.store, "default", case)
    _, dock = take(gate="# Gate\n\nThe gate opens at 05:30.\n", dock="# Dock\n\nIt is wet.\n")
    assert run(instance).success
    (config_folder / "gates.yaml").write_text("default: [{dataset: golden}]\n", encoding="utf-8")
    shelf.ledger.delete("default", shelf.ledger.version(dock).doc_id, None, "soft")
    manifest, _ = build_candidate("default", shelf.workspace(), deletes=True)
    manifest = apply_gates(manifest, shelf.workspace(), deletes=True)
    publish_candidate("default", manifest.release_id, shelf.root)
    assert manifest.checks[-1].details.startswith("not asked") and lacks_verdict(manifest)
    assert not run(instance).success


@pytest.mark.parametrize("gates", ["default: golden\n", "default: [{dataset: goldn}]\n"])
def test_a_deletion_goes_on_where_its_gate_cannot_be_read(
    take: Any, shelf: Any, config_folder: Path, gates: str
) -> None:
    take(gate="# Gate\n\nThe gate opens at 05:30.\n")
    manifest, _ = build_candidate("default", shelf.workspace())
    (config_folder / "gates.yaml").write_text(gates, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"gates\.yaml:1"):
        apply_gates(manifest, shelf.workspace())
    judged = apply_gates(manifest, shelf.workspace(), deletes=True)
    assert not judged.failures and "gates.yaml:1: " in judged.checks[-1].details
