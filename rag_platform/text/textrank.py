"""PageRank over words and sentences (TextRank, Mihalcea and Tarau 2004), and the most central
sentences of a document.

The similarity of two sentences is |common terms| / (log |terms of one| + log |terms of the other|),
over terms of the word index. The teleport vector favours sentences near the beginning of the
document and of their section.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from rag_platform.text.passages import Unit, units
from rag_platform.text.terms import meaning

if TYPE_CHECKING:  # slow to import; imported by the functions that need it
    import numpy as np
    from numpy.typing import NDArray

DAMPING = 0.85  # Brin and Page 1998
MAX_SENTENCES = 800  # the graph grows with the square of it
_MIN_TERMS, _MAX_CHARS = 4, 500
_ALIKE = 0.5  # share of common terms above which two sentences say the same
_NO_PROSE = re.compile(r"\s*(?::::|\{[*!%#]|///|<|!\[|\[[^\]]*\]\([^)]*\)\W*$)")


def pagerank(
    moves: NDArray[np.floating], jump: NDArray[np.floating], *, rounds: int, tolerance: float = 0.0
) -> NDArray[np.float64]:
    """The rank [n] of each node: (1 - DAMPING) * jump + DAMPING * moves @ rank, starting at `jump`.

    `moves[i, j]` is the share of node j's rank that goes to node i. Ends after `rounds`, or once no
    rank changes by `tolerance`.
    """
    import numpy as np

    rank = np.asarray(jump, dtype=np.float64)
    damped, rest = DAMPING * moves, (1.0 - DAMPING) * rank
    for _ in range(rounds):
        last, rank = rank, rest + damped @ rank
        if np.abs(rank - last).max() < tolerance:
            break
    return rank


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence or list item of a section, verbatim, with its rank in the document."""

    text: str
    section: int  # position of its section in the document
    place: int  # position among the sentences of the document
    rank: float = 0.0
    kind: str = "sentence"  # or item
    headings: tuple[tuple[int, str], ...] = ()  # above it in the section, with their levels


class _Found(NamedTuple):
    section: int
    within: int  # position in its section
    text: str
    terms: set[str]
    unit: Unit


def rank_sentences(sections: Sequence[str]) -> list[Sentence]:
    """The sentences of the sections in reading order; ranks sum to 1. Empty without prose."""
    import numpy as np

    found: list[_Found] = []
    for section, text in enumerate(sections):
        within = 0
        for unit in units(text):
            sentence = text[unit.start : unit.end]
            if unit.kind not in ("sentence", "item") or not _is_prose(sentence):
                continue
            if len(have := meaning(sentence)) >= _MIN_TERMS:
                found.append(_Found(section, within, sentence, have, unit))
                within += 1
    # keep the beginnings of all sections rather than the beginning of the document
    if len(found) > MAX_SENTENCES:
        kept = sorted(range(len(found)), key=lambda i: (found[i].within, i))[:MAX_SENTENCES]
        found = [found[i] for i in sorted(kept)]
    if not found:
        return []
    column = {term: n for n, term in enumerate(sorted({it for row in found for it in row.terms}))}
    holds = np.zeros((len(found), len(column)), dtype=np.float32)
    for number, row in enumerate(found):
        holds[number, [column[term] for term in row.terms]] = 1.0
    logs = np.log(holds.sum(axis=1))
    alike = (holds @ holds.T) / (logs[:, None] + logs[None, :])
    np.fill_diagonal(alike, 0.0)
    jump = np.array([1 / (1 + 0.2 * row.within) / (1 + 0.05 * row.section) for row in found])
    jump /= jump.sum()
    total = alike.sum(axis=1, keepdims=True)
    move = np.where(total > 0, alike / np.where(total > 0, total, 1.0), jump[None, :])
    rank = pagerank(move.T, jump, rounds=60)
    return [
        Sentence(row.text, row.section, n, float(rank[n]), row.unit.kind, row.unit.headings)
        for n, row in enumerate(found)
    ]


def choose_sentences(sentences: Sequence[Sentence], count: int) -> list[Sentence]:
    """The `count` best sentences in reading order, without those that repeat a better one. List
    items are only chosen where there are not enough sentences.
    """
    best: list[Sentence] = []
    kept: list[set[str]] = []
    for sentence in sorted(sentences, key=lambda it: (it.kind == "item", -it.rank, it.place)):
        if len(best) == count:
            break
        have = meaning(sentence.text)
        if all(len(have & other) / max(1, min(len(have), len(other))) <= _ALIKE for other in kept):
            best.append(sentence)
            kept.append(have)
    return sorted(best, key=lambda item: item.place)


def count_wanted(sentences: Sequence[Sentence], least: int, most: int) -> int:
    """The number of sentences of a summary: the square root of all, within the bounds."""
    return max(least, min(most, round(math.sqrt(len(sentences)))))


def _is_prose(text: str) -> bool:
    return (
        len(text) <= _MAX_CHARS
        and not _NO_PROSE.match(text)
        and not text.rstrip().endswith((":", "：", "?", "？"))
    )
