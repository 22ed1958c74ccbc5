"""Source code: the blocks of a text, and the edits that turn it into Markdown.

What has a comment or a docstring becomes a heading with its name, the words of the comment become
text below it, and everything else is code. Read as Markdown as it is, `# words` would be a heading,
and a comment no part of what explains the definition below it. Only the layout of the lines is
read, so that one reader does for many languages.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from operator import attrgetter

from rag_platform.ir import Block, Edit
from rag_platform.loaders.languages import COMMENT_MARKS, DASHES, HASH, SLASHES
from rag_platform.loaders.parts import ticks_around
from rag_platform.loaders.restructured import REWRITTEN

SOURCE_CODE = "source_code"  # parse profile of the facts
# a comment or docstring that may go on over lines
_LONG = re.compile(r"[rRuU]?(?P<open>\"{3}|'{3}|/\*+!?)[ \t]*")
_STAR = re.compile(r"\*(?![*/])[ \t]*")  # at the beginning of its lines
_STRINGS = {  # that may go on over lines
    language: marks
    for languages, marks in (
        ("python|groovy", ('"""', "'''")),
        ("java|kotlin|scala|csharp|swift", ('"""',)),
        ("go|javascript|typescript", ("`",)),
        ("sql", ("$$", "'")),
    )
    for language in languages.split("|")
}
_HEREDOC = re.compile(r"<<[-~]?[ \t]*[\"']?([A-Z][A-Z_]+)")
_SCALAR = re.compile(r"(?:^|[:-][ \t])[ \t]*[|>][-+\d]*[ \t]*(?:#.*)?$")  # of YAML
# begins a definition
_ATTRIBUTE = re.compile(r"@\w|#!?\[|\[\w|template\b[^;{]*>$")
_CLOSES = re.compile(r"[)\]}{]|(?:end|else|elif|except|finally|catch|where)\b")
_TYPES = r"class|interface|struct|enum|union|namespace|record"
_KEYWORDS = (
    rf"{_TYPES}|trait|message|service|rpc|oneof|extend|type|input|scalar|fn|func|function|def|fun"
    r"|sub|module|package|object|protocol|mod|resource|data|variable|output|provider|table|view"
    r"|procedure|index|trigger|schema|sequence|extension|column|const|let|var|val"
)
# no names where a name may stand, but for members: `public: boolean`, `bool public = 1`, `int (`
_RESERVED = (
    rf"(?!(?:{_TYPES}|abstract|async|bool|boolean|char|class|const|double|export|final|float|fn|int"
    r"|long|private|protected|pub|public|static|template|throws|typedef|unsafe|virtual|void)"
    r"\b(?!\s*(?:\(|\??:\s*\S|=\s*\d)))"
)
_MODIFIERS = r"(?:[\w()@]+\s+){0,5}?"
_NAME = r"[\w$.]+(?:(?:::|-)\w+)*"
_BRACKETS = r"(?:<(?:[^<>]|<[^<>]*>)*>)"
_NAMED = re.compile(
    rf"{_MODIFIERS}(?:(?:{_KEYWORDS})\s+|#\s*define\s+"
    rf"|impl(?:{_BRACKETS}|\s)\s*(?:{_NAME}{_BRACKETS}? for &?)?)"
    r"(?:\([^()]*\)\s*|if not exists\s+|<[^<>]*>\s*|:(?=\w))?"
    rf"(?P<name>{_RESERVED}{_NAME}|\"[^\"]+\"(?: \"[^\"]+\")?)",
    re.IGNORECASE,
)
# where `struct a b` is no type, but a variable
_TYPED = ("c", "cpp", "java", "csharp")
_NAMED_TYPE = re.compile(
    rf"{_MODIFIERS}(?:(?:{_TYPES})\s+|#\s*define\s+(?=\w+(?P<macro>)))"
    rf"(?P<name>{_RESERVED}{_NAME})(?=(?(macro)|\s*(?:$|[;:<(]|extends|implements|permits|final)))"
)
_KEY = re.compile(
    r"- (?:name|id)\s*:\s+[\"']?(?P<item>[\w./$-][^\"'#]*[^\"'#\s])"
    r"|(?:- )?[\"']?(?P<name>[\w./${}-]+)[\"']?\s*:(?=\s|$)"
)
# the first and the last word before what is not the name: `Name string` and `string name = 1`
_FIRST = re.compile(
    r"(?:(?:export|ARG|ENV)\s+)?(?P<name>(?!(?:const|var|type|func)\s*\()[\w.-][\w.$-]*)"
)
_GENERIC = r"<(?:[^<>()]|<(?:[^<>()]|<[^<>()]*>)*>)*>(?=[\s*&\[\]]*\w)"
_LAST = re.compile(
    rf"(?:[^=({{;:?!<]|::|{_GENERIC})*?(?<![\w$:])(?P<name>{_RESERVED}[\w$]+(?:::~?[\w$]+)*)"
    rf"[\s?!]*(?:[=({{;,]|:(?!:)|(?!{_GENERIC})<|\[\w*\]\s*[;=,{{]|$)"
)
_POINTER = re.compile(r"[^()]*\(\s*(?:\w+\s+)?\*?\s*(?P<name>\w+)\s*\)\s*\(")  # `int (*name)(`
# a type on a line of its own, and what it is the type of
_TYPE = re.compile(r"[\w:<>*&\s]+$")
_CALLED = re.compile(r"[\w:~]+\s*\(")
# whose members may be described; the inside of a function is code
_CONTAINER = re.compile(rf"\b(?:{_TYPES}|trait|impl|object|mod|extend)\b")
# only a part of what its name stands for, described elsewhere
_PART = re.compile(rf"{_MODIFIERS}(?:impl|extension|namespace|module|mod|package)\b(?![:?=(])")
_FUNCTION = re.compile(rf"{_MODIFIERS}(?:def|sub)\s[^(=]*$")  # without parameters
# words behind code, but for a tool or of a version or a number alone
_FOR_TOOLS = (
    r"(?:noqa|nosec|nolint|eslint|prettier|istanbul|pylint|pragma|\w+: ?ignore)\b"
    r"|v?\d[\d.]*\s*(?:\*/)?$"
)
_TRAILS = {
    language: re.compile(
        rf"[^\s\\].*?[\w)\]}},;'\"*][ \t]+{mark}[ \t]*(?!{_FOR_TOOLS})\w", re.IGNORECASE
    )
    for marks, mark in ((HASH, r"#+:?"), (SLASHES, r"(?://[/!]?<?|/\*+!?<?)"), (DASHES, "--+"))
    for language, it in COMMENT_MARKS.items()
    if it is marks
}
_SCRIPTS = ("makefile", "shell", "dockerfile")  # most lines are commands
_SETS = re.compile(r"(?:(?:export|ARG|ENV)\s+)?[\w.-]+\s*[:?+]?[:=]")
_STATEMENT = re.compile(
    r"(?:if|for|while|try|with|return|import|from|use|raise|assert|else|elif|switch|package|using"
    r"|#\s*(?!define)\w+|include|del|print|echo|set|exit|do|done|fi|esac|case|goto|throw"
    r"|syntax|option|\d\w*,\s*-?\d\w*)\b"
)
# a tag, or the title of a part, in a comment; a line below or around one; what begins an example
_LABELS = re.compile(r"[@:]\w+|#+[ \t]+(?P<title>\S.*)")
_RULE = re.compile(r"([-=~*#_])\1{3,}[ \t]*$")
_EXAMPLE = re.compile(r"(?!\.\.).*::$|\.\. code")
_MOST_INDENT = 3  # more would begin code in Markdown
# a value in a comment of YAML that is switched off
_SETTING = re.compile(r"(?:- )?[a-z][\w.\"-]*:(?:$| \S+$)|[{}\[\]]")
_NAME_FIRST = ("go", "sql", "makefile", "dockerfile", "shell", "graphql")
_SQL = re.compile(
    r"(?:create|alter|drop|grant|revoke|comment|insert|update|delete|select|from|where|begin|end|do"
    r"|as|declare|perform|returns?|storage|language|primary|foreign|unique|constraint|check|values"
    r"|with|and|or|on|(?:left|right|full|inner|outer|cross)? *join|(?:left|right|full) outer"
    r"|(?:group|order|partition) by|having|limit \d+|union|case|when|then|else|parallel)\b",
    re.IGNORECASE,
)
_MAX_LEVEL = 6
_MAX_NAME = 200  # characters


@dataclass(slots=True)
class _Line:
    start: int
    end: int  # without the line end
    column: int
    begin: int  # of the code, or of the words of a comment
    stop: int
    kind: str = "code"  # code | prose | rule (of a comment) | blank
    level: int = 0  # of the heading above the line
    title: str = ""


@dataclass(slots=True)
class _Scope:
    """A definition around the lines that follow."""

    column: int
    names: tuple[str, ...]  # the outer ones first; without its own where it has none
    level: int  # of its heading
    is_container: bool  # no function, whose inside is code below its parameters
    is_open: bool  # whether its members may be described
    line: int  # where it begins, with its comment and attributes; -1 with no heading to write


@dataclass
class _Reader:
    """Reads the lines of a text once."""

    text: str
    language: str
    lines: list[_Line] = field(default_factory=list)
    scopes: list[_Scope] = field(default_factory=list)
    comment: int | None = None  # the line where the comment above begins
    attribute: int | None = None
    previous: str = ""  # the last line of code
    column: int = 0  # of the last definition
    titled: int = -1  # of the last one with a heading

    def read(self) -> list[_Line]:
        """The lines, with their kinds and headings."""
        for match in re.finditer(r"[^\r\n]+|(?<=\n)(?=\r?\n)", self.text):
            (start, end), words = match.span(), match[0]
            width = len(words) - len(words.lstrip())
            self.lines.append(_Line(start, end, width, start + width, end))
        at = 0
        while at < len(self.lines):
            at = self._read_line(at)
        return self.lines

    def _read_line(self, at: int) -> int:
        """Read a line, or several that belong together; returns the next one."""
        line = self.lines[at]
        words = self.text[line.start + line.column : line.end].rstrip()
        if not words:
            line.kind, self.comment, self.attribute = "blank", None, None
            return at + 1
        opened = _LONG.match(words)
        # a docstring may also stand below an attribute, in the same column
        column = line.column + (opened is not None and self._is_below_attribute(at))
        while self.scopes and self.scopes[-1].column >= column and not _CLOSES.match(words):
            self.scopes.pop()
        if words.startswith(")"):
            for scope in self.scopes:
                scope.is_open &= scope.is_container or scope.column != line.column
        is_member = not self.scopes or self.scopes[-1].is_open
        if opened and self._begins_comment(opened["open"], line):
            return self._read_long(at, opened, is_member=is_member)
        if mark := COMMENT_MARKS[self.language].match(words):
            if is_member and not (self.language == "yaml" and _SETTING.match(words[mark.end() :])):
                self._write_prose(line, line.begin + mark.end())
                self.comment = at if self.comment is None else self.comment
            return at + 1
        if is_member and not _CLOSES.match(words):
            if _ATTRIBUTE.match(words) or self._is_type(at, words):
                self.attribute = at if self.attribute is None else self.attribute
                return at + 1
            self._define(at, words)
        self.comment = self.attribute = None
        self.previous = words
        return self._skip_string(at, words)

    def _is_type(self, at: int, words: str) -> bool:
        """True for a type on a line of its own, above the name of a function."""
        return (
            self.language in ("c", "cpp")
            and _TYPE.match(words) is not None
            and _CALLED.match(self._words(at + 1) if at + 1 < len(self.lines) else "") is not None
        )

    def _is_below_attribute(self, at: int) -> bool:
        """True for a line of Python right below what it may describe."""
        above = self.lines[at - 1]
        place = (above.kind, above.column)
        return self.language == "python" and place == ("code", self.lines[at].column)

    def _begins_comment(self, mark: str, line: _Line) -> bool:
        """True for a mark that begins a comment, or a docstring at the start of a file or right
        below a definition.
        """
        if mark.startswith("/"):
            return COMMENT_MARKS[self.language] is not HASH
        if self.language == "python":
            if not self.scopes:
                return line.column == 0 and not self.previous
            return self.previous.endswith(":") or self.scopes[-1].column == line.column
        return self.language == "graphql" and mark == '"' * 3

    def _read_long(self, at: int, opened: re.Match[str], *, is_member: bool) -> int:
        """Read a comment or docstring, which stays code among code; returns the next line."""
        mark = opened["open"]
        close = "*/" if mark.startswith("/") else mark
        begin = self.lines[at].begin + opened.end()
        found = self.text.find(close, begin)
        last = bisect_right(self.lines, found, lo=at, key=attrgetter("start")) - 1
        if found < 0:
            return len(self.lines)
        is_doc = self.language == "python"
        after = self.text[found + len(close) : self.lines[last].end].strip()
        if after or not (is_member or is_doc):
            return last + 1
        if is_doc and self.scopes:
            self._write_heading()
        elif not is_doc and self.comment is None:
            self.comment = at
        self.lines[last].stop = found
        for line in self.lines[at : last + 1]:
            star = _STAR.match(self.text, line.begin, line.stop) if close == "*/" else None
            self._write_prose(line, star.end() if star else line.begin)
        self._write_prose(self.lines[at], begin)
        return last + 1

    def _write_prose(self, line: _Line, begin: int) -> None:
        """Let the words of a comment begin at an offset; a line of marks has none."""
        line.kind, line.begin = "prose", begin
        if _RULE.match(self.text, begin, line.stop):
            line.kind, line.begin = "rule", line.stop

    def _define(self, at: int, words: str) -> None:
        """Note what a line defines. It gets a heading for the comment right above, and where what
        is above describes something else.
        """
        line = self.lines[at]
        name, is_sure = self._find_name(words)
        outer, level = (self.scopes[-1].names, self.scopes[-1].level) if self.scopes else ((), 1)
        is_call = self.language != "yaml" and "(" in words.rstrip("(")
        is_container = _CONTAINER.search(words.split("(")[0]) is not None
        is_open = is_container or not (is_call or _FUNCTION.match(words))
        goes_on = line.column == self.column and self.lines[at - 1].kind != "blank"
        if not name:
            self.scopes.append(_Scope(line.column, outer, level, is_container, is_open, -1))
            return
        is_described = self.comment is not None or (
            (is_sure or not is_call)
            and (self.language not in _SCRIPTS or (not line.column and _SETS.match(words)))
            and _TRAILS[self.language].match(words) is not None
        )
        if _PART.match(words) and not is_described:
            scope = _Scope(line.column, (*outer, name), level, is_container, is_open, -1)
            self.scopes.append(scope)
            self.column = line.column
            return
        begins = (it for it in (self.comment, self.attribute, at) if it is not None)
        names = *outer, name
        self.scopes.append(
            _Scope(line.column, names, level + 1, is_container, is_open, next(begins))
        )
        if is_described or (not goes_on and (is_sure or line.column <= self.titled)):
            self._write_heading()
        self.column = line.column

    def _write_heading(self) -> None:
        """Write the headings of the scopes that have none yet."""
        for it in self.scopes:
            if it.line >= 0:
                line = self.lines[it.line]
                line.level, line.title = min(it.level, _MAX_LEVEL), ".".join(it.names)
                it.line, self.titled = -1, it.column

    def _find_name(self, words: str) -> tuple[str, bool]:
        """The name that a line defines, or "", and whether it needs a heading without a comment."""
        if self.language == "yaml":
            key = _KEY.match(words)
            is_item = words.startswith("-") and self.comment is None  # called by no other key
            if key is None or (is_item and not key["item"]):
                return "", False
            is_outer = key.end() == len(words) and len(self.scopes) < 3
            return (key["item"] or key["name"])[:_MAX_NAME], is_outer
        if _STATEMENT.match(words):
            return "", False
        words = words[:_MAX_NAME]
        pattern = _NAMED_TYPE if self.language in _TYPED else _NAMED
        if named := pattern.match(words.split("=")[0].split("{")[0]):
            return named["name"].replace('"', ""), True
        if (self.language == "sql" and _SQL.match(words)) or (
            self.language == "dockerfile" and not words.startswith(("ARG ", "ENV "))
        ):
            return "", False
        if self.language in ("c", "cpp") and (named := _POINTER.match(words)):
            return named["name"], False
        named = (_FIRST if self.language in _NAME_FIRST else _LAST).match(words)
        return named["name"] if named else "", False

    def _skip_string(self, at: int, words: str) -> int:
        """The line after the string that a line begins, whose lines may look like anything."""
        following = range(at + 1, len(self.lines))
        is_script = COMMENT_MARKS[self.language] is HASH  # elsewhere `<<` shifts
        if is_script and (heredoc := _HEREDOC.search(words)):
            return next((n + 1 for n in following if self._words(n) == heredoc[1]), len(self.lines))
        if self.language == "yaml" and _SCALAR.search(words):
            column = self.lines[at].column
            ends = (n for n in following if self._words(n) and self.lines[n].column <= column)
            return next(ends, len(self.lines))
        code = words.split("--")[0] if self.language == "sql" else words
        if mark := next((it for it in _STRINGS.get(self.language, ()) if code.count(it) % 2), ""):
            ends = (n + 1 for n in following if self._words(n).count(mark) % 2)
            return next(ends, len(self.lines))
        return at + 1

    def _words(self, at: int) -> str:
        return self.text[self.lines[at].start : self.lines[at].end].strip()


def source_blocks(text: str, language: str) -> list[Block]:
    """The headings, comments and code of a text, without byte offsets."""
    blocks: list[Block] = []
    at = 0
    for run in _collect_runs(text, language):
        first = run[0]
        if first.title:
            span = at, max(first.begin, at + 1)
            blocks.append(Block(len(blocks), "heading", *span, first.level, title=first.title))
            at = span[1]
        kind = "code" if first.kind == "code" else "paragraph"
        blocks.append(Block(len(blocks), kind, at, run[-1].stop))
        at = run[-1].stop
    if blocks:
        blocks[-1] = replace(blocks[-1], end=len(text.rstrip()))
    return blocks


def source_edits(text: str, language: str) -> list[Edit]:
    """The edits that turn source code into Markdown, in order and without overlap."""
    edits: list[Edit] = []
    at = 0
    for run in _collect_runs(text, language):
        first = run[0]
        begin = max(at, first.begin)
        lead = "\n\n" if at else ""
        lead += f"{'#' * first.level} `{first.title}`\n\n" if first.title else ""
        if first.kind == "code":
            code = text[first.start : run[-1].end]
            mark = ticks_around(code)
            lead += f"{mark}{language}\n"
        if first.title and begin == at:
            begin += 1  # the heading has no other character
            lead += text[begin - 1]
        edits.append(Edit(at, begin, lead, REWRITTEN))
        at = run[-1].stop
        if first.kind == "code":
            least = min(line.column for line in run if line.kind == "code")
            spans = ((line.start, line.start + min(least, line.column)) for line in run[1:])
            edits += [Edit(*span, "", REWRITTEN) for span in spans]
            edits.append(Edit(at - 1, at, f"{text[at - 1]}\n{mark}", REWRITTEN))
        else:
            edits += _comment_edits(text, run)
    edits.append(Edit(at, len(text), "\n", REWRITTEN))
    return [it for it in edits if text[it.start : it.end] != it.replacement]


def _comment_edits(text: str, run: list[_Line]) -> Iterator[Edit]:
    """The edits of the lines of a comment below its first one."""
    words = [text[line.begin : line.stop].strip() for line in run]
    indents = [
        line.begin - line.start - len(text[line.start : line.begin].rstrip()) for line in run
    ]
    least = min((it for it, word in zip(indents[1:], words[1:], strict=True) if word), default=0)
    example: int | None = None  # the indent of the words above it, -1 in a fence
    for at, line in enumerate(run[1:], 1):
        below = run[at + 1] if at + 1 < len(run) else line
        if example is not None and words[at] and indents[at] <= example:
            example = None
        marked = _LABELS.match(words[at]) if example is None else None
        title = marked["title"] if marked else None
        if below.kind == "rule" and example is None:
            title = title or words[at]
        if words[at].startswith("```"):
            example = None if example == -1 else -1
        elif example is None and _EXAMPLE.match(words[at]):
            example = indents[at]
        # more than one blank line in a row would be cut, with what is in the edit
        lead = "\n" if words[at - 1] and (marked or title) else ""
        if title:
            follow = "\n" if below.begin < below.stop and below is not line else ""
            yield Edit(line.start, line.stop, f"{lead}**{title}**{follow}", REWRITTEN)
        else:
            indent = max(0, indents[at] - least) if words[at] else 0
            kept = indent if example is not None else min(indent, _MOST_INDENT)
            yield Edit(line.start, line.begin, lead + " " * kept, REWRITTEN)


def _collect_runs(text: str, language: str) -> Iterator[list[_Line]]:
    """Lines that follow each other and are of one kind; a heading begins one."""
    run: list[_Line] = []
    empty: list[_Line] = []
    title, level = "", 0
    for line in _Reader(text, language).read():
        title, level = line.title or title, line.level or level
        if line.begin >= line.stop:
            empty.append(line)
            continue
        gap = line.kind == "prose" and any(it.kind == "blank" for it in empty)
        if run and (title or gap or line.kind != run[0].kind):
            yield run
            run = []
        line.title, line.level, title, level = title, level, "", 0
        run += [*(empty if run else ()), line]
        empty = []
    if run:
        yield run
