"""Questions that ask for two things, by hand."""

from __future__ import annotations

import pytest

from rag_platform.query.parts import find_parts


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
