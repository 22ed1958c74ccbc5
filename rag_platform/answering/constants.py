"""Every number that decides how an answer is made and checked, with its source, grouped by stage.

A source is a publication, a decision under docs/decisions, or `chosen by hand`: then no measurement
compared it alone with other values, and docs/decisions/0012 has what all of them together come to.
docs/reference/constants.md lists them. Users' settings are in config/, with their defaults.
"""

from __future__ import annotations

from typing import Final

# --- question -------------------------------------------------------------------------------------
# levels to which filters may be nested; chosen by hand
MAX_FILTER_NESTING: Final = 40
# seconds to load one model of a question; chosen by hand
LOAD_SECONDS: Final = 120.0
# the most confidence of an answer that refuses; chosen by hand
MAX_REFUSAL_CONFIDENCE: Final = 0.2

# --- context --------------------------------------------------------------------------------------
# characters that two chunks have in common, below which it is chance; chosen by hand
MIN_OVERLAP_CHARS: Final = 16
# share of the text that would fit, which a cut at a coarser boundary must keep; chosen by hand
MIN_CUT_SHARE: Final = 0.5

# --- states ---------------------------------------------------------------------------------------
# first hits that are read for the words of a search; chosen by hand
READ_HITS: Final = 3
# share of a question's own words in a passage, from which its phrasings make no answer less sure;
# chosen by hand
OWN_WORDS_FOUND: Final = 0.9

# columns of a table, below which their names tell nothing of how near names are; chosen by hand
MIN_COLUMNS: Final = 3
# deviations above the mean similarity of a table's columns from which a word means one of them;
# chosen by hand
COLUMN_STANDING: Final = 1.5

# --- quotes ---------------------------------------------------------------------------------------
# quotes of an answer; chosen by hand
MAX_QUOTES: Final = 5
# characters of the parts that are quoted together; chosen by hand
MAX_ANSWER_CHARS: Final = 600
# characters of a list that is quoted whole; chosen by hand
MAX_LIST_CHARS: Final = 600
# characters of what introduces an item, above which it is not quoted with it; chosen by hand
MAX_ABOVE_CHARS: Final = 200
# characters of a sentence below which those around it are quoted as well; chosen by hand
MIN_QUOTE_CHARS: Final = 100
# characters to which a quote is extended; chosen by hand
MAX_QUOTE_CHARS: Final = 500
# share of the words of two quotes that both have, above which they tell the same of two documents;
# chosen by hand
RIVAL_SHARE: Final = 0.7
# share of the best quote's score that a further quote needs; chosen by hand
KEEP_RATIO: Final = 0.5
# best units whose coverage decides whether there is an answer; chosen by hand
COMPARED_UNITS: Final = 3
# first parts that are compared by their meaning, where words tell nothing; chosen by hand
COMPARED_BY_MEANING: Final = 16
# characters of each of them that are read; chosen by hand
COMPARED_CHARS: Final = 300
# worth of a word that is only in the heading, the header row or the sentence before; chosen by hand
CONTEXT_WEIGHT: Final = 0.4
# worth of a word that is only in the section path or the title; chosen by hand
FAR_WEIGHT: Final = 0.2
# factor of a unit with a number, where one is asked for; chosen by hand
NUMBER_FACTOR: Final = 1.2
# factor of a unit that defines something, where a meaning is asked for; chosen by hand
MEANING_FACTOR: Final = 1.25
# factor of a unit in another language than the question; chosen by hand
OTHER_LANGUAGE_FACTOR: Final = 0.7
# factor of code longer than MAX_QUOTE_CHARS, which has many words by its length; chosen by hand
LONG_CODE_FACTOR: Final = 0.7
# factor of a unit that only says where to read, or introduces what is not in it; chosen by hand
POINTER_FACTOR: Final = 0.7
# factor of a unit of a passage about something else than the question names, or of a change log
# that is not asked for; chosen by hand
BESIDE_FACTOR: Final = 0.6
# what each better hit adds to the divisor of a unit's score; chosen by hand
PLACE_PENALTY: Final = 0.2

# passages before one that begins within a table among which its header is looked for first; chosen
# by hand
NEAR_CHUNKS: Final = 8
# the same where it is not among them; a table of 2,182 rows takes 170; chosen by hand
MAX_TABLE_CHUNKS: Final = 512

# --- groundedness ---------------------------------------------------------------------------------
# share of a sentence's words that the passages it cites must have; chosen by hand
MIN_SHARE: Final = 0.5
# the same of the passage that becomes the source of a sentence without a mark; chosen by hand
CLEAR_SHARE: Final = 0.75
# share of the nearest clause's common words that makes another one as near; chosen by hand
NEAR_CLAUSE_SHARE: Final = 0.8
# share of a clause's words that stand beside its number, by which another place of the text is
# nearer; docs/decisions/0015
NUMBER_MARGIN: Final = 0.34
# tokens alike before and behind a phrase that takes another one's place; docs/decisions/0015
FRAME_TOKENS: Final = 4
# letters at the end of a name that a text may put otherwise; chosen by hand
NAME_ENDING: Final = 3
# clauses of a text with a word that still tells two of them apart; docs/decisions/0015
MAX_REPEATS: Final = 2
# how many times longer one of the two phrases may be; docs/decisions/0015
REPLACED_LENGTH: Final = 2
# terms of a sentence, below which there is nothing to check; chosen by hand
MIN_TERMS: Final = 2
# terms beyond twice the sentence's which halve how well a unit fits as its span; chosen by hand
SPAN_EXCESS_SCALE: Final = 40

# --- no answer ------------------------------------------------------------------------------------
# passages that are listed in place of an answer; chosen by hand
CLOSEST_PASSAGES: Final = 3
# characters of each of them; chosen by hand
SNIPPET_CHARS: Final = 240
