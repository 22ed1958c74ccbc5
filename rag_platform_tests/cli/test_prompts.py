"""An experiment with a prompt, from its draft to its verdict, against a local language model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rag_platform.evaluation.metrics import Interval
from rag_platform.evaluation.monitoring.experiments import ExperimentResult, experiment_markdown
from rag_platform_tests.chat_server import Reply, chat_server, said
from rag_platform_tests.conftest import TINY, Desk, seated

SENTENCE = "The gateway listens on port 8080 unless `PORT-9087` is set."
PROMPT = "retrieval/answer"


def reply(body: dict[str, Any], number: int) -> Reply:
    """A model that finds the answer only when it is told to be brief."""
    brief = "Be brief." in body["messages"][0]["content"]
    return said(f"{SENTENCE} [1]" if brief else "NOT_IN_PASSAGES")


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    with chat_server(reply) as server:
        options = f"{{model: m, base_url: '{server.url}', api_key_env: ''}}"
        talk = f"{TINY}\nllm: {{provider: openai, options: {options}}}\nanswerer: {{provider: llm}}"
        talk += "\nquery: {rewrite: {enabled: false}}\n"
        with seated(tmp_path_factory.mktemp("prompts") / "desk", tiny=talk) as made:
            made.write(ports=f"# Ports\n\n{SENTENCE}\n")
            made.publish()
            folder = made.folder / "config" / "prompts" / PROMPT
            folder.mkdir(parents=True)
            (folder / "v2.yaml").write_text(
                "system: Be brief.\nuser_template: '{query} {context}'\n", encoding="utf-8"
            )
            yield made


def test_an_experiment_deals_questions_and_its_verdict_counts_both_arms(
    desk: Desk, tmp_path: Path
) -> None:
    listed = desk.call("prompts", "list", PROMPT).data["versions"]
    assert [(item["version"], item["status"]) for item in listed] == [(1, "active"), (2, "draft")]
    tried = desk.call("prompts", "try", f"{PROMPT}@2", "which port does the gateway listen on")
    assert tried.data["state"] == "answered" and SENTENCE in tried.data["markdown"]
    refused = desk.call("prompts", "try", PROMPT, "which port?").error["message"]
    assert refused == f"{PROMPT!r} names no version of a prompt, as in {PROMPT}@2"
    assert desk.call("query", "which port does the gateway listen on").data["state"] != "answered"

    desk.call("prompts", "split", f"{PROMPT}@2", "--share", "0.5")
    states = {}
    for number in range(24):
        question = f"which port does gateway {number} listen on"
        states[question] = desk.call("query", question).data["state"] == "answered"
    question = next(iter(states))
    assert (desk.call("query", question).data["state"] == "answered") == states[question]
    treated = sum(states.values())
    assert 0 < treated < 24

    answer = desk.call("prompts", "verdict", PROMPT, "--end")
    verdict = answer.data["verdict"]
    # the question that was asked twice counts once, those before the experiment not at all
    assert verdict["questions"] == {"control": 24 - treated, "treatment": treated}
    assert verdict["means"]["answered"] == {"control": 0.0, "treatment": 1.0}
    assert verdict["differences"]["answered"]["low"] == 1.0
    assert "The experiment has ended" in answer.data["markdown"]
    assert desk.call("prompts", "verdict", PROMPT).error["code"] == "no_experiment"

    desk.call("prompts", "activate", f"{PROMPT}@2")
    assert desk.call("query", question).data["state"] == "answered"
    desk.call("prompts", "rollback", PROMPT)
    assert desk.call("query", question).data["state"] != "answered"


def test_versions_are_compared_over_a_dataset_and_another_wording_is_asked_anew(
    desk: Desk, tmp_path: Path
) -> None:
    cases = tmp_path / "cases.jsonl"
    cases.write_text(
        '{"case_id": "a", "query": "which port does the gateway listen on",'
        ' "expected_text": "port 8080"}\n',
        encoding="utf-8",
    )
    name = f"tiny+{PROMPT}@2"
    compare = ("eval", "compare", "--strategies", f"tiny,{name}", "--dataset", cases)
    found = desk.call(*compare)
    difference = found.data["comparisons"][name]["differences"]["refusal.right"]
    assert difference["value"] == 1.0
    assert desk.call(*compare).data["runs"][name]["reused"] == 1
    version = desk.folder / "config" / "prompts" / PROMPT / "v2.yaml"
    version.write_text(version.read_text("utf-8").replace("Be brief.", "Sing."), encoding="utf-8")
    changed = desk.call(*compare).data
    assert changed["runs"][name]["reused"] == 0
    assert changed["comparisons"][name]["differences"]["refusal.right"]["value"] == 0.0


def test_a_verdict_shows_what_a_question_costs() -> None:
    found = ExperimentResult(
        "exp_1",
        {"control": 2, "treatment": 2},
        {"cost": {"control": 0.00018, "treatment": 0.00024}},
        {"cost": Interval(0.00006, 0.00004, 0.00008)},
    )
    assert "| cost | 0.000180 | 0.000240 | +0.000060 [+0.000040, +0.000080] * |" in (
        experiment_markdown(found)
    )
