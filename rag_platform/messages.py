"""What people read in another language than English: one catalogue for pages and command line.

English is the source: a message is looked up by its English text, with its places in braces, and
stays English where the catalogue lacks it. An error is a finished text when it reaches whoever
reads it; the places of its template are `{}`, or `{0}`, `{1}` where a language orders them
otherwise; `{#}` stands for a number. The files under `defaults/messages/<language>` together
are the catalogue of a language.
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
    """The message in that language, with the values in its places."""
    shown = catalogue(language).get(text, text)
    if not values:
        return shown
    return (_make_singular(shown, values) if language == "en" else shown).format(**values)


_COUNTED = re.compile(r"\{(\w+)\} ([a-z]{2,})s\b")


def _make_singular(template: str, values: Mapping[str, object]) -> str:
    """The English template with the noun behind each place in the singular that a one will fill.

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
    """English messages to those of the language; empty for English."""
    if language == "en":
        return {}
    found: dict[str, str] = {}
    for file in sorted((SHIPPED / "messages" / language).glob("*.json")):
        found |= orjson.loads(file.read_bytes())
    return found


def choose_language(wanted: str) -> str:
    """The best language that there is for an `Accept-Language` header, or a single tag such as
    `zh_CN.UTF-8`; else English.
    """
    ranked: list[tuple[float, int, str]] = []
    for place, part in enumerate(wanted.replace("_", "-").split(",")):
        tag, _, weight = part.strip().partition(";q=")
        try:
            ranked.append((-float(weight or 1), place, tag.partition("-")[0].lower()))
        except ValueError:
            continue
    return next((tag for _, _, tag in sorted(ranked) if tag in LANGUAGES), "en")


def terminal_language() -> str:
    """The language of the command line: `RAG_LANG`, else that of the locale."""
    wanted = (os.environ.get(name) for name in ("RAG_LANG", "LC_ALL", "LC_MESSAGES", "LANG"))
    return choose_language(next(filter(None, wanted), ""))


def translate_filled(message: str, language: str) -> str:
    """A message whose places are filled already, by the template in the catalogue it was made of;
    one that no template fits, as it is.
    """
    known = catalogue(language)
    if message in known or not known:
        return known.get(message, message)
    for template, fixed, kinds in _templates(language):
        if (values := _match(message, fixed, kinds)) is not None:
            return _fill(known[template], [_translate_value(value, language) for value in values])
    return message


def _match(message: str, fixed: Sequence[str], kinds: Sequence[str]) -> list[str] | None:
    """What stands in the places between the fixed texts, each as short as can be; None where the
    message is not made of them. One pass: whoever asks may have put anything into it.
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
    numbers = (value for value, kind in zip(values, kinds, strict=True) if kind == "#")
    return values if at <= end and all(map(_NUMBER.fullmatch, numbers)) else None


def _fill(template: str, values: Sequence[str]) -> str:
    rest = iter(values)
    return _PLACE.sub(lambda place: values[int(place[1])] if place[1] else next(rest), template)


_PLACE = re.compile(r"\{(\d*|#)\}")
_NUMBER = re.compile(r"[\d.,]+")


@cache
def _templates(language: str) -> list[tuple[str, list[str], list[str]]]:
    """The templates with unnamed places, the most specific first, with the texts between the places
    and the kinds of these.
    """
    parts = ((text, _PLACE.split(text)) for text in catalogue(language))
    found = [(text, part[::2], part[1::2]) for text, part in parts if len(part) > 1]
    return sorted(found, key=lambda item: -sum(map(len, item[1])))


def _translate_value(value: str, language: str) -> str:
    """What stands in a place: a message or several, or names, which no language changes."""
    if " " not in value and value != "none":
        return value
    if (shown := translate_filled(value, language)) != value:
        return shown
    for between, joined in (("; ", "；"), (", ", "，")):
        parts = value.split(between)
        found = [_translate_value(part, language) for part in parts] if len(parts) > 1 else parts
        if found != parts:
            return joined.join(found)
    return value
