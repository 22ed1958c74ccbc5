"""Defines tools: name, arguments and description in the public contract, the scope that callers
need, and the function to call.

A call validates its arguments, runs the function in a worker thread, and returns an envelope: as
text for models and people, and as structured content. Descriptions are prompts: assistants choose
tools by them, so they say when to use a tool and what it returns.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin

import anyio.to_thread
from mcp_types import CallToolResult, ContentBlock, TextContent, ToolAnnotations
from mcp_types import Tool as Definition
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic.json_schema import SkipJsonSchema

from rag_platform import access
from rag_platform.api import writing
from rag_platform.api.envelopes import envelope, failure, without_paths
from rag_platform.config.settings import ServerSettings, Settings, tool_name
from rag_platform.errors import InputError, RagError
from rag_platform.ir import Json
from rag_platform.messages import LANGUAGES, translate_filled
from rag_platform.observability import tracing
from rag_platform.processes import limits
from rag_platform.retrieval.library import Library
from rag_platform.retrieval.namespaces import choose_namespace
from rag_platform.server.worker_pool import QueryPool
from rag_platform.text.encoding import encodable_json

_MESSAGE_CHARS = 1500  # of an error message, which may quote a long value
Absent = SkipJsonSchema[None]
Scope = Literal["read", "write", "admin"]
OnProgress = Callable[[float, float, str], None]  # done, total, message
# a list of texts; clients may also send a single one
Texts = Annotated[
    list[str], BeforeValidator(lambda value: [value] if isinstance(value, str) else value)
]
Collections = Annotated[Texts | Absent, Field(description="Libraries; default: the user's.")]
Collection = Annotated[str | Absent, Field(description="The library.")]


class Arguments(BaseModel):
    """The arguments of a tool; unknown ones are an error."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _coerce_client_types(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Accept what clients send: objects, lists and null as JSON texts, null or an empty text
        for omitted arguments, numbers for texts, and literals in other case.
        """
        read = dict(given)
        for name, value in given.items():
            if (field := cls.model_fields.get(name)) is None:
                if value is None:
                    del read[name]
                continue
            if isinstance(value, str) and field.annotation is not str:
                with suppress(ValueError, RecursionError):
                    made = json.loads(value)
                    if made is None or isinstance(made, (dict, list)):
                        read[name] = value = made
            kinds = (field.annotation, *get_args(field.annotation))
            words = [word for it in kinds if get_origin(it) is Literal for word in get_args(it)]
            if value is None and NoneType not in kinds and not field.is_required():
                del read[name]
            elif (type(value) is int and str in kinds) or (
                type(value) is bool and (int in kinds or float in kinds)
            ):
                read[name] = str(value)  # `true` is refused as a number: it is not 1 second
            elif isinstance(value, str) and not value.strip() and field.default is None:
                del read[name]
            elif isinstance(value, str) and value.lower() in words:
                read[name] = value.lower()
        return read


@dataclass(frozen=True, slots=True)
class Call:
    """What a tool works with: the library, the pool that answers questions, and a callback."""

    library: Library
    questions: QueryPool
    on_progress: OnProgress | None = None

    @property
    def settings(self) -> Settings:
        return self.library.settings

    def namespace(self, names: str | list[str] | None = None) -> str:
        """The one namespace that the call reads. Raises InputError if that is ambiguous."""
        return choose_namespace(self.library, [names] if isinstance(names, str) else names or [])

    def describe_ingest_job(self, namespace: str) -> str:
        """The running ingest job of a namespace, or of any one while none is published, and how to
        wait for it; empty if the caller may see none.
        """
        caller = access.current()
        if not (caller.may_see(namespace) and self.library.store.has_ledger()):
            return ""
        names = [namespace] if self.library.namespaces() else caller.namespaces
        for job in writing.list_jobs(self.settings, names):
            if job["kind"] == "ingest" and job["state"] not in writing.FINAL_STATES:
                return (
                    f"{job['job_id']} is adding documents to library {job['namespace']!r}: wait for"
                    f" it with {tool_name(self.settings.server, 'get_job')}"
                )
        return ""


class Answer(NamedTuple):
    """The result of a tool."""

    data: Any  # with `markdown`, the text of the result
    trace_id: str = ""  # if the function opened its own trace
    warnings: Sequence[str] = ()
    structure: Any = None  # the data of the structured content, if it is not `data`
    blocks: Sequence[ContentBlock] = ()  # content after the text: links and images


@dataclass(frozen=True, slots=True)
class LibraryTool:
    """A tool that answers every call, even a failed one, with an envelope."""

    definition: Definition  # as clients see it
    spec: ToolSpec
    service: Call

    def adapt(self, view_uri: str) -> Definition | None:
        """The definition for a client that shows the answer view at `view_uri`, or if that is empty
        for one that cannot show it; None if the tool is not offered.
        """
        if not self.spec.app:
            return self.definition
        if not view_uri:
            return None if self.spec.app == "only" else self.definition
        ui = {"visibility": ["app"]} if self.spec.app == "only" else {"resourceUri": view_uri}
        return self.definition.model_copy(update={"meta": {"ui": ui}})

    async def run(
        self,
        arguments: dict[str, Any],
        request_id: str | None,
        on_progress: OnProgress | None = None,
    ) -> CallToolResult:
        """Run `call` in a worker thread, which is abandoned when the call is cancelled."""
        with limits.cancellable():
            return await anyio.to_thread.run_sync(
                partial(self.call, arguments, request_id, on_progress), abandon_on_cancel=True
            )

    def call(
        self,
        arguments: dict[str, Any],
        request_id: str | None = None,
        on_progress: OnProgress | None = None,
    ) -> CallToolResult:
        """The result of one call; never raises."""
        with tracing.for_request(request_id):
            return self._call(arguments, replace(self.service, on_progress=on_progress))

    def _call(self, arguments: dict[str, Any], service: Call) -> CallToolResult:
        name, logs_dir = self.definition.name, service.library.store.logs_dir
        trace_id = ""
        try:
            if self.spec.own_trace:
                return self._result(self.spec.function(service, self._check(arguments)))
            with tracing.trace("tool", logs_dir=logs_dir) as trace, tracing.span(f"tool.{name}"):
                trace_id = trace.trace_id
                found = self.spec.function(service, self._check(arguments))
                return self._result(found._replace(trace_id=trace_id))
        except Exception as error:  # noqa: BLE001 (any error is reported to the client)
            if isinstance(error, RagError):
                trace_id = str(error.details.pop("trace_id", "")) or trace_id
            trace_id = trace_id or trace_failure(name, error, logs_dir)
            return error_result(self._address_assistant(failure(error, trace_id)))

    def _check(self, arguments: dict[str, Any]) -> Arguments:
        """The validated arguments. Raises InputError naming the argument, the rule and
        the value.
        """
        try:
            return self.spec.arguments.model_validate(encodable_json(arguments))
        except ValidationError as error:
            message = _describe(error, self.definition.input_schema)
            raise InputError(message, code="invalid_arguments") from error

    def _result(self, found: Answer) -> CallToolResult:
        """The text, links and images, and the envelope without the text as structured content."""
        structure = found.data if found.structure is None else found.structure
        fields = {key: value for key, value in structure.items() if key != "markdown"}
        warnings = [str(item) for item in without_paths(list(found.warnings))]
        answered = self._address_assistant(envelope(fields, found.trace_id, warnings))
        text = str(found.data["markdown"])
        text += "".join(f"\n\nNote: {item}" for item in warnings if not _contains_note(text, item))
        if answered["error"] is not None and answered["error"]["message"] not in text:
            text += f"\n\n{answered['error']['message']}"
        return CallToolResult(
            content=[TextContent(type="text", text=text), *found.blocks],
            structured_content=answered,
            is_error=not answered["ok"],
        )

    def _address_assistant(self, answered: Json) -> Json:
        """Cut the error message of an envelope to size, and append what an assistant, which has no
        shell, can do.
        """
        if error := answered["error"]:
            if len(error["message"]) > _MESSAGE_CHARS:
                error["message"] = f"{error['message'][:_MESSAGE_CHARS]}…"
            error["message"] += self._advise(error)
        return answered

    def _advise(self, error: Json) -> str:
        """Advice for an assistant, to be appended to the error's message."""
        server = self.service.settings.server
        if error["code"] in ("no_release", "unknown_namespace"):
            with suppress(Exception):  # the error must be reported in any case
                if hint := self.service.describe_ingest_job(error["details"]["namespace"]):
                    return f"; {hint}"
        if error["code"] == "busy" and " job_" in error["message"]:
            return f": wait for it with {tool_name(server, 'get_job')}, or give `wait`"
        if error["code"] == "which_collection":
            return f", here with `{_library_argument(self.definition.input_schema)}`"
        if error["code"] in _LISTED_BY:
            see = f"see {tool_name(server, _LISTED_BY[error['code']])}"
            return f" {see}" if error["message"].endswith("?") else f"; {see}"
        if "`rag ingest" in error["message"] and "ingest" in server.allow:
            return f"; {tool_name(server, 'ingest')} does so too"
        return (
            "; `rag` is run in a terminal: ask the user to" if "`rag " in error["message"] else ""
        )


def trace_failure(name: str, error: Exception, logs_dir: Path) -> str:
    """Record a call of a tool that failed before it had a trace, and return the trace's id."""
    with (
        suppress(Exception),
        tracing.trace("tool", logs_dir=logs_dir) as trace,
        tracing.span(f"tool.{name}"),
    ):
        raise error
    return trace.trace_id


def error_result(answered: Json) -> CallToolResult:
    """The result of a failed call, with its envelope as text too."""
    text = TextContent(type="text", text=json.dumps(answered, ensure_ascii=False))
    return CallToolResult(content=[text], structured_content=answered, is_error=True)


def _contains_note(text: str, note: str) -> bool:
    """True if the text has the note in any language."""
    return any(translate_filled(f"Note: {note}", language) in text for language in LANGUAGES)


# error code to the tool that lists the valid names
_LISTED_BY = {
    "unknown_document": "list_documents",
    "unknown_expectation": "expect",
    "unknown_job": "get_job",
}
# the argument's name on the command line, and models' guesses
_NAMESPACES = ("namespace", "namespaces", "collection", "collections")


def _library_argument(schema: dict[str, Any]) -> str:
    """The argument that names a tool's libraries; empty if it has none."""
    return next((it for it in ("collections", "collection") if it in schema["properties"]), "")


def _describe(error: ValidationError, schema: dict[str, Any]) -> str:
    """A message with every invalid argument and its rule, and for unknown ones the known ones."""
    known = schema["properties"]
    problems: list[str] = []
    for item in error.errors():
        name = str(item["loc"][0])  # the rest of `loc` names branches of the type
        if item["type"] == "extra_forbidden":
            own = _library_argument(schema) if name in _NAMESPACES else ""
            hint = f"; libraries are named in {own}" if own else ""
            problems.append(f"unknown argument {name!r}; known: {', '.join(known)}{hint}")
        elif item["type"] == "missing":
            problems.append(f"argument {name!r} is missing")
        elif item["type"] != "none_required":  # not helpful: suggests to omit the argument
            rule = f"{item['msg'][:1].lower()}{item['msg'][1:]}"
            problems.append(f"argument {name!r}: {rule} (given: {str(item['input'])[:80]!r})")
    return "; ".join(dict.fromkeys(problems))


def tidy(schema: Any) -> Any:
    """The schema without generated titles, null defaults and docstring line breaks, which would
    waste the client's context.
    """
    if isinstance(schema, str):
        return re.sub(r"(?<!\n)\n(?!\n)", " ", schema)
    if isinstance(schema, list):
        return [tidy(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: tidy(value)
        for key, value in schema.items()
        if not (key == "title" and isinstance(value, str))
        and not (key == "default" and value is None)
    }


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as defined by its module, not yet bound to a library."""

    name: str
    title: str
    description: str
    arguments: type[Arguments]
    function: Callable[[Call, Any], Answer]
    scope: Scope = "read"
    # value of `rag serve --allow` that enables the tool; empty: always enabled
    allowed_by: str = ""
    own_trace: bool = False  # the function opens its own trace and returns its id
    destructive: bool = False
    open_world: bool = False
    # "shown": the answer view shows its result; "only": only that view calls it
    app: Literal["", "shown", "only"] = ""

    def bind(self, service: Call, settings: ServerSettings) -> LibraryTool:
        """The tool bound to a library."""
        parameters = tidy(self.arguments.model_json_schema())
        parameters.pop("description", None)
        definition = Definition(
            name=tool_name(settings, self.name),
            title=self.title,
            description=self.description,
            input_schema=parameters,
            annotations=self.annotations(),
        )
        return LibraryTool(definition, self, service)

    def annotations(self) -> ToolAnnotations:
        """The hints to clients about the tool's effects."""
        if self.scope == "read":
            return ToolAnnotations(read_only_hint=True, open_world_hint=False)
        return ToolAnnotations(
            read_only_hint=False,
            destructive_hint=self.destructive,
            idempotent_hint=True,
            open_world_hint=self.open_world,
        )
