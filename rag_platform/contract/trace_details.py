"""The shape of one trace as pages show it: stages with their bars, and what happened in a part."""

from __future__ import annotations

from typing import Any, NotRequired

from typing_extensions import TypedDict

from rag_platform.contract.traces import EventPart, SpanPart, TraceError, TraceRow


class StagePart(TypedDict):
    """A span; `left` and `width` are its bar in thousandths of the trace, `ext` what only its
    provider knows, `events` how many happened in it.
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
    """Events of one kind."""

    kind: str
    count: int


class CandidatePart(TypedDict):
    """A chunk in a ranking; without words where it cannot be read any more. `moved` is how many
    places it rose since the ranking before of the same event.
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
    """A list of chunks that an event holds."""

    kind: str
    name: str  # the field: candidates, ranked, before, after
    facts: dict[str, Any]  # of the event beside it
    count: int
    rows: list[CandidatePart]


class TraceDetail(TypedDict):
    """One trace: all about it but long lists, which are paged and cut."""

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
