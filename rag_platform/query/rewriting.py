"""A language model rewrites a question, and its reply is checked word by word.

The user's wording leads: its words are searched with full weight, the model's with the weight of
synonyms. A rewritten question that lost an identifier, a number or a quotation is not used.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any

from rag_platform.config.query import InferenceConfig, QueryConfig
from rag_platform.errors import InputError, ProviderError
from rag_platform.indexes.catalog import FILTERABLE
from rag_platform.ir import Json, QueryIR
from rag_platform.protocols import LLM, Completion
from rag_platform.providers.model_replies import load_prompt, strip_fence
from rag_platform.query import filters
from rag_platform.query.analysis import WITHOUT_FILTERS, clean, fold, half_width
from rag_platform.query.constants import (
    MAX_FILTERS,
    MAX_KEYWORD_CHARS,
    MAX_KEYWORDS,
    MAX_REPLY_TOKENS,
    MAX_REWRITTEN_CHARS,
    MAX_SEARCH_CHARS,
)
from rag_platform.query.filter_inference import describe_condition

FIELDS = ("today", "fields", "queries", "question")
INTENTS = ("search", "summarize", "compare", "metadata_filter", "tool_call")
OPERATORS = ("$eq", "$gt", "$gte", "$lt", "$lte", "$contains")
# Their values are words of the library, so the question must hold them, and of dates the year; the
# strict ones leave out what has no such field.
_VERBATIM = frozenset({"tags", "source", "keyphrases"})
_DATES = frozenset({"created_at", "doc_date"})
_STRICT = frozenset({"tags", "source"})
_MEANT = {
    "lang": "ISO 639-1 code",
    "media_type": "text or image",
    "content_type": "MIME type",
    "created_at": "ISO date when the library received it",
    "doc_date": "ISO date of the document itself; a year or month means all of it",
    "quality_score": "number from 0 to 1",
}
_VALUES = {
    "lang": re.compile(r"[a-z]{2}"),
    "quality_score": re.compile(r"0(?:\.\d+)?|1(?:\.0+)?"),
}
_NUMBER = re.compile(r"\d+(?:\.\d+)?")


def schema(config: QueryConfig) -> Json:
    """The JSON schema of a reply."""
    texts = {"type": "array", "items": {"type": "string"}}
    condition = _object(
        field={"type": "string", "enum": _fields(config.inference)},
        operator={"type": "string", "enum": list(OPERATORS)},
        value={"type": ["string", "number"]},
    )
    return _object(
        question={"type": "string"},
        keywords=texts,
        intent={"type": "string", "enum": list(INTENTS)},
        filters={"type": "array", "items": condition},
        queries=texts,
    )


def rewrite(
    query: QueryIR,
    llm: LLM,
    config: QueryConfig,
    *,
    infer: bool | None = None,
    today: date | None = None,
) -> QueryIR:
    """The question as the model puts it: dense text, expansions, intent, filters and at most
    `config.rewrite.queries` search phrasings.

    The model may filter by fields of `config.inference.fields` that neither the caller nor a rule
    filters by, if `infer` is on (None: as configured). `warnings` name each of these filters, and
    each one that was rejected because it is invalid or not in the question. Raises ProviderError
    `bad_output` for a malformed reply, and whatever the provider raises.
    """
    prompt = load_prompt(config.rewrite.prompt, FIELDS, query.query_hash)
    infers = config.inference.enabled if infer is None else infer
    fields = (
        [
            f"{name} ({_MEANT[name]})" if name in _MEANT else name
            for name in _fields(config.inference)
        ]
        if infers
        else []
    )
    asked = prompt.messages(
        today=(today or datetime.now(UTC).date()).isoformat(),
        fields=", ".join(fields) or "none",
        queries=str(config.rewrite.queries),
        question=_enclose(query.original),
    )
    completion = llm.generate(asked, max_tokens=MAX_REPLY_TOKENS, json_schema=schema(config))
    reply = _parse(completion.text)
    question, warnings = _question(reply, query)
    told, said = _filters(reply.get("filters"), query, config) if infers else ({}, [])
    own = [text for text, _ in query.expansions]
    return replace(
        query,
        dense_text=half_width(question),
        intent=reply["intent"],
        filters={**query.filters, **told},
        inferred={**query.inferred, **told},
        expansions=(*query.expansions, *_expansions(reply["keywords"], query, own, config))[
            : config.max_expansions
        ],
        rewrites=tuple(_further(reply["queries"], question, query))[: config.rewrite.queries],
        warnings=(*query.warnings, *warnings, *said),
        rewrite_profile_id=_profile(prompt.profile_id, completion),
    )


def _profile(prompt_id: str, completion: Completion) -> str:
    """The model, and the wording of the prompt that it got."""
    return f"{prompt_id}+{completion.provider}:{completion.model}"


def _enclose(question: str) -> str:
    """The question without what would close its own element."""
    return re.sub(r"</?\s*question\b[^>]{0,40}>?", " ", clean(question), flags=re.I)


# --- the reply ----------------------------------------------------------------------------------


def _parse(text: str) -> Json:
    try:
        value = json.loads(strip_fence(text))
    except (ValueError, RecursionError) as error:
        raise _bad("the model did not answer with JSON", text) from error
    if not isinstance(value, dict):
        raise _bad("the model's JSON is no object", text)
    for key, fits in (("question", str), ("intent", str), ("keywords", list), ("queries", list)):
        if not isinstance(value.get(key), fits):
            raise _bad(f"the model's JSON has no {'text' if fits is str else 'list'} {key!r}", text)
    if value["intent"] not in INTENTS:
        raise _bad(
            f"the model names the intent {value['intent'][:40]!r}, known: {', '.join(INTENTS)}",
            text,
        )
    if not all(isinstance(item, str) for key in ("keywords", "queries") for item in value[key]):
        raise _bad("the model's lists hold other things than texts", text)
    return value


def _bad(what: str, text: str) -> ProviderError:
    return ProviderError(
        f"{what}: {text[:120]!r}; the question is asked as it was written", code="bad_output"
    )


def _question(reply: Json, query: QueryIR) -> tuple[str, list[str]]:
    """The rewritten question, or the user's own with a warning where the model's lost something."""
    question = _clip(reply["question"])
    if not question or len(question) > MAX_REWRITTEN_CHARS:
        raise _bad(
            f"the model's question has {len(question)} characters, 1 to {MAX_REWRITTEN_CHARS}"
            " are wanted",
            reply["question"],
        )
    if lost := _find_lost(question, query):
        return query.normalised, [f"the rewritten question was not used, for it lost {lost!r}"]
    return question, []


def _find_lost(question: str, query: QueryIR) -> str | None:
    """The first identifier, quotation or number of the question that a wording lost, if any."""
    held = fold(question)
    must = (*query.identifiers, *query.phrases, *_NUMBER.findall(query.normalised))
    return next((text for text in must if fold(clean(text)) not in held), None)


def _further(wordings: Sequence[str], question: str, query: QueryIR) -> list[str]:
    """The search phrasings, each once, none that is searched anyway. One may name half of what was
    asked: the question itself is searched as well.
    """
    asked = {fold(question), fold(clean(query.original))}
    found: dict[str, str] = {}
    for wording in map(_clip, wordings):
        key = fold(wording) if wording else ""
        if wording and len(wording) <= MAX_SEARCH_CHARS and key not in asked:
            found.setdefault(key, wording)
    return list(found.values())


def _expansions(
    keywords: Sequence[str], query: QueryIR, known: Sequence[str], config: QueryConfig
) -> list[tuple[str, float]]:
    """The model's words that the question does not say, with the weight of synonyms."""
    asked = fold(clean(query.original))
    said = {fold(text) for text in known}
    found: dict[str, str] = {}
    for word in map(_clip, keywords[:MAX_KEYWORDS]):
        key = fold(word) if word else ""
        if key and len(word) <= MAX_KEYWORD_CHARS and key not in said and key not in asked:
            found.setdefault(key, word)
    return [(word, config.expansion_weight) for word in found.values() if config.expansion_weight]


def _clip(text: str) -> str:
    return clean(text[: 4 * MAX_REWRITTEN_CHARS])


# --- filters ------------------------------------------------------------------------------------


def _filters(told: Any, query: QueryIR, config: QueryConfig) -> tuple[Json, list[str]]:
    """(conditions by field, warnings about them and about those that were left out)."""
    if not isinstance(told, list):
        return {}, ["the filters of the rewritten question were left out, for they are no list"]
    found: Json = {}
    dropped: list[str] = []
    allowed = _fields(config.inference)
    for item in told[:MAX_FILTERS]:
        try:
            name, condition = _condition(item, query, allowed)
            merged = {**found.get(name, {}), **condition}
            filters.plan({name: merged}, FILTERABLE)
        except InputError as error:
            dropped.append(f"a filter of the rewritten question was left out: {error.message}")
            continue
        if name not in query.filters:
            found[name] = merged
    said = [
        f"the rewritten question asks for {describe_condition(*condition)}; {WITHOUT_FILTERS}"
        for condition in found.items()
    ]
    return found, [*said, *dropped]


def _condition(item: Any, query: QueryIR, allowed: Sequence[str]) -> tuple[str, Json]:
    if not isinstance(item, Mapping) or not {"field", "operator", "value"} <= set(item):
        raise InputError(
            f"{str(item)[:80]!r} is no condition of field, operator and value",
            code="invalid_filter",
        )
    name, operator, value = item["field"], item["operator"], item["value"]
    if name not in allowed or operator not in OPERATORS:
        raise InputError(
            f"{str(name)[:40]!r} {str(operator)[:20]!r} is not allowed; fields:"
            f" {', '.join(allowed)}",
            code="unknown_filter",
        )
    if name in _VALUES and not _VALUES[name].fullmatch(str(value)):
        raise InputError(
            f"{str(value)[:60]!r} is no value of {name}: {_MEANT[name]}", code="invalid_filter"
        )
    if not _is_said(name, str(value), clean(query.original).lower()):
        raise InputError(f"the question does not say {str(value)[:60]!r}", code="invalid_filter")
    strict = {"$missing": "exclude"} if name in _STRICT else {}
    return name, {operator: value, **strict}


def _is_said(name: str, value: str, question: str) -> bool:
    """False for words of the library, years and scores that a model made up; a language or a kind
    of file has many names.
    """
    if name == "quality_score":
        numbers = [float(number) for number in _NUMBER.findall(question)]
        return any(float(value) in (number, round(number / 100, 6)) for number in numbers)
    if name in _DATES:
        return value[:4] in question
    return name not in _VERBATIM or value.lower() in question


def _fields(config: InferenceConfig) -> list[str]:
    return [name for name in config.fields if name in FILTERABLE]


def _object(**properties: Json) -> Json:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
