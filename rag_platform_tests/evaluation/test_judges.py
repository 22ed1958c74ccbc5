"""Judges: by rules with scores worked out by hand, by a language model over a real connection."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from rag_platform.config.query import ProviderConfig
from rag_platform.config.settings import load_settings
from rag_platform.errors import ConfigError, ProviderError
from rag_platform.evaluation.judges import LlmJudge, RulesJudge
from rag_platform.evaluation.runs import judge_profile_id, open_judge
from rag_platform.storage.store import Store
from rag_platform_tests.chat_server import chat_server, message, refused, said

PASSAGES = (
    "Gateway\nPorts\nThe gateway listens on port 8080 and forwards requests.",
    "Requests are logged for thirty days.",
)
EXPECTED = "The gateway listens on port 8080."


def judge(url: str, cache: str = "", provider: str = "openai", **options: Any) -> LlmJudge:
    reached = {"base_url": url, "api_key_env": "", "retries": 0, "timeout_ms": 5000}
    if provider == "anthropic":
        reached["api_key_env"] = "JUDGE_KEY"
    return LlmJudge(
        {"provider": provider, "options": {"model": "m", **reached, **options}}, cache=cache
    )


def scored(score: object) -> str:
    return json.dumps({"reason": "because", "score": score})


# --- rules --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "score"),
    [
        ("The gateway listens on port 8080. [1]", 1.0),
        # the number stands in no passage
        ("The gateway listens on port 9090. [1]", 0.0),
        ("The gateway listens on port 8080. [1] It was painted green by elephants. [2]", 0.5),
        # a mark is no number of the answer
        ("Requests are logged for thirty days. [7]", 1.0),
        ("Yes.", None),
    ],
)
def test_rules_find_what_the_passages_say(answer: str, score: float | None) -> None:
    assert RulesJudge().score_faithfulness(answer, PASSAGES).score == score


def test_rules_say_what_is_missing() -> None:
    found = RulesJudge().score_faithfulness("The gateway listens on port 9090.", PASSAGES)
    assert "9090" in found.reason


@pytest.mark.parametrize(
    ("answer", "query", "score"),
    [
        ("The gateway listens on port 8080.", "Which port does the gateway listen on?", 1.0),
        ("Elephants are grey.", "Which port does the gateway listen on?", 0.0),
        ("每位员工每年有 15 天年假。", "员工有多少天年假？", 1.0),
        ("网关监听 8080 端口。", "Which port does the gateway listen on?", None),
    ],
)
def test_rules_compare_answer_and_question(answer: str, query: str, score: float | None) -> None:
    assert RulesJudge().score_answer_relevancy(answer, query).score == score


@pytest.mark.parametrize(
    ("answer", "expected", "score"),
    [
        ("On port 8080 the gateway listens, and it forwards.", EXPECTED, 1.0),
        ("The gateway listens on port 9090.", EXPECTED, 0.0),
        ("The gateway listens on port 8080.", f"{EXPECTED} Elephants eat 200 leaves.", 0.5),
        ("Yes, it does.", "yes", 1.0),
        ("网关监听 8080 端口。", EXPECTED, None),
    ],
)
def test_rules_compare_answer_and_expected_answer(
    answer: str, expected: str, score: float | None
) -> None:
    assert RulesJudge().score_answer_correctness(answer, expected, "q").score == score


# --- a language model ---------------------------------------------------------------------------


def test_a_model_gives_score_and_reason_at_temperature_0() -> None:
    with chat_server(lambda body, number: said(scored(0.75))) as server:
        found = judge(server.url).score_faithfulness("It </answer> listens.", PASSAGES)
    assert (found.score, found.reason) == (0.75, "because")
    (request,) = server.requests
    assert request["temperature"] == 0.0
    text = request["messages"][1]["content"]
    assert "port 8080" in text
    assert text.count("</answer>") == 1  # the answer cannot end its own element


def test_a_model_is_asked_all_three_questions() -> None:
    with chat_server(lambda body, number: said(scored(number / 10))) as server:
        asked = judge(server.url)
        scores = [
            asked.score_faithfulness("a", ["c"]),
            asked.score_answer_relevancy("a", "q"),
            asked.score_answer_correctness("a", "e", "q"),
        ]
    assert [score.score for score in scores] == [0.0, 0.1, 0.2]
    systems = {request["messages"][0]["content"] for request in server.requests}
    assert len(systems) == 3


def test_anthropics_protocol_serves_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGE_KEY", "k")
    with chat_server(lambda body, number: message(scored(1))) as server:
        url = server.url.removesuffix("/v1")
        found = judge(url, provider="anthropic").score_answer_relevancy("a", "q")
    assert found.score == 1.0
    assert server.paths == ["/v1/messages"]


@pytest.mark.parametrize("reply", ["good", scored(7), scored(True), scored("0.5"), "[]", "{}"])
def test_a_reply_that_is_no_score_is_asked_for_once_more(reply: str, tmp_path: Path) -> None:
    cache = str(tmp_path / "judgements.sqlite")
    with chat_server(lambda body, number: said(scored(0.5) if number else reply)) as server:
        assert judge(server.url, cache).score_answer_relevancy("a", "q").score == 0.5
        assert len(server.requests) == 2
    with chat_server(lambda body, number: said(reply)) as server:
        found = judge(server.url, cache).score_answer_relevancy("b", "q")
        assert found.score is None and found.reason.startswith("bad_output: ")
        assert len(server.requests) == 2
        # what was not judged is not remembered
        judge(server.url, cache).score_answer_relevancy("b", "q")
        assert len(server.requests) == 4


def test_an_endpoint_that_refuses_ends_the_judging() -> None:
    with (
        chat_server(lambda body, number: refused(401, "bad key")) as server,
        pytest.raises(ProviderError) as raised,
    ):
        judge(server.url).score_answer_relevancy("a", "q")
    assert raised.value.code == "unauthorized"
    assert len(server.requests) == 1


def test_equal_texts_are_sent_once_and_the_cache_has_no_words(tmp_path: Path) -> None:
    path = tmp_path / "cache" / "judgements.sqlite"
    with chat_server(lambda body, number: said(scored(0.25))) as server:
        for _ in range(2):
            found = judge(server.url, str(path)).score_faithfulness("It listens.", PASSAGES)
            assert found.score == 0.25
        assert len(server.requests) == 1
        judge(server.url, str(path)).score_faithfulness("It listens.", PASSAGES[:1])
        judge(server.url, str(path), model="other").score_faithfulness("It listens.", PASSAGES)
        assert len(server.requests) == 3
        # how the model is reached does not matter
        judge(server.url, str(path), timeout_ms=4000).score_faithfulness("It listens.", PASSAGES)
        assert len(server.requests) == 3
    with sqlite3.connect(path) as db:
        rows = db.execute("SELECT * FROM scores").fetchall()
    db.close()
    assert len(rows) == 3
    assert all(len(key) == 64 and score == 0.25 for key, score in rows)
    assert b"listens" not in path.read_bytes()


# --- which judge --------------------------------------------------------------------------------


def test_a_profile_changes_with_what_scores_depend_on(
    config_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = judge("http://localhost:1")
    assert first.profile()["judge_provider_id"] == "judge.llm@1"
    assert first.profile()["judge_model"] == "m"
    assert first.profile()["temperature"] == 0.0
    assert set(first.profile()["judge_prompt_id"]) == {"faithfulness", "relevancy", "correctness"}
    same = judge("http://localhost:1", timeout_ms=1)
    ids = [
        judge_profile_id(item)
        for item in (
            first,
            judge("http://localhost:1", model="other"),
            judge("http://localhost:1", temperature=0.5),
            RulesJudge(),
        )
    ]
    assert len(set(ids)) == 4 and ids[0] == judge_profile_id(same)
    folder = config_folder / "prompts" / "judge"
    folder.mkdir(parents=True)
    (folder / "relevancy.yaml").write_text(
        "system: Judge.\nuser_template: '{query} {answer}'\n", encoding="utf-8"
    )
    assert judge_profile_id(judge("http://localhost:1")) != ids[0]


def test_the_judge_llm_wants_a_model(home: Path) -> None:
    settings = load_settings()
    store = Store(settings.home)
    with pytest.raises(ConfigError, match=r"under `judge` in settings\.yaml"):
        open_judge("llm", settings, store)
    with pytest.raises(ConfigError, match="unknown judge 'oracle'; known: llm, rules"):
        open_judge("oracle", settings, store)
    model = ProviderConfig(provider="openai", options={"model": "m"})
    made = open_judge("llm", settings.model_copy(update={"judge": model}), store)
    assert made.profile()["judge_model"] == "m"
