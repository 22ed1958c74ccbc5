"""Detects sentences that share their words with a text but contradict it: an added or missing
negation, an antonym, another number.

Each clause of a sentence is compared with the clauses of the text that share most words with it. A
clause that agrees with one of these, or has none, passes, though it may still be wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from rag_platform.answering.constants import MIN_SHARE, NEAR_CLAUSE_SHARE
from rag_platform.answering.groundedness import numbers
from rag_platform.text.scripts import is_wide
from rag_platform.text.terms import meaning

_CLAUSE_END = re.compile(
    r"[，。；！？;!?\n|]|[,.:](?=\s|$)|(?<!\bnot)\s(?=(?:and|but|although|while|because|if|when)\s)|但"
)
_NEGATION = re.compile(
    r"\b(?:no|not|never|none|nothing|nobody|neither|nor|without|cannot)\b|n['’]t\b|[不没无未勿]"
    r"|非(?!常)|别(?=再|忘|把)",
    re.IGNORECASE,
)
# expressions that contain a negation but negate nothing
_NO_NEGATION = re.compile(
    r"\bnot only\b|\bno\.\s*(?=\d)|不得不|不[同过仅但只断久少管论锈]|无[论穷线数]|除非|未[来必]",
    re.IGNORECASE,
)
_OPPOSITES = [
    (re.compile(rf"\b(?:{one})\b|{chinese_one}", re.I), re.compile(rf"\b(?:{other})\b|{zh}", re.I))
    for one, chinese_one, other, zh in (
        (
            "more|greater|higher|larger|longer",
            "大于|高于|多于",
            "less|fewer|lower|smaller|shorter",
            "小于|低于|少于",
        ),
        ("at least|minimum", "至少|最少|最低|最小", "at most|maximum", "至多|最多|最高|最大"),
        ("before", "之前|以前", "after", "之后|以后"),
        ("above", "以上", "below", "以下"),
        ("true|yes|enabled?s?", "开启|启用|打开", "false|disabled?s?", "关闭|禁用|停用"),
        ("always", "总是|始终", "never", "从不|从未"),
        (
            "increase[sd]?|increasing|rises?|rose",
            "增加|上升|提高",
            "decrease[sd]?|decreasing|falls?|fell",
            "减少|下降|降低",
        ),
        ("first", "首先|第一", "last", "最后"),
        ("allow(?:s|ed)?", "允许", "forbids?|forbidden|prohibit(?:s|ed)?", "禁止"),
        ("required", "必须|必填", "optional", "可选|选填"),
        ("north(?:ern)?", "北部|北方", "south(?:ern)?", "南部|南方"),
        ("east(?:ern)?", "东部|东方", "west(?:ern)?", "西部|西方"),
    )
]


class _Clause(NamedTuple):
    text: str
    terms: set[str]


def find_contradiction(sentence: str, text: str, headings: str = "") -> str:
    """Why the sentence contradicts the text; empty where no contradiction is found and where their
    languages differ. Numbers in the headings apply to the whole text.
    """
    if is_wide(sentence) != is_wide(text):
        return ""
    known = list(_clauses(text))
    heading_numbers = numbers(headings)
    for clause in _clauses(sentence):
        near = _find_nearest(clause, known)
        if near and (reason := _compare(clause.text, near, heading_numbers)):
            return reason
    return ""


def split_clauses(text: str) -> list[str]:
    """The clauses of a text in order, without blank ones."""
    return [part.strip() for part in _CLAUSE_END.split(text) if part.strip()]


def _clauses(text: str) -> Iterator[_Clause]:
    for part in split_clauses(text):
        if terms := meaning(part):
            yield _Clause(part, terms)


def _find_nearest(clause: _Clause, known: list[_Clause]) -> list[str]:
    """The clauses that share most words with this one, nearest first; empty where none has at least
    MIN_SHARE of its words.
    """
    shares = [(len(clause.terms & other.terms) / len(clause.terms), other) for other in known]
    best = max((share for share, _ in shares), default=0.0)
    if best < MIN_SHARE:
        return []
    shares.sort(key=lambda item: -item[0])
    return [other.text for share, other in shares if share >= NEAR_CLAUSE_SHARE * best]


def _compare(clause: str, near: list[str], heading_numbers: set[str]) -> str:
    """Why a clause contradicts all clauses near it; empty where it does not."""
    quote = near[0] if len(near[0]) <= 80 else f"{near[0][:80]}…"
    negated = is_negated(clause)
    if all(is_negated(other) is not negated for other in near):
        difference = "it negates" if negated else "it lacks the negation of"
        return f"{difference} what the text says: {quote!r}"
    for pair in _OPPOSITES:
        for own, opposite in (pair, pair[::-1]):
            if (found := own.search(clause)) and not opposite.search(clause):
                others = [opposite.search(other) for other in near]
                if others[0] and not any(own.search(other) for other in near):
                    return f"it has {found[0]!r} where the text has {others[0][0]!r}: {quote!r}"
    if own_numbers := numbers(clause) - heading_numbers:
        theirs = [numbers(other) for other in near]
        if theirs[0] and not any(own_numbers <= other for other in theirs):
            shown = ", ".join(sorted(own_numbers))
            return f"it has {shown} where the text has another number: {quote!r}"
    return ""


def is_negated(text: str) -> bool:
    return _NEGATION.search(_NO_NEGATION.sub(" ", text)) is not None
