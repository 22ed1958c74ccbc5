"""Filters and preferences told from the words of a question by rules, in Chinese and English (seed 004, WhereBuilder; seed 000 §3.2.5).

A filter removes results, so one is told only from wording that asks for it: an aside that stands alone (`…, PDF only`; `只看中文`), an
opening (`In the English docs: …`; `英文资料：…`), or a noun of documents beside the condition (`近一周的文档`; `documents since 2025-01`).
`How do I export to PDF?` and `近一周股价` tell nothing. Its words are taken out of the text that is searched; those of a preference stay,
for they may well stand in the passages too.

Periods that end now (`近一周`) are counted by `created_at`, when the library received a version; calendar dates (`2024年的文档`) by
`doc_date`, the document's own date where it has one.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta

from rag_platform.config_query import InferenceConfig
from rag_platform.ir import Json
from rag_platform.retrieval.inference_patterns import PREFERENCES, rules
from rag_platform.retrieval.inference_words import LANGUAGES, MEDIA_TYPES, NUMBERS, SIMPLIFIED, TYPES

_BLANKS = re.compile(r"\s{2,}")
_BLANK_BEFORE = re.compile(r"\s+(?=[?!？！。,，;；])")
# What taking words out may leave at the ends, and brackets around nothing.
_EMPTY_BRACKETS = re.compile(r"[(（\[【]\s*[)）\]】]")
_EDGES = " \t,，。.;；:：、-|"
_MARGINS = _EDGES + "()（）[]【】?？!！"
_DAYS = {"day": 1, "week": 7, "month": 30, "year": 365, "天": 1, "日": 1, "周": 7, "星期": 7, "礼拜": 7, "月": 30, "年": 365}
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_LONGEST_DAYS = 36_500
MAX_CHARS = 400  # of a question; a longer text is a passage that somebody asks about, whose words are no conditions
Found = tuple[str, object]  # a field and its condition


@dataclass(frozen=True, slots=True)
class Inferred:
    """What a question asks for besides its subject."""

    filters: Json = field(default_factory=dict)  # hard, by the catalog's field names
    preferences: tuple[str, ...] = ()  # of filters.SOFT_FIELDS
    rest: str = ""  # the question without the words of its filters; the whole of it when nothing would be left
    said: tuple[str, ...] = ()  # one sentence for each filter


def inferred(text: str, *, today: date, config: InferenceConfig) -> Inferred:
    """The filters on `config.fields` and the preferences that a cleaned question asks for; of two for one field the first counts.

    Whether anything is to be inferred (`config.enabled`) is for the caller to say. A text above MAX_CHARS asks for nothing.
    """
    if len(text) > MAX_CHARS:
        return Inferred(rest=text)
    names = _names_of(config)
    filters: Json = {}
    said: list[str] = []
    rest, lowered = text, text.translate(SIMPLIFIED).lower()
    for rule in rules(names.known):
        for pattern in rule.patterns() if rule.may_match(lowered) else ():
            match = pattern.search(rest.translate(SIMPLIFIED))
            found = _READERS[rule.reader](_Told(match, rest, names, today)) if match else None
            if match is None or found is None or found[0] not in config.fields or found[0] in filters:
                continue
            filters[found[0]] = found[1]
            start, end = match.span("said")
            said.append(f"`{rest[start:end].strip(_MARGINS)}` asks for {shown(*found)}")
            rest = f"{rest[:start]} {rest[end:]}"
    preferences = tuple(
        rule.reader for rule in PREFERENCES if rule.may_match(lowered) and any(pattern.search(lowered) for pattern in rule.patterns())
    )
    return Inferred(filters, preferences, (_tidied(rest) or text) if filters else text, tuple(said))


def warm(config: InferenceConfig) -> None:
    """Compile what questions are tried on."""
    for rule in (*rules(_names_of(config).known), *PREFERENCES):
        rule.patterns()


def _tidied(text: str) -> str:
    """The rest of a question; empty when nothing that could be searched is left."""
    tidy = _BLANK_BEFORE.sub("", _BLANKS.sub(" ", _EMPTY_BRACKETS.sub(" ", text))).strip(_EDGES)
    return tidy if any(map(str.isalnum, tidy)) else ""


def shown(name: str, condition: object) -> str:
    """A condition as a sentence says it: `lang = zh`, `doc_date from 2024 before 2025`."""
    if not isinstance(condition, Mapping):
        return f"{name} = {condition}"
    words = {"$eq": "=", "$gte": "from", "$lte": "to", "$gt": "above", "$lt": "before", "$contains": "with"}
    return f"{name} " + " ".join(f"{words.get(key, key)} {value}" for key, value in condition.items() if key != "$missing")


# --- names -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Names:
    """Lower-case names to the field and value they stand for, and (names of languages, names of types)."""

    fields: Mapping[str, Found]
    known: tuple[tuple[str, ...], tuple[str, ...]]


def _names_of(config: InferenceConfig) -> _Names:
    return _names(tuple(config.language_aliases.items()), tuple(config.media_type_by_keyword.items()))


@functools.lru_cache(maxsize=8)
def _names(languages: tuple[tuple[str, str], ...], types: tuple[tuple[str, str], ...]) -> _Names:
    """The built-in names and those of the configuration, which win; `a,b: x` names x by a and by b."""
    found: dict[str, Found] = {}
    found |= {name: ("lang", code) for name, code in _spread(LANGUAGES.items())}
    found |= {name: ("content_type", mime) for name, mime in _spread(TYPES.items())}
    found |= {name: ("media_type", kind) for name, kind in _spread(MEDIA_TYPES.items())}
    found |= {name: ("lang", code) for name, code in _spread(languages)}
    mimes = dict(_spread(TYPES.items()))
    found |= {name: ("content_type", mimes[kind]) if kind in mimes else ("media_type", kind) for name, kind in _spread(types)}
    spoken = tuple(name for name, (key, _) in found.items() if key == "lang")
    return _Names(found, (spoken, tuple(name for name, (key, _) in found.items() if key != "lang")))


def _spread(table: Iterable[tuple[str, str]]) -> Iterable[tuple[str, str]]:
    for names, value in table:
        for name in names.split(","):
            if name.strip():
                yield name.strip().lower(), value


# --- readers: a match to a field and its condition, None where it means nothing ----------------------------------------------


@dataclass(frozen=True, slots=True)
class _Told:
    """A wording that was found, and what it may be read by."""

    match: re.Match[str]
    text: str  # as written
    names: _Names
    today: date

    def written(self, *groups: str) -> str:
        """The first of the groups that holds something, as it was written; empty without any."""
        held = self.match.groupdict()
        return next((self.text[slice(*self.match.span(group))].strip() for group in groups if held.get(group)), "")


def _named(told: _Told) -> Found | None:
    name = told.match.group("name").lower()
    return told.names.fields.get(name) or told.names.fields.get(name.removesuffix("s"))


_ABOVE = frozenset({">", "大于", "高于", "超过", "above", "over", "greater than", "higher than", "more than", "better than"})


def _quality(told: _Told) -> Found | None:
    value = float(told.match.group("value")) / (100 if told.match.group("percent") else 1)
    operator = "$gt" if told.match.group("operator").lower() in _ABOVE else "$gte"
    return ("quality_score", {operator: round(value, 6)}) if 0 <= value <= 1 else None


def _recent(told: _Told) -> Found | None:
    count = (told.match.group("count") or "one").lower()
    half = count == "半"
    number = 1 if half else int(count) if count.isdigit() and count.isascii() else _counted(count)
    unit = told.match.group("unit").lower().removesuffix("s").removeprefix("个")
    days = number * _DAYS[unit] // (2 if half else 1)
    if not 0 < days <= _LONGEST_DAYS or told.today.toordinal() <= days:
        return None
    return "created_at", {"$gte": (told.today - timedelta(days=days)).isoformat()}


def _counted(word: str) -> int:
    """The value of a number word up to 99, 0 for one that is none."""
    tens, ten, ones = word.partition("十")
    if not ten:
        return NUMBERS.get(word, 0)
    return 10 * (NUMBERS.get(tens, 0) if tens else 1) + (NUMBERS.get(ones, 0) if ones else 0)


def _dated(told: _Told) -> Found | None:
    """A year, month or day: all of it, or what begins or ends with it."""
    parts = told.match.groupdict()
    month = parts.get("month") or ""
    if month and not month.isdigit():
        month = str(_MONTHS.index(month[:3].lower()) + 1)
    pieces = [parts["year"], *([f"{int(month):02}"] if month else []), *([f"{int(parts['day']):02}"] if parts.get("day") else [])]
    try:
        date(int(pieces[0]), *(int(piece) for piece in (*pieces[1:], "1", "1")[:2]))
    except ValueError:
        return None
    day = "-".join(pieces)
    bound = (parts.get("bound") or "").lower()
    operator = _BOUNDS.get(bound)
    return "doc_date", {operator: day} if operator else day


_BOUNDS = {"以来": "$gte", "以后": "$gte", "之后": "$gt", "后": "$gt", "起": "$gte", "以前": "$lt", "之前": "$lt", "前": "$lt",
           "since": "$gte", "from": "", "after": "$gt", "before": "$lt", "until": "$lte"}  # fmt: skip


def _tag(told: _Told) -> Found | None:
    value = told.written("quoted", "value")
    # strict: a document without tags has not that tag, and nothing found is an answer (seed 004)
    return ("tags", {"$contains": value, "$missing": "exclude"}) if value else None


def _keyphrase(told: _Told) -> Found | None:
    value = told.written("quoted", "value")
    return ("keyphrases", {"$contains": value}) if value else None


def _source(told: _Told) -> Found | None:
    value = told.written("quoted", "value")
    return ("source", {"$eq": value, "$missing": "exclude"}) if value else None


_READERS: Mapping[str, Callable[[_Told], Found | None]] = {
    "name": _named, "quality": _quality, "recent": _recent, "dated": _dated, "tag": _tag, "keyphrase": _keyphrase, "source": _source,
}  # fmt: skip
