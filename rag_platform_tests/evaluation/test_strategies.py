"""Strategies compared on one dataset, and what may be promoted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rag_platform.errors import InputError, NotFoundError
from rag_platform.evaluation.cases import Dataset, EvalCase, ExpectedText
from rag_platform.evaluation.reporting.reports import comparison_table
from rag_platform.evaluation.results import ResultStore
from rag_platform.evaluation.runs import RunOptions, open_library
from rag_platform.evaluation.strategies import (
    QUERY_VARIANTS,
    compare_strategies,
    evaluation_targets,
    parse_names,
    require_promotable,
    run_strategy,
)
from rag_platform.workspace import DataRoot
from rag_platform_tests.conftest import PORTS, Shelf

GOLDEN = Dataset(
    dataset_id="golden",
    version="1",
    k_values=(10,),
    cases=(
        EvalCase(
            case_id="port",
            query="Which port does the gateway listen on?",
            expected_text=(ExpectedText(text="port 8080", file="ports.md"),),
        ),
    ),
)


@pytest.fixture
def root(shelf: Shelf, tmp_path: Path) -> DataRoot:
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "ports.md").write_text(PORTS, encoding="utf-8")
    shelf.ingest(folder)
    return DataRoot(settings=shelf.settings, store=shelf.store, ledger=shelf.ledger)


@pytest.fixture
def results(tmp_path: Path) -> Iterator[ResultStore]:
    store = ResultStore(tmp_path / "results")
    yield store
    store.close()


def test_datasets_are_asked_of_the_libraries_that_they_belong_to(
    shelf: Shelf, config_folder: Path
) -> None:
    def targets() -> set[str]:
        return {*evaluation_targets(shelf.settings)}

    own = config_folder / "datasets" / "own.csv"
    own.parent.mkdir(exist_ok=True)
    own.write_text("query,file\nWhich port?,ports.md\n", encoding="utf-8")
    assert targets() == {"own@default"}  # before the first ingest
    shelf.ledger.bind_strategy("hr", "tiny", "")
    assert targets() == {"own@hr"}
    shelf.ledger.bind_strategy("demo", "tiny", "")
    assert targets() == {"golden@demo", "own@demo", "own@hr"}  # that one is shipped
    (config_folder / "gates.yaml").write_text("hr: [{dataset: own}]\n", encoding="utf-8")
    assert targets() == {"golden@demo", "own@hr"}
    # Dagster's definitions are made of them
    (config_folder / "gates.yaml").write_text("hr: own\n", encoding="utf-8")
    assert targets() == {"golden@demo", "own@demo", "own@hr"}
    (config_folder / "gates.yaml").unlink()
    shelf.ledger.bind_strategy("default", "tiny", "")
    assert targets() == {"golden@demo", "own@default"}


def test_every_way_to_ask_is_asked_as_it_says(root: DataRoot, results: ResultStore) -> None:
    with open_library(root.settings, root.store) as library:
        runs = {
            name: run_strategy(root, library, GOLDEN, RunOptions(strategy=name), results)
            for name in ("tiny", *QUERY_VARIANTS)
        }
    modes = {
        name: next(results.cases(run.run_id)).artifacts["effective_mode"]
        for name, run in runs.items()
    }
    assert modes == {
        "tiny": "hybrid",
        "dense_only": "dense",
        "sparse_only": "sparse",
        "hybrid": "hybrid",
        "hybrid+rerank": "hybrid",
    }
    assert len({run.strategy_config_id for run in runs.values()}) >= 4
    found = compare_strategies(runs, results)
    assert list(found.comparisons) == list(QUERY_VARIANTS)
    table = comparison_table(found).splitlines()
    assert table[0] == "| metric | tiny | dense_only | sparse_only | hybrid | hybrid+rerank |"
    assert any(line.startswith("| retrieval.hit_rate@10 | 1.000 |") for line in table)


def test_what_cannot_be_compared_is_named(root: DataRoot, results: ResultStore) -> None:
    with open_library(root.settings, root.store) as library:
        with pytest.raises(NotFoundError, match=r"'tinny'.*tiny.*dense_only"):
            run_strategy(root, library, GOLDEN, RunOptions(strategy="tinny"), results)
        run = run_strategy(root, library, GOLDEN, RunOptions(strategy="tiny"), results)
    assert compare_strategies({"tiny": run}, results).comparisons == {}
    assert parse_names(" a, b,,a ") == ["a", "b"]


def test_only_another_strategy_file_can_be_promoted(root: DataRoot) -> None:
    with pytest.raises(InputError, match="has strategy 'tiny' already"):
        require_promotable(root, "default", "tiny")
    with pytest.raises(InputError, match="mode: dense"):
        require_promotable(root, "default", "dense_only")
    with pytest.raises(NotFoundError, match="known: "):
        require_promotable(root, "default", "nobody")
