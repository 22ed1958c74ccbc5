"""Whether the passages that a sentence cites bear it out, told from words, numbers and identifiers,
without a model.

A sentence is borne out when its numbers and identifiers all stand in the cited passages, and at
least half of its words by weight. A sentence in another language than the passages is held to its
numbers and identifiers alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rag_platform.ir import Hit
from rag_platform.text.passages import units
from rag_platform.text.scripts import is_wide
from rag_platform.text.segmentation import is_identifier
from rag_platform.text.terms import kind_weight, meaning

MIN_SHARE = 0.5  # of a sentence's words that the passages it cites must hold
CLEAR_SHARE = 0.75  # of a sentence without a mark that a passage must hold to be its source
_NUMBER = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)*")


@dataclass(frozen=True, slots=True)
class Support:
    """How far passages hold a sentence: the share of its words, and what they lack of its numbers
    and identifiers.
    """

    share: float
    numbers: tuple[str, ...] = ()
    identifiers: tuple[str, ...] = ()
    words_count: bool = True  # False: another language, so that words say nothing

    @property
    def exact(self) -> bool:
        """True when no number and no identifier is missing."""
        return not self.numbers and not self.identifiers

    @property
    def enough(self) -> bool:
        """True when the passages bear the sentence out."""
        return self.exact and (self.share >= MIN_SHARE or not self.words_count)

    @property
    def agreement(self) -> float:
        """0 to 1: none where a number or identifier is missing, else how near the share of its
        words comes to what is enough.
        """
        if not self.exact:
            return 0.0
        return min(1.0, self.share / MIN_SHARE) if self.words_count else 1.0

    @property
    def reason(self) -> str:
        """Why it is not enough, in plain words."""
        missing = [
            f"{name} that the cited text does not hold: {', '.join(items[:5])}"
            for name, items in (("numbers", self.numbers), ("identifiers", self.identifiers))
            if items
        ]
        return "; ".join(missing) or f"only {self.share:.0%} of its words stand in the cited text"


def says_something(sentence: str) -> bool:
    """False for a sentence with nothing to check: a bare yes, an introduction that ends with a
    colon.
    """
    return not sentence.rstrip().endswith((":", "：")) and (
        len(meaning(sentence)) >= 2 or bool(_numbers(sentence))
    )


def quoted(sentence: str, text: str) -> bool:
    """True when the sentence stands in the text as it is and no word of the text reaches into it:
    then the text bears it out.
    """
    at = text.find(sentence)
    if not sentence or at < 0:
        return False
    end = at + len(sentence)
    return (at == 0 or _apart(text[at - 1], text[at])) and (
        end == len(text) or _apart(text[end - 1], text[end])
    )


def _apart(left: str, right: str) -> bool:
    """True where no word and no number can hold both of two neighbouring characters."""
    return any(one.isspace() or one in "。！？" for one in (left, right))


def support(sentence: str, passages: Sequence[Hit]) -> Support:
    """How far the passages together hold the sentence, with their headings and titles."""
    body = "\n".join(hit.chunk_text for hit in passages)
    headings = "\n".join(f"{hit.doc_title}\n{hit.section_path}" for hit in passages)
    have = meaning(body) | meaning(headings)
    asked = meaning(sentence)
    total = sum(map(kind_weight, asked))
    share = sum(kind_weight(term) for term in asked if term in have) / total if total else 1.0
    known = _numbers(body) | _numbers(headings)
    lower = f"{body}\n{headings}".lower()
    return Support(
        share,
        tuple(sorted(_numbers(sentence) - known)),
        tuple(
            sorted(
                term for term in asked if _is_name(term) and term not in have and term not in lower
            )
        ),
        words_count=is_wide(sentence) == is_wide(body),
    )


def best_span(sentence: str, text: str) -> tuple[int, int] | None:
    """The span of `text` that the sentence rests on: the sentence itself where it is quoted, else
    the unit that holds most of it.
    """
    if sentence and (at := text.find(sentence)) >= 0:
        return at, at + len(sentence)
    asked = meaning(sentence) | _numbers(sentence)
    best, span = 0.0, None
    for unit in units(text):
        held = text[unit.start : unit.end]
        own = meaning(held) | _numbers(held)
        score = sum(map(kind_weight, asked & own)) / (1 + max(0, len(own) - 2 * len(asked)) / 40)
        if score > best:
            best, span = score, (unit.start, unit.end)
    return span


def missing_numbers(text: str, source: str) -> list[str]:
    """The numbers of a text that its source does not hold, sorted."""
    return sorted(_numbers(text) - _numbers(source))


def merged(spans: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """The spans in order, those that overlap or touch made one."""
    joined: list[tuple[int, int]] = []
    for start, end in sorted(set(spans)):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return tuple(joined)


def _numbers(text: str) -> set[str]:
    """Numbers as written, without thousands separators; parts of identifiers as well, so that none
    is missed.
    """
    return {match.replace(",", "").rstrip(".") for match in _NUMBER.findall(text)}


def _is_name(term: str) -> bool:
    """An identifier, but not a path or a pair of words that a sentence joins by a stroke."""
    return is_identifier(term) and not (
        "/" in term and all(part.isalpha() for part in term.split("/") if part)
    )
