"""Extracts the keyphrases of a text."""

from __future__ import annotations

import functools
import itertools
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rag_platform.config.folders import config_file
from rag_platform.config.ingestion import KeyphraseConfig
from rag_platform.errors import ConfigError
from rag_platform.protocols import Embedder, Vectors
from rag_platform.text.segmentation import chinese_dictionary
from rag_platform.text.stop_words import CHINESE, ENGLISH
from rag_platform.text.textrank import pagerank

WINDOW = 4  # maximum distance of linked words + 1
MAX_PHRASE_WORDS = 3
MAX_PHRASE_CHARS = 60
_KEPT_WORDS = 16  # words that may be part of a phrase: at least so many, or half of all
_MAX_WORDS = 1500  # of a text; the time for ranking grows with the square of their number
_CANDIDATES = 3  # times topk, for keybert
_DIVERSITY = 0.5

# fenced code, tags, URLs and link targets say little about the subject
_NOISE = re.compile(
    r"^[ >]*(```|~~~).*?(?:^["
    r" >]*\1|\Z)|<[^<>\n]{1,300}>|(?:https?|ftp|asset)://[^\s)\]>]+|\]\([^)\n]*\)|\[image_\w+"
    r" [^\]\n]*\]",
    re.M | re.S,
)
# part of every match of _NOISE; absent from most texts
_MAY_BE_NOISE = re.compile(r"```|~~~|<|://|\]\(|\[image_")
_HAN_CLASS = "\u3005\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_HAN = re.compile(f"[{_HAN_CLASS}]")
# a word keeps inner punctuation, so that identifiers, versions and `C++` stay whole; anything else
# but a space ends a phrase
_PART = rf"[^\W_{_HAN_CLASS}]+"
# Han, word, end of a phrase
_TOKEN = re.compile(
    rf"([{_HAN_CLASS}]+)|({_PART}(?:[._'+#-]+{_PART})*\+{{0,2}}#?)|([^\s\w]|\n[ \t]*\n|_+)"
)
# parts of speech that make phrases; `x` is a word that is not in the dictionary
_NOMINAL = ("n", "vn", "an", "eng", "i", "j", "l", "x")
_BUILT_IN = ENGLISH | CHINESE
_ALONE = ("v", "a", "vi")  # verbs and adjectives are keywords only by themselves


@dataclass(frozen=True, slots=True)
class _Words:
    """The candidate words of a text, each with the number of its run of adjacent words."""

    words: Sequence[str]
    runs: Sequence[int]


def keyphrases(
    text: str, lang: str, config: KeyphraseConfig, embedder: Embedder | None = None
) -> tuple[str, ...]:
    """At most `topk` keyphrases, best first, lower case and NFKC; Chinese words are joined without
    a space.

    textrank  words by PageRank over their co-occurrence within WINDOW words, adjacent ones joined
              (Mihalcea & Tarau 2004)
    light     words by frequency, early ones first
    keybert   the phrases of `light` by similarity to the whole text and dissimilarity to each other
              (maximal marginal relevance); needs the embedder
    none      nothing

    In Chinese and English texts Han characters are segmented and selected by part of speech; in
    others (Japanese) a run of them is one word; `config.lang` overrides `lang` unless it is auto.
    The output is deterministic; long texts are read in part. Raises ConfigError
    `keyphrases_unavailable` for keybert without an embedder, and ConfigError for an unreadable list
    of stop words.
    """
    if config.method == "none" or not text.strip():
        return ()
    stop = _stop_words(config.stopwords.path)
    found = _words(
        text, stop, tagged=(config.lang if config.lang != "auto" else lang) in ("zh", "en")
    )
    if not found.words:
        return ()
    scores = (
        _textrank(found.words) if config.method == "textrank" else _early_and_often(found.words)
    )
    if config.method != "keybert":
        return tuple(_phrases(found, scores, config.topk))
    if embedder is None:
        raise ConfigError(
            "keyphrases by keybert need an embedder, and none was given; use method textrank or"
            " light",
            code="keyphrases_unavailable",
            method="keybert",
        )
    candidates = _phrases(found, scores, _CANDIDATES * config.topk)
    vectors = embedder.embed([text, *candidates])
    return tuple(candidates[i] for i in _diverse(vectors[0], vectors[1:], config.topk))


# --- words --------------------------------------------------------------------------------------


def _words(text: str, stop: frozenset[str], *, tagged: bool) -> _Words:
    plain = unicodedata.normalize("NFKC", text)
    plain = (
        (_NOISE.sub("\n\n", plain) if _MAY_BE_NOISE.search(plain) else plain)
        .lower()
        .replace("’", "'")
    )
    words: list[str] = []
    runs: list[int] = []
    run = 0
    for han, word, _ in _TOKEN.findall(plain):
        if word and word not in stop and _is_subject(word):
            words.append(word)
            runs.append(run)
        elif not han:
            run += 1
        for part, tag in _chinese(han, tagged) if han else ():
            alone = tag in _ALONE
            kept = (alone or tag.startswith(_NOMINAL)) and _is_subject(part) and part not in stop
            run += alone or not kept
            if kept:
                words.append(part)
                runs.append(run)
            run += alone
    return _Words(words[:_MAX_WORDS], runs[:_MAX_WORDS])


def _chinese(run: str, tagged: bool) -> list[tuple[str, str]]:
    """(word, part of speech) of a run of Han characters; the whole run unless `tagged`."""
    return list(chinese_dictionary().tag(run)) if tagged else [(run, "n")]


@functools.lru_cache(maxsize=1 << 15)
def _is_subject(word: str) -> bool:
    """False for single characters and plain numbers."""
    return len(word) > 1 and (word.isalpha() or any(map(str.isalpha, word)))


def _stop_words(path: str) -> frozenset[str]:
    if not path:
        return _BUILT_IN
    file = config_file(path)
    try:
        return _with_own(file, file.stat().st_mtime_ns)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"the stop words at {file} cannot be read ({error}); correct stopwords.path"
        ) from error


@functools.lru_cache(maxsize=4)
def _with_own(file: Path, changed: int) -> frozenset[str]:
    lines = file.read_text(encoding="utf-8-sig").splitlines()
    words = (
        unicodedata.normalize("NFKC", line.partition("#")[0]).strip().lower() for line in lines
    )
    return _BUILT_IN | {word for word in words if word}


# --- scores -------------------------------------------------------------------------------------


def _textrank(words: Sequence[str]) -> dict[str, float]:
    """PageRank of each word, with undirected edges weighted by co-occurrences within WINDOW."""
    names = list(dict.fromkeys(words))
    number = {word: i for i, word in enumerate(names)}
    ids = np.array([number[word] for word in words], dtype=np.int64)
    size = len(names)
    pairs = np.concatenate(
        [ids[:-distance] * size + ids[distance:] for distance in range(1, WINDOW)]
    )
    matrix = np.bincount(pairs, minlength=size * size).astype(np.float64).reshape(size, size)
    matrix = matrix + matrix.T
    matrix.ravel()[:: size + 1] = 0.0  # the diagonal
    shares = matrix / np.maximum(matrix.sum(axis=0), 1.0)
    rank = pagerank(shares, np.ones(size), rounds=30, tolerance=1e-3)
    # rounded, so that the order of equal words does not depend on the processor
    return dict(zip(names, rank.round(6).tolist(), strict=True))


def _early_and_often(words: Sequence[str]) -> dict[str, float]:
    """The frequency of each word, plus up to one half for an early first occurrence."""
    counts = Counter(words)
    first = {word: position for position, word in reversed(list(enumerate(words)))}
    return {word: counts[word] + 0.5 * (1.0 - first[word] / len(words)) for word in counts}


def _phrases(found: _Words, scores: dict[str, float], most: int) -> list[str]:
    """At most `most` phrases of the best words, best first, ties in the order of the text.

    A phrase is a run of up to three adjacent words, or a part of runs that recurs. Its score is the
    sum of its words', times 0.75 if a phrase of several words occurs once. A phrase that only
    occurs inside a better one is left out, and so is one that extends a better one only once.
    """
    best = sorted(scores, key=scores.__getitem__, reverse=True)
    runs = _runs(found, set(best[: max(_KEPT_WORDS, len(best) // 2)]))
    times = Counter(itertools.chain.from_iterable(map(_grams, runs)))
    pieces = [
        run[i : i + MAX_PHRASE_WORDS] for run in runs for i in range(0, len(run), MAX_PHRASE_WORDS)
    ]
    recurring = [
        gram
        for gram, count in times.items()
        if count > 1 and len(gram) > 1 and len(set(gram)) == len(gram)
    ]
    value = {}
    for gram in [*pieces, *recurring]:
        value[gram] = sum(map(scores.__getitem__, gram)) * (
            1.0 if len(gram) == 1 or times[gram] > 1 else 0.75
        )
    chosen: dict[tuple[str, ...], str] = {}
    # the parts of chosen phrases, and how often these phrases occur
    inside: dict[tuple[str, ...], int] = {}
    for gram in sorted(value, key=value.__getitem__, reverse=True):
        often = times[gram]
        if often <= inside.get(gram, 0):
            continue
        if often == 1 and any(len(part) > 1 and part in chosen for part in _grams(gram)[:-1]):
            continue
        if len(phrase := _join(gram)) <= MAX_PHRASE_CHARS:
            chosen[gram] = phrase
            if len(chosen) == most:
                break
            for part in _grams(gram)[:-1]:
                inside[part] = max(often, inside.get(part, 0))
    return list(dict.fromkeys(chosen.values()))


def _runs(found: _Words, kept: set[str]) -> list[tuple[str, ...]]:
    """The runs of adjacent words that are in `kept`, in order."""
    runs: list[list[str]] = []
    previous = -1
    for word, run in zip(found.words, found.runs, strict=True):
        if word not in kept:
            previous = -1
        elif run == previous:
            runs[-1].append(word)
        else:
            runs.append([word])
            previous = run
    return list(map(tuple, runs))


def _grams(run: tuple[str, ...]) -> list[tuple[str, ...]]:
    """The parts of a run with at most MAX_PHRASE_WORDS words, shortest first."""
    if len(run) == 1:  # most runs
        return [run]
    return [
        run[i : i + size]
        for size in range(1, min(MAX_PHRASE_WORDS, len(run)) + 1)
        for i in range(len(run) - size + 1)
    ]


def _join(run: Sequence[str]) -> str:
    text = run[0]
    for word in run[1:]:
        text += word if _HAN.match(word) and _HAN.match(text[-1]) else f" {word}"
    return text


def _diverse(whole: Vectors, candidates: Vectors, count: int) -> list[int]:
    """Indexes of candidates by maximal marginal relevance (Carbonell & Goldstein 1998); all vectors
    are unit vectors.
    """
    relevance = candidates @ whole
    chosen: list[int] = []
    nearest = np.zeros(len(candidates), dtype=np.float32)
    while len(chosen) < min(count, len(candidates)):
        worth = (1.0 - _DIVERSITY) * relevance - _DIVERSITY * nearest
        worth[chosen] = -np.inf
        best = int(np.argmax(worth))
        chosen.append(best)
        nearest = np.maximum(nearest, candidates @ candidates[best])
    return chosen
