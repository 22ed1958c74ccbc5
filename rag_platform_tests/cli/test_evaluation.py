"""`rag eval` and `rag expect` as a user calls them, over a published library."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import sqlite3
import time
from contextlib import closing, suppress
from pathlib import Path

import dagster as dg
import duckdb
import pyarrow.parquet as pq
import pytest

from rag_platform.config.settings import load_settings
from rag_platform.evaluation.reporting.views import get_eval_run
from rag_platform.ingestion.job_start import start_rebuild
from rag_platform.processes import jobs
from rag_platform.releases.release_store import current
from rag_platform.retrieval.library import Library
from rag_platform.storage.store import Store
from rag_platform.workspace import DataRoot
from rag_platform_tests.cli.conftest import rag
from rag_platform_tests.conftest import PORTS, TINY, Desk, Shelf
from rag_platform_tests.jobs_here import run_here


def documented_sql(home: Path) -> list[list[tuple[object, ...]]]:
    """What the questions of docs/evaluation.md find below a data root."""
    text = (Path(__file__).parents[2] / "docs" / "evaluation.md").read_text(encoding="utf-8")
    block = (
        text.split("```sql\n")[1].split("```")[0].replace("'evaluations/", f"'{home}/evaluations/")
    )
    with duckdb.connect() as database:
        return [
            database.execute(question).fetchall()
            for question in block.split(";")
            if question.strip()
        ]


def test_a_dataset_is_run_listed_shown_and_compared(published: Shelf, tmp_path: Path) -> None:
    path = tmp_path / "golden.jsonl"
    case = {
        "case_id": "port",
        "query": "Which port does the gateway listen on?",
        "expected_text": [{"text": "port 8080", "file": "ports.md"}],
    }
    miss = {"case_id": "miss", "query": "zebra quotas", "expected_text": [{"text": "port 8080"}]}
    path.write_text(f"{json.dumps(case)}\n{json.dumps(miss)}\n", encoding="utf-8")
    code, first = rag("eval", "run", "--dataset", str(path))
    assert code == 0
    run = first["data"]["run"]
    assert run["aggregates"]["retrieval.hit_rate@1"]["cases"] == 2
    code, again = rag("eval", "run", "--dataset", str(path), "--baseline", run["run_id"])
    assert again["data"]["run"]["reused"] == 2
    assert again["data"]["baseline_run_id"] == run["run_id"] and again["data"]["worse"] == []
    folder = Path(again["data"]["files"])
    report = json.loads((folder / "report.json").read_text())
    assert report["run"]["run_id"] == folder.name
    assert report["difference"]["differences"]["retrieval.mrr@10"]["value"] == 0.0
    assert "| retrieval.mrr@10 |" in (folder / "report.md").read_text()
    rows = pq.read_table(folder / "cases.parquet").to_pylist()
    assert [(row["case_id"], dict(row["metrics"])["retrieval.hit_rate@1"]) for row in rows] == [
        ("port", 1.0), ("miss", 0.0)
    ]  # fmt: skip
    assert dict(pq.read_table(folder / "run.parquet").to_pylist()[0]["metrics"]) == {
        name: item["value"] for name, item in again["data"]["run"]["aggregates"].items()
    }
    newest, worst = documented_sql(folder.parents[1])
    assert newest == [(run["strategy"], again["data"]["run"]["started_at"], 0.75)]
    assert [row[:3] for row in worst] == [("zebra quotas", 0.5, 2), (case["query"], 1.0, 2)]
    _, trend = rag("eval", "trends", "retrieval.mrr@10", "--dataset", "golden")
    assert [point["change"] for point in trend["data"]["points"]] == [None, 0.0]
    code, unknown = rag("eval", "trends", "retrieval.map")
    assert code and "retrieval.mrr@10" in unknown["error"]["message"]
    _, cases = rag("eval", "cases", run["run_id"], "--failed")
    assert [item["case_id"] for item in cases["data"]["cases"]] == ["miss"]
    assert len(rag("eval", "cases", run["run_id"])[1]["data"]["cases"]) == 2
    _, listed = rag("eval", "list", "--dataset", "golden")
    assert [item["run_id"] for item in listed["data"]["runs"]] == [
        again["data"]["run"]["run_id"],
        run["run_id"],
    ]
    _, shown = rag("eval", "show", run["run_id"][:12], "--failed")
    assert [item["case_id"] for item in shown["data"]["cases"]] == ["miss"]
    code, compared = rag("eval", "compare", run["run_id"], again["data"]["run"]["run_id"])
    assert code == 0 and compared["data"]["worse"] == compared["data"]["better"] == []
    assert compared["data"]["differences"]["retrieval.mrr@10"]["value"] == 0.0


def test_an_imported_dataset_is_run_by_its_name_and_the_run_exported(
    published: Shelf, tmp_path: Path
) -> None:
    path = tmp_path / "ports.yaml"
    path.write_text(
        "- {case_id: a, query: Which port, should_refuse: no}\n- {case_id: b}\n", "utf-8"
    )
    code, refused = rag("eval", "import", str(path))
    assert code == 2 and "ports.yaml, line 2: `query` is missing" in refused["error"]["message"]
    path.write_text("- {case_id: a, query: Which port, should_refuse: no}\n", "utf-8")
    code, imported = rag("eval", "import", str(path))
    assert code == 0 and imported["data"]["dataset"]["state"] == "new"
    broken = Path(imported["data"]["dataset"]["path"]).with_name("broken.jsonl")
    broken.write_text("端口", "gbk")
    _, listed = rag("eval", "datasets")
    problems = {item["name"]: item["problem"] for item in listed["data"]["datasets"]}
    assert set(problems) == {"golden", "broken", "ports"} and problems["ports"] == ""
    assert "broken.jsonl is not UTF-8" in problems["broken"]
    _, found = rag("eval", "run", "--dataset", "ports")
    target = tmp_path / "run.jsonl"
    code, exported = rag("eval", "export", found["data"]["run"]["run_id"], str(target))
    assert code == 0 and exported["data"]["cases"] == 1
    assert len(target.read_text(encoding="utf-8").splitlines()) == 2


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="no file that fails to be read")
def test_a_dataset_that_the_disk_refuses_leaves_the_others(home: Path, config_folder: Path) -> None:
    (config_folder / "datasets").mkdir(exist_ok=True)
    (config_folder / "datasets" / "odd.jsonl").symlink_to("/proc/self/mem")
    code, listed = rag("eval", "datasets")
    problems = {item["name"]: item["problem"] for item in listed["data"]["datasets"]}
    assert code == 0 and problems["golden"] == "" and "Input/output error" in problems["odd"]


def test_answers_are_judged_where_a_judge_is_named(published: Shelf, tmp_path: Path) -> None:
    path = tmp_path / "judged.yaml"
    path.write_text(
        "- query: Which port does the gateway listen on?\n  expected_answer: port 8080\n", "utf-8"
    )
    code, found = rag("eval", "run", "--dataset", str(path), "--judge", "rules")
    assert code == 0, found
    assert found["data"]["run"]["judge_profile_id"].startswith("jdg_")
    assert found["data"]["run"]["aggregates"]["generation.answer_correctness"]["value"] == 1.0
    assert found["data"]["run"]["providers"]["evaluator"] == {"id": "judge", "version": "1"}
    code, same = rag("eval", "run", "--dataset", str(path), "--evaluator", "judge")
    assert code == 0 and same["data"]["run"]["reused"] == 1
    assert same["data"]["run"]["eval_profile_id"] == found["data"]["run"]["eval_profile_id"]
    code, found = rag("eval", "run", "--dataset", str(path), "--judge", "llm")
    assert code != 0 and found["error"]["code"] == "no_judge"
    code, basic = rag(
        "eval", "run", "--dataset", str(path), "--evaluator", "basic", "--judge", "rules"
    )
    assert code == 1 and "judge" in basic["error"]["message"]
    code, unknown = rag("eval", "run", "--dataset", str(path), "--evaluator", "jugde")
    assert code == 1 and "deepeval" in unknown["error"]["message"]


def test_a_set_with_documents_is_built_in_a_namespace_of_its_own(
    home: Path, tmp_path: Path
) -> None:
    path = tmp_path / "kb.json"
    document = {"doc_id": "d1", "source_id": "kb", "text": "alpha beta", "title": "文档1"}
    other = {"doc_id": "d2", "source_id": "kb", "text": "gamma delta", "title": "文档2"}
    query = {
        "query_id": "q1",
        "query": "alpha",
        "expected_doc_ids": ["d1"],
        "expected_chunk_ids": ["d1:0"],
        "relevance_doc": {"d1": 2},
    }
    path.write_text(
        json.dumps({"evalset_id": "kb", "documents": [document, other], "queries": [query]}),
        encoding="utf-8",
    )
    code, found = rag("eval", "run", "--dataset", str(path), "--strategy", "tiny")
    assert code == 0, found
    run = found["data"]["run"]
    assert run["namespace"] == "eval-kb-tiny" and run["mode"] == "retrieval_only"
    assert run["aggregates"]["retrieval.hit_rate@1"]["value"] == 1.0
    assert run["figures"]["stale_labels"] == 0


def test_what_is_pinned_fails_when_it_is_not_found(published: Shelf) -> None:
    question = "Which port does the gateway listen on?"
    code, pinned = rag("expect", question, "--file", "ports.md", "--text", "port 8080")
    assert code == 0 and pinned["warnings"] == []
    code, _ = rag("expect", "zebra quotas", "--refuse")
    assert code == 0
    code, checked = rag("expect", "run")
    assert code == 0 and [item["met"] for item in checked["data"]["verdicts"]] == [True, True]
    code, unmet = rag("expect", "who is on call?", "--text", "no such words")
    assert code == 0 and unmet["warnings"] == [
        "the published release does not meet it: the text is not there. No release is published"
        " until one meets it"
    ]
    code, checked = rag("expect", "run")
    assert code == 1 and checked["error"]["code"] == "expectations_missed"
    assert checked["data"]["verdicts"][2]["reason"] == "the text is not there"
    _, listed = rag("expect", "list")
    assert len(listed["data"]["expectations"]) == 3
    code, _ = rag("expect", "remove", pinned["data"]["expectation"]["case_id"])
    assert code == 0
    code, refused = rag("expect", question)
    assert code == 2 and refused["error"]["code"] == "usage"


def test_nothing_is_expected_of_what_is_not_there(published: Shelf) -> None:
    code, refused = rag("expect", "add", "leave days", "--file", "port.md")
    assert code == 1 and refused["error"]["code"] == "unknown_document"
    assert "did you mean" in refused["error"]["message"]
    assert rag("expect", "list")[1]["data"]["expectations"] == []
    for words in ("add q --refuse", "list", "run", "remove exp_1"):
        code, refused = rag("expect", *words.split(), "--namespace", "nope")
        assert code == 1 and refused["error"]["code"] == "unknown_namespace", words
    code, refused = rag("gc", "--plan", "--namespace", "nope")
    assert code == 1 and refused["error"]["code"] == "unknown_namespace"


def test_broken_gates_stop_what_they_would_judge_and_nothing_else(
    published: Shelf, config_folder: Path
) -> None:
    path = config_folder / "gates.yaml"
    path.write_text("default: [{dataset: golden, floors: {refusal.right: 70}}]\n", "utf-8")
    for words in (("query", "Which port?"), ("docs", "list"), ("eval", "datasets")):
        code, answered = rag(*words)
        assert code == 0, words
        assert answered["warnings"][-1].startswith(f"{path}:1: floors.refusal.right"), words
    code, failed = rag("rebuild", "--full")
    assert code and failed["error"]["code"] == "invalid_gates"
    assert f"{path}:1: floors.refusal.right" in failed["error"]["message"]
    assert f"{path}:1: " in rag("status")[1]["data"]["problems"][0]
    path.write_text("default:\n- dataset: golden\n  floor: {refusal.right: 0.7}\n", "utf-8")
    _, found = rag("doctor")
    [(level, message)] = [
        (item["level"], item["message"])
        for item in found["data"]["findings"]
        if item["subject"] == "gates"
    ]
    assert (level, message.partition(";")[0]) == ("error", f"{path}:3: floor: no such setting")
    assert "did you mean 'floors'?" in message


def test_gates_are_checked_before_anything_is_built_for_them(
    published: Shelf, config_folder: Path
) -> None:
    path = config_folder / "gates.yaml"
    path.write_text("default: [{dataset: golden}]\ndefualt: [{dataset: goldn}]\n", "utf-8")
    problems = rag("status")[1]["data"]["problems"]
    assert [re.split("[,;]", problem)[0] for problem in problems] == [
        f"default: its gates have not judged release {current(published.store, 'default')}",
        f"{path}:2: there is no library 'defualt'",
    ]
    _, found = rag("doctor")
    said = {(item["level"], item["message"]) for item in found["data"]["findings"]}
    assert ("warning", problems[1]) in said
    assert any(level == "error" and "no dataset 'goldn'" in text for level, text in said)


def test_a_run_that_held_a_release_back_shows_the_means_of_the_gate(
    published: Shelf, config_folder: Path, tmp_path: Path
) -> None:
    """The run leaves out the question whose text is gone; its own mean would reach the floor."""
    ports = tmp_path / "docs" / "ports.md"
    (ports.parent / "hours.md").write_text("# Opening hours\n\nFrom 9 to 5.\n", encoding="utf-8")
    published.ingest(ports.parent)
    asked = config_folder / "datasets" / "ports.yaml"
    asked.parent.mkdir(exist_ok=True)
    asked.write_text(
        "- {case_id: a, query: which port?, expected_text: port 8080}\n"
        "- {case_id: b, query: opening hours, expected_files: [hours.md]}\n",
        encoding="utf-8",
    )
    gate = "default: [{dataset: ports, floors: {retrieval.hit_rate@10: 0.9}}]\n"
    (config_folder / "gates.yaml").write_text(gate, encoding="utf-8")
    ports.write_text("# Ports\n\nNothing listens any more.\n", encoding="utf-8")
    assert rag("ingest", str(ports))[0] == 1
    (run,) = (r for r in rag("eval", "list")[1]["data"]["runs"] if r["status"] == "rejected")
    shown = get_eval_run(published.store.home, run["run_id"])
    assert run["aggregates"]["retrieval.hit_rate@10"]["value"] == 1.0
    assert shown["gate"] is not None and shown["gate"]["judged_this_run"]
    assert "hit_rate@10 is 0.500 over 2 questions, the floor" in shown["gate"]["markdown"]
    assert "\n\nlost:\n\n- a: which port?" in shown["gate"]["markdown"]
    assert shown["floors"] == []
    shutil.rmtree(published.store.release_dir("default", run["release_id"]))  # as retention does
    assert get_eval_run(published.store.home, run["run_id"])["gate"] == shown["gate"]


def test_another_way_to_ask_is_judged_though_no_document_changed(
    published: Shelf, config_folder: Path
) -> None:
    """And until then the release is asked as its gates judged it."""
    (config_folder / "datasets").mkdir(exist_ok=True)
    (config_folder / "datasets" / "ports.yaml").write_text(
        "- {case_id: a, query: which port?, expected_text: port 8080}\n", encoding="utf-8"
    )
    gate = "default: [{dataset: ports, floors: {retrieval.hit_rate@10: 0.9}}]\n"
    (config_folder / "gates.yaml").write_text(gate, encoding="utf-8")
    assert rag("rebuild")[0] == 0 and rag("status")[1]["data"]["problems"] == []
    first = current(published.store, "default")
    (config_folder / "strategies" / "tiny.yaml").write_text(
        TINY.replace("alpha: 0.3", "alpha: 0.9"), encoding="utf-8"
    )
    (told,) = rag("status")[1]["data"]["problems"]
    assert "strategy 'tiny' has changed since its gates judged release" in told

    def read_alpha() -> float:
        with closing(Library.open(load_settings())) as library, library.lease("default") as lease:
            return float(library.query_strategy(lease).fusion.options["alpha"])

    assert read_alpha() == 0.3
    assert rag("rebuild")[0] == 0 and rag("status")[1]["data"]["problems"] == []
    assert current(published.store, "default") != first and read_alpha() == 0.9


def test_a_question_is_pinned_from_its_trace(published: Shelf) -> None:
    _, asked = rag("query", "Which port does the gateway listen on?")
    code, pinned = rag("expect", "--trace", asked["trace_id"], "--file", "ports.md")
    assert code == 0, pinned
    assert pinned["data"]["expectation"]["query"] == "Which port does the gateway listen on?"


def test_reading_leaves_nothing_behind(home: Path) -> None:
    code, listed = rag("eval", "list")
    assert code == 0 and listed["data"]["runs"] == []
    assert not (home / "evaluations.sqlite").exists()


def test_a_trace_is_replayed_and_a_change_is_found(published: Shelf, tmp_path: Path) -> None:
    question = "Which port does the gateway listen on?"
    _, asked = rag("query", question)
    code, again = rag("trace", "replay", asked["trace_id"])
    assert code == 0 and again["data"]["replay"]["same"] is True
    (tmp_path / "docs" / "ports.md").write_text("# Ports\n\nNo gateway any more.\n", "utf-8")
    second = published.ingest(tmp_path / "docs")
    code, again = rag("trace", "replay", asked["trace_id"], "--release", second)
    assert code == 1 and again["error"]["code"] == "ranking_differs"
    code, found = rag("bisect", question, "--file", "ports.md", "--text", "port 8080")
    assert code == 0
    assert found["data"]["bisection"]["release_id"] == second
    assert found["data"]["bisection"]["reason"] == "the text is not there"


@pytest.mark.integration
def test_deleting_a_document_drops_what_was_expected_of_it(desk: Desk) -> None:
    desk.write(ports="# Ports\n\nThe gateway listens on port 8080.\n", other="# Other\n\nWords.\n")
    desk.publish()
    pinned = desk.call("expect", "add", "which wombat port?", "--file", "ports.md")
    pinned = pinned.data["expectation"]
    kept = desk.call("expect", "add", "which words?", "--file", "other.md").data["expectation"]
    expected = "{text: port 8080, file: ports.md}"
    case = f"{{case_id: a, query: does the gateway quetzal, expected_text: {expected}}}"
    (desk.folder / "set.yaml").write_text(f"[{case}]", encoding="utf-8")
    asked = desk.call("eval", "run", "--dataset", desk.folder / "set.yaml").data["run"]
    files = desk.store.home / "evaluations" / asked["run_id"]
    assert (files / "cases.parquet").is_file()
    assert desk.call("gc", "--prove", "ports").data["remaining"]["evaluations"] == 1
    deleted = desk.call("docs", "delete", "ports", "--mode", "hard", "--yes")
    assert deleted.exit_code == 0, deleted.said
    assert deleted.data["expectations_dropped"] == [pinned["case_id"]]
    assert desk.call("expect", "list").data["expectations"] == [kept]
    assert desk.call("gc", "--prove", "ports").data["total"] == 0
    assert not files.exists()
    contents = [path.read_bytes() for path in desk.store.home.rglob("*") if path.is_file()]
    # the gate of the release without the document asks nothing about it any more
    assert not any(word in content for word in (b"quetzal", b"wombat") for content in contents)
    assert desk.call("eval", "show", asked["run_id"]).data["run"]["aggregates"]


def test_strategies_are_compared_and_promoted_through_the_gate(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "launch", run_here)
    desk.write(ports=PORTS)
    desk.publish()
    config = desk.folder / "config"
    text = (config / "strategies" / "tiny.yaml").read_text(encoding="utf-8")
    (config / "strategies" / "other.yaml").write_text(
        f"{text}\nretrieval: {{mode: sparse}}\n", encoding="utf-8"
    )
    case = "[{case_id: port, query: which port, expected_text: port 8080}]"
    path = desk.folder / "golden.yaml"
    path.write_text(f"k_values: [10]\ncases: {case}\n", encoding="utf-8")
    asked = desk.call("eval", "compare", "--strategies", "tiny,other,dense_only", "--dataset", path)
    assert asked.exit_code == 0, asked.said
    assert set(asked.data["comparisons"]) == {"other", "dense_only"}
    assert desk.call("eval", "compare", "--strategies", "tiny").error["code"] == "usage"
    pinned = ("--dataset", "expectations:default")
    unpinned = desk.call("eval", "compare", "--strategies", "tiny,other", *pinned)
    assert unpinned.error["code"] == "no_expectations"

    promoted = desk.call("eval", "promote", "other")
    assert promoted.exit_code == 0, promoted.said
    with desk.ledger() as ledger:
        assert ledger.namespaces() == {"default": "other"}
        job = ledger.job(promoted.data["job_id"])
        assert job.result["promotion"]["from"] == "tiny"
        assert job.result["promotion"]["verdict"] == "passed" and job.result["promotion"]["by"]

    desk.call("expect", "zebra quotas", "--file", "ports.md", "--text", "no such words")
    held = desk.call("eval", "promote", "tiny")
    assert held.exit_code == 1 and held.error["code"] == "not_promoted", held.said
    with dg.DagsterInstance.get() as instance:
        newest, before = instance.get_runs(dg.RunsFilter(job_name="release"), limit=2)
        assert newest.is_success and before.is_failure  # what was put back is shown as well
    with desk.ledger() as ledger:
        assert ledger.namespaces() == {"default": "other"}
        # whoever asked for it may have gone away: the job itself puts the strategy back
        root = DataRoot(settings=desk.settings, store=desk.store, ledger=ledger)
        args = {"promotion": {"from": "other", "to": "tiny"}}
        started = start_rebuild("default", root.workspace("default", "tiny"), args=args)
        started.process.wait(120)
        assert ledger.job(started.job.job_id).state == "failed"
        assert ledger.namespaces() == {"default": "other"}
        rejected = ledger.releases("default")[0].release_id
    over = desk.call("releases", "publish", rejected, "--override", "they are gone")
    assert over.exit_code == 0, over.said
    with desk.ledger() as ledger:  # else the next ingest would publish with the other one
        assert ledger.namespaces() == {"default": "tiny"}


def test_the_strategy_of_the_published_release_is_promoted_without_a_new_one(desk: Desk) -> None:
    desk.write(ports=PORTS)
    desk.publish()
    strategies = desk.folder / "config" / "strategies"
    (strategies / "other.yaml").write_bytes((strategies / "tiny.yaml").read_bytes())
    with desk.ledger() as ledger:
        ledger.rebind_strategy("default", "other", "")  # as a rollback left it once
        (published,) = ledger.releases("default")
        rejected = {"release_id": f"{published.release_id}r", "state": "rejected"}
        ledger.put_release(dataclasses.replace(published, published_at="", **rejected))
    promoted = desk.call("eval", "promote", "tiny")
    assert promoted.exit_code == 0, promoted.said
    assert promoted.data["promotion"]["release_id"] == published.release_id
    with desk.ledger() as ledger:
        assert ledger.namespaces() == {"default": "tiny"}
        assert len(ledger.releases("default")) == 2


def test_a_run_that_is_killed_half_way_is_finished_by_the_next(desk: Desk) -> None:
    desk.write(ports=PORTS)
    desk.publish()
    path = desk.folder / "many.jsonl"
    cases = [
        {"case_id": f"{n:04}", "query": f"which port has gateway {n}", "expected_text": "port 8080"}
        for n in range(400)
    ]
    path.write_text("".join(f"{json.dumps(case)}\n" for case in cases), encoding="utf-8")
    asked = ("eval", "run", "--dataset", path)
    first = desk.start(*asked)
    while not (kept := kept_results(desk.store)) and first.poll() is None:
        time.sleep(0.005)
    first.kill()
    first.communicate()
    assert 0 < kept < 400
    second = desk.call(*asked).data["run"]
    assert kept <= second["reused"] < 400
    whole = desk.call(*asked, "--no-reuse").data["run"]
    assert whole["reused"] == 0 and second["aggregates"] == whole["aggregates"]


def kept_results(store: Store) -> int:
    """The case results that are committed; 0 before there is a file."""
    with suppress(sqlite3.OperationalError):
        place = f"file:{store.home / 'evaluations.sqlite'}?mode=ro"
        with closing(sqlite3.connect(place, uri=True)) as db:
            return int(db.execute("SELECT count(*) FROM eval_case_results").fetchone()[0])
    return 0


def test_canaries_and_drift_answer_over_a_small_library(published: Shelf) -> None:
    code, asked = rag("eval", "canaries")
    assert code == 0 and asked["data"]["canaries"]["made"] > 0
    code, found = rag("eval", "drift")
    assert code == 0 and found["data"]["signals"] == []


@pytest.mark.integration
def test_a_release_that_the_gate_holds_back_says_what_to_do(desk: Desk) -> None:
    desk.write(ports="# Ports\n\nThe gateway listens on port 8080.\n")
    desk.publish()
    desk.call("expect", "add", "which port?", "--file", "ports.md", "--text", "port 8080")
    desk.write(ports="# Ports\n\nThe gateway listens on port 9090.\n")
    refused = desk.call("ingest", desk.docs)
    assert "the text is not there" in refused.said
    assert "`rag expect remove CASE --namespace default`" in refused.said
    (problem,) = desk.call("status").data["problems"]
    (job,) = desk.call("jobs", "list").data["jobs"]
    hint = f"; `rag jobs show {job['job_id']}` shows the report"
    assert problem.endswith(f"expectations-default: FAILED{hint}")
    assert "\n" not in problem


def test_the_status_names_a_strategy_file_that_no_question_can_be_answered_by(
    published: Shelf, config_folder: Path
) -> None:
    with open(config_folder / "strategies" / "tiny.yaml", "a", encoding="utf-8") as file:
        file.write("chunkr: {}\n")
    assert rag("query", "Which port?")[1]["error"]["code"] == "invalid_config"
    [problem] = rag("status")[1]["data"]["problems"]
    assert problem.startswith("default: no question can be answered: tiny.yaml:")
    assert "did you mean 'chunker'?" in problem
