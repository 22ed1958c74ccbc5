"""Splits a question into its parts by rules: the questions in it, and directions for the answer."""

from __future__ import annotations

import re

from rag_platform.query.constants import MAX_PARTS, MAX_RULED_CHARS, MIN_PART_CHARS

_QUESTION_WORDS = "which|what|where|how|when|who|why|whose"
_ASKING = f"{_QUESTION_WORDS}|should|can|could|do|does|did|is|are|was|were|will|must"
# after a question mark, or before a clause that begins as a question does
_BOUNDARY = re.compile(
    rf"(?<=[?？])\s*(?=\S)|[,;]\s*(?:and|but|or)\s+(?=(?:{_ASKING})\b)"
    rf"|\s+and\s+(?=(?:{_QUESTION_WORDS})\b)",
    re.IGNORECASE,
)
_IS_QUESTION = re.compile(
    rf"\b(?:{_QUESTION_WORDS})\b|^(?:{_ASKING})\b|[.!:]\s+(?:{_ASKING})\b"
    r"|什么|哪|怎|多少|几|吗|是否|能不能|要不要|为何|谁",
    re.IGNORECASE,
)
# sentences after a question that say how to answer it
_DIRECTIONS = re.compile(
    r"(?<=[?？])\s*(?:please\s+)?(?:if\b[^?？]+\b(?:state|say|explain|mention)\b|round\b"
    r"|(?:address|answer|respond|reply)\b|如果[^?？]+(?:说明|解释|指出)|请?(?:四舍五入|保留))[^?？]*$",
    re.IGNORECASE,
)


def without_directions(question: str) -> str:
    """A cleaned question without trailing sentences about the form of the answer.

    >>> without_directions("How large is the margin? Round your answer to two decimals.")
    'How large is the margin?'
    """
    return _DIRECTIONS.sub("", question)


def find_parts(question: str) -> tuple[str, ...]:
    """The questions in a cleaned question, if there are several; empty for a single one.

    >>> find_parts("How large may an upload be, and which error comes above that?")
    ('How large may an upload be', 'which error comes above that?')
    >>> find_parts("上传有大小限制吗？超过了会报什么错？")
    ('上传有大小限制吗？', '超过了会报什么错？')
    """
    if len(question) > MAX_RULED_CHARS:
        return ()
    parts = [part.strip() for part in _BOUNDARY.split(question) if part.strip()]
    are_questions = all(len(part) >= MIN_PART_CHARS and _IS_QUESTION.search(part) for part in parts)
    return tuple(parts) if are_questions and 1 < len(parts) <= MAX_PARTS else ()
