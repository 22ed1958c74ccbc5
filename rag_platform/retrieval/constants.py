"""Every number that decides how chunks are searched and ranked, with its source, grouped by stage.

A source is a publication, a decision under docs/decisions, or `chosen by hand`;
docs/reference/constants.md lists them. Users' settings are in config/, with their defaults.
"""

from __future__ import annotations

from typing import Final

# --- request --------------------------------------------------------------------------------------
# maximum hits of one question; chosen by hand
MAX_TOP_K: Final = 100
# maximum hidden chunks that are searched and dropped afterwards; more are filtered out in the
# search, which costs more; chosen by hand
MAX_OVERFETCH: Final = 500

# --- spelling: typing errors of a question --------------------------------------------------------
# minimum letters of a corrected word: shorter ones are one edit from too many others; chosen by
# hand
MIN_CORRECTED_CHARS: Final = 5
# letters from which a word may have two errors of any kind; chosen by hand
LONG_WORD: Final = 8
# maximum words of a question that are checked; chosen by hand
MAX_CHECKED_WORDS: Final = 32
# chunks that are read for the form of a date: the best matches of all its forms; chosen by hand
DATED_CHUNKS: Final = 20

# --- retrieve -------------------------------------------------------------------------------------
# share of a stage's time that a search may wait for a slot; chosen by hand
TURN_SHARE: Final = 0.25
# best sparse hits whose mean score determines the trust; docs/decisions/0005
WEIGHED_HITS: Final = 3
# r from which the sparse retriever is fully trusted; docs/decisions/0005
FULL_TRUST: Final = 0.15
# r up to which it is not trusted for a question in a language that no text is in;
# docs/decisions/0005
NO_FOREIGN_TRUST: Final = 0.15
# maximum trust for such a question; docs/decisions/0005
MOST_FOREIGN_TRUST: Final = 0.5
# share of its greatest score from which a text of a library in two languages answers a question in
# its own words; docs/decisions/0016
OWN_WORDS_REACH: Final = 0.5
# share of the chunks from which a release counts as being in a language; docs/decisions/0005
HELD_LANGUAGE: Final = 0.05

# --- naming: documents that a question names ------------------------------------------------------
# share of the best document's score from which another document is meant as well; chosen by hand
MEANT_SHARE: Final = 0.6
# minimum mean chunks of the documents meant; smaller ones gain nothing; chosen by hand
MIN_MEANT_CHUNKS: Final = 3
# maximum chunks of the documents meant, by which questions are filtered (75,000 take 50 ms); chosen
# by hand
MAX_MEANT_CHUNKS: Final = 20_000
# maximum chunks of a release of which a section may be meant without its document (5,000 take 70
# ms); chosen by hand
MAX_SECTION_CHUNKS: Final = 5_000
# maximum documents that a word may name, and that a question may mean; a more common word only
# distinguishes documents that another word names; chosen by hand
MAX_NAMESAKES: Final = 256
# maximum documents about the thing of which a question asks what it is; chosen by hand
MAX_EXPLAINING: Final = 8
# added to how clearly such a document is named, for its beginning; chosen by hand
BEGINNING_WEIGHT: Final = 2.0
# minimum chunks with a word in the documents named by it, for one chunk elsewhere; chosen by hand
OWN_CHUNKS: Final = 3
# chunks elsewhere, of which one may have the word in any case; chosen by hand
FOREIGN_CHUNKS: Final = 500
# minimum meaningful terms of a question without names; chosen by hand
MIN_TERMS_LEFT: Final = 2

# --- fusion and merge -----------------------------------------------------------------------------
# k of reciprocal rank fusion; Cormack et al., SIGIR 2009
RANK_CONSTANT: Final = 60.0
# scaled score by which what a retriever did not find ranks below hits of equal scores or a single
# one: the whole range of min-max scores, one deviation of standard scores; chosen by hand
BELOW_EQUALS: Final = 1.0
# first hits of the question and of each phrasing that are fused; chosen by hand
JOINED_HITS: Final = 10
# minimum leading hits of a joined order, where the caller gives the phrasings; chosen by hand
LEADING_HITS: Final = 3
# minimum coverage of the question by a namespace's first hit: in another language it may be right
# without any of the words; chosen by hand
MIN_NAMESPACE_SHARE: Final = 0.1

# --- rerank: features of words --------------------------------------------------------------------
# first characters of a text that are read; chosen by hand
MAX_READ_CHARS: Final = 4_000
# maximum terms of a question; chosen by hand
MAX_TERMS: Final = 24
# maximum positions of one term in one text; chosen by hand
MAX_PLACES: Final = 8
# worth of a text without identifiers of the form asked for, that of the right one being 1; chosen
# by hand
NO_IDENTIFIER: Final = 0.5
# the same for an identifier that texts write in several ways; chosen by hand
LOOSE_IDENTIFIER: Final = 0.9

# --- signals of a search --------------------------------------------------------------------------
# rank of the sparse candidate from which the best one's margin is measured; chosen by hand
MARGIN_RANK: Final = 10
# minimum texts, or dense candidates, for reach, margin and standing: the model of states was
# trained on pools of 50 and more; chosen by hand
MIN_POOL: Final = 40
# virtual texts that smooth the rarity of words in a small library; half of them have each function
# word; chosen by hand
OTHER_TEXTS: Final = 100

# --- caches and preloading ------------------------------------------------------------------------
# unpublished releases that stay open; chosen by hand
MAX_RETAINED_OPEN: Final = 3
# minimum share of the word pairs of a passage that the same passage has in another version of the
# folder or file; chosen by hand
SAME_PASSAGE: Final = 0.5
# the same for documents of one name and title with another date or version; chosen by hand
SAME_EDITION: Final = 0.3
# minimum share of chunks with the name of a product whose folders are named by versions alone, as
# `1.3/`; chosen by hand
PRODUCT_SHARE: Final = 0.2
# filters of a release whose chunks are cached; chosen by hand
KEPT_FILTERS: Final = 32
# strategies whose derived objects are cached; chosen by hand
KEPT_STRATEGIES: Final = 12
# sets of named documents whose chunks are cached; chosen by hand
KEPT_NAMED: Final = 64
# candidates of a retriever in a trace: rerankers read fewer; chosen by hand
TRACED_CANDIDATES: Final = 30
# seconds without a question before word models are preloaded; chosen by hand
QUIET_SECONDS: Final = 0.5
# maximum seconds that preloading waits for such a pause; chosen by hand
PATIENCE_SECONDS: Final = 10.0
