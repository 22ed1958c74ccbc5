"""Configuration files with comments: the edits that make the comments text.

A line that begins with `# ` is a heading in Markdown; so was each line of a comment, which then was
no part of what explains the setting below it.
"""

from __future__ import annotations

import re

from rag_platform.ir import Edit
from rag_platform.loaders.restructured import REWRITTEN

PROFILE = "commented_settings"  # parse profile of the facts
LANGUAGES = ("ini", "toml")
# a setting that is switched off: `name = value`, `name:`, `[name]`, `a-name value` or `name 10 <b>`
_VALUE = r"(?:\d\S*(?<!\.)|<[^>\n]*>|/\S*|yes|no|on|off)"
_SETTING = (
    r"(?:[\w.-]+[ \t]*=|[\w.-]+:(?:[ \t]|$)|\[|\w+[-_][\w-]+[ \t]+\S+[ \t]*$"
    rf"|[A-Za-z]\w*(?:[ \t]+{_VALUE})+[ \t]*$)"
)
_MARK = re.compile(
    rf"^[ \t]*(?P<mark>[#;])(?P=mark)*(?:[ \t]+(?P<setting>(?={_SETTING}))?|[ \t]*$)", re.MULTILINE
)


def comment_edits(text: str) -> list[Edit]:
    """The edits that leave the words of comments; a setting that is switched off keeps its mark."""
    marks = ((it, "" if it["setting"] is None else it["mark"]) for it in _MARK.finditer(text))
    return [Edit(*it.span(), kept, REWRITTEN) for it, kept in marks if it[0] != kept]
