"""Limits for preparing questions, each with its source. Settings of users are in config/."""

from __future__ import annotations

from typing import Final

# --- what is read in a question -------------------------------------------------------------------
# maximum phrases in quotation marks; chosen by hand
MAX_PHRASES: Final = 8
# maximum identifiers; chosen by hand
MAX_IDENTIFIERS: Final = 32
# maximum words of a synonym; a longer one is a text; chosen by hand
MAX_SYNONYM_WORDS: Final = 32
# maximum nesting of a filter; chosen by hand
MAX_FILTER_DEPTH: Final = 5

# --- rules for filters, preferences and commands --------------------------------------------------
# maximum characters of a question; a longer text is a passage; chosen by hand
MAX_RULED_CHARS: Final = 400
# minimum characters of a part of a question; a shorter one has no subject; chosen by hand
MIN_PART_CHARS: Final = 8
# minimum characters of a Chinese part that is not searched for by itself; chosen by hand
MIN_HAN_PART_CHARS: Final = 4
# maximum parts of a question; more of them are a list; chosen by hand
MAX_PARTS: Final = 3
# maximum days of a period that ends now: a century; chosen by hand
MAX_INFERRED_DAYS: Final = 36_500

# --- a language model's rewriting -----------------------------------------------------------------
# maximum tokens of the reply; chosen by hand
MAX_REPLY_TOKENS: Final = 700
# maximum characters of the rewritten question; chosen by hand
MAX_REWRITTEN_CHARS: Final = 1_000
# maximum characters of a search phrasing; chosen by hand
MAX_SEARCH_CHARS: Final = 400
# maximum search phrasings of a question; chosen by hand
MAX_SEARCHES: Final = 4
# maximum keywords; chosen by hand
MAX_KEYWORDS: Final = 8
# maximum characters of a keyword; chosen by hand
MAX_KEYWORD_CHARS: Final = 80
# maximum filters; chosen by hand
MAX_FILTERS: Final = 4

# --- translation ----------------------------------------------------------------------------------
# maximum translations of a word that are looked for in the library; chosen by hand
MAX_LOOKED_UP: Final = 100
# maximum translations of a word, searched in its place; docs/decisions/0016
MAX_TRANSLATIONS: Final = 4
