"""Runs with a judge: which answers are judged, what counts 0, and where the reasons are."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from rag_platform.config.query import ProviderConfig
from rag_platform.errors import InputError, ProviderError
from rag_platform.evaluation.cases import Dataset, EvalCase
from rag_platform.evaluation.comparing import compare_runs
from rag_platform.evaluation.judges import RulesJudge
from rag_platform.evaluation.reporting.reports import compare_markdown, run_markdown
from rag_platform.evaluation.results import EvalRun, ResultStore
from rag_platform.evaluation.runs import RunOptions, evaluate, open_library
from rag_platform.observability.redaction import Names, erase
from rag_platform.retrieval.library import Library
from rag_platform_tests.chat_server import chat_server, refused, said
from rag_platform_tests.conftest import PORTS, Shelf

PORT = EvalCase(
    case_id="port",
    query="Which port does the gateway listen on?",
    expected_answer="The gateway listens on port 8080.",
)
UNEXPECTED = EvalCase(
    case_id="unexpected",
    query="zebra migration quotas",
    expected_answer="Twelve zebras.",
)
REFUSED = EvalCase(case_id="refused", query="zebra migration quotas", should_refuse=True)
UNLABELLED = EvalCase(case_id="unlabelled", query="zebra migration quotas")
DATA = Dataset(dataset_id="small", version="1", cases=(PORT, UNEXPECTED, REFUSED, UNLABELLED))
NAMES = {
    f"generation.{name}" for name in ("faithfulness", "answer_relevancy", "answer_correctness")
}


class OtherRules(RulesJudge):
    """The same judge, of another profile."""

    VERSION = "other"


@pytest.fixture
def results(tmp_path: Path) -> Iterator[ResultStore]:
    store = ResultStore(tmp_path)
    yield store
    store.close()


@pytest.fixture
def library(read_only_shelf: Shelf) -> Iterator[Library]:
    with open_library(read_only_shelf.settings, read_only_shelf.store) as made:
        yield made


def run(library: Library, results: ResultStore, **options: object) -> EvalRun:
    return evaluate(
        library,
        DATA,
        RunOptions(namespace="default", **options),  # type: ignore[arg-type]
        results,
    )


def by_case(results: ResultStore, found: EvalRun) -> dict[str, dict[str, float]]:
    return {
        result.case_id: {name: result.metrics[name] for name in NAMES & result.metrics.keys()}
        for result in results.cases(found.run_id)
    }


def test_rules_judge_what_was_answered(library: Library, results: ResultStore) -> None:
    found = run(library, results, judge="rules")
    assert found.metric_set_ids[-1] == "judged@2"
    assert by_case(results, found) == {
        "port": {
            "generation.faithfulness": 1.0,
            "generation.answer_relevancy": 1.0,
            "generation.answer_correctness": 1.0,
        },
        # an answer was expected, and none given
        "unexpected": {"generation.answer_relevancy": 0.0, "generation.answer_correctness": 0.0},
        "refused": {},
        "unlabelled": {},  # nobody knows whether there is an answer
    }
    assert run(library, results, judge="rules").reused == 4
    other = run(library, results, judge=f"{__name__}:OtherRules")
    assert other.reused == 0 and other.judge_profile_id != found.judge_profile_id
    assert "judges differ" in compare_markdown(compare_runs(found, other, results))
    assert "judges differ" not in compare_markdown(compare_runs(found, found, results))


def test_a_judge_needs_answers_and_the_set_a_judge(library: Library, results: ResultStore) -> None:
    with pytest.raises(InputError, match="take --mode end_to_end"):
        run(library, results, judge="rules", mode="retrieval_only")
    with pytest.raises(InputError, match="--judge rules"):
        run(library, results, metric_sets=("judged",))


def test_a_model_judges_by_the_context_and_deletion_finds_its_reasons(
    shelf: Shelf, results: ResultStore, tmp_path: Path
) -> None:
    path = tmp_path / "ports.md"
    path.write_text(PORTS, encoding="utf-8")
    shelf.ingest(path)
    reply = json.dumps({"reason": "the passage says 8080 indeed", "score": 0.5})
    with chat_server(lambda body, number: said(reply)) as server:
        options = {"model": "m", "base_url": server.url, "api_key_env": "", "retries": 0}
        model = ProviderConfig(provider="openai", options=options)
        settings = shelf.settings.model_copy(update={"judge": model})
        with open_library(settings, shelf.store) as library:
            found = run(library, results, judge="llm")
            assert by_case(results, found)["port"] == dict.fromkeys(NAMES, 0.5)
            assert len(server.requests) == 3  # what was refused is not sent
            asked = " ".join(request["messages"][1]["content"] for request in server.requests)
            assert "port 8080" in asked
            run(library, results, judge="llm", reuse=False)
            assert len(server.requests) == 3  # known by then
            shelf.store.judgements_path.unlink()
            server.answer = lambda body, number: refused(401, "bad key")
            with pytest.raises(ProviderError, match="unauthorized"):
                run(library, results, judge="llm", reuse=False)
    logs = shelf.store.logs_dir
    scored = [
        json.loads(line)["payload"]
        for path in logs.glob("*.jsonl")
        for line in path.read_text(encoding="utf-8").splitlines()
        if '"kind":"judge.score"' in line
    ]
    of_port = [item for item in scored if item["case_id"] == "port"]
    assert {item["metric"] for item in of_port} == NAMES
    assert of_port[0]["reason"] == "the passage says 8080 indeed"
    assert erase(logs, Names([], of_port[0]["chunk_ids"])) > 0
    assert not any("8080 indeed" in path.read_text(encoding="utf-8") for path in logs.iterdir())


def test_scores_that_a_model_failed_to_give_are_counted_and_asked_for_again(
    shelf: Shelf, results: ResultStore, tmp_path: Path
) -> None:
    path = tmp_path / "ports.md"
    path.write_text(PORTS, encoding="utf-8")
    shelf.ingest(path)
    with chat_server(lambda body, number: said("good")) as server:
        options = {"model": "m", "base_url": server.url, "api_key_env": "", "retries": 0}
        model = ProviderConfig(provider="openai", options=options)
        settings = shelf.settings.model_copy(update={"judge": model})
        with open_library(settings, shelf.store) as library:
            failed = run(library, results, judge="llm")
            assert by_case(results, failed)["port"] == {}
            assert (
                "\n3 scores the judge failed to give, for the reasons in `rag trace list --type"
                " evaluation`; the next run asks again."
            ) in run_markdown(failed)
            server.answer = lambda body, number: said(json.dumps({"reason": "", "score": 0.5}))
            mended = run(library, results, judge="llm")
            assert by_case(results, mended)["port"] == dict.fromkeys(NAMES, 0.5)
            assert (mended.reused, mended.figures["unjudged"]) == (3, 0)
            assert "failed to give" not in run_markdown(mended)
