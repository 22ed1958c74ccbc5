"""Runs over a small published library: labels, metrics by hand, reuse, stale labels, comparison."""

from __future__ import annotations

import dataclasses
import os
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from rag_platform.api.traces import list_traces
from rag_platform.errors import ConfigError, InputError, NotFoundError, SchemaVersionError
from rag_platform.evaluation.cases import Dataset, EvalCase, ExpectedText
from rag_platform.evaluation.comparing import compare_runs, eval_trends
from rag_platform.evaluation.labels import find_quote, fold, is_in_pieces
from rag_platform.evaluation.measuring import AskedCase, CaseMetrics, Judge
from rag_platform.evaluation.reporting.reports import compare_markdown
from rag_platform.evaluation.reporting.views import get_eval_case
from rag_platform.evaluation.results import CaseResult, EvalRun, ResultStore
from rag_platform.evaluation.runs import RunOptions, evaluate, open_library
from rag_platform.ir import Chunk, Json
from rag_platform.observability import tracing
from rag_platform.observability.trace_store.queries import TraceFilter
from rag_platform.processes.launchers import identity
from rag_platform.retrieval.library import Library
from rag_platform_tests.conftest import Shelf

PORT = EvalCase(
    case_id="port",
    query="Which port does the gateway listen on?",
    expected_text=(ExpectedText(text="port 8080", file="ports.md"),),
)
LEAVE = EvalCase(case_id="leave", query="员工有多少天年假？", expected_files=("休假.md",))
UNKNOWN = EvalCase(case_id="unknown", query="zebra migration quotas", should_refuse=True)
GONE = EvalCase(
    case_id="gone",
    query="Which port does the gateway listen on?",
    expected_text=(ExpectedText(text="port 9999", file="ports.md"),),
    expected_files=("missing.md",),
)


def dataset(*cases: EvalCase) -> Dataset:
    return Dataset(dataset_id="small", version="1", cases=cases, k_values=(1, 3))


@pytest.fixture
def library(read_only_shelf: Shelf) -> Iterator[Library]:
    with open_library(read_only_shelf.settings, read_only_shelf.store) as made:
        yield made


@pytest.fixture
def results(tmp_path: Path) -> Iterator[ResultStore]:
    store = ResultStore(tmp_path)
    yield store
    store.close()


def run(library: Library, results: ResultStore, data: Dataset, **options: object) -> EvalRun:
    return evaluate(
        library,
        data,
        RunOptions(namespace="default", **options),  # type: ignore[arg-type]
        results,
    )


def by_case(results: ResultStore, found: EvalRun) -> dict[str, CaseResult]:
    return {result.case_id: result for result in results.cases(found.run_id)}


def test_cases_are_measured_by_their_labels(library: Library, results: ResultStore) -> None:
    found = run(library, results, dataset(PORT, LEAVE, UNKNOWN))
    cases = by_case(results, found)
    assert list(cases) == ["port", "leave", "unknown"]
    assert cases["port"].metrics["retrieval.hit_rate@1"] == 1.0
    assert cases["port"].metrics["answer.evidence"] == 1.0
    assert cases["leave"].metrics["retrieval.mrr@3"] == 1.0
    assert cases["unknown"].metrics == {"refusal.right": 1.0}
    assert found.aggregates["retrieval.hit_rate@1"] == {
        "value": 1.0, "low": pytest.approx(0.3424, abs=5e-5), "high": 1.0, "cases": 2.0
    }  # fmt: skip
    assert (found.status, found.cases, found.failed, found.reused) == ("done", 3, 0, 0)
    assert cases["port"].trace_id and cases["port"].artifacts["retrieved"][0]["chunk_id"]


def test_a_run_leaves_a_trace_of_its_own(library: Library, results: ResultStore) -> None:
    found = run(library, results, dataset(PORT, UNKNOWN))
    trace = list_traces(library.store, TraceFilter(kinds=("evaluation",)))["traces"][0]
    assert (trace["namespace"], trace["status"]) == ("default", "ok")
    assert trace["release_id"] == found.release_id
    assert trace["strategy_config_id"] == found.strategy_config_id
    assert trace["counters"] == {"cases": 2, "reused": 0, "failed": 0}


def test_a_label_that_nothing_satisfies_is_stale_and_no_loss(
    library: Library, results: ResultStore
) -> None:
    found = run(library, results, dataset(PORT, GONE), mode="retrieval_only")
    gone = by_case(results, found)["gone"]
    assert gone.stale == ({"label": "text 1", "reason": "text_gone"},)
    assert gone.metrics == {}
    assert found.aggregates["retrieval.hit_rate@1"]["cases"] == 1.0
    assert found.figures["stale_labels"] == 1 and found.figures["unmeasured"] == 1


def test_a_text_that_is_cut_into_pieces_is_there_and_found_in_none(library: Library) -> None:
    with library.lease("default") as lease:
        catalog = lease.release.catalog
        version_id = next(iter(catalog.versions()))
        chunk = catalog.chunks_of_version(version_id)[0]
    pieces: list[tuple[Chunk, str]] = []
    for number, (text, start) in enumerate([("The po", 0), ("rt is 80", 6), ("8080, here", 12)]):
        end = start + len(text)
        piece = dataclasses.replace(
            chunk, chunk_id=str(number), chunk_text=text, norm_start=start, norm_end=end
        )
        pieces.append((piece, fold(text)))
    expected = ExpectedText(text="port is 8080, here")
    assert find_quote(pieces, expected) == [] and is_in_pieces(pieces, expected)
    assert find_quote(pieces, ExpectedText(text="port is 80")) == ["0", "1"]
    assert not is_in_pieces(pieces[:2], expected)


def test_a_text_is_expected_in_the_files_that_the_case_names(
    library: Library, results: ResultStore
) -> None:
    case = EvalCase(
        case_id="port",
        query="Which port does the gateway listen on?",
        expected_text=(ExpectedText(text="port 8080"),),
        expected_files=("休假.md",),
    )
    there = dataclasses.replace(case, case_id="there", expected_files=("ports.md",))
    gone = dataclasses.replace(case, case_id="gone", expected_files=("missing.md",))
    found = by_case(results, run(library, results, dataset(case, there, gone)))
    assert [label["reason"] for label in found["port"].stale] == ["text_gone"]
    assert [label["reason"] for label in found["gone"].stale] == ["document_gone"]
    assert found["there"].metrics["retrieval.hit_rate@3"] == 1 and not found["there"].stale


def test_a_dataset_about_other_documents_leaves_no_run(
    library: Library, results: ResultStore
) -> None:
    with pytest.raises(InputError, match="none of the 1 documents and texts that small expects"):
        run(library, results, dataset(GONE, UNKNOWN), require_found=True)
    assert results.runs() == []
    assert run(library, results, dataset(GONE, PORT), require_found=True).status == "done"


def test_a_question_that_fails_counts_0(library: Library, results: ResultStore) -> None:
    empty = EvalCase(case_id="empty", query=" ", expected_files=("ports.md",))
    found = run(library, results, dataset(PORT, empty))
    failed = by_case(results, found)["empty"]
    assert failed.error.startswith("empty_query: ")
    assert failed.metrics["retrieval.hit_rate@3"] == 0.0
    assert found.failed == 1
    assert found.aggregates["retrieval.hit_rate@3"]["value"] == 0.5


def test_a_question_that_fails_is_no_refusal(library: Library, results: ResultStore) -> None:
    empty = EvalCase(case_id="empty", query=" ", should_refuse=True)
    found = run(library, results, dataset(UNKNOWN, empty))
    cases = by_case(results, found)
    assert cases["unknown"].metrics["refusal.right"] == 1.0
    assert cases["empty"].metrics["refusal.right"] == 0.0


def test_a_scope_that_is_no_filter_fails_its_case_alone(
    library: Library, results: ResultStore
) -> None:
    wrong = EvalCase(
        case_id="wrong", query="Which port?", doc_scope={"doc": "x"}, expected_files=("ports.md",)
    )
    found = run(library, results, dataset(PORT, wrong), mode="retrieval_only")
    failed = by_case(results, found)["wrong"]
    assert failed.error.startswith("unknown_filter: ")
    assert failed.metrics["retrieval.coverage"] == failed.metrics["retrieval.mrr@3"] == 0.0
    assert found.failed == 1


def test_what_did_not_change_is_taken_over(library: Library, results: ResultStore) -> None:
    first = run(library, results, dataset(PORT, LEAVE))
    again = run(library, results, dataset(PORT, LEAVE, UNKNOWN))
    assert again.reused == 2
    one, other = by_case(results, first), by_case(results, again)
    assert one["port"].trace_id == other["port"].trace_id
    assert run(library, results, dataset(PORT, LEAVE), reuse=False).reused == 0
    # the mode is part of what a result depends on
    assert run(library, results, dataset(PORT), mode="retrieval_only").reused == 0


def test_a_killed_run_goes_on(library: Library, results: ResultStore) -> None:
    many = [
        EvalCase(case_id=str(n), query=f"port {n}", expected_files=("ports.md",)) for n in range(70)
    ]

    class Killed(BaseException):
        pass

    def kill(done: int, total: int) -> None:
        assert total == 70
        if done == 64:  # committed
            raise Killed

    with pytest.raises(Killed):
        evaluate(
            library, dataset(*many), RunOptions(namespace="default"), results, on_progress=kill
        )
    assert results.runs()[0].status == "cancelled"
    found = run(library, results, dataset(*many))
    assert found.reused == 64
    fresh = run(library, results, dataset(*many), reuse=False)
    assert fresh.aggregates == found.aggregates


@pytest.mark.parametrize(
    ("error", "status"), [(OSError, "failed"), (KeyboardInterrupt, "cancelled")]
)
def test_a_run_that_did_not_finish_says_how_it_ended(
    library: Library, results: ResultStore, error: type[BaseException], status: str
) -> None:
    def fail(done: int, total: int) -> None:
        raise error

    with pytest.raises(error):
        evaluate(library, dataset(PORT), RunOptions(namespace="default"), results, on_progress=fail)
    assert results.runs()[0].status == status and results.runs()[0].ended_at


def test_a_run_counts_as_running_while_its_process_is_there(
    library: Library, results: ResultStore
) -> None:
    finished, now = run(library, results, dataset(PORT)), tracing.now()
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        here = {"pid": process.pid, **identity(process.pid)}
        elsewhere = {**here, "host": "another"}
        for run_id, started, given in (
            ("here", now, here),
            ("elsewhere", now, elsewhere),
            ("lost", "2026-01-01T00:00:00.000Z", elsewhere),
            ("before", now, {}),  # of a program that recorded no process
        ):
            figures = {"process": given} if given else {}
            results.put_run(
                dataclasses.replace(
                    finished, run_id=run_id, started_at=started, status="running", figures=figures
                )
            )
        at_work = {run.run_id for run in results.runs() if run.status == "running"}
        assert at_work == {"here", "elsewhere"}
        assert results.run("lost").status == results.run("before").status == "killed"
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # ended, not waited for
        assert results.run("here").status == "killed"
    assert results.run("here").status == "killed"


def test_a_case_is_shown_without_its_release_but_not_over_a_damaged_one(
    shelf: Shelf, tmp_path: Path, results: ResultStore
) -> None:
    (tmp_path / "ports.md").write_text("The gateway listens on port 8080.", encoding="utf-8")
    folder = shelf.store.release_dir("default", shelf.ingest(tmp_path / "ports.md"))
    with open_library(shelf.settings, shelf.store) as library:
        found = run(library, results, dataset(PORT))
    (tmp_path / "ports.md").write_text("The gateway listens on port 9090.", encoding="utf-8")
    shelf.ingest(tmp_path / "ports.md")

    def passages() -> list[str]:
        with open_library(shelf.settings, shelf.store) as library:
            shown = get_eval_case(library, tmp_path, found.run_id, "port")
        return [row["text"] for row in shown["found"]]

    assert "port 8080" in passages()[0]
    catalog = folder / "catalog.sqlite"
    catalog.chmod(0o600)
    catalog.write_text("no database", encoding="utf-8")
    with pytest.raises(SchemaVersionError, match="is not a catalog"):
        passages()
    shutil.rmtree(folder)
    assert passages() == [""]


def test_two_runs_are_compared_case_by_case(library: Library, results: ResultStore) -> None:
    data = dataset(PORT, LEAVE)
    good = run(library, results, data)
    worse = EvalRun(
        **{name: getattr(good, name) for name in EvalRun.__dataclass_fields__} | {"run_id": "other"}
    )
    results.put_run(worse)
    lost, unmeasured = {"retrieval.hit_rate@3": 0.0}, "retrieval.ndcg@3"
    changed = [
        CaseResult(
            case_id=item.case_id, position=item.position, key="k" + item.key, query=item.query,
            stale=({"label": "text 2", "reason": "text_gone"},) if n == 0 else (),
            metrics={**item.metrics, **lost} if n == 0
            else {name: value for name, value in item.metrics.items() if name != unmeasured},
        )
        for n, item in enumerate(results.cases(good.run_id))
    ]  # fmt: skip
    results.put_cases("other", changed)
    found = compare_runs(good, worse, results)
    assert found.stale == ("port",)
    assert "stale in one of the runs (1): port" in compare_markdown(found)
    assert found.differences["retrieval.hit_rate@3"].value == -0.5
    assert found.means["retrieval.hit_rate@3"] == (1.0, 0.5)
    ndcg = by_case(results, good)["port"].metrics[unmeasured]
    assert found.means[unmeasured] == (ndcg, ndcg)  # of the case that both measured
    assert [(flip["case_id"], flip["metric"]) for flip in found.worse] == [
        ("port", "retrieval.hit_rate@3")
    ]
    assert found.better == ()
    other = run(library, results, dataset(PORT))
    with pytest.raises(InputError, match="only runs of the same cases"):
        compare_runs(good, other, results)


def test_flips_and_trends_keep_to_what_both_runs_measured(
    library: Library, results: ResultStore
) -> None:
    data = dataclasses.replace(dataset(PORT, LEAVE), k_values=(1, 10))
    good = run(library, results, data)
    later = {"started_at": f"{good.started_at}1", "run_id": "other"}
    item = {**good.aggregates["retrieval.mrr@10"], "value": 0.25, "cases": 1.0}
    fewer = {**good.aggregates, "retrieval.mrr@10": item}
    results.put_run(dataclasses.replace(good, **later, aggregates=fewer))
    missed = [
        dataclasses.replace(
            one, key=f"k{one.key}", metrics={**one.metrics, "retrieval.hit_rate@1": 0.0}
        )
        for one in results.cases(good.run_id)
    ]
    results.put_cases("other", missed)
    flips = compare_runs(good, results.run("other"), results).worse
    assert {flip["metric"] for flip in flips} == {"retrieval.hit_rate@1"}
    points = eval_trends(results.runs(), "retrieval.mrr@10", days=1000)
    assert [(point["cases"], point["change"]) for point in points] == [(2, None), (1, None)]
    points = eval_trends(results.runs(), "retrieval.ndcg@10", days=1000)
    assert [point["change"] for point in points] == [None, 0.0]


def test_wrong_options_are_named(library: Library, results: ResultStore) -> None:
    with pytest.raises(ConfigError, match="unknown metric_set 'precision'"):
        run(library, results, dataset(PORT), metric_sets=("precision",))
    with pytest.raises(InputError, match="unknown mode"):
        run(library, results, dataset(PORT), mode="generation")
    with pytest.raises(NotFoundError):
        evaluate(library, dataset(PORT), RunOptions(namespace="nowhere"), results)
    with pytest.raises(NotFoundError, match="no run begins"):
        results.run("eval_0")
    run(library, results, dataset(PORT))
    for name in ("eval%", "_val_"):  # no wildcards
        with pytest.raises(NotFoundError, match=f"no run begins with '{name}'"):
            results.run(name)


@dataclass(frozen=True)
class Lengths:
    """A metric set and a judge of one's own, by dotted path."""

    VERSION: ClassVar[str] = "7"

    def profile(self) -> Json:
        return {"judge_provider_id": "lengths", "temperature": 0}

    def compute(
        self, items: Sequence[AskedCase], k_values: Sequence[int], judge: Judge | None = None
    ) -> CaseMetrics:
        assert judge == self
        return {item.case.case_id: {"hits": float(len(item.result.hits))} for item in items}


@dataclass(frozen=True)
class Clash(Lengths):
    """Measures under a name that `retrieval` has."""

    def compute(
        self, items: Sequence[AskedCase], k_values: Sequence[int], judge: Judge | None = None
    ) -> CaseMetrics:
        return {item.case.case_id: {"retrieval.mrr@3": 1.0} for item in items}


def test_sets_and_judges_of_ones_own_make_another_profile(
    library: Library, results: ResultStore
) -> None:
    own = f"{__name__}:Lengths"
    plain = run(library, results, dataset(PORT), metric_sets=("retrieval",))
    judged = run(library, results, dataset(PORT), metric_sets=("retrieval", own), judge=own)
    assert judged.metric_set_ids == ("retrieval@4", f"{own}@7")
    assert by_case(results, judged)["port"].metrics["hits"] >= 1.0
    assert plain.judge_profile_id == "" and judged.judge_profile_id.startswith("jdg_")
    again = run(library, results, dataset(PORT), metric_sets=("retrieval",), judge=own)
    assert len({plain.eval_profile_id, judged.eval_profile_id, again.eval_profile_id}) == 3
    assert again.reused == 0  # another judge, another result
    with pytest.raises(InputError, match=r"measures 'retrieval.mrr@3', as one before it does"):
        run(library, results, dataset(PORT), metric_sets=("retrieval", f"{__name__}:Clash"))


def test_a_document_is_expected_by_its_tag(library: Library, results: ResultStore) -> None:
    right = EvalCase(case_id="right", query="员工有多少天年假？", expected_tags=("hr",))
    wrong = EvalCase(case_id="wrong", query="员工有多少天年假？", expected_tags=("ops",))
    none = EvalCase(case_id="none", query="员工有多少天年假？", expected_tags=("law",))
    found = run(library, results, dataset(right, wrong, none), mode="retrieval_only")
    cases = by_case(results, found)
    assert cases["right"].metrics["retrieval.hit_rate@1"] == 1.0
    assert cases["wrong"].metrics["retrieval.hit_rate@1"] == 0.0
    assert cases["none"].stale == ({"label": "tag law", "reason": "document_gone"},)


def test_a_part_of_a_run_is_read_without_sorting_all_of_it(
    results: ResultStore, tmp_path: Path
) -> None:
    with closing(sqlite3.connect(tmp_path / "evaluations.sqlite")) as opened:
        plan = opened.execute(
            "EXPLAIN QUERY PLAN SELECT artifacts FROM eval_case_results WHERE run_id = 'r' AND"
            " position > 500 ORDER BY position LIMIT 500"
        ).fetchall()
    assert [line[-1] for line in plan] == [
        "SEARCH eval_case_results USING INDEX eval_case_results_in_order (run_id=? AND position>?)"
    ]
