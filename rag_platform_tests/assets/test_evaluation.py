"""Evaluation in Dagster: figures are numbers, reports Markdown, and the signals only warn."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.definitions.data_version import CachingStaleStatusResolver, StaleStatus
from dagster._core.loader import LoadingContextForTest

from rag_platform.assets.evaluation import _compare, nightly_evaluation
from rag_platform.assets.partitions import namespaces
from rag_platform.assets.resources import DataRootOpener
from rag_platform.assets.runs import namespace_of_run
from rag_platform.errors import InputError
from rag_platform.evaluation.results import ResultStore
from rag_platform_tests.conftest import PORTS, Shelf

pytestmark = pytest.mark.integration

CASES = """
k_values: [10]
cases:
  - case_id: port
    query: Which port does the gateway listen on?
    expected_text: {text: port 8080, file: ports.md}
"""


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as made:
        made.add_dynamic_partitions(namespaces.name or "", ["default"])
        yield made


@pytest.fixture
def shelved(shelf: Shelf, tmp_path: Path, config_folder: Path) -> Shelf:
    (config_folder / "datasets").mkdir(exist_ok=True)
    (config_folder / "datasets" / "golden.yaml").write_text(CASES, encoding="utf-8")
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "ports.md").write_text(PORTS, encoding="utf-8")
    shelf.ingest(folder)
    return shelf


def metadata(instance: dg.DagsterInstance, key: str, partition: str) -> dict[str, Any]:
    wanted = dg.AssetRecordsFilter(dg.AssetKey(key), asset_partitions=[partition])
    (record,) = instance.fetch_materializations(wanted, limit=1).records
    assert record.asset_materialization is not None
    return dict(record.asset_materialization.metadata)


def test_the_night_logs_a_run_a_strategy_and_the_comparison(
    instance: dg.DagsterInstance, shelved: Shelf, tmp_path: Path
) -> None:
    from rag_platform.definitions import defs

    result = defs.resolve_job_def("evaluation").execute_in_process(instance=instance)
    assert result.success
    found = metadata(instance, "evaluation_run", "golden@default|sparse_only")
    assert found["retrieval.hit_rate@10"] == dg.FloatMetadataValue(1.0)
    assert isinstance(found["report"], dg.MarkdownMetadataValue)
    graph = defs.resolve_asset_graph()
    assert graph.get(dg.AssetKey("evaluation_run")).parent_keys == {
        dg.AssetKey("published_release")
    }
    assert (shelved.store.home / found["files"].value / "cases.parquet").is_file()
    compared = metadata(instance, "strategy_comparison", "golden@default")
    assert compared["compared_with"].value == "tiny"
    assert compared["retrieval.hit_rate@10 of dense_only"] == dg.FloatMetadataValue(1.0)
    table = str(compared["table"].value)
    assert table.startswith("| metric | tiny | dense_only | hybrid | hybrid+rerank | sparse_only |")
    (drift,) = result.get_asset_check_evaluations()
    assert (drift.check_name, drift.passed, drift.severity) == (
        "drift",
        True,
        dg.AssetCheckSeverity.WARN,
    )
    assert "it takes 30" in str(drift.metadata["report"].value)
    (job,) = shelved.ledger.jobs(state="done", limit=10)
    assert (job.kind, job.namespace) == ("evaluate", "")
    assert nightly_evaluation.default_status == dg.DefaultScheduleStatus.STOPPED

    # neither another library's release nor a strategy that was not asked makes them stale
    instance.add_dynamic_partitions(namespaces.name or "", ["other"])
    other = dg.AssetMaterialization("published_release", partition="other")
    instance.report_runless_asset_event(other)
    resolver = CachingStaleStatusResolver(instance, graph, LoadingContextForTest(instance))
    for key, partition in (
        ("evaluation_run", "golden@default|tiny"),
        ("strategy_comparison", "golden@default"),
    ):
        assert resolver.get_status(dg.AssetKey(key), partition) == StaleStatus.FRESH, key

    # runs of an earlier release say nothing of the one that readers see
    (tmp_path / "docs" / "notes.md").write_text("# Notes\n\nA new release.\n", encoding="utf-8")
    shelved.ingest(tmp_path / "docs")
    with (
        closing(ResultStore(shelved.store.home)) as store,
        dg.build_op_context(instance=instance) as context,
        pytest.raises(InputError, match="0 strategies were evaluated"),
    ):
        _compare(context, DataRootOpener(), "golden@default", store)


def test_checks_alone_look_at_every_published_library(
    instance: dg.DagsterInstance, shelved: Shelf
) -> None:
    """As "Execute all" on the page of an asset's checks launches them, without a partition."""
    from rag_platform.definitions import defs

    event = dg.AssetMaterialization("published_release", partition="default")
    instance.report_runless_asset_event(event)
    shelved.ledger.bind_strategy("empty", "tiny", "")  # received, never published
    key = dg.AssetCheckKey(dg.AssetKey("published_release"), "drift")
    job = defs.resolve_implicit_global_asset_job_def().get_subset(
        asset_selection=set(), asset_check_selection={key}
    )
    result = job.execute_in_process(instance=instance, raise_on_error=False)
    assert result.success
    run = instance.get_run_by_id(result.run_id)
    assert run is not None and namespace_of_run(run, shelved.ledger) == ""  # no release follows it
    (found,) = result.get_asset_check_evaluations()
    assert (found.partition, found.passed) == ("default", True)
    assert found.target_materialization_data is not None
