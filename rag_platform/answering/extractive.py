"""An answer that only quotes: the sentences, list items and table rows of the evidence that best
match the question.

Words are compared by the analysis of the word index, so Chinese is segmented and identifiers count
whole and in parts. A word weighs by how few units of the evidence hold it; identifiers weigh most,
function words nothing. Every quote is a verbatim slice of its chunk followed by its mark [n].
"""

from __future__ import annotations

import dataclasses
import heapq
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import ClassVar

from rag_platform.answering.citations import escaped
from rag_platform.ir import Hit, QueryIR
from rag_platform.protocols import Written
from rag_platform.retrieval.confidence import question_text, words_held
from rag_platform.text.passages import Unit, units
from rag_platform.text.scripts import is_wide
from rag_platform.text.term_overlap import (
    ASKS_CODE,
    ASKS_MEANING,
    ASKS_NUMBER,
    DIGIT,
    MEANS,
    POINTS,
    Word,
    question_terms,
    question_words,
    rarity,
)
from rag_platform.text.terms import terms
from rag_platform.traits import Traits

_DIRECTIVE = re.compile(r"\s*(?::::|\{[*!%#]|///)")  # what a documentation tool replaces
CONTEXT_WEIGHT = 0.4  # a word that stands only in the heading, header or sentence above the unit
FAR_WEIGHT = 0.2  # and one that stands only in the section path or the title
_COMPARED = 3  # units whose coverage decides whether there is an answer
_ROUNDING = 1e-8  # above that of the scores that are compared


@dataclass(frozen=True)
class Extractive:
    """Quotes the units of the evidence that hold the words of the question; empty when too few of
    them do.
    """

    VERSION: ClassVar[str] = "4"
    traits: ClassVar[Traits] = Traits(quick=True)
    max_quotes: int = 3
    # of the question's words by weight: mean of what the best quote with its headings and the best
    # passage hold
    min_coverage: float = 0.42
    keep_ratio: float = 0.7  # a further quote needs this share of the best one's score

    def answer(
        self,
        query: QueryIR,
        evidence: Sequence[Hit],
        *,
        on_text: Callable[[str], None] | None = None,
    ) -> Written:
        """Markdown whose [n] marks point at evidence[n-1]; empty when no unit says enough about the
        question.
        """
        question = question_text(query)
        scored = _scored(question, evidence, self.keep_ratio)
        if not scored or _covered(query, scored, evidence) < self.min_coverage:
            return Written("")
        text = _rendered(self._chosen(scored, evidence), evidence)
        if on_text is not None:
            on_text(text)
        return Written(text)

    def _chosen(self, scored: Sequence[_Scored], evidence: Sequence[Hit]) -> list[_Scored]:
        chosen: list[_Scored] = []
        seen: set[str] = set()
        for item in scored:
            text = " ".join(_quote(item, evidence).split())
            if item.score < self.keep_ratio * scored[0].score or len(chosen) == self.max_quotes:
                break
            if not any(text in other or other in text for other in seen):
                seen.add(text)
                chosen.append(item)
        return chosen


def _covered(query: QueryIR, scored: Sequence[_Scored], evidence: Sequence[Hit]) -> float:
    return (
        max(item.coverage for item in scored[:_COMPARED]) + words_held(query, evidence, evidence)
    ) / 2


# --- scoring ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Scored:
    score: float
    coverage: float
    hit: int  # position in the evidence
    unit: Unit


def _scored(question: str, evidence: Sequence[Hit], keep_ratio: float) -> list[_Scored]:
    """Units that hold a word of the question, or stand right below a heading that does, best first;
    ties in reading order.

    All those are among them that are one of the three best or have that share of the best one's
    score.
    """
    words = question_words(question)
    said = cache(question_terms(question).find_in)
    read = [_quotable(hit.chunk_text) for hit in evidence]
    held = [
        [said(hit.chunk_text[unit.start : unit.end]) for unit in items]
        for hit, items in zip(evidence, read, strict=True)
    ]
    weights = rarity(words, [inside for items in held for inside in items])
    total = sum(weights)
    weight = _weighing(words, weights)
    asks = _Asks.of(question)
    # with the most that the form of the unit can make of its score
    likely: list[tuple[float, _Scored]] = []
    for n, (hit, items) in enumerate(zip(evidence, read, strict=True)):
        titles = said(f"{hit.section_path}\n{hit.doc_title}")
        for i, unit in enumerate(items):
            inside = held[n][i]
            follows = bool(i and items[i - 1].context == unit.context)
            if follows and not inside:
                continue
            # "It ..." speaks of the last one
            before = held[n][i - 1] if follows and unit.kind == "sentence" else frozenset()
            close = inside | before | said(unit.context)
            own, near = weight(inside), weight(close)
            if own == 0 and (follows or near == 0):
                continue
            if own and unit.header is not None:  # what a row says, it says of its columns
                own = weight(inside | said(hit.chunk_text[slice(*unit.header)]))
            all_round = weight(close | titles)
            score = own + CONTEXT_WEIGHT * (near - own) + FAR_WEIGHT * (all_round - near)
            likely.append(
                (score * asks.most / (1 + 0.1 * n), _Scored(score, all_round / total, n, unit))
            )
    scored: list[_Scored] = []
    for most, item in sorted(likely, key=lambda pair: -pair[0]):
        best = heapq.nlargest(_COMPARED, [item.score for item in scored])
        if len(best) == _COMPARED and most < min(best[-1], keep_ratio * best[0]) - _ROUNDING:
            break
        text = evidence[item.hit].chunk_text[item.unit.start : item.unit.end]
        scored.append(
            dataclasses.replace(
                item, score=_of_form(item, text, asks, question_terms(question).terms)
            )
        )
    return sorted(scored, key=lambda item: (-round(item.score, 9), item.hit, item.unit.start))


def _of_form(item: _Scored, text: str, asks: _Asks, asked: frozenset[str]) -> float:
    """The score of a unit's words, times how well its form and its place fit."""
    held = frozenset(terms(text))
    score = item.score * asks.factor(text, item.unit.kind)
    # it only repeats the question
    score *= 0.4 if item.unit.kind in ("sentence", "code") and len(held - asked) < 2 else 1.0
    score /= 1 + 0.1 * item.hit  # the search's own order holds what words cannot tell
    return score / (1 + max(0, len(held) - 40) / 80)  # a very long unit holds many words by chance


def _weighing(words: Sequence[Word], weights: Sequence[float]) -> Callable[[frozenset[str]], float]:
    """What the words that stand among some terms weigh together; many units hold the same ones."""
    pairs = list(zip(words, weights, strict=True))

    @cache
    def weight(known: frozenset[str]) -> float:
        return sum([weight * word.share_in(known) for word, weight in pairs]) if known else 0.0

    return weight


@dataclass(frozen=True, slots=True)
class _Asks:
    """What kind of answer a question wants, as far as its words tell."""

    digit: bool
    meaning: bool
    code: bool
    wide: bool

    @classmethod
    def of(cls, question: str) -> _Asks:
        lower = question.lower()
        digit, meaning, code = (
            bool(pattern.search(lower)) for pattern in (ASKS_NUMBER, ASKS_MEANING, ASKS_CODE)
        )
        return cls(digit, meaning, code, is_wide(question))

    @property
    def most(self) -> float:
        """No less than any `factor`."""
        return (1.2 if self.digit else 1.0) * (1.25 if self.meaning else 1.0)

    def factor(self, text: str, kind: str) -> float:
        """How well the form of a unit fits: a number, a definition, code, the language of the
        question, and no question itself.
        """
        fits = 1.2 if self.digit and DIGIT.search(text) else 1.0
        fits *= 1.25 if self.meaning and MEANS.search(text) else 1.0
        if kind == "code":
            fits *= 0.6 if text[0] in "`~" and not self.code else 1.0
        elif is_wide(text) != self.wide:
            fits *= 0.7
        fits *= 0.6 if POINTS.search(text) else 1.0  # it says where the answer stands
        return fits * (0.5 if text.rstrip().endswith(("?", "？")) else 1.0)


@lru_cache(maxsize=512)
def _quotable(text: str) -> tuple[Unit, ...]:
    """The units of a chunk that may answer: an introduction with the code that it introduces, and
    nothing that a tool replaces.

    Texts that answer one question often answer the next.
    """
    found: list[Unit] = []
    intro: Unit | None = None
    for unit in units(text):
        if _DIRECTIVE.match(text, unit.start):
            continue
        if (
            intro is not None
            and unit.kind == "code"
            and text[unit.start : unit.end].lstrip().startswith(("`", "~"))
        ):
            unit = dataclasses.replace(unit, start=intro.start, context=intro.context)
        intro = unit if unit.kind in ("sentence", "item") and text[unit.end - 1] in ":：" else None
        if intro is None:
            found.append(unit)
    return tuple(found)


# --- writing ------------------------------------------------------------------------------------


def _rendered(chosen: Sequence[_Scored], evidence: Sequence[Hit]) -> str:
    """Quotes as paragraphs, several items as a list, rows as tables under their header; each
    followed by its mark.
    """
    parts: list[str] = []
    tables: dict[tuple[int, tuple[int, int] | None], list[_Scored]] = {}
    for item in chosen:
        key = (item.hit, item.unit.header)
        if item.unit.kind == "row":
            tables.setdefault(key, []).append(item)
            if len(tables[key]) > 1:
                continue
            parts.append("")  # filled below, when all rows of the table are known
        elif item.unit.kind == "code":
            parts.append(f"{_quote(item, evidence)}\n\n[{item.hit + 1}]")
        else:
            bullet = "- " if item.unit.kind == "item" else ""
            parts.append(f"{bullet}{_quote(item, evidence)} [{item.hit + 1}]")
    for rows in tables.values():
        parts[parts.index("")] = _table(sorted(rows, key=lambda item: item.unit.start), evidence)
    return "\n\n".join(parts)


def _table(rows: Sequence[_Scored], evidence: Sequence[Hit]) -> str:
    text, header = evidence[rows[0].hit].chunk_text, rows[0].unit.header
    lines: list[str] = []
    if header:
        head = text[slice(*header)].strip()
        lines = [head, "|" + " --- |" * max(1, len(re.findall(r"(?<!\\)\|", head.strip("|"))) + 1)]
    return (
        "\n".join([*lines, *(_quote(item, evidence) for item in rows)]) + f"\n\n[{rows[0].hit + 1}]"
    )


def _quote(item: _Scored, evidence: Sequence[Hit]) -> str:
    text = evidence[item.hit].chunk_text[item.unit.start : item.unit.end]
    return text if item.unit.kind == "code" else escaped(text)
