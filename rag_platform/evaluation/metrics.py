"""Ranking metrics per question, their mean, and its confidence interval.

As in trec_eval: a document is relevant from grade 1 on, the gain of nDCG is the grade, and its
discount the binary logarithm of the rank plus one (Järvelin and Kekäläinen, TOIS 2002).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

Grades = Sequence[int]  # of results, best first

_RESAMPLES = 2_000
_SEED = 7
_MAX_DRAWS = 1 << 17  # held at a time: one megabyte


def _hit_rate(found: Grades, relevant: Grades, k: int) -> float:
    return float(any(found[:k]))


def _recall(found: Grades, relevant: Grades, k: int) -> float:
    return sum(grade > 0 for grade in found[:k]) / len(relevant)


def _reciprocal_rank(found: Grades, relevant: Grades, k: int) -> float:
    return next((1 / place for place, grade in enumerate(found[:k], 1) if grade), 0.0)


def _ndcg(found: Grades, relevant: Grades, k: int) -> float:
    def gain(grades: Grades) -> float:
        return sum(grade / math.log2(place + 1) for place, grade in enumerate(grades[:k], 1))

    return gain(found) / gain(sorted(relevant, reverse=True))


# arguments: grades of the results, the question's grades above 0, the cutoff
_MEASURES: Mapping[str, Callable[[Grades, Grades, int], float]] = {
    "hit_rate": _hit_rate,
    "recall": _recall,
    "mrr": _reciprocal_rank,
    "ndcg": _ndcg,
}


def measure_ranking(
    ranking: Iterable[str], grades: Mapping[str, int], k_values: Sequence[int]
) -> dict[str, float]:
    """Every measure of one question at each cutoff, such as `ndcg@10`, by the ids of its results,
    best first; all 0 without results or relevant ids. A repeated id counts at its first rank.
    """
    found = [max(0, grades.get(item, 0)) for item in dict.fromkeys(ranking)]
    relevant = [grade for grade in grades.values() if grade > 0]
    return {
        f"{name}@{k}": measure(found, relevant, k) if relevant else 0.0
        for name, measure in _MEASURES.items()
        for k in k_values
    }


def sort_metrics(names: Iterable[str]) -> list[str]:
    """The names of metrics in alphabetical order, then by cutoff."""
    return sorted(names, key=lambda name: (name.partition("@")[0], cutoff_of(name)))


def cutoff_of(name: str) -> int:
    """The k of a metric `name@k`; 0 for others."""
    cut = name.partition("@")[2]
    return int(cut) if cut.isdecimal() else 0


def mean(values: Mapping[str, float]) -> float:
    """The mean over the questions, 0 if there are none."""
    return float(np.mean(list(values.values()))) if values else 0.0


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """The median and the 95th percentile; empty without values."""
    if not len(values):
        return {}
    middle, high = np.percentile(values, [50, 95])
    return {"p50": round(float(middle), 3), "p95": round(float(high), 3)}


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with the bounds of its 95 % interval."""

    value: float
    low: float
    high: float

    @property
    def excludes_zero(self) -> bool:
        """True for a significant difference."""
        return self.low * self.high > 0


def bootstrap(values: Iterable[float]) -> Interval:
    """The mean with its 95 % percentile bootstrap interval over the questions (Efron & Tibshirani
    1993); of differences between two systems, a paired comparison (Sakai, SIGIR 2006).
    """
    sample = np.fromiter(values, dtype=float)
    if not len(sample):
        return Interval(0.0, 0.0, 0.0)
    generator = np.random.default_rng(_SEED)
    distinct, counts = np.unique(sample, return_counts=True)
    if 2 * len(distinct) < len(sample):  # equivalent, and far cheaper: draw counts per value
        drawn = generator.multinomial(len(sample), counts / len(sample), size=_RESAMPLES)
        means = drawn @ distinct / len(sample)
    else:
        means = _resampled_means(sample, generator)
    low, high = np.percentile(means, [2.5, 97.5])
    return Interval(float(sample.mean()), float(low), float(high))


def mean_interval(values: Iterable[float]) -> Interval:
    """The mean with its 95 % interval: Wilson's (1927) if each value is 0 or 1, else `bootstrap`'s,
    which for five hits of five questions would exclude any miss.
    """
    sample = np.fromiter(values, dtype=float)
    if not len(sample) or not np.isin(sample, (0, 1)).all():
        return bootstrap(sample)
    count, share, z = len(sample), float(sample.mean()), NormalDist().inv_cdf(0.975)
    centre = share + z * z / (2 * count)
    half = z * math.sqrt(share * (1 - share) / count + (z / (2 * count)) ** 2)
    low, high = ((centre + side * half) / (1 + z * z / count) for side in (-1, 1))
    return Interval(share, max(low, 0.0), min(high, 1.0))


def bootstrap_difference(control: Sequence[float], treatment: Sequence[float]) -> Interval:
    """The difference of the means of two independent samples, treatment minus control, with its
    95 % percentile bootstrap interval; neither sample is empty.
    """
    samples = [np.asarray(values, dtype=float) for values in (control, treatment)]
    generator = np.random.default_rng(_SEED)
    means = [_resampled_means(sample, generator) for sample in samples]
    low, high = np.percentile(means[1] - means[0], [2.5, 97.5])
    return Interval(float(samples[1].mean() - samples[0].mean()), float(low), float(high))


def _resampled_means(sample: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """The means of the bootstrap samples, drawn at most _MAX_DRAWS values at a time."""
    rows = max(1, _MAX_DRAWS // len(sample))
    counts = [min(rows, _RESAMPLES - done) for done in range(0, _RESAMPLES, rows)]
    return np.concatenate(
        [
            sample[generator.integers(0, len(sample), (count, len(sample)))].mean(axis=1)
            for count in counts
        ]
    )
