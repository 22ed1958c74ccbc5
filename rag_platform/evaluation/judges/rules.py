"""The judge without a model, which compares the words, numbers and identifiers of texts.

It is deterministic and free, but does not understand: an added `not` changes little, a
paraphrase much. Across languages only numbers and identifiers are comparable, so relevancy and
correctness are not judged.
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
    """Faithfulness is the mean agreement of the answer's sentences with the passages, by the same
    check as for live answers; relevancy the weighted share of the question's words in the answer;
    correctness the mean share of each expected sentence's words in the answer, 0 for a sentence of
    which a number or identifier is missing.
    """

    VERSION: ClassVar[str] = "2"

    def profile(self) -> Json:
        """The provider and its version."""
        return {"judge_provider_id": f"judge.rules@{self.VERSION}"}

    def score_faithfulness(self, answer: str, contexts: Sequence[str]) -> Score:
        """0 to 1; not judged if no sentence of the answer can be checked."""
        body = "\n".join(contexts)
        found = [
            (1.0, "")
            if any(is_quoted(sentence, text) for text in contexts)
            else (overlap.agreement, "" if overlap.enough else f"{sentence!r}: {overlap.reason}")
            for sentence, overlap in _compare(answer, body)
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
        found = [item for _, item in _compare(expected, body)] or [support_by(expected, body)]
        return _mean(
            [
                (it.share if it.exact else 0.0, "" if it.exact and it.share == 1 else it.reason)
                for it in found
            ]
        )


def _compare(text: str, body: str) -> Iterator[tuple[str, Support]]:
    """The checkable sentences of a text, each with its support in the body."""
    for unit in units(text):
        sentence = strip_marks(text[unit.start : unit.end]).strip()
        if says_something(sentence):
            yield sentence, support_by(sentence, body)


def _mean(found: Sequence[tuple[float, str]]) -> Score:
    return Score(
        fmean(value for value, _ in found), "; ".join(reason for _, reason in found if reason)
    )
