"""Our server with what the official conformance suite calls by name: tools, resources and prompts
that do nothing but exercise the protocol. For tests; never shipped.

    python rag_platform_tests/server/conformance_server.py PORT
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Callable
from typing import Annotated, Any

import anyio
import uvicorn
from mcp.server.elicitation import ElicitationResult
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.prompts.base import Prompt, UserMessage
from mcp.server.mcpserver.resolve import Elicit, Resolve
from mcp.shared.exceptions import MCPError
from mcp_types import (
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    AudioContent,
    Completion,
    CreateMessageRequest,
    CreateMessageRequestParams,
    ElicitRequest,
    ElicitRequestFormParams,
    EmbeddedResource,
    EmptyResult,
    ImageContent,
    InputRequiredResult,
    ListRootsRequest,
    SamplingMessage,
    SetLevelRequestParams,
    SubscribeRequestParams,
    TextContent,
    TextResourceContents,
    UnsubscribeRequestParams,
)
from pydantic import BaseModel, Field

from rag_platform.config.settings import load_settings
from rag_platform.server.app import LibraryServer, build_server
from rag_platform.server.http_app import build_app

PNG = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJ"
    "RU5ErkJggg=="
)
WAV = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="
IMAGE = ImageContent(type="image", data=PNG, mime_type="image/png")


DESCRIPTION = "A fixture of the conformance suite."


def embedded(uri: str, text: str, mime: str = "text/plain") -> EmbeddedResource:
    return EmbeddedResource(
        type="resource", resource=TextResourceContents(uri=uri, mime_type=mime, text=text)
    )


def text(words: str) -> TextContent:
    return TextContent(type="text", text=words)


def sampling(words: str) -> CreateMessageRequest:
    message = SamplingMessage(role="user", content=text(words))
    return CreateMessageRequest(
        params=CreateMessageRequestParams(messages=[message], max_tokens=50)
    )


def form(message: str, field: str, kind: str = "string") -> ElicitRequest:
    schema = {"type": "object", "properties": {field: {"type": kind}}, "required": [field]}
    return ElicitRequest(params=ElicitRequestFormParams(message=message, requested_schema=schema))


class Word(BaseModel):
    response: str = Field(description="User's response")


class Defaults(BaseModel):
    name: str = "John Doe"
    age: int = 30
    score: float = 95.5
    status: str = Field("active", json_schema_extra={"enum": ["active", "inactive", "pending"]})
    verified: bool = True


def choices(*values: str) -> Any:
    return [{"const": value, "title": value.title()} for value in values]


class Choices(BaseModel):
    untitledSingle: str = Field(json_schema_extra={"enum": ["a", "b", "c"]})
    titledSingle: str = Field(json_schema_extra={"oneOf": choices("a", "b", "c")})
    untitledMulti: list[str] = Field(
        json_schema_extra={"items": {"type": "string", "enum": ["a", "b", "c"]}}
    )
    titledMulti: list[str] = Field(json_schema_extra={"items": {"anyOf": choices("a", "b", "c")}})
    legacyEnum: str = Field(
        json_schema_extra={"enum": ["a", "b", "c"], "enumNames": ["A", "B", "C"]}
    )


# --- content, errors, messages on the way ---------------------------------------------------------


def test_simple_text() -> str:
    return "This is a simple text response for testing."


def test_image_content() -> list[ImageContent]:
    return [IMAGE]


def test_audio_content() -> list[AudioContent]:
    return [AudioContent(type="audio", data=WAV, mime_type="audio/wav")]


def test_embedded_resource() -> list[EmbeddedResource]:
    return [embedded("test://embedded-resource", "This is an embedded resource content.")]


def test_multiple_content_types() -> list[TextContent | ImageContent | EmbeddedResource]:
    mixed = embedded("test://mixed-content-resource", '{"test": "data"}', "application/json")
    return [text("Multiple content types test:"), IMAGE, mixed]


def test_error_handling() -> str:
    raise ToolError("This tool intentionally returns an error for testing")


async def test_tool_with_logging(ctx: Context[Any, Any]) -> str:
    for words in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await ctx.info(words)
        await anyio.sleep(0.05)
    return "logged"


async def test_logging_tool(ctx: Context[Any, Any]) -> str:
    await ctx.info("once")
    return "logged"


async def test_tool_with_progress(ctx: Context[Any, Any]) -> str:
    for done in (0, 50, 100):
        await ctx.report_progress(done, 100, f"{done} of 100")
        await anyio.sleep(0.05)
    return "done"


def test_x_mcp_header(
    region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})] = "none",
) -> str:
    return region


# --- questions to the client ----------------------------------------------------------------------


async def test_sampling(prompt: str, ctx: Context[Any, Any]) -> str:
    message = SamplingMessage(role="user", content=text(prompt))
    answer = await ctx.session.create_message(
        messages=[message], max_tokens=100, related_request_id=ctx.request_id
    )
    return f"LLM response: {getattr(answer.content, 'text', '')}"


async def ask(ctx: Context[Any, Any], message: str, schema: type[BaseModel]) -> str:
    answer = await ctx.elicit(message, schema)
    content = answer.data.model_dump_json() if answer.action == "accept" else "{}"
    return f"action={answer.action}, content={content}"


async def test_elicitation(message: str, ctx: Context[Any, Any]) -> str:
    return f"User response: {await ask(ctx, message, Word)}"


async def test_elicitation_sep1034_defaults(ctx: Context[Any, Any]) -> str:
    return f"Elicitation completed: {await ask(ctx, 'Who are you?', Defaults)}"


async def test_elicitation_sep1330_enums(ctx: Context[Any, Any]) -> str:
    return f"Elicitation completed: {await ask(ctx, 'Choose', Choices)}"


def asked_word() -> Elicit[Word]:
    return Elicit("A word, please", Word)


async def test_streaming_elicitation(
    answer: Annotated[ElicitationResult[Word], Resolve(asked_word)],
) -> str:
    return answer.action


def test_missing_capability(ctx: Context[Any, Any]) -> str:
    declared = ctx.client_capabilities
    if declared is None or declared.sampling is None:
        raise MCPError(
            MISSING_REQUIRED_CLIENT_CAPABILITY,
            "needs the client capability 'sampling'",
            {"requiredCapabilities": {"sampling": {}}},
        )
    return "declared"


# --- questions as results -------------------------------------------------------------------------


def until_given(
    name: str, requests: dict[str, Any], answered: str, state: str | None = None
) -> Callable[..., Any]:
    """A tool that asks until it was given what it asked for."""

    async def tool(ctx: Context[Any, Any]) -> str | InputRequiredResult:
        if requests.keys() <= (ctx.input_responses or {}).keys() and ctx.request_state == state:
            return answered
        return InputRequiredResult(input_requests=requests, request_state=state)

    tool.__name__ = f"test_input_required_result_{name}"
    return tool


NAME = form("What is your name?", "name")
ASKING = [
    until_given("sampling", {"capital_question": sampling("Capital of France?")}, "Paris"),
    until_given("list_roots", {"client_roots": ListRootsRequest()}, "roots received"),
    until_given("request_state", {"confirm": form("Sure?", "ok", "boolean")}, "state-ok", "nonce"),
    until_given(
        "multiple_inputs",
        {"user_name": NAME, "greeting": sampling("Greet"), "client_roots": ListRootsRequest()},
        "all received",
        "several",
    ),
    until_given("tampered_state", {"confirm": form("Sure?", "ok", "boolean")}, "state-ok", "one"),
]


async def test_input_required_result_elicitation(
    ctx: Context[Any, Any],
) -> str | InputRequiredResult:
    answer = (ctx.input_responses or {}).get("user_name")
    if answer is None:
        return InputRequiredResult(input_requests={"user_name": NAME})
    return f"Hello, {(getattr(answer, 'content', None) or {}).get('name', 'stranger')}!"


async def test_input_required_result_multi_round(
    ctx: Context[Any, Any],
) -> str | InputRequiredResult:
    steps = {"step1": NAME, "step2": form("Which colour?", "color")}
    given = json.loads(ctx.request_state or "[]")
    given += [step for step in steps if step in (ctx.input_responses or {})]
    missing = [step for step in steps if step not in given]
    if not missing:
        return "all received"
    # the state says so, since a round brings its own answers only
    return InputRequiredResult(
        input_requests={missing[0]: steps[missing[0]]}, request_state=json.dumps(given)
    )


async def test_input_required_result_capabilities(ctx: Context[Any, Any]) -> InputRequiredResult:
    declared = ctx.client_capabilities
    may = {"sampling": sampling("Hello"), "elicitation": NAME}
    requests = {key: asked for key, asked in may.items() if getattr(declared, key, None)}
    return InputRequiredResult(input_requests=requests, request_state="capabilities")


async def test_input_required_result_prompt(
    ctx: Context[Any, Any],
) -> list[UserMessage] | InputRequiredResult:
    answer = (ctx.input_responses or {}).get("user_context")
    if answer is None:
        return InputRequiredResult(input_requests={"user_context": form("Context?", "context")})
    return [UserMessage(text(f"Context: {getattr(answer, 'content', None)}"))]


# --- prompts and resources ------------------------------------------------------------------------


def test_simple_prompt() -> list[UserMessage]:
    return [UserMessage(text("This is a simple prompt for testing."))]


def test_prompt_with_arguments(arg1: str, arg2: str) -> list[UserMessage]:
    return [UserMessage(text(f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"))]


def test_prompt_with_embedded_resource(resourceUri: str) -> list[UserMessage]:
    quoted = embedded(resourceUri, "Embedded resource content for testing.")
    return [UserMessage(quoted), UserMessage(text("Please process the embedded resource above."))]


def test_prompt_with_image() -> list[UserMessage]:
    return [UserMessage(IMAGE), UserMessage(text("Please analyze the image above."))]


PROMPTS = (
    test_simple_prompt,
    test_prompt_with_arguments,
    test_prompt_with_embedded_resource,
    test_prompt_with_image,
    test_input_required_result_prompt,
)
TOOLS = (
    test_simple_text,
    test_image_content,
    test_audio_content,
    test_embedded_resource,
    test_multiple_content_types,
    test_error_handling,
    test_tool_with_logging,
    test_logging_tool,
    test_tool_with_progress,
    test_x_mcp_header,
    test_sampling,
    test_elicitation,
    test_elicitation_sep1034_defaults,
    test_elicitation_sep1330_enums,
    test_streaming_elicitation,
    test_missing_capability,
    test_input_required_result_elicitation,
    test_input_required_result_multi_round,
    test_input_required_result_capabilities,
    *ASKING,
)


def add_fixtures(server: LibraryServer) -> None:
    """Add everything that the suite calls by name."""
    for tool in TOOLS:
        server.add_tool(tool, description=DESCRIPTION)
    for prompt in PROMPTS:
        server.add_prompt(Prompt.from_function(prompt, description=DESCRIPTION))

    async def test_trigger_tool_change(ctx: Context[Any, Any]) -> str:
        await ctx.notify_tools_changed()
        return "changed"

    async def test_trigger_prompt_change(ctx: Context[Any, Any]) -> str:
        await ctx.notify_prompts_changed()
        return "changed"

    for tool in (test_trigger_tool_change, test_trigger_prompt_change):
        server.add_tool(tool, description=DESCRIPTION)

    @server.resource("test://static-text", mime_type="text/plain")
    def static_text() -> str:
        return "This is the content of the static text resource."

    @server.resource("test://static-binary", mime_type="image/png")
    def static_binary() -> bytes:
        return base64.b64decode(PNG)

    @server.resource("test://template/{id}/data", mime_type="application/json")
    def template(id: str) -> str:
        return json.dumps({"id": id, "templateTest": True, "data": f"Data for ID: {id}"})

    @server.resource("test://watched-resource")
    def watched() -> str:
        return "Watched resource content"

    @server.completion()
    async def complete(ref: Any, argument: Any, context: Any) -> Completion:
        return Completion(values=[], total=0, has_more=False)

    async def acknowledge(ctx: Any, params: Any) -> EmptyResult:
        return EmptyResult()

    for method, params in (
        ("logging/setLevel", SetLevelRequestParams),
        ("resources/subscribe", SubscribeRequestParams),
        ("resources/unsubscribe", UnsubscribeRequestParams),
    ):
        server._lowlevel_server.add_request_handler(method, params, acknowledge)


def main() -> None:
    """Serve on the port that the command line names."""
    settings = load_settings()
    server = build_server(settings)
    add_fixtures(server)
    uvicorn.run(build_app(server, settings), port=int(sys.argv[1]), log_level="warning")


if __name__ == "__main__":
    main()
