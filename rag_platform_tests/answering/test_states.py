"""Answered, closest or nothing found: the signals, the probability, the states and their words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from rag_platform.answering import states
from rag_platform.answering.engine import answer
from rag_platform.answering.states import Signals, decide, probability
from rag_platform.api.query_data import fit_query
from rag_platform.config.settings import Limits
from rag_platform.ir import Hit, QueryRequest
from rag_platform.observability import trace_reader
from rag_platform.query.analysis import without_rules
from rag_platform.retrieval.library import Library
from rag_platform.retrieval.retrievers import Retrieved
from rag_platform.retrieval.signals import measure_signals
from rag_platform.storage.store import Store
from rag_platform_tests.published import GUIDE, HANDBOOK

MODELS = yaml.safe_load(Path(states.__file__).with_name("states.yaml").read_text(encoding="utf-8"))
RULES = {"numbers_absent", "names_absent"}  # signals that no coefficient weighs
USUAL = {"intercept": 0.0, "means": {"words_found": 0.5}, "deviations": {"words_found": 0.25}}


@pytest.fixture
def guide(publish: Any) -> None:
    publish({"guide": GUIDE, "handbook": HANDBOOK})


def test_phrasings_leave_a_question_answered_whose_own_words_a_passage_holds() -> None:
    worded_otherwise = Signals(words_found=0.2)
    held, hardly = Signals(words_found=1.0), Signals(words_found=0.7)

    def state(alone: Signals | None) -> str:
        return decide(
            probability(worded_otherwise, phrased=True, question_only=alone), phrased=True
        )

    assert [state(alone) for alone in (None, hardly)] == ["nothing_found"] * 2
    assert state(held) == "answered"


def test_a_day_of_the_question_is_found_in_another_form() -> None:
    table = "| Day | System |\n| --- | --- |\n| 2026-12-09 | mail relay |"
    hit = Hit(1, "c", 1.0, "hybrid", "d", "d@1", "d.md", "d.md", "Windows", "", 1, table)
    signals = states.read_signals("What is down on December 9?", [], [hit])
    assert (signals.numbers_absent, signals.names_absent) == (0.0, 0.0)


def test_the_probability_is_that_of_a_logistic_model(monkeypatch: pytest.MonkeyPatch) -> None:
    model = states._Model(**USUAL, weights={"words_found": 1.0}, answered=0.7, closest=0.3)
    monkeypatch.setattr(states, "_load_models", lambda: {"question": model})
    # 1 / (1 + e^-z) at z = 0, 2 and -2
    found = [probability(Signals(words_found=share), phrased=False) for share in (0.5, 1.0, 0.0)]
    assert found == [0.5, 0.881, 0.119]
    assert probability(Signals(), phrased=False) == 0.5  # a signal that is not there
    assert [decide(sure, phrased=False) for sure in (0.7, 0.69, 0.3, 0.29)] == [
        "answered",
        "closest",
        "closest",
        "nothing_found",
    ]
    assert decide(0.5, phrased=False, least=0.5) == "answered"
    assert decide(0.3, phrased=False, reads=True) == "answered"
    assert decide(0.29, phrased=False, reads=True) == "nothing_found"


def test_the_shipped_coefficients_say_what_they_were_fitted_on() -> None:
    assert MODELS["trained_on"]["half"] == "tuned"
    assert len(MODELS["trained_on"]["sha256"]) == 64
    for name, model in MODELS["models"].items():
        quotes = {"words_found", "quotes_near"}
        search = set(Signals.__dataclass_fields__) - RULES - {"quotes_near"}
        assert (
            set(model["weights"]) == set(model["means"]) == (quotes if name == "quotes" else search)
        )
        assert min(model["deviations"].values()) > 0
        assert 0 <= model["closest"] < model["answered"] < 1
        assert model["weights"]["words_found"] > 0


def test_a_question_in_the_words_of_a_passage_is_answered(
    guide: None, library: Library, store: Store
) -> None:
    result = answer(library, QueryRequest("What is the maximum upload size?"))
    assert (result.state, result.answered) == ("answered", True)
    assert result.signals["words_found"] == 1.0 and result.signals["words_absent"] == 0.0
    data = fit_query(result)[0]
    assert (data["state"], data["answered"]) == ("answered", True)
    attrs = trace_reader.show(store.logs_dir, result.trace_id)["attrs"]
    assert attrs["signals"] == result.signals and attrs["flags"]["state"] == "answered"


def test_chinese_words_are_compared_with_chinese_words_among_code(
    publish: Any, library: Library
) -> None:
    code = "create client connect with retry timeout and host name then close session pool"
    publish({"guide": [("连接", f"```\n{code}\n# 超时 3 秒\n```"), *GUIDE]})
    result = answer(library, QueryRequest("create client 超时多少秒"))
    assert "超时" in result.hits[0].chunk_text and result.signals["words_found"] == 1.0


@pytest.mark.parametrize(
    ("text", "statement"),
    [
        ("How large may the files of pancakes be?", "This may not be the answer."),
        ("煎饼的最大直径和最佳厚度是多少厘米？", "这可能不是答案。"),
    ],
)
def test_what_may_not_answer_is_quoted_and_marked(
    text: str, statement: str, guide: None, library: Library
) -> None:
    result = answer(library, QueryRequest(text))
    assert (result.state, result.answered) == ("closest", False)
    assert 0.2 < result.signals["words_absent"] < 1.0
    assert result.answer_markdown.startswith(statement) and result.citations
    assert statement in fit_query(result, detail="brief")[0]["markdown"]


@pytest.mark.parametrize(
    ("text", "statement"),
    [
        ("Wer gewann das Endspiel?", "The library seems to hold nothing on this."),
        ("谁赢得了决赛？", "知识库中似乎没有相关内容。"),
    ],
)
def test_what_the_library_does_not_hold_is_told_and_the_passages_are_given(
    text: str, statement: str, guide: None, library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(states, "probability", lambda signals, **_: 0.01)
    result = answer(library, QueryRequest(text))
    assert (result.state, result.answered) == ("nothing_found", False)
    assert result.answer_markdown.startswith(statement)
    assert result.hits and len(fit_query(result)[0]["results"]) == len(result.hits)


def test_phrasings_are_what_the_signals_go_by(guide: None, library: Library) -> None:
    asked = "Why does my big video never arrive?"
    alone = answer(library, QueryRequest(asked))
    phrased = answer(library, QueryRequest(asked, searches=("maximum upload size",)))
    assert alone.state != "answered" and phrased.state == "answered"
    assert phrased.signals["words_found"] == 1.0
    assert "The maximum upload size is 50 MB." in phrased.answer_markdown


def test_a_caller_may_set_the_threshold(guide: None, vary: Any, library: Library) -> None:
    strict = vary("strict", "answerer: {provider: extractive, min_confidence: 0.99}\n")
    result = answer(library, QueryRequest("What is the maximum upload size?", strategy=strict))
    assert (result.state, result.confidence < 0.99) == ("closest", True)
    assert "The maximum upload size is 50 MB." in result.answer_markdown


@pytest.mark.parametrize(
    ("question", "text", "absent"),
    [
        ("How do I move from Pydantic v2 to v3?", "Since Pydantic 2.13, v2 models", 0.5),
        ("fastapi 0.150.2 修了哪些 bug", "## 0.115.2", 1.0),
        ("What changed in 3.12?", "Python 3.12.1 mends it", 0.0),  # a version of that line
        ("What changed in 3?", "Python 3.12.1 mends it", 1.0),
        ("What changed in 3?", "## 3.0.0", 0.0),
        ("What changed in 3?", "## 3.0.1", 1.0),
        ("What changed in pytest 6.2?", "docs/pytest/6.x/index.rst", 0.0),
        ("What changed in pytest 6.2?", "docs/pytest/16.x/index.rst", 1.0),
        ("What changed in pytest 6.2?", "docs/pytest/6.xml", 1.0),
        ("Who was elected on 2023-05-03?", "elected on May 3, 2023", 0.0),  # its year is told
        ("Who earned $1,200 at 08:00?", "1200 dollars, at 8 o'clock", 0.0),
        ("劳动合同法第一百二十条怎么规定", "第十二条　第二十条", 1.0),
        ("第８７条", "第八十七条　支付赔偿金。", 0.0),
        ("第十二条", "Article 12", 0.0),
        ("a lead of 51", "5½ sacks", 1.0),
        ("Who was it?", "nobody of 7", None),
    ],
)
def test_the_numbers_of_a_question_that_no_passage_holds(
    question: str, text: str, absent: float | None
) -> None:
    assert states._share_numbers_absent(question, text) == absent


@pytest.mark.parametrize(
    ("question", "text", "absent"),
    [
        ("Where is the assembly point of building A?", "Building C meets at gate A-2.", 1.0),
        ("Where is the assembly point of building C?", "Building C meets at the gate.", 0.0),
        ("Who is the dispatcher of Northwind Logistics?", "Brightwell Logistics: Ann Lee", 0.5),
        ("When was Ann Lee's project launched?", "It was launched in May by Ann Lee.", 0.0),
        ("What does TemplateRespone need?", "`TemplateResponse` needs a request.", 0.0),
        ("ahooks 的 useChart 怎么用？", "ahooks 有 useState。", 1.0),
        ("Does it read rate_limit and --fast?", "It reads rate_limit.", 0.5),
        ("Does it run on iOS?", "It reads `os.environ`.", 1.0),
        ("get_trade_times改名成啥了", "`get_trade_times`改名", 0.0),
        ("请问 Debian怎么装", "安装 Debian", 0.0),
        ("What did I do? Should I wait?", "You wait.", None),  # no name
        ("仓库里的 PR 由谁合并？", "维护者合并每个 PR。", 0.0),
        ("How To Install The Orion Gateway", "Install it.", None),  # a title
        ("Wie hoch ist die Kaution für die Wohnung?", "Es sind zwei Mieten.", None),
    ],
)
def test_the_names_of_a_question_that_no_passage_holds(
    question: str, text: str, absent: float | None
) -> None:
    assert states._share_names_absent(question, text) == absent


@pytest.mark.parametrize(
    ("question", "lacks"),
    [
        ("When was commander 7.0 released?", True),
        ("commander 7.0有哪些更新？", True),
        ("When was black 7.0 released?", False),
        ("When was click 7.0 released?", False),
        ("When was pallets 7.0 released?", True),  # of several products
        ("When was python 7.0 released?", True),  # beside `Python 3.12` and another 7.0
        ("When was click 7.0.3 released?", True),  # `Click 7.x` tells of no release
        ("What changed in commander 6.1?", False),
        ("What changed in node-gyp 7.0?", True),
        ("What changed in node-gyp 10.1?", False),
        ("What changed in version 7.0?", False),
        ("Does commander 7.0 read options?", False),  # no question about a release as a whole
        ("When was commander released?", False),
    ],
)
def test_no_passage_about_the_release_of_another_product_is_an_answer(
    question: str, lacks: bool
) -> None:
    hits = [
        Hit(n, f"c{n}", 1.0, "hybrid", path, "v", path, path, "", section, 1, text)
        for n, path, section, text in (
            (1, "black/CHANGES.md", "20.8b1", "Black works with Click 7.0 or 7.x."),
            (2, "commander/CHANGELOG.md", "6.1.0", "Options are read."),
            (3, "node-gyp/CHANGELOG.md", "v10.1.0", "Python 3.12 is found."),
        )
    ]
    assert states._lacks_release(question, hits) is lacks


def test_the_path_of_a_release_that_is_found_names_its_product() -> None:
    question = "What changed in commander 6.1?"
    search = measure_signals(None, without_rules(question, Limits()), Retrieved())
    hits = [
        Hit(n, f"c{n}", 1.0, "hybrid", path, "v", path, path, "", section, 1, "Options are read.")
        for n, path, section in (
            (1, "commander/CHANGELOG.md", "6.1.2"),
            (2, "commander/CHANGELOG.md", "6.1.0"),
        )
    ]
    assert states.read_signals(question, [search], hits).words_found == 1.0
    # 6.1 is in 6.1.2, the name is not in the text
    assert states.read_signals(question, [search], hits[:1]).words_found == 0.5


def test_a_chinese_question_for_a_release_is_sure_over_an_english_change_log() -> None:
    text = "Options are read."
    path = "commander/CHANGELOG.md"
    hits = [Hit(1, "c1", 1.0, "hybrid", path, "v", path, path, "", "6.1.0", 1, text)]
    for question, found in (("commander 6.1 改了什么", 1.0), ("commander 6.1 怎么安装", None)):
        search = measure_signals(None, without_rules(question, Limits()), Retrieved())
        assert states.read_signals(question, [search], hits).words_found == found


def test_no_passage_about_another_number_is_an_answer(
    guide: None, library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    sure = states._Model(9.0, {}, {}, {}, answered=0.7, closest=0.3)
    monkeypatch.setattr(states, "_load_models", lambda: {"question": sure, "quotes": sure})
    known = answer(library, QueryRequest("Is the maximum upload size 50 MB?"))
    other = answer(library, QueryRequest("Is the maximum upload size 80 MB?"))
    assert known.state == "answered" and known.confidence > 0.9
    assert (other.state, other.signals["numbers_absent"]) == ("closest", 1.0)
    assert other.confidence == 0.699


def test_nearness_is_measured_from_unrelated_sentences() -> None:
    question, same, half, unrelated = (1, 0), (1, 0), (0.6, 0.8), (0.2, 0.98)
    near = [
        states.measure_nearness(np.array([question, best, (0, 1), unrelated, (0, 1)]), 2)
        for best in (same, half, unrelated)
    ]
    assert near == [1.0, 0.5, 0.0]


def test_quotes_far_from_the_question_in_meaning_are_no_answer_of_a_small_library(
    guide: None, library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = "What is the maximum upload size?"
    near = answer(library, QueryRequest(asked))
    assert near.state == "answered" and near.signals["quotes_near"] > 0
    phrased = answer(library, QueryRequest(asked, searches=("maximum upload size",)))
    assert phrased.signals["quotes_near"] is None
    # without the words' index, which a search by meaning alone leaves out, no library is small
    assert answer(library, QueryRequest(asked, mode="dense")).signals["quotes_near"] is None
    monkeypatch.setattr(states, "measure_nearness", lambda vectors, count: -0.5)
    far = answer(library, QueryRequest(asked))
    assert (far.state, far.signals["quotes_near"]) == ("closest", -0.5)
