"""Records in JSON or JSON Lines, such as questions with answers, terms, messages and the texts of
data sets: the blocks of a text, and the edits that turn it into Markdown.

The facts keep the file unchanged, so that a citation leads to its bytes. In the Markdown each
record is below its title, with its texts as paragraphs and its other fields as a list; escaped
characters are written out. What cannot be read as a record, such as a broken line or a comment, is
code between the others.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any, NamedTuple

from rag_platform.ir import Block, Edit
from rag_platform.loaders.parts import ticks_around
from rag_platform.loaders.restructured import REWRITTEN, fill_gaps

JSON_RECORDS = "json_records"  # parse profile of the facts
_MAX_TITLE = 200  # characters
_MOST_BROKEN = 1000  # parts that are no records
_TITLES = (  # keys, the best first
    "question q 问题 問題 title 标题 標題 headline subject 主题 name 名称 名稱 term 术语 術語 word"
    " 词条 prompt instruction query"
).split()
_TEXTS = frozenset(
    (
        "answer answers a text content body description definition response output completion reply"
        " message msg comment summary context passage paragraph document explanation solution"
        " abstract 答案 回答 答 内容 內容 正文 文本 描述 说明 說明 定义 定義 解释 释义"
    ).split()
)
_BLANKS = re.compile(r"[\s\ufeff]*")
_BETWEEN = re.compile(r"[\s\ufeff,]*")
_AFTER = re.compile(r"[\s\ufeff,]*\]?\s*")
_INDENT = re.compile(r"(?<![^\n])[ \t]*(?=\{)")  # of a record
_ESCAPES = re.compile(r"(?:\\(?:u[0-9a-fA-F]{4}|[^u]))+")
_TOKENS = re.compile(r'(?P<word>"(?:[^"\\]|\\.)*+")|(?P<mark>[,:])|\s+')  # of nested values
_CONTROLS = re.compile(r"[^\S\n\t ]|[\x00-\x08\x0e-\x1f\x7f]|[\ud800-\udfff]")
_decoder = json.JSONDecoder(strict=False)


class _Member(NamedTuple):
    """A key with its value; `start` and `end` are the offsets of the value."""

    key: str
    value: Any
    start: int
    end: int


@dataclass
class _Record:
    """An object; without brackets of its own where it is what is around the others. A broken one
    is text that cannot be read.
    """

    start: int
    end: int
    members: list[_Member] = field(default_factory=list)
    broken: bool = False

    @cached_property
    def title(self) -> _Member | None:
        """The member with the best title."""
        titles = {
            it.key.lower(): it
            for it in self.members
            if isinstance(it.value, str) and 0 < len(it.value.strip()) <= _MAX_TITLE
        }
        return next((titles[key] for key in _TITLES if key in titles), None)

    def shown(self) -> list[_Member]:
        """The members below the title that have a value."""
        return [
            it for it in self.members if it is not self.title and it.value not in (None, "", [], {})
        ]


def record_blocks(text: str) -> list[Block]:
    """The records of a text as headings with what is below them, or as paragraphs if they have no
    title, and code between them that cannot be read, in order and without byte offsets; [] for
    other texts.
    """
    found: list[Block] = []
    for record in _find_records(text):
        if record.broken:
            found.append(Block(0, "code", record.start, record.end))
        elif title := _title_of(record):
            end = next((it.start for it in record.shown()), record.end)
            found.append(Block(0, "heading", record.start, end, 2, title=title))
        elif record.members:
            found.append(Block(0, "paragraph", record.start, record.end))
    return fill_gaps(text, found) if found else []


def record_edits(text: str) -> list[Edit]:
    """The edits that turn records into Markdown, in order and without overlap."""
    edits: list[Edit] = []
    at, mark = 0, ""  # what is written instead of the text from `at` on
    for record in (records := _find_records(text)):
        title = _title_of(record)
        mark = mark.rstrip("\n") + (f"\n\n## {title}\n\n" if title else "\n\n")
        if record.broken:
            ticks = ticks_around(text[record.start : record.end])
            mark = f"{mark if at else mark.lstrip()}{ticks}\n"
            edits.append(Edit(at, record.start, mark, REWRITTEN))
            # apart from the next heading, before which a section ends
            end = f"{text[record.end - 1]}\n{ticks}"
            edits.append(Edit(record.end - 1, record.end, end, REWRITTEN))
            at, mark = record.end, "\n\n"
        for member in record.shown():
            is_text = member.key.lower() in _TEXTS
            before = mark.rstrip("\n") + ("\n\n" if mark.endswith("\n\n") or is_text else "\n")
            mark = before if is_text else f"{before}- {member.key}: "
            inner = isinstance(member.value, str)
            edits.append(Edit(at, member.start + inner, mark if at else mark.lstrip(), REWRITTEN))
            if inner:
                edits += _unescape(text, member.start + 1, member.end - 1)
            elif isinstance(member.value, list | dict):
                edits.append(Edit(member.start, member.end, _write(member, text), REWRITTEN))
            at, mark = member.end - inner, "\n\n" if is_text else "\n"
    end = (mark if at else mark.lstrip()).rstrip()
    return [*edits, Edit(at, len(text), f"{end}\n", REWRITTEN)] if records else []


def _find_records(text: str) -> list[_Record]:
    """The records of a text; none unless there are two, and half of them have a title or text."""
    found = list(_read_records(text, 0))
    rest = _skip(_AFTER, text, found[-1].end) if found else len(text)
    if rest < len(text):
        found.append(_Record(rest, len(text.rstrip()), broken=True))
    if len(found) == 1:
        found = _look_inside(found[0], text)
    named = [it for it in found if it.title or any(m.key.lower() in _TEXTS for m in it.members)]
    return found if len(named) > 1 and 2 * len(named) >= len(found) else []


def _look_inside(root: _Record, text: str) -> list[_Record]:
    """The records of a list that takes up most of an object, with what is before and after it."""
    for number, it in enumerate(root.members):
        if isinstance(it.value, list) and 2 * (it.end - it.start) > len(text):
            before = _Record(root.start, it.start, root.members[:number])
            after = _Record(it.end, root.end, root.members[number + 1 :])
            return [before, *_read_records(text, it.start), after]
    return []


def _read_records(text: str, at: int) -> Iterator[_Record]:
    """The objects of a list, or those one after the other, up to its end. After what cannot be read
    as one, they begin again in the next line with the brace of an object at the same indentation.
    """
    at = _skip(_BLANKS, text, at)
    is_list = text.startswith("[", at)
    at = _skip(_BETWEEN, text, at + is_list)
    indent = _INDENT.search(text, text.rfind("\n", 0, at) + 1)
    begins = re.compile(rf"^\ufeff?{indent[0] if indent else ''}(?=\{{)", re.MULTILINE)
    broken = 0
    while at < len(text) and not (is_list and text.startswith("]", at)):
        try:
            record = _read_record(text, at)
        except (ValueError, RecursionError) as error:
            is_deep = isinstance(error, RecursionError)
            far = len(text) if is_deep else getattr(error, "pos", at)
            broken += 1 + (far - at) * _MOST_BROKEN // (10 * len(text))  # ten at most read it all
            again = begins.search(text, at + 1) if broken < _MOST_BROKEN else None
            end = again.start() if again else len(text)
            record = _Record(at, at + len(text[at:end].rstrip()), broken=True)
        yield record
        at = _skip(_BETWEEN, text, record.end)


def _read_record(text: str, at: int) -> _Record:
    """The object at an offset. Raises ValueError or RecursionError for anything else."""
    record = _Record(at, at)
    if not text.startswith("{", at):
        raise ValueError
    at = _skip(_BLANKS, text, at + 1)
    while not text.startswith("}", at):
        if not text.startswith('"', at):
            raise ValueError
        key, at = scanstring(text, at + 1, False)
        at = _skip(_BLANKS, text, at)
        if not text.startswith(":", at):
            raise ValueError
        start = _skip(_BLANKS, text, at + 1)
        value, end = _decoder.raw_decode(text, start)
        record.members.append(_Member(" ".join(key.split()), value, start, end))
        at = _skip(_BETWEEN, text, end)
    record.end = at + 1
    return record


def _skip(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return found.end() if found else at


def _title_of(record: _Record) -> str:
    title = record.title
    return " ".join(_CONTROLS.sub(" ", title.value).split()) if title else ""


def _unescape(text: str, start: int, end: int) -> Iterator[Edit]:
    """The edits that write out the escaped characters of a string."""
    for escapes in _ESCAPES.finditer(text, start, end):
        characters = _CONTROLS.sub("", scanstring(f'{escapes[0]}"', 0)[0])
        yield Edit(*escapes.span(), characters, REWRITTEN)


def _write(member: _Member, text: str) -> str:
    """A list of words and numbers as these, any other value as JSON, with all numbers unchanged."""
    is_plain = isinstance(member.value, list) and not any(
        isinstance(it, list | dict) for it in member.value
    )

    def write(token: re.Match[str]) -> str:
        if not token["word"]:
            return f"{token['mark']} " if token["mark"] else ""
        word = scanstring(token["word"], 1)[0]
        return word if is_plain else json.dumps(word, ensure_ascii=False)

    start, end = member.start + is_plain, member.end - is_plain
    return _CONTROLS.sub(" ", _TOKENS.sub(write, text[start:end]))
