"""The public contract of traces (lists, details, statistics, and one trace for the pages, with its
stages as bars) and of the pages about one traced question: its answer, the places and proofs of the
sources, and the ranking of the hits.
"""

from __future__ import annotations

from typing import Any, Literal, NotRequired

from typing_extensions import TypedDict

from rag_platform.contract.schema import ChunkPart, QueryData


class TraceError(TypedDict):
    """Why a trace or one of its stages failed."""

    code: str
    message: str


class TraceRow(TypedDict):
    """One trace; fields that are only known at its end are null until then."""

    trace_id: str
    trace_type: str  # query | ingestion | tool | command | evaluation
    started_at: str
    ended_at: str | None
    status: str  # ok | error | running | unfinished
    latency_ms: float | None
    namespace: str
    namespaces: list[str]
    strategy_config_id: str | None
    release_id: str | None
    job_id: str | None
    request_id: str | None
    parent_trace_id: str | None
    door: str | None  # cli | stdio | http | web
    client: str | None
    client_version: str | None
    client_level: str | None
    tool: str | None
    question: str | None
    state: str | None  # answered | closest | nothing_found
    answered: bool | None
    confidence: float | None
    error: TraceError | None
    error_count: int | None
    stages: dict[str, float]  # milliseconds by name
    counters: dict[str, float]


class TracesData(TypedDict):
    """A page of traces, newest first; `next_cursor` is null on the last one."""

    markdown: str
    traces: list[TraceRow]
    next_cursor: str | None
    warnings: NotRequired[list[str]]  # logs that could not be read


class ProviderPart(TypedDict):
    """The provider that a stage used."""

    provider_type: str
    provider_id: str
    provider_version: str
    profile_id: str


class SpanPart(TypedDict):
    """A stage at `depth` below the trace; times are milliseconds since the start of the trace."""

    ts: str
    span_id: str
    parent_span_id: str | None
    depth: int
    name: str
    status: str
    start_ms: float
    end_ms: float
    duration_ms: float
    provider: ProviderPart
    attrs: dict[str, Any]
    error: NotRequired[TraceError]


class EventPart(TypedDict):
    """An event in a span, or in the trace itself."""

    ts: str
    event_id: str
    ts_ms: float
    span_id: str | None
    kind: str
    payload: dict[str, Any]


class TraceEnvelope(TypedDict):
    """A whole trace in the form of `trace_envelope.v1.json`."""

    schema_version: int
    trace_id: str
    trace_type: str
    status: str
    started_at: str
    ended_at: str | None
    strategy_config_id: str
    namespace: str
    build: dict[str, Any]
    runtime: dict[str, Any]
    links: dict[str, Any]
    client: NotRequired[dict[str, str]]
    providers: NotRequired[dict[str, dict[str, str]]]  # by module
    attrs: dict[str, Any]
    aggregates: dict[str, Any]
    error: NotRequired[TraceError]
    spans: list[SpanPart]
    events: list[EventPart]
    eval: NotRequired[dict[str, Any]]
    logs: list[dict[str, Any]]


class TraceParts(TypedDict):
    """A trace with related ones: its `parent`, its `children`, and the others of its `job`, oldest
    first.
    """

    trace: TraceEnvelope
    parent: TraceRow | None
    children: list[TraceRow]
    job: list[TraceRow]


class TraceData(TraceParts):
    """A trace with related ones, also as text."""

    markdown: str


class KindFigures(TypedDict):
    """Statistics of the traces of one type."""

    trace_type: str
    count: int
    failed: int
    failed_share: float
    mean_ms: float | None
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None


class StageFigures(TypedDict):
    """Statistics of the spans with one name in traces of one type."""

    trace_type: str
    stage: str
    count: int
    failed: int
    failed_share: float
    mean_ms: float
    total_ms: float
    p50_ms: float
    p95_ms: float
    p99_ms: float


class CacheFigures(TypedDict):
    """Statistics of the cache of a stage; `retrieval` is the cache of whole retrievals."""

    cache: str
    hits: int
    misses: int
    hit_rate: float


class ModelFigures(TypedDict):
    """Statistics of the calls of one model; tokens and cost are null if no call reported them."""

    provider: str
    model: str
    calls: int
    failed: int
    retries: int | None
    input_tokens: int | None
    output_tokens: int | None
    cost: float | None
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None


class DayFigures(TypedDict):
    """Counts over the last 24 hours."""

    counts: dict[str, int]  # traces by type
    failed: dict[str, int]
    counters: dict[str, float]  # sums over ingestion: documents, chunks_total, ...


class TraceStats(TypedDict):
    """Statistics of the selected traces."""

    markdown: str
    since: str | None
    until: str | None
    namespace: str | None
    warnings: NotRequired[list[str]]
    kinds: list[KindFigures]
    stages: list[StageFigures]
    caches: list[CacheFigures]
    model_calls: list[ModelFigures]
    last_24h: DayFigures


class StagePart(TypedDict):
    """A span; `left` and `width` place its bar in thousandths of the trace's duration, `ext` has
    the fields specific to its provider, `events` is the number of its events.
    """

    span: SpanPart
    left: float
    width: float
    ext: dict[str, Any]
    events: int


class StageError(TypedDict):
    """Why a stage failed."""

    stage: str
    code: str
    message: str


class KindPart(TypedDict):
    """The number of events of one kind."""

    kind: str
    count: int


class CandidatePart(TypedDict):
    """A chunk in a ranking; `text` is empty if it can no longer be read. `moved` is how many ranks
    it rose since the previous ranking of the same event.
    """

    rank: int
    chunk_id: str
    score: float | None
    source: str
    source_uri: str
    section_path: str
    text: str
    moved: int | None


class RankingPart(TypedDict):
    """A ranking of chunks in an event."""

    kind: str
    name: str  # the field: candidates, ranked, before, after
    facts: dict[str, Any]  # the other fields of the event
    count: int
    rows: list[CandidatePart]


class TraceDetail(TypedDict):
    """One trace for its page; long lists are paged and cut."""

    trace: TraceRow
    build: dict[str, Any]
    runtime: dict[str, Any]
    links: dict[str, Any]
    client: dict[str, str]
    providers: dict[str, dict[str, str]]
    attrs: dict[str, Any]
    ext: dict[str, Any]
    aggregates: dict[str, Any]
    eval: dict[str, Any]
    errors: list[StageError]
    stages: list[StagePart]
    stages_total: int
    kinds: list[KindPart]
    events: list[EventPart]
    events_total: int
    rankings: list[RankingPart]
    model_calls: list[dict[str, Any]]
    answering: list[StagePart]
    logs: list[dict[str, Any]]
    logs_total: int
    parent: TraceRow | None
    children: list[TraceRow]
    job: list[TraceRow]
    replayable: bool
    error: NotRequired[TraceError]


# --- one question -------------------------------------------------------------------------------


class AskedData(QueryData):
    """An answer with its trace id and warnings."""

    trace_id: str
    warnings: list[str]


class VersionPart(TypedDict):
    """A version of a document; `state` is live, wanted, or its status in the ledger."""

    version_id: str
    received_at: str
    state: str
    file_sha256: str


class SourceImage(TypedDict):
    """An image of a chunk, and what models read in it."""

    asset_id: str
    caption: str
    ocr_text: str


class SourceData(TypedDict):
    """A cited chunk with its document; `state` is changed if the published release no longer
    contains the chunk.
    """

    chunk: ChunkPart
    namespace: str
    release_id: str
    state: Literal["current", "changed"]
    doc_id: str
    version_id: str
    title: str
    filename: str
    source_uri: str
    content_type: str
    tags: list[str]
    history: list[VersionPart]  # newest first
    images: list[SourceImage]


class PlacePage(TypedDict):
    """A page with a part of a chunk: its size, and the rectangles [x0, y0, x1, y1] of the words of
    the chunk and of the cited words, in points from the top left.
    """

    page: int
    width: float
    height: float
    boxes: list[list[float]]
    cited: list[list[float]]


class PlaceLine(TypedDict):
    """A line of the document's text; `number` counts lines of the file, `cited` are [start, end)
    in `text`.
    """

    number: NotRequired[int]
    text: str
    inside: bool  # a part of it belongs to the chunk
    cited: list[list[int]]


class PlaceRow(TypedDict):
    """A row of a sheet."""

    number: NotRequired[int]
    cells: list[str]
    inside: bool
    cited: bool


class PlaceTable(TypedDict):
    """Rows of one sheet."""

    sheet: str
    head: list[str]
    rows: list[PlaceRow]


class PlaceData(TypedDict):
    """The place of a chunk in its file; `form` says which of the lists has it."""

    chunk_id: str
    version_id: str
    form: Literal["pages", "lines", "rows", "images"]
    page_count: int  # 0 for formats without pages
    pages: list[PlacePage]
    lines: list[PlaceLine]
    tables: list[PlaceTable]
    warnings: list[str]


class Comparison(TypedDict):
    """One comparison of a proof; `detail` says what was compared."""

    what: Literal[
        "file_hash",
        "bytes",
        "lines",
        "page_letters",
        "page_boxes",
        "read_again",
        "locator",
        "image",
        "second_reader",
        "names",
        "origins",
    ]
    detail: str


class ProvedData(TypedDict):
    """A new proof of one chunk; `reason` says why it failed, `warnings` which checks were not
    possible.
    """

    chunk_id: str
    state: Literal["current", "changed"]
    proved: bool
    edited: bool  # by hand; the proof is of the texts that it was edited from
    reason: str
    file_sha256: str
    size: int
    compared: list[Comparison]
    warnings: list[str]
    release_id: str
    seconds: float


class LegPlace(TypedDict):
    """The rank, from 1, and the score of a hit in one stage, if that stage has scores."""

    rank: int
    score: NotRequired[float]


class OrderRow(TypedDict):
    """The ranks of one hit by stage; stages that did not find it are missing."""

    chunk_id: str
    namespace: str
    rank: NotRequired[int]  # in the answer
    source_uri: str
    section_path: str
    legs: dict[str, LegPlace]  # by the names in OrderData.legs


class OrderData(TypedDict):
    """The ranks of the hits of a question in each stage."""

    trace_id: str
    question: str
    namespace: str
    release_id: str
    legs: list[str]  # sparse, dense, fusion, rerank: in the order of the pipeline
    rows: list[OrderRow]
    notes: list[str]


class RankedRow(TypedDict):
    """A chunk with its ranks in two rankings; null if it is missing in one."""

    chunk_id: str
    before: int | None
    after: int | None
    namespace: NotRequired[str]
    source_uri: NotRequired[str]
    section_path: NotRequired[str]


class ReplayData(TypedDict):
    """A repeated question: the rankings then and now, and the reasons for a difference."""

    trace_id: str
    new_trace_id: str
    question: str
    namespace: str
    release_id: str
    same: bool
    reasons: list[str]
    rows: list[RankedRow]


class ComparedData(TypedDict):
    """One question asked in two ways; `before` is the left ranking, `after` the right one."""

    left_name: str
    right_name: str
    left: AskedData
    right: AskedData
    rows: list[RankedRow]
    same_answer: bool
    same_ranking: bool


class ExpectationPart(TypedDict):
    """What a question must find, or that it must be refused."""

    case_id: str
    query: str
    files: list[str]
    texts: list[str]
    refuse: bool


class PinnedData(TypedDict):
    """A saved expectation; `new` is false if it already existed, `warning` says why the published
    release does not meet it.
    """

    case_id: str
    query: str
    new: bool
    warning: str
