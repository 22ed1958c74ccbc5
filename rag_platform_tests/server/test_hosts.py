"""A session through hosts that others wrote, with a scripted model: from the first document to its
deletion.

Of a result the script sees what the host hands its model, and nothing else.
"""

from __future__ import annotations

import asyncio
import base64
import os
import re
import shutil
import sys
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rag_platform.config.folders import SHIPPED

pytestmark = pytest.mark.e2e

SAMPLES = SHIPPED.parent / "samples"
PNG = b"\x89PNG\r\n\x1a\n"
LAST_WORDS = "Your folder was read, asked and emptied."


@dataclass(frozen=True)
class Shown:
    """What a model is shown of a result."""

    text: str
    pictures: tuple[bytes, ...] = ()

    def find(self, pattern: str) -> str:
        found = re.search(pattern, self.text)
        assert found is not None, f"no {pattern} in {self.text}"
        return found[found.lastindex or 0]


Script = Generator[tuple[str, dict[str, Any]], Shown, str]  # tools and their arguments


class Model:
    """Plays a script: asked with what it is shown, it says the next call, or its last words."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._started = False

    def ask(self, shown: Shown) -> tuple[str, dict[str, Any]] | str:
        try:
            if self._started:
                return self._script.send(shown)
            self._started = True
            return next(self._script)
        except StopIteration as end:
            words: str = end.value
            return words


def finish(shown: Shown) -> Script:
    """Wait for the job, as a model does whose host gives up on long calls."""
    job_id = shown.find(r"job_[0-9a-f]+")
    for _ in range(60):
        if re.search(r"\): done|\"state\":\"done\",\"code\"", shown.text):
            return job_id
        shown = yield "library_get_job", {"job_id": job_id, "wait": 3}
    raise AssertionError(shown.text)


def session(folder: Path) -> Script:
    shown = yield "library_query", {"query": "What do I know?"}
    shown.find("library_ingest does so too")
    shown = yield "library_ingest", {"path": str(folder), "tags": ["pegasus"]}
    early = yield "library_query", {"query": "What do I know?"}
    job_id = shown.find(r"job_[0-9a-f]+")
    early.find(f"{job_id} is adding documents to library 'default': wait for it with")
    yield from finish(shown)

    shown = yield (
        "library_query",
        {"query": "超重包裹如何处理？", "searches": ["单件最大重量 35 千克", "人工通道 告警"]},
    )
    shown.find("35 千克")
    shown.find(r"\[1\] \[pegasus/faq-zh.md")
    assert "Note: texts were cut" not in shown.text  # it is said in Chinese
    shown = yield (
        "library_query",
        {
            "query": "How many rounds does a parcel make when the chutes are full?",
            "searches": ["max_recirculations default", "exception chute three rounds"],
        },
    )
    shown.find(r"its default is 3")
    passage = shown.find(r"chunk://chk_\w+")
    document = shown.find(r"handbook-pegasus-\w+")

    seen = yield "library_query_assets", {"asset_ids": [shown.find(r"asset://\w+")]}
    assert [picture[:4] for picture in seen.pictures] == [b"RIFF"]
    seen = yield (
        "library_query_assets",
        {"asset_ids": [shown.find(r"asset://\w+")], "variant": "raw"},
    )
    assert [picture[:8] for picture in seen.pictures] == [PNG]
    shown = yield "library_get_document", {"doc_id": document, "format": "outline"}
    shown.find("Troubleshooting")
    shown = yield "library_get_document", {"doc_id": document, "lines": "14-33"}
    shown.find("exception chute, where a person looks at it")
    shown = yield "library_get_chunk", {"chunk_id": passage, "after": 1}
    shown.find("Starting the line")
    answer = "A parcel makes three rounds [1]. Chutes are painted green [1]."
    shown = yield "library_verify", {"answer": answer, "sources": [passage]}
    shown.find("unsupported")
    shown.find("proven")

    shown = yield "library_delete_document", {"doc_id": document}
    code = shown.find(r"confirm\W+(\w+)")
    shown = yield "library_delete_document", {"doc_id": document, "confirm": code}
    yield from finish(shown)
    shown = yield "library_get_document", {"doc_id": document}
    shown.find("document_deleted")
    shown = yield "library_query", {"query": "What is max_recirculations?"}
    assert "handbook" not in shown.text
    return LAST_WORDS


async def play_with_agents_sdk(server: list[str], environment: dict[str, str], model: Model) -> str:
    """The Agents SDK of OpenAI: text, pictures, and links as JSON."""
    agents = pytest.importorskip("agents", reason="needs a host: pip install openai-agents")
    mcp, testing = pytest.importorskip("agents.mcp"), pytest.importorskip("agents.testing")
    agents.set_tracing_disabled(True)

    def respond(call: Any) -> Any:
        output = call.input[-1].get("output", [])
        parts = output if isinstance(output, list) else [{"type": "input_text", "text": output}]
        texts = [part["text"] for part in parts if part["type"] == "input_text"]
        images = [part["image_url"] for part in parts if part["type"] == "input_image"]
        pictures = tuple(base64.b64decode(image.partition(",")[2]) for image in images)
        said = model.ask(Shown("\n".join(texts), pictures))
        if isinstance(said, str):
            return [testing.assistant_message(said)]
        return [testing.function_call(*said, call_id=f"call-{len(call.input)}")]

    parameters = {"command": server[0], "args": server[1:], "env": environment}
    async with mcp.MCPServerStdio(parameters, client_session_timeout_seconds=30) as library:
        agent = agents.Agent(
            name="assistant",
            model=testing.ScriptedModel([testing.ModelStep.respond(respond)] * 100),
            mcp_servers=[library],
            mcp_config={"convert_schemas_to_strict": True},
        )
        ended = await agents.Runner.run(agent, "Read my folder.", max_turns=100)
    words: str = ended.final_output
    return words


async def play_with_pydantic_ai(
    server: list[str], environment: dict[str, str], model: Model
) -> str:
    """Pydantic AI: fields where a result has no other content than text, else texts, links and
    pictures; errors as advice to try again; progress.
    """
    reason = "needs a host: pip install 'pydantic-ai-slim[mcp]'"
    ai = pytest.importorskip("pydantic_ai", reason=reason)
    mcp = pytest.importorskip("pydantic_ai.mcp", reason=reason)
    messages = pytest.importorskip("pydantic_ai.messages")
    function = pytest.importorskip("pydantic_ai.models.function")
    transports = pytest.importorskip("fastmcp.client.transports")
    told: list[str] = []

    async def progress(done: float, total: float | None, message: str | None) -> None:
        told.append(message or "")

    async def respond(history: list[Any], info: Any) -> Any:
        assert "library_query" in info.instructions
        (last,) = history[-1].parts
        pictures = tuple(it.data for it in getattr(last, "files", ()))
        text = last.model_response_str() if hasattr(last, "model_response_str") else ""
        said = model.ask(Shown(text, pictures))
        if isinstance(said, str):
            return messages.ModelResponse(parts=[messages.TextPart(said)])
        return messages.ModelResponse(parts=[messages.ToolCallPart(*said)])

    library = mcp.MCPToolset(
        transports.StdioTransport(server[0], server[1:], env=environment),
        progress_handler=progress,
        include_instructions=True,
        max_retries=3,
        init_timeout=60,  # 5 seconds otherwise, which a busy machine may take
    )
    async with ai.Agent(function.FunctionModel(respond), toolsets=[library]) as agent:
        # 50 otherwise, which waiting for jobs on a busy machine may take
        limits = ai.UsageLimits(request_limit=100)
        ended = await agent.run("Read my folder.", usage_limits=limits)
    assert {"running", "documents: 2 of 2", "release: 1 of 1"} <= set(told)
    words: str = ended.output
    return words


@pytest.mark.parametrize("play", [play_with_agents_sdk, play_with_pydantic_ai])
def test_a_model_does_the_whole_job_in_a_host_of_others(
    play: Callable[[list[str], dict[str, str], Model], Awaitable[str]], tmp_path: Path
) -> None:
    folder = tmp_path / "pegasus"
    shutil.copytree(SAMPLES / "images", folder / "images")
    for name in ("handbook.md", "faq-zh.md"):
        shutil.copy(SAMPLES / name, folder)
    server = [sys.executable, "-m", "rag_platform.cli.main", "serve"]
    server += ["--allow", "ingest,delete", "--root", str(folder)]
    environment = {**os.environ, "RAG_HOME": str(tmp_path / "home"), "RAG_CONFIG": str(SHIPPED)}
    assert asyncio.run(play(server, environment, Model(session(folder)))) == LAST_WORDS
