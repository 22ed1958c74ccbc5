"""A question as the legs want it: cleaned, its words told apart, its filters told from its wording;
by rules alone.

What a question is about: its text without the words that say how it wants to be answered, which the
right passage need not hold.

`the latest`, `official documentation` and `带图的` are preferences, `summarise`, `an overview of`
and `总结一下` commands. They stay in the text that is searched; only how far passages hold the
question is told without them (a preference drops nothing).
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from typing import Any

from rag_platform.caching import Cache
from rag_platform.config.query import InferenceConfig, QueryConfig
from rag_platform.config.settings import KeyphraseConfig, Limits, fingerprint
from rag_platform.errors import InputError
from rag_platform.ir import Json, QueryIR
from rag_platform.query import filter_inference
from rag_platform.query.constants import MAX_RULED_CHARS
from rag_platform.query.filter_inference import Inferred, infer_filters, tidy
from rag_platform.query.filter_rules import COMMANDS, PREFERENCES, SIMPLIFIED
from rag_platform.query.filters import SOFT_FIELDS
from rag_platform.query.synonyms import Vocabulary, changed, vocabulary
from rag_platform.text import stop_words
from rag_platform.text.keyphrases import keyphrases as found_keyphrases
from rag_platform.text.language import UNKNOWN, language
from rag_platform.text.scripts import UNSPACED
from rag_platform.text.segmentation import dictionary_terms, is_identifier
from rag_platform.text.terms import meaning

RULES = 5  # of everything below; another number when the same text would give another QueryIR
PLAIN_PROFILE = f"query_plain-v{RULES}"
REWRITE_PROFILE = "none"
_QUERY, _KEYPHRASES = QueryConfig(), KeyphraseConfig()
WITHOUT_FILTERS = "ask without inferred filters to search everything"
MAX_PHRASES = 8
MAX_IDENTIFIERS = 32
MAX_MARKS = 4  # combining marks on one letter; scripts that need them need fewer

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
    """The QueryIR of a question, without a model: what the caller filters by, and what the words of
    the question ask for besides.

    `infer` says whether filters are told from the words, None leaves it to the configuration; a
    field that the caller filters by himself is never inferred. `today` (UTC) is what `近一周` is
    counted from. Keyphrases are those of `light`, whatever method ingest uses. Raises InputError
    `empty_query` when nothing but blanks and control characters is there, `query_too_long` above
    `limits.max_query_chars`, `invalid_query` when it is no text, `invalid_filter` when filters are
    no object; ConfigError for synonyms that cannot be read.
    """
    clean = _checked(text, limits)
    asked = _own(filters)
    rules = _rules(config, keyphrases)
    told = Inferred(rest=clean)
    if config.inference.enabled if infer is None else infer:
        told = infer_filters(
            clean, today=today or datetime.now(UTC).date(), config=_without(config.inference, asked)
        )
    preferences = tuple(
        name for name in SOFT_FIELDS if asked.get(name, name in told.preferences) is True
    )
    own = {**told.filters, **{name: True for name in preferences if name not in asked}}
    normalized = normalised(clean)
    spoken = language(clean)
    return QueryIR(
        original_query=text,
        normalized_query=normalized,
        query_hash=hashlib.sha256(normalized.encode()).hexdigest()[:16],
        language="und" if spoken == UNKNOWN else spoken,
        intent=_intent(clean.lower(), told.filters and told.rest == clean),
        filters={**asked, **own},
        keywords=found_keyphrases(told.rest, spoken, rules.keyphrases),
        identifiers=identifiers(told.rest),
        phrases=phrases(told.rest),
        expansions=rules.vocabulary.expansions(
            told.rest, config.expansion_weight, config.max_expansions
        ),
        preferences=preferences,
        inferred=own,
        warnings=tuple(f"{said}; {WITHOUT_FILTERS}" for said in told.explanations),
        query_profile_id=rules.profile_id,
        rewrite_profile_id=REWRITE_PROFILE,
        **_worded(told.rest, config),
    )


def unprepared(text: str, limits: Limits, filters: Mapping[str, Any] | None = None) -> QueryIR:
    """The question and the caller's filters, and nothing that any rule would find; InputError as
    `prepare`.
    """
    clean = _checked(text, limits)
    normalized = normalised(clean)
    return QueryIR(
        text,
        normalized,
        clean,
        clean,
        hashlib.sha256(normalized.encode()).hexdigest()[:16],
        "und",
        filters=_own(filters),
        query_profile_id=PLAIN_PROFILE,
        rewrite_profile_id=REWRITE_PROFILE,
        asked_text=clean,
        asked_words=clean,
    )


def plain(query: QueryIR) -> QueryIR:
    """The question as it was asked: normalised, with the caller's own filters, and nothing that was
    added or told.
    """
    clean = cleaned(query.original_query)
    return replace(
        query,
        dense_query_text=half_width(clean),
        sparse_query_expr=clean,
        asked_text=clean,
        asked_words=clean,
        about=subject(clean, _quoted(clean)),
        filters=_given(query),
        expansions=(),
        rewrites=(),
        preferences=tuple(name for name in query.preferences if name not in query.inferred),
        inferred={},
        warnings=(),
        query_profile_id=PLAIN_PROFILE,
        rewrite_profile_id=REWRITE_PROFILE,
    )


def further(query: QueryIR, text: str, config: QueryConfig = _QUERY) -> QueryIR:
    """Another wording of the question as the legs want it, without the synonyms and phrases of the
    asked one.
    """
    return replace(query, expansions=(), phrases=(), **_worded(text, config))


def relaxed(query: QueryIR, config: QueryConfig = _QUERY) -> QueryIR:
    """The question without its inferred filters and with their words searched again; preferences
    stay (relaxed once).
    """
    clean = cleaned(query.original_query)
    own = {name: value for name, value in query.inferred.items() if name in SOFT_FIELDS}
    return replace(
        query, filters={**_given(query), **own}, inferred=own, warnings=(), **_worded(clean, config)
    )


def warm(limits: Limits, config: QueryConfig, *, chinese: bool) -> None:
    """Load what the first question waits for otherwise: the patterns of filters, and the
    dictionaries that Chinese ones are cut with.
    """
    prepare("预热" if chinese else "warm up", limits)
    filter_inference.warm_up(config.inference)
    if chinese:
        dictionary_terms("预热")


# --- the text -----------------------------------------------------------------------------------


def cleaned(text: str) -> str:
    """The question on one line in NFKC (full and half width become one), without control, format
    and surrogate characters.

    Runs of a sign are cut to three, heaps of combining marks to four.
    """
    if text.isascii() and text.isprintable():
        return _cut(" ".join(text.split()))
    composed = _MARKS.sub(_few, unicodedata.normalize("NFKC", text))
    kept = (
        " " if char.isspace() else char
        for char in composed
        if char.isspace() or unicodedata.category(char) not in ("Cc", "Cf", "Cs")
    )
    # a dropped joiner may leave two characters side by side that compose
    return _cut(" ".join(_MARKS.sub(_few, unicodedata.normalize("NFKC", "".join(kept))).split()))


def half_width(text: str) -> str:
    """A cleaned text as it is embedded: with `"`, `-`, `[`, `.` and `,` for their Chinese and
    typographic forms.
    """
    return text.translate(_NARROW)


def _few(match: re.Match[str]) -> str:
    return match.group()[:MAX_MARKS]


def _cut(text: str) -> str:
    return _REPEATED.sub(r"\1\1\1", text)


def normalised(clean: str) -> str:
    """A cleaned question in lower case without the signs of sentences; a question of nothing but
    signs as it is.
    """
    lowered = clean.lower()
    return " ".join(_ENDING.sub(" ", lowered).split()) or lowered


def identifiers(text: str) -> tuple[str, ...]:
    """What names one thing exactly, as it is written: `PPR-9087`, `foo_bar`, `v1.2.3`, `etc/hosts`;
    each once.
    """
    found = (match.group() for match in _TOKEN.finditer(text))
    return tuple(dict.fromkeys(token for token in found if is_identifier(token.lower())))[
        :MAX_IDENTIFIERS
    ]


def phrases(text: str) -> tuple[str, ...]:
    """What stands in quotation marks or in the marks of Chinese titles; each once."""
    found = ("".join(filter(None, match.groups())).strip() for match in _PHRASE.finditer(text))
    return tuple(dict.fromkeys(phrase for phrase in found if any(map(str.isalnum, phrase))))[
        :MAX_PHRASES
    ]


def _worded(text: str, config: QueryConfig) -> dict[str, Any]:
    """The fields of a question that say in which words it is asked.

    The word index is searched without function words, a quotation stays whole, and case is kept:
    the word analysis splits camelCase before it lowers. What texts in the language of the question
    should hold is all of it in a Latin script, of Chinese only what names something: an index
    without `the` and `of` is in another language; that `什么` is rare tells nothing, for its
    characters count several times.
    """
    searched, quoted = text, _quoted(text)
    if config.drop_function_words:
        searched = stop_words.without(text, config.function_words, quoted)
    expected = searched if _UNSPACED_CHARACTER.search(text) else text
    about = subject(text, quoted)
    return {
        "dense_query_text": half_width(text),
        "sparse_query_expr": searched,
        "asked_text": text,
        "asked_words": expected,
        "about": about,
    }


def _quoted(text: str) -> list[tuple[int, int]]:
    return [match.span() for match in _PHRASE.finditer(text)]


def _intent(lowered: str, only_filters: object) -> str:
    found = next((name for name, pattern in _INTENTS if pattern.search(lowered)), "search")
    return "metadata_filter" if found == "search" and only_filters else found


def _checked(text: str, limits: Limits) -> str:
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
    if not (clean := cleaned(text)):
        raise InputError("the question is empty; give at least one word", code="empty_query")
    return clean


# --- filters ------------------------------------------------------------------------------------


def _own(filters: Mapping[str, Any] | None) -> Json:
    if filters is not None and not isinstance(filters, Mapping):
        raise InputError(
            f"filters must be an object of field names, not {type(filters).__name__}",
            code="invalid_filter",
        )
    return dict(filters or {})


def _given(query: QueryIR) -> Json:
    return {name: value for name, value in query.filters.items() if name not in query.inferred}


def _names_in(filters: object) -> set[str]:
    """Every field that a filter names, at any depth that the filters allow."""
    return set(_named(filters, 0))


def _named(filters: object, depth: int) -> Iterator[str]:
    if isinstance(filters, Mapping) and depth < 8:
        for name, value in filters.items():
            if name in ("$and", "$or") and isinstance(value, list | tuple):
                for item in value:
                    yield from _named(item, depth + 1)
            else:
                yield str(name)


def _without(config: InferenceConfig, asked: Json) -> InferenceConfig:
    """The configuration without the fields that the caller filters by: their words are words of the
    question.
    """
    named = _names_in(asked)
    return (
        config.model_copy(
            update={"fields": tuple(name for name in config.fields if name not in named)}
        )
        if named
        else config
    )


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
    key = (id(config), id(keyphrases), changed(config))
    made = _made.get(key)
    if made is None:
        words = vocabulary(config)
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


_EDGES = " \t,，、;；:：-"
_QUOTED = "\0"  # for the characters of a quotation; no cleaned text holds one
_CAPITALS = re.compile(r"[A-Z]{3}")  # EXPLAIN is a name, unless all of the question is in capitals


def subject(text: str, spared: Sequence[tuple[int, int]] = ()) -> str:
    """The cleaned question without the words of preferences and commands; as it is when no word
    that carries meaning would be left.

    What lies in a `spared` span [start, end) stays, and so does a text above MAX_RULED_CHARS.

    >>> subject("Give me an overview of the latest response headers")
    'response headers'
    >>> subject("总结一下系统组成"), subject("summarise the latest")
    ('系统组成', 'summarise the latest')
    """
    if len(text) > MAX_RULED_CHARS:
        return text
    rest, shown = text, text.translate(SIMPLIFIED)
    for start, end in spared:
        shown = shown[:start] + _QUOTED * (end - start) + shown[end:]
    lowered = shown.lower()
    for rule in (*PREFERENCES, *COMMANDS):
        for pattern in rule.compiled(lowered):
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
