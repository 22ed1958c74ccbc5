"""A judge without a model: the words, numbers and identifiers that texts share.

It is repeatable and free, and blind to what needs understanding: a sentence with a `not` too many
has the same words, a paraphrase has others. Where two languages meet, nothing but numbers and
identifiers can be compared, so relevancy and correctness are not judged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import ClassVar

from rag_platform.answering.citations import strip_marks
from rag_platform.answering.groundedness import Support, is_quoted, says_something, support_by
from rag_platform.evaluation.measuring import Score
from rag_platform.ir import Json
from rag_platform.text.passages import units
from rag_platform.text.scripts import is_wide
from rag_platform.text.term_overlap import coverage

_LANGUAGES = "the texts are in different languages"


@dataclass(frozen=True)
class RulesJudge:
    """Faithfulness is the mean agreement of the answer's sentences with the passages, as answers
    are checked when they are given; relevancy the share of the question's words, by weight, in the
    answer; correctness the mean share of the expected sentences' words, 0 for one whose number or
    identifier is missing.
    """

    VERSION: ClassVar[str] = "2"

    def profile(self) -> Json:
        """The provider and its version."""
        return {"judge_provider_id": f"judge.rules@{self.VERSION}"}

    def score_faithfulness(self, answer: str, contexts: Sequence[str]) -> Score:
        """0 to 1; not judged where the answer has no sentence that could be checked."""
        body = "\n".join(contexts)
        found = [
            (1.0, "")
            if any(is_quoted(sentence, text) for text in contexts)
            else (held.agreement, "" if held.enough else f"{sentence!r}: {held.reason}")
            for sentence, held in _compare(answer, body)
        ]
        return _mean(found) if found else Score(None, "nothing in the answer could be checked")

    def score_answer_relevancy(self, answer: str, query: str) -> Score:
        """0 to 1; not judged across languages."""
        if is_wide(answer) != is_wide(query):
            return Score(None, _LANGUAGES)
        share = coverage(query, [strip_marks(answer)])
        return Score(share, f"{share:.0%} of the question's words stand in the answer")

    def score_answer_correctness(self, answer: str, expected: str, query: str) -> Score:
        """0 to 1; not judged across languages."""
        if is_wide(answer) != is_wide(expected):
            return Score(None, _LANGUAGES)
        body = strip_marks(answer)
        # an expected answer may be one word
        found = [held for _, held in _compare(expected, body)] or [support_by(expected, body)]
        return _mean([(held.share if held.exact else 0.0, _lack(held)) for held in found])


def _compare(text: str, body: str) -> Iterator[tuple[str, Support]]:
    """The sentences of a text that say something, and how far the body supports them."""
    for unit in units(text):
        sentence = strip_marks(text[unit.start : unit.end]).strip()
        if says_something(sentence):
            yield sentence, support_by(sentence, body)


def _lack(held: Support) -> str:
    return "" if held.exact and held.share == 1 else held.reason


def _mean(found: Sequence[tuple[float, str]]) -> Score:
    return Score(
        fmean(value for value, _ in found), "; ".join(reason for _, reason in found if reason)
    )
