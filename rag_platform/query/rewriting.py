"""Rewrites a question with a language model, and validates the reply.

The user's words are searched with full weight, the model's with the weight of synonyms. A rewritten
question that lost an identifier, a number or a quotation is not used.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any

from rag_platform.config.query import InferenceConfig, QueryConfig
from rag_platform.errors import InputError
from rag_platform.indexes.catalog import FILTERABLE
from rag_platform.ir import Json, QueryIR
from rag_platform.protocols import LLM
from rag_platform.providers.model_replies import (
    bad_reply,
    load_prompt,
    object_schema,
    parse_object,
)
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
_VERBATIM = frozenset({"tags", "source", "keyphrases"})  # the question must have the value
_DATES = frozenset({"created_at", "doc_date"})  # the question must have the year
_STRICT = frozenset({"tags", "source"})  # exclude chunks without the field
_FIELD_HINTS = {
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
    condition = object_schema(
        field={"type": "string", "enum": _fields(config.inference)},
        operator={"type": "string", "enum": list(OPERATORS)},
        value={"type": ["string", "number"]},
    )
    return object_schema(
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
    """The question with the model's dense text, expansions, intent, filters and at most
    `config.rewrite.queries` search phrasings.

    If `infer` is on (None: as configured), the model may filter by fields of
    `config.inference.fields` that neither the caller nor a rule filters by. `warnings` name each of
    these filters, and each one rejected as invalid or not in the question. Raises ProviderError
    `bad_output` for a malformed reply, and whatever the provider raises.
    """
    prompt = load_prompt(config.rewrite.prompt, FIELDS, query.query_hash)
    infers = config.inference.enabled if infer is None else infer
    fields = (
        [
            f"{name} ({_FIELD_HINTS[name]})" if name in _FIELD_HINTS else name
            for name in _fields(config.inference)
        ]
        if infers
        else []
    )
    messages = prompt.messages(
        today=(today or datetime.now(UTC).date()).isoformat(),
        fields=", ".join(fields) or "none",
        queries=str(config.rewrite.queries),
        question=_strip_tags(query.original),
    )
    completion = llm.generate(messages, max_tokens=MAX_REPLY_TOKENS, json_schema=schema(config))
    reply = _parse(completion.text)
    question, warnings = _read_question(reply, query)
    inferred: Json = {}
    if infers:
        inferred, notes = _read_filters(reply.get("filters"), query, config)
        warnings += notes
    expansions = (*query.expansions, *_read_expansions(reply["keywords"], query, config))
    return replace(
        query,
        dense_text=half_width(question),
        intent=reply["intent"],
        filters={**query.filters, **inferred},
        inferred={**query.inferred, **inferred},
        expansions=expansions[: config.max_expansions],
        rewrites=tuple(_read_searches(reply["queries"], question, query))[: config.rewrite.queries],
        warnings=(*query.warnings, *warnings),
        rewrite_profile_id=f"{prompt.profile_id}+{completion.provider}:{completion.model}",
    )


def _strip_tags(question: str) -> str:
    """The question without tags that would close its element in the prompt."""
    return re.sub(r"</?\s*question\b[^>]{0,40}>?", " ", clean(question), flags=re.I)


# --- the reply ----------------------------------------------------------------------------------


def _parse(text: str) -> Json:
    """The reply's object. Raises ProviderError `bad_output` for one of another form."""
    reply = parse_object(text)
    for key, kind in (("question", str), ("intent", str), ("keywords", list), ("queries", list)):
        if not isinstance(reply.get(key), kind):
            raise bad_reply(f"no {'text' if kind is str else 'list'} {key!r}")
    if reply["intent"] not in INTENTS:
        raise bad_reply(f"the intent {reply['intent'][:40]!r}, known: {', '.join(INTENTS)}")
    if not all(isinstance(item, str) for key in ("keywords", "queries") for item in reply[key]):
        raise bad_reply("lists of other things than texts")
    return reply


def _read_question(reply: Json, query: QueryIR) -> tuple[str, list[str]]:
    """(the rewritten question, []), or (the user's, [warning]) if the model's lost a term."""
    question = _clip(reply["question"])
    if not question or len(question) > MAX_REWRITTEN_CHARS:
        raise bad_reply(
            f"a question of {len(question)} characters, 1 to {MAX_REWRITTEN_CHARS} are wanted"
        )
    if lost := _find_lost(question, query):
        return query.normalised, [f"the rewritten question was not used, for it lost {lost!r}"]
    return question, []


def _find_lost(question: str, query: QueryIR) -> str | None:
    """The first identifier, quotation or number of the query that the rewritten question lacks."""
    folded = fold(question)
    required = (*query.identifiers, *query.phrases, *_NUMBER.findall(query.normalised))
    return next((text for text in required if fold(clean(text)) not in folded), None)


def _read_searches(texts: Sequence[str], question: str, query: QueryIR) -> list[str]:
    """The distinct search phrasings, without those equal to the question. They may cover a part of
    it, because the question itself is searched as well.
    """
    searched = {fold(question), fold(clean(query.original))}
    found: dict[str, str] = {}
    for text in map(_clip, texts):
        key = fold(text) if text else ""
        if text and len(text) <= MAX_SEARCH_CHARS and key not in searched:
            found.setdefault(key, text)
    return list(found.values())


def _read_expansions(
    keywords: Sequence[str], query: QueryIR, config: QueryConfig
) -> list[tuple[str, float]]:
    """The model's keywords that are new to the question, with the weight of synonyms."""
    question = fold(clean(query.original))
    known = {fold(text) for text, _ in query.expansions}
    found: dict[str, str] = {}
    for word in map(_clip, keywords[:MAX_KEYWORDS]):
        key = fold(word) if word else ""
        if key and len(word) <= MAX_KEYWORD_CHARS and key not in known and key not in question:
            found.setdefault(key, word)
    return [(word, config.expansion_weight) for word in found.values() if config.expansion_weight]


def _clip(text: str) -> str:
    return clean(text[: 4 * MAX_REWRITTEN_CHARS])


# --- filters ------------------------------------------------------------------------------------


def _read_filters(items: Any, query: QueryIR, config: QueryConfig) -> tuple[Json, list[str]]:
    """(conditions by field, warnings about these and about rejected ones)."""
    if not isinstance(items, list):
        return {}, ["the filters of the rewritten question were left out, for they are no list"]
    found: Json = {}
    rejected: list[str] = []
    allowed = _fields(config.inference)
    for item in items[:MAX_FILTERS]:
        try:
            name, condition = _read_condition(item, query, allowed)
            merged = {**found.get(name, {}), **condition}
            filters.plan({name: merged})
        except InputError as error:
            rejected.append(f"a filter of the rewritten question was left out: {error.message}")
            continue
        if name not in query.filters:
            found[name] = merged
    applied = [
        f"the rewritten question asks for {describe_condition(*condition)}; {WITHOUT_FILTERS}"
        for condition in found.items()
    ]
    return found, [*applied, *rejected]


def _read_condition(item: Any, query: QueryIR, allowed: Sequence[str]) -> tuple[str, Json]:
    """(field, condition) of one filter. Raises InputError for an invalid or invented one."""
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
            f"{str(value)[:60]!r} is no value of {name}: {_FIELD_HINTS[name]}",
            code="invalid_filter",
        )
    if not _is_in_question(name, str(value), clean(query.original).lower()):
        raise InputError(f"the question does not say {str(value)[:60]!r}", code="invalid_filter")
    strict = {"$missing": "exclude"} if name in _STRICT else {}
    return name, {operator: value, **strict}


def _is_in_question(name: str, value: str, question: str) -> bool:
    """False for a verbatim value, year or score that the question does not have. Languages and file
    types have too many names to check.
    """
    if name == "quality_score":
        numbers = [float(number) for number in _NUMBER.findall(question)]
        return any(float(value) in (number, round(number / 100, 6)) for number in numbers)
    if name in _DATES:
        return value[:4] in question
    return name not in _VERBATIM or value.lower() in question


def _fields(config: InferenceConfig) -> list[str]:
    return [name for name in config.fields if name in FILTERABLE]
