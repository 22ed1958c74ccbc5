"""The state of an answer and its confidence: `answered`, `closest` (the best passage may not answer
the question) or `nothing_found`.

The decision is a logistic model over signals of the searches. `bench/train_states.py` writes its
coefficients and thresholds into `states.yaml`, from questions that people asked. Confidence is the
model's probability that one of the first three hits contains the answer. It stays below `answered`
where the question has a number or a name (a version, a year, a person, building A) that none of
these hits contains.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from rag_platform.answering.constants import OWN_WORDS_FOUND, READ_HITS
from rag_platform.answering.groundedness import find_names, missing_names, numbers
from rag_platform.config.yaml_files import packaged_yaml
from rag_platform.ir import Hit, State
from rag_platform.protocols import Vectors
from rag_platform.query.analysis import LETTER
from rag_platform.query.section_numbers import find_asked_releases, is_about_releases
from rag_platform.retrieval.editions import name_products
from rag_platform.retrieval.product_versions import GENERIC
from rag_platform.retrieval.signals import SearchSignals, find_choosing, with_headings
from rag_platform.text.dates import find_dates, write_alike
from rag_platform.text.scripts import has_han, is_wide
from rag_platform.text.stop_words import WEAK_WORDS

_STEP = 0.001  # probabilities have three decimals
_CODE_NAME = re.compile(  # useState, iOS
    rf"(?<![\w/.-])(?:[a-z]+(?:[A-Z]|_[a-z]){LETTER}*|--[a-z](?:{LETTER}|-)+)"
)
_ISO_DATE = re.compile(r"\b(\d{4})[-/.]\d{1,2}[-/.]\d{1,2}\b")
_VERSION_LINE = re.compile(r"(?<![\d.])(\d+)\.x\b")


@dataclass(frozen=True, slots=True)
class Signals:
    """The inputs of the decision, aggregated over the searches; None for a signal that could not be
    measured.
    """

    words_found: float | None = None  # mean over searches: the share of its words in its best hit
    words_absent: float | None = None  # max over searches: the share of its words in no text
    sparse_reach: float | None = None  # max over searches, as are the next two
    sparse_margin: float | None = None
    dense_standing: float | None = None
    numbers_absent: float | None = None  # the share of the question's numbers in none of the hits
    names_absent: float | None = None  # the same share of its names
    quotes_near: float | None = None  # of an answer of quotes, as of `measure_nearness`


class Assessment(NamedTuple):
    """The probability that a passage with the answer is among the first three hits, and its
    signals.
    """

    signals: Signals
    probability: float


@dataclass(frozen=True, slots=True)
class _Model:
    """A logistic model over standardised signals, and the lowest probability of each state."""

    intercept: float
    means: Mapping[str, float]
    deviations: Mapping[str, float]
    weights: Mapping[str, float]
    answered: float
    closest: float


def read_signals(question: str, searches: Sequence[SearchSignals], hits: Sequence[Hit]) -> Signals:
    """The signals of a question; `searches` are those of the question, then of its phrasings.

    Where there are phrasings, the question's own search is left out, since its words may differ
    from those of the documents. Word signals are None where the first hit is in another script;
    numbers are the same in every script.
    """
    if not any(hit.chunk_text for hit in hits):  # scans, with what models read in them
        hits = [replace(hit, chunk_text=hit.picture_text) for hit in hits]
    first = hits[:READ_HITS]
    texts = [write_alike(with_headings(hit), question) for hit in first]
    read = searches[1:] or searches
    wide = bool(hits) and is_wide(hits[0].chunk_text)
    compare = bool(hits) and has_han(question) and has_han(hits[0].chunk_text)
    if chosen := find_choosing(question, first):  # whose path names its product
        texts = [f"{hit.source_uri}\n{text}" for hit, text in zip(first, texts, strict=True)]
        # `urllib3 2.0 改了什么` has no other words than these names
        compare = compare or is_about_releases(question)
    same_script = [item.without(chosen) for item in read if compare or item.wide == wide]
    passages = "\n".join([*texts, *(hit.source_uri for hit in first)])
    # Chinese texts transliterate the names of a Latin question
    names_compare = is_wide(question) or not wide
    return Signals(
        words_found=_aggregate(fmean, [item.words_found(texts) for item in same_script]),
        words_absent=_aggregate(max, [item.words_absent for item in same_script]),
        sparse_reach=_aggregate(max, [item.sparse_reach for item in same_script]),
        sparse_margin=_aggregate(max, [item.sparse_margin for item in same_script]),
        dense_standing=_aggregate(max, [item.dense_standing for item in read]),
        numbers_absent=1.0
        if _lacks_release(question, hits)
        else _share_numbers_absent(question, passages),
        names_absent=_share_names_absent(question, passages) if names_compare else None,
    )


def _lacks_release(question: str, hits: Sequence[Hit]) -> bool:
    """True for a question about a release of a product, of which none of the first hits has the
    version, where a document is named for it or several products are found: Black's `older than
    Click 7.0` is no answer about commander 7.0. The hits of other products must have both in one
    line.
    """
    if not is_about_releases(question):
        return False
    names = [f"{hit.source_uri}\n{hit.doc_title}" for hit in hits]
    several = len({name_products(hit.source_uri, hit.doc_title) for hit in hits} - {()}) > 1
    for written in find_asked_releases(question):
        words = question.partition(written)[0].split()
        if not words or words[-1].lower() in WEAK_WORDS | GENERIC:
            continue
        product = re.compile(rf"(?<![^\W_]){re.escape(words[-1])}(?![^\W\d_])", re.IGNORECASE)
        if not several and not any(map(product.search, names)):
            continue
        version = written.strip("vV")
        for name, hit in zip(names, hits[:READ_HITS], strict=False):
            text = with_headings(hit)  # `urllib3 1.x` in a line of another product has no 1.0.3
            lines = text.replace(".x", "").splitlines()
            places = [f"{name}\n{text}"] if product.search(name) else filter(product.search, lines)
            if not all(_share_numbers_absent(version, it) for it in places):
                break
        else:
            return True
    return False


def _share_names_absent(question: str, text: str) -> float | None:
    """The share of the question's names that the text lacks; None without names."""
    names = find_names(question) | set(_CODE_NAME.findall(question))
    return len(missing_names(names, text)) / len(names) if names else None


def _share_numbers_absent(question: str, text: str) -> float | None:
    """The share of the question's numbers that the text lacks; None without numbers. Only the year
    of a date counts, because texts also write months as words; 3.12.1 and 3.x contain 3.12, 3.0.0
    is 3, and 第十二条 the number 12.
    """
    asked = numbers(_ISO_DATE.sub(r"\1", _add_digits(question)))
    wanted = {number.lstrip("0") for number in asked} - {""}
    if not wanted:
        return None
    present = {
        ".".join(parts[:length]).lstrip("0")
        for parts in (number.split(".") for number in numbers(_add_digits(text)))
        for length in range(2 if "".join(parts[1:]).strip("0") else 1, len(parts) + 1)
    }
    lines = {*_VERSION_LINE.findall(text)}
    absent = [number for number in wanted - present if number.partition(".")[0] not in lines]
    return len(absent) / len(wanted)


def _add_digits(text: str) -> str:
    """The text, followed by its numbered parts in digits."""
    found = find_dates(text) if "第" in text else ()
    return " ".join([text, *(number for _, number in found if number[0] == "第")])


def _aggregate(
    join: Callable[[list[float]], float], values: Sequence[float | None]
) -> float | None:
    known = [value for value in values if value is not None]
    return join(known) if known else None


def probability(signals: Signals, *, phrased: bool, question_only: Signals | None = None) -> float:
    """The probability that a passage with the answer is among the first three hits.

    `phrased` says that search phrasings were searched; `question_only` then has the signals of the
    question without them. A missing signal counts as an average one. The result stays below
    `answered` if a number of the question is absent, or, without phrasings, a name.
    """
    model = _find_model(phrased=phrased, quotes_near=signals.quotes_near)
    total = model.intercept
    for name, value in asdict(signals).items():
        if value is not None and name in model.weights:
            total += model.weights[name] * (value - model.means[name]) / model.deviations[name]
    result = round(1 / (1 + math.exp(-total)), 3)
    if question_only is not None and (question_only.words_found or 0.0) >= OWN_WORDS_FOUND:
        result = max(result, probability(question_only, phrased=False))
    absent = signals.numbers_absent or (signals.names_absent and not phrased)
    return min(result, _below(model)) if absent else result


def measure_nearness(vectors: Vectors, count: int) -> float:
    """How near in meaning the best of `count` sentences is to a question: 0 if the nearest
    unrelated sentence is as near, 1 if both mean the same. The rows of `vectors` are those of the
    question, the sentences, and the unrelated ones, whose similarity depends on the embedder.
    """
    cosines = vectors[1:] @ vectors[0]
    unrelated = float(cosines[count:].max())
    return round((float(cosines[:count].max()) - unrelated) / max(1 - unrelated, _STEP), 4)


@cache
def list_unrelated(*, wide: bool) -> tuple[str, ...]:
    """Everyday sentences that no question is about, in Chinese or English."""
    sentences = packaged_yaml(Path(__file__).with_name("unrelated.yaml"))
    return tuple(sentences["zh" if wide else "en"])


def hedge(confidence: float, *, phrased: bool, quotes_near: float | None = None) -> float:
    """The confidence, capped just below that of `answered`."""
    return min(confidence, _below(_find_model(phrased=phrased, quotes_near=quotes_near)))


def assure(confidence: float, *, phrased: bool, quotes_near: float | None = None) -> float:
    """The confidence, at least that of `answered`."""
    return max(confidence, _find_model(phrased=phrased, quotes_near=quotes_near).answered)


def _below(model: _Model) -> float:
    return round(model.answered - _STEP, 3)


def decide(
    confidence: float,
    *,
    phrased: bool,
    quotes_near: float | None = None,
    least: float | None = None,
    reads: bool = False,
) -> State:
    """The state at a confidence. `least` overrides the threshold of `answered`; by default that is
    the threshold of `closest` for a language model, which `reads` the passages.
    """
    model = _find_model(phrased=phrased, quotes_near=quotes_near)
    threshold = model.closest if reads else model.answered
    if confidence >= (threshold if least is None else least):
        return "answered"
    return "closest" if confidence >= model.closest else "nothing_found"


def decide_unanswered(confidence: float, *, phrased: bool) -> State:
    """The state of a result without an answer: `closest` at most."""
    state = decide(confidence, phrased=phrased)
    return "closest" if state == "answered" else state


def _find_model(*, phrased: bool, quotes_near: float | None) -> _Model:
    name = "searches" if phrased else "question" if quotes_near is None else "quotes"
    return _load_models()[name]


@cache
def _load_models() -> dict[str, _Model]:
    models = packaged_yaml(Path(__file__).with_name("states.yaml"))["models"]
    return {name: _Model(**value) for name, value in models.items()}
