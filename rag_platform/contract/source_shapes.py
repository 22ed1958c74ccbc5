"""The public contract of the pages about one question: its answer, the places and proofs of the
sources, and the ranking of the hits.
"""

from __future__ import annotations

from typing import Literal, NotRequired

from typing_extensions import TypedDict

from rag_platform.contract.schema import ChunkPart, QueryData


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


class PinnedData(TypedDict):
    """A saved expectation; `new` is false if it already existed, `warning` says why the published
    release does not meet it.
    """

    case_id: str
    query: str
    new: bool
    warning: str
