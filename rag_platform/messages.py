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
from collections.abc import Sequence
from functools import cache
from typing import Any

import orjson

from rag_platform.config.folders import SHIPPED

LANGUAGES = {"en": "English", "zh": "中文"}


def translate(text: str, language: str, **values: Any) -> str:
    """The message in that language, with the values in its places."""
    shown = catalogue(language).get(text, text)
    return shown.format(**values) if values else shown


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
    for fixed, pattern, template in _templates(language):
        if not (message.startswith(fixed[0]) and all(part in message for part in fixed)):
            continue
        if found := re.fullmatch(pattern, message, re.DOTALL):
            return _fill(known[template], [_translate_value(v, language) for v in found.groups()])
    return message


def _fill(template: str, values: Sequence[str]) -> str:
    rest = iter(values)
    return _PLACE.sub(lambda place: values[int(place[1])] if place[1] else next(rest), template)


_PLACE = re.compile(r"\{(\d*|#)\}")


@cache
def _templates(language: str) -> list[tuple[list[str], str, str]]:
    """The templates with unnamed places, the most specific first: the text around the places, a
    pattern of the whole, the template.
    """
    found = []
    for template in catalogue(language):
        fixed = _PLACE.split(template)
        if len(fixed) > 1:
            shapes = [r"([\d.,]+)" if kind == "#" else "(.*?)" for kind in fixed[1::2]]
            pattern = "".join(
                re.escape(text) + shape
                for text, shape in zip(fixed[::2], [*shapes, ""], strict=True)
            )
            found.append((fixed[::2], pattern, template))
    return sorted(found, key=lambda item: -sum(map(len, item[0])))


def _translate_value(value: str, language: str) -> str:
    """What stands in a place: a message or several, or names, which no language changes."""
    if " " not in value and value != "none":
        return value
    shown = translate_filled(value, language)
    if shown == value and ", " in value:
        parts = value.split(", ")
        shown = "，".join(translate_filled(part, language) for part in parts)
        return value if shown == "，".join(parts) else shown
    return shown
