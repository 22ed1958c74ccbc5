"""Translates messages of pages and command line by a catalogue.

The keys are the English messages with placeholders in braces; a message without an entry stays
English. Error messages are already formatted when they are translated, so their templates have
unnamed placeholders: `{}`, `{0}` and `{1}` in translations with another order, `{#}` for a number,
`{~}` for a single word that has an entry itself, as of a state, `{_}` for any other single word;
other single words are names.
All files in `defaults/messages/<language>` form the catalogue of a language.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import orjson

from rag_platform.config.folders import SHIPPED

LANGUAGES = {"en": "English", "zh": "中文"}


def translate(text: str, language: str, **values: Any) -> str:
    """The message in that language, formatted with the values if there are any."""
    template = catalogue(language).get(text, text)
    if not values:
        return template
    return (_make_singular(template, values) if language == "en" else template).format(**values)


_COUNTED = re.compile(r"\{(\w+)\} ([a-z]{2,})s\b")


def _make_singular(template: str, values: Mapping[str, object]) -> str:
    """The English template with singular nouns after the placeholders whose value is 1.

    >>> _make_singular("{hits} hits, {of} misses, {n} retries", {"hits": 1, "of": 1, "n": 2})
    '{hits} hit, {of} miss, {n} retries'
    """

    def agree(counted: re.Match[str]) -> str:
        if str(values.get(counted[1])) != "1":
            return counted[0]
        noun = re.sub("ie$", "y", re.sub("sse$", "ss", counted[2]))
        return f"{{{counted[1]}}} {noun}"

    return _COUNTED.sub(agree, template)


@cache
def catalogue(language: str) -> dict[str, str]:
    """English messages to their translations; empty for English."""
    if language == "en":
        return {}
    found: dict[str, str] = {}
    for file in sorted((SHIPPED / "messages" / language).glob("*.json")):
        found |= orjson.loads(file.read_bytes())
    return found


def choose_language(wanted: str) -> str:
    """The best available language for an `Accept-Language` header, or for a single tag such as
    `zh_CN.UTF-8`; English if there is none.
    """
    ranked: list[tuple[float, int, str]] = []
    for position, part in enumerate(wanted.replace("_", "-").split(",")):
        tag, _, weight = part.strip().partition(";q=")
        try:
            ranked.append((-float(weight or 1), position, tag.partition("-")[0].lower()))
        except ValueError:
            continue
    return next((tag for _, _, tag in sorted(ranked) if tag in LANGUAGES), "en")


def terminal_language() -> str:
    """The language of the command line: `RAG_LANG`, else that of the locale."""
    wanted = (os.environ.get(name) for name in ("RAG_LANG", "LC_ALL", "LC_MESSAGES", "LANG"))
    return choose_language(next(filter(None, wanted), ""))


def translate_filled(message: str, language: str) -> str:
    """A formatted message, translated by the first template that it matches, a report line by
    line; unchanged if it matches none.
    """
    known = catalogue(language)
    if message in known or not known:
        return known.get(message, message)
    several = "\n" in message
    for template, fixed, kinds in _templates(language):
        if several and "\n" not in template:  # a placeholder stands for no line break
            continue
        values = _match(message, fixed, kinds)
        pairs = list(zip(values or (), kinds, strict=False))
        if values is None or any(kind == "~" and value not in known for value, kind in pairs):
            continue
        shown = [known[it] if kind == "~" else _translate_value(it, language) for it, kind in pairs]
        return _fill(known[template], shown)
    if several:
        return "\n".join(translate_filled(line, language) for line in message.split("\n"))
    return message


def _match(message: str, fixed: Sequence[str], kinds: Sequence[str]) -> list[str] | None:
    """The shortest values between the fixed texts; None if the message does not match. In one pass,
    because the values may come from users.
    """
    end = len(message) - len(fixed[-1])
    if not (message.startswith(fixed[0]) and message.endswith(fixed[-1])):
        return None
    values, at = [], len(fixed[0])
    for text in fixed[1:-1]:
        if (found := message.find(text, at, end)) < 0:
            return None
        values.append(message[at:found])
        at = found + len(text)
    values.append(message[at:end])
    pairs = zip(values, kinds, strict=True)
    fits = all(_KINDS[kind].fullmatch(value) for value, kind in pairs if kind in _KINDS)
    return values if at <= end and fits else None


def _fill(template: str, values: Sequence[str]) -> str:
    """The template with its values, a space between Chinese and a number or word beside it."""
    rest = iter(values)

    def fill(at: re.Match[str]) -> str:
        value = values[int(at[1])] if at[1] else next(rest)
        before = " " if _HAN.match(template[: at.start()][-1:]) and _LATIN.match(value) else ""
        after = " " if _HAN.match(template[at.end() :]) and _LATIN.match(value[-1:]) else ""
        return f"{before}{value}{after}"

    return _PLACEHOLDER.sub(fill, template)


_PLACEHOLDER = re.compile(r"\{(\d*|#|~|_)\}")
_HAN, _LATIN = re.compile("[\u4e00-\u9fff]"), re.compile("[0-9A-Za-z]")
_KINDS = {"#": re.compile(r"[\d.,]+"), "_": re.compile(r"\S+")}


@cache
def _templates(language: str) -> list[tuple[str, list[str], list[str]]]:
    """(template, texts between its placeholders, kinds of these) for templates with unnamed
    placeholders, the most specific first: entries of lists and findings of `rag doctor`, then those
    with the longest texts.
    """
    parts = ((text, _PLACEHOLDER.split(text)) for text in catalogue(language))
    found = [(text, part[::2], part[1::2]) for text, part in parts if len(part) > 1]
    lines = ("- ", "Note: ", "ok  ", "warning  ", "error  ")
    return sorted(found, key=lambda it: (not it[0].startswith(lines), -sum(map(len, it[1]))))


def _translate_value(value: str, language: str) -> str:
    """The value of a placeholder, translated if it consists of messages; names are unchanged."""
    if " " not in value and value != "none":
        return value
    if (translated := translate_filled(value, language)) != value:
        return translated
    for between, joined in (("; ", "；"), (", ", "，")):
        parts = value.split(between)
        found = [_translate_value(part, language) for part in parts] if len(parts) > 1 else parts
        if found != parts:
            return joined.join(found)
    return value
