"""Measures of a ranking: values per question, their mean, and its confidence interval.

The measures are those of ir-measures (MacAvaney et al., ECIR 2022) under its canonical names:
`nDCG@10`, `RR@10`, `R@50`, `Success@10`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rag_platform.errors import ConfigError, InputError

Run = Mapping[str, Sequence[str]]  # question to the ids of what was found, best first
Values = dict[str, float]  # question to the value of one measure

# Other names in use, and what ir-measures calls them.
NAMES = {"HitRate": "Success", "MRR": "RR", "Recall": "R", "nDCG": "nDCG"}


def per_query(
    run: Run, qrels: Mapping[str, Mapping[str, int]], measures: Sequence[str]
) -> dict[str, Values]:
    """Measure to the value of every question that has qrels; a question without results counts 0.

    An id that is twice in a ranking counts at its first place. Raises InputError for a
    measure that does not exist.
    """
    try:
        import ir_measures
    except ImportError as error:
        raise ConfigError(
            "measuring retrieval needs the extra `metrics`: pip install 'rag-platform[metrics]'"
        ) from error

    parsed = {}
    for name in measures:
        head, at, cut = name.partition("@")
        try:
            parsed[ir_measures.parse_measure(f"{NAMES.get(head, head)}{at}{cut}")] = name
        except (NameError, ValueError, SyntaxError) as error:
            raise InputError(
                f"unknown measure {name!r}; known for example nDCG@10, MRR@10, Recall@50,"
                " HitRate@10"
            ) from error
    grades = [
        ir_measures.Qrel(query, doc, grade)
        for query, found in qrels.items()
        for doc, grade in found.items()
    ]
    scored = [
        # places, not scores: equal scores would be ordered by the library
        ir_measures.ScoredDoc(query, doc, float(-place))
        for query in qrels
        for place, doc in enumerate(dict.fromkeys(run.get(query, ())))
    ]
    values: dict[str, Values] = {name: dict.fromkeys(qrels, 0.0) for name in measures}
    for metric in ir_measures.iter_calc(list(parsed), grades, scored):
        values[parsed[metric.measure]][metric.query_id] = float(metric.value)
    return values


def mean(values: Mapping[str, float]) -> float:
    """The mean over the questions, 0 without any."""
    return float(np.mean(list(values.values()))) if values else 0.0


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """The median and the 95th percentile, nothing of nothing."""
    if not len(values):
        return {}
    middle, high = np.percentile(values, [50, 95])
    return {"p50": round(float(middle), 3), "p95": round(float(high), 3)}


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with the bounds between which 95 of 100 resamplings lie."""

    value: float
    low: float
    high: float


def bootstrap(values: Iterable[float], *, resamples: int = 2_000, seed: int = 7) -> Interval:
    """The mean with its 95 % percentile bootstrap interval over the questions (Efron & Tibshirani
    1993).
    """
    return _interval(np.fromiter(values, dtype=float), resamples, seed)


def paired_bootstrap(
    values: Mapping[str, float],
    baseline: Mapping[str, float],
    *,
    resamples: int = 2_000,
    seed: int = 7,
) -> Interval:
    """The mean difference to the baseline over the same questions, with its 95 % interval (Sakai,
    SIGIR 2006).

    Raises InputError when the two were measured on other questions.
    """
    if values.keys() != baseline.keys():
        raise InputError(
            f"a paired comparison needs the same questions; {len(values.keys() ^ baseline.keys())}"
            " stand on one side alone"
        )
    return _interval(
        np.array([values[query] - baseline[query] for query in values], dtype=float),
        resamples,
        seed,
    )


def bootstrap_difference(
    control: Sequence[float], treatment: Sequence[float], *, resamples: int = 2_000, seed: int = 7
) -> Interval:
    """The mean of the treatment minus that of the control, two samples of different questions, with
    its 95 % percentile bootstrap interval. Raises InputError for an empty sample.
    """
    samples = [np.asarray(values, dtype=float) for values in (control, treatment)]
    if not all(len(sample) for sample in samples):
        raise InputError("a difference of means needs questions on both sides")
    chance = np.random.default_rng(seed)
    means = [
        np.array(
            [sample[chance.integers(0, len(sample), len(sample))].mean() for _ in range(resamples)]
        )
        for sample in samples
    ]
    low, high = np.percentile(means[1] - means[0], [2.5, 97.5])
    return Interval(float(samples[1].mean() - samples[0].mean()), float(low), float(high))


def _interval(sample: np.ndarray, resamples: int, seed: int) -> Interval:
    if not len(sample):
        return Interval(0.0, 0.0, 0.0)
    chance = np.random.default_rng(seed)
    distinct, counts = np.unique(sample, return_counts=True)
    if 2 * len(distinct) < len(sample):  # the same draws, counted by value, which costs far less
        drawn = chance.multinomial(len(sample), counts / len(sample), size=resamples)
        means = drawn @ distinct / len(sample)
    else:
        means = np.array(
            [sample[chance.integers(0, len(sample), len(sample))].mean() for _ in range(resamples)]
        )
    low, high = np.percentile(means, [2.5, 97.5])
    return Interval(float(sample.mean()), float(low), float(high))
