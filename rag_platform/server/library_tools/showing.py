"""The tool that the answer view of clients with apps calls; it is not offered to models."""

from __future__ import annotations

import base64
from typing import Annotated

from mcp_types import ImageContent
from pydantic import Field

from rag_platform.api import pictures
from rag_platform.contract.source_shapes import PlacePage
from rag_platform.server.library_tools.definition import Absent, Answer, Arguments, Call, ToolSpec

SHOW_SOURCE = "The page of a passage as a picture, with the rectangles of the words cited from it."


class ShowSourceArguments(Arguments):
    chunk_id: Annotated[str, Field(description="A chunk:// link or the id.")]
    spans: Annotated[
        Annotated[list[tuple[int, int]], Field(max_length=50)] | Absent,
        Field(description="What is cited of its text; default: all of it."),
    ] = None
    page: Annotated[
        Annotated[int, Field(ge=1)] | Absent, Field(description="Default: its first cited one.")
    ] = None


def show_source(call: Call, arguments: ShowSourceArguments) -> Answer:
    """A page of the passage as a picture, with its rectangles. Raises what `page_picture`
    raises.
    """
    from rag_platform.api.places import find_place, lease_chunk

    chunk_id = arguments.chunk_id.removeprefix("chunk://")
    place = find_place(call.library, chunk_id, spans=arguments.spans or (), page=arguments.page)
    nowhere: PlacePage = {"page": 1, "width": 1.0, "height": 1.0, "boxes": [], "cited": []}
    page = next((it for it in place["pages"] if it["cited"]), (place["pages"] or [nowhere])[0])
    with lease_chunk(call.library, chunk_id) as leased:
        namespace, release_id = leased.version.namespace, leased.lease.release_id
    version_id, number = place["version_id"], page["page"]
    picture = pictures.page_picture(call.library, namespace, version_id, number, release_id)
    image = ImageContent(
        type="image",
        data=base64.b64encode(picture).decode(),
        mime_type=pictures.media_type(picture),
    )
    data = {"markdown": f"page {number} of {place['page_count']}"}
    fields = {**page, "chunk_id": chunk_id, "page_count": place["page_count"]}
    return Answer(data, "", place["warnings"], fields, [image])


TOOLS = (
    ToolSpec(
        "show_source", "Show a source", SHOW_SOURCE, ShowSourceArguments, show_source, app="only"
    ),
)
