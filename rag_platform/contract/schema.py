"""The public contract: the shapes of the results of MCP tools and `--json`.

Each call returns one envelope with one kind of data. `api` builds them, the server derives its
output schemas from them, and a snapshot test protects them: fields may be added, but none may be
removed or change its meaning.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired

# pydantic reads a TypedDict before Python 3.12 only in this form
from typing_extensions import TypedDict


class ErrorPart(TypedDict):
    """Why a call failed: a code for programs, and a message with the value and the remedy.

    `details.kind` says what to do: for `usage` correct the argument, for `not_found` name something
    that exists, for `failed` look at the trace.
    """

    code: str
    message: str
    details: dict[str, Any]


class Envelope(TypedDict):
    """The result of every call. `error` is null if `ok` is true, and `data` if a failed call has no
    result.
    """

    ok: bool
    trace_id: str
    data: dict[str, Any] | None
    warnings: list[str]
    error: ErrorPart | None


class CitationPart(TypedDict):
    """A pointer to a span of one version of a document; `id` is the n of its [n] mark."""

    id: int
    chunk_id: str
    doc_id: str
    version_id: str
    source_uri: str
    section_path: str
    page_range: NotRequired[list[int]]
    printed_pages: NotRequired[list[str]]  # the numbers on them, if others: ["iii", "iv"]
    line_range: NotRequired[list[int]]
    # native place in formats without pages and lines, e.g. sheet=Q1;rows=3-9
    locator: NotRequired[str]
    # ids of the original chunks, if the text was edited by hand and is therefore no quote
    edited_from: NotRequired[list[str]]
    text: str
    text_start: NotRequired[int]  # where `text` begins in the passage, if that was cut before it
    score: float
    namespace: NotRequired[str]  # the collection that has it, if several were searched
    # [start, end) of the parts of `text` that support the answer; absent: all of it, or what models
    # read in its pictures
    spans: NotRequired[list[list[int]]]
    # the place of the spans, if it is narrower than that of `text`
    quote: NotRequired[QuotePart]


class QuotePart(TypedDict):
    """The place of the supporting spans of a passage."""

    section_path: NotRequired[str]
    page_range: NotRequired[list[int]]
    printed_pages: NotRequired[list[str]]
    line_range: NotRequired[list[int]]
    locator: NotRequired[str]


class ResultPart(TypedDict):
    """One hit, best first."""

    rank: int
    chunk_id: str
    score: float
    source: str  # dense | sparse | hybrid: the retrievers that found it
    text_snippet: str
    citation: CitationPart
    asset_ids: list[str]
    asset_uris: list[str]
    picture_text: NotRequired[str]  # what models read in its pictures, beside its own text
    # the phrasings that had it among their first hits: 0 the question, n the nth of `searches`
    found_by: NotRequired[list[int]]


class QueryData(TypedDict):
    """The answer to a question; `markdown` is a complete text of it."""

    markdown: str
    answer_markdown: str
    citations: list[CitationPart]
    results: list[ResultPart]
    confidence: float
    effective_mode: str
    applied_filters: dict[str, Any]
    matched_count: int | None
    release_id: str
    answered: NotRequired[bool]  # the state is `answered`
    # closest: `answer_markdown` shows the nearest passages, which may not answer the question
    state: NotRequired[Literal["answered", "closest", "nothing_found"]]
    releases: NotRequired[dict[str, str]]  # collection to its release, if several were searched
    # sentence and reason, of sentences that the cited passages do not support
    unsupported: NotRequired[list[dict[str, str]]]
    # the phrasings that were searched in addition to the question
    searches: NotRequired[list[str]]
    # of model calls: calls, failed, input_tokens, output_tokens, cost
    usage: NotRequired[dict[str, Any]]
    next_cursor: NotRequired[str]  # of the next results
    exhausted: NotRequired[bool]  # there are no more results


class FoundDocument(TypedDict):
    """A document with results of an answer."""

    version_id: str
    source_uri: str


class FoundPassage(TypedDict):
    """A passage found for an answer, best first; if it is cited, `id` is the n of its [n] mark."""

    id: int
    uri: str  # chunk://<chunk_id>
    doc_id: str  # a key of `documents`
    source_uri: NotRequired[str]  # in brief answers, which have no `documents`
    section_path: str
    page_range: NotRequired[list[int]]
    printed_pages: NotRequired[list[str]]
    line_range: NotRequired[list[int]]
    locator: NotRequired[str]
    score: float
    text: str
    text_start: NotRequired[int]  # where `text` begins in the passage, if that was cut before it
    cited: NotRequired[bool]
    # [start, end) of the parts of `text` that support the answer
    spans: NotRequired[list[list[int]]]
    quote: NotRequired[QuotePart]
    edited_from: NotRequired[list[str]]
    namespace: NotRequired[str]
    asset_uris: NotRequired[list[str]]
    picture_text: NotRequired[str]  # what models read in its pictures, beside its own text
    found_by: NotRequired[list[int]]


class AnswerData(TypedDict):
    """The structured part of an answer for clients of the server: QueryData without repetitions."""

    answer_markdown: str
    state: str
    confidence: float
    effective_mode: NotRequired[str]  # not in brief answers
    release_id: NotRequired[str]  # not in brief answers
    releases: NotRequired[dict[str, str]]
    applied_filters: NotRequired[dict[str, Any]]
    matched_count: NotRequired[int]
    results: list[FoundPassage]
    documents: NotRequired[dict[str, FoundDocument]]
    unsupported: NotRequired[list[dict[str, str]]]
    usage: NotRequired[dict[str, Any]]
    next_cursor: NotRequired[str]


class ListedDocument(TypedDict):
    """One row of a list of documents."""

    doc_id: str
    filename: str
    title: str
    tags: list[str]
    source: str
    source_uri: str
    version_id: str
    chunks: int
    status: str  # active | pending | failed | retired | deleted
    # why its newest version failed, even if an earlier one is still published; else empty
    problem: str
    updated_at: str
    versions: int  # kept ones, the live one included


class BriefDocument(TypedDict):
    """A row for assistants, which complements the text of the list: title and path are only in the
    text. A document that an earlier group of the page contains has only id and file name.
    """

    doc_id: str
    filename: str
    updated_at: NotRequired[str]  # the day
    tags: NotRequired[list[str]]
    status: NotRequired[str]
    problem: NotRequired[str]


class DocumentGroup(TypedDict):
    """Documents of one tag, category or source; `count` is of the whole group, on all pages."""

    key: str
    count: int
    documents: list[ListedDocument]


class DocumentsData(TypedDict):
    """One page of the documents of a namespace; `next_cursor` is null on the last one."""

    markdown: str
    namespace: str
    group_by: str | None
    groups: list[DocumentGroup]
    total: int
    # of `total`, those that failed or are waiting; on the first page of a list without filter
    unpublished: NotRequired[int]
    next_cursor: str | None


class BriefGroup(TypedDict):
    """A group of documents for assistants."""

    key: str
    count: int
    documents: list[BriefDocument]


class BriefDocumentsData(TypedDict):
    """One page of the documents of a namespace for assistants."""

    markdown: str
    namespace: str
    group_by: str | None
    groups: list[BriefGroup]
    total: int
    unpublished: NotRequired[int]
    next_cursor: str | None


class SectionPart(TypedDict):
    """A section of a document; `text` is absent in an outline."""

    section_id: str
    section_path: str
    title: str
    level: int
    chunks: int
    text: NotRequired[str]


class ChunkPart(TypedDict):
    """A chunk of a document with the text that citations quote."""

    chunk_id: str
    chunk_index: int
    section_path: str
    text: str
    picture_text: NotRequired[str]  # what models read in its pictures, beside its own text
    page_range: NotRequired[list[int]]
    printed_pages: NotRequired[list[str]]
    line_range: NotRequired[list[int]]
    locator: NotRequired[str]
    edited_from: NotRequired[list[str]]  # as in a citation
    asset_ids: list[str]


class DocumentPart(TypedDict):
    """A document and one of the forms of its content."""

    doc_id: str
    version_id: str
    title: str
    filename: str
    source: str
    source_uri: str
    tags: list[str]
    metadata: dict[str, Any]
    content_type: str
    updated_at: str
    asset_ids: list[str]
    format: str  # md | sections | chunks | outline | changes
    md_text: NotRequired[str]
    sections: NotRequired[list[SectionPart]]
    chunks: NotRequired[list[ChunkPart]]
    total_chars: int
    shown_chars: int
    truncated: bool


class DocumentData(TypedDict):
    """One document; `markdown` is a complete text of it, for the format md the document's own."""

    markdown: str
    document: DocumentPart
    next_cursor: NotRequired[str]  # of the following text, absent at the end
    warnings: NotRequired[list[str]]  # moved to the envelope when the data is wrapped


class ChunkData(TypedDict):
    """A chunk with its neighbours in reading order; `markdown` is a complete text of them."""

    markdown: str
    chunk_id: str
    doc_id: str
    version_id: str
    title: str
    source_uri: str
    namespace: str
    release_id: str
    state: Literal["current", "changed"]  # changed: only in an older release
    chunks: list[ChunkPart]


class JobProgress(TypedDict):
    """A job and how far it is."""

    job_id: str
    kind: str  # ingest | delete | rebuild | ...
    namespace: str
    state: str  # queued | running | cancelling | done | partly | failed | cancelled
    code: str  # of the error that ended it early, such as disk_full
    reason: str
    stage: str
    done: int
    total: int
    seconds: float
    seconds_left: float | None
    created_at: str


class JobHead(JobProgress):
    """A job in a list."""

    count: int  # of its documents
    skipped: int  # unchanged documents
    failed: int


class JobData(JobHead):
    """A job; `markdown` is a complete text of it. `documents` and `failures` are the first of
    `count` and `failed`; unchanged documents are only listed if there are no others.
    """

    markdown: str
    documents: list[dict[str, str]]  # source_uri, doc_id, version_id, decision, state
    failures: list[dict[str, str]]  # source_uri, code, reason


class JobsData(TypedDict):
    """The newest jobs, without their documents."""

    markdown: str
    jobs: list[JobHead]


class DeletionData(TypedDict):
    """What a deletion removes; `job` is present after its confirmation."""

    markdown: str
    doc_id: str
    version_ids: list[str]
    mode: str
    affected: dict[str, int]  # by store
    drops: list[str]  # releases whose files are removed
    pinned: list[str]
    rollback: list[str]  # releases that are kept
    confirm: str  # the code that confirms this deletion
    job: NotRequired[JobData]


class ExpectationsData(TypedDict):
    """The expectations of a library."""

    markdown: str
    namespace: str
    expectations: list[dict[str, Any]]


class CollectionPart(TypedDict):
    """A published library."""

    namespace: str
    release_id: str
    published_at: str
    documents: int
    chunks: int
    languages: dict[str, float]  # share of its chunks
    problem: str  # why it cannot be read, else empty


class CollectionsData(TypedDict):
    """All libraries; `default` are those that are searched unless the caller names others."""

    markdown: str
    default: list[str]
    collections: list[CollectionPart]


class SourcePart(TypedDict):
    """A cited chunk: current (in the published release), changed (only in an older one) or gone;
    `reason` says why it is not proved.
    """

    id: int  # n of its [n]
    chunk_id: str
    state: str
    doc_id: str
    version_id: str
    source_uri: str
    reason: NotRequired[str]


class SentencePart(TypedDict):
    """A sentence of an answer, the chunk_ids of its sources, and why it is not proven.

    `compared` says how a passage supports it: word for word, by a `share` of its words, or, in
    another language, by its numbers and identifiers; `nearest` is the most similar part of that
    passage.
    """

    sentence: str
    state: Literal["proven", "changed", "unsupported"]
    sources: list[str]
    reason: NotRequired[str]
    compared: NotRequired[Literal["text", "words", "numbers"]]
    share: NotRequired[float]
    nearest: NotRequired[str]


class ProofData(TypedDict):
    """The check of an answer and its sources; `markdown` is a complete text of it."""

    markdown: str
    checked: int  # sources
    failed: int  # sources that are not current or not proved
    sources: list[SourcePart]
    sentences: list[SentencePart]


class AssetPart(TypedDict):
    """An image, whose bytes follow the data; width and height are those of the original."""

    asset_id: str
    uri: str
    variant: Literal["thumb", "raw"]
    mime: str
    bytes: int
    width: int
    height: int
    doc_ids: list[str]


class AssetsData(TypedDict):
    """Images in the order of the bytes after the data; `missing` has asset_id and reason."""

    markdown: str
    assets: list[AssetPart]
    missing: list[dict[str, str]]


class DroppedText(TypedDict):
    """Words of a document that are in no chunk."""

    page: NotRequired[int]
    line: NotRequired[int]
    reason: str  # see documents.dropped
    text: str


class DroppedData(TypedDict):
    """The dropped text of a document; `markdown` is a complete text of it."""

    markdown: str
    doc_id: str
    version_id: str
    dropped: list[DroppedText]
    words: dict[str, int]  # by reason
    # result of the check of that name; empty if it was not run, as for formats without pages
    text_kept: dict[str, Any]


class SummaryData(TypedDict):
    """A summary of one document; `markdown` is a complete text of it."""

    markdown: str
    doc_id: str
    version_id: str
    title: str
    style: str  # short | bullet | detailed
    method: str  # llm | textrank: the latter quotes sentences of the document
    sections: list[str]  # paths of the sections that the summary names
    prompt_profile_id: str  # empty without a language model
    usage: dict[str, Any]  # calls, failed, input_tokens, output_tokens, cost
    release_id: str
    warnings: NotRequired[list[str]]  # as in DocumentData


class FailedDocument(TypedDict):
    """A document whose newest version failed."""

    source_uri: str
    reason: str
    still_read: bool  # its earlier version still answers


class NamespaceStatus(TypedDict):
    """One library: what is published, and how it was built."""

    namespace: str
    release_id: str | None
    published_at: str
    documents: int
    chunks: int
    strategy: str
    strategy_config_id: str
    encoding: str
    embedder: str
    pending: int  # new and changed documents that wait for a release
    stale: int  # documents built by an earlier config or program
    failed: int  # documents whose newest version failed
    failures: list[FailedDocument]  # the first of these
    problem: str  # why the release cannot be opened, else empty
    behind: NotRequired[int]  # publications not yet received here


class ServerStatus(TypedDict):
    """A data root that receives the publications of other machines."""

    server: str
    host: str
    releases: dict[str, str]  # namespace to the release that is read there
    seen_at: str
    gone: bool  # it has not been seen for a long time
    unacknowledged: int  # hard deletions that it has not carried out
    here: bool  # this data root


class CacheStatus(TypedDict):
    """The size and use of a cache, in the running server processes since each started."""

    size: int  # entries at most; 0: off
    entries: int
    hits: int
    misses: int
    hit_rate: float


class FaultPart(TypedDict):
    """An unexpected error; the log of its trace has the stack trace."""

    ts: str
    stage: str
    type: str
    trace_id: str


class FaultStatus(TypedDict):
    """The number of unexpected errors that were logged, and the latest one."""

    count: int
    since: str
    latest: FaultPart


class JobStatus(TypedDict):
    """An open job, or the newest job of its namespace."""

    job_id: str
    kind: str
    namespace: str
    state: str
    reason: str
    created_at: str
    ended_at: str


class StatusData(TypedDict):
    """The state of this installation."""

    markdown: str
    app_version: str
    default_namespace: str
    default_strategy: str
    strategies: list[str]
    schema_versions: dict[str, int]
    uptime_seconds: float
    namespaces: list[NamespaceStatus]
    jobs: NotRequired[list[JobStatus]]
    problems: NotRequired[list[str]]  # one sentence each
    caches: NotRequired[dict[str, CacheStatus]]  # of a server: query_vectors, retrievals, responses
    running_queries: NotRequired[int]  # of a server
    unexpected_errors: NotRequired[FaultStatus]  # if there were any
    ledger_problem: NotRequired[str]  # why the ledger cannot be read, else empty
    servers: NotRequired[list[ServerStatus]]  # if machines share an object store
