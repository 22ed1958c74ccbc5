"""A model's answer on its way through the engine: its marks are repaired before it is weighed, and
what it made up counts against it.
"""

from __future__ import annotations

from typing import Any

import pytest

from rag_platform.answering.engine import answer
from rag_platform.api.query_data import fit_query
from rag_platform.ir import QueryRequest, QueryResult
from rag_platform.retrieval.library import Library
from rag_platform_tests.chat_server import chat_server, said
from rag_platform_tests.published import GUIDE

QUESTION = "What is the maximum upload size?"
TRUE = "The maximum upload size is 50 MB."
OTHER = "Larger files are refused with code 413."
MADE_UP = "The maximum upload size is 75 MB on server PPR-1111."


@pytest.fixture(autouse=True)
def guide(publish: Any) -> None:
    publish({"guide": GUIDE})


def written(text: str, vary: Any, library: Library) -> QueryResult:
    """The engine's result where a model writes that text."""
    with chat_server(lambda body, number: said(text)) as server:
        options = f"{{model: m, base_url: '{server.url}', api_key_env: '', retries: 0}}"
        name = vary(
            "told",
            f"answerer: {{provider: llm}}\nquery: {{rewrite: {{enabled: false}}}}\n"
            f"llm: {{provider: openai, options: {options}}}\n",
        )
        return answer(library, QueryRequest(QUESTION, strategy=name))


@pytest.fixture
def sure(library: Library, guide: None) -> float:
    """The confidence in what is found, without an answer: only quotes are compared further."""
    return answer(library, QueryRequest(QUESTION, answer=False)).confidence


@pytest.mark.parametrize(
    "mark",
    ["[1]", "【1】", "[^1]", "[1, 1]", "[passage 1]", "[1](https://example.org/1)", "【1†source】"],
)
def test_marks_as_models_write_them_are_marks(
    mark: str, vary: Any, library: Library, sure: float
) -> None:
    result = written(f"{TRUE} {mark}", vary, library)
    assert (result.answered, result.answer_markdown, result.confidence) == (
        True,
        f"{TRUE} [1]",
        sure,
    )
    assert [
        (item.id, item.chunk_id, item.text[slice(*item.spans[0])]) for item in result.citations
    ] == [(1, "guide-0", TRUE)]


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        (TRUE, "1 sentence without a mark was given that of the passage it rests on"),
        (f"{TRUE} [9]", "the answer's mark [9] pointed at no passage and was removed"),
    ],
)
def test_a_true_sentence_without_a_right_mark_is_given_one(
    text: str, warning: str, vary: Any, library: Library
) -> None:
    result = written(text, vary, library)
    assert (result.answered, result.answer_markdown) == (
        True,
        f"{TRUE} [1]",
    ) and warning in result.warnings


def test_what_stands_between_two_marks_is_no_span(vary: Any, library: Library) -> None:
    result = written(f"{TRUE} [1],[2]", vary, library)
    assert [
        (item.id, [item.text[slice(*span)] for span in item.spans]) for item in result.citations
    ] == [(1, [TRUE]), (2, [])]


def test_an_answer_made_up_entirely_is_withheld_and_that_is_told(
    vary: Any, library: Library
) -> None:
    result = written(f"{MADE_UP} [1]", vary, library)
    assert (
        not result.answered and "75 MB" not in result.answer_markdown and result.confidence == 0.0
    )
    assert any(
        "the model wrote an answer that was withheld: its confidence of 0.0" in warning
        for warning in result.warnings
    )
    assert any(
        "numbers that the cited text does not hold: 1111, 75" in warning
        for warning in result.warnings
    )


def test_an_answer_half_made_up_is_trusted_by_half(
    vary: Any, library: Library, sure: float
) -> None:
    result = written(f"{TRUE} [1] {MADE_UP} [1]", vary, library)
    assert result.answered and result.confidence == pytest.approx(sure / 2, abs=0.001)
    [told] = fit_query(result)[0]["unsupported"]
    assert told["sentence"] == MADE_UP and told["reason"].startswith(
        "numbers that the cited text does not hold: 1111, 75"
    )
    assert written(f"{TRUE} [1] {OTHER} [1]", vary, library).confidence == sure


def test_an_answer_that_cites_nothing_is_withheld_and_that_is_told(
    vary: Any, library: Library
) -> None:
    result = written("Whales sing in winter. [9]", vary, library)
    assert not result.answered and result.confidence <= 0.2
    assert "the model wrote an answer that was withheld: it cites nothing" in result.warnings
