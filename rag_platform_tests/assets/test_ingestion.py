"""The ingestion assets as Dagster runs them: events, partitions, code versions."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pymupdf
import pytest

from rag_platform.assets.ingestion import specs
from rag_platform.assets.metadata import evaluation
from rag_platform.assets.partitions import (
    RANGE_END,
    RANGE_START,
    document_versions,
    stage_code_versions,
)
from rag_platform.config.profiles import INGESTION_STAGES, stage_profiles
from rag_platform.config.settings import load_settings
from rag_platform.config.strategies import load_strategy
from rag_platform.definitions import defs
from rag_platform.intake.receiving import ReceiveOptions, receive
from rag_platform.ir import StageOutcome
from rag_platform.releases.checks import document_checks
from rag_platform.workspace import Workspace

pytestmark = pytest.mark.integration


@pytest.fixture
def instance(home: Path) -> Iterator[dg.DagsterInstance]:
    """A Dagster instance that ends with the test."""
    with dg.DagsterInstance.ephemeral() as made:
        yield made


@pytest.fixture
def received(
    shelf: Any, tiny: Any, tmp_path: Path, instance: dg.DagsterInstance
) -> Callable[..., list[str]]:
    """Receives texts by file name into the ledger and adds their partitions; gives the version_ids
    in order of the names.
    """

    def take(namespace: str = "default", **texts: str | bytes) -> list[str]:
        folder = tmp_path / "in" / namespace
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (folder / f"{name}.md").write_bytes(text if isinstance(text, bytes) else text.encode())
        parts = {
            "settings": shelf.settings,
            "strategy": tiny,
            "store": shelf.store,
            "ledger": shelf.ledger,
        }
        keys = list(
            receive(
                [folder], namespace, Workspace(**parts), ReceiveOptions(source=namespace)
            ).to_process
        )
        instance.add_dynamic_partitions(document_versions.name or "", keys)
        return keys

    return take


def run(
    instance: dg.DagsterInstance, first: str, last: str, stages: tuple[str, ...] = INGESTION_STAGES
) -> Any:
    """The result of an ingest run over a range of partitions."""
    return defs.resolve_job_def("ingest").execute_in_process(
        instance=instance,
        tags={RANGE_START: first, RANGE_END: last},
        asset_selection=[dg.AssetKey(s) for s in stages],
        raise_on_error=False,
    )


def status(instance: dg.DagsterInstance, stage: str, keys: list[str]) -> list[str | None]:
    """What the UI shows of each partition."""
    found = instance.get_status_by_partition(dg.AssetKey(stage), keys, document_versions) or {}
    return [value.value if (value := found.get(key)) else None for key in keys]


def events(instance: dg.DagsterInstance, stage: str) -> list[dg.AssetMaterialization]:
    """The materialisations of one stage, oldest first."""
    records = instance.fetch_materializations(dg.AssetKey(stage), limit=100).records
    return [
        record.asset_materialization for record in reversed(records) if record.asset_materialization
    ]


def test_definitions_load() -> None:
    dg.Definitions.validate_loadable(defs)
    graph = defs.resolve_asset_graph()
    names = {key.to_user_string() for key in graph.get_all_asset_keys()}
    assert names == {
        *INGESTION_STAGES,
        "catalog",
        "lexical_index",
        "dense_index",
        "published_release",
        "evaluation_run",
        "strategy_comparison",
    }
    assert {job.name for job in defs.jobs or []} >= {
        "ingest",
        "release",
        "sync",
        "gc",
        "evaluation",
    }
    assert {sensor.name for sensor in defs.sensors or []} == {"inbox", "release_when_quiet"}
    schedules = {schedule.name: schedule.execution_timezone for schedule in defs.schedules or []}
    assert schedules == dict.fromkeys(("nightly", "nightly_gc", "nightly_evaluation"), "UTC")
    upstream = {
        spec.key.to_user_string(): [dep.asset_key.to_user_string() for dep in spec.deps]
        for spec in specs()
    }
    assert upstream == {
        "raw_document": [],
        "facts": ["raw_document"],
        "media": ["facts"],
        "sections": ["media"],
        "chunks": ["sections"],
        "views": ["chunks"],
        "embeddings": ["views"],
    }


def test_code_versions_change_from_the_changed_stage_on(config_folder: Path) -> None:
    """What a new chunk size makes stale is chunks and all after them, nothing before."""
    before = stage_code_versions(load_settings())
    strategy = config_folder / "strategies" / "tiny.yaml"
    strategy.write_text(
        strategy.read_text(encoding="utf-8").replace("chunk_size: 400", "chunk_size: 300"),
        encoding="utf-8",
    )
    after = stage_code_versions(load_settings())
    changed = [stage for stage in INGESTION_STAGES if before[stage] != after[stage]]
    assert changed == ["chunks", "views", "embeddings"]
    assert [spec.code_version for spec in specs()] == [after[stage] for stage in INGESTION_STAGES]


def test_every_stage_logs_one_event_a_document(
    instance: dg.DagsterInstance, received: Any, shelf: Any, tiny: Any
) -> None:
    keys = received(a="# A\n\nOne.\n", b="# B\n\n二。\n")
    result = run(instance, keys[0], keys[-1])
    assert result.success
    profiles = stage_profiles(tiny)
    for stage in INGESTION_STAGES:
        assert status(instance, stage, keys) == ["MATERIALIZED", "MATERIALIZED"]
        logged = events(instance, stage)
        assert [event.partition for event in logged] == keys
        for key, event in zip(keys, logged, strict=True):
            version = shelf.ledger.version(key)
            assert event.metadata["source_uri"].value == version.source_uri
            assert event.metadata["profile"].value == profiles[stage] and event.metadata[
                "reused"
            ].value is (stage == "raw_document")
            assert (shelf.store.home / event.metadata["path"].value).exists()
            assert (event.tags or {})[
                "dagster/data_version"
            ] == f"{version.file_sha256[:12]}-{profiles[stage]}-r1"
    (chunks,) = {event.metadata["chunk_count"].value for event in events(instance, "chunks")}
    assert chunks == 1
    assert {d.live_version for d, _ in shelf.ledger.live("default")} == set(keys)

    assert run(instance, keys[0], keys[-1]).success
    assert [event.metadata["reused"].value for event in events(instance, "chunks")] == [
        False,
        False,
        True,
        True,
    ]
    assert events(instance, "embeddings")[-1].metadata["batch_computed"].value == 0


def test_a_retry_of_the_failed_partition_clears_it(
    instance: dg.DagsterInstance, received: Any, shelf: Any
) -> None:
    """One document's bytes are gone for a while: it alone fails, and running it alone again mends
    it.
    """
    keys = received(a="# A\n\nOne.\n", b="# B\n\nTwo.\n", c="# C\n\nThree.\n")
    raw = shelf.store.raw_path(shelf.ledger.version(keys[1]).file_sha256)
    kept = raw.read_bytes()
    raw.unlink()
    result = run(instance, keys[0], keys[-1])
    assert not result.success
    for stage in INGESTION_STAGES:
        assert status(instance, stage, keys) == ["MATERIALIZED", "FAILED", "MATERIALIZED"]
    (failure,) = [event for event in result.all_events if event.is_step_failure]
    assert "1 of 3 documents failed" in failure.step_failure_data.user_failure_data.description
    failed = shelf.ledger.version(keys[1])
    assert (failed.status, failed.code) == (
        "failed",
        "raw_missing",
    ) and "ingest the file again" in failed.reason
    assert len(shelf.ledger.live("default")) == 2

    raw.write_bytes(kept)
    assert run(instance, keys[1], keys[1]).success
    assert status(instance, "embeddings", keys) == ["MATERIALIZED"] * 3
    assert [event.partition for event in events(instance, "facts")] == [keys[0], keys[2], keys[1]]
    assert (shelf.ledger.version(keys[1]).status, len(shelf.ledger.live("default"))) == ("ready", 3)


def evaluations(instance: dg.DagsterInstance, asset: str, check: str) -> list[Any]:
    """(partition, evaluation) of a check, oldest first."""
    key = dg.AssetCheckKey(dg.AssetKey(asset), check)
    records = instance.event_log_storage.get_asset_check_execution_history(key, limit=20)
    return [
        (record.partition, record.event.dagster_event.asset_check_evaluation_data)
        for record in reversed(records)
        if record.status.value != "PLANNED"
        and record.event is not None
        and record.event.dagster_event is not None
    ]


def test_a_file_that_cannot_be_read_warns_and_fails_no_run(
    instance: dg.DagsterInstance, received: Any
) -> None:
    """Its partition alone is not materialised, and says why; the next run without one clears the
    warning of the asset.
    """
    keys = received(a="# A\n\nOne.\n", b=b"")
    assert run(instance, keys[0], keys[-1]).success
    assert status(instance, "raw_document", keys) == ["MATERIALIZED", "MATERIALIZED"]
    assert status(instance, "embeddings", keys) == ["MATERIALIZED", None]
    ((partition, found),) = evaluations(instance, "raw_document", "processed")
    assert (partition, found.passed, found.severity) == (
        keys[1],
        False,
        dg.AssetCheckSeverity.WARN,
    )
    wanted = dg.AssetRecordsFilter(dg.AssetKey("raw_document"), asset_partitions=[keys[1]])
    (observed,) = instance.fetch_observations(wanted, limit=5).records
    (stored,) = instance.fetch_materializations(wanted, limit=5).records
    assert observed.timestamp > stored.timestamp  # what the page of a partition shows first
    for metadata in (found.metadata, observed.asset_observation.metadata):
        assert metadata["code"].value == "empty_file" and metadata["failed_stage"].value == "facts"
        assert "the file is empty" in metadata["reason"].value
        assert metadata["remedy"].value.startswith("mend or replace the file")
    # with it the page of the check counts this partition as failed, and not as missing
    assert found.target_materialization_data.storage_id == stored.storage_id
    # of facts and what follows nothing was made, and their pages say why too
    for stage in INGESTION_STAGES[1:]:
        found = dg.AssetRecordsFilter(dg.AssetKey(stage), asset_partitions=[keys[1]])
        (record,) = instance.fetch_observations(found, limit=5).records
        assert record.asset_observation.metadata["code"].value == "empty_file", stage

    *_, good = received(c="# C\n\nThree.\n")
    assert run(instance, good, good).success
    assert [(key, e.passed) for key, e in evaluations(instance, "raw_document", "processed")] == [
        (keys[1], False),
        (good, True),
    ]


def test_checks_without_their_documents_are_skipped(
    instance: dg.DagsterInstance, received: Any
) -> None:
    """As "Execute all" on the page of an asset's checks launches them, without a partition."""
    received(a="# A\n\nOne.\n")
    job = defs.resolve_implicit_global_asset_job_def().get_subset(
        asset_selection=set(),
        asset_check_selection={dg.AssetCheckKey(dg.AssetKey("chunks"), "text_kept")},
    )
    result = job.execute_in_process(instance=instance, raise_on_error=False)
    assert result.success and evaluations(instance, "chunks", "text_kept") == []
    assert any("nothing was checked" in e.user_message for e in instance.all_logs(result.run_id))


@pytest.mark.parametrize("name", ["ingest", "release"])
def test_a_run_without_a_partition_says_how_to_choose_one(
    instance: dg.DagsterInstance, name: str
) -> None:
    """As `dagster job execute` starts it."""
    result = defs.resolve_job_def(name).execute_in_process(instance=instance, raise_on_error=False)
    (failed,) = result.get_step_failure_events()
    told = failed.step_failure_data.user_failure_data
    assert told is not None and told.description == (
        f"job '{name}' was started without a partition; choose partitions in the UI, or add --tags"
        """ '{"dagster/partition": "KEY"}' to `dagster job execute`"""
    )


def test_a_partition_of_no_document_stops_no_other(
    instance: dg.DagsterInstance, received: Any, shelf: Any
) -> None:
    """The UI adds any key that is typed into it."""
    (first,) = received(a="# A\n\nOne.\n")
    instance.add_dynamic_partitions("document_versions", ["typed"])
    _, last = received(b="# B\n\nTwo.\n")
    result = run(instance, first, last)
    (failed,) = result.get_step_failure_events()
    assert failed.step_failure_data.user_failure_data.description == (
        "1 of 3 documents failed:\n"
        "typed: [not_found] no version 'typed' in the ledger; delete this partition"
    )
    assert status(instance, "embeddings", [first, "typed", last]) == [
        "MATERIALIZED",
        "FAILED",
        "MATERIALIZED",
    ]
    assert len(shelf.ledger.live("default")) == 2


def test_damaged_data_fails_the_run(
    instance: dg.DagsterInstance, received: Any, shelf: Any
) -> None:
    keys = received(a="# A\n\nOne.\n", b="# B\n\nTwo.\n")
    shelf.store.raw_path(shelf.ledger.version(keys[1]).file_sha256).write_bytes(b"other")
    assert not run(instance, keys[0], keys[-1]).success
    ((partition, found),) = evaluations(instance, "raw_document", "processed")
    assert (partition, found.severity) == (keys[1], dg.AssetCheckSeverity.ERROR)
    assert status(instance, "embeddings", keys) == ["MATERIALIZED", "FAILED"]


def test_events_show_the_beginning_of_what_was_made(
    instance: dg.DagsterInstance, received: Any
) -> None:
    """A document's own Markdown stays quoted: rendered, its pictures would be fetched."""
    text = "Before.\n\n# A\n\n![x](https://example.org/x.png)\n\n````\ncode\n````\n\n## B\n\nTwo.\n"
    (key,) = received(a=text)
    assert run(instance, key, key).success
    metadata = {stage: events(instance, stage)[0].metadata for stage in INGESTION_STAGES}
    preview = metadata["facts"]["preview"]
    assert isinstance(preview, dg.MarkdownMetadataValue)
    assert preview.value.startswith("`````\nBefore.\n") and preview.value.endswith("\n`````")
    assert metadata["sections"]["dagster/row_count"].value == 3
    rows = metadata["chunks"]["preview"]
    assert isinstance(rows, dg.TableMetadataValue)
    assert [record.data["section"] for record in rows.records] == ["", "A", "A / B"]
    assert [record.data["page"] for record in rows.records] == [""] * 3  # a text file has none
    assert rows.records[2].data["text"] == "## B\n\nTwo."
    assert isinstance(metadata["chunks"]["path"], dg.PathMetadataValue)
    assert metadata["media"]["preview"].records[0].data["missing"]


def test_every_asset_says_who_answers_for_it_and_what_makes_it() -> None:
    for asset in defs.resolve_all_asset_specs():
        assert asset.owners == ["team:library"] and asset.kinds and asset.description
        assert asset.group_name in ("ingestion", "release", "evaluation")
        assert asset.tags["rag/layer"]
        (reference,) = asset.metadata["dagster/code_references"].code_references
        lines = Path(reference.file_path).read_text(encoding="utf-8").splitlines()
        beginning = lines[reference.line_number - 1 :][:3]  # decorators before it
        assert any(f"def {reference.label.rpartition('.')[2]}(" in line for line in beginning)


def test_a_run_from_the_ui_is_a_job_too(
    instance: dg.DagsterInstance, received: Any, shelf: Any, elsewhere: Any
) -> None:
    """Found with its documents and figures; one that finds the namespace taken says by whom; what
    failed is retried like any job's.
    """
    keys = received(a="# A\n\nOne.\n", b=b"")
    result = run(instance, keys[0], keys[-1])
    (job,) = shelf.ledger.jobs("default")
    assert (job.kind, job.state, job.args["run_id"]) == ("ingest", "partly", result.run_id)
    states = {item.source_uri: item.state for item in shelf.ledger.job_items(job.job_id)}
    assert states == {"default/a.md": "done", "default/b.md": "failed"}
    assert job.result["documents"] == 1 and job.ended_at and "1 document failed" in job.reason
    with elsewhere(shelf.store.writer("default", "ingest job_4711")):
        assert not run(instance, keys[0], keys[0]).success
    (busy, _) = shelf.ledger.jobs("default")
    assert "being written by ingest job_4711" in busy.reason
    assert f"; `rag jobs retry {busy.job_id}` does the work then" in busy.reason
    assert run(instance, keys[0], keys[0], ("raw_document", "facts")).success
    assert shelf.ledger.jobs("default")[0].state == "done"


def test_bytes_that_changed_on_disk_are_refused(
    instance: dg.DagsterInstance, received: Any, shelf: Any
) -> None:
    (key,) = received(a="# A\n\nOne.\n")
    shelf.store.raw_path(shelf.ledger.version(key).file_sha256).write_bytes(b"# A\n\nAnother.\n")
    assert not run(instance, key, key).success
    assert shelf.ledger.version(key).code == "raw_changed" and not shelf.ledger.live("default")


def test_a_part_of_the_stages_completes_nothing(
    instance: dg.DagsterInstance, received: Any, shelf: Any
) -> None:
    keys = received(a="# A\n\nOne.\n")
    assert run(instance, keys[0], keys[0], ("raw_document", "facts")).success
    assert status(instance, "facts", keys) == ["MATERIALIZED"] and status(
        instance, "media", keys
    ) == [None]
    assert not shelf.ledger.live("default")
    assert run(instance, keys[0], keys[0]).success
    assert [event.metadata["reused"].value for event in events(instance, "facts")] == [False, True]
    assert len(shelf.ledger.live("default")) == 1


def test_one_run_may_cover_two_namespaces(
    instance: dg.DagsterInstance, received: Any, shelf: Any
) -> None:
    mine, yours = received("mine", a="# A\n\nOne.\n"), received("yours", a="# A\n\nOne.\n")
    assert run(instance, mine[0], yours[0]).success
    assert status(instance, "embeddings", [*mine, *yours]) == ["MATERIALIZED"] * 2
    assert [len(shelf.ledger.live(name)) for name in ("mine", "yours")] == [1, 1]
    # equal bytes elsewhere are another document that computes nothing
    counted = [
        (e.metadata["batch_computed"].value, e.metadata["batch_reused"].value)
        for e in events(instance, "embeddings")
    ]
    assert counted == [(1, 0), (0, 1)]
    assert [event.metadata["reused"].value for event in events(instance, "facts")] == [False, True]


def test_a_backfill_over_old_partitions_brings_nothing_old_back(
    instance: dg.DagsterInstance, received: Any, shelf: Any
) -> None:
    """All partitions are run again, as a backfill does: what was live stays live, what was retired
    stays retired.
    """
    (first,) = received(a="# A\n\nOne.\n")
    assert run(instance, first, first).success
    (second,) = received(a="# A\n\nTwo.\n")
    assert run(instance, second, second).success
    # the first bytes again: their partition stands before the second one's
    (back,) = received(a="# A\n\nOne.\n")
    assert back == first and run(instance, first, first).success
    (other,) = received(b="# B\n\nGone soon.\n")
    assert run(instance, other, other).success
    shelf.ledger.retire("default", [shelf.ledger.version(other).doc_id])

    result = run(instance, first, other)
    assert result.success
    assert [version.version_id for _, version in shelf.ledger.live("default")] == [first]
    (warned,) = [
        log.user_message for log in instance.all_logs(result.run_id) if log.level == logging.WARNING
    ]
    assert second in warned and other in warned and first not in warned
    assert status(instance, "embeddings", [first, second, other]) == ["MATERIALIZED"] * 3


def test_an_older_version_that_failed_does_not_replace_a_newer_one(
    instance: dg.DagsterInstance, received: Any, shelf: Any
) -> None:
    (first,) = received(a="# A\n\nOne.\n")
    raw = shelf.store.raw_path(shelf.ledger.version(first).file_sha256)
    kept = raw.read_bytes()
    raw.unlink()
    assert not run(instance, first, first).success
    (second,) = received(a="# A\n\nTwo.\n")
    assert run(instance, second, second).success
    with shelf.ledger._write() as db:  # the clock counts seconds, this test does not take one
        db.execute(
            "UPDATE versions SET received_at = '2026-01-01T00:00:00Z' WHERE version_id = ?",
            (first,),
        )
    raw.write_bytes(kept)
    assert run(instance, first, first).success
    assert [version.version_id for _, version in shelf.ledger.live("default")] == [second]
    assert shelf.ledger.version(first).status == "ready"


def test_pages_are_checked_document_by_document(
    shelf: Any, tiny: Any, tmp_path: Path, instance: dg.DagsterInstance, two_pages: Path
) -> None:
    (tmp_path / "note.md").write_text("# Note\n\nNo pages here.\n", encoding="utf-8")
    parts = {
        "settings": shelf.settings,
        "strategy": tiny,
        "store": shelf.store,
        "ledger": shelf.ledger,
    }
    keys = list(
        receive(
            [two_pages, tmp_path / "note.md"], "default", Workspace(**parts), ReceiveOptions()
        ).to_process
    )
    instance.add_dynamic_partitions(document_versions.name or "", keys)
    tags = {RANGE_START: keys[0], RANGE_END: keys[-1]}
    assert defs.resolve_job_def("ingest").execute_in_process(instance=instance, tags=tags).success
    key = dg.AssetCheckKey(dg.AssetKey("facts"), "pages_complete")
    records = instance.event_log_storage.get_asset_check_execution_history(key, limit=10)
    assert [(record.partition, record.status.value) for record in records] == [
        (keys[0], "SUCCEEDED")
    ]
    event = records[0].event
    assert event is not None and event.dagster_event is not None
    details = event.dagster_event.asset_check_evaluation_data.metadata["details"].value
    assert str(details).startswith("2 of 2 pages; 1 without text, 0 of these could not be read")
    figures = event.dagster_event.asset_check_evaluation_data.metadata
    assert (figures["pages"].value, figures["pages_without_text"].value) == (2, 1)
    page = events(instance, "facts")[0].metadata["page_1"].value
    assert str(page).startswith("![page 1](data:image/png;base64,")
    # for the text, which lost nothing, an event is saved
    key = dg.AssetCheckKey(dg.AssetKey("chunks"), "text_kept")
    records = instance.event_log_storage.get_asset_check_execution_history(key, limit=10)
    assert [(record.partition, record.status.value) for record in records] == [
        (keys[0], "SUCCEEDED")
    ]
    event = records[0].event
    assert event is not None and event.dagster_event is not None
    details = event.dagster_event.asset_check_evaluation_data.metadata["details"].value
    assert details == "100.0% of 6 words that a second reader finds stand in the chunks"


def test_a_lost_document_fails_its_check_and_a_loss_warns(received: Any, shelf: Any) -> None:
    version = shelf.ledger.version(received(note="One.\n")[0])
    for state, severity in (
        ("warned", dg.AssetCheckSeverity.WARN),
        ("failed", dg.AssetCheckSeverity.ERROR),
    ):
        counts = {"text_kept_state": state, "text_kept_details": "40.0% of 10 words"}
        outcome = StageOutcome("chunks", "p", False, 0.1, "path", "", counts, ())
        (result,) = document_checks(outcome)
        judged = evaluation(version, outcome, result)
        assert (judged.check_name, judged.passed, judged.severity) == ("text_kept", False, severity)


@pytest.fixture
def two_pages(tmp_path: Path) -> Path:
    """A PDF of a page with text and an empty one."""
    with pymupdf.open() as document:
        document.new_page().insert_text((72, 72), "Only the first page says anything.")
        document.new_page()
        document.save(tmp_path / "two.pdf")
    return tmp_path / "two.pdf"


LONG = "# A\n\n" + "\n\n".join(
    f"Paragraph {number} says that gate {number} opens at noon and closes before night."
    for number in range(12)
)


def stability(instance: dg.DagsterInstance) -> list[tuple[str, str, str]]:
    """(partition, status, details) of every evaluation of chunks_stable, by partition."""
    key = dg.AssetCheckKey(dg.AssetKey("chunks"), "chunks_stable")
    rows = []
    for record in instance.event_log_storage.get_asset_check_execution_history(key, limit=10):
        assert record.event is not None and record.event.dagster_event is not None
        if record.status.value == "PLANNED":
            continue
        evaluation = record.event.dagster_event.asset_check_evaluation_data
        rows.append(
            (str(record.partition), record.status.value, str(evaluation.metadata["details"].value))
        )
        assert evaluation.severity == dg.AssetCheckSeverity.WARN
    return sorted(rows)


def test_a_check_warns_when_chunks_move_under_an_unchanged_text(
    instance: dg.DagsterInstance, received: Any, shelf: Any, tiny: Any, config_folder: Path
) -> None:
    keys = received(a=LONG, b="# B\n\nShort.\n")
    assert run(instance, keys[0], keys[-1]).success and stability(instance) == []
    old = stage_profiles(tiny)["chunks"]
    strategy = config_folder / "strategies" / "tiny.yaml"
    strategy.write_text(
        strategy.read_text(encoding="utf-8").replace("chunk_size: 400", "chunk_size: 200"),
        encoding="utf-8",
    )
    new = stage_profiles(load_strategy(shelf.settings, "tiny"))["chunks"]
    assert run(instance, keys[0], keys[-1]).success  # a warning, not a failure

    found = {partition: (result, details) for partition, result, details in stability(instance)}
    (moved, why), (stayed, _) = (found[key] for key in keys)
    assert (len(found), moved, stayed) == (2, "FAILED", "SUCCEEDED")
    assert (
        "the text is the same; sections stayed" in why
        and f"under {old}" in why
        and f"under {new}" in why
    )
    last = {
        event.partition: event.metadata["drift"].value for event in events(instance, "chunks")[-2:]
    }
    assert last == dict(zip(keys, ("length", "none"), strict=True))
    recorded = shelf.ledger.version(keys[0]).counts["drift"]
    assert (recorded["kind"], recorded["against"], recorded["chunks"]) == (
        "length",
        keys[0],
        [old, new],
    )

    # the same once more has nothing new to say, and a changed text is no drift
    assert run(instance, keys[0], keys[0]).success and len(stability(instance)) == 2
    assert shelf.ledger.version(keys[0]).counts["drift"] == recorded
    *_, changed = received(b="# B\n\nLonger.\n")
    assert run(instance, changed, changed).success and len(stability(instance)) == 2
    assert shelf.ledger.version(changed).counts["drift"]["kind"] == "content"


def test_another_structure_of_the_same_text_is_structure_drift(
    instance: dg.DagsterInstance, received: Any, shelf: Any, config_folder: Path
) -> None:
    (key,) = received(a="# A\n\nOne.\n\n## B\n\nTwo.\n")
    assert run(instance, key, key).success
    strategy = config_folder / "strategies" / "tiny.yaml"
    strategy.write_text(
        strategy.read_text(encoding="utf-8").replace(
            "max_section_level: 2", "max_section_level: 1"
        ),
        encoding="utf-8",
    )
    assert run(instance, key, key).success
    ((partition, outcome, why),) = stability(instance)
    assert (partition, outcome) == (key, "FAILED") and "sections moved: 2 under" in why
