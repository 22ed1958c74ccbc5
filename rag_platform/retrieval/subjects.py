"""What a question is about: its text without the words that say how it wants to be answered, which the right passage need not hold.

`the latest`, `official documentation` and `带图的` are preferences, `summarise`, `an overview of` and `总结一下` commands. They stay in the
text that is searched; only how far passages hold the question is told without them (seed 000 §3.2.5: a preference drops nothing).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from rag_platform.retrieval.inference_patterns import COMMANDS, PREFERENCES
from rag_platform.retrieval.inference_words import SIMPLIFIED
from rag_platform.text.terms import meaning

MAX_CHARS = 400  # of a question; a longer text is a passage that somebody asks about
_BLANKS = re.compile(r"\s{2,}")
_BLANK_BEFORE = re.compile(r"\s+(?=[?!？！。,，;；])")
_EDGES = " \t,，、;；:：-"
_QUOTED = "\0"  # for the characters of a quotation; no cleaned text holds one
_CAPITALS = re.compile(r"[A-Z]{3}")  # EXPLAIN is a name, unless all of the question is in capitals


def subject(text: str, spared: Sequence[tuple[int, int]] = ()) -> str:
    """The cleaned question without the words of preferences and commands; as it is when no word that carries meaning would be left.

    What lies in a `spared` span [start, end) stays, and so does a text above MAX_CHARS.

    >>> subject("Give me an overview of the latest response headers")
    'response headers'
    >>> subject("总结一下系统组成"), subject("summarise the latest")
    ('系统组成', 'summarise the latest')
    """
    if len(text) > MAX_CHARS:
        return text
    rest, shown = text, text.translate(SIMPLIFIED)
    for start, end in spared:
        shown = shown[:start] + _QUOTED * (end - start) + shown[end:]
    lowered = shown.lower()
    for rule in (*PREFERENCES, *COMMANDS):
        for pattern in rule.patterns() if rule.may_match(lowered) else ():
            match = pattern.search(shown) if "said" in pattern.groupindex else None
            if match is None or (_CAPITALS.search(match["said"]) and not text.isupper()):
                continue
            start, end = match.span("said")
            rest, shown = (f"{given[:start]} {given[end:]}".lstrip(_EDGES) for given in (rest, shown))
    if rest is text:
        return text
    tidy = _BLANK_BEFORE.sub("", _BLANKS.sub(" ", rest)).strip(_EDGES)
    return tidy if meaning(tidy) else text
