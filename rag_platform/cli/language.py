"""Translates the command line: messages, help, and the few words that click adds."""

from __future__ import annotations

import copy
import inspect
import logging
import re
import unicodedata
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import click

from rag_platform.messages import terminal_language, translate, translate_filled

CommandT = TypeVar("CommandT", bound=click.Command)

# unit of line breaking: a Latin word or a Chinese character, with adjacent punctuation
_PIECE = re.compile(r"\s+|[（“]*(?:[^\s\u2e80-\uffef]+|\S)[，。；：、）！？”]*")
HELP_LINE = 200  # characters of a command's line in a list; click cuts it to the window
_MARK = re.compile("#+ |  +")  # prefix of a heading or of an indented line
_FENCE = re.compile("`{3,}")
_TOLD_BELOW = {"state", "lost", "first now"}  # headings of cells with words of the program
_CELL = re.compile(r"[^|\s](?:[^|]*[^|\s])?")


def say(text: str, **values: Any) -> str:
    """A message in the language of the command line."""
    return translate(text, terminal_language(), **values)


def say_filled(message: str) -> str:
    """A message that already contains its values, e.g. an error's, in the language of the command
    line.
    """
    return translate_filled(message, terminal_language())


def say_lines(text: str) -> str:
    """The same for Markdown, line by line, outside of fenced blocks. In a table, the header is
    translated, and below some headings the words between commas.
    """
    lines = text.split("\n")
    found: list[str] = []
    headings: list[str] = []
    block = ""  # the fence of the block that a line is in
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        if (opened := _FENCE.match(line)) or block:
            block = "" if line == block else block or (opened[0] if opened else "")
            found.append(line)
        elif following.startswith(("|---", "| ---")):
            headings = [cell.strip() for cell in line.split("|")]
            found.append(_CELL.sub(lambda cell: say_filled(cell[0]), line))
        elif line.startswith("| ") and (told := _TOLD_BELOW & {*headings}):
            cells = line.split("|")
            for at in map(headings.index, told):
                words = cells[at].strip().split(", ")
                cells[at] = say(", ").join(map(say_filled, words)).join("  ")
            found.append("|".join(cells))
        else:
            headings = headings if line.startswith("|") else []
            found.append(_say_line(line))
    return "\n".join(found)


def _say_line(line: str) -> str:
    if marks := _MARK.match(line):
        return line[: marks.end()] + say_filled(line[marks.end() :])
    return say_filled(line)


class LogLines(logging.Formatter):
    """Shows what the program logs to a terminal in the language of the command line."""

    def format(self, record: logging.LogRecord) -> str:
        return say_filled(super().format(record))


def localise(command: CommandT) -> CommandT:
    """The command and its subcommands with their help translated; subcommands that are imported
    when used are translated then.
    """
    if terminal_language() == "en":
        for each in _below(command):
            each.short_help = each.short_help or each.get_short_help_str(HELP_LINE)
        return command
    shown = copy.deepcopy(command)
    for each in _below(shown):
        each.context_class = _Context
        if each.help:
            each.help = say(inspect.cleandoc(each.help))
            each.short_help = each.help.partition("。")[0]
        for parameter in each.params:
            if isinstance(parameter, click.Option) and parameter.help:
                parameter.help = say(parameter.help)
    return shown


def _below(command: click.Command) -> Iterator[click.Command]:
    yield command
    # another mapping imports its commands at first access
    if isinstance(command, click.Group) and isinstance(command.commands, dict):
        for each in command.commands.values():
            yield from _below(each)


class _Formatter(click.HelpFormatter):
    """Formats help in a language whose characters are two columns wide."""

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        super().write_usage(prog, args, prefix or say("Usage:"))

    def write_heading(self, heading: str) -> None:
        self.write(f"{'':>{self.current_indent}}{say(heading)}{say(': ').rstrip()}\n")

    def write_text(self, text: str) -> None:
        paragraphs = (_fill(part, self.width - 2) for part in text.split("\n\n"))
        super().write_text("\n\n".join(paragraphs))

    def write_dl(
        self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2
    ) -> None:
        rows = list(rows)
        first = min(max(len(name) for name, _ in rows), col_max) + col_spacing
        width = max(self.width - first - 2, 10)
        filled = [(name, _fill(_translate_row(text), width)) for name, text in rows]
        super().write_dl(filled, col_max, col_spacing)


class _Context(click.Context):
    formatter_class = _Formatter


def _translate_row(text: str) -> str:
    """Translate the words that click itself adds to a row of options, such as `[required]`."""
    head, gap, remarks = text.partition("  [")
    remarks = remarks.replace("required", say("required")).replace("default:", say("default:"))
    return f"{say(head)}{gap}{remarks}"


def _fill(text: str, width: int) -> str:
    """A paragraph wrapped at `width` columns, marked so that click does not rewrap it."""
    lines, used = [""], 0
    for piece in _PIECE.findall(" ".join(text.split("\n"))):
        columns = sum(1 + (unicodedata.east_asian_width(sign) in "WF") for sign in piece)
        if used + columns > width and lines[-1]:
            lines.append("")
            used = 0
            piece = piece.lstrip()
        lines[-1] += piece
        used += columns if piece else 0
    return "\b\n" + "\n".join(line.rstrip() for line in lines)
