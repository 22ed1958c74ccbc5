"""Filters and preferences inferred from the wording of a question, in Chinese and English.

A filter removes results, so only wording that clearly asks for one counts: a separate clause (`…,
PDF only`; `只看中文`), an opening (`In the English docs, …`; `英文资料：…`), or a condition on a
noun for documents (`近一周的文档`; `documents since 2025-01`). `How do I export to PDF?` and
`近一周股价` ask for no filter. The words of a filter are removed from the text that is searched;
those of a preference stay, because passages may have them. `filter_rules.yaml` lists the wordings.

Periods that end now (`近一周`) are compared with `created_at`, when the library received a version;
calendar dates (`2024年的文档`) with `doc_date`, the date of the document itself.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from rag_platform.config.query import InferenceConfig
from rag_platform.config.yaml_files import packaged_yaml
from rag_platform.ir import Json
from rag_platform.query.constants import MAX_INFERRED_DAYS, MAX_RULED_CHARS
from rag_platform.text.scripts import HAN, simplify

Condition = tuple[str, object]  # field name and condition
_TYPES = (("content_type", "content_types"), ("media_type", "media_types"))
_PLACEHOLDER = re.compile(r"<([A-Z_]+)>")


@dataclass(frozen=True, slots=True)
class Rule:
    """Patterns with one meaning: that of a reader in `_READERS`, a preference, or a command."""

    reads: str
    hints: tuple[tuple[str, ...], ...]  # the patterns need one string of each group
    patterns: tuple[str, ...]

    def compile_likely(self, lowered: str) -> tuple[re.Pattern[str], ...]:
        """The compiled patterns, none where a lower-case question lacks the hints."""
        for hints in self.hints:
            for hint in hints:  # runs for every rule and question; any() is three times slower
                if hint in lowered:
                    break
            else:
                return ()
        return _compile(self.patterns)


@dataclass(frozen=True, slots=True)
class Inferred:
    """The filters and preferences in the wording of a question."""

    filters: Json = field(default_factory=dict)  # hard, by the catalog's field names
    preferences: tuple[str, ...] = ()  # of filters.SOFT_FIELDS
    # the question without the words of its filters; unchanged if nothing else would be left
    rest: str = ""
    explanations: tuple[str, ...] = ()  # one sentence for each filter


def infer_filters(question: str, *, today: date, config: InferenceConfig) -> Inferred:
    """The filters on `config.fields` and the preferences that a cleaned question asks for.

    Of two conditions on one field the first counts. A text above MAX_RULED_CHARS is a pasted
    passage and has none. `config.enabled` is left to the caller.
    """
    if len(question) > MAX_RULED_CHARS:
        return Inferred(rest=question)
    names, rules = _names_and_rules(config)
    filters: Json = {}
    explanations: list[str] = []
    rest, lowered = question, simplify(question).lower()
    for rule in rules:
        for pattern in rule.compile_likely(lowered):
            match = pattern.search(simplify(rest))
            found = _READERS[rule.reads](_Reading(match, rest, names, today)) if match else None
            if not match or not found or found[0] not in config.fields or found[0] in filters:
                continue
            filters[found[0]] = found[1]
            start, end = match.span("said")
            words = rest[start:end].strip(" \t,，。.;；:：、-|()（）[]【】?？!！")
            explanations.append(f"`{words}` asks for {describe_condition(*found)}")
            rest = f"{rest[:start]} {rest[end:]}"
    preferences = tuple(
        rule.reads
        for rule in load_rules("preferences")
        if any(pattern.search(lowered) for pattern in rule.compile_likely(lowered))
    )
    if filters:
        rest = tidy(re.sub(r"[(（\[【]\s*[)）\]】]", " ", rest)).strip(" \t,，。.;；:：、-|")
        rest = rest if any(map(str.isalnum, rest)) else question
    return Inferred(filters, preferences, rest, tuple(explanations))


def warm_up(config: InferenceConfig) -> None:
    """Compile every pattern, which takes a fifth of a second."""
    for rule in (*_names_and_rules(config)[1], *load_rules("preferences")):
        _compile(rule.patterns)


def tidy(text: str) -> str:
    """A text from which words were removed, with single spaces and none before punctuation."""
    return re.sub(r"\s+(?=[?!？！。,，;；])", "", re.sub(r"\s{2,}", " ", text))


def describe_condition(name: str, condition: object) -> str:
    """A condition in words: `lang = zh`, `tags = a or b`, `doc_date from 2024 before 2025`."""
    if not isinstance(condition, Mapping):
        return f"{name} = {condition}"
    operators = {"$eq": "=", "$in": "=", "$gte": "from", "$lte": "to", "$contains": "with"}
    bounds = (condition.get("$gt"), condition.get("$lt"))
    numeric = not any(isinstance(value, str) for value in bounds)
    operators |= {"$gt": "above", "$lt": "below"} if numeric else {"$gt": "after", "$lt": "before"}
    values = (
        f"{operators.get(k, k)} {' or '.join(map(str, v)) if isinstance(v, list) else v}"
        for k, v in condition.items()
        if k != "$missing"
    )
    return f"{name} {' '.join(values)}"


# --- rules from filter_rules.yaml ---------------------------------------------------------------


@functools.cache
def _table() -> dict[str, Any]:
    table: dict[str, Any] = packaged_yaml(Path(__file__).with_name("filter_rules.yaml"))
    return table


@functools.cache
def _words(section: str) -> dict[str, Any]:
    """Word to meaning, for a section that lists words by meaning."""
    return {word: meaning for meaning, words in _table()[section].items() for word in words}


@functools.cache
def load_rules(section: str) -> tuple[Rule, ...]:
    """The rules for `filters`, `preferences` or `commands`, with pieces of patterns inserted."""
    pieces = {"HAN": HAN}

    def expand(pattern: str) -> str:
        return _PLACEHOLDER.sub(lambda match: pieces.get(match[1], match[0]), pattern)

    for name, piece in _table()["pieces"].items():
        pieces[name] = expand(piece)
    return tuple(
        Rule(
            rule["reads"],
            tuple(map(tuple, rule.get("hints", ()))),
            tuple(map(expand, rule["patterns"])),
        )
        for rule in _table()[section]
    )


@functools.lru_cache(maxsize=64)
def _compile(patterns: tuple[str, ...]) -> tuple[re.Pattern[str], ...]:
    return tuple(re.compile(pattern, re.IGNORECASE) for pattern in patterns)


def _names_and_rules(config: InferenceConfig) -> tuple[Mapping[str, Condition], tuple[Rule, ...]]:
    return _rules_with(
        tuple(config.language_aliases.items()), tuple(config.media_type_by_keyword.items())
    )


@functools.lru_cache(maxsize=8)
def _rules_with(
    languages: tuple[tuple[str, str], ...], types: tuple[tuple[str, str], ...]
) -> tuple[Mapping[str, Condition], tuple[Rule, ...]]:
    """(lower-case name to its condition, the rules with these names); configured names override
    built-in ones.
    """
    table = _table()
    names: dict[str, Condition] = {}
    for name, section in (("lang", "languages"), *_TYPES):
        for value, known in table[section].items():
            names |= dict.fromkeys(known, (name, value))
    mimes = {known: value for known, (name, value) in names.items() if name == "content_type"}
    names |= {known: ("lang", code) for known, code in _split_names(languages)}
    for known, kind in _split_names(types):
        names[known] = ("content_type", mimes[kind]) if kind in mimes else ("media_type", kind)
    groups = {
        "<NAME>": tuple(names),
        "<LANGUAGE>": tuple(known for known, (name, _) in names.items() if name == "lang"),
        "<TYPE>": tuple(known for known, (name, _) in names.items() if name != "lang"),
    }
    return names, tuple(_with_names(rule, groups) for rule in load_rules("filters"))


def _split_names(table: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """(name, value) of each name; `a,b: x` gives x the names a and b."""
    for names, value in table:
        yield from ((name.strip().lower(), value) for name in names.split(",") if name.strip())


def _with_names(rule: Rule, groups: Mapping[str, tuple[str, ...]]) -> Rule:
    """The rule with names in place of the placeholders in its hints and patterns."""
    hints, patterns = rule.hints, rule.patterns
    for placeholder, names in groups.items():
        hints = tuple(names if hint == (placeholder,) else hint for hint in hints)
        one_of = _any_of(names)
        patterns = tuple(
            pattern.replace(placeholder, f"(?P<name>{one_of})").replace("<OTHER>", f"(?:{one_of})")
            for pattern in patterns
        )
    return replace(rule, hints=hints, patterns=patterns)


def _any_of(names: Iterable[str]) -> str:
    """A pattern for any of the names, longest first; Latin ones as whole words, also as plurals."""
    ordered = sorted(names, key=lambda name: (-len(name), name))
    latin = "|".join(re.escape(name) for name in ordered if name.isascii())
    others = [name for name in ordered if not name.isascii()]
    whole = rf"(?<![A-Za-z0-9_-])(?:{latin})s?(?![A-Za-z0-9_])" if latin else ""
    return "|".join(filter(None, (*others, whole))) or "(?!)"


# --- readers: the condition of a match, None for an invalid one -----------------------------------


@dataclass(frozen=True, slots=True)
class _Reading:
    """The match of a pattern, and the input of its reader."""

    match: re.Match[str]  # in simplified characters
    text: str  # the original
    names: Mapping[str, Condition]
    today: date

    def value(self) -> str:
        """The matched value as written; a pattern has the group `quoted`, `value` or both."""
        groups = self.match.groupdict()
        group = "quoted" if groups.get("quoted") else "value"
        return self.text[slice(*self.match.span(group))].strip()


def _read_name(reading: _Reading) -> Condition | None:
    name = reading.match["name"].lower()
    return reading.names.get(name) or reading.names.get(name.removesuffix("s"))


def _read_quality(reading: _Reading) -> Condition | None:
    match = reading.match
    value = float(match["value"]) / (100 if match["percent"] else 1)
    operator = _words("score_operators").get(match["operator"].lower(), "$gte")
    return ("quality_score", {operator: round(value, 6)}) if 0 <= value <= 1 else None


def _read_period(reading: _Reading) -> Condition | None:
    count = (reading.match["count"] or "one").lower()
    unit = _words("days")[reading.match["unit"].lower().removesuffix("s").removeprefix("个")]
    days = unit // 2 if count == "半" else _number(count) * unit
    if not 0 < days <= min(MAX_INFERRED_DAYS, reading.today.toordinal() - 1):
        return None
    return "created_at", {"$gte": (reading.today - timedelta(days=days)).isoformat()}


def _number(word: str) -> int:
    """The value of digits or of a number word up to 99; 0 for any other word."""
    if word.isdecimal():
        return int(word)
    numbers = _words("numbers")
    tens, ten, ones = word.partition("十")
    if not ten:
        return int(numbers.get(word, 0))
    return 10 * int(numbers.get(tens or "一", 0)) + int(numbers.get(ones, 0))


def _read_date(reading: _Reading) -> Condition | None:
    """A year, month or day: documents of that period, or from or until it."""
    parts = reading.match.groupdict()
    month = parts.get("month") or ""
    if month and not month.isdecimal():
        month = str(_table()["months"].index(month[:3].lower()) + 1)
    pieces = [parts["year"], *(f"{int(part):02}" for part in (month, parts.get("day")) if part)]
    try:
        date(*map(int, (*pieces, "1", "1")[:3]))
    except ValueError:
        return None
    day = "-".join(pieces)
    operator = _words("date_operators").get((parts.get("bound") or "").lower())
    return "doc_date", {operator: day} if operator else day


def _read_tag(reading: _Reading) -> Condition:
    # a document without tags does not have this one
    return "tags", {"$contains": reading.value(), "$missing": "exclude"}


def _read_source(reading: _Reading) -> Condition:
    return "source", {"$eq": reading.value(), "$missing": "exclude"}


def _read_keyphrase(reading: _Reading) -> Condition:
    return "keyphrases", {"$contains": reading.value(), "$missing": "exclude"}


_READERS: Mapping[str, Callable[[_Reading], Condition | None]] = {
    "name": _read_name,
    "quality_score": _read_quality,
    "created_at": _read_period,
    "doc_date": _read_date,
    "tags": _read_tag,
    "keyphrases": _read_keyphrase,
    "source": _read_source,
}
