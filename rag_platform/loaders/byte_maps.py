"""Characters to bytes: which bytes of a file a character of its text came from, exact also for damaged and multi-byte files."""

from __future__ import annotations

import codecs
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from rag_platform.errors import DocumentError
from rag_platform.ir import Block
from rag_platform.loaders.decoding import Decoded

STEP = 4096  # characters between two checkpoints


@dataclass(frozen=True, slots=True)
class ByteMap:
    """Offsets of characters to offsets of bytes, exact at every character of every anchored run."""

    text: str
    encoding: str
    chars: tuple[int, ...]  # anchors, ascending
    bytes: tuple[int, ...]  # raw offset of each anchor
    odd_chars: tuple[int, ...] = ()  # characters whose raw bytes are not their encoding's
    odd_sums: tuple[int, ...] = ()  # running sum of (raw length - encoded length), one more than odd_chars

    def at(self, offset: int) -> int:
        """The raw byte at which the character at `offset` starts."""
        index = max(0, bisect_right(self.chars, offset) - 1)
        start = self.chars[index]
        return self.bytes[index] + encoded_length(self.text, start, offset, self.encoding) + self._odd(start, offset)

    def span(self, start: int, end: int) -> tuple[int, int]:
        """The raw bytes of text[start:end], which must not be empty; the end is measured within the run of its last character."""
        index = max(0, bisect_right(self.chars, end - 1) - 1)
        anchor = self.chars[index]
        last = self.bytes[index] + encoded_length(self.text, anchor, end, self.encoding) + self._odd(anchor, end)
        return self.at(start), last

    def _odd(self, start: int, end: int) -> int:
        if not self.odd_chars:
            return 0
        from_ = bisect_right(self.odd_chars, start - 1)
        return self.odd_sums[bisect_right(self.odd_chars, end - 1)] - self.odd_sums[from_]


def encoded_length(text: str, start: int, end: int, encoding: str) -> int:
    """Bytes that text[start:end] takes in the encoding."""
    part = text[start:end]
    if part.isascii() and not encoding.startswith(("utf-16", "utf-32")):
        return len(part)
    return len(part.encode(encoding, "replace"))


def byte_map(raw: bytes, decoded: Decoded) -> ByteMap:
    """The byte map of a decoded file: one pass over it. Raises DocumentError if a character's bytes cannot be told."""
    odd = _odd_lengths(raw, decoded)
    chars = list(range(0, len(decoded.text) + 1, STEP))
    sums = _sums(odd)
    odd_chars = tuple(char for char, _ in odd)
    starts, position = [], decoded.bom_len
    for index, char in enumerate(chars):
        if index:
            position += encoded_length(decoded.text, chars[index - 1], char, decoded.encoding)
        starts.append(position + sums[bisect_right(odd_chars, char - 1)])
    result = ByteMap(decoded.text, decoded.encoding, tuple(chars), tuple(starts), odd_chars, sums)
    if result.at(len(decoded.text)) != len(raw):
        raise DocumentError(f"the bytes of its characters cannot be told apart in {decoded.encoding}; convert the file to UTF-8")
    return result


def odd_lengths(text_map: ByteMap, start: int, end: int) -> str:
    """The locator of a block whose bytes are not plain: `bytes=12:-2,40:1` (offset in the block: raw minus encoded length), or empty."""
    first, last = bisect_right(text_map.odd_chars, start - 1), bisect_right(text_map.odd_chars, end - 1)
    pairs = [f"{text_map.odd_chars[i] - start}:{text_map.odd_sums[i + 1] - text_map.odd_sums[i]}" for i in range(first, last)]
    return "bytes=" + ",".join(pairs) if pairs else ""


def byte_map_of_blocks(text: str, encoding: str, blocks: Sequence[Block]) -> ByteMap | None:
    """The byte map that the recorded blocks of a text format give back, without the raw bytes; None for other formats."""
    chars: list[int] = []
    starts: list[int] = []
    odd: list[tuple[int, int]] = []
    for block in blocks:
        if block.byte_start is None:
            continue
        chars.append(block.start)
        starts.append(block.byte_start)
        own = len(odd)
        if block.locator.startswith("bytes="):
            pairs = (pair.split(":") for pair in block.locator[6:].split(","))
            odd.extend((block.start + int(char), int(delta)) for char, delta in pairs)
        position = block.byte_start
        for char in range(block.start + STEP, block.end, STEP):
            while own < len(odd) and odd[own][0] < char:
                position += odd[own][1]
                own += 1
            position += encoded_length(text, char - STEP, char, encoding)
            chars.append(char)
            starts.append(position)
    if not chars:
        return None
    return ByteMap(text, encoding, tuple(chars), tuple(starts), tuple(char for char, _ in odd), _sums(odd))


def _sums(odd: Sequence[tuple[int, int]]) -> tuple[int, ...]:
    sums = [0]
    for _, delta in odd:
        sums.append(sums[-1] + delta)
    return tuple(sums)


def _odd_lengths(raw: bytes, decoded: Decoded) -> list[tuple[int, int]]:
    """(character, raw length - encoded length) of every character whose raw bytes are not as its encoding writes it."""
    text, encoding = decoded.text, decoded.encoding
    if not decoded.lossy and text.encode(encoding, "replace") == raw[decoded.bom_len :]:
        return []
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    odd: list[tuple[int, int]] = []
    char, pending = 0, 0
    for index in range(decoded.bom_len, len(raw)):
        pending += 1
        got = decoder.decode(raw[index : index + 1], index == len(raw) - 1)
        if not got:
            continue
        kept = len(decoder.getstate()[0])
        for position, one in enumerate(got):
            # Bytes that one step turned into several characters: a broken sequence, then the byte that ended it.
            taken = pending - kept - (len(got) - 1) if position == 0 else 1
            if delta := taken - encoded_length(one, 0, 1, encoding):
                odd.append((char + position, delta))
        char, pending = char + len(got), kept
    if char != len(text):
        raise DocumentError(f"the bytes of its characters cannot be told apart in {encoding}; convert the file to UTF-8")
    return odd
