"""A question as the legs want it: cleaned, normalised, its language and intent told from its characters and words."""

from __future__ import annotations

import hashlib
import re
import unicodedata

from rag_platform.config import Limits
from rag_platform.errors import InputError
from rag_platform.ir import Json, QueryIR

QUERY_PROFILE = "query_plain-v1"  # changes when the same text would give another QueryIR
REWRITE_PROFILE = "none"

_HAN = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
_KANA = re.compile(r"[\u3040-\u30ff\u31f0-\u31ff]")
_HANGUL = re.compile(r"[\u1100-\u11ff\uac00-\ud7af]")
_LATIN = re.compile(r"[A-Za-z\u00c0-\u024f]")
_INTENTS = (
    ("compare", re.compile(r"\b(compare|comparison|versus|vs|differences? between)\b|对比|比较|区别|有何不同|有什么不同|差异")),
    ("summarize", re.compile(r"\b(summari[sz]e|summary of|overview of|tl;dr)\b|总结|概括|概述|摘要|归纳")),
)


def prepare(text: str, limits: Limits, filters: Json | None = None) -> QueryIR:
    """The QueryIR of a question.

    Raises InputError `empty_query` when nothing but blanks and control characters is there, `query_too_long` above
    `limits.max_query_chars`, `invalid_query` when it is no text.
    """
    if not isinstance(text, str):
        raise InputError(f"the question must be text, not {type(text).__name__}", code="invalid_query")
    if len(text) > limits.max_query_chars:
        raise InputError(
            f"the question has {len(text)} characters, the limit is {limits.max_query_chars}; shorten it or raise limits.max_query_chars",
            code="query_too_long", length=len(text), limit=limits.max_query_chars,
        )  # fmt: skip
    clean = cleaned(text)
    if not clean:
        raise InputError("the question is empty; give at least one word", code="empty_query")
    normalized = clean.lower()
    return QueryIR(
        original_query=text,
        normalized_query=normalized,
        dense_query_text=clean,
        sparse_query_expr=clean,  # keeps its case: the word analysis splits camelCase before it lowers
        query_hash=hashlib.sha256(normalized.encode()).hexdigest()[:16],
        language=language(clean),
        intent=next((name for name, pattern in _INTENTS if pattern.search(normalized)), "search"),
        filters=filters or {},
        query_profile_id=QUERY_PROFILE,
        rewrite_profile_id=REWRITE_PROFILE,
    )


def cleaned(text: str) -> str:
    """NFKC (full and half width become one), control, format and surrogate characters dropped, white space runs made one space."""
    composed = unicodedata.normalize("NFKC", text)
    kept = (" " if char.isspace() else char for char in composed if char.isspace() or unicodedata.category(char) not in ("Cc", "Cf", "Cs"))
    # a dropped joiner may leave two characters side by side that compose
    return " ".join(unicodedata.normalize("NFKC", "".join(kept)).split())


def language(text: str) -> str:
    """zh, ja, ko, en for Latin script, or und, by the share of the scripts; one Han character weighs as much as three letters."""
    han, kana, hangul, latin = (len(pattern.findall(text)) for pattern in (_HAN, _KANA, _HANGUL, _LATIN))
    if kana and kana * 5 >= han:
        return "ja"
    if hangul and hangul * 3 >= latin:
        return "ko"
    if han and han * 3 >= latin:
        return "zh"
    return "en" if latin else "und"
