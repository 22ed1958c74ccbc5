"""The records passed between stages: frozen dataclasses, standard library only.

Offsets are counted in code points and half open (`start <= i < end`). There are three coordinate
systems, which are never mixed:

    raw     bytes of the received file                     `byte_start`, `byte_end`
    facts   characters of the loader's text `start`, `end` of blocks, edits and sections
    norm    characters of the normalised text `norm_start`, `norm_end` of sections and chunks

`normalisation.edits` maps norm to facts and back, `documents.provenance` maps facts to raw. Pages
count from 1, lines count from 1, boxes are (x0, y0, x1, y1) in PDF points with the origin at the
page's top left.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

Json = dict[str, Any]
Box = tuple[float, float, float, float]

# --- ledger rows ---------------------------------------------------------------------------------

# Text in a binary file, as a rough share of its bytes; files full of images have less.
_TEXT_SHARES = {"application/pdf": 0.03, "image": 0.0, "application": 0.1}
_TEXT_TYPES = ("application/json", "application/xhtml+xml", "application/xml")


@dataclass(frozen=True, slots=True)
class Document:
    """A stable identity: one source_uri in one namespace."""

    namespace: str
    doc_id: str
    source: str
    source_uri: str
    filename: str
    title: str = ""
    tags: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    metadata: Json = field(default_factory=dict)
    live_version: str | None = None
    pinned: bool = False  # to its live version, until a user unpins it
    status: str = "active"  # active | retired | deleted
    origin: str = ""  # absolute path of the file; never leaves the ledger
    created_at: str = ""
    updated_at: str = ""
    # the version last seen in its source; the only one that may go live automatically
    wanted_version: str | None = None


@dataclass(frozen=True, slots=True)
class Version:
    """The bytes of a document at one time; `version_id` is the Dagster partition key."""

    version_id: str
    namespace: str
    doc_id: str
    source_uri: str
    filename: str
    file_sha256: str
    size: int
    mime: str  # content type found by sniffing, with `; charset=` if a server declared one
    loader: str  # registry name of the loader that reads it
    strategy: str
    revision: int = 1
    # received | ready | failed | dead (failed too often for automatic retries) | purged (its data
    # is deleted)
    status: str = "received"
    code: str = ""  # error code when failed
    reason: str = ""
    received_at: str = ""
    completed_at: str = ""
    counts: Json = field(default_factory=dict)
    edition: str = ""  # fingerprint of the published draft of its chunks, empty without one
    attempts: int = 0  # failed ones since the last success

    @property
    def profile(self) -> str:
        """The profile under which it was built completely, the last time; empty if never."""
        return str(self.counts.get("profile", ""))

    def is_complete(self, profile: str) -> bool:
        """True when all its outputs under this profile are stored and it may be released."""
        return self.status == "ready" and self.profile == profile

    @property
    def content_type(self) -> str:
        """The MIME type without parameters."""
        return self.mime.split(";")[0]

    @property
    def charset(self) -> str:
        """The encoding that the server declared, or an empty string."""
        return self.mime.partition("; charset=")[2]

    @property
    def text_bytes(self) -> int:
        """The estimated bytes of text in it; the measured characters once it has been read."""
        if self.mime.startswith("text/") or self.mime in _TEXT_TYPES:
            return self.size
        if (known := self.counts.get("text_chars")) is not None:
            return int(known)
        return int(
            self.size
            * _TEXT_SHARES.get(self.mime, _TEXT_SHARES.get(self.mime.partition("/")[0], 1.0))
        )


# --- 1. facts -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Block:
    """A span of the facts' text with one source location."""

    ordinal: int
    # heading | paragraph | list | table | code | formula | html | front_matter | header | footer |
    # caption | picture
    kind: str
    start: int
    end: int
    level: int = 0  # 1-6 for headings
    byte_start: int | None = None
    byte_end: int | None = None
    line_start: int | None = None
    line_end: int | None = None
    page: int | None = None
    bbox: Box | None = None
    locator: str = ""  # native locator of other formats, e.g. "sheet=Q1;row=3"
    title: str = ""  # plain text of a heading
    # of a header or footer: whether it recurs on other pages
    repeated: bool = False


# reasons for leaving out visible text: navigation, headers and footers; buttons; text of drawings;
# text next to the main content; text that only the other version of a mail's body has
VISIBLE_REASONS = ("navigation", "control", "drawing", "beside_main", "alternative")


@dataclass(frozen=True, slots=True)
class HiddenText:
    """Text of a page that is not part of the facts and never searched: invisible text, or visible
    text with one of VISIBLE_REASONS.
    """

    page: int  # 0 in a format without pages
    # invisible | transparent | tiny | outside | clipped | no_contrast | layer_off | comment |
    # vanish | not_displayed; or one of VISIBLE_REASONS
    reason: str
    text: str


@dataclass(frozen=True, slots=True)
class MediaRef:
    """An image found by a loader; `ref_id` is only valid within one parse."""

    ref_id: str
    source_type: str  # pdf | markdown | docx | html | ipynb | pptx | epub | eml | mhtml
    origin_ref: str  # "pdf:xref=12" or the path or URL as written
    # facts offset of the reference, None if the facts have no placeholder (PDF)
    start: int | None = None
    end: int | None = None
    page: int | None = None
    bbox: Box | None = None
    order: int = 0
    heading_path: str = ""
    context_hint: str = ""


@dataclass(frozen=True, slots=True)
class ParseSummary:
    """The summary of a parse; deterministic for input and config."""

    loader_name: str
    loader_version: str
    parser_engine: str
    engine_version: str
    parse_profile: str
    md_sha256: str
    text_chars: int
    paragraphs: int = 0
    images: int = 0
    pages: int = 0
    pages_without_text: tuple[int, ...] = ()
    # of each page, the number that is printed on it or that PDF viewers show, such as iii; empty
    # where there is none, () where none differs from the page's position
    page_labels: tuple[str, ...] = ()
    encoding: str = ""
    lossy: bool = False
    title: str = ""
    metadata: Json = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    hidden: tuple[HiddenText, ...] = ()


@dataclass(frozen=True, slots=True)
class Facts:
    """The structured Markdown that a loader extracted from a version; faithful, never cleaned."""

    text: str
    blocks: tuple[Block, ...]
    media: tuple[MediaRef, ...]
    summary: ParseSummary


# --- 2. media -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MediaLink:
    """A reference resolved to stored bytes, or the reason why it could not be."""

    ref_id: str
    asset_id: str  # sha256 of the bytes; empty when missing
    origin_ref: str
    mime: str = ""
    width: int = 0
    height: int = 0
    size: int = 0
    start: int | None = None
    end: int | None = None
    page: int | None = None
    bbox: Box | None = None
    order: int = 0
    heading_path: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class MediaText:
    """The texts that models extracted from an image: used in views, never in facts or
    chunk_text.
    """

    asset_id: str
    ocr_text: str = ""
    ocr_confidence: float | None = None  # mean over the lines, 0 to 1
    caption: str = ""  # plain text made from the caption's JSON
    # the checked JSON under the caption contract, empty when captions are off
    caption_json: str = ""
    ocr_profile_id: str = ""
    caption_profile_id: str = ""
    context_hash: str = ""
    warnings: tuple[str, ...] = ()


# --- 3. sections and chunks ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Edit:
    """One normalisation: facts[start:end] becomes `replacement` in the normalised text."""

    start: int
    end: int
    replacement: str
    rule: str


PREAMBLE = "__preamble__"  # section_path of the text before the first heading


JOINT = " / "  # separates the headings of a section path


def format_section(section_path: str) -> str:
    """The section path for display; empty before the first heading."""
    return "" if section_path == PREAMBLE else section_path


def split_path(section_path: str) -> list[str]:
    """The headings of a section path, outermost first; empty before the first heading."""
    path = format_section(section_path)
    return path.split(JOINT) if path else []


@dataclass(frozen=True, slots=True)
class Section:
    """A structural unit of the normalised text; one too short for its own chunks is `joined_to` its
    predecessor.
    """

    section_id: str
    section_path: str
    heading_level: int
    ordinal: int  # among equal paths
    norm_start: int
    norm_end: int
    title: str = ""
    h1_title: str = ""
    h2_title: str = ""
    joined_to: str = ""  # the section_id with which its text is chunked


@dataclass(frozen=True, slots=True)
class PageKept:
    """The number of a page's words, read by a second loader, that are in the chunks; page 0 is the
    whole file in formats without pages.
    """

    page: int
    words: int  # according to the second loader
    found: int  # of these, in chunks or deliberately left out
    set_aside: int

    @property
    def share(self) -> float:
        """Found over words; 1 for a page without words."""
        return self.found / self.words if self.words else 1.0


@dataclass(frozen=True, slots=True)
class Chunk:
    """A retrieval unit inside one section; `chunk_text` is the slice [norm_start, norm_end) of the
    normalised text.
    """

    chunk_id: str
    section_id: str
    doc_id: str
    version_id: str
    chunk_index: int
    chunk_text: str
    chunk_fingerprint: str
    norm_start: int
    norm_end: int
    fact_start: int
    fact_end: int
    section_path: str
    title: str = ""
    h1_title: str = ""
    h2_title: str = ""
    token_count: int = 0
    text_len: int = 0
    too_short: bool = False
    chunk_type: str = "child"  # parent | child
    parent_id: str = ""
    lang: str = ""
    media_type: str = "text"
    page_start: int | None = None
    page_end: int | None = None
    line_start: int | None = None
    line_end: int | None = None
    byte_start: int | None = None
    byte_end: int | None = None
    asset_ids: tuple[str, ...] = ()
    # first native locator of formats without lines and pages, e.g. "sheet=Q1;rows=3-9"; on pages,
    # where those with a printed number and those after the first begin: "page=8;char=0;printed=iv";
    # where lines of the file begin in text with other lines: "lines=14:53,17:98"
    locator: str = ""
    # ids of the chunks from which a published draft made this one
    edited_from: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class View:
    """The retrieval texts of a chunk with derived features; citations never show them."""

    chunk_id: str
    dense_text: str
    sparse_text: str
    content_hash: str  # sha256(canonical(dense_text)); the embedding cache key
    keyphrases: tuple[str, ...] = ()
    quality_score: float | None = None  # 0 to 1, None if not computed
    # written by a model, if the strategy asks for them
    title: str = ""
    summary: str = ""
    tags: tuple[str, ...] = ()


# --- 4. indexes ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LexicalRow:
    """A chunk's entry in the lexical index; nothing in it depends on the version."""

    chunk_id: str
    doc_id: str
    text: str  # sparse text
    headings: str  # section path, weighted above the text


@dataclass(frozen=True, slots=True)
class EmbedderPart:
    """One of the embedders whose vectors a joined embedder concatenates, and its weight."""

    embedder_id: str
    version: str
    dim: int
    weight: float


@dataclass(frozen=True, slots=True)
class EmbedderInfo:
    """The fingerprint of an embedder; vectors of two fingerprints are never compared."""

    embedder_id: str
    version: str
    dim: int
    max_tokens: int = 512
    parts: tuple[EmbedderPart, ...] = ()  # of a joined embedder


# --- 5. retrieval -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class QueryIR:
    """A question prepared for the retrievers."""

    original: str  # as asked
    normalised: str  # NFKC, one space between words, without the words that became filters
    dense_text: str  # text to embed: `normalised` in half width, or a model's rewrite
    sparse_query: str  # `normalised` without function words, for the word index
    query_hash: str  # of the whole question in lower case without punctuation
    language: str  # ISO 639-1 as detected by text.language, or und
    intent: str = "search"  # search | summarize | compare | metadata_filter | tool_call
    filters: Json = field(default_factory=dict)  # the caller's and the inferred ones
    identifiers: tuple[str, ...] = ()  # as written: PPR-9087, foo_bar, v1.2.3
    phrases: tuple[str, ...] = ()  # texts in quotation marks or book-title marks
    # synonyms and aliases with their weight; the question's own words weigh 1
    expansions: tuple[tuple[str, float], ...] = ()
    # its words in the language of the texts, if that is another; and those without a translation
    translated: str = ""
    untranslated: str = ""
    # phrasings searched in addition to the question, from the caller or a model
    rewrites: tuple[str, ...] = ()
    # prefer_recent, prefer_official, prefer_has_image, inferred from the question
    preferences: tuple[str, ...] = ()
    # the part of `filters` that was inferred from the question
    inferred: Json = field(default_factory=dict)
    # what was inferred from the question, and what was dropped from a rewrite
    warnings: tuple[str, ...] = ()
    query_profile_id: str = ""
    rewrite_profile_id: str = ""


@dataclass(slots=True)  # not frozen, which makes creation three times as fast: hundreds per query
class Candidate:
    """A scored chunk id of one retriever, or of the fusion of retrievers."""

    chunk_id: str
    score: float
    source: str  # dense | sparse | hybrid


# not frozen, like Candidate, but never changed
@dataclass(slots=True, unsafe_hash=True)
class Hit:
    """A fused candidate joined with its catalog row."""

    rank: int
    chunk_id: str
    score: float
    source: str
    doc_id: str
    version_id: str
    source_uri: str
    filename: str
    doc_title: str
    section_path: str
    chunk_index: int
    chunk_text: str
    page_range: tuple[int, int] | None = None
    line_range: tuple[int, int] | None = None
    asset_ids: tuple[str, ...] = ()
    locator: str = ""
    picture_text: str = ""  # what models read in its pictures; shown as such, never quoted
    edited_from: tuple[str, ...] = ()  # chunk ids; a hit edited by hand is no quote of its source
    namespace: str = ""
    parent_id: str = ""  # of a child chunk, for which the parent's text may serve as evidence
    # the phrasings that had it among their first hits: 0 the question, n the nth phrasing; empty
    # if only the question was searched
    found_by: tuple[int, ...] = ()
    # if a table is split across passages: its header, which is in an earlier passage, and whether
    # its rows go on in the next
    table_head: str = ""
    table_goes_on: bool = False

    @property
    def readable(self) -> str:
        """Its text, then what models read in its pictures."""
        return "\n\n".join(filter(None, (self.chunk_text, self.picture_text)))


@dataclass(frozen=True, slots=True)
class Citation:
    """A pointer from an answer to a span of a version; `id` is the n of its [n] mark."""

    id: int
    chunk_id: str
    doc_id: str
    version_id: str
    source_uri: str
    section_path: str
    text: str
    score: float
    page_range: tuple[int, int] | None = None
    line_range: tuple[int, int] | None = None
    locator: str = ""
    edited_from: tuple[str, ...] = ()
    namespace: str = ""
    # half-open spans of `text` that support the answer; empty: all of it
    spans: tuple[tuple[int, int], ...] = ()
    # the place of the spans, if that is narrower than the place of `text`
    quote_section: str = ""
    quote_pages: tuple[int, int] | None = None
    quote_lines: tuple[int, int] | None = None
    quote_locator: str = ""


State = Literal["answered", "closest", "nothing_found"]


@dataclass(frozen=True, slots=True)
class QueryRequest:
    """One question to one namespace, or to several."""

    text: str
    namespace: str = "default"
    top_k: int | None = None
    mode: str | None = None  # dense | sparse | hybrid; None takes the strategy's
    filters: Json = field(default_factory=dict)
    release_id: str | None = None  # None asks the published one
    strategy: str | None = None  # its query part replaces that of the namespace's strategy
    answer: bool = True  # False stops after the hits: no evidence, no answer
    # hits with a lower displayed score are dropped; the meaning of scores depends on the fusion
    score_threshold: float | None = None
    max_per_document: int | None = None  # None takes the strategy's, 0 is no limit
    # if several: each is searched, and the hits are merged; empty: only `namespace`
    namespaces: tuple[str, ...] = ()
    rerank: bool = True  # False keeps the order of the fusion
    # whether filters are inferred from the question; None takes the strategy's
    infer: bool | None = None
    # answer from these chunks of one namespace, in this order; empty: from the hits
    context_chunks: tuple[str, ...] = ()
    # phrasings that documents with the answer would use, searched in addition to the question
    searches: tuple[str, ...] = ()
    timeout_ms: int | None = None  # an earlier deadline than the strategy's
    skip: int = 0  # number of hits that an earlier answer showed
    # of the reader: en or zh; for what is said around an answer whose question does not tell
    language: str = ""


@dataclass(frozen=True, slots=True)
class QueryResult:
    """The result of a query; server and CLI only convert it."""

    answer_markdown: str
    citations: tuple[Citation, ...]
    hits: tuple[Hit, ...]
    confidence: float
    effective_mode: str
    applied_filters: Json
    matched_count: int | None
    release_id: str
    trace_id: str
    warnings: tuple[str, ...] = ()
    flags: Json = field(default_factory=dict)
    answered: bool = False  # `state` is "answered"
    # namespace to release_id, of every namespace that answered
    releases: Json = field(default_factory=dict)
    # of model calls: calls, input_tokens, output_tokens, cost
    usage: Json = field(default_factory=dict)
    # phrasings searched in addition to the question, from the caller or a model
    searches: tuple[str, ...] = ()
    top_k: int = 0  # requested number of hits; if there are fewer, they are all
    # answered | closest (`answer_markdown` shows the nearest passages, which may not answer the
    # question; if no answer was requested: there are hits) | nothing_found
    state: State = "nothing_found"
    # the inputs of `confidence`, by name
    signals: Json = field(default_factory=dict)
    # of what is said around the answer, see `query.analysis.choose_frame_language`
    language: str = "en"


# --- 6. results of writing and checking ---------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StageOutcome:
    """The outcome of one stage for one version; becomes Dagster metadata and a trace span."""

    stage: str
    profile: str
    reused: bool
    seconds: float
    path: str = ""
    sha256: str = ""
    counts: Json = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    preview: Json = field(default_factory=dict)  # from `documents.stage_previews`


@dataclass(frozen=True, slots=True)
class VerifyFailure:
    """One chunk whose quote could not be proved, and why."""

    chunk_id: str
    version_id: str
    source_uri: str
    reason: str
