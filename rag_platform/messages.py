"""What people read in another language than English: one catalogue for pages and command line.

English is the source: a message is looked up by its English text, with its places in braces, and
stays English where the catalogue lacks it. The files under `defaults/messages/<language>` together
are the catalogue of a language.
"""

from __future__ import annotations

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
