"""The server as a client meets it: in process for every tool, as a child process for the protocol
on standard output.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.shared.exceptions import MCPError

from rag_platform.errors import NotFoundError
from rag_platform.indexes.catalog import FILTERABLE
from rag_platform.observability.trace_reader import show
from rag_platform.query import filters
from rag_platform.retrieval.library import Library
from rag_platform.retrieval.preload import warm
from rag_platform.server import worker_pool
from rag_platform.server.app import build_server
from rag_platform.server.contents import SPECS
from rag_platform.server.library_tools import querying, reading
from rag_platform.text import segmentation
from rag_platform_tests.chat_server import chat_server, said


def talk(shelf: Any, conversation: Callable[[Client], Awaitable[Any]]) -> Any:
    """What a conversation with a server over the shelf came to."""

    async def run() -> Any:
        async with Client(build_server(shelf.settings, shelf.library())) as client:
            return await conversation(client)

    return anyio.run(run)


def call(shelf: Any, name: str, **arguments: Any) -> Any:
    return talk(shelf, lambda client: client.call_tool(name, arguments))


def test_query_answers_with_sources(read_only_shelf: Any) -> None:
    result = call(read_only_shelf, "library_query", query="Which port does the gateway listen on?")
    envelope = result.structured_content
    assert not result.is_error and envelope["ok"] and envelope["error"] is None
    data, text = envelope["data"], result.content[0].text
    assert "markdown" not in data and text.startswith(data["answer_markdown"])
    assert "8080" in data["answer_markdown"] and "[1]" in data["answer_markdown"]
    cited = data["results"][0]
    assert (cited["id"], cited["cited"], cited["section_path"], cited["line_range"]) == (
        1,
        True,
        "Ports",
        [5, 7],
    )
    assert data["documents"][cited["doc_id"]]["source_uri"] == "files/ports.md"
    assert f"[1] [files/ports.md, Ports, line 7]({cited['uri']})" in text
    [link] = result.content[1:]
    assert (link.type, str(link.uri)) == ("resource_link", cited["uri"])
    assert envelope["trace_id"] in text
    trace = show(read_only_shelf.store.logs_dir, envelope["trace_id"])
    assert trace["trace_type"] == "query" and "stage.retrieve_sparse" in {
        span["name"] for span in trace["spans"]
    }


def test_chinese_query_with_a_filter(read_only_shelf: Any) -> None:
    data = call(
        read_only_shelf, "library_query", query="病假需要什么证明", filters={"tags": "hr"}, top_k=1
    ).structured_content["data"]
    assert data["results"][0]["section_path"] == "休假制度 / 病假"
    assert data["matched_count"] == 2 and len(data["results"]) == 1


def test_words_are_loaded_before_the_first_question(read_only_shelf: Any) -> None:
    segmentation.chinese_dictionary.cache_clear()
    library = read_only_shelf.library()
    warm(library)
    assert (
        segmentation.chinese_dictionary.cache_info().currsize == 1
    )  # the shelf holds Chinese documents
    library.close()


def test_a_namespace_under_another_name_is_explained(read_only_shelf: Any) -> None:
    told = call(
        read_only_shelf, "library_query", query="port", namespace="default"
    ).structured_content["error"]["message"]
    assert told.startswith("unknown argument 'namespace'; known: query, ") and told.endswith(
        "; libraries are named in collections"
    )


def test_a_default_namespace_without_a_release_names_the_others(read_only_shelf: Any) -> None:
    empty = read_only_shelf.settings.model_copy(update={"default_namespace": "empty"})
    library = Library(empty, read_only_shelf.store)
    warm(library)  # what is there instead
    with pytest.raises(
        NotFoundError,
        match="; run `rag ingest PATH --namespace empty`, or name another library: default",
    ):
        library.current("empty")
    library.close()


def test_objects_sent_as_json_text_are_read(read_only_shelf: Any) -> None:
    result = call(
        read_only_shelf,
        "library_query",
        query="port",
        filters='{"filename": "notes.txt"}',
        collections='["default"]',
    )
    found = result.structured_content["data"]["documents"].values()
    assert [document["source_uri"] for document in found] == ["files/notes.txt"]


def test_results_lead_to_documents_and_resources(read_only_shelf: Any) -> None:
    async def conversation(client: Client) -> None:
        found = (
            await client.call_tool(
                "library_query", {"query": "requests per minute of the pro tier"}
            )
        ).structured_content
        first = found["data"]["results"][0]
        read = (
            await client.call_tool(
                "library_get_document", {"doc_id": first["doc_id"], "format": "chunks"}
            )
        ).structured_content
        texts = {item["chunk_id"]: item["text"] for item in read["data"]["document"]["chunks"]}
        text = texts[first["uri"].removeprefix("chunk://")]
        assert text.startswith(first["text"])
        chunk = (await client.read_resource(first["uri"])).contents[0]
        assert chunk.text.endswith(text)
        assert "files/ports.md, Ports / Limits, lines 9-16" in chunk.text
        document = (await client.read_resource(f"doc://{first['doc_id']}")).contents[0]
        assert (
            document.text.startswith("---\ntitle: Port guide")
            and document.mime_type == "text/markdown"
        )
        with pytest.raises(MCPError, match="unknown_document"):
            await client.read_resource("doc://nothing")

    talk(read_only_shelf, conversation)


def test_lists_and_status(read_only_shelf: Any) -> None:
    async def conversation(client: Client) -> None:
        listed = (
            await client.call_tool("library_list_documents", {"group_by": None, "limit": 2})
        ).structured_content
        assert listed["data"]["total"] == 3 and listed["data"]["next_cursor"]
        assert (
            show(read_only_shelf.store.logs_dir, listed["trace_id"])["spans"][0]["name"]
            == "tool.library_list_documents"
        )
        told = (await client.call_tool("library_status", {})).structured_content
        assert told["data"]["namespaces"][0]["documents"] == 3

    talk(read_only_shelf, conversation)


def ports_id(shelf: Any) -> str:
    listed = call(shelf, "library_list_documents", group_by=None).structured_content["data"]
    [document] = [it for it in listed["groups"][0]["documents"] if it["filename"] == "ports.md"]
    return str(document["doc_id"])


@pytest.mark.parametrize(
    ("name", "loose", "plain"),
    [
        ("query", {"detail": None, "rerank": None, "generate": None, "collections": None}, {}),
        ("query", {"cursor": "", "release": " ", "strategy": "", "mode": "", "filters": None}, {}),
        ("query", {"mode": "Hybrid", "detail": "BRIEF"}, {"mode": "hybrid", "detail": "brief"}),
        ("query", {"release": "Latest", "top_k": 9}, {"top_k": 9}),
        ("query", {"searches": ["", "port"], "namespace": None}, {"searches": ["port"]}),
        ("query", {"collections": ""}, {}),
        ("list_documents", {"limit": None, "cursor": ""}, {}),
        ("get_document", {"doc_id": "doc://PORTS", "format": "Chunks"}, {"format": "chunks"}),
        ("get_document", {"lines": 9}, {"lines": "9"}),
    ],
)
def test_arguments_are_read_as_they_are_meant(
    read_only_shelf: Any, name: str, loose: dict[str, Any], plain: dict[str, Any]
) -> None:
    base = {"query": {"query": "Which port?"}, "list_documents": {}}.get(
        name, {"doc_id": ports_id(read_only_shelf)}
    )
    if "doc_id" in loose:
        loose = {**loose, "doc_id": loose["doc_id"].replace("PORTS", base["doc_id"])}
    one, other = (
        call(read_only_shelf, f"library_{name}", **{**base, **more}) for more in (loose, plain)
    )
    assert not one.is_error, one.content[0].text
    data, told = (
        {key: value for key, value in it.structured_content["data"].items() if key != "next_cursor"}
        for it in (one, other)  # a cursor belongs to the arguments as they were given
    )
    assert data == told


def test_null_is_a_value_where_it_means_something(read_only_shelf: Any) -> None:
    listed = call(read_only_shelf, "library_list_documents", group_by=None).structured_content
    assert [group["key"] for group in listed["data"]["groups"]] == [""]


@pytest.mark.parametrize(
    ("name", "arguments", "code", "message"),
    [
        ("query", {"query": "  "}, "empty_query", "empty"),
        ("query", {"query": "x" * 5000}, "query_too_long", "5000"),
        ("query", {}, "invalid_arguments", "argument 'query' is missing"),
        (
            "query",
            {"query": "x", "top_k": 1000},
            "invalid_arguments",
            "argument 'top_k': input should be less than or equal to 100 (given: '1000')",
        ),
        (
            "query",
            {"query": "x", "collections": 7},
            "invalid_arguments",
            "'collections': input should be a valid list (given: '7')",
        ),
        (
            "query",
            {"query": "x", "filter": {}},
            "invalid_arguments",
            "unknown argument 'filter'; known: query, searches, top_k, filters",
        ),
        ("query", {"query": "x", "filters": {"colour": "red"}}, "unknown_filter", "colour"),
        ("query", {"query": "x", "collections": "nope"}, "unknown_namespace", "known: default"),
        (
            "query",
            {"query": "x", "collections": ["default", "other"]},
            "unknown_namespace",
            "known: default",
        ),
        ("get_document", {"doc_id": "ports.md"}, "unknown_document", "did you mean ports-files"),
        ("list_documents", {"cursor": "?"}, "bad_cursor", "next_cursor"),
        (
            "get_document",
            {"doc_id": "PORTS", "pages": 9},
            "bad_range",
            "no passage is on pages 9-9; those of the document have no pages, lines 5-16",
        ),
        # within one passage, which both ends touch
        ("get_document", {"doc_id": "PORTS", "lines": "9-8"}, "bad_range", "smaller number first"),
        ("get_document", {"doc_id": "PORTS", "lines": "0-9"}, "bad_range", "counts from 1"),
    ],
)
def test_errors_are_envelopes_as_text_and_as_structure(
    read_only_shelf: Any, name: str, arguments: dict[str, Any], code: str, message: str
) -> None:
    if arguments.get("doc_id") == "PORTS":
        arguments = {**arguments, "doc_id": ports_id(read_only_shelf)}
    result = call(read_only_shelf, f"library_{name}", **arguments)
    envelope = result.structured_content
    assert result.is_error and json.loads(result.content[0].text) == envelope
    assert (envelope["ok"], envelope["data"], envelope["error"]["code"]) == (False, None, code)
    assert message in envelope["error"]["message"] and "none" not in envelope["error"]["message"]
    assert show(read_only_shelf.store.logs_dir, envelope["trace_id"])["status"] in ("error", "ok")


def test_a_question_before_the_first_release_says_what_to_do(shelf: Any) -> None:
    envelope = call(shelf, "library_query", query="anything").structured_content
    assert envelope["error"]["code"] == "no_release"
    assert "run `rag ingest PATH --namespace" in envelope["error"]["message"]
    assert envelope["error"]["message"].endswith("run in a terminal: ask the user to")


def test_a_library_whose_indexes_are_gone_fails_readably(shelf: Any, tmp_path: Path) -> None:
    (tmp_path / "ports.md").write_text(
        "# Ports\n\nThe gateway listens on port 8080.\n", encoding="utf-8"
    )
    release = shelf.store.release_dir("default", shelf.ingest(tmp_path / "ports.md"))
    for part in ("dense", "lexical"):
        shutil.rmtree(release / part)
    result = call(shelf, "library_query", query="Which port?")
    envelope = result.structured_content
    assert result.is_error and (envelope["ok"], envelope["error"]["code"]) == (
        False,
        "provider_error",
    )
    assert "rag rebuild" in result.content[0].text
    assert "ask the user" in result.content[0].text


def test_a_summary_insists_on_its_version_when_asked(read_only_shelf: Any) -> None:
    async def conversation(client: Client) -> None:
        listed = (
            await client.call_tool("library_list_documents", {"group_by": None})
        ).structured_content["data"]["groups"][0]
        named = {"doc_id": listed["documents"][0]["doc_id"]}
        version = (await client.call_tool("library_summarize_document", named)).structured_content[
            "data"
        ]["version_id"]
        same = await client.call_tool(
            "library_summarize_document", {**named, "version_id": version}
        )
        assert same.structured_content["data"]["version_id"] == version
        other = await client.call_tool(
            "library_summarize_document", {**named, "version_id": f"{version[:-12]}000000000000"}
        )
        told = other.structured_content["error"]
        assert (
            told["code"] == "version_not_live"
            and version in told["message"]
            and "leave version_id out" in told["message"]
        )

    talk(read_only_shelf, conversation)


def test_the_filters_are_described_as_they_are(read_only_shelf: Any) -> None:
    """Fields that exist, and those whose absence lets a passage through."""
    told = querying.QueryArguments.model_fields["filters"].description or ""
    fields = re.sub(
        r" \([^)]*\)", "", told.partition("Fields: ")[2].partition(" and others")[0]
    ).split(", ")
    assert set(fields) <= set(FILTERABLE) and {
        "tags",
        "media_type",
        "created_at",
        "doc_date",
    } <= set(fields)
    passing = re.split(r", | or ", told.partition("Passages without ")[2].partition(" pass too")[0])
    assert set(passing) == {
        name for name in fields if filters.MISSING.get(name, "exclude") == "include"
    }
    example = json.loads(told.partition("Example: ")[2])
    assert filters.plan(example).missing_included == ()


def test_unexpected_failures_tell_a_trace_and_no_more(
    read_only_shelf: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: Any) -> Any:
        raise RuntimeError("secret at /etc/rag/key")

    monkeypatch.setattr(reading, "collect_status", broken)
    result = call(read_only_shelf, "library_status")
    assert result.is_error and result.structured_content["error"]["code"] == "internal_error"
    assert "secret" not in result.content[0].text and "RuntimeError" in result.content[0].text
    assert (
        show(read_only_shelf.store.logs_dir, result.structured_content["trace_id"])["spans"][0][
            "status"
        ]
        == "error"
    )


def test_a_call_that_fails_has_one_trace_and_that_failed(read_only_shelf: Any) -> None:
    """Also one that is refused or has an invalid argument, which nothing traces otherwise."""
    for tool, arguments, code in (
        ("library_get_document", {"doc_id": "nope"}, "unknown_document"),
        ("library_get_document", {"doc_id": "nope", "format": "pdf"}, "invalid_arguments"),
        ("library_query", {"query": "port", "top_k": 0}, "invalid_arguments"),
        ("library_ingest", {"content": "x", "filename": "x.md"}, "tool_not_allowed"),
    ):
        before = ended_traces(read_only_shelf.store.logs_dir)
        told = call(read_only_shelf, tool, **arguments).structured_content
        after = ended_traces(read_only_shelf.store.logs_dir)
        [trace_id] = after.keys() - before.keys()
        assert (told["error"]["code"], told["trace_id"]) == (code, trace_id)
        assert after[trace_id] == ("error", code)


def ended_traces(logs_dir: Path) -> dict[str, tuple[str, str]]:
    """The status and the error's code of each trace that ended, by its id."""
    lines = [
        json.loads(line)
        for path in logs_dir.glob("*.jsonl")
        for line in path.read_bytes().splitlines()
        if line  # after an incomplete write the next one begins a new line
    ]
    return {
        it["trace_id"]: (it["status"], it.get("error", {}).get("code", ""))
        for it in lines
        if it.get("line") == "trace.end"
    }


def test_a_slow_call_blocks_neither_the_loop_nor_other_calls(
    read_only_shelf: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second call ends while the first one still waits, and a cancelled call is let go at
    once.
    """
    release = threading.Event()
    answer = worker_pool.answer

    def slow(library: Any, request: Any) -> Any:
        if request.text == "slow":
            release.wait(20)
        return answer(library, request)

    monkeypatch.setattr(worker_pool, "answer", slow)

    async def conversation(client: Client) -> None:
        order: list[str] = []

        async def ask(text: str) -> None:
            await client.call_tool("library_query", {"query": text})
            order.append(text)

        async with anyio.create_task_group() as group:
            group.start_soon(ask, "slow")
            await anyio.sleep(0.05)
            await ask("port")
            release.set()
        assert order == ["port", "slow"]
        release.clear()
        with anyio.move_on_after(0.2) as scope:
            await client.call_tool("library_query", {"query": "slow"})
        assert scope.cancelled_caught
        await ask("gateway")

    try:
        talk(read_only_shelf, conversation)
    finally:
        release.set()


def test_dotted_names(read_only_shelf: Any) -> None:
    named = read_only_shelf.settings.server.model_copy(update={"underscore_tool_names": False})
    server = build_server(
        read_only_shelf.settings.model_copy(update={"server": named}), read_only_shelf.library()
    )

    async def run() -> None:
        async with Client(server) as client:
            names = [item.name for item in (await client.list_tools()).tools]
            offered = [spec.name for spec in SPECS if not spec.allowed_by and spec.app != "only"]
            assert names == [f"library.{name}" for name in offered]
            assert "call library.query first" in (client.instructions or "")
            prompt = await client.get_prompt("cited_answer", {"question": "Which port?"})
            assert (
                "Call library.query" in prompt.messages[0].content.text
                and "Question: Which port?" in prompt.messages[0].content.text
            )

    anyio.run(run)


def test_without_a_name_what_is_published_is_asked(shelf: Any, tmp_path: Path) -> None:
    """One library is the default whatever its name, several are all asked, and a call that reads
    one says which there are.
    """
    for namespace, text in (
        ("demo", "# Ports\n\nThe gateway listens on port 8080.\n"),
        ("hr", "# Leave\n\nSick leave needs a note.\n"),
    ):
        (tmp_path / f"{namespace}.md").write_text(text, encoding="utf-8")
        shelf.ingest(tmp_path / f"{namespace}.md", namespace=namespace)
        asked = call(shelf, "library_query", query="gateway port").structured_content["data"]
        [demo] = {it["source_uri"] for it in asked["documents"].values()} - {"files/hr.md"}
        assert demo == "files/demo.md"
        if namespace == "demo":
            listed = call(shelf, "library_list_documents").structured_content["data"]
            assert (listed["namespace"], listed["total"]) == ("demo", 1)
    assert set(asked["releases"]) == {"demo", "hr"}
    refused = call(shelf, "library_list_documents").structured_content["error"]
    assert refused["code"] == "which_collection"
    assert "there are 2 libraries (demo, hr)" in refused["message"]


def test_several_collections_are_asked_together(shelf: Any, tmp_path: Path) -> None:
    for namespace, text in (
        ("default", "# Ports\n\nThe gateway listens on port 8080.\n"),
        ("hr", "# Leave\n\nSick leave needs a note.\n"),
    ):
        (tmp_path / f"{namespace}.md").write_text(text, encoding="utf-8")
        shelf.ingest(tmp_path / f"{namespace}.md", namespace=namespace)
    found = call(
        shelf, "library_query", query="Does sick leave need a note?", collections=["default", "hr"]
    ).structured_content["data"]
    assert found["results"][0]["namespace"] == "hr"
    assert set(found["releases"]) == {"default", "hr"} and "release_id" not in found
    alone = call(
        shelf, "library_query", query="sick leave note", collections=["hr"]
    ).structured_content["data"]
    assert "releases" not in alone and "namespace" not in alone["results"][0]


def test_a_call_that_nobody_waits_for_ends(shelf: Any, tmp_path: Path, config_folder: Path) -> None:
    """A cancelled question lets go of its slow model: nothing runs on in the library."""
    over = threading.Event()
    (tmp_path / "ports.md").write_text(
        "# Ports\n\nThe gateway listens on port 8080.\n", encoding="utf-8"
    )
    shelf.ingest(tmp_path / "ports.md")
    with chat_server(lambda body, number: (over.wait(20), said("late"))[1]) as server:
        tiny = config_folder / "strategies" / "tiny.yaml"
        model = (
            f"llm: {{provider: openai, options: {{model: m, base_url: '{server.url}', api_key_env:"
            " '', retries: 0}}\n"
        )
        tiny.write_text(
            tiny.read_text(encoding="utf-8")
            + "answerer: {provider: llm}\nquery: {rewrite: {enabled: false}}\n"
            + model,
            encoding="utf-8",
        )
        library = shelf.library()

        async def run() -> None:
            async with Client(build_server(shelf.settings, library)) as client:
                with anyio.move_on_after(0.5) as scope:
                    await client.call_tool("library_query", {"query": "gateway port"})
                assert scope.cancelled_caught
                with anyio.fail_after(2):
                    while library.load.running:
                        await anyio.sleep(0.01)

        try:
            anyio.run(run)
        finally:
            over.set()


@pytest.mark.e2e
def test_stdio_speaks_nothing_but_the_protocol(read_only_shelf: Any, tmp_path: Path) -> None:
    """Stray prints of a provider do not reach the wire: the child prints to stdout from Python and
    from below it.
    """
    program = tmp_path / "serve.py"
    program.write_text(
        "import os\n"
        "from rag_platform.config.settings import load_settings\n"
        "from rag_platform.server import app, worker_pool\n"
        "answer = worker_pool.answer\n"
        "def noisy(library, request):\n"
        "    print('stray', flush=True)\n"
        "    os.write(1, b'stray below python\\n')\n"
        "    return answer(library, request)\n"
        "worker_pool.answer = noisy\n"
        "app.serve_stdio(load_settings())\n",
        encoding="utf-8",
    )
    environment = {
        **os.environ,
        "RAG_HOME": str(read_only_shelf.settings.home),
        "RAG_CONFIG": str(read_only_shelf.settings.strategies_dir.parent),
    }
    errors = tmp_path / "stderr.txt"

    async def run() -> None:
        with open(errors, "w", encoding="utf-8") as log:
            server = StdioServerParameters(
                command=sys.executable, args=[str(program)], env=environment
            )
            async with Client(stdio_client(server, errlog=log)) as client:
                result = await client.call_tool("library_query", {"query": "gateway port"})
                assert "8080" in result.structured_content["data"]["answer_markdown"]

    anyio.run(run)
    assert "stray below python" in errors.read_text(encoding="utf-8")


def test_no_path_of_the_machine_leaves_with_a_warning(shelf: Any, tmp_path: Path) -> None:
    (tmp_path / "ports.md").write_text(
        "# Ports\n\nThe gateway listens on port 8080.\n", encoding="utf-8"
    )
    release = shelf.store.release_dir("default", shelf.ingest(tmp_path / "ports.md"))
    for path in (release / "lexical").glob("*.fieldnorm"):
        path.unlink()
    result = call(shelf, "library_query", query="gateway port")
    told = json.dumps(result.structured_content) + result.content[0].text
    assert "sparse retriever failed" in told and ".fieldnorm" in told and str(tmp_path) not in told
    assert result.structured_content["data"]["state"] == "answered"
    shutil.rmtree(release / "dense")
    result = call(shelf, "library_query", query="gateway port")
    told = json.dumps(result.structured_content) + result.content[0].text
    assert result.is_error and "could not be searched" in told and str(tmp_path) not in told
