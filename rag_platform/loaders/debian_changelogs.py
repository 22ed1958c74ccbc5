"""Debian changelogs: the blocks of a text, and the edits that make its releases headings.

The date of a release is in the last line of its entry; the heading names it too, because readers
ask when a version was released, and a quote is shown below its heading.
"""

from __future__ import annotations

import re
from email.utils import parsedate_to_datetime

from rag_platform.ir import Block, Edit
from rag_platform.loaders.restructured import REWRITTEN, fill_gaps

DEBIAN_CHANGELOG = "debian_changelog"  # parse profile of the facts
_LEVEL = 2
# deb-changelog(5): `apt (2.1.6) unstable; urgency=medium`, and the line that ends the entry
_RELEASE = re.compile(
    r"^(?P<words>[a-z0-9][a-z0-9+.-]* \([^()\s]+\)[ \t\w.-]*);[ \t]*\w[\w-]*=[^\r\n]*",
    re.MULTILINE | re.IGNORECASE,
)
_AUTHOR = re.compile(r"^  \[ (?P<name>\S.*?) \][ \t]*(?=\r?$)", re.MULTILINE)  # of the items below
_ENDS = re.compile(r"^ -- .*?>  (?P<date>\S[^\r\n]*)", re.MULTILINE)


def is_debian_changelog(text: str) -> bool:
    """True for a text that begins with a release as in a Debian changelog."""
    return _RELEASE.match(text.lstrip()) is not None


def debian_changelog_blocks(text: str) -> list[Block]:
    """The releases as headings and the text below them, without byte offsets."""
    headings = [
        Block(0, "heading", *it.span(), level=_LEVEL, title=it["words"])
        for it in _RELEASE.finditer(text)
    ]
    return fill_gaps(text, headings)


def debian_changelog_edits(text: str) -> list[Edit]:
    """The edits that make each release a heading with its version and date, and each author a
    label.
    """
    authors = _AUTHOR.finditer(text)
    edits = [Edit(*it.span(), f"**{it['name']}**\n", REWRITTEN) for it in authors]
    found = list(_RELEASE.finditer(text))
    ends_at = [*(it.start() for it in found[1:]), len(text)]
    for release, end in zip(found, ends_at, strict=False):
        ends = _ENDS.search(text, release.end(), end)
        date = _read_date(ends["date"]) if ends else ""
        heading = "#" * _LEVEL + " " + release["words"] + (f" – {date}" if date else "")
        edits.append(Edit(*release.span(), heading, REWRITTEN))
    return sorted(edits, key=lambda edit: edit.start)


def _read_date(text: str) -> str:
    """The day of `Wed, 08 Jul 2020 12:41:28 +0200` as 2020-07-08; empty for any other text."""
    try:
        return parsedate_to_datetime(text).date().isoformat()
    except (OverflowError, ValueError):
        return ""
