"""Decides the state of an answer, and its confidence: `answered`, `closest` (the best passage may
not answer the question) or `nothing_found`.

The decision is a logistic model over signals of the searches. `bench/train_states.py` writes its
coefficients and thresholds into `states.yaml`, from questions that people asked. Confidence is the
model's probability that one of the first three hits holds the answer. A number or a name in the
question that none of them holds (a version, a year, a person, building A) lets no probability
reach `answered`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from statistics import fmean

from rag_platform.answering.constants import OWN_WORDS_FOUND, READ_HITS
from rag_platform.answering.groundedness import find_names, missing_names, numbers
from rag_platform.config.validation import packaged_yaml
from rag_platform.ir import Hit, State
from rag_platform.retrieval.signals import SearchSignals
from rag_platform.text.scripts import is_wide

_STEP = 0.001  # of probabilities, which are told with three digits
# a date in digits, with its year in front
_DATE = re.compile(r"\b(\d{4})[-/.]\d{1,2}[-/.]\d{1,2}\b")
# numbers that texts write as words
_WRITTEN = {
    "1": re.compile(r"\bone\b|一"),
    "2": re.compile(r"\btwo\b|[二两兩]"),
    "3": re.compile(r"\bthree\b|三"),
    "4": re.compile(r"\bfour\b|四"),
    "5": re.compile(r"\bfive\b|五"),
    "6": re.compile(r"\bsix\b|六"),
    "7": re.compile(r"\bseven\b|七"),
    "8": re.compile(r"\beight\b|八"),
    "9": re.compile(r"\bnine\b|九"),
    "10": re.compile(r"\bten\b|十"),
}


@dataclass(frozen=True, slots=True)
class Signals:
    """What the decision goes by; None where there is nothing to tell a signal by."""

    words_found: float | None = None  # the mean share of the words of each search in its best hit
    words_absent: float | None = None  # the most of the words of a search that stand nowhere
    sparse_reach: float | None = None  # the best of the searches, as the next two
    sparse_margin: float | None = None
    dense_standing: float | None = None
    numbers_absent: float | None = None  # the share of the question's numbers that no hit holds
    names_absent: float | None = None  # the same of its names


@dataclass(frozen=True, slots=True)
class _Model:
    """A logistic model over standardised signals, and the probabilities at which states begin."""

    intercept: float
    means: Mapping[str, float]
    deviations: Mapping[str, float]
    weights: Mapping[str, float]
    answered: float
    closest: float


def read_signals(question: str, searches: Sequence[SearchSignals], hits: Sequence[Hit]) -> Signals:
    """The signals of a question with its search phrasings. With phrasings those are read alone: the
    question's own words may be other ones than the documents'. Words tell nothing where the first
    hit is in another script; numbers are the same in all.
    """
    first = hits[:READ_HITS]
    texts = [f"{hit.doc_title}\n{hit.section_path}\n{hit.chunk_text}" for hit in first]
    read = searches[1:] or searches
    wide = bool(hits) and is_wide(hits[0].chunk_text)
    same = [item for item in read if item.wide == wide]
    passages = "\n".join([*texts, *(hit.source_uri for hit in first)])
    return Signals(
        words_found=_over(fmean, [item.words_found(texts) for item in same]),
        words_absent=_over(max, [item.words_absent for item in same]),
        sparse_reach=_over(max, [item.sparse_reach for item in same]),
        sparse_margin=_over(max, [item.sparse_margin for item in same]),
        dense_standing=_over(max, [item.dense_standing for item in read]),
        numbers_absent=_numbers_absent(question, passages),
        # in another script names are written otherwise
        names_absent=_names_absent(question, passages) if is_wide(question) or not wide else None,
    )


def _names_absent(question: str, text: str) -> float | None:
    """The share of the question's names that do not stand in the text, None without names."""
    named = find_names(question)
    return len(missing_names(named, text)) / len(named) if named else None


def _numbers_absent(question: str, text: str) -> float | None:
    """The share of the question's numbers that do not stand in the text; None without numbers. Of
    a date the year counts, because months are written as words too; 3.12 stands in 3.12.1.
    """
    asked = {number.lstrip("0") for number in numbers(_DATE.sub(r"\1", question))} - {""}
    if not asked:
        return None
    words = text.lower()
    held = {number for number in asked & set(_WRITTEN) if _WRITTEN[number].search(words)}
    held |= {
        ".".join(parts[:length]).lstrip("0")
        for parts in (number.split(".") for number in numbers(text))
        for length in range(min(2, len(parts)), len(parts) + 1)
    }
    return len(asked - held) / len(asked)


def _over(join: Callable[[list[float]], float], values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return join(known) if known else None


def probability(signals: Signals, *, phrased: bool, alone: Signals | None = None) -> float:
    """The probability that a passage with the answer is among the first three hits; `phrased` where
    search phrasings were searched, `alone` without those. A signal that is not there counts as the
    usual one. Below `answered` if a number is absent, or, unless it is phrased, a name.
    """
    model = _load_models()["searches" if phrased else "question"]
    total = model.intercept
    for name, value in asdict(signals).items():
        if value is not None and name in model.weights:
            total += model.weights[name] * (value - model.means[name]) / model.deviations[name]
    sure = round(1 / (1 + math.exp(-total)), 3)
    if alone is not None and (alone.words_found or 0.0) >= OWN_WORDS_FOUND:
        sure = max(sure, probability(alone, phrased=False))
    absent = signals.numbers_absent or (signals.names_absent and not phrased)
    return hedge(sure, phrased=phrased) if absent else sure


def hedge(confidence: float, *, phrased: bool) -> float:
    """A confidence below that of `answered`."""
    model = _load_models()["searches" if phrased else "question"]
    return min(confidence, round(model.answered - _STEP, 3))


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
