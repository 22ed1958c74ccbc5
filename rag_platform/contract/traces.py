"""The shapes of traces: lists, details, statistics, and one trace for the pages, with its stages as
bars.
"""

from __future__ import annotations

from typing import Any, NotRequired

from typing_extensions import TypedDict


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
