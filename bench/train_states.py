r"""Fits what `rag_platform/answering/states.py` decides by, and writes its coefficients.

    python bench/answers.py --half tuned --keep HOME --results fast.jsonl
    python bench/answers.py --half tuned --keep HOME --strategy default --results default.jsonl
    python bench/small_answers.py --half tuned --results small.jsonl
    python bench/train_states.py --question fast.jsonl default.jsonl small.jsonl

    python bench/answers.py --half tuned --keep HOME --results searches.jsonl --searches \
        --corpus fastapi-en --corpus fastapi-zh --corpus wsl
    python bench/small_answers.py --half tuned --results small_searches.jsonl --searches
    python bench/train_states.py --searches searches.jsonl small_searches.jsonl

    python bench/small_answers.py --half tuned --strategy default --results small_default.jsonl
    python bench/train_states.py --quotes small.jsonl small_default.jsonl

What no results are given for stays as it is.

A logistic regression with a ridge penalty over standardised signals, by Newton's method; what
it learns is whether the evidence is among the first three hits, of `quotes` whether they have it.
The penalty is the one of PENALTIES with the least log loss in cross-validation. The thresholds are
quantiles of the probabilities that five-fold cross-validation gives: so many of the unanswerable
questions stay below `answered`, so few of the answerable ones below `closest`. Only the tuned half
is read.
"""

from __future__ import annotations

import argparse
import hashlib
from functools import partial
from pathlib import Path
from typing import Any

import answers
import numpy as np
import small_answers
import yaml

from rag_platform.ir import Json

TARGET = Path(answers.REPOSITORY / "rag_platform" / "answering" / "states.yaml")
PENALTIES = (0.3, 1.0, 2.0, 5.0, 10.0)
FOLDS, SEEDS = 5, range(10)
SIGNALS = {
    "question": ["words_found", "words_absent", "sparse_reach", "sparse_margin", "dense_standing"],
    "quotes": ["words_found", "quotes_near"],
}
# unanswerable questions that are not to be told `answered`
KEPT_BACK = {"question": 0.9, "searches": 0.9, "quotes": 0.92}
MOST_NOTHING = 0.3  # the probability above which a question is never told `nothing_found`
LEFT_OUT = {"question": 0.02, "searches": 0.01}  # answerable ones that may be told `nothing_found`
HEAD = """\
# How `states.py` decides between answered, closest and nothing_found.
# Written by bench/train_states.py; do not edit. Weights are of standardised signals:
# (signal - mean) / deviation. answered, closest: the probabilities from which a state holds.
"""
Array = Any


def fit(values: Array, found: Array, penalty: float) -> Array:
    """The intercept and the weights."""
    rows = np.c_[np.ones(len(values)), values]
    weights = np.zeros(rows.shape[1])
    ridge = np.eye(len(weights)) * penalty
    ridge[0, 0] = 0
    for _ in range(50):
        p = 1 / (1 + np.exp(-rows @ weights))
        slope = rows.T @ (p - found) + ridge @ weights
        weights -= np.linalg.solve((rows.T * (p * (1 - p))) @ rows + ridge, slope)
    return weights


def standardise(
    raw: list[Json], names: list[str]
) -> tuple[Array, dict[str, float], dict[str, float]]:
    """(the signals, a missing one 0; their means; their deviations)."""
    table = np.array([[np.nan if row[n] is None else row[n] for n in names] for row in raw], float)
    means, deviations = np.nanmean(table, axis=0), np.nanstd(table, axis=0)
    deviations[deviations == 0] = 1.0
    return (
        np.nan_to_num((table - means) / deviations),
        dict(zip(names, map(float, means), strict=True)),
        dict(zip(names, map(float, deviations), strict=True)),
    )


def cross_validate(values: Array, found: Array, penalty: float) -> Array:
    """[seeds, questions] of probabilities that models without the question's fold give it."""
    sure = np.zeros((len(SEEDS), len(found)))
    for row, seed in zip(sure, SEEDS, strict=True):
        order = np.random.default_rng(seed).permutation(len(found))
        for fold in range(FOLDS):
            inside = order[fold::FOLDS]
            others = np.setdiff1d(order, inside)
            weights = fit(values[others], found[others], penalty)
            row[inside] = 1 / (1 + np.exp(-weights[0] - values[inside] @ weights[1:]))
    return sure


def log_loss(sure: Array, found: Array) -> float:
    """The mean negative logarithm of the probability given to what was so."""
    return float(-np.log(np.where(found > 0, sure, 1 - sure)).mean())


def train(name: str, results: list[Json], rows: list[Json]) -> tuple[Json, float]:
    """The model of one way to ask, and its penalty."""
    names = SIGNALS["quotes" if name == "quotes" else "question"]
    values, means, deviations = standardise([row["signals"] for row in results], names)
    if name == "quotes":
        found = np.array([float(row["in_answer"]) for row in rows])
    else:
        found = np.array([float((row["rank"] or 99) <= answers.FOUND_IN) for row in rows])
    answerable = np.array([row["answerable"] for row in rows])
    crossed = {penalty: cross_validate(values, found, penalty) for penalty in PENALTIES}
    penalty = min(PENALTIES, key=lambda item: log_loss(crossed[item], found))
    sure, weights = crossed[penalty].mean(axis=0), fit(values, found, penalty)

    def short(pairs: dict[str, float]) -> dict[str, float]:
        return {name: round(value, 4) for name, value in pairs.items()}

    model = {
        "intercept": round(float(weights[0]), 4),
        "means": short(means),
        "deviations": short(deviations),
        "weights": short(dict(zip(names, map(float, weights[1:]), strict=True))),
        "answered": round(float(np.quantile(sure[~answerable], KEPT_BACK[name])), 3),
        "closest": 0.0,  # of `quotes`: the model of `question` has decided on `nothing_found`
    }
    if name in LEFT_OUT:
        lowest = float(np.quantile(sure[answerable], LEFT_OUT[name]))
        model["closest"] = round(min(MOST_NOTHING, lowest), 3)
    return model, penalty


def main() -> None:
    """Read, fit, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    several: Json = {"type": Path, "nargs": "+", "metavar": "FILE"}
    parser.add_argument("--question", help="results of the questions alone", **several)
    parser.add_argument("--searches", help="results with the search phrasings", **several)
    parser.add_argument("--quotes", help="results at small libraries", **several)
    parser.add_argument("--material", type=Path, default=answers.MATERIAL)
    given = parser.parse_args()
    folder = given.material / "questions"
    judge = answers.load_judge(folder)
    known = {}
    for part in answers.load_questions(folder, judge, "tuned"):
        known.update(part)
    for library in small_answers.load_libraries("tuned"):
        known.update(small_answers.read_questions(library))
    kept = yaml.safe_load(TARGET.read_text(encoding="utf-8"))
    models, trained_on = kept["models"], kept["trained_on"]
    for name in filter(partial(getattr, given), KEPT_BACK):
        results = [row for path in getattr(given, name) for row in answers.read_lines(path)]
        if other := [row["id"] for row in results if row["id"] not in known]:
            parser.error(f"{other[0]} is no question of the tuned half; run with --half tuned")
        if name == "quotes":
            results = [row for row in results if row["signals"]["quotes_near"] is not None]
        rows = answers.judge_results(judge, known, results)
        models[name], penalty = train(name, results, rows)
        trained_on[name] = {"results": len(results), "penalty": penalty}
    files = [*sorted(folder.glob("*.jsonl")), small_answers.LIBRARIES]
    data = b"".join(path.read_bytes() for path in files)
    trained_on["sha256"] = hashlib.sha256(data).hexdigest()
    text = yaml.safe_dump({"trained_on": trained_on, "models": models}, sort_keys=False)
    TARGET.write_text(HEAD + text, encoding="utf-8")


if __name__ == "__main__":
    main()
