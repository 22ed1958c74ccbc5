"""The tools that read: documents, passages, pictures, summaries, lists."""

from __future__ import annotations

import base64
import re
from typing import Annotated, Any, Literal

from mcp_types import ImageContent
from pydantic import AfterValidator, Field

from rag_platform.api import documents, passages, summaries
from rag_platform.api.status import list_collections as collect_collections
from rag_platform.api.status import status as collect_status
from rag_platform.config.settings import tool_name
from rag_platform.contract.markdown_views import document_heading
from rag_platform.contract.traces import PlacePage
from rag_platform.errors import InputError
from rag_platform.server.library_tools.definition import (
    Absent,
    Answer,
    Arguments,
    Call,
    Collections,
    Texts,
    ToolSpec,
)

GET_DOCUMENT = """Read a document by its doc_id. format: outline (headings, good first for long \
ones), sections, chunks (citable, with places), md (whole text), changes (versions, and \
what the last one changed)."""

GET_CHUNK = """Read a passage by its chunk:// link or id, with passages before and after it: for \
the context of a citation."""

SUMMARIZE_DOCUMENT = """Summarize a whole document, naming the sections drawn from. \
For a question about it: query with a filter on doc_id."""

LIST_DOCUMENTS = """List documents without searching: what there is, or to find a doc_id."""

LIST_COLLECTIONS = """List the libraries (collections) with size, languages and date."""

QUERY_ASSETS = """See pictures by the asset:// URIs of results and \
documents. Gone or too large: listed as missing."""

STATUS = """Show each library's release, date, models, running and failed jobs, documents that \
failed, and what is wrong: when a query finds nothing."""

SHOW_SOURCE = "The page of a passage as a picture, with the rectangles of the words cited from it."

DocId = Annotated[
    str,
    AfterValidator(lambda doc_id: doc_id.removeprefix("doc://")),
    Field(description="As results and lists give it."),
]


class GetDocumentArguments(Arguments):
    doc_id: DocId
    version_id: str | Absent = Field(None, description="An older version.")
    format: Literal["md", "sections", "chunks", "outline", "changes"] | Absent = Field(
        None, description="Default md."
    )
    pages: str | Absent = Field(None, description='Chunks of these pages: "3-5".')
    lines: str | Absent = Field(None, description='Chunks of these lines: "10-40".')
    max_chars: Annotated[int, Field(ge=1)] | Absent = Field(None, description="At most.")
    cursor: str | Absent = Field(None, description="The next part.")
    include_summary: bool = Field(False, description="A summary too.")
    summary_style: summaries.Style = Field("short", description="Of that summary.")
    collections: Collections = None


class GetChunkArguments(Arguments):
    chunk_id: str = Field(description="A chunk:// link or the id.")
    before: int = Field(1, ge=0, le=passages.MAX_NEIGHBOURS, description="Before it.")
    after: int = Field(1, ge=0, le=passages.MAX_NEIGHBOURS, description="After it.")
    collections: Collections = None


class SummarizeDocumentArguments(Arguments):
    doc_id: DocId
    version_id: str | Absent = Field(None, description="An older version.")
    style: summaries.Style = Field(
        "short", description="short: 1-3 sentences; bullet: points; detailed: by section."
    )
    collections: Collections = None


class ListDocumentsArguments(Arguments):
    group_by: Literal["tags", "categories", "source"] | None = Field(
        "tags", description="null: a plain list."
    )
    filter: dict[str, str | list[str]] | Absent = Field(
        None,
        description=(
            "words (of its title), tags, categories, source, status (active, pending,"
            " failed, retired, deleted), since, until (dates of change). Example:"
            ' {"tags": ["guide", "api"]}'
        ),
    )
    limit: int = Field(50, ge=1, le=documents.MAX_LIMIT, description="Rows a page.")
    cursor: str | Absent = Field(None, description="next_cursor.")
    include_deleted: bool = Field(False, description="Retired and deleted ones too.")
    collections: Collections = None


class QueryAssetsArguments(Arguments):
    asset_ids: Texts = Field(
        min_length=1, max_length=passages.MAX_ASSETS, description="asset:// URIs or their ids."
    )
    variant: passages.Variant = Field("thumb", description="thumb: small; raw: full size.")
    max_bytes: int = Field(1_000_000, ge=1, le=20_000_000, description="Of all pictures together.")
    collections: Collections = None


class NoArguments(Arguments):
    """The arguments of a tool without any."""


def get_document(call: Call, arguments: GetDocumentArguments) -> Answer:
    namespace = _find_namespace(call, arguments.doc_id, arguments.collections)
    ranges = {name: _parse_range(name, getattr(arguments, name)) for name in ("pages", "lines")}
    data = documents.get_document(
        call.library,
        namespace,
        arguments.doc_id,
        version_id=arguments.version_id,
        format=arguments.format or ("chunks" if any(ranges.values()) else "md"),
        max_chars=arguments.max_chars,
        max_tokens=call.settings.server.result_tokens,
        selection=documents.Selection(arguments.cursor, **ranges),
    )
    warnings = data.pop("warnings", [])
    structure: dict[str, Any] = {**data}
    if "md_text" in data["document"] and not arguments.cursor:
        data["markdown"] = f"{document_heading(data['document'])}\n\n{data['markdown']}"
    if arguments.include_summary:
        summary = summaries.summarize_document(
            call.library,
            namespace,
            arguments.doc_id,
            version_id=arguments.version_id,
            style=arguments.summary_style,
        )
        structure["summary"] = summary["markdown"]
        warnings += summary.get("warnings", [])
        data["markdown"] = f"**Summary**\n\n{summary['markdown']}\n\n---\n\n{data['markdown']}"
    if cursor := data.get("next_cursor"):
        data["markdown"] += f"\n\nMore: cursor `{cursor}`"
    return Answer(data, "", warnings, structure)


def _parse_range(name: str, text: str | None) -> tuple[int, int] | None:
    """The numbers of `3` or `3-5`. Raises InputError `bad_range`."""
    if text is None:
        return None
    found = re.fullmatch(r"\s*(\d{1,7})\s*(?:-\s*(\d{1,7})\s*)?", text)
    if found is None:
        raise InputError(
            f'{name} {text[:40]!r} is no range: give a number or two, as in "3-5"', code="bad_range"
        )
    first, last = int(found[1]), int(found[2] or found[1])
    if not 1 <= first <= last:
        raise InputError(
            f"{name} {text[:40]!r} is no range: it counts from 1, the smaller number first",
            code="bad_range",
        )
    return first, last


def _find_namespace(call: Call, doc_id: str, names: list[str] | None) -> str:
    """The namespace of a document, as doc_ids are unique across them. Raises NotFoundError."""
    if found := passages.find_document_namespace(call.library, doc_id, names or ()):
        return found
    looked_in = names or call.library.namespaces() or [call.namespace()]
    raise documents.unknown_document(call.library, doc_id, looked_in)


def get_chunk(call: Call, arguments: GetChunkArguments) -> Answer:
    return Answer(
        passages.get_chunk(
            call.library,
            arguments.chunk_id.removeprefix("chunk://"),
            before=arguments.before,
            after=arguments.after,
            names=arguments.collections or (),
        )
    )


def summarize_document(call: Call, arguments: SummarizeDocumentArguments) -> Answer:
    data = summaries.summarize_document(
        call.library,
        _find_namespace(call, arguments.doc_id, arguments.collections),
        arguments.doc_id,
        version_id=arguments.version_id,
        style=arguments.style,
    )
    warnings = data.pop("warnings", [])
    if data["method"] == "textrank":
        reader = tool_name(call.settings.server, "get_document")
        warnings.append(f"quoted sentences, not all that matters; `{reader}` reads the whole text")
    return Answer(data, "", warnings, {**data, "summary": data["markdown"]})


def list_documents(call: Call, arguments: ListDocumentsArguments) -> Answer:
    data = documents.list_documents(
        call.library,
        call.namespace(arguments.collections),
        group_by=arguments.group_by,
        filter=arguments.filter,
        limit=arguments.limit,
        cursor=arguments.cursor,
        include_deleted=arguments.include_deleted,
        max_tokens=call.settings.server.result_tokens,
    )
    others = [name for name in call.library.namespaces() if name != data["namespace"]]
    warnings = [f"other libraries, listed by `collections`: {', '.join(others)}"]
    if not others or arguments.collections or arguments.cursor:
        warnings = []
    if not data["total"] and (hint := call.describe_ingest_job(data["namespace"])):
        warnings.append(hint)
    return Answer(data, "", warnings, documents.abridge_rows(data))


def list_collections(call: Call, arguments: NoArguments) -> Answer:
    data = collect_collections(call.library)
    hint = "" if data["collections"] else call.describe_ingest_job(data["default"][0])
    return Answer(data, warnings=[hint] if hint else ())


def query_assets(call: Call, arguments: QueryAssetsArguments) -> Answer:
    """A text that lists the pictures, followed by them as image content."""
    data, pictures = passages.query_assets(
        call.library,
        arguments.asset_ids,
        variant=arguments.variant,
        max_bytes=arguments.max_bytes,
        names=arguments.collections or (),
    )
    blocks = [
        ImageContent(
            type="image",
            data=base64.b64encode(picture.path.read_bytes()).decode(),
            mime_type=picture.mime,
        )
        for picture in pictures
    ]
    return Answer(data, blocks=blocks)


def status(call: Call, arguments: NoArguments) -> Answer:
    return Answer(collect_status(call.library, call.questions.cache_figures()))


TOOLS = (
    ToolSpec("get_document", "Read a document", GET_DOCUMENT, GetDocumentArguments, get_document),
    ToolSpec("get_chunk", "Read a passage", GET_CHUNK, GetChunkArguments, get_chunk),
    ToolSpec(
        "summarize_document",
        "Summarize a document",
        SUMMARIZE_DOCUMENT,
        SummarizeDocumentArguments,
        summarize_document,
    ),
    ToolSpec(
        "list_documents", "List documents", LIST_DOCUMENTS, ListDocumentsArguments, list_documents
    ),
    ToolSpec("list_collections", "List libraries", LIST_COLLECTIONS, NoArguments, list_collections),
    ToolSpec("query_assets", "See pictures", QUERY_ASSETS, QueryAssetsArguments, query_assets),
    ToolSpec("status", "Library status", STATUS, NoArguments, status),
)


# --- the answer view of clients with apps, whose tool is not offered to models -------------------


class ShowSourceArguments(Arguments):
    chunk_id: str = Field(description="A chunk:// link or the id.")
    spans: Annotated[list[tuple[int, int]], Field(max_length=50)] | Absent = Field(
        None, description="What is cited of its text; default: all of it."
    )
    page: Annotated[int, Field(ge=1)] | Absent = Field(
        None, description="Default: its first cited one."
    )


def show_source(call: Call, arguments: ShowSourceArguments) -> Answer:
    """A page of the passage as a picture, with its rectangles. Raises what `page_picture`
    raises.
    """
    from rag_platform.api.places import find_place, first_page, lease_chunk

    chunk_id = arguments.chunk_id.removeprefix("chunk://")
    place = find_place(call.library, chunk_id, spans=arguments.spans or (), page=arguments.page)
    nowhere: PlacePage = {"page": 1, "width": 1.0, "height": 1.0, "boxes": [], "cited": []}
    page = first_page(place) or nowhere
    with lease_chunk(call.library, chunk_id) as leased:
        namespace, release_id = leased.version.namespace, leased.lease.release_id
    version_id, number = place["version_id"], page["page"]
    picture = passages.page_picture(call.library, namespace, version_id, number, release_id)
    image = ImageContent(
        type="image",
        data=base64.b64encode(picture).decode(),
        mime_type=passages.media_type(picture),
    )
    data = {"markdown": f"page {number} of {place['page_count']}"}
    fields = {**page, "chunk_id": chunk_id, "page_count": place["page_count"]}
    return Answer(data, "", place["warnings"], fields, [image])


VIEW_TOOLS = (
    ToolSpec(
        "show_source", "Show a source", SHOW_SOURCE, ShowSourceArguments, show_source, app="only"
    ),
)
