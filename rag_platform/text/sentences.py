"""Splits text into sentences, by the punctuation of Chinese, Latin and other scripts."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rag_platform.text.scripts import HAN

# quotation marks, brackets and emphasis that belong to the sentence before them
CLOSERS = "”’」』）】》)\"'\\]*_"
# always end a sentence: Chinese, Indic, Urdu, Arabic, Khmer, Burmese, Ethiopic, Armenian
STOPS = "。！？।॥۔؟។။።։"
# begins with one character class, which is scanned several times as fast; possessive quantifiers
# prevent backtracking over long rows of dots
_END = re.compile(
    rf"[{STOPS}.!?](?:(?<=[{STOPS}])[{STOPS}]*+[{CLOSERS}]*+|(?<=[.!?])[.!?]*+[{CLOSERS}]*+(?=\s))"
)
# an abbreviation, an initial, or the number of a list item or heading
_NO_END = re.compile(
    r"(?:\b(?:e\.g|i\.e|etc|cf|vs|ca|approx|Dr|Mr|Mrs|Ms|Prof|St|Inc|Ltd|Co|Corp|Nos?|Figs?|Eqs?|Secs?|Vols?|pp?|[A-Z])|^["
    r" \t]*\d{1,3}(?:\.\d{1,3})*)\.$",
    re.MULTILINE,
)
_LONGEST = 12  # maximum characters of a match of _NO_END
_NEXT = re.compile(r"\s*\S")
# a label and its colon: no sentence before it, no time and no address
_FIELD = re.compile(rf"[^\W\d_][^:：.。,，;；!！?？\n]{{0,40}}(?:：|:(?=\s|$|[{HAN}]))")


def sentence_ends(text: str, start: int = 0, end: int | None = None) -> Iterator[int]:
    """The offsets after the sentences that end in text[start:end], before the following white
    space.

    STOPS always end a sentence, Latin punctuation only before white space, and a full stop not
    before a lower-case letter, unless it is a separate token.
    """
    for match in _END.finditer(text, start, len(text) if end is None else end):
        if _is_end(text, match):
            yield match.end()


def ends_sentence(text: str, start: int, end: int) -> bool:
    """True where a sentence ends in text[start:end]."""
    match = _END.search(text, start, end)
    while match is not None and not _is_end(text, match):
        match = _END.search(text, match.end(), end)
    return match is not None


def _is_end(text: str, match: re.Match[str]) -> bool:
    dot, place = match.span()
    return (
        text[dot] != "."
        or text[dot - 1 : dot].isspace()
        or not (_continues(text, place) or _NO_END.search(text, max(0, place - _LONGEST), place))
    )


def _continues(text: str, place: int) -> bool:
    """True before a lower-case letter."""
    following = _NEXT.match(text, place)
    return following is not None and text[following.end() - 1].islower()


def sentences(text: str, start: int = 0, end: int | None = None) -> Iterator[tuple[int, int]]:
    """The spans of the sentences of text[start:end] without gaps; white space belongs to the
    sentence after it.
    """
    end = len(text) if end is None else end
    for place in sentence_ends(text, start, end):
        yield start, place
        start = place
    if start < end:
        yield start, end


def field_label(line: str) -> str:
    """The label and colon at the beginning of a line, such as `Date:` or `联系人：`; else empty."""
    match = _FIELD.match(line)
    return match[0] if match and not line[0].islower() else ""
