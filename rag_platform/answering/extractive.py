"""Extractive answers: verbatim sentences, list items and table rows of the evidence that best match
the question.

Words are compared as the word index reads them, so Chinese is segmented and identifiers count whole
and in parts. A word weighs the more the fewer units of the evidence contain it; identifiers weigh
most, function words nothing. Every quote is a slice of its chunk, followed by its mark [n].
"""

from __future__ import annotations

import dataclasses
import heapq
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

from rag_platform.answering import constants
from rag_platform.answering.citations import escape_marks
from rag_platform.answering.quotes import Quotable, Span, find_quotable, find_spans
from rag_platform.ir import Hit, QueryIR
from rag_platform.protocols import Written
from rag_platform.retrieval.confidence import question_text, words_held
from rag_platform.text.passages import Unit
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

Nearness = Callable[[Sequence[str]], Sequence[float]]
_ROUNDING = 1e-8  # more than comparing two scores can be off


@dataclass(frozen=True)
class Extractive:
    """Quotes the units of the evidence that contain most words of the question and of its search
    phrasings; empty where none contains any.
    """

    VERSION: ClassVar[str] = "6"
    traits: ClassVar[Traits] = Traits(quick=True)
    max_quotes: int = constants.MAX_QUOTES
    min_coverage: float = 0.0  # share of the words below which nothing is quoted
    keep_ratio: float = constants.KEEP_RATIO
    # how near the meaning of texts is to the question or a phrasing, a cosine; None: words alone
    nearness: Nearness | None = None

    def answer(
        self,
        query: QueryIR,
        evidence: Sequence[Hit],
        *,
        on_text: Callable[[str], None] | None = None,
    ) -> Written:
        """Markdown whose [n] marks point at evidence[n-1]; empty where no unit says anything about
        the question.
        """
        asks = _Asks.of(question_text(query))
        scored = _score_units(_asked(query), evidence, self.keep_ratio, asks)
        foreign = all(is_wide(hit.chunk_text) != asks.wide for hit in evidence)
        if not scored and (self.nearness is None or not foreign):  # no word of it stands anywhere
            return Written("")
        best = max((item.coverage for item in scored[: constants.COMPARED_UNITS]), default=0.0)
        if (best + words_held(query, evidence, evidence)) / 2 < self.min_coverage:
            return Written("")
        if self.nearness is not None:
            scored = _weigh_meaning(scored, evidence, self.nearness)
        text = _render_quotes(self._choose(scored, evidence), evidence)
        if on_text is not None:
            on_text(text)
        return Written(text)

    def _choose(self, scored: Sequence[_Scored], evidence: Sequence[Hit]) -> list[_Scored]:
        """The best units with what belongs to them, none of whose texts contains another's."""
        chosen: list[_Scored] = []
        texts: set[str] = set()
        size = 0
        for item in scored:
            if item.score < self.keep_ratio * scored[0].score or len(chosen) == self.max_quotes:
                break
            source = evidence[item.hit].chunk_text
            found = find_quotable(source)
            complete = item.coverage >= constants.COMPLETE_COVERAGE
            spans = find_spans(source, found, found.index(item.quotable), complete=complete)
            item = dataclasses.replace(item, spans=tuple(spans))
            text = " ".join(_quote(item, evidence).split())
            if any(text in other or other in text for other in texts) or any(
                other.hit == item.hit and _overlap(other.spans, item.spans) for other in chosen
            ):
                continue
            if chosen and size + len(text) > constants.ANSWER_CHARS:
                break
            size += len(text)
            texts.add(text)
            chosen.append(item)
        return chosen


def _overlap(some: Sequence[Span], others: Sequence[Span]) -> bool:
    return any(a < d and c < b for a, b in some for c, d in others)


def find_sentence(query: QueryIR, hit: Hit) -> str:
    """The unit of a passage that is nearest to the question; empty where none has a word of it."""
    scored = _score_units(_asked(query), [hit], 1.0, _Asks.of(question_text(query)))
    best = next((item.unit for item in scored if item.unit.kind in ("sentence", "item")), None)
    return hit.chunk_text[best.start : best.end] if best is not None else ""


def _asked(query: QueryIR) -> str:
    """The words that are looked for: of the question, and of its search phrasings."""
    return " ".join((question_text(query), *query.rewrites))


# --- scoring ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Scored:
    score: float
    coverage: float
    hit: int  # position in the evidence
    quotable: Quotable
    spans: tuple[Span, ...] = ()  # of the quote

    @property
    def unit(self) -> Unit:
        """What is quoted."""
        return self.quotable.unit


def _score_units(
    question: str, evidence: Sequence[Hit], keep_ratio: float, asks: _Asks
) -> list[_Scored]:
    """Units that contain a word of the question, or follow a heading that does, best first; ties in
    reading order.

    The three best and all with at least `keep_ratio` of the best score are among them; others may
    be missing.
    """
    words = question_words(question)
    said = cache(question_terms(question).find_in)
    read = [find_quotable(hit.chunk_text) for hit in evidence]
    held = [
        [said(hit.chunk_text[item.start : item.end]) for item in items]
        for hit, items in zip(evidence, read, strict=True)
    ]
    weights = rarity(words, [inside for items in held for inside in items])
    total = sum(weights)
    weight = _weighing(words, weights)
    # with the most that the form of the unit can make of its score
    likely: list[tuple[float, _Scored]] = []
    for n, (hit, items) in enumerate(zip(evidence, read, strict=True)):
        titles = said(f"{hit.section_path}\n{hit.doc_title}")
        for i, item in enumerate(items):
            unit = item.unit
            inside = held[n][i]
            follows = bool(i and items[i - 1].unit.context == unit.context)
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
            score = own + constants.CONTEXT_WEIGHT * (near - own)
            score += constants.FAR_WEIGHT * (all_round - near)
            most = score * asks.max_factor / (1 + constants.PLACE_PENALTY * n)
            likely.append((most, _Scored(score, all_round / total, n, item)))
    scored: list[_Scored] = []
    for most, found in sorted(likely, key=lambda pair: -pair[0]):
        best = heapq.nlargest(constants.COMPARED_UNITS, [item.score for item in scored])
        if (
            len(best) == constants.COMPARED_UNITS
            and most < min(best[-1], keep_ratio * best[0]) - _ROUNDING
        ):
            break
        text = evidence[found.hit].chunk_text[found.quotable.start : found.quotable.end]
        score = _weigh_form(found, text, asks, question_terms(question).terms)
        scored.append(dataclasses.replace(found, score=score))
    return sorted(scored, key=lambda item: (-round(item.score, 9), item.hit, item.quotable.start))


def _weigh_meaning(
    scored: Sequence[_Scored], evidence: Sequence[Hit], nearness: Nearness
) -> list[_Scored]:
    """The best units by their words, then those of the first hits, weighed by their meaning as
    well.
    """
    pool = list(scored[: constants.COMPARED_BY_MEANING])
    held = {(item.hit, item.quotable.start) for item in pool}
    for n, hit in enumerate(evidence):
        for quotable in find_quotable(hit.chunk_text):
            if len(pool) >= constants.COMPARED_BY_MEANING:
                break
            if (n, quotable.start) not in held:
                pool.append(_Scored(0.0, 0.0, n, quotable))
    texts = [
        evidence[item.hit].chunk_text[item.quotable.start : item.quotable.end][
            : constants.COMPARED_CHARS
        ]
        for item in pool
    ]
    top = max((item.score for item in pool), default=0.0) or 1.0
    weighed = [
        dataclasses.replace(
            item,
            score=(1 - constants.MEANING_WEIGHT) * item.score / top
            + constants.MEANING_WEIGHT * near / (1 + constants.PLACE_PENALTY * item.hit),
        )
        for item, near in zip(pool, nearness(texts), strict=True)
    ]
    return sorted(weighed, key=lambda item: (-item.score, item.hit, item.quotable.start))


def _weigh_form(item: _Scored, text: str, asks: _Asks, asked: frozenset[str]) -> float:
    """The score of a unit's words, weighed by its form, its place and its length."""
    held = frozenset(terms(text))
    score = item.score * asks.factor(text, item.unit.kind)
    if item.unit.kind in ("sentence", "code") and len(held - asked) < constants.MIN_NEW_TERMS:
        score *= constants.REPETITION_FACTOR
    # the search's own order knows what words cannot tell
    score /= 1 + constants.PLACE_PENALTY * item.hit
    return score / (1 + max(0, len(held) - constants.LONG_UNIT_TERMS) / constants.LONG_UNIT_SCALE)


def _weighing(words: Sequence[Word], weights: Sequence[float]) -> Callable[[frozenset[str]], float]:
    """A cached function that gives the weight of the words found among some terms."""
    pairs = list(zip(words, weights, strict=True))

    @cache
    def weight(known: frozenset[str]) -> float:
        return sum([weight * word.share_in(known) for word, weight in pairs]) if known else 0.0

    return weight


@dataclass(frozen=True, slots=True)
class _Asks:
    """What kind of answer a question wants, judged by its words."""

    digit: bool
    meaning: bool
    code: bool
    wide: bool

    @classmethod
    def of(cls, question: str) -> _Asks:
        lower = question.lower()
        return cls(
            digit=ASKS_NUMBER.search(lower) is not None,
            meaning=ASKS_MEANING.search(lower) is not None,
            code=ASKS_CODE.search(lower) is not None,
            wide=is_wide(question),
        )

    @property
    def max_factor(self) -> float:
        """The upper bound of `factor`."""
        factor = constants.NUMBER_FACTOR if self.digit else 1.0
        return factor * (constants.MEANING_FACTOR if self.meaning else 1.0)

    def factor(self, text: str, kind: str) -> float:
        """How well the form of a unit fits: a number, a definition, code, the language of the
        question, and no question itself.
        """
        fits = constants.NUMBER_FACTOR if self.digit and DIGIT.search(text) else 1.0
        if self.meaning and MEANS.search(text):
            fits *= constants.MEANING_FACTOR
        if kind == "code":
            if text[0] in "`~" and not self.code:
                fits *= constants.UNASKED_CODE_FACTOR
        elif is_wide(text) != self.wide:
            fits *= constants.OTHER_LANGUAGE_FACTOR
        if POINTS.search(text):
            fits *= constants.POINTER_FACTOR
        if text.rstrip().endswith(("?", "？")):
            fits *= constants.QUESTION_FACTOR
        return fits


# --- writing ------------------------------------------------------------------------------------


def _render_quotes(chosen: Sequence[_Scored], evidence: Sequence[Hit]) -> str:
    """Quotes as paragraphs, list items as items, the rows of a table as one table under its header;
    each followed by its mark.
    """
    groups: dict[object, list[_Scored]] = {}
    for item in chosen:
        row = item.unit.kind == "row"
        groups.setdefault((item.hit, item.unit.header) if row else item, []).append(item)
    parts: list[str] = []
    for items in groups.values():
        first, mark = items[0], f"[{items[0].hit + 1}]"
        if first.unit.kind == "row":
            rows = sorted(items, key=lambda item: item.unit.start)
            parts.append(f"{_render_table(rows, evidence)}\n\n{mark}")
        else:
            quote = _quote(first, evidence)
            alone = first.unit.kind == "item" and first.spans[0][0] == first.unit.start
            ends_in_prose = (
                first.unit.kind != "code"
                and "\n\n" not in quote
                and not quote.rstrip().endswith(("```", "~~~"))
            )
            gap = " " if ends_in_prose else "\n\n"
            parts.append(f"{'- ' if alone else ''}{quote}{gap}{mark}")
    return "\n\n".join(parts)


def _render_table(rows: Sequence[_Scored], evidence: Sequence[Hit]) -> str:
    lines = [_quote(item, evidence) for item in rows]
    if header := rows[0].unit.header:
        head = evidence[rows[0].hit].chunk_text[slice(*header)].strip()
        columns = len(re.findall(r"(?<!\\)\|", head.strip("|"))) + 1
        lines = [head, "|" + " --- |" * columns, *lines]
    return "\n".join(lines)


def _quote(item: _Scored, evidence: Sequence[Hit]) -> str:
    text = evidence[item.hit].chunk_text
    return escape_marks("\n\n".join(text[start:end] for start, end in item.spans))
