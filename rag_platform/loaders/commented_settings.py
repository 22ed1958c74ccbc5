"""Configuration files with comments: the edits that make the comments text.

A line that begins with `# ` is a heading in Markdown; so was each line of a comment, which then was
no part of what explains the setting below it.
"""

from __future__ import annotations

import re

from rag_platform.ir import Edit
from rag_platform.loaders.restructured import REWRITTEN

SETTINGS = "commented_settings"  # parse profile of the facts
LANGUAGES = ("ini", "toml")
# a setting that is switched off: `name = value`, `name:`, `[name]`, `a-name value` or `name 10 <b>`
_VALUE = r"(?:\d\S*(?<!\.)|<[^>\n]*>|/\S*|yes|no|on|off)"
_END = r"[ \t]*+(?=\r?$)"
_SETTING = (
    rf"(?:[\w.-]+[ \t]*=|[\w.-]+:(?:[ \t]|\r?$)|\[|(?!-)[^\W_]*+[-_][\w-]++[ \t]+\S++{_END}"
    rf"|[A-Za-z]\w*(?:[ \t]+{_VALUE})+{_END})"
)
# a comment among the items of an array, where words without a mark would look like one of them
_ITEM = r"(?:[^\n]*\n(?:[ \t]*#[^\n]*\n){0,20}[ \t]*[\"'{\]])"
_MARK = re.compile(
    r"^[^#;\n]*?(?P<quote>\"{3}|'{3})[\s\S]*?(?P=quote)"  # a string of several lines is no comment
    r"|(?<!\\\n)(?<!\\\r\n)^[ \t]*(?P<mark>[#;])(?P=mark)*+"  # nor is what continues a line
    r"(?:[ \t]+#{3,})?"  # the left side of a frame
    rf"(?:[ \t]+(?P<setting>(?={_SETTING}|{_ITEM}))?|{_END})"
    rf"|(?<![ \t])[ \t]++#{{3,}}{_END}",  # the right side of a frame
    re.MULTILINE,
)


def comment_edits(text: str) -> list[Edit]:
    """The edits that leave the words of comments; a setting that is switched off keeps its mark."""
    marks = (it for it in _MARK.finditer(text) if not it["quote"])
    kept = ((it, "" if it["setting"] is None else it["mark"]) for it in marks)
    return [Edit(*it.span(), mark, REWRITTEN) for it, mark in kept if it[0] != mark]
