"""Decides the state of an answer, and its confidence: `answered`, `closest` (the best passage may
not answer the question) or `nothing_found`.

The decision is a logistic model over signals of the searches. `bench/train_states.py` writes its
coefficients and thresholds into `states.yaml`, from questions that people asked. Confidence is the
model's probability that one of the first three hits holds the answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from statistics import fmean

from rag_platform.answering.constants import READ_HITS
from rag_platform.config.validation import packaged_yaml
from rag_platform.ir import Hit, State
from rag_platform.retrieval.signals import SearchSignals
from rag_platform.text.scripts import is_wide


@dataclass(frozen=True, slots=True)
class Signals:
    """What the decision goes by; None where there is nothing to tell a signal by."""

    words_found: float | None = None  # the mean share of the words of each search in its best hit
    words_absent: float | None = None  # the most of the words of a search that stand nowhere
    sparse_reach: float | None = None  # the best of the searches, as the next two
    sparse_margin: float | None = None
    dense_standing: float | None = None


@dataclass(frozen=True, slots=True)
class _Model:
    """A logistic model over standardised signals, and the probabilities at which states begin."""

    intercept: float
    means: Mapping[str, float]
    deviations: Mapping[str, float]
    weights: Mapping[str, float]
    answered: float
    closest: float


def read_signals(searches: Sequence[SearchSignals], hits: Sequence[Hit]) -> Signals:
    """The signals of a question with its search phrasings. With phrasings those are read alone: the
    question's own words may be other ones than the documents'. Words tell nothing where the first
    hit is in another script.
    """
    texts = [f"{hit.doc_title}\n{hit.section_path}\n{hit.chunk_text}" for hit in hits[:READ_HITS]]
    read = searches[1:] or searches
    wide = bool(hits) and is_wide(hits[0].chunk_text)
    same = [item for item in read if item.wide == wide]
    return Signals(
        words_found=_over(fmean, [item.words_found(texts) for item in same]),
        words_absent=_over(max, [item.words_absent for item in same]),
        sparse_reach=_over(max, [item.sparse_reach for item in same]),
        sparse_margin=_over(max, [item.sparse_margin for item in same]),
        dense_standing=_over(max, [item.dense_standing for item in read]),
    )


def _over(join: Callable[[list[float]], float], values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return join(known) if known else None


def probability(signals: Signals, *, phrased: bool) -> float:
    """The probability that a passage with the answer is among the first three hits; `phrased` where
    search phrasings were searched. A signal that is not there counts as the usual one.
    """
    model = _load_models()["searches" if phrased else "question"]
    total = model.intercept
    for name, value in asdict(signals).items():
        if value is not None and name in model.weights:
            total += model.weights[name] * (value - model.means[name]) / model.deviations[name]
    return round(1 / (1 + math.exp(-total)), 3)


def decide(
    confidence: float, *, phrased: bool, least: float | None = None, reads: bool = False
) -> State:
    """The state at a confidence. `least` stands in for the threshold of `answered`; what a language
    model answers that `reads` the passages needs no more than `closest` does.
    """
    model = _load_models()["searches" if phrased else "question"]
    usual = model.closest if reads else model.answered
    if confidence >= (usual if least is None else least):
        return "answered"
    return "closest" if confidence >= model.closest else "nothing_found"


@cache
def _load_models() -> dict[str, _Model]:
    models = packaged_yaml(Path(__file__).with_name("states.yaml"))["models"]
    return {name: _Model(**value) for name, value in models.items()}
