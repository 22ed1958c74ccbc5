"""What users asked, as cases to label and as gaps, over a published library."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rag_platform.cli.main import main
from rag_platform.evaluation.monitoring.gaps import group_alike
from rag_platform_tests.chat_server import Reply, chat_server, said
from rag_platform_tests.cli.conftest import rag
from rag_platform_tests.conftest import Desk, Shelf

ASKED = (
    "Which port does the gateway listen on?",
    "zebra migration quotas",
    "quotas of the zebra migration",
    "斑马迁徙的配额是多少？",
)


def test_a_sample_of_real_questions_waits_for_labels(published: Shelf, tmp_path: Path) -> None:
    for question in ASKED:
        rag("query", question)
    rag("query", ASKED[1].upper(), "--mode", "sparse")  # the same question
    said = CliRunner().invoke(main, ["eval", "sample", "--size", "3"])
    assert said.exit_code == 0 and "expected_text" in said.stderr
    cases = [json.loads(line) for line in said.stdout.splitlines()]
    assert len(cases) == 3
    # each language and outcome is there before any of them is there twice
    assert {tuple(case["tags"]) for case in cases} == {
        ("en", "answered"),
        ("en", "refused"),
        ("zh", "refused"),
    }
    assert rag("eval", "sample", "--size", "3")[1]["data"]["cases"] == cases
    assert len(rag("eval", "sample")[1]["data"]["cases"]) == len(ASKED)
    out = tmp_path / "asked.jsonl"
    out.write_text(said.stdout, encoding="utf-8")
    # unlabelled, it cannot be run as a file, and says what is missing
    code, found = rag("eval", "run", "--dataset", str(out))
    assert found["error"]["code"] == "invalid_dataset"
    assert "expects nothing" in found["error"]["message"]
    code, found = rag("eval", "run", "--dataset", "traces:default?size=2", "--judge", "rules")
    assert code == 0, found
    assert found["data"]["run"]["cases"] == 2
    code, found = rag("eval", "run", "--dataset", "traces:default?length=2")
    assert found["error"]["code"] == "invalid_dataset"
    code, found = rag("eval", "run", "--dataset", "traces:empty-one")
    assert found["error"]["code"] == "no_questions"


def test_a_search_without_an_answer_shows_what_it_found(published: Shelf) -> None:
    shown = CliRunner().invoke(main, ["query", ASKED[0], "--no-answer"]).stdout
    assert "**Sources**" in shown and "> The gateway listens on port" in shown
    assert "No passage" not in shown


def test_expectations_are_a_dataset(published: Shelf) -> None:
    code, found = rag("eval", "run", "--dataset", "expectations:default")
    assert found["error"]["code"] == "no_expectations"
    rag("expect", "add", "Which port does the gateway listen on?", "--file", "ports.md")
    code, found = rag("eval", "run", "--dataset", "expectations:default")
    assert code == 0
    assert found["data"]["run"]["aggregates"]["retrieval.hit_rate@3"]["value"] == 1.0


def test_an_expectation_is_pinned_from_a_trace(published: Shelf) -> None:
    _, asked = rag("query", ASKED[0])
    code, found = rag("expect", "add", "--trace", asked["trace_id"], "--file", "ports.md")
    assert code == 0
    assert found["data"]["expectation"]["query"] == ASKED[0]
    assert found["data"]["expectation"]["expected_files"] == ["ports.md"]
    assert rag("expect", "run")[0] == 0


def test_a_dataset_about_other_documents_is_refused(published: Shelf, tmp_path: Path) -> None:
    path = tmp_path / "other.yaml"
    path.write_text(
        "- {case_id: a, query: how are hens fed, expected_files: [hens.md]}\n", encoding="utf-8"
    )
    code, found = rag("eval", "run", "--dataset", str(path))
    assert code == 2
    assert found["error"]["code"] == "other_namespace"
    assert "'default'" in found["error"]["message"]


def test_gaps_are_grouped_with_what_is_nearest(published: Shelf) -> None:
    for question in ASKED:
        rag("query", question)
    rag("query", ASKED[1])
    assert rag("query", "what?", "--filter", "nonsense=1")[0] == 2  # failed before it was searched
    code, found = rag("eval", "gaps", "--days", "2")
    assert code == 0, found
    gaps = found["data"]["gaps"]
    assert sorted(gaps[0]["questions"]) == sorted(ASKED[1:3])
    assert (gaps[0]["times"], gaps[0]["refused"]) == (3, 3)
    assert not any(ASKED[0] in gap["questions"] for gap in gaps)
    # what gaps itself asked is no user's question
    assert rag("eval", "gaps")[1]["data"]["gaps"] == gaps


def test_gaps_say_nothing_of_a_deleted_document(desk: Desk) -> None:
    secret = "# Vault\n\nThe vault combination is kept by the quartermaster.\n"
    desk.write(vault=secret, other="# Other\n\nThe vault has a door.\n")
    desk.publish()
    desk.call("query", "who invented the vault combination, and in which year exactly?")
    (before,) = desk.call("eval", "gaps").data["gaps"]
    assert "vault.md" in json.dumps(before["nearest"])
    deleted = desk.call("docs", "delete", "vault", "--mode", "hard", "--yes")
    assert deleted.exit_code == 0, deleted.said
    after = desk.call("eval", "gaps")
    assert after.exit_code == 0
    assert "vault.md" not in json.dumps(after.data) and "quartermaster" not in after.said


def test_questions_are_alike_by_their_words() -> None:
    texts = ["reset a password", "password reset", "raise the upload limit"]
    found = group_alike([{"text": text} for text in texts])
    assert [[item["text"] for item in group] for group in found] == [texts[:2], texts[2:]]


def test_questions_are_made_of_passages_and_count_with_their_evidence_alone(
    published: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    canaries = rag("eval", "synthesize")[1]["data"]["cases"]
    assert canaries and all(case["case_id"].startswith("canary_") for case in canaries)

    sentence = "The gateway listens on port 8080"

    def reply(body: dict[str, Any], number: int) -> Reply:
        passage = body["messages"][1]["content"]
        evidence = sentence if sentence in passage else "made up"
        return said(json.dumps({"question": "Where does the gateway wait?", "evidence": evidence}))

    with chat_server(reply) as server:
        monkeypatch.setenv("RAG_JUDGE__PROVIDER", "openai")
        options = {"model": "m", "base_url": server.url, "api_key_env": ""}
        monkeypatch.setenv("RAG_JUDGE__OPTIONS", json.dumps(options))
        code, made = rag("eval", "synthesize", "--size", "5")
        assert code == 0, made
        # every passage was asked about, one reply had evidence that is there
        (case,) = made["data"]["cases"]
        assert case["query"] == "Where does the gateway wait?"
        (expected,) = case["expected_text"]
        assert expected["text"] == sentence and expected["file"].endswith("ports.md")
        assert len(server.requests) > 1

        out = tmp_path / "made.jsonl"
        out.write_text(CliRunner().invoke(main, ["eval", "synthesize"]).stdout, encoding="utf-8")
    code, run = rag("eval", "run", "--dataset", str(out))
    assert code == 0, run
    assert run["data"]["run"]["aggregates"]["retrieval.hit_rate@10"]["value"] == 1.0

    with chat_server(lambda body, number: said('{"question": "?", "evidence": "no"}')) as server:
        monkeypatch.setenv("RAG_JUDGE__OPTIONS", json.dumps({**options, "base_url": server.url}))
        assert rag("eval", "synthesize")[1]["error"]["code"] == "no_questions"
