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
from rag_platform.loaders.parts import longest_ticks
from rag_platform.loaders.restructured import REWRITTEN

PROFILE = "source_code"  # parse profile of the facts
_HASH = re.compile(r"#++(?![!\[\w])[ \t]*(?:-- )?")  # in Helm `# -- words`
_SLASHES = re.compile(r"//[/!]*+[ \t]*")
_DASHES = re.compile(r"--+[ \t]*")
_MARKS = {  # of a line that is a comment, by language
    language: mark
    for languages, mark in (
        ("python|shell|powershell|ruby|perl|r|yaml|makefile|dockerfile|cmake", _HASH),
        ("terraform|graphql", _HASH),
        ("javascript|typescript|java|kotlin|scala|groovy|go|rust|c|cpp|csharp", _SLASHES),
        ("php|swift|protobuf", _SLASHES),
        ("sql|lua", _DASHES),
    )
    for language in languages.split("|")
}
LANGUAGES = frozenset(_MARKS)
# a comment or docstring that may go on over lines
_LONG = re.compile(r"[rRuU]?(?P<open>\"{3}|'{3}|/\*+!?)[ \t]*")
_STAR = re.compile(r"\*(?![*/])[ \t]?")  # at the beginning of its lines
_STRINGS = {  # that may go on over lines
    "python": ('"""', "'''"),
    "go": ("`",),
    "javascript": ("`",),
    "typescript": ("`",),
}
_HEREDOC = re.compile(r"<<[-~]?[ \t]*[\"']?([A-Z][A-Z_]+)")
_SCALAR = re.compile(r"(?:^|[:-][ \t])[ \t]*[|>][-+\d]*[ \t]*(?:#.*)?$")  # of YAML
_ATTRIBUTE = re.compile(r"@\w|#!?\[|\[\w")  # begins a definition
_CLOSES = re.compile(r"[)\]}{]|(?:end|else|elif|except|finally|catch)\b")
_KEYWORD = (
    r"(?:class|interface|struct|enum|union|trait|message|service|rpc|oneof|extend|type|input"
    r"|scalar|fn|func|function|def|fun|sub|module|namespace|package|object|record|protocol|mod"
    r"|table|view|procedure|resource|data|variable|output|provider|const|static|let|var|val)"
)
_NAMED = re.compile(
    rf"(?:^|\s)(?:{_KEYWORD}\s+|(?=impl\b))(?:\([^()]*\)\s*|if not exists\s+|<[^<>]*>\s*)?"
    r"(?P<name>(?:impl(?:<[^<>]*>)?\s+)?[\w$.]+(?: for \w+)?|\"[^\"]+\"(?: \"[^\"]+\")?)",
    re.IGNORECASE,
)
# the first and the last word before what is not the name: `Name string` and `string name = 1`
_KEY = re.compile(r"[ \t]*(?:- )?[\"']?(?P<name>[\w./$-]+)[\"']?\s*:(?=\s|$)")
_FIRST = re.compile(r"[ \t]*(?:export[ \t]+)?(?P<name>[\w.$-]+)")
_LAST = re.compile(r"[^=({;:?!<]*?(?P<name>[\w$]+)[\s?!]*(?:[=({;:<,]|$)")
# whose members may be described; the inside of a function is code
_CONTAINER = re.compile(
    r"\b(?:class|interface|struct|enum|union|trait|impl|namespace|object|record|mod|extend)\b"
)
_STATEMENT = re.compile(
    r"(?:if|for|while|try|with|return|import|from|use|raise|assert|else|elif|switch|package|using"
    r"|#\w+|include|del|print|echo|set|exit|do|done|fi|esac|case|goto|throw|syntax|option)\b"
)
# a tag, or the title of a part, in a comment
_LABELS = re.compile(r"[@:]\w+|#+[ \t]+(?P<title>\S.*)")
# a value in a comment of YAML that is switched off
_SETTING = re.compile(r"(?:- )?[a-z][\w.\"-]*:(?:$| \S+$)|[{}\[\]]")
_NAME_FIRST = ("go", "sql", "makefile", "dockerfile", "shell", "graphql")
_MAX_LEVEL = 6


@dataclass(slots=True)
class _Line:
    start: int
    end: int  # without the line end
    column: int
    begin: int  # of the code, or of the words of a comment
    stop: int
    kind: str = "code"  # code | prose | blank
    level: int = 0  # of the heading above the line
    title: str = ""


@dataclass(slots=True)
class _Scope:
    """A definition around the lines that follow."""

    column: int
    names: tuple[str, ...]  # the outer ones first; empty without a name
    is_open: bool  # whether its members may be described
    line: int  # where it begins, with its comment and attributes; -1 with a heading


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
        while self.scopes and self.scopes[-1].column >= line.column and not _CLOSES.match(words):
            self.scopes.pop()
        is_member = not self.scopes or self.scopes[-1].is_open
        if (opened := _LONG.match(words)) and self._begins_comment(opened["open"], line):
            return self._read_long(at, opened, is_member=is_member)
        if mark := _MARKS[self.language].match(words):
            if is_member and not (self.language == "yaml" and _SETTING.match(words[mark.end() :])):
                line.kind, line.begin = "prose", line.begin + mark.end()
                self.comment = at if self.comment is None else self.comment
            return at + 1
        if is_member and not _CLOSES.match(words):
            if _ATTRIBUTE.match(words):
                self.attribute = at if self.attribute is None else self.attribute
                return at + 1
            self._define(at, words)
        self.comment = self.attribute = None
        self.previous = words
        return self._skip_string(at, words)

    def _begins_comment(self, mark: str, line: _Line) -> bool:
        """True for a mark that begins a comment, or a docstring at the start of a file or right
        below a definition.
        """
        if mark.startswith("/"):
            return _MARKS[self.language] is _SLASHES
        if self.language == "python":
            below = self.scopes and self.previous.endswith(":")
            return bool(below) or (line.column == 0 and not self.previous)
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
            self._write_heading(self.scopes[-1])
        elif not is_doc and self.comment is None:
            self.comment = at
        self.previous = self.previous or mark
        for line in self.lines[at : last + 1]:
            line.kind = "prose"
            if close == "*/" and (star := _STAR.match(self.text, line.begin, line.stop)):
                line.begin = star.end()
        self.lines[at].begin = begin
        self.lines[last].stop = max(found, self.lines[last].start)
        return last + 1

    def _define(self, at: int, words: str) -> None:
        """Note what a line defines. It gets a heading for the comment right above, and where what
        is above describes something else.
        """
        line = self.lines[at]
        name, is_sure = self._find_name(words)
        outer = self.scopes[-1].names if self.scopes else ()
        is_call = self.language != "yaml" and "(" in words.rstrip("(")
        is_open = not is_call or _CONTAINER.search(words) is not None
        begin = at if self.attribute is None else self.attribute
        goes_on = line.column == self.column and self.lines[at - 1].kind != "blank"
        scope = _Scope(line.column, (*outer, name) if name else (), is_open, begin)
        self.scopes.append(scope)
        if self.comment is not None:
            scope.line = self.comment
        if (name and scope.line == self.comment) or (
            name and not goes_on and (is_sure or line.column <= self.titled)
        ):
            self._write_heading(scope)
        self.column = line.column

    def _write_heading(self, scope: _Scope) -> None:
        """Write the heading of a scope, and of those around it, that have none."""
        for it in self.scopes[: self.scopes.index(scope) + 1]:
            if it.line >= 0 and it.names:
                line = self.lines[it.line]
                line.level, line.title = min(len(it.names) + 1, _MAX_LEVEL), ".".join(it.names)
                it.line, self.titled = -1, it.column

    def _find_name(self, words: str) -> tuple[str, bool]:
        """The name that a line defines, or "", and whether it needs a heading without a comment."""
        if self.language == "yaml":
            key = _KEY.match(words)
            is_outer = key is not None and key.end() == len(words) and len(self.scopes) < 3
            return key["name"] if key else "", is_outer
        if _STATEMENT.match(words):
            return "", False
        if named := _NAMED.search(words.split("=")[0].split("{")[0]):
            return named["name"].replace('"', ""), True
        named = (_FIRST if self.language in _NAME_FIRST else _LAST).match(words)
        return named["name"] if named else "", False

    def _skip_string(self, at: int, words: str) -> int:
        """The line after the string that a line begins, whose lines may look like anything."""
        following = range(at + 1, len(self.lines))
        is_script = _MARKS[self.language] is _HASH  # elsewhere `<<` shifts
        if is_script and (heredoc := _HEREDOC.search(words)):
            return next((n + 1 for n in following if self._words(n) == heredoc[1]), len(self.lines))
        if self.language == "yaml" and _SCALAR.search(words):
            column = self.lines[at].column
            ends = (n for n in following if self._words(n) and self.lines[n].column <= column)
            return next(ends, len(self.lines))
        if mark := next((it for it in _STRINGS.get(self.language, ()) if words.count(it) % 2), ""):
            return next((n + 1 for n in following if mark in self._words(n)), len(self.lines))
        return at + 1

    def _words(self, at: int) -> str:
        return self.text[self.lines[at].start : self.lines[at].end].strip()


def source_blocks(text: str, language: str) -> list[Block]:
    """The headings, comments and code of a text, without byte offsets."""
    blocks: list[Block] = []
    at = len(text) - len(text.lstrip())
    for run in _collect_runs(text, language):
        first, begin = run[0], max(at, run[0].begin)
        if first.title and begin > at:
            span = at, begin
            blocks.append(Block(len(blocks), "heading", *span, first.level, title=first.title))
            at = begin
        kind = "code" if first.kind == "code" else "paragraph"
        blocks.append(Block(len(blocks), kind, at, run[-1].stop))
        at = run[-1].stop
    if blocks:
        blocks[-1] = replace(blocks[-1], end=len(text.rstrip()))
    return blocks


def source_edits(text: str, language: str) -> list[Edit]:
    """The edits that turn source code into Markdown, in order and without overlap."""
    edits: list[Edit] = []
    at = len(text) - len(text.lstrip())
    for run in _collect_runs(text, language):
        first = run[0]
        lead = "\n\n" if edits else ""
        lead += f"{'#' * first.level} `{first.title}`\n\n" if first.title else ""
        close = ""
        if first.kind == "code":
            code = text[first.start : run[-1].end]
            mark = "`" * max(3, 1 + longest_ticks(code))
            lead, close = f"{lead}{mark}{language}\n", f"\n{mark}"
            least = min(line.column for line in run if line.kind == "code")
            spans = [(line.start, line.start + min(least, line.column)) for line in run]
        else:
            spans = [(line.start, line.begin) for line in run]
        edits.append(Edit(at, max(at, first.begin), lead, REWRITTEN))
        for line, (start, end) in zip(run[1:], spans[1:], strict=True):
            marked = _LABELS.match(text, line.begin, line.stop) if line.kind == "prose" else None
            if marked and (title := marked["title"]):  # of a part of a comment
                edits.append(Edit(start, line.stop, f"\n**{title}**\n", REWRITTEN))
            else:
                edits.append(Edit(start, end, "\n" if marked else "", REWRITTEN))
        at = run[-1].stop
        if close:
            edits.append(Edit(at - 1, at, text[at - 1] + close, REWRITTEN))
    edits.append(Edit(at, len(text), "\n", REWRITTEN))
    return [it for it in edits if text[it.start : it.end] != it.replacement]


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
