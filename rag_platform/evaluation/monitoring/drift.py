"""Drift: whether users' questions and their answers differ from those of the last stable window.

The questions come from traces, without those of evaluations, which name a release. Figures are
compared by the Kolmogorov-Smirnov distance, shares by the population stability index. A difference
counts only if it is larger than chance in windows of that size.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import NormalDist

import numpy as np

from rag_platform.api.envelopes import fill_shape
from rag_platform.config.settings import DriftSettings
from rag_platform.contract.evaluation_shapes import DriftData, SignalPart
from rag_platform.ir import Json
from rag_platform.observability.trace_reader import read_questions
from rag_platform.text.markdown_blocks import format_table

FIGURES = ("top_score", "confidence", "dense_topk_overlap_sparse", "latency_ms")
SHARES = ("refused", "language")
_NONE = "none"  # the share of questions without a value


@dataclass(slots=True)
class Window:
    """The signals of the questions asked between two times."""

    start: datetime
    end: datetime
    questions: int = 0
    figures: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in FIGURES})
    shares: dict[str, Counter[str]] = field(default_factory=lambda: {n: Counter() for n in SHARES})
    releases: set[str] = field(default_factory=set)

    def add(self, signals: Mapping[str, object], release_id: str) -> None:
        """Count one question."""
        self.questions += 1
        self.releases.add(release_id)
        for name, values in self.figures.items():
            if isinstance(value := signals.get(name), (int, float)):
                values.append(float(value))
        for name, counts in self.shares.items():
            counts[str(signals.get(name) or _NONE)] += 1


@dataclass(frozen=True, slots=True)
class Signal:
    """One signal of both windows: their distance, and the limit above which it is drift."""

    name: str
    measure: str  # ks | psi
    before: str
    now: str
    distance: float
    limit: float

    @property
    def drifted(self) -> bool:
        return self.distance > self.limit


@dataclass(frozen=True, slots=True)
class DriftReport:
    """The current window against the last stable one; no signals if either is missing."""

    namespace: str
    current: Window
    stable: Window | None
    signals: tuple[Signal, ...]
    reason: str = ""  # why nothing could be compared

    @property
    def drifted(self) -> tuple[Signal, ...]:
        """The signals that drifted."""
        return tuple(signal for signal in self.signals if signal.drifted)


def measure_drift(
    logs_dir: Path, namespace: str, config: DriftSettings, until: datetime | None = None
) -> DriftReport:
    """Compare the window that ends now, or at `until`, with the newest earlier window that had not
    itself drifted from its predecessor.
    """
    windows = read_windows(logs_dir, namespace, config, until or datetime.now(UTC))
    current, *earlier = windows
    if current.questions < config.min_questions:
        reason = (
            f"{current.questions} questions in {config.days:g} days are too few to compare; it"
            f" takes {config.min_questions}"
        )
        return DriftReport(namespace, current, None, (), reason)
    known = [window for window in earlier if window.questions >= config.min_questions]
    for number, window in enumerate(known):
        is_last = number + 1 == len(known)
        if is_last or not any(s.drifted for s in compare(known[number + 1], window, config)):
            signals = compare(window, current, config)
            return DriftReport(namespace, current, window, tuple(signals))
    reason = f"no earlier window of the last {config.windows} has {config.min_questions} questions"
    return DriftReport(namespace, current, None, (), reason)


def read_windows(
    logs_dir: Path, namespace: str, config: DriftSettings, until: datetime
) -> list[Window]:
    """The windows that end at `until`, newest first."""
    length = timedelta(days=config.days)
    windows = [Window(until - length * (n + 1), until - length * n) for n in range(config.windows)]
    for record in read_questions(logs_dir, namespace, since=windows[-1].start):
        asked_at = datetime.fromisoformat(record["started_at"])
        place = math.floor((until - asked_at) / length)
        if 0 <= place < len(windows):
            attrs = record.get("attrs", {})
            windows[place].add(_signals(record, attrs), str(attrs.get("release_id", "")))
    return windows


def _signals(record: Json, attrs: Json) -> Json:
    answered = attrs.get("flags", {}).get("answered")
    return {
        **{name: attrs.get(name) for name in (*FIGURES, "language")},
        "latency_ms": record.get("aggregates", {}).get("latency_ms"),
        "refused": {True: "no", False: "yes"}.get(answered, _NONE),
    }


def compare(before: Window, now: Window, config: DriftSettings) -> list[Signal]:
    """Every signal that both windows have."""
    found = []
    for name in FIGURES:
        one, other = before.figures[name], now.figures[name]
        if one and other:
            distance, limit = ks_distance(one, other), ks_limit(len(one), len(other), config)
            found.append(Signal(name, "ks", _quartiles(one), _quartiles(other), distance, limit))
    for name in SHARES:
        counts = before.shares[name], now.shares[name]
        distance, limit = stability_index(*counts), psi_limit(*counts, config)
        found.append(
            Signal(name, "psi", _share_text(counts[0]), _share_text(counts[1]), distance, limit)
        )
    return found


def ks_distance(one: Sequence[float], other: Sequence[float]) -> float:
    """The largest difference between the two samples' distribution functions."""
    left, right = np.sort(np.asarray(one)), np.sort(np.asarray(other))
    every = np.concatenate([left, right])
    gap = np.searchsorted(left, every, "right") / len(left) - np.searchsorted(
        right, every, "right"
    ) / len(right)
    return float(np.abs(gap).max())


def ks_limit(one: int, other: int, config: DriftSettings) -> float:
    """The larger of the configured distance and the one that chance exceeds with the configured
    probability: sqrt(-ln(a / 2) / 2 * (n + m) / (n m)) (Smirnov 1939).
    """
    chance = math.sqrt(-math.log(config.significance / 2) / 2 * (one + other) / (one * other))
    return max(config.ks, chance)


def stability_index(one: Counter[str], other: Counter[str]) -> float:
    """The population stability index; half a question is added to each count, so that none is 0."""
    names = one.keys() | other.keys()
    total = 0.0
    for name in names:
        before = (one[name] + 0.5) / (one.total() + 0.5 * len(names))
        now = (other[name] + 0.5) / (other.total() + 0.5 * len(names))
        total += (now - before) * math.log(now / before)
    return total


def psi_limit(one: Counter[str], other: Counter[str], config: DriftSettings) -> float:
    """The larger of the configured index and the one that chance exceeds: (1/n + 1/m) times a
    chi-square quantile (Yurdakul 2018), by Wilson and Hilferty's approximation.
    """
    freedom = max(1, len(one.keys() | other.keys()) - 1)
    part = 2 / (9 * freedom)
    z = NormalDist().inv_cdf(1 - config.significance)
    quantile = freedom * (1 - part + z * math.sqrt(part)) ** 3
    return max(config.psi, quantile * (1 / one.total() + 1 / other.total()))


def _quartiles(values: Iterable[float]) -> str:
    return " / ".join(f"{value:.3g}" for value in np.percentile(list(values), [25, 50, 75]))


def _share_text(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {n / counts.total():.0%}" for name, n in counts.most_common(4))


def drift_data(report: DriftReport) -> DriftData:
    """A report in the shape of the contract."""
    return {
        "namespace": report.namespace,
        "questions": report.current.questions,
        "stable_questions": report.stable.questions if report.stable is not None else 0,
        "reason": report.reason,
        "signals": [fill_shape(SignalPart, signal) for signal in report.signals],
    }


_COLUMNS = ("signal", "stable (quartiles or shares)", "now", "distance", "limit")


def drift_markdown(report: DriftReport) -> str:
    """Both windows, and every signal with its distance and limit; drifted ones are bold."""
    head = f"{report.namespace}: {_window_text(report.current)}"
    if report.stable is None:
        return f"{head}; nothing to compare: {report.reason}"
    rows = [
        (
            f"**{s.name}**" if s.drifted else s.name,
            s.before,
            s.now,
            f"{s.measure} {s.distance:.3f}",
            f"{s.limit:.3f}",
        )
        for s in report.signals
    ]
    changed = ", ".join(signal.name for signal in report.drifted)
    new = sorted(report.current.releases - report.stable.releases)
    return "\n".join(
        [
            f"{head}, against {_window_text(report.stable)}",
            "",
            f"Drifted: {changed}" if changed else "No drift.",
            *([f"Releases since: {', '.join(new)}"] if new else []),
            "",
            *format_table(_COLUMNS, rows),
        ]
    )


def _window_text(window: Window) -> str:
    return f"{window.questions} questions from {window.start:%Y-%m-%d} to {window.end:%Y-%m-%d}"
