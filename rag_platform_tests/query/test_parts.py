"""Questions that ask for two things, or say how to answer, by hand."""

from __future__ import annotations

import pytest

from rag_platform.query.parts import find_parts, without_directions


@pytest.mark.parametrize(
    ("question", "parts"),
    [
        (
            "We use Docker. Should it run as root, and where do the logs go?",
            ("We use Docker. Should it run as root", "where do the logs go?"),
        ),
        ("What is the port and how is it set?", ("What is the port", "how is it set?")),
        (
            "默认保留多少天？过期以后还能不能恢复？",
            ("默认保留多少天？", "过期以后还能不能恢复？"),
        ),
        # symptoms before one question, one question with `and`, a tail that asks nothing
        ("It hangs. The log is empty. How do I find out why?", ()),
        ("How do I search and replace?", ()),
        ("Why does it fail? It worked before.", ()),
        ("登录失败了。日志是空的，怎么查？", ()),
        # too short a part, too many parts
        ("How large is it, and why?", ()),
        ("What is alpha? What is beta? What is gamma? What is delta?", ()),
    ],
)
def test_a_question_has_parts_where_each_asks(question: str, parts: tuple[str, ...]) -> None:
    assert find_parts(question) == parts


@pytest.mark.parametrize(
    ("question", "searched"),
    [
        ("Did it fall? If that says little, then state that.", "Did it fall?"),
        ("毛利率是多少？请保留两位小数。", "毛利率是多少？"),
        ("Is it safe? Please answer in one word.", "Is it safe?"),
        # what tells more of the matter, or asks again, stays
        ("Why does it fail? It worked before.", "Why does it fail? It worked before."),
        (
            "Is it round? Round means no edge, does it?",
            "Is it round? Round means no edge, does it?",
        ),
        ("Round the tank. If it leaks, say so.", "Round the tank. If it leaks, say so."),
    ],
)
def test_how_to_answer_is_not_searched_for(question: str, searched: str) -> None:
    assert without_directions(question) == searched
