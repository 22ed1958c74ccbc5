"""Entries: texts that describe an option, a function or a file, below its name or beside it. The
name is a heading, a line of bold words, as HTML's definition lists become, or the first cell of a
row.
"""

from __future__ import annotations

import re
from functools import lru_cache

# a line of bold words; a bold sentence is none
BOLD_LINE = re.compile(r"\*\*(?=\S)(?:(?!\*\*)[^\n])+(?<![.!。！，])\*\*[:：]?[ \t]*(?=\n|\Z)")
_LINE = re.compile(rf"^(?:{BOLD_LINE.pattern}|#{{1,6}}[ \t]+(?P<heading>[^\n]+))", re.MULTILINE)
ROW_NAME = re.compile(r"[A-Za-z][\w-]*(?:\.\w[\w-]*)*", re.ASCII)
# a row whose first cell is a name, with or without arguments: `name`, **a-b** or @change(value)
_ROW = re.compile(
    rf"\|[ \t]*(?:[*_]{{2}})?`*[@:]?(?P<name>{ROW_NAME.pattern})"
    r"(?:\([^()|\n]*\))?`*(?:[*_]{2})?[ \t]*(?=\|)",
    re.ASCII,
)
# `name`, a.b, a_b, aB, a() or --a
_NAME = re.compile(
    r"(`+)[^`\s]+\1|(?!v?[\d.]+$)(?=\w+[_.(]|[a-z]+[A-Z])[\w.]+(?:\([^()\s]*\))?|`*--?[A-Za-z].*"
)
# `a(b, c)` or @a(b)
_CALL = re.compile(r"(?P<mark>`*)@?(?P<name>[\w.]+)\((?:[^`()]|\([^`()]*\))*\)(?P=mark)")
# or a type or anchor, after a name; white space is tried from its beginning only
_ARGUMENTS = re.compile(r"(?<!\s)\s*[*]{0,3}[(\[={].*|(?<!\s)\s+<.*", re.DOTALL)


@lru_cache(maxsize=4096)
def find_described(heading: str) -> str:
    """The name in a heading or label, without its type or arguments (`work_mem` for "`work_mem`
    (`integer`)"); empty for other headings.
    """
    whole = heading.strip()
    call = _CALL.fullmatch(whole)
    forms = (whole, _ARGUMENTS.sub("", whole), f"{call['name']}()" if call else "")
    return next(filter(_NAME.fullmatch, forms), "").strip("`")


def find_row_name(row: str) -> str:
    """What a row of a table describes, by its first cell; empty where that is not a name."""
    named = _ROW.match(f"|{row.lstrip().removeprefix('|')}|")
    return named["name"] if named else ""


def find_entry_lines(text: str) -> list[str]:
    """The lines of bold words, and the headings that name what is described, in order."""
    return [
        found[0]
        for found in _LINE.finditer(text)
        if found["heading"] is None or find_described(found["heading"])
    ]
