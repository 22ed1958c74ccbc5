"""Edits that remove noise from the normalised text: URLs, e-mail addresses, and the matches of a
strategy's own rules.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

from rag_platform.config.ingestion import CleaningConfig, NoiseRule
from rag_platform.config.user_patterns import matches
from rag_platform.ir import Edit, Facts

_ADDRESS = r"(?:https?|ftp)://[^\s<>()\[\]\"'`|，。；、！？）】》」』]{1,2000}"
LINK = re.compile(
    rf"(?<!!)\[([^\[\]\n]{{0,500}})\]\(<?{_ADDRESS}(?:\([^\s()]{{0,200}}\))?[^\s()]{{0,500}}>?(?:["
    r" \t]+\"[^\"\n]{0,200}\")?\)"
)
URL = re.compile(
    rf"<{_ADDRESS}>|{_ADDRESS}(?<![.,;:!?])|(?<![\w./@-])www\.[^\s<>()\[\]\"'`|，。；、"
    r"！？）】》」』]{3,2000}(?<![.,;:!?])"
)
EMAIL = re.compile(
    r"<?(?<![A-Za-z0-9._+-])(?:mailto:)?[A-Za-z0-9][A-Za-z0-9._+-]{0,63}@(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24}>?"
)
LINE_END = re.compile(r"\r\n?|\n")


def noise_edits(text: str, facts: Facts, cleaning: CleaningConfig) -> Iterator[Edit]:
    """Edits in the order of the rules; they may overlap. Code is left alone unless a rule's scope
    is `everywhere`, and images are never cut in two.

    Raises DocumentError `pattern_timeout` for a rule that takes too long on this text.
    """
    if not (cleaning.drop_urls or cleaning.drop_emails or cleaning.noise):
        return
    code = Spans([(block.start, block.end) for block in facts.blocks if block.kind == "code"])
    images = Spans(
        sorted(
            (ref.start, ref.end)
            for ref in facts.media
            if ref.start is not None and ref.end is not None
        )
    )
    for edit, in_code in _find_noise(text, cleaning):
        span = edit.start, edit.end
        if (in_code or not code.touches(*span)) and not images.are_split_by(*span):
            yield edit


def _find_noise(text: str, cleaning: CleaningConfig) -> Iterator[tuple[Edit, bool]]:
    """(edit, whether it may be in code)."""
    for index, rule in enumerate(cleaning.noise):
        for start, end, replacement in _apply_rule(text, rule):
            yield Edit(start, end, replacement, f"noise:{index}"), rule.scope == "everywhere"
    if cleaning.drop_urls:
        for match in LINK.finditer(text):
            yield Edit(match.start(), match.start(1), "", "url"), False
            yield Edit(match.end(1), match.end(), "", "url"), False
        for match in URL.finditer(text):
            yield Edit(match.start(), match.end(), "", "url"), False
    if cleaning.drop_emails:
        for match in EMAIL.finditer(text):
            yield Edit(match.start(), match.end(), "", "email"), False


def _apply_rule(text: str, rule: NoiseRule) -> Iterator[tuple[int, int, str]]:
    for match in matches(rule.pattern, text):
        start, end = match.start(), match.end()
        if rule.scope != "lines":
            yield start, end, rule.replacement
            continue
        while start and text[start - 1] in " \t":
            start -= 1
        while end < len(text) and text[end] in " \t":
            end += 1
        line_end = LINE_END.match(text, end)
        if (start == 0 or text[start - 1] in "\r\n") and (end == len(text) or line_end is not None):
            yield (
                start,
                line_end.end() if line_end and not rule.replacement else end,
                rule.replacement,
            )


class Spans:
    """A lookup over sorted spans that do not overlap."""

    def __init__(self, spans: Sequence[tuple[int, int]]) -> None:
        self.starts = [start for start, _ in spans]
        self.ends = [end for _, end in spans]

    def holds(self, offset: int) -> bool:
        """True when a span covers the offset."""
        return self.touches(offset, offset + 1)

    def touches(self, start: int, end: int) -> bool:
        """True when a span and [start, end) share a character."""
        return bisect_right(self.ends, start) < bisect_left(self.starts, end)

    def are_split_by(self, start: int, end: int) -> bool:
        """True when [start, end) contains a part of a span, but not all of it."""
        first, last = bisect_right(self.ends, start), bisect_left(self.starts, end)
        return first < last and (self.starts[first] < start or self.ends[last - 1] > end)
