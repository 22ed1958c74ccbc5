"""The public contract: the shape of every answer that MCP tools and `--json` give.

Each call returns one envelope around one kind of data. `api` builds them, the server derives its
output schemas from them, and a snapshot test guards them: a field may be added, none may change its
meaning or disappear.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired

# pydantic reads a TypedDict before Python 3.12 only in this form
from typing_extensions import TypedDict


class ErrorPart(TypedDict):
    """Why a call failed: a code for programs, a message with the value and the remedy for people.

    `details.kind` says what to do: `usage` correct the argument, `not_found` name something that
    exists, `failed` look at the trace.
    """

    code: str
    message: str
    details: dict[str, Any]


class Envelope(TypedDict):
    """What every call returns; `error` is there when `ok` is false, `data` when it is true or a
    failed call has something to show.
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
    line_range: NotRequired[list[int]]
    # native place in formats without pages and lines, e.g. sheet=Q1;rows=3-9
    locator: NotRequired[str]
    # the text was edited by hand and is no quote; ids of the file's own chunks it came from
    edited_from: NotRequired[list[str]]
    text: str
    score: float
    namespace: NotRequired[str]  # the collection it stands in, where several were asked
    # [start, end) of what in `text` the answer rests on; absent: all of it
    spans: NotRequired[list[list[int]]]
    # the place of the spans, where it is narrower than that of `text`
    quote: NotRequired[QuotePart]


class QuotePart(TypedDict):
    """Where what an answer rests on stands in its passage."""

    section_path: NotRequired[str]
    page_range: NotRequired[list[int]]
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
    # which phrasings had it among their first hits: 0 the question, n the nth of `searches`
    found_by: NotRequired[list[int]]


class QueryData(TypedDict):
    """The answer to a question, readable alone in `markdown`."""

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
    releases: NotRequired[dict[str, str]]  # collection to its release, where several were asked
    # sentence and reason of what the cited passages do not bear out
    unsupported: NotRequired[list[dict[str, str]]]
    # the phrasings that were searched beside the question
    searches: NotRequired[list[str]]
    # of model calls: calls, of these failed, input_tokens, output_tokens, cost
    usage: NotRequired[dict[str, Any]]
    next_cursor: NotRequired[str]  # of the results that follow
    exhausted: NotRequired[bool]  # none follow


class FoundDocument(TypedDict):
    """A document that results of an answer come from."""

    version_id: str
    source_uri: str


class FoundPassage(TypedDict):
    """A passage of an answer, best first; `id` is the n of its mark, [n] where it is cited."""

    id: int
    uri: str  # chunk://<chunk_id>
    doc_id: str  # a key of `documents`
    source_uri: NotRequired[str]  # in brief, where `documents` is left out
    section_path: str
    page_range: NotRequired[list[int]]
    line_range: NotRequired[list[int]]
    locator: NotRequired[str]
    score: float
    text: str
    cited: NotRequired[bool]
    # [start, end) of what in `text` the answer rests on
    spans: NotRequired[list[list[int]]]
    quote: NotRequired[QuotePart]
    edited_from: NotRequired[list[str]]
    namespace: NotRequired[str]
    asset_uris: NotRequired[list[str]]
    found_by: NotRequired[list[int]]


class AnswerData(TypedDict):
    """An answer as clients of the server get it beside its text: QueryData with each thing once."""

    answer_markdown: str
    state: str
    confidence: float
    effective_mode: NotRequired[str]  # not in brief
    release_id: NotRequired[str]  # not in brief
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
    # why its newest version failed, also while an earlier one is still read; empty when all is well
    problem: str
    updated_at: str


class BriefDocument(TypedDict):
    """A row as an assistant gets it beside the text of the list, without what only people read:
    title and path stand in the text. A document of an earlier group of the page: id and file name
    alone.
    """

    doc_id: str
    filename: str
    updated_at: NotRequired[str]  # the day
    tags: NotRequired[list[str]]
    status: NotRequired[str]
    problem: NotRequired[str]


class DocumentGroup(TypedDict):
    """Documents of one tag, category or source; `count` counts the whole group, also beyond this
    page.
    """

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
    next_cursor: str | None


class BriefGroup(TypedDict):
    """A group of documents as an assistant gets it."""

    key: str
    count: int
    documents: list[BriefDocument]


class BriefDocumentsData(TypedDict):
    """One page of the documents of a namespace as an assistant gets it."""

    markdown: str
    namespace: str
    group_by: str | None
    groups: list[BriefGroup]
    total: int
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
    """A chunk of a document as citations quote it."""

    chunk_id: str
    chunk_index: int
    section_path: str
    text: str
    page_range: NotRequired[list[int]]
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
    format: str  # md | sections | chunks | outline
    md_text: NotRequired[str]
    sections: NotRequired[list[SectionPart]]
    chunks: NotRequired[list[ChunkPart]]
    total_chars: int
    shown_chars: int
    truncated: bool


class DocumentData(TypedDict):
    """One document, readable alone in `markdown`; for the format md that is the document's own text
    and nothing else.
    """

    markdown: str
    document: DocumentPart
    next_cursor: NotRequired[str]  # where the text goes on, absent at its end
    warnings: NotRequired[list[str]]  # for the envelope: whoever wraps the data moves them there


class ChunkData(TypedDict):
    """A chunk with those around it, in reading order; readable alone in `markdown`."""

    markdown: str
    chunk_id: str
    doc_id: str
    version_id: str
    title: str
    source_uri: str
    namespace: str
    release_id: str
    chunks: list[ChunkPart]


class JobHead(TypedDict):
    """A piece of writing work as a list has it."""

    job_id: str
    kind: str  # ingest | delete | rebuild | ...
    namespace: str
    state: str  # queued | running | cancelling | done | partly | failed | cancelled
    code: str  # of why it ended early, where it has one: disk_full
    reason: str
    stage: str
    done: int
    total: int
    seconds: float
    seconds_left: float | None
    created_at: str
    count: int  # of its documents
    skipped: int  # of these unchanged
    failed: int


class JobData(JobHead):
    """A piece of writing work, readable alone in `markdown`; `documents` and `failures` are the
    first of `count` and `failed`, unchanged documents only where there is nothing else.
    """

    markdown: str
    documents: list[dict[str, str]]  # source_uri, doc_id, version_id, decision, state
    failures: list[dict[str, str]]  # source_uri, code, reason


class JobsData(TypedDict):
    """The newest jobs, without their documents."""

    markdown: str
    jobs: list[JobHead]


class DeletionData(TypedDict):
    """What a deletion takes; `job` is there once it was confirmed."""

    markdown: str
    doc_id: str
    version_ids: list[str]
    mode: str
    affected: dict[str, int]  # by store
    drops: list[str]  # releases whose files go
    pinned: list[str]
    rollback: list[str]  # releases that stay
    confirm: str  # the code that carries out this deletion
    job: NotRequired[JobData]


class ExpectationsData(TypedDict):
    """What is expected of a library."""

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
    problem: str  # why it cannot be read, empty when it can


class CollectionsData(TypedDict):
    """The libraries there are; `default` are those asked where none is named."""

    markdown: str
    default: list[str]
    collections: list[CollectionPart]


class SourcePart(TypedDict):
    """A cited chunk: current (in the published release), changed (in an older one alone) or gone;
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
    """A sentence of an answer, the chunk_ids it rests on, and why it is not proven.

    `compared` says by what a passage bears it out: it stands there word for word, has that share of
    its words, or, in another language, its numbers and identifiers; `nearest` is the part of that
    passage which is most like it.
    """

    sentence: str
    state: Literal["proven", "changed", "unsupported"]
    sources: list[str]
    reason: NotRequired[str]
    compared: NotRequired[Literal["text", "words", "numbers"]]
    share: NotRequired[float]
    nearest: NotRequired[str]


class ProofData(TypedDict):
    """What was checked of an answer and its sources, readable alone in `markdown`."""

    markdown: str
    checked: int  # sources
    failed: int  # sources that are not current or not proved
    sources: list[SourcePart]
    sentences: list[SentencePart]


class AssetPart(TypedDict):
    """An image whose bytes stand beside the data; width and height are those of the original."""

    asset_id: str
    uri: str
    variant: Literal["thumb", "raw"]
    mime: str
    bytes: int
    width: int
    height: int
    doc_ids: list[str]


class AssetsData(TypedDict):
    """Images in the order of the bytes beside the data; `missing` holds asset_id and reason."""

    markdown: str
    assets: list[AssetPart]
    missing: list[dict[str, str]]


class DroppedText(TypedDict):
    """Words of a document that stand in no chunk."""

    page: NotRequired[int]
    line: NotRequired[int]
    reason: str  # see documents.dropped
    text: str


class DroppedData(TypedDict):
    """What of a document's text was dropped, readable alone in `markdown`."""

    markdown: str
    doc_id: str
    version_id: str
    dropped: list[DroppedText]
    words: dict[str, int]  # by reason
    # what the check of that name found; empty for a format without pages, and where nothing was
    # measured
    text_kept: dict[str, Any]


class SummaryData(TypedDict):
    """A summary of one document, readable alone in `markdown`."""

    markdown: str
    doc_id: str
    version_id: str
    title: str
    style: str  # short | bullet | detailed
    method: str  # llm | textrank: the latter quotes sentences of the document as they stand
    sections: list[str]  # paths of the sections that the summary names
    prompt_profile_id: str  # empty without a language model
    usage: dict[str, Any]  # calls, of these failed, input_tokens, output_tokens, cost
    release_id: str
    warnings: NotRequired[list[str]]  # for the envelope, as in DocumentData


class NamespaceStatus(TypedDict):
    """One library: what is published, and how it was made."""

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
    failed: int  # documents whose newest version failed
    failures: list[dict[str, str]]  # the first of these: source_uri, reason
    problem: str  # why the release cannot be opened, empty when it can
    behind: NotRequired[int]  # publications that did not come here yet


class ServerStatus(TypedDict):
    """A data root that reads what other machines publish."""

    server: str
    host: str
    releases: dict[str, str]  # namespace to the release that is read there
    seen_at: str
    gone: bool  # it has not said for long that it lives
    unacknowledged: int  # hard deletions that it has not carried out
    here: bool  # the data root that says this


class CacheStatus(TypedDict):
    """How full a cache is, and how often it helped in the processes that answer now, since each
    began.
    """

    size: int  # entries at most; 0: off
    entries: int
    hits: int
    misses: int
    hit_rate: float


class FaultPart(TypedDict):
    """An unexpected error: when, in which stage, of which type, and in which trace, whose log has
    the stack trace.
    """

    ts: str
    stage: str
    type: str
    trace_id: str


class FaultStatus(TypedDict):
    """The unexpected errors that were logged, and the latest of them."""

    count: int
    since: str
    latest: FaultPart


class JobStatus(TypedDict):
    """A job that is open, or the newest of its namespace."""

    job_id: str
    kind: str
    namespace: str
    state: str
    reason: str
    created_at: str
    ended_at: str


class StatusData(TypedDict):
    """What this installation holds."""

    markdown: str
    app_version: str
    default_namespace: str
    default_strategy: str
    strategies: list[str]
    schema_versions: dict[str, int]
    uptime_seconds: float
    namespaces: list[NamespaceStatus]
    jobs: NotRequired[list[JobStatus]]
    problems: NotRequired[list[str]]  # what is wrong, a sentence each; empty when all is well
    caches: NotRequired[dict[str, CacheStatus]]  # of a server: query_vectors, retrievals, responses
    running_queries: NotRequired[int]  # of a server
    unexpected_errors: NotRequired[FaultStatus]  # where there were any
    ledger_problem: NotRequired[str]  # why it cannot be asked, empty when it can
    servers: NotRequired[list[ServerStatus]]  # where machines share an object store
