"""Where in its passage a quote stands: a passage of several short sections, or of many lines, has
the place of its beginning.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from itertools import takewhile

from rag_platform.answering.quotable import read_layout
from rag_platform.ir import Citation
from rag_platform.text.passages import LABEL_LEVEL, Unit

_JOINT = " / "  # between the headings of a section's path


def narrow(citation: Citation) -> Citation:
    """The citation with the section and the lines of its spans, where these say more than those of
    its passage.
    """
    if not citation.spans or citation.edited_from:
        return citation
    section, lines = _find_section(citation), _find_lines(citation)
    return dataclasses.replace(
        citation,
        quote_section="" if section == citation.section_path else section,
        quote_lines=None if lines == citation.line_range else lines,
    )


def _find_section(citation: Citation) -> str:
    """The path of the headings that all spans stand under; that of the passage where there is none.

    >>> text = "## Setup\\n\\nRun it.\\n\\n## Ports\\n\\nIt listens on 8443."
    >>> shown = Citation(1, "", "", "", "", "Guide / Setup", text, 1.0, spans=((28, 47),))
    >>> _find_section(shown)
    'Guide / Ports'
    """
    whole = citation.section_path.startswith("__")  # of no heading
    own = [] if whole else citation.section_path.split(_JOINT)
    quoted = [
        unit
        for unit in read_layout(citation.text).units
        if any(start < unit.end and unit.start < end for start, end in citation.spans)
    ]
    paths = [_find_path(own, unit) for unit in quoted]
    shared = takewhile(lambda names: len(set(names)) == 1, zip(*paths, strict=False))
    return _JOINT.join(names[0] for names in shared) or citation.section_path


def _find_path(own: Sequence[str], unit: Unit) -> list[str]:
    """The headings of a unit, outermost first, in a passage whose section has the path `own`.

    What the passage has of a section of its own was too short to be a passage; it stands beside
    the section of the passage, or in it where that is a level above.
    """
    above = [(level, words) for level, words in unit.headings if level < LABEL_LEVEL]
    if not above:
        return list(own)
    from rag_platform.loaders.markdown import heading_title  # not for an answer of one section

    level, names = above[0][0], [heading_title(words) for _, words in above]
    if names[0] in own:
        return [*own[: own.index(names[0])], *names]
    if own and level == 1:  # no other title joins a section: a comment in code
        return list(own)
    # a path of one heading may be that of a document without a title, whose sections are beside it
    return names if (len(own), level) == (1, 2) else [*own[: level - 1], *names]


def _find_lines(citation: Citation) -> tuple[int, int] | None:
    """The lines of the file that the spans stand on; those of the passage where its text has not
    just as many.
    """
    if citation.line_range is None:
        return None
    first, last = citation.line_range
    text = citation.text
    if last - first != text.count("\n"):
        return citation.line_range
    start, end = min(s for s, _ in citation.spans), max(e for _, e in citation.spans)
    return first + text.count("\n", 0, start), first + text.count("\n", 0, max(start, end - 1))
