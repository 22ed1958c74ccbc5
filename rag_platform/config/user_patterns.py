"""Users' regular expressions: validated, and searched with a time limit, so that none can hang a
run.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import Any

from rag_platform.errors import ConfigError, DocumentError

MAX_PATTERN = 500
SECONDS = 5.0  # for one pattern in one document


@functools.lru_cache(maxsize=256)
def compile_pattern(pattern: str) -> Any:
    """The compiled pattern, with `^` and `$` matching at lines. Raises ConfigError if it is too
    long, malformed, or matches the empty text.
    """
    import regex

    if len(pattern) > MAX_PATTERN:
        raise ConfigError(
            f"a pattern has {len(pattern)} characters, at most {MAX_PATTERN} are allowed:"
            f" {pattern[:60]!r}..."
        )
    try:
        found = regex.compile(pattern, regex.MULTILINE | regex.VERSION0)
    except regex.error as error:
        raise ConfigError(f"the pattern {pattern!r} is not well formed: {error}") from error
    if found.match("") is not None:
        raise ConfigError(
            f"the pattern {pattern!r} matches the empty text; make it ask for something"
        )
    return found


def matches(pattern: str, text: str) -> Iterator[re.Match[str]]:
    """The non-empty matches in order, with the interface of `re.Match`. Raises DocumentError
    `pattern_timeout`.
    """
    try:
        for match in compile_pattern(pattern).finditer(text, timeout=SECONDS):
            if match.end() > match.start():
                yield match
    except TimeoutError as error:
        raise DocumentError(
            f"the pattern {pattern!r} took more than {SECONDS:.0f} s on {len(text)} characters;"
            " write it without nested repetitions",
            code="pattern_timeout",
        ) from error
