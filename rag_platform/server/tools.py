"""The tools of the server; each module defines one group, and `tools` binds them to a library."""

from __future__ import annotations

from rag_platform.config.settings import ServerSettings
from rag_platform.retrieval.library import Library
from rag_platform.server.library_tools import proving, querying, reading, showing, writing
from rag_platform.server.library_tools.definition import Call, LibraryTool, ToolSpec
from rag_platform.server.worker_pool import QueryPool

__all__ = ["SPECS", "LibraryTool", "tools"]

SPECS: tuple[ToolSpec, ...] = (
    *querying.TOOLS,
    *reading.TOOLS,
    *proving.TOOLS,
    *writing.TOOLS,
    *showing.TOOLS,
)


def tools(library: Library, settings: ServerSettings, questions: QueryPool) -> list[LibraryTool]:
    """The tools that the settings allow."""
    service = Call(library, questions)
    return [
        spec.bind(service, settings)
        for spec in SPECS
        if not spec.allowed_by or spec.allowed_by in settings.allow
    ]
