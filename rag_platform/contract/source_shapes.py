"""The public contract of what pages ask and show: an answer, where its sources stand, how they were
proved, and why they stand in this order.
"""

from __future__ import annotations

from typing import Literal, NotRequired

from typing_extensions import TypedDict

from rag_platform.contract.schema import ChunkPart, QueryData


class AskedData(QueryData):
    """An answer, the trace that tells how it came about, and what is to be known of it."""

    trace_id: str
    warnings: list[str]


class VersionPart(TypedDict):
    """A version of a document; `state` is live, wanted, or that of the ledger."""

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
    """A cited chunk with its document; `state` is current, or changed where the published release
    holds it no more.
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
    """A page on which a chunk stands: its size and the rectangles [x0, y0, x1, y1] of the chunk's
    and of the cited words, in points from the top left.
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
    inside: bool  # some of it belongs to the chunk
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
    """Where a chunk stands in its file, in the form that its format has."""

    chunk_id: str
    version_id: str
    form: Literal["pages", "lines", "rows", "images"]
    page_count: int  # 0 for formats without pages
    pages: list[PlacePage]
    lines: list[PlaceLine]
    tables: list[PlaceTable]
    warnings: list[str]


class Comparison(TypedDict):
    """One thing that a proof compared; `detail` says with what."""

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
    """The proof of one chunk, made anew: `reason` says why it failed, `warnings` what it had to do
    without.
    """

    chunk_id: str
    state: Literal["current", "changed"]
    proved: bool
    edited: bool  # by hand: what was proved are the texts that it was edited from
    reason: str
    file_sha256: str
    size: int
    compared: list[Comparison]
    warnings: list[str]
    release_id: str
    seconds: float


class LegPlace(TypedDict):
    """The rank that a stage gave a hit, from 1, and its score where the stage has one."""

    rank: int
    score: NotRequired[float]


class OrderRow(TypedDict):
    """How one hit came to its place; a stage that did not have it is missing."""

    chunk_id: str
    rank: NotRequired[int]  # in the answer
    source_uri: str
    section_path: str
    legs: dict[str, LegPlace]  # by the names in OrderData.legs


class OrderData(TypedDict):
    """Why the hits of a question stand in their order: their places by stage."""

    trace_id: str
    question: str
    namespace: str
    release_id: str
    legs: list[str]  # sparse, dense, fusion, rerank: in the order of the pipeline
    rows: list[OrderRow]
    notes: list[str]


class RankedRow(TypedDict):
    """A chunk with its ranks in two rankings, null where it is missing."""

    chunk_id: str
    before: int | None
    after: int | None
    source_uri: NotRequired[str]
    section_path: NotRequired[str]


class ReplayData(TypedDict):
    """A question asked again: the rankings then and now, and what explains a difference."""

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
    """An expectation that was made; `new` is false where it was there already."""

    case_id: str
    query: str
    new: bool
