"""Symbols and operators as terms of the word index: `^=`, `::<>`, `?`, `--flag`, `@app.get`.

Texts are indexed by the symbols in their code: operators in code spans; flags and decorators also
in fences. Questions are also searched for symbols between spaces, except punctuation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from rag_platform.text.markdown_blocks import CODE_SPAN, structure
from rag_platform.text.scripts import HAN

MARK = "§"  # prefix of terms for symbols; no other term begins with it
_SIGN = r"[!$%&*+\-./:<=>?@^|~\\#]"
_CODE_SPAN = re.compile(CODE_SPAN)
_ALONE_IN_CODE = re.compile(r"[^\w\s]{1,8}")
_INSIDE_CODE = re.compile(rf"(?<!{_SIGN}){_SIGN}{{2,4}}(?!{_SIGN})")
_NAMED = re.compile(r"(?<![\w\-@/.])(?:--[A-Za-z][\w-]*|@[A-Za-z]\w*(?:\.\w+)*)")
_STANDING_ALONE = re.compile(rf"(?:(?<=[\s{HAN}])|^){_SIGN}{{2,8}}(?=[\s{HAN},，]|$)")
_PUNCTUATION = re.compile(r"[.!?~*#-]+")
_ADDRESS = re.compile(r"\w+://\S*")


def symbol_terms(text: str) -> list[str]:
    """The symbols in the code of a Markdown text, with repetitions."""
    found = [symbol for span in _CODE_SPAN.finditer(text) for symbol in _of_code(span.group())]
    for run in structure(text) if "```" in text or "~~~" in text else ():
        if run.kind == "fence":
            found += _NAMED.findall(text, run.start, run.end)
    return [MARK + symbol.lower() for symbol in found]


def find_symbols(question: str) -> list[str]:
    """The distinct symbols in a question, as terms.

    >>> find_symbols("what does ^= mean in `1..=5`, and --reload?")
    ['§..=', '§--reload', '§^=']
    >>> find_symbols("Really?! Yes -- it fails... why")
    []
    """
    found = [symbol for span in _CODE_SPAN.finditer(question) for symbol in _of_code(span.group())]
    bare = _ADDRESS.sub(" ", _CODE_SPAN.sub(" ", question)).rstrip(" .?!。？！")
    found += _NAMED.findall(bare)
    found += [
        symbol for symbol in _STANDING_ALONE.findall(bare) if not _PUNCTUATION.fullmatch(symbol)
    ]
    return [MARK + symbol.lower() for symbol in dict.fromkeys(found)]


def _of_code(span: str) -> Iterator[str]:
    """The symbols of a code span: the whole if it has no letters, else operators, flags and
    decorators.
    """
    code = span.strip("`").strip()
    if _ALONE_IN_CODE.fullmatch(code):
        yield code
    else:
        code = _ADDRESS.sub(" ", code)
        yield from _NAMED.findall(code)
        yield from _INSIDE_CODE.findall(_NAMED.sub(" ", code))
