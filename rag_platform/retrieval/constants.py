"""Every number that searching and ranking go by, with its source, grouped by stage.

A source is a publication, a decision under docs/decisions, or `chosen by hand`;
docs/reference/constants.md lists them. Users' settings are in config/, with their defaults.
"""

from __future__ import annotations

from typing import Final

# --- request --------------------------------------------------------------------------------------
# hits of one question; chosen by hand
MAX_TOP_K: Final = 100
# hidden chunks that are searched and dropped again; above it the others are a filter, which costs
# more; chosen by hand
MAX_OVERFETCH: Final = 500

# --- spelling: typing errors of a question --------------------------------------------------------
# letters of a word below which it is no typing error: short ones are one edit from too many;
# chosen by hand
MIN_CORRECTED_CHARS: Final = 5
# letters from which a word may have two errors of any kind; chosen by hand
LONG_WORD: Final = 8
# words of a question that are looked at; chosen by hand
MAX_CHECKED_WORDS: Final = 32

# --- retrieve -------------------------------------------------------------------------------------
# share of a stage's time that a search may wait for its turn; chosen by hand
TURN_SHARE: Final = 0.25
# best sparse hits whose mean score tells the sparse weight; docs/decisions/0005
WEIGHED_HITS: Final = 3
# r from which the sparse retriever counts fully; docs/decisions/0005
FULL_TRUST: Final = 0.15
# r from which it counts at all for a sentence in a language of no text; docs/decisions/0005
NO_FOREIGN_TRUST: Final = 0.15
# the most that it counts for such a sentence; docs/decisions/0005
MOST_FOREIGN_TRUST: Final = 0.5
# share of the chunks by which a release holds a language; docs/decisions/0005
HELD_LANGUAGE: Final = 0.05

# --- naming: documents that a question names ------------------------------------------------------
# share of the best document's score from which another one is meant as well; chosen by hand
MEANT_SHARE: Final = 0.6
# chunks that the documents meant have on average; smaller ones gain nothing; chosen by hand
MIN_MEANT_CHUNKS: Final = 3
# documents with a word in their names that may name them; above it the word only tells namesakes
# apart; chosen by hand
MAX_NAMESAKES: Final = 256
# documents that one question may mean; chosen by hand
MAX_MEANT: Final = 32
# chunks with the word in its own documents for one elsewhere; chosen by hand
OWN_CHUNKS: Final = 3
# chunks elsewhere of which one may hold a word that the texts hardly use; chosen by hand
FOREIGN_CHUNKS: Final = 500
# terms with a meaning that a question needs besides the names; chosen by hand
MIN_TERMS_LEFT: Final = 2

# --- fusion and merge -----------------------------------------------------------------------------
# k of reciprocal rank fusion; Cormack et al., SIGIR 2009
RANK_CONSTANT: Final = 60.0
# how far below hits of equal scores, or a single one, a retriever leaves what it did not find: the
# whole range of min-max scores, one deviation of standard scores; chosen by hand
BELOW_EQUALS: Final = 1.0
# first hits of the question and of each phrasing that their common order goes by; chosen by hand
JOINED_HITS: Final = 10
# hits that lead a common order at least, where the caller gives the phrasings; chosen by hand
LEADING_HITS: Final = 3
# share of the question that a namespace's first hit holds at least: in another language it may be
# right without any of the words; chosen by hand
MIN_NAMESPACE_SHARE: Final = 0.1

# --- rerank: features of words --------------------------------------------------------------------
# characters of a text that are read; chosen by hand
MAX_READ_CHARS: Final = 4_000
# terms of a question; chosen by hand
MAX_TERMS: Final = 24
# places of one term in one text; chosen by hand
MAX_PLACES: Final = 8
# characters between two terms that stand side by side; chosen by hand
BESIDE_CHARS: Final = 8
# characters between two terms that stand near each other; chosen by hand
NEAR_CHARS: Final = 60
# what near is worth, side by side being 1; chosen by hand
NEAR_WORTH: Final = 0.4
# worth of a text with no identifier of the kind that was asked for, the right one being 1; chosen
# by hand
NO_IDENTIFIER: Final = 0.5
# the same where a text may mean the thing and write it in another way; chosen by hand
LOOSE_IDENTIFIER: Final = 0.9

# --- confidence -----------------------------------------------------------------------------------
# weight of the words; chosen by hand
COVERAGE_WEIGHT: Final = 0.7
# weight of the agreement of both retrievers; chosen by hand
AGREEMENT_WEIGHT: Final = 0.2
# weight of the cited hit's standing among the hits; chosen by hand
STANDING_WEIGHT: Final = 0.1
# agreement where one retriever ran; chosen by hand
ONE_RETRIEVER: Final = 0.5
# hits whose origin tells the agreement; chosen by hand
AGREEING_HITS: Final = 3
# the most confidence without a citation; chosen by hand
MAX_UNCITED: Final = 0.2

# --- signals of a search --------------------------------------------------------------------------
# the sparse candidate above which the best one's margin is told; chosen by hand
MARGIN_RANK: Final = 10
# texts, or dense candidates, below which reach, margin and standing of the best are no figures to
# compare: the model of states was trained on pools of 50 and more; chosen by hand
MIN_POOL: Final = 40
# texts of other people by which a library's words are weighed as well, half of which hold each word
# that names no subject; chosen by hand
OTHER_TEXTS: Final = 100

# --- caches and preloading ------------------------------------------------------------------------
# releases beside the published ones that stay open; chosen by hand
MAX_RETAINED_OPEN: Final = 3
# filters of a release whose chunks are remembered; chosen by hand
KEPT_FILTERS: Final = 32
# strategies of which what follows is remembered; chosen by hand
KEPT_STRATEGIES: Final = 12
# sets of named documents whose chunks are remembered; chosen by hand
KEPT_NAMED: Final = 64
# candidates of a retriever that a trace lists: rerankers read fewer; chosen by hand
TRACED_CANDIDATES: Final = 30
# seconds without a question before words are preloaded; chosen by hand
QUIET_SECONDS: Final = 0.5
# the most seconds that preloading waits for them; chosen by hand
PATIENCE_SECONDS: Final = 10.0
