"""Every number that decides how an answer is made and checked, with its source, grouped by stage.

A source is a publication, a decision under docs/decisions, or `chosen by hand`: no measurement
compared the value with others in isolation; docs/decisions/0012 evaluates all of them together.
docs/reference/constants.md lists them. Users' settings are in config/, with their defaults.
"""

from __future__ import annotations

from typing import Final

# --- question -------------------------------------------------------------------------------------
# maximum nesting of filters, in levels; chosen by hand
MAX_FILTER_NESTING: Final = 40
# time limit for loading one model, in seconds; chosen by hand
LOAD_SECONDS: Final = 120.0
# maximum confidence of a refusal; chosen by hand
MAX_REFUSAL_CONFIDENCE: Final = 0.2

# --- context --------------------------------------------------------------------------------------
# minimum overlap of two chunks, in characters; less is coincidence; chosen by hand
MIN_OVERLAP_CHARS: Final = 16
# minimum share of the text that would fit which a cut at a coarser boundary keeps; chosen by hand
MIN_CUT_SHARE: Final = 0.5

# --- states ---------------------------------------------------------------------------------------
# first hits in which the words of a search are looked up; chosen by hand
READ_HITS: Final = 3
# share of the question's own words in a passage from which the question without its phrasings also
# counts for the confidence; chosen by hand
OWN_WORDS_FOUND: Final = 0.9

# first quoted sentences of a small library that are compared with the question; chosen by hand
COMPARED_QUOTES: Final = 3

# minimum columns of a table whose similarities form a baseline; chosen by hand
MIN_COLUMNS: Final = 3
# standard deviations above the mean similarity of a table's columns from which a word matches one
# of them; chosen by hand
COLUMN_STANDING: Final = 1.5

# --- quotes ---------------------------------------------------------------------------------------
# maximum quotes of an answer; chosen by hand
MAX_QUOTES: Final = 5
# maximum characters of all quoted parts together; chosen by hand
MAX_ANSWER_CHARS: Final = 600
# maximum characters of a list that is quoted whole; chosen by hand
MAX_LIST_CHARS: Final = 600
# maximum characters of an introduction that is quoted with its item; chosen by hand
MAX_ABOVE_CHARS: Final = 200
# characters below which a sentence is quoted with its neighbours; chosen by hand
MIN_QUOTE_CHARS: Final = 100
# maximum characters of an extended quote; chosen by hand
MAX_QUOTE_CHARS: Final = 500
# Jaccard similarity of the words of two quotes above which a label tells them apart; chosen by hand
SIMILAR_QUOTES: Final = 0.7
# share of the words of a question with an error message in a quote that shows it; chosen by hand
MESSAGE_SHARE: Final = 0.6
# share of the best quote's score that a further quote needs; chosen by hand
KEEP_RATIO: Final = 0.5
# the same for a quote far from all better ones that adds no word of the question; chosen by hand
FAR_KEEP_RATIO: Final = 0.75
# maximum difference of the positions of two passages that are near each other; chosen by hand
NEAR_PASSAGES: Final = 4
# first parts that are compared by embedding, where no word matches; chosen by hand
COMPARED_BY_MEANING: Final = 16
# characters of each of them that are embedded; chosen by hand
COMPARED_CHARS: Final = 300
# weight of a word that is only in the heading, the header row or the sentence before; chosen by
# hand
CONTEXT_WEIGHT: Final = 0.4
# weight of a word that is only in the section path or the title; chosen by hand
FAR_WEIGHT: Final = 0.2
# factor of a unit with a number, where one is asked for; chosen by hand
NUMBER_FACTOR: Final = 1.2
# factor of a unit in another script than the question; chosen by hand
OTHER_LANGUAGE_FACTOR: Final = 0.7
# factor of more than two lines of a program, whose comments say what they do; chosen by hand
LONG_CODE_FACTOR: Final = 0.6
# factor of a unit that only points elsewhere or introduces something; chosen by hand
POINTER_FACTOR: Final = 0.7
# factor of a unit of a change log that is not asked for, and of one without a version where one is
# asked for; its square is that of a document without the number by which the question names one,
# and of another option's description; chosen by hand
OFF_TOPIC_FACTOR: Final = 0.6
# added to the divisor of a unit's score for each better hit; chosen by hand
PLACE_PENALTY: Final = 0.2

# preceding passages that are first searched for the header of a table; chosen by hand
NEAR_CHUNKS: Final = 8
# the same where those lack it; a table of 2,182 rows takes 170; chosen by hand
MAX_TABLE_CHUNKS: Final = 512

# --- groundedness ---------------------------------------------------------------------------------
# minimum share of a sentence's words in the passages that it cites; chosen by hand
MIN_SHARE: Final = 0.5
# the same share in the passage that is cited for a sentence without a mark; chosen by hand
CLEAR_SHARE: Final = 0.75
# share of the nearest clause's overlap from which another clause counts as near; chosen by hand
NEAR_CLAUSE_SHARE: Final = 0.8
# of the words that an option shares with the description of another, its own has fewer, and the
# sentence describes the other; chosen by hand
FLAG_MARGIN: Final = 0.8
# share of a clause's words by which another place must match better than that of its number;
# docs/decisions/0015
NUMBER_MARGIN: Final = 0.34
# minimum equal tokens around a replaced phrase; docs/decisions/0015
FRAME_TOKENS: Final = 4
# letters at the end of a name that may differ, as by inflection; chosen by hand
NAME_ENDING: Final = 3
# maximum clauses with a word that still distinguishes two of them; docs/decisions/0015
MAX_REPEATS: Final = 2
# maximum ratio of the lengths of two phrases that replace each other; docs/decisions/0015
REPLACED_LENGTH: Final = 2
# minimum terms of a sentence that can be checked; chosen by hand
MIN_TERMS: Final = 2
# terms beyond twice the sentence's that halve the score of a unit as its span; chosen by hand
SPAN_EXCESS_SCALE: Final = 40

# --- no answer ------------------------------------------------------------------------------------
# passages that are listed in place of an answer; chosen by hand
CLOSEST_PASSAGES: Final = 3
# characters of each of them; chosen by hand
SNIPPET_CHARS: Final = 240
