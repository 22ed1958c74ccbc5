"""A question as the retrievers read it: cleaned, its identifiers, phrases and filters found in its
wording; by rules alone.

Its subject is what is left without the words that say how it wants to be answered: `the latest`,
`official documentation`, `带图的`, `summarise`, `an overview of`, `总结一下`. They are searched
for, but the right passage need not hold them.
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
from rag_platform.config.ingestion import KeyphraseConfig
from rag_platform.config.query import InferenceConfig, QueryConfig
from rag_platform.config.settings import Limits, fingerprint
from rag_platform.errors import InputError
from rag_platform.ir import Json, QueryIR
from rag_platform.query import filter_inference
from rag_platform.query.constants import (
    MAX_FILTER_DEPTH,
    MAX_IDENTIFIERS,
    MAX_MARKS,
    MAX_PHRASES,
    MAX_RULED_CHARS,
    MAX_SEARCH_CHARS,
    MAX_SEARCHES,
)
from rag_platform.query.filter_inference import (
    Inferred,
    infer_filters,
    load_rules,
    tidy,
)
from rag_platform.query.filters import SOFT_FIELDS
from rag_platform.query.parts import without_directions
from rag_platform.query.synonyms import Vocabulary, load_vocabulary, read_mtime
from rag_platform.text import stop_words
from rag_platform.text.keyphrases import keyphrases as find_keyphrases
from rag_platform.text.language import UNKNOWN, language
from rag_platform.text.scripts import UNSPACED, simplify
from rag_platform.text.segmentation import dictionary_terms, is_identifier
from rag_platform.text.terms import meaning

RULES = 7  # of everything below; another number when the same text would give another QueryIR
PLAIN_PROFILE = f"query_plain-v{RULES}"
REWRITE_PROFILE = "none"
_QUERY, _KEYPHRASES = QueryConfig(), KeyphraseConfig()
WITHOUT_FILTERS = "ask without inferred filters to search everything"
_MARKS = re.compile(
    r"[\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]{5,}"
)
_REPEATED = re.compile(r"([!?。，、…~*.])\1{3,}")
_PHRASE = re.compile(
    r"\"([^\"]{2,100})\"|“([^“”]{2,100})”|「([^「」]{2,100})」|『([^『』]{2,100})』|《([^《》]{2,100})》|«([^«»]{2,100})»"
)
# Quotation marks, dashes, brackets and stops that NFKC leaves wide; the marks of Chinese titles
# have no narrow form.
_NARROW = str.maketrans(
    "“”„‟«»「」『』‘’‚‛—–―‐‒−【】〔〕〖〗。、", '"' * 10 + "'" * 4 + "-" * 6 + "[]" * 3 + ".,"
)
_UNSPACED_CHARACTER = re.compile(f"[{UNSPACED}]")
_LETTER = rf"[^\W{UNSPACED}]"
# Signs of a sentence; those inside a word (3.5, foo:bar, it's) and before one (.net) belong to it.
_ALONE = r"[\"“”„«»。、，；：！？「」『』《》〈〉【】〔〕（）()\[\]{}|*~^—–·]+"
_ENDING = re.compile(rf"[.,;:!?'’`…]+(?!{_LETTER})|(?<!{_LETTER})[,;:!?'‘`…]+|{_ALONE}")
_PART = rf"[^\W{UNSPACED}]{{1,120}}"
_TOKEN = re.compile(
    rf"(?:(?<![\w.])\.)?{_PART}(?:[._\-/\\:@+#&]{{1,3}}{_PART}){{0,40}}(?:\+\+|#(?!\w))?"
)
_OBJECT = (
    r"(?:documents?|files?|folders?|collections?|librar(?:y|ies)|releases?|ind(?:ex|exes|ices)|"
    r"versions?|sources?)"
)
_OBJECT_ZH = r"(?:文档|文件|资料|文件夹|知识库|文档库|索引|版本|来源|发布)"
# The first that matches counts; in lower case.
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
    keyphrases: KeyphraseConfig = _KEYPHRASES,
    infer: bool | None = None,
    today: date | None = None,
) -> QueryIR:
    """The QueryIR of a question, without a model: the caller's filters, and what its wording asks
    for besides.

    `infer` says whether filters are inferred, None leaves it to the configuration; a field that the
    caller filters by is never inferred. `today` (UTC) is what `近一周` is counted from. Keyphrases
    are those of `light`, whatever method ingest uses. Raises InputError `empty_query` when nothing
    but blanks and control characters is there, `query_too_long` above `limits.max_query_chars`,
    `invalid_query` when it is no text, `invalid_filter` when filters are no object; ConfigError for
    synonyms that cannot be read.
    """
    cleaned = _check(text, limits)
    given = _check_filters(filters)
    rules = _rules(config, keyphrases)
    found = Inferred(rest=cleaned)
    if config.inference.enabled if infer is None else infer:
        free = _without_fields(config.inference, given)
        found = infer_filters(cleaned, today=today or datetime.now(UTC).date(), config=free)
    preferences = tuple(
        name for name in SOFT_FIELDS if given.get(name, name in found.preferences) is True
    )
    own = {**found.filters, **{name: True for name in preferences if name not in given}}
    spoken = language(cleaned)
    return QueryIR(
        original=text,
        **_texts(found.rest, config),
        query_hash=_hash(cleaned),
        language="und" if spoken == UNKNOWN else spoken,
        intent=_intent(cleaned.lower(), bool(found.filters) and found.rest == cleaned),
        filters={**given, **own},
        keywords=find_keyphrases(found.rest, spoken, rules.keyphrases),
        identifiers=find_identifiers(found.rest),
        phrases=find_phrases(found.rest),
        expansions=rules.vocabulary.expansions(
            found.rest, config.expansion_weight, config.max_expansions
        ),
        preferences=preferences,
        inferred=own,
        warnings=tuple(f"{sentence}; {WITHOUT_FILTERS}" for sentence in found.explanations),
        query_profile_id=rules.profile_id,
        rewrite_profile_id=REWRITE_PROFILE,
    )


def without_rules(text: str, limits: Limits, filters: Mapping[str, Any] | None = None) -> QueryIR:
    """The question and the caller's filters, and nothing that any rule would find; InputError as
    `prepare`.
    """
    cleaned = _check(text, limits)
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
    """The question as it was asked, with the caller's own filters and nothing that was added or
    inferred.
    """
    cleaned = clean(query.original)
    return replace(
        query,
        normalised=cleaned,
        dense_text=half_width(cleaned),
        sparse_query=cleaned,
        filters=_read_given(query),
        expansions=(),
        rewrites=(),
        preferences=tuple(name for name in query.preferences if name not in query.inferred),
        inferred={},
        warnings=(),
        query_profile_id=PLAIN_PROFILE,
        rewrite_profile_id=REWRITE_PROFILE,
    )


def reword(query: QueryIR, text: str, config: QueryConfig = _QUERY) -> QueryIR:
    """A search phrasing of the question: its filters and preferences, and of its words only those
    of the phrasing.
    """
    return replace(
        query,
        expansions=(),
        phrases=find_phrases(text),
        identifiers=find_identifiers(text),
        rewrites=(),
        **_texts(text, config),
    )


def check_searches(searches: Any) -> tuple[str, ...]:
    """The search phrasings of a request, cleaned, each once, without empty ones.

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
    """The question without its inferred filters, their words being searched again; preferences
    stay.
    """
    own = {name: value for name, value in query.inferred.items() if name in SOFT_FIELDS}
    return replace(
        query,
        filters={**_read_given(query), **own},
        inferred=own,
        warnings=(),
        **_texts(clean(query.original), config),
    )


def warm_up(limits: Limits, config: QueryConfig, *, chinese: bool) -> None:
    """Load what the first question would wait for: the patterns of filters, and the dictionaries
    that Chinese is cut with.
    """
    prepare("预热" if chinese else "warm up", limits)
    filter_inference.warm_up(config.inference)
    if chinese:
        dictionary_terms("预热")


# --- the text -----------------------------------------------------------------------------------


def clean(text: str) -> str:
    """The question on one line in NFKC (full and half width become one), without control, format
    and surrogate characters.

    Runs of a sign are cut to three, heaps of combining marks to four.
    """
    if text.isascii() and text.isprintable():
        return _shorten_runs(" ".join(text.split()))
    composed = _MARKS.sub(_drop_marks, unicodedata.normalize("NFKC", text))
    kept = (
        " " if char.isspace() else char
        for char in composed
        if char.isspace() or unicodedata.category(char) not in ("Cc", "Cf", "Cs")
    )
    # a dropped joiner may leave two characters side by side that compose
    return _shorten_runs(
        " ".join(_MARKS.sub(_drop_marks, unicodedata.normalize("NFKC", "".join(kept))).split())
    )


def half_width(text: str) -> str:
    """A cleaned text as it is embedded: with `"`, `-`, `[`, `.` and `,` for their Chinese and
    typographic forms.
    """
    return text.translate(_NARROW)


def _drop_marks(match: re.Match[str]) -> str:
    return match.group()[:MAX_MARKS]


def _shorten_runs(text: str) -> str:
    return _REPEATED.sub(r"\1\1\1", text)


def fold(cleaned: str) -> str:
    """A cleaned question in lower case without the signs of sentences; a question of nothing but
    signs as it is.
    """
    lowered = cleaned.lower()
    return " ".join(_ENDING.sub(" ", lowered).split()) or lowered


def find_identifiers(text: str) -> tuple[str, ...]:
    """What names one thing exactly, as it is written: `PPR-9087`, `foo_bar`, `v1.2.3`, `etc/hosts`;
    each once.
    """
    found = (match.group() for match in _TOKEN.finditer(text))
    return tuple(dict.fromkeys(token for token in found if is_identifier(token.lower())))[
        :MAX_IDENTIFIERS
    ]


def find_phrases(text: str) -> tuple[str, ...]:
    """What stands in quotation marks or in the marks of Chinese titles; each once."""
    found = ("".join(filter(None, match.groups())).strip() for match in _PHRASE.finditer(text))
    return tuple(dict.fromkeys(phrase for phrase in found if any(map(str.isalnum, phrase))))[
        :MAX_PHRASES
    ]


def _texts(text: str, config: QueryConfig) -> dict[str, Any]:
    """The texts of a QueryIR. Case is kept: the word analysis splits camelCase before it lowers."""
    searched = text = without_directions(text)
    if config.drop_function_words:
        searched = stop_words.without(text, config.function_words, _find_quotations(text))
    return {"normalised": text, "dense_text": half_width(text), "sparse_query": searched}


def expected_words(query: QueryIR) -> str:
    """What texts in the language of the question should hold: all of it in a Latin script, of
    Chinese only what names something.

    An index without `the` and `of` is in another language; that `什么` is rare says nothing, for
    its characters count several times.
    """
    unspaced = _UNSPACED_CHARACTER.search(query.normalised)
    return query.sparse_query if unspaced else query.normalised


def _find_quotations(text: str) -> list[tuple[int, int]]:
    return [match.span() for match in _PHRASE.finditer(text)]


def _hash(cleaned: str) -> str:
    return hashlib.sha256(fold(cleaned).encode()).hexdigest()[:16]


def _intent(lowered: str, only_filters: bool) -> str:
    found = next((name for name, pattern in _INTENTS if pattern.search(lowered)), "search")
    return "metadata_filter" if found == "search" and only_filters else found


def _check(text: str, limits: Limits) -> str:
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


def _read_given(query: QueryIR) -> Json:
    return {name: value for name, value in query.filters.items() if name not in query.inferred}


def _field_names(filters: object, depth: int = 0) -> Iterator[str]:
    """Every field that a filter names, at any depth that the filters allow."""
    if isinstance(filters, Mapping) and depth <= MAX_FILTER_DEPTH:
        for name, value in filters.items():
            if name in ("$and", "$or") and isinstance(value, list | tuple):
                for item in value:
                    yield from _field_names(item, depth + 1)
            else:
                yield str(name)


def _without_fields(config: InferenceConfig, given: Json) -> InferenceConfig:
    """The configuration without the fields that the caller filters by: their words are words of the
    question.
    """
    named = set(_field_names(given))
    fields = tuple(name for name in config.fields if name not in named)
    return config if fields == config.fields else config.model_copy(update={"fields": fields})


# --- rules --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Rules:
    """What follows from the configuration alone; it holds the sections it was made of, so that
    their ids are not used again.
    """

    sections: tuple[QueryConfig, KeyphraseConfig]
    keyphrases: KeyphraseConfig
    vocabulary: Vocabulary
    profile_id: str


_made: Cache[_Rules] = Cache(16)


def _rules(config: QueryConfig, keyphrases: KeyphraseConfig) -> _Rules:
    key = (id(config), id(keyphrases), read_mtime(config))
    made = _made.get(key)
    if made is None:
        words = load_vocabulary(config)
        light = (
            keyphrases
            if keyphrases.method == "none"
            else keyphrases.model_copy(update={"method": "light"})
        )
        said = config.model_dump(mode="json", exclude={"rewrite"})
        parts = (RULES, said, light.model_dump(mode="json"), words.digest)
        profile = f"query-{fingerprint(*parts, length=12)}"
        made = _Rules((config, keyphrases), light, words, profile)
        _made.put(key, made)
    return made


# --- the subject --------------------------------------------------------------------------------

_EDGES = " \t,，、;；:：-"
_QUOTED = "\0"  # for the characters of a quotation; no cleaned text holds one
_CAPITALS = re.compile(r"[A-Z]{3}")  # EXPLAIN is a name, unless all of the question is in capitals


def subject_of(query: QueryIR) -> str:
    """The subject of a prepared question."""
    return find_subject(query.normalised)


@functools.lru_cache(maxsize=256)
def find_subject(text: str) -> str:
    """The cleaned question without the words of preferences and commands; as it is when no word
    that carries meaning would be left. Quotations stay, and so does a text above MAX_RULED_CHARS.

    >>> find_subject("Give me an overview of the latest response headers")
    'response headers'
    >>> find_subject("总结一下系统组成"), find_subject("summarise the latest")
    ('系统组成', 'summarise the latest')
    """
    if len(text) > MAX_RULED_CHARS:
        return text
    rest, shown = text, simplify(text)
    for start, end in _find_quotations(text):
        shown = shown[:start] + _QUOTED * (end - start) + shown[end:]
    lowered = shown.lower()
    for rule in (*load_rules("preferences"), *load_rules("commands")):
        for pattern in rule.compile_likely(lowered):
            match = pattern.search(shown) if "said" in pattern.groupindex else None
            if match is None or (_CAPITALS.search(match["said"]) and not text.isupper()):
                continue
            start, end = match.span("said")
            rest, shown = (
                f"{given[:start]} {given[end:]}".lstrip(_EDGES) for given in (rest, shown)
            )
    if rest is text:
        return text
    rest = tidy(rest).strip(_EDGES)
    return rest if meaning(rest) else text
