"""How readable a chunk is, as one figure from 0 to 1 made of what is measured without a model (seed 004, quality_score)."""

from __future__ import annotations

import re
import unicodedata

from rag_platform.config import QualityConfig

_GARBLED_LIMIT = 0.2  # a text a fifth of which is unprintable reads as nothing
_PLAIN = re.compile(r"""[\w!"#$%&'()*+,\-./:;<=>?@[\\\]^`{|}~]+""")  # letters, digits, and the punctuation of ASCII


def quality_score(text: str, config: QualityConfig, ocr_confidence: float | None = None) -> float:
    """The weighted mean, rounded to 4 places, of up to four figures between 0 (bad) and 1 (good):

    garbled   1 - u / 0.2, at least 0; u is the share of control, private, unassigned and replacement characters among all
    valid     the share of letters, marks, digits and punctuation among the characters that are not white space
    length    0 below `min_len` characters, 1 from `sat_len` on, (length - min_len) / (sat_len - min_len) between
    ocr       the mean confidence of the recognised lines; without it the other weights are divided by their sum

    A blank text has 0.
    """
    stripped = text.strip()
    if not stripped:
        return 0.0
    figures = {"garbled": _garbled(stripped), "valid": _valid(stripped), "length": _length(len(stripped), config)}
    if ocr_confidence is not None:
        figures["ocr"] = min(1.0, max(0.0, ocr_confidence))
    weighted = [(getattr(config.weights, name), figure) for name, figure in figures.items()]
    total = sum(weight for weight, _ in weighted)
    return round(sum(weight * figure for weight, figure in weighted) / total, 4) if total else 0.0


def _garbled(text: str) -> float:
    if " ".join(text.split()).isprintable() and "\ufffd" not in text:
        return 1.0
    unreadable = sum(char == "\ufffd" or (not char.isprintable() and not char.isspace() and not _is_format(char)) for char in text)
    return max(0.0, 1.0 - unreadable / len(text) / _GARBLED_LIMIT)


def _is_format(char: str) -> bool:
    """Joiners, soft hyphens and direction marks are invisible, but they belong to well-written text."""
    return unicodedata.category(char) == "Cf"


def _valid(text: str) -> float:
    inked = "".join(text.split())
    rest = _PLAIN.sub("", inked)  # in most texts a handful of characters, which are looked up one by one
    good = len(inked) - len(rest) + sum(unicodedata.category(char)[0] in "PM" for char in rest)
    return good / len(inked)


def _length(length: int, config: QualityConfig) -> float:
    if length < config.min_len:
        return 0.0
    if length >= config.sat_len:
        return 1.0
    return (length - config.min_len) / (config.sat_len - config.min_len)
