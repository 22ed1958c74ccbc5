"""Datasets copied into the config folder, runs written to files."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from rag_platform.errors import InputError, NotFoundError
from rag_platform.evaluation.reporting.run_files import export_run
from rag_platform.evaluation.results import CaseResult, EvalRun, ResultStore
from rag_platform.evaluation.sources import import_dataset, open_dataset

CASE = '{"case_id": "port", "query": "Which port?", "expected_files": ["ports.md"]}'
OTHER = '{"case_id": "leave", "query": "几天年假？", "expected_text": "十五天"}'


@pytest.fixture
def datasets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the datasets, not there yet."""
    monkeypatch.setenv("RAG_CONFIG", str(tmp_path / "config"))
    return tmp_path / "config" / "datasets"


def written(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_a_dataset_is_found_by_its_name_once_imported(datasets: Path, tmp_path: Path) -> None:
    source = written(tmp_path / "small.jsonl", CASE, OTHER)
    found = import_dataset(source)
    assert (found.path, found.state) == (datasets / "small.jsonl", "new")
    assert found.path.read_bytes() == source.read_bytes()
    assert open_dataset("small").fingerprint == found.dataset.fingerprint
    assert import_dataset(source).state == "unchanged"
    assert import_dataset(source, name="second").path == datasets / "second.jsonl"


def test_another_dataset_of_the_name_is_only_written_over_when_asked(
    datasets: Path, tmp_path: Path
) -> None:
    import_dataset(written(tmp_path / "small.jsonl", CASE))
    other = written(
        tmp_path / "small.yaml", "- {case_id: a, query: Which port, should_refuse: true}"
    )
    with pytest.raises(InputError, match=r"small\.jsonl is another dataset") as raised:
        import_dataset(other)
    assert raised.value.code == "dataset_exists"
    assert [path.name for path in datasets.iterdir()] == ["small.jsonl"]
    assert import_dataset(other, replace=True).state == "replaced"
    assert [path.name for path in datasets.iterdir()] == ["small.yaml"]
    assert open_dataset("small").cases[0].should_refuse is True


def test_a_shipped_dataset_gives_its_name_away(datasets: Path, tmp_path: Path) -> None:
    found = import_dataset(written(tmp_path / "golden.jsonl", CASE))
    assert (found.path, found.state) == (datasets / "golden.jsonl", "new")
    assert [case.case_id for case in open_dataset("golden").cases] == ["port"]


@pytest.mark.parametrize(
    ("name", "lines", "said"),
    [
        ("a.jsonl", (CASE, "", '{"case_id": "x"}'), "a.jsonl, line 3: `query` is missing"),
        ("a.jsonl", (CASE, "{"), "a.jsonl, line 2 is not JSON"),
        ("a.yaml", ("cases:", "- {case_id: a, query: b, should_refuse: 1}"), "a.yaml, line 2, sho"),
        (
            "a.yaml",
            ("# two", "- case_id: a", "  query: b", "  should_refuse: true", "- {case_id: c}"),
            "a.yaml, line 5: `query` is missing",
        ),
        (
            "a.jsonl",
            ('{"case_id": "a", "query": "b", "should_refuse": true, "doc_scope": {"doc": "x"}}',),
            "a.jsonl, line 1, doc_scope: unknown filter 'doc'",
        ),
        ("a.txt", (CASE,), "a dataset is a file of .jsonl"),
    ],
)
def test_a_faulty_file_is_not_imported_and_the_line_is_named(
    datasets: Path, tmp_path: Path, name: str, lines: tuple[str, ...], said: str
) -> None:
    with pytest.raises(InputError) as raised:
        import_dataset(written(tmp_path / name, *lines))
    assert said in str(raised.value)
    assert not datasets.exists()


def test_what_is_no_file_and_no_name_is_refused(datasets: Path, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="is no file"):
        import_dataset(tmp_path)
    with pytest.raises(InputError, match="names no dataset"):
        import_dataset(written(tmp_path / "a.jsonl", CASE), name="../a")


@pytest.fixture
def results(tmp_path: Path) -> Iterator[ResultStore]:
    store = ResultStore(tmp_path / "home")
    yield store
    store.close()


def a_run(results: ResultStore) -> EvalRun:
    run = EvalRun(
        run_id="eval_1",
        started_at="2026-11-23T10:00:00.000Z",
        ended_at="",
        status="running",
        dataset_id="small",
        dataset_version="1",
        dataset_fingerprint="f",
        namespace="default",
        release_id="rel_1",
        strategy="tiny",
        strategy_config_id="scfg_1",
        eval_profile_id="evp_1",
        metric_set_ids=("retrieval@1",),
        judge_profile_id="",
        mode="retrieval_only",
        cases=2,
        aggregates={"retrieval.mrr@3": {"value": 0.5, "low": 0.5, "high": 0.5, "cases": 1.0}},
    )
    results.put_run(run)
    results.put_cases(
        "eval_1",
        [
            CaseResult(
                case_id="port", position=0, key="k1", query="Which port, then?",
                tags=("net", "en"), metrics={"retrieval.mrr@3": 0.5}, trace_id="trc_1",
            ),
            CaseResult(
                case_id="leave", position=1, key="k2", query="几天年假？",
                error="empty_query: none", stale=({"label": "text 1", "reason": "text_gone"},),
            ),
        ],
    )  # fmt: skip
    return run


def test_a_run_is_written_as_lines_and_as_a_table(results: ResultStore, tmp_path: Path) -> None:
    run = a_run(results)
    with pytest.raises(InputError, match=r"there is no folder .*/out'; make it first"):
        export_run(run, results, tmp_path / "out" / "run.jsonl")
    (tmp_path / "out").mkdir()
    assert export_run(run, results, tmp_path / "out" / "run.jsonl") == 2
    text = (tmp_path / "out" / "run.jsonl").read_text(encoding="utf-8")
    head, *cases = map(json.loads, text.splitlines())
    assert head["eval_run"]["run_id"] == "eval_1"
    assert [case["eval_case_result"]["case_id"] for case in cases] == ["port", "leave"]
    assert cases[0]["eval_case_result"]["metrics"] == {"retrieval.mrr@3": 0.5}
    assert export_run(run, results, tmp_path / "run.csv") == 2
    with (tmp_path / "run.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))
    assert rows == [
        ["case_id", "query", "tags", "error", "stale", "trace_id", "retrieval.mrr@3"],
        ["port", "Which port, then?", "net; en", "", "", "trc_1", "0.5"],
        ["leave", "几天年假？", "", "empty_query: none", "text 1: text_gone", "", ""],
    ]


def test_a_run_is_never_written_over_a_file(results: ResultStore, tmp_path: Path) -> None:
    run, there = a_run(results), written(tmp_path / "golden.jsonl", CASE)
    with pytest.raises(InputError, match="exists; name a new file"):
        export_run(run, results, there)
    assert there.read_text(encoding="utf-8") == CASE + "\n"
    with pytest.raises(InputError, match=r"written as \.jsonl, \.csv"):
        export_run(run, results, tmp_path / "run.xlsx")
