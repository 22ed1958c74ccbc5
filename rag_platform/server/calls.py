"""What a tool is here: checked arguments in, one function called in a worker thread, an envelope out, as text and as structure."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any, get_type_hints

import anyio.to_thread
from mcp.server.mcpserver.tools import Tool
from mcp.server.mcpserver.utilities.func_metadata import ArgModelBase, FuncMetadata
from mcp_types import CallToolResult, TextContent, ToolAnnotations
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from rag_platform.errors import InputError, RagError
from rag_platform.ir import Json
from rag_platform.observability import tracing
from rag_platform.retrieval import contract, deadlines
from rag_platform.retrieval.library import Library
from rag_platform.retrieval.responses import envelope, failure, without_paths
from rag_platform.server.responding import Answer

READ_ONLY = ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False)


class Arguments(ArgModelBase):
    """The arguments of a tool; one that does not exist is an error, not silence."""

    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)


Function = Callable[[Library, Any], Answer]


class LibraryTool(Tool):
    """A tool that answers every call with an envelope, failed ones too."""

    library: Any = Field(exclude=True)
    traces: bool = Field(exclude=True)  # the function opens its own trace and returns its id

    async def run(self, arguments: dict[str, Any], context: Any, convert_result: bool = False) -> CallToolResult:
        """The envelope as text and as structured content; the event loop stays free, and a cancelled call is no longer waited for."""
        request_id = str(getattr(context, "request_id", "") or "") or None
        call = functools.partial(self.call, arguments, request_id)
        with deadlines.cancellable():
            return result_of(await anyio.to_thread.run_sync(call, abandon_on_cancel=True))

    def call(self, arguments: dict[str, Any], request_id: str | None = None) -> Json:
        """The envelope of one call; never raises."""
        try:
            checked = self.checked(arguments)
            with tracing.requested(request_id):
                data, trace_id, warnings = self._traced(checked, request_id)
            return envelope(data, trace_id, without_paths(warnings))
        except Exception as error:  # noqa: BLE001 (the client of a tool is told whatever went wrong)
            return self._failed(error, request_id)

    def checked(self, arguments: dict[str, Any]) -> Any:
        """The arguments as the function wants them. Raises InputError naming the argument, the rule and the value."""
        try:
            # some clients send objects and lists as JSON texts
            return self.fn_metadata.arg_model.model_validate(self.fn_metadata.pre_parse_json(arguments))
        except ValidationError as error:
            raise InputError(_told(error, self.parameters), code="invalid_arguments") from error

    def _traced(self, checked: Any, request_id: str | None) -> Answer:
        """The function's answer; work that opens no trace of its own gets one here."""
        if self.traces:
            data, trace_id, warnings = self.fn(self.library, checked)
            return data, trace_id, warnings
        with tracing.trace("tool", logs_dir=self.library.store.logs_dir, request_id=request_id) as trace, tracing.span(f"tool.{self.name}"):
            data, _, warnings = self.fn(self.library, checked)
            return data, trace.trace_id, warnings

    def _failed(self, error: Exception, request_id: str | None) -> Json:
        trace_id = str(error.details.pop("trace_id", "")) if isinstance(error, RagError) else ""
        if not trace_id:
            trace_id = self._trace_of(error, request_id)
        return failure(error, trace_id)

    def _trace_of(self, error: Exception, request_id: str | None) -> str:
        """A trace that holds nothing but the failure, for calls that failed outside one."""
        with tracing.trace("tool", logs_dir=self.library.store.logs_dir, request_id=request_id) as trace:
            with tracing.span(f"tool.{self.name}") as span:
                span.fail(error)
            return trace.trace_id


def tool(
    library: Library, name: str, title: str, description: str, arguments: type[Arguments], data: Any, function: Function, *, traces: bool
) -> LibraryTool:
    """The tool `name`; `traces` says that the function opens its own trace and returns its id."""
    parameters = _tidy(arguments.model_json_schema(by_alias=True))
    parameters.pop("description")
    metadata = FuncMetadata(arg_model=arguments, output_schema=output_schema(data))
    return LibraryTool(
        fn=function,
        name=name,
        title=title,
        description=description,
        parameters=parameters,
        fn_metadata=metadata,
        is_async=False,
        context_kwarg=None,
        annotations=READ_ONLY,
        library=library,
        traces=traces,
    )


def output_schema(data: Any) -> dict[str, Any]:
    """The JSON schema of the envelope around one kind of data, derived from the contract."""
    fields: dict[str, Any] = get_type_hints(contract.Envelope) | {"data": data | None}
    whole: Any = TypedDict(f"{data.__name__}Envelope", fields)  # type: ignore[misc]
    schema: dict[str, Any] = _tidy(TypeAdapter(whole).json_schema(mode="serialization"))
    return schema


def result_of(answered: Json) -> CallToolResult:
    """Text first: the markdown, or the envelope of a call that failed without any; the structured envelope second."""
    text = str(answered["data"]["markdown"]) if answered["data"] is not None else json.dumps(answered, ensure_ascii=False)
    return CallToolResult(content=[TextContent(type="text", text=text)], structured_content=answered, is_error=not answered["ok"])


_NAMESPACES = ("namespace", "namespaces", "collection")  # as the command line has it, and as models guess


def _told(error: ValidationError, parameters: dict[str, Any]) -> str:
    """Every wrong argument with its rule; an unknown one with the known ones."""
    told: list[str] = []
    for item in error.errors():
        if item["type"] == "none_required":  # leaving an optional argument out is no advice
            continue
        where = str(item["loc"][0])  # what follows names branches of the type, not of the argument
        if item["type"] == "extra_forbidden":
            meant = "; namespaces are named in collections" if where in _NAMESPACES and "collections" in parameters["properties"] else ""
            told.append(f"unknown argument {where!r}; known: {', '.join(parameters['properties'])}{meant}")
        elif item["type"] == "missing":
            told.append(f"argument {where!r} is missing")
        else:
            told.append(f"argument {where!r}: {item['msg'][:1].lower()}{item['msg'][1:]} (given: {str(item['input'])[:80]!r})")
    return "; ".join(dict.fromkeys(told))


def _tidy(schema: Any) -> Any:
    """The schema without generated titles and null defaults, which only cost a client's context."""
    if isinstance(schema, list):
        return [_tidy(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: _tidy(value)
        for key, value in schema.items()
        if not (key == "title" and isinstance(value, str)) and not (key == "default" and value is None)
    }
