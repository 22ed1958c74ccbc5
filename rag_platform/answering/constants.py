"""Every number that decides how an answer is made and checked, by stage, each with its source.

"chosen by hand" means that no measurement compared it alone with other values; docs/decisions/0012
has what all of them together come to.
"""

from __future__ import annotations

from typing import Final

# --- the question ---------------------------------------------------------------------------------

MAX_FILTER_DEPTH: Final = 40  # levels of nesting; chosen by hand, nobody writes more than five
LOAD_SECONDS: Final = 120.0  # to load one model of a question; chosen by hand
MAX_REFUSAL_CONFIDENCE: Final = 0.2  # what a refusal has at most; chosen by hand

# --- context: the passages that an answerer reads -------------------------------------------------

MIN_OVERLAP_CHARS: Final = 16  # a shorter match of two chunks is chance; chosen by hand
# A passage is cut at the coarsest boundary that keeps this share of what would fit; chosen by hand.
MIN_CUT_SHARE: Final = 0.5

# --- extractive answers: which sentences are quoted -----------------------------------------------

MAX_QUOTES: Final = 3  # chosen by hand
# Share of the question's words, by weight, below which there is no answer: the mean of what the
# best quote with its headings and the best passage hold. Chosen by hand.
MIN_COVERAGE: Final = 0.42
KEEP_RATIO: Final = 0.7  # of the best quote's score that a further one needs; chosen by hand
COMPARED_UNITS: Final = 3  # best units whose coverage decides; chosen by hand

# What a word of the question counts that stands outside of the unit itself; chosen by hand.
CONTEXT_WEIGHT: Final = 0.4  # only in the heading, the header row or the sentence before
FAR_WEIGHT: Final = 0.2  # only in the section path or the title

# Factors of a unit's score, for its form and its place; all chosen by hand.
NUMBER_FACTOR: Final = 1.2  # the question asks for a number, and the unit has one
MEANING_FACTOR: Final = 1.25  # the question asks what something is, and the unit says it
UNASKED_CODE_FACTOR: Final = 0.6  # a code block where none is asked for
OTHER_LANGUAGE_FACTOR: Final = 0.7
POINTER_FACTOR: Final = 0.6  # it only says where the answer stands
QUESTION_FACTOR: Final = 0.5  # it is a question itself
REPETITION_FACTOR: Final = 0.4  # it has fewer than MIN_NEW_TERMS that the question has not
MIN_NEW_TERMS: Final = 2
PLACE_PENALTY: Final = 0.1  # the score is divided by 1 + this for each better hit
# A unit of more terms holds many words by chance: divided by 1 + the terms beyond / the scale.
LONG_UNIT_TERMS: Final = 40
LONG_UNIT_SCALE: Final = 80

# --- groundedness: whether passages bear a sentence out -------------------------------------------

MIN_SHARE: Final = 0.5  # of a sentence's words that the cited passages must hold; chosen by hand
CLEAR_SHARE: Final = 0.75  # that a passage must hold to become an uncited one's source; by hand
MIN_TERMS: Final = 2  # a sentence of fewer says nothing that could be checked; chosen by hand
# The span that a sentence rests on: terms of a unit beyond twice the sentence's, divided by this,
# weigh against it. Chosen by hand.
SPAN_EXCESS_SCALE: Final = 40

# --- what stands in place of an answer ------------------------------------------------------------

CLOSEST_PASSAGES: Final = 3  # chosen by hand
SNIPPET_CHARS: Final = 240  # of each of them; chosen by hand
