"""The pages and routes of evaluations, over runs that were really made."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from rag_platform import access
from rag_platform.config.prompts import read_choice, versions
from rag_platform.config.settings import JobPolicy
from rag_platform.evaluation.expectations import add_expectation, expectation
from rag_platform.evaluation.results import CaseFilter, ResultStore
from rag_platform.evaluation.run_requests import (
    RunRequest,
    cancel_run_job,
    list_run_jobs,
    run_dataset,
)
from rag_platform.processes import jobs
from rag_platform.retrieval.library import Library
from rag_platform.web.app import create_app
from rag_platform.web.tokens import Tokens
from rag_platform.workspace import DataRoot
from rag_platform_tests.conftest import HOLIDAYS, NOTES, PORTS, Desk
from rag_platform_tests.jobs_here import run_here

HOSTILE = "<script>alert(1)</script> Which port? javascript:alert(1) \u202egnp.exe"
PAGES = (
    "/evaluation",
    "/evaluation/trends",
    "/evaluation/compare",
    "/evaluation/strategies",
    "/evaluation/expectations",
    "/evaluation/monitoring",
    "/evaluation/drift",
    "/evaluation/gaps",
    "/evaluation/canaries",
    "/evaluation/prompts",
)


@pytest.fixture(scope="module")
def runs(shared_desk: Desk) -> tuple[str, str]:
    """Two runs of four expectations, of which one is not met: first by words alone."""
    shared_desk.write(ports=PORTS, holidays=HOLIDAYS, notes=NOTES)
    (shared_desk.docs / "diagram.png").write_bytes(b"no picture")
    shared_desk.publish(
        *(shared_desk.docs / name for name in ("ports.md", "holidays.md", "notes.md"))
    )
    store = shared_desk.store
    for case in (
        expectation("Which port does the gateway listen on?", file="ports.md"),
        expectation("病假需要什么？", file="holidays.md", text="病假需要医生证明"),
        expectation("What does version 2.4.1 fix?", file="ports.md", text="6000 requests"),
        expectation(HOSTILE, file="ports.md"),
    ):
        assert add_expectation(store, "default", case)
    root = DataRoot.open(shared_desk.settings)
    made = [
        run_dataset(
            root,
            RunRequest(
                dataset="expectations:default",
                namespace="default",
                strategy=strategy,
                metric_sets=("retrieval", "answers"),
            ),
        ).run.run_id
        for strategy in ("sparse_only", None)
    ]
    root.ledger.close()
    return made[0], made[1]


@pytest.fixture(scope="module")
def pages(shared_desk: Desk, runs: tuple[str, str]) -> Iterator[TestClient]:
    """A client of the pages, whose routes take a second to build."""
    app = create_app(Library.open(shared_desk.settings))
    with TestClient(app, base_url="http://127.0.0.1") as client:
        yield client


@pytest.fixture
def browser(pages: TestClient) -> TestClient:
    """That client, without the cookies of an earlier test."""
    pages.cookies.clear()
    return pages


def get(browser: TestClient, path: str, **params: Any) -> Any:
    answered = browser.get(path, params=params)
    assert answered.status_code == 200, answered.text
    return answered.json()


@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_page_answers(browser: TestClient, language: str) -> None:
    for path in PAGES:
        shown = browser.get(path, headers={"Accept-Language": language})
        assert shown.status_code == 200, path
        assert f'<html lang="{language}"' in shown.text


def test_the_dataset_of_the_library_is_chosen_not_that_of_the_samples(
    browser: TestClient, runs: tuple[str, str]
) -> None:
    page = browser.get("/evaluation").text
    assert '<option value="expectations:default" selected>' in page
    assert "golden (50 cases, about library demo)" in page


def test_runs_are_listed_newest_first_and_paged(browser: TestClient, runs: tuple[str, str]) -> None:
    first = get(browser, "/api/eval/runs", limit=1)
    assert [run["run_id"] for run in first["runs"]] == [runs[1]]
    rest = get(browser, "/api/eval/runs", limit=1, cursor=first["next_cursor"])
    assert [run["run_id"] for run in rest["runs"]] == [runs[0]]
    assert "next_cursor" not in rest
    words_only = get(browser, "/api/eval/runs", strategy="sparse_only")["runs"]
    assert [run["run_id"] for run in words_only] == [runs[0]]
    assert get(browser, "/api/eval/runs", namespace="other")["runs"] == []
    assert browser.get("/api/eval/runs", params={"cursor": "x"}).status_code == 400


def test_a_run_shows_its_figures_with_intervals(browser: TestClient, runs: tuple[str, str]) -> None:
    data = get(browser, f"/api/eval/runs/{runs[1]}")
    hit = next(item for item in data["metrics"] if item["name"] == "retrieval.hit_rate@3")
    # the text of the third case stands nowhere, so that its label is stale and is not counted
    assert hit["cases"] == 3
    assert hit["value"] == 1.0
    assert data["stale_labels"] == 1
    assert data["providers"]["evaluator"]["id"] == "basic"
    assert {item["name"] for item in data["slices"] if item["kind"] == "language"} == {"en", "zh"}
    page = browser.get(f"/evaluation/runs/{runs[1]}").text
    assert "retrieval.hit_rate@3" in page
    assert browser.get("/api/eval/runs/eval_nothing").status_code == 404


def test_a_gate_of_the_namespace_is_held_against_a_run(
    browser: TestClient, runs: tuple[str, str], shared_desk: Desk
) -> None:
    gates = shared_desk.folder / "config" / "gates.yaml"
    gates.write_text(
        "default:\n  - dataset: expectations-default\n"
        "    floors: {retrieval.hit_rate@3: 0.5, retrieval.mrr@99: 0.1}\n",
        encoding="utf-8",
    )
    floors = get(browser, f"/api/eval/runs/{runs[1]}")["floors"]
    gates.unlink()
    assert [(item["metric"], item["reached"]) for item in floors] == [
        ("retrieval.hit_rate@3", True),
        ("retrieval.mrr@99", False),  # not measured
    ]


def test_cases_are_filtered_sorted_and_paged_in_the_database(
    browser: TestClient, runs: tuple[str, str], shared_desk: Desk
) -> None:
    found = get(browser, f"/api/eval/runs/{runs[1]}/cases")
    assert found["count"] == 4
    chinese = get(browser, f"/api/eval/runs/{runs[1]}/cases", words="病假")
    assert [case["query"] for case in chinese["cases"]] == ["病假需要什么？"]
    assert get(browser, f"/api/eval/runs/{runs[1]}/cases", words="%")["count"] == 0
    slowest = get(browser, f"/api/eval/runs/{runs[1]}/cases", sort="latency_ms")["cases"]
    times = [case["latency_ms"] for case in slowest]
    assert times == sorted(times, reverse=True)
    by_metric = get(browser, f"/api/eval/runs/{runs[1]}/cases", sort="retrieval.mrr@3")["cases"]
    # what could not be measured stands last
    assert "retrieval.mrr@3" not in by_metric[-1]["metrics"]
    store = ResultStore(shared_desk.store.home, create=False)
    one, count = store.find_cases(runs[1], CaseFilter(), limit=1, skip=3)
    store.close()
    assert (len(one), count, one[0].position) == (1, 4, 3)


def test_a_case_leads_to_its_evidence_and_trace(browser: TestClient, runs: tuple[str, str]) -> None:
    (case,) = get(browser, f"/api/eval/runs/{runs[1]}/cases", words="病假")["cases"]
    data = get(browser, f"/api/eval/runs/{runs[1]}/cases/{case['case_id']}")
    assert data["expected"] == [
        {"kind": "text", "value": "病假需要医生证明", "file": "holidays.md", "section": ""}
    ]
    assert data["found"][0]["source_uri"] == "files/holidays.md"
    assert "病假需要医生证明" in data["found"][0]["text"]
    assert set(data["stages"]) == {"dense", "sparse", "fusion"}
    page = browser.get(f"/evaluation/runs/{runs[1]}/cases/{case['case_id']}").text
    assert " ms</dd>" in page
    assert f"/traces/{case['trace_id']}" in page
    assert browser.get(f"/evaluation/runs/{runs[1]}/cases/no").status_code == 404


def test_hostile_questions_are_only_shown(browser: TestClient, runs: tuple[str, str]) -> None:
    (case,) = get(browser, f"/api/eval/runs/{runs[1]}/cases", words="<script>")["cases"]
    for path in (
        f"/evaluation/runs/{runs[1]}",
        f"/evaluation/runs/{runs[1]}/cases/{case['case_id']}",
        f"/evaluation/compare?before={runs[0]}&after={runs[1]}",
    ):
        shown = browser.get(path).text
        assert "<script>alert" not in shown
        assert 'href="javascript' not in shown


def test_trends_and_comparisons(browser: TestClient, runs: tuple[str, str]) -> None:
    trends = get(browser, "/api/eval/trends", metric="retrieval.mrr@3")
    assert [point["strategy"] for point in trends["points"]] == ["sparse_only", "tiny"]
    assert browser.get("/api/eval/trends", params={"metric": "none"}).status_code == 404
    found = get(browser, "/api/eval/compare", before=runs[0], after=runs[1])
    mrr = next(item for item in found["differences"] if item["metric"] == "retrieval.mrr@3")
    assert mrr["difference"] == pytest.approx(mrr["after"] - mrr["before"])
    assert mrr["cases"] == 3
    beside = get(browser, "/api/eval/strategies", dataset_id="expectations-default")
    assert list(beside["runs"].items()) == [("sparse_only", runs[0]), ("tiny", runs[1])]
    page = browser.get("/evaluation/trends?metric=retrieval.mrr@3").text
    data = page.split("data-trend='")[1].split("'")[0]
    assert [point["run_id"] for point in json.loads(data)] == list(runs)


def test_a_run_is_started_and_its_job_leads_to_it(
    browser: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "launch", run_here)
    form = {
        "dataset": "expectations:default",
        "namespace": "default",
        "strategy": "dense_only",
        "mode": "retrieval_only",
        "metric_sets": ["retrieval"],
        "reuse": "false",
    }
    shown = browser.post("/evaluation/run", data=form)
    assert shown.status_code == 200
    job = get(browser, "/api/eval/jobs")[0]
    assert shown.url.path == f"/evaluation/jobs/{job['job_id']}"
    assert (job["state"], job["done"], job["total"]) == ("done", 4, 4)
    assert f"/evaluation/runs/{job['run_id']}" in shown.text
    run = get(browser, f"/api/eval/runs/{job['run_id']}")["run"]
    assert (run["strategy"], run["mode"]) == ("dense_only", "retrieval_only")
    part = browser.get(shown.url.path, headers={"HX-Request": "true"}).text
    assert "<html" not in part


def test_a_run_that_fails_says_why(browser: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "launch", run_here)
    form = {"dataset": "golden", "namespace": "default", "mode": "retrieval_only"}
    shown = browser.post("/evaluation/run", data={**form, "strategy": "sparse_only"})
    assert "choose the library that the dataset is about" in shown.text
    job = get(browser, "/api/eval/jobs")[0]
    assert (job["state"], job["run_id"]) == ("failed", "")
    listed = browser.get("/evaluation").text
    assert f"/evaluation/jobs/{job['job_id']}" in listed
    assert "choose the library that the dataset is about" in listed


def test_a_run_is_cancelled(browser: TestClient, shared_desk: Desk) -> None:
    """In its page, and for a token that may see its library alone."""
    root = DataRoot.open(shared_desk.settings)
    request = {"dataset": "golden", "namespace": "default", "strategy": None}
    waiting = [root.ledger.add_job("evaluate", "", {"request": request}) for _ in range(2)]
    root.ledger.close()
    page = f"/evaluation/jobs/{waiting[0].job_id}"
    assert f'action="{page}/cancel"' in browser.get(page).text
    shown = browser.post(f"{page}/cancel")
    assert shown.url.path == page and "/cancel" not in shown.text and "cancelled" in shown.text
    again = browser.post(f"/api/eval/jobs/{waiting[0].job_id}/cancel")
    assert (again.status_code, again.json()["code"]) == (404, "nothing_to_cancel")
    with access.acting_for(access.Caller("one", "write", frozenset({"default"}))):
        found = cancel_run_job(shared_desk.settings, waiting[1].job_id)
    assert found["state"] == "cancelled"


def test_a_run_of_another_machine_lives_as_long_as_the_settings_say(desk: Desk) -> None:
    patient = desk.settings.model_copy(update={"jobs": JobPolicy(silent_seconds=10**9)})
    request = {"dataset": "golden", "namespace": "default", "strategy": None}
    started = {
        "pid": 1,
        "process": {"host": "elsewhere", "boot_id": "b", "pid_namespace": "n"},
        "heartbeat_at": "2026-01-01T00:00:00Z",
    }
    with closing(DataRoot.open(desk.settings).ledger) as ledger:
        job = ledger.add_job("evaluate", "", {"request": request})
        ledger.update_job(job.job_id, state="running", **started)
    assert [it["state"] for it in list_run_jobs(patient)] == ["running"]
    assert [it["state"] for it in list_run_jobs(desk.settings)] == ["failed"]


@pytest.fixture
def second(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where a second version of the prompt `retrieval/answer` belongs, in a config of its own."""
    monkeypatch.setenv("RAG_CONFIG", str(tmp_path))
    path = tmp_path / "prompts" / "retrieval" / "answer" / "v2.yaml"
    path.parent.mkdir(parents=True)
    return path


def test_prompts_are_listed_beside_files_that_are_broken_or_gone(
    browser: TestClient, second: Path
) -> None:
    second.write_text("system: x", encoding="utf-8")
    page = browser.get("/evaluation/prompts").text
    assert "retrieval/answer@2" in page and "v2.yaml must hold the texts" in page
    second.write_bytes(versions("retrieval/answer")[1].read_bytes())
    form = {"namespace": "default", "reference": "retrieval/answer@2"}
    assert browser.post("/evaluation/prompts/activate", data=form).status_code == 200
    second.unlink()
    assert "Activate" in browser.get("/evaluation/prompts").text  # the first version again


def test_a_version_of_a_prompt_is_compared_and_activated(browser: TestClient, second: Path) -> None:
    first = versions("retrieval/answer")[1].read_text(encoding="utf-8")
    second.write_text(first.replace("system: ", "system: Be brief. ", 1), encoding="utf-8")
    page = browser.get("/evaluation/prompts").text
    assert "+system: Be brief." in page and page.count("Activate") == 1
    form = {"namespace": "default", "reference": "retrieval/answer@2"}
    shown = browser.post("/evaluation/prompts/activate", data=form)
    assert shown.url.path == "/evaluation/prompts"
    assert read_choice("retrieval/answer").active.version == 2
    assert browser.post("/evaluation/prompts/activate", data=form).status_code == 400


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"dataset": "/etc/passwd"}, 404),
        ({"dataset": "traces:default"}, 404),
        ({"dataset": "golden", "strategy": "no-such"}, 400),
        ({"dataset": "golden", "judge": "fake"}, 400),
        ({"dataset": "golden", "evaluator": "no-such"}, 400),
        ({"dataset": "golden", "metric_sets": ["x"]}, 400),
        ({"dataset": "golden", "namespace": "unknown"}, 404),
        ({"dataset": ""}, 400),
        ({}, 400),
    ],
)
def test_only_what_is_offered_can_be_asked(
    browser: TestClient, body: dict[str, Any], status: int
) -> None:
    answered = browser.post("/api/eval/runs", json=body)
    assert answered.status_code == status
    assert str(browser.app.state.library.settings.home) not in answered.text  # type: ignore[attr-defined]


def test_a_token_that_only_reads_starts_nothing(shared_desk: Desk, runs: tuple[str, str]) -> None:
    tokens = Tokens(shared_desk.store)
    listed, secret = tokens.create("reader", scope="read")
    other, elsewhere = tokens.create("elsewhere", namespaces=["other"])
    limited, admin = tokens.create("limited", scope="admin", namespaces=["default"])
    app = create_app(Library.open(shared_desk.settings))
    with TestClient(app, base_url="http://127.0.0.1") as client:
        own = {"Authorization": f"Bearer {secret}"}
        refused = client.post("/api/eval/runs", json={"dataset": "golden"}, headers=own)
        assert refused.status_code == 403
        assert 'action="/evaluation/run"' not in client.get("/evaluation", headers=own).text
        stranger = {"Authorization": f"Bearer {elsewhere}"}
        assert client.get("/api/eval/runs", headers=stranger).json()["runs"] == []
        assert client.get(f"/api/eval/runs/{runs[0]}", headers=stranger).status_code == 404
        activated = "/api/eval/prompts/activate?reference=retrieval/answer@1"
        keys = {"Authorization": f"Bearer {admin}"}
        for headers in (own, keys):
            assert client.post(activated, headers=headers).status_code == 403
    for token in (listed, other, limited):
        tokens.revoke(token.token_id)
