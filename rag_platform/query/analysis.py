"""Prepares a question for the retrievers by rules: cleans it and finds its identifiers, phrases,
filters and preferences.

The subject of a question excludes the words of preferences and commands: `the latest`, `official
documentation`, `带图的`, `summarise`, `an overview of`, `总结一下`. They are searched for, but the
right passage need not contain them.
"""

from __future__ import annotations

import functools
import hashlib
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from typing import Any

from rag_platform.caching import Cache
from rag_platform.config.query import InferenceConfig, QueryConfig
from rag_platform.config.settings import Limits, fingerprint
from rag_platform.errors import InputError
from rag_platform.ir import Json, QueryIR
from rag_platform.query import filter_inference
from rag_platform.query.constants import (
    MAX_FILTER_DEPTH,
    MAX_IDENTIFIERS,
    MAX_PARTS,
    MAX_PHRASES,
    MAX_RULED_CHARS,
    MAX_SEARCH_CHARS,
    MAX_SEARCHES,
    MIN_HAN_PART_CHARS,
    MIN_PART_CHARS,
)
from rag_platform.query.filter_inference import (
    Inferred,
    infer_filters,
    load_rules,
    tidy,
)
from rag_platform.query.filters import SOFT_FIELDS
from rag_platform.query.synonyms import Vocabulary, load_vocabulary, read_mtime
from rag_platform.text import stop_words
from rag_platform.text.language import UNKNOWN, language
from rag_platform.text.scripts import HAN, UNSPACED, UNSPACED_CHAR, has_han, is_wide, simplify
from rag_platform.text.segmentation import dictionary_terms, is_identifier
from rag_platform.text.terms import SYMBOL, find_symbols, is_sign, meaning

RULES = 11  # version of the rules below; raised when the same text gives another QueryIR
PLAIN_PROFILE = f"query_plain-v{RULES}"
REWRITE_PROFILE = "none"
_QUERY = QueryConfig()
WITHOUT_FILTERS = "ask without inferred filters to search everything"
_PHRASE = re.compile(
    r"\"([^\"]{2,100})\"|“([^“”]{2,100})”|「([^「」]{2,100})」|『([^『』]{2,100})』|《([^《》]{2,100})》|«([^«»]{2,100})»"
)
# quotation marks, dashes, brackets and stops that NFKC leaves wide; Chinese title marks have no
# narrow form
_NARROW = str.maketrans(
    "“”„‟«»「」『』‘’‚‛—–―‐‒−【】〔〕〖〗。、", '"' * 10 + "'" * 4 + "-" * 6 + "[]" * 3 + ".,"
)
LETTER = rf"[^\W{UNSPACED}]"  # of a script with spaces
# sentence punctuation; signs inside a word (3.5, foo:bar, it's) and before one (.net) belong to it
_NEVER_IN_WORD = r"[\"“”„«»。、，；：！？「」『』《》〈〉【】〔〕（）()\[\]{}|*~^—–·]+"
_PUNCTUATION = re.compile(rf"[.,;:!?'’`…]+(?!{LETTER})|(?<!{LETTER})[,;:!?'‘`…]+|{_NEVER_IN_WORD}")
_PART = rf"[^\W{UNSPACED}]{{1,120}}"
_TOKEN = re.compile(
    rf"(?:(?<![\w.])\.)?{_PART}(?:[._\-/\\:@+#&]{{1,3}}{_PART}){{0,40}}(?:\+\+|#(?!\w))?"
)
# no text has `whats` and `doesnt`, as questions are typed
_CONTRACTION = re.compile(
    r"(?<!\S)((?:what|where|who|how|when|why|that|there)(?=s)"
    r"|(?:ca|wo|do|does|did|is|are|was|were|has|have|had|would|could|should)n(?=t))"
    r"([st])(?=[,.;:?!]*(?:\s|$))",
    re.IGNORECASE,
)
_OBJECT = (
    r"(?:documents?|files?|folders?|collections?|librar(?:y|ies)|releases?|ind(?:ex|exes|ices)|"
    r"versions?|sources?)"
)
_OBJECT_ZH = r"(?:文档|文件|资料|文件夹|知识库|文档库|索引|版本|来源|发布)"
# the first match decides; matched in lower case
_INTENTS = (
    (
        "tool_call",
        re.compile(
            rf"^(?:please |now |can you |could you"
            rf" )?(?:delete|remove|ingest|upload|import|add|re-?index|rebuild|publish|verify|roll"
            rf" ?back)"
            r" (?:(?:the|this|that|these|all|my|our|following|new) ){0,3}(?:[\w.-]{1,60}"
            rf" )?{_OBJECT}\b"
            r"|^(?:请|麻烦|帮我|请帮我)?(?:你)?(?:删除|移除|上传|导入|入库|重建|重新索引|发布|回滚|校验)(?:一下)?[^,，"
            rf"。?？]{{0,40}}{_OBJECT_ZH}[。!！]?$"
            rf"|^(?:请|麻烦|帮我|请帮我)?把.{{1,60}}(?:删除|移除|删掉|上传|导入|入库|发布|回滚)(?:一下|了|到.{{1,20}})?[。"
            rf"!！]?$"
        ),
    ),
    (
        "compare",
        re.compile(
            r"\b(?:compare|comparison|versus|vs|differences?"
            r" between)\b|对比|比较|区别|有何不同|有什么不同|差异"
        ),
    ),
    (
        "summarize",
        re.compile(r"\b(?:summari[sz]e|summary of|overview of|tl;dr)\b|总结|概括|概述|摘要|归纳"),
    ),
    (
        "metadata_filter",
        re.compile(
            rf"^(?:please )?(?:list|show|find)(?: me)?(?: all| the){{0,2}} {_OBJECT}\b"
            rf"|^(?:请)?(?:列出|显示|找出|有哪些|有没有)[^,，。]{{0,30}}{_OBJECT_ZH}[?？。]?$"
        ),
    ),
)


def prepare(
    text: str,
    limits: Limits,
    filters: Mapping[str, Any] | None = None,
    *,
    config: QueryConfig = _QUERY,
    infer: bool | None = None,
    today: date | None = None,
) -> QueryIR:
    """The QueryIR of a question, with the caller's filters and those inferred from its wording.

    `infer` switches the inference of filters, None leaves it to the configuration; a field that the
    caller filters by is never inferred. Periods such as `近一周` end `today` (UTC). Raises
    InputError `empty_query` for a text of white space and control characters, `query_too_long`
    above `limits.max_query_chars`, `invalid_query` for anything but text, `invalid_filter` for
    filters that are no object; ConfigError for unreadable synonyms.
    """
    cleaned = _check_text(text, limits)
    given = _check_filters(filters)
    rules = _rules(config)
    found = Inferred(rest=cleaned)
    if config.inference.enabled if infer is None else infer:
        free = _without_fields(config.inference, given)
        found = infer_filters(cleaned, today=today or datetime.now(UTC).date(), config=free)
    preferences = tuple(
        name for name in SOFT_FIELDS if given.get(name, name in found.preferences) is True
    )
    inferred = {**found.filters, **{name: True for name in preferences if name not in given}}
    return QueryIR(
        original=text,
        **_texts(found.rest, config),
        query_hash=_hash(cleaned),
        language=find_language(cleaned),
        intent=_find_intent(cleaned.lower(), bool(found.filters) and found.rest == cleaned),
        filters={**given, **inferred},
        identifiers=find_identifiers(found.rest),
        phrases=find_phrases(found.rest),
        expansions=rules.vocabulary.expansions(
            found.rest, config.expansion_weight, config.max_expansions
        ),
        preferences=preferences,
        inferred=inferred,
        warnings=tuple(f"{sentence}; {WITHOUT_FILTERS}" for sentence in found.explanations),
        query_profile_id=rules.profile_id,
        rewrite_profile_id=REWRITE_PROFILE,
    )


def without_rules(text: str, limits: Limits, filters: Mapping[str, Any] | None = None) -> QueryIR:
    """The question with the caller's filters, without applying any rules; raises InputError as
    `prepare`.
    """
    cleaned = _check_text(text, limits)
    return QueryIR(
        original=text,
        normalised=cleaned,
        dense_text=cleaned,
        sparse_query=cleaned,
        query_hash=_hash(cleaned),
        language="und",
        filters=_check_filters(filters),
        query_profile_id=PLAIN_PROFILE,
        rewrite_profile_id=REWRITE_PROFILE,
    )


def undo(query: QueryIR) -> QueryIR:
    """The original question with the caller's filters, without anything added or inferred."""
    cleaned = clean(query.original)
    return replace(
        query,
        normalised=cleaned,
        dense_text=half_width(cleaned),
        sparse_query=cleaned,
        filters=_callers_filters(query),
        expansions=(),
        rewrites=(),
        preferences=tuple(name for name in query.preferences if name not in query.inferred),
        inferred={},
        warnings=(),
        query_profile_id=PLAIN_PROFILE,
        rewrite_profile_id=REWRITE_PROFILE,
    )


def reword(query: QueryIR, text: str, config: QueryConfig = _QUERY) -> QueryIR:
    """A search phrasing as a QueryIR, with the filters and preferences of the question."""
    return replace(
        query,
        expansions=(),
        translated="",
        untranslated="",
        phrases=find_phrases(text),
        identifiers=find_identifiers(text),
        rewrites=(),
        **_texts(text, config),
    )


def check_searches(searches: Any) -> tuple[str, ...]:
    """The search phrasings of a request, cleaned, without duplicates and empty ones.

    Raises InputError `invalid_searches` for more than MAX_SEARCHES, and for one that is no text or
    too long.
    """
    problem = ""
    if isinstance(searches, str) or not isinstance(searches, Sequence):
        problem = f"they must be a list of texts, not {type(searches).__name__}"
    elif len(searches) > MAX_SEARCHES:
        problem = f"{len(searches)} were given; give at most {MAX_SEARCHES}"
    else:
        for number, text in enumerate(searches, 1):
            if not isinstance(text, str):
                problem = f"number {number} must be text, not {type(text).__name__}"
            elif len(text) > MAX_SEARCH_CHARS:
                problem = (
                    f"number {number} has {len(text)} characters, the limit is {MAX_SEARCH_CHARS};"
                    " give a few words that a passage with the answer would hold"
                )
    if problem:
        raise InputError(f"searches: {problem}", code="invalid_searches")
    return tuple(filter(None, dict.fromkeys(map(clean, searches))))


def relax(query: QueryIR, config: QueryConfig = _QUERY) -> QueryIR:
    """The question without inferred filters, whose words are searched again; preferences stay."""
    preferences = {name: value for name, value in query.inferred.items() if name in SOFT_FIELDS}
    return replace(
        query,
        filters={**_callers_filters(query), **preferences},
        inferred=preferences,
        warnings=(),
        **_texts(clean(query.original), config),
    )


def find_language(text: str) -> str:
    """The language of a question as in QueryIR: ISO 639-1, or und."""
    detected = language(text)
    is_mixed = detected == "en" and has_han(text)
    if is_mixed and (is_wide(text) or not stop_words.count_function_words(text)):
        return "zh"  # its Latin words are identifiers
    return "und" if detected == UNKNOWN else detected


def choose_frame_language(text: str, reader: str) -> str:
    """The language of what is said around the answer to a question: its own, unless that cannot be
    told or spoken; then the reader's, if it is known.

    Latin words are English if two of them are function words: `PX-40 throughput` and error codes
    are asked in every language.

    >>> questions = "ERR_TIMEOUT", "What is ERR_TIMEOUT?", "超时", "Was ist das und warum?"
    >>> [choose_frame_language(text, "zh") for text in questions]
    ['zh', 'en', 'zh', 'zh']
    """
    own = find_language(clean(text))
    if not reader or own == "zh":
        return own
    is_english = own == "en" and stop_words.count_function_words(text) > 1
    return "en" if is_english else reader


def warm_up(limits: Limits, config: QueryConfig, *, chinese: bool) -> None:
    """Load what the first question needs: the patterns of filters, and the Chinese dictionaries."""
    prepare("预热" if chinese else "warm up", limits)
    filter_inference.warm_up(config.inference)
    if chinese:
        dictionary_terms("预热")


# --- the text -----------------------------------------------------------------------------------


def clean(text: str) -> str:
    """The question on one line in NFKC, without control, format and surrogate characters."""
    if text.isascii() and text.isprintable():
        return " ".join(text.split())
    kept = (
        " " if char.isspace() else char
        for char in unicodedata.normalize("NFKC", text)
        if char.isspace() or unicodedata.category(char) not in ("Cc", "Cf", "Cs")
    )
    # without a dropped joiner, characters that are now adjacent may compose
    composed = unicodedata.normalize("NFKC", "".join(kept))
    return " ".join(composed.split())


def half_width(text: str) -> str:
    """A cleaned text for the embedder: with `"`, `-`, `[`, `.` and `,` in place of their Chinese
    and typographic forms.
    """
    return text.translate(_NARROW)


def fold(cleaned: str) -> str:
    """A cleaned question in lower case without sentence punctuation; one of punctuation alone is
    only lowered.
    """
    lowered = cleaned.lower()
    return " ".join(_PUNCTUATION.sub(" ", lowered).split()) or lowered


def find_identifiers(text: str) -> tuple[str, ...]:
    """The distinct identifiers of a text: `PPR-9087`, `foo_bar`, `v1.2.3`, `etc/hosts`."""
    found = (match.group() for match in _TOKEN.finditer(text))
    return tuple(dict.fromkeys(token for token in found if is_identifier(token.lower())))[
        :MAX_IDENTIFIERS
    ]


def find_phrases(text: str) -> tuple[str, ...]:
    """The distinct texts in quotation marks or Chinese title marks."""
    found = ("".join(filter(None, match.groups())).strip() for match in _PHRASE.finditer(text))
    return tuple(dict.fromkeys(phrase for phrase in found if any(map(str.isalnum, phrase))))[
        :MAX_PHRASES
    ]


def _texts(text: str, config: QueryConfig) -> dict[str, Any]:
    """The texts of a QueryIR. Case is kept, because the word analysis splits camelCase first."""
    searched = text = _CONTRACTION.sub(r"\1'\2", without_directions(text))
    if config.drop_function_words:
        searched = stop_words.remove_function_words(text, config.function_words)
        searched = _mark_signs(searched, text)  # whose meaning the function words asked for
    return {"normalised": text, "dense_text": half_width(text), "sparse_query": searched}


def expected_words(query: QueryIR) -> str:
    """The words that texts in the language of the question contain: all of its words, but in
    scripts without spaces without function words.

    Texts without `the` and `of` are in another language; the rarity of `什么` shows nothing, as
    its characters count several times.
    """
    unspaced = UNSPACED_CHAR.search(query.normalised)
    return query.sparse_query if unspaced else query.normalised


def _hash(cleaned: str) -> str:
    return hashlib.sha256(fold(cleaned).encode()).hexdigest()[:16]


def _find_intent(lowered: str, only_filters: bool) -> str:
    found = next((name for name, pattern in _INTENTS if pattern.search(lowered)), "search")
    return "metadata_filter" if found == "search" and only_filters else found


def _check_text(text: str, limits: Limits) -> str:
    """The cleaned text; raises InputError as `prepare`."""
    if not isinstance(text, str):
        raise InputError(
            f"the question must be text, not {type(text).__name__}", code="invalid_query"
        )
    if len(text) > limits.max_query_chars:
        raise InputError(
            f"the question has {len(text)} characters, the limit is {limits.max_query_chars};"
            " shorten it or raise limits.max_query_chars",
            code="query_too_long",
            length=len(text),
            limit=limits.max_query_chars,
        )
    if not (cleaned := clean(text)):
        raise InputError("the question is empty; give at least one word", code="empty_query")
    return cleaned


# --- filters ------------------------------------------------------------------------------------


def _check_filters(filters: Mapping[str, Any] | None) -> Json:
    if filters is not None and not isinstance(filters, Mapping):
        raise InputError(
            f"filters must be an object of field names, not {type(filters).__name__}",
            code="invalid_filter",
        )
    return dict(filters or {})


def _callers_filters(query: QueryIR) -> Json:
    return {name: value for name, value in query.filters.items() if name not in query.inferred}


def _field_names(filters: object, depth: int = 0) -> Iterator[str]:
    """Every field of a filter, down to MAX_FILTER_DEPTH."""
    if isinstance(filters, Mapping) and depth <= MAX_FILTER_DEPTH:
        for name, value in filters.items():
            if name in ("$and", "$or") and isinstance(value, list | tuple):
                for item in value:
                    yield from _field_names(item, depth + 1)
            else:
                yield str(name)


def _without_fields(config: InferenceConfig, given: Json) -> InferenceConfig:
    """The configuration without the fields that the caller filters by; words for these stay in the
    question.
    """
    named = set(_field_names(given))
    fields = tuple(name for name in config.fields if name not in named)
    return config if fields == config.fields else config.model_copy(update={"fields": fields})


# --- rules --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Rules:
    """What is derived from the configuration alone. It references the configuration, so that its
    id, which is a key of the cache, is not reused.
    """

    config: QueryConfig
    vocabulary: Vocabulary
    profile_id: str


_cached_rules: Cache[_Rules] = Cache(16)


def _rules(config: QueryConfig) -> _Rules:
    key = (id(config), read_mtime(config))
    rules = _cached_rules.get(key)
    if rules is None:
        vocabulary = load_vocabulary(config)
        dumped = config.model_dump(mode="json", exclude={"rewrite"})
        profile = f"query-{fingerprint(RULES, dumped, vocabulary.digest, length=12)}"
        rules = _Rules(config, vocabulary, profile)
        _cached_rules.put(key, rules)
    return rules


# --- the subject --------------------------------------------------------------------------------

_EDGES = " \t,，、;；:：-"
_CAPITALS = re.compile(r"[A-Z]{3}")  # EXPLAIN is a name, unless the whole question is in capitals


def subject_of(query: QueryIR) -> str:
    """The subject of a prepared question, as of `find_subject`, and its signs."""
    return _mark_signs(find_subject(query.normalised), query.original)


@functools.lru_cache(maxsize=256)
def _mark_signs(text: str, question: str) -> str:
    """The text, with the signs that a question asks about as code after it."""
    signs = filter(is_sign, find_symbols(question))
    return " ".join([text, *(f"`{sign.removeprefix(SYMBOL)}`" for sign in signs)])


@functools.lru_cache(maxsize=256)
def find_subject(text: str) -> str:
    """The cleaned question without the words of preferences and commands. Unchanged if no
    meaningful word would be left, or above MAX_RULED_CHARS.

    >>> find_subject("Give me an overview of the latest response headers")
    'response headers'
    >>> find_subject("总结一下系统组成"), find_subject("summarise the latest")
    ('系统组成', 'summarise the latest')
    """
    if len(text) > MAX_RULED_CHARS:
        return text
    rest, simple = text, simplify(text)
    lowered = simple.lower()
    for rule in (*load_rules("preferences"), *load_rules("commands")):
        for pattern in rule.compile_likely(lowered):
            match = pattern.search(simple) if "said" in pattern.groupindex else None
            if match is None or (_CAPITALS.search(match["said"]) and not text.isupper()):
                continue
            start, end = match.span("said")
            rest, simple = (f"{one[:start]} {one[end:]}".lstrip(_EDGES) for one in (rest, simple))
    if rest is text:
        return text
    rest = tidy(rest).strip(_EDGES)
    return rest if meaning(rest) else text


# --- parts of a question --------------------------------------------------------------------------

_QUESTION_WORDS = "which|what|where|how|when|who|why|whose"
_ASKING = f"{_QUESTION_WORDS}|should|can|could|do|does|did|is|are|was|were|will|must"
# after a question mark, or before a clause that begins as a question does
_BOUNDARY = re.compile(
    rf"(?<=[?？])\s*(?=\S)|[,;]\s*(?:and|but|or)\s+(?=(?:{_ASKING})\b)"
    rf"|\s+and\s+(?=(?:{_QUESTION_WORDS})\b)",
    re.IGNORECASE,
)
_HAN_BOUNDARY = re.compile(rf"(?<=[?？])\s*(?=\S)|(?<=[{HAN}])[，,；;]\s*(?=[{HAN}])")
_IS_QUESTION = re.compile(
    rf"\b(?:{_QUESTION_WORDS})\b|^(?:{_ASKING})\b|[.!:]\s+(?:{_ASKING})\b"
    r"|什么|哪|怎|多[少久长大高重远]|几|吗|是否|能不能|要不要|为何|谁",
    re.IGNORECASE,
)
# sentences after a question that say how to answer it
_DIRECTIONS = re.compile(
    r"(?<=[?？])\s*(?:please\s+)?(?:if\b[^?？]+\b(?:state|say|explain|mention)\b|round\b"
    r"|(?:address|answer|respond|reply)\b|如果[^?？]+(?:说明|解释|指出)|请?(?:四舍五入|保留))[^?？]*$",
    re.IGNORECASE,
)


def without_directions(question: str) -> str:
    """A cleaned question without trailing sentences about the form of the answer.

    >>> without_directions("How large is the margin? Round your answer to two decimals.")
    'How large is the margin?'
    """
    return _DIRECTIONS.sub("", question)


def find_parts(question: str, *, clauses: bool = False) -> tuple[str, ...]:
    """The questions in a cleaned question, if there are several; empty for a single one.
    With `clauses` also short Chinese ones and clauses, which may lack a subject to search for.

    >>> find_parts("How large may an upload be, and which error comes above that?")
    ('How large may an upload be', 'which error comes above that?')
    >>> find_parts("上传有大小限制吗，超过了会报什么错？", clauses=True)
    ('上传有大小限制吗', '超过了会报什么错？')
    """
    if len(question) > MAX_RULED_CHARS:
        return ()
    least = MIN_HAN_PART_CHARS if clauses and has_han(question) else MIN_PART_CHARS
    for boundary in (_BOUNDARY, _HAN_BOUNDARY)[: 1 + clauses]:
        parts = [part.strip() for part in boundary.split(question) if part.strip()]
        ask = all(len(part) >= least and _IS_QUESTION.search(simplify(part)) for part in parts)
        if ask and 1 < len(parts) <= MAX_PARTS:
            return tuple(parts)
    return ()
